// The gradient of what an activation was given, by that of what it gave: dP = dY · activation'(P); and what the columns of
// dP add up to, which is the gradient of a bias. One pass over dY and what was kept: P, or activation(P).
//
// Blocks have tiles of `tile_rows` rows and 256 columns, of which each warp has rows and each lane 8 neighbours. What the
// columns of each tile add up to is a row of `sums`, which add_sums.cu adds up.
#include <tilewise/activation.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided_run.cuh>

#ifndef ELEMENT
#define ELEMENT bfloat16 // or float16, float32
#endif
#ifndef ACTIVATION
#define ACTIVATION gelu // or none: dP is dY, and not written
#endif
#ifndef FROM_RESULT
#define FROM_RESULT 0 // whether activation(P) was kept: of relu, tanh and sigmoid
#endif

enum class Activation { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid };

constexpr Activation GIVEN = Activation::ACTIVATION;
constexpr unsigned LANES = 32, WARPS = 8, BLOCK_THREADS = LANES * WARPS, TILE_COLUMNS = 256, PER_LANE = TILE_COLUMNS / LANES;

inline __device__ float through_activation(float gradient, float kept)
{
    if constexpr (GIVEN == Activation::relu)
        return kept <= 0 ? 0 : gradient; // of either; without a product, as an infinite gradient stops here too
    else if constexpr (GIVEN == Activation::tanh)
        return gradient * (FROM_RESULT ? 1 - kept * kept : activation::tanh_grad(kept));
    else if constexpr (GIVEN == Activation::sigmoid)
        return gradient * (FROM_RESULT ? kept * (1 - kept) : activation::sigmoid_grad(kept));
    else if constexpr (GIVEN == Activation::silu)
        return gradient * activation::silu_grad(kept);
    else if constexpr (GIVEN == Activation::gelu_tanh)
        return gradient * activation::gelu_tanh_grad(kept);
    else
        return gradient * activation::gelu_grad(kept);
}

// `sums` may be null.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    activation_gradient(Strided<const ELEMENT> gradient, Strided<const ELEMENT> kept, Strided<ELEMENT> made, float *sums,
                        unsigned tile_rows)
{
    __shared__ float of_warps[WARPS][TILE_COLUMNS];
    const unsigned across = gradient.columns / TILE_COLUMNS + (gradient.columns % TILE_COLUMNS != 0);
    const unsigned tile = blockIdx.x / across, first_row = tile * tile_rows, first = blockIdx.x % across * TILE_COLUMNS;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, column = first + lane * PER_LANE;
    float of_columns[PER_LANE] = {};
    dependent_launch::wait_for_previous(first_row);
    dependent_launch::let_next_begin();
#pragma unroll 1
    for (unsigned row = first_row + warp; row < min(first_row + tile_rows, gradient.rows); row += WARPS) {
        const auto run = read_run<PER_LANE>(gradient, row, column);
        if constexpr (GIVEN == Activation::none) {
#pragma unroll
            for (unsigned i = 0; i < PER_LANE; ++i)
                of_columns[i] += run.widened(i);
        } else {
            const auto beside = read_run<PER_LANE>(kept, row, column);
            Neighbours<ELEMENT, PER_LANE> through;
#pragma unroll
            for (unsigned i = 0; i < PER_LANE; ++i) {
                const float one = through_activation(run.widened(i), beside.widened(i));
                through.at[i] = narrow<ELEMENT>(one);
                of_columns[i] += one;
            }
            write_run(through, made, row, column);
        }
    }
    if (!sums) return;
#pragma unroll
    for (unsigned i = 0; i < PER_LANE; ++i)
        of_warps[warp][lane * PER_LANE + i] = of_columns[i];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < WARPS; ++i)
        sum += of_warps[i][threadIdx.x];
    const unsigned its = first + threadIdx.x;
    if (its < gradient.columns) sums[static_cast<unsigned long long>(tile) * gradient.columns + its] = sum;
}
