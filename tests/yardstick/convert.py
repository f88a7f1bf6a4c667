"""cvt: between all integer and floating-point types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import integers
from .errors import Unsupported
from .floats import flush16
from .numerics import F16, Format, canonical, decode, encode, f32_of, flush, format_of, saturate, to_odd
from .ptx_types import UNSIGNED, Array, Type, integer_range, type_of
from .registry import Operation, allow, expect, operation, types_in
from .syntax import Instruction

if TYPE_CHECKING:
    from .machine import Machine

TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")


@operation("cvt")
def convert(m: Machine, inst: Instruction) -> Operation:
    """``cvt{.rounding}{.ftz}{.sat}.dtype.stype d, a``."""
    allow(inst, *TO_INTEGER, *ROUNDINGS, "ftz", "sat", "relu", "satfinite")
    target, source = types_in(inst)
    if target.lanes == 2:
        return convert_packed(m, inst, target, source)
    expect(inst.operands, 2)
    if source.is_float:
        function = (
            float_to_float(inst, target, source) if target.is_float else float_to_int(inst, target, source)
        )
    else:
        function = int_to_float(inst, target, source) if target.is_float else int_to_int(inst, target, source)
    raw = source.lane_bits if source.is_float else source
    result = target.lane_bits if target.is_float else target
    return integers.simple(m, inst, [raw], result, function)


def mode_of(inst: Instruction) -> str:
    """The rounding modifier; rn if none."""
    return next((x for x in inst.modifiers if x in ROUNDINGS), "rn")


def int_to_int(inst: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    """Truncate or extend; with .sat clamp."""
    if "sat" not in inst.modifiers or target.family == "b":
        return lambda a: a.astype(target.dtype)
    (low, high), (lowest, highest) = integer_range(target), integer_range(source)
    bounds = np.array([max(low, lowest), min(high, highest)], source.dtype)
    return lambda a: np.clip(a, bounds[0], bounds[1]).astype(target.dtype)


def integer_to_odd(a: Array) -> Array:
    """Integers as float64, rounded to odd where 53 bits are not enough."""
    nearest = a.astype(np.float64)
    if a.dtype.itemsize < 8:
        return nearest
    edge = 2.0**64 if a.dtype == np.uint64 else 2.0**63
    # The nearest float64 may be the power just past the type, which cannot be cast back.
    over = nearest >= edge
    back = np.where(over, 0.0, nearest).astype(a.dtype)
    error = np.where(a > back, 1.0, 0.0) - np.where(a < back, 1.0, 0.0)
    return to_odd(nearest, np.where(over, -1.0, error))


def int_to_float(inst: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    """One rounding from the exact integer."""
    fmt, mode = format_of(target), mode_of(inst)

    def run(a: Array) -> Array:
        if target.name == "f64" and mode == "rn":
            return a.astype(np.float64).view(np.uint64)
        if target.name == "f64":
            return wide_int_to_f64(a, mode)
        if target.name == "f32" and mode == "rn":
            return integer_to_odd(a).astype(np.float32).view(np.uint32)
        return encode(integer_to_odd(a), fmt, mode)

    return run


def wide_int_to_f64(a: Array, mode: str) -> Array:
    """64-bit integers in a directed mode, by neighbours of the nearest."""
    values = []
    for value in a.tolist():
        nearest = float(value)
        if mode == "rp" and int(nearest) < value:
            nearest = float(np.nextafter(nearest, np.inf))
        elif (mode == "rm" or (mode == "rz" and value > 0)) and int(nearest) > value:
            nearest = float(np.nextafter(nearest, -np.inf))
        elif mode == "rz" and value < 0 and int(nearest) < value:
            nearest = float(np.nextafter(nearest, 0.0))
        values.append(nearest)
    return np.array(values, np.float64).view(np.uint64)


def float_to_int(inst: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    """Round to an integer, then clamp to the type; NaN is 0, or the top bit where 64 bits are involved."""
    fmt = format_of(source)
    names = [x for x in inst.modifiers if x in TO_INTEGER]
    if not names:
        raise Unsupported("a conversion to an integer needs .rni, .rzi, .rmi or .rpi")
    rounder = TO_INTEGER[names[0]]
    lowest, highest = integer_range(target)
    # NOTE: float(highest) may round up past the type, so that clamping is by comparison, not by clip.
    below, above = float(lowest), float(highest + 1)
    limits = np.array([lowest, highest], target.dtype)
    nan = 1 << (target.bits - 1) if source.bits == 64 or target.bits == 64 else 0
    nan_value = np.array([nan], np.uint64).astype(UNSIGNED[target.bits]).view(target.dtype)[0]

    def run(bits: Array) -> Array:
        values = decode(bits, fmt)
        if "ftz" in inst.modifiers and source.name == "f32":
            values = flush(bits.view(np.float32)).astype(np.float64)
        whole = rounder(values)
        inside = (whole >= below) & (whole < above)
        safe = np.where(inside, whole, 0.0).astype(target.dtype)
        result = np.where(inside, safe, np.where(whole < below, limits[0], limits[1]))
        return np.where(np.isnan(values), nan_value, result)

    return run


def float_to_float(inst: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    """Between formats, or to a whole number in the same format."""
    fmt, mode = format_of(target), mode_of(inst)
    rounder = next((TO_INTEGER[x] for x in inst.modifiers if x in TO_INTEGER), None)

    def run(bits: Array) -> Array:
        if (
            target.name == source.name
            and rounder is None
            and not {"sat", "ftz", "relu"} & set(inst.modifiers)
        ):
            return bits
        values = prepared(inst, bits, source)
        if rounder is not None:
            values = rounder(values)
        return finished(inst, values, target, fmt, mode)

    return run


def prepared(inst: Instruction, bits: Array, source: Type) -> Array:
    """A float source as float64, flushed if asked for."""
    if "ftz" in inst.modifiers and source.name == "f32":
        return flush(bits.view(np.float32)).astype(np.float64)
    return decode(bits, format_of(source))


def finished(inst: Instruction, values: Array, target: Type, fmt: Format, mode: str) -> Array:
    """Saturate, round and flush a float64 into the bits of the target format."""
    if "sat" in inst.modifiers:
        values = saturate(values)
    if "relu" in inst.modifiers:
        values = np.where(np.isnan(values) | (values > 0), values, 0.0)
    if target.name == "f64":
        return canonical(values).view(np.uint64)
    if target.name == "f32":
        single = canonical(f32_of(values, mode))
        return (flush(single) if "ftz" in inst.modifiers else single).view(np.uint32)
    bits = encode(values, fmt, mode, "satfinite" in inst.modifiers).reshape(values.shape)
    if "ftz" in inst.modifiers and target.name == "f16":
        return encode(flush16(decode(bits, F16), F16), F16)
    return bits


def convert_packed(m: Machine, inst: Instruction, target: Type, source: Type) -> Operation:
    """Two values at once: ``d, a, b`` puts a in the upper half; a packed source keeps its halves."""
    fmt, mode = format_of(target), mode_of(inst)
    if source.lanes == 2:
        expect(inst.operands, 2)
        raw = source.lane_bits
        return packed_to_packed(m, inst, target, source, raw)
    expect(inst.operands, 3)
    readers = [m.operands.read(o, source.lane_bits) for o in inst.operands[1:]]
    write = m.operands.write(inst.operands[0], type_of(f"b{target.total}"))
    dtype = UNSIGNED[target.total]

    def run(g: Any) -> None:
        high, low = (
            finished(inst, prepared(inst, read(g), source), target, fmt, mode).astype(dtype)
            for read in readers
        )
        write(g, high << dtype(target.bits) | low)

    return run


def packed_to_packed(m: Machine, inst: Instruction, target: Type, source: Type, raw: Type) -> Operation:
    """Lane by lane, through the bits of the whole."""
    read = m.operands.read(inst.operands[1], type_of(f"b{source.total}"))
    write = m.operands.write(inst.operands[0], type_of(f"b{target.total}"))
    fmt, mode = format_of(target), mode_of(inst)
    dtype = UNSIGNED[target.total]

    def run(g: Any) -> None:
        whole = read(g)
        halves = [(whole >> whole.dtype.type(raw.bits * i)).astype(raw.dtype) for i in range(2)]
        low, high = (
            finished(inst, prepared(inst, half, source), target, fmt, mode).astype(dtype) for half in halves
        )
        write(g, high << dtype(target.bits) | low)

    return run
