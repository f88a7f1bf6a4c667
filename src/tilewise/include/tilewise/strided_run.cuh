// Neighbours in a row of a matrix that lies in any way.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/strided.cuh>

// Reads COUNT of them, at once where they lie so; zeros beyond the last column.
template <unsigned COUNT, typename T>
inline __device__ Neighbours<T, COUNT> read_run(const Strided<const T> &from, unsigned row, unsigned column)
{
    Neighbours<T, COUNT> run;
    const T *begin = from.at(row, column);
    if (from.column_stride == 1 && column + COUNT <= from.columns && run.are_aligned(begin)) {
        run.read(begin);
    } else {
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            run.at[i] = column + i < from.columns ? *from.at(row, column + i) : T();
    }
    return run;
}

// Writes COUNT of them, at once where they lie so, and none beyond the last column.
template <typename T, unsigned COUNT>
inline __device__ void write_run(const Neighbours<T, COUNT> &run, const Strided<T> &to, unsigned row, unsigned column)
{
    T *begin = to.at(row, column);
    if (to.column_stride == 1 && column + COUNT <= to.columns && run.are_aligned(begin)) {
        run.write(begin);
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < COUNT; ++i)
        if (column + i < to.columns) *to.at(row, column + i) = run.at[i];
}
