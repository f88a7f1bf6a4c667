// Scales of the terms of sums that differ along K: one for each 128 of it, and for each row of A and column of B, or for
// each 128 of those.
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/mbarrier.cuh>
#include <tilewise/strided.cuh>

constexpr unsigned SCALED_TERMS = 128;

// What a launch brings: of A and of B a row for each line, or 128 lines, and a column for each 128 of K. LINES have one
// in common; where there are none, it is 0.
template <unsigned A_LINES, unsigned B_LINES> struct TermScales {
    static constexpr bool ANY = A_LINES > 0 || B_LINES > 0;
    Strided<const float> a, b;

    __device__ float of_a(unsigned row, unsigned run) const { return A_LINES > 0 ? *at_row(row, run) : 1.0f; }
    __device__ float of_b(unsigned column, unsigned run) const { return B_LINES > 0 ? *at_column(column, run) : 1.0f; }
    __device__ const float *at_row(unsigned row, unsigned run) const { return at<A_LINES>(a, row, run); }
    __device__ const float *at_column(unsigned column, unsigned run) const { return at<B_LINES>(b, column, run); }

    __device__ TermScales in_stack(InStack of_a, InStack of_b) const
    {
        TermScales there = *this;
        there.a.select(of_a), there.b.select(of_b);
        return there;
    }

  private:
    // NOTE: lines beyond the last, of which nothing is stored, have the scale of that one.
    template <unsigned LINES>
    static __device__ const float *at(const Strided<const float> &scales, unsigned line, unsigned run)
    {
        return scales.at(min(line / (LINES > 0 ? LINES : 1), scales.rows - 1), run);
    }
};

// What a stage of a ring has of them for a tile of M rows and N columns, each line's own, in shared memory (compute
// capability 9.0): columns that have their own; of narrow tiles, whose steps are short, all, far ahead of their use.
template <unsigned A_LINES, unsigned B_LINES, unsigned M, unsigned N> struct StageScales {
    static constexpr bool NARROW = N <= 64, OF_ROWS = A_LINES > 0 && NARROW;
    static constexpr bool OF_COLUMNS = B_LINES == 1 || (B_LINES > 1 && NARROW), ANY = OF_ROWS || OF_COLUMNS;
    alignas(16) float rows[OF_ROWS ? M : 4];
    alignas(16) float columns[OF_COLUMNS ? N : 4];

    // A warp starts to copy them; each lane arrives once its own have come. NOTE: where K is not empty C is not either.
    __device__ void start(const TermScales<A_LINES, B_LINES> &scales, unsigned row, unsigned column, unsigned run,
                          Mbarrier &full)
    {
        if constexpr (OF_ROWS) {
#pragma unroll
            for (unsigned i = threadIdx.x % 32; i < M; i += 32)
                async_copy::start_4(&rows[i], scales.at_row(row + i, run));
        }
        if constexpr (OF_COLUMNS) {
#pragma unroll
            for (unsigned i = threadIdx.x % 32; i < N; i += 32)
                async_copy::start_4(&columns[i], scales.at_column(column + i, run));
        }
        full.arrive_after_copies();
    }
};

// What a thread has of them for sums of matrix instructions of a warpgroup (tilewise/wgmma.cuh), COUNT of 64 rows below one
// another from `row` on, by N columns, unless a stage has it: a warp's rows have their scales in one register of its lanes,
// and those that many columns share are in all of them.
template <typename OfStage, unsigned A_LINES, unsigned B_LINES, unsigned COUNT, unsigned N> struct SumScales {
    static constexpr bool ALIGNED = N % SCALED_TERMS == 0 || SCALED_TERMS % N == 0;
    static constexpr unsigned TILES = (N + SCALED_TERMS - 1) / SCALED_TERMS + !ALIGNED; // that share one, or a part
    static_assert(COUNT <= 2, "a lane has one of a warp's rows, of which each instruction has 16");
    float row, tiles[TILES];

    // NOTE: each lane asks for a column of its own, also where all get the same: what the compiler knows to be the same it
    // moves to a uniform register, for which the warp waits at once.
    __device__ SumScales(const TermScales<A_LINES, B_LINES> &scales, unsigned first_row, unsigned column, unsigned run)
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        const unsigned own = first_row + (COUNT == 1 ? 0 : lane / 16 * 64) + warp * 16 + lane % 16;
        row = OfStage::OF_ROWS ? 1 : scales.of_a(own, run);
#pragma unroll
        for (unsigned j = 0; j < TILES; ++j)
            tiles[j] = OfStage::OF_COLUMNS ? 1 : scales.of_b(column + j * SCALED_TERMS + lane % 4 * 2, run);
    }

    // sums += products · scales, of the instruction of this number; the warpgroup's rows begin at `begin` in the tile, and
    // the tile's columns at `column`.
    template <typename Product>
    __device__ void add(float (&sums)[N / 2], const Product (&products)[N / 2], unsigned which, unsigned begin,
                        unsigned column, const OfStage &of_stage) const
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        float rows[2] = {1, 1};
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            if constexpr (OfStage::OF_ROWS)
                rows[i] = of_stage.rows[begin + which * 64 + warp * 16 + i * 8 + lane / 4];
            else if (A_LINES > 0)
                rows[i] = __shfl_sync(~0u, row, which * 16 + i * 8 + lane / 4);
        }
        const unsigned behind = ALIGNED || OfStage::OF_COLUMNS ? 0 : column % SCALED_TERMS;
        if (N % 64 == 0 && behind == 0) // as the compiler knows then which columns share a scale
            add_from(sums, products, rows, 0, of_stage);
        else
            add_from(sums, products, rows, N % 64 == 0 ? 64 : behind, of_stage);
    }

  private:
    // The same where the tile's first column is that many behind one that a scale begins with.
    template <typename Product>
    __device__ void add_from(float (&sums)[N / 2], const Product (&products)[N / 2], const float (&rows)[2],
                             unsigned behind, const OfStage &of_stage) const
    {
#pragma unroll
        for (unsigned j = 0; j < N / 2; j += 4) {
            float2 pair;
            if constexpr (OfStage::OF_COLUMNS)
                pair = *reinterpret_cast<const float2 *>(&of_stage.columns[j * 2 + threadIdx.x % 4 * 2]);
            else
                pair.x = pair.y = tiles[(behind + j * 2) / SCALED_TERMS];
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                sums[j + i * 2] += float(products[j + i * 2]) * (rows[i] * pair.x);
                sums[j + i * 2 + 1] += float(products[j + i * 2 + 1]) * (rows[i] * pair.y);
            }
        }
    }
};
