"""Records of copies and wgmma in flight, from issue until the program has waited for them.

Whatever the order of the launch: until then a copy's destination is not written and its source is not free. The words
of its destination are marked as arriving, those of its source as leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from tilewise.emulator.check_layout import (
    ACCESS,
    CELLS,
    CLOCKS,
    COPIES,
    COPY,
    GROUP_KINDS,
    SHADOW,
    STATE,
    WHO,
    Action,
    CopySide,
    StoreStep,
)
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.shadow_lookup import find_shadow, look_up_shadow
from tilewise.emulator.layout import BLOCK, RANK_SHIFT, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, Ptr, routine
from tilewise.emulator.support.bulk_requests import store_bulk
from tilewise.emulator.support.checked import accessor, check_touch, serial_of
from tilewise.emulator.support.tensor import store_tensor

__all__ = [
    "BULKS",
    "COPIED",
    "GLOBAL",
    "PRODUCTS",
    "SHARED",
    "Mark",
    "address_slot",
    "complete_copy",
    "each_record",
    "first_of_warpgroup",
    "groups_of",
    "mark",
    "new_record",
    "phase_of",
    "trim_records",
    "walk_destination",
    "walk_matrix",
    "with_rank",
]

COPIED, BULKS, PRODUCTS = 0, 1, 2  # kinds of groups: of cp.async, of bulk copies, of wgmma
SHARED, GLOBAL = int(Space.SHARED), int(Space.GLOBAL)
_BRICK_ROWS = 8  # of a matrix of wgmma, each of 16 bytes
_PHASE_BIT = 61  # of an mbarrier


class Mark(IntEnum):
    """What ``tw_check_mark`` does with the in-flight marks of a stretch of memory."""

    SET, LAND = 0, 1  # a copy to it is issued; it is complete
    LEAVE, FREE = 2, 3  # a read of it is issued; it is complete


def mark(
    r: CheckRoutine,
    space: Value | int,
    address: Value,
    count: Value,
    what: Value | int,
    time: Value | int = 0,
    who: Value | int = 0,
) -> None:
    """Change the in-flight marks of a stretch of memory."""
    _mark_stretch(r, space, address, count, what, time, who)


@routine("tw_check_mark", "void", "ctx", "block")
def _mark_stretch(
    r: CheckRoutine, space: I32, address: I64, length: I64, what: I32, time: I32, who: I32
) -> None:
    """Change the in-flight mark of each word of a stretch of shared or global memory, as ``Mark`` says."""
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    r.fill(place, 0, SHADOW.SIZE)
    at, end = r.variable("i64", address), r.op("add", address, length)
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.is_at_least(here, end))
        at.put(r.op("add", r.op("or", here, 3), 1))
        r.give_if(r.negation(find_shadow(r, place, here, space)))
        row = r.op("and", r.op("sub", here, r.field(place, SHADOW.FIRST, "i64")), -4)
        cells, stride = (r.field(place, SHADOW.CELLS, "ptr"), r.field(place, SHADOW.STRIDE, "i64"))
        cell = [r.at(cells, r.op("add", row, r.op("mul", stride, i))) for i in range(CELLS.COLUMNS)]
        state = r.field(cell[CELLS.STATE], 0, "i32")
        leaving, also = r.op("and", state, STATE.MANY_LEAVING), r.op("and", state, STATE.MOST_ARRIVING)
        changed = r.variable("i32", state)
        with r.when(r.equals(what, Mark.SET)):
            first = r.equals(r.op("and", state, STATE.ARRIVING), 0)
            full = r.equals(also, STATE.MOST_ARRIVING)
            more = r.select(full, state, r.op("add", state, STATE.ALSO_ARRIVING))
            changed.put(r.select(first, r.op("or", state, STATE.ARRIVING), more))
        with r.when(r.equals(what, Mark.LAND)):
            last = r.equals(also, 0)
            fewer = r.op("sub", state, STATE.ALSO_ARRIVING)
            changed.put(r.select(last, r.op("and", state, ~STATE.ARRIVING), fewer))
            # NOTE: what is in shared memory may have been issued by another thread than waits for it.
            own = r.equals(r.field(cell[CELLS.WRITER], 0, "i32"), who)
            with r.when(r.op("or", own, r.equals(space, SHARED))):
                r.put(cell[CELLS.WRITTEN], 0, time)
        with r.when(r.equals(what, Mark.LEAVE)):
            full = r.equals(leaving, STATE.MANY_LEAVING)
            changed.put(r.select(full, state, r.op("add", state, STATE.LEAVING)))
        with r.when(r.equals(what, Mark.FREE)):
            none = r.equals(leaving, 0)
            changed.put(r.select(none, state, r.op("sub", state, STATE.LEAVING)))
            own = r.equals(r.field(cell[CELLS.READER], 0, "i32"), who)
            with r.when(own):
                r.put(cell[CELLS.READ], 0, time)
        r.put(cell[CELLS.STATE], 0, changed.get())


# -- records --------------------------------------------------------------------------------------------
def groups_of(r: CheckRoutine, kind: Value | int) -> Value:
    """Pointer to how many groups each lane of this warp has committed."""
    number = r.fixed(kind, "i64") if isinstance(kind, int) else r.wide(kind)
    row = r.op("add", r.op("mul", r.index(), GROUP_KINDS), number)
    return r.item(r.table(CLOCKS.GROUPS), row, 128)


@check_routine("tw_check_record", "ptr")
def new_record(r: CheckRoutine, mask: I32, length: I32, kind: I32, way: I32, line: I32) -> None:
    """A new record, for some lanes of a warp; null if there are too many."""
    clocks = r.clocks()
    count, start = (r.field(clocks, CLOCKS.COUNT, "i64"), r.field(clocks, CLOCKS.COPIES, "ptr"))
    found = r.variable("ptr", NULL)
    with r.when(r.is_below(count, COPIES)):
        found.put(r.item(start, count, COPY.SIZE))
        r.put(clocks, CLOCKS.COUNT, r.op("add", count, 1))
    with r.otherwise(), r.count(count) as i:
        old = r.item(start, i, COPY.SIZE)
        with r.when(r.equals(r.field(old, COPY.LANES, "i32"), 0)):
            found.put(old)
    copy = found.get()
    r.give_if(r.is_null(copy), NULL)
    for offset, value in (
        (COPY.LANES, mask),
        (COPY.WARP, r.narrow(r.index())),
        (COPY.BYTES, length),
        (COPY.LINE, line),
        (COPY.KEY, r.const("i64", 0)),
        (COPY.TIME, r.now()),
        (COPY.KIND, kind),
        (COPY.SIDE, way),
    ):
        r.put(copy, offset, value)
    r.copy(r.at(copy, COPY.GROUPS), groups_of(r, kind), 128)
    r.give(copy)


def first_of_warpgroup(r: CheckRoutine) -> Value:
    """The first warp of this one's warpgroup, within its cluster."""
    return r.op("sub", r.index(), r.wide(r.op("and", r.field(r["warp"], WARP.INDEX, "i32"), 3)))


@contextmanager
def each_record(r: CheckRoutine) -> Iterator[Value]:
    clocks = r.clocks()
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    with r.count(r.field(clocks, CLOCKS.COUNT, "i64")) as i:
        yield r.item(start, i, COPY.SIZE)


def address_slot(r: CheckRoutine, copy: Value, lane: Value) -> Value:
    return r.item(r.at(copy, COPY.PLACES), lane, 4)


def trim_records(r: CheckRoutine) -> None:
    """Drop the complete records at the end."""
    clocks = r.clocks()
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    with r.loop() as loop:
        count = r.field(clocks, CLOCKS.COUNT, "i64")
        loop.leave(r.equals(count, 0))
        last = r.item(start, r.op("sub", count, 1), COPY.SIZE)
        loop.leave(r.differs(r.field(last, COPY.LANES, "i32"), 0))
        r.put(clocks, CLOCKS.COUNT, r.op("sub", count, 1))


def phase_of(r: CheckRoutine, key: Value) -> Value:
    """The parity of the phase that an mbarrier is in; its key is its address with a rank, and 1 more."""
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    address, found = r.op("sub", key, 1), r.variable("i32", 0)
    with r.when(look_up_shadow(r, SHARED, address, place)):
        offset = r.op("sub", address, r.field(place, SHADOW.FIRST, "i64"))
        word = r.field(r.at(r.field(place, SHADOW.MEMORY, "ptr"), offset), 0, "i64")
        found.put(r.narrow(r.op("and", r.op("lshr", word, _PHASE_BIT), 1)))
    return found.get()


def with_rank(r: CheckRoutine, address: Value) -> Value:
    """An address of shared memory with the rank of its block."""
    rank = r.op("add", r.wide(r.field(r["block"], BLOCK.RANK, "i32")), 1)
    named = r.op("or", address, r.op("shl", rank, RANK_SHIFT))
    return r.select(r.is_below(address, 1 << RANK_SHIFT), named, address)


@check_routine("tw_check_land")
def complete_copy(r: CheckRoutine, copy: Ptr, lane: I32, time: I32) -> None:
    """Complete one lane's copy as of a time: clear the marks of its memory."""
    bit = r.op("shl", 1, lane)
    r.put(copy, COPY.LANES, r.without(r.field(copy, COPY.LANES, "i32"), bit))
    with r.when(r.equals(r.field(copy, COPY.KIND, "i32"), PRODUCTS)):
        low, high, *numbers = (r.field(copy, COPY.PLACES + 4 * i, "i32") for i in range(6))
        beside = r.op("sub", r.field(copy, COPY.WARP, "i32"), r.narrow(r.index()))
        who = r.op("or", r.op("shl", r.op("add", serial_of(r), beside), WHO.LANE_BITS), WHO.WHOLE)
        bits = r.op("or", r.op("shl", r.wide(high), 32), r.wide(low))
        walk_matrix(r, bits, *numbers, Mark.FREE, time, who)
        r.give()
    way = r.field(copy, COPY.SIDE, "i32")
    with r.when(r.equals(way, CopySide.TO_GLOBAL)):
        stored = (r.field(copy, COPY.TENSOR, "i32"), r.at(copy, COPY.PLACES))
        line = r.field(copy, COPY.LINE, "i32")
        walk_destination(r, *stored, lane, StoreStep.RELEASE, worker=NULL, line=line)
        r.give()
    address = r.wide(r.field(address_slot(r, copy, lane), 0, "i32"))
    leaves = r.equals(way, CopySide.FROM_SHARED)
    what, count = r.select(leaves, Mark.FREE, Mark.LAND), r.wide(r.field(copy, COPY.BYTES, "i32"))
    mark(r, SHARED, address, count, what, time, accessor(r, lane))


# -- what was in flight -------------------------------------------------------------------------------
@check_routine("tw_check_matrix")
def walk_matrix(
    r: CheckRoutine,
    bits: I64,
    first: I32,
    rows: I32,
    bricks: I32,
    across: I32,
    what: I32,
    time: I32,
    who: I32,
) -> None:
    """Mark each row of 16 bytes of the matrix that a descriptor describes (``wgmma_descriptor.py``) as read or free."""

    def part(low: int, mask: int) -> Value:
        return r.op("and", r.op("lshr", bits, low), mask)

    start, leading, stride = (r.op("shl", part(low, 0x3FFF), 4) for low in (0, 16, 32))
    mode, base = part(62, 3), part(49, 7)
    plain = r.equals(mode, 0)
    span = r.select(plain, 16, r.op("lshr", 256, mode))
    chunks = r.op("sub", r.op("lshr", span, 4), 1)
    wide = r.select(plain, 0, r.op("sub", 4, mode))
    turned = r.differs(across, 0)
    far = r.select(turned, r.select(plain, leading, stride), stride)
    near = r.select(turned, r.select(plain, stride, leading), leading)
    end = r.wide(r.op("add", first, rows))
    with r.count(end, r.wide(first)) as j, r.count(r.wide(bricks)) as c:
        inner, outer = r.select(turned, j, c), r.select(turned, c, j)
        at = r.op("add", start, r.op("shl", r.op("and", inner, chunks), 4))
        at = r.op("add", at, r.op("mul", r.op("lshr", inner, wide), near))
        at = r.op("add", at, r.op("mul", outer, far))
        with r.count(_BRICK_ROWS) as row:
            place = r.op("add", at, r.op("mul", row, span))
            turn = r.op("and", r.op("sub", r.op("lshr", place, 7), base), chunks)
            place = with_rank(r, r.op("xor", place, r.op("shl", turn, 4)))
            _mark_row(r, place)


def _mark_row(r: CheckRoutine, place: Value) -> None:
    with r.when(r.equals(r["what"], Mark.LEAVE)):
        # NOTE: while it is issued, ``time`` is the line of the PTX.
        check_touch(r, WHO.WHOLE, place, 16, SHARED, Action.LOAD, ACCESS.PROXY, r["time"])
    mark(r, SHARED, place, r.const("i64", 16), r["what"], r["time"], r["who"])


@routine("tw_check_store", "i32", *POINTERS)
def walk_destination(r: CheckRoutine, tensor: I32, data: Ptr, lane: I32, line: I32, step: I32) -> None:
    """Walk the destination of a store to global memory, which is issued or complete: ``step``."""
    with r.when(r.differs(tensor, 0)):
        r.give(store_tensor(r, data, lane, step))
    r.give(store_bulk(r, data, lane, step))
