"""Where the blocks of a cluster and the warps of a block lie, and loops over them, for routines of the support."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.layout import BLOCK, LAUNCH
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = ["each_block", "each_warp", "find_block", "find_warp"]


def find_block(r: Routine, first: Value, rank: Value) -> Value:
    """Return the pointer to a block of a cluster, whose first block is given."""
    return r.at(first, r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64") * rank)


def find_warp(r: Routine, block: Value, number: Value) -> Value:
    """Return the pointer to a warp of a block."""
    return r.at(r.at(block, BLOCK.WARPS), r.field(r["ctx"], LAUNCH.WARP_STRIDE, "i64") * number)


@contextmanager
def each_block(r: Routine, first: Value) -> Iterator[tuple[Value, Value]]:
    """Write a loop over the blocks of a cluster; yield the 64-bit rank and the block."""
    stride = r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64")
    with r.count(r.field(r["ctx"], LAUNCH.CLUSTER, "i64")) as rank:
        yield rank, r.at(first, stride * rank)


@contextmanager
def each_warp(r: Routine, block: Value) -> Iterator[tuple[Value, Value]]:
    """Write a loop over the warps of a block; yield the 64-bit number and the warp."""
    stride = r.field(r["ctx"], LAUNCH.WARP_STRIDE, "i64")
    with r.count(r.field(r["ctx"], LAUNCH.WARPS, "i64")) as number:
        yield number, r.at(r.at(block, BLOCK.WARPS), stride * number)
