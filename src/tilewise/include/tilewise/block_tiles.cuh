// The tiles of a product that a block computes, one after another: of a matrix, of a stack of them, or of groups of rows.
#pragma once

#include <tilewise/cluster.cuh>
#include <tilewise/group_walk.cuh>
#include <tilewise/raster.cuh>
#include <tilewise/stack.cuh>

// Which matrix of the stack, and where its tile begins.
struct Place {
    unsigned row, column;
    InStack which;
};

// The walk over them, and the block's place in its cluster. Shape: the tile's M×N; the CLUSTER_ROWS×CLUSTER_COLUMNS that
// share operands, and all BLOCKS of a cluster, with those that split K; whether rows are IN_GROUPS, tiles OF_MATRICES.
template <typename Shape> struct BlockTiles {
    unsigned rows, columns; // of tiles of clusters
    unsigned count;         // of them, in the whole stack
    unsigned inner;         // matrices along the inner axis of the stack
    unsigned index;
    unsigned rank, row, column; // of the block in its cluster
    GroupWalk<Shape::M> walk;   // over groups, of which there is a matrix for each
    Place here = {};            // of the tile, once it is found

    __device__ BlockTiles(unsigned height, unsigned width, unsigned matrices, unsigned inner, const int *group_ends)
        : rows(height / (Shape::CLUSTER_ROWS * Shape::M) + (height % (Shape::CLUSTER_ROWS * Shape::M) != 0)),
          columns(width / (Shape::CLUSTER_COLUMNS * Shape::N) + (width % (Shape::CLUSTER_COLUMNS * Shape::N) != 0)),
          inner(inner), walk(group_ends, matrices, height, columns)
    {
        count = rows * columns * matrices;
        index = blockIdx.x / Shape::BLOCKS;
        rank = Shape::BLOCKS == 1 ? 0 : cluster::rank();
        row = rank % Shape::CLUSTER_ROWS, column = rank / Shape::CLUSTER_ROWS % Shape::CLUSTER_COLUMNS;
    }

    // Finds the block's first tile, if there is one. All lanes of a warp look for one of a group.
    __device__ bool find()
    {
        if (!(Shape::IN_GROUPS ? walk.seek(index) : index < count)) return false;
        here = place();
        return true;
    }

    // Goes on by so many.
    __device__ void skip(unsigned tiles) { index += tiles * (gridDim.x / Shape::BLOCKS); }

    // Whether there will be one. NOTE: the walk over groups goes there: end() is of that tile then.
    __device__ bool more()
    {
        const unsigned sought = index + gridDim.x / Shape::BLOCKS;
        return Shape::IN_GROUPS ? walk.seek(sought) : sought < count;
    }

    // The rows of C that the tile may store: up to the end of its group.
    __device__ unsigned end(unsigned height) const { return Shape::IN_GROUPS ? walk.end() : height; }

    // The blocks, a bit each, in the same row and in the same column of the cluster.
    __device__ unsigned short beside() const
    {
        unsigned short blocks = 0;
#pragma unroll
        for (unsigned i = 0; i < Shape::CLUSTER_COLUMNS; ++i)
            blocks |= 1 << (i * Shape::CLUSTER_ROWS + row);
        return blocks;
    }
    __device__ unsigned short below() const { return ((1 << Shape::CLUSTER_ROWS) - 1) << column * Shape::CLUSTER_ROWS; }

    // The matrix that the tile is of.
    __device__ InStack matrix() const
    {
        const unsigned number = Shape::OF_MATRICES ? index / (rows * columns) : 0;
        return {number / inner, number % inner};
    }

  private:
    // The tile may lie beyond the last row or column of them. Then the block only loads for the others.
    __device__ Place place() const
    {
        if constexpr (Shape::IN_GROUPS) {
            const TileIndex tile = grouped(walk.tile(index), walk.tile_rows(), columns);
            return {walk.begin() + tile.row * Shape::M, tile.column * Shape::N, {0, walk.group()}};
        }
        const TileIndex tile = grouped(Shape::OF_MATRICES ? index % (rows * columns) : index, rows, columns);
        return {(tile.row * Shape::CLUSTER_ROWS + row) * Shape::M,
                (tile.column * Shape::CLUSTER_COLUMNS + column) * Shape::N, matrix()};
    }
};
