"""Bulk operations in the run-time support: copies, as they are issued and performed; changes of tensor maps; fills.

A flight's data is the request: numbers of 64 bits in the order of REQUEST, then a tensor map if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import ACCESS, Action, StoreStep
from tilewise.emulator.layout import BLOCK, FLIGHT, LAUNCH, OFFSETS, RANK_SHIFT, FaultKind, Flight, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support import memory_access
from tilewise.emulator.support.checked import check_touch, is_checked
from tilewise.emulator.support.flights import append_flight, issue_flight
from tilewise.emulator.support.mbarrier import complete_bytes
from tilewise.emulator.support.reduction import reduce_row
from tilewise.emulator.support.tensor_map_layout import BYTES, MAGIC, MAP

__all__ = [
    "COLUMN",
    "MOST_BYTES",
    "NONE",
    "REQUEST",
    "STEP",
    "Verb",
    "find_span",
    "follow",
    "refuse_if",
    "store_bulk",
    "take_map",
    "take_operands",
    "touch",
]

COLUMN = 256  # bytes of an operand of every lane, where instructions leave them
NONE = -1  # for an operand that an instruction does not have
_EAGER = 0
_FOREIGN, _BAD_SIZE, _BAD_ADDRESS, _BAD_FILL = 1, 18, 19, 20  # in tensor_map_layout.WRONG
STEP, MOST_BYTES = 8, 1 << 24  # of st.bulk: what a size is a multiple of
_LINE = 16  # what bulk copies are made of


class Verb:
    """Kinds of requests."""

    LOAD, STORE, REDUCE = 0, 1, 2  # between global and shared memory
    SEND, SEND_REDUCE = 3, 4  # from shared memory to another block's
    WRITE, CHANGE = 5, 6  # a thread's own values to another block's
    LOOK = 7  # at what a copy would touch, for a watched launch


class REQUEST:
    """Offsets in a flight's data. Addresses of shared memory are in the cluster's window."""

    VERB = 0
    SHARED = 8  # what is written of a load, what is read of a store
    # Of a tensor copy: the tensor map's generic address; of one to another block: the address there.
    GLOBAL = 16
    SIZE = 24  # of a tensor copy: the number of coordinates
    MBARRIER = 32
    BLOCKS = 40  # a bit for each block of the cluster that gets the copy, or NONE
    REDUCTION = 48  # its number, or for a tensor that of its operation
    IM2COL = 56
    COORDINATES = 64  # five
    OFFSETS = 104  # three
    COLUMNS = 16  # numbers so far
    MAP = 128
    VALUES = 256  # of WRITE and CHANGE: 16 bytes


def refuse_if(r: Routine, wrong: Value, why: int, address: Value) -> None:
    """End with a fault of a bulk copy. The routine has ``lane`` and ``line`` as parameters."""
    with r.when(wrong):
        memory_access.record_fault(r, FaultKind.BAD_COPY, r["lane"], address, why)
        r.give(1)


def request(r: Routine, data: Value, offset: int) -> Value:
    return r.field(data, offset, "i64")


# -- memory -------------------------------------------------------------------------------------------
@routine("tw_span", "ptr", *POINTERS)
def _span(r: Routine, address: I64, count: I64, space: I32, lane: I32, line: I32, write: I32) -> None:
    """Return the pointer to a stretch of global or shared memory of any length; null after a fault."""
    found = r.variable("ptr", NULL)
    fault = r.variable("i32", FaultKind.OUT_OF_BOUNDS)
    with (
        r.when(r.equals(space, Space.GLOBAL)),
        r.when(memory_access.find_array(r, address, count, r["worker"])),
    ):
        found.put(r.as_pointer(address))
    with r.otherwise():
        owner = r.reserve("ptr", 8)
        wrong = memory_access.locate_block(r, address, owner)
        extent = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
        with r.when(r.differs(wrong, 0)):
            fault.put(wrong)
        with r.otherwise():
            offset = address & OFFSETS
            fits = r.is_at_most(count, extent)
            inside = r.is_at_most(offset, extent - count)
            with r.when(r.both(fits, inside)):
                shared = r.field(r.field(owner, 0, "ptr"), BLOCK.SHARED, "ptr")
                found.put(r.at(shared, offset))
    with r.when(r.is_null(found.get())):
        size = r.narrow(r.intrinsic("llvm.umin", count, 0xFFFF_FFFF))
        found.put(memory_access.pass_or_fault(r, fault.get(), lane, address, size, space, write))
    r.give(found.get())


# -- issuing ------------------------------------------------------------------------------------------
@routine("tw_bulk", "i32", *POINTERS)
def _issue(
    r: Routine, columns: Ptr, values: Ptr, kind: I32, group: I32, verb: I32, mask: I32, line: I32
) -> None:
    """Issue a request for each lane of ``mask``, whose operands lie in ``columns``, lane behind lane."""
    with r.each_lane(mask) as lane:
        flight = append_flight(r, kind, group, 1 << lane)
        r.give_if(r.is_null(flight), 1)
        data = r.at(flight, FLIGHT.DATA)
        take_operands(r, data, columns, lane)
        r.put(data, REQUEST.VERB, r.wide(verb))
        with r.when(r.equals(kind, Flight.REMOTE)):
            r.copy(r.at(data, REQUEST.VALUES), r.item(values, lane, _LINE), _LINE)
        with r.when(r.equals(kind, Flight.TENSOR)):
            take_map(r, data, lane)
        with r.when(is_checked(r)):
            given = (r["ctx"], r["block"], r["warp"], r["worker"], kind, data, lane, line)
            r.give_unless_zero(r.call("tw_check_bulk", "i32", *given))
        eager = r.equals(r.field(r["ctx"], LAUNCH.ORDER, "i64"), _EAGER)
        loads = r.equals(verb, Verb.LOAD)
        with r.when(r.both(r.negation(eager), loads)):
            _perform_lane(r, kind, flight, lane, 1)
        r.give_unless_zero(issue_flight(r, flight))


def take_operands(r: Routine, data: Value, columns: Value, lane: Value) -> None:
    """Copy a lane's operands from where its instruction left them, in columns, to the request."""
    with r.count(REQUEST.COLUMNS) as column:
        place = r.item(r.item(columns, column, COLUMN), lane, 8)
        r.put(r.item(data, column, 8), 0, r.field(place, 0, "i64"))


def take_map(r: Routine, data: Value, lane: Value) -> None:
    """Copy the tensor map into the request: the program may change it before the copy is performed."""
    given = r.at(data, REQUEST.MAP), _find_map(r, request(r, data, REQUEST.GLOBAL), Space.GENERIC, lane, 0)
    r.copy(*given, BYTES)


def _find_map(r: Routine, address: Value, space: Value | int, lane: Value, write: int) -> Value:
    """Return the pointer to a tensor map; leave the routine after a fault."""
    half = BYTES // 2  # what the address of a map has to be a multiple of
    parts = [memory_access.find_memory(r, address + (i * half), half, space, lane, write) for i in range(2)]
    return parts[0]


@contextmanager
def each_block(r: Routine, data: Value) -> Iterator[Callable[[Value], Value]]:
    """Loop over the blocks that get a copy; yield a function that moves an address into the block's memory."""
    listed = request(r, data, REQUEST.BLOCKS)
    several = r.differs(listed, NONE)
    # Without a list the address itself names the block: one turn, in which it is left as it is.
    left = r.variable("i64", r.select(several, listed & 0xFFFF, 1))
    with r.loop() as loop:
        rest = left.get()
        loop.leave(r.equals(rest, 0))
        left.put(rest & (rest - 1))
        rank = r.find_lowest(rest, True)
        named = (rank + 1) << RANK_SHIFT

        def at(address: Value) -> Value:
            theirs = (address & OFFSETS) | named
            return r.select(several, theirs, address)

        yield at


# -- performing ---------------------------------------------------------------------------------------
def _perform_lane(r: Routine, kind: Value, flight: Value, lane: Value, spoil: int) -> None:
    """Perform one lane's copy; leave the routine after a fault. With ``spoil`` only overwrite where it will write."""
    data, line = r.at(flight, FLIGHT.DATA), r.field(flight, FLIGHT.LINE, "i32")
    verb = r.narrow(request(r, data, REQUEST.VERB))
    loads = r.equals(verb, Verb.LOAD)
    given = (*r.pointers(), data, lane, line)
    with r.when(r.equals(kind, Flight.TENSOR)):
        with r.when(loads):
            r.give_unless_zero(r.call("tw_tensor_load", "i32", *given, spoil))
        with r.otherwise():
            r.give_unless_zero(r.call("tw_tensor_store", "i32", *given, StoreStep.WRITE))
    with r.otherwise_when(loads):
        r.give_unless_zero(_load(r, data, lane, spoil, line=line))
    with r.otherwise_when(r.is_below(verb, Verb.SEND)):
        r.give_unless_zero(store_bulk(r, data, lane, StoreStep.WRITE, line=line))
    with r.otherwise_when(r.is_below(verb, Verb.WRITE)):
        r.give_unless_zero(_send(r, data, lane, line=line))
    with r.otherwise():
        r.give_unless_zero(_remote(r, data, lane, line=line))


@routine("tw_fly_bulk", "i32", *POINTERS)
def _perform_flight(r: Routine, flight: Ptr, mask: I32) -> None:
    """Perform a flight of requests, for the lanes of ``mask``."""
    kind = r.field(flight, FLIGHT.KIND, "i32")
    with r.each_lane(mask) as lane:
        _perform_lane(r, kind, flight, lane, 0)


def _aligned(r: Routine, *addresses: Value) -> None:
    for address in addresses:
        refuse_if(r, r.has_any(address, _LINE - 1), _BAD_ADDRESS, address)


def touch(r: Routine, address: Value, count: Value) -> None:
    """In a checked launch: check a copy's read of global memory. The routine has ``lane`` and ``line``."""
    with r.when(is_checked(r)):
        check_touch(r, r["lane"], address, count, Space.GLOBAL, Action.LOAD, ACCESS.PROXY)


def follow(r: Routine, address: Value, count: Value, reduces: Value, values: Value, step: Value) -> None:
    """In a checked launch: check a stretch that a store to global memory writes, when issued or waited for."""
    given = (r["lane"], address, count, r.cast("zext", reduces, "i32"), r["line"], values, step)
    r.call("tw_check_destination", "void", r["ctx"], r["block"], r["warp"], *given)


def find_span(r: Routine, address: Value, count: Value, space: Space, write: int) -> Value:
    """Return the pointer to a stretch of memory; leave the routine after a fault."""
    found = _span(r, address, count, space, r["lane"], write)
    r.give_if(r.is_null(found), 1)
    return found


def _count(r: Routine) -> Value:
    count = request(r, r["data"], REQUEST.SIZE) & 0xFFFF_FFFF
    refuse_if(r, r.has_any(count, _LINE - 1), _BAD_SIZE, count)
    return count


@routine("tw_bulk_load", "i32", *POINTERS)
def _load(r: Routine, data: Ptr, lane: I32, line: I32, spoil: I32) -> None:
    """Copy from global to shared memory, of one block or several; with ``spoil`` only overwrite the targets."""
    count, source = _count(r), request(r, data, REQUEST.GLOBAL)
    target, barrier = (request(r, data, offset) for offset in (REQUEST.SHARED, REQUEST.MBARRIER))
    _aligned(r, source, target)
    given = find_span(r, source, count, Space.GLOBAL, 0)
    touch(r, source, count)
    spoils = r.differs(spoil, 0)
    with each_block(r, data) as at:
        place = find_span(r, at(target), count, Space.SHARED, 1)
        with r.when(spoils):
            r.fill(place, 0xFF, count)
        with r.otherwise():
            r.copy(place, given, count)
            r.give_unless_zero(complete_bytes(r, at(barrier), count, lane))


def _from_shared(r: Routine, space: Space) -> tuple[Value, Value, Value, Value]:
    """Return a copy's bytes, its target address, and the pointers to its source and target."""
    count = _count(r)
    source, target = (request(r, r["data"], offset) for offset in (REQUEST.SHARED, REQUEST.GLOBAL))
    _aligned(r, source, target)
    given = find_span(r, source, count, Space.SHARED, 0)
    return count, target, given, find_span(r, target, count, space, 1)


@routine("tw_bulk_store", "i32", *POINTERS)
def store_bulk(r: Routine, data: Ptr, lane: I32, line: I32, step: I32) -> None:
    """Copy from shared to global memory, or reduce into it; ``step`` is of ``StoreStep``."""
    reduces = r.equals(request(r, data, REQUEST.VERB), Verb.REDUCE)
    with r.when(r.equals(step, StoreStep.RELEASE)):
        follow(r, request(r, data, REQUEST.GLOBAL), _count(r), reduces, NULL, step)
        r.give(0)
    count, target, given, place = _from_shared(r, Space.GLOBAL)
    with r.when(r.equals(step, StoreStep.CLAIM)):
        follow(r, target, count, reduces, given, step)
        r.give(0)
    _put(r, place, given, count, Verb.REDUCE)


@routine("tw_bulk_send", "i32", *POINTERS)
def _send(r: Routine, data: Ptr, lane: I32, line: I32) -> None:
    """Copy from the block's own shared memory to another block's, or reduce into it."""
    count, _, given, place = _from_shared(r, Space.SHARED)
    _put(r, place, given, count, Verb.SEND_REDUCE)
    r.give_unless_zero(complete_bytes(r, request(r, data, REQUEST.MBARRIER), count, lane))


@routine("tw_remote", "i32", *POINTERS)
def _remote(r: Routine, data: Ptr, lane: I32, line: I32) -> None:
    """Store a thread's values in shared memory of a block of the cluster, or reduce them into it."""
    target = request(r, data, REQUEST.GLOBAL)
    count = request(r, data, REQUEST.SIZE)
    place = memory_access.find_memory(r, target, r.narrow(count), Space.SHARED, lane, 1)
    _put(r, place, r.at(data, REQUEST.VALUES), count, Verb.CHANGE)
    r.give_unless_zero(complete_bytes(r, request(r, data, REQUEST.MBARRIER), count, lane))


def _put(r: Routine, place: Value, source: Value, count: Value, reduces: int) -> None:
    with r.when(r.equals(request(r, r["data"], REQUEST.VERB), reduces)):
        kind = r.narrow(request(r, r["data"], REQUEST.REDUCTION))
        reduce_row(r, kind, place, source, count)
    with r.otherwise():
        r.move(place, source, count)


# -- tensormap.replace and tensormap.cp_fenceproxy -------------------------------------------------
@routine("tw_map_replace", "i32", *POINTERS)
def _replace_map_fields(
    r: Routine, addresses: Ptr, values: Ptr, space: I32, field: I64, length: I64, mask: I32, line: I32
) -> None:
    """Set the field of ``length`` bytes at offset ``field`` of the map at each lane's address."""
    with r.each_lane(mask) as lane:
        r["lane"] = lane
        address, value = (r.element(source, lane, "i64") for source in (addresses, values))
        place = _find_map(r, address, space, lane, 1)
        some = r.variable("i64", 0)
        for offset in range(0, BYTES, 8):
            some.put(some.get() | r.field(place, offset, "i64"))
        ours = r.equals(r.field(place, MAP.MAGIC, "i64"), MAGIC)
        fresh = r.equals(some.get(), 0)
        refuse_if(r, r.negation(ours | fresh), _FOREIGN, address)
        r.put(place, MAP.MAGIC, r.const("i64", MAGIC))
        there = r.at(place, field)
        for size in (1, 2, 8):
            with r.when(r.equals(length, size)):
                # What does not fit becomes the largest number, which no map may have there.
                most = r.const("i64", (1 << 8 * size) - 1)
                r.put(there, 0, r.resize(r.intrinsic("llvm.umin", value, most), f"i{8 * size}", False))


@routine("tw_map_copy", "i32", *POINTERS)
def _copy_map(r: Routine, target: I64, source: I64, lane: I32, line: I32) -> None:
    """Copy a map from shared to global memory. NOTE: a warp does it together, so its first lane does it for all."""
    given = _find_map(r, source, Space.OWN, lane, 0)
    place = _find_map(r, target, Space.GLOBAL, lane, 1)
    r.copy(place, given, BYTES)


# -- st.bulk: zeros in shared memory ---------------------------------------------------------------
@routine("tw_fill", "i32", *POINTERS)
def _fill(r: Routine, addresses: Ptr, sizes: Ptr, mask: I32, line: I32) -> None:
    """Fill a stretch for each lane of ``mask``: 0, or 1 after a fault."""
    with r.each_lane(mask) as lane:
        r["lane"] = lane
        address, count = (r.element(source, lane, "i64") for source in (addresses, sizes))
        wrong = r.has_any(count, STEP - 1) | r.is_above(count, MOST_BYTES)
        refuse_if(r, wrong, _BAD_FILL, count)
        place = find_span(r, address, count, Space.SHARED, 1)
        with r.when(is_checked(r)):
            check_touch(r, lane, address, count, Space.SHARED, Action.STORE)
        r.fill(place, 0, count)
