// Kernels for the profiler's figures of machine code: of all that decides how it is joined with what was counted.

extern "C" __global__ void shapes(const int *from, int *to, int n) {
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i < n; ++i) sum += from[(t * 7 + i) % 256];
#pragma unroll 4
    for (int i = 0; i < 12; ++i) {
        if (from[i] > t) sum ^= i * t;
        else if (t % 4 == 1) sum -= from[t] & 7;
    }
    switch (from[t % 256] % 5) {
    case 0: sum *= 3; break;
    case 1: sum += to[t]; break;
    case 2: for (int k = 0; k < (t & 3); ++k) sum += from[k + 8] * k; break;
    case 3: if (t > 40) return; sum = ~sum; break;
    default: sum -= 1;
    }
    __syncthreads();
    while (sum > 1000 && n-- > 0) sum /= 2;
    unsigned lanes = __ballot_sync(0xffffffff, sum & 1);
    sum += __shfl_down_sync(0xffffffff, sum, 3) + __popc(lanes);
    if (blockIdx.x * blockDim.x + t < 190) to[blockIdx.x * blockDim.x + t] = sum;
}

extern "C" __global__ void memory(const float *from, float *to, int *counts, int n) {
    __shared__ float s[1024];
    __shared__ int few[8];
    __shared__ double wide[64];
    int t = threadIdx.x;
    float own[16];
    for (int i = 0; i < 16; ++i) own[i] = from[t + i];
    for (int i = t; i < 1024; i += blockDim.x) s[i] = from[i % 256];
    if (t < 8) few[t] = 0;
    wide[t % 64] = t;
    __syncthreads();
    float4 four = reinterpret_cast<const float4 *>(s)[t * n % 256];
    float2 two = *reinterpret_cast<const float2 *>(s + 2 * (t / n) % 512);
    float sum = four.x + four.w + two.x + s[t * 32 % 1024] + s[t * 33 % 1024] + own[n % 16] + own[t % 16];
    sum += s[4 * t % 512] + s[4 * t % 512 + 1] + s[4 * t % 512 + 2] + s[4 * t % 512 + 3];
    const float *any = t % 2 ? s + t : from + t;
    sum += *any + float(wide[(t * 3) % 64]) + __ldg(from + t * 5 % 256);
    atomicAdd(counts, 1);
    atomicAdd(&counts[t % n], t);
    atomicAdd(few, 1);
    atomicAdd(&few[t % 8], 2);
    atomicAdd(&s[t % 4], 1.0f);
    atomicMax(&few[t % 3], t);
    atomicCAS(&counts[8 + t % 2], 0, t);
    atomicExch(reinterpret_cast<int *>(any == from ? to : to + 1), 3);
    __syncthreads();
    if (t % 4 != 3) to[blockIdx.x * blockDim.x + t * n % 64] = sum + few[t % 8] + s[t % 8];
    reinterpret_cast<float2 *>(to)[256 + t] = make_float2(sum, own[(t + n) % 16]);
}

extern "C" __global__ void numbers(const double *from, double *to, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    double a = from[2 * t], b = from[2 * t + 1];
    float f = float(a), g = float(b);
    float sum = f / g + sqrtf(f) + 1.0f / g + rsqrtf(f) + __fdividef(f, g) + __fdiv_rz(f, g) + __frcp_rd(g) + __fsqrt_ru(f);
    double more = a / b + sqrt(a) + 1.0 / b + rsqrt(a) + fma(a, b, 1.0);
    unsigned i = unsigned(t) * 77 + 5, j = unsigned(n) + t % 3;
    more += double(i / j + i % j) + double((long long)(i) * 12345678901LL / (long long)(j + 1));
    if (t % 3 == 1) sum += expf(f) + sinf(g) + logf(fabsf(f) + 1) + powf(2.0f, g * 0.01f);
    to[t] = more + sum;
}

#if __CUDA_ARCH__ >= 800
typedef unsigned u32;
__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
extern "C" __global__ void copied(const float *from, float *to, int n) {
    __shared__ __align__(1024) float s[2048];
    __shared__ unsigned long long m;
    int t = threadIdx.x;
    for (int i = 0; i < n; ++i) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(s + (t * 9 + i) % 512)), "l"(from + t) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(s + 512 + 4 * t)), "l"(from + 4 * (t ^ i) % 256) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at(s + 1024 + 4 * t)), "l"(from), "r"(t % 3 ? 16 : 0) : "memory");
        asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }
    u32 a[4], b[2]; float d[4] = {};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at(s + 4 * (t % 32) * n)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(at(s + 4 * (t % 16))));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#if __CUDA_ARCH__ == 900
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" :: "r"(at(&m)) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(at(&m)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" :: "r"(at(s)), "l"(from), "r"(at(&m)) : "memory");
    }
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }" :: "r"(at(&m)) : "memory");
    unsigned long long where = (at(s) & 0x3FFFF) >> 4 | 8ull << 16 | 16ull << 32;
    asm volatile("wgmma.fence.sync.aligned;\n\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;\n\t"
                 "wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(where) : "memory");
    __syncthreads();
    if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;\n\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" :: "l"(to + 1024), "r"(at(s)) : "memory");
#else
    m = 0;
#endif
    to[blockIdx.x * blockDim.x + t] = d[0] + d[3] + s[t];
}
#endif
