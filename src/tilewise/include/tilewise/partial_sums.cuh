// Sums of columns and rows of what an epilogue makes, as far as a warp has it: each goes to an array of partial sums,
// which another launch adds up in a fixed order (kernels/gemm/add_sums.cu).
#pragma once

namespace partial_sums {

constexpr unsigned WARP = 32, ALL = ~0u;

// The sum over lanes that lie FROM, 2·FROM … apart, up to TO of them, in each of them. All lanes of the warp come.
template <unsigned FROM, unsigned TO, typename Sum> inline __device__ Sum add_lanes(Sum sum)
{
#pragma unroll
    for (unsigned apart = FROM; apart < TO; apart *= 2)
        sum += __shfl_xor_sync(ALL, sum, apart);
    return sum;
}

// Stores what LANES lanes, which have COUNT columns of a row each, come to. `exists` says whether there is such a row.
template <unsigned LANES, typename Array, typename Sum, unsigned COUNT>
inline __device__ void put_row(const Array &parts, const Sum (&of)[COUNT], bool exists, unsigned row, unsigned slot)
{
    Sum sum = of[0];
#pragma unroll
    for (unsigned i = 1; i < COUNT; ++i)
        sum += of[i];
    sum = add_lanes<1, LANES>(sum);
    if (exists && threadIdx.x % LANES == 0) *parts.at(row, slot) = sum;
}

// Stores what the lanes that lie APART come to, which have the same COUNT columns from `column` on, of which there are
// `left`.
template <unsigned APART, typename Array, typename Sum, unsigned COUNT>
inline __device__ void put_columns(const Array &parts, const Sum (&of)[COUNT], unsigned slot, unsigned column,
                                   unsigned left)
{
#pragma unroll
    for (unsigned i = 0; i < COUNT; ++i) {
        const Sum sum = add_lanes<APART, WARP>(of[i]);
        if (i < left && threadIdx.x % WARP < APART) *parts.at(slot, column + i) = sum;
    }
}

} // namespace partial_sums
