"""Operations in flight: their queue, and when they complete.

A copy that a kernel issues may complete at once, or not before the kernel waits for it: the hardware is free.
Here ``order`` decides. *Eager* completes it when it is issued. *Late* leaves it until the thread waits for
its group or, if it reports to an mbarrier, until no warp of its cluster gets on without it: each waits at a
barrier, or last found the phase of an mbarrier incomplete. A seed completes
flights at random moments in between. What is left at a cluster's end completes then.

A flight is a record in its cluster's queue. Each kind has a function that performs it, for some of the lanes
that issued it: ``performer(ctx, worker, block, warp, flight, mask) -> 0``, or anything else after a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.layout import (
    BLOCK,
    FLIGHT,
    LAUNCH,
    OFFSETS,
    QUEUE,
    WARP,
    Flight,
    FlightClass,
    Space,
    Status,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, NULL, POINTERS, Loop, Ptr, Routine, routine
from tilewise.emulator.support.cluster_parts import each_block, each_warp
from tilewise.emulator.support.mbarrier import PHASE_BIT, arrive_each
from tilewise.emulator.support.memory_access import copy_to_shared, find_memory, locate_block

__all__ = [
    "CAPACITY",
    "advance_seed",
    "append_flight",
    "complete_all_flights",
    "complete_one_flight",
    "free_waiting",
    "issue_flight",
    "maybe_complete_random",
    "queue_bytes",
]

CAPACITY = 256  # flights of a cluster; one more completes the oldest
_EAGER, _LATE, _SEEDED = 0, 1, 2
_SEED = 16  # in a worker's memory
_ALL = Value("i32", "-1")  # lanes


def advance_seed(r: Routine) -> Value:
    """Return the worker's next random number of 64 bits, of which the high ones are the better ones."""
    seed = r.field(r["worker"], _SEED, "i64") * 6364136223846793005
    seed += 1442695040888963407
    r.put(r["worker"], _SEED, seed)
    return seed


def queue_bytes(capacity: int) -> int:
    return QUEUE.SLOTS + capacity * FLIGHT.SIZE


def _queue(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.FLIGHTS, "ptr")


@contextmanager
def _each_flight(r: Routine) -> Iterator[tuple[Loop, Value]]:
    """Write a loop over a cluster's flights, the oldest first; yield it and the flight, which may be removed."""
    following = r.variable("ptr", r.field(_queue(r), QUEUE.FIRST, "ptr"))
    with r.loop() as loop:
        flight = following.get()
        loop.leave(r.is_null(flight))
        following.put(r.field(flight, FLIGHT.NEXT, "ptr"))
        yield loop, flight


def _order_is(r: Routine, order: int) -> Value:
    return r.equals(r.field(r["ctx"], LAUNCH.ORDER, "i64"), order)


# -- issuing ------------------------------------------------------------------------------------------
@routine("tw_flight", "ptr", *POINTERS)
def append_flight(r: Routine, kind: I32, group: I32, mask: I32, line: I32) -> None:
    """Append a flight to the queue and return it, its data to be filled in; null after a fault."""
    queue = _queue(r)
    found = r.variable("ptr", r.field(queue, QUEUE.FREE, "ptr"))
    with r.when(r.is_null(found.get())):
        made = r.field(queue, QUEUE.MADE, "i64")
        with r.when(r.is_below(made, r.field(queue, QUEUE.CAPACITY, "i64"))):
            r.put(queue, QUEUE.MADE, made + 1)
            slot = r.item(r.at(queue, QUEUE.SLOTS), made, FLIGHT.SIZE)
            r.put(slot, FLIGHT.NEXT, NULL)
            found.put(slot)
        with r.otherwise():
            oldest = r.field(queue, QUEUE.FIRST, "ptr")
            r.give_if(r.differs(_perform_flight(r, oldest), 0), NULL)
            found.put(r.field(queue, QUEUE.FREE, "ptr"))
    slot = found.get()
    r.put(queue, QUEUE.FREE, r.field(slot, FLIGHT.NEXT, "ptr"))
    last = r.field(queue, QUEUE.LAST, "ptr")
    r.put(slot, FLIGHT.PREVIOUS, last)
    r.put(slot, FLIGHT.NEXT, NULL)
    r.put(_next_slot(r, queue, last), 0, slot)
    r.put(queue, QUEUE.LAST, slot)
    r.change(queue, QUEUE.COUNT, "add", 1, "i64")
    r.put_fields(slot, {FLIGHT.KIND: kind, FLIGHT.CLASS: group, FLIGHT.LINE: line, FLIGHT.LANES: mask})
    r.put_fields(slot, {FLIGHT.WARP: r["warp"], FLIGHT.BLOCK: r["block"]})
    r.copy(r.at(slot, FLIGHT.GROUPS), _counters(r, group), 128)
    r.give(slot)


def _next_slot(r: Routine, queue: Value, flight: Value) -> Value:
    """Return the pointer to what follows a flight, or to the queue's first one if there is none."""
    return r.select(r.is_null(flight), r.at(queue, QUEUE.FIRST), r.at(flight, FLIGHT.NEXT))


def _counters(r: Routine, group: Value) -> Value:
    """Return the pointer to the counts, by lane, of groups of a class committed so far."""
    bulk = r.equals(group, FlightClass.BULKS)
    return r.at(r["warp"], r.select(bulk, r.const("i64", WARP.BULKS), WARP.COPIES))


@routine("tw_fly", "i32", *POINTERS)
def issue_flight(r: Routine, flight: Ptr) -> None:
    """Issue a flight whose data is filled in; in eager order complete it at once."""
    with r.when(_order_is(r, _EAGER)):
        r.give(_perform_flight(r, flight))
    r.give(maybe_complete_random(r))


# -- completing ---------------------------------------------------------------------------------------
@routine("tw_flight_drop", "void")
def _drop(r: Routine, flight: Ptr) -> None:
    """Remove a flight from the queue."""
    queue = r.field(r.field(flight, FLIGHT.BLOCK, "ptr"), BLOCK.FLIGHTS, "ptr")
    before, after = r.field(flight, FLIGHT.PREVIOUS, "ptr"), r.field(flight, FLIGHT.NEXT, "ptr")
    r.put(_next_slot(r, queue, before), 0, after)
    r.put(r.select(r.is_null(after), r.at(queue, QUEUE.LAST), r.at(after, FLIGHT.PREVIOUS)), 0, before)
    r.put(flight, FLIGHT.NEXT, r.field(queue, QUEUE.FREE, "ptr"))
    r.put(queue, QUEUE.FREE, flight)
    r.change(queue, QUEUE.COUNT, "sub", 1, "i64")


@routine("tw_perform", "i32", "ctx", "worker")
def _perform_flight(r: Routine, flight: Ptr, mask: I32 = _ALL) -> None:
    """Complete a flight for some of its lanes: 0, or anything else after a fault; remove it with the last of them."""
    block, warp = r.field(flight, FLIGHT.BLOCK, "ptr"), r.field(flight, FLIGHT.WARP, "ptr")
    lanes = r.field(flight, FLIGHT.LANES, "i32")
    now = lanes & mask
    rest = lanes ^ now
    r.put(flight, FLIGHT.LANES, rest)
    kind = r.field(flight, FLIGHT.KIND, "i32")
    answer = r.variable("i32", 0)
    with r.when(r.equals(kind, Flight.COPY)):
        answer.put(_copy(r, flight, now, block=block, warp=warp))
    with r.otherwise_when(r.equals(kind, Flight.ARRIVE)):
        answer.put(_arrive(r, flight, now, block=block, warp=warp))
    with r.otherwise():
        answer.put(r.call("tw_fly_bulk", "i32", r["ctx"], r["worker"], block, warp, flight, now))
    with r.when(r.equals(rest, 0)):
        _drop(r, flight)
    r.change(block, BLOCK.PROGRESS, "add", 1, "i64")
    r.give(answer.get())


# -- waiting ------------------------------------------------------------------------------------------
@routine("tw_commit", "void", "warp")
def _commit(r: Routine, mask: I32, group: I32) -> None:
    """Commit a group, for some lanes of a warp."""
    counters = _counters(r, group)
    with r.each_lane(mask) as lane:
        r.change(r.item(counters, lane, 4), 0, "add", 1)


@routine("tw_await", "i32", *POINTERS)
def _await(r: Routine, mask: I32, group: I32, keep: I32) -> None:
    """Complete all groups of some lanes but their last ``keep``; with -1, all."""
    counters = _counters(r, group)
    with _each_flight(r) as (loop, this):
        mine = r.equals(r.field(this, FLIGHT.WARP, "ptr"), r["warp"])
        same = r.equals(r.field(this, FLIGHT.CLASS, "i32"), group)
        loop.again(r.negation(r.both(mine, same)))
        due = r.variable("i32", 0)
        with r.each_lane(r.field(this, FLIGHT.LANES, "i32") & mask) as lane:
            own = r.element(r.at(this, FLIGHT.GROUPS), lane, "i32")
            after = r.element(counters, lane, "i32") - own  # groups closed since
            with r.when(r.compare("icmp sgt", after, keep)):
                due.put(due.get() | (1 << lane))
        loop.again(r.equals(due.get(), 0))
        r.give_unless_zero(_perform_flight(r, this, due.get()))


@routine("tw_idle", "i32", "ctx", "worker", "block")
def complete_one_flight(r: Routine) -> None:
    """Complete one flight, as no warp of the cluster can go on; one that an mbarrier waits for first.

    1 if there was one, 0 if not, 2 after a fault.
    """
    queue = _queue(r)
    r.give_if(r.is_null(queue), 0)
    first = r.field(queue, QUEUE.FIRST, "ptr")
    r.give_if(r.is_null(first), 0)
    awaited = _find_awaited(r)
    failed = _perform_flight(r, r.select(r.is_null(awaited), first, awaited))
    r.give(r.select(r.equals(failed, 0), 1, 2))


@routine("tw_flight_awaited", "ptr", "block")
def _find_awaited(r: Routine) -> None:
    """Return the oldest flight that an mbarrier waits for, or null."""
    with _each_flight(r) as (_, flight):
        r.give_if(r.equals(r.field(flight, FLIGHT.CLASS, "i32"), FlightClass.MBARRIER), flight)
    r.give(NULL)


@routine("tw_gust", "i32", "ctx", "worker", "block")
def maybe_complete_random(r: Routine) -> None:
    """In seeded order: complete a random flight with a probability of a quarter."""
    r.give_if(r.negation(_order_is(r, _SEEDED)), 0)
    queue = _queue(r)
    r.give_if(r.is_null(queue), 0)
    count = r.field(queue, QUEUE.COUNT, "i64")
    r.give_if(r.equals(count, 0), 0)
    seed = advance_seed(r)
    r.give_if(r.has_any(seed >> 59, 3), 0)
    flight = r.variable("ptr", r.field(queue, QUEUE.FIRST, "ptr"))
    with r.count((seed >> 33) % count):
        flight.put(r.field(flight.get(), FLIGHT.NEXT, "ptr"))
    r.give(_perform_flight(r, flight.get()))


@routine("tw_any_free", "i1", "ctx", "block")
def _any_warp_free(r: Routine) -> None:
    """Whether some warp of a cluster may go on: it waits at no mbarrier, or at one whose phase is complete."""
    found = r.reserve("ptr")
    with (
        each_block(r, r.field(r["block"], BLOCK.FIRST, "ptr")) as (_, block),
        each_warp(r, block) as (_, warp),
        r.when(r.equals(r.field(warp, WARP.STATUS, "i32"), Status.READY)),
    ):
        r.give_if(r.equals(r.field(warp, WARP.AWAITING, "i32"), 0), 1)
        address = r.wide(r.field(warp, WARP.AWAITED, "i32"))
        r.give_if(r.differs(locate_block(r, address, found, block=block), 0), 1)
        shared = r.field(r.field(found, 0, "ptr"), BLOCK.SHARED, "ptr")
        state = r.field(r.at(shared, address & OFFSETS), 0, "i64")
        phase = r.narrow((state >> PHASE_BIT) & 1)
        r.give_if(r.differs(phase, r.field(warp, WARP.AWAITED_PHASE, "i32")), 1)
    r.give(0)


@routine("tw_free_waiting", "i32", "ctx", "worker", "block")
def free_waiting(r: Routine) -> None:
    """In late order, while all warps of a cluster wait at mbarriers: complete flights that mbarriers wait for,
    until a warp may go on.

    NOTE: warps that wait ask again and again, and between that perhaps for the time: they seem to get on.
    """
    queue = _queue(r)
    r.give_if(r.is_null(queue) | r.negation(_order_is(r, _LATE)), 0)
    with r.loop() as loop:
        loop.leave(r.is_null(r.field(queue, QUEUE.FIRST, "ptr")))
        loop.leave(_any_warp_free(r))
        awaited = _find_awaited(r)
        loop.leave(r.is_null(awaited))
        r.give_unless_zero(_perform_flight(r, awaited))


@routine("tw_land", "i32", "ctx", "worker", "block")
def complete_all_flights(r: Routine) -> None:
    """Complete all flights, at a cluster's end."""
    with r.loop() as loop:
        left = complete_one_flight(r)
        loop.leave(r.equals(left, 0))
        r.give_if(r.equals(left, 2), left)


# -- two kinds ----------------------------------------------------------------------------------------
COPY_SOURCES, COPY_PLACES, COPY_READS, COPY_SIZE = 0, 256, 512, 640


@routine("tw_fly_copy", "i32", *POINTERS)
def _copy(r: Routine, flight: Ptr, mask: I32) -> None:
    """Perform a ``cp.async``: copy a few bytes of each lane from global to shared memory."""
    data = r.at(flight, FLIGHT.DATA)
    sources, places, reads = (r.at(data, offset) for offset in (COPY_SOURCES, COPY_PLACES, COPY_READS))
    size, line = r.field(data, COPY_SIZE, "i32"), r.field(flight, FLIGHT.LINE, "i32")
    r.give(copy_to_shared(r, sources, places, mask, size, reads, line=line))


@routine("tw_spoil", "i32", *POINTERS)
def _spoil(r: Routine, places: Ptr, mask: I32, size: I32, line: I32) -> None:
    """Overwrite the destination of a copy in flight, so that a read before its end gives uninitialised data.

    The hardware may write there at any time from now on, so nothing may count on what was there before.
    """
    with r.each_lane(mask) as lane:
        place = find_memory(r, r.element(places, lane, "i64"), size, Space.OWN, lane, 1)
        r.fill(place, 0xFF, r.wide(size))


@routine("tw_fly_arrive", "i32", *POINTERS)
def _arrive(r: Routine, flight: Ptr, mask: I32) -> None:
    """Perform ``cp.async.mbarrier.arrive``: complete the lanes' earlier copies, then arrive."""
    with _each_flight(r) as (loop, this):
        loop.leave(r.equals(this, flight))
        mine = r.equals(r.field(this, FLIGHT.WARP, "ptr"), r["warp"])
        copies = r.equals(r.field(this, FLIGHT.KIND, "i32"), Flight.COPY)
        lanes = r.field(this, FLIGHT.LANES, "i32") & mask
        due = r.both(mine, copies, r.differs(lanes, 0))
        loop.again(r.negation(due))
        r.give_unless_zero(_perform_flight(r, this, mask))
    data = r.at(flight, FLIGHT.DATA)
    line = r.field(flight, FLIGHT.LINE, "i32")
    # NOTE: it is not the warp that arrives now. What it waits for itself it waits for still.
    awaiting = r.field(r["warp"], WARP.AWAITING, "i32")
    failed = arrive_each(r, data, mask, line=line)
    r.put(r["warp"], WARP.AWAITING, awaiting)
    r.give(failed)
