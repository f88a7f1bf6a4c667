// CUB: a block sorts keys with their places; then the keys alone, downwards.
#include <cub/block/block_radix_sort.cuh>

extern "C" __global__ void sort(const int *x, int *keys, int *places, int *down) {
    using Sort = cub::BlockRadixSort<int, 128, 4, int>;
    __shared__ typename Sort::TempStorage storage;
    int v[4], place[4];
    for (int i = 0; i < 4; i++) place[i] = threadIdx.x * 4 + i, v[i] = x[place[i]];
    Sort(storage).Sort(v, place);
    __syncthreads();
    for (int i = 0; i < 4; i++) keys[threadIdx.x * 4 + i] = v[i], places[threadIdx.x * 4 + i] = place[i];
    Sort(storage).SortDescendingBlockedToStriped(v, place);
    for (int i = 0; i < 4; i++) down[i * 128 + threadIdx.x] = v[i];
}
