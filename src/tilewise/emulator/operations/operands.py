"""Which operands an instruction writes and which it reads."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx import syntax

__all__ = ["reads", "registers_in", "symbols_in", "wgmma_registers", "writes"]


def registers_in(operand: syntax.Operand) -> Iterator[str]:
    """Yield the name of every register of an operand, special ones included."""
    match operand:
        case (
            syntax.Register(name=name)
            | syntax.Address(base=syntax.Register(name=name))
            | syntax.Not(item=syntax.Register(name=name))
        ):
            yield name
        case syntax.Pair(first=first, second=second):
            yield from registers_in(first)
            yield from registers_in(second)
        case syntax.Vector(items=items):
            for each in items:
                yield from registers_in(each)


def symbols_in(*operands: syntax.Operand) -> Iterator[str]:
    """Yield the name of every variable or function whose address is in some operands."""
    for operand in operands:
        match operand:
            case syntax.Symbol(name=name) | syntax.Address(base=syntax.Symbol(name=name)):
                yield name
            case syntax.Vector(items=items):
                yield from symbols_in(*items)
            case syntax.Pair(first=first, second=second):
                yield from symbols_in(first, second)


def writes(instruction: syntax.Instruction) -> list[str]:
    """Return the registers that an instruction writes, without ``_``."""
    if not instruction.operands or not operation_of(instruction).has_result:
        return []
    first = instruction.operands[0]
    if type(first) is syntax.Register:  # as most are: this is called for every instruction, over and over
        return [first.name] if first.name != "_" else []
    if isinstance(first, syntax.Address):
        return []
    return [name for name in registers_in(first) if name != "_"]


def wgmma_registers(instruction: syntax.Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that a ``wgmma`` in flight changes, and those that it reads."""
    operation = operation_of(instruction)
    if not (operation.multiplies_matrices and operation.asynchronous):
        return [], []
    groups = [
        list(registers_in(operand)) for operand in instruction.operands if isinstance(operand, syntax.Vector)
    ]
    metadata = instruction.operands[3:4] if "sp" in instruction.parts else ()
    groups.append([item.name for item in metadata if isinstance(item, syntax.Register)])
    return groups[0], [name for group in groups[1:] for name in group]


def reads(instruction: syntax.Instruction) -> list[str]:
    """Return the registers that an instruction reads, its guard included."""
    operands, operation = instruction.operands, operation_of(instruction)
    written = operation.has_result and bool(operands)
    found: list[str] = []
    for operand in operands[1:] if written else operands:
        if type(operand) is syntax.Register:
            found.append(operand.name)
        elif type(operand) is not syntax.Immediate:
            found += registers_in(operand)
    if "_" in found:
        found = [name for name in found if name != "_"]
    if written and isinstance(operands[0], syntax.Address):
        found += registers_in(operands[0])
    if operation.adds_to_result and operands:
        found += registers_in(operands[0])
    if instruction.guard:
        found.append(instruction.guard.name)
    return found
