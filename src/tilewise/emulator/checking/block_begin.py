"""The shadow state reset when a block begins; the recording of findings."""

from __future__ import annotations

from tilewise.emulator.check_layout import (
    BARRIERS_OF_BLOCK,
    CELLS,
    CHECK,
    CLOCKS,
    GROUP_KINDS,
    SYNC_VAR_KEY,
    FindingKind,
)
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.layout import BLOCK, LAUNCH
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, Ptr, routine
from tilewise.emulator.support.checked import accessor, record_finding

__all__: list[str] = []


@routine("tw_check_begin", "void", "ctx", "block")
def _begin_block(r: CheckRoutine) -> None:
    """Mark a block's shared memory as uninitialised; with the first block of a cluster, reset the cluster's clocks."""
    cells = r.field(r["block"], BLOCK.CELLS, "ptr")
    r.give_if(r.is_null(cells))
    shared = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    stride = r.check_field(CHECK.STRIDE)
    r.fill(r.at(cells, r.op("mul", stride, CELLS.STATE)), 0x0F, r.op("and", r.op("add", shared, 3), -4))
    rank = r.field(r["block"], BLOCK.RANK, "i32")
    number = r.wide(r.field(r["block"], BLOCK.CLUSTER_Z, "i32"))
    for offset, size in ((BLOCK.CLUSTER_Y, LAUNCH.CLUSTERS_Y), (BLOCK.CLUSTER_X, LAUNCH.CLUSTERS_X)):
        here = r.wide(r.field(r["block"], offset, "i32"))
        number = r.op("add", r.op("mul", number, r.field(r["ctx"], size, "i64")), here)
    number = r.op("add", r.op("mul", number, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), r.wide(rank))
    first = r.op("mul", number, r.field(r["ctx"], LAUNCH.WARPS, "i64"))
    r.put(r["block"], BLOCK.SERIAL, r.narrow(first))
    r.put(r["block"], BLOCK.USED, 0)
    with r.when(r.equals(rank, 0)):
        _begin_cluster(r, first)


def _begin_cluster(r: CheckRoutine, first: Value) -> None:
    clocks = r.clocks()
    warps = r.warps_of_cluster()
    row = r.clock_bytes()
    born = r.now()
    r.tick()
    r.put(clocks, CLOCKS.BEGAN, r.wide(born))
    r.put(clocks, CLOCKS.COUNT, r.const("i64", 0))
    for offset, bytes_ in (
        (CLOCKS.WARPS, r.op("mul", warps, row)),
        (CLOCKS.RELEASED, r.op("mul", r.op("mul", warps, row), 2)),
        (CLOCKS.PENDING, r.op("mul", r.op("mul", warps, row), 2)),
        (CLOCKS.PRIVATE, r.op("mul", warps, row)),
        (CLOCKS.REGISTERS, r.op("mul", warps, r.check_field(CHECK.REGISTERS))),
        (CLOCKS.SHUFFLED, r.op("mul", warps, r.check_field(CHECK.SHUFFLED))),
        *(
            (offset, r.op("mul", warps, 4))
            for offset in (CLOCKS.PRIVATE_LANE, CLOCKS.FENCED, CLOCKS.PUBLISHED, CLOCKS.PRODUCTS_DONE)
        ),
        (CLOCKS.ARRIVED_PHASE, r.op("mul", warps, (BARRIERS_OF_BLOCK + 1) * 4)),
        (CLOCKS.GROUPS, r.op("mul", warps, GROUP_KINDS * 128)),
    ):
        r.fill(r.field(clocks, offset, "ptr"), 0, bytes_)
    size = r.op("add", row, SYNC_VAR_KEY)
    with r.count(r.field(clocks, CLOCKS.SYNC_VAR_COUNT, "i64")) as i:
        r.put(r.at(r.field(clocks, CLOCKS.SYNC_VARS, "ptr"), r.op("mul", i, size)), 0, r.const("i64", 0))
    grid_wide = r.differs(r.check_field(CHECK.GRID_WIDE), 0)
    start = r.select(grid_wide, first, 0)
    with r.count(warps) as i:
        clock = r.at(r.field(clocks, CLOCKS.WARPS, "ptr"), r.op("mul", i, row))
        with r.count(warps) as j:
            r.put(r.item(clock, r.op("add", start, j), 4), 0, born)
        for offset in (CLOCKS.SYNCED, CLOCKS.LEAST):
            r.put(r.item(r.field(clocks, offset, "ptr"), i, 4), 0, born)


@check_routine("tw_check_named")
def _report_unnamed_lanes(r: CheckRoutine, mask: I32, line: I32) -> None:
    """Report lanes (none, mostly) that run a warp-wide instruction whose mask does not name them."""
    r.give_if(r.equals(mask, 0))
    first = r.find_lowest(mask, True)
    record_finding(r, FindingKind.BAD_MASK, accessor(r, first))


@check_routine("tw_check_took")
def _note_allocations(r: CheckRoutine, addresses: Ptr, mask: I32, line: I32) -> None:
    """Record who allocated blocks of the heap, and in which line, behind the sizes that lie at the addresses."""
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        place = r.as_pointer(address)
        r.put(place, 4, line)
        r.put(place, 8, accessor(r, lane))
