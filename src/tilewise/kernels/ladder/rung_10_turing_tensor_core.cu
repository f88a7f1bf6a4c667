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
#include <tilewise/warp_tile.cuh>

using namespace warp_tile;

#ifndef BLOCK_M
#define BLOCK_M 128 // or 64
#endif
#ifndef BLOCK_N
#define BLOCK_N 256 // or 128, 64
#endif
#ifndef BLOCK_K
#define BLOCK_K 32
#endif
#ifndef WARP_M
#define WARP_M (BLOCK_M == 64 ? 32 : 64)
#endif
#ifndef WARP_N
#define WARP_N (BLOCK_N == 64 ? 32 : 64)
#endif
#ifndef ACCUMULATE
#define ACCUMULATE float32 // or float16
#endif
#ifndef RESULT
#define RESULT float16 // or float32
#endif

using Element = float16;
using Result = RESULT;
using Sum = tensor_core::SumsIn<ACCUMULATE>::Type;

constexpr unsigned INSTRUCTION_M = 16, INSTRUCTION_N = 8, INSTRUCTION_K = 8;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * LANES;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warp tiles cover the block's");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

using TileA = SwizzledTile<BLOCK_M, BLOCK_K>;
using TileB = SwizzledTile<BLOCK_K, BLOCK_N>;
constexpr unsigned A_SHARE = BLOCK_M * TileA::CHUNKS / BLOCK_THREADS; // of a thread, in chunks
constexpr unsigned B_SHARE = BLOCK_K * TileB::CHUNKS / BLOCK_THREADS;
static_assert(A_SHARE * BLOCK_THREADS == BLOCK_M * TileA::CHUNKS, "equal shares of A");
static_assert(B_SHARE * BLOCK_THREADS == BLOCK_K * TileB::CHUNKS, "equal shares of B");

// Two of each, one to read and one to fill. With padded rows they would not fit.
struct Tiles {
    TileA::Chunks a[2];
    TileB::Chunks b[2];
};
static_assert(sizeof(Tiles) <= 48 * 1024, "what a block may have without asking for more");

// Loads one chunk with the widest loads that fit; what lies outside the matrix is zero and adds nothing.
inline __device__ uint4 load_chunk(Matrix<const Element> matrix, unsigned row, unsigned column,
                                   unsigned width)
{
    if (row >= matrix.height || column >= matrix.width) return {0, 0, 0, 0};
    const Element *from = &matrix.at(row, column);
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

    __device__ void load(Matrix<const Element> matrix_a, Matrix<const Element> matrix_b, TileIndex tile,
                         unsigned first_k, unsigned a_width, unsigned b_width)
    {
#pragma unroll
        for (unsigned i = 0; i < A_SHARE; ++i) {
            const unsigned chunk = i * BLOCK_THREADS + threadIdx.x;
            const unsigned row = tile.row * BLOCK_M + chunk / TileA::CHUNKS;
            a[i] = load_chunk(matrix_a, row, first_k + chunk % TileA::CHUNKS * CHUNK, a_width);
        }
#pragma unroll
        for (unsigned i = 0; i < B_SHARE; ++i) {
            const unsigned chunk = i * BLOCK_THREADS + threadIdx.x;
            const unsigned column = tile.column * BLOCK_N + chunk % TileB::CHUNKS * CHUNK;
            b[i] = load_chunk(matrix_b, first_k + chunk / TileB::CHUNKS, column, b_width);
        }
    }

    __device__ void store(Tiles &tiles, unsigned buffer) const
    {
#pragma unroll
        for (unsigned i = 0; i < A_SHARE; ++i) {
            const unsigned chunk = i * BLOCK_THREADS + threadIdx.x;
            tiles.a[buffer][TileA::slot(chunk / TileA::CHUNKS, chunk % TileA::CHUNKS)] = a[i];
        }
#pragma unroll
        for (unsigned i = 0; i < B_SHARE; ++i) {
            const unsigned chunk = i * BLOCK_THREADS + threadIdx.x;
            tiles.b[buffer][TileB::slot(chunk / TileB::CHUNKS, chunk % TileB::CHUNKS)] = b[i];
        }
    }
};

using WarpPlace = Place<WARPS_M, WARP_M, WARP_N>;
using WarpSums = Sums<Sum, WARP_M, WARP_N>;
using WarpRows = RowStage<Result, WARP_N>;
static_assert(sizeof(WarpRows) * WARPS_M * WARPS_N <= sizeof(Tiles), "the rows lie where the tiles were");

// Adds the product of the warp's rows of A and columns of B, over the 32 k in the buffer.
inline __device__ void multiply_add(WarpSums &sums, const Tiles &tiles, unsigned buffer,
                                    const WarpPlace &place)
{
    const LaneRow lane;
#pragma unroll 1
    for (unsigned k = 0; k < BLOCK_K; k += 2 * INSTRUCTION_K) {
        Fragment<WARP_M, WARP_N> fragment;
        fragment.load<TileA, TileB>(tiles.a[buffer], tiles.b[buffer], place, lane, k);
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
#pragma unroll
            for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
                for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j) {
                    const unsigned *a = &fragment.a[i][2 * half]; // rows 0 to 7, and 8 to 15
                    tensor_core::multiply_add_16x8x8(sums.at[i][j], a[0], a[1],
                                                     fragment.b[j / 2][j % 2 * 2 + half]);
                }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    turing_tensor_core(Matrix<const Element> a, Matrix<const Element> b, Matrix<Result> c)
{
    __shared__ __align__(128) char shared[sizeof(Tiles)];
    Tiles &tiles = *reinterpret_cast<Tiles *>(shared);

    const unsigned tile_rows = c.height / BLOCK_M + (c.height % BLOCK_M != 0);
    const unsigned tile_columns = c.width / BLOCK_N + (c.width % BLOCK_N != 0);
    const TileIndex tile = hilbert(blockIdx.x, tile_rows, tile_columns);
    const unsigned warp = threadIdx.x / LANES;
    const WarpPlace place(warp);

    const unsigned a_width = widest_access(a), b_width = widest_access(b);
    const unsigned steps = a.width / BLOCK_K + (a.width % BLOCK_K != 0);
    WarpSums sums = {};
    Share share;

    // The loads run one step ahead of the sums; the first turn only loads.
    for (unsigned turn = 0; turn <= steps; ++turn) {
        const bool more = turn < steps;
        if (more) share.load(a, b, tile, turn * BLOCK_K, a_width, b_width);
        if (turn > 0) multiply_add(sums, tiles, (turn - 1) % 2, place);
        if (more) share.store(tiles, turn % 2); // where the turn before this one read
        __syncthreads();                        // the slice is whole, and the other buffer has been read
    }

    // NOTE: each result is rounded by itself. Turing has no instruction that rounds two.
    WarpRows &rows = reinterpret_cast<WarpRows *>(shared)[warp];
    sums.write<narrow_each<Result>>(c, tile.row * BLOCK_M, tile.column * BLOCK_N, place, rows);
}
