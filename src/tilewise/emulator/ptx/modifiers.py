"""One spelling of each instruction, so that the tables of instructions need no other.

Its modifiers are in the order of the PTX manual, whatever order a text has.

The assembler takes modifiers in any order, types before the others too: ``add.f32.rn`` is ``add.rn.f32``. Only
words of one kind that mean different things by their place keep the order that they have among themselves: types
(a result's before a source's), spaces (to before from), and the layouts of A and B. And some words are a part of
the opcode: there is ``mul.wide``, and no ``mul.u32.wide``.

PTX keeps a carry that no operand names, calls two instructions cvt, and has waits with two destinations. Here a carry
is an operand like any other, cvt.pack is an opcode of its own, and there is one destination, of several registers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tilewise.emulator.ptx.syntax import Instruction, Operand, Pair, PtxError, Register

__all__ = ["CARRY", "MARKED", "elements_of", "normalise", "order_modifiers", "space_of"]

CARRY = "%cc#"  # the carry flag, as a register: a name that no text can declare
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_SET_CARRY = {"add", "addc", "sub", "subc", "mad", "madc"}
_USE_CARRY = {"addc", "subc", "madc"}
# Video instructions: their operands may have selectors and signs.
_VIDEO = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset")
MARKED = {
    *(f"{opcode}{count}" for opcode in (*_VIDEO, "vavrg") for count in ("2", "4")),
    *(*_VIDEO, "vshl", "vshr", "vmad"),
}
_Words = frozenset[str]


def _words(text: str) -> _Words:
    return frozenset(text.split())


# What follows an opcode directly, and nowhere else.
_HEADS: dict[str, tuple[tuple[str, ...], ...]] = {
    opcode: tuple(tuple(head.split(".")) for head in heads.split())
    for opcode, heads in {
        "mul": "lo hi wide",
        "mad": "lo hi wide",
        "madc": "lo hi",
        "mul24": "lo hi",
        "mad24": "lo hi",
        "clmad": "lo hi",
        "dp2a": "lo hi",
        "shf": "l r",
        "div": "full",
        "cvta": "to",
        "cvt": "pack",
        "createpolicy": "fractional range",
        "bar": "sync arrive red warp.sync cta.sync cta.arrive cta.red",
        "barrier": "arrive red cta cta.arrive cta.red cluster.arrive cluster.wait",
        "cp": "async async.bulk async.bulk.tensor async.bulk.prefetch async.bulk.prefetch.tensor"
        " async.bulk.commit_group async.bulk.wait_group async.commit_group async.wait_group async.wait_all"
        " async.mbarrier.arrive reduce.async.bulk reduce.async.bulk.tensor",
        "fence": "proxy",
        "membar": "proxy",
        "mbarrier": "init inval expect_tx complete_tx arrive arrive.expect_tx arrive_drop arrive_drop.expect_tx"
        " test_wait test_wait.parity try_wait try_wait.parity pending_count check_layout",
        "setmaxnreg": "inc dec",
        "red": "async",
        "st": "async bulk",
        "tensormap": "replace cp_fenceproxy",
        "wgmma": "mma_async fence commit_group wait_group",
        "wmma": "load.a load.b load.c store.d mma",
        "griddepcontrol": "wait launch_dependents",
        "clusterlaunchcontrol": "try_cancel.async query_cancel",
    }.items()
}
_COMPARISONS = _words("eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan")
_BITS = _words("and or xor")
_SYNC, _ALIGNED, _LAYOUT = _words("sync"), _words("aligned"), _words("row col")
_SPARSE = _words("sp sp::ordered_metadata")
_DIMENSIONS = _words("1d 2d 3d 4d 5d")
_SPACES = _words("shared shared::cta shared::cluster global")
_SHAPE = re.compile(r"m\d+n\d+(?:k\d+)?")
_SHAPES = _words("shape")  # stands for every word that _SHAPE matches
# Opcodes whose tables read modifiers by their place: which kind comes first, second and so on. Others follow.
_ORDER: dict[str, tuple[_Words, ...]] = {
    "set": (_COMPARISONS, _BITS),
    "setp": (_COMPARISONS, _BITS),
    "redux": (_SYNC, _BITS | _words("add min max")),
    "shfl": (_SYNC,),
    "vote": (_SYNC,),
    "match": (_words("any all"), _SYNC),
    "barrier": (_SYNC,),
    "cp": (_words("ca cg"), _DIMENSIONS, _SPACES),
    "mma": (_SPARSE, _SYNC, _ALIGNED, _SHAPES, _LAYOUT),
    "wgmma": (_SPARSE, _SYNC, _ALIGNED, _SHAPES),
    "wmma": (_BITS | _words("popc"), _SYNC, _ALIGNED, _LAYOUT, _SHAPES),
    "ldmatrix": (_SYNC, _ALIGNED, _SHAPES),
    "stmatrix": (_SYNC, _ALIGNED, _SHAPES),
    "movmatrix": (_SYNC, _ALIGNED, _SHAPES, _words("trans")),
    "setmaxnreg": (_SYNC, _ALIGNED),
    "tensormap": (_words("tile"), _words("b1024")),
}
_TYPE = re.compile(r"(?:[busf]|bf|tf)\d+(?:x\d+)?|u?e\dm\d(?:x\d)?|s2f6x2|pred")


def space_of(instruction: Instruction) -> str:
    """Return the space of memory that an instruction names first, or "generic"."""
    for part in instruction.parts:
        name = part.split("::")[0]
        if name in ("param", "const", "global", "shared", "local"):
            return name
    return "generic"


def elements_of(instruction: Instruction) -> int:
    """Return of how many elements an access is: 1 if it is of no vector."""
    return next((int(part[1:]) for part in instruction.parts if part in ("v2", "v4", "v8")), 1)


def order_modifiers(line: int, opcode: str, parts: list[str]) -> tuple[str, ...]:
    """An instruction's modifiers in one order: its opcode's own, others, types."""
    if len(parts) < 2 and opcode not in _HEADS:
        return tuple(parts)
    head = _head(line, opcode, parts)
    rest = parts[len(head) :]
    kinds = _ORDER.get(opcode, ())

    def rank(word: str) -> int:
        for index, words in enumerate(kinds):
            if word in words or (words is _SHAPES and _SHAPE.fullmatch(word)):
                return index
        return len(kinds) + 1 if _TYPE.fullmatch(word) else len(kinds)

    return (*head, *sorted(rest, key=rank))


def _head(line: int, opcode: str, parts: list[str]) -> tuple[str, ...]:
    """The part of the opcode that its modifiers begin with; anywhere else it is a mistake."""
    heads = _HEADS.get(opcode, ())
    found = max((head for head in heads if tuple(parts[: len(head)]) == head), key=len, default=())
    inside = {word for head in heads for word in head}
    for word in parts[len(found) or 1 :]:  # the first may begin a head that the table of its family names
        if word in inside:
            written = [".".join((opcode, *head)) for head in heads if word in head]
            why = f".{word} is a part of the opcode, which is written {' or '.join(written)}"
            raise PtxError(line, f"{'.'.join((opcode, *parts))}: {why}")
    return found


def normalise(instruction: Instruction, registers: dict[str, str], version: tuple[int, int]) -> Instruction:
    """Return an instruction in its one spelling; declare the carry register if it needs one."""
    plain = not _ROUNDINGS & {*instruction.parts}
    if plain and instruction.opcode == "mad" and instruction.parts[-1:] == ("f32",) and version <= (3, 1):
        # What it means if it is not said.
        instruction = replace(instruction, parts=("rn", *instruction.parts))
    if instruction.opcode == "cvt" and "pack" in instruction.parts:
        parts = tuple(part for part in instruction.parts if part != "pack")
        return replace(instruction, opcode="cvt.pack", parts=parts)
    if instruction.opcode == "mbarrier" and instruction.parts[:1] in (("test_wait",), ("try_wait",)):
        match instruction.operands:  # whose destinations may be of three registers together
            case (Pair() as complete, Register() as report, _, *_):
                operands = (Pair(complete, report), *instruction.operands[2:])
                return replace(instruction, operands=operands)
    return _with_carry(instruction, registers)


def _with_carry(instruction: Instruction, registers: dict[str, str]) -> Instruction:
    operands: list[Operand] = list(instruction.operands)
    if not operands:
        return instruction
    carry = Register(CARRY)
    if instruction.opcode in _USE_CARRY:
        operands.append(carry)
    if instruction.opcode in _SET_CARRY and "cc" in instruction.parts:
        operands[0] = Pair(operands[0], carry)
    if len(operands) == len(instruction.operands) and operands[0] is instruction.operands[0]:
        return instruction
    registers[CARRY] = "pred"
    return replace(instruction, operands=tuple(operands))
