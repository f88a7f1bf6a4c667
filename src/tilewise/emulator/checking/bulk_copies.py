"""Bulk copies in flight: checks of their sources, destinations and mbarriers as they are issued."""

from __future__ import annotations

from tilewise.emulator.check_layout import (
    CELLS,
    CLOCKS,
    COPY,
    LANE_BITS,
    LINE_BITS,
    PROXY,
    RELEASE,
    SHADOW,
    STRONG,
    Action,
    CopySide,
    FindingKind,
    StoreStep,
)
from tilewise.emulator.checking.flight_records import (
    BULKS,
    GLOBAL,
    SHARED,
    Mark,
    address_slot,
    mark,
    phase_of,
    with_rank,
)
from tilewise.emulator.checking.vector_clocks import (
    WARP_PARAMETERS,
    call_for_warp,
    clocks_of,
    index_of,
    lone_lane,
    now_of,
    warps_of_cluster,
)
from tilewise.emulator.layout import LAUNCH, Flight
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import POINTERS, Routine
from tilewise.emulator.support.bulk_requests import REQUEST, Verb, each_block
from tilewise.emulator.support.checked import accessor, check_touch, record_finding
from tilewise.emulator.support.tensor_plan import PLAN

__all__ = ["routines"]


def routines() -> list[Routine]:
    return [
        _issue(),
        _write_shared(),
        _read_shared(),
        _check_mbarrier(),
        _walk_destination(),
        _check_destination(),
    ]


def _issue() -> Routine:
    """Check and record a bulk copy that a lane issues; ``data`` is its request."""
    names = {"worker": "ptr", "kind": "i32", "data": "ptr", "lane": "i32", "line": "i32"}
    r = Routine("tw_check_bulk", "i32", **WARP_PARAMETERS, **names)
    data = r["data"]
    verb = r.narrow(r.field(data, REQUEST.VERB, "i64"))
    count = r.variable("i64", r.op("and", r.field(data, REQUEST.SIZE, "i64"), 0xFFFF_FFFF))
    with r.when(r.equals(r["kind"], Flight.TENSOR)):
        plan = r.reserve(f"[{PLAN.BYTES} x i8]", 64)
        r.give_unless_zero(r.call("tw_tensor_plan", "i32", *r.pointers(), data, plan, r["lane"], r["line"]))
        count.put(r.field(plan, PLAN.EXTENT, "i64"))
    # NOTE: a size may be anything. What is larger than shared memory is a fault, once the copy itself is issued.
    count.put(r.intrinsic("llvm.umin", count.get(), r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")))
    near = with_rank(r, r.field(data, REQUEST.SHARED, "i64"))
    far = with_rank(r, r.op("and", r.field(data, REQUEST.GLOBAL, "i64"), 0xFFFF_FFFF))
    barrier = r.field(data, REQUEST.MBARRIER, "i64")
    own = (r["lane"], r["line"])
    with r.when(r.equals(verb, Verb.LOAD)):
        with each_block(r, data) as at:
            target, reported = with_rank(r, at(near)), with_rank(r, at(with_rank(r, barrier)))
            call_for_warp(r, "tw_check_arrives", target, count.get(), reported, Action.STORE, 1, *own)
        r.give(0)
    with r.when(r.is_below(verb, Verb.SEND)):
        call_for_warp(r, "tw_check_leaves", near, count.get(), r.const("i64", 0), *own)
        r.give(_claim_destination(r))
    with r.when(r.is_below(verb, Verb.WRITE)):
        call_for_warp(r, "tw_check_leaves", near, count.get(), with_rank(r, barrier), *own)
    changes = r.op("or", r.equals(verb, Verb.SEND_REDUCE), r.equals(verb, Verb.CHANGE))
    action = r.select(changes, Action.ATOMIC, Action.STORE)
    bulk = r.cast("zext", r.is_below(verb, Verb.WRITE), "i32")
    call_for_warp(r, "tw_check_arrives", far, count.get(), with_rank(r, barrier), action, bulk, *own)
    r.give(0)
    return r


def _claim_destination(r: Routine) -> Value:
    """Record a store to global memory and mark its destination as in flight: the fault of its addresses, or 0."""
    tensor = r.cast("zext", r.equals(r["kind"], Flight.TENSOR), "i32")
    numbers = (r.op("shl", 1, r["lane"]), 0, BULKS, CopySide.TO_GLOBAL, r["line"])
    copy = call_for_warp(r, "tw_check_record", *numbers, result="ptr")
    r.give_if(r.is_null(copy), 0)
    r.put(copy, COPY.TENSOR, tensor)
    r.copy(r.at(copy, COPY.PLACES), r["data"], COPY.REQUEST_BYTES)
    given = (tensor, r["data"], r["lane"], r["line"], StoreStep.CLAIM)
    return r.call("tw_check_store", "i32", *r.pointers(), *given)


def _walk_destination() -> Routine:
    """Walk the destination of a store to global memory, which is issued or complete: ``step``."""
    names = {"tensor": "i32", "data": "ptr", "lane": "i32", "line": "i32", "step": "i32"}
    r = Routine("tw_check_store", "i32", **POINTERS, **names)
    given = (*r.pointers(), r["data"], r["lane"], r["line"], r["step"])
    with r.when(r.differs(r["tensor"], 0)):
        r.give(r.call("tw_tensor_store", "i32", *given))
    r.give(r.call("tw_bulk_store", "i32", *given))
    return r


def _check_destination() -> Routine:
    """Check a stretch of global memory that a store will write, and mark it as in flight; or as written."""
    names = {"lane": "i32", "address": "i64", "bytes": "i64", "reduces": "i32", "line": "i32"}
    r = Routine("tw_check_destination", "void", **WARP_PARAMETERS, **names, values="ptr", step="i32")
    stretch = (r["address"], r["bytes"])
    with r.when(r.equals(r["step"], StoreStep.RELEASE)):
        mark(r, GLOBAL, *stretch, Mark.LAND, now_of(r), accessor(r, r["lane"]))
        r.give()
    changes = r.differs(r["reduces"], 0)
    action = r.select(changes, Action.ATOMIC, Action.STORE)
    flags = r.select(changes, PROXY | STRONG, PROXY)
    check_touch(r, r["lane"], *stretch, GLOBAL, action, flags, values=r["values"])
    mark(r, GLOBAL, *stretch, Mark.SET)
    return r


_STRETCH = {"address": "i64", "bytes": "i64", "barrier": "i64"}
_LANE_AND_LINE = {"lane": "i32", "line": "i32"}


def _new_record(r: Routine, way: CopySide) -> Value:
    bit = r.op("shl", 1, r["lane"])
    numbers = (bit, r.narrow(r["bytes"]), BULKS, way, r["line"])
    copy = call_for_warp(r, "tw_check_record", *numbers, result="ptr")
    r.give_if(r.is_null(copy))
    r.put(address_slot(r, copy, r["lane"]), 0, r.narrow(r["address"]))
    with r.when(r.differs(r["barrier"], 0)):
        bulk = 1 if way == CopySide.FROM_SHARED else r["bulk"]
        call_for_warp(r, "tw_check_tells", r["barrier"], bulk, r["lane"], r["line"])
        key = r.op("add", r["barrier"], 1)
        r.put(copy, COPY.KEY, key)
        r.put(copy, COPY.PHASE, phase_of(r, key))
        call_for_warp(r, "tw_check_one", 1, r["barrier"], RELEASE, 1, lone_lane(r, bit))
    return copy


def _write_shared() -> Routine:
    """Check and record a write in flight to a stretch of shared memory, which completes on an mbarrier."""
    r = Routine(
        "tw_check_arrives", "void", **WARP_PARAMETERS, **_STRETCH, action="i32", bulk="i32", **_LANE_AND_LINE
    )
    changes = r.equals(r["action"], Action.ATOMIC)
    flags = r.select(changes, PROXY | STRONG, PROXY)
    check_touch(r, r["lane"], r["address"], r["bytes"], SHARED, r["action"], flags)
    _new_record(r, CopySide.TO_SHARED)
    mark(r, SHARED, r["address"], r["bytes"], Mark.SET)
    return r


def _read_shared() -> Routine:
    """Check and record a read in flight of a stretch of shared memory; a barrier of 0 means that it is of a group."""
    r = Routine("tw_check_leaves", "void", **WARP_PARAMETERS, **_STRETCH, **_LANE_AND_LINE)
    check_touch(r, r["lane"], r["address"], r["bytes"], SHARED, Action.LOAD, PROXY)
    _new_record(r, CopySide.FROM_SHARED)
    mark(r, SHARED, r["address"], r["bytes"], Mark.LEAVE)
    return r


def _check_mbarrier() -> Routine:
    """Report a copy whose mbarrier is not initialised before it; for a ``bulk`` copy, with a proxy fence between."""
    r = Routine(
        "tw_check_tells", "void", **WARP_PARAMETERS, address="i64", bulk="i32", lane="i32", line="i32"
    )
    check_touch(r, r["lane"], r["address"], 8, SHARED, Action.ATOMIC, STRONG)
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    known = r.call("tw_check_where", "i1", r["ctx"], r["block"], SHARED, r["address"], place)
    r.give_if(r.negation(r.both(known, r.differs(r["bulk"], 0))))
    row = r.op("and", r.op("sub", r["address"], r.field(place, SHADOW.FIRST, "i64")), -4)
    first, stride = r.at(r.field(place, SHADOW.CELLS, "ptr"), row), r.field(place, SHADOW.STRIDE, "i64")
    columns = (CELLS.PLAIN, CELLS.PLAIN_WRITER, CELLS.PLAIN_WRITE)
    time, who, info = (r.field(r.at(first, r.op("mul", stride, i)), 0, "i32") for i in columns)
    made, maker = r.field(clocks_of(r), CLOCKS.PUBLISHED, "ptr"), r.op("lshr", who, LANE_BITS)
    theirs = r.element(made, r.op("urem", r.wide(maker), warps_of_cluster(r)), "i32")
    own = r.element(made, index_of(r), "i32")
    since = r.is_above(time, r.intrinsic("llvm.umax", theirs, own))
    born = r.narrow(r.field(place, SHADOW.BEGAN, "i64"))
    with r.when(r.both(since, r.is_above(time, born))):
        found = (r["line"], r.op("lshr", info, LINE_BITS), r["address"], who, 8, PROXY)
        record_finding(r, FindingKind.MBARRIER_UNPUBLISHED, accessor(r, r["lane"]), *found)
    return r
