// The end of a product whose rows are a small batch: every warp of every block of a cluster has sums of all its elements,
// over a part of K each; they are added up in an order that is fixed.
//
// Blocks of a cluster lie along y, and share out the rows of the result. Compute capability 8.0; clusters 9.0.
#pragma once

#include <tilewise/cluster.cuh>

namespace layer {

constexpr unsigned WARPS = 8, LANES = 32, THREADS = WARPS * LANES;
constexpr unsigned BLOCKS_MOST = 8; // of a cluster
#if __CUDA_ARCH__ >= 900
constexpr bool HAS_CLUSTERS = true;
#else
constexpr bool HAS_CLUSTERS = false; // every block adds up what is its own
#endif

// Sums of ROWS × COLUMNS elements, as the tensor core leaves them in a warp.
template <unsigned ROWS, unsigned COLUMNS> struct Sums {
    static constexpr unsigned PITCH = COLUMNS + 8; // floats of a row in shared memory: neighbours fall on other banks

    float at[ROWS / 16][COLUMNS / 8][4] = {};

    // Leaves this warp's sums in shared memory, which has ROWS × PITCH floats for each. NOTE: all warps must be done with
    // what lay there.
    __device__ void put(float *shared) const
    {
        const unsigned lane = threadIdx.x % LANES;
        float *own = shared + threadIdx.x / LANES * ROWS * PITCH;
#pragma unroll
        for (unsigned i = 0; i < ROWS / 16; ++i)
#pragma unroll
            for (unsigned j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    const unsigned row = i * 16 + half * 8 + lane / 4, column = j * 8 + lane % 4 * 2;
                    *reinterpret_cast<float2 *>(&own[row * PITCH + column]) =
                        make_float2(at[i][j][half * 2], at[i][j][half * 2 + 1]);
                }
    }
};

inline __device__ float4 add(const float4 &a, const float4 &b)
{
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Adds up what all warps of a cluster have and gives it, four neighbours in a row at a time, to `take(row, column, sum)`;
// every block takes its share of the rows.
template <unsigned ROWS, unsigned COLUMNS, typename Take>
__device__ void add_up(const Sums<ROWS, COLUMNS> &sums, float *shared, const Take &take)
{
    constexpr unsigned PITCH = Sums<ROWS, COLUMNS>::PITCH, GROUPS = COLUMNS / 4;
    const unsigned blocks = HAS_CLUSTERS ? gridDim.y : 1;
    __syncthreads(); // NOTE: the sums lie where operands lay
    sums.put(shared);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
        const unsigned row = i / GROUPS, column = i % GROUPS * 4;
        float *first = &shared[row * PITCH + column];
        float4 sum = *reinterpret_cast<const float4 *>(first);
#pragma unroll
        for (unsigned warp = 1; warp < WARPS; ++warp)
            sum = add(sum, *reinterpret_cast<const float4 *>(first + warp * ROWS * PITCH));
        if (blocks == 1)
            take(row, column, sum);
        else
            *reinterpret_cast<float4 *>(first) = sum;
    }
#if __CUDA_ARCH__ >= 900
    if (blocks == 1) return;
    const unsigned rows = ROWS / blocks;
    cluster::wait_for_all_stores();
    for (unsigned i = threadIdx.x; i < rows * GROUPS; i += THREADS) {
        const unsigned row = blockIdx.y * rows + i / GROUPS, column = i % GROUPS * 4;
        const float *first = &shared[row * PITCH + column];
        float4 all[BLOCKS_MOST]; // NOTE: all loads are started before one is waited for
#pragma unroll
        for (unsigned block = 0; block < BLOCKS_MOST; ++block)
            if (block < blocks) all[block] = cluster::load(first, block);
        float4 sum = all[0];
#pragma unroll
        for (unsigned block = 1; block < BLOCKS_MOST; ++block)
            if (block < blocks) sum = add(sum, all[block]);
        take(row, column, sum);
    }
    cluster::wait_for_all(); // NOTE: no block ends while another one reads its memory
#endif
}

} // namespace layer
