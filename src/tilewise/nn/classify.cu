// The last layer forward and its loss: logits = inputs · weightsᵀ + bias, softmax and cross-entropy.
//
// There are 16 columns, of which CLASSES count; one cluster, whose blocks share out K and then the rows. Of each row it
// leaves the parts of its loss, log(x) - y, as (x, y); the class that is thought likeliest; and, if wanted, the gradient
// of the loss by the logits, times a scale that keeps small ones from getting lost in 16 bits.
#include <tilewise/exponential.cuh>
#include <tilewise/layer_forward.cuh>

constexpr unsigned COLUMNS = 16, GROUPS = layer::THREADS / COLUMNS;

// Combines a value of all 16 lanes of a row, in an order that is fixed.
template <typename T, typename Combine> __device__ T over_row(T value, const Combine &combine)
{
#pragma unroll
    for (unsigned apart = COLUMNS / 2; apart; apart /= 2) {
        T other = value;
        other.x = __shfl_xor_sync(~0u, value.x, apart);
        other.y = __shfl_xor_sync(~0u, value.y, apart);
        value = combine(value, other);
    }
    return value;
}

struct Likeliest {
    float x; // the logit
    int y;   // its class
};

extern "C" __global__ void __launch_bounds__(layer::THREADS)
    classify(const float16 *inputs, const int *order, const unsigned *step, int first_row, const float16 *weights,
             const float *bias, unsigned depth, const unsigned char *labels, float scale, float2 *losses, int *classes,
             float16 *gradients)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float logits[TILE_BATCH][COLUMNS + 1];
    __shared__ unsigned char batch_labels[TILE_BATCH];
    const layer::Selection selection{order, step, first_row};
    const unsigned first_slot = selection.first_slot<TILE_BATCH>();
    if (threadIdx.x < TILE_BATCH) batch_labels[threadIdx.x] = labels[selection.row(first_slot, threadIdx.x)];
    layer::Sums<TILE_BATCH, COLUMNS> sums;
    layer::Forward<TILE_BATCH, COLUMNS, TILE_STAGES> product(reinterpret_cast<float16 *>(shared), weights, depth, true);
    product.run(inputs, depth, {nullptr, nullptr, 0}, false, sums);
    layer::add_up(sums, reinterpret_cast<float *>(shared), [&](unsigned row, unsigned column, float4 sum) {
        const float4 added = layer::add(sum, *reinterpret_cast<const float4 *>(&bias[column]));
        logits[row][column] = added.x, logits[row][column + 1] = added.y;
        logits[row][column + 2] = added.z, logits[row][column + 3] = added.w;
    });
    __syncthreads();
    const unsigned rows = TILE_BATCH / gridDim.y, column = threadIdx.x % COLUMNS;
    for (unsigned i = 0; i < rows; i += GROUPS) {
        const unsigned within = i + threadIdx.x / COLUMNS, row = blockIdx.y * rows + within % rows;
        const bool counts = column < CLASSES;
        const float logit = logits[row][column];
        const Likeliest own{counts ? logit : __int_as_float(0xff800000), static_cast<int>(column)};
        const auto likelier = [](const Likeliest &a, const Likeliest &b) {
            return a.x > b.x || (a.x == b.x && a.y < b.y) ? a : b;
        };
        const Likeliest best = over_row(own, likelier);
        const float part = counts ? exponential(logit - best.x) : 0;
        const unsigned label = batch_labels[row];
        // In y the one term that the label has.
        const float2 both = over_row(make_float2(part, column == label ? logit - best.x : 0),
                                     [](const float2 &a, const float2 &b) { return make_float2(a.x + b.x, a.y + b.y); });
        if (within >= rows) continue;
        const unsigned slot = first_slot + row;
        if (column == 0) {
            losses[slot] = both;
            classes[slot] = best.y;
        }
        if (gradients)
            gradients[layer::in_gradients(row, column / 8) + column % 8] = narrow<float16>((part / both.x - (column == label ? 1 : 0)) * scale);
    }
}
