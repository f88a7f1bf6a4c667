"""Views of a recording for pictures and texts.

Who writes which element, in which steps K is walked, and the patterns in which lanes touch memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import RANK_SHIFT
from tilewise.emulator.profiling.accesses import LINE_BYTES, Kind, LaneAccess
from tilewise.emulator.profiling.recording import EventKind
from tilewise.instruments.recording import Moves, NamedMatrix, Recording

if TYPE_CHECKING:
    from tilewise.instruments.profile import Profile

__all__ = ["Owners", "Pattern", "Step", "find_owners", "find_steps", "list_patterns", "machine_widths"]

_READS = (EventKind.LOAD, EventKind.COPY)
_OFFSETS = (1 << RANK_SHIFT) - 1
LANES = 32
_SHARED_WORDS = 1 << 17  # of two bytes each: more than any block has


@dataclass(frozen=True)
class Owners:
    """Which thread writes each element of a tile of a matrix: arrays by row and column, -1 where none does.

    The tile is the one that the blocks write first. Where the copy engine stores it, ``lane`` and ``warp`` are those
    that put the element into shared memory, and ``by_engine`` says so. ``event`` is the store in the recording.
    """

    first_row: int
    first_column: int
    block: npt.NDArray[np.int64]
    warp: npt.NDArray[np.int64]
    lane: npt.NDArray[np.int64]
    event: npt.NDArray[np.int64]
    by_engine: bool

    @property
    def rows(self) -> int:
        return int(self.warp.shape[0])

    @property
    def columns(self) -> int:
        return int(self.warp.shape[1])

    def has(self, row: int, column: int) -> bool:
        """Whether the tile has this element of the matrix."""
        inside = 0 <= row - self.first_row < self.rows and 0 <= column - self.first_column < self.columns
        return inside and int(self.warp[row - self.first_row, column - self.first_column]) >= 0

    def at(self, row: int, column: int) -> tuple[int, int, int]:
        """Return block, warp and lane that write an element."""
        place = row - self.first_row, column - self.first_column
        return int(self.block[place]), int(self.warp[place]), int(self.lane[place])

    def elements(self, block: int, warp: int, lane: int) -> list[tuple[int, int]]:
        """Return row and column of each element that a thread writes."""
        own = np.argwhere((self.block == block) & (self.warp == warp) & (self.lane == lane))
        return [(int(row) + self.first_row, int(column) + self.first_column) for row, column in own]


def find_owners(recording: Recording, element: tuple[int, int] | None = None) -> Owners | None:
    """Return which thread writes each element of C in the tile with ``element``, by default the tile written first.

    None if the recorded blocks write nothing of C, or not that element.
    """
    name = recording.roles.get("c")
    if name is None:
        return None
    moves = recording.touched(name, EventKind.STORE, EventKind.ATOMIC)
    moves = _select_moves(moves, moves.stack == (moves.stack[0] if len(moves) else 0))
    if element is None and len(moves):
        element = int(moves.row[0]), int(moves.column[0])
    if element is None or not ((moves.row == element[0]) & (moves.column == element[1])).any():
        return None
    rows = _find_run(moves.row[moves.column == element[1]], element[0])
    columns = _find_run(moves.column[moves.row == element[0]], element[1])
    inside = (moves.row >= rows[0]) & (moves.row < rows[1]) & (moves.column >= columns[0])
    moves = _select_moves(moves, inside & (moves.column < columns[1]))
    events = recording.events
    block, warp, lane = (
        events.block[moves.event],
        events.warp[moves.event].astype(np.int64),
        moves.lane.copy(),
    )
    engine = events.what[moves.event] == EventKind.BULK
    if engine.any():
        _credit_shared_writers(recording, recording.matrices[name], moves, engine, warp, lane)
    shape = rows[1] - rows[0], columns[1] - columns[0]
    place = moves.row - rows[0], moves.column - columns[0]

    def spread(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found = np.full(shape, -1, np.int64)
        found[place] = values
        return found

    spread_all = spread(block), spread(warp), spread(lane), spread(moves.event)
    return Owners(rows[0], columns[0], *spread_all, bool(engine.any()))


def _select_moves(moves: Moves, which: npt.NDArray[np.bool_]) -> Moves:
    return Moves(
        moves.event[which], moves.lane[which], moves.row[which], moves.column[which], moves.stack[which]
    )


def _find_run(numbers: npt.NDArray[np.int64], one: int) -> tuple[int, int]:
    """Return first and end of the run of consecutive numbers that contains ``one``."""
    known = np.unique(numbers)
    parts = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    own = next(part for part in parts if part[0] <= one <= part[-1])
    return int(own[0]), int(own[-1]) + 1


def _credit_shared_writers(
    recording: Recording,
    matrix: NamedMatrix,
    moves: Moves,
    engine: npt.NDArray[np.bool_],
    warp: npt.NDArray[np.int64],
    lane: npt.NDArray[np.int64],
) -> None:
    """Replace the thread that started a bulk store by those that wrote its shared memory."""
    events, stored = recording.events, np.unique(moves.event[engine])
    for block in np.unique(events.block[stored]):
        writers = np.full(_SHARED_WORDS, -1, np.int64)
        mine = (events.block == block) & recording.in_shared & (events.what == EventKind.STORE)
        order = np.union1d(np.flatnonzero(mine), stored[events.block[stored] == block])
        for event in order[order <= stored[-1]]:
            if events.what[event] != EventKind.BULK:
                _note_writers(recording, int(event), writers)
                continue
            places = recording.bulk_places(int(event))
            if places is None:
                continue
            row, column, _ = matrix.find(places[0])
            known = {
                (int(r), int(c)): int(writers[at])
                for r, c, at in zip(row, column, places[1] // 2, strict=True)
            }
            for i in np.flatnonzero(moves.event == event):
                writer = known.get((int(moves.row[i]), int(moves.column[i])), -1)
                if writer >= 0:
                    warp[i], lane[i] = writer // LANES, writer % LANES


def _note_writers(recording: Recording, event: int, writers: npt.NDArray[np.int64]) -> None:
    """Record, for each two bytes of shared memory that a store writes, the thread of their value."""
    events = recording.events
    size, warp = int(events.size[event]), int(events.warp[event])
    name = recording.places[events.place[event]].name
    for lane in recording.lanes(event):
        first = int(events.addresses[event, lane]) & _OFFSETS
        if name.startswith("stmatrix"):
            # A lane names a row of eight values: of the four lanes of that row, or of all eight if turned.
            row = lane % 8
            listed = [item * 4 + row // 2 if ".trans" in name else row * 4 + item // 2 for item in range(8)]
            writers[first // 2 : first // 2 + 8] = [warp * LANES + other for other in listed]
        else:
            writers[first // 2 : -(-(first + size) // 2)] = warp * LANES + lane


@dataclass(frozen=True, slots=True)
class Step:
    """A part of K that a block reads together: elements of A and B.

    Rows of A and columns of B are those that are read for the tile, from the first to behind the last.
    """

    first: int
    end: int
    a_rows: tuple[int, int]
    b_columns: tuple[int, int]
    event: int  # when the first of them is read


def find_steps(recording: Recording, owners: Owners) -> list[Step]:
    """Return the steps in which a tile of C is computed: parts of K read together, in the order of the reads."""
    if not {"a", "b"} <= {*recording.roles}:
        return []
    stored = int(owners.event.max())  # what is read later is for other tiles
    a, b = (recording.extents(recording.roles[name], *_READS, before=stored) for name in "ab")
    last_row, last_column = owners.first_row + owners.rows, owners.first_column + owners.columns
    a = a.select((a.last_row >= owners.first_row) & (a.first_row < last_row))
    b = b.select((b.last_column >= owners.first_column) & (b.first_column < last_column))
    if not len(a) or not len(b):
        return []
    found = []
    for first, end in _split_k([(a.first_column, a.last_column), (b.first_row, b.last_row)]):
        mine = a.select((a.first_column >= first) & (a.last_column < end))
        other = b.select((b.first_row >= first) & (b.last_row < end))
        if len(mine) and len(other):
            rows = int(mine.first_row.min()), int(mine.last_row.max()) + 1
            columns = int(other.first_column.min()), int(other.last_column.max()) + 1
            event = int(min(mine.event[0], other.event[0]))
            found.append(Step(first, end, rows, columns, event))
    return sorted(found, key=lambda step: step.event)


def _split_k(
    extents: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
) -> list[tuple[int, int]]:
    """Split K into the parts, first and end, that no event reads across."""
    most = max(int(last.max()) for _, last in extents) + 1
    across, read = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)
    for first, last in extents:
        np.add.at(across, first, 1)  # from one k to the next
        np.add.at(across, last, -1)
        np.add.at(read, first, 1)
        np.add.at(read, last + 1, -1)
    joined, known = np.cumsum(across)[:most], np.cumsum(read)[:most] > 0
    ends = np.flatnonzero(known & (joined == 0)) + 1
    starts = [int(k) for k in np.flatnonzero(known) if k == 0 or not known[k - 1] or joined[k - 1] == 0]
    return list(zip(starts, (int(end) for end in ends), strict=True))


@dataclass(frozen=True, slots=True)
class Pattern:
    """How the lanes of an instruction lie in memory, and the wavefronts and sectors of such an access.

    ``lanes``: by lane its distance in bytes from the line of 128 that the first is in; None for one that takes no part.
    ``width`` is what the machine code moves of a lane at once, which may be several of the PTX's accesses: then the
    first of them has the width of all, and the others have 0.
    """

    place: int
    line: int  # of the PTX
    name: str
    what: EventKind
    shared: bool
    size: int
    width: int
    lanes: tuple[int | None, ...]
    runs: int
    event: int  # the first of them
    sectors: int
    least_sectors: int
    lines: int
    wavefronts: int
    phases: int  # wavefronts without conflicts
    ideal: int


def machine_widths(profile: Profile) -> dict[int, int] | None:
    """Map PTX lines to the bytes a lane that machine code moves at once; None without machine code."""
    if profile.binary.cubin is None:
        return None
    found: dict[int, int] = {}
    for access in profile.machine.accesses:
        line = access.instruction.ptx
        if line is not None:
            found[line] = max(found.get(line, 0), access.bits // 8)
    return found


_ACCESSES = (EventKind.LOAD, EventKind.STORE, EventKind.ATOMIC, EventKind.COPY, EventKind.FILL)


def list_patterns(recording: Recording, widths: Mapping[int, int] | None = None) -> list[Pattern]:
    """Return the patterns of every access, in the order of their first events.

    ``widths``: what :func:`machine_widths` gives; without it, those of the PTX.
    """
    events = recording.events
    chosen = np.flatnonzero(np.isin(events.what, _ACCESSES))
    found: dict[tuple[int, int, tuple[int | None, ...]], list[int]] = {}
    for event in chosen:
        listed = recording.addresses(int(event))
        base = min(a for a in listed if a is not None) // LINE_BYTES * LINE_BYTES
        lanes = tuple(None if a is None else a - base for a in listed)
        key = int(events.place[event]), int(events.what[event]), lanes
        found.setdefault(key, []).append(int(event))
    return [_pattern(recording, place, what, lanes, of, widths) for (place, what, lanes), of in found.items()]


def _pattern(
    recording: Recording, place: int, what: int, lanes: tuple[int | None, ...], events: list[int],
    widths: Mapping[int, int] | None,
) -> Pattern:  # fmt: skip
    note, size = recording.places[place], int(recording.events.size[events[0]])
    shared = bool(recording.in_shared[events[0]])
    width = size if widths is None else widths.get(note.line, 0)
    counted = max(width, size) if shared else size
    kind = Kind.EACH if what in (EventKind.ATOMIC, EventKind.COPY, EventKind.FILL) else Kind.LOAD
    if what == EventKind.STORE or "matrix" in note.name:
        kind = Kind.STORE
    lowest = min(lane for lane in lanes if lane is not None)
    wide = lanes if counted == size else tuple(None if lane is None else lane - lowest for lane in lanes)
    outside, inside = LaneAccess(lanes, size), LaneAccess(wide, counted, kind)
    return Pattern(
        place, note.line, note.name, EventKind(what), shared, size, width, lanes, len(events), events[0],
        outside.sectors(), outside.least_sectors(), outside.lines(),
        inside.wavefronts(), inside.phases(), inside.ideal(),
    )  # fmt: skip
