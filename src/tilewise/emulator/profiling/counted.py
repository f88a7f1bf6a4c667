"""The counts of a launch, read back: by access, block of the flow and multiprocessor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.build import Build
from tilewise.emulator.llvm.emit import LANES
from tilewise.emulator.lowering.watch import Memories
from tilewise.emulator.profiling.accesses import Kind, LaneAccess
from tilewise.emulator.profiling.copies import CopyFigure
from tilewise.emulator.profiling.counting import BLOCK_COUNTS
from tilewise.emulator.profiling.slow_path_counts import CLASSES, TABLE
from tilewise.emulator.profiling.support import FIGURES, OF_WIDTH, WAY, WAYS, WIDTHS, Figure
from tilewise.emulator.ptx.library import LIBRARY_LINE

__all__ = ["AccessCounts", "CopyCounts", "Counters", "Counts", "InstructionRuns", "SlowPath", "WgmmaRuns"]

LaneAddresses = tuple[int | None, ...]  # None for a lane that did not run
Figures = npt.NDArray[np.int64]  # one for each multiprocessor


class Counters(Memories):
    """Memory for the counts of one launch, on a GPU of so many multiprocessors."""

    def __init__(self, build: Build, multiprocessors: int) -> None:
        self.build, self.multiprocessors = build, multiprocessors
        self.about: dict[str, Any] = build.notes[0]
        self._row = -(-self.about["row"] // 64) * 64
        self._ways = self.about["ways"]
        self._launch = np.array([multiprocessors, self._row], np.int64)
        self.launch = int(self._launch.ctypes.data)
        self._workers: list[npt.NDArray[np.uint8]] = []

    def worker(self) -> int:
        """Allocate a worker's zeroed memory, cached patterns first, then the rows; return its address."""
        raw = np.zeros(self._ways + self._row * self.multiprocessors + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self._workers.append(raw[start : raw.size - 64 + start])
        return int(self._workers[-1].ctypes.data)

    def counts(self) -> Counts:
        """Return the sum of all workers' counts."""
        total = np.zeros((self.multiprocessors, self._row // 8), np.int64)
        for memory in self._workers:
            total += memory[self._ways :].view(np.int64).reshape(self.multiprocessors, -1)
        return Counts(self.about, total, [memory[: self._ways] for memory in self._workers])


@dataclass(frozen=True, slots=True)
class InstructionRuns:
    """Runs of one PTX instruction: how often warps ran it, and for how many threads."""

    line: int
    name: str
    block: int
    runs: Figures
    threads: Figures
    on_runs: Figures  # runs in which its guard held for some thread; without a guard, all
    on_threads: Figures
    splits: Figures | None = None  # of a branch: runs in which some threads went another way than others
    tests: tuple[int, ...] = ()  # of a branch: the lines that set its condition


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Counts of the memory accesses of one PTX instruction."""

    line: int
    name: str
    action: str  # "load", "store", "atomic", "copy", "fill"
    space: str  # "shared", "global", "generic"
    size: int  # bytes of a lane
    runs: Figures
    threads: Figures
    shared: Figures  # runs that touched shared memory
    outside: Figures  # runs that touched global memory
    waves: Mapping[int, Figures]  # wavefronts, if the access had so many bytes a lane at these addresses
    phases: Mapping[int, Figures]  # wavefronts without conflicts
    ideals: Mapping[int, Figures]  # wavefronts of as many bytes side by side
    sectors: Figures  # that were touched
    least: Figures  # that as many bytes side by side would take, and no more than were touched
    asked: Figures  # that an atomic access asks for
    lines: Figures
    sharing: Figures  # wavefronts of an atomic access in which lanes share words
    distinct: Figures  # addresses that are different, within each run
    turns: Figures  # of the L1 and shared memory, if it is a load
    seen: LaneAddresses | None = None  # as an example
    passes: Figures | None = None  # of a copy: wavefronts if it goes past the L1
    fills: bool = False  # whether a copy may read less than it writes


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """Figures of one bulk copy of the PTX. ``kind`` is a key of ``COPY_VERBS``."""

    line: int
    name: str
    kind: str
    tensor: bool
    figures: Mapping[CopyFigure, Figures]

    def __getitem__(self, what: CopyFigure) -> Figures:
        return self.figures[what]


@dataclass(frozen=True, slots=True)
class WgmmaRuns:
    """Runs of a ``wgmma`` by warps, and the bytes of shared memory that four of them read together."""

    line: int
    runs: Figures
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class SlowPath:
    """The warps of a division or root in which some lane took the slow path.

    Classes of lanes are numbered as in ``slow_path_counts.CLASSES``; a set of them is a number with those bits.
    """

    line: int
    kind: str
    runs: Figures  # such warps
    sets: Mapping[int, int]  # of classes: how many warps had lanes of those and no others
    lanes: Sequence[int]  # by class, in those warps


@dataclass(slots=True)
class Counts:
    """All counts of a launch. Rows are multiprocessors."""

    about: dict[str, Any]
    rows: Figures
    ways: Sequence[npt.NDArray[np.uint8]] = field(repr=False)

    @property
    def _blocks(self) -> int:
        return len(self.about["blocks"])

    def _word(self, offset: int) -> Figures:
        return self.rows[:, offset // 8]

    def _block(self, build: int, index: int, count: int) -> Figures:
        return self._word((build * self._blocks + index) * BLOCK_COUNTS + 8 * count)

    def block_runs(self, index: int) -> Figures:
        """Return how often warps ran a block of the flow."""
        return self._block(0, index, 0) + self._block(1, index, 0)

    def block_threads(self, index: int) -> Figures:
        return self._fast_threads(index) + self._block(1, index, 1)

    def _fast_threads(self, index: int) -> Figures:
        whole = self.about["blocks"][index]["whole"]
        return LANES * self._block(0, index, 0) if whole else self._block(0, index, 1)

    def instruction_runs(self) -> list[InstructionRuns]:
        """List every instruction of the user's PTX, in the order of the flow, with its runs."""
        found = []
        for index, block in enumerate(self.about["blocks"]):
            runs, threads = self.block_runs(index), self.block_threads(index)
            for line, name, guard, _ in block["items"]:
                if line == LIBRARY_LINE:
                    continue
                on_runs, on_threads = runs, threads
                if guard >= 0:
                    at = self.about["guarded"] + 16 * guard
                    on_runs, on_threads = self._word(at), self._word(at + 8)
                found.append(InstructionRuns(line, name, index, runs, threads, on_runs, on_threads))
            line, name = block["end"] or (LIBRARY_LINE, "")
            # A block's last instruction may be one that is no branch, and that a guard skips.
            ends = block["kind"] != "branch" or name.split(".")[0] in ("bra", "ret", "exit", "brx")
            if ends and line != LIBRARY_LINE:
                known, tests = block["tests"] is not None, tuple(block["tests"] or ())
                splits = self._block(0, index, 2) + self._block(1, index, 2) if known else None
                found.append(InstructionRuns(line, name, index, runs, threads, runs, threads, splits, tests))
        return found

    def places(self) -> list[AccessCounts]:
        """List the access counts of every instruction, by shared and global memory."""
        return [
            self._place(number, about)
            for number, about in enumerate(self.about["points"])
            if about and about["action"] != "bulk" and about["line"] != LIBRARY_LINE
        ]

    @property
    def has_library_calls(self) -> bool:
        """Whether ``malloc`` or ``free`` ran: their instructions are not counted."""
        return any(
            item[0] == LIBRARY_LINE and self.block_runs(index).any()
            for index, block in enumerate(self.about["blocks"])
            for item in block["items"]
        )

    def copies(self) -> list[CopyCounts]:
        """List the figures of every bulk and tensor copy."""
        found = []
        for number, about in enumerate(self.about["points"]):
            if about and about["action"] == "bulk":
                at = self._figures_at(number)
                figures = {item: self._word(at + 8 * item).copy() for item in CopyFigure}
                tensor = bool(figures[CopyFigure.TENSORS].any())
                found.append(CopyCounts(about["line"], about["name"], about["way"], tensor, figures))
        return found

    def products(self) -> list[WgmmaRuns]:
        """List the runs of every ``wgmma``."""
        return [WgmmaRuns(line, self.block_runs(index), size) for index, line, size in self.about["products"]]

    def slow_paths(self) -> list[SlowPath]:
        """List the instructions that have a slow path, with the warps that took it."""
        found = []
        for number, (line, kind) in enumerate(self.about["divisions"]):
            at = self.about["tables"] + TABLE.SIZE * number
            tables = [memory[at : at + TABLE.SIZE].view(np.int64) for memory in self.ways]
            lanes = sum((table[: len(CLASSES[kind]) + 1] for table in tables), np.zeros(1, np.int64))
            sets: dict[int, int] = {}
            for table in tables:
                for one, many in table[TABLE.SETS // 8 :].reshape(-1, 2).tolist():
                    if many:
                        sets[one] = sets.get(one, 0) + many
            runs = self._word(self.about["slow"] + 8 * number)
            found.append(SlowPath(line, kind, runs, sets, lanes.tolist()))
        return found

    def _figures_at(self, number: int) -> int:
        """Return where the figures of an access are."""
        return int(self.about["figures"]) + 8 * FIGURES * number

    def _place(self, number: int, about: dict[str, Any]) -> AccessCounts:
        at = self._figures_at(number)
        figure = {item: self._word(at + 8 * item).copy() for item in Figure}
        size = about["size"]
        widths = {width: i for i, width in enumerate(WIDTHS) if width >= size}
        waves = {width: self._word(at + 8 * (Figure.WAVES + i)).copy() for width, i in widths.items()}
        ideals = {width: figure[Figure.SHARED].copy() for width in widths}
        stages = {width: figure[Figure.SHARED].copy() for width in widths}
        for width in ideals.keys() & OF_WIDTH:
            ideals[width], stages[width] = (figure[item].copy() for item in OF_WIDTH[width])
        kind = Kind(about["kind"])
        for base, runs, threads in self._static(about):
            lanes = [base + lane if i < about["rows"] else None for i, lane in enumerate(about["lanes"])]
            access = LaneAccess(lanes, size, kind)
            figure[Figure.RUNS] += runs
            figure[Figure.THREADS] += threads
            figure[Figure.DISTINCT] += runs * len(set(access.running))
            figure[Figure.TURNS] += runs * access.turns(cached=about["space"] != "shared")
            if about["space"] == "shared":
                figure[Figure.SHARED] += runs
                figure[Figure.SHARING] += runs * LaneAccess(lanes, size, Kind.STORE).wavefronts()
                for width in waves:
                    # An access that is wider than these begins where it has to; all its lanes move alike.
                    whole = lanes if width == size else [None if a is None else a - base for a in lanes]
                    wide = LaneAccess(whole, width, kind)
                    waves[width] += runs * wide.wavefronts()
                    ideals[width] += runs * wide.ideal()
                    stages[width] += runs * wide.phases()
            else:
                figure[Figure.GLOBAL] += runs
                figure[Figure.SECTORS] += runs * access.sectors()
                figure[Figure.LINES] += runs * access.lines()
                figure[Figure.LEAST] += runs * access.least_sectors()
                # All lanes at one address: as many as run, where others do not.
                alone = len(set(about["lanes"])) == 1
                figure[Figure.ASKED] += threads if alone else runs * access.atomic_sectors()
        return AccessCounts(
            about["line"], about["name"], about["action"], about["space"], size,
            figure[Figure.RUNS], figure[Figure.THREADS], figure[Figure.SHARED], figure[Figure.GLOBAL],
            waves, stages, ideals, figure[Figure.SECTORS], figure[Figure.LEAST], figure[Figure.ASKED],
            figure[Figure.LINES], figure[Figure.SHARING], figure[Figure.DISTINCT], figure[Figure.TURNS],
            self._sample(number, about),
            figure[Figure.PASSES], about.get("fills", False),
        )  # fmt: skip

    def _static(self, about: dict[str, Any]) -> list[tuple[int, Figures, Figures]]:
        """Of an access with known distances between its lanes: its lowest address within a word or a
        cache line, how often it was there, and the threads of those runs."""
        if "lanes" not in about:
            return []
        if "implied" in about:
            index = about["block"]
            runs, threads = self._block(0, index, 0).copy(), self._fast_threads(index).copy()
            for place, block, position in self.about["handed"]:
                if block == index and position <= about["implied"]:
                    at = 2 * self._blocks * BLOCK_COUNTS + 16 * place
                    runs -= self._word(at)
                    threads -= self._word(at + 8)
            return [(0, runs, threads)]
        counted = [self._word(about["at"] + 8 * i) for i in range(about["classes"])]
        return [(i * about["step"], runs, about["rows"] * runs) for i, runs in enumerate(counted)]

    def _sample(self, number: int, about: dict[str, Any]) -> LaneAddresses | None:
        """Return the lanes' addresses of one access, as an example; None if none was seen."""
        for memory in self.ways:
            ways = memory[number * WAYS * WAY.SIZE : (number + 1) * WAYS * WAY.SIZE].reshape(WAYS, WAY.SIZE)
            for way in ways:
                for where, running, steps in (
                    (WAY.KNOWN, WAY.KNOWN + 8, about.get("lanes", ())),
                    (WAY.BASE, WAY.MASK, way[: 8 * LANES].view(np.int64)),
                ):
                    base, mask = int(way[where:].view(np.int64)[0]), int(way[running:].view(np.uint32)[0])
                    if mask:
                        mask &= (1 << about["rows"]) - 1
                        return tuple(base + int(k) if mask >> i & 1 else None for i, k in enumerate(steps))
        return None
