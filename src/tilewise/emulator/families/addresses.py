"""Addresses as values: from one space to another, and hints about memory that change nothing here."""

from __future__ import annotations

from tilewise.emulator.families.clusters import in_own_block
from tilewise.emulator.layout import GENERIC, WINDOW, WINDOWS
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import check_operand_count, effect, unsupported
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Instruction, Register, Symbol

__all__: list[str] = []


@effect("cvta", lanes="address", ptx="2.0", arch="sm_20")
def cvta(e: Context, instruction: Instruction) -> None:
    """An address of one space as a generic one, or the other way round."""
    check_operand_count(instruction, 2)
    window = WINDOWS.get(space_of(instruction), 0)
    shape = e.result_shape(instruction)
    target, source = instruction.operands
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    type_ = instruction.parts[-1] if instruction.parts else ""
    if type_ not in ("u32", "u64"):
        raise unsupported(instruction, "its type must be u32 or u64")
    value = e.wide(read(e, source, type_, shape is None))
    if isinstance(source, Symbol) and "to" not in instruction.parts:
        place = e.program.places.get(source.name)
        window = WINDOWS.get(place.space, 0) if place else window
    if window:
        value = e.op("sub" if "to" in instruction.parts else "add", value, window)
    write(e, target, value, "u64", shape)


@effect("isspacep", ptx="2.0", arch="sm_20")
def isspacep(e: Context, instruction: Instruction) -> None:
    """Whether a generic address lies in a space."""
    check_operand_count(instruction, 2)
    name = space_of(instruction)
    shape = e.result_shape(instruction)
    target, source = instruction.operands
    if not isinstance(target, Register) or name == "generic":
        raise unsupported(instruction)
    value = read(e, source, "u64", shape is None)
    # The window of parameters is a part of the global one.
    away = e.op("sub", value, WINDOWS.get(name, GENERIC.PARAM))
    result = e.is_below(away, WINDOW)
    if name == "shared" and "shared::cluster" not in instruction.parts:
        result = e.op("and", result, in_own_block(e, away))
    if name == "global":
        result = e.op("or", result, e.is_below(value, GENERIC.SHARED))
    write(e, target, result, "pred", shape)


@effect("nanosleep", has_result=False, polls=True, ptx="6.3", arch="sm_70")
@effect("pmevent", has_result=False, ptx="1.4")
@effect("prefetch", "prefetchu", has_result=False, ptx="2.0", arch="sm_20")
@effect("discard", "applypriority", has_result=False, ptx="7.4", arch="sm_80")
def do_nothing(e: Context, instruction: Instruction) -> None:
    """Hints: there is no cache to steer here."""


@effect("createpolicy", ptx="7.4", arch="sm_80")
def createpolicy(e: Context, instruction: Instruction) -> None:
    first = instruction.operands[0]
    if isinstance(first, Register):
        write(e, first, e.const("i64", 0), "u64")
