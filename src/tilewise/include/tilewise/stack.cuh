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
#ifndef EXTRA_POINTERS // arrays of the epilogue that have tables too
#define EXTRA_POINTERS 0
#endif

// Tables say where a matrix lies as if it were one of a stack whose inner steps are as small as matrices lie aligned, and
// the outer ones as large as 2^31 of those: so strides and tensor maps reach all memory from the first matrix on.
inline __device__ InStack place_of(unsigned long long inner_steps)
{
    return {unsigned(inner_steps >> 31), unsigned(inner_steps) & (1u << 31) - 1};
}

struct EvenStack {
    unsigned inner_count; // along the inner axis, which runs first

    __device__ InStack operator[](unsigned matrix) const { return {matrix / inner_count, matrix % inner_count}; }

    // Where each operand of a matrix lies.
    __device__ InStack of_a(InStack which) const { return which; }
    __device__ InStack of_b(InStack which) const { return which; }
    __device__ InStack of_c(InStack which) const { return which; }
};

template <unsigned COUNT> struct ScatteredStack : EvenStack {
    unsigned long long a[COUNT], b[COUNT], c[COUNT];

    __device__ InStack of_a(InStack which) const { return place_of(a[which.inner]); }
    __device__ InStack of_b(InStack which) const { return place_of(b[which.inner]); }
    __device__ InStack of_c(InStack which) const { return place_of(c[which.inner]); }
};

template <unsigned COUNT, unsigned EXTRAS> struct StackWithExtras : ScatteredStack<COUNT> {
    unsigned long long extras[EXTRAS][COUNT];

    __device__ InStack of_extra(unsigned number, InStack which) const { return place_of(extras[number][which.inner]); }
};

template <unsigned COUNT, unsigned EXTRAS> struct StackOf {
    using Type = StackWithExtras<COUNT, EXTRAS>;
};
template <unsigned COUNT> struct StackOf<COUNT, 0> {
    using Type = ScatteredStack<COUNT>;
};
template <> struct StackOf<0, 0> {
    using Type = EvenStack;
};
using Stack = StackOf<POINTERS, EXTRA_POINTERS>::Type;
static_assert(sizeof(Stack) == (POINTERS ? 8 + (3 + EXTRA_POINTERS) * 8 * POINTERS : 4), "what the host hands over");
