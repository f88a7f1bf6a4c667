"""The machine code's side of a launch: what the emulator saw of the PTX, joined with the line tables.

Which addresses were touched, and how often, comes from running the PTX; with how many bytes a lane, from the
machine code, in which the assembler has merged loads and left some out. A PTX line of which there are several
copies (an unrolled loop) shares its runs among them.

How often an instruction ran that touches no memory is told from its basic block: by the loads, stores,
barriers, branches and multiply-adds there, which the assembler does not move out of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.counted import Counts, Place
from tilewise.toolchain.lines import Instruction, LineTable

__all__ = ["MEMORY", "Access", "Figures", "Machine", "Ran", "join"]

Figures = npt.NDArray[Any]  # one for each multiprocessor

# Families of machine instructions that touch memory → what they do there, and in which space.
MEMORY: dict[str, tuple[str, tuple[str, ...]]] = {
    "LDS": ("ld", ("shared",)),
    "STS": ("st", ("shared",)),
    "LDSM": ("ldsm", ("shared",)),
    "STSM": ("stsm", ("shared",)),
    "ATOMS": ("atom", ("shared",)),
    "LDG": ("ld", ("global",)),
    "STG": ("st", ("global",)),
    "ATOMG": ("atom", ("global",)),
    "RED": ("red", ("global",)),
    "REDG": ("red", ("global",)),
    "LDGSTS": ("ldgsts", ("global", "shared")),
    "LD": ("ld", ("global", "shared")),
    "ST": ("st", ("global", "shared")),
    "ATOM": ("atom", ("global", "shared")),
}
_ACTIONS = {"ld": "load", "ldsm": "load", "st": "store", "stsm": "store", "atom": "atomic", "red": "atomic"}
# What neither moves to another block nor stands for anything else in the PTX.
_FIXED = {
    *MEMORY,
    "BAR",
    "BRA",
    "EXIT",
    "FFMA",
    "FADD",
    "FMUL",
    "DFMA",
    "HFMA2",
    "WARPSYNC",
    "SHFL",
    "VOTE",
    "MATCH",
}
_JUMP = re.compile(r"`\(([^)]+)\)")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "BRXU", "KILL", "CALL")


@dataclass(slots=True)
class Access:
    """What one machine instruction did in one memory space."""

    instruction: Instruction
    op: str  # "ld", "st", "ldsm", "stsm", "atom", "red", "ldgsts"
    space: str
    bits: int
    runs: Figures
    waves: Figures
    phases: Figures  # wavefronts without conflicts
    ideal: Figures
    sectors: Figures
    ideal_sectors: Figures
    exact: bool = True


@dataclass(slots=True)
class Ran:
    """One machine instruction and how often it ran."""

    instruction: Instruction
    block: int
    runs: Figures
    threads: Figures  # for which its guard held


@dataclass(slots=True)
class Machine:
    """All of it. ``level`` is "machine code", "predicted" or "PTX"."""

    level: str
    accesses: list[Access] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Line:
    """What a PTX line came to."""

    runs: Figures
    threads: Figures
    on_threads: Figures
    names: set[str] = field(default_factory=set)


def join(table: LineTable, counts: Counts) -> Machine:
    """The counts of a launch by machine instruction."""
    lines = _by_line(counts)
    blocks = [block for block in _blocks(table.instructions) if block]
    reached = _reached(blocks)
    code = [(number, item) for number in reached for item in blocks[number] if not item.never]
    copies = Counter((item.ptx, item.family) for _, item in code)
    machine = Machine("machine code")
    places: dict[int, list[Place]] = defaultdict(list)
    for place in counts.places():
        places[place.line].append(place)
    widths: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    for _, item in code:
        widths[item.ptx, item.family].add(width_of(item))
    for _, item in code:
        if item.family in MEMORY and item.ptx in places:
            key = (item.ptx, item.family)
            machine.accesses += _accesses(item, places[item.ptx], copies[key], len(widths[key]) == 1)
    for number in reached:
        machine.ran += _ran(number, blocks[number], lines, copies)
    machine.notes += _check(machine, counts)
    return machine


def width_of(item: Instruction) -> int:
    """Bits of a lane."""
    if item.family in ("LDSM", "STSM"):
        return 128
    if item.family in ("ATOMS", "ATOMG", "ATOM", "RED", "REDG"):
        return 64 if ".64" in item.opcode else 128 if ".128" in item.opcode else 32
    return item.bits or 32


def _by_line(counts: Counts) -> dict[int, _Line]:
    found: dict[int, _Line] = {}
    for item in counts.executed():
        line = found.get(item.line)
        if line is None:
            zero = np.zeros(len(item.runs))
            line = found[item.line] = _Line(zero, zero.copy(), zero.copy())
        line.runs += item.runs
        line.threads += item.threads
        line.on_threads += item.on_threads
        line.names.add(item.name)
    return found


def _accesses(item: Instruction, places: Sequence[Place], copies: int, alike: bool) -> list[Access]:
    """What a machine instruction did, as a part of what its PTX line did."""
    op, spaces = MEMORY[item.family]
    bits = width_of(item)
    width = min(bits // 8, 16)
    found = []
    for space in spaces:
        for place in places:
            if not _fits(op, space, place):
                continue
            runs = place.shared if space == "shared" else place.outside
            # An access wider than the machine has is done in parts.
            share = max(1, place.size * 8 // bits) / copies
            wide = max(width, place.size) if max(width, place.size) in place.waves else width
            if op == "ldgsts" or place.size * 8 > bits or width not in place.waves:
                waves, phases, ideals = place.waves[wide], place.phases[wide], place.ideals[wide]
            else:
                waves, phases, ideals = place.waves[width], place.phases[width], place.ideals[width]
            least = np.ceil(place.threads * width / 32) if space == "global" else place.threads * 0.0
            found.append(
                Access(
                    item, op, space, bits, runs * share,
                    (waves if space == "shared" else waves * 0) * share,
                    (phases if space == "shared" else phases * 0) * share,
                    (ideals if space == "shared" else ideals * 0) * share,
                    (place.sectors if space == "global" else place.sectors * 0) * share,
                    least * share, alike,
                )
            )  # fmt: skip
    return found


def _fits(op: str, space: str, place: Place) -> bool:
    if op == "ldgsts":
        return place.action == ("fill" if space == "shared" else "copy")
    touched = place.shared if space == "shared" else place.outside
    return place.action == _ACTIONS[op] and (place.space == space or bool(touched.any()))


# -- basic blocks ---------------------------------------------------------------------------------------
def _blocks(instructions: Iterable[Instruction]) -> list[list[Instruction]]:
    blocks: list[list[Instruction]] = [[]]
    for item in instructions:
        if item.label and blocks[-1]:
            blocks.append([])
        blocks[-1].append(item)
        if item.family in _ENDS:
            blocks.append([])
    return blocks


def _reached(blocks: Sequence[Sequence[Instruction]]) -> list[int]:
    """The blocks that can be reached from the first, in order: what pads the code behind its end cannot."""
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    seen, stack = {0}, [0] if blocks else []
    while stack:
        number = stack.pop()
        last = blocks[number][-1]
        following = [
            labels[name] for item in blocks[number] for name in _JUMP.findall(item.text) if name in labels
        ]
        ends = last.family in ("BRA", "EXIT", "RET", "JMP", "KILL") and not last.predicate
        ends = ends or last.family in ("BRX", "BRXU", "JMX")
        if last.family in ("BRX", "BRXU", "JMX"):
            following += range(len(blocks))  # a table of labels, which are not read here
        if not ends and number + 1 < len(blocks):
            following.append(number + 1)
        fresh = [n for n in following if n not in seen]
        seen.update(fresh)
        stack += fresh
    return sorted(seen)


def _ran(
    number: int,
    block: Sequence[Instruction],
    lines: dict[int, _Line],
    copies: Counter[tuple[int | None, str]],
) -> list[Ran]:
    """How often the instructions of a block ran."""
    runs, threads = _block_runs(block, lines, copies)
    found = []
    for item in block:
        line = lines.get(item.ptx or 0)
        own = threads
        if item.never:
            own = threads * 0  # it is issued all the same
        elif item.predicate and line is not None and item.family not in ("BRA", "EXIT"):
            part = line.on_threads / np.maximum(line.threads, 1)
            own = np.minimum(
                line.on_threads / copies[item.ptx, item.family], threads * np.where(part > 0, 1, 0)
            )
        found.append(Ran(item, number, runs, own))
    return found


def _block_runs(
    block: Sequence[Instruction], lines: dict[int, _Line], copies: Counter[tuple[int | None, str]]
) -> tuple[Figures, Figures]:
    """The runs that most of the instructions agree on which cannot have been moved."""
    votes: Counter[float] = Counter()
    said: dict[float, tuple[Figures, Figures]] = {}
    for strict in (True, False):
        for item in block:
            line = lines.get(item.ptx or 0)
            if line is None or (strict and (item.family not in _FIXED or item.predicate)):
                continue
            by = copies[item.ptx, item.family] if strict else 1
            value = float(line.runs.sum()) / by
            votes[value] += 1
            said[value] = (line.runs / by, line.threads / by)
        if votes:
            break
    if not votes:
        nothing = np.zeros(len(next(iter(lines.values())).runs)) if lines else np.zeros(1)
        return nothing, nothing
    most = max(votes.values())
    return said[max(value for value, count in votes.items() if count == most)]


def _check(machine: Machine, counts: Counts) -> list[str]:
    """Whether the machine code moves as many bytes as the PTX: the assembler may leave accesses out."""
    notes = []
    for space, op, action in (("shared", "ld", "load"), ("shared", "st", "store"), ("global", "ld", "load")):
        here = [item for item in machine.accesses if item.space == space and item.op == op]
        moved = sum(float(item.runs.sum()) * item.bits // 8 for item in here)
        asked = 0.0
        for place in counts.places():
            if place.action == action and not place.name.startswith(("ldmatrix", "stmatrix")):
                asked += float((place.shared if space == "shared" else place.outside).sum()) * place.size
        if round(moved) != round(asked):
            notes.append(
                f"the PTX asks for {asked * 32:,.0f} bytes of {space} {action}s, the machine code for {moved * 32:,.0f}"
            )
    if not all(item.exact for item in machine.accesses):
        lines = sorted({item.instruction.ptx or 0 for item in machine.accesses if not item.exact})
        notes.append(f"copies of PTX lines {lines} differ in width: what each of them does is an estimate")
    return notes


def total(parts: Iterable[Any], size: int) -> Figures:
    """A sum of figures; zeros if there are none."""
    found = np.zeros(size)
    for part in parts:
        found = found + part
    return found
