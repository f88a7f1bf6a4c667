"""What a checked launch does at barriers of a block and of a cluster."""

from __future__ import annotations

from tilewise.emulator.check_layout import BARRIERS_OF_BLOCK, CLOCKS, LANE_BITS
from tilewise.emulator.checking.clocks import (
    WHO,
    acquire,
    clocks_of,
    index_of,
    join,
    now_of,
    of_scope,
    release,
    row_of,
    serial_of,
    synced,
    tick,
    widen,
    width_of,
)
from tilewise.emulator.layout import BARRIER, BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = ["routines"]

_CLUSTER_BARRIER = BARRIERS_OF_BLOCK - 1


def routines() -> list[Routine]:
    return [_arrive(), _through()]


def _came(r: Routine, number: Value | int) -> Value:
    """Where it stands in which phase of a barrier a warp came; behind the last, one more than the barrier of
    its block that it waits at, or 0."""
    row = r.op("mul", index_of(r), BARRIERS_OF_BLOCK + 1)
    return r.item(r.field(clocks_of(r), CLOCKS.CAME, "ptr"), r.op("add", row, number), 4)


def _barrier(r: Routine, number: Value) -> tuple[Value, Value]:
    """Where the phases of a barrier are counted, and which one a warp came in."""
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    whole = r.compare("icmp eq", number, _CLUSTER_BARRIER)
    owner = r.select(whole, r.const("i64", 0), rank)
    which = r.op("add", r.op("mul", owner, BARRIERS_OF_BLOCK), number)
    return which, _came(r, number)


def _barrier_clock(r: Routine, which: Value, phase: Value) -> Value:
    both = r.op("add", r.op("mul", which, 2), r.wide(r.op("and", phase, 1)))
    start = r.field(clocks_of(r), CLOCKS.BARRIERS, "ptr")
    return r.at(start, r.op("mul", both, row_of(r)))


def _fences(r: Routine, which: Value, phase: Value, wide: int) -> Value:
    """What fences of one scope before a barrier covered: those who come through may pass it on."""
    both = r.op("add", r.op("mul", which, 2), r.wide(r.op("and", phase, 1)))
    row = r.op("add", r.op("mul", both, 2), wide)
    return r.at(r.field(clocks_of(r), CLOCKS.FENCES, "ptr"), r.op("mul", row, row_of(r)))


def _end(r: Routine, which: Value, phase: Value) -> Value:
    both = r.op("add", r.op("mul", which, 2), r.wide(r.op("and", phase, 1)))
    return r.item(r.field(clocks_of(r), CLOCKS.ENDS, "ptr"), both, 4)


def _finish(r: Routine, clock: Value, end: Value) -> None:
    """The first warp is let through: now those that wait have done what they did."""
    with r.when(r.compare("icmp eq", r.field(end, 0, "i32"), 0)):
        now = now_of(r)
        r.put(end, 0, now)
        tick(r)
        with r.count(width_of(r)) as i:
            place = r.item(clock, i, 4)
            r.put(place, 0, r.intrinsic("llvm.umin", r.field(place, 0, "i32"), now))


def _arrive() -> Routine:
    """A warp has come to a barrier: 0 to 15 of its block, 16 of its cluster.

    ``goes_on`` tells whether some of its lanes do anything before they are let through. ``relaxed``: only
    what a fence covers is released.

    What the warp read from others before counts from now on as if a fence had followed: programs that let
    one thread wait for a flag, and the others for that thread at a barrier, hold on every GPU. What fences
    before the barrier covered, a flag behind it tells: all threads fence, meet, and one of them sets it.
    """
    numbers = {"number": "i32", "waits": "i32", "goes_on": "i32", "relaxed": "i32", "fences": "i32"}
    r = Routine("tw_check_arrive", "void", **WHO, **numbers)
    with r.when(r.compare("icmp ne", r["fences"], 0)):
        for wide in (0, 1):
            acquire(r, of_scope(r, CLOCKS.PENDING, wide))
            widen(r, of_scope(r, CLOCKS.RELEASED, wide))
    which, came = _barrier(r, r.wide(r["number"]))
    with r.when(r.compare("icmp ne", r["waits"], 0)):
        r.put(_came(r, BARRIERS_OF_BLOCK), 0, r.op("add", r["number"], 1))
    phases = r.item(r.field(clocks_of(r), CLOCKS.PHASES, "ptr"), which, 4)
    own = r.item(r.at(r["block"], BLOCK.BARRIERS), r.op("and", r["number"], 15), BARRIER.SIZE)
    arrived = r.variable("i32", r.field(own, BARRIER.THREADS, "i32"))
    with r.when(r.compare("icmp eq", r["number"], _CLUSTER_BARRIER)):
        arrived.put(r.field(r.field(r["block"], BLOCK.FIRST, "ptr"), BLOCK.ARRIVED, "i32"))
        _done_with_others(r)
    with r.when(r.compare("icmp eq", arrived.get(), 0)):
        fresh = r.op("add", r.field(phases, 0, "i32"), 1)
        r.put(phases, 0, fresh)
        r.fill(_barrier_clock(r, which, fresh), 0, row_of(r))
        with r.when(r.compare("icmp ne", r["fences"], 0)):
            r.fill(_fences(r, which, fresh, 0), 0, r.op("mul", row_of(r), 2))
        r.put(_end(r, which, fresh), 0, r.const("i32", 0))
    phase = r.field(phases, 0, "i32")
    r.put(came, 0, phase)
    clock = _barrier_clock(r, which, phase)
    with r.when(r.compare("icmp ne", r["relaxed"], 0)):
        join(r, clock, of_scope(r, CLOCKS.RELEASED, 1))
    with r.otherwise():
        release(r, clock, r["goes_on"])
    with r.when(r.compare("icmp ne", r["fences"], 0)):
        for wide in (0, 1):
            join(r, _fences(r, which, phase, wide), of_scope(r, CLOCKS.RELEASED, wide))
    return r


def _done_with_others(r: Routine) -> None:
    """A warp that comes to the cluster's barrier has used other blocks' memory: they may end behind it.

    That it is there is enough, even if it orders nothing.
    """
    with r.count(r.field(r["ctx"], LAUNCH.CLUSTER, "i64")) as rank:
        stride = r.op("mul", r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64"), rank)
        other = r.at(r.field(r["block"], BLOCK.FIRST, "ptr"), stride)
        user = r.op("lshr", r.field(other, BLOCK.USER, "i32"), LANE_BITS)
        with r.when(r.compare("icmp eq", user, serial_of(r))):
            r.put(other, BLOCK.USED, r.const("i32", 0))


def _through() -> Routine:
    """The barrier that a warp waits at has let it through, or that of its cluster."""
    r = Routine("tw_check_through", "void", **WHO, cluster="i32", fences="i32")
    number = r.variable("i32", _CLUSTER_BARRIER + 1)
    with r.when(r.compare("icmp eq", r["cluster"], 0)):
        waiting = _came(r, BARRIERS_OF_BLOCK)
        number.put(r.field(waiting, 0, "i32"))
        with r.when(r.compare("icmp eq", number.get(), 0)):
            r.give()
        # NOTE: where lanes are apart, others of the warp may come by while these still wait.
        held = r.at(r["warp"], WARP.WAITING)
        held = r.item(held, r.op("sub", number.get(), 1), 4)
        with r.unless(r.compare("icmp eq", r.field(held, 0, "i32"), 0)):
            r.give()
        r.put(waiting, 0, r.const("i32", 0))
    with r.otherwise(), r.unless(r.compare("icmp eq", r.field(r["warp"], WARP.HELD, "i32"), 0)):
        r.give()
    which, came = _barrier(r, r.wide(r.op("sub", number.get(), 1)))
    phase = r.field(came, 0, "i32")
    clock, end = _barrier_clock(r, which, phase), _end(r, which, phase)
    _finish(r, clock, end)
    synced(r, r.field(end, 0, "i32"))
    # NOTE: by the letter it takes a fence; compilers let a barrier do.
    r.put(r.item(r.field(clocks_of(r), CLOCKS.MADE, "ptr"), index_of(r), 4), 0, r.field(end, 0, "i32"))
    acquire(r, clock)
    with r.when(r.compare("icmp ne", r["fences"], 0)):
        for wide in (0, 1):
            join(r, of_scope(r, CLOCKS.RELEASED, wide), _fences(r, which, phase, wide))
    return r
