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

// Of an instruction's name this follows the width: its K, the type of the sums, and those of both operands, `Elements` of
// one type or TwoTypes.
template <typename Elements, typename Register> constexpr char TYPES[] = "";
template <> constexpr char TYPES<bfloat16, float32>[] = "k16.f32.bf16.bf16";
template <> constexpr char TYPES<float16, float32>[] = "k16.f32.f16.f16";
template <> constexpr char TYPES<float16, unsigned>[] = "k16.f16.f16.f16";
template <> constexpr char TYPES<float32, float32>[] = "k8.f32.tf32.tf32";
template <> constexpr char TYPES<float8_e4m3fn, float32>[] = "k32.f32.e4m3.e4m3";
template <> constexpr char TYPES<float8_e5m2, float32>[] = "k32.f32.e5m2.e5m2";
template <> constexpr char TYPES<TwoTypes<float8_e4m3fn, float8_e5m2>, float32>[] = "k32.f32.e4m3.e5m2";
template <> constexpr char TYPES<TwoTypes<float8_e5m2, float8_e4m3fn>, float32>[] = "k32.f32.e5m2.e4m3";
template <> constexpr char TYPES<int8, int>[] = "k32.s32.s8.s8";

// What an instruction ends with: that neither operand is negated, which integers are not asked; then, of 16 bits, which
// operands have K across their rows.
enum class Form { INTEGERS, ALONG_K, OF_16_BITS };
template <typename Elements, typename Register>
constexpr Form FORM = SAME<Register, int> ? Form::INTEGERS : sizeof(Elements) == 2 ? Form::OF_16_BITS : Form::ALONG_K;
template <Form, bool A_ACROSS, bool B_ACROSS> constexpr char END[] = ", 1, 1";
template <> constexpr char END<Form::INTEGERS, false, false>[] = "";
template <> constexpr char END<Form::OF_16_BITS, false, false>[] = ", 1, 1, 0, 0";
template <> constexpr char END<Form::OF_16_BITS, false, true>[] = ", 1, 1, 0, 1";
template <> constexpr char END<Form::OF_16_BITS, true, false>[] = ", 1, 1, 1, 0";
template <> constexpr char END<Form::OF_16_BITS, true, true>[] = ", 1, 1, 1, 1";

// With an operand in registers, which has no K across: before that whether sums count that were there before.
template <Form, bool ADDS, bool B_ACROSS> constexpr char END_FROM_REGISTERS[] = "1, 1, 1, 0";
template <> constexpr char END_FROM_REGISTERS<Form::OF_16_BITS, true, true>[] = "1, 1, 1, 1";
template <> constexpr char END_FROM_REGISTERS<Form::OF_16_BITS, false, false>[] = "0, 1, 1, 0";
template <> constexpr char END_FROM_REGISTERS<Form::OF_16_BITS, false, true>[] = "0, 1, 1, 1";
template <> constexpr char END_FROM_REGISTERS<Form::ALONG_K, true, false>[] = "1, 1, 1";

// How far apart the descriptors of neighbouring instructions are, 16 bytes being 1: 32 bytes along K, or 16 rows.
template <bool ALONG_K> constexpr unsigned APART = ALONG_K ? 2 : 128;

// Four instructions are one statement: how long a kernel takes to compile goes by how often all the sums are named. What
// follows the sums has the numbers P to V: descriptors of A and B, whether sums count that were there before, how far
// apart the descriptors are, TYPES and END.
#define TILEWISE_WGMMA(N, COUNT, TYPES, A, B, ADDS, END) \
    "wgmma.mma_async.sync.aligned.m64n" #N "%" #TYPES " {" TILEWISE_LIST_##COUNT "}, " A ", " B ", " ADDS "%" #END ";\n"
#define TILEWISE_WIDTH(N, REGISTER, KIND, COUNT, P, Q, R, S, T, U, V) \
    template <typename Elements, bool A_ALONG_K, bool B_ALONG_N, bool ADDS> \
    inline __device__ void issue(REGISTER (&sums)[COUNT], unsigned long long a, unsigned long long b) \
    { \
        constexpr Form OF = FORM<Elements, REGISTER>; \
        asm volatile("{\n.reg .b64 a_1, a_2, a_3, b_1, b_2, b_3;\n" \
                     "add.s64 a_1, %" #P ", %" #S ";\nadd.s64 b_1, %" #Q ", %" #T ";\n" \
                     "add.s64 a_2, a_1, %" #S ";\nadd.s64 b_2, b_1, %" #T ";\n" \
                     "add.s64 a_3, a_2, %" #S ";\nadd.s64 b_3, b_2, %" #T ";\n" \
                     TILEWISE_WGMMA(N, COUNT, U, "%" #P, "%" #Q, "%" #R, V) \
                     TILEWISE_WGMMA(N, COUNT, U, "a_1", "b_1", "1", V) \
                     TILEWISE_WGMMA(N, COUNT, U, "a_2", "b_2", "1", V) \
                     TILEWISE_WGMMA(N, COUNT, U, "a_3", "b_3", "1", V) "}" \
                     : TILEWISE_##COUNT(KIND, 0) \
                     : "l"(a), "l"(b), "n"(ADDS), "n"(APART<A_ALONG_K>), "n"(APART<!B_ALONG_N>), \
                       "C"(TYPES<Elements, REGISTER>), "C"(END<OF, !A_ALONG_K, B_ALONG_N>)); \
    }
#define TILEWISE_WIDTHS(N, COUNT, ...) \
    TILEWISE_WIDTH(N, float, "+f", COUNT, __VA_ARGS__) \
    TILEWISE_WIDTH(N, int, "+r", COUNT, __VA_ARGS__)

// The same with A in registers, four of each instruction from A on; then the descriptor of B, how far apart those are, and
// what follows the sums: TYPES, and END of the first instruction and of the others.
#define TILEWISE_OF(a, i) "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3])
#define TILEWISE_FOUR(A, B, C, D) "{%" #A ", %" #B ", %" #C ", %" #D "}"
#define TILEWISE_FROM_REGISTERS(N, COUNT, A, B, C, D, E, F, G, H, I, J, K, L, M, O, P, Q, R, S, T, U, V) \
    template <typename Element, bool B_ALONG_N, bool ADDS> \
    inline __device__ void issue(float (&sums)[COUNT], const unsigned (&a)[4][4], unsigned long long b) \
    { \
        constexpr Form OF = FORM<Element, float>; \
        asm volatile("{\n.reg .b64 b_1, b_2, b_3;\n" \
                     "add.s64 b_1, %" #R ", %" #S ";\nadd.s64 b_2, b_1, %" #S ";\nadd.s64 b_3, b_2, %" #S ";\n" \
                     TILEWISE_WGMMA(N, COUNT, T, TILEWISE_FOUR(A, B, C, D), "%" #R, "", U) \
                     TILEWISE_WGMMA(N, COUNT, T, TILEWISE_FOUR(E, F, G, H), "b_1", "", V) \
                     TILEWISE_WGMMA(N, COUNT, T, TILEWISE_FOUR(I, J, K, L), "b_2", "", V) \
                     TILEWISE_WGMMA(N, COUNT, T, TILEWISE_FOUR(M, O, P, Q), "b_3", "", V) "}" \
                     : TILEWISE_##COUNT("+f", 0) \
                     : TILEWISE_OF(a, 0), TILEWISE_OF(a, 1), TILEWISE_OF(a, 2), TILEWISE_OF(a, 3), "l"(b), \
                       "n"(APART<!B_ALONG_N>), "C"(TYPES<Element, float>), \
                       "C"(END_FROM_REGISTERS<OF, ADDS, B_ALONG_N>), "C"(END_FROM_REGISTERS<OF, true, B_ALONG_N>)); \
    }

// All instructions of a width, for so many registers of sums of a thread: half as many as it has columns, or a quarter in
// pairs.
#define TILEWISE_ALL_OF_8 \
    TILEWISE_WIDTHS(8, 4, 4, 5, 6, 7, 8, 9, 10) \
    TILEWISE_WIDTH(8, unsigned, "+r", 2, 2, 3, 4, 5, 6, 7, 8) \
    TILEWISE_FROM_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
#define TILEWISE_ALL_OF_16 \
    TILEWISE_WIDTHS(16, 8, 8, 9, 10, 11, 12, 13, 14) \
    TILEWISE_WIDTH(16, unsigned, "+r", 4, 4, 5, 6, 7, 8, 9, 10) \
    TILEWISE_FROM_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, \
        27, 28)
#define TILEWISE_ALL_OF_32 \
    TILEWISE_WIDTHS(32, 16, 16, 17, 18, 19, 20, 21, 22) \
    TILEWISE_WIDTH(32, unsigned, "+r", 8, 8, 9, 10, 11, 12, 13, 14) \
    TILEWISE_FROM_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, \
        35, 36)
#define TILEWISE_ALL_OF_48 \
    TILEWISE_WIDTHS(48, 24, 24, 25, 26, 27, 28, 29, 30) \
    TILEWISE_WIDTH(48, unsigned, "+r", 12, 12, 13, 14, 15, 16, 17, 18) \
    TILEWISE_FROM_REGISTERS(48, 24, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, \
        43, 44)
#define TILEWISE_ALL_OF_64 \
    TILEWISE_WIDTHS(64, 32, 32, 33, 34, 35, 36, 37, 38) \
    TILEWISE_WIDTH(64, unsigned, "+r", 16, 16, 17, 18, 19, 20, 21, 22) \
    TILEWISE_FROM_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, \
        51, 52)
#define TILEWISE_ALL_OF_80 \
    TILEWISE_WIDTHS(80, 40, 40, 41, 42, 43, 44, 45, 46) \
    TILEWISE_WIDTH(80, unsigned, "+r", 20, 20, 21, 22, 23, 24, 25, 26) \
    TILEWISE_FROM_REGISTERS(80, 40, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, \
        58, 59, 60)
#define TILEWISE_ALL_OF_96 \
    TILEWISE_WIDTHS(96, 48, 48, 49, 50, 51, 52, 53, 54) \
    TILEWISE_WIDTH(96, unsigned, "+r", 24, 24, 25, 26, 27, 28, 29, 30) \
    TILEWISE_FROM_REGISTERS(96, 48, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, \
        66, 67, 68)
#define TILEWISE_ALL_OF_112 \
    TILEWISE_WIDTHS(112, 56, 56, 57, 58, 59, 60, 61, 62) \
    TILEWISE_WIDTH(112, unsigned, "+r", 28, 28, 29, 30, 31, 32, 33, 34) \
    TILEWISE_FROM_REGISTERS(112, 56, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, \
        73, 74, 75, 76)
#define TILEWISE_ALL_OF_128 \
    TILEWISE_WIDTHS(128, 64, 64, 65, 66, 67, 68, 69, 70) \
    TILEWISE_WIDTH(128, unsigned, "+r", 32, 32, 33, 34, 35, 36, 37, 38) \
    TILEWISE_FROM_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, \
        82, 83, 84)
#define TILEWISE_ALL_OF_144 \
    TILEWISE_WIDTHS(144, 72, 72, 73, 74, 75, 76, 77, 78) \
    TILEWISE_WIDTH(144, unsigned, "+r", 36, 36, 37, 38, 39, 40, 41, 42) \
    TILEWISE_FROM_REGISTERS(144, 72, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, \
        89, 90, 91, 92)
#define TILEWISE_ALL_OF_160 \
    TILEWISE_WIDTHS(160, 80, 80, 81, 82, 83, 84, 85, 86) \
    TILEWISE_WIDTH(160, unsigned, "+r", 40, 40, 41, 42, 43, 44, 45, 46) \
    TILEWISE_FROM_REGISTERS(160, 80, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, \
        97, 98, 99, 100)
#define TILEWISE_ALL_OF_176 \
    TILEWISE_WIDTHS(176, 88, 88, 89, 90, 91, 92, 93, 94) \
    TILEWISE_WIDTH(176, unsigned, "+r", 44, 44, 45, 46, 47, 48, 49, 50) \
    TILEWISE_FROM_REGISTERS(176, 88, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, \
        104, 105, 106, 107, 108)
#define TILEWISE_ALL_OF_192 \
    TILEWISE_WIDTHS(192, 96, 96, 97, 98, 99, 100, 101, 102) \
    TILEWISE_WIDTH(192, unsigned, "+r", 48, 48, 49, 50, 51, 52, 53, 54) \
    TILEWISE_FROM_REGISTERS(192, 96, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, \
        111, 112, 113, 114, 115, 116)
#define TILEWISE_ALL_OF_208 \
    TILEWISE_WIDTHS(208, 104, 104, 105, 106, 107, 108, 109, 110) \
    TILEWISE_WIDTH(208, unsigned, "+r", 52, 52, 53, 54, 55, 56, 57, 58) \
    TILEWISE_FROM_REGISTERS(208, 104, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, \
        118, 119, 120, 121, 122, 123, 124)
#define TILEWISE_ALL_OF_224 \
    TILEWISE_WIDTHS(224, 112, 112, 113, 114, 115, 116, 117, 118) \
    TILEWISE_WIDTH(224, unsigned, "+r", 56, 56, 57, 58, 59, 60, 61, 62) \
    TILEWISE_FROM_REGISTERS(224, 112, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, \
        126, 127, 128, 129, 130, 131, 132)
#define TILEWISE_ALL_OF_240 \
    TILEWISE_WIDTHS(240, 120, 120, 121, 122, 123, 124, 125, 126) \
    TILEWISE_WIDTH(240, unsigned, "+r", 60, 60, 61, 62, 63, 64, 65, 66) \
    TILEWISE_FROM_REGISTERS(240, 120, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, \
        134, 135, 136, 137, 138, 139, 140)
#define TILEWISE_ALL_OF_256 \
    TILEWISE_WIDTHS(256, 128, 128, 129, 130, 131, 132, 133, 134) \
    TILEWISE_WIDTH(256, unsigned, "+r", 64, 64, 65, 66, 67, 68, 69, 70) \
    TILEWISE_FROM_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, \
        142, 143, 144, 145, 146, 147, 148)

// Those of the kernel's width alone, if it says which: the others take 13 ms to compile.
#ifdef INSTRUCTION_N
#define TILEWISE_ALL_OF(N) TILEWISE_ALL_OF_##N
#define TILEWISE_INSTRUCTIONS(N) TILEWISE_ALL_OF(N)
TILEWISE_INSTRUCTIONS(INSTRUCTION_N)
#undef TILEWISE_INSTRUCTIONS
#undef TILEWISE_ALL_OF
#else
TILEWISE_ALL_OF_8
TILEWISE_ALL_OF_16
TILEWISE_ALL_OF_32
TILEWISE_ALL_OF_48
TILEWISE_ALL_OF_64
TILEWISE_ALL_OF_80
TILEWISE_ALL_OF_96
TILEWISE_ALL_OF_112
TILEWISE_ALL_OF_128
TILEWISE_ALL_OF_144
TILEWISE_ALL_OF_160
TILEWISE_ALL_OF_176
TILEWISE_ALL_OF_192
TILEWISE_ALL_OF_208
TILEWISE_ALL_OF_224
TILEWISE_ALL_OF_240
TILEWISE_ALL_OF_256
#endif

// sums (64×N) += a (64×K) · b (K×N), where a thread has sums of half as many columns, 8 or a multiple of 16: float32 each,
// packed pairs of float16, or int32 of int8. K is 128 bytes: 128 elements of 8 bits, 64 of 16, or 32 float32 in tf32, of
// which the tensor cores leave the lowest 13 bits away. The rows of `a` in shared memory lie along K (else along M), those
// of `b` along N (else along K).
// NOTE: sums of 8-bit floating-point numbers keep only 13 places behind the point of the largest (docs/hardware.md).
template <typename Elements, bool A_ALONG_K = true, bool B_ALONG_N = true, typename Register, unsigned COUNT>
inline __device__ void multiply_add(Register (&sums)[COUNT], unsigned long long a, unsigned long long b)
{
    static_assert(sizeof(Elements) == 2 || (A_ALONG_K && !B_ALONG_N), "only 16 bits are read across K, too");
    issue<Elements, A_ALONG_K, B_ALONG_N, true>(sums, a, b);
}

// sums = a · b, whatever they were before.
template <typename Elements, bool A_ALONG_K = true, bool B_ALONG_N = true, typename Register, unsigned COUNT>
inline __device__ void multiply(Register (&sums)[COUNT], unsigned long long a, unsigned long long b)
{
    issue<Elements, A_ALONG_K, B_ALONG_N, false>(sums, a, b);
}

// sums += a · b, where K is 64 of 16 bits, with what a thread has of `a` in registers: of each 16 k of its warp's rows those
// that it has sums of, and of these k 2·t and 2·t + 1, and those 8 further. The first is in row g, the next in row g + 8.
// In tf32 K is 32, and of each 8 k it has k t, and that 4 further.
template <typename Element, bool B_ALONG_N, unsigned COUNT>
inline __device__ void multiply_add(float32 (&sums)[COUNT], const unsigned (&a)[4][4], unsigned long long b)
{
    static_assert(sizeof(Element) == 2 || !B_ALONG_N, "only 16 bits are read across K, too");
    issue<Element, B_ALONG_N, true>(sums, a, b);
}

// The same, whatever the sums were before.
template <typename Element, bool B_ALONG_N, unsigned COUNT>
inline __device__ void multiply(float32 (&sums)[COUNT], const unsigned (&a)[4][4], unsigned long long b)
{
    static_assert(sizeof(Element) == 2, "as pairs");
    issue<Element, B_ALONG_N, false>(sums, a, b);
}

#undef TILEWISE_ALL_OF_8
#undef TILEWISE_ALL_OF_16
#undef TILEWISE_ALL_OF_32
#undef TILEWISE_ALL_OF_48
#undef TILEWISE_ALL_OF_64
#undef TILEWISE_ALL_OF_80
#undef TILEWISE_ALL_OF_96
#undef TILEWISE_ALL_OF_112
#undef TILEWISE_ALL_OF_128
#undef TILEWISE_ALL_OF_144
#undef TILEWISE_ALL_OF_160
#undef TILEWISE_ALL_OF_176
#undef TILEWISE_ALL_OF_192
#undef TILEWISE_ALL_OF_208
#undef TILEWISE_ALL_OF_224
#undef TILEWISE_ALL_OF_240
#undef TILEWISE_ALL_OF_256
#undef TILEWISE_FOUR
#undef TILEWISE_OF
#undef TILEWISE_FROM_REGISTERS
#undef TILEWISE_WGMMA
#undef TILEWISE_WIDTH
#undef TILEWISE_WIDTHS
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
