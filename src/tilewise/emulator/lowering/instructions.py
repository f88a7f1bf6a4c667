"""One instruction: its guard, its entry in the tables, its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.loops import count_progress, look_before
from tilewise.emulator.lowering.suspend import guard_lanes
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.lowering.values import check_operand, read, write
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Operand, Pair, Register, items_of
from tilewise.emulator.ptx.types import bits_of
from tilewise.errors import TilewiseError

__all__ = ["complete", "find_form", "lower_instruction"]


@contextmanager
def complete(instruction: Instruction) -> Iterator[None]:
    """Refuse an instruction if its lowering looks for an operand that is not there."""
    try:
        yield
    except (IndexError, ValueError) as error:
        if isinstance(error, TilewiseError):
            raise
        raise unsupported(instruction, "not with so few operands") from error


def lower_instruction(e: Context, instruction: Instruction) -> None:
    """Emit one instruction where it stands."""
    e.now, e.guard, around = instruction, None, ""
    operation = operation_of(instruction)
    if not operation.is_lowered:
        raise unsupported(instruction)
    with complete(instruction):
        if instruction.guard is not None:
            around = _guarded(e, instruction)
        spins = e.block.index in e.analysis.spins
        before = look_before(e, instruction) if spins else None
        seen = e.watcher.before(instruction)
        if operation.emit is not None:
            operation.emit(e, instruction)
        else:
            _pure(e, instruction)
        if spins:
            count_progress(e, instruction, before)
        e.watcher.after(instruction, seen)
    if around:
        e.jump(around)
        e.place(around)
    e.guard = None


def _guarded(e: Context, instruction: Instruction) -> str:
    """Run the instruction only where its guard holds; returns the label that goes on."""
    assert instruction.guard is not None
    around = e.label("around")
    condition = read(e, instruction.guard, "pred", False)
    if instruction.negated:
        condition ^= 1
    if not condition.is_vector:
        e.branch(condition, no=around)
        return around
    e.guard = e.bits(condition)
    if operation_of(instruction).is_pure:
        return ""
    e.branch(e.differs(e.mask(), 0), no=around)
    return around


def _pure(e: Context, instruction: Instruction) -> None:
    form = find_form(e, instruction)
    shape = e.result_shape(instruction)
    sources = [
        read(e, operand, type_, shape is None)
        for operand, type_ in zip(instruction.operands[1:], form.sources, strict=True)
    ]
    if id(instruction) in e.analysis.guarded:
        _guard_widening(e, instruction, sources)
    results = e.outline.lowered(e, instruction, form, sources)
    values = (results,) if isinstance(results, Value) else results
    # Of more values than results the first ones count: a carry out may not be asked for.
    for target, value, type_ in zip(_targets(instruction), values, form.results, strict=False):
        if not isinstance(target, Register):
            raise unsupported(instruction, "its destination must be a register")
        write(e, target, value, type_, shape)


def find_form(e: Context, instruction: Instruction) -> OperandTypes:
    """Return the types of a pure instruction's operands; refuse operands that do not fit them."""
    try:
        describe = operation_of(instruction).form
        assert describe is not None
        form = describe(instruction)
        for type_ in (*form.results, *form.sources):
            bits_of(type_)
    except (IndexError, KeyError):
        raise unsupported(instruction, "not in this form") from None
    if len(form.sources) != len(instruction.operands) - 1:
        raise unsupported(instruction, f"it takes {len(form.sources)} sources")
    if len(_targets(instruction)) != len(form.results):
        raise unsupported(instruction, f"it has {len(form.results)} results")
    targets = zip(_targets(instruction), form.results, strict=True)
    for operand, type_ in (*targets, *zip(instruction.operands[1:], form.sources, strict=True)):
        check_operand(e, instruction, operand, type_)
    return form


def _guard_widening(e: Context, instruction: Instruction, sources: list[Value]) -> None:
    """A 32-bit index is made wider: check that none of its lanes wraps around."""
    for operand, value in zip(instruction.operands[1:], sources, strict=True):
        shape = e.analysis.shape_of(operand)
        if shape is None or shape.uniform or value.type != "i32":
            continue
        low, high = min(shape.lanes), max(shape.lanes)
        signed = instruction.parts[-1].startswith("s")
        base = e.cast("sext" if signed else "zext", value, "i64")
        least = -(2**31) if signed else 0
        most = 2**31 - 1 if signed else 2**32 - 1
        ok = e.compare("icmp sge", base + low, least)
        top = e.compare("icmp sle", base + high, most)
        guard_lanes(e, instruction, ok & top)


def _targets(instruction: Instruction) -> tuple[Operand, ...]:
    first = instruction.operands[0]
    if isinstance(first, Pair):
        return first.first, first.second
    return items_of(first)
