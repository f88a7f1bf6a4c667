// Rung 08: the sums live in registers, and the next step's elements are on their way during this one's math.
//
// Adds, over rung 04: each thread computes 8×8 elements of C instead of one, so that a word read from shared
// memory is used eight times; all accesses are 128 bits wide where the operands' alignment allows it, which
// is found out at run time; the tiles of the next step are fetched into registers before the math of this
// step and kept in the other of two stages after it, so that the trip to global memory is hidden behind the
// math and a step needs one barrier instead of two.
// Tiles: block 128×128×8, warp 32×64×8, thread 8×8×1 (tilewise/register_tile.cuh draws them).
// Look at: registers (at most 128, so that two blocks fit on an SM), shared bank conflicts (0: see Stage),
// fused multiply-adds against all instructions.
#include <tilewise/register_tile.cuh>

using namespace register_tile;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM)
    register_tiled(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    __shared__ Stage stages[2];

    const unsigned steps = tiles(a.width, BLOCK_K);
    BlockTile tile(a, b, corner(c.width));

    tile.keep(stages[0], tile.fetch(0));
    __syncthreads();
    for (unsigned step = 0; step < steps; ++step) {
        const Fetched next = tile.fetch(step + 1); // in flight ...
        tile.multiply(stages[step % 2]);           // ... during this
        tile.keep(stages[(step + 1) % 2], next);   // nobody reads that stage: all have left the last step
        __syncthreads();                           // the next stage is whole, and this one read
    }

    tile.store(c, corner(c.width));
}
