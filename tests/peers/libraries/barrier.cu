// libcu++: barriers of two scopes, one of which half of the threads leave.
#include <cuda/barrier>

extern "C" __global__ void barrier(const int *x, int *y) {
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> left;
    __shared__ cuda::barrier<cuda::thread_scope_device> wide;
    __shared__ int s[128];
    if (threadIdx.x == 0) init(&left, 128), init(&wide, 128);
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];
    auto token = left.arrive();
    left.wait(static_cast<decltype(token) &&>(token));
    int v = s[threadIdx.x ^ 1];
    wide.arrive_and_wait();
    s[threadIdx.x] = v + 1;
    wide.arrive_and_wait();
    v += s[127 - threadIdx.x];
    if (threadIdx.x < 64) {
        left.arrive_and_drop();
        y[threadIdx.x] = v;
        return;
    }
    left.arrive_and_wait();
    left.arrive_and_wait();
    y[threadIdx.x] = v;
}
