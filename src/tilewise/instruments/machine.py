"""Join the emulator's counts of the PTX with the machine code, by its line tables.

Which addresses were touched, and how often, comes from running the PTX; with how many bytes a lane, from the
machine code, in which the assembler has merged loads and left some out. A PTX line of which there are several
copies (an unrolled loop) shares its runs among them.

How often an instruction ran that touches no memory follows from its basic block (``flow.py``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewise.emulator.profiling.counted import AccessCounts, Counts, InstructionRuns
from tilewise.instruments.flow import (
    ONE_BY_ONE,
    BlockRuns,
    Figures,
    Line,
    PtxBranch,
    add_threads,
    basic_blocks,
    block_runs,
    find_reachable,
    has_slow_path,
)
from tilewise.instruments.slow_paths import add_detours, find_detours
from tilewise.toolchain.lines import LineTable, MachineInstruction

__all__ = ["MEMORY", "Figures", "Machine", "MachineAccess", "MachineRuns", "join_machine_code"]


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
_SIZE = re.compile(r"\.(?:v(\d)\.)?[bfsu](\d+)$")  # of an element, at the end of a PTX name
_ACTIONS = {"ld": "load", "ldsm": "load", "st": "store", "stsm": "store", "atom": "atomic", "red": "atomic"}


@dataclass(slots=True)
class MachineAccess:
    """The accesses of one machine instruction to one memory space."""

    instruction: MachineInstruction
    op: str  # "ld", "st", "ldsm", "stsm", "atom", "red", "ldgsts"
    space: str
    bits: int
    runs: Figures
    waves: Figures
    phases: Figures  # wavefronts without conflicts
    ideal: Figures
    sectors: Figures  # that it asked for
    ideal_sectors: Figures
    bytes: Figures  # that lanes asked for
    exact: bool = True
    touched: Figures | None = None  # different sectors of each run, where that is not what it asked for
    lines: Figures | None = None  # of the cache, in global memory
    data: Figures | None = None  # bytes, each counted once in a run
    turns: Figures | None = (
        None  # of the L1 and shared memory, of a load; a wider one's are those of any of its parts
    )


@dataclass(slots=True)
class MachineRuns:
    """How often one machine instruction ran."""

    instruction: MachineInstruction
    block: int
    runs: Figures
    active: Figures  # threads that came to it
    threads: Figures  # of those, for which its guard held
    parted: Figures | None = None  # of a branch: runs that sent threads different ways


@dataclass(slots=True)
class Machine:
    """The counts of a launch by machine instruction. ``level`` is "machine code", "predicted" or "PTX"."""

    level: str
    accesses: list[MachineAccess] = field(default_factory=list)
    ran: list[MachineRuns] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    capability: tuple[int, int] | None = None  # that the machine code is for


def join_machine_code(table: LineTable, counts: Counts, capability: tuple[int, int] | None = None) -> Machine:
    """Return the counts of a launch by machine instruction."""
    lines = _by_line(counts)
    blocks = basic_blocks(table.instructions)
    there = find_reachable(blocks)
    machine = Machine("machine code", capability=capability)
    if not there:
        return machine
    warps = counts.block_runs(0) * 1.0
    paths = counts.slow_paths()
    detours = [item for item in find_detours(blocks, there) if any(path.line == item.line for path in paths)]
    aside = {number for item in detours for number in item.slow_blocks}
    usual = [number for number in there if number not in aside]
    branches = _sum_branches(counts)
    runs = block_runs(blocks, usual, lines, warps, branches)
    add_threads(blocks, usual, lines, runs, float(counts.block_threads(0).sum()), branches)
    if detours:
        add_detours(detours, paths, lines, blocks, runs)
    code = [(number, item) for number in there for item in blocks[number] if not item.never]
    copies: dict[tuple[int | None, str], list[float]] = defaultdict(list)
    widths: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    for number, item in code:
        key = (item.ptx, item.family)
        copies[key].append(float(runs.runs[number].sum()))
        widths[key].add(width_of(item))
    places: dict[int, list[AccessCounts]] = defaultdict(list)
    every = counts.places()
    for place in every:
        places[place.line].append(place)
    spinning = {number for number, item in code if item.family == "ATOMS" and "SPIN" in item.opcode}
    if spinning:
        machine.notes.append(
            "atomic operations on shared memory that the machine code tries until they succeed are counted as if "
            "they did at once: lanes that want one word take a turn each"
        )
    for number, item in code:
        key = (item.ptx, item.family)
        if item.family in MEMORY and item.ptx in places:
            # Copies of a line share what it did as they share its runs.
            whole = sum(copies[key])
            share = float(runs.runs[number].sum()) / whole if whole else 1 / len(copies[key])
            elected = _uses_one_lane(item, blocks[number], lines.get(item.ptx))
            known = len(widths[key]) == 1 and number not in spinning
            fewer = _share_after_merging(item, whole, max(widths[key]), lines.get(item.ptx))
            share, known = share * fewer, known and fewer in (1, 0.5, 0.25)
            machine.accesses += _accesses(item, places[item.ptx], share, known, elected)
    alike: dict[tuple[int | None, str], list[float]] = defaultdict(list)
    for number, item in code:
        alike[item.ptx, item.opcode].append(float(runs.runs[number].sum()))
    for number in there:
        machine.ran += _list_runs(number, blocks[number], lines, alike, runs)
    machine.notes += _check(machine, every, widths)
    return machine


def _sum_branches(counts: Counts) -> dict[int, PtxBranch]:
    """Return the conditional branches of the PTX by line; branches of one line, as in inlined calls, add up."""
    found: dict[int, PtxBranch] = {}
    for item in counts.instruction_runs():
        if item.splits is None:
            continue
        known = found.setdefault(
            item.line, PtxBranch(0.0 * item.runs, 0.0 * item.runs, 0.0 * item.runs, frozenset(item.tests))
        )
        known.runs = known.runs + item.runs
        known.threads = known.threads + item.threads
        known.splits = known.splits + item.splits
    return found


def _share_after_merging(item: MachineInstruction, runs: float, widest: int, line: Line | None) -> float:
    """Return the share of a line's runs that is left where the assembler merged loads or stores into wider ones.
    ``runs`` are those of all the line's copies.
    """
    if line is None or item.predicate or item.family not in ("LDS", "STS", "LDG", "STG"):
        return 1.0
    asked = float(line.on_runs.sum())
    named = [int(size[2]) * int(size[1] or 1) for name in line.names if (size := _SIZE.search(name))]
    return min(runs / asked, 1.0) if asked and named and max(named) < widest else 1.0


def _uses_one_lane(item: MachineInstruction, block: Sequence[MachineInstruction], line: Line | None) -> bool:
    """Whether the assembler has one lane do an atomic operation for its warp: the instruction is guarded,
    the PTX is not, and the block counts lanes.
    """
    counting = ("VOTE", "VOTEU", "REDUX", "CREDUX", "ELECT")
    guarded = item.predicate and line is not None and not line.guarded
    return bool(guarded) and any(other.family in counting for other in block)


def width_of(item: MachineInstruction) -> int:
    """Return the bits that an instruction moves for each lane."""
    if item.family in ("LDSM", "STSM"):
        return 128
    if item.family in ("ATOMS", "ATOMG", "ATOM", "RED", "REDG"):
        return 64 if ".64" in item.opcode else 128 if ".128" in item.opcode else 32
    return item.bits or 32


def _by_line(counts: Counts) -> dict[int, Line]:
    """Return the counts of each PTX line. Of several instructions of a line the one with most runs counts; copies of
    one instruction, as in inlined calls, add up.
    """
    once: dict[tuple[int, str, int], InstructionRuns] = {}
    for item in counts.instruction_runs():
        once[item.line, item.name, item.block] = item
    by_name: dict[int, dict[str, list[InstructionRuns]]] = defaultdict(lambda: defaultdict(list))
    for (number, name, _), item in once.items():
        by_name[number][name].append(item)
    found: dict[int, Line] = {}
    for number, named in by_name.items():
        most = max(named.values(), key=lambda items: sum(int(item.runs.sum()) for item in items))
        # Where one of them is guarded, it is what the line is for.
        guarded = [items for items in named.values() if any(item.on_runs is not item.runs for item in items)]
        on = guarded[-1] if guarded else most
        found[number] = Line(
            sum((item.runs for item in most), np.zeros(len(counts.rows))),
            sum((item.threads for item in most), np.zeros(len(counts.rows))),
            sum((item.on_runs for item in on), np.zeros(len(counts.rows))),
            sum((item.on_threads for item in on), np.zeros(len(counts.rows))),
            set(named),
            bool(guarded),
        )
    return found


def _accesses(
    item: MachineInstruction, places: Sequence[AccessCounts], part: float, alike: bool, elected: bool
) -> list[MachineAccess]:
    """Return a machine instruction's accesses: a share of those of its PTX line.

    ``elected``: one lane may do it for all; it does where the PTX has all of them at one address.
    """
    op, spaces = MEMORY[item.family]
    bits = width_of(item)
    found = []
    for space in spaces:
        for place in places:
            if not _is_access_of(op, space, place):
                continue
            # An access wider than the machine has is done in parts.
            share = max(1, place.size * 8 // bits) * part
            if elected and _at_one_address(place):
                found.append(_by_one_lane(item, op, space, place, share))
            elif space == "shared":
                found.append(_in_shared(item, op, place, share, alike))
            else:
                found.append(_in_global(item, op, place, share, alike))
    return found


def _in_shared(
    item: MachineInstruction, op: str, place: AccessCounts, share: float, alike: bool
) -> MachineAccess:
    bits = width_of(item)
    bypass, fills = ".BYPASS" in item.opcode, ".ZFILL" in item.opcode
    waves, phases, ideals = shared_figures(place, min(bits // 8, 16), bypass, fills)
    if "POPC.INC" in item.opcode:  # counts lanes of a word at once
        waves = phases = place.sharing
        ideals = np.minimum(waves, ideals)
    nothing = place.sectors * 0.0
    return MachineAccess(
        item, op, "shared", bits, place.shared * share, waves * share, phases * share, ideals * share,
        nothing, nothing, place.threads * (bits // 8) * share, alike, None, None,
        place.distinct * (bits // 8) * share, place.turns * share if op == "ld" else None,
    )  # fmt: skip


def _in_global(
    item: MachineInstruction, op: str, place: AccessCounts, share: float, alike: bool
) -> MachineAccess:
    bits = width_of(item)
    asked = place.asked if op in ("atom", "red") else place.sectors
    least = np.minimum(place.least * max(1.0, bits / 8 / place.size), place.sectors)
    nothing = place.sectors * 0.0
    return MachineAccess(
        item, op, "global", bits, place.outside * share, nothing, nothing, nothing, asked * share, least * share,
        place.threads * (bits // 8) * share, alike, place.sectors * share, place.lines * share,
        place.distinct * (bits // 8) * share, place.turns * share if op == "ld" else None,
    )  # fmt: skip


def _by_one_lane(
    item: MachineInstruction, op: str, space: str, place: AccessCounts, share: float
) -> MachineAccess:
    runs = (place.shared if space == "shared" else place.outside) * share
    nothing, bits = runs * 0.0, width_of(item)
    if space == "shared":
        return MachineAccess(
            item, op, space, bits, runs, runs, runs, runs, nothing, nothing, runs * (bits // 8)
        )
    return MachineAccess(
        item,
        op,
        space,
        bits,
        runs,
        nothing,
        nothing,
        nothing,
        runs,
        runs,
        runs * (bits // 8),
        True,
        runs,
        runs,
    )


def _at_one_address(place: AccessCounts) -> bool:
    """Whether all lanes access one word, in every run."""
    every = place.asked if place.outside.any() else place.waves[max(4, place.size)]
    return place.action == "atomic" and bool((every == place.threads).all())


def shared_figures(
    place: AccessCounts, width: int, bypass: bool, fills: bool
) -> tuple[Figures, Figures, Figures]:
    """Return wavefronts, those without conflicts, and ideal ones, of accesses of ``width`` bytes a lane.

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


def _is_access_of(op: str, space: str, place: AccessCounts) -> bool:
    if op == "ldgsts":
        return place.action == ("fill" if space == "shared" else "copy")
    touched = place.shared if space == "shared" else place.outside
    return place.action == _ACTIONS[op] and (place.space == space or bool(touched.any()))


def _list_runs(
    number: int,
    block: Sequence[MachineInstruction],
    lines: Mapping[int, Line],
    copies: Mapping[tuple[int | None, str], Sequence[float]],
    found: BlockRuns,
) -> list[MachineRuns]:
    """Return the runs and threads of a block's instructions."""
    runs, each = found.runs[number], found.each[number]
    one_by_one = block[-1].opcode.startswith(ONE_BY_ONE)
    ran = []
    for item in block:
        line = lines.get(item.ptx or 0)
        threads = active = runs * each
        if item.never:
            threads = threads * 0  # it is issued all the same
        elif item.predicate and one_by_one:
            # Those whose turn has not come; the last of them does not go around again.
            threads = runs * (each + 1 - 2 * (item is block[-1])) / 2
        elif item.predicate and item.family in ("BRA", "EXIT"):
            threads = runs * (found.jumped.get(number, 0.0) / max(float(runs.sum()), 1.0))
        elif item.predicate and line is not None and not line.guarded and has_slow_path(line):
            threads = threads * 0
        elif item.predicate and line is not None:
            whole = sum(copies[item.ptx, item.opcode])
            share = float(runs.sum()) / whole if whole else 0.0
            # A uniform guard holds for all threads of a warp.
            on = line.on_runs * each if item.predicate.startswith(("@UP", "@!UP")) else line.on_threads
            threads = np.minimum(threads, on * share)
        parted = found.parted.get(number) if item is block[-1] else None
        ran.append(MachineRuns(item, number, runs, active, threads, parted))
    return ran


def _check(
    machine: Machine, places: Sequence[AccessCounts], widths: Mapping[tuple[int | None, str], set[int]]
) -> list[str]:
    """Note where the machine code moves other bytes than the PTX asks for: the assembler may drop accesses."""
    notes = []
    asking = {item.instruction.ptx for item in machine.accesses}
    for space, op, action in (("shared", "ld", "load"), ("shared", "st", "store"), ("global", "ld", "load")):
        here = [item for item in machine.accesses if item.space == space and item.op == op]
        moved = sum(float(item.runs.sum()) * (item.bits // 8) for item in here)
        asked = 0.0
        for place in places:
            if place.action == action and not place.name.startswith(("ldmatrix", "stmatrix")):
                asked += float((place.shared if space == "shared" else place.outside).sum()) * place.size
        if round(moved) != round(asked):
            notes.append(
                f"the PTX asks for {asked * 32:,.0f} bytes of {space} {action}s, the machine code for {moved * 32:,.0f}"
            )
    differ = sorted({ptx or 0 for (ptx, _), sizes in widths.items() if len(sizes) > 1 and ptx in asking})
    if differ:
        notes.append(f"copies of PTX lines {differ} differ in width: what each of them does is an estimate")
    return notes
