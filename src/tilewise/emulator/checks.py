"""A checked launch: memory for what it knows, and its findings read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewise.emulator.check_layout import (
    BARRIERS_OF_BLOCK,
    CELL,
    CHECK,
    CLOCKS,
    COPIES,
    COPY,
    FINDING,
    RANGE,
    SEVERAL,
    SPOT_KEY,
    SPOTS,
    Kind,
)
from tilewise.emulator.layout import BLOCK, Space
from tilewise.emulator.plain_memory import Memory
from tilewise.emulator.report import Range
from tilewise.errors import DeviceError
from tilewise.launch import Launch

__all__ = ["Checks", "Hit", "Side"]

_CAPACITY = 1_024  # findings that are told apart
_LANE_BITS = 6
_MOST_CELLS = 1 << 33  # bytes
_WIDEST = 1 << 15  # warps of a grid for which clocks are kept


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two accesses of a finding."""

    line: int  # of the PTX; 0 if there was no access
    block: tuple[int, int, int]
    thread: int | None  # linear; None for several of the warp
    warp: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One finding as compiled code records it."""

    kind: Kind
    space: Space
    address: int
    count: int
    now: Side
    before: Side | None


class Checks:
    """Memory that one checked launch writes down in; serves as its ``Memories``."""

    def __init__(
        self, launch: Launch, warps: int, ranges: Sequence[Range], unset: set[int], talks: bool
    ) -> None:
        x, y, z = launch.cluster or (1, 1, 1)
        self.blocks, self.warps_of_block, self._launch = x * y * z, warps, launch
        every = launch.blocks * warps
        self.talks = talks and every <= _WIDEST
        self.width = every if self.talks else self.blocks * warps
        self.findings = Memory(_CAPACITY * FINDING.SIZE)
        self.spots = Memory(SPOTS * (SPOT_KEY + 4 * self.width))
        self.table = Memory(RANGE.SIZE * len(ranges) + 64)
        self._cells = [self._known(item, item.start in unset) for item in ranges]
        for i, (item, cells) in enumerate(zip(ranges, self._cells, strict=True)):
            self.table.set(i * RANGE.SIZE + RANGE.FIRST, item.start)
            self.table.set(i * RANGE.SIZE + RANGE.END, item.start + item.size)
            self.table.set(i * RANGE.SIZE + RANGE.CELLS, cells.__array_interface__["data"][0])
        self.state = Memory(CHECK.SIZE)
        for offset, value in (
            (CHECK.FINDINGS, self.findings.address),
            (CHECK.CAPACITY, _CAPACITY),
            (CHECK.RANGES, self.table.address),
            (CHECK.RANGE_COUNT, len(ranges)),
            (CHECK.NOW, 1),
            (CHECK.WIDTH, self.width),
            (CHECK.TALKS, int(self.talks)),
            (CHECK.SPOTS, self.spots.address),
        ):
            self.state.set(offset, value)

    @staticmethod
    def _known(item: Range, unset: bool) -> npt.NDArray[np.uint32]:
        """What is known of an array: nothing but whether somebody has written it."""
        words = (item.start + item.size + 3 >> 2) - (item.start >> 2)
        if words * CELL.SIZE > _MOST_CELLS:
            raise DeviceError(
                f"{item.name} is too large to be checked: its {item.size:,} bytes want 12 times as much"
            )
        cells = np.zeros((words, CELL.SIZE // 4), np.uint32)
        if unset:
            cells[:, CELL.UNSET // 4] = 15
        return cells

    # -- Memories -------------------------------------------------------------------------------
    @property
    def launch(self) -> int:
        return self.state.address

    def worker(self, number: int) -> int:
        return 0

    def attach(self, memory: Memory, stride: int, shared_bytes: int) -> list[Memory]:
        """Room for one resident cluster; it must live as long as the cluster does."""
        warps = self.blocks * self.warps_of_block
        barriers = self.blocks * BARRIERS_OF_BLOCK
        sizes = (
            (CLOCKS.WARPS, warps * self.width * 4),
            (CLOCKS.SYNCED, warps * 4),
            (CLOCKS.FENCED, warps * 4),
            (CLOCKS.BARRIERS, barriers * 2 * self.width * 4),
            (CLOCKS.PHASES, barriers * 4),
            (CLOCKS.SPOTS, SPOTS * (SPOT_KEY + 4 * self.width)),
            (CLOCKS.CAME, warps * (BARRIERS_OF_BLOCK + 1) * 4),
            (CLOCKS.GROUPS, warps * 128),
            (CLOCKS.COPIES, COPIES * COPY.SIZE),
        )
        total = sum(-(-size // 8) * 8 for _, size in sizes)
        clocks, head = Memory(total + 64), Memory(CLOCKS.SIZE)
        at = clocks.address
        for offset, size in sizes:
            head.set(offset, at)
            at += -(-size // 8) * 8
        head.set(CLOCKS.BYTES, total)
        room = -(-shared_bytes // 4) * CELL.SIZE
        cells = Memory(self.blocks * room + 64)
        for rank in range(self.blocks):
            memory.set(rank * stride + BLOCK.CELLS, cells.address + rank * room)
            memory.set(rank * stride + BLOCK.CLOCKS, head.address)
        return [clocks, head, cells]

    # -- findings -------------------------------------------------------------------------------
    def hits(self) -> list[Hit]:
        """What was found, in the order in which it was."""
        found = []
        get = self.findings.get
        for i in range(self.state.get(CHECK.COUNT, 8)):
            at = i * FINDING.SIZE
            line, other = get(at + FINDING.LINE), get(at + FINDING.OTHER_LINE)
            before = self._side(get(at + FINDING.OTHER), other) if other else None
            hit = Hit(
                Kind(get(at + FINDING.KIND)),
                Space(get(at + FINDING.SPACE)),
                get(at + FINDING.ADDRESS, 8),
                get(at + FINDING.COUNT, 8),
                self._side(get(at + FINDING.WHO), line),
                before,
            )
            found.append(hit)
        return found

    def _side(self, who: int, line: int) -> Side:
        lane, serial = who & ((1 << _LANE_BITS) - 1), who >> _LANE_BITS
        block, warp = divmod(serial, self.warps_of_block)
        thread = None if lane >= SEVERAL else warp * 32 + lane
        return Side(line, self._block(block), thread, warp)

    def _block(self, number: int) -> tuple[int, int, int]:
        """Which block has a number, where the blocks of each cluster are numbered together."""
        (gx, gy, _), (cx, cy, cz) = self._launch.grid, self._launch.cluster or (1, 1, 1)
        cluster, rank = divmod(number, cx * cy * cz)
        across, up = gx // cx, gy // cy
        x, y, z = cluster % across, cluster // across % up, cluster // (across * up)
        return x * cx + rank % cx, y * cy + rank // cx % cy, z * cz + rank // (cx * cy)
