"""Arithmetic whose names serve integers and floats: chooses by type, and does the floats here."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from . import integers
from .errors import Unsupported
from .numerics import (
    F16,
    Format,
    add_f32,
    add_odd,
    canonical,
    decode,
    div_odd,
    encode,
    f32_of,
    f64_directed,
    flush,
    fma_f32,
    fma_f64,
    fma_odd,
    format_of,
    mul_f32,
    saturate,
    sqrt_odd,
)
from .ptx_types import Array, Type, type_of
from .registry import Operation, allow, last_type, operation, types_in
from .syntax import Instruction

if TYPE_CHECKING:
    from .machine import Machine

Function = Callable[..., Array]
ROUNDINGS = ("rn", "rz", "rm", "rp")


def rounding(inst: Instruction) -> str:
    """The rounding modifier; rn if none."""
    return next((x for x in inst.modifiers if x in ROUNDINGS), "rn")


def finished32(inst: Instruction, function: Function) -> Function:
    """Wrap a float32 function with what .ftz and .sat ask for."""
    ftz, sat, relu = "ftz" in inst.modifiers, "sat" in inst.modifiers, "relu" in inst.modifiers
    if not (ftz or sat or relu):
        return function

    def run(*values: Array) -> Array:
        result = function(*(flush(v) if ftz and v.dtype == np.float32 else v for v in values))
        result = flush(result) if ftz else result
        result = np.where(np.isnan(result) | (result > 0), result, np.float32(0)) if relu else result
        return saturate(result) if sat else result

    return run


def flush16(values: Array, fmt: Format) -> Array:
    """Subnormals of a 16-bit format (as float64) become zeros."""
    return np.where(np.abs(values) < fmt.tiniest_normal, np.copysign(0.0, values), values)


def small(m: Machine, inst: Instruction, kind: Type, sources: int, odd: Function) -> Operation:
    """16-bit formats: decode to float64, one operation rounded to odd, encode."""
    fmt, raw = format_of(kind), kind.lane_bits
    ftz, sat, relu = "ftz" in inst.modifiers, "sat" in inst.modifiers, "relu" in inst.modifiers

    def function(*values: Array) -> Array:
        given = [decode(v, fmt) for v in values]
        shape = np.broadcast_shapes(*(v.shape for v in given))
        result = odd(*([flush16(v, fmt) for v in given] if ftz else given)).reshape(shape)
        result = saturate(result) if sat else result
        result = np.where(np.isnan(result) | (result > 0), result, 0.0) if relu else result
        if ftz:
            result = flush16(decode(encode(result, fmt), fmt), fmt)
        return encode(result, fmt)

    return integers.simple(m, inst, [raw] * sources, raw, function)


def arithmetic(
    m: Machine,
    inst: Instruction,
    sources: int,
    single: Callable[..., Array],
    double: Callable[..., Array],
    odd: Function,
) -> Operation:
    """One float operation in its three precisions; single and double also take the rounding mode."""
    kinds = types_in(inst)
    kind, mode = kinds[0], rounding(inst)
    if len(kinds) > 1 and kind.name == "f32" and kinds[-1].bits == 16:
        return mixed(m, inst, kinds, sources, lambda *v: single(*v, mode))
    if kind.bits == 16:
        return small(m, inst, kind, sources, odd)
    if kind.name == "f64":
        return integers.simple(m, inst, [kind] * sources, kind, lambda *v: double(*v, mode))
    if kind.lanes == 2:
        single_kind = type_of("f32")
        kind = Type(kind.name, "f", 32, 2, single_kind.dtype)
        flat = finished32(inst, lambda *v: single(*v, mode))
        return integers.simple(m, inst, [kind] * sources, kind, flat)
    return integers.simple(m, inst, [kind] * sources, kind, finished32(inst, lambda *v: single(*v, mode)))


def mixed(m: Machine, inst: Instruction, kinds: list[Type], sources: int, function: Function) -> Operation:
    """``add.f32.f16``-like forms: the first sources are 16 bits wide, the last float32."""
    fmt, raw = format_of(kinds[-1]), kinds[-1].lane_bits
    single = type_of("f32")
    narrow = sources - 1

    def widened(*values: Array) -> Array:
        given = [decode(v, fmt).astype(np.float32) for v in values[:narrow]]
        return function(*given, values[narrow])

    return integers.simple(m, inst, [raw] * narrow + [single], single, finished32(inst, widened))


def add64(a: Array, b: Array, mode: str) -> Array:
    """float64 a + b."""
    return canonical(a + b) if mode == "rn" else f64_directed("fma", a, np.ones(1), b, mode)


def mul64(a: Array, b: Array, mode: str) -> Array:
    """float64 a * b."""
    if mode == "rn":
        return canonical(a * b)
    # NOTE: adding a zero of the product's own sign keeps the sign of a zero product.
    zero = np.where(np.signbit(a) != np.signbit(b), -0.0, 0.0)
    return f64_directed("fma", a, b, zero, mode)


def div64(a: Array, b: Array, mode: str) -> Array:
    """float64 a / b."""
    return canonical(a / b) if mode == "rn" else f64_directed("div", a, b, np.zeros(1), mode)


@operation("add", "sub")
def add(m: Machine, inst: Instruction) -> Operation:
    """``a + b`` and ``a - b``."""
    kind = types_in(inst)[0]
    if not kind.is_float:
        return integers.add_sub(m, inst)
    allow(inst, *ROUNDINGS, "ftz", "sat")
    # NOTE: subtraction flips the sign of b, so that the signs of zeros come out as IEEE has them.
    flip: Function = np.negative if inst.name == "sub" else np.positive
    return arithmetic(
        m,
        inst,
        2,
        lambda a, b, mode: add_f32(a, flip(b), mode),
        lambda a, b, mode: add64(a, flip(b), mode),
        lambda a, b: add_odd(a, flip(b)),
    )


@operation("mul")
def multiply(m: Machine, inst: Instruction) -> Operation:
    """``a * b``."""
    kind = types_in(inst)[0]
    if not kind.is_float:
        return integers.multiply(m, inst)
    allow(inst, *ROUNDINGS, "ftz", "sat")
    return arithmetic(m, inst, 2, mul_f32, mul64, lambda a, b: a * b)


@operation("fma", "mad")
def fused(m: Machine, inst: Instruction) -> Operation:
    """``a * b + c``, rounded once."""
    kind = types_in(inst)[0]
    if not kind.is_float:
        return integers.multiply_add(m, inst)
    allow(inst, *ROUNDINGS, "ftz", "sat", "relu")
    if kind.name == "f32" and len(types_in(inst)) == 1 and not set(inst.modifiers) - {"rn", "f32"}:
        return integers.simple(m, inst, [kind] * 3, kind, fma_f32)
    return arithmetic(m, inst, 3, fma_f32, fma_f64, fma_odd)


@operation("div")
def divide(m: Machine, inst: Instruction) -> Operation:
    """``a / b``; .approx and .full are rounded correctly here (hardware may be off by 2 ulp)."""
    kind = types_in(inst)[0]
    if not kind.is_float:
        return integers.quotient(m, inst)
    allow(inst, *ROUNDINGS, "approx", "full", "ftz")

    def single(a: Array, b: Array, mode: str) -> Array:
        return canonical(f32_of(div_odd(a.astype(np.float64), b.astype(np.float64)), mode))

    return arithmetic(m, inst, 2, single, div64, div_odd)


def sqrt64(a: Array, mode: str) -> Array:
    """float64 square root; directed modes correct the nearest result by its exact square."""
    nearest = np.sqrt(a)
    if mode == "rn":
        return canonical(nearest)
    result = np.array(nearest)
    for i in np.flatnonzero(np.isfinite(nearest) & (nearest > 0)).tolist():
        exact, root = Fraction(float(a[i])), Fraction(float(nearest[i]))
        if mode in ("rz", "rm") and root * root > exact:
            result[i] = np.nextafter(nearest[i], 0.0)
        elif mode == "rp" and root * root < exact:
            result[i] = np.nextafter(nearest[i], np.inf)
    return canonical(result)


@operation("sqrt")
def square_root(m: Machine, inst: Instruction) -> Operation:
    """sqrt."""
    allow(inst, *ROUNDINGS, "approx", "ftz")

    def single(a: Array, mode: str) -> Array:
        return canonical(f32_of(sqrt_odd(a.astype(np.float64)), mode))

    return arithmetic(m, inst, 1, single, sqrt64, sqrt_odd)


@operation("rcp")
def reciprocal(m: Machine, inst: Instruction) -> Operation:
    """rcp."""
    allow(inst, *ROUNDINGS, "approx", "ftz")

    def single(a: Array, mode: str) -> Array:
        return canonical(f32_of(div_odd(np.ones(1), a.astype(np.float64)), mode))

    approx = "approx" in inst.modifiers

    def double(a: Array, mode: str) -> Array:
        result = div64(np.ones(1), a, mode)
        return upper_half(result) if approx else result

    return arithmetic(m, inst, 1, single, double, div_odd)


def upper_half(values: Array) -> Array:
    """The approximate float64 functions give the upper 32 bits and leave the lower ones zero."""
    return (values.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


@operation("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def approximate(m: Machine, inst: Instruction) -> Operation:
    """The .approx functions: the exact value rounded to nearest. Hardware may be off by a few ulp."""
    allow(inst, "approx", "ftz")
    table: dict[str, Function] = {
        "rsqrt": lambda a: 1.0 / np.sqrt(a),
        "ex2": np.exp2,
        "lg2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
    }
    exact = table[inst.name]

    def double(a: Array, mode: str) -> Array:
        return upper_half(canonical(exact(a)))

    def single(a: Array, mode: str) -> Array:
        return canonical(exact(a.astype(np.float64)).astype(np.float32))

    return arithmetic(m, inst, 1, single, double, exact)


@operation("neg", "abs", "copysign")
def sign(m: Machine, inst: Instruction) -> Operation:
    """Sign operations: on the bits, so that zeros and infinities keep the rest."""
    kind = last_type(inst)
    if not kind.is_float:
        return integers.unary(m, inst)
    allow(inst, "ftz")
    raw = kind.lane_bits
    top = np.array([1 << (kind.bits - 1)], np.uint64).astype(raw.dtype)
    if inst.name == "copysign":
        # NOTE: copysign d, a, b takes the sign of a and the magnitude of b.
        return integers.simple(m, inst, [raw] * 2, raw, lambda a, b: (a & top) | (b & ~top))
    flip: Function = (lambda v: v ^ top) if inst.name == "neg" else (lambda v: v & ~top)
    ftz = "ftz" in inst.modifiers

    def function(values: Array) -> Array:
        result = flip(values)
        if kind.bits == 32:
            single = np.ascontiguousarray(result).view(np.float32)
            return canonical(flush(single) if ftz else single).view(raw.dtype).reshape(result.shape)
        if ftz:
            return encode(flush16(decode(result, F16), F16), F16).reshape(result.shape)
        return result

    return integers.simple(m, inst, [raw], raw, function)


@operation("min", "max")
def extreme(m: Machine, inst: Instruction) -> Operation:
    """min and max: a number beats NaN unless .NaN is given; -0 is below +0."""
    kind = last_type(inst)
    if not kind.is_float:
        return integers.min_max(m, inst)
    allow(inst, "ftz", "NaN", "xorsign", "abs")
    largest, nan_wins = inst.name == "max", "NaN" in inst.modifiers
    magnitude = "abs" in inst.modifiers

    def choose(*values: Array) -> Array:
        a = values[0]
        for b in values[1:]:
            a = extreme_of(a, b, largest, nan_wins, magnitude)
        return a

    sources = len(inst.operands) - 1
    if kind.bits == 16:
        return small(m, inst, kind, sources, choose)
    if kind.bits == 32:
        return integers.simple(
            m, inst, [kind] * sources, kind, finished32(inst, lambda *v: canonical(choose(*v)))
        )
    return integers.simple(m, inst, [kind] * sources, kind, lambda *v: canonical(choose(*v)))


def extreme_of(a: Array, b: Array, largest: bool, nan_wins: bool, magnitude: bool) -> Array:
    """The larger or smaller; with ``magnitude`` of their sizes, signed by the xor of the signs."""
    a, b = np.broadcast_arrays(a, b)
    negative = np.signbit(a) != np.signbit(b)
    if magnitude:
        a, b = np.abs(a), np.abs(b)
    first = (a > b) if largest else (a < b)
    zeros = (a == b) & (np.signbit(b) if largest else np.signbit(a))
    result = np.where(first | zeros, a, b)
    if magnitude:
        result = np.where(negative, -result, result)
    other = np.where(np.isnan(a), b, a)
    result = np.where(np.isnan(a) | np.isnan(b), other, result)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, result).astype(a.dtype) if nan_wins else result


@operation("testp")
def has_property(m: Machine, inst: Instruction) -> Operation:
    """``testp.property.type p, a``."""
    table: dict[str, Function] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
        "subnormal": lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0),
    }
    allow(inst, *table)
    name = next((x for x in inst.modifiers if x in table), "")
    if not name:
        raise Unsupported("testp without a property")
    return integers.simple(m, inst, [last_type(inst)], type_of("pred"), table[name])
