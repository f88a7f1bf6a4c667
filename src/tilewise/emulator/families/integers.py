"""Integer arithmetic: whole numbers, and several packed into one register.

What PTX leaves open is given a harmless result here, and what a type or a modifier does not have is
refused by name: nothing in this file can trap, whatever the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, unsupported
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import bits_of, is_signed

__all__ = [
    "WORDS",
    "absolute",
    "check",
    "divide",
    "halves_or_bytes",
    "high_product",
    "minmax",
    "negate",
    "one_of",
    "packed",
    "product",
    "product_form",
    "sum_or_difference",
    "typed",
]

WORDS = ("u16", "u32", "u64", "s16", "s32", "s64")
_LONG = ("u32", "s32", "u64", "s64")
_SIGNED = ("s16", "s32", "s64")
# Elements packed into 32 bits.
_PACKED = {"u16x2": 16, "s16x2": 16, "u8x4": 8, "s8x4": 8}
_SUM_TYPES = {"add": (*WORDS, *_PACKED), "sub": (*WORDS, "u8x4", "s8x4")}
_SATURATED = {"add": ("u32", "s32", *_PACKED), "sub": ("s32", "u8x4", "s8x4")}
_RELU = ("s32", "s16x2", "s8x4")


# -- what an instruction may say -------------------------------------------------------------------------
def check(instruction: Instruction, types: Collection[str], *modifiers: str) -> str:
    """The type of an instruction, which must be one of ``types``; its other parts, of ``modifiers``."""
    if not instruction.parts or instruction.parts[-1] not in types:
        raise unsupported(instruction, f"its type must be one of {', '.join(types)}")
    for part in instruction.parts[:-1]:
        if part not in modifiers or instruction.parts.count(part) > 1:
            raise unsupported(instruction, f".{part} does not fit here")
    return instruction.parts[-1]


def one_of(instruction: Instruction, *words: str) -> str:
    """The one of several modifiers that an instruction must have."""
    found = [word for word in words if word in instruction.parts]
    if len(found) != 1:
        raise unsupported(instruction, f"it needs one of .{', .'.join(words)}")
    return found[0]


def typed(sources: int, types: Collection[str], *modifiers: str) -> Callable[[Instruction], OperandTypes]:
    """The form of an instruction whose result and sources all have its one type."""

    def form(instruction: Instruction) -> OperandTypes:
        type_ = check(instruction, types, *modifiers)
        return OperandTypes((type_,), (type_,) * sources)

    return form


def packed(e: Emitter, value: Value, bits: int) -> Value:
    """32-bit registers as vectors of smaller elements."""
    lanes = 32 if value.is_vector else 1
    type_ = f"<{lanes * 32 // bits} x i{bits}>"
    return e.set(type_, f"bitcast {value} to {type_}")


def halves_or_bytes(
    e: Emitter, instruction: Instruction, lower: Callable[..., Value], *values: Value
) -> Value:
    """Do what ``lower`` does to the instruction's elements, each for itself if they are packed."""
    bits = _PACKED.get(instruction.parts[-1])
    if bits is None:
        return lower(*values)
    result = lower(*(packed(e, value, bits) for value in values))
    return e.set(values[0].type, f"bitcast {result} to {values[0].type}")


# -- sums ------------------------------------------------------------------------------------------------
def sum_form(instruction: Instruction) -> OperandTypes:
    form = typed(2, _SUM_TYPES[instruction.opcode], "sat")(instruction)
    if "sat" in instruction.parts and instruction.parts[-1] not in _SATURATED[instruction.opcode]:
        raise unsupported(instruction, f".sat does not fit .{instruction.parts[-1]}")
    return form


def sum_or_difference(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """add and sub."""
    opcode, signed = instruction.opcode, is_signed(instruction.parts[-1])

    def one(x: Value, y: Value) -> Value:
        if "sat" in instruction.parts:
            return e.intrinsic(f"llvm.{'s' if signed else 'u'}{opcode}.sat", x, y)
        return e.op(opcode, x, y)

    return halves_or_bytes(e, instruction, one, a, b)


# -- products --------------------------------------------------------------------------------------------
def _double(type_: str) -> str:
    return f"{type_[0]}{bits_of(type_) * 2}"


def product_form(instruction: Instruction) -> OperandTypes:
    """mul with two sources, mad with three."""
    extra = ("sat",) if instruction.opcode == "mad" else ()
    type_ = check(instruction, WORDS, "lo", "hi", "wide", *extra)
    mode = one_of(instruction, "lo", "hi", "wide")
    if "sat" in instruction.parts and (mode, type_) != ("hi", "s32"):
        raise unsupported(instruction, ".sat fits .hi.s32 alone")
    if mode == "wide" and bits_of(type_) == 64:
        raise unsupported(instruction, ".wide fits types of 16 and 32 bits")
    result = _double(type_) if mode == "wide" else type_
    return OperandTypes((result,), (type_, type_) + ((result,) if instruction.opcode == "mad" else ()))


def product(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """The lower half of a product, the upper half, or the whole."""
    type_ = instruction.parts[-1]
    signed = is_signed(type_)
    if "wide" in instruction.parts:
        scalar = f"i{bits_of(type_) * 2}"
        return e.op("mul", e.resize(a, scalar, signed), e.resize(b, scalar, signed))
    return high_product(e, a, b, signed) if "hi" in instruction.parts else e.op("mul", a, b)


def high_product(e: Emitter, a: Value, b: Value, signed: bool) -> Value:
    """The upper half of a product."""
    bits = int(a.scalar[1:])
    scalar = f"i{bits * 2}"
    whole = e.op("mul", e.resize(a, scalar, signed), e.resize(b, scalar, signed))
    return e.resize(e.op("lshr", whole, bits), f"i{bits}", False)


def product_and_sum(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """mad."""
    found = product(e, instruction, a, b)
    return e.intrinsic("llvm.sadd.sat", found, c) if "sat" in instruction.parts else e.op("add", found, c)


def _short_form(instruction: Instruction) -> OperandTypes:
    has_sum = instruction.opcode == "mad24"
    type_ = check(instruction, ("u32", "s32"), "lo", "hi", *(("sat",) if has_sum else ()))
    mode = one_of(instruction, "lo", "hi")
    if "sat" in instruction.parts and (mode, type_) != ("hi", "s32"):
        raise unsupported(instruction, ".sat fits .hi.s32 alone")
    return OperandTypes((type_,), (type_,) * (3 if has_sum else 2))


@pure("mul24", "mad24", form=_short_form, ptx="1.0")
def short_product(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value | None = None) -> Value:
    """The product of the low 24 bits: its low 32 bits, or bits 16 to 47."""
    shift = "ashr" if is_signed(instruction.parts[-1]) else "lshr"
    wide = []
    for value in (a, b):
        long = e.wide(value)
        wide.append(e.op(shift, e.op("shl", long, 40), 40))
    whole = e.op("mul", *wide)
    if "hi" in instruction.parts:
        whole = e.op("lshr", whole, 16)
    result = e.resize(whole, "i32", False)
    if c is None:
        return result
    return e.intrinsic("llvm.sadd.sat", result, c) if "sat" in instruction.parts else e.op("add", result, c)


# -- quotients, differences, extremes --------------------------------------------------------------------
def divide(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """div and rem. PTX leaves division by zero open: all bits are set, as GPUs do."""
    bits = int(a.scalar[1:])
    signed = is_signed(instruction.parts[-1])
    zero = e.equals(b, 0)
    safe = e.select(zero, 1, b)
    if signed:
        # The least number by -1 wraps around to itself: the same as by 1, and no trap.
        least = e.equals(a, 1 << (bits - 1))
        minus = e.equals(b, -1)
        safe = e.select(e.op("and", least, minus), 1, safe)
    return e.select(zero, -1, e.op(f"{'s' if signed else 'u'}{instruction.opcode}", a, safe))


@pure("sad", form=typed(3, WORDS), ptx="1.0")
def sum_of_difference(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """c + \\|a - b\\|."""
    return e.op("add", c, distance(e, a, b, is_signed(instruction.parts[-1])))


def distance(e: Emitter, a: Value, b: Value, signed: bool) -> Value:
    """The greater less the smaller."""
    prefix = "s" if signed else "u"
    return e.op("sub", e.intrinsic(f"llvm.{prefix}max", a, b), e.intrinsic(f"llvm.{prefix}min", a, b))


def minmax_form(instruction: Instruction) -> OperandTypes:
    form = typed(2, (*WORDS, *_PACKED), "relu")(instruction)
    if "relu" in instruction.parts and instruction.parts[-1] not in _RELU:
        raise unsupported(instruction, f".relu does not fit .{instruction.parts[-1]}")
    return form


def minmax(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """min and max; .relu makes what is negative 0."""
    prefix = "s" if is_signed(instruction.parts[-1]) else "u"

    def one(x: Value, y: Value) -> Value:
        found = e.intrinsic(f"llvm.{prefix}{instruction.opcode}", x, y)
        return e.intrinsic("llvm.smax", found, e.zero(found.type)) if "relu" in instruction.parts else found

    return halves_or_bytes(e, instruction, one, a, b)


def sign_form(instruction: Instruction) -> OperandTypes:
    return typed(1, (*_SIGNED, "s8x4") if instruction.opcode == "neg" else _SIGNED)(instruction)


def negate(e: Emitter, instruction: Instruction, a: Value) -> Value:
    return halves_or_bytes(e, instruction, lambda x: e.op("sub", e.zero(x.type), x), a)


def absolute(e: Emitter, a: Value) -> Value:
    """abs; the least number stays what it is."""
    return e.intrinsic("llvm.abs", a, e.const("i1", 0))


# -- carries ---------------------------------------------------------------------------------------------
# The parser makes the carry an operand: it is the second result of what sets it and the last source of
# what uses it. NOTE: as on GPUs, a difference is a sum with the complement: its carry is set where there
# is no borrow. PTX speaks of a borrow, which is the same unless sums and differences share one carry.
def carry_form(instruction: Instruction) -> OperandTypes:
    """add.cc, addc, sub.cc, subc, mad.cc and madc."""
    opcode = instruction.opcode
    has_product = opcode.startswith("mad")
    type_ = check(instruction, _LONG, "cc", *(("lo", "hi") if has_product else ()))
    if has_product:
        one_of(instruction, "lo", "hi")
    results = (type_, "pred") if "cc" in instruction.parts else (type_,)
    sources = (type_,) * (3 if has_product else 2)
    return OperandTypes(results, (*sources, "pred") if opcode.endswith("c") else sources)


def add_carry(e: Emitter, a: Value, b: Value, carry: Value | None) -> tuple[Value, Value]:
    """A sum, with a carry in if there is one, and the carry out."""
    total = e.op("add", a, b)
    out = e.is_below(total, a)
    if carry is not None:
        more = e.op("add", total, e.cast("zext", carry, a.scalar))
        out = e.op("or", out, e.is_below(more, total))
        total = more
    return total, out


def with_carry(e: Emitter, instruction: Instruction, *sources: Value) -> tuple[Value, Value]:
    """Any of the instructions of :func:`carry_form`."""
    opcode = instruction.opcode
    carry = sources[-1] if opcode.endswith("c") else None
    if opcode.startswith("mad"):
        a, b, c = sources[:3]
        signed = is_signed(instruction.parts[-1])
        found = high_product(e, a, b, signed) if "hi" in instruction.parts else e.op("mul", a, b)
        return add_carry(e, found, c, carry)
    a, b = sources[:2]
    if opcode.startswith("sub"):
        b = e.op("xor", b, -1)
        carry = e.const("<32 x i1>" if a.is_vector else "i1", 1) if carry is None else carry
    return add_carry(e, a, b, carry)


pure("addc", "subc", form=carry_form, ptx="1.2")(with_carry)
pure("madc", form=carry_form, ptx="3.0", arch="sm_20")(with_carry)


# -- products of packed numbers --------------------------------------------------------------------------
def _dot_form(instruction: Instruction) -> OperandTypes:
    *mode, of_a, of_b = ("", "", *instruction.parts)
    modes = (["", "", "lo"], ["", "", "hi"]) if instruction.opcode == "dp2a" else (["", ""],)
    if not {of_a, of_b} <= {"u32", "s32"} or mode not in modes:
        raise unsupported(instruction, "not in this form")
    whole = "s32" if "s32" in (of_a, of_b) else "u32"
    return OperandTypes((whole,), (of_a, of_b, whole))


@pure("dp4a", "dp2a", form=_dot_form, ptx="5.0", arch="sm_61")
def dot(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """c + the products of four bytes by four bytes, or of two halves by two of four bytes."""
    signed_a, signed_b = (is_signed(type_) for type_ in instruction.parts[-2:])
    count, bits = (4, 8) if instruction.opcode == "dp4a" else (2, 16)
    first = 2 if "hi" in instruction.parts else 0
    for i in range(count):
        left = element(e, a, i, bits, signed_a)
        c = e.op("add", c, e.op("mul", left, element(e, b, first + i, 8, signed_b)))
    return c


def element(e: Emitter, value: Value, index: int, bits: int, signed: bool) -> Value:
    """One of the numbers packed into an i32, made as wide as it."""
    top = 32 - bits * (index + 1)
    high = e.op("shl", value, top) if top else value
    return e.op("ashr" if signed else "lshr", high, 32 - bits)
