// Element types by name, so that a plan hands them to a kernel as they are (-DELEMENT=bfloat16); what sums of
// each are kept in, and the way there and back.
#pragma once

enum class float16 : unsigned short {};  // the bits of an IEEE 754 binary16
enum class bfloat16 : unsigned short {}; // the upper half of the bits of a float32
using float32 = float;
using float64 = double;

template <typename A, typename B> constexpr bool SAME = false;
template <typename T> constexpr bool SAME<T, T> = true;

// The element in the type that sums are kept in: float64 for itself, float32 for all others. Exact.
inline __device__ float32 widen(float16 element)
{
    float32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<unsigned short>(element)));
    return wide;
}

inline __device__ float32 widen(bfloat16 element)
{
    return __uint_as_float(static_cast<unsigned>(element) << 16);
}

inline __device__ float32 widen(float32 element) { return element; }
inline __device__ float64 widen(float64 element) { return element; }

// The sum rounded to an element type: to the nearest, of two equally near ones to the even one.
template <typename T> inline __device__ T narrow(float32 sum) { return sum; }
template <typename T> inline __device__ T narrow(float64 sum) { return sum; }

template <> inline __device__ float16 narrow<float16>(float32 sum)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(sum));
    return float16(bits);
}

template <> inline __device__ bfloat16 narrow<bfloat16>(float32 sum)
{
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(sum));
#else
    const unsigned wide = __float_as_uint(sum);
    const unsigned rounded = wide + 0x7fff + (wide >> 16 & 1);
    const unsigned short bits = sum == sum ? rounded >> 16 : 0x7fff; // NOTE: rounding could turn NaN into 0
#endif
    return bfloat16(bits);
}

// Two neighbours in a row of results.
template <typename T> struct alignas(2 * sizeof(T)) Pair {
    T low, high;
};

// Two sums rounded, each by an instruction of its own.
template <typename T> inline __device__ Pair<T> narrow_each(float2 sums)
{
    return {narrow<T>(sums.x), narrow<T>(sums.y)};
}

// Two sums rounded by one instruction and packed, the first in the low half. Compute capability 8.0.
template <typename T> inline __device__ auto narrow_pair(float2 sums)
{
    if constexpr (SAME<T, float32>) {
        return sums;
    } else {
        unsigned pair;
        if constexpr (SAME<T, bfloat16>)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(sums.y), "f"(sums.x));
        else
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(sums.y), "f"(sums.x));
        return pair;
    }
}

// Neighbours in memory, read or written at once where they begin at a multiple of what they take, 16 bytes at most.
template <typename T, unsigned COUNT> union Neighbours {
    static constexpr unsigned BYTES = COUNT * sizeof(T), WORDS = BYTES / sizeof(unsigned);
    static constexpr unsigned ALIGNMENT = BYTES < 16 ? BYTES : 16;
    struct alignas(ALIGNMENT) Words {
        unsigned at[ALIGNMENT / sizeof(unsigned)];
    };
    T at[COUNT];
    Words words[BYTES / ALIGNMENT];

    static __device__ bool are_aligned(const void *address)
    {
        return reinterpret_cast<unsigned long long>(address) % ALIGNMENT == 0;
    }

    __device__ void read(const void *from)
    {
#pragma unroll
        for (unsigned i = 0; i < BYTES / ALIGNMENT; ++i)
            words[i] = static_cast<const Words *>(from)[i];
    }

    __device__ void write(void *to) const
    {
#pragma unroll
        for (unsigned i = 0; i < BYTES / ALIGNMENT; ++i)
            static_cast<Words *>(to)[i] = words[i];
    }
};

// One has no neighbours.
template <typename T> union Neighbours<T, 1> {
    T at[1];
};
