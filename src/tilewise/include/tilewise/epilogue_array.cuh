// An array that an epilogue reads or writes beside the result.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/stack.cuh>

// Fetches what lies at an address, and beside it, to L2.
inline __device__ void prefetch_line(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

template <typename T> struct WithoutConst {
    using Type = T;
};
template <typename T> struct WithoutConst<const T> {
    using Type = T;
};

// 40 bytes. Where it does not run along rows or columns of the result, the same element serves all of them.
template <typename T, bool BY_ROW, bool BY_COLUMN> struct EpilogueArray {
    using Element = typename WithoutConst<T>::Type;
    long long row_stride; // in elements
    long long column_stride;
    long long batch_stride[2]; // outer, inner
    T *elements;

    // Makes this the part that belongs to the matrix of these numbers in the stack.
    __device__ void select(unsigned outer, unsigned inner)
    {
        elements += outer * batch_stride[0] + inner * batch_stride[1];
    }

    __device__ void select(InStack which) { select(which.outer, which.inner); }

    __device__ T *at(unsigned row, unsigned column) const
    {
        return elements + ((BY_ROW ? row * row_stride : 0) + (BY_COLUMN ? column * column_stride : 0));
    }

    // The same of rows and columns that are less than 2³¹: signed, so that what is added to them is added to the address.
    __device__ T *at(int row, int column) const
    {
        return elements + ((BY_ROW ? row * row_stride : 0) + (BY_COLUMN ? column * column_stride : 0));
    }

    // Whether neighbouring columns from this one on can be read at once: as can those that begin a multiple of them later.
    template <unsigned COUNT> __device__ bool lies_at_once(unsigned row, unsigned column) const
    {
        if constexpr (COUNT == 1 || !BY_COLUMN)
            return true;
        else
            return column_stride == 1 && Neighbours<Element, COUNT>::are_aligned(at(row, column));
    }

    // The elements of neighbouring columns, which can be; where all have the same, only the first one.
    template <unsigned COUNT, typename Index>
    __device__ Neighbours<Element, COUNT> read_at_once(Index row, Index column) const
    {
        Neighbours<Element, COUNT> found;
        if constexpr (COUNT == 1 || !BY_COLUMN)
            found.at[0] = *at(row, column);
        else
            found.read(at(row, column));
        return found;
    }

    // The same, which may lie anyhow.
    template <unsigned COUNT> __device__ Neighbours<Element, COUNT> read(unsigned row, unsigned column) const
    {
        if (lies_at_once<COUNT>(row, column)) return read_at_once<COUNT>(row, column);
        const T *from = at(row, column);
        Neighbours<Element, COUNT> found;
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            found.at[i] = from[i * column_stride];
        return found;
    }

    // The same of columns and rows that may be beyond the last: then it is the last.
    template <unsigned COUNT>
    __device__ Neighbours<Element, COUNT> read_within(unsigned height, unsigned width, int row, int column) const
    {
        Neighbours<Element, COUNT> found;
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            found.at[i] = *at(min(row, int(height - 1)), min(column + int(i), int(width - 1)));
        return found;
    }

    template <unsigned COUNT> static __device__ auto value(const Neighbours<Element, COUNT> &found, unsigned i)
    {
        return found.widened(BY_COLUMN ? i : 0);
    }

    // Two values rounded to a type of 16 bits and packed.
    template <typename Sum> static __device__ unsigned narrow_two(const Sum (&values)[2])
    {
        return narrow_pair<Element>({values[0], values[1]});
    }

    // Stores values, rounded to the array's type, for neighbouring columns.
    template <unsigned COUNT, typename Sum>
    __device__ void keep(unsigned row, unsigned column, const Sum (&values)[COUNT]) const
    {
        auto *to = at(row, column);
        Neighbours<Element, COUNT> rounded;
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            rounded.at[i] = narrow<Element>(values[i]);
        if constexpr (COUNT > 1) {
            if (column_stride == 1 && Neighbours<Element, COUNT>::are_aligned(to)) {
                rounded.write(to);
                return;
            }
        }
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            to[i * column_stride] = rounded.at[i];
    }
};
static_assert(sizeof(EpilogueArray<char, true, true>) == 40, "what the host hands over");
