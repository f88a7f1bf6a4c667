// Which rows a batch has: samples of a data set in an order, or all rows of an activation.
#pragma once

namespace layer {

// Row i of a batch is row order[first + step · BATCH + i], or row i where there is no order. What step is stands in the
// GPU's memory, so that a captured graph takes another batch each time.
struct Selection {
    const int *order;
    const unsigned *step;
    int first;

    template <unsigned BATCH> __device__ unsigned slot(unsigned i) const
    {
        return first + (step ? *step * BATCH : 0) + i;
    }

    template <unsigned BATCH> __device__ unsigned row(unsigned i) const { return order ? order[slot<BATCH>(i)] : i; }
};

} // namespace layer
