// A matrix as a kernel sees it: a struct handed over by value.
#pragma once

// Rows lie `pitch` elements apart, so that a part of a larger matrix needs no copy. An index is 32 bits
// wide; the launch side refuses a matrix whose rows span more elements than that.
template <typename T> struct Matrix {
    unsigned width;
    unsigned height;
    unsigned pitch;
    T *elements;

    __device__ T &at(unsigned row, unsigned column) const { return elements[row * pitch + column]; }
};
