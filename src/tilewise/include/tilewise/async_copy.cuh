// Asynchronous copies from global to shared memory (compute capability 8.0 and newer).
//
// A thread starts copies, closes them into a group with commit(), and later waits until all but the newest
// few of its groups have landed. That makes its own copies visible to itself only: threads that read what
// others copied need a barrier after the wait.
#pragma once

#include <tilewise/shared_address.cuh>

namespace async_copy {

// Copies `bytes` (0 to 16) from `global` and fills up with zeros to 16. Both addresses are multiples of 16.
// With 0 bytes nothing is read, so `global` may point anywhere.
inline __device__ void start_16(void *shared, const void *global, unsigned bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(bytes)
                 : "memory");
}

// The same where mostly all 16 bytes are copied. A copy that may read less writes zeros first, and so writes twice: there
// are two instructions, and a condition that says which.
inline __device__ void start_mostly_16(void *shared, const void *global, unsigned bytes)
{
    asm volatile("{\n\t.reg .pred whole;\n\tsetp.eq.u32 whole, %2, 16;\n\t"
                 "@whole cp.async.cg.shared.global [%0], [%1], 16;\n\t"
                 "@!whole cp.async.cg.shared.global [%0], [%1], 16, %2;\n\t}" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}

// The same for WIDTH bytes, 4 or 8, at addresses that are multiples of so many.
template <unsigned WIDTH> inline __device__ void start_narrow(void *shared, const void *global, unsigned bytes)
{
    static_assert(WIDTH == 4 || WIDTH == 8, "there are no others");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(WIDTH), "r"(bytes)
                 : "memory");
}

// Copies 16 bytes, or writes zeros, if not `reads`, and reads nothing. It takes fewer instructions than a number of bytes.
inline __device__ void start_16_or_zero(void *shared, const void *global, bool reads)
{
    asm volatile("{\n\t.reg .pred ignored;\n\tsetp.eq.u32 ignored, %2, 0;\n\t"
                 "cp.async.cg.shared.global [%0], [%1], 16, ignored;\n\t}" ::"r"(shared_address(shared)),
                 "l"(global), "r"(unsigned(reads))
                 : "memory");
}

inline __device__ void start_4(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

inline __device__ void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most NEWEST of this thread's groups are still under way.
template <int NEWEST> inline __device__ void wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

// Waits until all copies of this thread have landed, in groups or not.
inline __device__ void wait_for_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

} // namespace async_copy
