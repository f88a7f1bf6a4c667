"""The run-time support of memory: faults, the search for what an address names, and careful copies lane by lane."""

from __future__ import annotations

from tilewise.emulator.layout import (
    BLOCK,
    FAULT,
    GENERIC_CONST,
    GENERIC_LOCAL,
    GENERIC_PARAM,
    GENERIC_SHARED,
    LAUNCH,
    RANK_SHIFT,
    WARP,
    WINDOW,
    FaultKind,
    Space,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, Ptr, Routine, routine

__all__ = ["give_failed_if_null", "record_fault", "resolve"]

_GENERIC = {
    Space.SHARED: GENERIC_SHARED,
    Space.LOCAL: GENERIC_LOCAL,
    Space.CONST: GENERIC_CONST,
    Space.PARAM: GENERIC_PARAM,
}


# -- faults -------------------------------------------------------------------------------------------
@routine("tw_fault_at", "void", *POINTERS)
def _record_fault(
    r: Routine, kind: I32, line: I32, lane: I32, address: I64, size: I32, space: I32, write: I32, extent: I64
) -> None:
    """Record a fault, if it is the first one, and stop the launch."""
    r.attributes = "noinline cold"
    ctx, block = r["ctx"], r["block"]
    fault = r.field(ctx, LAUNCH.FAULT, "ptr")
    _, first = r.swap_if(fault, r.const("i32", 0), r.const("i32", -1), "seq_cst")
    with r.when(first):
        r.put(fault, FAULT.LINE, line)
        for target, source in ((FAULT.X, BLOCK.X), (FAULT.Y, BLOCK.Y), (FAULT.Z, BLOCK.Z)):
            r.put(fault, target, r.field(block, source, "i32"))
        thread = r.op("shl", r.field(r["warp"], WARP.INDEX, "i32"), 5)
        r.put(fault, FAULT.THREAD, r.op("add", thread, lane))
        r.put_fields(fault, {FAULT.ADDRESS: address, FAULT.SIZE: size, FAULT.SPACE: space})
        r.put_fields(fault, {FAULT.WRITE: write, FAULT.EXTENT: extent})
        r.store_atomic(fault, kind, "release")
    r.store_atomic(r.at(ctx, LAUNCH.STOP), r.const("i32", 1), "release")


@routine("tw_fault", "void", *POINTERS)
def _record_lanes_fault(r: Routine, kind: I32, line: I32, mask: I32) -> None:
    """Record a fault of the first lane of ``mask`` that is no access to memory."""
    r.attributes = "noinline cold"
    record_fault(r, kind, r.op("and", r.find_lowest(mask), 31))


def record_fault(
    r: Routine,
    kind: Value | int,
    lane: Value | int,
    address: Value | int = 0,
    size: Value | int = 0,
    space: Value | int = 0,
    write: Value | int = 0,
    extent: Value | int = 0,
    line: Value | None = None,
) -> None:
    """Record a fault, in the routine's line if no other is given."""
    access = (r.fixed(address, "i64"), size, space, write, r.fixed(extent, "i64"))
    r.call("tw_fault_at", "void", *r.pointers(), kind, line or r["line"], lane, *access)


# -- addresses ----------------------------------------------------------------------------------------
@routine("tw_find", "i1", "ctx")
def _find_array(r: Routine, address: I64, size: I64, hint: Ptr) -> None:
    """Return whether ``size`` bytes from an address on lie in one array of global memory.

    ``hint`` then gets the array's first address, and of how many addresses the array consists, plus one.
    """
    ranges = r.field(r["ctx"], LAUNCH.RANGES, "ptr")
    low, high = r.variable("i64", 0), r.variable("i64", r.field(r["ctx"], LAUNCH.RANGE_COUNT, "i64"))
    with r.loop() as loop:
        loop.leave(r.is_at_least(low.get(), high.get()))
        middle = r.op("lshr", r.op("add", low.get(), high.get()), 1)
        item = r.item(ranges, middle, 16)
        first, last = r.field(item, 0, "i64"), r.field(item, 8, "i64")
        with r.when(r.is_below(address, first)):
            high.put(middle)
        with r.otherwise():
            with r.when(r.is_below(address, last)):
                loop.leave(r.is_above(size, r.op("sub", last, address)))
                r.put(hint, 0, first)
                r.put(hint, 8, r.op("add", r.op("sub", last, first), 1))
                r.give(1)
            low.put(r.op("add", middle, 1))
    r.give(0)


def resolve(
    r: Routine, address: Value, size: Value | int, space: Value | int, lane: Value, write: Value | int
) -> Value:
    """Return the pointer to the memory that a lane accesses in the routine's line; null after a fault."""
    return r.call("tw_resolve", "ptr", *r.pointers(), address, size, space, lane, r["line"], write)


def give_failed_if_null(r: Routine, place: Value) -> None:
    """Return 1 if what ``resolve`` found is nothing: it has recorded a fault."""
    r.give_if(r.is_null(place), 1)


@routine("tw_resolve", "ptr", *POINTERS)
def _resolve(r: Routine, address: I64, size: I32, space: I32, lane: I32, line: I32, write: I32) -> None:
    """Return the pointer to the memory that a lane accesses; null after a fault."""
    ctx, count = r["ctx"], r.wide(size)
    with r.when(r.differs(r.op("and", address, r.op("sub", count, 1)), 0)):
        record_fault(r, FaultKind.MISALIGNED, lane, address, size, space, write)
        r.give(NULL)
    at, where = _leave_generic(r)
    with r.when(r.equals(where, Space.GLOBAL)):
        known = r.call("tw_find", "i1", ctx, at, count, r["worker"])
        r.give_if(known, r.as_pointer(at))
        _give_passed(r, FaultKind.OUT_OF_BOUNDS, at, where)
    constant = r.either(r.equals(where, Space.CONST), r.equals(where, Space.PARAM))
    with r.when(r.both(constant, r.differs(write, 0))):
        record_fault(r, FaultKind.READ_ONLY, lane, at, size, where, write)
        r.give(NULL)
    owner, offset = r.variable("ptr", r["block"]), r.variable("i64", at)
    ranked = r.is_at_least(at, 1 << RANK_SHIFT)
    with r.when(r.both(ranked, r.equals(where, Space.SHARED))):
        found = r.reserve("ptr")
        wrong = r.call("tw_cluster_place", "i32", ctx, r["block"], at, found)
        with r.when(r.differs(wrong, 0)):
            _give_passed(r, wrong, at, where)
        owner.put(r.field(found, 0, "ptr"))
        offset.put(r.op("and", at, (1 << RANK_SHIFT) - 1))
    base, extent, when = r.variable("ptr", NULL), r.variable("i64", 0), r.when
    for kind, holder, start, length in (
        (Space.SHARED, owner.get(), BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.OWN, r["block"], BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.LOCAL, r["warp"], WARP.LOCAL, LAUNCH.LOCAL_BYTES),
        (Space.CONST, ctx, LAUNCH.CONST, LAUNCH.CONST_BYTES),
        (Space.PARAM, ctx, LAUNCH.PARAMS, LAUNCH.PARAM_BYTES),
    ):
        with when(r.equals(where, kind)):
            base.put(r.field(holder, start, "ptr"))
            extent.put(r.field(ctx, length, "i64"))
        when = r.otherwise_when
    end = r.op("add", offset.get(), count)
    with r.when(r.either(r.is_above(end, extent.get()), r.is_below(end, offset.get()))):
        _give_passed(r, FaultKind.OUT_OF_BOUNDS, at, where, extent.get())
    with r.when(r.equals(where, Space.LOCAL)):
        base.put(r.at(base.get(), r.op("mul", r.wide(lane), extent.get())))
    r.give(r.at(base.get(), offset.get()))


def _leave_generic(r: Routine) -> tuple[Value, Value]:
    """Return the address and the space that an access names; those behind an address in the generic space."""
    address, space = r.variable("i64", r["address"]), r.variable("i32", r["space"])
    with r.when(r.equals(r["space"], Space.GENERIC)):
        space.put(Space.GLOBAL)
        when = r.when
        for kind, start in _GENERIC.items():
            offset = r.op("sub", r["address"], start)
            with when(r.is_below(offset, WINDOW)):
                address.put(offset)
                space.put(kind)
            when = r.otherwise_when
    return address.get(), space.get()


def _give_passed(
    r: Routine, kind: Value | int, address: Value, space: Value, extent: Value | None = None
) -> None:
    """Return what a lenient launch gives an access out of bounds; else record a fault and return null."""
    access = (address, r["size"], space, r["write"], extent or r.const("i64", 0))
    r.give(r.call("tw_pass_or_fault", "ptr", *r.pointers(), kind, r["line"], r["lane"], *access))


# -- accesses of some lanes ---------------------------------------------------------------------------
@routine("tw_load", "i32", *POINTERS)
def _load(r: Routine, addresses: Ptr, mask: I32, size: I32, space: I32, line: I32, data: Ptr) -> None:
    """Copy from the memory that lanes access to ``data``, with a place for each lane: 0, or 1 after a fault."""
    _transfer(r, stores=False)


@routine("tw_store", "i32", *POINTERS)
def _store(r: Routine, addresses: Ptr, mask: I32, size: I32, space: I32, line: I32, data: Ptr) -> None:
    """Copy from ``data``, with a place for each lane, to the memory that lanes access: 0, or 1 after a fault."""
    _transfer(r, stores=True)


def _transfer(r: Routine, stores: bool) -> None:
    size, types = r.wide(r["size"]), ("ptr", "i64", "i64")
    given = (r["ctx"], r["block"], r["addresses"], r["mask"], size, r["space"])
    window = r.call("tw_near", f"{{ {', '.join(types)} }}", *given)
    base, start, limit = (r.set(type_, f"extractvalue {window}, {i}") for i, type_ in enumerate(types))
    with r.each_lane(r["mask"]) as lane:
        address = r.element(r["addresses"], lane, "i64")
        away = r.op("sub", address, start)
        even = r.equals(r.op("and", away, r.op("sub", size, 1)), 0)
        place = r.variable("ptr", r.at(base, away))
        with r.unless(r.both(r.is_below(away, limit), even)):
            found = resolve(r, address, r["size"], r["space"], lane, int(stores))
            give_failed_if_null(r, found)
            place.put(found)
        mine = r.at(r["data"], r.op("mul", r.wide(lane), size))
        _copy_few(r, *((place.get(), mine) if stores else (mine, place.get())))


def _copy_few(r: Routine, target: Value, source: Value) -> None:
    """Copy the bytes of an access; the usual sizes without a call."""
    with r.when(r.equals(r["size"], 4)):
        r.put(target, 0, r.field(source, 0, "i32"))
    with r.otherwise_when(r.equals(r["size"], 8)):
        r.put(target, 0, r.field(source, 0, "i64"))
    with r.otherwise_when(r.equals(r["size"], 16)):
        r.put(target, 0, r.field(source, 0, "<4 x i32>"))
    with r.otherwise():
        r.copy(target, source, r.wide(r["size"]))


@routine("tw_copy", "i32", *POINTERS)
def _copy_to_shared(
    r: Routine, sources: Ptr, places: Ptr, mask: I32, size: I32, reads: Ptr, line: I32
) -> None:
    """Copy from global to shared memory for some lanes, and zeros behind what each reads: 0, or 1 after a fault."""
    whole = r.wide(size)
    with r.each_lane(mask) as lane:
        place = resolve(r, r.element(places, lane, "i64"), size, Space.OWN, lane, 1)
        give_failed_if_null(r, place)
        r.fill(place, 0, whole)
        count = r.element(reads, lane, "i32")
        with r.when(r.differs(count, 0)):
            source = r.element(sources, lane, "i64")
            with r.when(r.differs(r.op("and", source, r.op("sub", whole, 1)), 0)):
                record_fault(r, FaultKind.MISALIGNED, lane, source, size, Space.GLOBAL)
                r.give(1)
            origin = r.variable("ptr", r.as_pointer(source))
            with r.unless(r.call("tw_find", "i1", r["ctx"], source, r.wide(count), r["worker"])):
                access = (source, count, Space.GLOBAL, 0, r.const("i64", 0))
                given = (FaultKind.OUT_OF_BOUNDS, line, lane, *access)
                origin.put(r.call("tw_pass_or_fault", "ptr", *r.pointers(), *given))
                give_failed_if_null(r, origin.get())
            r.copy(place, origin.get(), r.wide(count))
