// Warpgroup matrix instructions (compute capability 9.0, only as sm_90a): four warps multiply matrices that
// lie in shared memory, and the sums stay in their registers.
//
// A warpgroup is four warps from a multiple of four on. The instructions run by themselves. A warpgroup
// fences, starts some, commits them as a group, and later waits until all but the newest few of its groups
// are over.
// NOTE: until then the sums must not be touched. Where the compiler sees that they are, it waits after each
// instruction, and says so (C7510 and the like).
//
// Sums: of the 64 rows warp w of the group has rows 16·w to 16·w + 15. Its lane 4·g + t holds in elements
// 4·j to 4·j + 3 columns 8·j + 2·t and 8·j + 2·t + 1 of row g, then of row g + 8. Two neighbours in float16 share a
// register (tilewise/sum_registers.cuh).
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/shared_address.cuh>

namespace wgmma {

// How a matrix of 16-bit elements lies in shared memory in rows of 128 bytes with 128-byte swizzle, as the
// copy engine leaves it. With K along the rows (row-major A) a row is 64 k (32 of float32), and eight rows follow
// eight rows at 1,024 bytes; `columns_apart` means nothing. With N along the rows (row-major B) a row is 64 columns of
// one k, eight k follow eight k at 1,024 bytes, and 64 columns the 64 before them at `columns_apart`.
inline __device__ unsigned long long descriptor(const void *shared, unsigned columns_apart)
{
    constexpr unsigned long long SWIZZLE_128 = 1ull << 62;
    constexpr unsigned long long EIGHT_APART = 1024;
    // NOTE: in a cluster a shared address carries the block's rank in its high bits, and a descriptor has
    // room for 18. The others would spill into the next field.
    constexpr unsigned IN_BLOCK = (1 << 18) - 1;
    const unsigned long long apart = columns_apart >> 4;
    return (shared_address(shared) & IN_BLOCK) >> 4 | apart << 16 | EIGHT_APART >> 4 << 32 | SWIZZLE_128;
}

// Orders what was done to registers and shared memory before the instructions to come.
inline __device__ void fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

inline __device__ void commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most NEWEST groups are still under way.
template <int NEWEST> inline __device__ void wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWEST) : "memory");
}

// Registers %0, %1, … of the sums, as the assembler wants them listed, and as the compiler does: each KIND of operand.
#define TILEWISE_LIST_2 "%0, %1"
#define TILEWISE_LIST_4 "%0, %1, %2, %3"
#define TILEWISE_LIST_8 TILEWISE_LIST_4 ", %4, %5, %6, %7"
#define TILEWISE_LIST_12 TILEWISE_LIST_8 ", %8, %9, %10, %11"
#define TILEWISE_LIST_16 TILEWISE_LIST_12 ", %12, %13, %14, %15"
#define TILEWISE_LIST_20 TILEWISE_LIST_16 ", %16, %17, %18, %19"
#define TILEWISE_LIST_24 TILEWISE_LIST_20 ", %20, %21, %22, %23"
#define TILEWISE_LIST_28 TILEWISE_LIST_24 ", %24, %25, %26, %27"
#define TILEWISE_LIST_32 TILEWISE_LIST_28 ", %28, %29, %30, %31"
#define TILEWISE_LIST_36 TILEWISE_LIST_32 ", %32, %33, %34, %35"
#define TILEWISE_LIST_40 TILEWISE_LIST_36 ", %36, %37, %38, %39"
#define TILEWISE_LIST_44 TILEWISE_LIST_40 ", %40, %41, %42, %43"
#define TILEWISE_LIST_48 TILEWISE_LIST_44 ", %44, %45, %46, %47"
#define TILEWISE_LIST_52 TILEWISE_LIST_48 ", %48, %49, %50, %51"
#define TILEWISE_LIST_56 TILEWISE_LIST_52 ", %52, %53, %54, %55"
#define TILEWISE_LIST_60 TILEWISE_LIST_56 ", %56, %57, %58, %59"
#define TILEWISE_LIST_64 TILEWISE_LIST_60 ", %60, %61, %62, %63"
#define TILEWISE_LIST_72 TILEWISE_LIST_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TILEWISE_LIST_80 TILEWISE_LIST_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TILEWISE_LIST_88 TILEWISE_LIST_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TILEWISE_LIST_96 TILEWISE_LIST_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TILEWISE_LIST_104 TILEWISE_LIST_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TILEWISE_LIST_112 TILEWISE_LIST_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TILEWISE_LIST_120 TILEWISE_LIST_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TILEWISE_LIST_128 TILEWISE_LIST_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TILEWISE_2(KIND, i) KIND(sums[i]), KIND(sums[i + 1])
#define TILEWISE_4(KIND, i) TILEWISE_2(KIND, i), TILEWISE_2(KIND, i + 2)
#define TILEWISE_8(KIND, i) TILEWISE_4(KIND, i), TILEWISE_4(KIND, i + 4)
#define TILEWISE_12(KIND, i) TILEWISE_8(KIND, i), TILEWISE_4(KIND, i + 8)
#define TILEWISE_16(KIND, i) TILEWISE_12(KIND, i), TILEWISE_4(KIND, i + 12)
#define TILEWISE_20(KIND, i) TILEWISE_16(KIND, i), TILEWISE_4(KIND, i + 16)
#define TILEWISE_24(KIND, i) TILEWISE_20(KIND, i), TILEWISE_4(KIND, i + 20)
#define TILEWISE_28(KIND, i) TILEWISE_24(KIND, i), TILEWISE_4(KIND, i + 24)
#define TILEWISE_32(KIND, i) TILEWISE_28(KIND, i), TILEWISE_4(KIND, i + 28)
#define TILEWISE_36(KIND, i) TILEWISE_32(KIND, i), TILEWISE_4(KIND, i + 32)
#define TILEWISE_40(KIND, i) TILEWISE_36(KIND, i), TILEWISE_4(KIND, i + 36)
#define TILEWISE_44(KIND, i) TILEWISE_40(KIND, i), TILEWISE_4(KIND, i + 40)
#define TILEWISE_48(KIND, i) TILEWISE_44(KIND, i), TILEWISE_4(KIND, i + 44)
#define TILEWISE_52(KIND, i) TILEWISE_48(KIND, i), TILEWISE_4(KIND, i + 48)
#define TILEWISE_56(KIND, i) TILEWISE_52(KIND, i), TILEWISE_4(KIND, i + 52)
#define TILEWISE_60(KIND, i) TILEWISE_56(KIND, i), TILEWISE_4(KIND, i + 56)
#define TILEWISE_64(KIND, i) TILEWISE_60(KIND, i), TILEWISE_4(KIND, i + 60)
#define TILEWISE_72(KIND, i) TILEWISE_64(KIND, i), TILEWISE_8(KIND, i + 64)
#define TILEWISE_80(KIND, i) TILEWISE_72(KIND, i), TILEWISE_8(KIND, i + 72)
#define TILEWISE_88(KIND, i) TILEWISE_80(KIND, i), TILEWISE_8(KIND, i + 80)
#define TILEWISE_96(KIND, i) TILEWISE_88(KIND, i), TILEWISE_8(KIND, i + 88)
#define TILEWISE_104(KIND, i) TILEWISE_96(KIND, i), TILEWISE_8(KIND, i + 96)
#define TILEWISE_112(KIND, i) TILEWISE_104(KIND, i), TILEWISE_8(KIND, i + 104)
#define TILEWISE_120(KIND, i) TILEWISE_112(KIND, i), TILEWISE_8(KIND, i + 112)
#define TILEWISE_128(KIND, i) TILEWISE_120(KIND, i), TILEWISE_8(KIND, i + 120)

// The number after the descriptors says whether the sums count, the next two that neither operand is negated, the
// last two which of them has K across its rows: only of 16 bits may one have it, of other types they are not asked.
#define TILEWISE_WGMMA(N, SUM, TYPE, KIND, COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16." SUM "." TYPE "." TYPE " {" TILEWISE_LIST_##COUNT "}, %" #A \
                 ", %" #B ", %" #ADDS_TO ", 1, 1, %" #ACROSS_A ", %" #ACROSS_B ";" \
                 : TILEWISE_##COUNT(KIND, 0) \
                 : "l"(a), "l"(b), "n"(ADDS), "n"(!A_ALONG_K), "n"(B_ALONG_N))
#define TILEWISE_WGMMA_ALONG_K(N, TYPES, SIGNS, KIND, COUNT, A, B, ADDS_TO) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" TILEWISE_LIST_##COUNT "}, %" #A ", %" #B \
                 ", %" #ADDS_TO SIGNS ";" \
                 : TILEWISE_##COUNT(KIND, 0) \
                 : "l"(a), "l"(b), "n"(ADDS))
// The rows of A from registers: four, each with two neighbours along K.
#define TILEWISE_WGMMA_OF_REGISTERS(N, TYPE, COUNT, A, A_1, A_2, A_3, B, ACROSS) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TILEWISE_LIST_##COUNT \
                 "}, {%" #A ", %" #A_1 ", %" #A_2 ", %" #A_3 "}, %" #B ", 1, 1, 1, " ACROSS ";" \
                 : TILEWISE_##COUNT("+f", 0) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define TILEWISE_WIDTH(N, COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B) \
    template <> struct Instruction<float32, COUNT> { \
        template <typename Element, bool B_ALONG_N> \
        static __device__ void issue(float32 (&sums)[COUNT], const unsigned (&a)[4], unsigned long long b) \
        { \
            if constexpr (SAME<Element, bfloat16> && B_ALONG_N) \
                TILEWISE_WGMMA_OF_REGISTERS(N, "bf16", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B, "1"); \
            else if constexpr (SAME<Element, bfloat16>) \
                TILEWISE_WGMMA_OF_REGISTERS(N, "bf16", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B, "0"); \
            else if constexpr (B_ALONG_N) \
                TILEWISE_WGMMA_OF_REGISTERS(N, "f16", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B, "1"); \
            else \
                TILEWISE_WGMMA_OF_REGISTERS(N, "f16", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B, "0"); \
        } \
        template <typename Element, bool A_ALONG_K, bool B_ALONG_N, bool ADDS> \
        static __device__ void issue(float32 (&sums)[COUNT], unsigned long long a, unsigned long long b) \
        { \
            if constexpr (SAME<Element, float32>) \
                TILEWISE_WGMMA_ALONG_K(N, "k8.f32.tf32.tf32", ", 1, 1", "+f", COUNT, A, B, ADDS_TO); \
            else if constexpr (SAME<Element, float8_e4m3fn>) \
                TILEWISE_WGMMA_ALONG_K(N, "k32.f32.e4m3.e4m3", ", 1, 1", "+f", COUNT, A, B, ADDS_TO); \
            else if constexpr (SAME<Element, float8_e5m2>) \
                TILEWISE_WGMMA_ALONG_K(N, "k32.f32.e5m2.e5m2", ", 1, 1", "+f", COUNT, A, B, ADDS_TO); \
            else if constexpr (SAME<Element, TwoTypes<float8_e4m3fn, float8_e5m2>>) \
                TILEWISE_WGMMA_ALONG_K(N, "k32.f32.e4m3.e5m2", ", 1, 1", "+f", COUNT, A, B, ADDS_TO); \
            else if constexpr (SAME<Element, TwoTypes<float8_e5m2, float8_e4m3fn>>) \
                TILEWISE_WGMMA_ALONG_K(N, "k32.f32.e5m2.e4m3", ", 1, 1", "+f", COUNT, A, B, ADDS_TO); \
            else if constexpr (SAME<Element, bfloat16>) \
                TILEWISE_WGMMA(N, "f32", "bf16", "+f", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B); \
            else \
                TILEWISE_WGMMA(N, "f32", "f16", "+f", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B); \
        } \
    }; \
    template <> struct Instruction<int, COUNT> { \
        template <typename Element, bool A_ALONG_K, bool B_ALONG_N, bool ADDS> \
        static __device__ void issue(int (&sums)[COUNT], unsigned long long a, unsigned long long b) \
        { \
            static_assert(SAME<Element, int8>, "of which alone there are whole sums"); \
            TILEWISE_WGMMA_ALONG_K(N, "k32.s32.s8.s8", "", "+r", COUNT, A, B, ADDS_TO); \
        } \
    };
#define TILEWISE_WIDTH_OF_PAIRS(N, COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B) \
    template <> struct Instruction<unsigned, COUNT> { \
        template <typename Element, bool A_ALONG_K, bool B_ALONG_N, bool ADDS> \
        static __device__ void issue(unsigned (&sums)[COUNT], unsigned long long a, unsigned long long b) \
        { \
            static_assert(SAME<Element, float16>, "of which alone there are sums in float16"); \
            TILEWISE_WGMMA(N, "f16", "f16", "+r", COUNT, A, B, ADDS_TO, ACROSS_A, ACROSS_B); \
        } \
    };

// The instruction for so many registers of sums of a thread: half as many as it has columns, or a quarter in pairs.
template <typename Register, unsigned COUNT> struct Instruction;
TILEWISE_WIDTH(8, 4, 4, 5, 6, 7, 8)
TILEWISE_WIDTH(16, 8, 8, 9, 10, 11, 12)
TILEWISE_WIDTH(32, 16, 16, 17, 18, 19, 20)
TILEWISE_WIDTH(48, 24, 24, 25, 26, 27, 28)
TILEWISE_WIDTH(64, 32, 32, 33, 34, 35, 36)
TILEWISE_WIDTH(80, 40, 40, 41, 42, 43, 44)
TILEWISE_WIDTH(96, 48, 48, 49, 50, 51, 52)
TILEWISE_WIDTH(112, 56, 56, 57, 58, 59, 60)
TILEWISE_WIDTH(128, 64, 64, 65, 66, 67, 68)
TILEWISE_WIDTH(144, 72, 72, 73, 74, 75, 76)
TILEWISE_WIDTH(160, 80, 80, 81, 82, 83, 84)
TILEWISE_WIDTH(176, 88, 88, 89, 90, 91, 92)
TILEWISE_WIDTH(192, 96, 96, 97, 98, 99, 100)
TILEWISE_WIDTH(208, 104, 104, 105, 106, 107, 108)
TILEWISE_WIDTH(224, 112, 112, 113, 114, 115, 116)
TILEWISE_WIDTH(240, 120, 120, 121, 122, 123, 124)
TILEWISE_WIDTH(256, 128, 128, 129, 130, 131, 132)
TILEWISE_WIDTH_OF_PAIRS(8, 2, 2, 3, 4, 5, 6)
TILEWISE_WIDTH_OF_PAIRS(16, 4, 4, 5, 6, 7, 8)
TILEWISE_WIDTH_OF_PAIRS(32, 8, 8, 9, 10, 11, 12)
TILEWISE_WIDTH_OF_PAIRS(48, 12, 12, 13, 14, 15, 16)
TILEWISE_WIDTH_OF_PAIRS(64, 16, 16, 17, 18, 19, 20)
TILEWISE_WIDTH_OF_PAIRS(80, 20, 20, 21, 22, 23, 24)
TILEWISE_WIDTH_OF_PAIRS(96, 24, 24, 25, 26, 27, 28)
TILEWISE_WIDTH_OF_PAIRS(112, 28, 28, 29, 30, 31, 32)
TILEWISE_WIDTH_OF_PAIRS(128, 32, 32, 33, 34, 35, 36)
TILEWISE_WIDTH_OF_PAIRS(144, 36, 36, 37, 38, 39, 40)
TILEWISE_WIDTH_OF_PAIRS(160, 40, 40, 41, 42, 43, 44)
TILEWISE_WIDTH_OF_PAIRS(176, 44, 44, 45, 46, 47, 48)
TILEWISE_WIDTH_OF_PAIRS(192, 48, 48, 49, 50, 51, 52)
TILEWISE_WIDTH_OF_PAIRS(208, 52, 52, 53, 54, 55, 56)
TILEWISE_WIDTH_OF_PAIRS(224, 56, 56, 57, 58, 59, 60)
TILEWISE_WIDTH_OF_PAIRS(240, 60, 60, 61, 62, 63, 64)
TILEWISE_WIDTH_OF_PAIRS(256, 64, 64, 65, 66, 67, 68)

// sums (64×N) += a (64×K) · b (K×N), where a thread has sums of half as many columns, 8 or a multiple of 16: float32 each,
// packed pairs of float16, or int32 of int8. K is 32 bytes: 32 elements of 8 bits, 16 of 16, or 8 float32 in tf32, of
// which the tensor cores leave the lowest 13 bits away. The rows of `a` in shared memory lie along K (else along M), those
// of `b` along N (else along K).
// NOTE: sums of 8-bit floating-point numbers keep only 13 places behind the point of the largest (docs/hardware.md).
template <typename Element, bool A_ALONG_K = true, bool B_ALONG_N = true, typename Register, unsigned COUNT>
inline __device__ void multiply_add(Register (&sums)[COUNT], unsigned long long a, unsigned long long b)
{
    static_assert(sizeof(Element) == 2 || (A_ALONG_K && !B_ALONG_N), "only 16 bits are read across K, too");
    Instruction<Register, COUNT>::template issue<Element, A_ALONG_K, B_ALONG_N, true>(sums, a, b);
}

// sums = a · b, whatever they were before.
template <typename Element, bool A_ALONG_K = true, bool B_ALONG_N = true, typename Register, unsigned COUNT>
inline __device__ void multiply(Register (&sums)[COUNT], unsigned long long a, unsigned long long b)
{
    Instruction<Register, COUNT>::template issue<Element, A_ALONG_K, B_ALONG_N, false>(sums, a, b);
}

// sums += a · b with what a thread has of `a`, of 16 bits, in registers: of its warp's rows those that it has sums of, and
// of these k 2·t and 2·t + 1, and those 8 further. The first is in row g, the next in row g + 8.
template <typename Element, bool B_ALONG_N, unsigned COUNT>
inline __device__ void multiply_add(float32 (&sums)[COUNT], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(sizeof(Element) == 2, "as pairs");
    Instruction<float32, COUNT>::template issue<Element, B_ALONG_N>(sums, a, b);
}

#undef TILEWISE_WIDTH
#undef TILEWISE_WIDTH_OF_PAIRS
#undef TILEWISE_WGMMA
#undef TILEWISE_WGMMA_ALONG_K
#undef TILEWISE_WGMMA_OF_REGISTERS
#undef TILEWISE_LIST_2
#undef TILEWISE_2
#undef TILEWISE_LIST_4
#undef TILEWISE_4
#undef TILEWISE_LIST_8
#undef TILEWISE_8
#undef TILEWISE_LIST_12
#undef TILEWISE_12
#undef TILEWISE_LIST_16
#undef TILEWISE_16
#undef TILEWISE_LIST_20
#undef TILEWISE_20
#undef TILEWISE_LIST_24
#undef TILEWISE_24
#undef TILEWISE_LIST_28
#undef TILEWISE_28
#undef TILEWISE_LIST_32
#undef TILEWISE_32
#undef TILEWISE_LIST_36
#undef TILEWISE_36
#undef TILEWISE_LIST_40
#undef TILEWISE_40
#undef TILEWISE_LIST_44
#undef TILEWISE_44
#undef TILEWISE_LIST_48
#undef TILEWISE_48
#undef TILEWISE_LIST_52
#undef TILEWISE_52
#undef TILEWISE_LIST_56
#undef TILEWISE_56
#undef TILEWISE_LIST_60
#undef TILEWISE_60
#undef TILEWISE_LIST_64
#undef TILEWISE_64
#undef TILEWISE_LIST_72
#undef TILEWISE_72
#undef TILEWISE_LIST_80
#undef TILEWISE_80
#undef TILEWISE_LIST_88
#undef TILEWISE_88
#undef TILEWISE_LIST_96
#undef TILEWISE_96
#undef TILEWISE_LIST_104
#undef TILEWISE_104
#undef TILEWISE_LIST_112
#undef TILEWISE_112
#undef TILEWISE_LIST_120
#undef TILEWISE_120
#undef TILEWISE_LIST_128
#undef TILEWISE_128

} // namespace wgmma

namespace warpgroup {

// Gives registers back, or takes some, so that each thread of the warpgroup has so many.
template <int REGISTERS> inline __device__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> inline __device__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

} // namespace warpgroup
