// Rung 13: Hopper. Warps with different jobs, copies by an engine, instructions of four warps.
//
// Adds: a warp that does nothing but start copies of whole boxes (TMA), which swizzle themselves and count
// their bytes at barriers in shared memory; two groups of four warps that do nothing but multiply, straight
// from shared memory (wgmma), and take over the registers that the copying warps need not; clusters of two
// blocks, one below the other, which need the same columns of B: each loads half of them, for both; blocks
// that stay for several tiles, so that the next one's slices are on their way while results are stored.
// Tiles: cluster 256×256×64 (or 256×128×64), block 128×256×64, warpgroup 64×256×64, instruction 64×256×16.
// Look at: four instructions a step for each warpgroup and none that computes an address; 168 registers a
// thread at the start, then 232 and 40; one block on an SM; bytes read from L2, of which the cluster saves
// a third.
#include <tilewise/cluster.cuh>
#include <tilewise/guarded_load.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/result_box.cuh>
#include <tilewise/ring.cuh>
#include <tilewise/tensor_copy.cuh>
#include <tilewise/wgmma.cuh>

#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 256 // or 128
#endif
#ifndef BLOCK_K
#define BLOCK_K 64
#endif
#ifndef STAGES
#define STAGES (BLOCK_N == 256 ? 4 : 6)
#endif
#ifndef CLUSTER
#define CLUSTER 2 // or 1
#endif
#ifndef ELEMENT
#define ELEMENT float16 // or bfloat16
#endif
#ifndef RESULT
#define RESULT float16 // or bfloat16, float32
#endif

using Element = ELEMENT;
using Result = RESULT;

constexpr unsigned INSTRUCTION_M = 64;
constexpr unsigned WARP = 32, WARPGROUP = 4 * WARP;
constexpr unsigned CONSUMERS = BLOCK_M / INSTRUCTION_M; // warpgroups that multiply; one more copies
constexpr unsigned BLOCK_THREADS = (CONSUMERS + 1) * WARPGROUP;
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert((PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) * WARPGROUP <= 65536, "all there are");

// The copy engine deals in boxes whose rows have 128 bytes. A box of A is 128 rows by 64 k, one of B is 64 k
// by 64 columns; a tile of B is several boxes side by side.
constexpr unsigned ROW_BYTES = 128;
constexpr unsigned BOX = ROW_BYTES / sizeof(Element); // elements in a row of one
constexpr unsigned B_BOXES = BLOCK_N / BOX;
static_assert(BLOCK_K == BOX && B_BOXES % CLUSTER == 0, "each block of a cluster loads as many boxes of B");

struct alignas(1024) Stage {
    Element a[BLOCK_M * BLOCK_K];
    Element b[B_BOXES][BLOCK_K * BOX];
};

// Results on their way out lie in boxes too (tilewise/result_box.cuh). While one is stored the next is put.
using Box = ResultBox<Result>;
static_assert(Box::ROWS == INSTRUCTION_M, "a box has all the rows of a warpgroup");
static_assert(BLOCK_N / Box::COLUMNS % 2 == 0, "each tile begins with the same of two boxes");

struct Shared {
    Stage stages[STAGES];
    Box results[CONSUMERS][2];
    Ring<STAGES> ring; // all warps of both blocks read a stage, and then either block may write to both
};
using Turn = Ring<STAGES>::Turn;
#ifdef SHARED_BYTES
static_assert(sizeof(Shared::stages) + sizeof(Shared::results) + sizeof(Shared::ring) == SHARED_BYTES,
              "the launch asks for that much shared memory"); // NOTE: not for the padding at the end
#endif

// The tiles of C that a block computes, one after another: those of a cluster lie one below the other.
struct Tiles {
    unsigned cluster_rows, columns;
    unsigned index; // among the tiles of clusters
    unsigned rank;  // of the block in its cluster

    __device__ Tiles(unsigned height, unsigned width)
    {
        cluster_rows = height / (CLUSTER * BLOCK_M) + (height % (CLUSTER * BLOCK_M) != 0);
        columns = width / BLOCK_N + (width % BLOCK_N != 0);
        index = blockIdx.x / CLUSTER;
        rank = CLUSTER == 1 ? 0 : cluster::rank();
    }

    __device__ bool more() const { return index < cluster_rows * columns; }
    __device__ void next() { index += gridDim.x / CLUSTER; }

    // The row may lie beyond the last row of tiles. Then the block only loads B for the other one.
    __device__ TileIndex now() const
    {
        const TileIndex tile = grouped(index, cluster_rows, columns);
        return {tile.row * CLUSTER + rank, tile.column};
    }
};

// One thread copies, as far ahead as there are stages free: into the next tile too.
inline __device__ void produce(Shared &shared, const TensorMap &a, const TensorMap &b, TileIndex tile,
                               unsigned rank, unsigned steps, Turn &turn)
{
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step, turn.next()) {
        Stage &stage = shared.stages[turn.slot];
        Mbarrier &full = shared.ring.full[turn.slot];
        shared.ring.wait_until_empty(turn);
        full.arrive_and_expect(sizeof(Stage)); // what the other block loads for this one is part of it
        tensor_copy::load(stage.a, a, tile.row * BLOCK_M, step * BLOCK_K, full);
#pragma unroll
        for (unsigned i = 0; i < B_BOXES / CLUSTER; ++i) {
            const unsigned box = rank * (B_BOXES / CLUSTER) + i;
            const unsigned column = tile.column * BLOCK_N + box * BOX;
            if (CLUSTER == 1)
                tensor_copy::load(stage.b[box], b, step * BLOCK_K, column, full);
            else
                tensor_copy::load_to_all(stage.b[box], b, step * BLOCK_K, column, full, (1 << CLUSTER) - 1);
        }
    }
}

struct Sums {
    float at[BLOCK_N / 2];

    // Makes the second box's sums the first's. A variable cannot choose a register, so a loop over the boxes
    // uses the first and moves the others up: its code, and the time to compile it, stays short.
    __device__ void move_up()
    {
#pragma unroll
        for (unsigned i = Box::SUMS; i < BLOCK_N / 2; ++i)
            at[i - Box::SUMS] = at[i];
    }
};

// A warpgroup multiplies. One step's instructions are under way while it waits for the next one's bytes.
inline __device__ void consume(Shared &shared, Sums &sums, unsigned group, unsigned steps, Turn &turn)
{
    const unsigned lane = threadIdx.x % WARP; // one for each block of the cluster tells it what was read
    unsigned before = 0;                      // the slot of the step before
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step, turn.next()) {
        const Stage &stage = shared.stages[turn.slot];
        shared.ring.wait_until_full(turn);
        const auto a = wgmma::descriptor(&stage.a[group * INSTRUCTION_M * BLOCK_K], 0);
        const auto b = wgmma::descriptor(stage.b, sizeof(stage.b[0]));
        wgmma::fence();
        wgmma::multiply_add<Element>(sums.at, a, b); // by four instructions of 16 k
        wgmma::commit();
        wgmma::wait<1>(); // the step before this one has been read, as far as this warp goes
        if (step > 0 && lane < CLUSTER) shared.ring.empty[before].arrive_in(lane);
        before = turn.slot;
    }
    wgmma::wait<0>();
    if (steps > 0 && lane < CLUSTER) shared.ring.empty[before].arrive_in(lane);
}

// Waits for the other threads of the warpgroup. Barrier 0 of the hardware is that of __syncthreads.
inline __device__ void wait_for_warpgroup(unsigned group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(WARPGROUP) : "memory");
}

inline __device__ void write(Box (&boxes)[2], Sums &sums, unsigned group, TileIndex tile,
                             const TensorMap &map, Matrix<Result> c, bool by_engine)
{
    const bool storing = by_engine && threadIdx.x % WARPGROUP == 0; // the thread that starts the stores
    const unsigned row = tile.row * BLOCK_M + group * INSTRUCTION_M;
#pragma unroll 1
    for (unsigned i = 0; i < BLOCK_N / Box::COLUMNS; ++i) {
        Box &box = boxes[i % 2];
        const unsigned column = tile.column * BLOCK_N + i * Box::COLUMNS;
        const bool whole = by_engine && (column + Box::COLUMNS <= c.width || c.width % Box::CHUNK == 0);
        if (storing) tensor_copy::wait_until_read<1>(); // the store before the last, which was of this box
        wait_for_warpgroup(group);
        box.put(sums.at);
        if (whole) tensor_copy::fence_stores();
        wait_for_warpgroup(group);
        if (storing && whole) tensor_copy::store(map, row, column, box.bytes);
        if (storing) tensor_copy::commit(); // each box is a group, if an empty one
        if (!whole) box.store_elements(c, row, column);
        sums.move_up();
    }
}

// The maps describe A and B, and C if `by_engine`; the matrix C has sizes, and the address if it is not.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
    warp_specialised(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                     const __grid_constant__ TensorMap map_c, Matrix<Result> c, unsigned depth,
                     unsigned by_engine)
{
    extern __shared__ __align__(1024) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    // The same in all lanes: told so, the compiler keeps it, and what follows from it, out of their own
    // registers.
    const unsigned group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    const unsigned steps = depth / BLOCK_K + (depth % BLOCK_K != 0);

    if (threadIdx.x == 0) {
        shared.ring.init(CONSUMERS * (WARPGROUP / WARP) * CLUSTER);
        if (steps > 0) tensor_copy::prefetch(map_a), tensor_copy::prefetch(map_b);
    }
    __syncthreads();
    if (CLUSTER > 1) cluster::wait_for_all(); // nobody may write here before the barriers are there

    Tiles tiles(c.height, c.width);
    Turn turn;
    if (group == CONSUMERS) {
        warpgroup::give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * WARPGROUP)
            for (; tiles.more(); tiles.next())
                produce(shared, map_a, map_b, tiles.now(), tiles.rank, steps, turn);
    } else {
        warpgroup::take_registers<CONSUMER_REGISTERS>();
        for (; tiles.more(); tiles.next()) {
            Sums sums = {};
            consume(shared, sums, group, steps, turn);
            write(shared.results[group], sums, group, tiles.now(), map_c, c, by_engine);
        }
        if (by_engine && threadIdx.x % WARPGROUP == 0) tensor_copy::wait_until_read<0>();
    }
    __syncwarp();
    if (CLUSTER > 1) cluster::wait_for_all(); // nobody may end while another arrives at its barriers
}

// Copies a matrix to rows that begin at multiples of 16 bytes, which is what a tensor map can describe.
// A thread writes eight elements; those beyond the width are zeros.
extern "C" __global__ void __launch_bounds__(256) align_rows(Matrix<const Element> from, Matrix<Element> to)
{
    constexpr unsigned CHUNK = 16 / sizeof(Element);
    const unsigned chunks = to.pitch / CHUNK;
    const unsigned long long index = blockIdx.x * 256ull + threadIdx.x;
    const unsigned row = index / chunks, column = index % chunks * CHUNK;
    if (row >= from.height) return;
    const unsigned left = column < from.width ? from.width - column : 0;
    *reinterpret_cast<uint4 *>(&to.at(row, column)) = load_halves(&from.at(row, column), left);
}
