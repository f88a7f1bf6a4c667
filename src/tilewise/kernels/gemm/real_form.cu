// Lays out complex numbers as real ones, for kernels that multiply real matrices: of A each as its two parts side by side
// in a row; of B, with FOURFOLD, each as the matrix [re im; -im re]. Exact.
//
// Tiles of 32×32 elements go by way of shared memory: they are read along whichever axis of the source lies closest
// together, and written along the lines of the copy, rows or columns. Beyond the source there are zeros.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided.cuh>

#ifndef PART
#define PART float32 // or float64
#endif
#ifndef FOURFOLD
#define FOURFOLD 1 // or 0
#endif

using Part = PART;
struct alignas(2 * sizeof(Part)) Complex {
    Part re, im;
};

constexpr unsigned TILE = 32;
constexpr unsigned LINES = 8; // of a tile that the block copies at once
constexpr unsigned BLOCK_THREADS = TILE * LINES;
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// Two neighbours in a line of the copy, which begin at a multiple of what they take.
inline __device__ void put_pair(const Strided<Part> &to, unsigned row, unsigned column, Part one, Part other)
{
    *reinterpret_cast<Complex *>(to.at(row, column)) = {one, other};
}

template <bool IN_ROWS> inline __device__ void put(const Strided<Part> &to, unsigned row, unsigned column, Complex value)
{
    if constexpr (!FOURFOLD && IN_ROWS)
        put_pair(to, row, 2 * column, value.re, value.im);
    else if constexpr (!FOURFOLD)
        *to.at(row, 2 * column) = value.re, *to.at(row, 2 * column + 1) = value.im;
    else if constexpr (IN_ROWS)
        put_pair(to, 2 * row, 2 * column, value.re, value.im), put_pair(to, 2 * row + 1, 2 * column, -value.im, value.re);
    else
        put_pair(to, 2 * row, 2 * column, value.re, -value.im), put_pair(to, 2 * row, 2 * column + 1, value.im, value.re);
}

// `rows` and `columns` are those of the source, and zeros behind the end of lines of the copy. The blocks of the first
// matrix of the stack come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    expand(Strided<const Complex> from, Strided<Part> to, unsigned rows, unsigned columns, unsigned inner_count)
{
    __shared__ Complex tile[TILE][TILE + 1]; // its rows are those of the matrix
    const unsigned tile_rows = rows / TILE + (rows % TILE != 0), tile_columns = columns / TILE + (columns % TILE != 0);
    const unsigned matrix = blockIdx.x / (tile_rows * tile_columns);
    const unsigned first_row = blockIdx.x / tile_columns % tile_rows * TILE;
    const unsigned first_column = blockIdx.x % tile_columns * TILE;
    const unsigned lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    from.select(matrix, inner_count), to.select(matrix, inner_count);
    dependent_launch::wait_for_previous(first_row);
    dependent_launch::let_next_begin();

    const bool reads_rows = llabs(from.column_stride) <= llabs(from.row_stride);
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES) {
        const unsigned row = reads_rows ? i : lane, column = reads_rows ? lane : i;
        const bool exists = first_row + row < from.rows && first_column + column < from.columns;
        tile[row][column] = exists ? *from.at(first_row + row, first_column + column) : Complex{};
    }
    __syncthreads();

    const bool in_rows = to.column_stride == 1;
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES) {
        const unsigned row = in_rows ? i : lane, column = in_rows ? lane : i;
        if (first_row + row >= rows || first_column + column >= columns) continue;
        if (in_rows)
            put<true>(to, first_row + row, first_column + column, tile[row][column]);
        else
            put<false>(to, first_row + row, first_column + column, tile[row][column]);
    }
}
