"""How Hopper's tensor cores add, found from recorded results and exact to the last bit of all of them.

A group of products and C are added at once. Every term is brought to the largest exponent among them, which
for a product is the sum of its factors' exponents; what lies more than ``kept`` binary places below that is
cut off, towards zero. The sum of what is left is exact, and is cut off to a float, or rounded to nearest for
f16. Zeros have no exponent; the exponent of a subnormal number is that of the smallest normal one.

- f16, bf16, tf32, by mma and wgmma: 25 places are kept, and all k are one group.
- 8 bits, by wgmma: 13 places are kept, all k are one group, and a float has only 13 places.
- 8 bits, by mma: there is no such unit. Elements become f16; of every four k the first two are one group and
  the last two another, added to the first; C comes last, by an ordinary addition.
- A sparse A is as one that is dense in what it keeps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.hardware.floats import FORMATS
from tests.hardware.job import Array
from tests.hardware.matrix import matrices
from tests.harness.fragments import BITS, Form

__all__ = ["applies", "fused", "predicted"]

_NOTHING = -10_000  # the exponent of zero
_NAN32, _INF32 = 0x7FFF_FFFF, 0x7F80_0000
_NAN16, _INF16 = 0x7FFF, 0x7C00


class Numbers(NamedTuple):
    """Numbers taken apart: digits · 2**(exponent - places), with their sign."""

    negative: Array
    digits: Array
    exponent: Array
    infinite: Array
    nan: Array
    places: int

    def of(self, which: Array) -> Numbers:
        """Some of the last axis."""
        parts = [
            part[..., which] for part in (self.negative, self.digits, self.exponent, self.infinite, self.nan)
        ]
        return Numbers(parts[0], parts[1], parts[2], parts[3], parts[4], self.places)


def applies(form: Form) -> bool:
    """Whether the model is for this form: m8n8k4 of f16 has no unit on newer GPUs, but fused multiply-adds."""
    return form.a in FORMATS and form.a != "f64" and not form.volta


def _apart(bits: Array, type_: str) -> Numbers:
    of = FORMATS[type_]
    word = (bits >> np.uint64(of.shift)).astype(np.int64)
    mantissa, field = word & ((1 << of.mantissa) - 1), (word >> of.mantissa) & ((1 << of.exponent) - 1)
    top = field == (1 << of.exponent) - 1
    infinite = top & (mantissa == 0) & of.infinite
    nan = top & (mantissa != 0 if of.infinite else mantissa == (1 << of.mantissa) - 1)
    digits = np.where(field > 0, mantissa | 1 << of.mantissa, mantissa)
    negative = word >> (of.mantissa + of.exponent) & 1 == 1
    return Numbers(negative, digits, np.maximum(field, 1) - of.bias, infinite, nan, of.mantissa)


def _cut(digits: Array, down: Array) -> Array:
    """digits · 2**-down, cut off."""
    found: Array = np.where(down >= 0, digits >> np.clip(down, 0, 62), digits << np.clip(-down, 0, 40))
    return found


def _fused(a: Numbers, b: Numbers, c: Array, c_type: str, kept: int, out: str) -> Array:
    """A group of products and C; ``out`` is "f16", "f32", or "short" for a float of 13 places."""
    start = _apart(c, c_type)
    product, exponent, negative = a.digits * b.digits, a.exponent + b.exponent, a.negative ^ b.negative
    top = np.maximum(
        np.where(product > 0, exponent, _NOTHING).max(-1),
        np.where(start.digits > 0, start.exponent, _NOTHING),
    )
    top = np.where(top == _NOTHING, 0, top)
    terms = _cut(product, top[..., None] - kept - (exponent - a.places - b.places))
    first = _cut(start.digits, top - kept - (start.exponent - start.places))
    total = np.where(negative, -terms, terms).sum(-1) + np.where(start.negative, -first, first)
    infinite = a.infinite | b.infinite
    up = (infinite & ~negative).any(-1) | (start.infinite & ~start.negative)
    down = (infinite & negative).any(-1) | (start.infinite & start.negative)
    zero = (a.infinite & (b.digits == 0)) | (b.infinite & (a.digits == 0))
    nan = (a.nan | b.nan | zero).any(-1) | start.nan | (up & down)
    if out == "f16":
        with np.errstate(over="ignore"):
            bits = (
                np.ldexp(total.astype(np.float64), top - kept)
                .astype(np.float16)
                .view(np.uint16)
                .astype(np.uint64)
            )
        bits = np.where(bits == 0x8000, np.uint64(0), bits)  # what rounds to zero loses its sign
        return _special(bits, up, down, nan, _INF16, _NAN16, 0x8000)
    bits = _float(total, top - kept)
    bits = bits & np.uint64(0xFFFF_FC00) if out == "short" else bits
    return _special(bits, up, down, nan, _INF32, _NAN32, 0x8000_0000)


def fused(a: Array, b: Array, c: Array, c_type: str, out: str) -> Array:
    """A·B + C of f16 matrices of bits, all k as one group."""
    return _fused(_apart(a[:, None, :], "f16"), _apart(b.T[None], "f16"), c, c_type, 25, out)


def _special(
    bits: Array, up: Array, down: Array, nan: Array, infinity: int, no_number: int, sign: int
) -> Array:
    found = np.where(up, infinity, np.where(down, infinity | sign, bits))
    return np.where(nan, no_number, found).astype(np.uint64)


def _float(total: Array, exponent: Array) -> Array:
    """The bits of total · 2**exponent as a float, cut off; what is too large is infinite."""
    size = np.abs(total)
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)  # exact: sums have less than 53 bits
    last = np.maximum(length - 1 + exponent, -126) - 23
    digits = _cut(size, last - exponent)
    field = np.where(digits >> 23 > 0, last + 23 + 127, 0)
    bits = np.where(field >= 255, _INF32, (field << 23) | (digits & ((1 << 23) - 1)))
    bits = np.where(size == 0, 0, bits | np.where(total < 0, 1 << 31, 0))
    return bits.astype(np.uint64)


def _chosen(form: Form, b: Array, metadata: Array) -> Array:
    """For each row of A and each element that it keeps, the elements of B that it meets."""
    bits = BITS[form.a]
    chunk = 2 if bits == 32 else 4
    half, first = chunk // 2, form.selector * (2 * (4 * form.k // chunk) // 32)
    where = np.zeros((len(b), form.m, form.kept), np.int64)
    for row in range(form.m):
        for kept in range(form.kept):
            number, within = divmod(kept, half)
            low = row >= 8
            giver, place = (
                (number // 8 * 2 + low, number % 8) if bits < 16 else (number // 4, number % 4 + 4 * low)
            )
            word = metadata[:, row % 8 * 4 + (first + giver) % 4].astype(np.int64)
            field = word >> (4 * place + 2 * within)
            where[:, row, kept] = number * chunk + (field >> 1 & 1 if bits == 32 else field & 3)
    columns = np.broadcast_to(np.swapaxes(b, 1, 2)[:, None], (len(b), form.m, form.n, form.k))
    return np.take_along_axis(columns, where[:, :, None, :].repeat(form.n, 2), axis=3)


def predicted(form: Form, asynchronous: bool = False) -> Array:
    """D of every tile of a form, as bits: by mma, or by wgmma."""
    a_bits, b_bits, c, metadata = matrices(form)
    columns = _chosen(form, b_bits, metadata) if form.sparse else np.swapaxes(b_bits, 1, 2)[:, None]
    a, b = _apart(a_bits[:, :, None, :], form.a), _apart(columns, form.b)
    out = "f16" if form.d == "f16" else "f32"
    if form.a not in ("e4m3", "e5m2"):
        return _fused(a, b, c, form.c, 25, out)
    if asynchronous:
        return _fused(a, b, c, form.c, 13, "f16" if out == "f16" else "short")
    k, sums = np.arange(form.kept), np.zeros_like(c)
    for group in (k[k % 4 < 2], k[k % 4 >= 2]):
        sums = _fused(a.of(group), b.of(group), sums, form.d, 25, out)
    kind, word = (np.float16, np.uint16) if out == "f16" else (np.float32, np.uint32)
    with np.errstate(all="ignore"):
        added = sums.astype(word).view(kind) + c.astype(word).view(kind)
    return added.view(word).astype(np.uint64)  # type: ignore[no-any-return]
