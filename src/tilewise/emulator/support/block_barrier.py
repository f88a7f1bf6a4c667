"""The run-time support of a block's 16 barriers: lanes come to one, are released from it, or leave the kernel."""

from __future__ import annotations

from tilewise.emulator.layout import BARRIER, BARRIERS, BLOCK, WARP, FaultKind, Status
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Routine, routine
from tilewise.emulator.support.cluster_parts import each_warp

__all__ = ["release_lanes"]

_WRONG = 2  # what coming to a barrier gives after a fault


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
    result = r.op("or", r.op("shl", threads, 16), r.field(barrier, BARRIER.COUNT, "i32"))
    for field in (BARRIER.THREADS, BARRIER.COUNT, BARRIER.UNITS, BARRIER.EXPECTED):
        r.put(barrier, field, 0)
    with each_warp(r, r["block"]) as (_, warp):
        waiting = r.item(r.at(warp, WARP.WAITING), number, 4)
        lanes = r.field(waiting, 0, "i32")
        with r.when(r.differs(lanes, 0)):
            r.put(waiting, 0, 0)
            r.put(r.item(r.at(warp, WARP.RESULTS), number, 4), 0, result)
            release_lanes(r, warp, lanes)


@routine("tw_barrier", "i32", *POINTERS)
def _arrive(r: Routine, number: I32, given: I32, waits: I32, mask: I32, vote: I32, line: I32) -> None:
    """Come to a barrier with some lanes: 0: it is complete, or they need not wait; 1: they must; 2: after a fault.

    ``given`` is how many threads the barrier waits for, and 0 for all of the block. Units count threads as the
    hardware does, which takes whole warps: those of a warp's lanes that are live stand for all 32.
    """
    warp = r["warp"]
    which = r.wide(number)
    barrier = _find_barrier(r, which)
    wrong = r.either(r.is_above(number, BARRIERS - 1), r.differs(r.op("and", given, 31), 0))
    with r.when(wrong):
        _give_fault(r)
    threads, expected = (r.field(barrier, field, "i32") for field in (BARRIER.THREADS, BARRIER.EXPECTED))
    with r.when(r.both(r.differs(threads, 0), r.differs(expected, given))):
        _give_fault(r)
    r.put(barrier, BARRIER.EXPECTED, given)
    waiting = r.item(r.at(warp, WARP.WAITING), which, 4)
    had, came = r.field(waiting, 0, "i32"), r.count_bits(mask)
    have = r.op("or", had, mask)
    whole = r.equals(have, r.field(warp, WARP.LIVE, "i32"))
    units = r.select(whole, r.op("sub", 32, r.count_bits(had)), came)
    threads = r.change(barrier, BARRIER.THREADS, "add", came)
    units = r.change(barrier, BARRIER.UNITS, "add", units)
    r.change(barrier, BARRIER.COUNT, "add", r.count_bits(r.op("and", vote, mask)))
    held = r.differs(waits, 0)
    with r.when(held):
        r.put(waiting, 0, have)
        r.change(warp, WARP.BLOCKED, "or", mask)
        r.put(r.item(r.at(warp, WARP.LINES), which, 4), 0, line)
    with r.when(_is_complete(r, given, threads, r.field(r["block"], BLOCK.LIVE, "i32"), units)):
        r.call("tw_release", "void", r["ctx"], r["block"], which)
        r.give(0)
    r.give(r.cast("zext", held, "i32"))


def _give_fault(r: Routine) -> None:
    r.call("tw_fault", "void", *r.pointers(), FaultKind.BAD_BARRIER, r["line"], r["mask"])
    r.give(_WRONG)


def _is_complete(r: Routine, expected: Value, threads: Value, live: Value, units: Value) -> Value:
    """Return whether all threads of the block are at a barrier or, if it counts, as many units as it expects."""
    everyone, enough = r.is_at_least(threads, live), r.is_at_least(units, expected)
    return r.select(r.equals(expected, 0), everyone, enough)


@routine("tw_depart", "void", *POINTERS)
def _remove_lanes(r: Routine, lanes: I32) -> None:
    """Take lanes out of their warp and block, for which no barrier waits from now on."""
    warp, live = r["warp"], r.field(r["warp"], WARP.LIVE, "i32")
    gone = r.op("and", live, lanes)
    stay = r.without(live, gone)
    r.put(warp, WARP.LIVE, stay)
    left = r.change(r["block"], BLOCK.LIVE, "sub", r.count_bits(gone))
    r.give_if(r.equals(gone, 0))
    r.call("tw_cluster_leave", "void", r["ctx"], r["block"], warp, gone)
    with r.count(BARRIERS) as number:
        barrier = _find_barrier(r, number)
        # Of a warp whose other lanes have left, those that wait count as a whole one.
        here = r.element(r.at(warp, WARP.WAITING), number, "i32")
        whole = r.both(r.equals(here, stay), r.differs(here, 0))
        rest = r.op("sub", 32, r.count_bits(here))
        units = r.change(barrier, BARRIER.UNITS, "add", r.select(whole, rest, 0))
        threads, expected = (r.field(barrier, field, "i32") for field in (BARRIER.THREADS, BARRIER.EXPECTED))
        complete = _is_complete(r, expected, threads, left, units)
        with r.when(r.both(r.differs(threads, 0), complete)):
            r.call("tw_release", "void", r["ctx"], r["block"], number)
