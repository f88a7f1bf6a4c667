"""A recording: the events of some blocks, with names for the memory they touch.

Pictures and texts are derived from it, whatever the kernel: which elements of A and B are read, and when; which thread
writes which element of C; what lanes touch together. It comes from running the PTX on the emulator: exact, but for the
order of different warps, which is one of those that may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import GENERIC, RANK_SHIFT, Space
from tilewise.emulator.profiling.recording import EventKind, Events, PlaceNote
from tilewise.emulator.support.bulk_requests import REQUEST, Verb
from tilewise.instruments.tensor_boxes import TensorBoxes
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary

__all__ = ["Extents", "Moves", "NamedMatrix", "Recording"]

LANES = 32
Numbers = npt.NDArray[np.int64]
_OFFSETS = (1 << RANK_SHIFT) - 1
_COORDINATES = REQUEST.COORDINATES // 8


@dataclass(frozen=True, slots=True)
class NamedMatrix:
    """A matrix, or a stack of matrices, in memory.

    Strides are in elements.
    """

    name: str
    address: int
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    dtype: str
    itemsize: int
    count: int = 1
    stack_stride: int = 0

    def transposed(self) -> NamedMatrix:
        """Return the transpose over the same memory, with a name that says so."""
        return replace(
            self,
            name=f"{self.name}ᵀ",
            rows=self.columns,
            columns=self.rows,
            row_stride=self.column_stride,
            column_stride=self.row_stride,
        )

    @property
    def bytes(self) -> int:
        """Bytes from the first element to behind the last."""
        last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride
        return (last + (self.count - 1) * self.stack_stride + 1) * self.itemsize

    def find(self, addresses: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return row, column and number in the stack of the element at each address; -1 outside the matrix."""
        index, which = (addresses - self.address) // self.itemsize, np.zeros(addresses.shape, np.int64)
        if self.count > 1 and self.stack_stride:
            which, index = index // self.stack_stride, index % self.stack_stride
        # NOTE: of a single row or column in a dense matrix, both strides are 1.
        if (self.row_stride, self.rows) >= (self.column_stride, self.columns):
            row, rest = np.divmod(index, max(self.row_stride, 1))
            column = rest // max(self.column_stride, 1)
        else:
            column, rest = np.divmod(index, max(self.column_stride, 1))
            row = rest // max(self.row_stride, 1)
        inside = (addresses >= self.address) & (addresses < self.address + self.bytes)
        inside &= (row >= 0) & (row < self.rows) & (column >= 0) & (column < self.columns)
        return tuple(np.where(inside, found, -1) for found in (row, column, which))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Moves:
    """The elements of a matrix that events touched: arrays of one length, in order.

    ``event`` is the number of the event, ``lane`` that of the lane (of a bulk copy, the one that started it).
    """

    event: Numbers
    lane: Numbers
    row: Numbers
    column: Numbers
    stack: Numbers

    def __len__(self) -> int:
        return len(self.event)


@dataclass(frozen=True, slots=True)
class Extents:
    """The events that touched a matrix, in order, with the first and last row and column of each."""

    event: Numbers
    first_row: Numbers
    last_row: Numbers
    first_column: Numbers
    last_column: Numbers

    def select(self, which: npt.NDArray[np.bool_]) -> Extents:
        """Return the extents for which ``which`` is true."""
        return Extents(*(getattr(self, name)[which] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.event)


@dataclass
class Recording:
    """The events of one launch, of the blocks in ``blocks``, as far as they fit.

    At least ``lost`` came after them: a launch ends once its recording is full. ``matrices`` are those that addresses
    are named by.
    """

    kernel: str
    launch: Launch
    binary: Binary
    events: Events
    places: Sequence[PlaceNote]
    blocks: Sequence[int]
    lost: int
    matrices: Mapping[str, NamedMatrix] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)  # which matrices are "a", "b" and "c" of a product
    maps: Mapping[int, TensorBoxes] = field(default_factory=dict)  # by the offset of the parameter

    def __len__(self) -> int:
        return len(self.events.what)

    @property
    def kinds(self) -> list[EventKind]:
        """The kind of each event, in order."""
        return [EventKind(int(what)) for what in self.events.what]

    def lanes(self, event: int) -> list[int]:
        """Return the lanes that took part in an event."""
        mask = int(self.events.mask[event])
        return [lane for lane in range(LANES) if mask >> lane & 1]

    def addresses(self, event: int) -> list[int | None]:
        """Return the address that each lane touched, an offset in shared memory; None for a lane that did not."""
        shared = self.in_shared[event]
        mask, row = int(self.events.mask[event]), self.events.addresses[event]
        return [
            (int(row[lane]) & _OFFSETS if shared else int(row[lane])) if mask >> lane & 1 else None
            for lane in range(LANES)
        ]

    @cached_property
    def in_shared(self) -> npt.NDArray[np.bool_]:
        """Whether each event touches shared memory."""
        first = np.argmax(self._active, axis=1)
        address = self.events.addresses[np.arange(len(self)), first] if len(self) else np.zeros(0, np.int64)
        generic = (self.events.space == Space.GENERIC) & (address >> 56 == GENERIC.SHARED >> 56)
        found: npt.NDArray[np.bool_] = np.isin(self.events.space, (Space.SHARED, Space.OWN)) | generic
        return found

    @cached_property
    def _active(self) -> npt.NDArray[np.bool_]:
        """Whether each lane took part, by event and lane."""
        return (self.events.mask[:, None] >> np.arange(LANES, dtype=np.uint32) & 1).astype(bool)

    def touched(self, name: str, *kinds: EventKind) -> Moves:
        """Return the elements of a matrix that accesses of these kinds, and such bulk copies, touched."""
        matrix, events = self.matrices[name], self.events
        reads = EventKind.STORE not in kinds
        wide = np.isin(events.what, kinds) & ~self.in_shared
        parts = [self._elements(matrix, np.flatnonzero(wide))]
        for event in self._bulk(reads):
            places = self.bulk_places(int(event))
            if places is not None:
                found = matrix.find(places[0])
                who = (np.full(len(found[0]), number) for number in (event, self.lanes(int(event))[0]))
                parts.append((*who, *found))
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        inside = joined[2] >= 0
        order = np.argsort(joined[0][inside], kind="stable")
        return Moves(*(array[inside][order] for array in joined))

    def extents(self, name: str, *kinds: EventKind, before: int | None = None) -> Extents:
        """Return the rows and columns of a matrix that each event touched. Cheaper than the elements.

        ``before``: the events up to one alone.
        """
        matrix, events = self.matrices[name], self.events
        known = np.arange(len(self)) < (len(self) if before is None else before)
        reads = EventKind.STORE not in kinds
        found = self._elements(matrix, np.flatnonzero(known & np.isin(events.what, kinds) & ~self.in_shared))
        inside = found[2] >= 0
        event, row, column = found[0][inside], found[2][inside], found[3][inside]
        order = np.argsort(event, kind="stable")
        starts = np.flatnonzero(np.diff(event[order], prepend=-1))
        rows: list[list[Numbers]] = []
        if len(order):
            ends = [
                least_or_most.reduceat(numbers[order], starts)
                for numbers in (row, column)
                for least_or_most in (np.minimum, np.maximum)
            ]
            rows.append([event[order][starts], *ends])
        for number in self._bulk(reads):
            places = self.bulk_places(int(number), corners=True) if known[number] else None
            if places is None or not len(places[0]):
                continue
            across, down, _ = matrix.find(places[0])
            if (across >= 0).all():
                listed = (number, across.min(), across.max(), down.min(), down.max())
                rows.append([np.array([value], np.int64) for value in listed])
        joined = [np.concatenate(part) for part in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 5
        order = np.argsort(joined[0], kind="stable")
        return Extents(*(array[order] for array in joined))

    def _bulk(self, reads: bool) -> Numbers:
        """Return the bulk copies from global memory, or those to it."""
        wanted = Verb.LOAD if reads else Verb.STORE
        so = np.array([_verb(place.name) == wanted for place in self.places], bool)
        bulk = np.flatnonzero(self.events.what == EventKind.BULK)
        found: Numbers = bulk[so[self.events.place[bulk]]]
        return found

    def _elements(self, matrix: NamedMatrix, chosen: Numbers) -> tuple[Numbers, ...]:
        """Return every element of a matrix that the lanes of some events touch."""
        events = self.events
        parts: list[tuple[Numbers, ...]] = [(np.zeros(0, np.int64),) * 5]
        for size in np.unique(events.size[chosen]):
            these = chosen[events.size[chosen] == size]
            index, lane = np.nonzero(self._active[these])
            first = events.addresses[these[index], lane]
            steps = range(0, int(size), matrix.itemsize)
            parts += [(these[index], lane, *matrix.find(first + offset)) for offset in steps]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def bulk_places(self, event: int, corners: bool = False) -> tuple[Numbers, Numbers, bool] | None:
        """Return a bulk copy's global addresses, the place of each in shared memory, and whether it reads; None
        where these are not known. A run of bytes has a place for every second byte. ``corners``: only the first and the
        last element along each axis.
        """
        row = self.events.addresses[event]
        name = self.places[self.events.place[event]].name
        verb = _verb(name)
        if verb is None:
            return None
        shared = int(row[REQUEST.SHARED // 8]) & _OFFSETS
        place = int(row[REQUEST.GLOBAL // 8])
        if ".tensor" not in name:
            steps = np.arange(0, int(row[REQUEST.SIZE // 8]) & 0xFFFF_FFFF, 2, dtype=np.int64)
            return place + steps, shared + steps, verb == Verb.LOAD
        boxes = self.maps.get(place - GENERIC.PARAM)
        if boxes is None:
            return None
        axes = int(row[REQUEST.SIZE // 8])
        at = tuple(_signed(int(row[_COORDINATES + axis])) for axis in range(axes))
        return (*boxes.elements(at, shared, corners), verb == Verb.LOAD) if axes == len(boxes.box) else None


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31


def _verb(name: str) -> int | None:
    """Return the direction of a bulk copy between global and shared memory; None for others."""
    if "prefetch" in name or name.startswith(("st.", "red.")):
        return None
    after = name.partition("bulk")[2]
    spaces = [word for word in after.split(".") if word.startswith(("global", "shared"))]
    if spaces[:1] == ["global"]:
        return Verb.STORE
    return Verb.LOAD if spaces[1:2] == ["global"] else None
