// Cooperative groups: tiles of four warps, which synchronise through the memory reserved for the system.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(const int *x, int *sums, int *scanned) {
    __shared__ cg::block_tile_memory<256> memory;
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<128>(block);
    int v = x[threadIdx.x];
    sums[threadIdx.x] = cg::reduce(tile, v, cg::plus<int>());
    scanned[threadIdx.x] = cg::inclusive_scan(tile, v);
    sums[threadIdx.x] += tile.any(v > 98);
    block.sync();
}
