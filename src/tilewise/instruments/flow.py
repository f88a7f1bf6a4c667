"""Infer how often each basic block of machine code ran from the counts of the PTX.

Some instructions are neither moved nor doubled by the assembler: loads and stores, barriers, multiply-adds. A
block that has one of them ran as often as the line of the PTX that it comes from, if there is no other copy of
it. Where a loop was unrolled there are copies in several blocks: the block with most of them takes as many
turns as it can, the next the rest. What the other instructions of a block say is right more often than not.

All of that makes equations, and so does that whatever comes into a block goes out. They are solved so that few
of them are wrong: what does not fit is not spread over the others. Measured beside an H200, this gives every
instruction of the ladder its runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.toolchain.lines import MachineInstruction

__all__ = [
    "FIXED",
    "ONE_BY_ONE",
    "BlockRuns",
    "Figures",
    "Line",
    "PtxBranch",
    "add_threads",
    "basic_blocks",
    "block_runs",
    "calling_blocks",
    "find_reachable",
    "following_blocks",
    "has_slow_path",
]

Figures = npt.NDArray[Any]  # one for each multiprocessor

FIXED = {
    "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDG", "STG", "ATOMG", "RED", "REDG", "LDGSTS", "LD", "ST", "ATOM",
    "BAR", "FFMA", "FADD", "FMUL", "DFMA", "WARPSYNC", "SHFL", "VOTE", "MATCH",
}  # fmt: skip
_WITH_SLOW_PATHS = ("div.", "rem.", "sqrt.", "rsqrt.", "rcp.", "ex2.", "lg2.", "sin.", "cos.", "tanh.")
_OWN = re.compile(r"CALL.*\$__internal")  # to a routine of the assembler's own
_RARE = re.compile(
    r"CALL.*\$__internal.*(slowpath|mediumpath|div_rn_f64_full)"
)  # which rare operands alone need
ONE_BY_ONE = "BRA.U.ANY"  # the end of a loop over threads
_SINGLE = {"SYNCS", "UBLKCP", "UBLKRED", "UBLKPF", "UTMALDG", "UTMASTG", "UTMAREDG"}
# Put in by the assembler, with the line of whatever stands beside them.
_ADDED = {"BSSY", "BSYNC", "BMOV", "BREAK", "NOP", "YIELD"}
_JUMP = re.compile(r"`\(([^)]+)\)")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "BRXU", "KILL", "CALL")
_TABLES = ("BRX", "BRXU", "JMX")
_PREDICATE = re.compile(r"\bU?P\d\b")
_PREDICATE_ALONE = re.compile(r"\s*(U?P(?:\d|T))\s*")
_OUT = -1
_LANES = 32.0
_FIRM = 30.0  # how much more is made of what comes in going out than of anything else
_SURE = 10.0  # of equations that give the threads of a block for certain
_LOOSE = 0.01  # how much less of what instructions say that may have been moved
_ROUNDS = 10  # of solving
_REFINED = 4
_MOST_TURNS = 40  # it ends before, but for a few kernels of which little is known
_NEAR = 1e-5  # of the largest number: of what is off by more, it matters little by how much


@dataclass(slots=True)
class Line:
    """Counts of a PTX line."""

    runs: Figures
    threads: Figures
    on_runs: Figures  # runs in which its guard held for some thread
    on_threads: Figures
    names: set[str] = field(default_factory=set)
    guarded: bool = False


@dataclass(slots=True)
class PtxBranch:
    """Counts of a PTX branch."""

    runs: Figures
    threads: Figures
    splits: Figures  # runs that sent threads of a warp different ways
    tests: frozenset[int]  # lines that set its condition


@dataclass(slots=True)
class BlockRuns:
    """How often each block ran, and how often its last instruction split a warp."""

    runs: dict[int, Figures] = field(default_factory=dict)
    parted: dict[int, Figures] = field(default_factory=dict)
    each: dict[int, float] = field(default_factory=dict)  # threads of a run
    jumped: dict[int, float] = field(default_factory=dict)  # threads for which the last instruction jumped


def basic_blocks(instructions: Iterable[MachineInstruction]) -> list[list[MachineInstruction]]:
    blocks: list[list[MachineInstruction]] = [[]]
    for item in instructions:
        if item.label and blocks[-1]:
            blocks.append([])
        blocks[-1].append(item)
        if item.family in _ENDS:
            blocks.append([])
    return [block for block in blocks if block]


def following_blocks(blocks: Sequence[Sequence[MachineInstruction]]) -> list[list[int]]:
    """Return each block's successors: jump target first, then the next block; _OUT for the end."""
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    found = []
    for number, block in enumerate(blocks):
        last, targets = block[-1], []
        named = [labels[name] for name in _JUMP.findall(last.text) if name in labels]
        if last.family in _TABLES:
            targets = list(range(len(blocks)))  # a table of labels, which are not read here
        elif last.family in ("BRA", "JMP") or _is_jump(last):
            targets = named
        elif last.family in ("EXIT", "RET", "KILL"):
            targets = [_OUT]
        conditional = last.predicate is not None or (
            last.family in ("BRA",) and "," in last.text.split("`")[0]
        )
        goes_on = last.family not in (*_TABLES, "BRA", "JMP", "EXIT", "RET", "KILL") and not _is_jump(last)
        if goes_on or conditional:
            targets = [*targets, number + 1 if number + 1 < len(blocks) else _OUT]
        found.append(list(dict.fromkeys(targets)))
    return found


def _is_jump(item: MachineInstruction) -> bool:
    """Whether a CALL only jumps within the kernel and never returns."""
    return item.family == "CALL" and "`(.L_" in item.text


def find_reachable(blocks: Sequence[Sequence[MachineInstruction]]) -> list[int]:
    """Return the blocks reachable from the first, in order: padding behind the code is not."""
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    following = following_blocks(blocks)
    seen, stack = {0}, [0] if blocks else []
    while stack:
        number = stack.pop()
        called = [labels[n] for item in blocks[number] for n in _JUMP.findall(item.text) if n in labels]
        fresh = [n for n in (*following[number], *called) if n not in seen and n != _OUT]
        seen.update(fresh)
        stack += fresh
    return sorted(seen)


def block_runs(
    blocks: Sequence[Sequence[MachineInstruction]],
    there: Sequence[int],
    lines: Mapping[int, Line],
    warps: Figures,
    branches: Mapping[int, PtxBranch],
) -> BlockRuns:
    """Infer the runs of all reachable blocks; ``warps`` began the kernel, ``branches`` are the PTX's by line."""
    known = _find_known_runs(blocks, there, lines, firm=True)
    known.update(_share_unrolled_turns(blocks, there, lines, known, warps))
    return _solve_runs(
        blocks, there, known, _find_known_runs(blocks, there, lines, firm=False), warps, branches
    )


def line_runs(item: MachineInstruction, lines: Mapping[int, Line]) -> Figures | None:
    """Return the runs of an instruction's PTX line; those that its guard let through if the instruction has none."""
    line = lines.get(item.ptx or 0)
    if line is None:
        return None
    return line.runs if item.predicate else line.on_runs


def _find_known_runs(
    blocks: Sequence[Sequence[MachineInstruction]],
    there: Sequence[int],
    lines: Mapping[int, Line],
    firm: bool,
) -> dict[int, Figures]:
    """Return the runs of blocks whose instructions have no copies elsewhere, by a vote of the instructions.

    ``firm``: those alone that the assembler leaves where they are.
    """
    homes: dict[tuple[int | None, str], set[int]] = {}
    for number in there:
        for item in blocks[number]:
            homes.setdefault((item.ptx, item.family), set()).add(number)
    found: dict[int, Figures] = {}
    for number in there:
        votes: Counter[float] = Counter()
        said: dict[float, Figures] = {}
        counts = Counter((item.ptx, item.family) for item in blocks[number] if not item.never)
        plain = any(
            not item.predicate and item.family not in _ADDED and len(homes[item.ptx, item.family]) == 1
            for item in blocks[number]
            if item.ptx in lines
        )
        for item in blocks[number]:
            key = (item.ptx, item.family)
            runs = line_runs(item, lines)
            if runs is None or len(homes[key]) > 1 or (firm and not _is_fixed(item, lines)):
                continue
            folded = item.predicate and item.family not in _ENDS  # may be a branch that was not worth a jump
            if not firm and (item.family in _ADDED or (folded and plain)):
                continue
            by = counts[key] if firm else 1
            value = float(runs.sum()) / by
            votes[value] += 1
            said[value] = runs / by
        if (lanes := _loop_turns(blocks[number], lines)) is not None:
            found[number] = lanes
        elif firm and (called := _routine_runs(blocks[number][-1], lines)) is not None:
            found[number] = called
        elif not firm and _RARE.search(blocks[number][-1].text) and lines:
            found[number] = next(iter(lines.values())).runs * 0.0
        elif votes:
            most = max(votes.values())
            found[number] = said[max(value for value, count in votes.items() if count == most)]
    return found


def _routine_runs(item: MachineInstruction, lines: Mapping[int, Line]) -> Figures | None:
    """Return the runs of a call of an assembler's routine that does a whole operation; None for other code."""
    if item.predicate or not _OWN.search(item.text) or _RARE.search(item.text):
        return None
    return line_runs(item, lines)


def _is_fixed(item: MachineInstruction, lines: Mapping[int, Line]) -> bool:
    """Whether the assembler neither moves nor copies an instruction."""
    line = lines[item.ptx or 0]
    several = any(name.startswith("wmma.") for name in line.names)
    return item.family in FIXED and not item.predicate and not has_slow_path(line) and not several


def has_slow_path(line: Line) -> bool:
    """Whether a PTX line becomes many instructions, some of them guarded and for rare operands alone."""
    return any(name.startswith(_WITH_SLOW_PATHS) for name in line.names)


def _loop_turns(block: Sequence[MachineInstruction], lines: Mapping[int, Line]) -> Figures | None:
    """Return the turns of a loop over a warp's threads: one for each, as if no two had equal operands."""
    if not block[-1].opcode.startswith(ONE_BY_ONE):
        return None
    found = [lines[item.ptx or 0] for item in block if item.family in _SINGLE and item.ptx in lines]
    return found[0].threads if found else None


def _share_unrolled_turns(
    blocks: Sequence[Sequence[MachineInstruction]],
    there: Sequence[int],
    lines: Mapping[int, Line],
    known: Mapping[int, Figures],
    warps: Figures,
) -> dict[int, Figures]:
    """Share a loop's turns among its unrolled copies: blocks with more copies of a line take what they can."""
    copies: dict[tuple[int, str], Counter[int]] = {}
    for number in there:
        for item in blocks[number]:
            line = item.ptx or 0
            if item.family in FIXED and not item.predicate and line in lines and number not in known:
                copies.setdefault((line, item.family), Counter())[number] += 1
    found: dict[int, Figures] = {}
    total = float(warps.sum())
    for (line, _), homes in sorted(copies.items()):
        if len(homes) < 2 or not total or any(number in found for number in homes):
            continue
        runs = lines[line].on_runs
        turns = float(runs.sum()) / total  # of one warp
        part = runs / max(float(runs.sum()), 1.0)
        left = turns
        for number, count in sorted(homes.items(), key=lambda pair: (-pair[1], -pair[0])):
            mine = float(int(left / count)) if count > 1 else left
            found[number] = part * (mine * total)
            left -= mine * count
    return found


def _solve_runs(
    blocks: Sequence[Sequence[MachineInstruction]],
    there: Sequence[int],
    known: Mapping[int, Figures],
    likely: Mapping[int, Figures],
    warps: Figures,
    branches: Mapping[int, PtxBranch],
) -> BlockRuns:
    """Solve for the runs along every edge, so that each block's entries equal its exits, closest to known runs."""
    network = _Network(blocks, there, any(item.splits.any() for item in branches.values()))
    equations = network.equations(blocks, there, float(warps.sum()))
    for number in there:
        if number in known:
            equations.add(network.ran[number], float(known[number].sum()), 1.0)
        elif number in likely:
            equations.add(network.ran[number], float(likely[number].sum()), _LOOSE)
    network.add_branches(blocks, branches, equations)
    flow = np.round(equations.solve())
    found = BlockRuns()
    for number in there:
        shape = _share_by_multiprocessor(known.get(number, likely.get(number)), warps)
        total = max(float(network.ran[number] @ flow), 0.0)
        close = number in known and abs(float(known[number].sum()) - total) < 0.5
        found.runs[number] = known[number] if close else shape * total
        if number in network.fork:
            found.parted[number] = shape * float(flow[network.fork[number]])
    return found


def add_threads(
    blocks: Sequence[Sequence[MachineInstruction]],
    there: Sequence[int],
    lines: Mapping[int, Line],
    found: BlockRuns,
    threads: float,
    branches: Mapping[int, PtxBranch],
) -> None:
    """Add to ``found`` how many threads a run of each block has, on average; ``threads`` began the kernel.

    Threads are solved for as runs are, and simpler: as many come to a branch as leave it.
    """
    network = _Network(blocks, there, False)
    equations = network.equations(blocks, there, threads)
    firm = _find_known_runs(blocks, there, lines, firm=True)
    for number in there:
        ran, row = float(found.runs[number].sum()), network.ran[number]
        if not ran:
            equations.add(row, 0.0, _SURE)
            continue
        line, alone = _ptx_branch(blocks[number], branches)
        branch = branches.get(line or 0)
        if branch is not None and alone and abs(float(branch.runs.sum()) - ran) < 0.5:
            equations.add(row, float(branch.threads.sum()), _SURE)
        votes = _vote_threads(blocks[number], lines, ran)
        for value, count in votes.items():
            equations.add(row, value, (1.0 if number in firm else _LOOSE) * count / votes.total())
    flow = np.round(equations.solve())
    for number in there:
        ran = float(found.runs[number].sum())
        found.each[number] = min(float(network.ran[number] @ flow) / ran, _LANES) if ran else 0.0
        if number in network.jump:
            found.jumped[number] = float(flow[network.jump[number]])


def _vote_threads(
    block: Sequence[MachineInstruction], lines: Mapping[int, Line], runs: float
) -> Counter[float]:
    """Return votes for a block's number of threads, one by each instruction's PTX line; from instructions that are
    never moved far, if there are any, else from all.
    """
    votes: tuple[Counter[float], Counter[float]] = Counter(), Counter()
    for item in block:
        line = lines.get(item.ptx or 0)
        if line is None or item.never or item.family in _ADDED:
            continue
        asked, on = (line.runs, line.threads) if item.predicate else (line.on_runs, line.on_threads)
        if float(asked.sum()) > 0.99 * runs:
            votes[_is_fixed(item, lines)][runs * float(on.sum() / asked.sum())] += 1
    return votes[True] or votes[False]


class _Network:
    """The unknowns: runs along every edge. Where warps split, a branch may have more exits than entries, and the
    point where they meet fewer: one more unknown for each of those.

        How often a block ran, and how often it was come to, are sums of these.
    """

    def __init__(
        self, blocks: Sequence[Sequence[MachineInstruction]], there: Sequence[int], diverged: bool
    ) -> None:
        following = following_blocks(blocks)
        inside = {*there, _OUT}
        edges = [(number, target) for number in there for target in following[number] if target in inside]
        ways = {number: sum(target in inside for target in following[number]) for number in there}
        forks = [number for number in there if diverged and ways[number] > 1]
        meets = [number for number in there if diverged and blocks[number][-1].family == "BSYNC"]
        self.size = len(edges) + len(forks) + len(meets)
        self.fork = {number: len(edges) + i for i, number in enumerate(forks)}
        self.meet = {number: len(edges) + len(forks) + i for i, number in enumerate(meets)}
        self.jump = {edge[0]: i for i, edge in enumerate(edges) if edge[1] == following[edge[0]][0]}
        self.ran = {number: np.zeros(self.size) for number in there}
        self.came = {number: np.zeros(self.size) for number in there}
        for i, (start, end) in enumerate(edges):
            self.ran[start][i] += 1
            if end != _OUT:
                self.came[end][i] += 1
        for number, i in self.fork.items():
            self.ran[number][i] = -1
        for number, i in self.meet.items():
            self.ran[number][i] = 1

    def equations(
        self, blocks: Sequence[Sequence[MachineInstruction]], there: Sequence[int], begun: float
    ) -> _Equations:
        """Return the equations of the flow: each block's entries equal its exits, ``begun`` enter the first."""
        found, calls = _Equations(self.size), calling_blocks(blocks, there)
        for number in there:
            called = sum((self.ran[caller] for caller in calls.get(number, ())), np.zeros(self.size))
            row = self.ran[number] - self.came[number] - called
            found.add(row, begun if number == there[0] else 0.0, _FIRM)
        return found

    def add_branches(
        self,
        blocks: Sequence[Sequence[MachineInstruction]],
        branches: Mapping[int, PtxBranch],
        equations: _Equations,
    ) -> None:
        """Add what the PTX's branches say of splits: they may stand under another line, or not be a jump."""
        unit = np.eye(self.size)
        lines = {number: _ptx_branch(blocks[number], branches)[0] for number in self.fork}
        rest = sum(float(item.splits.sum()) for line, item in branches.items() if line not in lines.values())
        unsure = [i for number, i in self.fork.items() if lines[number] is None]
        for number, i in self.fork.items():
            item = branches.get(lines[number] or 0)
            equations.add(unit[i], 0.0 if item is None else float(item.splits.sum()), _LOOSE / 10)
        for i in self.meet.values():
            equations.add(unit[i], 0.0, _LOOSE / 100)
        if unsure and rest > 0:
            equations.add(unit[unsure].sum(axis=0), rest, _LOOSE / 5)


def _ptx_branch(
    block: Sequence[MachineInstruction], branches: Mapping[int, PtxBranch]
) -> tuple[int | None, bool]:
    """Return the line of the PTX branch that ends a block, and whether nothing else is in its condition."""
    if block[-1].family not in ("BRA", "EXIT"):
        return None, False
    own, tests = block[-1].ptx or 0, _condition_lines(block)
    found = [own] if own in branches else [n for n, item in branches.items() if item.tests & {*tests}]
    if len(found) != 1:
        return None, False
    return found[0], 0 < len(tests) <= len(branches[found[0]].tests) and {*tests} <= branches[found[0]].tests


def _condition_lines(block: Sequence[MachineInstruction]) -> list[int]:
    """Return the PTX lines of the instructions that set the condition of a block's last one."""
    wanted, lines = {*_PREDICATE.findall(block[-1].text)}, []
    for item in reversed(block[:-1]):
        written = _predicates_written(item)
        if written & wanted:
            lines.append(item.ptx or 0)
            wanted = (wanted if item.predicate else wanted - written) | _predicates_read(item)
    return lines


def _predicates_written(item: MachineInstruction) -> set[str]:
    """Return the predicates that an instruction writes: two at most, before or behind its first register."""
    operands = item.text.partition(item.opcode)[2].split(",")[:3]
    if not _PREDICATE_ALONE.fullmatch(operands[0]):
        operands = operands[1:]
    found: set[str] = set()
    for operand in operands[:2]:
        if not (name := _PREDICATE_ALONE.fullmatch(operand)):
            break
        found.add(name[1])
    return found


def _predicates_read(item: MachineInstruction) -> set[str]:
    operands = item.text.partition(item.opcode)[2].split(",")
    return {*_PREDICATE.findall(f"{item.predicate or ''} {' '.join(operands[2:])}")}


def calling_blocks(
    blocks: Sequence[Sequence[MachineInstruction]], there: Sequence[int]
) -> dict[int, list[int]]:
    """Map the first block of each routine to the blocks that call it."""
    labels = {item.label: number for number in there for item in blocks[number] if item.label}
    found: dict[int, list[int]] = {}
    for number in there:
        last = blocks[number][-1]
        if last.family == "CALL" and not _is_jump(last):
            for name in _JUMP.findall(last.text):
                if name in labels:
                    found.setdefault(labels[name], []).append(number)
    return found


class _Equations:
    """Weighted linear equations, of which some may be wrong."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: list[npt.NDArray[Any]] = []
        self._right: list[float] = []
        self._weights: list[float] = []

    def add(self, row: npt.NDArray[Any], right: float, weight: float) -> None:
        self._rows.append(row)
        self._right.append(right)
        self._weights.append(weight)

    def solve(self) -> npt.NDArray[Any]:
        """Return a solution without negative entries that breaks few equations: each round gives less weight
        to equations that are far from holding, so that one wrong estimate does not pull at others.
        """
        rows, right, weights = np.array(self._rows), np.array(self._right), np.array(self._weights)
        scale = max(float(np.abs(right).max(initial=0)), 1.0)
        soft = weights < _FIRM
        factors = np.ones(len(weights))
        found, free = np.zeros(self._count), np.ones(self._count, bool)
        for _ in range(_ROUNDS):
            by = weights * factors
            last, found = found, _least_squares(rows * by[:, None], right * by, free)
            wrong = np.abs(rows @ found - right)[soft] / scale
            if wrong.max(initial=0) < _NEAR or np.abs(found - last).max(initial=0) < 0.01:
                break
            factors[soft] = 1 / np.sqrt(1 + wrong / _NEAR)
        return found


def _share_by_multiprocessor(figures: Figures | None, warps: Figures) -> Figures:
    """Return each multiprocessor's share of some figures."""
    for found in (figures, warps):
        if found is not None and found.any():
            part: Figures = found / found.sum()
            return part
    return warps * 0.0


def _least_squares(
    matrix: npt.NDArray[Any], right: npt.NDArray[Any], free: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the x without negative entries for which ``matrix @ x`` is nearest to ``right``.

    By changing sides: entries that are negative are held at zero, those held that would grow are let go, all at
    once as long as that leaves fewer of them, else the worst of them alone. ``free`` are those to begin with, and
    those at the end.
    """
    scale = max(float(np.abs(right).max(initial=0)), 1.0)
    count = matrix.shape[1]
    # What nothing is known of is as small as it can be.
    matrix = np.vstack([matrix, 1e-6 * np.eye(count)])
    right = np.concatenate([right / scale, np.zeros(count)])
    square = matrix.T @ matrix
    fewest, chances = count + 1, 3
    x = np.zeros(count)
    for _ in range(_MOST_TURNS):
        x = np.zeros(count)
        chosen = np.flatnonzero(free)
        if chosen.size:
            try:
                inverse = np.linalg.inv(square[np.ix_(chosen, chosen)])
            except np.linalg.LinAlgError:  # some of them cannot be distinguished
                inverse = np.linalg.pinv(square[np.ix_(chosen, chosen)])
            for _ in range(_REFINED):  # for squares of small weights beside large ones are not precise
                x[chosen] += inverse @ (matrix[:, chosen].T @ (right - matrix @ x))
        slope = matrix.T @ (matrix @ x - right)
        wrong = np.flatnonzero((free & (x < -1e-10)) | (~free & (slope < -1e-12)))
        if not wrong.size:
            break
        if wrong.size < fewest:
            fewest, chances = wrong.size, 3
        elif chances:
            chances -= 1
        else:
            by = np.where(free, -x, -slope)[wrong]
            wrong = wrong[[int(np.argmax(by))]]
        free[wrong] = ~free[wrong]
    return np.maximum(x, 0) * scale
