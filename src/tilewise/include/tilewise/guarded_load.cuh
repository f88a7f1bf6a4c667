// Loads of 16-bit elements at the edge of a matrix, or in rows that lie aligned for nothing wider.
#pragma once

#include <tilewise/matrix.cuh>

// The widest access, in bytes, that every eighth element of every row is aligned for: 16, 4 or 2.
template <typename T> inline __device__ unsigned widest_access(Matrix<T> matrix)
{
    static_assert(sizeof(T) == 2, "an element is aligned for 2 bytes");
    const auto bits = reinterpret_cast<unsigned long long>(matrix.elements) | matrix.pitch * sizeof(T);
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

// Loads the first `left` of eight elements that are aligned for nothing wider, and zeros for the others.
// In PTX each load stands under its own condition; in C++ there would be a branch around each.
template <typename T> inline __device__ uint4 load_halves(const T *from, unsigned left)
{
    static_assert(sizeof(T) == 2, "eight elements are 16 bytes");
    uint4 words;
    asm volatile("{\n\t.reg .pred p<8>;\n\t.reg .b16 h<8>;\n\t"
                 "setp.gt.u32 p0, %5, 0;\n\tmov.b16 h0, 0;\n\t@p0 ld.global.b16 h0, [%4 + 0];\n\t"
                 "setp.gt.u32 p1, %5, 1;\n\tmov.b16 h1, 0;\n\t@p1 ld.global.b16 h1, [%4 + 2];\n\t"
                 "setp.gt.u32 p2, %5, 2;\n\tmov.b16 h2, 0;\n\t@p2 ld.global.b16 h2, [%4 + 4];\n\t"
                 "setp.gt.u32 p3, %5, 3;\n\tmov.b16 h3, 0;\n\t@p3 ld.global.b16 h3, [%4 + 6];\n\t"
                 "setp.gt.u32 p4, %5, 4;\n\tmov.b16 h4, 0;\n\t@p4 ld.global.b16 h4, [%4 + 8];\n\t"
                 "setp.gt.u32 p5, %5, 5;\n\tmov.b16 h5, 0;\n\t@p5 ld.global.b16 h5, [%4 + 10];\n\t"
                 "setp.gt.u32 p6, %5, 6;\n\tmov.b16 h6, 0;\n\t@p6 ld.global.b16 h6, [%4 + 12];\n\t"
                 "setp.gt.u32 p7, %5, 7;\n\tmov.b16 h7, 0;\n\t@p7 ld.global.b16 h7, [%4 + 14];\n\t"
                 "mov.b32 %0, {h0, h1};\n\tmov.b32 %1, {h2, h3};\n\t"
                 "mov.b32 %2, {h4, h5};\n\tmov.b32 %3, {h6, h7};\n\t}"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from), "r"(left));
    return words;
}
