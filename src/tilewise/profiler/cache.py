"""A model of the caches: what a launch's accesses come to in L2 and in memory, if blocks run as is said here.

The sectors that every block touched are those that it really touched, in the order of its program. What is
modelled is time: blocks start in the order of their numbers, as many at once as the GPU holds, and those in
flight go through their accesses at the same pace, a *slice* after the other. Within a slice a sector comes to
an SM once, and to the L2 from memory once. A cache keeps what was touched last, as much as it holds. Writes go
to the L2 and from there to memory. Real blocks do not keep step, real caches have sets, and requests of
neighbouring SMs may be merged on their way to the L2: figures of this model are labelled "model".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.profiling.accesses import SECTOR_BYTES
from tilewise.emulator.profiling.tracing import BYPASS, WRITE
from tilewise.gpus import Gpu, find
from tilewise.profiler.metrics import Metric

__all__ = ["MODEL", "Trace", "Traffic", "traffic"]

MODEL = "model"
_SLICES = 64  # that the accesses of a wave are cut into
_LEAST_L1 = 24 << 10

Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """Which sectors each block touched, in order. ``lost`` counts what there was no room to write down."""

    blocks: Mapping[int, tuple[Words, npt.NDArray[np.int8]]]
    lost: int = 0

    def footprint(self, blocks: Iterable[int] | None = None, writes: bool = False) -> int:
        """Bytes that some blocks read (or write), each counted once however many of them do."""
        chosen = self.blocks if blocks is None else [block for block in blocks if block in self.blocks]
        parts = [
            sectors[(kinds == WRITE) == writes] for sectors, kinds in (self.blocks[block] for block in chosen)
        ]
        return int(np.unique(np.concatenate(parts)).size) * SECTOR_BYTES if parts else 0

    def waves(self, in_flight: int) -> list[int]:
        """Bytes that the blocks in flight read together, wave by wave."""
        numbers = sorted(self.blocks)
        return [
            self.footprint(numbers[first : first + in_flight]) for first in range(0, len(numbers), in_flight)
        ]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the model makes of a launch, in sectors of 32 bytes."""

    gpu: str
    in_flight: int
    requested: int
    """Sectors that blocks read."""
    l2_read: int
    """Sectors that the L2 was asked for: what the L1 did not have."""
    l2_hits: int
    l2_written: int
    memory_read: int
    memory_written: int
    waves: list[int] = field(default_factory=list)
    """Bytes that the blocks of each wave read together."""

    @property
    def l1_rate(self) -> float:
        return 1 - self.l2_read / self.requested if self.requested else 0.0

    @property
    def l2_rate(self) -> float:
        return self.l2_hits / self.l2_read if self.l2_read else 0.0

    @property
    def bytes_read(self) -> int:
        """From memory."""
        return self.memory_read * SECTOR_BYTES

    @property
    def bytes_written(self) -> int:
        return self.memory_written * SECTOR_BYTES

    def metrics(self) -> list[Metric]:
        figures = {
            "lts__t_sectors_op_read.sum": (self.l2_read, "sector"),
            "lts__t_sectors_op_write.sum": (self.l2_written, "sector"),
            "lts__t_sectors_srcunit_tex.sum": (self.l2_read + self.l2_written, "sector"),
            "lts__t_sector_op_read_hit_rate.pct": (100 * self.l2_rate, "%"),
            "l1tex__t_sector_hit_rate.pct": (100 * self.l1_rate, "%"),
            "l1tex__m_xbar2l1tex_read_bytes.sum": (self.l2_read * SECTOR_BYTES, "byte"),
            "dram__bytes_read.sum": (self.bytes_read, "byte"),
            "dram__bytes_write.sum": (self.bytes_written, "byte"),
        }
        return [Metric(name, float(value), MODEL, unit) for name, (value, unit) in figures.items()]


def traffic(
    trace: Trace,
    gpu: str | Gpu,
    blocks_per_sm: int = 1,
    in_flight: int | None = None,
    shared_bytes: int = 0,
) -> Traffic:
    """Run the model: ``in_flight`` blocks at once, or as many as all SMs hold.

    ``shared_bytes`` are what each SM's memory gives to shared memory; the rest is its L1.
    """
    found = find(gpu)
    most = in_flight or found.sms * blocks_per_sm
    state = _Caches(found, max(found.limits.shared_per_sm - shared_bytes, _LEAST_L1))
    numbers = sorted(trace.blocks)
    for first in range(0, len(numbers), most):
        wave = numbers[first : first + most]
        for part in range(_SLICES):
            state.slice(list(_slices(trace, wave, part, found.sms)))
    return Traffic(
        found.name, most, state.requested, state.l2_read, state.l2_hits, state.l2_written,
        state.memory_read, state.memory_written, trace.waves(most),
    )  # fmt: skip


def _slices(trace: Trace, wave: list[int], part: int, sms: int) -> Iterable[tuple[int, Words, Any]]:
    """Of each block in flight: its SM and what it touches in one slice."""
    for place, block in enumerate(wave):
        sectors, kinds = trace.blocks[block]
        size = len(sectors)
        here = slice(size * part // _SLICES, size * (part + 1) // _SLICES)
        yield place % sms, sectors[here], kinds[here]


class _Caches:
    """Those of every SM, and the L2."""

    def __init__(self, gpu: Gpu, l1_bytes: int) -> None:
        self.l1 = [_Cache(l1_bytes) for _ in range(gpu.sms)]
        self.l2 = _Cache(gpu.l2_bytes)
        self.requested = self.l2_read = self.l2_hits = self.l2_written = 0
        self.memory_read = self.memory_written = 0

    def slice(self, parts: list[tuple[int, Words, Any]]) -> None:
        reads, written = [], []
        by_sm: dict[int, list[Words]] = {}
        for sm, sectors, kinds in parts:
            written.append(sectors[kinds == WRITE])
            passing = sectors[kinds == BYPASS]
            plain = sectors[(kinds != WRITE) & (kinds != BYPASS)]
            self.requested += passing.size + plain.size
            reads.append(passing)
            by_sm.setdefault(sm, []).append(plain)
        for sm, found in by_sm.items():
            wanted = np.unique(np.concatenate(found))
            reads.append(wanted[~self.l1[sm].touch(wanted)])
        asked = np.concatenate(reads) if reads else np.zeros(0, np.int64)
        distinct = np.unique(asked)
        there = self.l2.touch(distinct)
        missing = int((~there).sum())
        self.l2_read += asked.size
        self.l2_hits += asked.size - missing
        self.memory_read += missing
        if written:
            listed = np.concatenate(written)
            once = np.unique(listed)
            self.l2_written += listed.size
            self.memory_written += int((~self.l2.touch(once, dirty=True)).sum())


class _Cache:
    """A cache that keeps the sectors that were touched last, as many as it holds."""

    def __init__(self, size: int) -> None:
        self.size = max(size // SECTOR_BYTES, 1)
        self.known = np.zeros(0, np.int64)  # sorted
        self.stamps = np.zeros(0, np.int64)
        self.dirty = np.zeros(0, bool)
        self.clock = 0

    def touch(self, sectors: Words, dirty: bool = False) -> npt.NDArray[np.bool_]:
        """Whether each of some different sectors is there; all are afterwards.

        With ``dirty``, whether it is there and already has to be written back.
        """
        if not sectors.size:
            return np.zeros(0, bool)
        self.clock += 1
        at = np.searchsorted(self.known, sectors)
        inside = at < self.known.size
        here = np.zeros(sectors.size, bool)
        here[inside] = self.known[at[inside]] == sectors[inside]
        answer = here.copy()
        if dirty:
            answer[here] = self.dirty[at[here]]
            self.dirty[at[here]] = True
        self.stamps[at[here]] = self.clock
        new = sectors[~here]
        if new.size:
            self._add(new, dirty)
        return answer

    def _add(self, new: Words, dirty: bool) -> None:
        known = np.concatenate([self.known, new])
        stamps = np.concatenate([self.stamps, np.full(new.size, self.clock)])
        marks = np.concatenate([self.dirty, np.full(new.size, dirty)])
        if known.size > self.size:
            kept = np.argpartition(-stamps, self.size - 1)[: self.size]
            known, stamps, marks = known[kept], stamps[kept], marks[kept]
        order = np.argsort(known, kind="stable")
        self.known, self.stamps, self.dirty = known[order], stamps[order], marks[order]
