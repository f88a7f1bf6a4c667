"""Copies of ``cp.async`` in flight: their groups, and the mbarriers that complete them."""

from __future__ import annotations

from tilewise.emulator.check_layout import CLOCKS, COPY, Action, CopySide
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.flight_records import (
    COPIED,
    PRODUCTS,
    SHARED,
    Mark,
    address_slot,
    complete_copy,
    each_record,
    first_of_warpgroup,
    groups_of,
    mark,
    new_record,
    phase_of,
    trim_records,
    with_rank,
)
from tilewise.emulator.checking.race_check import check_access
from tilewise.emulator.llvm.routine import I32, I64, NULL, Ptr

__all__ = ["complete_phase"]


@check_routine("tw_check_copy")
def _copy(r: CheckRoutine, addresses: Ptr, mask: I32, size: I32, line: I32) -> None:
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
        beside = r.both(products, r.is_below(r.op("sub", warp, first), 4))
        mine = r.op("or", r.equals(warp, r.index()), beside)
        same = r.equals(r.field(copy, COPY.KIND, "i32"), kind)
        source = r.equals(r.field(copy, COPY.SIDE, "i32"), CopySide.FROM_SHARED)
        meant = r.op("or", source, r.equals(reads, 0))
        with (
            r.when(r.both(mine, same, meant)),
            r.each_lane(r.op("and", r.field(copy, COPY.LANES, "i32"), mask)) as lane,
        ):
            own = r.element(r.at(copy, COPY.GROUPS), lane, "i32")
            since = r.op("sub", r.element(groups_of(r, kind), lane, "i32"), own)
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
        address = r.op("and", r.element(addresses, lane, "i64"), 0xFFFF_FFFF)
        key = r.op("add", with_rank(r, address), 1)
        phase = phase_of(r, key)
        bit = r.op("shl", 1, lane)
        with each_record(r) as copy:
            mine = r.equals(r.wide(r.field(copy, COPY.WARP, "i32")), r.index())
            lanes = r.op("and", r.field(copy, COPY.LANES, "i32"), bit)
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
