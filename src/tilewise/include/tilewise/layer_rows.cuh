// Which rows a batch has: samples of a data set in an order, or all rows of an activation.
#pragma once

namespace layer {

// Reads past L1. NOTE: what is read before dependent_launch::wait_for_previous() was written by a launch whose end this one
// has not waited for itself; L1 may have what was there before.
inline __device__ unsigned read_fresh(const void *from)
{
    unsigned word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
}

inline __device__ uint4 read_16_fresh(const void *from)
{
    uint4 words;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from)
                 : "memory");
    return words;
}

// Row i of a batch is row order[first + step · BATCH + i], or row i where there is no order. What step is stands in the
// GPU's memory, so that a captured graph takes another batch each time.
struct Selection {
    const int *order;
    const unsigned *step;
    int first;

    // The slot of row 0, which is to be asked for once, as it takes a trip to memory.
    template <unsigned BATCH> __device__ unsigned first_slot() const
    {
        return first + (step ? read_fresh(step) * BATCH : 0);
    }

    __device__ unsigned row(unsigned first_slot, unsigned i) const
    {
        return order ? read_fresh(&order[first_slot + i]) : i;
    }
};

} // namespace layer
