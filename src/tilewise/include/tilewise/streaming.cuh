// Accesses that say whether L2 should keep what they touch, or give it up first (compute capability 8.0).
#pragma once

#include <tilewise/shared_address.cuh>

namespace streaming {

using Policy = unsigned long long;

// For memory that is wanted again soon, or not.
inline __device__ Policy policy(bool stays)
{
    Policy keep, give_up;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(keep));
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(give_up));
    return stays ? keep : give_up;
}

// An asynchronous copy of 16 bytes to shared memory: see async_copy.cuh.
inline __device__ void copy_16(void *shared, const void *global, Policy policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "l"(policy)
                 : "memory");
}

// Stores 16 bytes, an array of four words.
inline __device__ void store_16(void *global, const unsigned (&words)[4], Policy policy)
{
    asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(global), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(policy)
                 : "memory");
}

} // namespace streaming
