// A layer backward and its update: biases, and weights and velocities, in place, and, if HAS_INPUT_GRADIENTS says so, the
// gradients of its inputs, which are outputs of another layer: 0 where those are 0.
//
// BATCHES_AT_ONCE is by how many batches the weights are updated: 1, or more, of which the earlier ones' data and gradients
// lie before this one's, or 0 where a later launch does so.
//
// A block for each TILE_COLUMNS of the inputs. Blocks along y share out the outputs; where there are gradients to add up they
// make a cluster.
#include <tilewise/layer_backward.cuh>
#include <tilewise/layer_earlier.cuh>

extern "C" __global__ void __launch_bounds__(layer::THREADS, BLOCKS_AT_ONCE)
    backward(const float16 *gradients, const float16 *data, unsigned pitch, const int *order, const unsigned *step,
             int first_row, float16 *weights, short *rests, float *velocities, float *bias, float *bias_velocities,
             float16 *ahead, unsigned depth, unsigned outputs, float rate, float momentum, float decay, float scale,
             unsigned weights_stay, float16 *input_gradients, const float *products, unsigned earlier, float kept,
             const float16 *earlier_inputs)
{
    extern __shared__ __align__(16) unsigned char shared[];
    using Product = layer::Backward<TILE_BATCH, BATCHES_AT_ONCE, TILE_COLUMNS, TILE_STAGES, HAS_MOMENTUM>;
    auto *inputs = reinterpret_cast<float16 *>(shared);
    layer::Sums<TILE_BATCH, TILE_COLUMNS> sums;
    Product product(shared, gradients, {weights, rests, velocities, bias, bias_velocities, ahead}, depth, outputs,
                    weights_stay);
    product.run<HAS_INPUT_GRADIENTS>(inputs, data, pitch, {order, step, first_row}, {rate, momentum, decay, scale}, sums);
    if constexpr (HAS_INPUT_GRADIENTS) {
        const unsigned first = blockIdx.x * TILE_COLUMNS;
        auto *ring = reinterpret_cast<float *>(shared + Product::INPUTS);
        layer::Earlier{products, earlier, kept}.add_to(sums, [&](unsigned batch, unsigned row, unsigned column) {
            return earlier_inputs[(batch * TILE_BATCH + row) * depth + first + column];
        });
        layer::add_up(sums, ring, [&](unsigned row, unsigned column, float4 sum) {
            const float16 *of_row = &inputs[(Product::NOW * TILE_BATCH + row) * Product::PITCH];
            const auto masked = [&](unsigned i, float value) {
                return widen(of_row[Product::dealt(column + i)]) > 0 ? value : 0;
            };
            uint2 packed;
            packed.x = narrow_pair<float16>(make_float2(masked(0, sum.x), masked(1, sum.y)));
            packed.y = narrow_pair<float16>(make_float2(masked(2, sum.z), masked(3, sum.w)));
            *reinterpret_cast<uint2 *>(&input_gradients[layer::of_gradient<TILE_BATCH>(row, first + column)]) = packed;
        });
    }
}
