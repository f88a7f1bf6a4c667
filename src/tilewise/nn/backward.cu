// A layer backward and its update: weights, biases and velocities in place, and, if HAS_INPUT_GRADIENTS says so, the gradients of
// its inputs, which are outputs of another layer: 0 where those are 0.
//
// A block for each TILE_COLUMNS of the inputs. Blocks along y share out the outputs; where there are gradients to add up they
// make a cluster.
#include <tilewise/layer_backward.cuh>

extern "C" __global__ void __launch_bounds__(layer::THREADS)
    backward(const float16 *gradients, const float16 *data, unsigned pitch, const int *order, const unsigned *step,
             int first_row, float16 *weights, short *rests, float *velocities, float *bias, float *bias_velocities,
             unsigned depth, unsigned outputs, float rate, float momentum, float decay, float scale,
             unsigned weights_stay,
             float16 *input_gradients)
{
    extern __shared__ __align__(16) unsigned char shared[];
    using Product = layer::Backward<TILE_BATCH, TILE_COLUMNS, TILE_STAGES, HAS_MOMENTUM>;
    auto *inputs = reinterpret_cast<float16 *>(shared);
    layer::Sums<TILE_BATCH, TILE_COLUMNS> sums;
    Product product(shared, gradients, {weights, rests, velocities, bias, bias_velocities}, depth, outputs,
                    weights_stay);
    product.run<HAS_INPUT_GRADIENTS>(inputs, data, pitch, {order, step, first_row}, {rate, momentum, decay, scale}, sums);
    if constexpr (HAS_INPUT_GRADIENTS) {
        const unsigned first = blockIdx.x * TILE_COLUMNS;
        auto *ring = reinterpret_cast<float *>(shared + Product::INPUTS);
        layer::add_up(sums, ring, [&](unsigned row, unsigned column, float4 sum) {
            const auto masked = [&](unsigned i, float value) {
                return widen(inputs[row * Product::PITCH + Product::dealt(column + i)]) > 0 ? value : 0;
            };
            uint2 packed;
            packed.x = narrow_pair<float16>(make_float2(masked(0, sum.x), masked(1, sum.y)));
            packed.y = narrow_pair<float16>(make_float2(masked(2, sum.z), masked(3, sum.w)));
            const unsigned output = first + column, tile = output / layer::TILE_OUTPUTS * layer::TILE_OUTPUTS;
            const unsigned within = layer::in_gradients(row, output % layer::TILE_OUTPUTS / 8) + output % 8;
            *reinterpret_cast<uint2 *>(&input_gradients[tile * TILE_BATCH + within]) = packed;
        });
    }
}
