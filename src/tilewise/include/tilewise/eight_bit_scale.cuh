// The scale of numbers that become 8 bits, VALUE: what makes the largest of them the largest that 8 bits have.
#pragma once

#include <tilewise/element.cuh>

#ifndef VALUE
#define VALUE float8_e4m3fn // or float8_e5m2, int8
#endif

inline __device__ float scale_for(float largest)
{
    constexpr float MOST = SAME<VALUE, int8> ? 127.0f : SAME<VALUE, float8_e5m2> ? 57344.0f : 448.0f;
    constexpr float LEAST = 1.40129846e-45f; // of numbers so small that theirs would be none
    const float all = largest / MOST;
    return all > 0 ? all : largest > 0 ? LEAST : 1;
}

// The largest of a warp's lanes, none of them negative.
inline __device__ float largest_of_lanes(float largest)
{
#pragma unroll
    for (unsigned apart = 16; apart > 0; apart /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
    return largest;
}
