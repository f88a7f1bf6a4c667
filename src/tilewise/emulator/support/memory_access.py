"""The run-time support of memory: faults, the search for what an address names, and careful copies lane by lane.

In a lenient launch, faults that GPUs usually let pass end nothing: the access goes on, and a checked launch records a
finding. These are an access to a block of the cluster that has exited, whose memory lies there as it was; a read of
shared memory beyond the block's own, as far as a multiprocessor has any; and a read behind an array, up to where memory
that a GPU gives out ends. The last two find zeros: what a GPU has there is not known.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import FindingKind
from tilewise.emulator.layout import (
    BLOCK,
    FAULT,
    GENERIC,
    LAUNCH,
    OFFSETS,
    RANK_SHIFT,
    WARP,
    WINDOW,
    WINDOWS,
    FaultKind,
    Space,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import (
    I32,
    I64,
    NULL,
    POINTERS,
    ZERO_I32,
    ZERO_I64,
    MutableValue,
    Ptr,
    Routine,
    routine,
)
from tilewise.emulator.support.checked import accessor, is_checked, record_finding
from tilewise.emulator.support.cluster_parts import find_block

__all__ = [
    "ZERO_BYTES",
    "copy_to_shared",
    "find_array",
    "find_memory",
    "find_range",
    "locate_block",
    "pass_or_fault",
    "record_fault",
    "record_lanes_fault",
]

ZERO_BYTES = 64  # that a read may find
_GIVEN_OUT = 512  # bytes of which memory that a GPU gives out is a multiple
_MULTIPROCESSOR = 228 << 10  # bytes of shared memory of a multiprocessor


# -- faults -------------------------------------------------------------------------------------------
@routine("tw_fault_at", "void", *POINTERS)
def record_fault(
    r: Routine,
    kind: I32,
    line: I32,
    lane: I32,
    address: I64 = ZERO_I64,
    size: I32 = ZERO_I32,
    space: I32 = ZERO_I32,
    write: I32 = ZERO_I32,
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
        r.put(fault, FAULT.THREAD, (r.field(r["warp"], WARP.INDEX, "i32") << 5) + lane)
        access = {FAULT.ADDRESS: address, FAULT.SIZE: size, FAULT.SPACE: space, FAULT.WRITE: write}
        r.put_fields(fault, access)
        r.store_atomic(fault, kind, "release")
    r.store_atomic(r.at(ctx, LAUNCH.STOP), r.const("i32", 1), "release")


@routine("tw_fault", "void", *POINTERS)
def record_lanes_fault(r: Routine, kind: I32, line: I32, mask: I32) -> None:
    """Record a fault of the first lane of ``mask`` that is no access to memory."""
    r.attributes = "noinline cold"
    record_fault(r, kind, r.find_lowest(mask) & 31)


# -- addresses ----------------------------------------------------------------------------------------
def find_range(r: Routine, ranges: Value, count: Value, size: int, address: Value) -> tuple[Value, Value]:
    """Search ranges of addresses, ``size`` bytes each of which the first 16 are its ends, sorted and apart.

    Return the pointer to the last one that begins at an address or before it, and whether the address is in it.
    """
    low, high = r.variable("i64", 0), r.variable("i64", count)
    with r.loop() as loop:
        loop.leave(r.is_at_least(low.get(), high.get()))
        middle = (low.get() + high.get()) >> 1
        with r.when(r.is_below(address, r.field(r.item(ranges, middle, size), 0, "i64"))):
            high.put(middle)
        with r.otherwise():
            low.put(middle + 1)
    item = r.item(ranges, r.intrinsic("llvm.usub.sat", low.get(), 1), size)
    first, end = r.field(item, 0, "i64"), r.field(item, 8, "i64")
    return item, r.is_below(address - first, end - first)


def _find_among_arrays(r: Routine, address: Value) -> tuple[Value, Value]:
    count = r.field(r["ctx"], LAUNCH.RANGE_COUNT, "i64")
    return find_range(r, r.field(r["ctx"], LAUNCH.RANGES, "ptr"), count, 16, address)


@routine("tw_find", "i1", "ctx")
def find_array(r: Routine, address: I64, size: I64, hint: Ptr) -> None:
    """Return whether ``size`` bytes from an address on lie in one array of global memory.

    ``hint`` then gets the array's first address, and of how many addresses the array consists, plus one.
    """
    item, inside = _find_among_arrays(r, address)
    first, end = r.field(item, 0, "i64"), r.field(item, 8, "i64")
    r.give_if(r.negation(inside) | r.is_above(size, end - address), 0)
    r.put(hint, 0, first)
    r.put(hint, 8, end - first + 1)
    r.give(1)


def find_memory(
    r: Routine, address: Value, size: Value | int, space: Value | int, lane: Value, write: int
) -> Value:
    """Return the pointer to the memory that a lane accesses; leave the routine with 1 after a fault."""
    found = _resolve(r, address, size, space, lane, write)
    r.give_if(r.is_null(found), 1)
    return found


@routine("tw_resolve", "ptr", *POINTERS)
def _resolve(r: Routine, address: I64, size: I32, space: I32, lane: I32, line: I32, write: I32) -> None:
    """Return the pointer to the memory that a lane accesses; null after a fault."""
    ctx, count = r["ctx"], r.wide(size)
    with r.when(r.has_any(address, count - 1)):
        record_fault(r, FaultKind.MISALIGNED, lane, address, size, space, write)
        r.give(NULL)
    at, where = _leave_generic(r)

    def give_passed(kind: Value | int) -> None:
        r.give(pass_or_fault(r, kind, lane, at, size, where, write))

    with r.when(r.equals(where, Space.GLOBAL)):
        r.give_if(find_array(r, at, count, r["worker"]), r.as_pointer(at))
        give_passed(FaultKind.OUT_OF_BOUNDS)
    constant = r.either(r.equals(where, Space.CONST), r.equals(where, Space.PARAM))
    with r.when(r.both(constant, r.differs(write, 0))):
        record_fault(r, FaultKind.READ_ONLY, lane, at, size, where, write)
        r.give(NULL)
    owner, offset = r.variable("ptr", r["block"]), r.variable("i64", at)
    ranked = r.is_at_least(at, 1 << RANK_SHIFT)
    with r.when(r.both(ranked, r.equals(where, Space.SHARED))):
        found = r.reserve("ptr")
        wrong = locate_block(r, at, found)
        with r.when(r.differs(wrong, 0)):
            give_passed(wrong)
        owner.put(r.field(found, 0, "ptr"))
        offset.put(at & OFFSETS)
    base, extent = r.variable("ptr", NULL), r.variable("i64", 0)
    places = (
        (Space.SHARED, owner.get(), BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.OWN, r["block"], BLOCK.SHARED, LAUNCH.SHARED_BYTES),
        (Space.LOCAL, r["warp"], WARP.LOCAL, LAUNCH.LOCAL_BYTES),
        (Space.CONST, ctx, LAUNCH.CONST, LAUNCH.CONST_BYTES),
        (Space.PARAM, ctx, LAUNCH.PARAMS, LAUNCH.PARAM_BYTES),
    )
    for i, (kind, holder, start, length) in enumerate(places):
        with (r.otherwise_when if i else r.when)(r.equals(where, kind)):
            base.put(r.field(holder, start, "ptr"))
            extent.put(r.field(ctx, length, "i64"))
    end = offset.get() + count
    with r.when(r.either(r.is_above(end, extent.get()), r.is_below(end, offset.get()))):
        give_passed(FaultKind.OUT_OF_BOUNDS)
    with r.when(r.equals(where, Space.LOCAL)):
        base.put(r.at(base.get(), r.wide(lane) * extent.get()))
    r.give(r.at(base.get(), offset.get()))


def _leave_generic(r: Routine) -> tuple[Value, Value]:
    """Return the address and the space that an access names; those behind an address in the generic space."""
    address, space = r.variable("i64", r["address"]), r.variable("i32", r["space"])
    with r.when(r.equals(r["space"], Space.GENERIC)):
        space.put(Space.GLOBAL)
        for i, (name, start) in enumerate(WINDOWS.items()):
            offset = r["address"] - start
            with (r.otherwise_when if i else r.when)(r.is_below(offset, WINDOW)):
                address.put(offset)
                space.put(Space[name.upper()])
    return address.get(), space.get()


@routine("tw_cluster_place", "i32", "ctx", "block")
def locate_block(r: Routine, address: I64, found: Ptr) -> None:
    """Find the block whose shared memory an address names: 0, or what is wrong with the address.

    ``found`` gets the block. An address without a rank is in the block's own memory.
    """
    number = address >> RANK_SHIFT
    with r.when(r.equals(number, 0)):
        r.put(found, 0, r["block"])
        r.give(0)
    rank = number - 1
    r.give_if(r.is_at_least(rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), FaultKind.NO_BLOCK)
    block = find_block(r, r.field(r["block"], BLOCK.FIRST, "ptr"), rank)
    done = r.wide(r.field(block, BLOCK.DONE, "i32"))
    r.give_if(r.is_at_least(done, r.field(r["ctx"], LAUNCH.WARPS, "i64")), FaultKind.BLOCK_EXITED)
    r.put(found, 0, block)


@routine("tw_near", "{ ptr, i64, i64 }", "ctx", "block")
def _near(r: Routine, addresses: Ptr, mask: I32, size: I64, space: I32) -> None:
    """Return the window of shared memory that holds the first lane's address: pointer, first address, and how
    many addresses may start an access of ``size`` bytes; zeros if it lies in no block.
    """
    whole = "{ ptr, i64, i64 }"
    address = r.element(addresses, r.find_lowest(mask) & 31, "i64")
    generic = r.equals(space, Space.GENERIC)
    window = r.select(generic, r.const("i64", GENERIC.SHARED), 0)
    away = address - window
    none = Value(whole, "zeroinitializer")
    own = r.equals(space, Space.OWN)
    named = generic | r.equals(space, Space.SHARED)
    inside = r.is_below(away, WINDOW)
    plain = r.is_below(away, 1 << RANK_SHIFT)
    r.give_if(r.negation(r.both(own, plain) | r.both(named, inside)), none)
    found = r.reserve("ptr")
    r.give_if(r.differs(locate_block(r, away, found), 0), none)
    base = r.field(r.field(found, 0, "ptr"), BLOCK.SHARED, "ptr")
    offset = away & OFFSETS
    room = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64") + 1
    limit = r.intrinsic("llvm.usub.sat", room, size)
    first = r.set(whole, f"insertvalue {none}, {base}, 0")
    second = r.set(whole, f"insertvalue {first}, {address - offset}, 1")
    r.give(r.set(whole, f"insertvalue {second}, {limit}, 2"))


# -- what a lenient launch lets pass -----------------------------------------------------------------
@routine("tw_pass_or_fault", "ptr", *POINTERS)
def pass_or_fault(
    r: Routine, kind: I32, line: I32, lane: I32, address: I64, size: I32, space: I32, write: I32
) -> None:
    """Return the memory that a lenient launch gives an access out of bounds; else record a fault and return null."""
    place = r.variable("ptr", NULL)
    with r.when(r.differs(r.field(r["ctx"], LAUNCH.LENIENT, "i64"), 0)):
        exited = r.equals(kind, FaultKind.BLOCK_EXITED)
        offset, end = address & OFFSETS, r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
        with r.when(r.both(exited, r.is_at_most(offset + r.wide(size), end))):
            owner = find_block(r, r.field(r["block"], BLOCK.FIRST, "ptr"), (address >> RANK_SHIFT) - 1)
            place.put(r.at(r.field(owner, BLOCK.SHARED, "ptr"), offset))
        outside = r.equals(kind, FaultKind.OUT_OF_BOUNDS)
        short = r.is_at_most(size, ZERO_BYTES)
        with r.when(r.both(outside, short, r.equals(write, 0))):
            _find_zeros(r, place)
        with r.unless(r.is_null(place.get())):
            with r.when(is_checked(r)):
                finding = r.select(exited, FindingKind.BLOCK_EXITED, FindingKind.OUT_OF_BOUNDS)
                record_finding(r, finding, accessor(r, lane), 0, address, 0, size, write, space)
            r.give(place.get())
    record_fault(r, kind, lane, address, size, space, write)
    r.give(NULL)


def _find_zeros(r: Routine, place: MutableValue) -> None:
    """Set ``place`` to zeros for a read in the window of shared memory, or just behind an array."""
    zeros, count = r.field(r["ctx"], LAUNCH.ZEROS, "ptr"), r.wide(r["size"])
    shared = r.equals(r["space"], Space.SHARED) | r.equals(r["space"], Space.OWN)
    end = (r["address"] & OFFSETS) + count
    with r.when(r.both(shared, r.is_at_most(end, _MULTIPROCESSOR))):
        place.put(zeros)
    with r.when(r.equals(r["space"], Space.GLOBAL)):
        item, _ = _find_among_arrays(r, r["address"])
        first, last = r.field(item, 0, "i64"), r.field(item, 8, "i64")
        given = (last - first + (_GIVEN_OUT - 1)) & (-_GIVEN_OUT)
        away = r["address"] - first
        with r.when(r.both(r.is_at_most(away + count, given), r.is_below(away, given))):
            place.put(zeros)


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
    window = _near(r, r["addresses"], r["mask"], size, r["space"])
    base, start, limit = (r.set(type_, f"extractvalue {window}, {i}") for i, type_ in enumerate(types))
    with r.each_lane(r["mask"]) as lane:
        address = r.element(r["addresses"], lane, "i64")
        away = address - start
        even = r.equals(away & (size - 1), 0)
        place = r.variable("ptr", r.at(base, away))
        with r.unless(r.both(r.is_below(away, limit), even)):
            place.put(find_memory(r, address, r["size"], r["space"], lane, int(stores)))
        mine = r.at(r["data"], r.wide(lane) * size)
        target, source = (place.get(), mine) if stores else (mine, place.get())
        for i, (few, type_) in enumerate({4: "i32", 8: "i64", 16: "<4 x i32>"}.items()):
            with (r.otherwise_when if i else r.when)(r.equals(r["size"], few)):
                r.put(target, 0, r.field(source, 0, type_))
        with r.otherwise():  # the usual sizes are copied without a call
            r.copy(target, source, size)


@routine("tw_copy", "i32", *POINTERS)
def copy_to_shared(
    r: Routine, sources: Ptr, places: Ptr, mask: I32, size: I32, reads: Ptr, line: I32
) -> None:
    """Copy from global to shared memory for some lanes, and zeros behind what each reads: 0, or 1 after a fault."""
    whole = r.wide(size)
    with r.each_lane(mask) as lane:
        place = find_memory(r, r.element(places, lane, "i64"), size, Space.OWN, lane, 1)
        r.fill(place, 0, whole)
        count = r.element(reads, lane, "i32")
        with r.when(r.differs(count, 0)):
            source = r.element(sources, lane, "i64")
            with r.when(r.has_any(source, whole - 1)):
                record_fault(r, FaultKind.MISALIGNED, lane, source, size, Space.GLOBAL)
                r.give(1)
            origin = r.variable("ptr", r.as_pointer(source))
            with r.unless(find_array(r, source, r.wide(count), r["worker"])):
                access = (source, count, Space.GLOBAL, 0)
                origin.put(pass_or_fault(r, FaultKind.OUT_OF_BOUNDS, lane, *access))
                r.give_if(r.is_null(origin.get()), 1)
            r.copy(place, origin.get(), r.wide(count))
