// How a warpgroup stores its part of a tile: sums, or what an epilogue makes of them, by way of shared memory (compute
// capability 9.0).
#pragma once

#include <tilewise/block_tiles.cuh>
#include <tilewise/finished_box.cuh>
#include <tilewise/matrix.cuh>
#include <tilewise/named_barrier.cuh>
#include <tilewise/result_box.cuh>
#include <tilewise/sum_box.cuh>
#include <tilewise/tensor_copy.cuh>

// Form: the part has ROWS_64 instructions below one another, each 64×COLUMNS, and so many WARPGROUPS multiply at once. What is
// Fused makes Results of its sums, which are Wide ones in boxes. Its rows are those of C, or C's columns, if it is
// TRANSPOSED. C is one OF_STACK; or its rows lie IN_GROUPS; or it is IN_PARTS, which are added up later, or IN_CLUSTERS, by
// others than this. It HAS_WHOLE_ROWS if they begin and end at multiples of 16 bytes; or tiles lie INSIDE of it all, too.
// Registers are SCARCE where more is kept in them than sums. An instruction's rows may be PAIRED.
template <typename Form> struct StoredTile {
    using Result = typename Form::Result;
    using Fused = typename Form::Fused;
    static constexpr unsigned WARPGROUP = 128, ROWS_64 = Form::ROWS_64, COLUMNS = Form::COLUMNS;
    static constexpr bool TRANSPOSED = Form::TRANSPOSED;
    static constexpr unsigned REGISTERS = ROWS_64 * (COLUMNS / 2 + (Form::PAIRED ? 32 : 0)); // sums, and rows of two steps
    static constexpr bool HAS_ROOM = !Form::PAIRED || REGISTERS < 160; // beside them
    static constexpr unsigned GIVEN_BYTES = sizeof(typename Fused::template Given<1>); // that it reads for an element
    static constexpr bool SCARCE = Form::SCARCE || (GIVEN_BYTES > 8 && ROWS_64 * COLUMNS >= 256);

    // What a warpgroup has for results on their way out: two boxes of results (tilewise/result_box.cuh), one of which is put
    // while the engine stores the other, or an epilogue's arrays are read; or one of sums, where more happens to them than a
    // thread does to its own (tilewise/finished_box.cuh), or results are bytes. Results lie across in boxes without arrays of
    // the epilogue, those of 32 bits where they fill two of 32 lines; else only 16 bits fill some boxes in part.
    static constexpr bool FINISHED_IN_BOXES =
        Fused::IN_BOXES && (Fused::MATRICES + Fused::KEPT == 0 || (sizeof(Result) == 2 && !TRANSPOSED));
    static constexpr bool FITS_WORDS = TRANSPOSED ? COLUMNS % 16 == 0 && COLUMNS >= 64 : COLUMNS % 64 == 0;
    static constexpr bool FITS_BOXES = sizeof(Result) == 2 ? COLUMNS % 16 == 0 : sizeof(Result) == 4 && FITS_WORDS;
    static constexpr bool IN_BOXES = !Form::IN_PARTS && (Fused::PLAIN || FINISHED_IN_BOXES) && FITS_BOXES;
    static constexpr bool BY_ENGINE = IN_BOXES && Form::HAS_WHOLE_ROWS;
    static constexpr bool ACROSS = TRANSPOSED && IN_BOXES;
    static constexpr unsigned BOX_HEIGHT = TRANSPOSED && COLUMNS < 64 ? COLUMNS : 64;
    using Box = ResultBox<Result, ACROSS, !ACROSS ? 64 : sizeof(Result) == 4 ? 32 : BOX_HEIGHT, Form::PAIRED>;
    using BoxOfSums = SumBox<TRANSPOSED, BOX_HEIGHT, typename Form::Wide, Form::PAIRED, !HAS_ROOM>;
    // What boxes read along rows and columns, of a thread.
    struct Lines {
        typename Fused::template Given<Box::NEAR> given[Box::SUMS / Box::NEAR];
        bool ahead = false; // whether those of the next box are there
    };
    struct alignas(1024) Buffer {
        char bytes[IN_BOXES ? 2 * sizeof(Box) : sizeof(BoxOfSums)];
    };

    // Whether what boxes read along rows and columns is read before it is needed, as there are registers for it.
    static constexpr bool LINES_AHEAD = IN_BOXES && FINISHED_IN_BOXES && !Form::IN_CLUSTERS && !SCARCE &&
                                        Form::WARPGROUPS < 3 && REGISTERS + 4 * GIVEN_BYTES <= 144;

    // The same where they cannot be read at once: of a single box. Of more that is compiled where each box begins alone.
    static constexpr bool APART_AHEAD = LINES_AHEAD && COLUMNS <= Box::LINES && ROWS_64 == 1;

    // Begins to read what the epilogue reads of a tile, before its products: to L2, to boxes of results that are for it, or
    // the first box's lines to registers. NOTE: else each tile ends with a wait for memory.
    template <typename Fusion>
    static __device__ void fetch_ahead(Buffer &buffer, Lines &lines, Place tile, const Fusion &epilogue,
                                       const Matrix<Result> &c)
    {
        if constexpr (Form::IN_PARTS || Fused::PLAIN) return;
        const unsigned thread = threadIdx.x % WARPGROUP;
        const Place here = in_result(tile);
        const unsigned down = TRANSPOSED ? 2 * thread : thread, across = TRANSPOSED ? thread : 2 * thread;
        epilogue.prefetch_lines(min(here.row + down, c.height - 1), min(here.column + across, c.width - 1));
        if constexpr (IN_BOXES && FINISHED_IN_BOXES && !Form::IN_CLUSTERS) {
            box_at(0, tile, epilogue, c).start_reading(reinterpret_cast<Box &>(buffer.bytes));
            if constexpr (LINES_AHEAD) lines.ahead = box_at(0, tile, epilogue, c).read_lines_at_once(lines.given);
            if (APART_AHEAD && !lines.ahead) box_at(0, tile, epilogue, c).read_lines_apart(lines.given);
#pragma unroll 1
            for (unsigned i = 1 + thread / Box::ROWS; i < BOXES; i += WARPGROUP / Box::ROWS)
                box_at(i, tile, epilogue, c).prefetch();
        } else if constexpr (Fused::MATRICES > 0) {
            constexpr unsigned RUN = 64, RUNS = (WIDTH + RUN - 1) / RUN; // elements of 16 bits in a line of L2
#pragma unroll 1
            for (unsigned i = thread; i < HEIGHT * RUNS; i += WARPGROUP) {
                const unsigned row = here.row + i / RUNS, column = here.column + i % RUNS * RUN;
                if (row < c.height && column < c.width) epilogue.prefetch_matrices(row, column);
            }
        }
    }

    // Stores it. `wide`: C's rows begin at multiples of 16 bytes; `map` describes it, if it HAS_WHOLE_ROWS.
    template <typename Register, unsigned COUNT>
    static __device__ void store(Buffer &buffer, const Register (&sums)[ROWS_64][COUNT], Lines &lines, unsigned group,
                                 Place tile, const TensorMap &map, const Fused &epilogue, const Matrix<Result> &c, bool wide)
    {
        if constexpr (IN_BOXES)
            store_results(buffer, sums, lines, group, tile, map, epilogue, c);
        else
            store_sums(buffer, sums, group, tile, epilogue, c, wide);
    }

    // Waits until the engine has read all that was stored.
    static __device__ void wait_for_engine()
    {
        if (BY_ENGINE && threadIdx.x % WARPGROUP == 0) tensor_copy::wait_until_read<0>();
    }

  private:
    // Rows and columns of C that the part has, and where it begins there.
    static constexpr unsigned HEIGHT = TRANSPOSED ? COLUMNS : 64 * ROWS_64, WIDTH = TRANSPOSED ? 64 * ROWS_64 : COLUMNS;
    static __device__ Place in_result(Place tile)
    {
        return TRANSPOSED ? Place{tile.column, tile.row, tile.which} : tile;
    }

    // Boxes for 64 rows of it, and in all. The last one of those rows may have fewer lines.
    static constexpr unsigned BOXES_ACROSS = (COLUMNS + Box::LINES - 1) / Box::LINES, BOXES = ROWS_64 * BOXES_ACROSS;
    static constexpr unsigned LAST_LINES = COLUMNS - (BOXES_ACROSS - 1) * Box::LINES;
    static constexpr bool INSIDE = Form::INSIDE && LAST_LINES == Box::LINES;
    // NOTE: with as many columns the compiler spills three registers if it need not ask.
    using Finished = FinishedBox<Box, Result, Fused, INSIDE, !INSIDE || COLUMNS == 256>;

    static __device__ void wait_for_warpgroup(unsigned group) { named_barrier::wait<WARPGROUP>(1 + group); }

    static __device__ bool is_full(unsigned i) { return LAST_LINES == Box::LINES || i % BOXES_ACROSS + 1 < BOXES_ACROSS; }

    static __device__ Finished box_at(unsigned i, Place tile, const Fused &epilogue, const Matrix<Result> &c)
    {
        const unsigned down = tile.row + i / BOXES_ACROSS * 64, across = tile.column + i % BOXES_ACROSS * Box::LINES;
        const unsigned end = LAST_LINES == Box::LINES ? ~0u : tile.column + COLUMNS; // of its lines
        if (ACROSS) return Finished{epilogue, across, down, min(end, c.height), c.width};
        return Finished{epilogue, down, across, c.height, min(end, c.width)};
    }

    // The registers of a box's sums. NOTE: what is done with them is compiled once, for all boxes, as a variable cannot choose
    // a register. Without the empty statement the compiler selects each of them from those of all.
    template <unsigned REGISTERS, typename Register, unsigned COUNT>
    static __device__ void take_box(Register (&own)[REGISTERS], const Register (&sums)[ROWS_64][COUNT], unsigned box)
    {
#pragma unroll
        for (unsigned i = 0; i < BOXES; ++i) {
            if (box != i) continue;
            asm volatile("");
#pragma unroll
            for (unsigned j = 0; j < REGISTERS; ++j) {
                const unsigned from = i % BOXES_ACROSS * REGISTERS + j;
                own[j] = from < COUNT ? sums[i / BOXES_ACROSS][from] : Register(0); // the last box may have fewer
            }
        }
    }

    // Box by box: the engine, where C's rows lie as it needs them; else threads. Where the epilogue reads arrays, the first
    // copy to the first box has been started.
    template <typename Register, unsigned COUNT>
    static __device__ void store_results(Buffer &buffer, const Register (&sums)[ROWS_64][COUNT], Lines &lines, unsigned group,
                                         Place tile, const TensorMap &map, const Fused &epilogue, Matrix<Result> c)
    {
        auto &boxes = reinterpret_cast<Box(&)[2]>(buffer.bytes);
        constexpr bool BESIDE = FINISHED_IN_BOXES && Fused::MATRICES + Fused::KEPT > 0; // the first is for its arrays
        constexpr unsigned REGISTERS = Box::SUMS / SUMS_IN<Register>; // of a box
        const bool storing = BY_ENGINE && threadIdx.x % WARPGROUP == 0; // the thread that starts the stores
        constexpr unsigned COPIES = SCARCE ? BOXES : 1; // how a box is stored is compiled once, if registers allow
        constexpr bool ROOM = ROWS_64 * COUNT <= 160 && Form::WARPGROUPS < 3;
        constexpr unsigned ROWS_AT_ONCE = COPIES == 1 && ROWS_64 * COUNT <= 160 ? 2 : 1; // as they and the code's length do
#pragma unroll COPIES
        for (unsigned i = 0; i < BOXES; ++i) {
            Box &box = boxes[BESIDE ? 1 : i % 2];
            const Finished here = box_at(i, tile, epilogue, c);
            const bool inside = !Form::IN_GROUPS || here.row + Box::ROWS <= c.height; // or else rows of the next group
            const bool whole = BY_ENGINE && inside && is_full(i);
            const auto wait_until_free = [&] { // until the last store of this box has read it
                if (storing) tensor_copy::wait_until_read<BESIDE ? 0 : 1>();
                wait_for_warpgroup(group);
            };
            if constexpr (FINISHED_IN_BOXES) {
                const Finished next = box_at(i + 1, tile, epilogue, c);
                if (!LINES_AHEAD) lines.ahead = here.read_lines_at_once(lines.given);
                if (!APART_AHEAD && !lines.ahead) here.read_lines_apart(lines.given);
                Register own[REGISTERS];
                take_box(own, sums, i);
                typename Finished::Sum numbers[Box::SUMS];
                take_numbers(numbers, own);
                here.template finish<LINES_AHEAD>(numbers, lines.given, next, i + 1 < BOXES, lines.ahead, boxes[0], box,
                                                  wait_until_free);
            } else if constexpr (ROOM && sizeof(Result) == 4) {
                Register own[REGISTERS];
                take_box(own, sums, i);
                wait_until_free();
                box.put(own);
            } else {
                wait_until_free();
#pragma unroll
                for (unsigned j = 0; j < BOXES; ++j) // those of 16 bits are rounded and packed as they are chosen
                    if (i == j) box.put(sums[j / BOXES_ACROSS], j % BOXES_ACROSS * Box::SUMS);
            }
            if (whole) tensor_copy::fence_stores();
            wait_for_warpgroup(group);
            if (storing && whole) store_by_engine(map, here.row, here.column, tile.which, box);
            if (storing) tensor_copy::commit(); // each box is a group, if an empty one
            if (whole) continue;
            if constexpr (!BY_ENGINE)
                box.template store_runs<ROWS_AT_ONCE>(c, here.row, here.column, is_full(i) ? Box::LINES : LAST_LINES);
            else if (is_full(i))
                box.template store_chunks<Box::LINES>(c, here.row, here.column);
            else
                box.template store_chunks<LAST_LINES>(c, here.row, here.column);
        }
        // The next tile begins with the first box again. After an odd number of boxes an empty group stands for the other.
        if (BOXES % 2 && storing) tensor_copy::commit();
    }

    // The engine stores a box.
    static __device__ void store_by_engine(const TensorMap &map, unsigned row, unsigned column, InStack which, Box &box)
    {
#pragma unroll
        for (unsigned i = 0; i < Box::STRIPS; ++i) {
            const void *from = &box.bytes[i * Box::ROWS * Box::ROW_BYTES];
            if (Form::OF_STACK)
                tensor_copy::store(map, row, column + i * Box::STRIP_COLUMNS, which, from);
            else
                tensor_copy::store(map, row, column + i * Box::STRIP_COLUMNS, from);
        }
    }

    // Where more happens to the sums than that, or C's rows lie across: threads store them.
    template <typename Register, unsigned COUNT>
    static __device__ void store_sums(Buffer &buffer, const Register (&sums)[ROWS_64][COUNT], unsigned group, Place tile,
                                      const Fused &epilogue, Matrix<Result> c, bool wide)
    {
        auto &box = reinterpret_cast<BoxOfSums &>(buffer.bytes);
        constexpr unsigned FULL = COLUMNS / 64, REST = COLUMNS % 64; // boxes across, and columns of one more
        constexpr unsigned ALL = FULL + (REST > 0);
        // As registers allow: there are about as many for what is read ahead of two runs as 32.
        constexpr bool ROOM = Form::WARPGROUPS < 3 && HAS_ROOM && !Fused::has_sums() &&
                              sizeof(typename Fused::template Given<BoxOfSums::RUN>) <= 32;
        constexpr unsigned AHEAD = ROOM && BoxOfSums::Part::RUNS > 1 ? 2 : 1;
#pragma unroll 1 // what happens to the sums is compiled once, not for each box
        for (unsigned i = 0; i < ROWS_64 * ALL; ++i) {
            const unsigned down = tile.row + i / ALL * 64, across = tile.column + i % ALL * 64;
            const unsigned lines = REST == 0 || i % ALL != FULL ? 64 : REST;
            const unsigned row = TRANSPOSED ? across : down, column = TRANSPOSED ? down : across;
            const typename BoxOfSums::Part part(c, row, column, TRANSPOSED ? lines : 64, TRANSPOSED ? 64 : lines, wide);
            typename BoxOfSums::template Given<Fused, AHEAD> given;
            if (given.EARLY) given.read(part, epilogue, 0);
            wait_for_warpgroup(group); // all have stored from the box
#pragma unroll
            for (unsigned j = 0; j < ROWS_64 * ALL; ++j) {
                if (i != j) continue;
                if constexpr (FULL > 0) {
                    if (REST == 0 || j % ALL != FULL) box.template put<64>(sums[j / ALL], j % ALL * 32);
                }
                if constexpr (REST > 0) {
                    if (j % ALL == FULL) box.template put<REST>(sums[j / ALL], FULL * 32);
                }
            }
            wait_for_warpgroup(group);
            if constexpr (Fused::has_sums())
                box.template store_and_add<TRANSPOSED ? COLUMNS : 64, TRANSPOSED ? 64 : COLUMNS>(c, part, given, epilogue);
            else
                box.store(c, part, given, epilogue);
        }
    }
};
