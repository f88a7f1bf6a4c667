// A warpgroup's way from sums to memory where something happens to them, or where the copy engine cannot store them as
// they lie: a box of sums in shared memory, of which each thread takes neighbours in a row of C (compute capability
// 9.0). wgmma.cuh says which sums a thread has.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/sum_registers.cuh>

// HEIGHT rows of 64 sums. Rows of an instruction are rows of C, or columns of C if they lie ACROSS. They may be PAIRED
// (tilewise/sum_registers.cuh).
template <bool ACROSS, unsigned HEIGHT, typename Sum = float, bool PAIRED = false, bool SCARCE = false>
struct alignas(1024) SumBox {
    using Rows = InstructionRows<PAIRED>;
    static constexpr unsigned COLUMNS = 64, CHUNK = 4, RUN = 8; // RUN: columns that a thread takes at once
    static constexpr unsigned LANES = 32, GROUP = 4 * LANES;

    // NOTE: if registers are SCARCE it is said anew for each box. Else the compiler keeps all that follows from a thread's number
    // while products are under way, which leave no room for it.
    static __device__ unsigned thread()
    {
        unsigned thread = threadIdx.x;
        if (SCARCE) asm volatile("" : "+r"(thread));
        return thread;
    }

    Sum sums[HEIGHT * COLUMNS];

    // Where the 4 sums lie that this column is in: elsewhere in each row, so that what a warp puts, and what it takes,
    // lies in all banks.
    __device__ Sum *chunk(unsigned row, unsigned column)
    {
        const unsigned index = column / CHUNK;
        const unsigned turn = ACROSS ? row / 2 % 4 * 2 : row % 4 * 2;
        const unsigned of_pairs = ACROSS ? row / 2 % 2 * 2 + row / 4 % 2 : row / 2 % 2 * 4 + row / 16 % 2 * 2;
        return &sums[row * COLUMNS + (index ^ index / 8 ^ (PAIRED ? of_pairs : turn)) * CHUNK];
    }

    // Puts sums of the warpgroup's threads, 64 rows and LINES columns of the instruction, from the one on that `first`
    // says, which the compiler has to know. From the place of a thread's first sum to those of its others leads what is
    // known here, written out, as the compiler would compute chunk() for each of them.
    template <unsigned LINES, typename Register, unsigned COUNT>
    __device__ void put(const Register (&all)[COUNT], unsigned first)
    {
        static_assert(LINES % 8 == 0 && LINES <= 64 && LINES / 2 <= COUNT * SUMS_IN<Register>, "the instruction's columns");
        using Two = decltype(sum_pair(all, 0));
        const unsigned down = Rows::first(thread()), across = thread() % 4 * 2; // of its first sums
        Sum *const begin = ACROSS ? chunk(across, down) + down % CHUNK : chunk(down, across) + across % CHUNK;
        const unsigned place = begin - sums;
#pragma unroll
        for (unsigned i = 0; i < LINES / 8; ++i) { // times 8 columns of the instruction
            const auto one = sum_pair(all, first + i * 4), other = sum_pair(all, first + i * 4 + 2); // of a thread's rows
            if constexpr (ACROSS && PAIRED) {
                Sum *const to = &sums[place + i * 8 * COLUMNS];
                *reinterpret_cast<Two *>(to) = {one.x, other.x};
                *reinterpret_cast<Two *>(to + COLUMNS) = {one.y, other.y};
            } else if (ACROSS) {
                Sum *const here = &sums[place + i * 8 * COLUMNS], *const there = &sums[(place ^ 2 * CHUNK) + i * 8 * COLUMNS];
                here[0] = one.x, here[COLUMNS] = one.y;
                there[0] = other.x, there[COLUMNS] = other.y;
            } else {
                Sum *const to = &sums[place ^ (i * 2 ^ i / 4) * CHUNK];
                *reinterpret_cast<Two *>(to) = one;
                *reinterpret_cast<Two *>(to + Rows::FURTHER * COLUMNS) = other;
            }
        }
    }

    // Where the box, or so much of it, belongs in C, as far as C goes. `whole` runs of columns can be stored at once.
    struct Part {
        unsigned row, column, height, width, whole;

        template <typename Result>
        __device__ Part(const Matrix<Result> &c, unsigned row, unsigned column, unsigned rows, unsigned columns,
                        bool aligned)
            : row(row), column(column)
        {
            height = row < c.height ? min(c.height - row, rows) : 0;
            width = column < c.width ? min(c.width - column, columns) : 0;
            whole = aligned ? width / RUN : 0;
        }

        // A thread has the same run of every few rows.
        static constexpr unsigned APART = GROUP / (COLUMNS / RUN), RUNS = (HEIGHT + APART - 1) / APART;
        __device__ unsigned down(unsigned i) const { return thread() % GROUP / (COLUMNS / RUN) + i * APART; }
        __device__ unsigned across() const { return thread() % (COLUMNS / RUN) * RUN; }
        __device__ bool has(unsigned i) const { return across() < whole * RUN && down(i) < height; }
    };

    // What an epilogue reads for the next AHEAD of a thread's runs. It takes long, so it begins before the sums are here,
    // and before the results of other runs are stored; unless it is so much that registers for two turns are too many.
    template <typename Epilogue, unsigned AHEAD> struct Given {
        enum : bool { EARLY = sizeof(typename Epilogue::template Given<RUN>) <= 2 * RUN * sizeof(Sum) };
        typename Epilogue::template Given<RUN> runs[AHEAD];

        __device__ void read(const Part &part, const Epilogue &epilogue, unsigned first)
        {
#pragma unroll
            for (unsigned i = 0; i < AHEAD; ++i)
                if (part.has(first + i))
                    runs[i] = epilogue.template read<RUN>(part.row + part.down(first + i), part.column + part.across());
        }
    };

    // Stores what the epilogue makes of the sums. The first runs have been read, if early.
    template <unsigned AHEAD, typename Result, typename Epilogue>
    __device__ void store(Matrix<Result> c, const Part &part, Given<Epilogue, AHEAD> given, const Epilogue &epilogue)
    {
#pragma unroll 1
        for (unsigned first = 0; first < Part::RUNS; first += AHEAD) {
            Given<Epilogue, AHEAD> next;
            if (!next.EARLY) given.read(part, epilogue, first);
            if (next.EARLY) next.read(part, epilogue, first + AHEAD);
#pragma unroll
            for (unsigned i = 0; i < AHEAD; ++i)
                if (part.has(first + i)) store_run(c, part, first + i, given.runs[i], epilogue);
            given = next;
        }
#pragma unroll 1
        for (unsigned row = thread() % GROUP / LANES; row < part.height; row += GROUP / LANES)
#pragma unroll 1
            for (unsigned column = part.whole * RUN + thread() % LANES; column < part.width; column += LANES) {
                const Sum sum = chunk(row, column)[column % CHUNK];
                const unsigned down = part.row + row, across = part.column + column;
                c.at(down, across) = narrow<Result>(epilogue(sum, down, across));
            }
    }

    // The same where the epilogue adds up columns and rows: each warp stores what it has of this box as partial sums, of
    // which every box has as many as warps below one another, and one across. Boxes begin anew with each TILE_M rows and
    // TILE_N columns of C. Only runs or only single columns of a box are taken, so that a thread keeps to its columns.
    template <unsigned TILE_M, unsigned TILE_N, unsigned AHEAD, typename Result, typename Epilogue>
    __device__ void store_and_add(Matrix<Result> c, const Part &part, Given<Epilogue, AHEAD> given,
                                  const Epilogue &epilogue)
    {
        if (part.height * part.width == 0) return;
        const unsigned box = part.row / TILE_M * ((TILE_M + 63) / 64) + part.row % TILE_M / 64;
        const unsigned down = box * (GROUP / LANES) + thread() % GROUP / LANES;
        const unsigned across = part.column / TILE_N * ((TILE_N + 63) / 64) + part.column % TILE_N / COLUMNS;
        if (part.whole * RUN == part.width)
            add_runs(c, part, given, epilogue, down, across);
        else
            add_columns(c, part, epilogue, down, across);
    }

  private:
    template <unsigned AHEAD, typename Result, typename Epilogue>
    __device__ void add_runs(Matrix<Result> c, const Part &part, Given<Epilogue, AHEAD> &given,
                             const Epilogue &epilogue, unsigned slot_down, unsigned slot_across)
    {
        constexpr unsigned SHARERS = COLUMNS / RUN; // lanes that have a row together
        typename Epilogue::template Added<RUN> all;
#pragma unroll 1
        for (unsigned first = 0; first < Part::RUNS; first += AHEAD) {
            Given<Epilogue, AHEAD> next;
            if (!next.EARLY) given.read(part, epilogue, first);
            if (next.EARLY) next.read(part, epilogue, first + AHEAD);
#pragma unroll
            for (unsigned i = 0; i < AHEAD; ++i) {
                typename Epilogue::template Added<RUN> added;
                if (part.has(first + i)) store_run(c, part, first + i, given.runs[i], epilogue, added);
                const unsigned row = part.down(first + i);
                epilogue.template put_row<SHARERS>(added, row < part.height, part.row + row, slot_across);
                all.add(added);
            }
            given = next;
        }
        const unsigned left = part.across() < part.width ? part.width - part.across() : 0;
        epilogue.template put_columns<SHARERS>(all, slot_down, part.column + part.across(), left);
    }

    template <typename Result, typename Epilogue>
    __device__ void add_columns(Matrix<Result> c, const Part &part, const Epilogue &epilogue, unsigned slot_down,
                                unsigned slot_across)
    {
        typename Epilogue::template Added<1> all[COLUMNS / LANES];
#pragma unroll 1
        for (unsigned row = thread() % GROUP / LANES; row < part.height; row += GROUP / LANES) {
            typename Epilogue::template Added<1> of_row;
#pragma unroll
            for (unsigned i = 0; i < COLUMNS / LANES; ++i) {
                const unsigned column = i * LANES + thread() % LANES;
                if (column >= part.width) continue;
                typename Epilogue::template Added<1> added;
                Sum sum[1] = {chunk(row, column)[column % CHUNK]};
                const unsigned down = part.row + row, across = part.column + column;
                epilogue.apply(sum, epilogue.template read<1>(down, across), down, across, added);
                c.at(down, across) = narrow<Result>(sum[0]);
                all[i].add(added), of_row.add(added);
            }
            epilogue.template put_row<LANES>(of_row, true, part.row + row, slot_across);
        }
#pragma unroll
        for (unsigned i = 0; i < COLUMNS / LANES; ++i) {
            const unsigned column = i * LANES + thread() % LANES;
            epilogue.template put_columns<LANES>(all[i], slot_down, part.column + column, column < part.width);
        }
    }

    // `added` gets what the epilogue adds up, if it does.
    template <typename Result, typename Epilogue, typename... Added>
    __device__ void store_run(Matrix<Result> c, const Part &part, unsigned i,
                              const typename Epilogue::template Given<RUN> &given, const Epilogue &epilogue,
                              Added &...added)
    {
        const unsigned row = part.row + part.down(i), column = part.column + part.across();
        Neighbours<Sum, CHUNK> low, high;
        low.read(chunk(part.down(i), part.across()));
        high.read(chunk(part.down(i), part.across() + CHUNK));
        decltype(epilogue(Sum(), row, column)) run[RUN]; // of whole sums numbers, if something happens to them
#pragma unroll
        for (unsigned j = 0; j < RUN; ++j)
            run[j] = j < CHUNK ? low.at[j] : high.at[j % CHUNK];
        epilogue.apply(run, given, row, column, added...);
        Neighbours<Result, RUN> results;
#pragma unroll
        for (unsigned j = 0; j < RUN; ++j)
            results.at[j] = narrow<Result>(run[j]);
        results.write(&c.at(row, column));
    }
};
