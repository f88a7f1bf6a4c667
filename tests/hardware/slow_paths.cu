// Tiny kernels around operations that machine code does fast for most operands and by a longer way for the rest:
// divisions, roots, and functions whose arguments may be too large. Who takes the longer way is up to the operands.

#define HERE (blockIdx.x * blockDim.x + threadIdx.x)

#define EACH(NAME, TYPE, VALUE)                                                                    \
    extern "C" __global__ void NAME(const TYPE *x, const TYPE *w, TYPE *y) {                       \
        const unsigned i = HERE;                                                                   \
        const TYPE a = x[i], b = w[i];                                                             \
        y[i] = VALUE;                                                                              \
    }
#define ONE(NAME, TYPE, VALUE)                                                                     \
    extern "C" __global__ void NAME(const TYPE *x, const TYPE *w, TYPE *y) {                       \
        const unsigned i = HERE;                                                                   \
        const TYPE a = x[i];                                                                       \
        y[i] = VALUE;                                                                              \
    }

EACH(f32_div, float, a / b)
ONE(f32_div_uniform, float, a / w[0])
ONE(f32_rcp, float, 1.0f / a)
ONE(f32_rcp_rz, float, __frcp_rz(a))
ONE(f32_sqrt, float, sqrtf(a))
ONE(f32_sqrt_ru, float, __fsqrt_ru(a))
ONE(f32_rsqrt, float, rsqrtf(a))
ONE(f32_rsqrt_rn, float, __frsqrt_rn(a))
EACH(f32_div_ru, float, __fdiv_ru(a, b))
EACH(f32_fmod, float, fmodf(a, b))
EACH(f32_pow, float, powf(a, b))
ONE(f32_exp, float, expf(a))
ONE(f32_log, float, logf(a))
ONE(f32_sin, float, sinf(a))
ONE(f32_tanh, float, tanhf(a))
EACH(f64_div, double, a / b)
ONE(f64_rcp, double, 1.0 / a)
ONE(f64_sqrt, double, sqrt(a))
ONE(f64_rsqrt, double, rsqrt(a))
ONE(f64_exp, double, exp(a))
ONE(f64_log, double, log(a))
EACH(s32_div, int, a / b)
EACH(u32_rem, unsigned, a % b)
EACH(s64_div, long long, a / b)
EACH(u64_div, unsigned long long, a / b)
EACH(s64_rem, long long, a % b)

// Several on one way: the longer ways share a routine, or stand in line.
EACH(two_divs, float, a / b + b / a)
EACH(div_and_sqrt, float, sqrtf(a / b) + 1.0f / b)
EACH(f64_two_divs, double, a / b + b / a)

extern "C" __global__ void div_then_loads(const float *x, const float *w, float *y) {
    const unsigned i = HERE;
    const float t = x[i] / w[0];
    y[i] = y[i] * t + w[i];
}

extern "C" __global__ void loop_then_div(const float *x, const float *w, float *y) {
    const unsigned i = HERE, all = gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (int turn = 0; turn < 8; turn++) sum += x[(i + 32 * turn) % all];
    y[i] = sum / w[i];
}

extern "C" __global__ void div_in_loop(const float *x, const float *w, float *y) {
    const unsigned i = HERE, all = gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (int turn = 0; turn < 8; turn++) sum += x[(i + 32 * turn) % all] / w[(i + 64 * turn) % all];
    y[i] = sum;
}

extern "C" __global__ void div_unrolled(const float *x, const float *w, float *y) {
    const unsigned i = HERE, all = gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll
    for (int turn = 0; turn < 4; turn++) sum += x[(i + 32 * turn) % all] / w[(i + 64 * turn) % all];
    y[i] = sum;
}

extern "C" __global__ void div_apart(const float *x, const float *w, float *y) {
    const unsigned i = HERE;
    float a = x[i];
    if (i % 3 == 0) a = a / w[i];
    else if (i % 64 < 20) a = sqrtf(a);
    y[i] = a;
}

// Rows of 32: what every one of a softmax is divided by.
extern "C" __global__ void softmax(const float *x, const float *w, float *y) {
    const unsigned i = HERE;
    float most = x[i];
    for (int far = 16; far; far /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, far));
    const float part = expf(x[i] - most);
    float sum = part;
    for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
    y[i] = part / sum * w[i];
}
