// Products of float32 on the SIMT units, as fast as they multiply: C[z] = A[z]·B[z], a whole stack in one launch.
//
// All but multiply-adds costs their time, so little else is in the loop: a thread has up to 8×16 sums, for which it reads
// 24 numbers from shared memory, 16 bytes at once, one k ahead of what it multiplies. Asynchronous copies run STAGES - 1
// steps ahead. Tiles lie in shared memory with rows along M and along N. Where a matrix has its neighbours along K, 4 bytes
// are copied at a time, to where they belong, which turns it; else 16, if rows begin at multiples of that.
//
// Complex numbers (IN_PAIRS): A and C as real and imaginary parts in turn, so that K counts parts; B's rows lie so, too,
// and each is multiplied by two columns of A: as it is, and as -im and re in turn.
//
// K may be in PARTS, of which each leaves its sums in memory. With a TAIL those are of the last tiles alone, too few to be
// one for each SM: their parts keep all SMs busy to the end.
// Tiles: block BLOCK_M×BLOCK_N×BLOCK_K, warp WARP_M×WARP_N, thread 8×(WARP_N / 4): pieces of 4 rows and 4 columns.
#include <tilewise/async_copy.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/parts_of_k.cuh>
#include <tilewise/plain_epilogue.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/shared_address.cuh>
#include <tilewise/strided.cuh>

#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 256
#endif
#ifndef BLOCK_K
#define BLOCK_K 8
#endif
#ifndef WARP_M
#define WARP_M 64
#endif
#ifndef WARP_N
#define WARP_N 64
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef RESIDENT // blocks that an SM holds at once
#define RESIDENT 1
#endif
#ifndef A_ALONG_K // 1: neighbours in memory are neighbours along K; 0: along M
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_N // 1: along N; 0: along K
#define B_ALONG_N 1
#endif
#ifndef A_BYTES // that are copied at once: 16, or 4
#define A_BYTES 4
#endif
#ifndef B_BYTES
#define B_BYTES 16
#endif
#ifndef WHOLE_COPIES // 1: all copies bring 16 bytes, or none
#define WHOLE_COPIES 0
#endif
#ifndef RESULT
#define RESULT float32 // or another floating-point type
#endif
#ifndef RASTER
#define RASTER grouped // or another function of tilewise/raster.cuh
#endif
#ifndef IN_PAIRS // 1: complex numbers
#define IN_PAIRS 0
#endif
#ifndef PARTS // of K: each leaves its sums in memory, for add_parts.cu
#define PARTS 1
#endif
#ifndef TAIL // 1: of the last tiles alone, the others are whole
#define TAIL 0
#endif

#if PARTS > 1 && !TAIL // what a block stores, and what happens to it before
using Result = float;
using Fused = PlainEpilogue;
#else
using Result = RESULT;
using Fused = Epilogue;
#endif

constexpr unsigned LANES = 32, LANES_M = 8, LANES_N = 4, PIECE = 4;
constexpr unsigned THREAD_M = WARP_M / LANES_M, THREAD_N = WARP_N / LANES_N;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * LANES;
static_assert(THREAD_M % PIECE == 0 && THREAD_N % PIECE == 0 && BLOCK_K % 2 == 0, "whole pieces, read in turns");
static_assert(A_BYTES == 4 || !A_ALONG_K, "what is turned is copied by elements");
static_assert(B_BYTES == 4 || B_ALONG_N, "what is turned is copied by elements");
static_assert(!WHOLE_COPIES || (A_BYTES == 16 && B_BYTES == 16), "whole ones bring 16 bytes");
static_assert(B_ALONG_N || !IN_PAIRS, "pairs lie side by side");
static_assert(PARTS > 1 || !TAIL, "whose tiles are in parts");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// NOTE: the padding leads what is turned to other banks: 8 k of 4 lines fall into all 32.
constexpr unsigned PITCH_A = BLOCK_M + (A_ALONG_K ? PIECE : 0), PITCH_B = BLOCK_N + (B_ALONG_N ? 0 : PIECE);
constexpr unsigned USES = IN_PAIRS ? 2 : 1; // of a row of B: columns of A that it is multiplied by
struct alignas(16) Stage {
    float a[BLOCK_K][PITCH_A];
    float b[BLOCK_K / USES][PITCH_B];
};
#ifdef SHARED_BYTES
static_assert(STAGES * sizeof(Stage) == SHARED_BYTES, "the launch asks for that much shared memory");
#endif

// A thread's share in copying SIZE rows of A, or columns of B, by DEPTH along K.
template <unsigned SIZE, unsigned DEPTH, unsigned PITCH, bool ALONG_K, unsigned BYTES> struct Copier {
    static constexpr unsigned WIDTH = BYTES / sizeof(float);                 // elements of a copy
    static constexpr unsigned RUN = ALONG_K ? 8 : SIZE / WIDTH;              // threads along a line
    static constexpr unsigned LINES = ALONG_K ? SIZE : DEPTH;                // of the tile
    static constexpr unsigned APART = BLOCK_THREADS / RUN;                   // lines of two copies of a thread
    static constexpr unsigned DOWN = LINES / APART;                          // lines of a thread
    static constexpr unsigned ALONG = ALONG_K ? DEPTH / RUN : 1;             // copies in each
    static_assert(BLOCK_THREADS % RUN == 0 && LINES % APART == 0 && BLOCK_K % 8 == 0, "equal shares");
    static_assert(DOWN > 0, "each thread has a line");

    const float *from;
    long long line_stride; // elements
    unsigned k;            // of the first copy
    unsigned left;         // elements across K from the first copy's on, as far as the matrix goes
    unsigned to;

    // `k_stride` and `stride` are those of the matrix along K and across it.
    __device__ Copier(const float *tile, long long k_stride, long long stride, unsigned inside)
    {
        const unsigned line = threadIdx.x / RUN, along = threadIdx.x % RUN * WIDTH;
        const unsigned across = ALONG_K ? line : along;
        k = ALONG_K ? along : line;
        line_stride = (ALONG_K ? stride : k_stride) * APART;
        from = tile + (ALONG_K ? line * stride + along : line * k_stride + along);
        left = across < inside ? inside - across : 0;
        to = k * PITCH + across;
    }

    // Begins to copy the next DEPTH of K, which has `depth` in all.
    __device__ void start(float *tile, unsigned depth, long long step)
    {
#pragma unroll
        for (unsigned i = 0; i < DOWN; ++i)
#pragma unroll
            for (unsigned j = 0; j < ALONG; ++j) {
                const unsigned across = ALONG_K ? i * APART : 0, along = ALONG_K ? j * RUN : i * APART;
                float *there = tile + to + along * PITCH + across;
                const float *here = from + i * line_stride + (ALONG_K ? j * RUN : 0);
                const unsigned fit = across < left ? min(left - across, WIDTH) * sizeof(float) : 0;
                const unsigned bytes = k + along < depth ? fit : 0;
                if constexpr (WHOLE_COPIES)
                    async_copy::start_16_or_zero(there, here, bytes > 0);
                else if constexpr (BYTES == 16)
                    async_copy::start_16(there, here, bytes);
                else
                    async_copy::start_narrow<4>(there, here, bytes);
            }
        from += step, k += DEPTH;
    }
};

// Reads a piece from shared memory, even if it has been read before.
inline __device__ float4 read_again(const float *piece)
{
    float4 all;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(all.x), "=f"(all.y), "=f"(all.z), "=f"(all.w)
                 : "r"(shared_address(piece))
                 : "memory");
    return all;
}

// What a thread multiplies of one k: pieces of A's column or of B's row, as far apart as the warp's lanes reach.
template <unsigned COUNT, unsigned APART, bool AGAIN> struct Pieces {
    float at[COUNT];

    __device__ void load(const float *line)
    {
#pragma unroll
        for (unsigned i = 0; i < COUNT; i += PIECE) {
            const float *piece = line + i * APART;
            const float4 all = AGAIN ? read_again(piece) : *reinterpret_cast<const float4 *>(piece);
            at[i] = all.x, at[i + 1] = all.y, at[i + 2] = all.z, at[i + 3] = all.w;
        }
    }
};
// Two k share a row of B, and each reads it: kept for both, its numbers make the assembler take the multiply-adds in an
// order in which more of them wait for operands. Measured: 2 % of the time.
using Column = Pieces<THREAD_M, LANES_M, false>;
using Row = Pieces<THREAD_N, LANES_N, IN_PAIRS>;

// Columns go there and back, so that of two multiply-adds one after another the operand that they share stays where it is.
// TURNED: the row's pairs are those of its elements times i, -im and re in turn.
template <bool TURNED>
inline __device__ void multiply_add(float (&sums)[THREAD_M][THREAD_N], const Column &a, const Row &b)
{
#pragma unroll
    for (unsigned j = 0; j < THREAD_N; ++j)
#pragma unroll
        for (unsigned turn = 0; turn < THREAD_M; ++turn) {
            const unsigned i = j % 2 ? THREAD_M - 1 - turn : turn;
            if constexpr (TURNED) // elements of the row in their order, so those of a pair of columns the other way round
                sums[i][j ^ 1] += a.at[i] * (j % 2 ? -b.at[j] : b.at[j]);
            else
                sums[i][j] += a.at[i] * b.at[j];
        }
}

// Makes new numbers of the sums, the same ones, which the compiler does not know.
// NOTE: without it, it has each four sums that are stored at once in registers side by side all along, so that up to half
// of the multiply-adds read two of their operands from one bank of registers, which takes a turn more.
inline __device__ void free_registers(float (&sums)[THREAD_M][THREAD_N], unsigned zero)
{
#pragma unroll
    for (unsigned i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (unsigned j = 0; j < THREAD_N; ++j)
            sums[i][j] = __uint_as_float(__float_as_uint(sums[i][j]) ^ zero);
}

// What a warp gathers rows of its sums in, where the stages were: two of each thread, or one where there is no more room.
// NOTE: the padding leads two rows of a store to other banks.
constexpr unsigned BOX_PITCH = WARP_N + (WARP_N % 32 == 0 ? 16 : 0);
constexpr unsigned ROWS_OF_ALL = BLOCK_THREADS / LANES * LANES_M * BOX_PITCH * sizeof(float); // bytes, a row of each thread
constexpr unsigned AT_ONCE = 2 * ROWS_OF_ALL <= STAGES * sizeof(Stage) ? 2 : 1, BOX_ROWS = AT_ONCE * LANES_M;
using Box = float[BOX_ROWS][BOX_PITCH];
static_assert(AT_ONCE * ROWS_OF_ALL <= STAGES * sizeof(Stage), "each warp has a box");

// Stores the rows of a box, as far as C goes: row i of the box is row `row` + (i % 8)·4 + i / 8 of C.
template <typename Result, typename Finish>
inline __device__ void store_box(const Box &box, const Matrix<Result> &c, unsigned row, unsigned column,
                                 const Finish &finish, bool wide)
{
    constexpr unsigned QUADS = WARP_N / PIECE;
    const auto down = [&](unsigned i) { return row + i % LANES_M * PIECE + i / LANES_M; };
    if (wide) {
#pragma unroll 1
        for (unsigned at = threadIdx.x % LANES; at < BOX_ROWS * QUADS; at += LANES) {
            const unsigned i = at / QUADS, j = at % QUADS * PIECE;
            store_quad(*reinterpret_cast<const float4 *>(&box[i][j]), c, down(i), column + j, finish, true);
        }
        return;
    }
#pragma unroll 1
    for (unsigned at = threadIdx.x % LANES; at < BOX_ROWS * WARP_N; at += LANES) {
        const unsigned i = at / WARP_N, j = at % WARP_N;
        if (down(i) < c.height && column + j < c.width)
            c.at(down(i), column + j) = narrow<Result>(finish(box[i][j], down(i), column + j));
    }
}

// Stores the warp's sums, which begin at `row` and `column` of C: in whole rows, some at a time, so that what is done to
// each of them stands in few places of the code, which takes less time to compile.
template <typename Result, typename Finish>
inline __device__ void store_sums(const float (&sums)[THREAD_M][THREAD_N], Box &box, const Matrix<Result> &c,
                                  unsigned row, unsigned column, const Finish &finish, bool wide)
{
    const unsigned lane = threadIdx.x % LANES;
#pragma unroll
    for (unsigned first = 0; first < THREAD_M; first += AT_ONCE) {
        __syncwarp(); // the rows before these are stored
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; ++i)
#pragma unroll
            for (unsigned j = 0; j < THREAD_N; j += PIECE) {
                const float *four = &sums[first + i][j];
                *reinterpret_cast<float4 *>(&box[i * LANES_M + lane / LANES_N][j * LANES_N + lane % LANES_N * PIECE]) =
                    make_float4(four[0], four[1], four[2], four[3]);
            }
        __syncwarp();
        store_box(box, c, row + first / PIECE * PIECE * LANES_M + first % PIECE, column, finish, wide);
    }
}

// `wide`: rows of C begin at multiples of 4 elements that can be stored at once. So many tiles are `whole`, and `parts` the
// sums of the others: of a part of each, one tile behind another, then those of the next part.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT)
    simt(Strided<const float> a, Strided<const float> b, Strided<Result> c, const __grid_constant__ Stack stack,
         unsigned wide,
#if TAIL
         unsigned whole, float *parts,
#endif
         const __grid_constant__ Epilogue epilogue)
{
#if !TAIL
    constexpr unsigned whole = 0;
#endif
    extern __shared__ __align__(16) char dynamic[];
    Stage *stages = reinterpret_cast<Stage *>(dynamic);

    const unsigned tile_rows = c.rows / BLOCK_M + (c.rows % BLOCK_M != 0);
    const unsigned tile_columns = c.columns / BLOCK_N + (c.columns % BLOCK_N != 0);
    const unsigned tiles = tile_rows * tile_columns;
    // Parts of K are as matrices of a stack, whose tiles come one after another; of a tail's, C is one matrix.
    const Share share = TAIL ? Share::in_tail(blockIdx.x, tiles, whole)
                             : Share{blockIdx.x % tiles, blockIdx.x / tiles, PARTS > 1};
    const TileIndex tile = RASTER(share.tile, tile_rows, tile_columns);
    const InStack matrix = TAIL ? InStack{} : PARTS > 1 ? InStack{0, share.part} : stack[share.part];
    if (PARTS == 1) a.select(stack.of_a(matrix)), b.select(stack.of_b(matrix));
    c.select(PARTS > 1 ? matrix : stack.of_c(matrix));
    const unsigned first_row = tile.row * BLOCK_M, first_column = tile.column * BLOCK_N;

    const unsigned all = a.columns / BLOCK_K + (a.columns % BLOCK_K != 0);
    const unsigned begin = share.in_parts ? all * 1ull * share.part / PARTS : 0;
    const unsigned steps = share.in_parts ? all * (share.part + 1ull) / PARTS - begin : all;
    const unsigned depth = min(a.columns - begin * BLOCK_K, steps * BLOCK_K);
    Copier<BLOCK_M, BLOCK_K, PITCH_A, A_ALONG_K, A_BYTES> copier_a(
        a.at(first_row, begin * BLOCK_K), a.column_stride, a.row_stride, c.rows - first_row);
    constexpr unsigned ROWS = BLOCK_K / USES; // of B
    Copier<BLOCK_N, ROWS, PITCH_B, !B_ALONG_N, B_BYTES> copier_b(b.at(begin * ROWS, first_column), b.row_stride,
                                                                 b.column_stride, c.columns - first_column);
    const long long step_a = a.column_stride * BLOCK_K, step_b = b.row_stride * ROWS;
    // NOTE: whole pieces are copied without a branch, and so amid the multiply-adds, which takes 5 % less time; what takes
    // more instructions to copy is faster behind one.
    const auto start = [&](unsigned step) {
        Stage &stage = stages[step % STAGES];
        if (WHOLE_COPIES || step < steps)
            copier_a.start(&stage.a[0][0], depth, step_a), copier_b.start(&stage.b[0][0], depth / USES, step_b);
        async_copy::commit(); // an empty group at the end, so that a step is always one group
    };
    dependent_launch::wait_for_previous(first_row);
    dependent_launch::let_next_begin();
    // To L2, before the products: else the tile ends with a wait for memory.
    if constexpr (!Fused::PLAIN)
        epilogue.in_stack(stack, matrix)
            .prefetch_lines(min(first_row + threadIdx.x, c.rows - 1), min(first_column + threadIdx.x, c.columns - 1));
#pragma unroll 1
    for (unsigned step = 0; step < STAGES - 1; ++step)
        start(step);

    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned row = warp % WARPS_M * WARP_M + lane / LANES_N * PIECE;
    const unsigned column = warp / WARPS_M * WARP_N + lane % LANES_N * PIECE;
    float sums[THREAD_M][THREAD_N] = {};
    // Those of the next k are read while these are multiplied.
    Column columns[2];
    Row rows[2];
    const auto load = [&](const Stage &stage, unsigned k) {
        columns[k % 2].load(&stage.a[k][row]);
        rows[k % 2].load(&stage.b[k / USES][column]);
    };
    async_copy::wait<STAGES - 2>();
    __syncthreads();
    if (steps) load(stages[0], 0);
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        const Stage &stage = stages[step % STAGES];
#pragma unroll
        for (unsigned k = 0; k < BLOCK_K - 2; k += 2) {
            load(stage, k + 1);
            multiply_add<false>(sums, columns[0], rows[0]);
            load(stage, k + 2);
            // To where the step before this one was. NOTE: elsewhere among the multiply-adds it takes up to 5 % longer.
            if (k == 0) start(step + STAGES - 1);
            multiply_add<IN_PAIRS>(sums, columns[1], rows[1]);
        }
        load(stage, BLOCK_K - 1);
        multiply_add<false>(sums, columns[0], rows[0]);
        async_copy::wait<STAGES - 2>(); // this thread's copies for the next step have landed,
        __syncthreads();                // and those of all; and all have read this one
        load(stages[min(step + 1, steps - 1) % STAGES], 0); // after the last step for nothing
        multiply_add<IN_PAIRS>(sums, columns[1], rows[1]);
    }

    free_registers(sums, c.rows >> 31);

    async_copy::wait<0>(); // also those of zeros, for steps beyond the last
    __syncthreads();       // all have read the last stage
    Box &box = reinterpret_cast<Box *>(dynamic)[warp];
    const unsigned own_row = warp % WARPS_M * WARP_M, own_column = warp / WARPS_M * WARP_N; // of the warp in the tile
#if TAIL
    if (share.in_parts) {
        const size_t before = size_t(share.part) * (tiles - whole) + (share.tile - whole); // tiles
        const Matrix<float> to = {BLOCK_N, BLOCK_M, BLOCK_N, parts + before * (BLOCK_M * BLOCK_N)};
        store_sums(sums, box, to, own_row, own_column, PlainEpilogue(), true);
        return;
    }
#endif
    // Rows of sums are stored to their end, since add_parts.cu reads whole runs of them.
    const bool all_are_parts = PARTS > 1 && !TAIL;
    const Matrix<Result> to = {all_are_parts ? unsigned(c.row_stride) : c.columns, c.rows, unsigned(c.row_stride),
                               c.elements};
#if PARTS > 1 && !TAIL
    const Fused finish;
#else
    const Fused finish = epilogue.in_stack(stack, matrix);
#endif
    store_sums(sums, box, to, first_row + own_row, first_column + own_column, finish, wide);
}
