// A layer backward and its update, with the weights read once: a block takes COLUMNS columns of the weights (elements of
// an input), and for 16 rows of them at a time (elements of an output)
//
//   input_gradients (BATCH × COLUMNS) += gradients (BATCH × 16) · weights (16 × COLUMNS)
//   weights (16 × COLUMNS) are updated by gradientsᵀ (16 × BATCH) · inputs (BATCH × COLUMNS)
//
// Every warp has rows of its own, which it copies itself: warps wait for one another only at the end, when their sums are
// added up. No gradient of a weight is ever in memory. Compute capability 8.0.
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/layer_rows.cuh>
#include <tilewise/layer_sums.cuh>
#include <tilewise/split_weight.cuh>
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
};

// What an update reads and writes: weights in halves (see split_weight.cuh), biases, and their velocities.
struct Parameters {
    float16 *weights;
    short *rests;
    float *velocities; // null without momentum
    float *bias, *bias_velocities;
};

template <unsigned BATCH, unsigned COLUMNS, unsigned STAGES, bool HAS_VELOCITY> struct Backward {
    static constexpr unsigned ROWS = 16;
    static constexpr unsigned PITCH = COLUMNS + 8;           // halves of a row in shared memory
    static constexpr unsigned VELOCITY_PITCH = COLUMNS + 8;  // floats
    static constexpr unsigned GRADIENT_PITCH = ROWS + 8;
    static constexpr unsigned HALVES = ROWS * PITCH * 2, VELOCITIES = HAS_VELOCITY ? ROWS * VELOCITY_PITCH * 4 : 0;
    static constexpr unsigned STAGE = 2 * HALVES + VELOCITIES + BATCH * GRADIENT_PITCH * 2; // bytes
    static constexpr unsigned INPUTS = BATCH * PITCH * 2;                                   // bytes
    static_assert(Sums<BATCH, COLUMNS>::BYTES <= WARPS * STAGES * STAGE, "sums take the ring's place");

    unsigned char *ring; // this warp's
    const float16 *gradients;
    Parameters own;
    unsigned lane, first, tiles, depth, outputs; // tiles: of 16 rows, how many this warp has; first: its first one

    __device__ Backward(unsigned char *shared, const float16 *gradients, const Parameters &parameters, unsigned depth,
                        unsigned outputs)
        : gradients(gradients), own(parameters), lane(threadIdx.x % LANES), depth(depth), outputs(outputs)
    {
        const unsigned warp = threadIdx.x / LANES, all = outputs / ROWS, every = WARPS * gridDim.y;
        ring = shared + INPUTS + warp * STAGES * STAGE;
        first = blockIdx.y * WARPS + warp;
        tiles = first < all ? (all - first + every - 1) / every : 0;
    }

    __device__ unsigned row_of(unsigned i) const { return (first + i * WARPS * gridDim.y) * ROWS; }
    __device__ float16 *halves(unsigned i) const { return reinterpret_cast<float16 *>(ring + i % STAGES * STAGE); }
    __device__ short *rests(unsigned i) const { return reinterpret_cast<short *>(halves(i)) + ROWS * PITCH; }
    __device__ float *velocities(unsigned i) const { return reinterpret_cast<float *>(rests(i) + ROWS * PITCH); }
    __device__ float16 *slopes(unsigned i) const
    {
        return reinterpret_cast<float16 *>(ring + i % STAGES * STAGE + 2 * HALVES + VELOCITIES);
    }

    // Has each lane take 16 bytes after 16 bytes of a tile of ROWS × COLUMNS: `take(offset here, offset there)`, in
    // elements, given how many there are in 16 bytes and in a row here.
    template <unsigned PER_COPY, unsigned PITCH_HERE, typename Take> __device__ void walk(unsigned i, const Take &take) const
    {
        constexpr unsigned PER_ROW = COLUMNS / PER_COPY;
        const unsigned long long corner = static_cast<unsigned long long>(row_of(i)) * depth + blockIdx.x * COLUMNS;
#pragma unroll
        for (unsigned j = 0; j < ROWS * PER_ROW; j += LANES) {
            const unsigned row = (j + lane) / PER_ROW, column = (j + lane) % PER_ROW * PER_COPY;
            take(row * PITCH_HERE + column, corner + static_cast<unsigned long long>(row) * depth + column);
        }
    }

    __device__ void copy_weights(unsigned i)
    {
        if (i >= tiles) return;
        walk<8, PITCH>(i, [&](unsigned here, unsigned long long there) {
            async_copy::start_16(halves(i) + here, own.weights + there, 16);
            async_copy::start_16(rests(i) + here, own.rests + there, 16);
        });
        if constexpr (HAS_VELOCITY)
            walk<4, VELOCITY_PITCH>(i, [&](unsigned here, unsigned long long there) {
                async_copy::start_16(velocities(i) + here, own.velocities + there, 16);
            });
    }

    __device__ void copy_gradients(unsigned i)
    {
        if (i < tiles)
#pragma unroll
            for (unsigned j = 0; j < BATCH * 2; j += LANES) {
                const unsigned row = (j + lane) / 2, column = (j + lane) % 2 * 8;
                async_copy::start_16(slopes(i) + row * GRADIENT_PITCH + column,
                                     gradients + row * outputs + row_of(i) + column, 16);
            }
        async_copy::commit();
    }

    // This block's columns of the inputs, into shared memory. NOTE: a barrier has to follow.
    __device__ static void copy_inputs(float16 *shared, const float16 *data, unsigned pitch, const Selection &selection)
    {
        constexpr unsigned PER_ROW = COLUMNS / 8;
        for (unsigned i = threadIdx.x; i < BATCH * PER_ROW; i += THREADS) {
            const unsigned row = i / PER_ROW, column = i % PER_ROW * 8;
            const float16 *from = data + static_cast<unsigned long long>(selection.row<BATCH>(row)) * pitch;
            *reinterpret_cast<uint4 *>(&shared[row * PITCH + column]) =
                *reinterpret_cast<const uint4 *>(&from[blockIdx.x * COLUMNS + column]);
        }
    }

    // sums += gradients · weights of a tile
    __device__ void propagate(unsigned i, Sums<BATCH, COLUMNS> &sums) const
    {
        unsigned a[BATCH / 16][4];
#pragma unroll
        for (unsigned m = 0; m < BATCH / 16; ++m)
            tensor_core::load_4_matrices(a[m], &slopes(i)[(m * 16 + lane % 16) * GRADIENT_PITCH + lane / 16 * 8]);
#pragma unroll
        for (unsigned n = 0; n < COLUMNS / 16; ++n) {
            unsigned b[4];
            tensor_core::load_4_transposed(b, &halves(i)[lane % 16 * PITCH + n * 16 + lane / 16 * 8]);
#pragma unroll
            for (unsigned m = 0; m < BATCH / 16; ++m) {
                tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2], a[m], b[0], b[1]);
                tensor_core::multiply_add_16x8x16<float16>(sums.at[m][n * 2 + 1], a[m], b[2], b[3]);
            }
        }
    }

    // Updates a tile where it lies in shared memory. `inputs`: fragments of this block's columns.
    __device__ void update(unsigned i, const unsigned (&inputs)[BATCH / 16][COLUMNS / 16][4], const Descent &descent)
    {
        unsigned a[BATCH / 16][4];
#pragma unroll
        for (unsigned m = 0; m < BATCH / 16; ++m)
            tensor_core::load_4_transposed(
                a[m], &slopes(i)[(m * 16 + lane % 8 + lane / 16 * 8) * GRADIENT_PITCH + lane / 8 % 2 * 8]);
#pragma unroll
        for (unsigned n = 0; n < COLUMNS / 8; ++n) {
            float sum[4] = {};
#pragma unroll
            for (unsigned m = 0; m < BATCH / 16; ++m)
                tensor_core::multiply_add_16x8x16<float16>(sum, a[m], inputs[m][n / 2][n % 2 * 2],
                                                           inputs[m][n / 2][n % 2 * 2 + 1]);
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned row = half * 8 + lane / 4, column = n * 8 + lane % 4 * 2;
                auto &packed = *reinterpret_cast<unsigned *>(&halves(i)[row * PITCH + column]);
                auto &rest = *reinterpret_cast<unsigned *>(&rests(i)[row * PITCH + column]);
                float2 weight = split_weight::join(packed, rest), velocity{};
                auto *kept = reinterpret_cast<float2 *>(&velocities(i)[row * VELOCITY_PITCH + column]);
                if constexpr (HAS_VELOCITY) velocity = *kept;
                weight.x = descent.step(weight.x, sum[half * 2], velocity.x);
                weight.y = descent.step(weight.y, sum[half * 2 + 1], velocity.y);
                if constexpr (HAS_VELOCITY) *kept = velocity;
                packed = narrow_pair<float16>(weight);
                rest = split_weight::find_rests(weight, packed);
            }
        }
    }

    __device__ void write(unsigned i)
    {
        walk<8, PITCH>(i, [&](unsigned here, unsigned long long there) {
            *reinterpret_cast<uint4 *>(own.weights + there) = *reinterpret_cast<const uint4 *>(halves(i) + here);
            *reinterpret_cast<uint4 *>(own.rests + there) = *reinterpret_cast<const uint4 *>(rests(i) + here);
        });
        if constexpr (HAS_VELOCITY)
            walk<4, VELOCITY_PITCH>(i, [&](unsigned here, unsigned long long there) {
                *reinterpret_cast<float4 *>(own.velocities + there) = *reinterpret_cast<const float4 *>(velocities(i) + here);
            });
    }

    // The biases of a tile's rows; one block of each y does so.
    __device__ void update_bias(unsigned i, const Descent &descent)
    {
        if (blockIdx.x || lane >= ROWS) return;
        float sum = 0;
#pragma unroll
        for (unsigned row = 0; row < BATCH; ++row)
            sum += widen(slopes(i)[row * GRADIENT_PITCH + lane]);
        const unsigned at = row_of(i) + lane;
        float velocity = HAS_VELOCITY ? own.bias_velocities[at] : 0;
        own.bias[at] = descent.step(own.bias[at], sum, velocity);
        if constexpr (HAS_VELOCITY) own.bias_velocities[at] = velocity;
    }

    // NOTE: the weights, and inputs that are no selection's, are read before the launch before this one has ended.
    template <bool PROPAGATE>
    __device__ void run(float16 *shared, const float16 *data, unsigned pitch, const Selection &selection,
                        const Descent &descent, Sums<BATCH, COLUMNS> &sums)
    {
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i)
            copy_weights(i);
        if (!selection.order) copy_inputs(shared, data, pitch, selection);
        dependent_launch::wait_for_previous();
        dependent_launch::let_next_begin(); // NOTE: after the wait, so that the launch before the previous one is over
        if (selection.order) copy_inputs(shared, data, pitch, selection);
#pragma unroll
        for (unsigned i = 0; i + 1 < STAGES; ++i)
            copy_gradients(i);
        __syncthreads();
        unsigned inputs[BATCH / 16][COLUMNS / 16][4];
#pragma unroll
        for (unsigned m = 0; m < BATCH / 16; ++m)
#pragma unroll
            for (unsigned n = 0; n < COLUMNS / 16; ++n)
                tensor_core::load_4_transposed(inputs[m][n],
                                               &shared[(m * 16 + lane % 16) * PITCH + n * 16 + lane / 16 * 8]);
        for (unsigned i = 0; i < tiles; ++i) {
            async_copy::wait<STAGES - 2>();
            __syncwarp();
            copy_weights(i + STAGES - 1);
            copy_gradients(i + STAGES - 1);
            if constexpr (PROPAGATE) propagate(i, sums);
            __syncwarp(); // NOTE: all lanes have read the weights
            update(i, inputs, descent);
            update_bias(i, descent);
            __syncwarp();
            write(i);
        }
    }
};

} // namespace layer
