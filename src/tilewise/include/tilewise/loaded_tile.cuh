// What a block loads of two operands for its tile, into the stages of a ring (compute capability 9.0).
#pragma once

#include <tilewise/block_tiles.cuh>
#include <tilewise/operand_tile.cuh>

// The maps of A and B, and those of the last tiles of them, if these are smaller.
struct OperandMaps {
    const TensorMap &a, &b, &end_a, &end_b;
};

// Rows of A and columns of B.
struct Extents {
    unsigned height, width;
};

// Where the tile begins in the operands, and how many lines there are of it. What lies beyond them is not stored, so that
// other lines may stand for it. A stage has one TileOfA and some TilesOfB along K. Where rows of A are IN_GROUPS, all count.
template <typename TileOfA, typename TileOfB, bool IN_GROUPS> struct LoadedTile {
    unsigned row, column, rows, columns;

    __device__ LoadedTile(Place tile, Extents product)
        : row(IN_GROUPS || tile.row < product.height ? tile.row : 0),
          column(tile.column < product.width ? tile.column : 0),
          rows(IN_GROUPS ? TileOfA::LINES : TileOfA::existing(product.height, row)),
          columns(TileOfB::existing(product.width, column))
    {
    }

    // All of it, whether it exists or not.
    explicit __device__ LoadedTile(Place tile)
        : row(tile.row), column(tile.column), rows(TileOfA::LINES), columns(TileOfB::LINES)
    {
    }

    __device__ bool is_whole() const { return rows == TileOfA::LINES && columns == TileOfB::LINES; }

    // The same with all lines, which the engine fills with zeros where there are none.
    __device__ LoadedTile filled() const
    {
        LoadedTile all = *this;
        all.rows = TileOfA::LINES, all.columns = TileOfB::LINES;
        return all;
    }

    // Starts to load a stage, for k on of K: for `full`, which counts what other blocks load for this one, too. B comes
    // before A if blocks below one another share it: what others wait for comes first. SOME: it may be less than all.
    template <bool SOME, bool B_FIRST, typename Stage, typename Tiles>
    __device__ void load(Stage &stage, const OperandMaps &maps, unsigned k, tensor_copy::InStack from_a,
                         tensor_copy::InStack from_b, const Tiles &tiles, Mbarrier &full) const
    {
        constexpr unsigned TILES_OF_B = sizeof(stage.b) / sizeof(TileOfB);
        const unsigned short beside = tiles.beside(), below = tiles.below();
        full.arrive_and_expect(SOME ? TileOfA::bytes(rows) + TILES_OF_B * TileOfB::bytes(columns) : sizeof(Stage));
        if (!B_FIRST) stage.a.template load<SOME>(maps.a, maps.end_a, row, k, rows, from_a, tiles.column, beside, full);
#pragma unroll
        for (unsigned i = 0; i < TILES_OF_B; ++i)
            stage.b[i].template load<SOME>(maps.b, maps.end_b, column, k + i * TileOfB::BLOCK_K, columns, from_b, tiles.row,
                                           below, full);
        if (B_FIRST) stage.a.template load<SOME>(maps.a, maps.end_a, row, k, rows, from_a, tiles.column, beside, full);
    }

    // Puts zeros in stages where nothing is loaded: so many threads do, the first of the block.
    template <typename Stage> __device__ void clear_rest(Stage *stages, unsigned count, unsigned threads) const
    {
#pragma unroll 1
        for (Stage *stage = stages; stage < stages + count; ++stage) {
            stage->a.clear_behind(rows, threadIdx.x, threads);
#pragma unroll
            for (auto &b : stage->b)
                b.clear_behind(columns, threadIdx.x, threads);
        }
    }
};
