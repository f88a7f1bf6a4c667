"""The run-time support of what a warp's lanes wait at: barriers of a block and of a cluster, other lanes, launches.

At a cluster's barrier each thread arrives and waits by turns. A warp keeps which lanes have arrived in the phase under
way (CAME) and which have yet to wait for one that is complete (PASSED); the cluster's first block counts.
"""

from __future__ import annotations

from tilewise.emulator.layout import BARRIER, BARRIERS, BLOCK, LAUNCH, WARP, ClusterFault, FaultKind, Status
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.cluster_parts import each_block, each_warp
from tilewise.emulator.support.memory_access import record_fault, record_lanes_fault

__all__ = ["remove_lanes"]

_WRONG = 2  # what coming to a barrier, or waiting at one, gives after a fault


def release_lanes(r: Routine, warp: Value, lanes: Value) -> None:
    """Let lanes that waited at a barrier go on, and with them their warp."""
    r.put(warp, WARP.BLOCKED, r.without(r.field(warp, WARP.BLOCKED, "i32"), lanes))
    status = r.field(warp, WARP.STATUS, "i32")
    waiting = r.equals(status, Status.WAITING)
    r.put(warp, WARP.STATUS, r.select(waiting, Status.READY, status))


def _find_barrier(r: Routine, number: Value) -> Value:
    return r.item(r.at(r["block"], BLOCK.BARRIERS), number, BARRIER.SIZE)


@routine("tw_release", "void", "ctx", "block")
def _release_barrier(r: Routine, number: I64) -> None:
    """Reset a barrier that is complete, and let the lanes that wait at it go on with its result."""
    barrier = _find_barrier(r, number)
    threads = r.field(barrier, BARRIER.THREADS, "i32")
    result = (threads << 16) | r.field(barrier, BARRIER.COUNT, "i32")
    r.fill(barrier, 0, BARRIER.SIZE)
    with each_warp(r, r["block"]) as (_, warp):
        waiting = r.item(r.at(warp, WARP.WAITING), number, 4)
        lanes = r.field(waiting, 0, "i32")
        with r.when(r.differs(lanes, 0)):
            r.put(waiting, 0, 0)
            r.put(r.item(r.at(warp, WARP.RESULTS), number, 4), 0, result)
            release_lanes(r, warp, lanes)


@routine("tw_barrier", "i32", *POINTERS)
def _arrive_at_barrier(
    r: Routine, number: I32, given: I32, waits: I32, mask: I32, vote: I32, line: I32
) -> None:
    """Come to a barrier with some lanes: 0: it is complete, or they need not wait; 1: they must; 2: after a fault.

    ``given`` is how many threads the barrier waits for, and 0 for all of the block. Units count threads as the
    hardware does, which takes whole warps: those of a warp's lanes that are live stand for all 32.
    """
    warp = r["warp"]
    which = r.wide(number)
    barrier = _find_barrier(r, which)
    wrong = r.either(r.is_above(number, BARRIERS - 1), r.has_any(given, 31))
    with r.when(wrong):
        _give_fault(r)
    threads, expected = (r.field(barrier, field, "i32") for field in (BARRIER.THREADS, BARRIER.EXPECTED))
    with r.when(r.both(r.differs(threads, 0), r.differs(expected, given))):
        _give_fault(r)
    r.put(barrier, BARRIER.EXPECTED, given)
    waiting = r.item(r.at(warp, WARP.WAITING), which, 4)
    had, came = r.field(waiting, 0, "i32"), r.count_bits(mask)
    have = had | mask
    whole = r.equals(have, r.field(warp, WARP.LIVE, "i32"))
    units = r.select(whole, 32 - r.count_bits(had), came)
    threads = r.change(barrier, BARRIER.THREADS, "add", came)
    units = r.change(barrier, BARRIER.UNITS, "add", units)
    r.change(barrier, BARRIER.COUNT, "add", r.count_bits(vote & mask))
    held = r.differs(waits, 0)
    with r.when(held):
        r.put(waiting, 0, have)
        r.change(warp, WARP.BLOCKED, "or", mask)
        r.put(r.item(r.at(warp, WARP.LINES), which, 4), 0, line)
    with r.when(_is_complete(r, given, threads, r.field(r["block"], BLOCK.LIVE, "i32"), units)):
        _release_barrier(r, which)
        r.give(0)
    r.give(r.cast("zext", held, "i32"))


def _give_fault(r: Routine) -> None:
    record_lanes_fault(r, FaultKind.BAD_BARRIER, r["mask"])
    r.give(_WRONG)


def _is_complete(r: Routine, expected: Value, threads: Value, live: Value, units: Value) -> Value:
    """Return whether all threads of the block are at a barrier or, if it counts, as many units as it expects."""
    everyone, enough = r.is_at_least(threads, live), r.is_at_least(units, expected)
    return r.select(r.equals(expected, 0), everyone, enough)


@routine("tw_depart", "void", *POINTERS)
def remove_lanes(r: Routine, lanes: I32) -> None:
    """Take lanes out of their warp and block, for which no barrier waits from now on."""
    warp, live = r["warp"], r.field(r["warp"], WARP.LIVE, "i32")
    gone = live & lanes
    stay = r.without(live, gone)
    r.put(warp, WARP.LIVE, stay)
    left = r.change(r["block"], BLOCK.LIVE, "sub", r.count_bits(gone))
    r.give_if(r.equals(gone, 0))
    _leave_cluster(r, gone)
    with r.count(BARRIERS) as number:
        barrier = _find_barrier(r, number)
        # Of a warp whose other lanes have left, those that wait count as a whole one.
        here = r.element(r.at(warp, WARP.WAITING), number, "i32")
        whole = r.both(r.equals(here, stay), r.differs(here, 0))
        rest = 32 - r.count_bits(here)
        units = r.change(barrier, BARRIER.UNITS, "add", r.select(whole, rest, 0))
        threads, expected = (r.field(barrier, field, "i32") for field in (BARRIER.THREADS, BARRIER.EXPECTED))
        complete = _is_complete(r, expected, threads, left, units)
        with r.when(r.both(r.differs(threads, 0), complete)):
            _release_barrier(r, number)


# -- barriers of a cluster ---------------------------------------------------------------------------
def _first(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.FIRST, "ptr")


def _refuse_if(r: Routine, lanes: Value, why: ClusterFault) -> None:
    """End with a fault of these lanes; does nothing if there are none."""
    with r.when(r.differs(lanes, 0)):
        record_fault(r, FaultKind.BAD_CLUSTER_BARRIER, r.find_lowest(lanes, True), 0, why)
        r.give(_WRONG)


@routine("tw_cluster_arrive", "i32", *POINTERS)
def _arrive_at_cluster(r: Routine, mask: I32, line: I32) -> None:
    """Arrive at the cluster's barrier with some lanes: 0, or 2 if one has arrived already."""
    warp = r["warp"]
    came, passed = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.PASSED, "i32")
    _refuse_if(r, (came | passed) & mask, ClusterFault.TWICE)
    r.put(warp, WARP.CAME, came | mask)
    r.change(_first(r), BLOCK.ARRIVED, "add", r.count_bits(mask))
    _complete_cluster(r, _first(r))


@routine("tw_cluster_wait", "i32", *POINTERS)
def _wait_for_cluster(r: Routine, mask: I32, line: I32) -> None:
    """Wait at the cluster's barrier with some lanes: 0: all may go on, 1: some must wait, 2: one has not arrived."""
    warp = r["warp"]
    came, passed = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.PASSED, "i32")
    _refuse_if(r, r.without(mask, came | passed), ClusterFault.NOT_ARRIVED)
    r.put(warp, WARP.PASSED, r.without(passed, mask))
    held = came & mask
    r.give_if(r.equals(held, 0), 0)
    r.change(warp, WARP.HELD, "or", held)
    r.change(warp, WARP.BLOCKED, "or", held)
    r.put(warp, WARP.HELD_LINE, line)
    r.give(1)


@routine("tw_cluster_complete", "void", "ctx")
def _complete_cluster(r: Routine, first: Ptr) -> None:
    """Begin the next phase if all threads that have not exited have arrived."""
    arrived, present = r.field(first, BLOCK.ARRIVED, "i32"), r.field(first, BLOCK.PRESENT, "i32")
    with r.when(r.both(r.differs(arrived, 0), r.is_at_least(arrived, present))):
        r.put(first, BLOCK.ARRIVED, 0)
        with each_block(r, first) as (_, block), each_warp(r, block) as (_, warp):
            _release_cluster(r, warp=warp)


@routine("tw_cluster_release", "void", "warp")
def _release_cluster(r: Routine) -> None:
    """Resume a warp's lanes that wait at the cluster's barrier; its other arrived lanes will pass without waiting."""
    warp = r["warp"]
    came, held = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.HELD, "i32")
    r.change(warp, WARP.PASSED, "or", r.without(came, held))
    r.put(warp, WARP.CAME, 0)
    with r.when(r.differs(held, 0)):
        r.put(warp, WARP.HELD, 0)
        release_lanes(r, warp, held)


@routine("tw_cluster_leave", "void", "ctx", "block", "warp")
def _leave_cluster(r: Routine, lanes: I32) -> None:
    """Remove lanes that exit from the threads that the cluster's barrier expects."""
    warp, first = r["warp"], _first(r)
    r.change(first, BLOCK.PRESENT, "sub", r.count_bits(lanes))
    with r.when(r.differs(r.field(first, BLOCK.ARRIVED, "i32"), 0)):
        came = r.field(warp, WARP.CAME, "i32")
        r.change(first, BLOCK.ARRIVED, "sub", r.count_bits(came & lanes))
        r.put(warp, WARP.CAME, r.without(came, lanes))
        _complete_cluster(r, first)


# -- other lanes, and the launch before -------------------------------------------------------------
@routine("tw_meet", "void", "warp")
def _meet(r: Routine, lanes: I32, line: I32) -> None:
    """Come to a ``bar.warp.sync`` with some lanes; those go on for which every lane that they name is there.

    One that names other lanes is at a barrier of its own, and not there yet.
    It is also called without lanes, after some have left the kernel: nobody waits for those.
    """
    warp, live = r["warp"], r.field(r["warp"], WARP.LIVE, "i32")
    everyone = r.field(warp, WARP.MEETING, "i32") | lanes
    here = everyone & live
    with r.when(r.differs(lanes, 0)):
        r.put(warp, WARP.LINE, line)
    stay = r.variable("i32", 0)
    names = r.field(warp, WARP.NAMED, vector("i32")) & r.splat(live)
    with r.count(32) as lane:
        named = r.element(r.at(warp, WARP.NAMED), lane, "i32") & live
        alike = r.bits(r.equals(names, r.splat(named))) & here
        waits = r.differs(r.without(named, alike), 0)
        bit = 1 << r.narrow(lane)
        stay.put(stay.get() | r.select(waits, bit, 0))
    left = here & stay.get()
    r.put(warp, WARP.MEETING, left)
    blocked = r.without(r.field(warp, WARP.BLOCKED, "i32"), r.without(everyone, left))
    r.put(warp, WARP.BLOCKED, blocked | left)


@routine("tw_await_launch", "i32", *POINTERS)
def _await_launch(r: Routine, mask: I32) -> None:
    """Wait with some lanes for the end of the previous launch: 0 if it has ended, 1 if they must wait."""
    warp = r["warp"]
    r.give_if(r.equals(r.field(r["ctx"], LAUNCH.PREREQUISITES, "i64"), 0), 0)
    for field in (WARP.DEPENDENT, WARP.BLOCKED):
        r.change(warp, field, "or", mask)
    r.give(1)
