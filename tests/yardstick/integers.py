"""Integer and bit instructions. (Floating-point forms of the same names are in floats.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .ptx_types import SIGNED, UNSIGNED, Array, Type, type_of
from .registry import Operation, Threads, allow, expect, last_type, operation, types_in
from .syntax import Immediate, Instruction

if TYPE_CHECKING:
    from .machine import Machine

Function = Callable[..., Array]


def simple(m: Machine, inst: Instruction, kinds: list[Type], result: Type, function: Function) -> Operation:
    """``d = function(sources)``, the sources read as ``kinds``."""
    expect(inst.operands, len(kinds) + 1)
    readers = [m.operands.read(o, k) for o, k in zip(inst.operands[1:], kinds, strict=True)]
    write = m.operands.write(inst.operands[0], result)
    if len(readers) == 1:
        (one,) = readers
        return lambda g: write(g, function(one(g)))
    if len(readers) == 2:
        first, second = readers
        return lambda g: write(g, function(first(g), second(g)))
    if len(readers) == 3:
        first, second, third = readers
        return lambda g: write(g, function(first(g), second(g), third(g)))
    return lambda g: write(g, function(*(read(g) for read in readers)))


def wide_product(a: Array, b: Array, kind: Type) -> tuple[Array, Array]:
    """Low and high halves of the full product of two integers of one type."""
    if kind.bits < 64:
        wide = (SIGNED if kind.family == "s" else UNSIGNED)[2 * kind.bits]
        product = a.astype(wide) * b.astype(wide)
        return product.astype(kind.dtype), (product >> wide(kind.bits)).astype(kind.dtype)
    au, bu = a.astype(np.uint64), b.astype(np.uint64)
    half, low32 = np.uint64(32), np.uint64(0xFFFFFFFF)
    al, ah, bl, bh = au & low32, au >> half, bu & low32, bu >> half
    middle = (al * bl >> half) + (ah * bl & low32) + (al * bh & low32)
    high = ah * bh + (ah * bl >> half) + (al * bh >> half) + (middle >> half)
    if kind.family == "s":
        # As two's complement, a negative factor stands 2**64 too high.
        high = high - np.where(a < 0, bu, np.uint64(0)) - np.where(b < 0, au, np.uint64(0))
    return (au * bu).astype(kind.dtype), high.astype(kind.dtype)


def saturating(function: Function) -> Function:
    """32-bit signed arithmetic clamped to its range."""

    def run(*values: Array) -> Array:
        exact = function(*(v.astype(np.int64) for v in values))
        return np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)

    return run


def add_sub(m: Machine, inst: Instruction) -> Operation:
    """add and sub of integers, with the carry chain of .cc."""
    kind = last_type(inst)
    if "cc" in inst.modifiers:
        allow(inst, "cc")
        return carry_chain(m, inst, kind, takes=False, gives=True)
    allow(inst, "sat")
    function: Function = np.add if inst.name == "add" else np.subtract
    if "sat" in inst.modifiers:
        function = saturating(function)
    return simple(m, inst, [kind] * 2, kind, function)


def carry_chain(m: Machine, inst: Instruction, kind: Type, takes: bool, gives: bool) -> Operation:
    """d = a +- b +- carry, in 32 or 64 bits, via two halves so that every carry is seen."""
    expect(inst.operands, 3)
    raw = type_of(f"u{kind.bits}")
    a, b = (m.operands.read(o, raw) for o in inst.operands[1:])
    write, carry = m.operands.write(inst.operands[0], raw), m.carry
    subtract = inst.name.startswith("sub")

    def run(g: Threads) -> None:
        result, out = with_carry(a(g), b(g), carry[g] if takes else np.uint64(0), subtract, kind.bits)
        write(g, result)
        if gives:
            carry[g] = out

    return run


def with_carry(a: Array, b: Array, carry: Any, subtract: bool, bits: int) -> tuple[Array, Array]:
    """The result and the new carry (of a subtraction: the borrow)."""
    dtype = UNSIGNED[bits]
    step = np.asarray(carry).astype(dtype)
    if subtract:
        first = a - b
        result = first - step
        out = (a < b) | (first < step)
    else:
        first = a + b
        result = first + step
        out = (first < a) | (result < first)
    return result, out.astype(np.uint64)


@operation("addc", "subc")
def add_with_carry(m: Machine, inst: Instruction) -> Operation:
    """``addc{.cc}`` and ``subc{.cc}``."""
    allow(inst, "cc")
    return carry_chain(m, inst, last_type(inst), takes=True, gives="cc" in inst.modifiers)


@operation("madc")
def mad_with_carry(m: Machine, inst: Instruction) -> Operation:
    """``madc.{lo,hi}{.cc}`` (and mad.cc): half of the product plus c plus carry."""
    allow(inst, "lo", "hi", "cc")
    expect(inst.operands, 4)
    kind = last_type(inst)
    a, b = (m.operands.read(o, kind) for o in inst.operands[1:3])
    raw = type_of(f"u{kind.bits}")
    c = m.operands.read(inst.operands[3], raw)
    write, carry = m.operands.write(inst.operands[0], raw), m.carry
    takes, gives, half = inst.name == "madc", "cc" in inst.modifiers, int("hi" in inst.modifiers)

    def run(g: Threads) -> None:
        product = wide_product(a(g), b(g), kind)[half].view(raw.dtype)
        result, out = with_carry(product, c(g), carry[g] if takes else np.uint64(0), False, kind.bits)
        write(g, result)
        if gives:
            carry[g] = out

    return run


def half_of(inst: Instruction) -> str:
    """lo, hi or wide."""
    return next((x for x in inst.modifiers if x in ("lo", "hi", "wide")), "lo")


def widened(kind: Type) -> Type:
    """The type of twice the width."""
    return type_of(f"{kind.family}{kind.bits * 2}")


def multiply(m: Machine, inst: Instruction) -> Operation:
    """``mul.{lo,hi,wide}``."""
    allow(inst, "lo", "hi", "wide")
    kind, half = last_type(inst), half_of(inst)
    if half == "wide":
        wide = widened(kind)
        return simple(m, inst, [kind] * 2, wide, lambda a, b: a.astype(wide.dtype) * b.astype(wide.dtype))
    if half == "hi":
        return simple(m, inst, [kind] * 2, kind, lambda a, b: wide_product(a, b, kind)[1])
    return simple(m, inst, [kind] * 2, kind, np.multiply)


def multiply_add(m: Machine, inst: Instruction) -> Operation:
    """``mad.{lo,hi,wide}{.sat}{.cc}``."""
    if "cc" in inst.modifiers:
        return mad_with_carry(m, inst)
    allow(inst, "lo", "hi", "wide", "sat")
    kind, half = last_type(inst), half_of(inst)
    if half == "wide":
        wide = widened(kind)
        return simple(
            m, inst, [kind, kind, wide], wide, lambda a, b, c: a.astype(wide.dtype) * b.astype(wide.dtype) + c
        )
    if half == "lo":
        return simple(m, inst, [kind] * 3, kind, lambda a, b, c: a * b + c)
    if "sat" in inst.modifiers:
        add = saturating(np.add)
        return simple(m, inst, [kind] * 3, kind, lambda a, b, c: add(wide_product(a, b, kind)[1], c))
    return simple(m, inst, [kind] * 3, kind, lambda a, b, c: wide_product(a, b, kind)[1] + c)


@operation("mul24", "mad24")
def multiply24(m: Machine, inst: Instruction) -> Operation:
    """24-bit products: ``lo`` keeps bits 0..31 of the 48, ``hi`` bits 16..47."""
    allow(inst, "lo", "hi", "sat")
    kind = last_type(inst)
    wide = np.int64 if kind.family == "s" else np.uint64
    shift = wide(16 if "hi" in inst.modifiers else 0)

    def cut(a: Array) -> Array:
        return (a.astype(wide) << wide(40)) >> wide(40)

    def function(a: Array, b: Array, *c: Array) -> Array:
        product = ((cut(a) * cut(b)) >> shift).astype(kind.dtype)
        if not c:
            return product
        return saturating(np.add)(product, c[0]) if "sat" in inst.modifiers else product + c[0]

    return simple(m, inst, [kind] * (2 if inst.name == "mul24" else 3), kind, function)


def divide(a: Array, b: Array, kind: Type) -> tuple[Array, Array]:
    """Quotient towards zero and remainder with the sign of a. Division by zero gives all ones, and a."""
    zero = b == 0
    safe = np.where(zero, kind.dtype(1), b)
    if kind.family == "s":
        # NOTE: the lowest number divided by -1 overflows; negation wraps, as the hardware does.
        minus = safe == -1
        safe = np.where(minus, kind.dtype(1), safe)
        quotient = np.floor_divide(a, safe)
        rest = a - quotient * safe
        quotient = quotient + ((rest != 0) & ((a < 0) != (safe < 0))).astype(kind.dtype)
        quotient = np.where(minus, -a, quotient)
    else:
        quotient = np.floor_divide(a, safe)
    remainder = a - quotient * b
    ones = np.array(-1).astype(kind.dtype)
    return np.where(zero, ones, quotient), np.where(zero, a, remainder)


def quotient(m: Machine, inst: Instruction) -> Operation:
    """div of integers."""
    allow(inst)
    kind = last_type(inst)
    return simple(m, inst, [kind] * 2, kind, lambda a, b: divide(a, b, kind)[0])


@operation("rem")
def remainder(m: Machine, inst: Instruction) -> Operation:
    """rem of integers."""
    allow(inst)
    kind = last_type(inst)
    return simple(m, inst, [kind] * 2, kind, lambda a, b: divide(a, b, kind)[1])


def unary(m: Machine, inst: Instruction) -> Operation:
    """neg and abs of integers (the lowest number stays itself)."""
    allow(inst)
    kind = last_type(inst)
    return simple(m, inst, [kind], kind, np.negative if inst.name == "neg" else np.abs)


def min_max(m: Machine, inst: Instruction) -> Operation:
    """min and max of integers."""
    allow(inst, "relu")
    kind = last_type(inst)
    function: Function = np.minimum if inst.name == "min" else np.maximum
    if "relu" in inst.modifiers:
        return simple(m, inst, [kind] * 2, kind, lambda a, b: np.maximum(function(a, b), kind.dtype(0)))
    return simple(m, inst, [kind] * 2, kind, function)


@operation("sad")
def sum_of_differences(m: Machine, inst: Instruction) -> Operation:
    """``c + |a - b|``."""
    kind = last_type(inst)
    return simple(m, inst, [kind] * 3, kind, lambda a, b, c: c + np.where(a < b, b - a, a - b))


# -- bits ------------------------------------------------------------------------------------------


@operation("and", "or", "xor", "not", "cnot")
def logic(m: Machine, inst: Instruction) -> Operation:
    """Bitwise logic, also of predicates."""
    allow(inst)
    kind = last_type(inst)
    binary: dict[str, Function] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    if inst.name in binary:
        return simple(m, inst, [kind] * 2, kind, binary[inst.name])
    if inst.name == "not":
        return simple(m, inst, [kind], kind, np.invert)
    return simple(m, inst, [kind], kind, lambda a: (a == 0).astype(kind.dtype))


@operation("shl", "shr")
def shift(m: Machine, inst: Instruction) -> Operation:
    """Shifts; amounts past the width shift everything out."""
    allow(inst)
    kind = last_type(inst)
    left, bits = inst.name == "shl", np.uint32(kind.bits)

    def function(a: Array, by: Array) -> Array:
        inside = by < bits
        amount = np.where(inside, by, np.uint32(0)).astype(kind.dtype)
        if left:
            return np.where(inside, a << amount, kind.dtype(0))
        if kind.family == "s":
            amount = np.where(inside, by, bits - np.uint32(1)).astype(kind.dtype)
            shifted: Array = a >> amount
            return shifted
        return np.where(inside, a >> amount, kind.dtype(0))

    return simple(m, inst, [kind, type_of("u32")], kind, function)


@operation("shf")
def funnel_shift(m: Machine, inst: Instruction) -> Operation:
    """``shf.{l,r}.{clamp,wrap}.b32 d, a, b, c``: the 64 bits b:a shifted; the upper or lower half."""
    allow(inst, "l", "r", "clamp", "wrap")
    left, wrap = "l" in inst.modifiers, "wrap" in inst.modifiers

    def function(a: Array, b: Array, c: Array) -> Array:
        both = b.astype(np.uint64) << np.uint64(32) | a
        by = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        shifted = (both << by) >> np.uint64(32) if left else both >> by
        return shifted.astype(np.uint32)

    return simple(m, inst, [type_of("b32")] * 3, type_of("b32"), function)


@operation("lop3")
def logic3(m: Machine, inst: Instruction) -> Operation:
    """``lop3.b32 d, a, b, c, table``: any function of three bits."""
    allow(inst)
    expect(inst.operands, 5)
    table = inst.operands[4]
    if not isinstance(table, Immediate):
        raise Unsupported("lop3 needs a literal table")
    rows = [i for i in range(8) if table.value >> i & 1]

    def function(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
        for row in rows:
            result = result | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
        return result

    three = Instruction(inst.line, inst.text, inst.name, inst.modifiers, inst.operands[:4])
    return simple(m, three, [type_of("b32")] * 3, type_of("b32"), function)


@operation("prmt")
def permute(m: Machine, inst: Instruction) -> Operation:
    """``prmt.b32{.mode} d, a, b, c``: pick bytes of b:a."""
    modes: dict[str, Callable[[int, int], int]] = {
        "f4e": lambda s, i: s + i,
        "b4e": lambda s, i: s - i,
        "rc8": lambda s, i: s,
        "ecl": lambda s, i: max(s, i),
        "ecr": lambda s, i: min(s, i),
        "rc16": lambda s, i: (s & 1) * 2 + (i & 1),
    }
    allow(inst, *modes)
    mode = next((x for x in inst.modifiers if x in modes), "")

    def function(a: Array, b: Array, c: Array) -> Array:
        both = b.astype(np.uint64) << np.uint64(32) | a
        result = np.zeros(both.shape, np.uint32)
        for i in range(4):
            if mode:
                choice = np.array([modes[mode](s, i) & 7 for s in range(4)], np.uint64)[c & np.uint32(3)]
                sign = np.zeros(1, bool)
            else:
                nibble = c >> np.uint32(4 * i)
                choice, sign = (nibble & np.uint32(7)).astype(np.uint64), (nibble & np.uint32(8)) != 0
            byte = (both >> choice * np.uint64(8)) & np.uint64(0xFF)
            byte = np.where(sign, (byte >> np.uint64(7)) * np.uint64(0xFF), byte)
            result = result | byte.astype(np.uint32) << np.uint32(8 * i)
        return result

    return simple(m, inst, [type_of("b32")] * 3, type_of("b32"), function)


@operation("bfe")
def extract(m: Machine, inst: Instruction) -> Operation:
    """``bfe d, a, start, length``: past the top, zeros or copies of the field's sign."""
    kind = last_type(inst)
    bits = kind.bits

    def function(a: Array, start: Array, length: Array) -> Array:
        start, length = start.astype(np.int64) & 0xFF, length.astype(np.int64) & 0xFF
        raw = a.astype(np.int64).view(np.uint64) if kind.family == "s" else a.astype(np.uint64)
        raw, start, length = np.broadcast_arrays(raw, start, length)
        at = np.minimum(start + length - 1, bits - 1)
        sign = (raw >> np.maximum(at, 0).astype(np.uint64)) & np.uint64(1)
        sign = np.where((kind.family == "u") | (length == 0), np.uint64(0), sign)
        result = np.zeros(raw.shape, np.uint64)
        for i in range(bits):
            source = np.minimum(start + i, bits - 1).astype(np.uint64)
            inside = (i < length) & (start + i < bits)
            bit = np.where(inside, (raw >> source) & np.uint64(1), sign)
            result = result | bit << np.uint64(i)
        return result.astype(kind.dtype)

    return simple(m, inst, [kind, type_of("u32"), type_of("u32")], kind, function)


def field_mask(start: Array, length: Array, bits: int) -> Array:
    """Ones from ``start`` for ``length`` bits, as far as they fit."""
    places = np.arange(bits)
    chosen = (places >= start[..., None]) & (places < (start + length)[..., None])
    mask: Array = (chosen.astype(np.uint64) << places.astype(np.uint64)).sum(-1, dtype=np.uint64)
    return mask


@operation("bfi")
def insert(m: Machine, inst: Instruction) -> Operation:
    """``bfi d, a, b, start, length``: the low bits of a into b."""
    kind = last_type(inst).raw

    def function(a: Array, b: Array, start: Array, length: Array) -> Array:
        start, length = np.broadcast_arrays(start.astype(np.int64) & 0xFF, length.astype(np.int64) & 0xFF)
        mask = field_mask(start, length, kind.bits)
        by = np.minimum(start, 63).astype(np.uint64)
        placed = (a.astype(np.uint64) << by) & mask
        return ((b.astype(np.uint64) & ~mask) | placed).astype(kind.dtype)

    return simple(m, inst, [kind, kind, type_of("u32"), type_of("u32")], kind, function)


@operation("bmsk")
def make_mask(m: Machine, inst: Instruction) -> Operation:
    """``bmsk.{clamp,wrap}.b32 d, a, b``."""
    allow(inst, "clamp", "wrap")

    def function(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a.astype(np.int64), b.astype(np.int64))
        if "wrap" in inst.modifiers:
            a, b = a & 31, b & 31
        return field_mask(np.minimum(a, 32), np.minimum(b, 32), 32).astype(np.uint32)

    return simple(m, inst, [type_of("u32")] * 2, type_of("b32"), function)


@operation("szext")
def extend(m: Machine, inst: Instruction) -> Operation:
    """``szext.{clamp,wrap}.type d, a, b``: sign- or zero-extend the low b bits."""
    allow(inst, "clamp", "wrap")
    kind = last_type(inst)

    def function(a: Array, b: Array) -> Array:
        count = (b & np.uint32(31) if "wrap" in inst.modifiers else np.minimum(b, np.uint32(32))).astype(
            np.uint64
        )
        wide = a.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        mask = (np.uint64(1) << count) - np.uint64(1)
        sign = (wide >> np.maximum(count, np.uint64(1)) - np.uint64(1)) & np.uint64(1)
        fill = np.where((sign == 1) & (count > 0) & (kind.family == "s"), ~mask, np.uint64(0))
        return ((wide & mask) | fill).astype(np.uint32).view(kind.dtype)

    return simple(m, inst, [kind, type_of("u32")], kind, function)


def highest_bit(a: Array, bits: int) -> Array:
    """Position of the highest one; -1 for zero."""
    result = np.full(a.shape, -1, np.int64)
    for i in range(bits):
        result = np.where((a >> a.dtype.type(i)) & a.dtype.type(1) == 1, i, result)
    return result


@operation("brev", "popc", "clz", "bfind")
def bits_of(m: Machine, inst: Instruction) -> Operation:
    """Bit reversal, count, leading zeros, highest non-sign bit."""
    allow(inst, "shiftamt")
    kind = last_type(inst)
    bits, unsigned = kind.bits, UNSIGNED[kind.bits]

    def reverse(a: Array) -> Array:
        result = np.zeros_like(a)
        for i in range(bits):
            result = result | ((a >> unsigned(i)) & unsigned(1)) << unsigned(bits - 1 - i)
        return result

    def count(a: Array) -> Array:
        total = np.zeros(a.shape, np.uint32)
        for i in range(bits):
            total = total + ((a >> unsigned(i)) & unsigned(1)).astype(np.uint32)
        return total

    def find(a: Array) -> Array:
        raw = np.where(a < 0, ~a, a).view(unsigned) if kind.family == "s" else a
        at = highest_bit(raw, bits)
        if "shiftamt" in inst.modifiers:
            at = np.where(at >= 0, bits - 1 - at, at)
        return at.astype(np.uint32)

    table: dict[str, tuple[Type, Type, Function]] = {
        "brev": (kind.raw, kind.raw, reverse),
        "popc": (kind.raw, type_of("u32"), count),
        "clz": (kind.raw, type_of("u32"), lambda a: (bits - 1 - highest_bit(a, bits)).astype(np.uint32)),
        "bfind": (kind, type_of("u32"), find),
    }
    source, result, function = table[inst.name]
    return simple(m, inst, [source], result, function)


@operation("dp4a", "dp2a")
def dot_product(m: Machine, inst: Instruction) -> Operation:
    """``dp4a.atype.btype d, a, b, c``; dp2a takes 16-bit a with the low or high bytes of b."""
    allow(inst, "lo", "hi")
    first, second = types_in(inst)
    lanes, a_bits = (4, 8) if inst.name == "dp4a" else (2, 16)
    skip = 16 if "hi" in inst.modifiers else 0

    def lane(values: Array, at: int, bits: int, kind: Type) -> Array:
        piece = (values >> np.uint32(at)).astype(UNSIGNED[bits])
        return piece.view(SIGNED[bits]).astype(np.int64) if kind.family == "s" else piece.astype(np.int64)

    def function(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for i in range(lanes):
            total = total + lane(a, i * a_bits, a_bits, first) * lane(b, skip + 8 * i, 8, second)
        return total.astype(np.uint32)

    raw = type_of("b32")
    return simple(m, inst, [raw, raw, raw], raw, function)
