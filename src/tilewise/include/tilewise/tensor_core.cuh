// Tensor cores of Turing (compute capability 7.5) and newer: a warp multiplies small matrices at once.
//
// An operand of such an instruction is spread over the warp: lane = 4·g + t holds, of every 8×8 matrix of
// 16-bit elements, row g and columns 2t and 2t + 1, packed in one register (the even column low).
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/shared_address.cuh>

namespace tensor_core {

// A thread's sums of one instruction, kept in a type: four float32, int32 or float64, or four float16 in pairs.
template <typename T> struct SumsIn;
template <> struct SumsIn<float32> {
    using Type = float[4];
};
template <> struct SumsIn<float16> {
    using Type = unsigned[2];
};
template <> struct SumsIn<float64> {
    using Type = double[4];
};
template <> struct SumsIn<int32> {
    using Type = int[4];
};

// Loads four 8×8 matrices. Lanes 0 to 7 give the addresses of the eight rows of the first, lanes 8 to 15
// those of the second, and so on; a row is 16 bytes at a multiple of 16.
inline __device__ void load_4_matrices(unsigned (&matrices)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same, each matrix transposed on the way: lane 4·g + t gets rows 2t and 2t + 1 of column g.
inline __device__ void load_4_transposed(unsigned (&matrices)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Stores four 8×8 matrices, the other way round. Compute capability 9.0.
inline __device__ void store_4_matrices(void *row, const unsigned (&matrices)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
}

// The same, each matrix transposed on the way.
inline __device__ void store_4_transposed(void *row, const unsigned (&matrices)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
}

// sum (16×8) += a (16×8, rows 0 to 7 in a0, 8 to 15 in a1) · b (8×8, held transposed), sums in float32.
inline __device__ void multiply_add_16x8x8(float (&sum)[4], unsigned a0, unsigned a1, unsigned b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// The same with sums in float16, two in a register.
inline __device__ void multiply_add_16x8x8(unsigned (&sum)[2], unsigned a0, unsigned a1, unsigned b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
        : "+r"(sum[0]), "+r"(sum[1])
        : "r"(a0), "r"(a1), "r"(b));
}

// sum (16×8) += a (16×16, a quarter of it in each register: rows 0 to 7 and 8 to 15 of k 0 to 7, then of k 8
// to 15) · b (16×8, held transposed, k 0 to 7 in b0), sums in float32. Compute capability 8.0.
template <typename Element>
inline __device__ void multiply_add_16x8x16(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                            unsigned b1);

template <>
inline __device__ void multiply_add_16x8x16<float16>(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                                     unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
inline __device__ void multiply_add_16x8x16<bfloat16>(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                                      unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with sums in float16, two in a register.
template <typename Element>
inline __device__ void multiply_add_16x8x16(unsigned (&sum)[2], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    static_assert(SAME<Element, float16>, "of which alone there are sums in float16");
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(sum[0]), "+r"(sum[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of bytes, four in a register, so twice as deep: sums in float32, of which too few places are kept, or of int8
// exact modulo 2³². Compute capability 8.9; of int8 8.0.
#define TILEWISE_MMA_OF_FLOAT8(TYPES) \
    asm("mma.sync.aligned.m16n8k32.row.col.f32." TYPES ".f32 " \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <typename Elements>
inline __device__ void multiply_add_16x8x32(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    if constexpr (SAME<Elements, float8_e4m3fn>)
        TILEWISE_MMA_OF_FLOAT8("e4m3.e4m3");
    else if constexpr (SAME<Elements, float8_e5m2>)
        TILEWISE_MMA_OF_FLOAT8("e5m2.e5m2");
    else if constexpr (SAME<Elements, TwoTypes<float8_e4m3fn, float8_e5m2>>)
        TILEWISE_MMA_OF_FLOAT8("e4m3.e5m2");
    else
        TILEWISE_MMA_OF_FLOAT8("e5m2.e4m3");
}
#undef TILEWISE_MMA_OF_FLOAT8

template <typename Element>
inline __device__ void multiply_add_16x8x32(int (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    static_assert(SAME<Element, int8>, "whose sums are whole numbers");
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of float32 in tf32, half as deep: an operand's register has one element, of which lane 4·g + t has those of
// row g and columns t and t + 4. The nearest number of 10 bits of mantissa, away from zero where two are as near.
// The tensor cores leave the lowest 13 bits out. NOTE: in them may lie all that tells a NaN from infinity.
inline __device__ unsigned round_to_tf32(unsigned element)
{
    int bits; // of a NaN 0x7fffffff, of all else what they are
    asm("max.NaN.f32 %0, %1, 0fFF800000;" : "=r"(bits) : "r"(element));
    return min(bits, 0x7fc00000) + 0x1000;
}

inline __device__ void multiply_add_16x8x8_tf32(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sum (16×8) += a (16×4, rows 0 to 7 in a0, 8 to 15 in a1) · b (4×8, held transposed) in float64: lane 4·g + t has the
// elements of row g and column t. The instruction of compute capability 8.0 has eight rows; from 9.0 on there is one of
// sixteen.
inline __device__ void multiply_add_16x8x4(double (&sum)[4], double a0, double a1, double b)
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
        : "d"(a0), "d"(a1), "d"(b));
#else
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sum[0]), "+d"(sum[1])
        : "d"(a0), "d"(b));
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sum[2]), "+d"(sum[3])
        : "d"(a1), "d"(b));
#endif
}

// The same eight deep, from compute capability 9.0 on: the first four k in a[0], a[1] and b[0], as above, the others behind
// them.
inline __device__ void multiply_add_16x8x8(double (&sum)[4], const double (&a)[4], const double (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

// Two neighbours in one row of the sums: row g (half 0) or row g + 8 (half 1), columns 2t and 2t + 1.
inline __device__ float2 row_pair(const float (&sum)[4], unsigned half)
{
    return {sum[2 * half], sum[2 * half + 1]};
}

inline __device__ int2 row_pair(const int (&sum)[4], unsigned half) { return {sum[2 * half], sum[2 * half + 1]}; }

inline __device__ double2 row_pair(const double (&sum)[4], unsigned half)
{
    return {sum[2 * half], sum[2 * half + 1]};
}

inline __device__ float2 row_pair(const unsigned (&sum)[2], unsigned half) { return widen_pair(sum[half]); }

} // namespace tensor_core
