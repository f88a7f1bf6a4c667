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
from tilewise.emulator.llvm.routine import NULL, POINTERS, Routine

__all__ = ["ACCESS", "give_failed_if_null", "record_fault", "resolve", "routines"]

# The parameters that say which access to memory a fault is of.
ACCESS = {"address": "i64", "size": "i32", "space": "i32", "write": "i32", "extent": "i64"}
_GENERIC = {
    Space.SHARED: GENERIC_SHARED,
    Space.LOCAL: GENERIC_LOCAL,
    Space.CONST: GENERIC_CONST,
    Space.PARAM: GENERIC_PARAM,
}


def routines() -> list[Routine]:
    return [
        _record_fault(),
        _record_lanes_fault(),
        _find_array(),
        _resolve(),
        _transfer(False),
        _transfer(True),
        _copy_to_shared(),
    ]


# -- faults -------------------------------------------------------------------------------------------
def _record_fault() -> Routine:
    """Record a fault, if it is the first one, and stop the launch."""
    r = Routine("tw_fault_at", "void", **POINTERS, kind="i32", line="i32", lane="i32", **ACCESS)
    r.attributes = "noinline cold"
    ctx, block = r["ctx"], r["block"]
    fault = r.field(ctx, LAUNCH.FAULT, "ptr")
    _, first = r.swap_if(fault, r.const("i32", 0), r.const("i32", -1), "seq_cst")
    with r.when(first):
        r.put(fault, FAULT.LINE, r["line"])
        for target, source in ((FAULT.X, BLOCK.X), (FAULT.Y, BLOCK.Y), (FAULT.Z, BLOCK.Z)):
            r.put(fault, target, r.field(block, source, "i32"))
        thread = r.op("shl", r.field(r["warp"], WARP.INDEX, "i32"), 5)
        r.put(fault, FAULT.THREAD, r.op("add", thread, r["lane"]))
        targets = (FAULT.ADDRESS, FAULT.SIZE, FAULT.SPACE, FAULT.WRITE, FAULT.EXTENT)
        for target, name in zip(targets, ACCESS, strict=True):
            r.put(fault, target, r[name])
        r.store_atomic(fault, r["kind"], "release")
    r.store_atomic(r.at(ctx, LAUNCH.STOP), r.const("i32", 1), "release")
    return r


def _record_lanes_fault() -> Routine:
    """Record a fault of the first lane of ``mask`` that is no access to memory."""
    r = Routine("tw_fault", "void", **POINTERS, kind="i32", line="i32", mask="i32")
    r.attributes = "noinline cold"
    record_fault(r, r["kind"], r.op("and", r.find_lowest(r["mask"]), 31))
    return r


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
def _find_array() -> Routine:
    """Return whether ``size`` bytes from an address on lie in one array of global memory.

    ``hint`` then gets the array's first address, and of how many addresses the array consists, plus one.
    """
    r = Routine("tw_find", "i1", ctx="ptr", address="i64", size="i64", hint="ptr")
    ranges, address = r.field(r["ctx"], LAUNCH.RANGES, "ptr"), r["address"]
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
                loop.leave(r.is_above(r["size"], r.op("sub", last, address)))
                r.put(r["hint"], 0, first)
                r.put(r["hint"], 8, r.op("add", r.op("sub", last, first), 1))
                r.give(1)
            low.put(r.op("add", middle, 1))
    r.give(0)
    return r


def resolve(
    r: Routine, address: Value, size: Value | int, space: Value | int, lane: Value, write: Value | int
) -> Value:
    """Return the pointer to the memory that a lane accesses in the routine's line; null after a fault."""
    return r.call("tw_resolve", "ptr", *r.pointers(), address, size, space, lane, r["line"], write)


def give_failed_if_null(r: Routine, place: Value) -> None:
    """Return 1 if what ``resolve`` found is nothing: it has recorded a fault."""
    r.give_if(r.is_null(place), 1)


def _resolve() -> Routine:
    """Return the pointer to the memory that a lane accesses; null after a fault."""
    names = ("size", "space", "lane", "line", "write")
    r = Routine("tw_resolve", "ptr", **POINTERS, address="i64", **dict.fromkeys(names, "i32"))
    ctx, lane, size = r["ctx"], r["lane"], r.wide(r["size"])
    with r.when(r.differs(r.op("and", r["address"], r.op("sub", size, 1)), 0)):
        record_fault(r, FaultKind.MISALIGNED, lane, r["address"], r["size"], r["space"], r["write"])
        r.give(NULL)
    address, space = _leave_generic(r)
    with r.when(r.equals(space, Space.GLOBAL)):
        known = r.call("tw_find", "i1", ctx, address, size, r["worker"])
        r.give_if(known, r.as_pointer(address))
        _give_passed(r, FaultKind.OUT_OF_BOUNDS, address, space)
    constant = r.either(r.equals(space, Space.CONST), r.equals(space, Space.PARAM))
    with r.when(r.both(constant, r.differs(r["write"], 0))):
        record_fault(r, FaultKind.READ_ONLY, lane, address, r["size"], space, r["write"])
        r.give(NULL)
    owner, offset = r.variable("ptr", r["block"]), r.variable("i64", address)
    ranked = r.is_at_least(address, 1 << RANK_SHIFT)
    with r.when(r.both(ranked, r.equals(space, Space.SHARED))):
        found = r.reserve("ptr")
        wrong = r.call("tw_cluster_place", "i32", ctx, r["block"], address, found)
        with r.when(r.differs(wrong, 0)):
            _give_passed(r, wrong, address, space)
        owner.put(r.field(found, 0, "ptr"))
        offset.put(r.op("and", address, (1 << RANK_SHIFT) - 1))
    base, count, when = r.variable("ptr", NULL), r.variable("i64", 0), r.when
    for kind, holder, start, length in (
        (Space.SHARED, owner.get(), BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.OWN, r["block"], BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.LOCAL, r["warp"], WARP.LOCAL, LAUNCH.LOCAL_BYTES),
        (Space.CONST, ctx, LAUNCH.CONST, LAUNCH.CONST_BYTES),
        (Space.PARAM, ctx, LAUNCH.PARAMS, LAUNCH.PARAM_BYTES),
    ):
        with when(r.equals(space, kind)):
            base.put(r.field(holder, start, "ptr"))
            count.put(r.field(ctx, length, "i64"))
        when = r.otherwise_when
    end = r.op("add", offset.get(), size)
    with r.when(r.either(r.is_above(end, count.get()), r.is_below(end, offset.get()))):
        _give_passed(r, FaultKind.OUT_OF_BOUNDS, address, space, count.get())
    with r.when(r.equals(space, Space.LOCAL)):
        base.put(r.at(base.get(), r.op("mul", r.wide(lane), count.get())))
    r.give(r.at(base.get(), offset.get()))
    return r


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
def _transfer(stores: bool) -> Routine:
    """Copy between ``data``, with a place for each lane, and the memory that lanes access: 0, or 1 after a fault."""
    numbers = dict.fromkeys(("mask", "size", "space", "line"), "i32")
    name = "tw_store" if stores else "tw_load"
    r = Routine(name, "i32", **POINTERS, addresses="ptr", **numbers, data="ptr")
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
    r.give(0)
    return r


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


def _copy_to_shared() -> Routine:
    """Copy from global to shared memory for some lanes, and zeros behind what each reads: 0, or 1 after a fault."""
    kinds = {"sources": "ptr", "places": "ptr", "mask": "i32", "size": "i32", "reads": "ptr", "line": "i32"}
    r = Routine("tw_copy", "i32", **POINTERS, **kinds)
    size = r.wide(r["size"])
    with r.each_lane(r["mask"]) as lane:
        place = resolve(r, r.element(r["places"], lane, "i64"), r["size"], Space.OWN, lane, 1)
        give_failed_if_null(r, place)
        r.fill(place, 0, size)
        count = r.element(r["reads"], lane, "i32")
        with r.when(r.differs(count, 0)):
            source = r.element(r["sources"], lane, "i64")
            with r.when(r.differs(r.op("and", source, r.op("sub", size, 1)), 0)):
                record_fault(r, FaultKind.MISALIGNED, lane, source, r["size"], Space.GLOBAL)
                r.give(1)
            origin = r.variable("ptr", r.as_pointer(source))
            with r.unless(r.call("tw_find", "i1", r["ctx"], source, r.wide(count), r["worker"])):
                access = (source, count, Space.GLOBAL, 0, r.const("i64", 0))
                given = (FaultKind.OUT_OF_BOUNDS, r["line"], lane, *access)
                origin.put(r.call("tw_pass_or_fault", "ptr", *r.pointers(), *given))
                give_failed_if_null(r, origin.get())
            r.copy(place, origin.get(), r.wide(count))
    r.give(0)
    return r
