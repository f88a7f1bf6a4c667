"""The run-time support of a cluster: its barrier, and addresses of other blocks' shared memory.

Each thread arrives and waits by turns. A warp keeps which lanes have arrived in the phase under way
(CAME) and which have yet to wait for one that is complete (PASSED); the cluster's first block counts.
"""

from __future__ import annotations

from tilewise.emulator.layout import (
    BLOCK,
    GENERIC_SHARED,
    LAUNCH,
    RANK_SHIFT,
    WARP,
    WINDOW,
    ClusterFault,
    FaultKind,
    Space,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.block_barrier import release_lanes
from tilewise.emulator.support.cluster_parts import each_block, each_warp, find_block
from tilewise.emulator.support.memory_access import record_fault

__all__: list[str] = []

_WRONG = 2  # what arriving and waiting give after a fault


def _first(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.FIRST, "ptr")


def _refuse_if(r: Routine, lanes: Value, why: ClusterFault) -> None:
    """End with a fault of these lanes; does nothing if there are none."""
    with r.when(r.differs(lanes, 0)):
        record_fault(r, FaultKind.BAD_CLUSTER_BARRIER, r.find_lowest(lanes, True), 0, why)
        r.give(_WRONG)


@routine("tw_cluster_arrive", "i32", *POINTERS)
def _arrive(r: Routine, mask: I32, line: I32) -> None:
    """Arrive at the cluster's barrier with some lanes: 0, or 2 if one has arrived already."""
    warp = r["warp"]
    came, passed = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.PASSED, "i32")
    _refuse_if(r, r.op("and", r.op("or", came, passed), mask), ClusterFault.TWICE)
    r.put(warp, WARP.CAME, r.op("or", came, mask))
    r.change(_first(r), BLOCK.ARRIVED, "add", r.count_bits(mask))
    r.call("tw_cluster_complete", "void", r["ctx"], _first(r))


@routine("tw_cluster_wait", "i32", *POINTERS)
def _wait(r: Routine, mask: I32, line: I32) -> None:
    """Wait at the cluster's barrier with some lanes: 0: all may go on, 1: some must wait, 2: one has not arrived."""
    warp = r["warp"]
    came, passed = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.PASSED, "i32")
    _refuse_if(r, r.without(mask, r.op("or", came, passed)), ClusterFault.NOT_ARRIVED)
    r.put(warp, WARP.PASSED, r.without(passed, mask))
    held = r.op("and", came, mask)
    r.give_if(r.equals(held, 0), 0)
    r.change(warp, WARP.HELD, "or", held)
    r.change(warp, WARP.BLOCKED, "or", held)
    r.put(warp, WARP.HELD_LINE, line)
    r.give(1)


@routine("tw_cluster_complete", "void", "ctx")
def _complete(r: Routine, first: Ptr) -> None:
    """Begin the next phase if all threads that have not exited have arrived."""
    arrived, present = r.field(first, BLOCK.ARRIVED, "i32"), r.field(first, BLOCK.PRESENT, "i32")
    with r.when(r.both(r.differs(arrived, 0), r.is_at_least(arrived, present))):
        r.put(first, BLOCK.ARRIVED, 0)
        with each_block(r, first) as (_, block), each_warp(r, block) as (_, warp):
            r.call("tw_cluster_release", "void", warp)


@routine("tw_cluster_release", "void", "warp")
def _release(r: Routine) -> None:
    """Resume a warp's lanes that wait at the cluster's barrier; its other arrived lanes will pass without waiting."""
    warp = r["warp"]
    came, held = r.field(warp, WARP.CAME, "i32"), r.field(warp, WARP.HELD, "i32")
    r.change(warp, WARP.PASSED, "or", r.without(came, held))
    r.put(warp, WARP.CAME, 0)
    with r.when(r.differs(held, 0)):
        r.put(warp, WARP.HELD, 0)
        release_lanes(r, warp, held)


@routine("tw_cluster_leave", "void", "ctx", "block", "warp")
def _leave(r: Routine, lanes: I32) -> None:
    """Remove lanes that exit from the threads that the cluster's barrier expects."""
    warp, first = r["warp"], _first(r)
    r.change(first, BLOCK.PRESENT, "sub", r.count_bits(lanes))
    with r.when(r.differs(r.field(first, BLOCK.ARRIVED, "i32"), 0)):
        came = r.field(warp, WARP.CAME, "i32")
        r.change(first, BLOCK.ARRIVED, "sub", r.count_bits(r.op("and", came, lanes)))
        r.put(warp, WARP.CAME, r.without(came, lanes))
        r.call("tw_cluster_complete", "void", r["ctx"], first)


@routine("tw_cluster_place", "i32", "ctx", "block")
def _locate(r: Routine, address: I64, found: Ptr) -> None:
    """Find the block whose shared memory an address names: 0, or what is wrong with the address.

    ``found`` gets the block. An address without a rank is in the block's own memory.
    """
    number = r.op("lshr", address, RANK_SHIFT)
    with r.when(r.equals(number, 0)):
        r.put(found, 0, r["block"])
        r.give(0)
    rank = r.op("sub", number, 1)
    with r.when(r.is_at_least(rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))):
        r.give(FaultKind.NO_BLOCK)
    block = find_block(r, _first(r), rank)
    done = r.wide(r.field(block, BLOCK.DONE, "i32"))
    r.give_if(r.is_at_least(done, r.field(r["ctx"], LAUNCH.WARPS, "i64")), FaultKind.BLOCK_EXITED)
    r.put(found, 0, block)


@routine("tw_near", "{ ptr, i64, i64 }", "ctx", "block")
def _near(r: Routine, addresses: Ptr, mask: I32, size: I64, space: I32) -> None:
    """Return the window of shared memory that holds the first lane's address: pointer, first address, and how
    many addresses may start an access of ``size`` bytes; zeros if it lies in no block.
    """
    whole = "{ ptr, i64, i64 }"
    lane = r.op("and", r.find_lowest(mask), 31)
    address = r.element(addresses, lane, "i64")
    generic = r.equals(space, Space.GENERIC)
    window = r.select(generic, r.const("i64", GENERIC_SHARED), 0)
    away = r.op("sub", address, window)
    none = Value(whole, "zeroinitializer")
    own = r.equals(space, Space.OWN)
    named = r.op("or", generic, r.equals(space, Space.SHARED))
    inside = r.is_below(away, WINDOW)
    plain = r.is_below(away, 1 << RANK_SHIFT)
    r.give_if(r.negation(r.op("or", r.both(own, plain), r.both(named, inside))), none)
    found = r.reserve("ptr")
    wrong = r.call("tw_cluster_place", "i32", r["ctx"], r["block"], away, found)
    r.give_if(r.differs(wrong, 0), none)
    base = r.field(r.field(found, 0, "ptr"), BLOCK.SHARED, "ptr")
    offset = r.op("and", away, (1 << RANK_SHIFT) - 1)
    room = r.op("add", r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64"), 1)
    limit = r.intrinsic("llvm.usub.sat", room, size)
    first = r.set(whole, f"insertvalue {none}, {base}, 0")
    second = r.set(whole, f"insertvalue {first}, {r.op('sub', address, offset)}, 1")
    r.give(r.set(whole, f"insertvalue {second}, {limit}, 2"))
