// What a step of K needs of an operand in shared memory: loaded by the copy engine, multiplied by wgmma (compute
// capability 9.0).
#pragma once

#include <tilewise/tensor_copy.cuh>
#include <tilewise/wgmma.cuh>

// Rows of 128 bytes as the copy engine swizzles them. With K along the rows it is one box of SIZE rows, else boxes side
// by side, each 64 k by 64 elements of 16 bits. Of COUNT blocks that share it, each loads a part for all: some rows, some boxes, or
// some k of every box. IN_STACK: the map has four axes, two of them of a stack.
// NOTE: the engine takes longer for rows of a box that lie outside of the matrix than for others. So where the matrix ends
// within the tile only what exists is loaded: whole boxes, or by a map of its own, where ENDS, a box of fewer rows.
template <typename Element, unsigned SIZE, bool ALONG_K, unsigned COUNT, bool IN_STACK, bool ENDS = ALONG_K && COUNT == 1>
struct alignas(1024) OperandTile {
    static constexpr unsigned ROW_BYTES = 128, BLOCK_K = ROW_BYTES / sizeof(Element), LINES = SIZE;
    static constexpr unsigned PART = SIZE / COUNT, PART_K = BLOCK_K / COUNT;
    static constexpr bool WHOLE_BOXES = PART % BLOCK_K == 0, MAY_END = ALONG_K ? ENDS : true;
    static constexpr unsigned UNIT = ALONG_K ? 8 : BLOCK_K; // what is loaded or not
    static_assert(SIZE % (ALONG_K ? COUNT * 8 : BLOCK_K) == 0 && (!ALONG_K || PART <= 256), "boxes of the engine");
    static_assert(!ENDS || (ALONG_K && COUNT == 1), "what is shared is loaded as a whole");
    Element elements[SIZE * BLOCK_K];

    // How much of the tile there is to load, if it begins so far into the matrix of this size.
    static __device__ unsigned existing(unsigned size, unsigned begin)
    {
        return size - begin < SIZE && MAY_END ? (size - begin + UNIT - 1) / UNIT * UNIT : SIZE;
    }
    // Whether the last tile has a map of its own.
    static __device__ bool has_end(unsigned size) { return ENDS && size % SIZE > 0 && size % SIZE <= SIZE - UNIT; }
    static __device__ unsigned bytes(unsigned existing) { return existing * ROW_BYTES; }

    // Puts zeros behind what exists: so many threads do, of which this is one.
    __device__ void clear_behind(unsigned existing, unsigned thread, unsigned threads)
    {
#pragma unroll 1
        for (unsigned i = bytes(existing) / 16 + thread; i < bytes(SIZE) / 16; i += threads)
            reinterpret_cast<uint4 *>(elements)[i] = {};
    }

    // Loads all of it.
    __device__ void load(const TensorMap &map, unsigned begin, unsigned k, tensor_copy::InStack which, unsigned part,
                         unsigned short blocks, Mbarrier &full)
    {
        load<false>(map, map, begin, k, SIZE, which, part, blocks, full);
    }

    // Loads all of it, or SOME: as much as exists. `end` is the map for fewer than all rows.
    template <bool SOME>
    __device__ void load(const TensorMap &map, const TensorMap &end, unsigned begin, unsigned k, unsigned existing,
                         tensor_copy::InStack which, unsigned part, unsigned short blocks, Mbarrier &full)
    {
        if constexpr (ALONG_K) {
            const TensorMap &its = SOME && ENDS && existing < SIZE ? end : map;
            copy(&elements[part * PART * BLOCK_K], its, begin + part * PART, k, which, blocks, full);
        } else if constexpr (WHOLE_BOXES) {
#pragma unroll
            for (unsigned i = part * PART; i < part * PART + PART; i += BLOCK_K)
                if (!SOME || i < existing) copy(&elements[i * BLOCK_K], map, k, begin + i, which, blocks, full);
        } else {
#pragma unroll
            for (unsigned i = 0; i < SIZE; i += BLOCK_K)
                if (!SOME || i < existing)
                    copy(&elements[(i + part * PART_K) * BLOCK_K], map, k + part * PART_K, begin + i, which, blocks, full);
        }
    }

    // What the first instruction is told, for the rows of A (columns of B) from `begin` on.
    __device__ unsigned long long descriptor(unsigned begin) const
    {
        return wgmma::descriptor(&elements[begin * BLOCK_K], ALONG_K ? 0 : BLOCK_K * ROW_BYTES);
    }

  private:
    static __device__ void copy(void *to, const TensorMap &map, unsigned row, unsigned column,
                                tensor_copy::InStack which, unsigned short blocks, Mbarrier &full)
    {
        if constexpr (IN_STACK && COUNT > 1)
            tensor_copy::load_to_all(to, map, row, column, which, full, blocks);
        else if constexpr (IN_STACK)
            tensor_copy::load(to, map, row, column, which, full);
        else if constexpr (COUNT > 1)
            tensor_copy::load_to_all(to, map, row, column, full, blocks);
        else
            tensor_copy::load(to, map, row, column, full);
    }
};
