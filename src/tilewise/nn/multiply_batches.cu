// A batch times earlier ones: of each of its rows the product with every row of each, times what that batch counts for (see
// layer_earlier.cuh). Rows are inputs of a layer, or, if ARE_GRADIENTS says so, gradients by its outputs.
//
// A cluster for each 16 × 16 of them, whose blocks share out K. The batches lie one after another, this one behind the others.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/layer_rows.cuh>
#include <tilewise/layer_sums.cuh>
#include <tilewise/layer_tiles.cuh>
#include <tilewise/tensor_core.cuh>

constexpr unsigned CHUNK = 32; // of K, that a warp takes at once: 16 bytes of a row for each lane
constexpr unsigned ROWS = 16, TILES = TILE_BATCH / ROWS;

// Sixteen rows: of every eighth 16 bytes, of the eight elements that lane % 4 has of a chunk. Which of them the tensor core
// takes for which of K does not matter, as both sides are dealt out alike.
struct Rows {
    uint4 upper, lower;

    __device__ Rows(const float16 *batch, unsigned depth, unsigned first, unsigned k)
        : upper(read(batch, depth, first, k)), lower(read(batch, depth, first + 8, k))
    {
    }

    __device__ static uint4 read(const float16 *batch, unsigned depth, unsigned first, unsigned k)
    {
        const unsigned lane = threadIdx.x % layer::LANES, row = first + lane / 4, at = k + lane % 4 * 8;
        const unsigned from = ARE_GRADIENTS ? layer::of_gradient<TILE_BATCH>(row, at) : row * depth + at;
        return *reinterpret_cast<const uint4 *>(&batch[from]);
    }
};

__device__ void multiply(layer::Sums<ROWS, ROWS> &sums, const Rows &a, const Rows &b)
{
    const unsigned first[4] = {a.upper.x, a.lower.x, a.upper.y, a.lower.y};
    const unsigned second[4] = {a.upper.z, a.lower.z, a.upper.w, a.lower.w};
    tensor_core::multiply_add_16x8x16<float16>(sums.at[0][0], first, b.upper.x, b.upper.y);
    tensor_core::multiply_add_16x8x16<float16>(sums.at[0][1], first, b.lower.x, b.lower.y);
    tensor_core::multiply_add_16x8x16<float16>(sums.at[0][0], second, b.upper.z, b.upper.w);
    tensor_core::multiply_add_16x8x16<float16>(sums.at[0][1], second, b.lower.z, b.lower.w);
}

extern "C" __global__ void __launch_bounds__(layer::THREADS)
    multiply_batches(const float16 *batches, unsigned depth, float factor, float kept, float *products)
{
    extern __shared__ __align__(16) float shared[];
    // NOTE: the next launch may begin before the wait, as nothing that is written by launches under way then is read by it
    // before this one has ended.
    dependent_launch::let_next_begin();
    const unsigned earlier = gridDim.x / TILES, which = blockIdx.x / TILES, elements = TILE_BATCH * depth;
    const unsigned own_row = blockIdx.z * ROWS, other_row = blockIdx.x % TILES * ROWS;
    const float16 *other = batches + which * elements, *own = batches + earlier * elements;
    for (unsigned i = which + 1; i < earlier; ++i)
        factor *= kept;
    dependent_launch::wait_for_previous();
    layer::Sums<ROWS, ROWS> sums;
    const unsigned first = blockIdx.y * layer::WARPS + threadIdx.x / layer::LANES;
#pragma unroll 4
    for (unsigned k = first * CHUNK; k < depth; k += layer::WARPS * gridDim.y * CHUNK)
        multiply(sums, Rows(own, depth, own_row, k), Rows(other, depth, other_row, k));
    layer::add_up(sums, shared, [&](unsigned row, unsigned column, float4 sum) {
        const auto count = [&](float one) {
            return tensor_core::round_to_tf32(__float_as_uint(one * factor));
        };
        const unsigned at = (own_row + row) * earlier * TILE_BATCH + which * TILE_BATCH + other_row + column;
        *reinterpret_cast<uint4 *>(&products[at]) = {count(sum.x), count(sum.y), count(sum.z), count(sum.w)};
    });
}
