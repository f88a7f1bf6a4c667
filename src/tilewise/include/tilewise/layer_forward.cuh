// inputs (BATCH × depth) · weightsᵀ (rows of depth elements), for COLUMNS rows of the weights in a block: bound by how
// fast these come from memory. Compute capability 8.0.
//
// Every warp multiplies chunks of K of its own, which it copies itself: warps wait for one another only at the end, when
// their sums are added up.
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/layer_rows.cuh>
#include <tilewise/layer_sums.cuh>
#include <tilewise/layer_tiles.cuh>
#include <tilewise/streaming.cuh>
#include <tilewise/tensor_core.cuh>

namespace layer {

template <unsigned BATCH, unsigned COLUMNS, unsigned STAGES> struct Forward {
    static constexpr unsigned CHUNK = TILE_INPUTS; // of K, that a warp takes at once
    static constexpr unsigned PER_COPY = 8;        // elements in 16 bytes
    static constexpr unsigned PITCH = CHUNK + 8;   // elements of a row of inputs in shared memory: ldmatrix has no conflicts
    static constexpr unsigned TILES = COLUMNS / TILE_OUTPUTS;
    static constexpr unsigned STAGE = BATCH * PITCH + TILES * TILE; // elements
    static constexpr unsigned ROWS_AT_ONCE = LANES / (CHUNK / PER_COPY); // that a warp copies by one instruction

    float16 *ring; // this warp's
    const float16 *inputs[BATCH / ROWS_AT_ONCE], *weights;
    streaming::Policy policy;
    unsigned lane, first, chunks, depth; // chunks: how many this warp has; first: its first one

    // `weights_stay`: whether the weights are read again soon.
    __device__ Forward(float16 *shared, const float16 *weights, unsigned depth, bool weights_stay)
        : policy(streaming::policy(weights_stay)), lane(threadIdx.x % LANES), depth(depth)
    {
        const unsigned warp = threadIdx.x / LANES, all = depth / CHUNK, every = WARPS * gridDim.y;
        ring = shared + warp * STAGES * STAGE;
        first = blockIdx.y * WARPS + warp;
        chunks = first < all ? (all - first + every - 1) / every : 0;
        this->weights = weights + tile_at(blockIdx.x * COLUMNS, 0, depth) + lane * PER_COPY;
    }

    __device__ unsigned own_row() const { return lane / (CHUNK / PER_COPY); }
    __device__ unsigned own_column() const { return lane % (CHUNK / PER_COPY) * PER_COPY; }
    __device__ unsigned k_of(unsigned i) const { return (first + i * WARPS * gridDim.y) * CHUNK; }

    __device__ void find_inputs(const float16 *data, unsigned pitch, const Selection &selection)
    {
        const unsigned slot = selection.first_slot<BATCH>();
#pragma unroll
        for (unsigned i = 0; i < BATCH / ROWS_AT_ONCE; ++i) {
            const unsigned row = selection.row(slot, i * ROWS_AT_ONCE + own_row());
            inputs[i] = data + static_cast<unsigned long long>(row) * pitch + own_column();
        }
    }

    __device__ void copy_weights(unsigned i)
    {
        if (i >= chunks) return;
        float16 *to = ring + i % STAGES * STAGE + BATCH * PITCH + lane * PER_COPY;
#pragma unroll
        for (unsigned n = 0; n < TILES; ++n)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                streaming::copy_16(to + n * TILE + half * TILE / 2,
                                   weights + tile_at(n * TILE_OUTPUTS, k_of(i), depth) + half * TILE / 2, policy);
    }

    __device__ void copy_inputs(unsigned i)
    {
        if (i < chunks)
#pragma unroll
            for (unsigned j = 0; j < BATCH / ROWS_AT_ONCE; ++j)
                async_copy::start_16(ring + i % STAGES * STAGE + (j * ROWS_AT_ONCE + own_row()) * PITCH + own_column(),
                                     inputs[j] + k_of(i), 16);
    }

    __device__ void multiply(unsigned i, Sums<BATCH, COLUMNS> &sums) const
    {
        const float16 *rows = ring + i % STAGES * STAGE, *tiles = rows + BATCH * PITCH;
#pragma unroll
        for (unsigned k = 0; k < CHUNK; k += 16) {
            unsigned a[BATCH / 16][4];
#pragma unroll
            for (unsigned m = 0; m < BATCH / 16; ++m)
                tensor_core::load_4_matrices(a[m], &rows[(m * 16 + lane % 16) * PITCH + k + lane / 16 * 8]);
#pragma unroll
            for (unsigned n = 0; n < TILES; ++n) {
                unsigned b[4]; // of eight columns both halves of K, then of the next eight
                tensor_core::load_4_matrices(b, &tiles[n * TILE + in_tile(lane / 16, lane % 8, k / 8 + lane / 8 % 2)]);
#pragma unroll
                for (unsigned m = 0; m < BATCH / 16; ++m) {
                    tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2], a[m], b[0], b[1]);
                    tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2 + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    // NOTE: what the launch before this one does not write is read before it has ended: the weights, or the inputs, as
    // `inputs_early` says.
    __device__ void run(const float16 *data, unsigned pitch, const Selection &selection, bool inputs_early,
                        Sums<BATCH, COLUMNS> &sums)
    {
        find_inputs(data, pitch, selection);
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i)
            inputs_early ? copy_inputs(i) : copy_weights(i);
        dependent_launch::wait_for_previous();
        dependent_launch::let_next_begin(); // NOTE: after the wait, so that the launch before the previous one is over
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i) {
            inputs_early ? copy_weights(i) : copy_inputs(i);
            async_copy::commit();
        }
        for (unsigned i = 0; i < chunks; ++i) {
            async_copy::wait<STAGES - 2>();
            __syncwarp();
            copy_weights(i + STAGES - 1);
            copy_inputs(i + STAGES - 1);
            async_copy::commit();
            multiply(i, sums);
        }
    }
};

} // namespace layer
