"""A model of the caches: L2 and memory traffic of a launch, if blocks run as assumed below.

The sectors that every block touched are those that it really touched, in the order of its program. What is
modelled is time: blocks start in the order of their numbers, as many at once as the GPU holds, and those in
flight go through their accesses at the same pace, a *slice* after the other. Within a slice a sector comes to
an SM once, and to the L2 from memory once. A cache keeps what was touched last, as much as it holds. Writes go
to the L2 and from there to memory. Bulk copies go past the L1; one for several blocks of a cluster is asked for
once. Real blocks do not keep step, and real caches have sets: figures of this model are labelled "model".

What an H200 does between its SMs and its L2 (``tests/golden/hardware/bulk.json``):

- Requests of the SMs of one GPC for one sector are merged, four at most. Blocks go to GPCs in runs of neighbours,
  clusters to one GPC after the other; which SMs make a GPC differs from chip to chip, here all are of one size. SMs
  that read in step have four of theirs merged; on the ladder it was 1.2 to 3, and here it is two.
- The L2 is in two parts, each with half of the GPCs; what a part lacks it reads from the other, if that is where
  it belongs, as half of all sectors do. That counts as another read, and as another write of what is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.emulator.profiling.accesses import SECTOR_BYTES
from tilewise.emulator.profiling.tracing import BYPASS, PREFETCH, WRITE
from tilewise.gpus import Gpu, find
from tilewise.instruments.metric import Metric

__all__ = ["MODEL", "Trace", "Traffic", "model_traffic"]

MODEL = "model"
_SLICES = 64  # that the accesses of a wave are cut into
_LEAST_L1 = 24 << 10

Words = npt.NDArray[np.int64]


class _MemoryPath(NamedTuple):
    """How a GPU's SMs reach memory."""

    gpcs: int = 1
    merged: int = 1  # requests of a GPC for one sector
    parts: int = 1  # of the L2


_MEMORY_PATHS = {
    (9, 0): _MemoryPath(gpcs=8, merged=2, parts=2)
}  # by compute capability, where it was measured


@dataclass(frozen=True)
class Trace:
    """The sectors that each block touched, in order. ``lost`` counts those for which the log had no room."""

    blocks: Mapping[int, tuple[Words, npt.NDArray[np.int8]]]
    lost: int = 0
    clusters: npt.NDArray[np.int64] | None = None
    """By the number of a block: that of its cluster."""

    def footprint(self, blocks: Iterable[int] | None = None, writes: bool = False) -> int:
        """Return the bytes that some blocks read (or write), counting each once."""
        chosen = self.blocks if blocks is None else [block for block in blocks if block in self.blocks]
        parts = [
            sectors[(kinds == WRITE) == writes] for sectors, kinds in (self.blocks[block] for block in chosen)
        ]
        return int(np.unique(np.concatenate(parts)).size) * SECTOR_BYTES if parts else 0

    def waves(self, in_flight: int) -> list[int]:
        """Return the bytes that each wave of blocks in flight reads together."""
        numbers = sorted(self.blocks)
        return [
            self.footprint(numbers[first : first + in_flight]) for first in range(0, len(numbers), in_flight)
        ]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The model's result for a launch, in sectors of 32 bytes."""

    gpu: str
    in_flight: int
    requested: int
    """Sectors that blocks read."""
    l1_read: int
    """Sectors that came to SMs from the L2: what the L1 did not have."""
    l2_read: int
    """Sectors that the L2 was asked for, some of them for several SMs at once."""
    l2_hits: int
    l2_written: int
    l2_prefetched: int
    l2_across: int
    """Sectors that one part of the L2 read from the other."""
    l2_parts: int
    memory_read: int
    memory_written: int
    waves: list[int] = field(default_factory=list)
    """Bytes that the blocks of each wave read together."""

    @property
    def l1_rate(self) -> float:
        return 1 - self.l1_read / self.requested if self.requested else 0.0

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

    def metrics(self, more: float = 0.0) -> list[Metric]:
        """Return the traffic as metrics; ``more`` sectors reach SMs besides, for clusters or outside a tensor."""
        asked = self.l2_read + self.l2_prefetched + self.l2_written
        written = self.l2_written * (2 * self.l2_parts - 1) / self.l2_parts
        figures = {
            "lts__t_sectors_op_read.sum": (self.l2_read + self.l2_across, "sector"),
            "lts__t_sectors_op_write.sum": (written, "sector"),
            "lts__t_sectors_srcunit_tex.sum": (asked, "sector"),
            "lts__t_sectors_srcunit_tex_op_read.sum": (self.l2_read, "sector"),
            "lts__t_sectors_srcunit_tex_op_write.sum": (self.l2_written, "sector"),
            "lts__t_sector_op_read_hit_rate.pct": (100 * self.l2_rate, "%"),
            "l1tex__t_sector_hit_rate.pct": (100 * self.l1_rate, "%"),
            "l1tex__m_xbar2l1tex_read_sectors.sum": (self.l1_read + more, "sector"),
            "l1tex__m_xbar2l1tex_read_bytes.sum": ((self.l1_read + more) * SECTOR_BYTES, "byte"),
            "dram__bytes_read.sum": (self.bytes_read, "byte"),
            "dram__bytes_write.sum": (self.bytes_written, "byte"),
        }
        return [Metric(name, float(value), MODEL, unit) for name, (value, unit) in figures.items()]


def model_traffic(
    trace: Trace,
    gpu: str | Gpu,
    blocks_per_sm: int = 1,
    in_flight: int | None = None,
    shared_bytes: int = 0,
) -> Traffic:
    """Run the model with ``in_flight`` blocks at once, or as many as all SMs hold.

    ``shared_bytes`` are what each SM's memory gives to shared memory; the rest is its L1.
    """
    found = find(gpu)
    most = in_flight or found.sms * blocks_per_sm
    state = _Caches(found, max(found.limits.shared_per_sm - shared_bytes, _LEAST_L1))
    numbers = sorted(trace.blocks, key=lambda block: (_cluster(trace, block), block))
    for first in range(0, len(numbers), most):
        wave = numbers[first : first + most]
        for part in range(_SLICES):
            state.slice(list(_slices(trace, wave, part, found.sms, state.path.gpcs)))
    return Traffic(
        found.name, most, state.requested, state.l1_read, state.l2_read, state.l2_hits, state.l2_written,
        state.l2_prefetched, state.l2_across // 2, state.path.parts, state.memory_read, state.memory_written,
        trace.waves(most),
    )  # fmt: skip


def _cluster(trace: Trace, block: int) -> int:
    return block if trace.clusters is None else int(trace.clusters[block])


class _Slice(NamedTuple):
    """The sectors that a block in flight touches in one slice, and its SM and GPC."""

    sm: int
    gpc: int
    sectors: Words
    kinds: npt.NDArray[np.int8]


def _slices(trace: Trace, wave: list[int], part: int, sms: int, gpcs: int) -> Iterable[_Slice]:
    for place, block in enumerate(wave):
        sectors, kinds = trace.blocks[block]
        size = len(sectors)
        here = slice(size * part // _SLICES, size * (part + 1) // _SLICES)
        sm = place % sms
        gpc = sm * gpcs // sms if trace.clusters is None else int(trace.clusters[block]) % gpcs
        yield _Slice(sm, gpc, sectors[here], kinds[here])


class _Caches:
    """The L1 of every SM, and the L2."""

    def __init__(self, gpu: Gpu, l1_bytes: int) -> None:
        self.path = _MEMORY_PATHS.get(gpu.capability, _MemoryPath())
        self.l1 = [_Cache(l1_bytes) for _ in range(gpu.sms)]
        self.l2 = _Cache(gpu.l2_bytes)
        self.parts = [_Cache(gpu.l2_bytes // self.path.parts) for _ in range(self.path.parts)]
        self.requested = self.l1_read = self.l2_read = self.l2_hits = self.l2_written = self.l2_prefetched = 0
        self.l2_across = self.memory_read = self.memory_written = 0

    def slice(self, blocks: list[_Slice]) -> None:
        by_sm: dict[tuple[int, int], list[Words]] = {}
        by_gpc: dict[int, list[Words]] = {}
        for block in blocks:
            sectors, kinds = block.sectors, block.kinds
            passing = sectors[kinds == BYPASS]
            plain = sectors[(kinds != WRITE) & (kinds != BYPASS) & (kinds != PREFETCH)]
            self.requested += passing.size + plain.size
            self.l1_read += passing.size
            by_gpc.setdefault(block.gpc, []).append(passing)
            by_sm.setdefault((block.sm, block.gpc), []).append(plain)
        for (sm, gpc), found in by_sm.items():
            wanted = np.unique(np.concatenate(found))
            missing = wanted[~self.l1[sm].touch(wanted)]
            self.l1_read += missing.size
            by_gpc[gpc].append(missing)
        self._read(by_gpc)
        ahead = _concatenate(block.sectors[block.kinds == PREFETCH] for block in blocks)
        self.l2_prefetched += ahead.size
        self.memory_read += int((~self.l2.touch(np.unique(ahead))).sum())
        written = _concatenate(block.sectors[block.kinds == WRITE] for block in blocks)
        self.l2_written += written.size
        self.memory_written += int((~self.l2.touch(np.unique(written), dirty=True)).sum())

    def _read(self, by_gpc: Mapping[int, list[Words]]) -> None:
        """Read the sectors that each GPC's SMs miss from the L2, merging requests for one sector."""
        asked, wanted = 0, []
        by_part: dict[int, list[Words]] = {}
        for gpc, found in by_gpc.items():
            distinct, counts = np.unique(np.concatenate(found), return_counts=True)
            asked += int((-(-counts // self.path.merged)).sum())
            wanted.append(distinct)
            by_part.setdefault(gpc * self.path.parts // self.path.gpcs, []).append(distinct)
        if self.path.parts > 1:
            for part, found in by_part.items():
                once = np.unique(np.concatenate(found))
                self.l2_across += int((~self.parts[part].touch(once)).sum())
        missing = int((~self.l2.touch(np.unique(_concatenate(wanted)))).sum())
        self.l2_read += asked
        self.l2_hits += asked - missing
        self.memory_read += missing


def _concatenate(parts: Iterable[Words]) -> Words:
    listed = list(parts)
    return np.concatenate(listed) if listed else np.zeros(0, np.int64)


class _Cache:
    """A cache that keeps the sectors touched last."""

    def __init__(self, size: int) -> None:
        self.size = max(size // SECTOR_BYTES, 1)
        self.known = np.zeros(0, np.int64)  # sorted
        self.stamps = np.zeros(0, np.int64)
        self.dirty = np.zeros(0, bool)
        self.clock = 0

    def touch(self, sectors: Words, dirty: bool = False) -> npt.NDArray[np.bool_]:
        """Return whether each of some different sectors is cached; cache all of them.

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
            kept = self._newest(stamps)
            known, stamps, marks = known[kept], stamps[kept], marks[kept]
        order = np.argsort(known, kind="stable")
        self.known, self.stamps, self.dirty = known[order], stamps[order], marks[order]

    def _newest(self, stamps: Words) -> npt.NDArray[np.bool_]:
        """Return which ones are kept: those touched last, and of those touched together the first there is room for."""
        # NOTE: a partition's values are the same everywhere, its places depend on NumPy and the CPU.
        dropped = stamps.size - self.size
        oldest = np.partition(stamps, dropped)[dropped]
        kept: npt.NDArray[np.bool_] = stamps > oldest
        together = np.flatnonzero(stamps == oldest)
        kept[together[: self.size - int(kept.sum())]] = True
        return kept
