// Rung 06: the tiles of rung 04, loaded without a branch.
//
// Adds: instead of asking whether an element is inside, every thread loads: row modulo height and column
// modulo width always name an element of the matrix, and a factor of 0 or 1 wipes it out where it stands
// for one outside. No lane waits for another, but the divisions cost registers and time.
// Tiles: block TILE×TILE×TILE, thread 1×1×1.
// Look at: registers (46 on sm_75, 40 in rung 04), instructions per load.
//
// NOTE: a factor of 0 does not wipe out everything: infinity · 0 and NaN · 0 are NaN. Where K is not a whole
// multiple of TILE, the elements that the last step wraps round to are added once more with the factor 0,
// so that a row or column of C which should be infinite comes out as NaN. With one index modulo the whole
// size, as this trick is often written, the elements come from other rows and spoil sums that they have no
// part in. This is why no other rung loads like this.
#include <tilewise/matrix.cuh>

#ifndef TILE
#define TILE 32
#endif
static_assert(TILE * TILE <= 1024, "one thread per element of the tile, and a block has at most 1,024");

// The element, or 0 times some other element of the matrix.
__device__ float wrapped(Matrix<const float> matrix, unsigned row, unsigned column)
{
    const bool inside = (row < matrix.height) & (column < matrix.width); // & and not &&: no branch
    return matrix.at(row % matrix.height, column % matrix.width) * float(inside);
}

// The bound holds the divisions to the 64 registers that 1,024 threads leave each other.
extern "C" __global__ void __launch_bounds__(TILE * TILE)
    tiled_branchless(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];

    const unsigned row = blockIdx.y * TILE + threadIdx.y;
    const unsigned column = blockIdx.x * TILE + threadIdx.x;
    const unsigned steps = a.width / TILE + (a.width % TILE != 0);
    float sum = 0;

    for (unsigned step = 0; step < steps; ++step) {
        a_tile[threadIdx.y][threadIdx.x] = wrapped(a, row, step * TILE + threadIdx.x);
        b_tile[threadIdx.y][threadIdx.x] = wrapped(b, step * TILE + threadIdx.y, column);
        __syncthreads(); // the tiles are whole before anyone reads them

        for (unsigned i = 0; i < TILE; ++i)
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads(); // everyone has read them before they are overwritten
    }

    if (row < c.height && column < c.width)
        c.at(row, column) = sum;
}
