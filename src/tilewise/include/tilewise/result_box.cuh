// A warpgroup's way from sums to memory: boxes in shared memory that the copy engine stores (compute
// capability 9.0). wgmma.cuh says which sums a thread has.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/sum_registers.cuh>
#include <tilewise/tensor_core.cuh>

// HEIGHT rows of 128 bytes, swizzled as the copy engine takes them, for LINES of an instruction's columns. The instruction's
// rows are the box's, or the box's columns if they lie ACROSS: of 32 bits in two STRIPS side by side, one behind the other.
// They may be PAIRED (tilewise/sum_registers.cuh).
template <typename Result, bool ACROSS = false, unsigned HEIGHT = 64, bool PAIRED = false> struct alignas(1024) ResultBox {
    using Rows = InstructionRows<PAIRED>;
    static constexpr unsigned ROWS = HEIGHT, ROW_BYTES = 128;
    static constexpr unsigned STRIP_COLUMNS = ROW_BYTES / sizeof(Result); // that the engine stores at once
    static constexpr unsigned COLUMNS = ACROSS ? 64 : STRIP_COLUMNS, STRIPS = COLUMNS / STRIP_COLUMNS;
    static constexpr unsigned CHUNK = 16 / sizeof(Result); // elements in 16 bytes
    static constexpr bool LIES_ACROSS = ACROSS;
    static constexpr unsigned LINES = ACROSS ? ROWS : COLUMNS;
    static constexpr unsigned SUMS = LINES / 2, NEAR = ACROSS ? 1 : 2; // of a thread; of those, neighbours in a row
    static constexpr unsigned LANES = 32, WARPS = 4;
    static_assert(ACROSS ? sizeof(Result) >= 2 && ROWS <= 64 : ROWS == 64, "an instruction has 64 rows");

    char bytes[STRIPS * ROWS * ROW_BYTES];

    // Where the 16-byte chunk lies that this column is in.
    __device__ void *chunk(unsigned row, unsigned column)
    {
        const unsigned strip = STRIPS > 1 ? column / STRIP_COLUMNS : 0, across = column - strip * STRIP_COLUMNS;
        return &bytes[(strip * ROWS + row) * ROW_BYTES + (across * sizeof(Result) / 16 ^ row % 8) * 16];
    }

    // Puts SUMS of each thread of the warpgroup where they belong, from the one on that `first` says, which the
    // compiler has to know: a variable cannot choose a register. Of 16 bits there may be fewer behind it.
    template <typename Register, unsigned COUNT>
    __device__ void put(const Register (&all)[COUNT], unsigned first = 0)
    {
        static_assert(COUNT * SUMS_IN<Register> % (sizeof(Result) == 4 && !ACROSS ? SUMS : 8) == 0, "what is put at once");
        if constexpr (sizeof(Result) == 4)
            put_words(all, first);
        else
            put_halves(all, first);
    }

    // Puts or takes pairs of neighbours as a thread has them: packed ones of 16 bits, of the 16 columns of this number.
    __device__ void put_pairs(const unsigned (&pairs)[4], unsigned across)
    {
        if (ACROSS && PAIRED)
            put_pairs_across(pairs, across);
        else if (ACROSS)
            tensor_core::store_4_transposed(transposed_row(across), pairs);
        else
            tensor_core::store_4_matrices(matrix_row(across), pairs);
    }

    __device__ void take(unsigned (&pairs)[4], unsigned across) { tensor_core::load_4_matrices(pairs, matrix_row(across)); }

    // The same of elements of 32 bits, those of all columns.
    __device__ void put_pairs(const float2 (&pairs)[SUMS / 2], unsigned)
    {
        float all[SUMS];
#pragma unroll
        for (unsigned i = 0; i < SUMS; i += 2)
            all[i] = pairs[i / 2].x, all[i + 1] = pairs[i / 2].y;
        put_words(all, 0);
    }

    // Stores so many lines of the box, 16 bytes at a time, where the copy engine would store the others as well. Rows of C
    // begin and end at multiples of 16 bytes.
    template <unsigned COUNTED> __device__ void store_chunks(Matrix<Result> c, unsigned first_row, unsigned first_column)
    {
        constexpr unsigned PER_ROW = (ACROSS ? COLUMNS : COUNTED) / CHUNK, ALL = (ACROSS ? COUNTED : ROWS) * PER_ROW;
        static_assert(ALL % (WARPS * LANES) == 0, "as many for each thread");
#pragma unroll
        for (unsigned i = 0; i < ALL; i += WARPS * LANES) {
            const unsigned at = i + threadIdx.x % (WARPS * LANES), row = at / PER_ROW, column = at % PER_ROW * CHUNK;
            if (first_row + row >= c.height || first_column + column >= c.width) continue;
            Neighbours<Result, CHUNK> elements;
            elements.read(chunk(row, column));
            elements.write(&c.at(first_row + row, first_column + column));
        }
    }

    // Stores the box one element at a time, where the copy engine cannot: C's rows lie otherwise than it
    // needs, or end in the middle of 16 bytes, which it would write whole.
    __device__ void store_elements(Matrix<Result> c, unsigned first_row, unsigned first_column)
    {
        const unsigned rows = first_row < c.height ? min(c.height - first_row, ROWS) : 0;
        const unsigned columns = first_column < c.width ? min(c.width - first_column, COLUMNS) : 0;
#pragma unroll 1
        for (unsigned row = threadIdx.x % (WARPS * LANES) / LANES; row < rows; row += WARPS)
#pragma unroll 1
            for (unsigned column = threadIdx.x % LANES; column < columns; column += LANES)
                c.at(first_row + row, first_column + column) =
                    static_cast<const Result *>(chunk(row, column))[column % CHUNK];
    }

    // The same for rows that begin anywhere: 16 bytes at once from the first multiple of 16 on, the others one by one. Only
    // so many lines of the box are there. Of so many rows a thread reads what it stores before it does.
    template <unsigned ROWS_AT_ONCE = 2>
    __device__ void store_runs(Matrix<Result> c, unsigned first_row, unsigned first_column, unsigned lines = LINES)
    {
        constexpr unsigned ROW_LANES = COLUMNS / CHUNK; // threads that have a row
        constexpr unsigned PASS = WARPS * LANES / ROW_LANES;
        const unsigned height = ACROSS ? lines : ROWS, width = ACROSS ? COLUMNS : lines;
        const unsigned rows = first_row < c.height ? min(c.height - first_row, height) : 0;
        const unsigned columns = first_column < c.width ? min(c.width - first_column, width) : 0;
        const unsigned lane = threadIdx.x % ROW_LANES;
#pragma unroll 1
        for (unsigned first = threadIdx.x % (WARPS * LANES) / ROW_LANES; first < rows; first += PASS * ROWS_AT_ONCE) {
            RowEnds ends[ROWS_AT_ONCE];
            Neighbours<Result, CHUNK> runs[ROWS_AT_ONCE];
            Result others[ROWS_AT_ONCE];
#pragma unroll
            for (unsigned i = 0; i < ROWS_AT_ONCE; ++i) {
                const unsigned row = min(first + i * PASS, height - 1);
                ends[i] = RowEnds(&c.at(first_row + row, first_column), columns);
                runs[i] = run_at(row, ends[i].begin + lane * CHUNK, width - 1);
                others[i] = element(row, min(ends[i].outside(lane), width - 1));
            }
#pragma unroll
            for (unsigned i = 0; i < ROWS_AT_ONCE; ++i) {
                const unsigned row = first + i * PASS, column = ends[i].begin + lane * CHUNK;
                if (row >= rows) continue;
                Result *to = &c.at(first_row + row, first_column);
                if (column < ends[i].end) runs[i].write(to + column);
                if (ends[i].outside(lane) < columns) to[ends[i].outside(lane)] = others[i];
                const unsigned next = ends[i].outside(lane + ROW_LANES); // of a row that ends within the box
                if (next < columns) to[next] = element(row, next);
            }
        }
    }

  private:
    // Where the whole 16 bytes of a row of C begin and end, which has some columns of the box.
    struct RowEnds {
        unsigned begin, end;

        RowEnds() = default;
        __device__ RowEnds(const Result *row, unsigned columns)
        {
            const unsigned past = reinterpret_cast<unsigned long long>(row) % 16 / sizeof(Result);
            begin = min((CHUNK - past) % CHUNK, columns), end = columns - (columns - begin) % CHUNK;
        }

        // The column of an element outside of them, by its number.
        __device__ unsigned outside(unsigned which) const { return which < begin ? which : end + which - begin; }
    };

    __device__ Result element(unsigned row, unsigned column)
    {
        return static_cast<const Result *>(chunk(row, column))[column % CHUNK];
    }

    // 16 bytes of a row from any element on, out of two chunks side by side. Behind the row's last element they are anything.
    __device__ Neighbours<Result, CHUNK> run_at(unsigned row, unsigned column, unsigned last)
    {
        constexpr unsigned WORD = 4 / sizeof(Result), WORDS = 4; // elements of a word, and words of a chunk
        const unsigned past = column % CHUNK;
        Neighbours<unsigned, WORDS> one, other;
        one.read(static_cast<const unsigned *>(chunk(row, min(column, last))));
        other.read(static_cast<const unsigned *>(chunk(row, min(column + CHUNK, last))));
        unsigned words[2 * WORDS];
#pragma unroll
        for (unsigned i = 0; i < WORDS; ++i)
            words[i] = one.at[i], words[WORDS + i] = other.at[i];
#pragma unroll
        for (unsigned step = WORDS / 2; step > 0; step /= 2)
#pragma unroll
            for (unsigned i = 0; i + step < 2 * WORDS; ++i)
                if (past / WORD & step) words[i] = words[i + step];
        Neighbours<Result, CHUNK> run;
#pragma unroll
        for (unsigned i = 0; i < WORDS; ++i)
            run.words[0].at[i] = __funnelshift_r(words[i], words[i + 1], past % WORD * 8 * sizeof(Result));
        return run;
    }

    // Whether a thread puts sums of PAIRED rows that lie across in the other order, so that a warp's, or half a warp's, lie in
    // all banks: those of the second of its columns first.
    static __device__ bool swaps() { return threadIdx.x / 8 % 2; }

    // Pairs of 16 bits that lie across, of PAIRED rows: of two in a column of the instruction each, two in a row of the box.
    __device__ void put_pairs_across(const unsigned (&pairs)[4], unsigned across)
    {
        const unsigned row = across * 16 + threadIdx.x % 4 * 2, column = Rows::first();
        constexpr unsigned LOW = 0x5410, HIGH = 0x7632; // halves of both
        char *const here = static_cast<char *>(chunk(row + swaps(), column)) + column % CHUNK * sizeof(Result);
        char *const there = static_cast<char *>(chunk(row + !swaps(), column)) + column % CHUNK * sizeof(Result);
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned one = pairs[2 * i], other = pairs[2 * i + 1];
            *reinterpret_cast<unsigned *>(here + i * 8 * ROW_BYTES) = __byte_perm(one, other, swaps() ? HIGH : LOW);
            *reinterpret_cast<unsigned *>(there + i * 8 * ROW_BYTES) = __byte_perm(one, other, swaps() ? LOW : HIGH);
        }
    }

    // Words that lie across, each by itself, or both of PAIRED rows. There may be fewer behind the first.
    template <typename Register, unsigned COUNT>
    __device__ void put_words_across(const Register (&sums)[COUNT], unsigned first)
    {
        using Two = decltype(sum_pair(sums, first));
        using Word = decltype(Two::x);
        const unsigned row = threadIdx.x % 4 * 2, column = Rows::first();
#pragma unroll
        for (unsigned i = 0; i < SUMS; i += 4) {
            if (first + i >= COUNT * SUMS_IN<Register>) continue;
            const auto one = sum_pair(sums, first + i), other = sum_pair(sums, first + i + 2); // of its rows
            const unsigned down = row + i / 4 * 8;
            if constexpr (PAIRED) {
                auto *here = reinterpret_cast<Two *>(static_cast<Word *>(chunk(down + swaps(), column)) + column % CHUNK);
                auto *there = reinterpret_cast<Two *>(static_cast<Word *>(chunk(down + !swaps(), column)) + column % CHUNK);
                *here = Two{swaps() ? one.y : one.x, swaps() ? other.y : other.x};
                *there = Two{swaps() ? one.x : one.y, swaps() ? other.x : other.y};
            } else {
                const unsigned across = column + Rows::FURTHER;
                static_cast<Word *>(chunk(down, column))[column % CHUNK] = one.x;
                static_cast<Word *>(chunk(down + 1, column))[column % CHUNK] = one.y;
                static_cast<Word *>(chunk(down, across))[across % CHUNK] = other.x;
                static_cast<Word *>(chunk(down + 1, across))[across % CHUNK] = other.y;
            }
        }
    }

    // Four rows of pairs, which a store takes at a time, lie in only half of the banks. So every other row, or every other two
    // PAIRED ones, puts another pair at the same time, from the columns that lie in the other half.
    template <typename Register, unsigned COUNT>
    __device__ void put_words(const Register (&sums)[COUNT], unsigned first)
    {
        if constexpr (ACROSS) {
            put_words_across(sums, first);
            return;
        }
        using Two = decltype(sum_pair(sums, first));
        const unsigned lane = threadIdx.x % LANES;
        const bool odd = lane / (PAIRED ? 8 : 4) % 2;
#pragma unroll
        for (unsigned j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const auto here = sum_pair(sums, first + j * 4 + half * 2);
                const auto there = sum_pair(sums, first + (j ^ 2) * 4 + half * 2);
                const unsigned row = Rows::first() + half * Rows::FURTHER;
                const unsigned column = (odd ? j ^ 2 : j) * 8 + lane % 4 * 2;
                auto *to = static_cast<Two *>(chunk(row, column)) + column / 2 % 2;
                *to = Two{odd ? there.x : here.x, odd ? there.y : here.y};
            }
    }

    template <typename Register, unsigned COUNT>
    __device__ void put_halves(const Register (&sums)[COUNT], unsigned first)
    {
#pragma unroll
        for (unsigned j = 0; j < LINES / 16; ++j) {
            if (first + j * 8 >= COUNT * SUMS_IN<Register>) continue;
            unsigned pairs[4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                pairs[i] = narrow_sums<Result>(sums, first + j * 8 + i * 2);
            put_pairs(pairs, j);
        }
    }

    // The row of 16 bytes that a lane names to an instruction for four matrices, down and then across, of a warp's rows and
    // of the 16 columns of this number.
    __device__ void *matrix_row(unsigned across)
    {
        const unsigned lane = threadIdx.x % LANES;
        return chunk(Rows::of_warp(lane % 16), across * 16 + lane / 16 * 8);
    }

    // The same where these are columns of C, of which the 16 rows have this number.
    __device__ void *transposed_row(unsigned across)
    {
        const unsigned lane = threadIdx.x % LANES, warp_column = threadIdx.x % (WARPS * LANES) / LANES * 16;
        return chunk(across * 16 + lane / 16 * 8 + lane % 8, warp_column + lane / 8 % 2 * 8);
    }
};
