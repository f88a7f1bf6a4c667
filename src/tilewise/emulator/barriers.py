"""Barriers of a block: ``bar`` and ``barrier``, whole or counted, arriving or waiting, with a vote or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Value
from tilewise.emulator.layout import BARRIER, BLOCK
from tilewise.emulator.syntax import Instruction, Operand, Register
from tilewise.emulator.tables import other, unknown

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__ = ["arrive"]

_VOTES = ("popc", "and", "or")


def arrive(e: Lowering, instruction: Instruction) -> Value:
    """Arrive at a barrier: 0 if it lets the lanes through now, 1 if they must wait, 2 if it is wrong."""
    e.now = instruction
    e.guard = None
    parts = instruction.parts
    operands = list(instruction.operands)
    vote = e.const("i32", 0)
    if "red" in parts:
        vote = _vote(e, instruction, operands.pop())
        operands.pop(0)
    number, count = _numbers(e, operands)
    waits = e.const("i32", 0 if "arrive" in parts else 2 if e.is_apart else 1)
    line = e.const("i32", instruction.line)
    return e.call("tw_barrier", "i32", *e.pointers(), number, count, waits, e.mask(), vote, line)


def _vote(e: Lowering, instruction: Instruction, operand: Operand) -> Value:
    if not any(word in instruction.parts for word in _VOTES):
        raise unknown(instruction, "the vote must be popc, and or or")
    predicate = e.splat(e.read(operand, "pred", True))
    return e.bits(predicate)


def _numbers(e: Lowering, operands: list[Operand]) -> tuple[Value, Value]:
    """The barrier's number and its count of threads (0: all)."""
    if not 1 <= len(operands) <= 2:
        raise unknown(e.now, "it takes a barrier and a count")
    values = []
    for operand in operands:
        value = e.read(operand, "u32", False)
        # Where lanes differ, the first that runs decides; a barrier that is not the warp's own is an error.
        values.append(first_lane(e, value) if value.is_vector else value)
    return values[0], values[1] if len(values) > 1 else e.const("i32", 0)


def first_lane(e: Lowering, value: Value) -> Value:
    """The value in the first lane that runs."""
    e.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
    lane = e.set("i32", f"call i32 @llvm.cttz.i32({e.mask()}, i1 false)")
    safe = e.op("and", lane, e.const("i32", 31))
    return e.set(value.scalar, f"extractelement {value}, {safe}")


@other("bar", "barrier")
def bar(e: Lowering, instruction: Instruction) -> None:
    """What does not stop the warp: ``bar.arrive`` and ``bar.warp.sync``."""
    if "warp" in instruction.parts:
        return  # lanes of a warp that run together have met
    answer = arrive_only(e, instruction)
    good = e.label("good")
    e.branch(e.compare("icmp eq", answer, e.const("i32", 2)), "failed", good, likely=False)
    e.place(good)


def arrive_only(e: Lowering, instruction: Instruction) -> Value:
    number, count = _numbers(e, list(instruction.operands))
    line = e.const("i32", instruction.line)
    zero = e.const("i32", 0)
    return e.call("tw_barrier", "i32", *e.pointers(), number, count, zero, e.mask(), zero, line)


@other("bar_result")
def bar_result(e: Lowering, instruction: Instruction) -> None:
    """What the votes at a barrier came to."""
    operands = instruction.operands
    value = e.read(operands[1], "u32", False)
    number = first_lane(e, value) if value.is_vector else value
    place = e.op("mul", e.cast("zext", number, "i64"), e.const("i64", BARRIER.SIZE))
    result = e.load("i32", e.offset(e.offset("%block", BLOCK.BARRIERS + BARRIER.RESULT), place), 4)
    target = operands[0]
    if not isinstance(target, Register):
        raise unknown(instruction, "its destination must be a register")
    if "popc" in instruction.parts:
        e.write(target, e.op("and", result, e.const("i32", 0xFFFF)), "u32")
    elif "and" in instruction.parts:
        count = e.op("and", result, e.const("i32", 0xFFFF))
        total = e.op("lshr", result, e.const("i32", 16))
        e.write(target, e.compare("icmp eq", count, total), "pred")
    else:
        count = e.op("and", result, e.const("i32", 0xFFFF))
        e.write(target, e.compare("icmp ne", count, e.const("i32", 0)), "pred")
