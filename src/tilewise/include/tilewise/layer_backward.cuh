// A layer backward and its update, with the weights read once: a block takes COLUMNS columns of the weights (elements of
// an input), and for 16 rows of them at a time (elements of an output)
//
//   input_gradients (BATCH × COLUMNS) += gradients (BATCH × 16) · weights (16 × COLUMNS)
//   weights (16 × COLUMNS) are updated by gradientsᵀ (16 × BATCH) · inputs (BATCH × COLUMNS), those of BATCHES at once
//
// Every warp has rows of its own, which it copies itself: warps wait for one another only at the end, when their sums are
// added up. No gradient of a weight is ever in memory. Compute capability 8.0.
//
// A lane updates what it copied: 8 neighbours in a row of the weights. So that it has their gradients, the inputs' columns
// are dealt out anew for the product that makes those: of each 32 columns, pair 4·t + j is put where pair 4·j + t was.
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/layer_rows.cuh>
#include <tilewise/layer_sums.cuh>
#include <tilewise/layer_tiles.cuh>
#include <tilewise/split_weight.cuh>
#include <tilewise/streaming.cuh>
#include <tilewise/tensor_core.cuh>

namespace layer {

// How a step goes: gradients are `scale` times what the products say.
struct Descent {
    float rate, momentum, decay, scale;

    __device__ float step(float weight, float gradient, float &velocity) const
    {
        velocity = fmaf(momentum, velocity, fmaf(decay, weight, scale * gradient));
        return fmaf(-rate, velocity, weight);
    }

    // What the next step makes of a weight if its gradient is 0.
    __device__ float look_ahead(float weight, float velocity) const { return step(weight, 0, velocity); }
};

// What an update reads and writes: weights in halves (see split_weight.cuh), biases, and their velocities.
struct Parameters {
    float16 *weights;
    short *rests;
    float *velocities; // null without momentum
    float *bias, *bias_velocities;
    float16 *ahead; // what the next step makes of the weights without its gradients; null where no batch reads that
};

// BATCHES: how many the weights are updated by, of which this one is the last; with none they are not. A velocity moves the
// weights that the second one sees without any gradient: so those are kept besides.
template <unsigned BATCH, unsigned BATCHES, unsigned COLUMNS, unsigned STAGES, bool HAS_VELOCITY> struct Backward {
    static constexpr unsigned READ = BATCHES ? BATCHES : 1, NOW = READ - 1; // batches that are read; which is this one
    static constexpr unsigned TILES = COLUMNS / TILE_INPUTS; // side by side
    static constexpr unsigned HALVES = TILES * TILE * 2, VELOCITIES = HAS_VELOCITY ? TILES * TILE * 4 : 0; // bytes
    static constexpr bool READS_AHEAD = HAS_VELOCITY && BATCHES > 1;
    static constexpr unsigned UPDATED = BATCHES ? 2 * HALVES + VELOCITIES : HALVES; // bytes of what a step is made of
    static constexpr unsigned WEIGHTS = UPDATED + (READS_AHEAD ? HALVES : 0);
    static constexpr unsigned SLOPES = BATCH * TILE_OUTPUTS; // elements of a tile of gradients
    static constexpr unsigned STAGE = WEIGHTS + READ * SLOPES * 2;
    static constexpr unsigned PITCH = COLUMNS + 8;               // elements of a row of inputs in shared memory
    static constexpr unsigned INPUTS = READ * BATCH * PITCH * 2; // bytes
    static_assert(!HAS_VELOCITY || BATCHES <= 2, "a third batch would see weights that are nowhere");

    unsigned char *ring; // this warp's
    const float16 *gradients;
    Parameters own;
    streaming::Policy once, weights_policy;
    unsigned lane, first, tiles, depth, outputs; // tiles: of 16 rows, how many this warp has; first: its first one

    // `weights_stay`: whether the weights are read again soon.
    __device__ Backward(unsigned char *shared, const float16 *gradients, const Parameters &parameters, unsigned depth,
                        unsigned outputs, bool weights_stay)
        : gradients(gradients), own(parameters), once(streaming::policy(false)),
          weights_policy(streaming::policy(weights_stay)), lane(threadIdx.x % LANES), depth(depth), outputs(outputs)
    {
        const unsigned warp = threadIdx.x / LANES, all = outputs / TILE_OUTPUTS, every = WARPS * gridDim.y;
        ring = shared + INPUTS + warp * STAGES * STAGE;
        first = blockIdx.y * WARPS + warp;
        tiles = first < all ? (all - first + every - 1) / every : 0;
    }

    // Which tile of all rows is this warp's i-th, and where its weights begin.
    __device__ unsigned tile(unsigned i) const { return first + i * WARPS * gridDim.y; }
    __device__ unsigned long long there(unsigned i) const
    {
        return tile_at(tile(i) * TILE_OUTPUTS, blockIdx.x * COLUMNS, depth);
    }

    __device__ unsigned char *stage(unsigned i) const { return ring + i % STAGES * STAGE; }
    __device__ float16 *halves(unsigned i) const { return reinterpret_cast<float16 *>(stage(i)); }
    __device__ short *rests(unsigned i) const { return reinterpret_cast<short *>(stage(i) + HALVES); }
    __device__ float *velocities(unsigned i) const { return reinterpret_cast<float *>(stage(i) + 2 * HALVES); }
    // The weights that this batch's gradients go through.
    __device__ float16 *seen(unsigned i) const
    {
        return reinterpret_cast<float16 *>(stage(i) + (READS_AHEAD ? UPDATED : 0));
    }
    __device__ float16 *slopes(unsigned i, unsigned batch) const
    {
        return reinterpret_cast<float16 *>(stage(i) + WEIGHTS) + batch * SLOPES;
    }

    // Where this lane's elements are in half a tile. NOTE: mixed, so that it has row lane / 4 from element 8 · (lane % 4) on.
    __device__ unsigned own_elements(unsigned half) const { return in_tile(half, lane / 4, lane % 4); }

    __device__ void copy_weights(unsigned i)
    {
        if (i >= tiles) return;
        const unsigned long long from = there(i);
#pragma unroll
        for (unsigned j = 0; j < TILES * 2; ++j) {
            const unsigned at = j / 2 * TILE + own_elements(j % 2);
            streaming::copy_16(halves(i) + at, own.weights + from + at, weights_policy);
            if constexpr (BATCHES) streaming::copy_16(rests(i) + at, own.rests + from + at, once);
            if constexpr (READS_AHEAD) streaming::copy_16(seen(i) + at, own.ahead + from + at, once);
        }
        if constexpr (HAS_VELOCITY && BATCHES > 0)
#pragma unroll
            for (unsigned j = 0; j < TILES * 4; ++j) {
                const unsigned at = (j * LANES + lane) * 4;
                streaming::copy_16(velocities(i) + at, own.velocities + from + at, once);
            }
    }

    __device__ void copy_gradients(unsigned i)
    {
        if (i < tiles)
#pragma unroll
            for (unsigned batch = 0; batch < READ; ++batch)
#pragma unroll
                for (unsigned j = lane * 8; j < SLOPES; j += LANES * 8)
                    async_copy::start_16(slopes(i, batch) + j,
                                         gradients + batch * BATCH * outputs + tile(i) * SLOPES + j, 16);
        async_copy::commit();
    }

    // Where a column of the inputs is put; pairs stay together.
    __device__ static unsigned dealt(unsigned column)
    {
        return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
    }

    // This block's columns of the inputs of all batches that are read, into shared memory. NOTE: a barrier has to follow.
    __device__ static void copy_inputs(float16 *shared, const float16 *data, unsigned pitch, const Selection &selection)
    {
        constexpr unsigned PER_ROW = COLUMNS / 8;
        const unsigned slot = selection.first_slot<BATCH>();
        for (unsigned i = threadIdx.x; i < READ * BATCH * PER_ROW; i += THREADS) {
            const unsigned row = i / PER_ROW, column = i % PER_ROW * 8;
            const float16 *from = data + static_cast<unsigned long long>(selection.row(slot, row)) * pitch;
            const uint4 eight = read_16_fresh(&from[blockIdx.x * COLUMNS + column]);
            const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (unsigned j = 0; j < 4; ++j)
                *reinterpret_cast<unsigned *>(&shared[row * PITCH + dealt(column + j * 2)]) = pairs[j];
        }
    }

    // sums += gradients · weights of a tile
    __device__ void propagate(unsigned i, Sums<BATCH, COLUMNS> &sums) const
    {
        unsigned a[BATCH / 16][4];
#pragma unroll
        for (unsigned m = 0; m < BATCH / 16; ++m)
            tensor_core::load_4_matrices(a[m], &slopes(i, NOW)[in_gradients(m * 16 + lane % 16, lane / 16)]);
#pragma unroll
        for (unsigned n = 0; n < COLUMNS / 16; ++n) {
            unsigned b[4];
            const unsigned at = n / 2 * TILE + in_tile(lane / 8 % 2, lane % 8, n % 2 * 2 + lane / 16);
            tensor_core::load_4_transposed(b, &seen(i)[at]);
#pragma unroll
            for (unsigned m = 0; m < BATCH / 16; ++m) {
                tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2], a[m], b[0], b[1]);
                tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2 + 1], a[m], b[2], b[3]);
            }
        }
    }

    // Of 16 rows of the inputs and 32 of this block's columns, as they are dealt out: the fragments of 8 columns, two and two.
    struct Fragments {
        unsigned at[2][4];
    };

    // NOTE: with those of more batches in registers a multiprocessor has room for one block, not two.
    static constexpr bool HELD = BATCHES == 1;
    using Held = Fragments[BATCH / 16][TILES];

    __device__ void load_inputs(Fragments &found, const float16 *inputs, unsigned row, unsigned n) const
    {
#pragma unroll
        for (unsigned j = 0; j < 2; ++j)
            tensor_core::load_4_transposed(
                found.at[j], &inputs[(row + lane % 16) * PITCH + n * TILE_INPUTS + j * 16 + lane / 16 * 8]);
    }

    // Updates the weights of a tile, by one batch after another.
    __device__ void update(unsigned i, const float16 *inputs, const Held &held, const Descent &descent)
    {
#pragma unroll
        for (unsigned n = 0; n < TILES; ++n) {
            Eight upper = read_eight(i, n, 0), lower = read_eight(i, n, 1);
#pragma unroll
            for (unsigned batch = 0; batch < BATCHES; ++batch) {
                float sums[4][4] = {};
#pragma unroll
                for (unsigned m = 0; m < BATCH / 16; ++m) {
                    Fragments loaded;
                    if constexpr (!HELD) load_inputs(loaded, inputs, batch * BATCH + m * 16, n);
                    add_gradients(sums, &slopes(i, batch)[m * 16 * TILE_OUTPUTS], HELD ? held[m][n] : loaded);
                }
#pragma unroll
                for (unsigned j = 0; j < 8; ++j) {
                    upper.weight[j] = descent.step(upper.weight[j], sums[j / 2][j % 2], upper.velocity.at[j]);
                    lower.weight[j] = descent.step(lower.weight[j], sums[j / 2][j % 2 + 2], lower.velocity.at[j]);
                }
            }
            write_eight(i, n, 0, upper, descent);
            write_eight(i, n, 1, lower, descent);
        }
    }

    // sums += gradientsᵀ · inputs, of 16 rows
    __device__ void add_gradients(float (&sums)[4][4], const float16 *slopes, const Fragments &inputs) const
    {
        unsigned a[4];
        tensor_core::load_4_transposed(a, &slopes[in_gradients(lane % 8 + lane / 16 * 8, lane / 8 % 2)]);
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const unsigned *pair = &inputs.at[j / 2][j % 2 * 2];
            tensor_core::multiply_add_16x8x16<float16>(sums[j], a, pair[0], pair[1]);
        }
    }

    // This lane's elements in half a tile.
    struct Eight {
        float weight[8];
        Neighbours<float, 8> velocity;
    };

    __device__ static unsigned velocity_at(unsigned n, unsigned half, unsigned lane)
    {
        return n * TILE + half * TILE / 2 + lane * 4;
    }

    __device__ Eight read_eight(unsigned i, unsigned n, unsigned half) const
    {
        using Words = typename Neighbours<float, 8>::Words;
        const unsigned at = n * TILE + own_elements(half);
        Neighbours<float16, 8> packed;
        Neighbours<short, 8> rest;
        packed.read(halves(i) + at);
        rest.read(rests(i) + at);
        Eight found{};
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const float2 pair = split_weight::join(packed.words[0].at[j], rest.words[0].at[j]);
            found.weight[j * 2] = pair.x, found.weight[j * 2 + 1] = pair.y;
        }
        if constexpr (HAS_VELOCITY) {
            const float *from = velocities(i) + velocity_at(n, half, lane);
            found.velocity.words[0] = *reinterpret_cast<const Words *>(from);
            found.velocity.words[1] = *reinterpret_cast<const Words *>(from + LANES * 4);
        }
        return found;
    }

    // Straight to memory.
    __device__ void write_eight(unsigned i, unsigned n, unsigned half, const Eight &eight, const Descent &descent)
    {
        const unsigned long long to = there(i);
        const unsigned at = n * TILE + own_elements(half);
        unsigned packed[4], rest[4], ahead[4];
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const float2 pair{eight.weight[j * 2], eight.weight[j * 2 + 1]};
            packed[j] = narrow_pair<float16>(pair);
            rest[j] = split_weight::find_rests(pair, packed[j]);
            if constexpr (HAS_VELOCITY)
                ahead[j] = narrow_pair<float16>({descent.look_ahead(pair.x, eight.velocity.at[j * 2]),
                                                 descent.look_ahead(pair.y, eight.velocity.at[j * 2 + 1])});
        }
        streaming::store_16(own.weights + to + at, packed, weights_policy);
        streaming::store_16(own.rests + to + at, rest, once);
        if constexpr (HAS_VELOCITY) {
            float *into = own.velocities + to + velocity_at(n, half, lane);
            streaming::store_16(into, eight.velocity.words[0].at, once);
            streaming::store_16(into + LANES * 4, eight.velocity.words[1].at, once);
            if (own.ahead) streaming::store_16(own.ahead + to + at, ahead, once);
        }
    }

    // The biases of a tile's rows; one block of each y does so.
    __device__ void update_bias(unsigned i, const Descent &descent)
    {
        if (blockIdx.x || lane >= TILE_OUTPUTS) return;
        float sum = 0;
#pragma unroll
        for (unsigned row = 0; row < BATCH; ++row)
            sum += widen(slopes(i, NOW)[in_gradients(row, lane / 8) + lane % 8]);
        const unsigned at = tile(i) * TILE_OUTPUTS + lane;
        float velocity = HAS_VELOCITY ? own.bias_velocities[at] : 0;
        own.bias[at] = descent.step(own.bias[at], sum, velocity);
        if constexpr (HAS_VELOCITY) own.bias_velocities[at] = velocity;
    }

    // NOTE: all but the gradients is read before the launch before this one has ended, as that one writes none of it.
    template <bool PROPAGATE>
    __device__ void run(float16 *shared, const float16 *data, unsigned pitch, const Selection &selection,
                        const Descent &descent, Sums<BATCH, COLUMNS> &sums)
    {
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i)
            copy_weights(i);
        copy_inputs(shared, data, pitch, selection);
        dependent_launch::wait_for_previous();
        dependent_launch::let_next_begin(); // NOTE: after the wait, so that the launch before the previous one is over
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i)
            copy_gradients(i);
        __syncthreads();
        Held held;
        if constexpr (HELD)
#pragma unroll
            for (unsigned m = 0; m < BATCH / 16; ++m)
#pragma unroll
                for (unsigned n = 0; n < TILES; ++n)
                    load_inputs(held[m][n], shared, m * 16, n);
        for (unsigned i = 0; i < tiles; ++i) {
            async_copy::wait<STAGES - 2>();
            __syncwarp();
            copy_weights(i + STAGES - 1);
            copy_gradients(i + STAGES - 1);
            if constexpr (PROPAGATE) propagate(i, sums);
            if constexpr (BATCHES) update(i, shared, held, descent);
            update_bias(i, descent);
        }
    }
};

} // namespace layer
