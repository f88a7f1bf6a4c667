// Earlier batches whose gradients are not in the weights yet. After n batches the weights are
//
//   kept^n · weights - Σ factor_i · gradients_iᵀ · inputs_i,   factor_i = rate · scale · kept^(n - 1 - i)
//
// as a step of gradient descent takes kept = 1 - rate · decay of a weight. A product with them is one with the weights in
// memory and one of small matrices, that of this batch and the earlier ones (see multiply_batches.cu):
//
//   inputs · weightsᵀ - Σ (factor_i · inputs · inputs_iᵀ) · gradients_i
//   gradients · weights - Σ (factor_i · gradients · gradients_iᵀ) · inputs_i
//
// So a layer whose weights are far more than its batches reads them in every step, but writes them in few.
#pragma once

#include <tilewise/element.cuh>
#include <tilewise/layer_sums.cuh>
#include <tilewise/tensor_core.cuh>

namespace layer {

// `products`: of each row of this batch with all rows of `count` earlier ones, factors and signs included, in tf32.
struct Earlier {
    const float *products;
    unsigned count;
    float kept; // of the weights in memory, by all of them

    // Makes sums with the weights in memory ones with those of now, before a cluster adds them up. `find(batch, row, column)`
    // is an element of an earlier batch. Every warp has tiles of 16 × 8 sums of its own.
    template <unsigned BATCH, unsigned COLUMNS, typename Find>
    __device__ void add_to(Sums<BATCH, COLUMNS> &sums, const Find &find) const
    {
        if (!count) return;
        constexpr unsigned ACROSS = COLUMNS / 8, TILES = BATCH / 16 * ACROSS;
        const unsigned warp = blockIdx.y * WARPS + threadIdx.x / LANES;
#pragma unroll
        for (unsigned m = 0; m < BATCH / 16; ++m)
#pragma unroll
            for (unsigned n = 0; n < ACROSS; ++n)
#pragma unroll
                for (float &sum : sums.at[m][n])
                    sum *= kept;
        for (unsigned tile = warp; tile < TILES; tile += WARPS * gridDim.y) {
            float added[4] = {};
            multiply<BATCH>(added, tile / ACROSS * 16, tile % ACROSS * 8, find);
#pragma unroll
            for (unsigned i = 0; i < TILES; ++i)
#pragma unroll
                for (unsigned j = 0; j < 4; ++j)
                    if (i == tile) sums.at[i / ACROSS][i % ACROSS][j] += added[j];
        }
    }

    // NOTE: which of a lane's four rows is which of K does not matter, as both sides are dealt out alike.
    template <unsigned BATCH, typename Find>
    __device__ void multiply(float (&sums)[4], unsigned row, unsigned column, const Find &find) const
    {
        const unsigned lane = threadIdx.x % LANES, pitch = count * BATCH;
        const float *upper = &products[(row + lane / 4) * pitch + lane % 4 * 4], *lower = upper + 8 * pitch;
        for (unsigned batch = 0; batch < count; ++batch)
#pragma unroll
            for (unsigned k = 0; k < BATCH; k += 16) {
                const uint4 high = *reinterpret_cast<const uint4 *>(&upper[batch * BATCH + k]);
                const uint4 low = *reinterpret_cast<const uint4 *>(&lower[batch * BATCH + k]);
                unsigned b[4];
#pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    b[i] = __float_as_uint(widen(find(batch, k + lane % 4 * 4 + i, column + lane / 4)));
                const unsigned first[4] = {high.x, low.x, high.y, low.y}, second[4] = {high.z, low.z, high.w, low.w};
                tensor_core::multiply_add_16x8x8_tf32(sums, first, b[0], b[1]);
                tensor_core::multiply_add_16x8x8_tf32(sums, second, b[2], b[3]);
            }
    }
};

} // namespace layer
