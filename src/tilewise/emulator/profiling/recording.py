"""The recorded build: log each access lane by lane, copy, barrier and product of some blocks, in order.

It is for pictures and explanations of a block or two. Each event is a row of numbers of one length, so that a
recording is read without a loop: what, by which warp of which block, by which lanes, and an address for each of these.
A log that is full takes no more, and counts what it lacks for as long as the launch goes on: soon it is ended.

The order is one that the hardware could have: that of the emulator, which runs a warp until it has to wait. It says
nothing of time.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.emulator.build import Build
from tilewise.emulator.families.cp_async import bytes_to_read
from tilewise.emulator.layout import BLOCK, WARP, Space
from tilewise.emulator.llvm.emit import LANES, NULL, Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr, Routine, routine
from tilewise.emulator.lowering.context import Context, Watcher
from tilewise.emulator.lowering.memory import every_address
from tilewise.emulator.lowering.values import read
from tilewise.emulator.lowering.watch import access_at, named_space, touches
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.profiling.logs import OWN, Logs, own_log, reserve_row
from tilewise.emulator.ptx.syntax import Address, Instruction, Vector
from tilewise.emulator.support.bulk_requests import take_operands

__all__ = ["EventKind", "Events", "PlaceNote", "Recorder", "RecordingWatcher"]

_LOW, _HIGH, _ONLY = OWN, OWN + 8, OWN + 16  # in a log's header
# Words of an event: place and mask; block and warp; what, space and size; one for each lane.
_ROW = 3 + LANES
_ROW_BYTES = 8 * _ROW


class EventKind(IntEnum):
    """The kinds of events; the first ones are those of accesses."""

    LOAD = 0
    STORE = 1
    ATOMIC = 2
    COPY = 3  # the reading half of cp.async
    FILL = 4  # its writing half
    BULK = 5  # a bulk or tensor copy: in place of addresses, the numbers of REQUEST; one event a lane
    PRODUCT = 6  # of tensor cores; of wgmma with the descriptor of an operand in shared memory, size 0 for A, 1 for B
    ARRIVE = 7  # at an mbarrier
    AWAIT = 8  # of an mbarrier: asked whether its phase is complete
    WAIT = 9  # came to a barrier, and waits
    THROUGH = 10  # and was let through
    CLOSE = 11  # a group of copies or products is closed
    DRAIN = 12  # waited until but some groups were done


_AT_MBARRIER = {"arrive": EventKind.ARRIVE, "expect": EventKind.ARRIVE, "ask": EventKind.AWAIT}
_OF_GROUP = {"commit": EventKind.CLOSE, "wait": EventKind.DRAIN}


class PlaceNote(NamedTuple):
    """A PTX instruction that logs events."""

    line: int
    name: str


class Events(NamedTuple):
    """The events of a launch in order: arrays with an element, or a row of 32, for each."""

    what: npt.NDArray[np.uint8]
    place: npt.NDArray[np.int32]
    block: npt.NDArray[np.int64]
    warp: npt.NDArray[np.uint8]
    mask: npt.NDArray[np.uint32]
    size: npt.NDArray[np.int32]  # bytes of a lane
    space: npt.NDArray[np.uint8]
    addresses: npt.NDArray[np.int64]


class RecordingWatcher(Watcher):
    """Emits code that logs what a kernel does."""

    def __init__(self, e: Context) -> None:
        super().__init__(e)
        self._places: dict[int, int] = {}
        for block in e.program.flow.blocks:
            for instruction in block.all_instructions:
                if id(instruction) not in self._places:
                    self._places[id(instruction)] = len(self.notes)
                    self.notes.append(tuple(PlaceNote(instruction.line, instruction.name)))

    def before(self, instruction: Instruction) -> Any:
        operation = operation_of(instruction)
        if operation.accesses:
            plain = operation.plain_access is not None
            if plain and not {"param", "const", "local"}.isdisjoint(instruction.parts):
                return None
            return touches(self.e, instruction)
        if operation.mbarrier is not None and operation.mbarrier.act in _AT_MBARRIER:
            place = next((item for item in instruction.operands if isinstance(item, Address)), None)
            if place is None:
                return None
            return every_address(self.e, access_at(self.e, instruction, place, named_space(instruction), 8))
        if not (operation.multiplies_matrices and operation.asynchronous):
            return None
        # Number and value of the descriptors that a product reads: 0 for A, 1 for B.
        given = enumerate(instruction.operands[1:3])
        return [(i, read(self.e, item, "b64", True)) for i, item in given if not isinstance(item, Vector)]

    def after(self, instruction: Instruction, seen: Any) -> None:
        operation = operation_of(instruction)
        if operation.copy_kind(instruction):
            self._call("tw_record_bulk", instruction, None, self.e.columns())
        elif operation.multiplies_matrices and seen is None:
            self._emit_event(instruction, EventKind.PRODUCT)
        elif operation.multiplies_matrices:
            for which, value in seen:
                self._emit_event(instruction, EventKind.PRODUCT, Space.SHARED, which, value)
        elif operation.group is not None:
            self._emit_event(instruction, _OF_GROUP[operation.group.act])
        elif operation.mbarrier is not None:
            if operation.mbarrier.act == "arrive after copies":
                self._emit_event(instruction, EventKind.CLOSE)
            elif seen is not None:
                what = _AT_MBARRIER[operation.mbarrier.act]
                self._emit_event(instruction, what, Space.SHARED, 8, seen)
        else:
            for touch in seen or ():
                mask = None
                # Not of lanes that fill with zeros alone.
                if touch.action == "copy" and len(instruction.operands) > 3:
                    size = bytes_to_read(self.e, instruction.operands[3], touch.access.size)
                    mask = self.e.mask() & self.e.bits(self.e.differs(size, 0))
                about = EventKind[touch.action.upper()], int(touch.access.space), touch.access.size
                self._emit_event(instruction, *about, touch.addresses, mask)

    def wait(self, instruction: Instruction) -> None:
        if operation_of(instruction).waits_for != "warpgroup":
            self._emit_event(instruction, EventKind.WAIT)

    def through(self, instruction: Instruction) -> None:
        operation = operation_of(instruction)
        if operation.group is not None:
            self._emit_event(instruction, EventKind.DRAIN)
        elif operation.waits_for not in ("warp", "warpgroup"):  # for others than its own lanes
            self._emit_event(instruction, EventKind.THROUGH)

    # -- code -----------------------------------------------------------------------------------
    def _emit_event(
        self,
        instruction: Instruction,
        what: EventKind,
        space: int = 0,
        size: int = 0,
        addresses: Value | None = None,
        mask: Value | None = None,
    ) -> None:
        given = NULL if addresses is None else self.e.list_addresses(addresses)
        about = self.e.const("i64", int(what) | space << 8 | size << 32)
        self._call("tw_record", instruction, mask, about, given)

    def _call(self, routine: str, instruction: Instruction, mask: Value | None, *more: Value | str) -> None:
        """Call a routine that logs events of some lanes, or of all that run the instruction."""
        e = self.e
        log = own_log(e)
        warp = e.wide(e.load("i32", e.offset("%warp", WARP.INDEX), 4))
        number = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8)
        place = e.const("i64", self._places[id(instruction)])
        e.call(routine, "void", log, place, number, warp, mask or e.mask(), *more)


def _begin_event(r: Routine, mask: Value, about: Value) -> Value:
    """Write the head of a new event, and return its row; leave the routine if the log is full."""
    row = reserve_row(r, _ROW_BYTES)
    r.put(row, 0, (r["place"] << 32) | r.wide(mask))
    r.put(row, 8, (r["block"] << 8) | r["warp"])
    r.put(row, 16, about)
    return row


@routine("tw_record", "void")
def _record(
    r: Routine, log: Ptr, place: I64, block: I64, warp: I64, mask: I32, about: I64, addresses: Ptr
) -> None:
    """Log an event with its lanes' addresses; without addresses their words stay empty."""
    r.give_if(r.equals(mask, 0))
    with r.when(r.differs(r.field(log, _ONLY, "i64"), 0)):
        _leave_unless_in_window(r)
    row = _begin_event(r, mask, about)
    with r.unless(r.is_null(addresses)), r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        r.put(r.item(r.at(row, 24), lane, 8), 0, address)


def _leave_unless_in_window(r: Routine) -> None:
    """Leave the routine unless the event is a store that touches the recorder's window."""
    r.give_if(r.differs(r["about"] & 0xFF, EventKind.STORE))
    low, high = (r.field(r["log"], at, "i64") for at in (_LOW, _HIGH))
    found = r.variable("i1", 0)
    with r.each_lane(r["mask"]) as lane:
        first = r.element(r["addresses"], lane, "i64")
        end = first + (r["about"] >> 32)
        inside = r.both(r.is_below(first, high), r.is_above(end, low))
        found.put(found.get() | inside)
    r.give_if(r.negation(found.get()))


@routine("tw_record_bulk", "void")
def _record_bulk(r: Routine, log: Ptr, place: I64, block: I64, warp: I64, mask: I32, columns: Ptr) -> None:
    """Log the copies of a bulk instruction, one event a lane."""
    with r.each_lane(mask) as lane:
        row = _begin_event(r, 1 << lane, r.const("i64", EventKind.BULK))
        take_operands(r, r.at(row, 24), columns, lane)


class Recorder(Logs):
    """Memory for the log of each worker of one launch.

    ``window``: record nothing but stores that touch a byte of it, from its first to before its second address, and
    bulk copies.
    """

    def __init__(self, build: Build, most: int, window: tuple[int, int] | None = None) -> None:
        header = dict(zip((_LOW, _HIGH, _ONLY), (*window, 1), strict=True)) if window else {}
        super().__init__(most, _ROW, header)
        self.places = [PlaceNote(*note) for note in build.notes]  # the instructions, by place number

    @property
    def is_full(self) -> bool:
        return bool(self._logs) and all(len(rows) >= self._most for rows in self.rows())

    def events(self) -> Events:
        """Return all logged events; blocks of different workers follow one another."""
        rows = np.concatenate(self.rows()) if self._logs else np.zeros((0, _ROW), np.int64)
        first, who, about = rows[:, 0], rows[:, 1], rows[:, 2]
        return Events(
            (about & 0xFF).astype(np.uint8),
            (first >> 32).astype(np.int32),
            who >> 8,
            (who & 0xFF).astype(np.uint8),
            (first & 0xFFFF_FFFF).astype(np.uint32),
            (about >> 32).astype(np.int32),
            (about >> 8 & 0xFF).astype(np.uint8),
            rows[:, 3:].copy(),
        )
