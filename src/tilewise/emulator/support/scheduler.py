"""The scheduler: clusters one after another, how each begins, and of each the warps that can run, of any block."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.layout import BARRIER, BARRIERS, BLOCK, LAUNCH, WARP, Answer, Outcome, Status
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I64, MutableValue, Ptr, Routine, routine
from tilewise.emulator.support.barriers import remove_lanes
from tilewise.emulator.support.cluster_parts import each_block, each_warp, find_block, find_warp
from tilewise.emulator.support.flights import (
    advance_seed,
    complete_all_flights,
    complete_one_flight,
    free_waiting,
    maybe_complete_random,
)

__all__: list[str] = []

_TURNS = 64  # that a cluster has before others of its worker run, if it may wait for those
_BACKWARDS, _SEEDED = 1, 2  # of the orders in which a round takes warps


@routine("tw_work", "i32", "ctx", "worker", "block")
def _run_clusters(r: Routine) -> None:
    """Run clusters, those that are under way first, until one cannot go on or none is left: an ``Outcome``."""
    ctx, block = r["ctx"], r["block"]
    with r.loop():
        _give_if_stopped(r)
        with r.when(r.equals(r.field(block, BLOCK.ACTIVE, "i32"), 0)):
            number = choose_next(r)
            r.give_if(r.compare("icmp slt", number, 0), Outcome.FINISHED)
            r.atomic("add", r.at(ctx, LAUNCH.BEGUN), r.const("i64", 1), "monotonic")
            cluster, chosen = r.variable("i64", number), r.field(ctx, LAUNCH.CHOSEN, "ptr")
            with r.unless(r.is_null(chosen)):
                cluster.put(r.element(chosen, number, "i64"))
            begin_cluster(r, block, cluster.get())
        outcome = _run_cluster(r, block)
        r.give_if(r.differs(outcome, Outcome.FINISHED), outcome)
        r.put(block, BLOCK.ACTIVE, 0)
        r.atomic("add", r.at(ctx, LAUNCH.DONE), r.field(ctx, LAUNCH.CLUSTER, "i64"), "monotonic")


def _give_if_stopped(r: Routine) -> None:
    stop = r.load_atomic(r.at(r["ctx"], LAUNCH.STOP), "i32", "acquire")
    r.give_if(r.differs(stop, 0), Outcome.ENDED)


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of a cluster's warps: the warp to take at each step, and what came of those that ran."""

    order: Value
    warps: Value  # of a block
    count: Value  # of warps of the cluster
    begin: Value  # where a seeded round starts
    step: Value  # and how far it steps
    progress: MutableValue  # whether a warp ended or came to a barrier
    ready: MutableValue  # whether a warp was in a loop that waits for others


@routine("tw_run", "i32", "ctx", "worker")
def _run_cluster(r: Routine, first: Ptr) -> None:
    """Run a cluster's warps by turns until the cluster is complete or cannot go on: an ``Outcome``."""
    ctx = r["ctx"]
    warps, order = r.field(ctx, LAUNCH.WARPS, "i64"), r.field(ctx, LAUNCH.ORDER, "i64")
    count = r.op("mul", warps, r.field(ctx, LAUNCH.CLUSTER, "i64"))
    pauses = r.differs(r.field(ctx, LAUNCH.PAUSES, "i64"), 0)
    with r.loop():
        _give_if_stopped(r)
        # Where a seeded round starts, and how far it steps: it meets every warp once, in an order of its own.
        seed, step = advance_seed(r), r.variable("i64", 1)
        with r.when(r.equals(order, _SEEDED)):
            step.put(_choose_step(r, count, r.op("lshr", seed, 17)))
        progress, ready = r.variable("i1", 0), r.variable("i1", 0)
        now = _Round(order, warps, count, r.op("lshr", seed, 33), step.get(), progress, ready)
        with r.count(count) as i:
            block, warp = _choose_warp(r, now, i)
            with r.when(r.equals(r.field(warp, WARP.STATUS, "i32"), Status.READY)):
                _run_warp(r, now, block, warp)
        freed = free_waiting(r, block=first)
        r.give_if(r.differs(freed, 0), Outcome.ENDED)
        _give_if_stuck(r, now)
        # Where clusters take turns, every other round is the last for now.
        tails = r.is_below(r.op("lshr", seed, 60), 8)
        r.give_if(r.both(tails, pauses), Outcome.PAUSED)


def _choose_warp(r: Routine, now: _Round, i: Value) -> tuple[Value, Value]:
    """Return the block and the warp that are next in a round's order."""
    backwards = r.op("sub", r.op("sub", now.count, 1), i)
    chosen = r.variable("i64", r.select(r.equals(now.order, _BACKWARDS), backwards, i))
    with r.when(r.equals(now.order, _SEEDED)):
        chosen.put(r.op("urem", r.op("add", now.begin, r.op("mul", i, now.step)), now.count))
    # NOTE: 32 bits are divided in a third of the time.
    rank = r.wide(r.op("udiv", r.narrow(chosen.get()), r.narrow(now.warps)))
    number = r.op("sub", chosen.get(), r.op("mul", rank, now.warps))
    block = find_block(r, r["first"], rank)
    return block, find_warp(r, block, number)


def _run_warp(r: Routine, now: _Round, block: Value, warp: Value) -> None:
    """Run a warp until it stops, in the general build if it must."""
    ctx, worker = r["ctx"], r["worker"]
    general, fast = r.field(ctx, LAUNCH.GENERAL, "ptr"), r.field(ctx, LAUNCH.FAST, "ptr")
    with r.loop() as attempts:
        slow = r.differs(r.field(warp, WARP.GENERAL, "i32"), 0)
        code = r.select(slow, general, fast)
        r.give_if(r.is_null(code), Outcome.GENERAL)
        failed = maybe_complete_random(r, block=r["first"])
        r.give_if(r.differs(failed, 0), Outcome.ENDED)
        answer = r.call_at(code, "i32", ctx, worker, block, warp)
        attempts.leave(r.differs(answer, Answer.DEOPT))
        r.put(warp, WARP.GENERAL, 1)
    with r.when(r.equals(answer, Answer.WAIT)):
        now.progress.put(1)
        blocked = r.differs(r.field(warp, WARP.BLOCKED, "i32"), 0)
        r.put(warp, WARP.STATUS, r.select(blocked, Status.WAITING, Status.READY))
    with r.otherwise_when(r.equals(answer, Answer.EXIT)):
        now.progress.put(1)
        _end_warp(r, now, block, warp)
    with r.otherwise_when(r.equals(answer, Answer.YIELD)):
        now.ready.put(1)
    with r.otherwise():
        r.give(Outcome.ENDED)


def _end_warp(r: Routine, now: _Round, block: Value, warp: Value) -> None:
    """Count a warp as done, and with the last one of a cluster complete what is in flight: the cluster is finished."""
    ctx, first = r["ctx"], r["first"]
    remove_lanes(r, -1, block=block, warp=warp)
    r.put(warp, WARP.STATUS, Status.DONE)
    done = r.change(block, BLOCK.DONE, "add", 1)
    with r.when(r.equals(r.wide(done), now.warps)):
        left = r.change(first, BLOCK.LEFT, "add", 1)
        with r.when(r.equals(r.wide(left), r.field(ctx, LAUNCH.CLUSTER, "i64"))):
            failed = complete_all_flights(r, block=first)
            r.give_if(r.differs(failed, 0), Outcome.ENDED)
            r.give(Outcome.FINISHED)


def _give_if_stuck(r: Routine, now: _Round) -> None:
    """End the turn of a cluster that does not get on or, as it may wait for others, has had its turns."""
    first = r["first"]
    ready, progress = (r.wide(item.get()) for item in (now.ready, now.progress))
    turns = r.change(first, BLOCK.TURNS, "add", ready, "i64")
    r.change(first, BLOCK.PROGRESS, "add", progress, "i64")
    count, seen = _sum_progress(r, first), r.field(first, BLOCK.SEEN, "i64")
    r.put(first, BLOCK.SEEN, count)
    still = r.equals(count, seen)
    with r.when(r.either(still, r.is_above(turns, _TURNS))):
        # Something in flight may be what the warps wait for.
        landed = complete_one_flight(r, block=first)
        r.give_if(r.is_above(landed, 1), Outcome.ENDED)
        with r.unless(r.both(still, r.equals(landed, 1))):
            r.give_if(r.both(still, r.negation(now.ready.get())), Outcome.DEADLOCK)
            r.put(first, BLOCK.TURNS, r.const("i64", 0))
            r.give(Outcome.STUCK)


@routine("tw_step", "i64")
def _choose_step(r: Routine, warps: I64, wish: I64) -> None:
    """Return a step like ``wish`` that meets every one of some warps: it and their number have no common divisor."""
    step = r.variable("i64", r.op("urem", wish, warps))
    with r.loop():
        divided, divisor = r.variable("i64", warps), r.variable("i64", step.get())
        with r.loop() as euclid:
            a, b = divided.get(), divisor.get()
            euclid.leave(r.equals(b, 0))
            divided.put(b)
            divisor.put(r.op("urem", a, b))
        r.give_if(r.equals(divided.get(), 1), step.get())
        step.add(1)


@routine("tw_counted", "i64", "ctx")
def _sum_progress(r: Routine, first: Ptr) -> None:
    """Return what the blocks of a cluster have counted, all together."""
    total = r.variable("i64", 0)
    with each_block(r, first) as (_, block):
        total.add(r.field(block, BLOCK.PROGRESS, "i64"))
    r.give(total.get())


# -- the beginning of a cluster --------------------------------------------------------------------
_POISON = 0xFF  # shared and local memory before it is written: NaN as a float


@routine("tw_next", "i64", "ctx")
def choose_next(r: Routine) -> None:
    """Return the number of the cluster to start next, or -1 if all were started.

    In a sequence each is marked when it is started, so that those that are left can be started by number at any time.
    """
    ctx, total, one = r["ctx"], r.field(r["ctx"], LAUNCH.TOTAL, "i64"), r.const("i64", 1)
    sequence, started = r.field(ctx, LAUNCH.SEQUENCE, "ptr"), r.field(ctx, LAUNCH.STARTED, "ptr")
    following, lowest = r.at(ctx, LAUNCH.NEXT), r.at(ctx, LAUNCH.LOWEST)
    with r.when(r.is_null(sequence)):
        number = r.atomic("add", following, one, "monotonic")
        r.give(r.select(r.is_below(number, total), number, -1))
    with r.loop() as loop:
        ascending = r.differs(r.load_atomic(r.at(ctx, LAUNCH.BY_NUMBER), "i64", "monotonic"), 0)
        place = r.atomic("add", r.select(ascending, lowest, following), one, "monotonic")
        loop.leave(r.is_at_least(place, total))
        listed = r.wide(r.element(sequence, place, "i32"))
        cluster = r.select(ascending, place, listed)
        before = r.atomic("xchg", r.at(started, cluster), r.const("i8", 1), "monotonic")
        r.give_if(r.equals(before, 0), cluster)
    r.give(-1)


@routine("tw_begin", "void", "ctx")
def begin_cluster(r: Routine, first: Ptr, number: I64) -> None:
    """Make a cluster ready to run."""
    ctx = r["ctx"]
    threads = r.op("mul", r.field(ctx, LAUNCH.THREADS, "i64"), r.field(ctx, LAUNCH.CLUSTER, "i64"))
    r.put(first, BLOCK.PRESENT, r.narrow(threads))
    r.put(first, BLOCK.ARRIVED, 0)
    r.put(first, BLOCK.LEFT, 0)
    r.put(first, BLOCK.TURNS, r.const("i64", 0))
    with each_block(r, first) as (rank, block):
        _place_block(r, number, rank, block=block)
        _reset_block(r, block=block)
    r.put(first, BLOCK.ACTIVE, 1)


@routine("tw_place", "void", "ctx", "block")
def _place_block(r: Routine, number: I64, rank: I64) -> None:
    """Record in a block which block of which cluster it is."""
    ctx = r["ctx"]
    fields = (LAUNCH.CLUSTERS_X, LAUNCH.CLUSTERS_Y, LAUNCH.CLUSTER_X, LAUNCH.CLUSTER_Y, LAUNCH.CLUSTER_Z)
    columns, rows, *size = (r.field(ctx, field, "i64") for field in fields)
    cluster = _coordinates(r, number, columns, rows)
    within = [r.variable("i64", 0) for _ in size]
    with r.when(r.differs(rank, 0)):  # most clusters have one block, and divisions take long
        for axis, coordinate in zip(within, _coordinates(r, rank, *size[:2]), strict=True):
            axis.put(coordinate)
    inside = [axis.get() for axis in within]
    x, y, z = (
        r.op("add", r.op("mul", at, length), offset)
        for at, length, offset in zip(cluster, size, inside, strict=True)
    )
    targets = [BLOCK.X, BLOCK.Y, BLOCK.Z, BLOCK.CLUSTER_X, BLOCK.CLUSTER_Y, BLOCK.CLUSTER_Z]
    targets += [BLOCK.RANK_X, BLOCK.RANK_Y, BLOCK.RANK_Z, BLOCK.RANK]
    for offset, value in zip(targets, (x, y, z, *cluster, *inside, rank), strict=True):
        r.put(r["block"], offset, r.narrow(value))
    row = r.op("add", r.op("mul", z, r.field(ctx, LAUNCH.GRID_Y, "i64")), y)
    r.put(r["block"], BLOCK.NUMBER, r.op("add", r.op("mul", row, r.field(ctx, LAUNCH.GRID_X, "i64")), x))


def _coordinates(r: Routine, number: Value, width: Value, height: Value) -> tuple[Value, Value, Value]:
    """Return the place of a number in a box that is counted along x first, then y, then z."""
    rest = r.op("udiv", number, width)
    return r.op("urem", number, width), r.op("urem", rest, height), r.op("udiv", rest, height)


@routine("tw_init", "void", "ctx", "block")
def _reset_block(r: Routine) -> None:
    """Make the memory of a block what it is before the block runs."""
    ctx, block = r["ctx"], r["block"]
    threads = r.narrow(r.field(ctx, LAUNCH.THREADS, "i64"))
    r.put(block, BLOCK.DONE, 0)
    r.put(block, BLOCK.LIVE, threads)
    r.fill(r.at(block, BLOCK.BARRIERS), 0, BARRIERS * BARRIER.SIZE)
    r.fill(r.field(block, BLOCK.SHARED, "ptr"), _POISON, r.field(ctx, LAUNCH.SHARED_BYTES, "i64"))
    local = r.op("mul", r.field(ctx, LAUNCH.LOCAL_BYTES, "i64"), 32)
    with each_warp(r, block) as (number, warp):
        for field in (WARP.RESUME, WARP.STATUS, WARP.BLOCKED, WARP.MEETING, WARP.GENERAL, WARP.AWAITING):
            r.put(warp, field, 0)
        for field, size in ((WARP.CAME, 16), (WARP.COPIES, 256), (WARP.PRODUCTS, 64), (WARP.WAITING, 64)):
            r.fill(r.at(warp, field), 0, size)
        index = r.narrow(number)
        r.put(warp, WARP.INDEX, index)
        room = r.op("sub", threads, r.op("shl", index, 5))
        some = r.op("sub", r.op("shl", 1, r.op("and", room, 31)), 1)
        r.put(warp, WARP.LIVE, r.select(r.is_below(room, 32), some, -1))
        r.fill(r.field(warp, WARP.LOCAL, "ptr"), _POISON, local)
    r.call("tw_check_begin", "void", ctx, block)
