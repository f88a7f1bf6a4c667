// Rows of 8 bits in shared memory as the 16-bit operand of a matrix instruction, by way of registers. Exact: a type of
// 16 bits has every number of 8, infinities and NaN among them. Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/wgmma.cuh>

// Two bytes, the first in the low one, as two elements of 16 bits that share a register: by way of what the hardware makes
// of them, float16, which has all of them.
template <typename Wide, typename Narrow> struct Widened {
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        if constexpr (SAME<Narrow, float8_e4m3fn>)
            pair = e4m3_as_float16(both);
        else
            pair = __byte_perm(both, 0, 0x1404); // e5m2 has the upper bytes of float16
        if constexpr (SAME<Wide, float16>)
            return pair;
        else
            return narrow_pair<Wide>(widen_pair(pair));
    }
};

// Two bytes as the lower halves of 16 bits each, below a byte that both have: so those of int8 are the last digits of a
// large number, which is taken away again.
inline __device__ unsigned put_below(unsigned upper, unsigned both) { return __byte_perm(both, upper, 0x4140); }

template <> struct Widened<float16, int8> {
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned above = put_below(0x64, both ^ 0x8080); // 1024 + 128 + n
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(above), "r"(0x64806480));
        return pair;
    }
};

template <> struct Widened<bfloat16, int8> {
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned bits = put_below(0x43, both); // 128 + the lower seven, less 128 or, of a negative one, 256
        asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits & 0xff7fff7f), "r"(bits & 0xff80ff80));
        return pair;
    }
};

// What a warpgroup has in registers of one half, 64 bytes, of 64 rows of 128 bytes that begin at `rows`, as the copy
// engine swizzles them: of each instruction's 16 k four registers. Warp w has rows 16·w on; its lane 4·g + t bytes 2·t
// and 2·t + 1 of rows g and g + 8, and those 8 further.
template <typename Wide, typename Narrow> struct WidenedRows {
    static constexpr unsigned INSTRUCTIONS = 64 / 16;
    using Pairs = Widened<Wide, Narrow>;
    unsigned at[INSTRUCTIONS][4];

    __device__ WidenedRows(const Narrow *rows, unsigned half)
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, g = lane / 4;
        const char *first = reinterpret_cast<const char *>(rows) + (warp * 16 + g) * 128 + lane % 4 * 2;
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const char *place = first + ((half * INSTRUCTIONS + k ^ g) * 16) + i % 2 * 8 * 128 + i / 2 * 8;
                at[k][i] = *reinterpret_cast<const unsigned short *>(place);
            }
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                at[k][i] = Pairs::of(at[k][i]);
    }
};
