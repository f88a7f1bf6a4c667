// Rung 11: blocks side by side along K.
//
// Adds, over rung 08: where C has few tiles but K is long, most SMs would idle. Here K is cut into slices,
// each block computes one tile for one slice, and its float32 sums go to a workspace that holds one whole C
// per slice. A second kernel, reduce, adds the slices up, always from the first to the last: the result
// depends on the number of slices but never on which block finishes first, so it is the same every time.
// Tiles: block 128×128×8 as in rung 08; a slice is a whole number of steps.
// Look at: blocks against SMs, and the price: each slice writes and reads all of C once more.
#include <tilewise/register_tile.cuh>

using namespace register_tile;

// Where a slice begins, in steps; the first slices are one step longer if the steps do not share out evenly.
__device__ unsigned slice_start(unsigned slice, unsigned slices, unsigned steps)
{
    return slice * (steps / slices) + min(slice, steps % slices);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM)
    slice(Matrix<const float> a, Matrix<const float> b, Matrix<float> workspace, unsigned slices)
{
    __shared__ Stage stages[2];

    const unsigned slice = blockIdx.y;
    const unsigned steps = tiles(a.width, BLOCK_K);
    const unsigned first = slice_start(slice, slices, steps);
    const unsigned end = slice_start(slice + 1, slices, steps);
    BlockTile tile(a, b, corner(workspace.width));

    // As rung 08, but from `first` to `end`, and nothing is fetched that belongs to the next slice.
    tile.keep(stages[first % 2], tile.fetch(first));
    __syncthreads();
    for (unsigned step = first; step < end; ++step) {
        const Fetched next = tile.fetch(step + 1 < end ? step + 1 : steps);
        tile.multiply(stages[step % 2]);
        tile.keep(stages[(step + 1) % 2], next);
        __syncthreads();
    }

    workspace.elements += size_t(slice) * workspace.height * workspace.pitch;
    tile.store(workspace, corner(workspace.width));
}

// One thread per four neighbours of C. The workspace's rows are padded to whole fours.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    reduce(Matrix<const float> workspace, Matrix<float> c, unsigned slices)
{
    const unsigned fours = workspace.width / FOUR;
    const unsigned index = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    const unsigned row = index / fours, column = index % fours * FOUR;
    if (row >= c.height)
        return;

    const float *from = &workspace.at(row, column);
    float sums[FOUR] = {};
#pragma unroll 4
    for (unsigned slice = 0; slice < slices; ++slice) {
        const float4 four = *reinterpret_cast<const float4 *>(from);
        sums[0] += four.x, sums[1] += four.y, sums[2] += four.z, sums[3] += four.w;
        from += size_t(workspace.height) * workspace.pitch;
    }
    store_four(true, &c.at(row, column), left(c.width, column), is_wide(c), sums);
}
