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

#define TILEWISE_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TILEWISE_16(i) TILEWISE_4(i), TILEWISE_4(i + 4), TILEWISE_4(i + 8), TILEWISE_4(i + 12)
#define TILEWISE_64(i) TILEWISE_16(i), TILEWISE_16(i + 16), TILEWISE_16(i + 32), TILEWISE_16(i + 48)
#define TILEWISE_SUMS_64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define TILEWISE_SUMS_128 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// sums (64×N) += a (64×16, K along its rows) · b (16×N, N along its rows). The number after the descriptors
// says that the sums count, the next two that neither operand is negated, the last two which of them is
// transposed.
#define TILEWISE_WGMMA(N, TYPE, LIST, A, B, ...) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " " LIST ", " A ", " B \
                 ", 1, 1, 1, 0, 1;" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b))

template <typename Element>
inline __device__ void multiply_add(float (&sums)[128], unsigned long long a, unsigned long long b)
{
    if constexpr (SAME<Element, bfloat16>)
        TILEWISE_WGMMA("256", "bf16", TILEWISE_SUMS_128, "%128", "%129", TILEWISE_64(0), TILEWISE_64(64));
    else
        TILEWISE_WGMMA("256", "f16", TILEWISE_SUMS_128, "%128", "%129", TILEWISE_64(0), TILEWISE_64(64));
}

template <typename Element>
inline __device__ void multiply_add(float (&sums)[64], unsigned long long a, unsigned long long b)
{
    if constexpr (SAME<Element, bfloat16>)
        TILEWISE_WGMMA("128", "bf16", TILEWISE_SUMS_64, "%64", "%65", TILEWISE_64(0));
    else
        TILEWISE_WGMMA("128", "f16", TILEWISE_SUMS_64, "%64", "%65", TILEWISE_64(0));
}

#undef TILEWISE_WGMMA
#undef TILEWISE_SUMS_128
#undef TILEWISE_SUMS_64
#undef TILEWISE_64
#undef TILEWISE_16
#undef TILEWISE_4

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
