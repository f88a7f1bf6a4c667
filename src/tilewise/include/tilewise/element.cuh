// The element type of a rung that serves several: what lies in memory, and what sums are kept in.
#pragma once

#if defined(ELEMENT_FLOAT64)
using Element = double;
using Sum = double;
#elif defined(ELEMENT_FLOAT16)
using Element = unsigned short; // the bits of an IEEE 754 binary16
using Sum = float;
#else
using Element = float;
using Sum = float;
#endif

inline __device__ float widen(float element) { return element; }
inline __device__ double widen(double element) { return element; }
inline __device__ float widen(unsigned short element)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));
    return wide;
}

inline __device__ void narrow(float &element, float sum) { element = sum; }
inline __device__ void narrow(double &element, double sum) { element = sum; }
inline __device__ void narrow(unsigned short &element, float sum)
{
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(sum));
}
