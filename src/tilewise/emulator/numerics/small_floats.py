"""Formats of eight bits and fewer, two in a register: e4m3x2, e5m2x2, e2m3x2, e3m2x2, e2m1x2, ue8m0x2."""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.rounding import FORMATS, narrow, rectify, widen

__all__ = ["SMALL", "pack", "pack_exponents", "unpack", "unpack_as_bf16", "unpack_exponents"]

SMALL = {f"{name}x2": name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_SINGLE = FORMATS["f32"]


def pack(e: Emitter, to: str, low: Value, high: Value, relu: bool) -> Value:
    """Two floats rounded to the nearest; what is too large becomes the largest number."""
    of = FORMATS[SMALL[to]]
    values = [rectify(e, value) if relu else value for value in (low, high)]
    bottom, top = (narrow(e, value, of, "rn", finite=True) for value in values)
    if of.bits > 4:
        return halves.join(e, bottom, top)
    return bottom | (top << of.bits)


def _widen_both(e: Emitter, of: str, packed: Value) -> list[Value]:
    """Low and high number, as floats."""
    format_ = FORMATS[SMALL[of]]
    shift = 4 if format_.bits == 4 else 8
    mask = (1 << format_.bits) - 1
    parts = (packed, packed >> shift)
    return [widen(e, part & mask, format_) for part in parts]


def unpack(e: Emitter, of: str, packed: Value, relu: bool) -> Value:
    """As f16x2."""
    numbers = _widen_both(e, of, packed)
    if relu:
        numbers = [rectify(e, number) for number in numbers]
    low, high = (halves.down(e, number, "f16") for number in numbers)
    return halves.join(e, low, high)


def unpack_as_bf16(
    e: Emitter, of: str, packed: Value, scales: Value | None, *, relu: bool, finite: bool
) -> Value:
    """As bf16x2; ``scales`` are powers of two (ue8m0x2) that the numbers are multiplied by.

    A float holds every product that is not too large for bf16 too: a number has four digits at most.
    """
    numbers = _widen_both(e, of, packed)
    if scales is not None:
        factors = (halves.up(e, half) for half in halves.split(e, "bf16x2", unpack_exponents(e, scales)))
        numbers = [e.op("fmul", number, factor) for number, factor in zip(numbers, factors, strict=True)]
    if relu:
        numbers = [rectify(e, number) for number in numbers]
    return halves.join(e, *(halves.down(e, number, "bf16", finite=finite) for number in numbers))


def pack_exponents(e: Emitter, low: Value, high: Value, mode: str, finite: bool) -> Value:
    """Two floats as ue8m0x2, powers of two from 2**-127 on; signs are dropped.

    Rounded up or towards zero; 255 is NaN, and what comes of too large a number unless ``finite``.
    """
    return halves.join(e, *(_exponent(e, value, mode, finite) for value in (low, high)))


def _exponent(e: Emitter, value: Value, mode: str, finite: bool) -> Value:
    size = e.cast("bitcast", value, "i32") & 0x7FFF_FFFF
    if mode == "rp":
        # Up to the next power of two; the smallest stands for all that is no larger, zero too.
        up = size + 0x7F_FFFF
        least = e.is_at_most(size, 1 << 22)
        endless = e.is_at_least(size, _SINGLE.infinity)
        raised = e.select(least, 0, e.select(endless, size, up))
    else:
        raised = size
    result = raised >> 23
    if finite:
        result = e.intrinsic("llvm.umin", result, 254)
    nan = e.is_above(size, _SINGLE.infinity)
    return e.resize(e.select(nan, 255, result), "i8", False)


def unpack_exponents(e: Emitter, packed: Value) -> Value:
    """As bf16x2."""
    parts = (packed, packed >> 8)
    return halves.join(e, *(_power(e, part & 0xFF) for part in parts))


def _power(e: Emitter, exponent: Value) -> Value:
    bits = exponent << 7
    smallest = e.equals(exponent, 0)
    bits = e.select(smallest, 0x40, bits)
    nan = e.equals(exponent, 255)
    return e.select(nan, 0x7FFF, bits)
