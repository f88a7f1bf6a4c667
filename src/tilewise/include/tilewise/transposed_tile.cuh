// Columns of float32 in shared memory as the operand of a matrix instruction that reads rows along K, by way of registers.
// Compute capability 9.0.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/shared_address.cuh>
#include <tilewise/sum_registers.cuh>

// What a warpgroup has in registers of 64 rows by 32 k that lie across K, in boxes of 32 rows, each 128 bytes for every k,
// as the copy engine swizzles them: of each instruction's 8 k four registers. A lane 4·g + t has of both its rows, which are
// PAIRED (tilewise/sum_registers.cuh), k t, and that 4 further.
struct TransposedRows {
    using Rows = InstructionRows<true>;
    static constexpr unsigned INSTRUCTIONS = 32 / 8, ROW_BYTES = 128, BOX_ROWS = 32;
    unsigned at[INSTRUCTIONS][4];

    // `rows` are the tile's, of which the warpgroup's begin at `begin`.
    __device__ void read(const float32 *rows, unsigned begin)
    {
        // Boxes lie at multiples of 1024 bytes, so that one exclusive or leads from a lane's first k to that 4 further.
        const unsigned row = begin + Rows::first(), t = threadIdx.x % 4;
        const unsigned box = shared_address(rows) + row / BOX_ROWS * (BOX_ROWS * ROW_BYTES);
        const unsigned first = box + t * ROW_BYTES + (row % BOX_ROWS / 4 ^ t) * 16 + row % 4 * 4;
#pragma unroll
        for (unsigned k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (unsigned i = 0; i < 4; i += 2) {
                const unsigned place = (first ^ i / 2 * 64) + (k * 8 + i / 2 * 4) * ROW_BYTES;
                Neighbours<unsigned, 2> both;
                both.read(__cvta_shared_to_generic(place));
                at[k][i] = both.at[0], at[k][i + 1] = both.at[1];
            }
    }
};
