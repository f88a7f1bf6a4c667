"""Waiting for the previous launch, which may still run when the next one begins."""

from __future__ import annotations

from tilewise.emulator.layout import LAUNCH, WARP
from tilewise.emulator.llvm.routine import Routine

__all__ = ["routines"]


def routines() -> list[Routine]:
    return [_await_launch()]


def _await_launch() -> Routine:
    """Wait with some lanes for the end of the previous launch: 0 if it has ended, 1 if they must wait."""
    r = Routine("tw_await_launch", "i32", ctx="ptr", worker="ptr", block="ptr", warp="ptr", mask="i32")
    warp = r["warp"]
    r.give_if(r.equals(r.field(r["ctx"], LAUNCH.PREREQUISITES, "i64"), 0), 0)
    for field in (WARP.DEPENDENT, WARP.BLOCKED):
        r.change(warp, field, "or", r["mask"])
    r.give(1)
    return r
