// A warp's way from sums to memory: rows gathered in shared memory, so that they leave in 128-bit stores.
//
// Tensor cores leave their sums in pairs all over the warp. Of an 8×8 matrix of sums, lane 4·g + t holds row
// g, columns 2t and 2t + 1. Written from there, a store would touch 16 bytes of each of eight rows.
#pragma once

#include <tilewise/matrix.cuh>

// How rows of C are written: by 16 bytes, if they begin at multiples of them, else one by one; or by as many as they are
// aligned for, which makes the code longer; or, as they begin and end at multiples of 16, by these alone.
enum class Access { WIDE, AS_ALIGNED, ALL_WIDE };

// Sixteen rows of COLUMNS elements. Padded after every 128 bytes, or row if longer, by PAD elements: with
// what one row of an 8×8 matrix takes, eight rows of pairs (a store) touch all banks, and so do 128
// neighbouring bytes (a load). 16 bytes at least, so that these begin at a multiple of 16.
template <typename Result, unsigned COLUMNS, unsigned PAD = sizeof(Result) == 1 ? 16 : 8> struct alignas(16) RowStage {
    static constexpr unsigned ROWS = 16;
    static constexpr unsigned ROW_BYTES = COLUMNS * sizeof(Result);
    static constexpr unsigned LINE_ROWS = ROW_BYTES < 128 ? 128 / ROW_BYTES : 1;
    static constexpr unsigned LANES = 32;

    Result elements[ROWS * COLUMNS + ROWS / LINE_ROWS * PAD];

    __device__ Result *at(unsigned row, unsigned column)
    {
        return &elements[row * COLUMNS + row / LINE_ROWS * PAD + column];
    }

    // Two neighbours in a row; Pair is twice the size of Result.
    template <typename Pair> __device__ void put(unsigned row, unsigned column, Pair pair)
    {
        static_assert(sizeof(Pair) == 2 * sizeof(Result), "two results");
        *reinterpret_cast<Pair *>(at(row, column)) = pair;
    }

    // Writes the rows to C, as far as it has them, with all lanes of the warp: whole 16 bytes where C is aligned for
    // them, and the other columns one by one.
    __device__ void write(Matrix<Result> c, unsigned first_row, unsigned first_column, bool aligned)
    {
        const unsigned rows = first_row < c.height ? c.height - first_row : 0;
        const unsigned columns = first_column < c.width ? min(c.width - first_column, COLUMNS) : 0;
        const unsigned whole = aligned ? columns / WIDE<uint4> * WIDE<uint4> : 0;
        write_wide<uint4>(c, first_row, first_column, rows, whole);
        if (whole != columns) write_elements(c, first_row, first_column, rows, whole, columns);
    }

    // The same with whole accesses of so many bytes as C is aligned for, 16, 8 or 4.
    __device__ void write_as_aligned(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned access)
    {
        const unsigned rows = first_row < c.height ? c.height - first_row : 0;
        const unsigned columns = first_column < c.width ? min(c.width - first_column, COLUMNS) : 0;
        const unsigned wide = max(access / unsigned(sizeof(Result)), 1u);
        const unsigned whole = access >= 4 ? columns / wide * wide : 0;
        if (access == 16)
            write_wide<uint4>(c, first_row, first_column, rows, whole);
        else if (access == 8)
            write_wide<uint2>(c, first_row, first_column, rows, whole);
        else if constexpr (sizeof(Result) <= sizeof(unsigned))
            if (access == 4) write_wide<unsigned>(c, first_row, first_column, rows, whole);
        if (whole != columns) write_elements(c, first_row, first_column, rows, whole, columns);
    }

    // The same where C's rows begin and end at multiples of 16 bytes.
    __device__ void write_whole(Matrix<Result> c, unsigned first_row, unsigned first_column)
    {
        const unsigned rows = first_row < c.height ? c.height - first_row : 0;
        const unsigned columns = first_column < c.width ? min(c.width - first_column, COLUMNS) : 0;
        write_wide<uint4>(c, first_row, first_column, rows, columns);
    }

  private:
    template <typename Access> static constexpr unsigned WIDE = sizeof(Access) / sizeof(Result);

    // Writes the first columns of the rows, which are whole accesses.
    template <typename Access>
    __device__ void write_wide(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned rows,
                               unsigned columns)
    {
#pragma unroll 1
        for (unsigned i = threadIdx.x % LANES; i < ROWS * COLUMNS / WIDE<Access>; i += LANES) {
            const unsigned row = i / (COLUMNS / WIDE<Access>), column = i % (COLUMNS / WIDE<Access>) * WIDE<Access>;
            if (row < rows && column < columns)
                *reinterpret_cast<Access *>(&c.at(first_row + row, first_column + column)) =
                    *reinterpret_cast<const Access *>(at(row, column));
        }
    }

    // Writes the others one by one.
    __device__ void write_elements(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned rows,
                                   unsigned begin, unsigned end)
    {
#pragma unroll 1
        for (unsigned i = threadIdx.x % LANES; i < ROWS * COLUMNS; i += LANES) {
            const unsigned row = i / COLUMNS, column = i % COLUMNS;
            if (row < rows && column >= begin && column < end)
                c.at(first_row + row, first_column + column) = *at(row, column);
        }
    }
};

// The widest access, in bytes, that every row of the matrix is aligned for: 16 at most.
template <typename T> inline __device__ unsigned widest_store(Matrix<T> matrix)
{
    const auto bits = reinterpret_cast<unsigned long long>(matrix.elements) | matrix.pitch * sizeof(T) | 16;
    return bits & -bits;
}

// Whether 128-bit accesses fit every row of the matrix.
template <typename T> inline __device__ bool aligned_16(Matrix<T> matrix)
{
    return (reinterpret_cast<unsigned long long>(matrix.elements) | matrix.pitch * sizeof(T)) % 16 == 0;
}
