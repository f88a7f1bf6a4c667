// What an epilogue makes of a warpgroup's sums while they are in registers, box by box (compute capability 9.0). What it
// reads or keeps of each element goes by way of boxes too, as a thread's sums lie far apart (wgmma.cuh says where).
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/epilogue_array.cuh>
#include <tilewise/result_box.cuh>

// INSIDE: the result does not end within a box, and arrays that are read or kept lie as boxes are copied, 16 bytes at a time.
// ASKS whether they do all the same before it reads them.
template <typename Box, typename Result, typename Epilogue, bool INSIDE = false, bool ASKS = !INSIDE> struct FinishedBox {
    using Sum = typename Epilogue::Sum;
    static constexpr unsigned NEAR = Box::NEAR;
    using Given = typename Epilogue::template Given<NEAR>;
    static constexpr unsigned LANES = 32, WARPS = 4, WARP_ROWS = Box::ROWS / WARPS;
    static constexpr unsigned PAIRS = Box::SUMS / 2; // of a thread: two neighbours in a row, or in a column
    static constexpr unsigned COUNT = Box::SUMS / NEAR;
    static constexpr unsigned ROW_LANES = Box::COLUMNS / Box::CHUNK, ROUNDS = WARP_ROWS * ROW_LANES / LANES;
    static constexpr unsigned MATRICES = Epilogue::MATRICES, KEPT = Epilogue::KEPT, FURTHER = Box::Rows::FURTHER;

    const Epilogue &epilogue;
    unsigned row, column, height, width; // where it begins, and where the result ends

    // Each warp starts to copy its rows of the array that is read.
    __device__ void start_reading(Box &box) const
    {
        if constexpr (MATRICES > 0) start_copying(epilogue.matrix(), box);
    }

    // Fetches what will be read of it to L2, by a thread for each of its rows.
    __device__ void prefetch() const
    {
        if constexpr (MATRICES > 0) {
            const unsigned down = row + threadIdx.x % Box::ROWS;
            if (INSIDE || (down < height && column < width)) prefetch_line(epilogue.matrix().at(down, column));
        }
    }

    using Pairs = decltype(narrow_pair<Result>(float2()));
    static constexpr unsigned TOGETHER = sizeof(Result) == 2 ? 4 : PAIRS; // that a box takes at once

    // Makes sums of a thread results in the box `to`, once that is free. What is read of each element is in the box
    // `from`, or on its way, and what is kept goes through that too; then what is read of the `next` box follows, if
    // there is `more`. Whether that is so of its lines, `ahead` says.
    template <bool LINES_AHEAD, typename Wait>
    __device__ void finish(const Sum (&sums)[Box::SUMS], Given (&given)[COUNT], const FinishedBox &next, bool more,
                           bool &ahead, Box &from, Box &to, Wait wait_until_free) const
    {
        static_assert((sizeof(Result) == 2 && NEAR == 2) || MATRICES + KEPT == 0, "other boxes hold other neighbours");
        Pairs results[PAIRS / TOGETHER][TOGETHER];
        if (MATRICES > 0) async_copy::wait_for_all(), __syncwarp();
#pragma unroll
        for (unsigned i = 0; i < PAIRS / TOGETHER; ++i) {
            unsigned read[TOGETHER], kept[TOGETHER];
            if constexpr (MATRICES > 0) from.take(read, i);
            if (KEPT == 0 && i + 1 == PAIRS / TOGETHER) start_next(next, more, from);
#pragma unroll
            for (unsigned j = 0; j < TOGETHER; ++j) {
                const unsigned pair = i * TOGETHER + j;
                typename Epilogue::template Kept<NEAR> of_pair;
                Sum two[2 / NEAR][NEAR];
#pragma unroll
                for (unsigned k = 0; k < 2; ++k)
                    two[k / NEAR][k % NEAR] = sums[2 * pair + k];
#pragma unroll
                for (unsigned k = 0; k < 2 / NEAR; ++k) {
                    Given here = given[2 / NEAR * pair + k];
                    if constexpr (MATRICES > 0) epilogue.give_matrix(here, read[j]);
                    epilogue.finish(two[k], here, of_pair);
                }
                results[i][j] = narrow_pair<Result>({two[0][0], two[1 / NEAR][1 % NEAR]});
                if constexpr (KEPT > 0) kept[j] = epilogue.kept_pair(of_pair);
            }
            if (LINES_AHEAD && more && i + 1 == PAIRS / TOGETHER) ahead = next.read_lines_at_once(given);
            if constexpr (KEPT > 0) {
                if (i == 0) wait_until_free(); // there are not enough registers for all results and what is kept
                to.put_pairs(results[i], i);
                __syncwarp(); // all have taken what lies there
                from.put_pairs(kept, i);
            }
        }
        if constexpr (KEPT > 0) {
            __syncwarp();
            store_rows(epilogue.kept(), from);
            start_next(next, more, from);
        } else {
            wait_until_free();
#pragma unroll
            for (unsigned i = 0; i < PAIRS / TOGETHER; ++i)
                to.put_pairs(results[i], i);
        }
    }

    // Reads what is the same along rows or columns, for the sums of a thread, where two neighbours can be read at once.
    __device__ bool read_lines_at_once(Given (&given)[COUNT]) const
    {
        const unsigned down = first_down(), across = first_across();
        const bool whole = row + Box::ROWS <= height && column + Box::COLUMNS <= width;
        if (!INSIDE && !(whole && epilogue.template lines_lie_at_once<NEAR>(down, across))) return false;
        const int signed_down = down, signed_across = across; // EpilogueArray::at() says why
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            given[i] = epilogue.template read_lines<NEAR>(signed_down + later_down(i), signed_across + later_across(i));
        return true;
    }

    // The same, however they lie.
    __device__ void read_lines_apart(Given (&given)[COUNT]) const
    {
        const int down = first_down(), across = first_across();
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            given[i] = epilogue.template read_lines_within<NEAR>(height, width, down + later_down(i),
                                                                 across + later_across(i));
    }

  private:
    // The row and the column of C that a thread's first sum is in.
    __device__ unsigned first_down() const { return row + (NEAR == 1 ? instruction_column() : instruction_row()); }
    __device__ unsigned first_across() const { return column + (NEAR == 1 ? instruction_row() : instruction_column()); }

    // Its row and its column in the instruction.
    static __device__ unsigned instruction_row() { return Box::Rows::first(); }
    static __device__ unsigned instruction_column() { return threadIdx.x % 4 * 2; }

    // How many rows and columns behind its first ones a thread's others are.
    static __device__ constexpr int later_down(int i) { return NEAR == 1 ? i / 4 * 8 + i % 2 : i % 2 * FURTHER; }
    static __device__ constexpr int later_across(int i) { return NEAR == 1 ? i / 2 % 2 * FURTHER : i / 2 * 8; }

    static __device__ void start_next(const FinishedBox &next, bool more, Box &box)
    {
        if (MATRICES + KEPT == 0) return;
        __syncwarp();
        if (more) next.start_reading(box);
    }

    // Where a lane has 16 bytes of a row, and how many elements of them are inside.
    struct Run {
        unsigned row, column, inside;

        __device__ Run(const FinishedBox &box, unsigned round)
        {
            const unsigned lane = threadIdx.x % LANES;
            row = Box::Rows::of_warp(round * (LANES / ROW_LANES) + lane / ROW_LANES), column = lane % ROW_LANES * Box::CHUNK;
            const bool exists = box.row + row < box.height && box.column + column < box.width;
            inside = INSIDE ? Box::CHUNK : exists ? min(box.width - box.column - column, Box::CHUNK) : 0;
        }
    };

    template <typename Array> __device__ void start_copying(const Array &array, Box &box) const
    {
        using Element = typename Array::Element;
#pragma unroll 1
        for (unsigned round = 0; round < ROUNDS; ++round) {
            const Run run(*this, round);
            void *to = box.chunk(run.row, run.column);
            const Element *from = array.at(row + run.row, column + run.column);
            if (!ASKS || (array.column_stride == 1 && Neighbours<Element, Box::CHUNK>::are_aligned(from))) {
                async_copy::start_mostly_16(to, from, run.inside * sizeof(Element));
            } else {
#pragma unroll 1
                for (unsigned i = 0; i < run.inside; ++i)
                    static_cast<Element *>(to)[i] = from[i * array.column_stride];
            }
        }
    }

    template <typename Array> __device__ void store_rows(const Array &array, Box &box) const
    {
        using Element = typename Array::Element;
#pragma unroll 1
        for (unsigned round = 0; round < ROUNDS; ++round) {
            const Run run(*this, round);
            const void *from = box.chunk(run.row, run.column);
            Element *to = array.at(row + run.row, column + run.column);
            Neighbours<Element, Box::CHUNK> elements;
            elements.read(from);
            if (INSIDE || (run.inside == Box::CHUNK && array.column_stride == 1 && elements.are_aligned(to))) {
                elements.write(to);
            } else {
#pragma unroll 1
                for (unsigned i = 0; i < run.inside; ++i)
                    to[i * array.column_stride] = static_cast<const Element *>(from)[i];
            }
        }
    }
};
