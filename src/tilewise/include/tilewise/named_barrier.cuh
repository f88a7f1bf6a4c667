// The barriers of a block by number, for some of its warps. __syncthreads has number 0.
#pragma once

namespace named_barrier {

// Waits until COUNT threads have come, those that only arrive among them.
template <unsigned COUNT> inline __device__ void wait(unsigned number)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(COUNT) : "memory");
}

template <unsigned COUNT> inline __device__ void arrive(unsigned number)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(COUNT) : "memory");
}

} // namespace named_barrier
