// Products of matrices that lie in memory in any way, a whole stack of them in one launch: C[z] = A[z]·B[z].
//
// It serves what the faster kernels do not: any strides, any size, float64, integers, short and long sums alike.
// Sums are kept in float32 (float64 for float64, 32 or 64 bits for integers) and run over k from first to last.
// Tiles: block BLOCK_M×BLOCK_N×BLOCK_K, thread THREAD_M×THREAD_N×1. A thread's rows are neighbours, which it
// reads from shared memory at once and, lanes along N, mostly in common with its warp; its columns lie as far
// apart as there are threads in a row, so that neighbouring lanes read and write neighbouring elements.
// The next step's elements are on their way to registers during the math of this one, then go to the other
// of two stages: one barrier a step.
#include <tilewise/element.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/group_walk.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/strided.cuh>
#include <tilewise/term_scales.cuh>

#ifndef BLOCK_M
#define BLOCK_M 64
#endif
#ifndef BLOCK_N
#define BLOCK_N 64
#endif
#ifndef BLOCK_K
#define BLOCK_K 16
#endif
#ifndef THREAD_M
#define THREAD_M 4
#endif
#ifndef THREAD_N
#define THREAD_N 4
#endif
#ifndef ELEMENT
#define ELEMENT float32 // or float16, bfloat16, float64, int8, int32, int64
#endif
#ifndef B_ELEMENT
#define B_ELEMENT ELEMENT // or the other float8
#endif
#ifndef RESULT
#define RESULT ELEMENT
#endif
#ifndef SCALES_A // rows of A that share a scale for each 128 of K; 0: there are no such scales
#define SCALES_A 0
#endif
#ifndef SCALES_B // the same of columns of B
#define SCALES_B 0
#endif
#ifndef A_ALONG_K // 1: the elements of A that lie closest together are neighbours along K; 0: along M
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_N // 1: those of B are neighbours along N; 0: along K
#define B_ALONG_N 1
#endif
#ifndef GROUPED // 1: the stack of B has a matrix for each group of A's rows
#define GROUPED 0
#endif
#ifndef RASTER
#define RASTER grouped // or another function of tilewise/raster.cuh
#endif
#ifndef REGION_M // of C, which another kernel has computed or left out as a whole: for `remedy`
#define REGION_M 0
#define REGION_N 0
#endif
#if REGION_M
#include <tilewise/dependent_launch.cuh>
#endif

using Element = ELEMENT;
using ElementB = B_ELEMENT;
using Result = RESULT;
using Sum = decltype(widen(Element()));
using Scales = TermScales<SCALES_A, SCALES_B>;
static_assert(!Scales::ANY || (sizeof(Sum) == 4 && SCALED_TERMS % BLOCK_K == 0), "a step has scales in common");

constexpr unsigned THREADS_N = BLOCK_N / THREAD_N; // in a row of the block; lanes run along it
constexpr unsigned BLOCK_THREADS = BLOCK_M / THREAD_M * THREADS_N;
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "thread tiles cover the block's");
static_assert(BLOCK_THREADS % 32 == 0 && BLOCK_THREADS <= 1024, "whole warps, at most 1,024 threads");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

inline __device__ constexpr unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

// What a thread reads of a column of A at once: its rows, or as many of them as 16 bytes hold.
constexpr unsigned WIDE = THREAD_M * sizeof(Sum) <= 16 ? THREAD_M : 16 / sizeof(Sum);
static_assert(THREAD_M % WIDE == 0 && (WIDE & (WIDE - 1)) == 0, "a power of two of rows at once");
struct alignas(WIDE * sizeof(Sum)) Wide {
    Sum rows[WIDE];
};

// The tiles of one step in shared memory, each with its rows along K. Where neighbours along K come in
// together, eight of them from each of four lines, they are stored a row apart: 16 bytes of padding lead them
// to different banks.
constexpr unsigned PAD = 16 / sizeof(Sum);
struct alignas(16) Stage {
    Sum a[BLOCK_K][BLOCK_M + A_ALONG_K * PAD];
    Sum b[BLOCK_K][BLOCK_N + !B_ALONG_N * PAD];
};
static_assert(2 * sizeof(Stage) <= 48 * 1024, "what a block may have without asking for more");
static_assert(BLOCK_M % WIDE == 0, "every row of a tile is aligned for wide reads");

// One thread's share in bringing a tile of SIZE rows of A, or columns of B, by BLOCK_K. A run of threads
// takes neighbours in a line, along K or across it, the next run those in the next line.
template <typename Element, unsigned SIZE, bool ALONG_K> class Share {
    static constexpr unsigned LINES = ALONG_K ? SIZE : BLOCK_K, LENGTH = ALONG_K ? BLOCK_K : SIZE;
    static constexpr unsigned RUN = least(LENGTH, ALONG_K ? 8 : BLOCK_THREADS);
    static constexpr unsigned APART = BLOCK_THREADS / RUN; // lines from one element of a thread to its next
    static constexpr unsigned COUNT = (SIZE * BLOCK_K + BLOCK_THREADS - 1) / BLOCK_THREADS;
    static constexpr bool ALL = SIZE * BLOCK_K >= BLOCK_THREADS; // threads have something to bring
    static_assert(LENGTH % RUN == 0 && BLOCK_THREADS % RUN == 0, "whole runs");
    static_assert(APART % LINES == 0 || LINES % APART == 0, "a thread keeps to a few lines");
    static_assert(!ALL || SIZE * BLOCK_K % BLOCK_THREADS == 0, "equal shares");

    const Element *from; // the thread's first element of the step to fetch next
    long long stride, k_stride;
    unsigned first, first_k; // where it lies in the tile
    unsigned inside;         // rows of A, or columns of B, from the tile's first on
    Element fetched[COUNT];

    // How far the thread's elements lie from its first.
    static __device__ constexpr unsigned line(unsigned i) { return i * APART % LINES; }
    static __device__ constexpr unsigned along(unsigned i) { return i * APART / LINES * RUN; }
    static __device__ constexpr unsigned across_k(unsigned i) { return ALONG_K ? line(i) : along(i); }
    static __device__ constexpr unsigned along_k(unsigned i) { return ALONG_K ? along(i) : line(i); }

  public:
    // `elements` points to the tile of the first step.
    __device__ Share(const Element *elements, long long stride, long long k_stride, unsigned inside)
        : stride(stride), k_stride(k_stride), inside(inside)
    {
        const unsigned my_line = threadIdx.x / RUN % LINES;
        const unsigned my_along = threadIdx.x % RUN + threadIdx.x / RUN / LINES * RUN;
        first = ALONG_K ? my_line : my_along;
        first_k = ALONG_K ? my_along : my_line;
        from = elements + (first * stride + first_k * k_stride);
    }

    // Sends for the elements of a step; nothing waits for them before keep(). Outside the matrix are zeros.
    __device__ void fetch(unsigned k_left)
    {
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            const bool exists = first + across_k(i) < inside && first_k + along_k(i) < k_left;
            fetched[i] = exists ? from[across_k(i) * stride + along_k(i) * k_stride] : Element(0);
        }
        from += BLOCK_K * k_stride;
    }

    template <unsigned WIDTH> __device__ void keep(Sum (&tile)[BLOCK_K][WIDTH]) const
    {
        if (!ALL && threadIdx.x >= SIZE * BLOCK_K) return;
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            tile[first_k + along_k(i)][first + across_k(i)] = widen(fetched[i]);
    }
};

template <typename Sum> struct Sums {
    Sum at[THREAD_M][THREAD_N];

    // Adds the product of the thread's rows and columns over the k of a step.
    __device__ void multiply_add(const Stage &stage, unsigned row, unsigned column)
    {
        constexpr unsigned UNROLLED = least(BLOCK_K, 2 + 64 / (THREAD_M * THREAD_N) / 2 * 2);
#pragma unroll UNROLLED
        for (unsigned k = 0; k < BLOCK_K; ++k) {
            Wide rows[THREAD_M / WIDE];
            Sum columns[THREAD_N];
#pragma unroll
            for (unsigned i = 0; i < THREAD_M / WIDE; ++i)
                rows[i] = *reinterpret_cast<const Wide *>(&stage.a[k][row + i * WIDE]);
#pragma unroll
            for (unsigned j = 0; j < THREAD_N; ++j)
                columns[j] = stage.b[k][column + j * THREADS_N];
#pragma unroll
            for (unsigned i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (unsigned j = 0; j < THREAD_N; ++j)
                    at[i][j] += rows[i / WIDE].rows[i % WIDE] * columns[j];
        }
    }

    // Adds the sums of a run of K with the same scales, times these, and makes them 0.
    template <typename Run>
    __device__ void add_scaled(Sums<Run> &run, const Scales &scales, unsigned row, unsigned column, unsigned k)
    {
#pragma unroll
        for (unsigned i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (unsigned j = 0; j < THREAD_N; ++j) {
                const float scale =
                    scales.of_a(row + i, k / SCALED_TERMS) * scales.of_b(column + j * THREADS_N, k / SCALED_TERMS);
                at[i][j] += Sum(as_number(run.at[i][j])) * scale, run.at[i][j] = 0;
            }
    }

    __device__ void store(const Strided<Result> &c, const Epilogue &epilogue, unsigned row, unsigned column) const
    {
#pragma unroll
        for (unsigned i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (unsigned j = 0; j < THREAD_N; ++j)
                if (row + i < c.rows && column + j * THREADS_N < c.columns)
                    *c.at(row + i, column + j * THREADS_N) =
                        narrow<Result>(epilogue(as_number(at[i][j]), row + i, column + j * THREADS_N));
    }

    // The same where the epilogue adds up columns and rows: each warp stores what it has of them.
    template <typename Adding>
    __device__ void store_and_add(const Strided<Result> &c, const Adding &epilogue, unsigned row, unsigned column) const
    {
        constexpr unsigned WARP_M = 32 / THREADS_N * THREAD_M;
        static_assert(32 % THREADS_N == 0, "a warp has whole rows of the tile");
        typename Adding::template Added<1> all[THREAD_N];
#pragma unroll
        for (unsigned i = 0; i < THREAD_M; ++i) {
            typename Adding::template Added<1> of_row;
#pragma unroll
            for (unsigned j = 0; j < THREAD_N; ++j) {
                const unsigned across = column + j * THREADS_N;
                if (row + i >= c.rows || across >= c.columns) continue;
                Sum sum[1] = {at[i][j]};
                typename Adding::template Added<1> added;
                epilogue.apply(sum, epilogue.template read<1>(row + i, across), row + i, across, added);
                *c.at(row + i, across) = narrow<Result>(sum[0]);
                all[j].add(added), of_row.add(added);
            }
            epilogue.template put_row<THREADS_N>(of_row, row + i < c.rows, row + i, column / BLOCK_N);
        }
        const unsigned first = __shfl_sync(~0u, row, 0); // of the warp's rows
        if (first >= c.rows) return;
#pragma unroll
        for (unsigned j = 0; j < THREAD_N; ++j) {
            const unsigned across = column + j * THREADS_N;
            epilogue.template put_columns<THREADS_N>(all[j], first / WARP_M, across, across < c.columns);
        }
    }
};

template <typename Sum, typename Epilogue>
inline __device__ void store(const Sums<Sum> &sums, const Strided<Result> &c, const Epilogue &epilogue, unsigned row,
                             unsigned column)
{
    if constexpr (Epilogue::has_sums())
        sums.store_and_add(c, epilogue, row, column);
    else
        sums.store(c, epilogue, row, column);
}

// A block computes the tile of one matrix that begins at `first_row` and `first_column`.
inline __device__ void multiply(Stage (&stages)[2], const Strided<const Element> &a, const Strided<const ElementB> &b,
                                const Strided<Result> &c, const Scales &scales, const Epilogue &epilogue,
                                unsigned first_row, unsigned first_column)
{
    Share<Element, BLOCK_M, A_ALONG_K> share_a(a.at(first_row, 0), a.row_stride, a.column_stride, c.rows - first_row);
    Share<ElementB, BLOCK_N, !B_ALONG_N> share_b(b.at(0, first_column), b.column_stride, b.row_stride,
                                                 c.columns - first_column);
    const unsigned row = threadIdx.x / THREADS_N * THREAD_M, column = threadIdx.x % THREADS_N;
    const unsigned steps = a.columns / BLOCK_K + (a.columns % BLOCK_K != 0);
    Sums<Sum> all = {}; // or those of a run
    Sums<float> scaled = {};

    // The loads run one step ahead of the sums; the first turn only loads.
    for (unsigned turn = 0; turn <= steps; ++turn) {
        const bool more = turn < steps;
        if (more) share_a.fetch(a.columns - turn * BLOCK_K), share_b.fetch(a.columns - turn * BLOCK_K);
        if (turn > 0) all.multiply_add(stages[(turn - 1) % 2], row, column);
        if constexpr (Scales::ANY) {
            if (turn > 0 && (turn * BLOCK_K % SCALED_TERMS == 0 || turn == steps))
                scaled.add_scaled(all, scales, first_row + row, first_column + column, (turn - 1) * BLOCK_K);
        }
        if (more) share_a.keep(stages[turn % 2].a), share_b.keep(stages[turn % 2].b);
        __syncthreads(); // the stage is whole, and the other one has been read
    }
    if constexpr (Scales::ANY)
        store(scaled, c, epilogue, first_row + row, first_column + column);
    else
        store(all, c, epilogue, first_row + row, first_column + column);
}

// The blocks of a stack's first matrix, or of the first group of rows, come first, then those of the next.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    general(Strided<const Element> a, Strided<const ElementB> b, Strided<Result> c,
            const __grid_constant__ Stack stack,
#if GROUPED
            const int *group_ends, // so many as there are matrices in the stack
#endif
#if SCALES_A || SCALES_B
            const __grid_constant__ Scales scales,
#endif
            Epilogue epilogue)
{
#if !(SCALES_A || SCALES_B)
    constexpr Scales scales = {};
#endif
    __shared__ Stage stages[2];

#if GROUPED
    const unsigned tile_columns = c.columns / BLOCK_N + (c.columns % BLOCK_N != 0);
    GroupWalk<BLOCK_M> walk(group_ends, stack.inner_count, c.rows, tile_columns);
    if (!walk.seek(blockIdx.x)) return;
    const TileIndex tile = RASTER(walk.tile(blockIdx.x), walk.tile_rows(), tile_columns);
    const InStack matrix = {}, of_scales = {0, walk.group()};
    const unsigned first_row = walk.begin() + tile.row * BLOCK_M;
    b.select({0, walk.group()}), c.rows = walk.end();
#else
    const unsigned tile_rows = c.rows / BLOCK_M + (c.rows % BLOCK_M != 0);
    const unsigned tile_columns = c.columns / BLOCK_N + (c.columns % BLOCK_N != 0);
    const unsigned tiles = tile_rows * tile_columns;
    const TileIndex tile = RASTER(blockIdx.x % tiles, tile_rows, tile_columns);
    const unsigned first_row = tile.row * BLOCK_M;
    const InStack matrix = stack[blockIdx.x / tiles], of_scales = matrix;
    a.select(stack.of_a(matrix)), b.select(stack.of_b(matrix)), c.select(stack.of_c(matrix));
#endif
    multiply(stages, a, b, c, scales.in_stack(of_scales, of_scales), epilogue.in_stack(stack, matrix), first_row,
             tile.column * BLOCK_N);
}

#if REGION_M
constexpr unsigned TILES_DOWN = REGION_M / BLOCK_M, TILES_ACROSS = REGION_N / BLOCK_N, TILES = TILES_DOWN * TILES_ACROSS;
static_assert(REGION_M % BLOCK_M == 0 && REGION_N % BLOCK_N == 0, "a tile lies in one region");

// Computes the regions of C that are `left_out`, of all matrices of a stack. Mostly there are none, and it ends at once.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    remedy(const Strided<const Element> a, const Strided<const ElementB> b, const Strided<Result> c,
           const __grid_constant__ Stack stack, unsigned matrices, const unsigned *left_out,
           const __grid_constant__ Epilogue epilogue)
{
    __shared__ Stage stages[2];
    const unsigned rows = c.rows / REGION_M + (c.rows % REGION_M != 0);
    const unsigned columns = c.columns / REGION_N + (c.columns % REGION_N != 0);
    const unsigned count = rows * columns * matrices * TILES;
    dependent_launch::wait_for_previous(count);
    dependent_launch::let_next_begin();
    for (unsigned first = blockIdx.x; first < count; first += gridDim.x * BLOCK_THREADS) {
        const unsigned own = first + threadIdx.x * gridDim.x; // a thread looks at one of the block's next tiles
        if (!__syncthreads_or(own < count && left_out[own / TILES])) continue;
        for (unsigned i = 0; i < BLOCK_THREADS && first + i * gridDim.x < count; ++i) {
            const unsigned tile = (first + i * gridDim.x) % TILES, region = (first + i * gridDim.x) / TILES;
            if (!left_out[region]) continue;
            const unsigned row = region / columns % rows * REGION_M + tile / TILES_ACROSS * BLOCK_M;
            const unsigned column = region % columns * REGION_N + tile % TILES_ACROSS * BLOCK_N;
            if (row >= c.rows || column >= c.columns) continue;
            const InStack matrix = stack[region / columns / rows];
            Strided<const Element> of_a = a;
            Strided<const ElementB> of_b = b;
            Strided<Result> of_c = c;
            of_a.select(stack.of_a(matrix)), of_b.select(stack.of_b(matrix)), of_c.select(stack.of_c(matrix));
            multiply(stages, of_a, of_b, of_c, {}, epilogue.in_stack(stack, matrix), row, column);
        }
    }
}
#endif
