// Adds up the sums that blocks left in memory, each for a part of K, and stores what the epilogue makes of them.
//
// A thread has 4 neighbours in a row of C, and a row of blocks a matrix of the stack. Where these are few and parts many,
// SHARERS threads have the same 4, and parts side by side of them each. Parts are added in their order, and so are the
// sums of the sharers, so that the result has the same bits every time; whole numbers modulo 2³².
//
// Parts may be of the last tiles of one matrix alone (TILE_M), which the multiplying launch takes in the same order.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/parts_of_k.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/strided.cuh>

#ifndef PARTS
#define PARTS 2
#endif
#ifndef SHARERS // threads that share the parts of the same neighbours
#define SHARERS 1
#endif
#ifndef NEXT_MAY_BEGIN // 1: the next launch, before the blocks of this one have ended
#define NEXT_MAY_BEGIN 1
#endif
#ifndef TILE_M // 0: the sums lie as C does; else those of tiles of this size, one behind another
#define TILE_M 0
#endif
#ifndef TILE_N
#define TILE_N 0
#endif
#ifndef SUM
#define SUM float32 // or float64, int32
#endif
#ifndef RESULT
#define RESULT float32 // or another
#endif

using Sum = SUM;
using Result = RESULT;
constexpr unsigned BLOCK_THREADS = 256, RUN = 4, QUADS = BLOCK_THREADS / SHARERS; // of a block
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

static_assert(SHARERS <= PARTS && BLOCK_THREADS % SHARERS == 0, "each has parts, and whole threads");

struct alignas(16) Four {
    Sum x, y, z, w;
};

inline __device__ float32 plus(float32 one, float32 other) { return one + other; }
inline __device__ float64 plus(float64 one, float64 other) { return one + other; }
inline __device__ int32 plus(int32 one, int32 other) { return unsigned(one) + unsigned(other); }
inline __device__ Four plus(const Four &one, const Four &other)
{
    return {plus(one.x, other.x), plus(one.y, other.y), plus(one.z, other.z), plus(one.w, other.w)};
}

// Adds up the parts from `begin` to `end` of the same 4 neighbours, which lie `apart` from one part to the next.
inline __device__ Four add_range(const Four *from, size_t apart, unsigned begin, unsigned end)
{
    Four sum = from[begin * apart];
#pragma unroll 8
    for (unsigned part = begin + 1; part < end; ++part)
        sum = plus(sum, from[part * apart]);
    return sum;
}

// Runs of 4 neighbours of a matrix, or of its tiles from that of number `whole` on: how many, and where they lie.
struct Runs {
    unsigned rows, columns; // of tiles, or of runs
    unsigned whole, count;

    __device__ Runs(const Strided<Result> &c, unsigned whole) : whole(whole)
    {
        constexpr unsigned HEIGHT = TILE_M ? TILE_M : 1, WIDTH = TILE_M ? TILE_N : RUN;
        rows = c.rows / HEIGHT + (c.rows % HEIGHT != 0), columns = c.columns / WIDTH + (c.columns % WIDTH != 0);
        count = (rows * columns - whole) * (HEIGHT * WIDTH / RUN);
    }
    // The row and the column of C where a run begins.
    __device__ TileIndex place(unsigned index) const
    {
        if (!TILE_M) return {index / columns, index % columns * RUN};
        constexpr unsigned ACROSS = TILE_M ? TILE_N / RUN : 1, EACH = TILE_M ? TILE_M * ACROSS : 1;
        const TileIndex tile = grouped(whole + index / EACH, rows, columns);
        return {tile.row * TILE_M + index % EACH / ACROSS, tile.column * TILE_N + index % ACROSS * RUN};
    }
};

// The sums of a part are the whole stack, one matrix behind another, rows as long as C's or up to 3 longer; or the tiles
// that are not `whole`. `wide`: C's rows begin where 4 elements can be stored at once.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    add_parts(const Sum *parts, Strided<Result> c, const __grid_constant__ Stack stack, unsigned wide, unsigned whole,
              const __grid_constant__ Epilogue epilogue)
{
    const Runs runs(c, TILE_M ? whole : 0);
    const unsigned blocks = runs.count / QUADS + (runs.count % QUADS != 0);
    const unsigned matrix = blockIdx.x / blocks, matrices = gridDim.x / blocks;
    const unsigned sharer = threadIdx.x / QUADS, index = blockIdx.x % blocks * QUADS + threadIdx.x % QUADS;
    if (SHARERS == 1 && index >= runs.count) return;

    const Four *from = reinterpret_cast<const Four *>(parts) + (size_t(matrix) * runs.count + index);
    const size_t apart = size_t(runs.count) * matrices;
    dependent_launch::wait_for_previous(index);
    if (NEXT_MAY_BEGIN) dependent_launch::let_next_begin();
    Four sum = {};
    if (index < runs.count) sum = add_range(from, apart, PARTS * sharer / SHARERS, PARTS * (sharer + 1) / SHARERS);
    if constexpr (SHARERS > 1) {
        __shared__ Four sums[BLOCK_THREADS];
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (sharer > 0 || index >= runs.count) return;
#pragma unroll
        for (unsigned other = 1; other < SHARERS; ++other)
            sum = plus(sum, sums[other * QUADS + threadIdx.x]);
    }
    const InStack which = stack[matrix];
    const Matrix<Result> here = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(stack.of_c(which))};
    const TileIndex place = runs.place(index);
    if (place.column < c.columns)
        store_quad(sum, here, place.row, place.column, epilogue.in_stack(stack, which), wide);
}
