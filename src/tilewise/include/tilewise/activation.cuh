// Functions that an epilogue's expression may call, on float and on double. What is NaN stays NaN.
#pragma once

namespace activation {

template <typename T> inline __device__ T min(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> inline __device__ T max(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> inline __device__ T clamp(T x, T least, T most) { return min(max(x, least), most); }

template <typename T> inline __device__ T abs(T x) { return ::fabs(x); }
template <typename T> inline __device__ T exp(T x) { return ::exp(x); }
template <typename T> inline __device__ T log(T x) { return ::log(x); }
template <typename T> inline __device__ T sqrt(T x) { return ::sqrt(x); }
template <typename T> inline __device__ T rsqrt(T x) { return ::rsqrt(x); }
template <typename T> inline __device__ T erf(T x) { return ::erf(x); }

template <unsigned POWER, typename T> inline __device__ T power(T x)
{
    if constexpr (POWER == 0) {
        return T(1);
    } else {
        const T half = power<POWER / 2>(x);
        return POWER % 2 ? half * half * x : half * half;
    }
}

template <typename T> inline __device__ T relu(T x) { return max(x, T(0)); }
template <typename T> inline __device__ T relu_grad(T x) { return x > T(0) ? T(1) : x != x ? x : T(0); }

template <typename T> inline __device__ T tanh(T x) { return ::tanh(x); }
template <typename T> inline __device__ T tanh_grad(T x)
{
    const T y = ::tanh(x);
    return T(1) - y * y;
}

// 2^y, off by two units in the last place at most, by one instruction.
inline __device__ float approximate_exp2(float y)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
    return power;
}

// 1/(1 + 2^y), off by a few units in the last place: what activations come to in single precision, without a branch and
// without a division.
inline __device__ float one_over_one_plus_exp2(float y)
{
    float share;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1 + approximate_exp2(y)));
    return share;
}

template <typename T> inline __device__ T sigmoid(T x) { return T(1) / (T(1) + ::exp(-x)); }
inline __device__ float sigmoid(float x) { return one_over_one_plus_exp2(x * -1.44269504f); } // by log2(e)
template <typename T> inline __device__ T sigmoid_grad(T x)
{
    const T y = sigmoid(x);
    return y * (T(1) - y);
}

template <typename T> inline __device__ T silu(T x) { return x * sigmoid(x); }
template <typename T> inline __device__ T silu_grad(T x)
{
    const T y = sigmoid(x);
    return y * (T(1) + x * (T(1) - y));
}

// x·Φ(x), where Φ is the normal distribution's share below x.
template <typename T> inline __device__ T below(T x)
{
    return T(0.5) * (T(1) + ::erf(x * T(0.7071067811865476)));
}

// In single precision without a branch: 1/(1 + 2^y), where y is x·P(x²), and P was fitted to the normal distribution for |x|
// up to 6. It is off by 1.3e-7 at most, and by a hundredth of what is left as far as -5. Beyond the fit y only grows.
inline __device__ float below(float x)
{
    const float square = x * x;
    float p = -5.06723774e-09f;
    p = p * square + 3.81631338e-07f;
    p = p * square - 1.14398345e-05f;
    p = p * square + 0.000159579940f;
    p = p * square + 9.40492173e-05f;
    p = p * square - 0.104835123f;
    p = p * square - 2.30220938f;
    return one_over_one_plus_exp2(x * p);
}

template <typename T> inline __device__ T gelu(T x) { return x * below(x); }
template <typename T> inline __device__ T gelu_grad(T x)
{
    return below(x) + x * T(0.3989422804014327) * ::exp(T(-0.5) * x * x);
}
inline __device__ float gelu_grad(float x)
{
    return below(x) + x * 0.398942280f * approximate_exp2(x * x * -0.721347520f); // by -log2(e)/2
}

// The same by the usual approximation of Φ.
template <typename T> inline __device__ T bend(T x)
{
    return ::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x));
}
template <typename T> inline __device__ T gelu_tanh(T x) { return T(0.5) * x * (T(1) + bend(x)); }
template <typename T> inline __device__ T gelu_tanh_grad(T x)
{
    const T y = bend(x), slope = T(0.7978845608028654) * (T(1) + T(3 * 0.044715) * x * x);
    return T(0.5) * (T(1) + y) + T(0.5) * x * (T(1) - y * y) * slope;
}

// In single precision that share, 0.5 + 0.5·tanh(u), is 1/(1 + 2^y), and y is -2·log2(e)·u.
inline __device__ float gelu_tanh_exponent(float x) { return x * (-2.30220820f - 0.102943240f * x * x); }
inline __device__ float gelu_tanh(float x) { return x * one_over_one_plus_exp2(gelu_tanh_exponent(x)); }
inline __device__ float gelu_tanh_grad(float x)
{
    const float y = gelu_tanh_exponent(x), share = one_over_one_plus_exp2(y), rest = one_over_one_plus_exp2(-y);
    const float square = fminf(x * x, 1e9f); // NOTE: beyond, share or rest is 0, of which an infinite square would make NaN
    return share + x * share * rest * (1.59576912f + 0.214064474f * square);
}

} // namespace activation
