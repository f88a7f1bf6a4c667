// Where something lies in shared memory, as PTX instructions want to be told it: 32 bits.
#pragma once

inline __device__ unsigned shared_address(const void *shared)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
