"""Decorators that enter an operation's row where its lowering stands; errors for instructions without one.

A *pure* operation computes its results from its operands, lane by lane, and nothing else. Its lowering
is written once and serves one lane (a scalar) and 32 lanes (a vector) alike. Any other operation has a
lowering that is given the whole state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import enter, operations
from tilewise.emulator.ptx.syntax import Instruction, PtxError

__all__ = [
    "check_operand_count",
    "edit_distance",
    "effect",
    "pure",
    "refuse_other_forms",
    "same_types",
    "unsupported",
    "waits",
]

# Instructions that PTX has and no table does, by what they have in common.
_UNSUPPORTED = {
    opcode: family
    for family, opcodes in {
        "texture instructions": "tex tld4 txq istypep",
        "surface instructions": "suld sust sured suq",
        "tensor core instructions of sm_100 (tcgen05)": "tcgen05",
        "instructions on memory that several GPUs share (multimem)": "multimem",
        "instructions on a network of GPUs (fabric)": "fabric",
        "stack instructions": "alloca stacksave stackrestore",
        "compressions of sparse matrices": "spcompress spdecompress",
    }.items()
    for opcode in opcodes.split()
}
_LONG_OPCODE = 6  # letters from which on two mistakes still leave a word that can be recognised


_OTHER_FORMS: dict[str, str] = {}  # by the start of a name: why what has no row is refused


def pure(*names: str, form: Callable[[Instruction], OperandTypes], **facts: Any) -> Callable[[Any], Any]:
    """Enter rows of pure operations: ``lower(emitter, instruction, *sources) -> result(s)``."""
    return _enter_as("compute", names, form=form, **facts)


def effect(*names: str, **facts: Any) -> Callable[[Any], Any]:
    """Enter rows of operations with effects on memory, lanes or course: ``lower(context, instruction)``."""
    return _enter_as("emit", names, **facts)


def waits(*names: str, **facts: Any) -> Callable[[Any], Any]:
    """Enter rows of operations at which a warp may stop: ``lower(context, instruction) -> answer``."""
    return _enter_as("wait", names, **facts)


def _enter_as(column: str, names: tuple[str, ...], **facts: Any) -> Callable[[Any], Any]:
    def enter_all(lower: Any) -> Any:
        enter(*names, **{column: lower}, **facts)
        return lower

    return enter_all


def refuse_other_forms(name: str, why: str) -> None:
    """Say why instructions are refused whose names begin so, and that are no operation."""
    _OTHER_FORMS[name] = why


def same_types(sources: int) -> Callable[[Instruction], OperandTypes]:
    """The form of instructions with one result and ``sources`` sources, all of the instruction's last type."""

    def form(instruction: Instruction) -> OperandTypes:
        return OperandTypes((instruction.parts[-1],), (instruction.parts[-1],) * sources)

    return form


def unsupported(instruction: Instruction, why: str = "") -> PtxError:
    """The error for an instruction that no table has, or not in this form."""
    written = instruction.written or instruction.name
    names = (instruction.name.rsplit(".", count)[0] for count in range(len(instruction.parts) + 1))
    if why := why or next((_OTHER_FORMS[name] for name in names if name in _OTHER_FORMS), ""):
        what = f"{written}: {why}"
    elif family := _UNSUPPORTED.get(instruction.opcode):
        what = f"{family} are not supported (the instruction {written!r})"
    else:
        what = f"the instruction {written!r} is not supported{_nearest_opcode(instruction.opcode)}"
    return PtxError(instruction.line, what, instruction.source)


def _nearest_opcode(opcode: str) -> str:
    """What to say of the known opcode that an opcode is, or that it is a misspelling of; "" if it is none."""
    known = {name.partition(".")[0] for name, row in operations().items() if row.is_lowered}
    if opcode in known:
        return f": {opcode!r} has no such form"
    distances = [(edit_distance(name, opcode), name) for name in known if name.isalnum()]
    distance, near = min(distances)
    return f"; the nearest known one is {near!r}" if distance <= 1 + (len(opcode) >= _LONG_OPCODE) else ""


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
        noun = "operand" if counts == (1,) else "operands"
        raise unsupported(instruction, f"it takes {' or '.join(map(str, counts))} {noun}")
