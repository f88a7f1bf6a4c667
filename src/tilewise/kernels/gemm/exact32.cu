// Products of float32 on the tensor cores of Hopper, as exact as sums in float32: C[z] = A[z]·B[z].
//
// split_halves.cu has made of each element two float16, scaled by a power of two for each row of A and column of B:
// high + low/2048. Three products of these are a product of the elements, but for 2^-20 of it: low·high + high·low, which
// count 1/2048, and high·high. The tensor cores cut off what their sums have no room for. So sums over 64 of K at most
// are left to them, and what they give is added up in float32, rounded to the nearest.
//
// One warpgroup copies boxes of both parts of A and B into a ring of stages (TMA); the others multiply them from there
// (wgmma): while one adds, another's products are under way. Blocks stay for several tiles. A warpgroup stores its
// results unless its rows and columns have elements so small, beside others of their line, that they lost bits which
// float32 keeps: then another launch computes them in float32, as it does where there are infinities or NaN.
// Tiles: block BLOCK_M×BLOCK_N×64, warpgroup WARPGROUP_M×BLOCK_N×64, instruction 64×BLOCK_N×16.
#ifndef BLOCK_N
#define BLOCK_N 128
#endif
#define INSTRUCTION_N BLOCK_N // says wgmma.cuh what to compile
#include <tilewise/dependent_launch.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/named_barrier.cuh>
#include <tilewise/operand_tile.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/ring.cuh>
#include <tilewise/split_lines.cuh>
#include <tilewise/strided.cuh>
#include <tilewise/sum_box.cuh>
#include <tilewise/tensor_copy.cuh>
#include <tilewise/wgmma.cuh>

#ifndef BLOCK_M
#define BLOCK_M 256
#endif
#ifndef CONSUMERS // warpgroups that multiply, below one another
#define CONSUMERS 2
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef RESULT
#define RESULT float32 // or another floating-point type
#endif

using Result = RESULT;

constexpr unsigned WARP = 32, WARPGROUP = 4 * WARP, INSTRUCTION_M = 64, BLOCK_K = 64;
constexpr unsigned BLOCK_THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr unsigned WARPGROUP_M = BLOCK_M / CONSUMERS, ROWS_64 = WARPGROUP_M / INSTRUCTION_M;
constexpr unsigned SUMS = BLOCK_N / 2; // of a thread, of the rows of an instruction
static_assert(WARPGROUP_M % INSTRUCTION_M == 0 && BLOCK_N % 64 == 0, "whole instructions and boxes");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// Copying takes few registers, so that the threads that multiply may have more.
constexpr bool SHIFT_REGISTERS = CONSUMERS > 1;

// Both parts of a step, high and low.
struct Stage {
    OperandTile<float16, BLOCK_M, true, 1, false> a[2];
    OperandTile<float16, BLOCK_N, true, 1, false> b[2];
};

using Box = SumBox<false, 64>;

struct Shared {
    Stage stages[STAGES];
    Box boxes[CONSUMERS];
    Ring<STAGES> ring;
};
using Turn = Ring<STAGES>::Turn;
#ifdef SHARED_BYTES
static_assert(sizeof(Shared::stages) + sizeof(Shared::boxes) + sizeof(Shared::ring) == SHARED_BYTES,
              "the launch asks for that much shared memory"); // NOTE: not for the padding at the end
#endif

// The tiles that a block computes, one after another.
struct Tiles {
    unsigned rows, columns, index, count;

    __device__ Tiles(unsigned height, unsigned width, unsigned matrices)
        : rows(height / BLOCK_M + (height % BLOCK_M != 0)), columns(width / BLOCK_N + (width % BLOCK_N != 0)),
          index(blockIdx.x), count(rows * columns * matrices)
    {
    }
    __device__ bool more() const { return index < count; }
    __device__ void next() { index += gridDim.x; }
    __device__ unsigned matrix() const { return index / (rows * columns); }
    __device__ TileIndex now() const { return grouped(index % (rows * columns), rows, columns); }
};

// One thread copies, as far ahead as there are stages free: into the next tile too. `row` and `column` count lines of
// all matrices.
inline __device__ void produce(Shared &shared, const TensorMap &a, const TensorMap &b, unsigned row, unsigned column,
                               unsigned depth, Turn &turn)
{
#pragma unroll 1
    for (unsigned k = 0; k < depth; k += BLOCK_K, turn.next()) {
        Stage &stage = shared.stages[turn.slot];
        Mbarrier &full = shared.ring.full[turn.slot];
        shared.ring.wait_until_empty(turn);
        full.arrive_and_expect(sizeof(Stage));
#pragma unroll
        for (unsigned part = 0; part < 2; ++part) {
            stage.a[part].load(a, row, k + part * depth, {}, 0, 0, full);
            stage.b[part].load(b, column, k + part * depth, {}, 0, 0, full);
        }
    }
}

struct Sums {
    float at[ROWS_64][SUMS];
};

// Adds to `products`, of 64 rows from `begin` on, a part of A times one of B, or begins with it.
template <bool BEGINS>
inline __device__ void multiply(float (&products)[SUMS], const Stage &stage, unsigned begin, unsigned of_a, unsigned of_b)
{
    const auto a = stage.a[of_a].descriptor(begin), b = stage.b[of_b].descriptor(0);
    if (BEGINS)
        wgmma::multiply<float16, true, false>(products, a, b);
    else
        wgmma::multiply_add<float16, true, false>(products, a, b);
}

inline __device__ void finish_products()
{
    wgmma::commit();
    wgmma::wait<0>();
}

// A warpgroup multiplies, with its rows from `begin` on.
inline __device__ void consume(Shared &shared, Sums &sums, unsigned begin, unsigned depth, Turn &turn)
{
    enum { HIGH, LOW };
    float products[SUMS];
#pragma unroll 1
    for (unsigned k = 0; k < depth; k += BLOCK_K, turn.next()) {
        const Stage &stage = shared.stages[turn.slot];
        shared.ring.wait_until_full(turn);
#pragma unroll
        for (unsigned i = 0; i < ROWS_64; ++i) {
            const unsigned row = begin + i * INSTRUCTION_M;
            wgmma::fence();
            multiply<true>(products, stage, row, LOW, HIGH);
            multiply<false>(products, stage, row, HIGH, LOW);
            finish_products();
#pragma unroll
            for (unsigned j = 0; j < SUMS; ++j)
                sums.at[i][j] = fmaf(products[j], 1.0f / 2048, sums.at[i][j]);
            wgmma::fence();
            multiply<true>(products, stage, row, HIGH, HIGH);
            finish_products();
#pragma unroll
            for (unsigned j = 0; j < SUMS; ++j)
                sums.at[i][j] += products[j];
        }
        if (threadIdx.x % WARP == 0) shared.ring.empty[turn.slot].arrive();
    }
}

// What happens to sums on their way to memory: the powers of two are taken back, in two steps, so that nothing overflows on
// the way that stays finite in the end. Then comes the epilogue.
struct Unscaled {
    const Epilogue &epilogue;
    const float *of_rows; // roots of the powers
    float of_columns[Box::RUN]; // those of the columns that a thread has of a part of C

    __device__ Unscaled(const Epilogue &epilogue, const float *of_rows, const float *of_all_columns, const Box::Part &part)
        : epilogue(epilogue), of_rows(of_rows)
    {
#pragma unroll
        for (unsigned i = 0; i < Box::RUN; ++i)
            of_columns[i] = part.across() + i < part.width ? of_all_columns[part.column + part.across() + i] : 1;
    }

    template <unsigned COUNT> struct Given : Epilogue::template Given<COUNT> {
        float of_row;
    };
    template <unsigned COUNT> __device__ Given<COUNT> read(unsigned row, unsigned column) const
    {
        return {epilogue.template read<COUNT>(row, column), of_rows[row]};
    }
    __device__ void apply(float (&sums)[Box::RUN], const Given<Box::RUN> &given, unsigned row, unsigned column) const
    {
#pragma unroll
        for (unsigned i = 0; i < Box::RUN; ++i)
            sums[i] = unscale(sums[i], given.of_row, i);
        epilogue.apply(sums, given, row, column);
    }

    // Unscales in their box the sums that are not stored as runs: other threads store them, one by one.
    __device__ void unscale_rest(Box &box, const Box::Part &part) const
    {
        if (part.across() < part.whole * Box::RUN) return;
        const auto root_of = [&](unsigned i) { return part.down(i) < part.height ? of_rows[part.row + part.down(i)] : 1; };
        float next = root_of(0);
#pragma unroll 1
        for (unsigned i = 0; i < Box::Part::RUNS; ++i) {
            const float of_row = next;
            next = root_of(i + 1);
#pragma unroll
            for (unsigned first = 0; first < Box::RUN; first += Box::CHUNK) {
                Neighbours<float, Box::CHUNK> sums;
                float *const place = box.chunk(part.down(i), part.across() + first);
                sums.read(place);
#pragma unroll
                for (unsigned j = 0; j < Box::CHUNK; ++j)
                    sums.at[j] = unscale(sums.at[j], of_row, first + j);
                sums.write(place);
            }
        }
    }
    __device__ float operator()(float unscaled, unsigned row, unsigned column) const
    {
        return epilogue(unscaled, row, column);
    }

  private:
    __device__ float unscale(float sum, float of_row, unsigned column) const
    {
        const float root = of_row * of_columns[column];
        return sum * root * root;
    }
};

inline __device__ void wait_for_warpgroup(unsigned group) { named_barrier::wait<WARPGROUP>(1 + group); }

// A warpgroup stores its results, 64×64 at a time.
inline __device__ void store(Box &box, const Sums &sums, unsigned group, unsigned row, unsigned column,
                             const Epilogue &epilogue, const float *of_rows, const float *of_columns, Matrix<Result> c,
                             bool wide)
{
    constexpr unsigned ACROSS = BLOCK_N / 64, BOXES = ROWS_64 * ACROSS, AHEAD = 1;
#pragma unroll 1 // what happens to the sums is compiled once, not for each box
    for (unsigned i = 0; i < BOXES; ++i) {
        const Box::Part part(c, row + i / ACROSS * 64, column + i % ACROSS * 64, 64, 64, wide);
        const Unscaled unscaled(epilogue, of_rows, of_columns, part);
        Box::Given<Unscaled, AHEAD> given;
        if (given.EARLY) given.read(part, unscaled, 0);
        wait_for_warpgroup(group); // all have stored from the box
#pragma unroll
        for (unsigned j = 0; j < BOXES; ++j)
            if (i == j) box.put<64>(sums.at[j / ACROSS], j % ACROSS * 32);
        wait_for_warpgroup(group);
        if (part.whole * Box::RUN < part.width) {
            unscaled.unscale_rest(box, part);
            wait_for_warpgroup(group); // others store it
        }
        box.store(c, part, given, unscaled);
    }
}

// The maps describe the parts of A and B, `depth` of each line. `terms` are what sums have of the product's own.
// `wide`: C's rows begin at multiples of 16 bytes. `left_out` gets for each warpgroup's part of C whether it was not stored.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
    exact32(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
            const __grid_constant__ SplitLines lines_a, const __grid_constant__ SplitLines lines_b, Strided<Result> c,
            unsigned depth, unsigned terms, unsigned matrices, const __grid_constant__ Stack stack, unsigned wide,
            unsigned *left_out, const __grid_constant__ Epilogue epilogue)
{
    extern __shared__ __align__(1024) char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);

    // The same in all lanes: told so, the compiler keeps it, and what follows from it, out of their own registers.
    const unsigned group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    Tiles tiles(c.rows, c.columns, matrices);

    if (threadIdx.x == 0) {
        shared.ring.init(CONSUMERS * (WARPGROUP / WARP));
        tensor_copy::prefetch(map_a), tensor_copy::prefetch(map_b);
    }
    __syncthreads();
    dependent_launch::wait_for_previous();
    dependent_launch::let_next_begin();

    Turn turn;
    if (group == CONSUMERS) {
        if (SHIFT_REGISTERS) warpgroup::give_registers<40>();
        if (threadIdx.x == CONSUMERS * WARPGROUP)
            for (; tiles.more(); tiles.next()) {
                const InStack which = stack[tiles.matrix()];
                const TileIndex tile = tiles.now();
                produce(shared, map_a, map_b, lines_a.first(which) + tile.row * BLOCK_M,
                        lines_b.first(which) + tile.column * BLOCK_N, depth, turn);
            }
        return;
    }
    if (SHIFT_REGISTERS) warpgroup::take_registers<232>();
    for (; tiles.more(); tiles.next()) {
        const InStack which = stack[tiles.matrix()];
        const TileIndex tile = tiles.now();
        const unsigned begin = group * WARPGROUP_M, row = tile.row * BLOCK_M + begin, column = tile.column * BLOCK_N;
        const unsigned first_row = lines_a.first(which), first_column = lines_b.first(which);
        const Spread of_rows = lines_a.worst<WARPGROUP_M>(first_row, row, c.rows);
        const Spread of_columns = lines_b.worst<BLOCK_N>(first_column, column, c.columns);
        Sums sums = {};
        consume(shared, sums, begin, depth, turn);
        if (row >= c.rows) continue;
        const bool exact = is_exact(of_rows, of_columns, terms);
        const unsigned region_rows = c.rows / WARPGROUP_M + (c.rows % WARPGROUP_M != 0);
        const unsigned region = (tiles.matrix() * region_rows + row / WARPGROUP_M) * tiles.columns + tile.column;
        if (threadIdx.x % WARPGROUP == 0) left_out[region] = !exact;
        if (!exact) continue;
        const Matrix<Result> matrix = {c.columns, c.rows, unsigned(c.row_stride), c.in_stack(stack.of_c(which))};
        store(shared.boxes[group], sums, group, row, column, epilogue.in_stack(stack, which), lines_a.roots + first_row,
              lines_b.roots + first_column, matrix, wide);
    }
}
