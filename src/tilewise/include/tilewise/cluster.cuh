// Clusters of blocks (compute capability 9.0): blocks that run side by side, reach one another's shared
// memory and wait for one another.
#pragma once

#include <tilewise/shared_address.cuh>

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

// The same, and what was stored before is seen afterwards.
inline __device__ void wait_for_all_stores()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Reads four floats that lie in the same place of another block (or of this one).
inline __device__ float4 load(const float *here, unsigned rank)
{
    float4 found;
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %4, %5;\n\t"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n\t}"
                 : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w)
                 : "r"(shared_address(here)), "r"(rank)
                 : "memory");
    return found;
}

// The same of whole numbers.
inline __device__ int4 load(const int *here, unsigned rank)
{
    const float4 bits = load(reinterpret_cast<const float *>(here), rank);
    return {__float_as_int(bits.x), __float_as_int(bits.y), __float_as_int(bits.z), __float_as_int(bits.w)};
}

// The same of one number.
inline __device__ unsigned load(const unsigned *here, unsigned rank)
{
    unsigned found;
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %1, %2;\n\t"
                 "ld.shared::cluster.u32 %0, [there];\n\t}"
                 : "=r"(found)
                 : "r"(shared_address(here)), "r"(rank)
                 : "memory");
    return found;
}

} // namespace cluster
