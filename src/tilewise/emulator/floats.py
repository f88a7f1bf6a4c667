"""Floating-point instructions on f16, bf16, f32 and f64."""

from __future__ import annotations

from tilewise.emulator.emit import Emitter, Value
from tilewise.emulator.syntax import Instruction
from tilewise.emulator.tables import unknown

__all__ = ["binary", "flush", "fma", "minmax", "sign"]

_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def flush(e: Emitter, value: Value) -> Value:
    """Subnormal numbers as zeros of their sign (``.ftz``)."""
    bits = e.cast("bitcast", value, "i32")
    exponent = e.op("and", bits, e.const(bits, 0x7F80_0000))
    tiny = e.compare("icmp eq", exponent, e.const(bits, 0))
    zero = e.op("and", bits, e.const(bits, 0x8000_0000))
    return e.cast("bitcast", e.select(tiny, zero, bits), "float")


def saturate(e: Emitter, value: Value) -> Value:
    """Into [0, 1]; NaN becomes +0 (``.sat``)."""
    zero, one = e.real(value, 0.0), e.real(value, 1.0)
    above = e.select(e.compare("fcmp ogt", value, zero), value, zero)
    return e.select(e.compare("fcmp olt", above, one), above, one)


def _around(e: Emitter, instruction: Instruction, result: Value) -> Value:
    if "ftz" in instruction.parts and result.scalar == "float":
        result = flush(e, result)
    return saturate(e, result) if "sat" in instruction.parts else result


def _inputs(e: Emitter, instruction: Instruction, values: tuple[Value, ...]) -> list[Value]:
    if "ftz" in instruction.parts and values[0].scalar == "float":
        return [flush(e, value) for value in values]
    return list(values)


def binary(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """add, sub, mul, div in round-to-nearest."""
    if {"rz", "rm", "rp"} & set(instruction.parts) or instruction.opcode not in _OPS:
        raise unknown(instruction, "this rounding is not supported")
    left, right = _inputs(e, instruction, (a, b))
    return _around(e, instruction, e.op(_OPS[instruction.opcode], left, right))


def fma(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """One rounding for product and sum together."""
    if {"rz", "rm", "rp"} & set(instruction.parts):
        raise unknown(instruction, "this rounding is not supported")
    return _around(e, instruction, e.intrinsic("llvm.fma", *_inputs(e, instruction, (a, b, c))))


def minmax(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """The number where one operand is NaN; with ``.NaN``, NaN."""
    word = instruction.opcode
    name = f"llvm.{word}imum" if "NaN" in instruction.parts else f"llvm.{word}imumnum"
    return _around(e, instruction, e.intrinsic(name, *_inputs(e, instruction, (a, b))))


def sign(e: Emitter, instruction: Instruction, a: Value) -> Value:
    (value,) = _inputs(e, instruction, (a,))
    return e.negate(value) if instruction.opcode == "neg" else e.intrinsic("llvm.fabs", value)
