"""A checked launch: its shadow memory and clocks, and its findings read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.analysis.variable_layout import align_up
from tilewise.emulator.check_layout import (
    CELLS,
    CHECK,
    CLOCK,
    CLOCKS,
    COPY,
    FINDING,
    RANGE,
    STATE,
    SYNC,
    WHO,
    FindingKind,
    stride_of,
)
from tilewise.emulator.checking.shuffled import HEAD_BYTES, ROW_BYTES
from tilewise.emulator.checking.wgmma_operands import ENTRY_BYTES
from tilewise.emulator.layout import BLOCK, Space
from tilewise.emulator.lowering.watch import Memories
from tilewise.emulator.running.fault_report import Range
from tilewise.emulator.running.plain_memory import PlainMemory
from tilewise.launch import Launch

__all__ = ["Checks", "Hit", "Side", "Unset"]

_CAPACITY = 1_024  # different findings that are recorded
_MOST_CELLS = 1 << 35  # bytes, of which the system allocates those that are touched
_WIDEST = 1 << 13  # warps of a grid for which clocks are kept
_MOST_SYNC_VARS, _SYNC_VAR_BYTES = 4_096, 1 << 26

Unset = bool | npt.NDArray[np.bool_]  # whether an array is uninitialised; or which of its bytes are


def _states(item: Range, cells: PlainMemory) -> npt.NDArray[np.uint32]:
    """Return the states of an array's words in its shadow memory."""
    start = stride_of(item.size) * CELLS.STATE
    return cells.bytes[start : start + -(-item.size // 4) * 4].view(np.uint32)


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

    kind: FindingKind
    space: Space
    address: int
    count: int
    now: Side
    before: Side | None
    bytes: int  # which of the word's
    flags: int  # of this access, and from bit 8 on of the other


class Checks(Memories):
    """Shadow memory, clocks and findings of one checked launch."""

    def __init__(
        self,
        launch: Launch,
        warps: int,
        ranges: Sequence[Range],
        unset: Mapping[int, Unset],
        notes: Sequence[Any],
    ) -> None:
        """``unset``: by the address of an array, which of its bytes are uninitialised; ``notes`` are the build's."""
        syncs_blocks, registers, shuffled = (
            notes[0][name] for name in ("syncs_blocks", "registers", "shuffled")
        )
        self.registers = ENTRY_BYTES * (registers + 1) if registers else 0
        self.shuffled = HEAD_BYTES + ROW_BYTES * (shuffled + 1) if shuffled else 0
        x, y, z = launch.cluster or (1, 1, 1)
        self.blocks, self.warps_of_block, self._launch = x * y * z, warps, launch
        every = launch.blocks * warps
        self.syncs_blocks = syncs_blocks and every <= _WIDEST
        self.width = every if self.syncs_blocks else self.blocks * warps
        self._expected: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.intp], npt.NDArray[np.uint32]]] = []
        self._early: set[int] = set()  # addresses of words that the launch before wrote
        self.findings = PlainMemory(_CAPACITY * FINDING.SIZE)
        row = SYNC.KEY_BYTES + 4 * self.width + CLOCK.TAIL
        sync_vars = 64
        while sync_vars < _MOST_SYNC_VARS and 2 * sync_vars * row <= _SYNC_VAR_BYTES:
            sync_vars *= 2
        self.sync_vars = PlainMemory(sync_vars * row)
        self.table = PlainMemory(RANGE.SIZE * len(ranges) + 64)
        self._ranges, self._unset = list(ranges), dict(unset)
        self._cells = [self._new_shadow(item, unset.get(item.start, False)) for item in ranges]
        for i, (item, cells) in enumerate(zip(ranges, self._cells, strict=True)):
            self.table.set(i * RANGE.SIZE + RANGE.FIRST, item.start)
            self.table.set(i * RANGE.SIZE + RANGE.END, item.start + item.size)
            self.table.set(i * RANGE.SIZE + RANGE.CELLS, cells.address if cells else 0)
            self.table.set(i * RANGE.SIZE + RANGE.STRIDE, stride_of(item.size))
        words = {
            CHECK.FINDINGS: self.findings.address,
            CHECK.CAPACITY: _CAPACITY,
            CHECK.RANGES: self.table.address,
            CHECK.RANGE_COUNT: len(ranges),
            CHECK.NOW: 1,
            CHECK.WIDTH: self.width,
            CHECK.GRID_WIDE: int(self.syncs_blocks),
            CHECK.INCOMPLETE: int(syncs_blocks and not self.syncs_blocks),
            CHECK.ALONE: int(launch.blocks == 1),
            CHECK.LAST: self.table.address if ranges else 0,
            CHECK.SYNC_VARS: self.sync_vars.address,
            CHECK.SYNC_VAR_COUNT: sync_vars,
            CHECK.REGISTERS: self.registers,
            CHECK.SHUFFLED: self.shuffled,
        }
        self.state = PlainMemory(CHECK.SIZE, words)
        self.launch = self.state.address

    @staticmethod
    def _new_shadow(item: Range, unset: Unset) -> PlainMemory | None:
        """The shadow memory of an array, with the bytes in ``unset`` marked as uninitialised.

        None for one that is too large, or for the heap, whose blocks change owner: it is not checked.
        """
        stride = stride_of(item.size)
        # The heap's memory changes hands unseen.
        if stride * CELLS.COLUMNS > _MOST_CELLS or "$heap" in item.name:
            return None
        try:
            cells = PlainMemory(stride * CELLS.COLUMNS)
        except MemoryError:
            return None
        if unset is not False:
            states = _states(item, cells)
            states[:] = STATE.NEW
            if unset is not True:  # the low four bits are of one byte each
                bits = np.zeros((states.size, 4), np.bool_)
                bits.reshape(-1)[: unset.size] = unset
                states[:] = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
        return cells

    def unset(self) -> dict[int, Unset]:
        """By the address of an array, which of its bytes are uninitialised now."""
        found: dict[int, Unset] = {}
        for item, cells in zip(self._ranges, self._cells, strict=True):
            if cells is None or self._unset.get(item.start, False) is False:
                found[item.start] = False
                continue
            bits = _states(item, cells)[:, None] >> np.arange(4, dtype=np.uint32) & 1
            missing = bits.astype(bool).reshape(-1)[: item.size]
            found[item.start] = missing if missing.any() else False
        return found

    def expect_writes(self, address: int, places: npt.NDArray[np.intp]) -> None:
        """Take these bytes of the array at an address as unset until the launch before, which wrote them, has ended."""
        for item, cells in zip(self._ranges, self._cells, strict=True):
            if cells is None or item.start != address:
                continue
            states = _states(item, cells)
            words, bits = places // 4, np.uint32(1) << (places % 4).astype(np.uint32)
            fresh = states[words] & bits == 0
            np.bitwise_or.at(states, words[fresh], bits[fresh])
            self._expected.append((states, words[fresh], bits[fresh]))
            self._early |= {address + 4 * int(word) for word in np.unique(words[fresh])}

    def end_launch_before(self) -> None:
        """Take what :meth:`expect_writes` was given as written."""
        for states, words, bits in self._expected:
            np.bitwise_and.at(states, words, ~bits)
        self._expected.clear()

    def is_early(self, address: int) -> bool:
        """Whether the launch before wrote to the word at an address, while this one had not waited for it."""
        return address & ~3 in self._early

    def attach(self, memory: PlainMemory, stride: int, shared_bytes: int) -> list[PlainMemory]:
        """Allocate clocks and shadow memory for one resident cluster; they must live as long as the cluster does."""
        warps = self.blocks * self.warps_of_block
        barriers = self.blocks * CLOCKS.BARRIERS_OF_BLOCK
        row = self.width * 4 + CLOCK.TAIL
        numbers = (
            *(CLOCKS.SYNCED, CLOCKS.LEAST, CLOCKS.FENCED, CLOCKS.PUBLISHED, CLOCKS.PRIVATE_LANE),
            CLOCKS.PRODUCTS_DONE,
        )
        sizes = {
            # What a cluster begins with as zeros: all before FENCES.
            CLOCKS.WARPS: warps * row,
            **dict.fromkeys(numbers, warps * 4),
            CLOCKS.PRIVATE: warps * row,
            **dict.fromkeys((CLOCKS.RELEASED, CLOCKS.PENDING), 2 * warps * row),
            CLOCKS.ARRIVED_PHASE: warps * (CLOCKS.BARRIERS_OF_BLOCK + 1) * 4,
            CLOCKS.GROUPS: warps * CLOCKS.GROUP_KINDS * 128,
            CLOCKS.REGISTERS: warps * self.registers,
            CLOCKS.SHUFFLED: warps * self.shuffled,
            CLOCKS.FENCES: barriers * 4 * row,
            CLOCKS.BARRIERS: barriers * 2 * row,
            CLOCKS.PHASES: barriers * 4,
            CLOCKS.ENDS: barriers * 2 * 4,
            CLOCKS.SYNC_VARS: CLOCKS.SHARED_SYNC_VARS * (SYNC.KEY_BYTES + row),
            CLOCKS.COPIES: COPY.MOST * COPY.SIZE,
        }
        clocks = PlainMemory(sum(align_up(size, 64) for size in sizes.values()) + 64)
        head, at = PlainMemory(CLOCKS.SIZE), clocks.address
        for offset, size in sizes.items():
            head.set(offset, at)
            at += align_up(size, 64)
        head.set(CLOCKS.SYNC_VAR_COUNT, CLOCKS.SHARED_SYNC_VARS)
        room = stride_of(shared_bytes) * CELLS.COLUMNS
        self.state.set(CHECK.STRIDE, stride_of(shared_bytes))
        cells = PlainMemory(self.blocks * room + 64)
        for rank in range(self.blocks):
            memory.set(rank * stride + BLOCK.CELLS, cells.address + rank * room)
            memory.set(rank * stride + BLOCK.CLOCKS, head.address)
        return [clocks, head, cells]

    # -- findings -------------------------------------------------------------------------------
    def hits(self) -> list[Hit]:
        """The findings, in the order in which they were made."""
        found = []
        get = self.findings.get
        for i in range(self.state.get(CHECK.COUNT, 8)):
            at = i * FINDING.SIZE
            line, other = get(at + FINDING.LINE), get(at + FINDING.OTHER_LINE)
            before = self.side(get(at + FINDING.OTHER), other) if other else None
            hit = Hit(
                FindingKind(get(at + FINDING.KIND)),
                Space(get(at + FINDING.SPACE)),
                get(at + FINDING.ADDRESS, 8),
                get(at + FINDING.COUNT, 8),
                self.side(get(at + FINDING.WHO), line),
                before,
                get(at + FINDING.BYTES),
                get(at + FINDING.FLAGS),
            )
            found.append(hit)
        return found

    @property
    def dropped(self) -> int:
        """How often something was found for which there was no room any more."""
        return self.state.get(CHECK.DROPPED, 8)

    def side(self, who: int, line: int) -> Side:
        """A finding's access, of the packed warp and lane ``who``, at a line."""
        lane, serial = who & ((1 << WHO.LANE_BITS) - 1), who >> WHO.LANE_BITS
        block, warp = divmod(serial, self.warps_of_block)
        thread = None if lane >= WHO.SEVERAL else warp * 32 + lane
        return Side(line, self._block(block), thread, warp)

    def _block(self, number: int) -> tuple[int, int, int]:
        """Which block has a number, where the blocks of each cluster are numbered together."""
        (gx, gy, _), (cx, cy, cz) = self._launch.grid, self._launch.cluster or (1, 1, 1)
        cluster, rank = divmod(number, cx * cy * cz)
        across, up = gx // cx, gy // cy
        x, y, z = cluster % across, cluster // across % up, cluster // (across * up)
        return x * cx + rank % cx, y * cy + rank // cx % cy, z * cz + rank // (cx * cy)
