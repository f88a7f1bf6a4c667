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

    __device__ float of_a(unsigned row, unsigned run) const { return find<A_LINES>(a, row, run); }
    __device__ float of_b(unsigned column, unsigned run) const { return find<B_LINES>(b, column, run); }

    __device__ TermScales in_stack(InStack of_a, InStack of_b) const
    {
        TermScales there = *this;
        there.a.select(of_a), there.b.select(of_b);
        return there;
    }

  private:
    // NOTE: lines beyond the last, of which nothing is stored, have the scale of that one.
    template <unsigned LINES>
    static __device__ float find(const Strided<const float> &scales, unsigned line, unsigned run)
    {
        if constexpr (LINES == 0)
            return 1;
        else
            return *scales.at(min(line / LINES, scales.rows - 1), run);
    }
};

// Those of a tile's N columns for a run of K in shared memory, if each column has its own (compute capability 9.0).
template <unsigned B_LINES, unsigned N> struct ColumnScales {};
template <unsigned N> struct ColumnScales<1, N> {
    alignas(16) float at[N];

    // A warp starts to copy them; each lane arrives once its own have come. NOTE: there is a column, where K is not empty.
    template <unsigned A_LINES>
    __device__ void start(const TermScales<A_LINES, 1> &scales, unsigned column, unsigned run, Mbarrier &full)
    {
#pragma unroll
        for (unsigned i = threadIdx.x % 32; i < N; i += 32)
            async_copy::start_4(&at[i], scales.b.at(min(column + i, scales.b.rows - 1), run));
        full.arrive_after_copies();
    }
};

// What a thread has of them for sums of matrix instructions of a warpgroup (tilewise/wgmma.cuh), COUNT of 64 rows below one
// another from `row` on, by N columns: a warp's rows have their scales in one register of its lanes, and those that many
// columns share are in all of them.
template <unsigned A_LINES, unsigned B_LINES, unsigned COUNT, unsigned N> struct SumScales {
    static constexpr bool ALIGNED = N % SCALED_TERMS == 0 || SCALED_TERMS % N == 0;
    static constexpr unsigned TILES = (N + SCALED_TERMS - 1) / SCALED_TERMS + !ALIGNED; // that share one, or a part
    static_assert(COUNT <= 2, "a lane has one of a warp's rows, of which each instruction has 16");
    float row, tiles[TILES];

    // NOTE: each lane asks for a column of its own, also where all get the same: what the compiler knows to be the same it
    // moves to a uniform register, for which the warp waits at once.
    __device__ SumScales(const TermScales<A_LINES, B_LINES> &scales, unsigned first_row, unsigned column, unsigned run)
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        row = scales.of_a(first_row + (COUNT == 1 ? 0 : lane / 16 * 64) + warp * 16 + lane % 16, run);
#pragma unroll
        for (unsigned j = 0; j < TILES; ++j)
            tiles[j] = B_LINES == 1 ? 1 : scales.of_b(column + j * SCALED_TERMS + lane % 4 * 2, run);
    }

    // sums += products · scales, of the instruction of this number; the tile's first column is `column`.
    __device__ void add(float (&sums)[N / 2], const float (&products)[N / 2], unsigned which, unsigned column,
                        const ColumnScales<B_LINES, N> &of_columns) const
    {
        const unsigned begin = ALIGNED || B_LINES < 2 ? 0 : column % SCALED_TERMS;
        if (N % 64 == 0 && begin == 0) // as the compiler knows then which columns share a scale
            add_from(sums, products, which, 0, of_columns);
        else
            add_from(sums, products, which, N % 64 == 0 ? 64 : begin, of_columns);
    }

  private:
    // The same where the tile's first column is that many behind one that a scale begins with.
    __device__ void add_from(float (&sums)[N / 2], const float (&products)[N / 2], unsigned which, unsigned begin,
                             const ColumnScales<B_LINES, N> &of_columns) const
    {
        const unsigned lane = threadIdx.x % 32;
        float rows[2] = {1, 1};
#pragma unroll
        for (unsigned i = 0; i < 2; ++i)
            if (A_LINES > 0) rows[i] = __shfl_sync(~0u, row, which * 16 + i * 8 + lane / 4);
#pragma unroll
        for (unsigned j = 0; j < N / 2; j += 4) {
            float2 pair;
            if constexpr (B_LINES == 1)
                pair = *reinterpret_cast<const float2 *>(&of_columns.at[j * 2 + lane % 4 * 2]);
            else
                pair.x = pair.y = tiles[(begin + j * 2) / SCALED_TERMS];
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                sums[j + i * 2] += products[j + i * 2] * (rows[i] * pair.x);
                sums[j + i * 2 + 1] += products[j + i * 2 + 1] * (rows[i] * pair.y);
            }
        }
    }
};
