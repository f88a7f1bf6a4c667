"""The tables of instructions: opcode → how it is lowered. Each family fills them in a module of its own.

A *pure* instruction computes its results from its operands, lane by lane, and nothing else. Its lowering
is written once and serves one lane (a scalar) and 32 lanes (a vector) alike. Any other instruction has a
lowering that is given the whole state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.ptx.syntax import Instruction, PtxError

if TYPE_CHECKING:
    from tilewise.emulator.lowering.lower import Lowering

__all__ = [
    "EFFECTS",
    "PURE",
    "WAITS",
    "OperandTypes",
    "Pure",
    "check_operand_count",
    "edit_distance",
    "effect",
    "known_opcodes",
    "pure",
    "same_types",
    "unsupported",
    "waits",
]

Results = Value | tuple[Value, ...]

# Instructions that PTX has and no table does, by what they have in common.
_UNSUPPORTED = {
    opcode: family
    for family, opcodes in {
        "texture instructions": "tex tld4 txq istypep",
        "surface instructions": "suld sust sured suq",
        "tensor core instructions of sm_100 (tcgen05)": "tcgen05",
        "instructions on memory that several GPUs share (multimem)": "multimem",
        "instructions on a network of GPUs (fabric)": "fabric",
        "requests for another cluster's work (clusterlaunchcontrol)": "clusterlaunchcontrol",
        "stack instructions": "alloca stacksave stackrestore",
        "carry-less products": "clmad",
        "compressions of sparse matrices": "spcompress spdecompress",
    }.items()
    for opcode in opcodes.split()
}
_LONG_OPCODE = 6  # letters from which on two mistakes still leave a word that can be recognised


@dataclass(frozen=True, slots=True)
class OperandTypes:
    """The PTX types of an instruction's results and sources."""

    results: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pure:
    form: Callable[[Instruction], OperandTypes]
    lower: Callable[..., Results]  # (emitter, instruction, *sources)


PURE: dict[str, Pure] = {}
EFFECTS: dict[str, Callable[[Any, Instruction], None]] = {}  # given the Lowering
WAITS: dict[str, Callable[[Any, Instruction], Any]] = {}


def pure(*opcodes: str, form: Callable[[Instruction], OperandTypes]) -> Callable[[Any], Any]:
    """Enter a lowering of pure instructions: ``lower(emitter, instruction, *sources) -> result(s)``."""

    def enter(function: Callable[..., Results]) -> Callable[..., Results]:
        for opcode in opcodes:
            PURE[opcode] = Pure(form, function)
        return function

    return enter


def effect(*opcodes: str) -> Callable[[Any], Any]:
    """Enter a lowering of instructions that have effects: on memory, on other lanes or on control flow."""

    def enter(function: Callable[[Lowering, Instruction], None]) -> Any:
        for opcode in opcodes:
            EFFECTS[opcode] = function
        return function

    return enter


def waits(*opcodes: str) -> Callable[[Any], Any]:
    """Enter the lowering of instructions at which a warp may stop: ``lower(lowering, instruction) -> answer``."""

    def enter(function: Callable[[Lowering, Instruction], Value | None]) -> Any:
        for opcode in opcodes:
            WAITS[opcode] = function
        return function

    return enter


def same_types(sources: int) -> Callable[[Instruction], OperandTypes]:
    """The form of instructions with one result and ``sources`` sources, all of the instruction's last type."""

    def form(instruction: Instruction) -> OperandTypes:
        return OperandTypes((instruction.parts[-1],), (instruction.parts[-1],) * sources)

    return form


def known_opcodes() -> list[str]:
    """Every opcode that a table has."""
    return sorted({*PURE, *EFFECTS})


def unsupported(instruction: Instruction, why: str = "") -> PtxError:
    """The error for an instruction that no table has, or not in this form."""
    name = instruction.written or instruction.name
    if why:
        return PtxError(instruction.line, f"{name}: {why}", instruction.source)
    family = _UNSUPPORTED.get(instruction.opcode)
    if family:
        what = f"{family} are not supported (the instruction {name!r})"
        return PtxError(instruction.line, what, instruction.source)
    near = min(
        filter(str.isalnum, known_opcodes()), key=lambda opcode: edit_distance(opcode, instruction.opcode)
    )
    is_near = edit_distance(near, instruction.opcode) <= (1 if len(instruction.opcode) < _LONG_OPCODE else 2)
    hint = f"; the nearest known one is {near!r}" if is_near else ""
    what = f"the instruction {name!r} is not supported{hint}"
    return PtxError(instruction.line, what, instruction.source)


def edit_distance(first: str, second: str) -> int:
    """How many letters to insert, delete, replace or swap with their neighbour to turn one word into the other."""
    before, row = [0] * (len(second) + 1), list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, above, row = row, before, [i]
        for j, other_letter in enumerate(second, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and first[i - 2 : i] == second[j - 2 : j][::-1]:
                least = min(least, above[j - 2] + 1)
            row.append(least)
    return row[-1]


def check_operand_count(instruction: Instruction, *counts: int) -> None:
    """Refuse an instruction that has another number of operands."""
    if len(instruction.operands) not in counts:
        raise unsupported(instruction, f"it takes {' or '.join(map(str, counts))} operands")


def check_type(emitter: Emitter, instruction: Instruction, allowed: set[str]) -> None:
    """Refuse a type that the instruction does not have."""
    if not instruction.parts or instruction.parts[-1] not in allowed:
        raise unsupported(instruction, f"its type must be one of {', '.join(sorted(allowed))}")
