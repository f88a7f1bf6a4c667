"""Comparison, selection and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import integers
from .errors import Unsupported
from .numerics import decode, flush, format_of
from .operands import Reader, Writer
from .ptx_types import UNSIGNED, Array, Type, type_of
from .registry import Operation, Threads, allow, expect, last_type, operation, types_in
from .syntax import Instruction, Operand, Sink, Vector
from .warp_ops import pair_of

if TYPE_CHECKING:
    from .machine import Machine

Function = Callable[..., Array]


def unordered(a: Array, b: Array) -> Array:
    """Whether either is NaN."""
    return np.isnan(a) | np.isnan(b)


ORDERED: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOLEANS: dict[str, Function] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def float_comparison(name: str) -> Function:
    """A comparison of floats: the plain ones are false for NaN, the ``u`` ones true."""
    if name == "num":
        return lambda a, b: ~unordered(a, b)
    if name == "nan":
        return unordered
    if name in ORDERED:
        # NOTE: NumPy's not-equal is true for NaN, PTX's ne is not.
        compare = ORDERED[name]
        return lambda a, b: compare(a, b) & ~unordered(a, b)
    compare = ORDERED[name[:-1]]
    return lambda a, b: compare(a, b) | unordered(a, b)


COMPARISONS = {*ORDERED, *UNSIGNED_NAMES, "num", "nan", *(f"{x}u" for x in ORDERED)}


class Comparison:
    """The common part of setp and set: a compare b, then perhaps a boolean with a predicate."""

    def __init__(self, m: Machine, inst: Instruction, kind: Type) -> None:
        allow(inst, *COMPARISONS, *BOOLEANS, "ftz")
        expect(inst.operands, 3, 4)
        name = next(x for x in inst.modifiers if x in COMPARISONS)
        source = kind
        if kind.is_float:
            compare = float_comparison(name)
            if kind.bits == 16:
                fmt, source = format_of(kind), kind.lane_bits
                inner = compare
                compare = lambda a, b: inner(decode(a, fmt), decode(b, fmt))  # noqa: E731
            elif "ftz" in inst.modifiers:
                outer = compare
                compare = lambda a, b: outer(flush(a), flush(b))  # noqa: E731
        else:
            if name in UNSIGNED_NAMES and kind.family != "u":
                raise Unsupported(f"comparison .{name} of .{kind.name}")
            compare = ORDERED[UNSIGNED_NAMES.get(name, name)]
        self.compare = compare
        self.a, self.b = (m.operands.read(o, source) for o in inst.operands[1:3])
        self.combine = next((BOOLEANS[x] for x in inst.modifiers if x in BOOLEANS), None)
        self.c: Reader | None = None
        if (self.combine is None) != (len(inst.operands) == 3):
            raise Unsupported("a boolean operator needs a predicate")
        if self.combine is not None:
            self.c = m.operands.read(inst.operands[3], "pred")

    def both(self, g: Threads) -> tuple[Array, Array]:
        """The comparison and its opposite, each combined with the predicate."""
        result = self.compare(self.a(g), self.b(g))
        if self.combine is None or self.c is None:
            return result, ~result
        c = self.c(g)
        return self.combine(result, c), self.combine(~result, c)


@operation("setp")
def set_predicate(m: Machine, inst: Instruction) -> Operation:
    """``setp.cmp{.bool}.type p{|q}, a, b{, {!}c}``."""
    kind = last_type(inst)
    first, second = pair_of(inst.operands[0])
    if kind.lanes == 2:
        return set_predicates(m, inst, first, second)
    comparison = Comparison(m, inst, kind)
    write = m.operands.write(first, "pred")
    if isinstance(second, Sink) and comparison.combine is None:
        a, b, compare = comparison.a, comparison.b, comparison.compare
        return lambda g: write(g, compare(a(g), b(g)))
    write_second = m.operands.write(second, "pred")

    def run(g: Threads) -> None:
        result, opposite = comparison.both(g)
        write(g, result)
        write_second(g, opposite)

    return run


def set_predicates(m: Machine, inst: Instruction, first: Operand, second: Operand) -> Operation:
    """The packed form: one predicate per half."""
    comparison = Comparison(m, inst, last_type(inst))
    writers = [m.operands.write(first, "pred"), m.operands.write(second, "pred")]

    def run(g: Threads) -> None:
        result = comparison.compare(comparison.a(g), comparison.b(g))
        for half, write in enumerate(writers):
            value = result[:, half]
            if comparison.combine is not None and comparison.c is not None:
                value = comparison.combine(value, comparison.c(g))
            write(g, value)

    return run


@operation("set")
def set_value(m: Machine, inst: Instruction) -> Operation:
    """``set.cmp.dtype.stype d, a, b``: all ones (or 1.0) if true."""
    target, source = types_in(inst)
    comparison = Comparison(m, inst, source)
    result = target if target.lanes == 1 else target.lane_bits
    one: Any = {"f32": np.float32(1), "f16": np.float16(1)}.get(target.name)
    if target.name in ("f16x2", "bf16x2", "bf16"):
        one = np.uint16(0x3C00 if target.name == "f16x2" else 0x3F80)
    if one is None:
        one = np.array(-1).astype(result.dtype)[()]
    write = m.operands.write(inst.operands[0], result)
    return lambda g: write(g, np.where(comparison.both(g)[0], one, result.dtype(0)))


@operation("selp")
def select(m: Machine, inst: Instruction) -> Operation:
    """``selp.type d, a, b, p``."""
    allow(inst)
    expect(inst.operands, 4)
    kind = last_type(inst)
    kind = kind if kind.family == "s" else kind.raw if kind.family != "p" else kind
    a, b = (m.operands.read(o, kind) for o in inst.operands[1:3])
    p = m.operands.read(inst.operands[3], "pred")
    write = m.operands.write(inst.operands[0], kind)
    return lambda g: write(g, np.where(p(g), a(g), b(g)))


@operation("slct")
def select_by_sign(m: Machine, inst: Instruction) -> Operation:
    """``slct.dtype.ctype d, a, b, c``: a if c >= 0."""
    allow(inst, "ftz")
    kind, sign = types_in(inst)
    kind = kind.raw
    ftz = "ftz" in inst.modifiers

    def function(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if ftz else c) >= 0, a, b)

    return integers.simple(m, inst, [kind, kind, sign], kind, function)


# -- moves -----------------------------------------------------------------------------------------


def piece_types(m: Machine, parts: tuple[Operand, ...], total: int) -> list[Type]:
    """How ``total`` bits split over the registers of a vector operand."""
    return [type_of(f"b{total // len(parts)}")] * len(parts)


def packer(readers: list[Reader], kinds: list[Type], total: int) -> Reader:
    """Several registers as one value, the first lowest."""
    dtype = UNSIGNED[total]

    def read(g: Threads) -> Array:
        result: Array = np.zeros(1, dtype)
        for number, (reader, kind) in enumerate(zip(readers, kinds, strict=True)):
            result = result | reader(g).astype(dtype) << dtype(kind.bits * number)
        return result

    return read


def unpacker(writers: list[Writer], kinds: list[Type]) -> Writer:
    """One value into several registers, the first lowest."""

    def write(g: Threads, value: Array) -> None:
        parts = [
            (value >> value.dtype.type(kind.bits * number)).astype(kind.dtype)
            for number, kind in enumerate(kinds)
        ]
        for writer, part in zip(writers, parts, strict=True):
            writer(g, part)

    return write


@operation("mov")
def move(m: Machine, inst: Instruction) -> Operation:
    """``mov``: registers, addresses, and packing or unpacking of vectors."""
    allow(inst, "v2", "v4")
    expect(inst.operands, 2)
    target, source = inst.operands
    kind = last_type(inst)
    if kind.family != "p":
        kind = kind.raw
    if "v2" in inst.modifiers or "v4" in inst.modifiers:
        return move_vector(m, target, source, kind)
    if kind.name == "b128":
        raise Unsupported("128-bit registers")
    read: Reader
    write: Writer
    if isinstance(source, Vector):
        kinds = piece_types(m, source.items, kind.bits)
        readers = [m.operands.read(o, k) for o, k in zip(source.items, kinds, strict=True)]
        read = packer(readers, kinds, kind.bits)
    else:
        read = m.operands.read(source, kind)
    if isinstance(target, Vector):
        kinds = piece_types(m, target.items, kind.bits)
        writers = [m.operands.write(o, k) for o, k in zip(target.items, kinds, strict=True)]
        write = unpacker(writers, kinds)
    else:
        write = m.operands.write(target, kind)
    return lambda g: write(g, read(g))


def move_vector(m: Machine, target: Operand, source: Operand, kind: Type) -> Operation:
    """``mov.v2.type {a, b}, {c, d}``."""
    if (
        not isinstance(target, Vector)
        or not isinstance(source, Vector)
        or len(target.items) != len(source.items)
    ):
        raise Unsupported("vector move")
    readers = [m.operands.read(o, kind) for o in source.items]
    writers = [m.operands.write(o, kind) for o in target.items]

    def run(g: Threads) -> None:
        values = [read(g).copy() for read in readers]
        for write, value in zip(writers, values, strict=True):
            write(g, value)

    return run
