// Rung 04: tiles in shared memory.
//
// Adds: each block copies a TILE×TILE tile of A and of B into shared memory and uses every element TILE
// times, so global memory is read TILE times less often than by rung 03.
// Tiles: block TILE×TILE×TILE, thread 1×1×1.
// Look at: shared bank conflicts (0: a warp reads one word of A, and 32 neighbouring words of B), global
// sectors per request (4 where rows are 128-byte aligned), two barriers a step.
#include <tilewise/element.cuh>
#include <tilewise/matrix.cuh>

#ifndef TILE
#define TILE 32
#endif
#ifndef ELEMENT
#define ELEMENT float32 // or float64, float16, bfloat16
#endif
static_assert(TILE * TILE <= 1024, "one thread per element of the tile, and a block has at most 1,024");

using Element = ELEMENT;
using Sum = decltype(widen(Element()));

extern "C" __global__ void tiled(Matrix<const Element> a, Matrix<const Element> b, Matrix<Element> c)
{
    __shared__ Element a_tile[TILE][TILE];
    __shared__ Element b_tile[TILE][TILE];

    const unsigned row = blockIdx.y * TILE + threadIdx.y;
    const unsigned column = blockIdx.x * TILE + threadIdx.x;
    const unsigned steps = a.width / TILE + (a.width % TILE != 0);
    Sum sum = 0;

    for (unsigned step = 0; step < steps; ++step) {
        const unsigned a_column = step * TILE + threadIdx.x;
        const unsigned b_row = step * TILE + threadIdx.y;
        // Outside the matrix a tile holds zeros: they add nothing to the sum.
        a_tile[threadIdx.y][threadIdx.x] =
            row < a.height && a_column < a.width ? a.at(row, a_column) : Element(0);
        b_tile[threadIdx.y][threadIdx.x] =
            b_row < b.height && column < b.width ? b.at(b_row, column) : Element(0);
        __syncthreads(); // the tiles are whole before anyone reads them

        for (unsigned i = 0; i < TILE; ++i)
            sum += widen(a_tile[threadIdx.y][i]) * widen(b_tile[i][threadIdx.x]);
        __syncthreads(); // everyone has read them before they are overwritten
    }

    if (row < c.height && column < c.width)
        c.at(row, column) = narrow<Element>(sum);
}
