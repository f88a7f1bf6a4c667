// Rung 10: tensor cores, and a loop whose loads run while it computes.
//
// Adds: the multiply-adds of a whole warp in one instruction (mma.sync m16n8k8, float16 operands, sums in
// float32 or float16); three nested partitions whose sizes follow the problem and the GPU; software
// pipelining by hand, since Turing has no asynchronous copies: the next slice of A and B is on its way to
// registers while this one is multiplied, then goes into the other of two buffers.
// Tiles: block 128×256×32 (or 128×128×32, 64×64×32), warp 64×64×32 (32×32×32), instruction 16×8×8.
// Look at: shared bank conflicts (0 for ldmatrix, loads and stores), 64 tensor-core instructions for 8
// ldmatrix (warp tile 64×64), registers (the sums take 128 of a thread's in float32, 64 in float16), one
// barrier a step.
#include <tilewise/guarded_load.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/row_stage.cuh>
#include <tilewise/tensor_core.cuh>

#if PARTITION_64X64X32
constexpr unsigned BLOCK_M = 64, BLOCK_N = 64, WARP_M = 32, WARP_N = 32;
#elif PARTITION_128X128X32
constexpr unsigned BLOCK_M = 128, BLOCK_N = 128, WARP_M = 64, WARP_N = 64;
#else
constexpr unsigned BLOCK_M = 128, BLOCK_N = 256, WARP_M = 64, WARP_N = 64;
#endif
constexpr unsigned BLOCK_K = 32;
constexpr unsigned INSTRUCTION_M = 16, INSTRUCTION_N = 8, INSTRUCTION_K = 8;

constexpr unsigned WARP = 32;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned THREADS = WARPS_M * WARPS_N * WARP;

#if ACCUMULATE_FLOAT16
using Sum = unsigned[2];
#else
using Sum = float[4];
#endif
#if RESULT_FLOAT32
using Result = float;
using ResultPair = float2;
#else
using Result = Half;
using ResultPair = ushort2;
#endif

// Shared memory is laid out in chunks of 16 bytes: what a thread stores, and a row of ldmatrix.
constexpr unsigned CHUNK = 8; // elements
constexpr unsigned A_CHUNKS = BLOCK_K / CHUNK, B_CHUNKS = BLOCK_N / CHUNK; // in a row
constexpr unsigned A_SHARE = BLOCK_M * A_CHUNKS / THREADS, B_SHARE = BLOCK_K * B_CHUNKS / THREADS;

static_assert(A_CHUNKS == 4, "two rows of A fill the 32 banks, as a_slot takes for granted");
static_assert(B_CHUNKS % 8 == 0, "a row of B fills the 32 banks, as b_slot takes for granted");
static_assert(BLOCK_M * A_CHUNKS % THREADS == 0 && BLOCK_K * B_CHUNKS % THREADS == 0, "equal shares");

struct Tiles {
    uint4 a[2][BLOCK_M * A_CHUNKS];
    uint4 b[2][BLOCK_K * B_CHUNKS];
};
static_assert(sizeof(Tiles) <= 48 * 1024, "what a block may have without asking for more");

// Where a chunk of A lies, and one of B. Within a row chunks are shuffled, each row its own way, so that
// one chunk of eight rows (ldmatrix) and eight neighbouring chunks (a store) both touch 32 banks. Padded
// rows would do it for B but not for A, and two padded buffers would not fit in 48 KB.
inline __device__ unsigned a_slot(unsigned row, unsigned chunk)
{
    return row * A_CHUNKS + (chunk ^ row / 2 % A_CHUNKS);
}

inline __device__ unsigned b_slot(unsigned k, unsigned chunk)
{
    return k * B_CHUNKS + (chunk ^ k % 8);
}

// The widest load, in bytes, that every chunk of the matrix is aligned for: 16, 4 or 2.
inline __device__ unsigned load_width(Matrix<const Half> matrix)
{
    const auto bits = reinterpret_cast<unsigned long long>(matrix.elements) | matrix.pitch * sizeof(Half);
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

// Loads one chunk with the widest loads that fit; what lies outside the matrix is zero and adds nothing.
inline __device__ uint4 load_chunk(Matrix<const Half> matrix, unsigned row, unsigned column, unsigned width)
{
    if (row >= matrix.height || column >= matrix.width) return {0, 0, 0, 0};
    const Half *from = &matrix.at(row, column);
    const unsigned left = matrix.width - column;
    if (left >= CHUNK && width == 16) return *reinterpret_cast<const uint4 *>(from);
    if (left >= CHUNK && width == 4) {
        const unsigned *words = reinterpret_cast<const unsigned *>(from);
        return {words[0], words[1], words[2], words[3]};
    }
    return load_halves(from, left);
}

// One thread's share of the next slices of A and B, on its way from global to shared memory.
struct Share {
    uint4 a[A_SHARE];
    uint4 b[B_SHARE];

    __device__ void load(Matrix<const Half> matrix_a, Matrix<const Half> matrix_b, TileIndex tile,
                         unsigned first_k, unsigned a_width, unsigned b_width)
    {
#pragma unroll
        for (unsigned i = 0; i < A_SHARE; ++i) {
            const unsigned chunk = i * THREADS + threadIdx.x;
            const unsigned row = tile.row * BLOCK_M + chunk / A_CHUNKS;
            a[i] = load_chunk(matrix_a, row, first_k + chunk % A_CHUNKS * CHUNK, a_width);
        }
#pragma unroll
        for (unsigned i = 0; i < B_SHARE; ++i) {
            const unsigned chunk = i * THREADS + threadIdx.x;
            const unsigned column = tile.column * BLOCK_N + chunk % B_CHUNKS * CHUNK;
            b[i] = load_chunk(matrix_b, first_k + chunk / B_CHUNKS, column, b_width);
        }
    }

    __device__ void store(Tiles &tiles, unsigned buffer) const
    {
#pragma unroll
        for (unsigned i = 0; i < A_SHARE; ++i) {
            const unsigned chunk = i * THREADS + threadIdx.x;
            tiles.a[buffer][a_slot(chunk / A_CHUNKS, chunk % A_CHUNKS)] = a[i];
        }
#pragma unroll
        for (unsigned i = 0; i < B_SHARE; ++i) {
            const unsigned chunk = i * THREADS + threadIdx.x;
            tiles.b[buffer][b_slot(chunk / B_CHUNKS, chunk % B_CHUNKS)] = b[i];
        }
    }
};

struct Sums {
    Sum at[WARP_M / INSTRUCTION_M][WARP_N / INSTRUCTION_N];

    // Makes the second row of instructions the first. A variable cannot choose a register, so a loop over
    // the rows uses the first and moves the others up: its code, and the time to compile it, stays short.
    __device__ void move_up()
    {
#pragma unroll
        for (unsigned i = 1; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
            for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j)
#pragma unroll
                for (unsigned part = 0; part < sizeof(Sum) / 4; ++part)
                    at[i - 1][j][part] = at[i][j][part];
    }
};

// Adds the product of the warp's rows of A and columns of B, over the 32 k in the buffer. An ldmatrix
// brings 16×16 elements: the operands of A for two instructions along K, those of B for two along K and
// two along N.
inline __device__ void multiply_add(Sums &sums, const Tiles &tiles, unsigned buffer, unsigned first_row,
                                    unsigned first_column)
{
    const unsigned lane = threadIdx.x % WARP;
    const unsigned line = lane % 16, side = lane / 16; // of the 16×16 elements, the row this lane points at
#pragma unroll 1
    for (unsigned k = 0; k < BLOCK_K; k += 2 * INSTRUCTION_K) {
        unsigned a[WARP_M / 16][4], b[WARP_N / 16][4];
#pragma unroll
        for (unsigned i = 0; i < WARP_M / 16; ++i) {
            const unsigned slot = a_slot(first_row + i * 16 + line, k / CHUNK + side);
            tensor_core::load_4_matrices(a[i], &tiles.a[buffer][slot]);
        }
#pragma unroll
        for (unsigned j = 0; j < WARP_N / 16; ++j) {
            const unsigned slot = b_slot(k + line, (first_column + j * 16) / CHUNK + side);
            tensor_core::load_4_transposed(b[j], &tiles.b[buffer][slot]);
        }
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
#pragma unroll
            for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
                for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j)
                    tensor_core::multiply_add_16x8x8(sums.at[i][j], a[i][2 * half], a[i][2 * half + 1],
                                                     b[j / 2][j % 2 * 2 + half]);
    }
}

inline __device__ ResultPair to_result(float2 pair)
{
#if RESULT_FLOAT32
    return pair;
#else
    return {to_half(pair.x), to_half(pair.y)};
#endif
}

// The warp's tile is written 16 rows at a time, by way of shared memory.
constexpr unsigned PAD = INSTRUCTION_N;
using Stage = RowStage<Result, WARP_N, PAD>;

inline __device__ void put(Stage &stage, const Sum (&sums)[WARP_N / INSTRUCTION_N])
{
    const unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j)
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
            stage.put(half * 8 + lane / 4, j * INSTRUCTION_N + lane % 4 * 2,
                      to_result(tensor_core::row_pair(sums[j], half)));
}
static_assert(sizeof(Stage) * WARPS_M * WARPS_N <= sizeof(Tiles), "the stages lie where the tiles were");

extern "C" __global__ void __launch_bounds__(THREADS)
    turing_tensor_core(Matrix<const Half> a, Matrix<const Half> b, Matrix<Result> c)
{
    __shared__ __align__(128) char shared[sizeof(Tiles)];
    Tiles &tiles = *reinterpret_cast<Tiles *>(shared);

    const unsigned tile_rows = c.height / BLOCK_M + (c.height % BLOCK_M != 0);
    const unsigned tile_columns = c.width / BLOCK_N + (c.width % BLOCK_N != 0);
    const TileIndex tile = hilbert(blockIdx.x, tile_rows, tile_columns);
    const unsigned warp = threadIdx.x / WARP;
    const unsigned warp_row = warp % WARPS_M * WARP_M, warp_column = warp / WARPS_M * WARP_N;

    const unsigned a_width = load_width(a), b_width = load_width(b);
    const unsigned steps = a.width / BLOCK_K + (a.width % BLOCK_K != 0);
    Sums sums = {};
    Share share;

    // The loads run one step ahead of the sums; the first turn only loads.
    for (unsigned turn = 0; turn <= steps; ++turn) {
        const bool more = turn < steps;
        if (more) share.load(a, b, tile, turn * BLOCK_K, a_width, b_width);
        if (turn > 0) multiply_add(sums, tiles, (turn - 1) % 2, warp_row, warp_column);
        if (more) share.store(tiles, turn % 2); // where the turn before this one read
        __syncthreads();                        // the slice is whole, and the other buffer has been read
    }

    Stage &stage = reinterpret_cast<Stage *>(shared)[warp];
    const bool aligned = aligned_16(c);
#pragma unroll 1
    for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i) {
        put(stage, sums.at[0]);
        __syncwarp();
        const unsigned row = tile.row * BLOCK_M + warp_row + i * INSTRUCTION_M;
        stage.write(c, row, tile.column * BLOCK_N + warp_column, aligned);
        __syncwarp();
        sums.move_up();
    }
}
