// Numbers as 8 bits with scales, x ≈ value · scale, one for each 128 numbers of a row or a column, or for each 128 by 128:
// the largest of them becomes the largest that 8 bits have. One launch: a block has 128 rows and columns in registers.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/eight_bit_scale.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided_run.cuh>

#ifndef ELEMENT
#define ELEMENT float32 // or float16, bfloat16
#endif
#ifndef SHARED_ROWS // that have a scale in common: 1 or 128
#define SHARED_ROWS 1
#endif
#ifndef SHARED_COLUMNS
#define SHARED_COLUMNS 128
#endif

constexpr unsigned TILE = 128, LANES = 32, WARPS = 8;
constexpr unsigned PER_LANE = TILE / LANES, PER_WARP = TILE / WARPS; // columns, and rows
static_assert((SHARED_ROWS == TILE || SHARED_ROWS == 1) && (SHARED_COLUMNS == TILE || SHARED_COLUMNS == 1), "or all");
static_assert(SHARED_ROWS * SHARED_COLUMNS > 1, "some share a scale");

// The largest of all warps of the block.
inline __device__ void largest_of_warps(float (&largest)[PER_LANE])
{
    __shared__ float of_warps[WARPS][TILE];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (unsigned i = 0; i < PER_LANE; ++i)
        of_warps[warp][i * LANES + lane] = largest[i];
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < PER_LANE; ++i)
#pragma unroll
        for (unsigned j = 0; j < WARPS; ++j)
            largest[i] = fmaxf(largest[i], of_warps[j][i * LANES + lane]);
}

extern "C" __global__ void __launch_bounds__(LANES *WARPS)
    quantize_tiles(Strided<const ELEMENT> numbers, Strided<VALUE> values, Strided<float> scales, unsigned inner_count)
{
    const unsigned down = numbers.rows / TILE + (numbers.rows % TILE != 0);
    const unsigned across = numbers.columns / TILE + (numbers.columns % TILE != 0);
    const unsigned matrix = blockIdx.x / (down * across);
    const unsigned tile_row = blockIdx.x / across % down, tile_column = blockIdx.x % across;
    numbers.select(matrix, inner_count), values.select(matrix, inner_count), scales.select(matrix, inner_count);
    dependent_launch::wait_for_previous(tile_row);
    dependent_launch::let_next_begin();

    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned first = tile_row * TILE + warp * PER_WARP, column = tile_column * TILE + lane * PER_LANE;
    Neighbours<ELEMENT, PER_LANE> runs[PER_WARP];
    float of_columns[PER_LANE] = {}, of_rows[PER_WARP] = {};
#pragma unroll
    for (unsigned i = 0; i < PER_WARP; ++i) {
        if (first + i >= numbers.rows) continue;
        runs[i] = read_run<PER_LANE>(numbers, first + i, column);
#pragma unroll
        for (unsigned j = 0; j < PER_LANE; ++j) {
            const float size = fabsf(runs[i].widened(j));
            of_columns[j] = fmaxf(of_columns[j], size), of_rows[i] = fmaxf(of_rows[i], size); // of NaN and a number that
        }
    }
    if (SHARED_ROWS == TILE) {
        if (SHARED_COLUMNS == TILE) {
            float of_all = of_columns[0];
#pragma unroll
            for (unsigned j = 1; j < PER_LANE; ++j)
                of_all = fmaxf(of_all, of_columns[j]);
            of_columns[0] = largest_of_lanes(of_all);
#pragma unroll
            for (unsigned j = 1; j < PER_LANE; ++j)
                of_columns[j] = of_columns[0];
        }
        largest_of_warps(of_columns);
    } else {
#pragma unroll
        for (unsigned i = 0; i < PER_WARP; ++i)
            of_rows[i] = largest_of_lanes(of_rows[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < PER_WARP; ++i) {
        if (first + i >= numbers.rows) continue;
        Neighbours<VALUE, PER_LANE> made;
#pragma unroll
        for (unsigned j = 0; j < PER_LANE; ++j) {
            const float scale = scale_for(SHARED_ROWS == TILE ? of_columns[j] : of_rows[i]);
            made.at[j] = narrow<VALUE>(runs[i].widened(j) / scale);
            const bool own_row = SHARED_ROWS == 1 || (warp == 0 && i == 0);
            const bool own_column = SHARED_COLUMNS == 1 || (lane == 0 && j == 0);
            if (own_row && own_column && column + j < numbers.columns)
                *scales.at((first + i) / SHARED_ROWS, (column + j) / SHARED_COLUMNS) = scale;
        }
        write_run(made, values, first + i, column);
    }
}
