// Barriers that lie in shared memory and count bytes as well as threads (compute capability 9.0).
//
// Each goes through phases. A phase is over once as many threads have arrived as the barrier was made for,
// and as many bytes have been copied as those threads announced. A waiter names the phase by its parity: 0
// for the first, third, …, 1 for the second, fourth, …
// NOTE: a wait for the parity of the phase before the current one is over at once. So whoever waits for a
// free slot of a ring starts with parity 1, and the first round of a fresh ring waits for nothing.
#pragma once

#include <tilewise/shared_address.cuh>

struct Mbarrier {
    unsigned long long state; // opaque

    __device__ void init(unsigned arrivals)
    {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                     : "memory");
    }

    // Arrives, and announces bytes that copies will bring before the phase is over.
    __device__ void arrive_and_expect(unsigned bytes)
    {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                     "r"(bytes)
                     : "memory");
    }

    __device__ void arrive()
    {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }

    // Arrives once the asynchronous copies have come that this thread has started (tilewise/async_copy.cuh).
    __device__ void arrive_after_copies()
    {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(this)) : "memory");
    }

    // Arrives at the barrier that lies in the same place of another block of the cluster (or of this one).
    // NOTE: this orders ordinary stores for the threads of this block alone. It is meant to say that the
    // tensor cores have read something, which they have once they were waited for.
    __device__ void arrive_in(unsigned rank)
    {
        asm volatile("{\n\t.reg .b32 there;\n\t"
                     "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(
                         shared_address(this)),
                     "r"(rank)
                     : "memory");
    }

    // Waits until the phase of this parity is over. What was done before the arrivals is seen afterwards.
    __device__ void wait(unsigned parity) const
    {
        while (!test(parity)) {}
    }

  private:
    __device__ bool test(unsigned parity) const
    {
        unsigned over;
        asm volatile("{\n\t.reg .pred over;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, over;\n\t}"
                     : "=r"(over)
                     : "r"(shared_address(this)), "r"(parity)
                     : "memory");
        return over;
    }
};

// Makes fresh barriers known to the other blocks of the cluster and to the copy engine.
// NOTE: the threads still have to wait for the one that made them.
inline __device__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
