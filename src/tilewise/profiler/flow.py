"""How often the basic blocks of machine code ran, told from what the PTX did.

Some instructions are neither moved nor doubled by the assembler: loads and stores, barriers, multiply-adds. A
block that has one of them ran as often as the line of the PTX that it comes from, if there is no other copy of
it. Where a loop was unrolled there are copies in several blocks: the block with most of them takes as many
turns as it can, the next the rest. Of the other blocks it is known that whatever comes in goes out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.toolchain.lines import Instruction

__all__ = ["FIXED", "BlockRuns", "Figures", "Line", "basic_blocks", "block_runs", "reached"]

Figures = npt.NDArray[Any]  # one for each multiprocessor

FIXED = {
    "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDG", "STG", "ATOMG", "RED", "REDG", "LDGSTS", "LD", "ST", "ATOM",
    "BAR", "FFMA", "FADD", "FMUL", "DFMA", "WARPSYNC", "SHFL", "VOTE", "MATCH",
}  # fmt: skip
_JUMP = re.compile(r"`\(([^)]+)\)")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "BRXU", "KILL", "CALL")
_TABLES = ("BRX", "BRXU", "JMX")
_OUT = -1
_FIRM = 100.0  # how much more is made of what comes in going out than of anything else
_LOOSE = 0.01  # how much less of what instructions say that may have been moved


@dataclass(slots=True)
class Line:
    """What a PTX line came to."""

    runs: Figures
    threads: Figures
    on_runs: Figures  # runs in which its guard held for some thread
    on_threads: Figures
    names: set[str] = field(default_factory=set)


@dataclass(slots=True)
class BlockRuns:
    """How often each block ran, and how often its last instruction jumped."""

    runs: dict[int, Figures]
    taken: dict[int, Figures]


def basic_blocks(instructions: Iterable[Instruction]) -> list[list[Instruction]]:
    blocks: list[list[Instruction]] = [[]]
    for item in instructions:
        if item.label and blocks[-1]:
            blocks.append([])
        blocks[-1].append(item)
        if item.family in _ENDS:
            blocks.append([])
    return [block for block in blocks if block]


def _following(blocks: Sequence[Sequence[Instruction]]) -> list[list[int]]:
    """Where each block may go: where it jumps to first, then what stands behind it; _OUT for the end."""
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    found = []
    for number, block in enumerate(blocks):
        last, targets = block[-1], []
        named = [labels[name] for name in _JUMP.findall(last.text) if name in labels]
        if last.family in _TABLES:
            targets = list(range(len(blocks)))  # a table of labels, which are not read here
        elif last.family in ("BRA", "JMP"):
            targets = named
        elif last.family in ("EXIT", "RET", "KILL"):
            targets = [_OUT]
        conditional = last.predicate is not None or (
            last.family in ("BRA",) and "," in last.text.split("`")[0]
        )
        if last.family not in (*_TABLES, "BRA", "JMP", "EXIT", "RET", "KILL") or conditional:
            targets = [*targets, number + 1 if number + 1 < len(blocks) else _OUT]
        found.append(list(dict.fromkeys(targets)))
    return found


def reached(blocks: Sequence[Sequence[Instruction]]) -> list[int]:
    """The blocks that can be reached from the first, in order: what pads the code behind its end cannot."""
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    following = _following(blocks)
    seen, stack = {0}, [0] if blocks else []
    while stack:
        number = stack.pop()
        called = [labels[n] for item in blocks[number] for n in _JUMP.findall(item.text) if n in labels]
        fresh = [n for n in (*following[number], *called) if n not in seen and n != _OUT]
        seen.update(fresh)
        stack += fresh
    return sorted(seen)


def block_runs(
    blocks: Sequence[Sequence[Instruction]], there: Sequence[int], lines: Mapping[int, Line], warps: Figures
) -> BlockRuns:
    """The runs of all blocks that can be reached; ``warps`` is how many warps began the kernel."""
    known = _known(blocks, there, lines, firm=True)
    known.update(_unrolled(blocks, there, lines, known, warps))
    return _balanced(blocks, there, known, _known(blocks, there, lines, firm=False), warps)


def own_runs(item: Instruction, lines: Mapping[int, Line]) -> Figures | None:
    """How often the PTX line of an instruction ran, or what its guard let through where it is not guarded here."""
    line = lines.get(item.ptx or 0)
    if line is None:
        return None
    return line.runs if item.predicate else line.on_runs


def _known(
    blocks: Sequence[Sequence[Instruction]], there: Sequence[int], lines: Mapping[int, Line], firm: bool
) -> dict[int, Figures]:
    """Blocks with an instruction whose copies are all in them: what most of those say.

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
        for item in blocks[number]:
            key = (item.ptx, item.family)
            runs = own_runs(item, lines)
            if runs is None or len(homes[key]) > 1 or (firm and (item.family not in FIXED or item.predicate)):
                continue
            by = counts[key] if firm else 1
            value = float(runs.sum()) / by
            votes[value] += 1
            said[value] = runs / by
        if votes:
            most = max(votes.values())
            found[number] = said[max(value for value, count in votes.items() if count == most)]
    return found


def _unrolled(
    blocks: Sequence[Sequence[Instruction]],
    there: Sequence[int],
    lines: Mapping[int, Line],
    known: Mapping[int, Figures],
    warps: Figures,
) -> dict[int, Figures]:
    """Blocks that share the turns of a loop: those with more copies of a line take what they can."""
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


def _balanced(
    blocks: Sequence[Sequence[Instruction]],
    there: Sequence[int],
    known: Mapping[int, Figures],
    likely: Mapping[int, Figures],
    warps: Figures,
) -> BlockRuns:
    """Runs along every edge, so that what comes into a block goes out, nearest to what is known."""
    following = _following(blocks)
    edges = [(number, target) for number in there for target in following[number]]
    inside = set(there)
    edges = [(a, b) for a, b in edges if b in inside or b == _OUT]
    rows: list[npt.NDArray[Any]] = []
    right: list[Figures] = []
    for number in there:
        out = np.array([float(a == number) for a, _ in edges])
        into = np.array([float(b == number) for _, b in edges])
        start = warps if number == there[0] else warps * 0
        rows.append(_FIRM * (out - into))
        right.append(_FIRM * start)
        if number in known:
            rows.append(out)
            right.append(known[number])
        elif number in likely:
            rows.append(_LOOSE * out)
            right.append(_LOOSE * likely[number])
    shape = {number: _shape(known.get(number, likely.get(number)), warps) for number in there}
    flow = _least_squares(np.array(rows), np.array([float(part.sum()) for part in right]))
    runs: dict[int, Figures] = {}
    taken: dict[int, Figures] = {}
    for number in there:
        going = {b: float(np.round(flow[i])) for i, (a, b) in enumerate(edges) if a == number}
        runs[number] = known[number] if number in known else shape[number] * sum(going.values())
        if following[number] and (first := following[number][0]) in going:
            taken[number] = shape[number] * going[first]
    return BlockRuns(runs, taken)


def _shape(figures: Figures | None, warps: Figures) -> Figures:
    """Which part of it each multiprocessor has."""
    for found in (figures, warps):
        if found is not None and found.any():
            part: Figures = found / found.sum()
            return part
    return warps * 0.0


def _least_squares(matrix: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The x without negative entries for which ``matrix @ x`` is nearest to ``right`` (Lawson and Hanson)."""
    scale = max(float(np.abs(right).max(initial=0)), 1.0)
    square, target = matrix.T @ matrix, matrix.T @ (right / scale)
    count = square.shape[0]
    square = square + 1e-9 * np.eye(count)
    x, free = np.zeros(count), np.zeros(count, bool)
    for _ in range(3 * count + 10):
        slope = target - square @ x
        slope[free] = -np.inf
        best = int(np.argmax(slope)) if count else 0
        if not count or slope[best] <= 1e-10:
            break
        free[best] = True
        while True:
            chosen = np.flatnonzero(free)
            trial = np.linalg.solve(square[np.ix_(chosen, chosen)], target[chosen])
            if (trial > 0).all():
                break
            low = trial <= 0
            step = float(np.min(x[chosen][low] / np.maximum(x[chosen][low] - trial[low], 1e-300)))
            x[chosen] += step * (trial - x[chosen])
            gone = chosen[(x[chosen] <= 1e-12) & low]
            free[gone if gone.size else chosen[low]] = False
            x[~free] = 0
            if not free.any():
                break
        x[free] = trial[: int(free.sum())] if free.any() else 0
    return x * scale
