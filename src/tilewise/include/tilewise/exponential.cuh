// exp(x) by additions and multiplications alone, so that it has the same bits wherever it runs.
#pragma once

// Of x up to 0, within 2 units in the last place; 0 below -87. NaN stays NaN.
inline __device__ float exponential(float x)
{
    if (x < -87.0f) return 0;
    const float whole = rintf(x * 1.44269504f); // how many times log(2)
    float rest = fmaf(whole, -0.693145752f, x); // NOTE: log(2) in two parts: the first has few bits, its product is exact
    rest = fmaf(whole, -1.42860677e-6f, rest);
    float power = 1.0f / 5040;
    power = fmaf(power, rest, 1.0f / 720);
    power = fmaf(power, rest, 1.0f / 120);
    power = fmaf(power, rest, 1.0f / 24);
    power = fmaf(power, rest, 1.0f / 6);
    power = fmaf(power, rest, 0.5f);
    power = fmaf(power, rest, 1.0f);
    power = fmaf(power, rest, 1.0f);
    return power * __int_as_float((static_cast<int>(whole) + 127) << 23);
}
