"""Arithmetic that integers and floats share by name: each opcode goes to its family by type."""

from __future__ import annotations

from collections.abc import Callable

from tilewise.emulator.families import floats, integers
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, unsupported
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import is_float

__all__: list[str] = []

Results = Value | tuple[Value, ...]


def _is_float(instruction: Instruction) -> bool:
    return bool(instruction.parts) and is_float(instruction.parts[-1])


def _form(
    sources: int, integer: Callable[[Instruction], OperandTypes]
) -> Callable[[Instruction], OperandTypes]:
    """The form of floats, or of integers, which have a function for it."""

    def form(instruction: Instruction) -> OperandTypes:
        return floats.form(sources)(instruction) if _is_float(instruction) else integer(instruction)

    return form


def _carried(integer: Callable[[Instruction], OperandTypes]) -> Callable[[Instruction], OperandTypes]:
    def form(instruction: Instruction) -> OperandTypes:
        return (integers.carry_form if "cc" in instruction.parts else integer)(instruction)

    return form


_sum_form = _form(2, _carried(integers.sum_form))


@pure("add", form=_sum_form, lanes="sum", ptx="1.0")
@pure("sub", form=_sum_form, lanes="difference", ptx="1.0")
def add(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Results:
    if _is_float(instruction):
        return floats.binary(e, instruction, a, b)
    if "cc" in instruction.parts:
        return integers.with_carry(e, instruction, a, b)
    return integers.sum_or_difference(e, instruction, a, b)


@pure("mul", form=_form(2, integers.product_form), lanes="product", ptx="1.0")
def mul(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Results:
    if _is_float(instruction):
        return floats.binary(e, instruction, a, b)
    return integers.product(e, instruction, a, b)


@pure("mad", form=_form(3, _carried(integers.product_form)), lanes="product and sum", ptx="1.0")
def mad(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Results:
    if _is_float(instruction):
        return floats.fma(e, instruction, a, b, c)
    if "cc" in instruction.parts:
        return integers.with_carry(e, instruction, a, b, c)
    return integers.product_and_sum(e, instruction, a, b, c)


@pure("fma", form=floats.form(3), ptx="1.4", arch="sm_13")
def fma(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Results:
    if not _is_float(instruction):
        raise unsupported(instruction, "its type must be a floating-point one")
    return floats.fma(e, instruction, a, b, c)


@pure("div", form=_form(2, integers.typed(2, integers.WORDS)), ptx="1.0")
def div(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Results:
    if _is_float(instruction):
        return floats.binary(e, instruction, a, b)
    return integers.divide(e, instruction, a, b)


@pure("rem", form=integers.typed(2, integers.WORDS), ptx="1.0")
def rem(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Results:
    return integers.divide(e, instruction, a, b)


@pure("min", "max", form=_form(2, integers.minmax_form), ptx="1.0")
def minmax(e: Emitter, instruction: Instruction, *sources: Value) -> Results:
    if _is_float(instruction):
        return floats.minmax(e, instruction, *sources)
    return integers.minmax(e, instruction, *sources)


@pure("neg", "abs", form=_form(1, integers.sign_form), ptx="1.0")
def sign(e: Emitter, instruction: Instruction, a: Value) -> Results:
    if _is_float(instruction):
        return floats.sign(e, instruction, a)
    return integers.negate(e, instruction, a) if instruction.opcode == "neg" else integers.absolute(e, a)
