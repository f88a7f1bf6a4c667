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
#include <tilewise/row_stage.cuh>
#include <tilewise/tensor_core.cuh>

#if PARTITION_64X64X32
constexpr unsigned BLOCK_M = 64, BLOCK_N = 64, WARP_M = 32, WARP_N = 32;
#elif PARTITION_128X256X32
constexpr unsigned BLOCK_M = 128, BLOCK_N = 256, WARP_M = 64, WARP_N = 64;
#else
constexpr unsigned BLOCK_M = 128, BLOCK_N = 128, WARP_M = 64, WARP_N = 64;
#endif
constexpr unsigned BLOCK_K = 32;
constexpr unsigned INSTRUCTION_M = 16, INSTRUCTION_N = 8, INSTRUCTION_K = 16;
#ifndef STAGES
#define STAGES 4
#endif

constexpr unsigned WARP = 32;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned THREADS = WARPS_M * WARPS_N * WARP;
static_assert(BLOCK_K == 2 * INSTRUCTION_K, "a step is written as two halves");

using Element = unsigned short; // the bits of a float16 or bfloat16
#if RESULT_FLOAT32
using Result = float;
#else
using Result = unsigned short;
#endif

// Shared memory is laid out in chunks of 16 bytes: what a thread copies, and a row of ldmatrix.
constexpr unsigned CHUNK = 8; // elements
constexpr unsigned A_CHUNKS = BLOCK_K / CHUNK, B_CHUNKS = BLOCK_N / CHUNK; // in a row
static_assert(A_CHUNKS == 4, "two rows of A fill the 32 banks, as ASlot takes for granted");
static_assert(B_CHUNKS % 8 == 0, "a row of B fills the 32 banks, as BSlot takes for granted");

struct Stage {
    uint4 a[BLOCK_M * A_CHUNKS];
    uint4 b[BLOCK_K * B_CHUNKS];
};

// Where a chunk of A lies, and one of B. Within a row chunks are shuffled, each row its own way, so that
// one chunk of eight rows (ldmatrix) and eight neighbouring chunks (copies) both touch 32 banks.
struct ASlot {
    static __device__ unsigned of(unsigned row, unsigned chunk)
    {
        return row * A_CHUNKS + (chunk ^ row / 2 % A_CHUNKS);
    }
};

struct BSlot {
    static __device__ unsigned of(unsigned k, unsigned chunk) { return k * B_CHUNKS + (chunk ^ k % 8); }
};

// The widest copy, in bytes, that every chunk of the matrix is aligned for: 16, 4 or 2.
inline __device__ unsigned copy_width(Matrix<const Element> matrix)
{
    const auto bits = reinterpret_cast<unsigned long long>(matrix.elements) | matrix.pitch * sizeof(Element);
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

// Copies the first `bytes` of a chunk that lies aligned for 4 bytes or 2, and zeros for the others.
inline __device__ void copy_narrow(uint4 *to, const Element *from, unsigned bytes, unsigned width)
{
    if (width == 4) {
#pragma unroll
        for (unsigned word = 0; word < 4; ++word) {
            const unsigned left = bytes > 4 * word ? min(bytes - 4 * word, 4u) : 0;
            async_copy::start_4(reinterpret_cast<unsigned *>(to) + word, from + 2 * word, left);
        }
        return;
    }
    // NOTE: no asynchronous copy is as narrow as this. An ordinary store is seen after the same barrier.
    *to = load_halves(from, bytes / sizeof(Element));
}

// One thread's share in copying tiles of ROWS rows of CHUNKS chunks: one chunk of every APART-th row.
template <typename Slot, unsigned ROWS, unsigned CHUNKS> struct Copier {
    static constexpr unsigned APART = THREADS / CHUNKS;
    static constexpr unsigned SHARE = ROWS / APART;
    static_assert(THREADS % CHUNKS == 0 && ROWS % APART == 0, "equal shares");

    Matrix<const Element> matrix;
    unsigned row, column; // of the thread's first chunk in the tile to copy next
    unsigned width;

    __device__ Copier(Matrix<const Element> from, unsigned first_row, unsigned first_column) : matrix(from)
    {
        row = first_row + threadIdx.x / CHUNKS;
        column = first_column + threadIdx.x % CHUNKS * CHUNK;
        width = copy_width(from);
    }

    // What lies outside of the matrix is not read; zeros stand for it, which add nothing.
    __device__ void start(uint4 *tile) const
    {
        const unsigned row_in_tile = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const unsigned left = column < matrix.width ? matrix.width - column : 0;
        const unsigned in_row = min(left, CHUNK) * sizeof(Element);
        if (width == 16) {
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i) {
                const unsigned bytes = row + i * APART < matrix.height ? in_row : 0;
                async_copy::start_16(&tile[Slot::of(row_in_tile + i * APART, chunk)],
                                     &matrix.at(row + i * APART, column), bytes);
            }
            return;
        }
#pragma unroll 1
        for (unsigned i = 0; i < SHARE; ++i) {
            const unsigned bytes = row + i * APART < matrix.height ? in_row : 0;
            copy_narrow(&tile[Slot::of(row_in_tile + i * APART, chunk)],
                        &matrix.at(row + i * APART, column), bytes, width);
        }
    }
};

// What a warp needs for one round of instructions, sixteen k deep.
struct Fragment {
    unsigned a[WARP_M / 16][4];
    unsigned b[WARP_N / 16][4]; // for two instructions along N
};

// Where a warp is in the block, and where its lanes point ldmatrix at.
struct Place {
    unsigned first_row, first_column;
    unsigned line, side; // of 16×16 elements: the row that this lane points at, and which half of it

    __device__ Place()
    {
        const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        first_row = warp % WARPS_M * WARP_M;
        first_column = warp / WARPS_M * WARP_N;
        line = lane % 16;
        side = lane / 16;
    }

    __device__ void load(Fragment &fragment, const Stage &stage, unsigned k) const
    {
#pragma unroll
        for (unsigned i = 0; i < WARP_M / 16; ++i) {
            const unsigned slot = ASlot::of(first_row + i * 16 + line, k / CHUNK + side);
            tensor_core::load_4_matrices(fragment.a[i], &stage.a[slot]);
        }
#pragma unroll
        for (unsigned j = 0; j < WARP_N / 16; ++j) {
            const unsigned slot = BSlot::of(k + line, (first_column + j * 16) / CHUNK + side);
            tensor_core::load_4_transposed(fragment.b[j], &stage.b[slot]);
        }
    }
};

struct Sums {
    float at[WARP_M / INSTRUCTION_M][WARP_N / INSTRUCTION_N][4];

    __device__ void multiply_add(const Fragment &fragment)
    {
#pragma unroll
        for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
            for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j) {
                const unsigned *b = &fragment.b[j / 2][j % 2 * 2];
#if ELEMENT_BFLOAT16
                tensor_core::multiply_add_16x8x16_bfloat16(at[i][j], fragment.a[i], b[0], b[1]);
#else
                tensor_core::multiply_add_16x8x16_float16(at[i][j], fragment.a[i], b[0], b[1]);
#endif
            }
    }

    // Makes the second row of instructions the first. A variable cannot choose a register, so a loop over
    // the rows uses the first and moves the others up: its code, and the time to compile it, stays short.
    __device__ void move_up()
    {
#pragma unroll
        for (unsigned i = 1; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
            for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j)
#pragma unroll
                for (unsigned part = 0; part < 4; ++part)
                    at[i - 1][j][part] = at[i][j][part];
    }
};

using Rows = RowStage<Result, WARP_N>;

struct Shared {
    Stage stages[STAGES];
};
static_assert(sizeof(Rows) * WARPS_M * WARPS_N <= sizeof(Shared), "the rows lie where the stages were");

inline __device__ void put(Rows &rows, unsigned row, unsigned column, float2 pair)
{
#if RESULT_FLOAT32
    rows.put(row, column, pair);
#elif RESULT_BFLOAT16
    rows.put(row, column, bfloat16_pair(pair.x, pair.y));
#else
    rows.put(row, column, float16_pair(pair.x, pair.y));
#endif
}

inline __device__ void write(Matrix<Result> c, TileIndex tile, Sums &sums, const Place &place, Rows &rows)
{
    const unsigned lane = threadIdx.x % WARP;
    const bool aligned = aligned_16(c);
#pragma unroll 1
    for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i) {
#pragma unroll
        for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                put(rows, half * 8 + lane / 4, j * INSTRUCTION_N + lane % 4 * 2,
                    tensor_core::row_pair(sums.at[0][j], half));
        __syncwarp();
        const unsigned row = tile.row * BLOCK_M + place.first_row + i * INSTRUCTION_M;
        rows.write(c, row, tile.column * BLOCK_N + place.first_column, aligned);
        __syncwarp();
        sums.move_up();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multistage(Matrix<const Element> a, Matrix<const Element> b, Matrix<Result> c)
{
    extern __shared__ __align__(128) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    const unsigned tile_rows = c.height / BLOCK_M + (c.height % BLOCK_M != 0);
    const unsigned tile_columns = c.width / BLOCK_N + (c.width % BLOCK_N != 0);
    const TileIndex tile = grouped(blockIdx.x, tile_rows, tile_columns);
    const unsigned steps = a.width / BLOCK_K + (a.width % BLOCK_K != 0);

    Copier<ASlot, BLOCK_M, A_CHUNKS> copier_a(a, tile.row * BLOCK_M, 0);
    Copier<BSlot, BLOCK_K, B_CHUNKS> copier_b(b, 0, tile.column * BLOCK_N);
    const Place place;
    Sums sums = {};
    Fragment even, odd; // one is read while the other is used

    // The copies run AHEAD steps ahead of the sums; the first turns only copy. Each turn is one group of
    // copies, an empty one at the end.
    constexpr unsigned AHEAD = STAGES - 1;
#pragma unroll 1
    for (unsigned turn = 0; turn < steps + AHEAD; ++turn) {
        const bool summing = turn >= AHEAD;
        const unsigned step = turn - AHEAD, next = step + 1; // whose sums are made, if any
        if (summing) place.load(odd, shared.stages[step % STAGES], INSTRUCTION_K);
        if (turn < steps) { // into the slot that the step before this one read: all warps have, see below
            copier_a.start(shared.stages[turn % STAGES].a);
            copier_b.start(shared.stages[turn % STAGES].b);
            copier_a.column += BLOCK_K;
            copier_b.row += BLOCK_K;
        }
        async_copy::commit();
        if (summing) sums.multiply_add(even);
        if (turn + 1 < AHEAD) continue;
        async_copy::wait<AHEAD - 1>(); // this thread's copies for the next step have landed,
        __syncthreads();               // and those of all; and the slot of this step has been read
        if (next < steps) place.load(even, shared.stages[next % STAGES], 0);
        if (summing) sums.multiply_add(odd);
    }
    write(c, tile, sums, place, reinterpret_cast<Rows *>(dynamic)[threadIdx.x / WARP]);
}
