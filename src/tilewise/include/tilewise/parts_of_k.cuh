// Sums of the same tile, each of a part of K, which are added up in the order of the parts, so that the result has the
// same bits every time; the blocks of a cluster read them in one another's shared memory (compute capability 9.0).
#pragma once

#include <tilewise/cluster.cuh>
#include <tilewise/element.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/sum_registers.cuh>

// A block's tile, and its part of K if it has one.
struct Share {
    unsigned tile, part;
    bool in_parts;

    // Of so many `tiles` as many are `whole`; then come blocks for the first parts of the others, for the second ones, ….
    static __device__ Share in_tail(unsigned block, unsigned tiles, unsigned whole)
    {
        const bool in_parts = block >= whole;
        const unsigned part = in_parts ? (block - whole) / (tiles - whole) : 0;
        return {block - part * (tiles - whole), part, in_parts};
    }
};

// Stores 4 neighbours in a row of C, as far as C goes. `wide`: C's rows begin where 4 elements can be stored at once.
template <typename Four, typename Result, typename Epilogue>
inline __device__ void store_quad(Four sum, Matrix<Result> c, unsigned row, unsigned column, const Epilogue &epilogue,
                                  bool wide)
{
    if (row >= c.height) return;
    using Number = decltype(epilogue(sum.x, row, column)); // of whole sums numbers, if something happens to them
    Number quad[4] = {Number(sum.x), Number(sum.y), Number(sum.z), Number(sum.w)};
    Result *const to = &c.at(row, column);
    if (wide && column + 4 <= c.width) {
        epilogue.apply(quad, epilogue.template read<4>(row, column), row, column);
        Neighbours<Result, 4> results;
#pragma unroll
        for (unsigned e = 0; e < 4; ++e)
            results.at[e] = narrow<Result>(quad[e]);
        results.write(to);
        return;
    }
#pragma unroll
    for (unsigned e = 0; e < 4; ++e)
        if (column + e < c.width) to[e] = narrow<Result>(epilogue(quad[e], row, column + e));
}

template <typename Four> inline __device__ void add(Four &sum, Four part)
{
    sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
}

// The steps of K that a block has: all, or its part of them. So many parts are IN_MEMORY, and of each a cluster's blocks
// have so many.
template <unsigned STEP_K, unsigned IN_CLUSTER, unsigned IN_MEMORY> struct StepsOfPart {
    unsigned begin, end;

    __device__ StepsOfPart(unsigned depth, unsigned part, unsigned rank)
    {
        constexpr unsigned COUNT = IN_CLUSTER * IN_MEMORY;
        const unsigned all = depth / STEP_K + (depth % STEP_K != 0);
        const unsigned which = (IN_MEMORY > 1 ? part * IN_CLUSTER : 0) + (IN_CLUSTER > 1 ? rank : 0);
        begin = COUNT == 1 ? 0 : all * which / COUNT;
        end = COUNT == 1 ? all : all * (which + 1) / COUNT;
    }
    __device__ unsigned count() const { return end - begin; }
};

// What a block of a cluster has of a tile of C, ROWS×COLUMNS. All blocks put their sums, and then each adds some of them.
// Rows of an instruction are rows of C, or columns of C if they lie ACROSS. They may be PAIRED (tilewise/sum_registers.cuh).
template <unsigned ROWS, unsigned COLUMNS, typename Sum = float, bool ACROSS = false, bool PAIRED = false>
struct ClusterSums {
    static constexpr unsigned SHIFT = !PAIRED ? 0 : ACROSS ? 20 : 16; // sums that some rows begin later
    static constexpr unsigned PITCH = COLUMNS + 4 + (PAIRED ? 16 : 0); // sums
    static constexpr unsigned QUADS = COLUMNS / 4;
    Sum at[ROWS][PITCH];

    // Where a sum lies: what half a warp puts at once, or what a warp does one by one, is in all banks.
    __device__ Sum *place(unsigned row, unsigned column) { return &at[row][column + row / (ACROSS ? 4 : 16) % 2 * SHIFT]; }
    __device__ const Sum *place(unsigned row, unsigned column) const
    {
        return const_cast<ClusterSums *>(this)->place(row, column);
    }

    // Puts the sums of 64 rows of instructions, from `first` on, of which the warp has 16.
    template <typename Register, unsigned COUNT> __device__ void put(const Register (&sums)[COUNT], unsigned first)
    {
        using Two = decltype(sum_pair(sums, 0));
        using Rows = InstructionRows<PAIRED>;
        const unsigned down = first + Rows::first(), across = threadIdx.x % 4 * 2; // of a thread's first sum
        Sum *const begin = ACROSS ? place(across, down) : place(down, across);
#pragma unroll
        for (unsigned j = 0; j < COUNT * SUMS_IN<Register> / 4; ++j) { // times 8 columns of the instruction
            const auto one = sum_pair(sums, j * 4), other = sum_pair(sums, j * 4 + 2); // of a thread's rows
            if constexpr (ACROSS && PAIRED) {
                Two *const to = reinterpret_cast<Two *>(begin) + j * 4 * PITCH;
                to[0] = {one.x, other.x}, to[PITCH / 2] = {one.y, other.y};
            } else if (ACROSS) {
                Sum *const to = begin + j * 8 * PITCH;
                to[0] = one.x, to[PITCH] = one.y;
                to[Rows::FURTHER] = other.x, to[PITCH + Rows::FURTHER] = other.y;
            } else {
                *reinterpret_cast<Two *>(begin + j * 8) = one;
                *reinterpret_cast<Two *>(begin + j * 8 + Rows::FURTHER * PITCH) = other;
            }
        }
    }

    // Adds the block's share of the tile, which begins at `row` and `column` of C, and stores it. So many threads do.
    template <unsigned BLOCKS, unsigned ADDERS, typename Result, typename Epilogue>
    __device__ void add_share(unsigned rank, unsigned row, unsigned column, Matrix<Result> c, const Epilogue &epilogue,
                              bool wide) const
    {
        const unsigned end = ROWS * QUADS * (rank + 1) / BLOCKS;
#pragma unroll 1
        for (unsigned i = ROWS * QUADS * rank / BLOCKS + threadIdx.x; i < end; i += ADDERS) {
            const unsigned down = i / QUADS, across = i % QUADS * 4;
            auto sum = cluster::load(place(down, across), 0);
#pragma unroll
            for (unsigned block = 1; block < BLOCKS; ++block)
                add(sum, cluster::load(place(down, across), block));
            store_quad(sum, c, row + down, column + across, epilogue, wide);
        }
    }
};
