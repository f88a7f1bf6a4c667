// An array that an epilogue reads or writes beside the result.
#pragma once

#include <tilewise/element.cuh>

// 40 bytes. Where it does not run along rows or columns of the result, the same element serves all of them.
template <typename T, bool BY_ROW, bool BY_COLUMN> struct EpilogueArray {
    long long row_stride; // in elements
    long long column_stride;
    long long batch_stride[2]; // outer, inner
    T *elements;

    // Makes this the part that belongs to the matrix of these numbers in the stack.
    __device__ void select(unsigned outer, unsigned inner)
    {
        elements += outer * batch_stride[0] + inner * batch_stride[1];
    }

    __device__ T *at(unsigned row, unsigned column) const
    {
        return elements + ((BY_ROW ? row * row_stride : 0) + (BY_COLUMN ? column * column_stride : 0));
    }

    __device__ auto read(unsigned row, unsigned column) const { return widen(*at(row, column)); }

    // Stores the value, rounded to the array's type; the value itself goes on.
    template <typename Sum> __device__ Sum keep(unsigned row, unsigned column, Sum value) const
    {
        *at(row, column) = narrow<T>(value);
        return value;
    }
};
static_assert(sizeof(EpilogueArray<char, true, true>) == 40, "what the host hands over");
