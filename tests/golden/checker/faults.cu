// Kernels with one fault each, for the command's output.

extern "C" __global__ void reversed(const float *x, float *y)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}

extern "C" __global__ void unset(float *y)
{
    __shared__ float s[64];
    if (threadIdx.x < 60)
        s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void beyond(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x + 1];
}

extern "C" __global__ void divergent(float *y)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        asm volatile("bar.sync 1;");
    y[threadIdx.x] = 1;
}

extern "C" __global__ void not_awaited(const float *x, float *y)
{
    __shared__ float s[64];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"((unsigned)__cvta_generic_to_shared(s + threadIdx.x)), "l"(x + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}

extern "C" __global__ void copied(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x];
}
