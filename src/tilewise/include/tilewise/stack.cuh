// The stack of matrices that a launch multiplies: which one has which number, and where A, B and C of that one lie.
//
// They lie evenly, one step from each to the next; or each anywhere (POINTERS). Then the launch brings tables of where
// they lie, as kernel arguments: nothing has to be copied before, or kept until after.
#pragma once

// A matrix of a stack that has two axes, by its number on each.
struct InStack {
    unsigned outer, inner;
};

#ifndef POINTERS // matrices that a table has room for; 0: none is needed
#define POINTERS 0
#endif

struct EvenStack {
    unsigned inner_count; // along the inner axis, which runs first

    __device__ InStack operator[](unsigned matrix) const { return {matrix / inner_count, matrix % inner_count}; }

    // Where each operand of a matrix lies.
    __device__ InStack of_a(InStack which) const { return which; }
    __device__ InStack of_b(InStack which) const { return which; }
    __device__ InStack of_c(InStack which) const { return which; }
};

// Tables say where a matrix lies as if it were one of a stack whose inner steps are as small as matrices lie aligned, and
// the outer ones as large as 2^INNER_BITS of those: so strides and tensor maps reach all memory from the first matrix on.
template <unsigned COUNT> struct ScatteredStack : EvenStack {
    static constexpr unsigned INNER_BITS = 31;
    unsigned long long a[COUNT], b[COUNT], c[COUNT]; // inner steps

    __device__ InStack of_a(InStack which) const { return place(a[which.inner]); }
    __device__ InStack of_b(InStack which) const { return place(b[which.inner]); }
    __device__ InStack of_c(InStack which) const { return place(c[which.inner]); }

  private:
    static __device__ InStack place(unsigned long long steps)
    {
        return {unsigned(steps >> INNER_BITS), unsigned(steps) & ((1u << INNER_BITS) - 1)};
    }
};

template <unsigned COUNT> struct StackOf {
    using Type = ScatteredStack<COUNT>;
};
template <> struct StackOf<0> {
    using Type = EvenStack;
};
using Stack = StackOf<POINTERS>::Type;
static_assert(sizeof(Stack) == (POINTERS ? 8 + 24 * POINTERS : 4), "what the host hands over");
