// Cooperative groups: threads that happen to be together, parted by a label, by a condition, by fours.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void groups(const int *x, int *ranks, int *sums, int *before, int *labels, int *parts) {
    int v = x[threadIdx.x], i = threadIdx.x;
    if (v > 0) {
        auto group = cg::coalesced_threads();
        ranks[i] = group.num_threads() * 100 + group.thread_rank();
        sums[i] = cg::reduce(group, v, cg::plus<int>());
        before[i] = cg::exclusive_scan(group, v);
        auto labelled = cg::labeled_partition(group, v & 3);
        labels[i] = cg::reduce(labelled, v, cg::plus<int>());
        parts[i] = cg::binary_partition(group, v > 50).num_threads() * 10 + cg::tiled_partition(group, 4).num_threads();
    }
}
