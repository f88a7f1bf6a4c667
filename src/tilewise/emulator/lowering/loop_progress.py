"""Counting progress in loops that may wait for others, for the detection of deadlocks.

A loop that only looks at memory and goes round again waits; when all that runs does so, nothing ever will
end it. A loop that changes memory gets on, however long it takes: a queue that blocks take their work from,
a counter of blocks that are done. Code in such loops counts what it changes; ``running/run.py``
reads the counts.
"""

from __future__ import annotations

from tilewise.emulator.layout import BLOCK
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.values import read
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Register
from tilewise.emulator.ptx.types import is_signed

__all__ = ["Before", "count_progress", "look_before"]

_TYPES = {f"{kind}{bits}" for kind in "bus" for bits in (32, 64)}
_OPERATIONS = ("exch", "cas", "add", "xor", "or", "and", "min", "max")
_CLOCKS = ("%clock", "%globaltimer")

Before = tuple[str, str, list[Value]] | None  # of an atom: operation, type, operands


def look_before(e: Context, instruction: Instruction) -> Before:
    """Read the operands of an ``atom`` in a loop that may wait, before it changes them."""
    operands, parts = instruction.operands, instruction.parts
    if not operation_of(instruction).returns_old or len(operands) < 3 or parts[-1] not in _TYPES:
        return None
    verb = next((part for part in _OPERATIONS if part in parts), "")
    if not verb or not isinstance(operands[0], Register) or operands[0].name == "_":
        return None
    return verb, parts[-1], [read(e, operand, parts[-1], True) for operand in operands[2:]]


def count_progress(e: Context, instruction: Instruction, before: Before) -> None:
    """Count an instruction that changed memory or read a clock as progress."""
    if before is not None:
        changed = e.op("and", e.bits(_changed(e, instruction, before)), e.mask())
        step = e.cast("zext", e.differs(changed, 0), "i64")
    elif operation_of(instruction).changes or _reads_clock(instruction):
        step = e.const("i64", 1)
    else:
        return
    place = e.offset("%block", BLOCK.PROGRESS)
    e.store(e.op("add", e.load("i64", place, 8), step), place, 8)


def _reads_clock(instruction: Instruction) -> bool:
    """Whether an instruction reads a clock."""
    return any(isinstance(item, Register) and item.name.startswith(_CLOCKS) for item in instruction.operands)


def _changed(e: Context, instruction: Instruction, before: Before) -> Value:
    """The lanes whose ``atom`` changed the value in memory."""
    assert before is not None
    operation, type_, (given, *more) = before
    old = read(e, instruction.operands[0], type_, True)
    zero = e.zero(given.type)
    match operation:
        case "exch":
            return e.differs(old, given)
        case "cas":
            return e.equals(old, given) if more else e.differs(old, given)
        case "add" | "xor":
            return e.differs(given, zero)
        case "or":
            return e.differs(e.op("or", old, given), old)
        case "and":
            return e.differs(e.op("and", old, given), old)
    sign = "s" if is_signed(type_) else "u"
    return e.compare(f"icmp {sign}{'lt' if operation == 'min' else 'gt'}", given, old)
