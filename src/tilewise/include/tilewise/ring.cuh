// A ring of slots in shared memory that is filled and read in turns (compute capability 9.0).
//
// Whoever fills a slot waits until it is empty, and whoever reads it until it is full. Both go round alike:
// a turn names the slot, and the parity of the round that it is in.
#pragma once

#include <tilewise/mbarrier.cuh>

template <unsigned SLOTS> struct Ring {
    Mbarrier full[SLOTS];  // the bytes announced for the slot have come
    Mbarrier empty[SLOTS]; // all its readers have read it

    struct Turn {
        unsigned slot = 0, parity = 0;

        __device__ void next()
        {
            if (++slot == SLOTS) slot = 0, parity ^= 1;
        }

        __device__ void skip(unsigned turns)
        {
            const unsigned ahead = slot + turns;
            slot = ahead % SLOTS, parity ^= ahead / SLOTS & 1;
        }
    };

    // One thread makes the barriers; one announces bytes, if others fill a slot too they arrive as well, and so many
    // arrivals say that a slot has been read.
    __device__ void init(unsigned readers, unsigned fillers = 1)
    {
#pragma unroll 1
        for (unsigned i = 0; i < SLOTS; ++i) {
            full[i].init(fillers);
            empty[i].init(readers);
        }
        fence_mbarrier_init();
    }

    __device__ void wait_until_full(Turn turn) const { full[turn.slot].wait(turn.parity); }

    // NOTE: in the first round nothing is waited for; see Mbarrier.
    __device__ void wait_until_empty(Turn turn) const { empty[turn.slot].wait(turn.parity ^ 1); }
};
