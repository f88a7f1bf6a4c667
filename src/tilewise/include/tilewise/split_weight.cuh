// A float32 kept as two halves: the float16 nearest to it, which is what products read, and the 16 bits that say which
// float32 it was. So the weight and its master copy take four bytes together, not six.
//
// The second half is the distance between the two as whole numbers of their bits. It is exact where the float32 is at
// least 2^-16 in size, and down to 2^-17 but for the last place of what lies half way between two float16; smaller ones,
// near float16's own steps of 2^-24, may lose what does not fit: less than 2^-25.
#pragma once

#include <tilewise/element.cuh>

namespace split_weight {

// Two neighbours from their halves, the first in the low 16 bits of each.
inline __device__ float2 join(unsigned halves, unsigned rests)
{
    const float low = widen(float16(halves & 0xffff)), high = widen(float16(halves >> 16));
    return {__int_as_float(__float_as_int(low) + static_cast<short>(rests & 0xffff)),
            __int_as_float(__float_as_int(high) + (static_cast<int>(rests) >> 16))};
}

// The rest of two neighbours, given the halves that they were rounded to.
inline __device__ unsigned find_rests(float2 whole, unsigned halves)
{
    const int low = __float_as_int(whole.x) - __float_as_int(widen(float16(halves & 0xffff)));
    const int high = __float_as_int(whole.y) - __float_as_int(widen(float16(halves >> 16)));
    unsigned rests;
    asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(rests) : "r"(high), "r"(low));
    return rests;
}

} // namespace split_weight
