// Rows of 8 bits in shared memory as the 16-bit operand of a matrix instruction, by way of registers. Exact: a type of
// 16 bits has every number of 8, infinities and NaN among them. Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/wgmma.cuh>

// Makes of two bytes, the first in the low one, two elements of 16 bits that share a register: by way of what the hardware
// makes of them, float16, which has all of them.
template <typename Wide, typename Narrow> struct Widening {
    __device__ unsigned operator()(unsigned both) const
    {
        unsigned pair;
        if constexpr (SAME<Narrow, float8_e4m3fn>)
            pair = e4m3_as_float16(both);
        else {
            pair = __byte_perm(both, 0, 0x1404); // e5m2 has the upper bytes of float16
            asm volatile("" : "+r"(pair)); // NOTE: or the compiler moves that behind wgmma's fence
        }
        if constexpr (SAME<Wide, float16>)
            return pair;
        else
            return narrow_pair<Wide>(widen_pair(pair));
    }
};

// Puts two bytes, each below a byte UPPER, into the halves of a register: so those of int8 are the last digits of a large
// number, which is taken away again.
template <unsigned UPPER> struct BytesBelow {
    // NOTE: threadIdx.y is 0, which the assembler does not know: a number that it knows it copies to a register at each use.
    const unsigned upper = UPPER + threadIdx.y;
    __device__ unsigned of(unsigned both) const { return __byte_perm(both, upper, 0x4140); }
};

template <> struct Widening<float16, int8> {
    const BytesBelow<0x64> digits;

    __device__ unsigned operator()(unsigned both) const
    {
        unsigned pair; // 1024 + 128 + n
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(digits.of(both ^ 0x8080)), "r"(0x64806480));
        return pair;
    }
};

template <> struct Widening<bfloat16, int8> {
    const BytesBelow<0x43> digits;

    __device__ unsigned operator()(unsigned both) const
    {
        unsigned pair;
        const unsigned bits = digits.of(both); // 128 + the lower seven, less 128 or, of a negative one, 256
        asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits & 0xff7fff7f), "r"(bits & 0xff80ff80));
        return pair;
    }
};

// What a warpgroup has in registers of one half, 64 bytes, of 64 rows of 128 bytes that begin at `rows`, as the copy
// engine swizzles them: of each instruction's 16 k four registers. Warp w has rows 16·w on; its lane 4·g + t bytes 2·t
// and 2·t + 1 of rows g and g + 8, and those 8 further.
template <typename Wide, typename Narrow> struct WidenedRows {
    static constexpr unsigned INSTRUCTIONS = 64 / 16;
    using Widen = Widening<Wide, Narrow>;
    unsigned at[INSTRUCTIONS][4];

    __device__ WidenedRows(const Widen &widen, const Narrow *rows, unsigned half)
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, g = lane / 4;
        // Rows lie at multiples of 128 bytes, so that one exclusive or leads from a lane's first bytes to its others.
        const unsigned first = shared_address(rows) + (warp * 16 + g) * 128 + g * 16 + lane % 4 * 2;
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const void *chunk = __cvta_shared_to_generic(first ^ (half * INSTRUCTIONS + k) * 16);
                const char *place = static_cast<const char *>(chunk);
                at[k][i] = *reinterpret_cast<const unsigned short *>(place + i % 2 * 8 * 128 + i / 2 * 8);
            }
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                at[k][i] = widen(at[k][i]);
    }
};
