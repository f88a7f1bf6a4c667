// Which tile of the output a block computes: orders over a grid of tiles of any shape.
//
// Blocks start in the order of their numbers, so the blocks in flight at one moment are neighbours in that
// order. The fewer rows and columns of tiles they lie in, the less of A and B they read between them, and
// the more of it the L2 cache has already. tilewise/kernels/raster.py holds the same orders in Python.
#pragma once

struct TileIndex {
    unsigned row;
    unsigned column;
};

inline __device__ TileIndex row_by_row(unsigned block, unsigned, unsigned columns)
{
    return {block / columns, block % columns};
}

inline __device__ TileIndex column_by_column(unsigned block, unsigned rows, unsigned)
{
    return {block % rows, block / rows};
}

// Bands of BAND rows of tiles, column by column within a band; the last band may be lower.
// NOTE: one division, as each takes long, at the begin of a kernel, and long to compile.
template <unsigned BAND = 8>
inline __device__ TileIndex grouped(unsigned block, unsigned rows, unsigned columns)
{
    const unsigned above = rows / BAND * BAND; // rows of those that are not lower
    const bool lower = block >= above * columns;
    const unsigned number = lower ? block - above * columns : block / BAND; // of a tile, or of a column of them
    const unsigned share = lower ? rows - above : columns;
    const unsigned quotient = number / share, rest = number - quotient * share;
    if (lower) return {above + rest, quotient};
    return {quotient * BAND + block % BAND, rest};
}

// A walk over a box of tiles: it enters at the corner `at`, visits each tile once, always steps to a
// neighbour, and leaves at the other end of the side that leads off in direction `along`.
//
// Such a walk exists where the length is even, or length and width are both odd (colour the tiles as on a
// chessboard and count); and only if a box one tile long is one tile wide. Both cuts below keep to that.
struct TileWalk {
    TileIndex at;
    int along_row, along_column;   // one tile along the side
    int across_row, across_column; // one tile away from it, into the box
    unsigned length, width;        // along and across

    __device__ void move(unsigned along, unsigned across)
    {
        at.row += along * along_row + across * across_row;
        at.column += along * along_column + across * across_column;
    }

    // The side that the walk follows becomes the one across. With sign -1 both directions turn round.
    __device__ void turn(int sign, unsigned new_length, unsigned new_width)
    {
        const int row = along_row, column = along_column;
        along_row = sign * across_row, along_column = sign * across_column;
        across_row = sign * row, across_column = sign * column;
        length = new_length, width = new_width;
    }

    // A long box is cut into two, one behind the other; goes to the one that holds tile i of the walk.
    __device__ void enter_half(unsigned &i)
    {
        const unsigned second = (length + 2) / 4 * 2; // even, so the first keeps the parity of the whole
        const unsigned first = length - second;
        if (i < first * width) {
            length = first;
            return;
        }
        i -= first * width;
        move(first, 0);
        length = second;
    }

    // Any other box is cut into three: away from the side, along the far part, and back to the side.
    __device__ void enter_third(unsigned &i)
    {
        const unsigned rise = (width + 2) / 4 * 2; // even: the length of the first and third walk
        const unsigned half = length / 2;
        const unsigned first = rise * half, second = (width - rise) * length;
        if (i < first) {
            turn(1, rise, half);
        } else if (i < first + second) {
            i -= first;
            move(0, rise);
            width -= rise;
        } else {
            i -= first + second;
            move(length - 1, rise - 1);
            turn(-1, rise, length - half);
        }
    }
};

// Hilbert's curve, for a grid of any shape: every block's tile lies beside that of the block before it.
// On a square of 2^p by 2^p tiles it is the classical curve.
inline __device__ TileIndex hilbert(unsigned block, unsigned rows, unsigned columns)
{
    const bool wide = columns >= rows;
    TileWalk walk = {{0, 0}, !wide, wide, wide, !wide, max(rows, columns), min(rows, columns)};

    // No walk leads along an odd length where the width is even. The curve may end anywhere, so it goes along
    // an even part of it, and then across the rest, which is a tile longer than wide.
    if (walk.length % 2 && walk.width % 2 == 0) {
        const unsigned first = walk.length - walk.width - 1;
        if (block < first * walk.width) {
            walk.length = first;
        } else {
            block -= first * walk.width;
            walk.move(first, 0);
            walk.turn(1, walk.width, walk.length - first);
        }
    }

    while (walk.length > 2 && walk.width > 1) {
        if (2 * walk.length > 3 * walk.width)
            walk.enter_half(block);
        else
            walk.enter_third(block);
    }

    if (walk.width == 1)
        walk.move(block, 0);
    else if (block < walk.width) // two tiles long: away from the side, and back
        walk.move(0, block);
    else
        walk.move(1, 2 * walk.width - 1 - block);
    return walk.at;
}
