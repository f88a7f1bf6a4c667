"""The machine code's side of a launch: what the emulator saw of the PTX, joined with the line tables.

Which addresses were touched, and how often, comes from running the PTX; with how many bytes a lane, from the
machine code, in which the assembler has merged loads and left some out. A PTX line of which there are several
copies (an unrolled loop) shares its runs among them.

How often an instruction ran that touches no memory is told from its basic block (``flow.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewise.emulator.profiling.counted import Counts, Executed, Place
from tilewise.profiler.flow import BlockRuns, Figures, Line, basic_blocks, block_runs, reached
from tilewise.toolchain.lines import Instruction, LineTable

__all__ = ["MEMORY", "Access", "Figures", "Machine", "Ran", "join"]


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
    bytes: Figures  # that lanes asked for
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


def join(table: LineTable, counts: Counts) -> Machine:
    """The counts of a launch by machine instruction."""
    lines = _by_line(counts)
    blocks = basic_blocks(table.instructions)
    there = reached(blocks)
    machine = Machine("machine code")
    if not there:
        return machine
    warps = counts.block_runs(0) * 1.0
    runs = block_runs(blocks, there, lines, warps)
    code = [(number, item) for number in there for item in blocks[number] if not item.never]
    copies: dict[tuple[int | None, str], list[float]] = defaultdict(list)
    widths: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    for number, item in code:
        key = (item.ptx, item.family)
        copies[key].append(float(runs.runs[number].sum()))
        widths[key].add(width_of(item))
    places: dict[int, list[Place]] = defaultdict(list)
    for place in counts.places():
        places[place.line].append(place)
    for number, item in code:
        key = (item.ptx, item.family)
        if item.family in MEMORY and item.ptx in places:
            # Copies of a line share what it did as they share its runs.
            whole = sum(copies[key])
            share = float(runs.runs[number].sum()) / whole if whole else 1 / len(copies[key])
            machine.accesses += _accesses(item, places[item.ptx], share, len(widths[key]) == 1)
    for number in there:
        machine.ran += _ran(number, blocks[number], lines, copies, runs)
    machine.notes += _check(machine, counts)
    return machine


def width_of(item: Instruction) -> int:
    """Bits of a lane."""
    if item.family in ("LDSM", "STSM"):
        return 128
    if item.family in ("ATOMS", "ATOMG", "ATOM", "RED", "REDG"):
        return 64 if ".64" in item.opcode else 128 if ".128" in item.opcode else 32
    return item.bits or 32


def _by_line(counts: Counts) -> dict[int, Line]:
    """Of several instructions of a line in one block, as inline assembly has them, the most."""
    found: dict[int, Line] = {}
    once: dict[tuple[int, int], list[Executed]] = defaultdict(list)
    for item in counts.executed():
        once[item.line, item.block].append(item)
    for (number, _), items in once.items():
        line = found.get(number)
        if line is None:
            zero = np.zeros(len(items[0].runs))
            line = found[number] = Line(zero, zero.copy(), zero.copy(), zero.copy())
        line.runs += items[0].runs
        line.threads += items[0].threads
        # Where one of them is guarded, it is what the line is for.
        guarded = [item for item in items if item.on_runs is not item.runs] or items
        line.on_runs += guarded[-1].on_runs
        line.on_threads += guarded[-1].on_threads
        line.names |= {item.name for item in items}
    return found


def _accesses(item: Instruction, places: Sequence[Place], part: float, alike: bool) -> list[Access]:
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
            share = max(1, place.size * 8 // bits) * part
            bypass, fills = ".BYPASS" in item.opcode, ".ZFILL" in item.opcode
            waves, phases, ideals = shared_figures(place, width, bypass, fills)
            least = np.ceil(place.threads * width / 32) if space == "global" else place.threads * 0.0
            found.append(
                Access(
                    item, op, space, bits, runs * share,
                    (waves if space == "shared" else waves * 0) * share,
                    (phases if space == "shared" else phases * 0) * share,
                    (ideals if space == "shared" else ideals * 0) * share,
                    (place.sectors if space == "global" else place.sectors * 0) * share,
                    least * share, place.threads * (bits // 8) * share, alike,
                )
            )  # fmt: skip
    return found


def shared_figures(place: Place, width: int, bypass: bool, fills: bool) -> tuple[Figures, Figures, Figures]:
    """Wavefronts of shared memory, those without conflicts, and ideal ones, with ``width`` bytes a lane.

    A copy past the L1 has passes of its own, and if it may fill with zeros, it does that first.
    """
    if width not in place.waves:
        width = min(max(width, place.size), max(place.waves))
    waves, phases, ideals = place.waves[width], place.phases[width], place.ideals[width]
    if not bypass or place.passes is None or place.action != "fill":
        return waves, phases, ideals
    if not fills:
        return place.passes, place.passes, ideals
    return waves + place.passes, phases + place.passes, 2 * ideals


def _fits(op: str, space: str, place: Place) -> bool:
    if op == "ldgsts":
        return place.action == ("fill" if space == "shared" else "copy")
    touched = place.shared if space == "shared" else place.outside
    return place.action == _ACTIONS[op] and (place.space == space or bool(touched.any()))


def _ran(
    number: int,
    block: Sequence[Instruction],
    lines: Mapping[int, Line],
    copies: Mapping[tuple[int | None, str], Sequence[float]],
    found: BlockRuns,
) -> list[Ran]:
    """How often the instructions of a block ran."""
    runs = found.runs[number]
    known = [line for item in block if (line := lines.get(item.ptx or 0)) is not None and line.runs.any()]
    each = max(
        (float(line.threads.sum() / line.runs.sum()) for line in known), default=32.0
    )  # threads of a run
    ran = []
    for item in block:
        line = lines.get(item.ptx or 0)
        threads = runs * each
        if item.never:
            threads = threads * 0  # it is issued all the same
        elif item.predicate and item.family in ("BRA", "EXIT"):
            threads = found.taken.get(number, runs * 0) * each
        elif item.predicate and line is not None:
            whole = sum(copies[item.ptx, item.family])
            share = float(runs.sum()) / whole if whole else 0.0
            threads = np.minimum(threads, line.on_threads * share)
        ran.append(Ran(item, number, runs, threads))
    return ran


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
