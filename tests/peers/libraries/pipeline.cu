// libcu++: two warps bring rows, two turn them round; three stages between them.
#include <cooperative_groups.h>
#include <cuda/pipeline>

extern "C" __global__ void pipeline(const float *x, float *y) {
    auto block = cooperative_groups::this_thread_block();
    bool brings = threadIdx.x < 64;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    __shared__ alignas(16) float rows[3][128];
    auto role = brings ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    for (int i = 0; i < 8; i++)
        if (brings) {
            int at = threadIdx.x * 2;
            pipe.producer_acquire();
            cuda::memcpy_async(&rows[i % 3][at], x + i * 128 + at, cuda::aligned_size_t<8>(8), pipe);
            pipe.producer_commit();
        } else {
            int at = threadIdx.x - 64;
            pipe.consumer_wait();
            y[i * 128 + at] = rows[i % 3][127 - at];
            y[i * 128 + 64 + at] = rows[i % 3][63 - at];
            pipe.consumer_release();
        }
    block.sync();
}
