// Rows of 8 bits in shared memory as the 16-bit operand of a matrix instruction, by way of registers. Exact: a type of
// 16 bits has every number of 8, infinities and NaN among them. Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/wgmma.cuh>

// Two bytes, the first in the low one, as two elements of 16 bits that share a register: by way of what the hardware makes
// of them, float16, which has all of them.
inline __device__ unsigned as_float16(unsigned both, float8_e4m3fn)
{
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(both)));
    return pair;
}

inline __device__ unsigned as_float16(unsigned both, float8_e5m2) { return __byte_perm(both, 0, 0x1404); } // upper bytes

template <typename Wide, typename Narrow> struct Widened {
    static __device__ unsigned of(unsigned both)
    {
        const unsigned pair = as_float16(both, Narrow());
        if constexpr (SAME<Wide, float16>)
            return pair;
        else
            return narrow_pair<Wide>(widen_pair(pair));
    }
};

// Of int8 the bits go behind those of a large number, which is taken away again.
inline __device__ unsigned behind(unsigned both, unsigned upper) { return __byte_perm(both, upper, 0x4140); }

template <> struct Widened<float16, int8> {
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned above = behind(both ^ 0x8080, 0x64); // 1024 + 128 + n
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(above), "r"(0x64806480));
        return pair;
    }
};

template <> struct Widened<bfloat16, int8> {
    static __device__ unsigned of(unsigned both)
    {
        unsigned pair;
        const unsigned bits = behind(both, 0x43); // 128 + the lower seven, less 128 or, of a negative one, 256
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
