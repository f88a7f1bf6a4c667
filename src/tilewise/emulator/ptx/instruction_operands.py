"""Which operands an instruction writes and which it reads."""

from __future__ import annotations

from collections.abc import Iterator

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

# Opcodes whose first operand is read, as the others are: they have no destination register.
_NO_DESTINATION = {
    "st", "red", "bra", "brx", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu", "nanosleep",
    "brkpt", "pmevent", "griddepcontrol", "setmaxnreg", "discard", "applypriority", "stmatrix", "multimem",
    "tensormap",
}  # fmt: skip
_SOMETIMES = _NO_DESTINATION | {"bar", "barrier", "cp", "mbarrier"}


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


def has_destination(instruction: Instruction) -> bool:
    """Whether an instruction writes its first operand."""
    opcode = instruction.opcode
    if opcode not in _SOMETIMES or not instruction.operands:
        return bool(instruction.operands)
    if opcode == "mbarrier":
        giving = {"arrive", "arrive_drop", "test_wait", "try_wait", "pending_count", "check_layout"}
        return bool({*instruction.parts[:1]} & giving)
    return False  # what ``bar.red`` finds is written by its ``bar_result``


def writes(instruction: Instruction) -> list[Register]:
    """Return the registers that an instruction writes, without ``_``."""
    if not has_destination(instruction):
        return []
    first = instruction.operands[0]
    if type(first) is Register:  # as most are: this is called for every instruction, over and over
        return [first] if first.name != "_" else []
    if isinstance(first, Address):
        return []
    return [register for register in registers_in(first) if register.name != "_"]


def wgmma_registers(instruction: Instruction) -> tuple[list[Register], list[Register]]:
    """Return the registers that a ``wgmma`` in flight changes, and those that it reads."""
    if instruction.opcode != "wgmma" or "mma_async" not in instruction.parts:
        return [], []
    groups = [list(registers_in(operand)) for operand in instruction.operands if isinstance(operand, Vector)]
    metadata = (
        [instruction.operands[3]] if "sp" in instruction.parts and len(instruction.operands) > 3 else []
    )
    groups.append([item for item in metadata if isinstance(item, Register)])
    return groups[0], [register for group in groups[1:] for register in group]


def reads(instruction: Instruction) -> list[Register]:
    """Return the registers that an instruction reads, its guard included."""
    operands, written = instruction.operands, has_destination(instruction)
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
    if instruction.opcode == "wgmma" and instruction.operands:
        found += list(registers_in(instruction.operands[0]))  # it adds to its sums
    if instruction.guard:
        found.append(instruction.guard)
    return found
