// Adds up the sums that blocks left in memory, each for a part of K, and stores what the epilogue makes of them.
//
// A thread has 4 neighbours in a row of C, and a row of blocks a matrix of the stack. Where these are few and parts many,
// SHARERS threads have the same 4, and parts side by side of them each. Parts are added in their order, and so are the
// sums of the sharers, so that the result has the same bits every time; whole numbers modulo 2³².
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/parts_of_k.cuh>
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

// The sums of a part are the whole stack, one matrix behind another, rows as long as C's or up to 3 longer. `wide`: C's
// rows begin where 4 elements can be stored at once.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    add_parts(const Sum *parts, Strided<Result> c, const __grid_constant__ Stack stack, unsigned wide,
              const __grid_constant__ Epilogue epilogue)
{
    const unsigned quads = c.columns / RUN + (c.columns % RUN != 0), in_matrix = c.rows * quads;
    const unsigned blocks = in_matrix / QUADS + (in_matrix % QUADS != 0);
    const unsigned matrix = blockIdx.x / blocks, matrices = gridDim.x / blocks;
    const unsigned sharer = threadIdx.x / QUADS, index = blockIdx.x % blocks * QUADS + threadIdx.x % QUADS;
    if (SHARERS == 1 && index >= in_matrix) return;

    const Four *from = reinterpret_cast<const Four *>(parts) + (size_t(matrix) * in_matrix + index);
    const size_t apart = size_t(in_matrix) * matrices;
    dependent_launch::wait_for_previous(index);
    if (NEXT_MAY_BEGIN) dependent_launch::let_next_begin();
    Four sum = {};
    if (index < in_matrix) sum = add_range(from, apart, PARTS * sharer / SHARERS, PARTS * (sharer + 1) / SHARERS);
    if constexpr (SHARERS > 1) {
        __shared__ Four sums[BLOCK_THREADS];
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (sharer > 0 || index >= in_matrix) return;
#pragma unroll
        for (unsigned other = 1; other < SHARERS; ++other)
            sum = plus(sum, sums[other * QUADS + threadIdx.x]);
    }
    const InStack which = stack[matrix];
    const Matrix<Result> here = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(stack.of_c(which))};
    store_quad(sum, here, index / quads, index % quads * RUN, epilogue.in_stack(stack, which), wide);
}
