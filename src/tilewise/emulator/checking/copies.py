"""Copies and wgmma in flight, from issue until the program has waited for them: records, groups, and checks.

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
    COPY,
    SHADOW,
    STATE,
    SYNC,
    WHO,
    Action,
    CopySide,
    FindingKind,
    StoreStep,
)
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.race_check import check_access
from tilewise.emulator.checking.shadow_memory import find_cell, find_shadow, look_up_shadow, reserve_shadow
from tilewise.emulator.checking.vector_clocks import sync_by_one
from tilewise.emulator.layout import BLOCK, LAUNCH, RANK_SHIFT, WARP, Flight, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, ZERO_I32, Ptr, routine
from tilewise.emulator.support.bulk_requests import REQUEST, Verb, each_block, store_bulk
from tilewise.emulator.support.checked import accessor, check_touch, record_finding, serial_of
from tilewise.emulator.support.mbarrier import PHASE_BIT
from tilewise.emulator.support.tensor import PLAN, make_plan, store_tensor
from tilewise.emulator.support.wgmma_descriptor import ROWS, Descriptor

__all__ = [
    "BULKS",
    "COPIED",
    "PRODUCTS",
    "SHARED",
    "Mark",
    "complete_phase",
    "first_of_warpgroup",
    "groups_of",
    "new_record",
    "walk_matrix",
]

COPIED, BULKS, PRODUCTS = 0, 1, 2  # kinds of groups: of cp.async, of bulk copies, of wgmma
SHARED, GLOBAL = int(Space.SHARED), int(Space.GLOBAL)


class Mark(IntEnum):
    """What ``tw_check_mark`` does with the in-flight marks of a stretch of memory."""

    SET, LAND = 0, 1  # a copy to it is issued; it is complete
    LEAVE, FREE = 2, 3  # a read of it is issued; it is complete


@routine("tw_check_mark", "void", "ctx", "block")
def mark(
    r: CheckRoutine,
    space: I32,
    address: I64,
    length: I64,
    what: I32,
    time: I32 = ZERO_I32,
    who: I32 = ZERO_I32,
) -> None:
    """Change the in-flight mark of each word of a stretch of shared or global memory, as ``Mark`` says."""
    place = reserve_shadow(r)
    at, end = r.variable("i64", address), address + length
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.is_at_least(here, end))
        at.put((here | 3) + 1)
        r.give_if(r.negation(find_shadow(r, place, here, space)))
        cell = find_cell(r, place, here - r.field(place, SHADOW.FIRST, "i64"))
        state = r.field(cell[CELLS.STATE], 0, "i32")
        leaving, also = state & STATE.MANY_LEAVING, state & STATE.MOST_ARRIVING
        changed = r.variable("i32", state)
        with r.when(r.equals(what, Mark.SET)):
            first = r.equals(state & STATE.ARRIVING, 0)
            full = r.equals(also, STATE.MOST_ARRIVING)
            more = r.select(full, state, state + STATE.ALSO_ARRIVING)
            changed.put(r.select(first, state | STATE.ARRIVING, more))
        with r.when(r.equals(what, Mark.LAND)):
            last = r.equals(also, 0)
            fewer = state - STATE.ALSO_ARRIVING
            changed.put(r.select(last, state & (~STATE.ARRIVING), fewer))
            # NOTE: what is in shared memory may have been issued by another thread than waits for it.
            own = r.equals(r.field(cell[CELLS.WRITER], 0, "i32"), who)
            with r.when(own | r.equals(space, SHARED)):
                r.put(cell[CELLS.WRITTEN], 0, time)
        with r.when(r.equals(what, Mark.LEAVE)):
            full = r.equals(leaving, STATE.MANY_LEAVING)
            changed.put(r.select(full, state, state + STATE.LEAVING))
        with r.when(r.equals(what, Mark.FREE)):
            none = r.equals(leaving, 0)
            changed.put(r.select(none, state, state - STATE.LEAVING))
            own = r.equals(r.field(cell[CELLS.READER], 0, "i32"), who)
            with r.when(own):
                r.put(cell[CELLS.READ], 0, time)
        r.put(cell[CELLS.STATE], 0, changed.get())


# -- records --------------------------------------------------------------------------------------------
def groups_of(r: CheckRoutine, kind: Value | int) -> Value:
    """Pointer to how many groups each lane of this warp has committed."""
    number = r.fixed(kind, "i64") if isinstance(kind, int) else r.wide(kind)
    row = r.index() * CLOCKS.GROUP_KINDS + number
    return r.item(r.table(CLOCKS.GROUPS), row, 128)


@check_routine("tw_check_record", "ptr")
def new_record(r: CheckRoutine, mask: I32, length: I32, kind: I32, way: I32, line: I32) -> None:
    """A new record, for some lanes of a warp; null if there are too many."""
    clocks = r.clocks()
    count, start = (r.field(clocks, CLOCKS.COUNT, "i64"), r.field(clocks, CLOCKS.COPIES, "ptr"))
    found = r.variable("ptr", NULL)
    with r.when(r.is_below(count, COPY.MOST)):
        found.put(r.item(start, count, COPY.SIZE))
        r.put(clocks, CLOCKS.COUNT, count + 1)
    with r.otherwise(), r.count(count) as i:
        old = r.item(start, i, COPY.SIZE)
        with r.when(r.equals(r.field(old, COPY.LANES, "i32"), 0)):
            found.put(old)
    copy = found.get()
    r.give_if(r.is_null(copy), NULL)
    r.put_fields(copy, {COPY.LANES: mask, COPY.WARP: r.narrow(r.index()), COPY.BYTES: length})
    r.put_fields(copy, {COPY.LINE: line, COPY.KEY: r.const("i64", 0), COPY.TIME: r.now()})
    r.put_fields(copy, {COPY.KIND: kind, COPY.SIDE: way})
    r.copy(r.at(copy, COPY.GROUPS), groups_of(r, kind), 128)
    r.give(copy)


def first_of_warpgroup(r: CheckRoutine) -> Value:
    """The first warp of this one's warpgroup, within its cluster."""
    return r.index() - r.wide(r.field(r["warp"], WARP.INDEX, "i32") & 3)


@contextmanager
def each_record(r: CheckRoutine) -> Iterator[Value]:
    start = r.table(CLOCKS.COPIES)
    with r.count(r.field(r.clocks(), CLOCKS.COUNT, "i64")) as i:
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
        last = r.item(start, count - 1, COPY.SIZE)
        loop.leave(r.differs(r.field(last, COPY.LANES, "i32"), 0))
        r.put(clocks, CLOCKS.COUNT, count - 1)


def phase_of(r: CheckRoutine, key: Value) -> Value:
    """The parity of the phase that an mbarrier is in; its key is its address with a rank, and 1 more."""
    place = reserve_shadow(r)
    address, found = key - 1, r.variable("i32", 0)
    with r.when(look_up_shadow(r, SHARED, address, place)):
        offset = address - r.field(place, SHADOW.FIRST, "i64")
        word = r.field(r.at(r.field(place, SHADOW.MEMORY, "ptr"), offset), 0, "i64")
        found.put(r.narrow((word >> PHASE_BIT) & 1))
    return found.get()


def with_rank(r: CheckRoutine, address: Value) -> Value:
    """An address of shared memory with the rank of its block."""
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32")) + 1
    named = address | (rank << RANK_SHIFT)
    return r.select(r.is_below(address, 1 << RANK_SHIFT), named, address)


@check_routine("tw_check_land")
def complete_copy(r: CheckRoutine, copy: Ptr, lane: I32, time: I32) -> None:
    """Complete one lane's copy as of a time: clear the marks of its memory."""
    bit = 1 << lane
    r.put(copy, COPY.LANES, r.without(r.field(copy, COPY.LANES, "i32"), bit))
    with r.when(r.equals(r.field(copy, COPY.KIND, "i32"), PRODUCTS)):
        beside = r.field(copy, COPY.WARP, "i32") - r.narrow(r.index())
        who = ((serial_of(r) + beside) << WHO.LANE_BITS) | WHO.WHOLE
        walk_matrix(r, copy, Mark.FREE, time, who)
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
def walk_matrix(r: CheckRoutine, copy: Ptr, what: I32, time: I32, who: I32) -> None:
    """Mark each row of 16 bytes of the matrix of a record as read or free: its descriptor (``wgmma_descriptor.py``),
    its first brick, how many there are both ways, and whether it is MN-major lie at PLACES.
    """
    d = Descriptor(r, r.field(copy, COPY.PLACES, "i64"))
    first, rows, bricks, across = (r.field(copy, COPY.PLACES + 8 + 4 * i, "i32") for i in range(4))
    turned = r.differs(across, 0)
    end = r.wide(first + rows)
    with r.count(end, r.wide(first)) as brick, r.count(r.wide(bricks)) as column:
        j, c = r.narrow(brick), r.narrow(column)
        at = d.find_brick(r.select(turned, j, c), r.select(turned, c, j), turned)
        with r.count(ROWS) as row:
            place = at + r.narrow(row) * d.span
            turn = ((place >> 7) - d.base) & d.chunks
            address = with_rank(r, r.wide(place ^ (turn << 4)))
            with r.when(r.equals(what, Mark.LEAVE)):
                # NOTE: while it is issued, ``time`` is the line of the PTX.
                check_touch(r, WHO.WHOLE, address, 16, SHARED, Action.LOAD, ACCESS.PROXY, time)
            mark(r, SHARED, address, 16, what, time, who)


@routine("tw_check_store", "i32", *POINTERS)
def walk_destination(r: CheckRoutine, tensor: I32, data: Ptr, lane: I32, line: I32, step: I32) -> None:
    """Walk the destination of a store to global memory, which is issued or complete: ``step``."""
    with r.when(r.differs(tensor, 0)):
        r.give(store_tensor(r, data, lane, step))
    r.give(store_bulk(r, data, lane, step))


# -- cp.async, and groups --------------------------------------------------------------------------
@check_routine("tw_check_copy")
def _issue_copies(r: CheckRoutine, addresses: Ptr, mask: I32, size: I32, line: I32) -> None:
    """Record copies to shared memory that some lanes issue, each of ``size`` bytes."""
    check_access(r, addresses, mask, size, SHARED, Action.STORE, 0, NULL, 4)
    copy = new_record(r, mask, size, COPIED, CopySide.TO_SHARED)
    r.give_if(r.is_null(copy))
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        r.put(address_slot(r, copy, lane), 0, r.narrow(address))
        mark(r, SHARED, address, r.wide(size), Mark.SET)


@check_routine("tw_check_commit")
def _commit(r: CheckRoutine, mask: I32, kind: I32) -> None:
    """Some lanes commit a group."""
    with r.each_lane(mask) as lane:
        r.change(r.item(groups_of(r, kind), lane, 4), 0, "add", 1)


@check_routine("tw_check_landed")
def _wait_groups(r: CheckRoutine, mask: I32, keep: I32, kind: I32, reads: I32) -> None:
    """Complete all groups but the last ``keep`` of some lanes that have waited; -1 for all. With ``reads``, only the
    reads of the groups.

    A wgmma is one operation of four warps: when one of them has waited for it, it is complete for all.
    """
    products, first = r.equals(kind, PRODUCTS), first_of_warpgroup(r)
    some = r.variable("i1", 0)
    with each_record(r) as copy:
        warp = r.wide(r.field(copy, COPY.WARP, "i32"))
        beside = r.both(products, r.is_below(warp - first, 4))
        mine = r.equals(warp, r.index()) | beside
        same = r.equals(r.field(copy, COPY.KIND, "i32"), kind)
        source = r.equals(r.field(copy, COPY.SIDE, "i32"), CopySide.FROM_SHARED)
        meant = source | r.equals(reads, 0)
        with r.when(r.both(mine, same, meant)), r.each_lane(r.field(copy, COPY.LANES, "i32") & mask) as lane:
            own = r.element(r.at(copy, COPY.GROUPS), lane, "i32")
            since = r.element(groups_of(r, kind), lane, "i32") - own
            with r.when(r.compare("icmp sgt", since, keep)):
                complete_copy(r, copy, lane, r.now())
                some.put(1)
    trim_records(r)
    with r.when(r.both(products, some.get())):
        r.put(r.item(r.table(CLOCKS.PRODUCTS_DONE), first, 4), 0, r.now())
        r.tick()


@check_routine("tw_check_told")
def _attach_to_mbarrier(r: CheckRoutine, addresses: Ptr, mask: I32) -> None:
    """``cp.async.mbarrier.arrive``: attach some lanes' copies so far to mbarriers, whose phase completes them."""
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64") & 0xFFFF_FFFF
        key = with_rank(r, address) + 1
        phase = phase_of(r, key)
        bit = 1 << lane
        with each_record(r) as copy:
            mine = r.equals(r.wide(r.field(copy, COPY.WARP, "i32")), r.index())
            lanes = r.field(copy, COPY.LANES, "i32") & bit
            kind = r.equals(r.field(copy, COPY.KIND, "i32"), COPIED)
            free = r.equals(r.field(copy, COPY.KEY, "i64"), 0)
            with r.when(r.both(mine, kind, free, r.differs(lanes, 0))):
                r.put(copy, COPY.KEY, key)
                r.put(copy, COPY.PHASE, phase)
                r.put(copy, COPY.TIME, r.now())


@check_routine("tw_check_seen")
def complete_phase(r: CheckRoutine, key: I64) -> None:
    """Complete the copies attached to a phase of an mbarrier that was seen to be over."""
    phase = phase_of(r, key)
    with each_record(r) as copy:
        attached = r.equals(r.field(copy, COPY.KEY, "i64"), key)
        over = r.differs(r.field(copy, COPY.PHASE, "i32"), phase)
        with r.when(r.both(attached, over)):
            time = r.field(copy, COPY.TIME, "i32")
            with r.each_lane(r.field(copy, COPY.LANES, "i32")) as lane:
                complete_copy(r, copy, lane, time)
    trim_records(r)


# -- bulk copies -----------------------------------------------------------------------------------
@check_routine("tw_check_bulk", "i32", "worker")
def _issue_bulk(r: CheckRoutine, kind: I32, data: Ptr, lane: I32, line: I32) -> None:
    """Check and record a bulk copy that a lane issues; ``data`` is its request."""
    verb = r.narrow(r.field(data, REQUEST.VERB, "i64"))
    count = r.variable("i64", r.field(data, REQUEST.SIZE, "i64") & 0xFFFF_FFFF)
    with r.when(r.equals(kind, Flight.TENSOR)):
        plan = r.reserve(f"[{PLAN.BYTES} x i8]", 64)
        r.give_unless_zero(make_plan(r, data, plan, lane))
        count.put(r.field(plan, PLAN.EXTENT, "i64"))
    # NOTE: a size may be anything. What is larger than shared memory is a fault, once the copy itself is issued.
    count.put(r.intrinsic("llvm.umin", count.get(), r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")))
    near = with_rank(r, r.field(data, REQUEST.SHARED, "i64"))
    far = with_rank(r, r.field(data, REQUEST.GLOBAL, "i64") & 0xFFFF_FFFF)
    barrier = r.field(data, REQUEST.MBARRIER, "i64")
    with r.when(r.equals(verb, Verb.LOAD)):
        with each_block(r, data) as at:
            target, reported = with_rank(r, at(near)), with_rank(r, at(with_rank(r, barrier)))
            _write_shared(r, target, count.get(), reported, Action.STORE, 1, lane)
        r.give(0)
    with r.when(r.is_below(verb, Verb.SEND)):
        _read_shared(r, near, count.get(), 0, lane)
        # The store's destination is marked as in flight; what is wrong with its addresses is the answer.
        tensor = r.cast("zext", r.equals(kind, Flight.TENSOR), "i32")
        copy = new_record(r, 1 << lane, 0, BULKS, CopySide.TO_GLOBAL)
        r.give_if(r.is_null(copy), 0)
        r.put(copy, COPY.TENSOR, tensor)
        r.copy(r.at(copy, COPY.PLACES), data, COPY.REQUEST_BYTES)
        r.give(walk_destination(r, tensor, data, lane, StoreStep.CLAIM))
    with r.when(r.is_below(verb, Verb.WRITE)):
        _read_shared(r, near, count.get(), with_rank(r, barrier), lane)
    changes = r.equals(verb, Verb.SEND_REDUCE) | r.equals(verb, Verb.CHANGE)
    action = r.select(changes, Action.ATOMIC, Action.STORE)
    bulk = r.cast("zext", r.is_below(verb, Verb.WRITE), "i32")
    _write_shared(r, far, count.get(), with_rank(r, barrier), action, bulk, lane)


@check_routine("tw_check_destination")
def _check_destination(
    r: CheckRoutine, lane: I32, address: I64, length: I64, reduces: I32, line: I32, values: Ptr, step: I32
) -> None:
    """Check a stretch of global memory that a store will write, and mark it as in flight; or as written."""
    stretch = (address, length)
    with r.when(r.equals(step, StoreStep.RELEASE)):
        mark(r, GLOBAL, *stretch, Mark.LAND, r.now(), accessor(r, lane))
        r.give()
    changes = r.differs(reduces, 0)
    action = r.select(changes, Action.ATOMIC, Action.STORE)
    flags = r.select(changes, ACCESS.PROXY | ACCESS.STRONG, ACCESS.PROXY)
    check_touch(r, lane, *stretch, GLOBAL, action, flags, values=values)
    mark(r, GLOBAL, *stretch, Mark.SET)


def _record_lane(r: CheckRoutine, way: CopySide) -> Value:
    bit = 1 << r["lane"]
    copy = new_record(r, bit, r.narrow(r["length"]), BULKS, way)
    r.give_if(r.is_null(copy))
    r.put(address_slot(r, copy, r["lane"]), 0, r.narrow(r["address"]))
    with r.when(r.differs(r["barrier"], 0)):
        bulk = 1 if way == CopySide.FROM_SHARED else r["bulk"]
        _check_mbarrier(r, r["barrier"], bulk, r["lane"])
        key = r["barrier"] + 1
        r.put(copy, COPY.KEY, key)
        r.put(copy, COPY.PHASE, phase_of(r, key))
        sync_by_one(r, 1, r["barrier"], SYNC.RELEASE, 1, r.lone_lane(bit))
    return copy


@check_routine("tw_check_arrives")
def _write_shared(
    r: CheckRoutine, address: I64, length: I64, barrier: I64, action: I32, bulk: I32, lane: I32, line: I32
) -> None:
    """Check and record a write in flight to a stretch of shared memory, which completes on an mbarrier."""
    changes = r.equals(action, Action.ATOMIC)
    flags = r.select(changes, ACCESS.PROXY | ACCESS.STRONG, ACCESS.PROXY)
    check_touch(r, lane, address, length, SHARED, action, flags)
    _record_lane(r, CopySide.TO_SHARED)
    mark(r, SHARED, address, length, Mark.SET)


@check_routine("tw_check_leaves")
def _read_shared(r: CheckRoutine, address: I64, length: I64, barrier: I64, lane: I32, line: I32) -> None:
    """Check and record a read in flight of a stretch of shared memory; a barrier of 0 means that it is of a group."""
    check_touch(r, lane, address, length, SHARED, Action.LOAD, ACCESS.PROXY)
    _record_lane(r, CopySide.FROM_SHARED)
    mark(r, SHARED, address, length, Mark.LEAVE)


@check_routine("tw_check_tells")
def _check_mbarrier(r: CheckRoutine, address: I64, bulk: I32, lane: I32, line: I32) -> None:
    """Report a copy whose mbarrier is not initialised before it; for a ``bulk`` copy, with a proxy fence between."""
    check_touch(r, lane, address, 8, SHARED, Action.ATOMIC, ACCESS.STRONG)
    place = reserve_shadow(r)
    known = look_up_shadow(r, SHARED, address, place)
    r.give_if(r.negation(r.both(known, r.differs(bulk, 0))))
    cell = find_cell(r, place, address - r.field(place, SHADOW.FIRST, "i64"))
    time, who, info = (r.field(cell[column], 0, "i32") for column in CELLS.PLAIN_STORE)
    since = r.is_after_last(time, CLOCKS.PUBLISHED, who)
    born = r.narrow(r.field(place, SHADOW.BEGAN, "i64"))
    with r.when(r.both(since, r.is_above(time, born))):
        found = (info >> ACCESS.LINE_BITS, address, who, 8, ACCESS.PROXY)
        record_finding(r, FindingKind.MBARRIER_UNPUBLISHED, accessor(r, lane), *found)
