"""The tables of instructions: opcode → how it is lowered. Each family fills them in a module of its own.

A *pure* instruction computes its results from its operands, lane by lane, and nothing else. Its lowering
is written once and serves one lane (a scalar) and 32 lanes (a vector) alike. Any other instruction has a
lowering that is given the whole state.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.ptx.syntax import Instruction, PtxError

if TYPE_CHECKING:
    from tilewise.emulator.lowering.lower import Lowering

__all__ = [
    "OTHER",
    "PURE",
    "WAITS",
    "Form",
    "Pure",
    "known",
    "other",
    "pure",
    "same",
    "takes",
    "unknown",
    "waits",
]

Results = Value | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """The PTX types of an instruction's results and sources."""

    results: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pure:
    form: Callable[[Instruction], Form]
    lower: Callable[..., Results]  # (emitter, instruction, *sources)


PURE: dict[str, Pure] = {}
OTHER: dict[str, Callable[[Any, Instruction], None]] = {}  # given the Lowering
WAITS: dict[str, Callable[[Any, Instruction], Any]] = {}


def pure(*opcodes: str, form: Callable[[Instruction], Form]) -> Callable[[Any], Any]:
    """Enter a lowering of pure instructions: ``lower(emitter, instruction, *sources) -> result(s)``."""

    def enter(function: Callable[..., Results]) -> Callable[..., Results]:
        for opcode in opcodes:
            PURE[opcode] = Pure(form, function)
        return function

    return enter


def other(*opcodes: str) -> Callable[[Any], Any]:
    """Enter a lowering of instructions that touch memory, other lanes or the course of the program."""

    def enter(function: Callable[[Lowering, Instruction], None]) -> Any:
        for opcode in opcodes:
            OTHER[opcode] = function
        return function

    return enter


def waits(*opcodes: str) -> Callable[[Any], Any]:
    """Enter the lowering of instructions at which a warp may stop: ``lower(lowering, instruction) -> answer``."""

    def enter(function: Callable[[Lowering, Instruction], Value | None]) -> Any:
        for opcode in opcodes:
            WAITS[opcode] = function
        return function

    return enter


def same(sources: int) -> Callable[[Instruction], Form]:
    """One result and ``sources`` sources, all of the instruction's last type."""

    def form(instruction: Instruction) -> Form:
        return Form((instruction.parts[-1],), (instruction.parts[-1],) * sources)

    return form


def known() -> list[str]:
    return sorted({*PURE, *OTHER})


def unknown(instruction: Instruction, why: str = "") -> PtxError:
    """The error for an instruction that no table has, or not in this form."""
    if why:
        return PtxError(instruction.line, f"{instruction.name}: {why}", instruction.source)
    near = difflib.get_close_matches(instruction.opcode, known(), n=1, cutoff=0.4)
    hint = f"; the nearest known one is {near[0]!r}" if near else ""
    what = f"the instruction {instruction.name!r} is not supported{hint}"
    return PtxError(instruction.line, what, instruction.source)


def takes(instruction: Instruction, *counts: int) -> None:
    """Refuse another number of operands."""
    if len(instruction.operands) not in counts:
        raise unknown(instruction, f"it takes {' or '.join(map(str, counts))} operands")


def check_type(emitter: Emitter, instruction: Instruction, allowed: set[str]) -> None:
    """Refuse a type that the instruction does not have."""
    if not instruction.parts or instruction.parts[-1] not in allowed:
        raise unknown(instruction, f"its type must be one of {', '.join(sorted(allowed))}")
