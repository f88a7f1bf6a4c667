// Kernels that have some of everything: conflicts, strides, a loop, a branch, atomic operations, what is not written.

extern "C" __global__ void mixed(const float *from, float *to, int *counts, int words, int count) {
    __shared__ float s[512];
    int block = blockIdx.y * gridDim.x + blockIdx.x, at = block * blockDim.x + threadIdx.x;
    for (int i = threadIdx.x; i < 512; i += blockDim.x) s[i] = i;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < count; ++i) {
        s[(threadIdx.x * words) % 512] = from[(at * words + i) % 512];
        __syncthreads();
        sum += s[(threadIdx.x * words + 32) % 512] * s[threadIdx.x / 32];
        __syncthreads();
    }
    if (threadIdx.x % 4 == 1) atomicAdd(&counts[threadIdx.x % 8], 1);
    if (at % 3) to[at] = sum / (1 + threadIdx.x);
}

extern "C" __global__ void plain(const float *from, float *to, int *counts, int words, int count) {
    int block = blockIdx.y * gridDim.x + blockIdx.x, at = block * blockDim.x + threadIdx.x;
    float4 four = reinterpret_cast<const float4 *>(from)[at];
    to[at] = four.x * four.y + four.z * four.w;
}
