// The registers of a thread that hold sums of a warpgroup's matrix instruction: each one in float32 or int32, or two
// neighbours in float16, the first in the low half.
#pragma once

#include <tilewise/element.cuh>

// The register that sums of a type are kept in, and the type of one of them beside the tensor cores.
template <typename Sum> struct SumRegisterOf;
template <> struct SumRegisterOf<float32> {
    using Type = float;
    using Wide = float;
};
template <> struct SumRegisterOf<float16> {
    using Type = unsigned;
    using Wide = float;
};
template <> struct SumRegisterOf<int32> {
    using Type = int;
    using Wide = int;
};

// Which rows of a tile are the instruction's 64: those that follow one another; or PAIRED ones, of which a lane's two are
// neighbours. Where A's rows lie side by side in shared memory, both are read at once then, and half a warp's lie in all
// banks. Lane 4·g + t has sums of rows g and g + 8 of the warp's 16, of which the latter lies so much FURTHER down.
template <bool PAIRED> struct InstructionRows {
    static constexpr unsigned FURTHER = PAIRED ? 1 : 8;

    // The row that is this one of the warp's 16.
    static __device__ unsigned of_warp(unsigned own, unsigned thread = threadIdx.x)
    {
        const unsigned warp = thread % 128 / 32;
        if (!PAIRED) return warp * 16 + own;
        return warp / 2 * 32 + own / 2 % 2 * 16 + warp % 2 * 8 + own / 4 % 2 * 4 + own % 2 * 2 + own / 8;
    }

    // The row of the thread's first sum.
    static __device__ unsigned first(unsigned thread = threadIdx.x) { return of_warp(thread % 32 / 4, thread); }
};

// How many sums such a register has.
template <typename Register> constexpr unsigned SUMS_IN = SAME<Register, unsigned> ? 2 : 1;

// Two neighbouring sums, of which the first has an even number. NOTE: they are put as numbers, not as words. The compiler
// makes words of them before it waits for the products, and then the assembler lets these wait for one another (C7514).
template <unsigned COUNT> inline __device__ float2 sum_pair(const float (&sums)[COUNT], unsigned first)
{
    return {sums[first], sums[first + 1]};
}

template <unsigned COUNT> inline __device__ int2 sum_pair(const int (&sums)[COUNT], unsigned first)
{
    return {sums[first], sums[first + 1]};
}

template <unsigned COUNT> inline __device__ float2 sum_pair(const unsigned (&pairs)[COUNT], unsigned first)
{
    return widen_pair(pairs[first / 2]);
}

// The same rounded to a type of 16 bits and packed. Compute capability 8.0.
template <typename T, typename Register, unsigned COUNT>
inline __device__ unsigned narrow_sums(const Register (&sums)[COUNT], unsigned first)
{
    if constexpr (SAME<Register, unsigned> && SAME<T, float16>)
        return sums[first / 2]; // as they are
    else
        return narrow_pair<T>(sum_pair(sums, first));
}

// Sums as numbers.
template <typename Number, unsigned ALL, typename Register, unsigned COUNT>
inline __device__ void take_numbers(Number (&taken)[ALL], const Register (&sums)[COUNT])
{
    static_assert(ALL == COUNT * SUMS_IN<Register>, "all of them");
#pragma unroll
    for (unsigned i = 0; i < ALL; i += 2) {
        const auto pair = sum_pair(sums, i);
        taken[i] = pair.x, taken[i + 1] = pair.y;
    }
}
