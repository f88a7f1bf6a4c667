"""The run-time support of a cluster's beginning: which one is next, where its blocks are, what their memory holds."""

from __future__ import annotations

from tilewise.emulator.layout import BARRIER, BARRIERS, BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I64, Ptr, Routine, routine
from tilewise.emulator.support.cluster_parts import each_block, each_warp

__all__ = ["begin_cluster", "choose_next"]

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
