// Adds up partial sums of columns or rows, which an epilogue left in the workspace: the same ones in the same order
// every time, so that the result has the same bits.
//
// The partial sums of columns are rows of them: neighbouring lanes have neighbouring columns, and warps take turns along
// them. Those of rows are columns of them: the lanes of a warp run along a row.
// Tiles: block 32 sums, warp all 32 (of columns) or one of them (of rows).
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided.cuh>

#ifndef SUM
#define SUM float32 // or float64: what partial sums are
#endif
#ifndef RESULT
#define RESULT SUM
#endif
#ifndef OF_COLUMNS
#define OF_COLUMNS 1
#endif

using Sum = SUM;
using Result = RESULT;

constexpr unsigned LANES = 32, WARPS = 32, BLOCK_THREADS = WARPS * LANES;
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// What every STEP-th of `count` numbers comes to, which lie so far apart, in four chains of additions.
template <unsigned STEP> inline __device__ Sum add(const Sum *from, unsigned first, unsigned count, size_t apart)
{
    Sum sums[4] = {};
    unsigned i = first;
    for (; i < count && count - i > 3 * STEP; i += 4 * STEP)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j)
            sums[j] += from[(i + j * STEP) * apart];
    for (; i < count; i += STEP)
        sums[0] += from[i * apart];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// `to` is a column of sums; of each there are `count` parts. The blocks of a stack's first matrix come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    add_sums(const Sum *parts, Strided<Result> to, unsigned count, unsigned inner_count)
{
    __shared__ Sum shared[WARPS][LANES];
    const unsigned blocks = to.rows / LANES + (to.rows % LANES != 0), matrix = blockIdx.x / blocks;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, first = blockIdx.x % blocks * LANES;
    parts += size_t(matrix) * count * to.rows;
    to.select(matrix, inner_count);
    dependent_launch::wait_for_previous(first);

    if (OF_COLUMNS) {
        const bool exists = first + lane < to.rows;
        shared[warp][lane] = exists ? add<WARPS>(parts + first + lane, warp, count, to.rows) : Sum(0);
        __syncthreads();
        if (warp > 0 || !exists) return;
        Sum sum = shared[0][lane];
#pragma unroll
        for (unsigned i = 1; i < WARPS; ++i)
            sum += shared[i][lane];
        *to.at(first + lane, 0) = narrow<Result>(sum);
    } else {
        if (first + warp >= to.rows) return;
        Sum sum = add<LANES>(parts + size_t(first + warp) * count, lane, count, 1);
#pragma unroll
        for (unsigned apart = LANES / 2; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(~0u, sum, apart);
        if (lane == 0) *to.at(first + warp, 0) = narrow<Result>(sum);
    }
}
