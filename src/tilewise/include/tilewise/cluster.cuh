// Clusters of blocks (compute capability 9.0): blocks that run side by side, reach one another's shared
// memory and wait for one another.
#pragma once

namespace cluster {

// Which block of its cluster this one is.
inline __device__ unsigned rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits for all threads of all blocks of the cluster. Each warp comes as a whole.
// NOTE: it orders no stores, so what must be seen afterwards needs a fence before. And a block must not end
// while another may still write to its shared memory or arrive at its barriers.
inline __device__ void wait_for_all()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

} // namespace cluster
