"""Which operands an instruction writes and which it reads."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

__all__ = ["operands_in", "reads", "registers_in", "wgmma_registers", "writes"]


def registers_in(operand: Operand) -> Iterator[Register]:
    """Yield every register of an operand, special ones included."""
    match operand:
        case Register():
            yield operand
        case Address(base=Register() as base):
            yield base
        case Not(item=item):
            yield item
        case Pair(first=first, second=second):
            yield from registers_in(first)
            yield from registers_in(second)
        case Vector(items=items):
            for each in items:
                yield from registers_in(each)


def operands_in(instruction: Instruction) -> Iterator[Operand]:
    """Yield every operand of an instruction, those within vectors and addresses too."""
    stack = list(reversed(instruction.operands))
    while stack:
        operand = stack.pop()
        yield operand
        match operand:
            case Vector(items=items):
                stack += reversed(items)
            case Pair(first=first, second=second):
                stack += [second, first]
            case Address(base=Register() | Symbol() as base):
                stack.append(base)


def writes(instruction: Instruction) -> list[Register]:
    """Return the registers that an instruction writes, without ``_``."""
    if not instruction.operands or not operation_of(instruction).has_result:
        return []
    first = instruction.operands[0]
    if type(first) is Register:  # as most are: this is called for every instruction, over and over
        return [first] if first.name != "_" else []
    if isinstance(first, Address):
        return []
    return [register for register in registers_in(first) if register.name != "_"]


def wgmma_registers(instruction: Instruction) -> tuple[list[Register], list[Register]]:
    """Return the registers that a ``wgmma`` in flight changes, and those that it reads."""
    operation = operation_of(instruction)
    if not (operation.multiplies_matrices and operation.asynchronous):
        return [], []
    groups = [list(registers_in(operand)) for operand in instruction.operands if isinstance(operand, Vector)]
    metadata = (
        [instruction.operands[3]] if "sp" in instruction.parts and len(instruction.operands) > 3 else []
    )
    groups.append([item for item in metadata if isinstance(item, Register)])
    return groups[0], [register for group in groups[1:] for register in group]


def reads(instruction: Instruction) -> list[Register]:
    """Return the registers that an instruction reads, its guard included."""
    operands, operation = instruction.operands, operation_of(instruction)
    written = operation.has_result and bool(operands)
    found: list[Register] = []
    for operand in operands[1:] if written else operands:
        if type(operand) is Register:
            found.append(operand)
        elif type(operand) is not Immediate:
            found += registers_in(operand)
    if any(register.name == "_" for register in found):
        found = [register for register in found if register.name != "_"]
    if written and isinstance(operands[0], Address):
        found += registers_in(operands[0])
    if operation.adds_to_result and operands:
        found += registers_in(operands[0])
    if instruction.guard:
        found.append(instruction.guard)
    return found
