"""Floating-point arithmetic with one rounding, the way PTX asks for it.

The one idea: compute in float64 with round-to-odd (an inexact result gets an odd last bit), which keeps
enough information to round once more, in any direction, to any format of at most 51 bits of precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .ptx_types import UNSIGNED, Array, Type


@dataclass(frozen=True)
class Format:
    """A binary floating-point format. ``finite``: no infinity and one NaN per sign, as e4m3."""

    name: str
    bits: int
    precision: int
    emax: int
    emin: int
    finite: bool = False

    @property
    def mantissa_bits(self) -> int:
        return self.precision - 1

    @property
    def nan(self) -> int:
        """The NaN that the hardware writes."""
        if self.name == "f64":
            return 0xFFF8000000000000
        return (1 << (self.bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The largest finite value."""
        steps = (1 << self.precision) - (2 if self.finite else 1)
        return float(np.ldexp(float(steps), self.emax - self.precision + 1))

    @property
    def tiniest_normal(self) -> float:
        return float(np.ldexp(1.0, self.emin))


F64 = Format("f64", 64, 53, 1023, -1022)
F32 = Format("f32", 32, 24, 127, -126)
TF32 = Format("tf32", 32, 11, 127, -126)
F16 = Format("f16", 16, 11, 15, -14)
BF16 = Format("bf16", 16, 8, 127, -126)
E4M3 = Format("e4m3", 8, 4, 8, -6, finite=True)
E5M2 = Format("e5m2", 8, 3, 15, -14)

FORMATS = {f.name: f for f in (F64, F32, TF32, F16, BF16, E4M3, E5M2)}


def format_of(kind: Type) -> Format:
    """The format of each lane of a floating-point type."""
    return FORMATS[kind.name.removesuffix("x2")]


CANONICAL_F32 = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
CANONICAL_F64 = np.array([0xFFF8000000000000], np.uint64).view(np.float64)[0]


def canonical(values: Array) -> Array:
    """Replace every NaN by the one the hardware writes."""
    wrong = values != values
    if wrong.any():
        values = np.atleast_1d(values).copy()
        values[wrong] = CANONICAL_F32 if values.dtype == np.float32 else CANONICAL_F64
    return values


def flush(values: Array) -> Array:
    """Subnormal float32 values become zeros of the same sign (.ftz)."""
    small = np.abs(values) < np.float32(2.0**-126)
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def saturate(values: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes +0 (.sat)."""
    inside = np.minimum(np.maximum(values, values.dtype.type(0)), values.dtype.type(1))
    # NOTE: max(-0, +0) may give either zero, so that negative zero is replaced on purpose.
    result: Array = np.where((values > 0) & ~np.isnan(values), inside, values.dtype.type(0))
    return result


# -- round to odd ----------------------------------------------------------------------------------


def to_odd(rounded: Array, error: Array) -> Array:
    """The round-to-odd result, given the nearest float64 and the sign of (exact - nearest)."""
    rounded = np.atleast_1d(np.asarray(rounded, np.float64))
    bits = rounded.view(np.int64)
    change = (error != 0) & np.isfinite(rounded) & (bits & 1 == 0)
    if not change.any():
        return rounded
    # The neighbour on the side of the error: away from zero if the signs agree.
    step = np.where((error > 0) == (rounded > 0), 1, -1)
    return np.where(change, bits + step, bits).view(np.float64)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as nearest float64 and the exact rest."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def add_odd(a: Array, b: Array) -> Array:
    """a + b rounded to odd, for float64 values that come from narrower formats."""
    s, e = two_sum(a, b)
    return to_odd(s, e)


def fma_odd(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded to odd: the product of two values of at most 26 bits is exact in float64."""
    return add_odd(a * b, c)


def div_odd(a: Array, b: Array) -> Array:
    """a / b rounded to odd, for values of at most 24 bits."""
    q = np.atleast_1d(a / b)
    # Cut the quotient to 29 bits: its product with b is exact, and so is the rest.
    cut = (q.view(np.int64) & ~np.int64((1 << 24) - 1)).view(np.float64)
    rest = a - cut * b
    # The rest says on which side of the cut quotient the exact one lies; a single low bit keeps that.
    sign = np.where(b < 0, -rest, rest)
    usable = np.isfinite(q) & (q != 0) & np.isfinite(a) & np.isfinite(b)
    return np.where(usable, to_odd(cut, np.where(usable, sign, 0)), q)


def sqrt_odd(a: Array) -> Array:
    """The square root rounded to odd, for values of at most 24 bits."""
    q = np.atleast_1d(np.sqrt(a))
    cut = (q.view(np.int64) & ~np.int64((1 << 27) - 1)).view(np.float64)
    rest = a - cut * cut
    usable = np.isfinite(q) & (q != 0)
    return np.where(usable, to_odd(cut, np.where(usable, rest, 0)), q)


# -- formats ---------------------------------------------------------------------------------------


def decode(bits: Array, fmt: Format) -> Array:
    """Bits of a format as the float64 of the same value."""
    if fmt.name == "f64":
        return bits.view(np.float64)
    if fmt.name == "f32":
        return bits.view(np.float32).astype(np.float64)
    if fmt.name == "f16":
        return bits.view(np.float16).astype(np.float64)
    if fmt.name == "tf32":
        # NOTE: the matrix units read the upper 19 bits of the register and ignore the rest.
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if fmt.name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    magnitude = bits.astype(np.int64) & ((1 << (fmt.bits - 1)) - 1)
    exponent = magnitude >> fmt.mantissa_bits
    mantissa = magnitude & ((1 << fmt.mantissa_bits) - 1)
    implicit = np.where(exponent > 0, 1 << fmt.mantissa_bits, 0)
    value = np.ldexp(
        (mantissa + implicit).astype(np.float64), np.maximum(exponent, 1) - 1 + fmt.emin - fmt.mantissa_bits
    )
    top = (1 << (fmt.bits - 1 - fmt.mantissa_bits)) - 1
    if fmt.finite:
        value = np.where(magnitude == (1 << (fmt.bits - 1)) - 1, np.nan, value)
    else:
        value = np.where(exponent == top, np.where(mantissa == 0, np.inf, np.nan), value)
    return np.where(bits >> (fmt.bits - 1) & 1 == 1, -value, value)


def round_steps(scaled: Array, negative: Array, mode: str) -> Array:
    """Round non-negative ``scaled`` to an integer in the mode rn, rna, rz, rm or rp."""
    whole = np.floor(scaled)
    rest = scaled - whole
    if mode == "rn":
        up = (rest > 0.5) | ((rest == 0.5) & (whole % 2 == 1))
    elif mode == "rna":
        up = rest >= 0.5
    elif mode == "rz":
        up = np.zeros(rest.shape, bool)
    else:
        up = (rest > 0) & (negative if mode == "rm" else ~negative)
    result: Array = whole + up
    return result


def encode(values: Array, fmt: Format, mode: str = "rn", satfinite: bool = False) -> Array:
    """Round float64 values (themselves rounded to odd, or exact) once, to the bits of a format."""
    values = np.atleast_1d(np.asarray(values, np.float64))
    if mode == "rn" and fmt.name in ("f16", "f32"):
        # NumPy's own casts round once, to nearest; the rest below is for what NumPy lacks.
        cast = values.astype(np.float16 if fmt.bits == 16 else np.float32).view(UNSIGNED[fmt.bits])
        return np.where(np.isnan(values), UNSIGNED[fmt.bits](fmt.nan), cast)
    negative, size = np.signbit(values), np.abs(values)
    usable = np.where(np.isfinite(size), size, 0.0)
    _, exponent = np.frexp(usable)
    quantum = np.maximum(exponent - 1, fmt.emin) - fmt.mantissa_bits
    steps = round_steps(np.ldexp(usable, -quantum), negative, mode)
    carried = steps >= float(1 << fmt.precision)
    steps, quantum = np.where(carried, steps / 2, steps), np.where(carried, quantum + 1, quantum)
    rounded = np.ldexp(steps, quantum)
    over = (rounded > fmt.largest) | np.isinf(size)
    whole = steps.astype(np.uint64)
    normal = whole >= np.uint64(1 << fmt.mantissa_bits)
    biased = np.where(normal, quantum + fmt.mantissa_bits - fmt.emin + 1, 0).astype(np.uint64)
    mantissa = np.where(normal, whole - np.uint64(1 << fmt.mantissa_bits), whole)
    stored = fmt.bits - 1 if fmt.name != "tf32" else 31
    shift = np.uint64(13 if fmt.name == "tf32" else 0)
    bits = (biased << np.uint64(fmt.mantissa_bits) | mantissa) << shift
    bits = np.where(over, overflow_bits(fmt, mode, negative, np.isinf(size), satfinite), bits)
    bits = bits | negative.astype(np.uint64) << np.uint64(stored)
    bits = np.where(np.isnan(values), np.uint64(fmt.nan), bits)
    return bits.astype(UNSIGNED[fmt.bits])


def overflow_bits(fmt: Format, mode: str, negative: Array, infinite: Array, satfinite: bool) -> Array:
    """Magnitude bits for results beyond the largest value: it, or infinity, as the mode says."""
    shift = 13 if fmt.name == "tf32" else 0
    top = (1 << (fmt.bits - 1)) - 1
    if fmt.finite:
        infinity, largest = top, top - 1
    else:
        infinity = (top >> (fmt.mantissa_bits + shift)) << (fmt.mantissa_bits + shift)
        largest = infinity - (1 << shift)
    stays = (mode == "rz") | ((mode == "rm") & ~negative) | ((mode == "rp") & negative)
    stays = np.broadcast_to(np.array(satfinite) | (stays & ~infinite), negative.shape)
    return np.where(stays, np.uint64(largest), np.uint64(infinity))


def f32_of(odd: Array, mode: str) -> Array:
    """Round-to-odd float64 values as float32 in a rounding mode."""
    if mode in ("", "rn"):
        return odd.astype(np.float32)
    return encode(odd, F32, mode).view(np.float32)


# -- float32 ---------------------------------------------------------------------------------------


def add_f32(a: Array, b: Array, mode: str = "rn") -> Array:
    """a + b."""
    if mode == "rn":
        return canonical(a + b)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    result = f32_of(add_odd(a64, b64), mode)
    if mode == "rm":
        # An exact zero sum of opposite numbers is negative when rounding down.
        result = np.where((a64 + b64 == 0) & (np.signbit(a64) | np.signbit(b64)), np.float32(-0.0), result)
    return canonical(result)


def mul_f32(a: Array, b: Array, mode: str = "rn") -> Array:
    """a * b."""
    if mode == "rn":
        return canonical(a * b)
    return canonical(f32_of(a.astype(np.float64) * b.astype(np.float64), mode))


def fma_f32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c with one rounding."""
    product = np.multiply(a, b, dtype=np.float64)
    c64 = c.astype(np.float64)
    if mode != "rn":
        result = f32_of(add_odd(product, c64), mode)
        if mode == "rm":
            mixed = np.signbit(product) | np.signbit(c64)
            result = np.where((product + c64 == 0) & mixed, np.float32(-0.0), result)
        return canonical(result)
    total = product + c64
    # The float64 sum rounds to the right float32 unless it lies just on the middle between two of them (then
    # the lost part decides) or is so small that float32 has fewer bits: those go the long way.
    bits = total.view(np.uint64)
    doubtful = (bits & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    doubtful |= (np.abs(total) < 2.0**-126) & (total != 0)
    if doubtful.any():
        total = add_odd(product, c64)
    return canonical(total.astype(np.float32))


# -- float64 ---------------------------------------------------------------------------------------


def round_fraction(value: Fraction, mode: str) -> float:
    """An exact non-zero rational as the float64 that the mode asks for, subnormals and overflow included."""
    negative = value < 0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = max(exponent, F64.emin) - 52
    scaled = size / Fraction(2) ** quantum
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    half = Fraction(1, 2)
    up = {
        "rn": rest > half or (rest == half and whole % 2 == 1),
        "rz": False,
        "rm": rest > 0 and negative,
        "rp": rest > 0 and not negative,
    }[mode]
    whole += up
    if whole * Fraction(2) ** quantum >= Fraction(2) ** 1024:
        stays = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
        magnitude = F64.largest if stays else float("inf")
    else:
        # NOTE: through fromhex-like scaling in two steps, as 2**quantum alone may be subnormal.
        magnitude = float(np.ldexp(float(whole), quantum))
    return -magnitude if negative else magnitude


def exact_f64(kind: str, values: list[Any], mode: str) -> float:
    """One float64 operation through rationals; specials follow IEEE through plain float64 arithmetic."""
    a, b, c = (float(v) for v in values)
    with np.errstate(all="ignore"):
        plain = {
            "fma": lambda: float(np.float64(a) * np.float64(b) + np.float64(c)),
            "div": lambda: float(np.float64(a) / np.float64(b)),
        }[kind]()
    if kind == "div":
        if not (np.isfinite(a) and np.isfinite(b)) or a == 0 or b == 0:
            return plain
        return round_fraction(Fraction(a) / Fraction(b), mode)
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        # A finite product may overflow in float64 although c decides: infinity in c wins.
        return c if np.isfinite(a) and np.isfinite(b) and not np.isnan(c) else plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return round_fraction(exact, mode)
    product_negative = np.signbit(a) != np.signbit(b)
    if product_negative == np.signbit(c):
        return -0.0 if product_negative else 0.0
    return -0.0 if mode == "rm" else 0.0


def fma_f64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c with one rounding."""
    a, b, c = np.broadcast_arrays(a, b, c)
    result = np.zeros(a.shape)
    safe = np.full(a.shape, mode == "rn")
    for x in (a, b):
        size = np.abs(x)
        safe &= (size > 2.0**-250) & (size < 2.0**250)
    safe &= (c == 0) | ((np.abs(c) > 2.0**-400) & (np.abs(c) < 2.0**500))
    if safe.any():
        result[safe] = fma_in_range(a[safe], b[safe], c[safe])
    for i in np.flatnonzero(~safe).tolist():
        result[i] = exact_f64("fma", [a[i], b[i], c[i]], mode)
    return canonical(result)


def split(a: Array) -> tuple[Array, Array]:
    """Veltkamp's split of float64 into two halves of 26 bits."""
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


def fma_in_range(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond's way: exact product and sum of the big parts, the rest rounded to odd."""
    high = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    low = ((ah * bh - high) + ah * bl + al * bh) + al * bl
    th, tl = two_sum(c, low)
    vh, vl = two_sum(high, th)
    z, e = two_sum(tl, vl)
    return np.asarray(vh + to_odd(z, e))


def f64_directed(kind: str, a: Array, b: Array, c: Array, mode: str) -> Array:
    """Any float64 fma or division in a directed mode, one element at a time."""
    rows = np.broadcast_arrays(a, b, c)
    return canonical(np.array([exact_f64(kind, list(row), mode) for row in zip(*rows, strict=True)]))
