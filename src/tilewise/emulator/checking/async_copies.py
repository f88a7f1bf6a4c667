"""Copies of ``cp.async`` in flight: their groups, and the mbarriers that complete them."""

from __future__ import annotations

from tilewise.emulator.check_layout import CLOCKS, COPY, Action, CopySide
from tilewise.emulator.checking import bulk_copies, flight_records, wgmma_operands
from tilewise.emulator.checking.flight_records import (
    COPIED,
    PRODUCTS,
    SHARED,
    Mark,
    address_slot,
    each_record,
    first_of_warpgroup,
    groups_of,
    mark,
    phase_of,
    trim_records,
    with_rank,
)
from tilewise.emulator.checking.vector_clocks import (
    WARP_PARAMETERS,
    call_for_warp,
    clocks_of,
    index_of,
    now_of,
    tick,
)
from tilewise.emulator.llvm.routine import NULL, Routine

__all__ = ["routines"]


def routines() -> list[Routine]:
    """The routines of everything that may be in flight: copies, bulk copies, operands of wgmma."""
    own = [_copy(), _commit(), _wait_groups(), _attach_to_mbarrier(), _complete_phase()]
    return [*flight_records.routines(), *own, *bulk_copies.routines(), *wgmma_operands.routines()]


def _copy() -> Routine:
    """Record copies to shared memory that some lanes issue, each of ``size`` bytes."""
    r = Routine(
        "tw_check_copy", "void", **WARP_PARAMETERS, addresses="ptr", mask="i32", size="i32", line="i32"
    )
    given = (r["addresses"], r["mask"], r["size"], SHARED, Action.STORE, 0, r["line"], NULL, 4)
    call_for_warp(r, "tw_check", *given)
    numbers = (r["mask"], r["size"], COPIED, CopySide.TO_SHARED, r["line"])
    copy = call_for_warp(r, "tw_check_record", *numbers, result="ptr")
    r.give_if(r.is_null(copy))
    with r.each_lane(r["mask"]) as lane:
        address = r.element(r["addresses"], lane, "i64")
        r.put(address_slot(r, copy, lane), 0, r.narrow(address))
        mark(r, SHARED, address, r.wide(r["size"]), Mark.SET)
    return r


def _commit() -> Routine:
    """Some lanes commit a group."""
    r = Routine("tw_check_commit", "void", **WARP_PARAMETERS, mask="i32", kind="i32")
    with r.each_lane(r["mask"]) as lane:
        r.change(r.item(groups_of(r, r["kind"]), lane, 4), 0, "add", 1)
    return r


def _wait_groups() -> Routine:
    """Complete all groups but the last ``keep`` of some lanes that have waited; -1 for all. With ``reads``, only the
    reads of the groups.

    A wgmma is one operation of four warps: when one of them has waited for it, it is complete for all.
    """
    r = Routine("tw_check_landed", "void", **WARP_PARAMETERS, mask="i32", keep="i32", kind="i32", reads="i32")
    products, first = r.equals(r["kind"], PRODUCTS), first_of_warpgroup(r)
    some = r.variable("i1", 0)
    with each_record(r) as copy:
        warp = r.wide(r.field(copy, COPY.WARP, "i32"))
        beside = r.both(products, r.is_below(r.op("sub", warp, first), 4))
        mine = r.op("or", r.equals(warp, index_of(r)), beside)
        kind = r.equals(r.field(copy, COPY.KIND, "i32"), r["kind"])
        source = r.equals(r.field(copy, COPY.SIDE, "i32"), CopySide.FROM_SHARED)
        meant = r.op("or", source, r.equals(r["reads"], 0))
        with (
            r.when(r.both(mine, kind, meant)),
            r.each_lane(r.op("and", r.field(copy, COPY.LANES, "i32"), r["mask"])) as lane,
        ):
            own = r.element(r.at(copy, COPY.GROUPS), lane, "i32")
            since = r.op("sub", r.element(groups_of(r, r["kind"]), lane, "i32"), own)
            with r.when(r.compare("icmp sgt", since, r["keep"])):
                call_for_warp(r, "tw_check_land", copy, lane, now_of(r))
                some.put(1)
    trim_records(r)
    with r.when(r.both(products, some.get())):
        r.put(r.item(r.field(clocks_of(r), CLOCKS.PRODUCTS_DONE, "ptr"), first, 4), 0, now_of(r))
        tick(r)
    return r


def _attach_to_mbarrier() -> Routine:
    """``cp.async.mbarrier.arrive``: attach some lanes' copies so far to mbarriers, whose phase completes them."""
    r = Routine("tw_check_told", "void", **WARP_PARAMETERS, addresses="ptr", mask="i32")
    with r.each_lane(r["mask"]) as lane:
        address = r.op("and", r.element(r["addresses"], lane, "i64"), 0xFFFF_FFFF)
        key = r.op("add", with_rank(r, address), 1)
        phase = phase_of(r, key)
        bit = r.op("shl", 1, lane)
        with each_record(r) as copy:
            mine = r.equals(r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
            lanes = r.op("and", r.field(copy, COPY.LANES, "i32"), bit)
            kind = r.equals(r.field(copy, COPY.KIND, "i32"), COPIED)
            free = r.equals(r.field(copy, COPY.KEY, "i64"), 0)
            with r.when(r.both(mine, kind, free, r.differs(lanes, 0))):
                r.put(copy, COPY.KEY, key)
                r.put(copy, COPY.PHASE, phase)
                r.put(copy, COPY.TIME, now_of(r))
    return r


def _complete_phase() -> Routine:
    """Complete the copies attached to a phase of an mbarrier that was seen to be over."""
    r = Routine("tw_check_seen", "void", **WARP_PARAMETERS, key="i64")
    phase = phase_of(r, r["key"])
    with each_record(r) as copy:
        attached = r.equals(r.field(copy, COPY.KEY, "i64"), r["key"])
        over = r.differs(r.field(copy, COPY.PHASE, "i32"), phase)
        with r.when(r.both(attached, over)):
            time = r.field(copy, COPY.TIME, "i32")
            with r.each_lane(r.field(copy, COPY.LANES, "i32")) as lane:
                call_for_warp(r, "tw_check_land", copy, lane, time)
    trim_records(r)
    return r
