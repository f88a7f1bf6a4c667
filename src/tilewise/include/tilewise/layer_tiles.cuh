// How the arrays of a dense layer lie in memory: in tiles that a warp reads and writes whole, 512 bytes at once, and that
// have no bank conflicts in shared memory as they are.
//
// Weights are tiles of 16 outputs × 32 inputs, those of one output tile one after another. Of a tile the upper eight rows
// come first, then the lower; of eight rows lane 4·g + t has 16 bytes: row g, eight elements from 8·t on, except that t is
// mixed with the row so that ldmatrix finds its eight rows on different banks. Velocities (float32) of the same elements
// are twice 512 bytes, the first four of a lane's eight and then the others, nothing mixed.
//
// Gradients by outputs are tiles of BATCH rows × 16 outputs.
#pragma once

#include <tilewise/element.cuh>

namespace layer {

constexpr unsigned TILE_OUTPUTS = 16, TILE_INPUTS = 32, TILE = TILE_OUTPUTS * TILE_INPUTS; // elements of a tile
constexpr unsigned PER_LANE = 8; // neighbours in a row of which a lane has 16 bytes, or 32 of velocities

// The first element of a tile, given how many inputs there are.
inline __device__ unsigned long long tile_at(unsigned output, unsigned input, unsigned inputs)
{
    return (static_cast<unsigned long long>(output / TILE_OUTPUTS) * (inputs / TILE_INPUTS) + input / TILE_INPUTS) * TILE;
}

// Within a tile, the first of eight elements: of row g of the upper or lower half, from input 8·t on.
inline __device__ unsigned in_tile(unsigned half, unsigned g, unsigned t)
{
    return half * (TILE / 2) + (g * 4 + (t ^ g / 2)) * PER_LANE;
}

// Within a tile of gradients, the first of eight elements: of a sample, from output 8·t on.
inline __device__ unsigned in_gradients(unsigned row, unsigned t)
{
    return row * TILE_OUTPUTS + (t ^ row / 4 % 2) * PER_LANE;
}

// A sample's gradient by an output, among all of them.
template <unsigned BATCH> __device__ unsigned of_gradient(unsigned row, unsigned output)
{
    const unsigned tile = output / TILE_OUTPUTS * TILE_OUTPUTS * BATCH;
    return tile + in_gradients(row, output % TILE_OUTPUTS / PER_LANE) + output % PER_LANE;
}

} // namespace layer
