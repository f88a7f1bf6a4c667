// Complex numbers as elements and as sums.
#pragma once

#include <tilewise/element.cuh>

// As they lie in memory.
template <typename Part> struct alignas(2 * sizeof(Part)) Complex {
    Part re, im;

    __device__ void operator+=(Complex other) { re += other.re, im += other.im; }
    __device__ Complex operator+(Complex other) const { return {re + other.re, im + other.im}; }
};
using complex64 = Complex<float>;
using complex128 = Complex<double>;

template <typename T> constexpr unsigned PARTS_OF = 1; // real numbers that an element is
template <typename Part> constexpr unsigned PARTS_OF<Complex<Part>> = 2;

template <typename T> inline __device__ T real_part(T number) { return number; }
template <typename Part> inline __device__ Part real_part(Complex<Part> number) { return number.re; }

template <typename Number, typename Sum> inline __device__ void take_apart(Number (&parts)[1], Sum sum)
{
    parts[0] = as_number(sum);
}
template <typename Part> inline __device__ void take_apart(Part (&parts)[2], Complex<Part> sum)
{
    parts[0] = sum.re, parts[1] = sum.im;
}

template <typename Part> inline __device__ Complex<Part> widen(Complex<Part> element) { return element; }

template <unsigned COUNT, typename Part>
inline __device__ void widen_run(Complex<Part> (&wide)[COUNT], const Complex<Part> *run)
{
#pragma unroll
    for (unsigned i = 0; i < COUNT; ++i)
        wide[i] = run[i];
}

template <typename Sum> inline __device__ void add_product(Sum &sum, Sum a, Sum b) { sum += a * b; }

template <typename Part> inline __device__ void add_product(Complex<Part> &sum, Complex<Part> a, Complex<Part> b)
{
    sum.re += a.re * b.re, sum.im += a.re * b.im;
    sum.re -= a.im * b.im, sum.im += a.im * b.re;
}

// What the lane so many places away has.
template <typename Sum> inline __device__ Sum exchange(Sum sum, unsigned apart) { return __shfl_xor_sync(~0u, sum, apart); }

template <typename Part> inline __device__ Complex<Part> exchange(Complex<Part> sum, unsigned apart)
{
    return {exchange(sum.re, apart), exchange(sum.im, apart)};
}
