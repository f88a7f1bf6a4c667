"""Infer how often the slow paths of divisions and roots ran, from the classes of lanes that took them.

A division is a test, a few instructions for the lanes that it lets through, and a call of a routine of the
assembler's own for the others: a *detour*. One that rounds to a side is such a call for all lanes. The emulator
counts which classes of lanes were together in a warp (``profiling/slow_path_counts.py``). What each class does at
the branches of the routine is known (``_ROUTINES``), so a warp can be followed through it: lanes that part at a branch
run what comes one after the other, until a ``BSYNC`` where they wait for each other.

A detour whose routine has other branches than are known here is left to ``flow.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewise.emulator.profiling.counted import SlowPath
from tilewise.instruments.flow import BlockRuns, Line, following_blocks
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["Detour", "add_detours", "find_detours"]

_Blocks = Sequence[Sequence[MachineInstruction]]
_CALLED = re.compile(r"CALL.*`\((\$__internal\w*\$__cuda_sm\d+x?_(\w+))\)")
_BranchPath = str | None  # of a class: what it does at each branch that it comes to, T to jump and F to go on

_RESULTS = ("T", "FT", "FFFT", "FFFF")
_SPECIAL = ("FT", "FFT", "FFFT", "FFFFT", "FFFFFT")
_DIVIDE = (*(f"T{way}" for way in _RESULTS), *(f"FFFFFF{way}" for way in _RESULTS), *_SPECIAL)
_DIVIDE_FLUSHED = ("TT", "TF", "TF", "TF", None, None, None, None, *_SPECIAL)
_INVERT_FLUSHED = ("T", "T", "T", "FF", "FT")
_ROOT, _ROOT_DOWN = ("T", "FT", "FFT", "FFF", "FFF"), ("T", "FT", "FFT", "FFFT", "FFFF")
_SPECIAL_DIRECTED = ("FT", "FFT", "FFFF", "FFFTT", "FFFTFT")
_DIRECTED, _CUT = (
    (*(before + way for before in ("T", "FFFTFFT", "FFFTFFF") for way in results), *_SPECIAL_DIRECTED)
    for results in (_RESULTS, ("T", "FT", "FFF", "FFF"))
)
_DIRECTED_FLUSHED = ("TT", "TF", "TF", "TF", *(None,) * 8, *_SPECIAL_DIRECTED)
# Routines: the kind of operation, and the ways of its classes, in the order of ``CLASSES``; None where there is none of
# a class. Of several, those hold that lead every class to the routine's end.
_ROUTINES: dict[str, tuple[str, tuple[tuple[_BranchPath, ...], ...]]] = {
    "div_rn_noftz_f32_slowpath": ("div.f32", (_DIVIDE,)),
    "div_rn_ftz_f32_slowpath": ("div.ftz.f32", (_DIVIDE_FLUSHED,)),
    "div_rz_f32": ("div.directed.f32", (_CUT,)),
    **{f"div_{way}_f32": ("div.directed.f32", (_DIRECTED,)) for way in ("rd", "ru")},
    **{f"div_{way}_ftz_f32": ("div.directed.ftz.f32", (_DIRECTED_FLUSHED,)) for way in ("rz", "rd", "ru")},
    "div_rn_f64_full": ("div.f64", (("FT", "FFF", "FFT", "TT", "TFT", "TFFT", "TFFF"),)),
    "rcp_rn_f32_slowpath": ("rcp.f32", (("F", "F", "F", "TF", "TT"),)),
    "rcp_rz_f32_slowpath": ("rcp.f32", (("FT", "FF", "FF", "TF", "TT"),)),
    "rcp_rd_f32_slowpath": ("rcp.f32", (("FF", "FF", "FT", "TF", "TT"),)),
    "rcp_ru_f32_slowpath": ("rcp.f32", (("FF", "FF", "FT", "TF", "TT"),)),
    **{f"rcp_{way}_ftz_f32_slowpath": ("rcp.ftz.f32", (_INVERT_FLUSHED,)) for way in ("rn", "rz", "rd", "ru")},
    "dblrcp_rn_slowpath_v3": ("rcp.f64", (("T", "FT", "FFT", "FFF"),)),
    **{f"sqrt_{way}_f32_slowpath": ("sqrt.f32", (_ROOT, _ROOT_DOWN)) for way in ("rn", "rz", "rd", "ru")},
    **{f"sqrt_{way}_ftz_f32_slowpath": ("sqrt.ftz.f32", (_ROOT, _ROOT_DOWN)) for way in ("rn", "rz", "rd", "ru")},
    "dsqrt_rn_f64_mediumpath_v1": (
        "sqrt.f64", (("F", "TT", "TFT", "TFFT", "TFFF"), ("T", "FT", "FFT", "FFFT", "FFFF")),
    ),
    "drsqrt_f64_slowpath_v2": ("rsqrt.f64", (("T", "FT", "FFT", "FFFT", "FFFF"),)),
}  # fmt: skip
_QUICK = 0  # the class of lanes that the test lets through
_FOR_ALL = (
    "div.directed.f32",
    "div.directed.ftz.f32",
)  # kinds that have no test: every lane calls the routine
_LONGEST = 12  # blocks from a test to where lanes meet again


@dataclass(slots=True)
class Detour:
    """The blocks of a division or root that leaves its fast path. Numbers are blocks."""

    kind: str
    line: int  # of the PTX
    call: int
    routine: list[int]
    ways: tuple[_BranchPath, ...]
    test: int  # whose last instruction sends lanes one way or the other; the call where there is none
    # Empty where there is no test: all lanes come back as they went, as the routine lets them meet.
    back: list[int] = field(default_factory=list)  # what runs after the call, up to the quick way
    quick: list[int] = field(default_factory=list)  # the quick way, the place where lanes meet included
    enters: int = 0  # where in ``quick`` lanes come back

    @property
    def tested(self) -> bool:
        return self.test != self.call

    @property
    def slow_blocks(self) -> list[int]:
        """The blocks that only lanes on the slow path run."""
        return [self.call, *self.back, *self.routine] if self.tested else self.routine


@dataclass(slots=True)
class _Steps:
    """What a warp does in a detour: runs of blocks, jumps, and branches that split the warp."""

    runs: dict[int, int] = field(default_factory=dict)
    jumps: dict[int, int] = field(default_factory=dict)
    parted: dict[int, int] = field(default_factory=dict)

    def note(self, kind: dict[int, int], block: int, count: int) -> None:
        kind[block] = kind.get(block, 0) + count


# -- in the machine code --------------------------------------------------------------------------------
def find_detours(blocks: _Blocks, there: Sequence[int]) -> list[Detour]:
    """Return the detours of machine code whose routines are known."""
    following = following_blocks(blocks)
    labels = {item.label: number for number, block in enumerate(blocks) for item in block if item.label}
    before: dict[int, list[int]] = {}
    for number in there:
        for target in following[number]:
            before.setdefault(target, []).append(number)
    found = []
    for number in there:
        last = blocks[number][-1]
        called = _CALLED.search(last.text)
        if called is None or called[2] not in _ROUTINES or last.ptx is None or called[1] not in labels:
            continue
        kind, known = _ROUTINES[called[2]]
        routine = _list_routine(labels[called[1]], following, blocks)
        ways = next((ways for ways in known if _reach_return(ways, routine, following, blocks)), None)
        if ways is None:
            continue
        detour = Detour(kind, last.ptx, number, routine, ways, number)
        if kind in _FOR_ALL or _find_test(detour, before.get(number, []), following, blocks):
            found.append(detour)
    return found


def _find_test(
    detour: Detour, before: Sequence[int], following: Sequence[Sequence[int]], blocks: _Blocks
) -> bool:
    """Set where lanes part before a call and where they meet again; false if that is unclear."""
    if len(before) != 1:
        return False
    others = [target for target in following[before[0]] if target != detour.call]
    around = _find_quick_way(detour.call + 1, others[0], following, blocks) if len(others) == 1 else None
    if around is None:
        return False
    detour.test, (detour.back, detour.quick, detour.enters) = before[0], around
    return True


def _list_routine(start: int, following: Sequence[Sequence[int]], blocks: _Blocks) -> list[int]:
    """Return the blocks of a routine, in order; none if it has a backward jump."""
    seen, stack = {start}, [start]
    while stack:
        number = stack.pop()
        targets = [] if blocks[number][-1].family == "RET" else following[number]
        if any(target <= number for target in targets):
            return []
        stack += [target for target in targets if target not in seen]
        seen.update(targets)
    return sorted(seen)


def _reach_return(
    ways: Iterable[_BranchPath], routine: Sequence[int], following: Sequence[Sequence[int]], blocks: _Blocks
) -> bool:
    """Whether every class of lanes reaches the routine's return by its known branches."""
    if not routine:
        return False
    for way in ways:
        number, rest = routine[0], way
        while rest is not None and blocks[number][-1].family != "RET":
            targets = following[number]
            if len(targets) == 2:
                if not rest:
                    return False
                number, rest = targets[0 if rest[0] == "T" else 1], rest[1:]
            else:
                number = targets[0]
        if rest:
            return False
    return True


def _find_quick_way(
    back: int, quick: int, following: Sequence[Sequence[int]], blocks: _Blocks
) -> tuple[list[int], list[int], int] | None:
    """Return the blocks behind a call, those of the fast path up to the meeting point, and where slow lanes join it."""
    one, number = [quick], quick
    while blocks[number][-1].family != "BSYNC" and len(following[number]) == 1 and len(one) < _LONGEST:
        number = following[number][0]
        one.append(number)
    if blocks[number][-1].family != "BSYNC":
        one = [quick]
    other: list[int] = []
    number = back
    while number not in one:
        if len(following[number]) != 1 or len(other) == _LONGEST:
            return None
        other.append(number)
        number = following[number][0]
    return other, one, one.index(number)


# -- a warp on its way ------------------------------------------------------------------------------------
_Group = frozenset[int]  # of classes: lanes that run together
_Meetings = dict[str, tuple[int, ...]]  # barriers of lanes: which BSSY set them up, and in which group
_BARRIER = re.compile(r"\bB\d+\b")


def _follow(detour: Detour, classes: _Group, following: Sequence[Sequence[int]], blocks: _Blocks) -> _Steps:
    """Return the steps of a warp with lanes of these classes."""
    steps = _Steps()
    slow = classes - {_QUICK}
    groups = _through_routine(detour, slow, following, blocks, steps)
    if not detour.tested:
        return steps
    steps.note(steps.runs, detour.call, 1)
    for number in detour.back:
        steps.note(steps.runs, number, len(groups))
        if blocks[number][-1].family == "BSYNC":
            groups = [slow]
    quick = [_Group({_QUICK})] if _QUICK in classes else []
    meet = blocks[detour.quick[-1]][-1].family == "BSYNC"
    for i, number in enumerate(detour.quick):
        there = quick if i < detour.enters else [*quick, *groups]
        steps.note(steps.runs, number, len(there) if meet else 1)
    steps.note(steps.parted, detour.test, len(quick))
    return steps


def _through_routine(
    detour: Detour, slow: _Group, following: Sequence[Sequence[int]], blocks: _Blocks, steps: _Steps
) -> list[_Group]:
    """Follow lanes through the routine; return the groups in which they leave it.

    Lanes wait at a ``BSYNC`` for those alone that ran its ``BSSY`` together with them.
    """
    waiting: dict[int, list[tuple[_Group, _Meetings]]] = {detour.routine[0]: [(slow, {})]}
    rest = {number: detour.ways[number - 1] or "" for number in slow}
    out: list[_Group] = []
    for number in detour.routine:
        groups = waiting.pop(number, [])
        steps.note(steps.runs, number, len(groups))
        last, targets = blocks[number][-1], following[number]
        meets = {name: (number, item.offset) for item in blocks[number] if (name := _barrier_set_up_by(item))}
        groups = [
            (group, given | {name: (*at, i) for name, at in meets.items()})
            for i, (group, given) in enumerate(groups)
        ]
        if last.family == "RET":
            out += [group for group, _ in groups]
        elif last.family == "BSYNC":
            together: dict[Any, tuple[_Group, _Meetings]] = {}
            for group, given in groups:
                key = given.get(_BARRIER.findall(last.text)[-1])
                together[key] = (group | together.get(key, (_Group(), given))[0], given)
            waiting.setdefault(targets[0], []).extend(together.values())
        elif len(targets) == 2:
            for group, given in groups:
                jump = _Group(one for one in group if rest[one][:1] == "T")
                rest |= {one: rest[one][1:] for one in group}
                for target, part in zip(targets, (jump, group - jump), strict=True):
                    if part:
                        waiting.setdefault(target, []).append((part, given))
                steps.note(steps.jumps, number, int(bool(jump)))
                steps.note(steps.parted, number, int(bool(jump) and jump != group))
        elif groups:
            waiting.setdefault(targets[0], []).extend(groups)
    return out


def _barrier_set_up_by(item: MachineInstruction) -> str:
    """Return the name of the convergence barrier that a BSSY sets up; "" for others."""
    return _BARRIER.findall(item.text)[0] if item.family == "BSSY" else ""


# -- all of them ------------------------------------------------------------------------------------------
def add_detours(
    detours: Sequence[Detour],
    paths: Sequence[SlowPath],
    lines: Mapping[int, Line],
    blocks: _Blocks,
    found: BlockRuns,
) -> None:
    """Add to ``found`` the runs and threads that detours cause.

    ``found`` has the runs as if every lane went the quick way.
    """
    following = following_blocks(blocks)
    nothing = next(iter(found.runs.values())) * 0.0
    threads: dict[int, float] = {}
    for detour in detours:
        for number in detour.slow_blocks:
            found.runs.setdefault(number, nothing)
            found.each.setdefault(number, 0.0)
            threads.setdefault(number, 0.0)
    for detour in detours:
        copies = sum(float(found.runs[other.test].sum()) for other in detours if other.line == detour.line)
        runs, line = float(found.runs[detour.test].sum()), lines.get(detour.line)
        asked = float(line.on_runs.sum()) if line else 0.0
        if copies and asked:
            # Copies of a division share what it did as they share its runs.
            part = runs / copies * min(copies / asked, 1.0)
            for path in paths:
                if (path.line, path.kind) == (detour.line, detour.kind) and path.runs.any():
                    _add_path(detour, path, part, following, blocks, found, threads)
    for number, count in threads.items():
        ran = float(found.runs[number].sum())
        found.each[number] = count / ran if ran else 0.0


def _add_path(
    detour: Detour, path: SlowPath, part: float, following: Sequence[Sequence[int]], blocks: _Blocks,
    found: BlockRuns, threads: dict[int, float],
) -> None:  # fmt: skip
    """Add the runs and threads that the slow warps of one division cause."""
    total, warps = sum(path.sets.values()), path.runs * part
    quick = {*detour.quick}
    before = [float(found.runs[number].sum()) * found.each[number] for number in detour.quick]
    for bits, count in path.sets.items():
        classes = _Group(number for number in range(bits.bit_length()) if bits >> number & 1)
        steps, weight = _follow(detour, classes, following, blocks), count / total
        for number, runs in steps.runs.items():
            found.runs[number] = found.runs[number] + warps * (weight * (runs - (number in quick)))
        for number, runs in steps.parted.items():
            found.parted[number] = found.parted.get(number, warps * 0.0) + warps * (weight * runs)
    lanes = [count * float(warps.sum()) / total for count in path.lanes]
    for number, coming in enumerate(lanes[1:], 1):
        steps = _follow(detour, _Group({number}), following, blocks) if coming else _Steps()
        for block in steps.runs.keys() & threads.keys():
            threads[block] += coming * bool(steps.runs[block])
        for block, jumps in steps.jumps.items():
            found.jumped[block] = found.jumped.get(block, 0.0) + coming * jumps
    slow = sum(lanes[1:])
    if detour.tested:
        more = slow if following[detour.test][0] == detour.call else -slow
        found.jumped[detour.test] = found.jumped.get(detour.test, 0.0) + more
    for i, (number, there) in enumerate(zip(detour.quick, before, strict=True)):
        ran, left = float(found.runs[number].sum()), there - slow * (i < detour.enters)
        found.each[number] = max(left, 0.0) / ran if ran else 0.0
