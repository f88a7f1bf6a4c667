// Copies a stack of matrices that lie in memory in any way to rows: for kernels that only know rows.
//
// A block copies tiles by way of shared memory: it reads along whichever axis of the source lies closest
// together, and writes along the rows. Columns from the source's last to the pitch are written as zeros.
// Tiles: block 32×32.
#include <tilewise/strided.cuh>

#ifndef ELEMENT_BYTES
#define ELEMENT_BYTES 4 // or 1, 2, 8
#endif

template <unsigned BYTES> struct Bits;
template <> struct Bits<1> { using Type = unsigned char; };
template <> struct Bits<2> { using Type = unsigned short; };
template <> struct Bits<4> { using Type = unsigned; };
template <> struct Bits<8> { using Type = unsigned long long; };
using Element = Bits<ELEMENT_BYTES>::Type;

constexpr unsigned TILE = 32;
constexpr unsigned LINES = 8; // of a tile that the block copies at once
constexpr unsigned BLOCK_THREADS = TILE * LINES;
constexpr unsigned PAD = ELEMENT_BYTES >= 4 ? 1 : 4 / ELEMENT_BYTES; // lines a word apart: no bank conflicts
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// The rows have `pitch` elements, the zeros with them. The blocks of the first matrix come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    arrange(Strided<const Element> from, Strided<Element> to, unsigned pitch, unsigned inner_count)
{
    __shared__ Element tile[TILE][TILE + PAD]; // its rows are those of the matrix

    const unsigned tile_rows = from.rows / TILE + (from.rows % TILE != 0);
    const unsigned tile_columns = pitch / TILE + (pitch % TILE != 0);
    const unsigned batch = blockIdx.x / (tile_rows * tile_columns);
    const unsigned first_row = blockIdx.x / tile_columns % tile_rows * TILE;
    const unsigned first_column = blockIdx.x % tile_columns * TILE;
    const unsigned lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    from.select(batch, inner_count), to.select(batch, inner_count);

    const bool along_rows = llabs(from.column_stride) <= llabs(from.row_stride);
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES) {
        const unsigned row = along_rows ? i : lane, column = along_rows ? lane : i;
        const bool exists = first_row + row < from.rows && first_column + column < from.columns;
        tile[row][column] = exists ? *from.at(first_row + row, first_column + column) : Element(0);
    }
    __syncthreads();

    const unsigned column = first_column + lane;
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES)
        if (first_row + i < from.rows && column < pitch)
            *to.at(first_row + i, column) = tile[i][lane];
}
