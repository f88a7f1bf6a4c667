// Products of matrices of 16 bits, of 8 bits, or of float32 in tf32, on the tensor cores of Hopper, a whole stack of them
// in one launch: C[z] = A[z]·B[z]. Sums are float32, float16 of float16, or int32 of int8.
//
// One warpgroup copies boxes of A and B into a ring of stages (TMA); the others multiply them from there (wgmma),
// each a part of the block's tile, and store results through boxes of their own. A and B may lie in rows or in
// columns: the tensor cores read either; of float32 and of 8 bits they read lines along K alone, so A's columns of float32
// go by way of registers (tilewise/transposed_tile.cuh). The copy engine rounds float32 to tf32 on its way, as the maps
// say. The tensor cores keep few places of sums of 8-bit floating-point numbers, so those of 128 of K at a time are added
// up in float32 beside them, times scales if there are such for each 128 of K (tilewise/term_scales.cuh). A may have 8 bits
// beside 16 of B: then it goes by way of registers, where it is widened, exactly (tilewise/widened_tile.cuh). Blocks stay
// for several tiles. Either all warpgroups have a part of each tile, or every warpgroup has tiles of its own (PINGPONG),
// and while one stores its results another one multiplies. Blocks of a cluster share what they load, those below one
// another B, those side by side A; or each has a part of K, and they add up what they have, in the order of their ranks,
// so that the result has the same bits every time.
// Operands may be EXCHANGED: then A and B here are the transposes of B and A, and the tile is one of C's transpose.
// Rows of A may be GROUPED: each group is multiplied by a matrix of B of its own. Where groups end is read on the
// device, and blocks walk over the tiles of all of them.
// Tiles: block BLOCK_M×BLOCK_N×64, warpgroup WARPGROUP_M×BLOCK_N×64, instruction 64×BLOCK_N×16; in tf32 half as deep,
// of 8 bits twice.
#ifndef BLOCK_N
#define BLOCK_N 256
#endif
#define INSTRUCTION_N BLOCK_N // says wgmma.cuh what to compile
#include <tilewise/block_tiles.cuh>
#include <tilewise/cluster.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/loaded_tile.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/named_barrier.cuh>
#include <tilewise/parts_of_k.cuh>
#include <tilewise/plain_epilogue.cuh>
#include <tilewise/ring.cuh>
#include <tilewise/stored_tile.cuh>
#include <tilewise/strided.cuh>
#include <tilewise/sum_registers.cuh>
#include <tilewise/tensor_copy.cuh>
#include <tilewise/term_scales.cuh>
#include <tilewise/tile_products.cuh>

#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef CONSUMERS // warpgroups that multiply
#define CONSUMERS 2
#endif
#ifndef PINGPONG // 1: each of them a whole tile in turns; 0: all of them the same one, below one another
#define PINGPONG 0
#endif
#ifndef EXCHANGED
#define EXCHANGED 0
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER_M // blocks below one another that share B
#define CLUSTER_M 1
#endif
#ifndef CLUSTER_N // blocks side by side that share A
#define CLUSTER_N 1
#endif
#ifndef RESIDENT // blocks that an SM holds at once
#define RESIDENT 1
#endif
#ifndef SPLIT // blocks of a cluster that have a part of K each
#define SPLIT 1
#endif
#ifndef PARTS // of K, over the clusters: each leaves its sums in memory, for add_parts.cu
#define PARTS 1
#endif
#ifndef A_IN_ROWS // 0: in columns
#define A_IN_ROWS 1
#endif
#ifndef B_IN_ROWS
#define B_IN_ROWS 1
#endif
#ifndef STACKED // 1: maps of four axes, two of them of the stack
#define STACKED 0
#endif
#ifndef GROUPED // 1: the stack of B has a matrix for each group of A's rows, and A and C are none
#define GROUPED 0
#endif
#ifndef WHOLE // 1: C has whole tiles alone, whole rows, and the epilogue's arrays rows that begin so
#define WHOLE 0
#endif
#ifndef WHOLE_ROWS // 1: C's rows begin and end at multiples of 16 bytes
#define WHOLE_ROWS WHOLE
#endif
#ifndef ELEMENT
#define ELEMENT bfloat16 // or float16, float8_e4m3fn, float8_e5m2, int8, or float32, which is multiplied in tf32
#endif
#ifndef A_ELEMENT
#define A_ELEMENT ELEMENT // or the other float8; or, of an ELEMENT of 16 bits, a type of 8 that is widened on its way
#endif
#ifndef SCALES_A // rows of A that share a scale for each 128 of K; 0: there are no such scales
#define SCALES_A 0
#endif
#ifndef SCALES_B // the same of columns of B
#define SCALES_B 0
#endif
#ifndef ACCUMULATE // what sums are kept in: float32, of float16 also float16, of int8 without scales int32
#define ACCUMULATE float32
#endif
#ifndef RESULT
#define RESULT ELEMENT // or float32, or a type of 8 bits
#endif

using Element = ELEMENT;
#if PARTS > 1 // what a block stores, and what happens to it before
using Result = float;
using Fused = PlainEpilogue;
#else
using Result = RESULT;
using Fused = Epilogue;
#endif

constexpr unsigned WARP = 32, WARPGROUP = 4 * WARP, INSTRUCTION_M = 64;
constexpr unsigned BLOCK_THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr unsigned ROW_BYTES = 128, BLOCK_K = ROW_BYTES / sizeof(A_ELEMENT); // what the engine swizzles
constexpr unsigned TILES_OF_B = sizeof(Element) / sizeof(A_ELEMENT); // as deep as one of A between them
constexpr unsigned SHARERS = CLUSTER_M * CLUSTER_N, CLUSTER = SHARERS * SPLIT;
constexpr bool IN_STEPS = sizeof(Element) == 1 && !SAME<ACCUMULATE, int32>, WIDENS = sizeof(A_ELEMENT) < sizeof(Element);
static_assert(!WIDENS || (sizeof(Element) == 2 && A_IN_ROWS), "bytes along K to 16 bits");
using Scales = TermScales<SCALES_A, SCALES_B>;
using ScalesOfStage = StageScales<SCALES_A, SCALES_B, BLOCK_M, BLOCK_N>;
static_assert(!Scales::ANY || ((IN_STEPS || WIDENS) && BLOCK_K == SCALED_TERMS && !POINTERS),
              "a step has scales in common");
static_assert(!(IN_STEPS || WIDENS) || !PINGPONG, "warpgroups multiply by turns anyway");
static_assert(sizeof(A_ELEMENT) != 4 || A_IN_ROWS || !PINGPONG, "who multiplies alone would wait for its reads");
static_assert(!SAME<ACCUMULATE, int32> || PARTS == 1, "sums that are left in memory are float32");
static_assert(SPLIT == 1 || (SHARERS == 1 && !PINGPONG), "blocks that split K share nothing else");
static_assert(PARTS == 1 || (!PINGPONG && !STACKED && !GROUPED), "a block has one tile of one matrix");
static_assert(!POINTERS || STACKED, "maps of a stack reach all memory");
static_assert(!GROUPED || (CLUSTER == 1 && !EXCHANGED && !STACKED), "every block walks alone");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// Whether a lane has neighbours of an instruction's rows (tilewise/sum_registers.cuh), so that A's rows are read from all
// banks.
constexpr bool PAIRED = sizeof(A_ELEMENT) == 4 && !A_IN_ROWS;

constexpr unsigned TOGETHER = PINGPONG ? 1 : CONSUMERS; // warpgroups that have a tile together
constexpr unsigned WARPGROUP_M = BLOCK_M / TOGETHER, WARPGROUP_N = BLOCK_N;
constexpr unsigned ROWS_64 = WARPGROUP_M / INSTRUCTION_M; // instructions below one another
static_assert(WARPGROUP_M % INSTRUCTION_M == 0, "whole instructions");

// Copying takes few registers, so that the threads that multiply may have more.
// NOTE: all that a block of an SM's only one has. Whoever wants more than there are waits for ever.
constexpr bool SHIFT_REGISTERS = CONSUMERS > 1 && SPLIT == 1 && RESIDENT == 1;
constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40, CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232;
static_assert((PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) * WARPGROUP <= 65536, "all there are");

// NOTE: rows of B come 64 columns at a time: the last of them may be beyond the tile.
constexpr unsigned COLUMNS_OF_B = B_IN_ROWS ? (BLOCK_N + 63) / 64 * 64 : BLOCK_N;

// Whether the last tiles of A and B have maps of their own. NOTE: where groups of rows end is known on the device alone.
constexpr bool A_ENDS = A_IN_ROWS && CLUSTER_N == 1 && !GROUPED && !WHOLE, B_ENDS = !B_IN_ROWS && CLUSTER_M == 1 && !WHOLE;
using TileOfA = OperandTile<A_ELEMENT, BLOCK_M, A_IN_ROWS, CLUSTER_N, STACKED, A_ENDS>;
using TileOfB = OperandTile<Element, COLUMNS_OF_B, !B_IN_ROWS, CLUSTER_M, STACKED || GROUPED, B_ENDS>;
struct Stage {
    TileOfA a;
    TileOfB b[TILES_OF_B];
};

struct StoredForm {
    using Result = ::Result;
    using Fused = ::Fused;
    using Wide = SumRegisterOf<ACCUMULATE>::Wide;
    static constexpr unsigned ROWS_64 = ::ROWS_64, COLUMNS = WARPGROUP_N, WARPGROUPS = CONSUMERS;
    static constexpr bool TRANSPOSED = EXCHANGED, PAIRED = ::PAIRED, OF_STACK = STACKED, IN_GROUPS = GROUPED;
    static constexpr bool IN_PARTS = PARTS > 1, IN_CLUSTERS = SPLIT > 1;
    static constexpr bool INSIDE = WHOLE, HAS_WHOLE_ROWS = WHOLE_ROWS;
    static constexpr bool SCARCE = Scales::ANY || (IN_STEPS && !Fused::PLAIN) || (WIDENS && WARPGROUP_N > 192);
};
using Stored = StoredTile<StoredForm>;

struct Shared {
    Stage stages[STAGES];
    Stored::Buffer results[CONSUMERS];
    Ring<STAGES> ring; // all warps of the blocks that share read a stage, and then each of them may write to all
    ScalesOfStage scales[STAGES]; // NOTE: last, as mostly they are not there
};
using Turn = Ring<STAGES>::Turn;
#ifdef SHARED_BYTES
static_assert(sizeof(Shared::stages) + sizeof(Shared::results) + sizeof(Shared::ring) +
                      (ScalesOfStage::ANY ? sizeof(Shared::scales) : 0) == SHARED_BYTES,
              "the launch asks for that much shared memory"); // NOTE: not for the padding at the end
#endif

struct BlockShape {
    static constexpr unsigned M = BLOCK_M, N = BLOCK_N;
    static constexpr unsigned CLUSTER_ROWS = CLUSTER_M, CLUSTER_COLUMNS = CLUSTER_N, BLOCKS = CLUSTER;
    static constexpr bool IN_GROUPS = GROUPED, OF_MATRICES = STACKED || PARTS > 1;
};
using Tiles = BlockTiles<BlockShape>; // parts of K are as matrices of a stack

using Steps = StepsOfPart<BLOCK_K, SPLIT, PARTS>;

// Waits for all threads of all consumers. NOTE: barriers from 1 on are of one each (tilewise/stored_tile.cuh).
inline __device__ void wait_for_consumers() { named_barrier::wait<CONSUMERS * WARPGROUP>(1 + CONSUMERS); }

using Loaded = LoadedTile<TileOfA, TileOfB, GROUPED>;

// Puts zeros where nothing is loaded, of a block's first tile, before anything has come.
inline __device__ void clear_rest(Shared &shared, const Loaded &own, unsigned steps)
{
    if (own.is_whole()) return;
    own.clear_rest(shared.stages, min(steps, STAGES), CONSUMERS * WARPGROUP);
    tensor_copy::fence_stores();
    wait_for_consumers();
}

// One thread copies, as far ahead as there are stages free: into the next tile too. Of a tile that has only SOME of its
// lines it fills as many stages as are `unset` to the end, since what nobody has written must not be multiplied.
// NOTE: whole tiles have a way of their own. The thread has no time for conditions at each box.
template <bool SOME>
inline __device__ void produce(Shared &shared, const OperandMaps &maps, const Loaded &own, InStack from_a, InStack from_b,
                               const Tiles &tiles, Steps steps, Turn &turn, unsigned &unset)
{
#pragma unroll 1
    for (unsigned step = steps.begin; step < steps.end; ++step, turn.next()) {
        shared.ring.wait_until_empty(turn);
        const Loaded here = SOME && unset > 0 ? own.filled() : own;
        unset -= unset > 0;
        here.load<SOME, (CLUSTER_M > 1)>(shared.stages[turn.slot], maps, step * BLOCK_K, from_a, from_b, tiles,
                                         shared.ring.full[turn.slot]);
    }
}

// A warp copies the scales that belong to each stage.
inline __device__ void copy_scales(Shared &shared, const Scales &scales, Place tile, Steps steps, Turn &turn)
{
#pragma unroll 1
    for (unsigned step = steps.begin; step < steps.end; ++step, turn.next()) {
        shared.ring.wait_until_empty(turn);
        shared.scales[turn.slot].start(scales, tile.row, tile.column, step, shared.ring.full[turn.slot]);
    }
}

using SumRegister = SumRegisterOf<ACCUMULATE>::Type;

// Where every warpgroup has tiles of its own, they multiply one after another: a slot's barrier tells this round from
// the one before, not from earlier ones. Barrier 0 is that of __syncthreads, the next ones are of consumers.
inline __device__ void wait_for_turn(unsigned group) { named_barrier::wait<2 * WARPGROUP>(2 + CONSUMERS + group); }
inline __device__ void give_turn(unsigned group) { named_barrier::arrive<2 * WARPGROUP>(2 + CONSUMERS + group); }

struct ProductForm {
    using ElementA = A_ELEMENT;
    using ElementB = Element;
    using Shared = ::Shared;
    using Turn = ::Turn;
    using Steps = ::Steps;
    using SumRegister = ::SumRegister;
    using StageScales = ScalesOfStage;
    static constexpr unsigned ROWS_64 = ::ROWS_64, COLUMNS = WARPGROUP_N, SHARERS = ::SHARERS, TILES_OF_B = ::TILES_OF_B;
    static constexpr unsigned SCALED_ROWS = SCALES_A, SCALED_COLUMNS = SCALES_B;
    static constexpr bool A_ALONG_K = A_IN_ROWS, B_ALONG_N = B_IN_ROWS;
    static __device__ void give_turn(unsigned group)
    {
        if (group < CONSUMERS) ::give_turn(group);
    }
};
using Products = TileProducts<ProductForm>;
using Sums = Products::Sums;

using PartialSums = ClusterSums<EXCHANGED ? BLOCK_N : BLOCK_M, EXCHANGED ? BLOCK_M : BLOCK_N,
                                SumRegisterOf<ACCUMULATE>::Wide, EXCHANGED, PAIRED>;
static_assert(SPLIT == 1 || sizeof(PartialSums) <= sizeof(Shared::stages), "the sums lie where the stages were");

// The maps describe A and B, and C if it has WHOLE_ROWS; `end_a` and `end_b` A and B by boxes for their last tiles, where
// those are smaller and their rows lie along K. `wide` says whether C's rows begin at multiples of 16 bytes.
// `matrices` are in the stack; or there are as many groups of rows, which end where `group_ends` has.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT)
    wgmma_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_c, const __grid_constant__ TensorMap end_a,
               const __grid_constant__ TensorMap end_b, Strided<Result> c, unsigned depth, unsigned matrices,
               const __grid_constant__ Stack stack, unsigned wide,
#if GROUPED
               const int *group_ends,
#endif
#if SCALES_A || SCALES_B
               const __grid_constant__ Scales scales,
#endif
               const __grid_constant__ Epilogue epilogue)
{
#if !GROUPED
    constexpr const int *group_ends = nullptr;
#endif
#if !(SCALES_A || SCALES_B)
    constexpr Scales scales = {};
#endif
    extern __shared__ __align__(1024) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    // The same in all lanes: told so, the compiler keeps it, and what follows from it, out of their own registers.
    const unsigned group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    const Extents product = {EXCHANGED ? c.columns : c.rows, EXCHANGED ? c.rows : c.columns};
    Tiles tiles(product.height, product.width, matrices, stack.inner_count, group_ends);
    const Steps steps(depth, PARTS > 1 ? tiles.matrix().inner : 0, tiles.rank);

    if (threadIdx.x == 0) {
        shared.ring.init(TOGETHER * (WARPGROUP / WARP) * SHARERS, ScalesOfStage::ANY ? 1 + WARP : 1);
        if (depth > 0) tensor_copy::prefetch(map_a), tensor_copy::prefetch(map_b);
        if (depth > 0 && TileOfA::has_end(product.height)) tensor_copy::prefetch(end_a);
        if (depth > 0 && TileOfB::has_end(product.width)) tensor_copy::prefetch(end_b);
    }
    // NOTE: where tiles lie takes 0.1 µs to compute. So those who copy find theirs now, beside the barriers; the others while
    // the first stages come.
    bool found = false;
    if (!GROUPED && group == CONSUMERS) found = tiles.find();
    __syncthreads();
    if (SHARERS > 1) cluster::wait_for_all(); // nobody may write here before the barriers are there
    dependent_launch::wait_for_previous();
    // NOTE: the next launch's blocks then go to SMs in the order in which these end. Where warpgroups take turns and
    // blocks share nothing, several tiles long, that costs more than it gains: neighbours in C are apart, and L2 is asked
    // for more. So those let it begin as they end.
    if (!PINGPONG || CLUSTER > 1 || tiles.count <= 2 * gridDim.x) dependent_launch::let_next_begin();

    Turn turn;
    // Whether tiles end with the product, and each block has one of them.
    const bool ends_below = !GROUPED && product.height % (CLUSTER_M * BLOCK_M) != 0;
    const bool ends = !WHOLE && (ends_below || product.width % (CLUSTER_N * BLOCK_N) != 0);
    const bool has_one = ends && !PINGPONG && !GROUPED && tiles.count * CLUSTER <= gridDim.x;
    unsigned unset = has_one ? 0 : STAGES;
    if (group == CONSUMERS) {
        if (SHIFT_REGISTERS) warpgroup::give_registers<PRODUCER_REGISTERS>();
        if (GROUPED ? threadIdx.x / WARP == CONSUMERS * WARPGROUP / WARP : threadIdx.x == CONSUMERS * WARPGROUP)
            for (bool any = GROUPED ? tiles.find() : found; any; tiles.skip(1), any = tiles.find()) {
                const Place tile = tiles.here;
                const Loaded own = ends ? Loaded(tile, product) : Loaded(tile);
                const InStack from_a = stack.of_a(tile.which), from_b = stack.of_b(tile.which);
                const OperandMaps maps = {map_a, map_b, end_a, end_b};
                const bool copies = !GROUPED || threadIdx.x % WARP == 0;
                if (copies && own.is_whole()) produce<false>(shared, maps, own, from_a, from_b, tiles, steps, turn, unset);
                if (copies && !own.is_whole()) produce<true>(shared, maps, own, from_a, from_b, tiles, steps, turn, unset);
                if (GROUPED) __syncwarp();
            }
        else if (ScalesOfStage::ANY && threadIdx.x / WARP == CONSUMERS * WARPGROUP / WARP + 1)
            for (bool any = GROUPED ? tiles.find() : found; any; tiles.skip(1), any = tiles.find()) {
                const InStack which = PARTS > 1 ? InStack{} : tiles.here.which;
                copy_scales(shared, scales.in_stack(which, which), tiles.here, steps, turn);
            }
        __syncwarp();
        if (SPLIT > 1) cluster::wait_for_all_stores();
    } else {
        if (SHIFT_REGISTERS) warpgroup::take_registers<CONSUMER_REGISTERS>();
        const unsigned begin = PINGPONG ? 0 : group * WARPGROUP_M; // of its rows in the tile
        bool waits = PINGPONG && group > 0;
        if (PINGPONG) turn.skip(group * steps.count());
        if (PINGPONG) tiles.skip(group);
        for (; tiles.find(); tiles.skip(PINGPONG ? CONSUMERS : 1)) {
            Place tile = tiles.here;
            if (has_one) clear_rest(shared, {tile, product}, steps.count());
#if PARTS > 1
            const Fused here;
#else
            const Fused here = epilogue.in_stack(stack, tile.which);
#endif
            const Scales of_terms = Scales::ANY && PARTS == 1 ? scales.in_stack(tile.which, tile.which) : scales;
            tile.which = stack.of_c(tile.which);
            // Rows of parts' sums are stored to their end, since add_parts.cu reads whole runs of them.
            const Matrix<Result> matrix = {PARTS > 1 ? unsigned(c.row_stride) : c.columns, tiles.end(c.rows),
                                           unsigned(c.row_stride), c.in_stack(tile.which)};
            Place own = tile; // where the warpgroup's part begins
            own.row += begin;
            Stored::Lines lines;
            Stored::fetch_ahead(shared.results[group], lines, own, here, matrix);
            Sums sums = {};
            if (waits) wait_for_turn(group);
            waits = PINGPONG;
            const unsigned next = PINGPONG && tiles.more() ? (group + 1) % CONSUMERS : CONSUMERS;
            Products::add_up(shared, sums, begin, steps, turn, next, of_terms, tile.row, tile.column);
            if (PINGPONG) turn.skip((CONSUMERS - 1) * steps.count());
            if constexpr (SPLIT > 1) {
                auto &partial = *reinterpret_cast<PartialSums *>(dynamic);
                wait_for_consumers(); // all have read the stages
#pragma unroll
                for (unsigned i = 0; i < ROWS_64; ++i)
                    partial.put(sums.at[i], begin + i * INSTRUCTION_M);
                cluster::wait_for_all_stores();
                const unsigned row = EXCHANGED ? tile.column : tile.row, column = EXCHANGED ? tile.row : tile.column;
                partial.add_share<SPLIT, CONSUMERS * WARPGROUP>(tiles.rank, row, column, matrix, here, WHOLE_ROWS || wide);
            } else {
                Stored::store(shared.results[group], sums.at, lines, group, own, map_c, here, matrix, WHOLE_ROWS || wide);
            }
        }
        Stored::wait_for_engine();
    }
    __syncwarp();
    if (CLUSTER > 1) cluster::wait_for_all(); // nobody may end while another reads or arrives here
}
