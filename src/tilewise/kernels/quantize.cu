// Numbers as 8 bits with a scale, x ≈ value · scale, where the largest number of a line becomes the largest that 8 bits
// have; and back. Lines are rows, columns, or whole matrices: where scales are the same along an axis, their stride is 0.
//
// The largest numbers are found first, each thread along a few columns, each warp along rows, and put together in memory:
// what is not negative has bits in the order of numbers. Blocks have tiles of 64 rows and 256 columns.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/eight_bit_scale.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided_run.cuh>

#ifndef ELEMENT
#define ELEMENT float32 // or float16, bfloat16
#endif
#ifndef SHARED_ROWS // rows and columns that have a scale in common, for `dequantize`: 1 or 128
#define SHARED_ROWS 1
#endif
#ifndef SHARED_COLUMNS
#define SHARED_COLUMNS 1
#endif

constexpr unsigned LANES = 32, WARPS = 8, BLOCK_THREADS = LANES * WARPS;
constexpr unsigned TILE_ROWS = 64, TILE_COLUMNS = 256, PER_LANE = TILE_COLUMNS / LANES;
using Numbers = Strided<const ELEMENT>;

// The tile that a block has, of the matrix that `numbers` are made.
struct TilePlace {
    unsigned row, column, matrix;

    template <typename T>
    __device__ TilePlace(const Strided<T> &numbers)
    {
        const unsigned rows = numbers.rows / TILE_ROWS + (numbers.rows % TILE_ROWS != 0);
        const unsigned columns = numbers.columns / TILE_COLUMNS + (numbers.columns % TILE_COLUMNS != 0);
        matrix = blockIdx.x / (rows * columns);
        row = blockIdx.x / columns % rows * TILE_ROWS, column = blockIdx.x % columns * TILE_COLUMNS;
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) clear(unsigned *largest, unsigned count)
{
    dependent_launch::wait_for_previous();
    dependent_launch::let_next_begin();
    const unsigned i = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    if (i < count) largest[i] = 0;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    find_largest(Numbers numbers, Strided<unsigned> largest, unsigned inner_count)
{
    __shared__ float of_warps[WARPS][TILE_COLUMNS];
    const TilePlace tile(numbers);
    numbers.select(tile.matrix, inner_count), largest.select(tile.matrix, inner_count);
    dependent_launch::wait_for_previous(tile.row);
    dependent_launch::let_next_begin();

    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, column = tile.column + lane * PER_LANE;
    const bool of_rows = largest.row_stride != 0;
    float of_columns[PER_LANE] = {};
#pragma unroll 4
    for (unsigned row = tile.row + warp; row < min(tile.row + TILE_ROWS, numbers.rows); row += WARPS) {
        const auto run = read_run<PER_LANE>(numbers, row, column);
        float of_row = 0;
#pragma unroll
        for (unsigned i = 0; i < PER_LANE; ++i) {
            const float size = fabsf(run.widened(i));
            of_columns[i] = fmaxf(of_columns[i], size), of_row = fmaxf(of_row, size); // of NaN and a number the number
        }
        if (!of_rows) continue;
        of_row = largest_of_lanes(of_row);
        if (lane == 0) atomicMax(largest.at(row, 0), __float_as_uint(of_row));
    }
    if (of_rows) return;
#pragma unroll
    for (unsigned i = 0; i < PER_LANE; ++i)
        of_warps[warp][lane * PER_LANE + i] = of_columns[i];
    __syncthreads();
    float of_column = 0;
#pragma unroll
    for (unsigned i = 0; i < WARPS; ++i)
        of_column = fmaxf(of_column, of_warps[i][threadIdx.x]);
    if (largest.column_stride != 0) {
        const unsigned its = tile.column + threadIdx.x;
        if (its < numbers.columns) atomicMax(largest.at(0, its), __float_as_uint(of_column));
    } else {
        of_column = largest_of_lanes(of_column);
        if (lane == 0) atomicMax(largest.elements, __float_as_uint(of_column));
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    quantize(Numbers numbers, Strided<const unsigned> largest, Strided<VALUE> values, Strided<float> scales,
             unsigned inner_count)
{
    const TilePlace tile(numbers);
    numbers.select(tile.matrix, inner_count), largest.select(tile.matrix, inner_count);
    values.select(tile.matrix, inner_count), scales.select(tile.matrix, inner_count);
    dependent_launch::wait_for_previous(tile.row);
    dependent_launch::let_next_begin();

    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, column = tile.column + lane * PER_LANE;
    if (column >= numbers.columns) return;
#pragma unroll 4
    for (unsigned row = tile.row + warp; row < min(tile.row + TILE_ROWS, numbers.rows); row += WARPS) {
        const auto run = read_run<PER_LANE>(numbers, row, column);
        Neighbours<VALUE, PER_LANE> made;
        float scale = 1;
#pragma unroll
        for (unsigned i = 0; i < PER_LANE; ++i) {
            const unsigned its = min(column + i, numbers.columns - 1);
            if (i == 0 || largest.column_stride != 0) scale = scale_for(__uint_as_float(*largest.at(row, its)));
            made.at[i] = narrow<VALUE>(run.widened(i) / scale);
            const bool first = (scales.row_stride != 0 || row == 0) && (scales.column_stride != 0 || column + i == 0);
            if (first && column + i < numbers.columns) *scales.at(row, column + i) = scale;
        }
        write_run(made, values, row, column);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    dequantize(Strided<const VALUE> values, Strided<const float> scales, Strided<ELEMENT> numbers, unsigned inner_count)
{
    const TilePlace tile(numbers);
    values.select(tile.matrix, inner_count), scales.select(tile.matrix, inner_count);
    numbers.select(tile.matrix, inner_count);
    dependent_launch::wait_for_previous(tile.row);
    dependent_launch::let_next_begin();

    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, column = tile.column + lane * PER_LANE;
    if (column >= numbers.columns) return;
#pragma unroll 4
    for (unsigned row = tile.row + warp; row < min(tile.row + TILE_ROWS, numbers.rows); row += WARPS) {
        const auto run = read_run<PER_LANE>(values, row, column);
        Neighbours<ELEMENT, PER_LANE> made;
        float scale = 1;
#pragma unroll
        for (unsigned i = 0; i < PER_LANE; ++i) {
            if (i == 0 || scales.column_stride != 0)
                scale = *scales.at(row / SHARED_ROWS, min(column + i, numbers.columns - 1) / SHARED_COLUMNS);
            made.at[i] = narrow<ELEMENT>(widen_to<float32>(run.at[i]) * scale);
        }
        write_run(made, numbers, row, column);
    }
}
