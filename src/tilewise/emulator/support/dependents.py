"""Waiting for the previous launch, which may still run when the next one begins."""

from __future__ import annotations

from tilewise.emulator.layout import LAUNCH, WARP
from tilewise.emulator.llvm.routine import I32, POINTERS, Routine, routine

__all__: list[str] = []


@routine("tw_await_launch", "i32", *POINTERS)
def _await_launch(r: Routine, mask: I32) -> None:
    """Wait with some lanes for the end of the previous launch: 0 if it has ended, 1 if they must wait."""
    warp = r["warp"]
    r.give_if(r.equals(r.field(r["ctx"], LAUNCH.PREREQUISITES, "i64"), 0), 0)
    for field in (WARP.DEPENDENT, WARP.BLOCKED):
        r.change(warp, field, "or", mask)
    r.give(1)
