// Rung 12: tensor cores fed by asynchronous copies, several stages ahead.
//
// Adds, over rung 10: copies that bypass the registers (cp.async, Ampere and newer) fill a ring of stages, so
// that the copies of three steps are under way while one is multiplied; instructions twice as deep (mma.sync
// m16n8k16, float16 or bfloat16); operands of the next instructions on their way from shared memory to
// registers while these run, across steps too, so that a warp never starts a step with empty hands.
// Tiles: block 128×128×32 (or 128×256×32, 64×64×32), warp 64×64×32 (32×32×32), instruction 16×8×16.
// Look at: shared bank conflicts (0 for copies, ldmatrix, loads and stores), 64 tensor-core instructions for
// 16 ldmatrix a step (warp tile 64×64), one barrier a step, two blocks of four warps on an SM.
#include <tilewise/async_copy.cuh>
#include <tilewise/guarded_load.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/warp_tile.cuh>

using namespace warp_tile;

#ifndef BLOCK_M
#define BLOCK_M 128 // or 64
#endif
#ifndef BLOCK_N
#define BLOCK_N 128 // or 256, 64
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
#ifndef STAGES
#define STAGES 4
#endif
#ifndef ELEMENT
#define ELEMENT float16 // or bfloat16
#endif
#ifndef RESULT
#define RESULT float16 // or bfloat16, float32
#endif

using Element = ELEMENT;
using Result = RESULT;

constexpr unsigned INSTRUCTION_M = 16, INSTRUCTION_N = 8, INSTRUCTION_K = 16;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * LANES;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warp tiles cover the block's");
static_assert(BLOCK_K == 2 * INSTRUCTION_K, "a step is written as two halves");
static_assert(STAGES >= 2, "copies go to one stage while another is read");

using TileA = SwizzledTile<BLOCK_M, BLOCK_K>;
using TileB = SwizzledTile<BLOCK_K, BLOCK_N>;

struct Stage {
    TileA::Chunks a;
    TileB::Chunks b;
};

struct Shared {
    Stage stages[STAGES];
};
#ifdef SHARED_BYTES
static_assert(sizeof(Shared) == SHARED_BYTES, "the launch asks for that much shared memory");
#endif
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// Copies the first `bytes` of a chunk that lies aligned for 4 bytes or 2, and zeros for the others.
inline __device__ void copy_narrow(uint4 *to, const Element *from, unsigned bytes, unsigned width)
{
    if (width == 4) {
#pragma unroll
        for (unsigned word = 0; word < 4; ++word) {
            const unsigned left = bytes > 4 * word ? min(bytes - 4 * word, 4u) : 0;
            async_copy::start_narrow<4>(reinterpret_cast<unsigned *>(to) + word, from + 2 * word, left);
        }
        return;
    }
    // NOTE: no asynchronous copy is as narrow as this. An ordinary store is seen after the same barrier.
    *to = load_halves(from, bytes / sizeof(Element));
}

// One thread's share in copying tiles: one chunk of every APART-th row.
template <typename Tile> struct Copier {
    static constexpr unsigned CHUNKS = Tile::CHUNKS;
    static constexpr unsigned APART = BLOCK_THREADS / CHUNKS;
    static constexpr unsigned SHARE = Tile::ROWS / APART;
    static_assert(BLOCK_THREADS % CHUNKS == 0 && Tile::ROWS % APART == 0, "equal shares");

    Matrix<const Element> matrix;
    unsigned row, column; // of the thread's first chunk in the tile to copy next
    unsigned width;

    __device__ Copier(Matrix<const Element> from, unsigned first_row, unsigned first_column) : matrix(from)
    {
        row = first_row + threadIdx.x / CHUNKS;
        column = first_column + threadIdx.x % CHUNKS * CHUNK;
        width = widest_access(from);
    }

    // What lies outside of the matrix is not read; zeros stand for it, which add nothing.
    __device__ void start(typename Tile::Chunks &tile) const
    {
        const unsigned row_in_tile = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const unsigned left = column < matrix.width ? matrix.width - column : 0;
        const unsigned in_row = min(left, CHUNK) * sizeof(Element);
        if (width == 16) {
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i) {
                const unsigned bytes = row + i * APART < matrix.height ? in_row : 0;
                async_copy::start_16(&tile[Tile::slot(row_in_tile + i * APART, chunk)],
                                     &matrix.at(row + i * APART, column), bytes);
            }
            return;
        }
#pragma unroll 1
        for (unsigned i = 0; i < SHARE; ++i) {
            const unsigned bytes = row + i * APART < matrix.height ? in_row : 0;
            copy_narrow(&tile[Tile::slot(row_in_tile + i * APART, chunk)],
                        &matrix.at(row + i * APART, column), bytes, width);
        }
    }
};

using WarpFragment = Fragment<WARP_M, WARP_N>;
using WarpPlace = Place<WARPS_M, WARP_M, WARP_N>;
using WarpSums = Sums<float[4], WARP_M, WARP_N>;
using WarpRows = RowStage<Result, WARP_N>;
static_assert(sizeof(WarpRows) * WARPS_M * WARPS_N <= sizeof(Shared), "the rows lie where the stages were");

inline __device__ void multiply_add(WarpSums &sums, const WarpFragment &fragment)
{
#pragma unroll
    for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
        for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j) {
            const unsigned *b = &fragment.b[j / 2][j % 2 * 2]; // k 0 to 7, and 8 to 15
            tensor_core::multiply_add_16x8x16<Element>(sums.at[i][j], fragment.a[i], b[0], b[1]);
        }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    multistage(Matrix<const Element> a, Matrix<const Element> b, Matrix<Result> c)
{
    extern __shared__ __align__(128) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    const unsigned tile_rows = c.height / BLOCK_M + (c.height % BLOCK_M != 0);
    const unsigned tile_columns = c.width / BLOCK_N + (c.width % BLOCK_N != 0);
    const TileIndex tile = grouped(blockIdx.x, tile_rows, tile_columns);
    const unsigned steps = a.width / BLOCK_K + (a.width % BLOCK_K != 0);

    Copier<TileA> copier_a(a, tile.row * BLOCK_M, 0);
    Copier<TileB> copier_b(b, 0, tile.column * BLOCK_N);
    const WarpPlace place(threadIdx.x / LANES);
    const LaneRow lane;
    WarpSums sums = {};
    WarpFragment even, odd; // one is read while the other is used

    // The copies run AHEAD steps ahead of the sums; the first turns only copy. Each turn is one group of
    // copies, an empty one at the end.
    constexpr unsigned AHEAD = STAGES - 1;
#pragma unroll 1
    for (unsigned turn = 0; turn < steps + AHEAD; ++turn) {
        const bool summing = turn >= AHEAD;
        const unsigned step = turn - AHEAD, next = step + 1; // whose sums are made, if any
        const Stage &now = shared.stages[step % STAGES], &later = shared.stages[next % STAGES];
        if (summing) odd.load<TileA, TileB>(now.a, now.b, place, lane, INSTRUCTION_K);
        if (turn < steps) { // into the slot that the step before this one read: all warps have, see below
            copier_a.start(shared.stages[turn % STAGES].a);
            copier_b.start(shared.stages[turn % STAGES].b);
            copier_a.column += BLOCK_K;
            copier_b.row += BLOCK_K;
        }
        async_copy::commit();
        if (summing) multiply_add(sums, even);
        if (turn + 1 < AHEAD) continue;
        async_copy::wait<AHEAD - 1>(); // this thread's copies for the next step have landed,
        __syncthreads();               // and those of all; and the slot of this step has been read
        if (next < steps) even.load<TileA, TileB>(later.a, later.b, place, lane, 0);
        if (summing) multiply_add(sums, odd);
    }
    WarpRows &rows = reinterpret_cast<WarpRows *>(dynamic)[threadIdx.x / LANES];
    sums.write<narrow_pair<Result>>(c, tile.row * BLOCK_M, tile.column * BLOCK_N, place, rows);
}
