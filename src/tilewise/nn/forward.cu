// A layer forward: outputs = max(0, inputs · weightsᵀ + bias), a block for each TILE_COLUMNS of them. Blocks along y make a
// cluster, which shares out K. `earlier_gradients`: of batches that the weights do not have yet, one after another.
#include <tilewise/layer_earlier.cuh>
#include <tilewise/layer_forward.cuh>

extern "C" __global__ void __launch_bounds__(layer::THREADS)
    forward(const float16 *data, unsigned pitch, const int *order, const unsigned *step, int first_row,
            const float16 *weights, const float *bias, unsigned depth, unsigned inputs_early, unsigned weights_stay,
            float16 *outputs, unsigned *count, const float *products, unsigned earlier, float kept,
            const float16 *earlier_gradients)
{
    extern __shared__ __align__(16) unsigned char shared[];
    layer::Sums<TILE_BATCH, TILE_COLUMNS> sums;
    layer::Forward<TILE_BATCH, TILE_COLUMNS, TILE_STAGES> product(reinterpret_cast<float16 *>(shared), weights, depth, weights_stay);
    product.run(data, pitch, {order, step, first_row}, inputs_early, sums);
    if (count && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) ++*count; // that this batch has begun
    const unsigned first = blockIdx.x * TILE_COLUMNS, width = gridDim.x * TILE_COLUMNS;
    layer::Earlier{products, earlier, kept}.add_to(sums, [&](unsigned batch, unsigned row, unsigned column) {
        return earlier_gradients[batch * TILE_BATCH * width + layer::of_gradient<TILE_BATCH>(row, first + column)];
    });
    layer::add_up(sums, reinterpret_cast<float *>(shared), [&](unsigned row, unsigned column, float4 sum) {
        const unsigned output = first + column;
        const float4 added = layer::add(sum, *reinterpret_cast<const float4 *>(&bias[output]));
        uint2 packed;
        packed.x = narrow_pair<float16>(make_float2(fmaxf(added.x, 0), fmaxf(added.y, 0)));
        packed.y = narrow_pair<float16>(make_float2(fmaxf(added.z, 0), fmaxf(added.w, 0)));
        *reinterpret_cast<uint2 *>(&outputs[row * width + output]) = packed;
    });
}
