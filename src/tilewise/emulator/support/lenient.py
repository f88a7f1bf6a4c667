"""Faults that GPUs usually let pass, in a lenient launch: the access goes on, and a checked launch records a finding.

These are an access to a block of the cluster that has exited, whose memory lies there as it was; a read of shared
memory beyond the block's own, as far as a multiprocessor has any; and a read behind an array, up to where memory that
a GPU gives out ends. The last two find zeros: what a GPU has there is not known.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import FindingKind
from tilewise.emulator.layout import BLOCK, LAUNCH, RANK_SHIFT, FaultKind, Space
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, MutableValue, Routine, routine
from tilewise.emulator.support.checked import accessor, is_checked, record_finding
from tilewise.emulator.support.cluster_parts import find_block

__all__ = ["ZERO_BYTES"]

ZERO_BYTES = 64  # that a read may find
_GIVEN_OUT = 512  # bytes of which memory that a GPU gives out is a multiple
_MULTIPROCESSOR = 228 << 10  # bytes of shared memory of a multiprocessor


@routine("tw_pass_or_fault", "ptr", *POINTERS)
def _pass_or_fault(
    r: Routine, kind: I32, line: I32, lane: I32, address: I64, size: I32, space: I32, write: I32, extent: I64
) -> None:
    """Return the memory that a lenient launch gives an access out of bounds; else record a fault and return null."""
    place = r.variable("ptr", NULL)
    with r.when(r.differs(r.field(r["ctx"], LAUNCH.LENIENT, "i64"), 0)):
        exited = r.equals(kind, FaultKind.BLOCK_EXITED)
        with r.when(exited):
            _find_exited(r, place)
        outside = r.equals(kind, FaultKind.OUT_OF_BOUNDS)
        short = r.is_at_most(size, ZERO_BYTES)
        with r.when(r.both(outside, short, r.equals(write, 0))):
            _find_zeros(r, place)
        with r.unless(r.is_null(place.get())):
            with r.when(is_checked(r)):
                finding = r.select(exited, FindingKind.BLOCK_EXITED, FindingKind.OUT_OF_BOUNDS)
                found = (line, 0, address, 0, size, write, space)
                record_finding(r, finding, accessor(r, lane), *found)
            r.give(place.get())
    r.call("tw_fault_at", "void", *r.parameters.values())
    r.give(NULL)


def _find_exited(r: Routine, place: MutableValue) -> None:
    """Set ``place`` to the shared memory of an exited block, if the address lies within it."""
    rank = r.op("sub", r.op("lshr", r["address"], RANK_SHIFT), 1)
    offset = r.op("and", r["address"], (1 << RANK_SHIFT) - 1)
    size, count = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64"), r.wide(r["size"])
    with r.when(r.is_at_most(r.op("add", offset, count), size)):
        owner = find_block(r, r.field(r["block"], BLOCK.FIRST, "ptr"), rank)
        place.put(r.at(r.field(owner, BLOCK.SHARED, "ptr"), offset))


def _find_zeros(r: Routine, place: MutableValue) -> None:
    """Set ``place`` to zeros for a read in the window of shared memory, or just behind an array."""
    zeros, count = r.field(r["ctx"], LAUNCH.ZEROS, "ptr"), r.wide(r["size"])
    shared = r.op("or", r.equals(r["space"], Space.SHARED), r.equals(r["space"], Space.OWN))
    end = r.op("add", r.op("and", r["address"], (1 << RANK_SHIFT) - 1), count)
    with r.when(r.both(shared, r.is_at_most(end, _MULTIPROCESSOR))):
        place.put(zeros)
    with r.when(r.equals(r["space"], Space.GLOBAL)):
        ranges = r.field(r["ctx"], LAUNCH.RANGES, "ptr")
        with r.count(r.field(r["ctx"], LAUNCH.RANGE_COUNT, "i64")) as i:
            item = r.item(ranges, i, 16)
            first, last = r.field(item, 0, "i64"), r.field(item, 8, "i64")
            size = r.op("sub", last, first)
            given = r.op("and", r.op("add", size, _GIVEN_OUT - 1), -_GIVEN_OUT)
            away = r.op("sub", r["address"], first)
            fits = r.is_at_most(r.op("add", away, count), given)
            with r.when(r.both(fits, r.is_below(away, given))):
                place.put(zeros)
