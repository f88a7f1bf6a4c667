// Rung 05: the tiles of rung 04 indexed the wrong way round.
//
// Adds: a mistake, on purpose. Both tiles are indexed [x][y] instead of [y][x]. The product is still right,
// since what is stored crosswise is read crosswise, but neighbouring lanes now lie a whole row of the tile
// apart: with TILE = 32 that is 32 words, so all of them want one and the same bank.
// Tiles: block TILE×TILE×TILE, thread 1×1×1.
// Look at: shared bank conflicts. With TILE = 32 each store takes 32 turns instead of 1; the reads of A are
// broadcasts and cost nothing extra; the reads of B, merged four by four into 128-bit loads, take 32 turns
// instead of 4. A step of one warp thus meets 2·31 + 8·28 = 286 conflicts.
#include <tilewise/matrix.cuh>

#ifndef TILE
#define TILE 32
#endif
static_assert(TILE * TILE <= 1024, "one thread per element of the tile, and a block has at most 1,024");

extern "C" __global__ void tiled_conflicted(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    __shared__ float a_tile[TILE][TILE]; // [column][row]
    __shared__ float b_tile[TILE][TILE]; // [column][row]

    const unsigned row = blockIdx.y * TILE + threadIdx.y;
    const unsigned column = blockIdx.x * TILE + threadIdx.x;
    const unsigned steps = a.width / TILE + (a.width % TILE != 0);
    float sum = 0;

    for (unsigned step = 0; step < steps; ++step) {
        const unsigned a_column = step * TILE + threadIdx.x;
        const unsigned b_row = step * TILE + threadIdx.y;
        // Outside the matrix a tile holds zeros: they add nothing to the sum.
        a_tile[threadIdx.x][threadIdx.y] = row < a.height && a_column < a.width ? a.at(row, a_column) : 0;
        b_tile[threadIdx.x][threadIdx.y] = b_row < b.height && column < b.width ? b.at(b_row, column) : 0;
        __syncthreads(); // the tiles are whole before anyone reads them

        for (unsigned i = 0; i < TILE; ++i)
            sum += a_tile[i][threadIdx.y] * b_tile[threadIdx.x][i];
        __syncthreads(); // everyone has read them before they are overwritten
    }

    if (row < c.height && column < c.width)
        c.at(row, column) = sum;
}
