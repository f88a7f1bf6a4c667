// A warpgroup's way from sums to memory where something happens to them, or where the copy engine cannot store them as
// they lie: a box of sums in shared memory, of which each thread takes neighbours in a row of C (compute capability
// 9.0). wgmma.cuh says which sums a thread has.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/matrix.cuh>

// HEIGHT rows of 64 sums. Rows of an instruction are rows of C, or columns of C if they lie ACROSS.
template <bool ACROSS, unsigned HEIGHT> struct alignas(1024) SumBox {
    static constexpr unsigned COLUMNS = 64, CHUNK = 4, RUN = 8; // RUN: columns that a thread takes at once
    static constexpr unsigned LANES = 32, GROUP = 4 * LANES;

    float sums[HEIGHT * COLUMNS];

    // Where the 4 sums lie that this column is in: elsewhere in each row, so that what a warp puts, and what it takes,
    // lies in all banks.
    __device__ float *chunk(unsigned row, unsigned column)
    {
        const unsigned index = column / CHUNK, turn = ACROSS ? row / 2 % 4 : row % 4;
        return &sums[row * COLUMNS + (index ^ index / 8 ^ turn * 2) * CHUNK];
    }

    // Puts sums of the warpgroup's threads, 64 rows and LINES columns of the instruction, from the one on that `first`
    // says, which the compiler has to know.
    template <unsigned LINES, unsigned COUNT> __device__ void put(const float (&all)[COUNT], unsigned first)
    {
        static_assert(LINES % 8 == 0 && LINES <= 64 && LINES / 2 <= COUNT, "columns of the instruction");
        const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x % GROUP / LANES;
#pragma unroll
        for (unsigned i = 0; i < LINES / 4; ++i) {
            const unsigned down = warp * 16 + i % 2 * 8 + lane / 4, across = i / 2 * 8 + lane % 4 * 2;
            const float low = all[first + i * 2], high = all[first + i * 2 + 1];
            if (ACROSS) {
                chunk(across, down)[down % CHUNK] = low;
                chunk(across + 1, down)[down % CHUNK] = high;
            } else {
                *reinterpret_cast<float2 *>(chunk(down, across) + across % CHUNK) = {low, high};
            }
        }
    }

    // Stores `rows` rows where they belong: what the epilogue makes of the sums. `wide`: whether C's rows begin at
    // multiples of 16 bytes.
    template <typename Result, typename Epilogue>
    __device__ void store(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned rows,
                          const Epilogue &epilogue, bool wide)
    {
        const unsigned height = first_row < c.height ? min(c.height - first_row, rows) : 0;
        const unsigned width = first_column < c.width ? min(c.width - first_column, COLUMNS) : 0;
        const unsigned whole = wide ? width / RUN : 0; // runs of columns
#pragma unroll 2
        for (unsigned i = threadIdx.x % GROUP; i < height * (COLUMNS / RUN); i += GROUP) {
            const unsigned row = i / (COLUMNS / RUN), run = i % (COLUMNS / RUN);
            if (run < whole) store_run(c, first_row, first_column, row, run * RUN, epilogue);
        }
        if (whole * RUN == width) return;
        const unsigned begin = whole * RUN;
#pragma unroll 1
        for (unsigned row = threadIdx.x % GROUP / LANES; row < height; row += GROUP / LANES)
#pragma unroll 1
            for (unsigned column = begin + threadIdx.x % LANES; column < width; column += LANES) {
                const float sum = chunk(row, column)[column % CHUNK];
                c.at(first_row + row, first_column + column) =
                    narrow<Result>(epilogue(sum, first_row + row, first_column + column));
            }
    }

  private:
    template <typename Result, typename Epilogue>
    __device__ void store_run(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned row,
                              unsigned column, const Epilogue &epilogue)
    {
        Neighbours<float, CHUNK> low, high;
        low.read(chunk(row, column));
        high.read(chunk(row, column + CHUNK));
        float run[RUN];
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            run[i] = i < CHUNK ? low.at[i] : high.at[i % CHUNK];
        epilogue.apply(run, first_row + row, first_column + column);
        Neighbours<Result, RUN> results;
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            results.at[i] = narrow<Result>(run[i]);
        results.write(&c.at(first_row + row, first_column + column));
    }
};
