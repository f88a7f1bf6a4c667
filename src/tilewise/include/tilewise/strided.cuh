// A stack of matrices that lie in memory in any way: transposed, cut out, reversed or repeated.
#pragma once

#include <tilewise/stack.cuh>

// 48 bytes. Strides count elements; they may be 0 (the same again) or negative. A stack has two levels, so
// that an axis which is broadcast can lie beside one that is not.
template <typename T> struct Strided {
    unsigned rows;
    unsigned columns;
    long long row_stride;
    long long column_stride;
    long long batch_stride[2]; // outer, inner
    T *elements;

    __device__ T *at(unsigned row, unsigned column) const
    {
        return elements + (row * row_stride + column * column_stride);
    }

    // Where the matrix of these numbers in the stack begins.
    __device__ T *in_stack(unsigned outer, unsigned inner) const
    {
        return elements + (outer * batch_stride[0] + inner * batch_stride[1]);
    }

    __device__ T *in_stack(InStack which) const { return in_stack(which.outer, which.inner); }

    // Makes this the matrix of that number in the stack; the inner level runs first.
    __device__ void select(unsigned batch, unsigned inner_count)
    {
        elements = in_stack(batch / inner_count, batch % inner_count);
    }
    __device__ void select(InStack which) { elements = in_stack(which); }
};
static_assert(sizeof(Strided<char>) == 48, "what the host hands over");
