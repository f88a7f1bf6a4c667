// Element types by name, so that a plan hands them to a kernel as they are (-DELEMENT=bfloat16); what sums of
// each are kept in, and the way there and back.
#pragma once

enum class float16 : unsigned short {};  // the bits of an IEEE 754 binary16
enum class bfloat16 : unsigned short {}; // the upper half of the bits of a float32
using float32 = float;
using float64 = double;
using int32 = int;
using int64 = long long;

// A byte each. Of results the largest number stands for all beyond it, infinities among them.
enum class float8_e4m3fn : unsigned char {}; // the bits: 4 of an exponent, 3 behind the point; up to 448
enum class float8_e5m2 : unsigned char {};   // up to 57344
enum class int8 : signed char {};            // whole numbers from -128 to 127

template <typename A, typename B> constexpr bool SAME = false;
template <typename T> constexpr bool SAME<T, T> = true;

// What is multiplied: the type of A and B, or both types, where these are two of float8.
template <typename A, typename B> struct TwoTypes {};
template <typename A, typename B> struct TypesOf {
    using Both = TwoTypes<A, B>;
};
template <typename T> struct TypesOf<T, T> {
    using Both = T;
};

// The element in the type that sums are kept in: float64 for itself, float32 for all other floating-point types. Exact.
inline __device__ float32 widen(float16 element)
{
    float32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<unsigned short>(element)));
    return wide;
}

inline __device__ float32 widen(float8_e5m2 element)
{
    return widen(float16(static_cast<unsigned>(element) << 8)); // the upper half of its bits
}

inline __device__ float32 widen(float8_e4m3fn element)
{
    const unsigned bits = static_cast<unsigned>(element), places = bits & 0x7f;
    const float32 small = widen(float16((bits & 0x80) << 8 | places << 7)); // exponents begin 8 lower there
    return places == 0x7f ? __uint_as_float(0x7fffffff) : small * 256;
}

inline __device__ float32 widen(bfloat16 element)
{
    return __uint_as_float(static_cast<unsigned>(element) << 16);
}

// Two float16 that share a register, the first in its low half.
inline __device__ float2 widen_pair(unsigned both)
{
    float2 pair;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
        "cvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
        : "=f"(pair.x), "=f"(pair.y)
        : "r"(both));
    return pair;
}

inline __device__ float32 widen(float32 element) { return element; }
inline __device__ float64 widen(float64 element) { return element; }

// Integers are multiplied and summed modulo 2ⁿ: without signs, as C++ leaves open what signed ones do beyond their range.
inline __device__ unsigned widen(int8 element) { return static_cast<int>(element); }
inline __device__ unsigned widen(int32 element) { return element; }
inline __device__ unsigned long long widen(int64 element) { return element; }

// The same in the type of other sums, which have all numbers of 8 bits: integers among floating-point numbers.
template <typename Sum, typename T> inline __device__ Sum widen_to(T element)
{
    if constexpr (SAME<T, int8> && SAME<Sum, float32>)
        return static_cast<int>(element);
    else
        return widen(element);
}

// Two neighbours, of which the first has an even place; of 8 bits by one instruction where there is one.
template <typename T> inline __device__ auto widen_two(const T *both)
{
    struct {
        decltype(widen(T())) x, y;
    } wide = {widen(both[0]), widen(both[1])};
    return wide;
}

template <> inline __device__ auto widen_two(const bfloat16 *both)
{
    const unsigned bits = *reinterpret_cast<const unsigned *>(both); // NOTE: or the upper one takes two instructions
    return float2{__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000)};
}

#if __CUDA_ARCH__ >= 890
// Two bytes of e4m3, the first in the low one, as two float16 that share a register. Exact.
inline __device__ unsigned e4m3_as_float16(unsigned short both)
{
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(both));
    return pair;
}

template <> inline __device__ auto widen_two(const float8_e4m3fn *both)
{
    return widen_pair(e4m3_as_float16(*reinterpret_cast<const unsigned short *>(both)));
}
#endif

// The number n of which this byte has 128 + n: its bits behind those of 2²³, which is faster than a conversion.
inline __device__ float32 widen_shifted_byte(unsigned bytes, unsigned which)
{
    return __uint_as_float(__byte_perm(bytes, 0x4b000000, 0x7440 + which)) - 8388736.0f;
}

template <typename Sum, typename T> inline __device__ auto widen_two_to(const T *both)
{
    if constexpr (SAME<T, int8> && SAME<Sum, float32>) {
        const unsigned bits = *reinterpret_cast<const unsigned short *>(both) ^ 0x8080;
        return float2{widen_shifted_byte(bits, 0), widen_shifted_byte(bits, 1)};
    } else {
        return widen_two(both);
    }
}

// So many neighbours, of which the first has a place that is a multiple of as many.
template <typename Sum, unsigned COUNT, typename T> inline __device__ void widen_run(Sum (&wide)[COUNT], const T *run)
{
#pragma unroll
    for (unsigned i = 0; i < COUNT; i += 2) {
        const auto two = widen_two_to<Sum>(&run[i]);
        wide[i] = two.x, wide[i + 1] = two.y;
    }
}

// The same of four of int8 that share a register.
inline __device__ void widen_run(float32 (&wide)[4], unsigned bytes)
{
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        wide[i] = widen_shifted_byte(bytes ^ 0x80808080, i);
}

// The sum as the number that it stands for, before something happens to it.
template <typename Sum> inline __device__ Sum as_number(Sum sum) { return sum; }
inline __device__ int as_number(unsigned sum) { return sum; }

// The sum rounded to an element type: to the nearest, of two equally near ones to the even one.
template <typename T> inline __device__ T narrow(float32 sum) { return sum; }
template <typename T> inline __device__ T narrow(float64 sum) { return sum; }
template <typename T> inline __device__ T narrow(int sum) { return sum; }
template <typename T> inline __device__ T narrow(unsigned sum) { return sum; }
template <typename T> inline __device__ T narrow(unsigned long long sum) { return sum; }

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

// A float8 of MANTISSA bits behind the point, whose largest number has the bits MOST, by whole numbers.
template <unsigned MANTISSA, unsigned BIAS, unsigned MOST> inline __device__ unsigned char narrow_to_8(float32 sum)
{
    constexpr unsigned SHIFT = 23 - MANTISSA, LEAST_NORMAL = 128 - BIAS, STEP = 23 + LEAST_NORMAL - MANTISSA;
    const unsigned sign = __float_as_uint(sum) >> 24 & 0x80, wide = __float_as_uint(sum) & 0x7fffffff;
    if (sum != sum) return 0x7f;
    unsigned bits;
    if (wide < LEAST_NORMAL << 23) // as many steps as are left in a float32 that has the same steps
        bits = __float_as_uint(__uint_as_float(wide) + __uint_as_float(STEP << 23)) - (STEP << 23);
    else
        bits = (wide + (1u << (SHIFT - 1)) - 1 + (wide >> SHIFT & 1) >> SHIFT) - (127 - BIAS << MANTISSA);
    return sign | (bits < MOST ? bits : MOST);
}

template <> inline __device__ float8_e4m3fn narrow<float8_e4m3fn>(float32 sum)
{
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(sum));
    return float8_e4m3fn(pair);
#else
    return float8_e4m3fn(narrow_to_8<3, 7, 0x7e>(sum));
#endif
}

template <> inline __device__ float8_e5m2 narrow<float8_e5m2>(float32 sum)
{
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(sum));
    return float8_e5m2(pair);
#else
    return float8_e5m2(narrow_to_8<2, 15, 0x7b>(sum));
#endif
}

template <> inline __device__ int8 narrow<int8>(float32 sum)
{
    int whole;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(whole) : "f"(sum)); // of NaN 0
    return int8(whole);
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

    // One of them as a number.
    __device__ auto widened(unsigned i) const
    {
        if constexpr (SAME<T, bfloat16> && COUNT % 2 == 0) {
            const auto two = widen_two(&at[i / 2 * 2]);
            return i % 2 ? two.y : two.x;
        } else {
            return widen(at[i]);
        }
    }
};

// One has no neighbours.
template <typename T> union Neighbours<T, 1> {
    T at[1];

    static __device__ bool are_aligned(const void *) { return true; }
    __device__ void read(const void *from) { at[0] = *static_cast<const T *>(from); }
    __device__ auto widened(unsigned) const { return widen(at[0]); }
};
