// What happens to each sum on its way to the result, where nothing does.
#pragma once

#include <tilewise/stack.cuh>

struct PlainEpilogue {
    using Sum = float; // what it would be done in
    static constexpr bool PLAIN = true;
    static constexpr bool IN_BOXES = false; // whether it is done to sums in registers: see tilewise/finished_box.cuh
    static constexpr unsigned MATRICES = 0, KEPT = 0; // arrays with another element for each: that are read, or written
    static __device__ constexpr bool has_sums() { return false; } // of columns or rows

    // For the matrix of these numbers in the stack.
    __device__ PlainEpilogue in_stack(unsigned, unsigned) const { return *this; }
    __device__ PlainEpilogue in_stack(const Stack &, InStack) const { return *this; }

    // What it reads for neighbouring columns: nothing.
    template <unsigned COUNT> struct Given {};
    template <unsigned COUNT> __device__ Given<COUNT> read(unsigned, unsigned) const { return {}; }

    __device__ void prefetch_lines(unsigned, unsigned) const {}

    // Makes their sums what the result's elements are, not yet rounded to their type.
    template <typename Sum, unsigned COUNT>
    __device__ void apply(Sum (&)[COUNT], const Given<COUNT> &, unsigned, unsigned) const
    {
    }

    // Both of one sum.
    template <typename Sum> __device__ Sum operator()(Sum acc, unsigned, unsigned) const { return acc; }
};
