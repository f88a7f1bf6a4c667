// A block tile held in registers: what rungs 08 and 11 share.
//
// 256 threads compute 128×128 elements of C. Each of the 8 warps has 32×64 of them and each thread 8×8, as
// four patches of 4×4, so that all a thread reads or writes is four neighbouring elements: 128 bits at once.
//
//     a warp's 32×64     columns 0–31                 columns 32–63
//                       ┌────────────────────────────┬────────────────────────────┐
//     rows 0–15         │ 4×8 lanes with a patch each│ the same lanes again       │
//                       ├────────────────────────────┼────────────────────────────┤
//     rows 16–31        │ the same lanes again       │ the same lanes again       │
//                       └────────────────────────────┴────────────────────────────┘
//
// A step of the block multiplies a 128×8 tile of A by an 8×128 tile of B. Each thread brings four
// neighbours of either: fetch() sends for them, keep() puts them into shared memory, multiply() is the math.
#pragma once
#include <tilewise/matrix.cuh>

namespace register_tile {

enum : unsigned {
    BLOCK_M = 128,
    BLOCK_N = 128,
    BLOCK_K = 8,
    WARP_M = 32,
    WARP_N = 64,
    THREAD_M = 8,
    THREAD_N = 8,
    FOUR = 4, // elements of one 128-bit access, and the side of a patch
    LANES_M = WARP_M / THREAD_M,
    LANES_N = WARP_N / THREAD_N,
    WARPS_M = BLOCK_M / WARP_M,
    WARPS_N = BLOCK_N / WARP_N,
    BLOCK_THREADS = WARPS_M * WARPS_N * 32,
    BLOCKS_PER_SM = 2, // so that one computes while the other waits at its barrier
};
static_assert(LANES_M * LANES_N == 32, "a warp tile is one thread tile for each of its 32 lanes");
static_assert(THREAD_M == 2 * FOUR && THREAD_N == 2 * FOUR, "a thread tile is two patches high and wide");
static_assert(BLOCK_M * BLOCK_K == BLOCK_THREADS * FOUR, "each thread brings four elements of A a step");
static_assert(BLOCK_N * BLOCK_K == BLOCK_THREADS * FOUR, "each thread brings four elements of B a step");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// The tiles of one step in shared memory, that of A transposed so that the rows of a patch are neighbours.
//
// The four words of padding keep stores free of bank conflicts: a warp stores 16 rows of A at two places
// of K that are four apart, and 4·(128 + 4) words is 16 banks further on.
struct alignas(16) Stage {
    float a[BLOCK_K][BLOCK_M + 4];
    float b[BLOCK_K][BLOCK_N];
};

// What a thread brings for one step.
struct Fetched {
    float4 a;
    float4 b;
};

inline __device__ unsigned tiles(unsigned size, unsigned tile)
{
    return size / tile + (size % tile != 0);
}

// Where a tile of C begins.
struct Corner {
    unsigned row;
    unsigned column;
};

// The tile that a block computes; blocks are numbered along the rows of tiles.
//
// Volatile, so that it can be worked out a second time after the loop instead of taking two registers
// through it.
inline __device__ Corner corner(unsigned width)
{
    unsigned block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    const unsigned across = tiles(width, BLOCK_N);
    return {block / across * BLOCK_M, block % across * BLOCK_N};
}

// How many of `size` elements lie from `index` on.
inline __device__ unsigned left(unsigned size, unsigned index)
{
    return index < size ? size - index : 0;
}

// Whether every fourth element of a row begins 128 bits that one access may take.
template <typename T> inline __device__ bool is_wide(const Matrix<T> &matrix)
{
    return reinterpret_cast<unsigned long long>(matrix.elements) % 16 == 0 && matrix.pitch % FOUR == 0;
}

// Four neighbours: by one access if `wide`, else one by one, with zeros past the first `count`.
inline __device__ float4 load_four(const float *first, unsigned count, bool wide)
{
    if (wide)
        return *reinterpret_cast<const float4 *>(first);
    return {
        count > 0 ? first[0] : 0,
        count > 1 ? first[1] : 0,
        count > 2 ? first[2] : 0,
        count > 3 ? first[3] : 0,
    };
}

// Predicated stores: branches for the 64 elements of a thread would make compiling a third longer.
inline __device__ void store_if(bool wanted, float *to, float value)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.f32 [%1], %2; }" //
                 ::"r"(unsigned(wanted)), "l"(to), "f"(value)
                 : "memory");
}

inline __device__ void store_four_if(bool wanted, float *to, const float *four)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.v4.f32 [%1], {%2, %3, %4, %5}; }" //
                 ::"r"(unsigned(wanted)), "l"(to), "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
                 : "memory");
}

// Stores the first `count` of four neighbours, none if not `inside`.
inline __device__ void store_four(bool inside, float *first, unsigned count, bool wide, const float *four)
{
    const bool at_once = wide & (count >= FOUR);
    store_four_if(inside & at_once, first, four);
#pragma unroll
    for (unsigned i = 0; i < FOUR; ++i)
        store_if(inside & !at_once & (i < count), first + i, four[i]);
}

// A thread's eight rows of A, or eight columns of B: two fours, so many words apart.
inline __device__ void read_eight(float (&eight)[2 * FOUR], const float *first, unsigned apart)
{
    const float4 low = *reinterpret_cast<const float4 *>(first);
    const float4 high = *reinterpret_cast<const float4 *>(first + apart);
    eight[0] = low.x, eight[1] = low.y, eight[2] = low.z, eight[3] = low.w;
    eight[4] = high.x, eight[5] = high.y, eight[6] = high.z, eight[7] = high.w;
}

// One thread's share in a block tile.
class BlockTile {
  public:
    __device__ BlockTile(const Matrix<const float> &a, const Matrix<const float> &b, Corner at) : a(a), b(b)
    {
        const unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
        patch_row = warp % WARPS_M * WARP_M + lane / LANES_N * FOUR;
        patch_column = warp / WARPS_M * WARP_N + lane % LANES_N * FOUR;
        a_row = thread / (BLOCK_K / FOUR);
        a_k = thread % (BLOCK_K / FOUR) * FOUR;
        b_k = thread / (BLOCK_N / FOUR);
        b_column = thread % (BLOCK_N / FOUR) * FOUR;

        // Below A and right of B there is nothing, so the last of them are read again: they reach only
        // elements outside C. Fours that straddle the edge of B cannot be moved, and are not read at once.
        const bool whole_fours = b.width % FOUR == 0 || b.width - at.column >= BLOCK_N;
        a_from = min(at.row + a_row, a.height - 1);
        b_from = whole_fours ? min(at.column + b_column, b.width - FOUR) : at.column + b_column;
        const unsigned whole_steps = a.width / BLOCK_K;
        a_wide_steps = is_wide(a) ? whole_steps : 0;
        b_wide_steps = is_wide(b) && whole_fours ? whole_steps : 0;
    }

    // Sends for a step's elements; nothing waits for them before keep(). Past the end of K they are zeros.
    __device__ Fetched fetch(unsigned step) const
    {
        const unsigned from_a = step * BLOCK_K + a_k;
        const unsigned from_b = step * BLOCK_K + b_k;
        const unsigned count_a = left(a.width, from_a);
        const unsigned count_b = from_b < b.height ? left(b.width, b_from) : 0;
        return {load_four(&a.at(a_from, from_a), count_a, step < a_wide_steps),
                load_four(&b.at(from_b, b_from), count_b, step < b_wide_steps)};
    }

    __device__ void keep(Stage &stage, const Fetched &fetched) const
    {
        stage.a[a_k + 0][a_row] = fetched.a.x;
        stage.a[a_k + 1][a_row] = fetched.a.y;
        stage.a[a_k + 2][a_row] = fetched.a.z;
        stage.a[a_k + 3][a_row] = fetched.a.w;
        *reinterpret_cast<float4 *>(&stage.b[b_k][b_column]) = fetched.b;
    }

    // Sixteen words from shared memory make 64 multiply-adds: each word is used eight times.
    __device__ void multiply(const Stage &stage)
    {
// Two steps are enough for one's loads to overlap the other's sums; all eight compile half as fast again and
// leave the assembler no spare register.
#pragma unroll 2
        for (unsigned k = 0; k < BLOCK_K; ++k) {
            float rows[THREAD_M], columns[THREAD_N];
            read_eight(rows, &stage.a[k][patch_row], LANES_M * FOUR);
            read_eight(columns, &stage.b[k][patch_column], LANES_N * FOUR);
#pragma unroll
            for (unsigned i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (unsigned j = 0; j < THREAD_N; ++j)
                    sums[i][j] += rows[i] * columns[j];
        }
    }

    __device__ void store(const Matrix<float> &c, Corner at) const
    {
        const bool wide = is_wide(c);
#pragma unroll
        for (unsigned j = 0; j < THREAD_N; j += FOUR) {
            const unsigned c_column = at.column + patch_column + j * LANES_N;
            const unsigned count = left(c.width, c_column);
#pragma unroll
            for (unsigned i = 0; i < THREAD_M; ++i) {
                const unsigned c_row = at.row + patch_row + i / FOUR * LANES_M * FOUR + i % FOUR;
                store_four(c_row < c.height, &c.at(c_row, c_column), count, wide, &sums[i][j]);
            }
        }
    }

  private:
    const Matrix<const float> a, b;
    unsigned patch_row, patch_column;   // in the block tile: where the thread's first patch begins
    unsigned a_row, a_k, b_k, b_column; // in the tiles of A and B: where the fours that it brings begin
    unsigned a_from, b_from;            // the row of A and the column of B that it reads them from
    unsigned a_wide_steps, b_wide_steps; // the steps, from the first on, that may be read 128 bits at once
    float sums[THREAD_M][THREAD_N] = {};
};

} // namespace register_tile
