"""Bulk copies in flight: checks of their sources, destinations and mbarriers as they are issued."""

from __future__ import annotations

from tilewise.emulator.check_layout import (
    ACCESS,
    CELLS,
    CLOCKS,
    COPY,
    SHADOW,
    SYNC,
    WHO,
    Action,
    CopySide,
    FindingKind,
    StoreStep,
)
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.flight_records import (
    BULKS,
    GLOBAL,
    SHARED,
    Mark,
    address_slot,
    mark,
    new_record,
    phase_of,
    walk_destination,
    with_rank,
)
from tilewise.emulator.checking.shadow_lookup import look_up_shadow
from tilewise.emulator.checking.sync_vars import sync_by_one
from tilewise.emulator.layout import LAUNCH, Flight
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr
from tilewise.emulator.support.bulk_requests import REQUEST, Verb, each_block
from tilewise.emulator.support.checked import accessor, check_touch, record_finding
from tilewise.emulator.support.tensor_plan import PLAN, make_plan

__all__: list[str] = []


@check_routine("tw_check_bulk", "i32", "worker")
def _issue(r: CheckRoutine, kind: I32, data: Ptr, lane: I32, line: I32) -> None:
    """Check and record a bulk copy that a lane issues; ``data`` is its request."""
    verb = r.narrow(r.field(data, REQUEST.VERB, "i64"))
    count = r.variable("i64", r.op("and", r.field(data, REQUEST.SIZE, "i64"), 0xFFFF_FFFF))
    with r.when(r.equals(kind, Flight.TENSOR)):
        plan = r.reserve(f"[{PLAN.BYTES} x i8]", 64)
        r.give_unless_zero(make_plan(r, data, plan, lane))
        count.put(r.field(plan, PLAN.EXTENT, "i64"))
    # NOTE: a size may be anything. What is larger than shared memory is a fault, once the copy itself is issued.
    count.put(r.intrinsic("llvm.umin", count.get(), r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")))
    near = with_rank(r, r.field(data, REQUEST.SHARED, "i64"))
    far = with_rank(r, r.op("and", r.field(data, REQUEST.GLOBAL, "i64"), 0xFFFF_FFFF))
    barrier = r.field(data, REQUEST.MBARRIER, "i64")
    with r.when(r.equals(verb, Verb.LOAD)):
        with each_block(r, data) as at:
            target, reported = with_rank(r, at(near)), with_rank(r, at(with_rank(r, barrier)))
            _write_shared(r, target, count.get(), reported, Action.STORE, 1, lane)
        r.give(0)
    with r.when(r.is_below(verb, Verb.SEND)):
        _read_shared(r, near, count.get(), 0, lane)
        r.give(_claim_destination(r))
    with r.when(r.is_below(verb, Verb.WRITE)):
        _read_shared(r, near, count.get(), with_rank(r, barrier), lane)
    changes = r.op("or", r.equals(verb, Verb.SEND_REDUCE), r.equals(verb, Verb.CHANGE))
    action = r.select(changes, Action.ATOMIC, Action.STORE)
    bulk = r.cast("zext", r.is_below(verb, Verb.WRITE), "i32")
    _write_shared(r, far, count.get(), with_rank(r, barrier), action, bulk, lane)


def _claim_destination(r: CheckRoutine) -> Value:
    """Record a store to global memory and mark its destination as in flight: the fault of its addresses, or 0."""
    tensor = r.cast("zext", r.equals(r["kind"], Flight.TENSOR), "i32")
    copy = new_record(r, r.op("shl", 1, r["lane"]), 0, BULKS, CopySide.TO_GLOBAL)
    r.give_if(r.is_null(copy), 0)
    r.put(copy, COPY.TENSOR, tensor)
    r.copy(r.at(copy, COPY.PLACES), r["data"], COPY.REQUEST_BYTES)
    return walk_destination(r, tensor, r["data"], r["lane"], StoreStep.CLAIM)


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


def _new_record(r: CheckRoutine, way: CopySide) -> Value:
    bit = r.op("shl", 1, r["lane"])
    copy = new_record(r, bit, r.narrow(r["length"]), BULKS, way)
    r.give_if(r.is_null(copy))
    r.put(address_slot(r, copy, r["lane"]), 0, r.narrow(r["address"]))
    with r.when(r.differs(r["barrier"], 0)):
        bulk = 1 if way == CopySide.FROM_SHARED else r["bulk"]
        _check_mbarrier(r, r["barrier"], bulk, r["lane"])
        key = r.op("add", r["barrier"], 1)
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
    _new_record(r, CopySide.TO_SHARED)
    mark(r, SHARED, address, length, Mark.SET)


@check_routine("tw_check_leaves")
def _read_shared(r: CheckRoutine, address: I64, length: I64, barrier: I64, lane: I32, line: I32) -> None:
    """Check and record a read in flight of a stretch of shared memory; a barrier of 0 means that it is of a group."""
    check_touch(r, lane, address, length, SHARED, Action.LOAD, ACCESS.PROXY)
    _new_record(r, CopySide.FROM_SHARED)
    mark(r, SHARED, address, length, Mark.LEAVE)


@check_routine("tw_check_tells")
def _check_mbarrier(r: CheckRoutine, address: I64, bulk: I32, lane: I32, line: I32) -> None:
    """Report a copy whose mbarrier is not initialised before it; for a ``bulk`` copy, with a proxy fence between."""
    check_touch(r, lane, address, 8, SHARED, Action.ATOMIC, ACCESS.STRONG)
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    known = look_up_shadow(r, SHARED, address, place)
    r.give_if(r.negation(r.both(known, r.differs(bulk, 0))))
    row = r.op("and", r.op("sub", address, r.field(place, SHADOW.FIRST, "i64")), -4)
    first, stride = r.at(r.field(place, SHADOW.CELLS, "ptr"), row), r.field(place, SHADOW.STRIDE, "i64")
    columns = (CELLS.PLAIN, CELLS.PLAIN_WRITER, CELLS.PLAIN_WRITE)
    time, who, info = (r.field(r.at(first, r.op("mul", stride, i)), 0, "i32") for i in columns)
    made, maker = r.table(CLOCKS.PUBLISHED), r.op("lshr", who, WHO.LANE_BITS)
    theirs = r.element(made, r.op("urem", r.wide(maker), r.warps_of_cluster()), "i32")
    own = r.element(made, r.index(), "i32")
    since = r.is_above(time, r.intrinsic("llvm.umax", theirs, own))
    born = r.narrow(r.field(place, SHADOW.BEGAN, "i64"))
    with r.when(r.both(since, r.is_above(time, born))):
        found = (line, r.op("lshr", info, ACCESS.LINE_BITS), address, who, 8, ACCESS.PROXY)
        record_finding(r, FindingKind.MBARRIER_UNPUBLISHED, accessor(r, lane), *found)
