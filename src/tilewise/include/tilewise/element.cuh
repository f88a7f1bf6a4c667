// The element type of a rung that serves several: what lies in memory, what sums are kept in, and the way
// from one to the other and back.
#pragma once

#if defined(ELEMENT_FLOAT16)
using Element = unsigned short; // the bits of an IEEE 754 binary16
using Sum = float;

inline __device__ Sum widen(Element element)
{
    Sum wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));
    return wide;
}

inline __device__ Element narrow(Sum sum)
{
    Element element;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(sum));
    return element;
}
#else
#if defined(ELEMENT_FLOAT64)
using Element = double;
#else
using Element = float;
#endif
using Sum = Element;

inline __device__ Sum widen(Element element) { return element; }
inline __device__ Element narrow(Sum sum) { return sum; }
#endif
