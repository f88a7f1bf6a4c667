"""The run-time support of ``bar.warp.sync``: lanes of a warp that wait for one another."""

from __future__ import annotations

from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.routine import I32, Routine, routine

__all__: list[str] = []


@routine("tw_meet", "void", "warp")
def _arrive(r: Routine, lanes: I32, line: I32) -> None:
    """Come to a ``bar.warp.sync`` with some lanes; those go on for which every lane that they name is there.

    It is also called without lanes, after some have left the kernel: nobody waits for those.
    """
    warp, live = r["warp"], r.field(r["warp"], WARP.LIVE, "i32")
    everyone = r.op("or", r.field(warp, WARP.MEETING, "i32"), lanes)
    here = r.op("and", everyone, live)
    with r.when(r.differs(lanes, 0)):
        r.put(warp, WARP.LINE, line)
    missed, stay = r.without(live, here), r.variable("i32", 0)
    with r.count(32) as lane:
        named = r.element(r.at(warp, WARP.NAMED), lane, "i32")
        waits = r.differs(r.op("and", named, missed), 0)
        bit = r.op("shl", 1, r.narrow(lane))
        stay.put(r.op("or", stay.get(), r.select(waits, bit, 0)))
    left = r.op("and", here, stay.get())
    r.put(warp, WARP.MEETING, left)
    blocked = r.without(r.field(warp, WARP.BLOCKED, "i32"), r.without(everyone, left))
    r.put(warp, WARP.BLOCKED, r.op("or", blocked, left))
