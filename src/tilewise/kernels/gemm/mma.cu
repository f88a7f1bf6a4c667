// Products of matrices by mma.sync, a whole stack of them in one launch: C[z] = A[z]·B[z]. Of 16-bit elements on every
// GPU since Turing, with sums in float32, or of float16 also in float16; since Ampere of float32, rounded to tf32, of
// float64 and of int8, with sums in int32; since Ada of float8.
//
// Copies fill a ring of stages several steps ahead of the sums. A and B may lie in rows or in columns (those
// of 8 bits along K), aligned for anything: copies are asynchronous (cp.async, from Ampere on) where lines begin at
// multiples of 4 bytes, of 16 if they can be, and go by way of registers otherwise. On Hopper the copy engine may bring
// operands of float64 (BOXES), as in tilewise/double_tile.cuh: copies then take hardly an instruction or a register, so
// that what multiplies can be twice as deep. Operands of the next instructions are on their way from shared memory while
// these run, across steps too. Where C has few tiles but K is long, blocks side by side have a part of K each, and
// add_parts.cu adds up what they have, always in the order of the parts, so that the result has the same bits every
// time. With a TAIL those are parts of the last tiles alone, too few to be one for each SM.
// Tiles: block BLOCK_M×BLOCK_N×BLOCK_K, warp WARP_M×WARP_N×SLICE_K, instruction 16×8×16 (16×8×8 on Turing and in tf32;
// of 8 bits 16×8×32; of float64 8×8×4, since Hopper 16×8×4, of boxes 16×8×8).
#include <tilewise/async_copy.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/double_tile.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/finish_and_add.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/mma_fragment.cuh>
#include <tilewise/parts_of_k.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/strided.cuh>
#include <tilewise/term_scales.cuh>
#include <tilewise/tile_copier.cuh>

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
#ifndef TAIL // 1: of the last tiles alone, the others are whole
#define TAIL 0
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
#ifndef WHOLE_COPIES // 1: those of 16 bytes bring all of them, or none
#define WHOLE_COPIES 0
#endif
#ifndef BOXES // 1: the copy engine brings A and B, which are of float64
#define BOXES 0
#endif
#ifndef WHOLE // 1: C has whole tiles alone
#define WHOLE 0
#endif
#ifndef WHOLE_ROWS // 1: C's rows begin and end at multiples of 16 bytes
#define WHOLE_ROWS 0
#endif
#ifndef SINGLE // 1: there is one product, no stack
#define SINGLE 0
#endif
#ifndef ELEMENT
#define ELEMENT float16 // or bfloat16, float32 (multiplied in tf32), float64, int8, from Ampere on, or float8
#endif
#ifndef B_ELEMENT
#define B_ELEMENT ELEMENT // or the other float8
#endif
#ifndef SCALES_A // rows of A that share a scale for each 128 of K; 0: there are no such scales
#define SCALES_A 0
#endif
#ifndef SCALES_B // the same of columns of B
#define SCALES_B 0
#endif
#ifndef ACCUMULATE // what sums are kept in: float16 as well, of float16; of int8 with scales float32
#define ACCUMULATE MmaForm<ELEMENT>::Sum
#endif
#ifndef RESULT
#define RESULT ELEMENT // or any of float16, bfloat16, float32 and 8 bits, but of float64 itself alone; of int8 int32
#endif

using Element = ELEMENT;
using ElementB = B_ELEMENT;
using Result = RESULT;
using Scales = TermScales<SCALES_A, SCALES_B>;

// What sums are added up in beyond the tensor cores; scaled ones are numbers, also of integers.
template <bool SCALED> struct SumBeyond {
    using Type = MmaForm<Element>::Sum;
};
template <> struct SumBeyond<true> {
    using Type = float;
};
using Sum = SumBeyond<Scales::ANY>::Type;

[[maybe_unused]] constexpr Access ACCESS = WHOLE_ROWS ? Access::ALL_WIDE : Access::AS_ALIGNED;
constexpr bool AMPERE = __CUDA_ARCH__ >= 800;
constexpr bool FLOAT8 = sizeof(Element) == 1 && !SAME<Element, int8>; // of whose sums the tensor cores keep too few places
constexpr bool IN_RUNS = FLOAT8 || Scales::ANY;                       // which has scales in common
constexpr unsigned SLICE_K = BOXES ? DoubleFragment<16, 8>::SLICE_K : MmaForm<Element>::SLICE_K; // what a fragment is deep
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * LANES;
constexpr unsigned SLICES = BLOCK_K / SLICE_K; // of a step
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warp tiles cover the block's");
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "an ldmatrix brings 16 rows, or 16 columns");
static_assert(SLICES % 2 == 0, "two fragments take turns");
static_assert(STAGES >= 2, "copies go to one stage while another is read");
static_assert(STAGES == 2 || AMPERE && A_BYTES >= 4 && B_BYTES >= 4, "by way of registers copies are one step ahead");
static_assert(AMPERE || SAME<Element, float16>, "what Turing's tensor cores multiply");
static_assert(__CUDA_ARCH__ >= 890 || !FLOAT8, "what Ampere's tensor cores multiply");
static_assert(!BOXES || __CUDA_ARCH__ >= 900 && SAME<Element, float64> && BLOCK_K == 16 && STAGES > 2, "what boxes are for");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

using WarpPlace = Place<WARPS_M, WARP_M, WARP_N>;
#if BOXES
using TileA = DoubleTile<BLOCK_M, A_IN_ROWS, !SINGLE>;
using TileB = DoubleTile<BLOCK_N, !B_IN_ROWS, !SINGLE>;
using Shared = BoxStages<TileA, TileB, STAGES>;
using WarpFragment = DoubleFragment<WARP_M, WARP_N>;
using WarpSums = Sums<double[4], WARP_M, WARP_N, TileA::CHANGED, TileB::CHANGED>;
#else
using TileA = MmaTile<Element, BLOCK_M, BLOCK_K, A_IN_ROWS>;
using TileB = MmaTile<ElementB, BLOCK_N, BLOCK_K, !B_IN_ROWS>;
struct Stage {
    TileA::Chunks a;
    TileB::Chunks b;
};
struct Shared {
    Stage stages[STAGES];
};
using CopierA = Copier<Element, TileA, BLOCK_K, BLOCK_THREADS, A_BYTES, WHOLE_COPIES>;
using CopierB = Copier<ElementB, TileB, BLOCK_K, BLOCK_THREADS, B_BYTES, WHOLE_COPIES>;
using WarpFragment = MmaFragment<TypesOf<Element, ElementB>::Both, WARP_M, WARP_N>;
using WarpSums = Sums<tensor_core::SumsIn<ACCUMULATE>::Type, WARP_M, WARP_N>;
#endif
#ifdef SHARED_BYTES
static_assert(sizeof(Shared) == SHARED_BYTES, "the launch asks for that much shared memory");
#endif
using SumPair = WarpSums::SumPair;

// How a warp adds up: at once.
template <bool IN_RUNS> struct Adder {
    WarpSums sums = {};

    __device__ Adder(const Scales &, unsigned, unsigned) {}

    __device__ void add(WarpFragment &fragment) { fragment.multiply_add(sums); }
    __device__ void end_step(unsigned, unsigned) {}
};

// Or in runs of 128 of K, each of which is added to the others in float32, times its scales if there are any.
template <> struct Adder<true> {
    static constexpr unsigned RUN = SCALED_TERMS / BLOCK_K; // steps
    static_assert(SCALED_TERMS % BLOCK_K == 0, "a run is whole steps");
    WarpSums sums = {};
    Sums<tensor_core::SumsIn<MmaForm<Element>::Sum>::Type, WARP_M, WARP_N> run = {};
    const Scales &scales;
    unsigned row, column; // of the thread's first sum in C

    // The warp's first sum is at `row` and `column`.
    __device__ Adder(const Scales &scales, unsigned row, unsigned column)
        : scales(scales), row(row + threadIdx.x % LANES / 4), column(column + threadIdx.x % 4 * 2)
    {
    }

    __device__ void add(WarpFragment &fragment) { fragment.multiply_add(run); }

    // NOTE: of K as a whole, as scales are, where this is a part of it.
    __device__ void end_step(unsigned step, unsigned steps)
    {
        if (step % RUN != RUN - 1 && step + 1 != steps) return;
#pragma unroll
        for (unsigned i = 0; i < WarpSums::DOWN; ++i)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const Sum of_row = scales.of_a(row + i * 16 + half * 8, step / RUN);
#pragma unroll
                for (unsigned j = 0; j < WarpSums::ACROSS; ++j)
#pragma unroll
                    for (unsigned pair = 0; pair < 2; ++pair) {
                        auto &product = run.at[i][j][half * 2 + pair];
                        const Sum scale = of_row * scales.of_b(column + j * 8 + pair, step / RUN);
                        sums.at[i][j][half * 2 + pair] += Sum(product) * scale, product = 0;
                    }
            }
    }
};
using WarpAdder = Adder<IN_RUNS>;

#if !BOXES
// What a warp reads of a stage.
struct Reader {
    WarpPlace place;
    LaneRow lane_a, lane_b;

    __device__ Reader(unsigned warp) : place(warp), lane_a(!TileA::ALONG_K), lane_b(TileB::ALONG_K) {}

    __device__ void read(WarpFragment &fragment, const Stage &stage, unsigned slice) const
    {
        fragment.read<TileA, TileB>(stage.a, stage.b, place, lane_a, lane_b, slice * SLICE_K);
    }
};

// Adds up all steps with two stages, where copies go by way of registers, or one operand's do. They run one step ahead
// of the sums; the first turn only copies.
inline __device__ void sum_steps_of_two_stages(WarpAdder &adder, Shared &shared, CopierA &copier_a, CopierB &copier_b,
                                               const Reader &reader, unsigned begin, unsigned end)
{
    const unsigned steps = end - begin;
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
                adder.add(fragment);
            }
            adder.end_step(begin + turn - 1, end);
        }
        if (more) copier_a.keep(next.a), copier_b.keep(next.b);
        if (AMPERE) async_copy::wait_for_all(); // for those that are asynchronous
        __syncthreads(); // the next step's tiles are whole, and this one's have been read
    }
}

// Adds up all steps. The copies run AHEAD steps ahead of the sums, each step's in a group, an empty one at the end.
inline __device__ void sum_steps(WarpAdder &adder, Shared &shared, CopierA &copier_a, CopierB &copier_b,
                                 const Reader &reader, unsigned begin, unsigned end)
{
    constexpr unsigned AHEAD = STAGES - 1;
    const unsigned steps = end - begin;
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
            adder.add(fragments[slice % 2]);
        }
        adder.end_step(begin + step, end);
        free = slot, slot = next;
    }
}
#endif

template <typename Pair> inline __device__ auto round_pair(Pair sums)
{
    if constexpr (SAME<Result, Sum>)
        return sums;
    else if constexpr (AMPERE && sizeof(Result) > 1)
        return narrow_pair<Result>(sums);
    else
        return narrow_each<Result>(sums); // NOTE: Turing has no instruction that rounds two, nor have integers
}

inline __device__ float2 as_pair(float x, float y) { return {x, y}; }
inline __device__ double2 as_pair(double x, double y) { return {x, y}; }

// Two neighbouring sums become results: those inside of C go through the epilogue, and all are rounded.
struct Finish {
    using One = Epilogue::Given<1>;
    struct Given {
        One x, y;
    };

    const Epilogue &epilogue;
    unsigned rows, columns;

    template <bool INSIDE> __device__ Given read(unsigned row, unsigned column) const
    {
        Given given = {};
        if (lies_inside<INSIDE>(row, column)) given.x = epilogue.read<1>(row, column);
        if (lies_inside<INSIDE>(row, column + 1)) given.y = epilogue.read<1>(row, column + 1);
        return given;
    }

    template <bool INSIDE> __device__ auto make(SumPair sums, const Given &given, unsigned row, unsigned column) const
    {
        return round_pair(as_pair(make_one<INSIDE>(sums.x, given.x, row, column),
                                  make_one<INSIDE>(sums.y, given.y, row, column + 1)));
    }

  private:
    template <bool INSIDE> __device__ bool lies_inside(unsigned row, unsigned column) const
    {
        return INSIDE || (row < rows && column < columns);
    }

    // NOTE: of int32 sums float32 becomes results.
    template <bool INSIDE> __device__ auto make_one(Sum sum, const One &given, unsigned row, unsigned column) const
    {
        decltype(epilogue(sum, row, column)) one[1] = {decltype(epilogue(sum, row, column))(sum)};
        if (lies_inside<INSIDE>(row, column)) epilogue.apply(one, given, row, column);
        return one[0];
    }
};

// What a warp gathers rows as, where the stages were: sums, if something is still to be done to them.
template <bool FINISHED> struct GatheredAs {
    using Type = Result;
};
template <> struct GatheredAs<false> {
    using Type = Sum;
};
using Rows = RowStage<GatheredAs<Epilogue::PLAIN>::Type, WARP_N>;
using PartRows = RowStage<Sum, WARP_N>;
constexpr unsigned ROW_BYTES = SPLIT > 1 && sizeof(PartRows) > sizeof(Rows) ? sizeof(PartRows) : sizeof(Rows); // of a warp
static_assert(ROW_BYTES * WARPS_M * WARPS_N <= sizeof(Shared), "the rows lie where the stages were");
static_assert(SPLIT > 1 || !TAIL, "whose tiles are in parts");

// Writes a tile of C. NOTE: a template, `Pair` too, so that only what there are rows for, and what sums are rounded to
// without an epilogue, is compiled: int32 becomes float16 by way of an epilogue alone.
template <typename Pair, typename WarpRows, typename Epilogue>
inline __device__ void write_results(WarpSums &sums, WarpRows &rows, Matrix<Result> c, unsigned row, unsigned column,
                                     const WarpPlace &place, const Epilogue &epilogue)
{
    if constexpr (Epilogue::PLAIN) {
        sums.write<round_pair<Pair>, ACCESS>(c, row, column, place, rows);
    } else if constexpr (Epilogue::has_sums()) {
        typename Epilogue::template Added<1> all[2];
        const FinishAndAdd<WARP_N, round_pair<Pair>, Epilogue> finish = {epilogue, c.height, c.width, all};
        sums.finish_and_write<ACCESS, WHOLE>(c, row, column, place, rows, finish);
        finish.put_columns(row + place.row, column + place.column, WARP_M);
    } else {
        sums.finish_and_write<ACCESS, WHOLE>(c, row, column, place, rows, Finish{epilogue, c.height, c.width});
    }
}

// The blocks of a stack's first matrix come first, then those of the next; those of a part of K lie along y. `parts` has
// the sums of all matrices, and behind them those of the next part. With a TAIL so many tiles are `whole`, and `parts` has
// the sums of the others, one behind another; their blocks come behind the whole tiles'.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT)
#if BOXES
    mma_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, unsigned depth,
             Strided<Result> c, Sum *parts,
#else
    mma_gemm(Strided<const Element> a, Strided<const ElementB> b, Strided<Result> c, Sum *parts,
#endif
             const __grid_constant__ Stack stack,
#if TAIL
             unsigned whole,
#endif
#if SCALES_A || SCALES_B
             const __grid_constant__ Scales scales,
#endif
             const __grid_constant__ Epilogue epilogue)
{
#if !(SCALES_A || SCALES_B)
    constexpr Scales scales = {};
#endif
#if !TAIL
    constexpr unsigned whole = 0;
#endif
    extern __shared__ __align__(BOXES ? 1024 : 128) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);
#if !BOXES
    const unsigned depth = a.columns;
#endif
    const unsigned tile_rows = c.rows / BLOCK_M + (c.rows % BLOCK_M != 0);
    const unsigned tile_columns = c.columns / BLOCK_N + (c.columns % BLOCK_N != 0);
    const unsigned tiles = tile_rows * tile_columns;
    const Share share =
        TAIL ? Share::in_tail(blockIdx.x, tiles, whole) : Share{blockIdx.x, SPLIT > 1 ? blockIdx.y : 0, SPLIT > 1};
    const unsigned matrix = SINGLE ? 0 : share.tile / tiles;
    const InStack which = SINGLE ? InStack{} : stack[matrix];
    const TileIndex tile = grouped(SINGLE ? share.tile : share.tile % tiles, tile_rows, tile_columns);
    const unsigned row = tile.row * BLOCK_M, column = tile.column * BLOCK_N;

    const unsigned all = depth / BLOCK_K + (depth % BLOCK_K != 0), part = share.part;
    const unsigned begin = share.in_parts ? all * part / SPLIT : 0, end = share.in_parts ? all * (part + 1) / SPLIT : all;
    const unsigned warp = threadIdx.x / LANES;
#if BOXES
    const WarpPlace place(warp);
    const BoxLoader loader = {map_a, map_b, stack.of_a(which), stack.of_b(which), row, column};
    if (threadIdx.x == 0) {
        tensor_copy::prefetch(map_a), tensor_copy::prefetch(map_b);
        shared.ring.init(WARPS_M * WARPS_N);
    }
    __syncthreads(); // the barriers are there
#else
    CopierA copier_a(a.in_stack(stack.of_a(which)), A_IN_ROWS ? a.row_stride : a.column_stride, c.rows, row,
                     begin * BLOCK_K, a.columns);
    CopierB copier_b(b.in_stack(stack.of_b(which)), B_IN_ROWS ? b.row_stride : b.column_stride, c.columns, column,
                     begin * BLOCK_K, a.columns);
    const Reader reader(warp);
    const WarpPlace &place = reader.place;
#endif
    const Scales of_terms = Scales::ANY ? scales.in_stack(which, which) : scales;
    WarpAdder adder(of_terms, row + place.row, column + place.column);
    dependent_launch::wait_for_previous(row);
    dependent_launch::let_next_begin();
    // To L2, before the products: else the tile ends with a wait for memory.
    if constexpr (!Epilogue::PLAIN && (SPLIT == 1 || TAIL))
        epilogue.in_stack(stack, which)
            .prefetch_lines(min(row + threadIdx.x, c.rows - 1), min(column + threadIdx.x, c.columns - 1));
#if BOXES
    sum_steps_of_boxes<WarpFragment>(adder, shared, loader, LaneOffsets::of<TileA, TileB>(place), begin, end);
#else
    if constexpr (STAGES > 2)
        sum_steps(adder, shared, copier_a, copier_b, reader, begin, end);
    else
        sum_steps_of_two_stages(adder, shared, copier_a, copier_b, reader, begin, end);
#endif
    WarpSums &sums = adder.sums;

#if SPLIT > 1
    if (share.in_parts) {
        auto &rows = reinterpret_cast<PartRows *>(dynamic)[warp];
#if TAIL
        Sum *own = parts + (size_t(part) * (tiles - whole) + (share.tile - whole)) * (BLOCK_M * BLOCK_N);
        sums.write<keep_pair<SumPair>>(Matrix<Sum>{BLOCK_N, BLOCK_M, BLOCK_N, own}, 0, 0, place, rows);
#else
        const unsigned pitch = (c.columns + 3) / 4 * 4, matrices = gridDim.x / tiles;
        Sum *own = parts + (size_t(part) * matrices + matrix) * c.rows * pitch;
        sums.write<keep_pair<SumPair>>(Matrix<Sum>{pitch, c.rows, pitch, own}, row, column, place, rows);
#endif
        return;
    }
#endif
#if SPLIT == 1 || TAIL
    auto &rows = reinterpret_cast<Rows *>(dynamic)[warp];
    const Matrix<Result> to = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(stack.of_c(which))};
    write_results<SumPair>(sums, rows, to, row, column, place, epilogue.in_stack(stack, which));
#endif
}
