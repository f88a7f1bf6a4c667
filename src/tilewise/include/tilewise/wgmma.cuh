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
// 4·j to 4·j + 3 columns 8·j + 2·t and 8·j + 2·t + 1 of row g, then of row g + 8.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/shared_address.cuh>

namespace wgmma {

// How a matrix of 16-bit elements lies in shared memory in rows of 128 bytes with 128-byte swizzle, as the
// copy engine leaves it. With K along the rows (row-major A) a row is 64 k, and eight rows follow eight rows
// at 1,024 bytes; `columns_apart` means nothing. With N along the rows (row-major B) a row is 64 columns of
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

// Registers %0, %1, … of the sums, as the assembler wants them listed, and as the compiler does.
#define TILEWISE_LIST_4 "%0, %1, %2, %3"
#define TILEWISE_LIST_8 TILEWISE_LIST_4 ", %4, %5, %6, %7"
#define TILEWISE_LIST_16 TILEWISE_LIST_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TILEWISE_LIST_24 TILEWISE_LIST_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TILEWISE_LIST_32 TILEWISE_LIST_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TILEWISE_LIST_40 TILEWISE_LIST_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TILEWISE_LIST_48 TILEWISE_LIST_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TILEWISE_LIST_56 TILEWISE_LIST_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TILEWISE_LIST_64 TILEWISE_LIST_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TILEWISE_LIST_72 TILEWISE_LIST_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TILEWISE_LIST_80 TILEWISE_LIST_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TILEWISE_LIST_88 TILEWISE_LIST_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TILEWISE_LIST_96 TILEWISE_LIST_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TILEWISE_LIST_104 TILEWISE_LIST_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TILEWISE_LIST_112 TILEWISE_LIST_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TILEWISE_LIST_120 TILEWISE_LIST_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TILEWISE_LIST_128 TILEWISE_LIST_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TILEWISE_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TILEWISE_8(i) TILEWISE_4(i), TILEWISE_4(i + 4)
#define TILEWISE_16(i) TILEWISE_8(i), TILEWISE_8(i + 8)
#define TILEWISE_24(i) TILEWISE_16(i), TILEWISE_8(i + 16)
#define TILEWISE_32(i) TILEWISE_24(i), TILEWISE_8(i + 24)
#define TILEWISE_40(i) TILEWISE_32(i), TILEWISE_8(i + 32)
#define TILEWISE_48(i) TILEWISE_40(i), TILEWISE_8(i + 40)
#define TILEWISE_56(i) TILEWISE_48(i), TILEWISE_8(i + 48)
#define TILEWISE_64(i) TILEWISE_56(i), TILEWISE_8(i + 56)
#define TILEWISE_72(i) TILEWISE_64(i), TILEWISE_8(i + 64)
#define TILEWISE_80(i) TILEWISE_72(i), TILEWISE_8(i + 72)
#define TILEWISE_88(i) TILEWISE_80(i), TILEWISE_8(i + 80)
#define TILEWISE_96(i) TILEWISE_88(i), TILEWISE_8(i + 88)
#define TILEWISE_104(i) TILEWISE_96(i), TILEWISE_8(i + 96)
#define TILEWISE_112(i) TILEWISE_104(i), TILEWISE_8(i + 104)
#define TILEWISE_120(i) TILEWISE_112(i), TILEWISE_8(i + 112)
#define TILEWISE_128(i) TILEWISE_120(i), TILEWISE_8(i + 120)

// The number after the descriptors says that the sums count, the next two that neither operand is negated, the
// last two which of them has K across its rows.
#define TILEWISE_WGMMA(N, TYPE, SUMS, A, B, ACROSS_A, ACROSS_B) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TILEWISE_LIST_##SUMS "}, %" #A \
                 ", %" #B ", 1, 1, 1, %" #ACROSS_A ", %" #ACROSS_B ";" \
                 : TILEWISE_##SUMS(0) \
                 : "l"(a), "l"(b), "n"(!A_ALONG_K), "n"(B_ALONG_N))
#define TILEWISE_WIDTH(N, SUMS, A, B, ACROSS_A, ACROSS_B) \
    template <> struct Instruction<SUMS> { \
        template <typename Element, bool A_ALONG_K, bool B_ALONG_N> \
        static __device__ void issue(float (&sums)[SUMS], unsigned long long a, unsigned long long b) \
        { \
            if constexpr (SAME<Element, bfloat16>) \
                TILEWISE_WGMMA(N, "bf16", SUMS, A, B, ACROSS_A, ACROSS_B); \
            else \
                TILEWISE_WGMMA(N, "f16", SUMS, A, B, ACROSS_A, ACROSS_B); \
        } \
    };

// The instruction of so many sums a thread, half as many as it has columns.
template <unsigned SUMS> struct Instruction;
TILEWISE_WIDTH(8, 4, 4, 5, 6, 7)
TILEWISE_WIDTH(16, 8, 8, 9, 10, 11)
TILEWISE_WIDTH(32, 16, 16, 17, 18, 19)
TILEWISE_WIDTH(48, 24, 24, 25, 26, 27)
TILEWISE_WIDTH(64, 32, 32, 33, 34, 35)
TILEWISE_WIDTH(80, 40, 40, 41, 42, 43)
TILEWISE_WIDTH(96, 48, 48, 49, 50, 51)
TILEWISE_WIDTH(112, 56, 56, 57, 58, 59)
TILEWISE_WIDTH(128, 64, 64, 65, 66, 67)
TILEWISE_WIDTH(144, 72, 72, 73, 74, 75)
TILEWISE_WIDTH(160, 80, 80, 81, 82, 83)
TILEWISE_WIDTH(176, 88, 88, 89, 90, 91)
TILEWISE_WIDTH(192, 96, 96, 97, 98, 99)
TILEWISE_WIDTH(208, 104, 104, 105, 106, 107)
TILEWISE_WIDTH(224, 112, 112, 113, 114, 115)
TILEWISE_WIDTH(240, 120, 120, 121, 122, 123)
TILEWISE_WIDTH(256, 128, 128, 129, 130, 131)

// sums (64×N) += a (64×16) · b (16×N), where N is twice as many columns as a thread has sums: 8 or a multiple of 16.
// The rows of `a` in shared memory lie along K (else along M), those of `b` along N (else along K).
template <typename Element, bool A_ALONG_K = true, bool B_ALONG_N = true, unsigned SUMS>
inline __device__ void multiply_add(float (&sums)[SUMS], unsigned long long a, unsigned long long b)
{
    Instruction<SUMS>::template issue<Element, A_ALONG_K, B_ALONG_N>(sums, a, b);
}

#undef TILEWISE_WIDTH
#undef TILEWISE_WGMMA
#undef TILEWISE_LIST_4
#undef TILEWISE_4
#undef TILEWISE_LIST_8
#undef TILEWISE_8
#undef TILEWISE_LIST_16
#undef TILEWISE_16
#undef TILEWISE_LIST_24
#undef TILEWISE_24
#undef TILEWISE_LIST_32
#undef TILEWISE_32
#undef TILEWISE_LIST_40
#undef TILEWISE_40
#undef TILEWISE_LIST_48
#undef TILEWISE_48
#undef TILEWISE_LIST_56
#undef TILEWISE_56
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
