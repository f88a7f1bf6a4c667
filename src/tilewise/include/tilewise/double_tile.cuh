// What a step of K needs of an operand of float64 where the copy engine brings it, and what a warp takes from it for
// mma.m16n8k8 (compute capability 9.0).
//
// A tile is one box, so that one instruction brings it: a warp that multiplies starts copies between its own instructions.
#pragma once

#include <tilewise/ring.cuh>
#include <tilewise/tensor_copy.cuh>
#include <tilewise/warp_tile.cuh>

namespace warp_tile {

// SIZE rows of A, or columns of B, by 16 of K. With K along its lines these are the rows of the box, as the engine swizzles
// them. Other lines are cut into runs of eight, each of which has a row of the box for every k, swizzled too. Half a warp reads
// four lines at four k at once, 0, 1, 4 and 5 or those behind them, in all banks: of lines along K the first and the second of
// every four. IN_STACK: the map has two axes more.
template <unsigned SIZE_, bool ALONG_K_, bool IN_STACK> struct alignas(1024) DoubleTile {
    static constexpr unsigned SIZE = SIZE_, DEPTH = 16, RUN = 8;
    static constexpr bool ALONG_K = ALONG_K_;
    static constexpr bool CHANGED = ALONG_K; // which lines of eight a lane has: see change_places()
    static_assert(SIZE % RUN == 0, "whole runs");
    double elements[SIZE * DEPTH];

    // Starts to bring what begins at this line and this k.
    __device__ void load(const TensorMap &map, unsigned first, unsigned k, InStack which, Mbarrier &full)
    {
        if constexpr (ALONG_K && IN_STACK)
            tensor_copy::load(elements, map, first, k, which, full);
        else if constexpr (ALONG_K)
            tensor_copy::load(elements, map, first, k, full);
        else if constexpr (IN_STACK)
            tensor_copy::load_runs(elements, map, first / RUN, k, which, full);
        else
            tensor_copy::load_runs(elements, map, first / RUN, k, full);
    }

    // Where the lane's first element lies in the tile, in lines from `first` on, a multiple of eight: at k 0, 1, 4 or 5.
    static __device__ unsigned lane_offset(unsigned first)
    {
        const unsigned lane = threadIdx.x % LANES, k = lane % 2 + lane % 4 / 2 * 4;
        const unsigned line = CHANGED ? change_places(lane / 4) : lane / 4;
        const unsigned place =
            ALONG_K ? line * DEPTH + (k / 2 ^ line) * 2 + k % 2 : k * RUN + (line / 2 ^ k / 2) * 2 + line % 2;
        return (first * DEPTH + place) * sizeof(double);
    }

    // The address of an element so many lines and k away from that one: a multiple of eight, and 0, 2, 8 or 10.
    static __device__ unsigned away(unsigned address, unsigned lines, unsigned k)
    {
        constexpr unsigned PAIR = 2 * sizeof(double);
        const unsigned swizzled = address ^ (ALONG_K ? k / 2 : k / 2 % 4) * PAIR;
        return swizzled + (lines * DEPTH + (ALONG_K ? 0 : k * RUN)) * sizeof(double);
    }
};

// Where a lane's first elements lie in the tiles.
struct LaneOffsets {
    unsigned a, b;

    template <typename TileA, typename TileB, typename Place> static __device__ LaneOffsets of(const Place &place)
    {
        return {TileA::lane_offset(place.row), TileB::lane_offset(place.column)};
    }
};

// M rows of A and N columns of B, eight deep.
template <unsigned M, unsigned N> struct DoubleFragment {
    static constexpr unsigned SLICE_K = 8;

    double a[M / 16][4]; // rows 0 to 7 and 8 to 15 of four k, and of those behind them
    double b[N / 8][2];

    // Reads what lies k deep in a stage. `lane` says where the lane's first elements lie.
    template <typename Stage> __device__ void read(const Stage &stage, const LaneOffsets &lane, unsigned k)
    {
        const unsigned first_a = shared_address(&stage.a) + lane.a, first_b = shared_address(&stage.b) + lane.b;
#pragma unroll
        for (unsigned j = 0; j < N / 8; ++j)
#pragma unroll
            for (unsigned part = 0; part < 2; ++part)
                b[j][part] = load(stage.b.away(first_b, j * 8, k + part * 2));
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
#pragma unroll
            for (unsigned part = 0; part < 4; ++part)
                a[i][part] = load(stage.a.away(first_a, i * 16 + part % 2 * 8, k + part / 2 * 2));
    }

    template <typename Sums> __device__ void multiply_add(Sums &sums) const
    {
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
#pragma unroll
            for (unsigned j = 0; j < N / 8; ++j)
                tensor_core::multiply_add_16x8x8(sums.at[i][j], a[i], b[j]);
    }

  private:
    // NOTE: volatile, so that loads stay where they are: moved towards their use, or all to the beginning, they take a
    // quarter of the time more.
    static __device__ double load(unsigned address)
    {
        double element;
        asm volatile("ld.shared.f64 %0, [%1];" : "=d"(element) : "r"(address) : "memory");
        return element;
    }
};

// Steps of K of both operands, and who fills and who has read them.
template <typename TileA_, typename TileB_, unsigned COUNT_> struct BoxStages {
    using TileA = TileA_;
    using TileB = TileB_;
    static constexpr unsigned COUNT = COUNT_;
    struct Stage {
        TileA a;
        TileB b;
    };

    Stage stages[COUNT];
    Ring<COUNT> ring;
};

// What the copy engine brings to a block: steps of K of its rows of A and columns of B.
struct BoxLoader {
    const TensorMap &map_a, &map_b;
    InStack in_a, in_b;
    unsigned row, column;

    // One thread starts to fill a stage.
    template <typename Stages, typename Turn> __device__ void start(Stages &shared, Turn turn, unsigned step) const
    {
        auto &stage = shared.stages[turn.slot];
        Mbarrier &full = shared.ring.full[turn.slot];
        full.arrive_and_expect(sizeof(stage));
        stage.a.load(map_a, row, step * stage.a.DEPTH, in_a, full);
        stage.b.load(map_b, column, step * stage.b.DEPTH, in_b, full);
    }
};

// Adds up all steps. Each warp says by itself that it has read a stage: none waits for another but for the one that starts
// copies, and that one for a stage which has been read a step ago.
template <typename Fragment, typename Adder, typename Stages>
inline __device__ void sum_steps_of_boxes(Adder &adder, Stages &shared, const BoxLoader &loader, const LaneOffsets &lane,
                                          unsigned begin, unsigned end)
{
    constexpr unsigned AHEAD = Stages::COUNT - 2;
    const bool loads = threadIdx.x == 0;
    typename decltype(shared.ring)::Turn turn, filled;
#pragma unroll 1
    for (unsigned step = begin; step < begin + AHEAD && step < end; ++step, filled.next())
        if (loads) loader.start(shared, filled, step);
    Fragment fragments[2]; // one is read while the other is used
    if (begin < end) {
        shared.ring.wait_until_full(turn);
        fragments[0].read(shared.stages[0], lane, 0);
    }
#pragma unroll 1
    for (unsigned step = begin; step < end; ++step, filled.next()) {
        fragments[1].read(shared.stages[turn.slot], lane, Fragment::SLICE_K);
        if (loads && step + AHEAD < end) {
            shared.ring.wait_until_empty(filled);
            loader.start(shared, filled, step + AHEAD);
        }
        adder.add(fragments[0]);
        __syncwarp();
        if (threadIdx.x % LANES == 0) shared.ring.empty[turn.slot].arrive();
        turn.next();
        if (step + 1 < end) {
            shared.ring.wait_until_full(turn);
            fragments[0].read(shared.stages[turn.slot], lane, 0);
        }
        adder.add(fragments[1]);
    }
    __syncthreads(); // all have read the last stage
}

} // namespace warp_tile
