// Adds up the sums that blocks left in memory, each for a part of K, and stores what the epilogue makes of them.
//
// A thread has 4 neighbours in a row of C, and a row of blocks a matrix of the stack. Parts are added in their order, so
// that the result has the same bits every time; whole numbers modulo 2³².
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/parts_of_k.cuh>
#include <tilewise/strided.cuh>

#ifndef PARTS
#define PARTS 2
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
constexpr unsigned BLOCK_THREADS = 256, RUN = 4;
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

struct alignas(16) Four {
    Sum x, y, z, w;
};

inline __device__ float32 plus(float32 one, float32 other) { return one + other; }
inline __device__ float64 plus(float64 one, float64 other) { return one + other; }
inline __device__ int32 plus(int32 one, int32 other) { return unsigned(one) + unsigned(other); }

// The sums of a part are the whole stack, one matrix behind another, rows as long as C's or up to 3 longer. `wide`: C's
// rows begin where 4 elements can be stored at once.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    add_parts(const Sum *parts, Strided<Result> c, const __grid_constant__ Stack stack, unsigned wide,
              const __grid_constant__ Epilogue epilogue)
{
    dependent_launch::wait_for_previous();
    if (NEXT_MAY_BEGIN) dependent_launch::let_next_begin();

    const unsigned quads = c.columns / RUN + (c.columns % RUN != 0), in_matrix = c.rows * quads;
    const unsigned blocks = in_matrix / BLOCK_THREADS + (in_matrix % BLOCK_THREADS != 0);
    const unsigned matrix = blockIdx.x / blocks, matrices = gridDim.x / blocks;
    const unsigned index = blockIdx.x % blocks * BLOCK_THREADS + threadIdx.x;
    if (index >= in_matrix) return;

    const Four *from = reinterpret_cast<const Four *>(parts) + (size_t(matrix) * in_matrix + index);
    Four sum = *from;
#pragma unroll 8
    for (unsigned part = 1; part < PARTS; ++part) {
        const Four more = from[part * (size_t(in_matrix) * matrices)];
        sum = {plus(sum.x, more.x), plus(sum.y, more.y), plus(sum.z, more.z), plus(sum.w, more.w)};
    }
    const InStack which = stack[matrix];
    const Matrix<Result> here = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(stack.of_c(which))};
    store_quad(sum, here, index / quads, index % quads * RUN, epilogue.in_stack(stack, which), wide);
}
