// Products with a vector, a whole stack of them in one launch: result[z] = matrix[z]·vector[z].
//
// The matrix has a row for each element of the result. For a row times a matrix (x·B) it is B transposed,
// which is a matter of strides; the vector and the result are columns. Nothing is used twice but the vector,
// so all that counts is to read the matrix at full width. Complex numbers are elements as they lie; of their sums the parts
// are neighbours in a row of the result, which has two columns.
// `along_k`, where neighbours along K lie closest together: the lanes of a warp run along K, with 16 bytes
// each where rows and vector are aligned, and shuffles add up what they have. WARPS / ROWS warps share a row, or each has
// ROWS / WARPS of them at once.
// `along_rows`, where neighbours in a column do: each lane has PER_LANE rows, neighbours of which it reads at once; the
// block's warps share K, and blocks too, if there are few: PARTS of them, whose sums add_parts.cu adds up.
// Either adds in an order that sizes and alignment alone decide.
// Tiles: block ROWS×1 (along_k) or 32·PER_LANE×1 (along_rows); warps that share a row take turns along K.
#include <tilewise/complex.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/epilogue.cuh>
#include <tilewise/plain_epilogue.cuh>
#include <tilewise/strided.cuh>

#ifndef ELEMENT
#define ELEMENT float32 // or float16, bfloat16, float64, int8, int32, int64, complex64, complex128
#endif
#ifndef MATRIX_ELEMENT
#define MATRIX_ELEMENT ELEMENT // or, of an ELEMENT of 16 bits, a type of 8
#endif
#ifndef RESULT
#define RESULT ELEMENT // of complex numbers the type of their parts
#endif
#ifndef WARPS
#define WARPS 8
#endif
#ifndef ROWS
#define ROWS WARPS // of a block in along_k; fewer where rows are few and long, more where there are many
#endif
#ifndef PER_LANE
#define PER_LANE 1 // rows of a lane in along_rows; more where there are blocks enough
#endif
#ifndef PARTS // of K, in along_rows: each leaves its sums in memory
#define PARTS 1
#endif

using Element = ELEMENT;
using MatrixElement = MATRIX_ELEMENT;
using Sum = decltype(widen(Element()));
#if PARTS > 1 // what a block stores, and what happens to it before
using Result = decltype(real_part(Sum()));
using Fused = PlainEpilogue;
#else
using Result = RESULT;
using Fused = Epilogue;
#endif

constexpr unsigned LANES = 32;
constexpr unsigned BLOCK_THREADS = WARPS * LANES;
constexpr unsigned SHARERS = ROWS < WARPS ? WARPS / ROWS : 1;   // warps that share a row
constexpr unsigned WARP_ROWS = ROWS > WARPS ? ROWS / WARPS : 1; // rows that a warp has at once
static_assert(SHARERS * ROWS == WARPS * WARP_ROWS, "each row has as many warps, or each warp as many rows");
static_assert(WARP_ROWS <= LANES, "a lane stores a row");
static_assert(BLOCK_THREADS <= 1024, "what a block may have");
static_assert(WARPS * LANES * PER_LANE * sizeof(Sum) <= 48 * 1024, "shared memory of a block in along_rows");
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

constexpr unsigned WIDE = 16 / sizeof(MatrixElement); // elements of the matrix in 16 bytes
// What a lane reads at once. NOTE: of int8 beside other elements it is words, which the compiler would take apart into bytes
// to put them together again.
template <typename T, bool IN_WORDS = SAME<T, int8> && SAME<Sum, float>> struct alignas(16) Chunk {
    T at[WIDE];
    template <unsigned COUNT> __device__ void widen(Sum (&wide)[COUNT], unsigned first) const { widen_run(wide, &at[first]); }
};
template <typename T> struct alignas(16) Chunk<T, true> {
    unsigned words[4];
    __device__ void widen(Sum (&wide)[4], unsigned first) const { widen_run(wide, words[first / 4]); }
};

// What one lane adds up of its warp's rows: every STEP-th chunk, or element, from its own on.
struct RowSums {
    const MatrixElement *rows[WARP_ROWS];
    const Element *vector;
    long long row_stride, vector_stride; // along K
    unsigned depth;

    __device__ bool aligned() const
    {
        auto bits = reinterpret_cast<unsigned long long>(vector);
#pragma unroll
        for (unsigned r = 0; r < WARP_ROWS; ++r)
            bits |= reinterpret_cast<unsigned long long>(rows[r]);
        return row_stride == 1 && vector_stride == 1 && bits % 16 == 0;
    }

    __device__ void add_chunks(Sum (&sums)[WARP_ROWS], unsigned first, unsigned step) const
    {
        constexpr unsigned RUN = WIDE < 4 ? WIDE : 4;
#pragma unroll 2
        for (unsigned i = first; i < depth / WIDE; i += step) {
            Chunk<MatrixElement> left[WARP_ROWS];
#pragma unroll
            for (unsigned r = 0; r < WARP_ROWS; ++r)
                left[r] = reinterpret_cast<const Chunk<MatrixElement> *>(rows[r])[i];
            const auto right = reinterpret_cast<const Chunk<Element> *>(vector)[i];
#pragma unroll
            for (unsigned j = 0; j < WIDE; j += RUN) {
                Sum b[RUN];
                right.widen(b, j);
#pragma unroll
                for (unsigned r = 0; r < WARP_ROWS; ++r) {
                    Sum a[RUN];
                    left[r].widen(a, j);
#pragma unroll
                    for (unsigned k = 0; k < RUN; ++k)
                        add_product(sums[r], a[k], b[k]);
                }
            }
        }
    }

    __device__ void add_elements(Sum (&sums)[WARP_ROWS], unsigned first, unsigned step) const
    {
#pragma unroll 4
        for (unsigned k = first; k < depth; k += step) {
            const auto b = widen(vector[k * vector_stride]);
#pragma unroll
            for (unsigned r = 0; r < WARP_ROWS; ++r)
                add_product(sums[r], Sum(widen_to<Sum>(rows[r][k * row_stride])), b);
        }
    }
};

// The sum over the lanes of a warp, in all of them.
inline __device__ Sum add_lanes(Sum sum)
{
#pragma unroll
    for (unsigned apart = LANES / 2; apart > 0; apart /= 2)
        sum += exchange(sum, apart);
    return sum;
}

constexpr unsigned NUMBERS = PARTS_OF<Sum>; // of a row of the result

// Makes a sum that row of the result.
template <typename Finish, typename Given>
inline __device__ void store(const Strided<Result> &result, const Finish &finish, const Given &given, Sum sum, unsigned row)
{
    decltype(finish(as_number(real_part(sum)), row, 0)) numbers[NUMBERS];
    take_apart(numbers, sum);
    finish.apply(numbers, given, row, 0);
#pragma unroll
    for (unsigned i = 0; i < NUMBERS; ++i)
        *result.at(row, i) = narrow<Result>(numbers[i]);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    along_k(Strided<const MatrixElement> matrix, Strided<const Element> vector, Strided<Result> result,
            const __grid_constant__ Stack stack, Epilogue epilogue)
{
    __shared__ Sum shared[SHARERS > 1 ? ROWS : 1][SHARERS];
    const unsigned blocks = matrix.rows / ROWS + (matrix.rows % ROWS != 0); // of one matrix
    const InStack which = stack[blockIdx.x / blocks];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned row_in_block = warp / SHARERS * WARP_ROWS, share = warp % SHARERS;
    const unsigned row = blockIdx.x % blocks * ROWS + row_in_block;
    matrix.select(stack.of_a(which)), vector.select(stack.of_b(which)), result.select(stack.of_c(which));
    const Epilogue finish = epilogue.in_stack(stack, which);
    dependent_launch::wait_for_previous(row);
    dependent_launch::let_next_begin();

    // What the epilogue reads comes beside the rows, not after them.
    const bool stores = share == 0 && lane < WARP_ROWS && row + lane < result.rows;
    typename Epilogue::template Given<NUMBERS> given = {};
    if (stores) given = finish.template read<NUMBERS>(row + lane, 0);
    Sum sums[WARP_ROWS] = {};
    if (row < matrix.rows) {
        RowSums part = {{}, vector.elements, matrix.column_stride, vector.row_stride, matrix.columns};
#pragma unroll
        for (unsigned r = 0; r < WARP_ROWS; ++r)
            part.rows[r] = matrix.at(min(row + r, matrix.rows - 1), 0);
        const unsigned first = share * LANES + lane, step = SHARERS * LANES;
        const unsigned whole = part.aligned() ? matrix.columns / WIDE * WIDE : 0;
        if (whole) part.add_chunks(sums, first, step);
        Sum rest[WARP_ROWS] = {};
        part.add_elements(rest, whole + first, step);
#pragma unroll
        for (unsigned r = 0; r < WARP_ROWS; ++r)
            sums[r] = add_lanes(sums[r] + rest[r]);
    }
    if (SHARERS > 1) {
        if (lane == 0) shared[row_in_block][share] = sums[0];
        __syncthreads();
        if (share > 0) return;
#pragma unroll
        for (unsigned i = 1; i < SHARERS; ++i)
            sums[0] += shared[row_in_block][i];
    }
    if (!stores) return;
    Sum own = sums[0];
#pragma unroll
    for (unsigned r = 1; r < WARP_ROWS; ++r)
        if (lane == r) own = sums[r];
    store(result, finish, given, own, row + lane);
}

constexpr unsigned COLUMN = LANES * PER_LANE; // rows of a block in along_rows

// Neighbours that a lane reads at once, if they are words at least.
constexpr unsigned NEAR = PER_LANE * sizeof(MatrixElement) < 4 ? 1 : PER_LANE < WIDE ? PER_LANE : WIDE;

// Which of the block's rows the lane's i-th is.
inline __device__ unsigned row_of(unsigned i)
{
    return (i / NEAR * LANES + threadIdx.x % LANES) * NEAR + i % NEAR;
}

// What a lane reads of one column. CLOSE: all of its rows exist, and neighbours lie side by side where they can be read at
// once.
template <bool CLOSE> struct ColumnPart {
    Neighbours<MatrixElement, NEAR> near[PER_LANE / NEAR];
    Element factor;

    __device__ void read(const Strided<const MatrixElement> &matrix, const Strided<const Element> &vector, unsigned first_row,
                         unsigned k)
    {
        const MatrixElement *column = matrix.at(first_row, k);
        factor = *vector.at(k, 0);
#pragma unroll
        for (unsigned i = 0; i < PER_LANE; ++i) {
            const unsigned row = row_of(i);
            if (CLOSE && i % NEAR == 0) near[i / NEAR].read(column + row);
            if (!CLOSE)
                near[i / NEAR].at[i % NEAR] = first_row + row < matrix.rows ? column[row * matrix.row_stride] : MatrixElement();
        }
    }

    __device__ void add_to(Sum (&sums)[PER_LANE]) const
    {
        const Sum by = widen(factor);
#pragma unroll
        for (unsigned i = 0; i < PER_LANE; i += NEAR == 1 ? 1 : 2) {
            if constexpr (NEAR == 1) {
                add_product(sums[i], Sum(widen_to<Sum>(near[i].at[0])), by);
            } else {
                const auto two = widen_two_to<Sum>(&near[i / NEAR].at[i % NEAR]);
                add_product(sums[i], Sum(two.x), by);
                add_product(sums[i + 1], Sum(two.y), by);
            }
        }
    }
};

// What one lane adds up of its rows over every WARPS-th k. Several columns are read before any is added: all that counts
// is how much is under way.
template <bool CLOSE>
inline __device__ void add_columns(Sum (&sums)[PER_LANE], const Strided<const MatrixElement> &matrix,
                                   const Strided<const Element> &vector, unsigned first_row, unsigned warp)
{
    constexpr unsigned AHEAD = !CLOSE ? 2 : PER_LANE * sizeof(MatrixElement) > 32 ? 4 : 8;
    unsigned k = warp;
#pragma unroll 1
    for (; k + (AHEAD - 1) * WARPS < matrix.columns; k += AHEAD * WARPS) {
        ColumnPart<CLOSE> parts[AHEAD];
#pragma unroll
        for (unsigned i = 0; i < AHEAD; ++i)
            parts[i].read(matrix, vector, first_row, k + i * WARPS);
#pragma unroll
        for (unsigned i = 0; i < AHEAD; ++i)
            parts[i].add_to(sums);
    }
#pragma unroll 1
    for (; k < matrix.columns; k += WARPS) {
        ColumnPart<CLOSE> part;
        part.read(matrix, vector, first_row, k);
        part.add_to(sums);
    }
}

// Whether the matrix's columns begin where neighbours can be read at once.
inline __device__ bool are_readable(const Strided<const MatrixElement> &matrix, unsigned first_row)
{
    const bool aligned =
        Neighbours<MatrixElement, NEAR>::are_aligned(matrix.at(first_row, 0)) && (NEAR == 1 || matrix.column_stride % NEAR == 0);
    return matrix.row_stride == 1 && matrix.rows - first_row >= COLUMN && aligned;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    along_rows(Strided<const MatrixElement> matrix, Strided<const Element> vector, Strided<Result> result,
               const __grid_constant__ Stack stack, Epilogue epilogue)
{
    __shared__ Sum shared[WARPS][COLUMN];
    const unsigned blocks = matrix.rows / COLUMN + (matrix.rows % COLUMN != 0); // of one matrix, or part of K
    const unsigned first_row = blockIdx.x % blocks * COLUMN;
    const unsigned warp = threadIdx.x / LANES;
#if PARTS > 1 // which are as matrices of a stack
    const InStack which = {0, blockIdx.x / blocks};
    const unsigned begin = matrix.columns * 1ull * which.inner / PARTS;
    const unsigned end = matrix.columns * (which.inner + 1ull) / PARTS;
    matrix.elements = matrix.at(0, begin), vector.elements = vector.at(begin, 0), matrix.columns = end - begin;
    result.select(which);
    result.rows = result.batch_stride[1] / NUMBERS; // up to the end of a row of sums, since add_parts.cu reads whole runs of it
    const Fused finish;
#else
    const InStack which = stack[blockIdx.x / blocks];
    matrix.select(stack.of_a(which)), vector.select(stack.of_b(which)), result.select(stack.of_c(which));
    const Fused finish = epilogue.in_stack(stack, which);
#endif
    dependent_launch::wait_for_previous(first_row);
    dependent_launch::let_next_begin();

#pragma unroll
    for (unsigned row = threadIdx.x; row < COLUMN; row += BLOCK_THREADS)
        if (first_row + row < result.rows) finish.prefetch_lines(first_row + row, 0);
    Sum sums[PER_LANE] = {};
    if (are_readable(matrix, first_row))
        add_columns<true>(sums, matrix, vector, first_row, warp);
    else
        add_columns<false>(sums, matrix, vector, first_row, warp);
#pragma unroll
    for (unsigned i = 0; i < PER_LANE; ++i)
        shared[warp][row_of(i)] = sums[i];
    __syncthreads();

#pragma unroll
    for (unsigned first = 0; first < COLUMN; first += BLOCK_THREADS) {
        const unsigned row = first + threadIdx.x;
        if (row >= COLUMN || first_row + row >= result.rows) return;
        Sum sum = shared[0][row];
#pragma unroll
        for (unsigned i = 1; i < WARPS; ++i)
            sum += shared[i][row];
        store(result, finish, finish.template read<NUMBERS>(first_row + row, 0), sum, first_row + row);
    }
}
