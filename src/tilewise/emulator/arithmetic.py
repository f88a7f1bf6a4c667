"""Arithmetic that integers and floats share by name: each opcode goes to its family by type."""

from __future__ import annotations

from tilewise.emulator import floats, integers
from tilewise.emulator.emit import Emitter, Value
from tilewise.emulator.syntax import Instruction
from tilewise.emulator.tables import Form, pure, same, unknown
from tilewise.emulator.types import is_float, is_signed

__all__: list[str] = []


def _is_float(instruction: Instruction) -> bool:
    return bool(instruction.parts) and is_float(instruction.parts[-1])


@pure("add", "sub", form=same(2))
def add(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    if _is_float(instruction):
        return floats.binary(e, instruction, a, b)
    if "sat" in instruction.parts:
        prefix = "s" if is_signed(instruction.parts[-1]) else "u"
        return e.intrinsic(f"llvm.{prefix}{instruction.opcode}.sat", a, b)
    return e.op(instruction.opcode, a, b)


def _product_form(instruction: Instruction) -> Form:
    return same(2)(instruction) if _is_float(instruction) else integers.product_form(instruction)


@pure("mul", form=_product_form)
def mul(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    if _is_float(instruction):
        return floats.binary(e, instruction, a, b)
    return integers.product(e, instruction, a, b)


def _mad_form(instruction: Instruction) -> Form:
    return same(3)(instruction) if _is_float(instruction) else integers.mad_form(instruction)


@pure("mad", "fma", form=_mad_form)
def mad(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    if _is_float(instruction):
        return floats.fma(e, instruction, a, b, c)
    if instruction.opcode == "fma":
        raise unknown(instruction, "not with this type")
    product = integers.product(e, instruction, a, b)
    if "sat" in instruction.parts:
        return e.intrinsic("llvm.sadd.sat", product, c)
    return e.op("add", product, c)


@pure("div", "rem", form=same(2))
def div(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    return (
        floats.binary(e, instruction, a, b)
        if _is_float(instruction)
        else integers.divide(e, instruction, a, b)
    )


@pure("min", "max", form=same(2))
def minmax(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    if _is_float(instruction):
        return floats.minmax(e, instruction, a, b)
    return integers.integer_minmax(e, instruction, a, b)


@pure("neg", "abs", form=same(1))
def sign(e: Emitter, instruction: Instruction, a: Value) -> Value:
    if _is_float(instruction):
        return floats.sign(e, instruction, a)
    if instruction.opcode == "neg":
        return e.op("sub", e.zero(a.type), a)
    return e.intrinsic("llvm.abs", a, extra=("i1 false",))
