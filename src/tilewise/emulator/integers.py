"""Integer instructions: arithmetic, logic, shifts, bit fields."""

from __future__ import annotations

from tilewise.emulator.emit import Emitter, Value
from tilewise.emulator.syntax import Instruction
from tilewise.emulator.tables import Form, pure, same, unknown
from tilewise.emulator.types import bits_of, is_float, is_signed

__all__ = ["high_product"]


def _wide(instruction: Instruction) -> bool:
    return "wide" in instruction.parts


def _double(type_: str) -> str:
    return f"{type_[0]}{bits_of(type_) * 2}"


def product_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-1]
    return Form((_double(type_) if _wide(instruction) else type_,), (type_, type_))


def mad_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-1]
    if _wide(instruction):
        return Form((_double(type_),), (type_, type_, _double(type_)))
    return Form((type_,), (type_, type_, type_))


def product(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """mul.lo, mul.hi and mul.wide."""
    type_, parts = instruction.parts[-1], instruction.parts
    signed = is_signed(type_)
    if _wide(instruction):
        scalar = f"i{bits_of(type_) * 2}"
        return e.op("mul", e.resize(a, scalar, signed), e.resize(b, scalar, signed))
    if "hi" in parts:
        return high_product(e, a, b, signed)
    return e.op("mul", a, b)


def high_product(e: Emitter, a: Value, b: Value, signed: bool) -> Value:
    """The upper half of a product."""
    bits = int(a.scalar[1:])
    scalar = f"i{bits * 2}"
    whole = e.op("mul", e.resize(a, scalar, signed), e.resize(b, scalar, signed))
    return e.resize(e.op("lshr", whole, e.const(whole, bits)), f"i{bits}", False)


def divide(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """div and rem. What PTX leaves open gives all ones (by zero) and no trap anywhere."""
    signed = is_signed(instruction.parts[-1])
    bits = int(a.scalar[1:])
    zero = e.compare("icmp eq", b, e.const(b, 0))
    safe = e.select(zero, e.const(b, 1), b)
    if signed:
        least = e.compare("icmp eq", a, e.const(a, 1 << (bits - 1)))
        minus = e.compare("icmp eq", b, e.const(b, -1))
        overflow = e.op("and", least, minus)
        safe = e.select(overflow, e.const(b, 1), safe)
    prefix = "s" if signed else "u"
    if instruction.opcode == "div":
        return e.select(zero, e.const(a, -1), e.op(f"{prefix}div", a, safe))
    return e.select(zero, a, e.op(f"{prefix}rem", a, safe))


def _shift_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-1]
    return Form((type_,), (type_, "u32"))


@pure("shl", "shr", form=_shift_form)
def shift(e: Emitter, instruction: Instruction, a: Value, amount: Value) -> Value:
    """Shifts by the register's width or more give 0, or the sign."""
    bits = int(a.scalar[1:])
    signed = is_signed(instruction.parts[-1]) and instruction.opcode == "shr"
    limit = bits - 1 if signed else bits
    over = e.compare("icmp ugt", amount, e.const(amount, bits - 1))
    clamped = e.select(over, e.const(amount, min(limit, bits - 1)), amount)
    by = e.resize(clamped, a.scalar, False)
    if signed:
        return e.op("ashr", a, by)
    result = e.op("shl" if instruction.opcode == "shl" else "lshr", a, by)
    return e.select(over, e.const(a, 0), result)


_LOGIC = {"and": "and", "or": "or", "xor": "xor"}


@pure("and", "or", "xor", form=same(2))
def logic(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    return e.op(_LOGIC[instruction.opcode], a, b)


@pure("not", form=same(1))
def invert(e: Emitter, instruction: Instruction, a: Value) -> Value:
    return e.op("xor", a, e.const(a, -1))


def integer_minmax(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    prefix = "s" if is_signed(instruction.parts[-1]) else "u"
    return e.intrinsic(f"llvm.{prefix}{instruction.opcode}", a, b)


def integer_type(instruction: Instruction) -> bool:
    type_ = instruction.parts[-1]
    if not is_float(type_) and type_[0] not in "usb":
        raise unknown(instruction, "not with this type")
    return not is_float(type_)
