// Columns of float32 in shared memory as the operand of a matrix instruction that reads rows along K, by way of registers.
// Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/shared_address.cuh>
#include <tilewise/sum_registers.cuh>

// What a warpgroup has in registers of 64 rows by 32 k that lie across K, in boxes of 32 rows, each 128 bytes for every k,
// as the copy engine swizzles them: of each instruction's 8 k four registers. A lane 4·g + t has of both its rows k t, and
// that 4 further. NOTE: PAIRED rows lie in all banks; of others two at a time lie in the same ones.
template <bool PAIRED> struct TransposedRows {
    using Rows = InstructionRows<PAIRED>;
    static constexpr unsigned INSTRUCTIONS = 32 / 8, ROW_BYTES = 128, BOX_ROWS = 32, AT_ONCE = PAIRED ? 2 : 1;
    unsigned at[INSTRUCTIONS][4];

    // `rows` are the tile's, of which the warpgroup's begin at `begin`.
    __device__ void read(const float32 *rows, unsigned begin)
    {
        // Boxes lie at multiples of 1024 bytes, so that one exclusive or leads from a lane's first row to its other, and
        // from its first k to that 4 further.
        const unsigned row = begin + Rows::first(), t = threadIdx.x % 4;
        const unsigned box = shared_address(rows) + row / BOX_ROWS * (BOX_ROWS * ROW_BYTES);
        const unsigned first = box + t * ROW_BYTES + (row % BOX_ROWS / 4 ^ t) * 16 + row % 4 * 4;
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; i += AT_ONCE) {
                const unsigned place = (first ^ i % 2 * (Rows::FURTHER * 4) ^ i / 2 * 64) + (k * 8 + i / 2 * 4) * ROW_BYTES;
                Neighbours<unsigned, AT_ONCE> words;
                words.read(static_cast<const unsigned *>(__cvta_shared_to_generic(place)));
#pragma unroll
                for (unsigned j = 0; j < AT_ONCE; ++j)
                    at[k][i + j] = words.at[j];
            }
    }
};
