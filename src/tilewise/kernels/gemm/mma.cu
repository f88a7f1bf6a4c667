// Products of 16-bit matrices by mma.sync, on every GPU since Turing, a whole stack of them in one launch:
// C[z] = A[z]·B[z].
//
// Copies fill a ring of stages several steps ahead of the sums. A and B may lie in rows or in columns, aligned for
// anything: copies are asynchronous (cp.async, from Ampere on) where lines begin at multiples of 4 bytes, of 16 if
// they can be, and go by way of registers otherwise; ldmatrix reads either way, transposing one of them. Operands of
// the next instructions are on their way from shared memory while these run, across steps too. Where C has few tiles
// but K is long, blocks side by side have a part of K each, and a second kernel adds up what they have, always in
// the order of the parts, so that the result has the same bits every time.
// Tiles: block BLOCK_M×BLOCK_N×BLOCK_K, warp WARP_M×WARP_N×16, instruction 16×8×16 (16×8×8 on Turing).
#include <tilewise/async_copy.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/finish_and_add.cuh>
#include <tilewise/guarded_load.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/strided.cuh>
#include <tilewise/warp_tile.cuh>

using namespace warp_tile;

#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 128
#endif
#ifndef BLOCK_K
#define BLOCK_K 32
#endif
#ifndef WARP_M
#define WARP_M 64
#endif
#ifndef WARP_N
#define WARP_N 64
#endif
#ifndef RESIDENT // blocks that the registers of an SM are to hold at once
#define RESIDENT 1
#endif
#ifndef STAGES
#define STAGES (__CUDA_ARCH__ >= 800 ? 3 : 2)
#endif
#ifndef SPLIT // blocks that have a part of K each
#define SPLIT 1
#endif
#ifndef A_IN_ROWS // 0: in columns
#define A_IN_ROWS 1
#endif
#ifndef B_IN_ROWS
#define B_IN_ROWS 1
#endif
#ifndef A_BYTES // of one access: 16, 8, 4 or 2, which every line (row or column) is aligned for
#define A_BYTES 16
#endif
#ifndef B_BYTES
#define B_BYTES 16
#endif
#ifndef ELEMENT
#define ELEMENT float16 // or bfloat16, from Ampere on
#endif
#ifndef RESULT
#define RESULT ELEMENT // or any of float16, bfloat16, float32
#endif

using Element = ELEMENT;
using Result = RESULT;

constexpr bool AMPERE = __CUDA_ARCH__ >= 800;
constexpr unsigned INSTRUCTION_M = 16, INSTRUCTION_N = 8, SLICE_K = 16;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * LANES;
constexpr unsigned SLICES = BLOCK_K / SLICE_K; // of a step: what a fragment is deep
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warp tiles cover the block's");
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "an ldmatrix brings 16 rows, or 16 columns");
static_assert(SLICES % 2 == 0, "two fragments take turns");
static_assert(STAGES >= 2, "copies go to one stage while another is read");
static_assert(STAGES == 2 || AMPERE && A_BYTES >= 4 && B_BYTES >= 4, "by way of registers copies are one step ahead");
static_assert(AMPERE || SAME<Element, float16>, "what Turing's tensor cores multiply");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

using TileA = OperandTile<BLOCK_M, BLOCK_K, A_IN_ROWS>;
using TileB = OperandTile<BLOCK_N, BLOCK_K, !B_IN_ROWS>;
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

// Loads the first `bytes` of a chunk, as many at once as WIDTH says, and zeros for the others. In two parts: the loads
// of several chunks that are whole follow one another, and chunks that are not are rare.
template <unsigned WIDTH> inline __device__ uint4 load_whole(const Element *from, unsigned bytes)
{
    uint4 chunk = {0, 0, 0, 0};
    if (bytes < sizeof(chunk)) return chunk;
    if constexpr (WIDTH == 16) {
        chunk = *reinterpret_cast<const uint4 *>(from);
    } else if constexpr (WIDTH == 8) {
        const uint2 *pairs = reinterpret_cast<const uint2 *>(from);
        chunk = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y};
    } else {
        const unsigned *words = reinterpret_cast<const unsigned *>(from);
        chunk = {words[0], words[1], words[2], words[3]};
    }
    return chunk;
}

template <unsigned WIDTH> inline __device__ void load_rest(uint4 &chunk, const Element *from, unsigned bytes)
{
    if (bytes > 0 && bytes < sizeof(chunk)) chunk = load_halves(from, bytes / sizeof(Element));
}

// Starts to copy the first `bytes` of a chunk, and zeros for the others.
template <unsigned WIDTH> inline __device__ void start_copy(uint4 *to, const Element *from, unsigned bytes)
{
    if constexpr (WIDTH == 16) {
        async_copy::start_mostly_16(to, from, bytes);
    } else {
#pragma unroll
        for (unsigned at = 0; at < sizeof(uint4); at += WIDTH) {
            const unsigned left = bytes > at ? min(bytes - at, WIDTH) : 0;
            async_copy::start_narrow<WIDTH>(reinterpret_cast<char *>(to) + at,
                                            reinterpret_cast<const char *>(from) + at, left);
        }
    }
}

// One thread's share in copying an operand's tiles, step after step: one chunk of every APART-th line. What lies
// outside of the matrix is not read; zeros stand for it, which add nothing.
template <typename Tile, unsigned WIDTH> class Copier {
    static constexpr unsigned CHUNKS = Tile::CHUNKS;
    static constexpr unsigned APART = BLOCK_THREADS / CHUNKS;
    static constexpr unsigned SHARE = Tile::ROWS / APART;
    static constexpr bool NO_REGISTERS = AMPERE; // on the way
    static_assert(BLOCK_THREADS % CHUNKS == 0 && Tile::ROWS % APART == 0 && SHARE > 0, "equal shares");

    const Element *from; // the thread's first chunk of the next step
    long long stride;    // from a line to the next
    int size_left;       // rows of A, or columns of B, from that chunk's first on
    int k_left;          // the same along K
    uint4 fetched[SHARE];

    static __device__ unsigned line() { return threadIdx.x / CHUNKS; }
    static __device__ unsigned chunk() { return threadIdx.x % CHUNKS; }

    // How many bytes of the thread's chunk of that number the matrix has.
    __device__ unsigned bytes(unsigned i) const
    {
        const int lines = Tile::ALONG_K ? size_left : k_left, along = Tile::ALONG_K ? k_left : size_left;
        return int(i * APART) < lines ? max(min(along, int(CHUNK)), 0) * sizeof(Element) : 0;
    }
    __device__ const Element *at(unsigned i) const { return from + i * APART * stride; }
    static __device__ uint4 *in(typename Tile::Chunks &tile, unsigned i)
    {
        return &tile[Tile::slot(line() + i * APART, chunk())];
    }

  public:
    // `size` elements of the matrix are across K, of which the tile begins at `first`; the steps go from `first_k`
    // to `end_k`.
    __device__ Copier(const Element *matrix, long long stride, unsigned size, unsigned first, unsigned first_k,
                      unsigned end_k)
        : stride(stride)
    {
        const unsigned along = chunk() * CHUNK;
        first += Tile::ALONG_K ? line() : along;
        first_k += Tile::ALONG_K ? along : line();
        from = matrix + (Tile::ALONG_K ? first * stride + first_k : first_k * stride + first);
        size_left = int(size - first), k_left = int(end_k - first_k);
    }

    // Begins to copy the next step's tile, which is there once commit() and wait() say so, or after keep().
    __device__ void start(typename Tile::Chunks &tile)
    {
        if constexpr (NO_REGISTERS) {
#pragma unroll(WIDTH == 16 ? SHARE : 1)
            for (unsigned i = 0; i < SHARE; ++i)
                start_copy<WIDTH>(in(tile, i), at(i), bytes(i));
        } else {
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                fetched[i] = load_whole<WIDTH>(at(i), bytes(i));
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                load_rest<WIDTH>(fetched[i], at(i), bytes(i));
        }
        from += Tile::ALONG_K ? BLOCK_K : BLOCK_K * stride;
        k_left -= BLOCK_K;
    }

    // Ends what start() of that tile began, if it went to registers.
    __device__ void keep(typename Tile::Chunks &tile) const
    {
        if constexpr (!NO_REGISTERS)
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                *in(tile, i) = fetched[i];
    }
};

// The same element by element. Lanes take neighbours in a line, so that a warp reads few lines of the cache at once.
template <typename Tile> class Copier<Tile, 2> {
    static constexpr unsigned LENGTH = Tile::CHUNKS * CHUNK; // of a line
    static constexpr unsigned SHARE = Tile::ROWS * LENGTH / BLOCK_THREADS;
    static_assert(SHARE * LANES % LENGTH == 0, "a warp has whole lines");

    const Element *from; // the thread's first element of the next step
    long long stride;
    int size_left, k_left; // as above
    Element fetched[SHARE];

    static __device__ unsigned line()
    {
        return threadIdx.x / LANES * (SHARE * LANES / LENGTH) + threadIdx.x % LANES / LENGTH;
    }
    static __device__ unsigned along() { return threadIdx.x % LANES % LENGTH; }

    // How far the thread's elements lie from its first.
    static __device__ constexpr unsigned lines(unsigned i) { return i * LANES / LENGTH; }
    static __device__ constexpr unsigned further(unsigned i) { return i * LANES % LENGTH; }

  public:
    __device__ Copier(const Element *matrix, long long stride, unsigned size, unsigned first, unsigned first_k,
                      unsigned end_k)
        : stride(stride)
    {
        first += Tile::ALONG_K ? line() : along();
        first_k += Tile::ALONG_K ? along() : line();
        from = matrix + (Tile::ALONG_K ? first * stride + first_k : first_k * stride + first);
        size_left = int(size - first), k_left = int(end_k - first_k);
    }

    __device__ void start(typename Tile::Chunks &)
    {
        const int lines_left = Tile::ALONG_K ? size_left : k_left, left = Tile::ALONG_K ? k_left : size_left;
#pragma unroll
        for (unsigned i = 0; i < SHARE; ++i) {
            const bool exists = int(lines(i)) < lines_left && int(further(i)) < left;
            fetched[i] = exists ? from[lines(i) * stride + further(i)] : Element(0);
        }
        from += Tile::ALONG_K ? BLOCK_K : BLOCK_K * stride;
        k_left -= BLOCK_K;
    }

    __device__ void keep(typename Tile::Chunks &tile) const
    {
#pragma unroll
        for (unsigned i = 0; i < SHARE; ++i) {
            const unsigned row = line() + lines(i), column = along() + further(i);
            reinterpret_cast<Element *>(&tile[Tile::slot(row, column / CHUNK)])[column % CHUNK] = fetched[i];
        }
    }
};

using CopierA = Copier<TileA, A_BYTES>;
using CopierB = Copier<TileB, B_BYTES>;
using WarpFragment = Fragment<WARP_M, WARP_N>;
using WarpPlace = Place<WARPS_M, WARP_M, WARP_N>;
using WarpSums = Sums<float[4], WARP_M, WARP_N>;

inline __device__ void multiply_add(WarpSums &sums, const WarpFragment &fragment)
{
#pragma unroll
    for (unsigned i = 0; i < WARP_M / INSTRUCTION_M; ++i)
#pragma unroll
        for (unsigned j = 0; j < WARP_N / INSTRUCTION_N; ++j) {
            const unsigned *a = fragment.a[i], *b = &fragment.b[j / 2][j % 2 * 2]; // k 0 to 7, and 8 to 15
            if constexpr (AMPERE) {
                tensor_core::multiply_add_16x8x16<Element>(sums.at[i][j], fragment.a[i], b[0], b[1]);
            } else {
                tensor_core::multiply_add_16x8x8(sums.at[i][j], a[0], a[1], b[0]);
                tensor_core::multiply_add_16x8x8(sums.at[i][j], a[2], a[3], b[1]);
            }
        }
}

// What a warp reads of a stage.
struct Reader {
    WarpPlace place;
    LaneRow lane_a, lane_b;

    __device__ Reader(unsigned warp) : place(warp), lane_a(!TileA::ALONG_K), lane_b(TileB::ALONG_K) {}

    __device__ void read(WarpFragment &fragment, const Stage &stage, unsigned slice) const
    {
        fragment.load<TileA, TileB, TileA::ALONG_K, TileB::ALONG_K>(stage.a, stage.b, place, lane_a, lane_b,
                                                                    slice * SLICE_K);
    }
};

// Adds up all steps with two stages, where copies go by way of registers, or one operand's do. They run one step ahead
// of the sums; the first turn only copies.
inline __device__ void sum_steps_of_two_stages(WarpSums &sums, Shared &shared, CopierA &copier_a, CopierB &copier_b,
                                               const Reader &reader, unsigned steps)
{
#pragma unroll 1
    for (unsigned turn = 0; turn <= steps; ++turn) {
        const bool more = turn < steps;
        Stage &now = shared.stages[(turn + 1) % 2], &next = shared.stages[turn % 2];
        if (more) copier_a.start(next.a), copier_b.start(next.b);
        if (turn > 0) {
#pragma unroll
            for (unsigned slice = 0; slice < SLICES; ++slice) {
                WarpFragment fragment;
                reader.read(fragment, now, slice);
                multiply_add(sums, fragment);
            }
        }
        if (more) copier_a.keep(next.a), copier_b.keep(next.b);
        if (AMPERE) async_copy::wait_for_all(); // for those that are asynchronous
        __syncthreads(); // the next step's tiles are whole, and this one's have been read
    }
}

// Adds up all steps. The copies run AHEAD steps ahead of the sums, each step's in a group, an empty one at the end.
inline __device__ void sum_steps(WarpSums &sums, Shared &shared, CopierA &copier_a, CopierB &copier_b,
                                 const Reader &reader, unsigned steps)
{
    constexpr unsigned AHEAD = STAGES - 1;
#pragma unroll 1
    for (unsigned step = 0; step < AHEAD; ++step) {
        if (step < steps) {
            Stage &stage = shared.stages[step];
            copier_a.start(stage.a), copier_b.start(stage.b);
        }
        async_copy::commit();
    }
    async_copy::wait<AHEAD - 1>();
    __syncthreads();

    WarpFragment fragments[2]; // one is read while the other is used
    if (steps > 0) reader.read(fragments[0], shared.stages[0], 0);
    unsigned slot = 0, free = AHEAD; // of this step, and of the step before it, which all have read
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        const bool more = step + AHEAD < steps;
        const unsigned next = slot + 1 == STAGES ? 0 : slot + 1;
#pragma unroll
        for (unsigned slice = 0; slice < SLICES; ++slice) {
            if (slice + 1 < SLICES) {
                reader.read(fragments[(slice + 1) % 2], shared.stages[slot], slice + 1);
            } else {
                async_copy::wait<AHEAD - 1>(); // this thread's copies for the next step have landed,
                __syncthreads();               // and those of all; and the slot of this step has been read
                if (step + 1 < steps) reader.read(fragments[0], shared.stages[next], 0);
            }
            if (slice == 0) {
                if (more) copier_a.start(shared.stages[free].a), copier_b.start(shared.stages[free].b);
                async_copy::commit();
            }
            multiply_add(sums, fragments[slice % 2]);
        }
        free = slot, slot = next;
    }
}

inline __device__ auto round_pair(float2 sums)
{
    if constexpr (AMPERE)
        return narrow_pair<Result>(sums);
    else
        return narrow_each<Result>(sums); // NOTE: Turing has no instruction that rounds two
}

// Two neighbouring sums become results: those inside of C go through the epilogue, and all are rounded.
struct Finish {
    const Epilogue &epilogue;
    unsigned rows, columns;

    template <bool INSIDE> __device__ auto make(float2 sums, unsigned row, unsigned column) const
    {
        if (INSIDE || (row < rows && column < columns)) sums.x = epilogue(sums.x, row, column);
        if (INSIDE || (row < rows && column + 1 < columns)) sums.y = epilogue(sums.y, row, column + 1);
        return round_pair(sums);
    }
};

// What a warp gathers rows as, where the stages were: sums, if something is still to be done to them.
template <bool FINISHED> struct GatheredAs {
    using Type = Result;
};
template <> struct GatheredAs<false> {
    using Type = float;
};
using Rows = RowStage<GatheredAs<SPLIT == 1 && Epilogue::PLAIN>::Type, WARP_N>;
static_assert(sizeof(Rows) * WARPS_M * WARPS_N <= sizeof(Shared), "the rows lie where the stages were");

// Writes a tile of C. NOTE: a template, so that only what there are rows for is compiled.
template <typename WarpRows, typename Epilogue>
inline __device__ void write_results(WarpSums &sums, WarpRows &rows, Matrix<Result> c, unsigned row, unsigned column,
                                     const WarpPlace &place, const Epilogue &epilogue)
{
    if constexpr (Epilogue::PLAIN) {
        sums.write<round_pair>(c, row, column, place, rows);
    } else if constexpr (Epilogue::has_sums()) {
        typename Epilogue::template Added<1> all[2];
        const FinishAndAdd<WARP_N, round_pair, Epilogue> finish = {epilogue, c.height, c.width, all};
        sums.finish_and_write(c, row, column, place, rows, finish);
        finish.put_columns(row + place.row, column + place.column, WARP_M);
    } else {
        sums.finish_and_write(c, row, column, place, rows, Finish{epilogue, c.height, c.width});
    }
}

// The blocks of a stack's first matrix come first, then those of the next; those of a part of K lie along y. With
// SPLIT `c` holds the sums of all parts: the outer axis of its stack are the parts, the inner one the matrices.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT)
    mma_gemm(Strided<const Element> a, Strided<const Element> b, Strided<Result> c, float *parts, unsigned inner_count,
             const __grid_constant__ Epilogue epilogue)
{
    extern __shared__ __align__(128) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    const unsigned tile_rows = c.rows / BLOCK_M + (c.rows % BLOCK_M != 0);
    const unsigned tile_columns = c.columns / BLOCK_N + (c.columns % BLOCK_N != 0);
    const unsigned tiles = tile_rows * tile_columns, matrix = blockIdx.x / tiles;
    const unsigned outer = matrix / inner_count, inner = matrix % inner_count;
    const TileIndex tile = grouped(blockIdx.x % tiles, tile_rows, tile_columns);
    const unsigned row = tile.row * BLOCK_M, column = tile.column * BLOCK_N;

    const unsigned all = a.columns / BLOCK_K + (a.columns % BLOCK_K != 0), part = SPLIT == 1 ? 0 : blockIdx.y;
    const unsigned begin = SPLIT == 1 ? 0 : all * part / SPLIT, end = SPLIT == 1 ? all : all * (part + 1) / SPLIT;
    CopierA copier_a(a.in_stack(outer, inner), A_IN_ROWS ? a.row_stride : a.column_stride, c.rows, row,
                     begin * BLOCK_K, a.columns);
    CopierB copier_b(b.in_stack(outer, inner), B_IN_ROWS ? b.row_stride : b.column_stride, c.columns, column,
                     begin * BLOCK_K, a.columns);
    const unsigned warp = threadIdx.x / LANES;
    const Reader reader(warp);
    WarpSums sums = {};
    if constexpr (STAGES > 2)
        sum_steps(sums, shared, copier_a, copier_b, reader, end - begin);
    else
        sum_steps_of_two_stages(sums, shared, copier_a, copier_b, reader, end - begin);

    auto &rows = reinterpret_cast<Rows *>(dynamic)[warp];
#if SPLIT > 1
    const unsigned pitch = (c.columns + 3) / 4 * 4, matrices = gridDim.x / tiles;
    float *own = parts + (size_t(part) * matrices + matrix) * c.rows * pitch;
    sums.write<narrow_pair<float32>>(Matrix<float>{pitch, c.rows, pitch, own}, row, column, reader.place, rows);
#else
    const Matrix<Result> whole = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(outer, inner)};
    write_results(sums, rows, whole, row, column, reader.place, epilogue.in_stack(outer, inner));
#endif
}

// Adds up the parts, from the first to the last. One thread for four neighbours in a row of C, one row of blocks of
// threads for each matrix.
struct alignas(4 * sizeof(Result)) Quad {
    Result at[4];
};

extern "C" __global__ void __launch_bounds__(256)
    mma_add(const float *parts, Strided<Result> c, unsigned count, unsigned inner_count, unsigned aligned,
            const __grid_constant__ Epilogue epilogue)
{
    const unsigned quads = (c.columns + 3) / 4, in_matrix = c.rows * quads;
    const unsigned blocks = in_matrix / blockDim.x + (in_matrix % blockDim.x != 0);
    const unsigned matrix = blockIdx.x / blocks, matrices = gridDim.x / blocks;
    const unsigned index = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (index >= in_matrix) return;

    const size_t part = size_t(in_matrix) * matrices; // in quads
    const float4 *from = reinterpret_cast<const float4 *>(parts) + (size_t(matrix) * in_matrix + index);
    float4 sum = *from;
#pragma unroll 4
    for (unsigned i = 1; i < count; ++i) {
        const float4 more = from[i * part];
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    const unsigned outer = matrix / inner_count, inner = matrix % inner_count;
    const Epilogue here = epilogue.in_stack(outer, inner);
    const unsigned row = index / quads, column = index % quads * 4;
    Result *to = c.in_stack(outer, inner) + (row * c.row_stride + column);
    const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
    Quad quad = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        if (column + i < c.columns) quad.at[i] = narrow<Result>(here(sums[i], row, column + i));
    if (aligned && column + 4 <= c.columns) {
        *reinterpret_cast<Quad *>(to) = quad;
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        if (column + i < c.columns) to[i] = quad.at[i];
}
