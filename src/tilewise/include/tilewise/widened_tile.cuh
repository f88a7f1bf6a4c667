// Rows of 8 bits in shared memory as the 16-bit operand of a matrix instruction, by way of registers. Exact: a type of
// 16 bits has every number of 8, infinities and NaN among them. Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/wgmma.cuh>

// Two bytes, the first in the low one, as two elements of 16 bits that share a register.
template <typename Wide, typename Narrow> struct Widened;

// The upper, or the lower, bytes of both halves.
inline __device__ unsigned as_upper_bytes(unsigned both) { return __byte_perm(both, 0, 0x1404); }
inline __device__ unsigned as_lower_bytes(unsigned both) { return __byte_perm(both, 0, 0x4140); }

// Of int8 the tensor cores need no more than its bits behind those of a large number, which is taken away again.
template <> struct Widened<float16, int8> {
    static constexpr bool SPECIAL = false;
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned above = as_lower_bytes(both ^ 0x8080) | 0x64006400; // 1024 + 128 + n
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(above), "r"(0x64806480));
        return pair;
    }
};

template <> struct Widened<bfloat16, int8> {
    static constexpr bool SPECIAL = false;
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned bits = as_lower_bytes(both); // 128 + the lower seven, less 128 or, of a negative one, 256
        asm("sub.rn.bf16x2 %0, %1, %2;"
            : "=r"(pair)
            : "r"((bits & 0x007f007f) | 0x43004300), "r"((bits & 0x00800080) | 0x43004300));
        return pair;
    }
};

template <> struct Widened<float16, float8_e4m3fn> {
    static constexpr bool SPECIAL = false;
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(both)));
        return pair;
    }
};

template <> struct Widened<float16, float8_e5m2> {
    static constexpr bool SPECIAL = false;
    static __device__ unsigned of(unsigned both) { return as_upper_bytes(both); }
};

// Exponents begin elsewhere in bfloat16: a product with a power of two mends that, of subnormals too. What the largest
// exponent stands for, infinities and NaN, is mended by `special` where `largest`, of magnitudes, says that there is any.
template <unsigned EXPONENT_SHIFT, unsigned POWER, unsigned LEAST_SPECIAL, bool INFINITE> struct WidenedToBfloat16 {
    static constexpr bool SPECIAL = true;
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned bits = as_upper_bytes(both);
        asm("mul.rn.bf16x2 %0, %1, %2;"
            : "=r"(pair)
            : "r"((bits & 0x80008000) | (bits & 0x7f007f00) >> EXPONENT_SHIFT), "r"(POWER << 16 | POWER));
        return pair;
    }
    static __device__ void keep_largest(unsigned &largest, unsigned pair)
    {
        asm("max.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(pair));
    }
    static __device__ bool any_special(unsigned largest)
    {
        return (largest & 0x7fff) >= LEAST_SPECIAL || (largest >> 16 & 0x7fff) >= LEAST_SPECIAL;
    }
    static __device__ unsigned special(unsigned pair)
    {
#pragma unroll
        for (unsigned shift = 0; shift < 32; shift += 16) {
            const unsigned places = pair >> shift & 0x7fff;
            if (places < LEAST_SPECIAL) continue;
            const unsigned number = INFINITE && places == LEAST_SPECIAL ? 0x7f80 : 0x7fff;
            pair = (pair & ~(0x7fffu << shift)) | number << shift;
        }
        return pair;
    }
};
template <> struct Widened<bfloat16, float8_e4m3fn> : WidenedToBfloat16<4, 0x7b80, 0x43f0, false> {}; // from 480 on
template <> struct Widened<bfloat16, float8_e5m2> : WidenedToBfloat16<3, 0x7780, 0x4780, true> {};    // from 65536 on

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
        unsigned largest = 0;
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                at[k][i] = Pairs::of(at[k][i]);
                if constexpr (Pairs::SPECIAL) Pairs::keep_largest(largest, at[k][i]);
            }
        if constexpr (Pairs::SPECIAL) {
            if (!Pairs::any_special(largest)) return;
#pragma unroll
            for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    at[k][i] = Pairs::special(at[k][i]);
        }
    }
};
