// Rung 07: tiles without guards, for whole multiples of the tile only.
//
// Adds: nothing is asked, so nothing is paid: no comparison, no edge. The launch side refuses any size that
// is not a whole multiple of TILE, because this kernel would read and write past the matrices.
// Tiles: block TILE×TILE×TILE, thread 1×1×1. One step of a block loads 2·TILE² elements from global memory
// and does TILE³ multiply-adds on them: the wider the tile, the more work per element loaded.
// Look at: TILE = 16 against 32: loads, shared bytes per block (2 KB or 8 KB), blocks per SM that fit.
#include <tilewise/matrix.cuh>

#ifndef TILE
#define TILE 16
#endif
static_assert(TILE * TILE <= 1024, "one thread per element of the tile, and a block has at most 1,024");

extern "C" __global__ void tiled_exact(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];

    const unsigned row = blockIdx.y * TILE + threadIdx.y;
    const unsigned column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;

    for (unsigned k = 0; k < a.width; k += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = a.at(row, k + threadIdx.x); // slides along a row of A
        b_tile[threadIdx.y][threadIdx.x] = b.at(k + threadIdx.y, column); // slides down a column of B
        __syncthreads(); // the tiles are whole before anyone reads them

        for (unsigned i = 0; i < TILE; ++i)
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads(); // everyone has read them before they are overwritten
    }

    c.at(row, column) = sum;
}
