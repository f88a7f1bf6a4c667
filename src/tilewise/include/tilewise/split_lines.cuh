// What split_halves.cu says of the rows of A, and of the columns of B, that it splits, and where the products of their
// parts are as exact as those of float32.
//
// An element x of a line becomes x·2^s = high + low/2048, both float16, with s even and such that the line's largest is in
// [2^13, 2^15). This keeps 22 bits of every element down to 2^-14. What is smaller is TINY: it may lose up to 2^-36.
// For a row with `t` tiny elements and a column with `u` the sum is off by (t + u)·2^-21 at most for that. LARGE elements
// have 4 or more. Of K terms at least large + large - K have two of them, which makes 16 each of the sum of |a|·|b|.
#pragma once

#include <tilewise/stack.cuh>

struct Spread {
    unsigned large, tiny; // how many elements of a line are so, or the least and the most of several lines
};

struct SplitLines {
    const Spread *spreads;
    const float *roots;    // 2^(-s/2): of what takes the scale back
    unsigned outer, inner; // lines from a matrix of the stack to the next, along both axes

    __device__ unsigned first(InStack which) const { return which.outer * outer + which.inner * inner; }

    // The worst of a matrix's lines from `begin` on, up to COUNT of those before `end`. All lanes of a warp ask.
    template <unsigned COUNT> __device__ Spread worst(unsigned first, unsigned begin, unsigned end) const
    {
        constexpr unsigned LANES = 32;
        Spread found = {~0u, 0};
#pragma unroll
        for (unsigned i = 0; i < (COUNT + LANES - 1) / LANES; ++i) {
            const unsigned line = begin + i * LANES + threadIdx.x % LANES;
            if (line >= end || i * LANES + threadIdx.x % LANES >= COUNT) continue;
            const Spread one = spreads[first + line];
            found.large = min(found.large, one.large), found.tiny = max(found.tiny, one.tiny);
        }
        return {__reduce_min_sync(~0u, found.large), __reduce_max_sync(~0u, found.tiny)};
    }
};

// Whether tiny elements change a sum of `depth` terms by 2^-23 of the sum of |a|·|b| at most.
inline __device__ bool is_exact(Spread row, Spread column, unsigned depth)
{
    const unsigned long long tiny = 0ull + row.tiny + column.tiny, large = 0ull + row.large + column.large;
    return tiny == 0 || (large > depth && tiny <= (large - depth) * 4);
}
