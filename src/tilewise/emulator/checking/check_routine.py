"""Routines of the checker, which a warp calls: what they know of their launch, their warp, and its clocks."""

from __future__ import annotations

from collections.abc import Callable

from tilewise.emulator.check_layout import CHECK, CLOCK, CLOCKS, WHO
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Declaration, Routine, routine
from tilewise.emulator.support.checked import serial_of

__all__ = ["ALL", "CheckRoutine", "check_routine"]

ALL = Value("i32", "-1")  # in place of a lane that synchronises: several lanes do


def check_routine(
    name: str, result: str = "void", *context: str
) -> Callable[[Callable[..., None]], Declaration]:
    """Declare a routine that a warp calls."""
    return routine(name, result, "ctx", "block", "warp", *context)


class CheckRoutine(Routine):
    """A routine of the checker being written."""

    # -- the launch -----------------------------------------------------------------------------
    def state(self) -> Value:
        return self.field(self["ctx"], LAUNCH.WATCH, "ptr")

    def check_field(self, offset: int, type_: str = "i64") -> Value:
        """Return a field of ``CHECK``."""
        return self.field(self.state(), offset, type_)

    def now(self) -> Value:
        return self.check_field(CHECK.NOW, "i32")

    def tick(self) -> None:
        self.change(self.state(), CHECK.NOW, "add", 1)

    # -- the warp -------------------------------------------------------------------------------
    def index(self) -> Value:
        """Return the index of a warp within its cluster, as 64 bits."""
        warps = self.field(self["ctx"], LAUNCH.WARPS, "i64")
        rank = self.wide(self.field(self["block"], BLOCK.RANK, "i32"))
        return rank * warps + self.wide(self.field(self["warp"], WARP.INDEX, "i32"))

    def warps_of_cluster(self) -> Value:
        return self.field(self["ctx"], LAUNCH.WARPS, "i64") * self.field(self["ctx"], LAUNCH.CLUSTER, "i64")

    def lone_lane(self, mask: Value) -> Value:
        """Return the lane that synchronises alone, while others of its warp are there; else ``ALL``."""
        first = self.find_lowest(mask)
        alone = self.equals(mask & (mask - 1), 0)
        live = self.field(self["warp"], WARP.LIVE, "i32")
        others = self.has_any(live, live - 1)
        return self.select(self.both(alone, others), first, ALL)

    # -- tables of the cluster ------------------------------------------------------------------
    def clocks(self) -> Value:
        return self.field(self["block"], BLOCK.CLOCKS, "ptr")

    def table(self, offset: int) -> Value:
        """Return the pointer to one of the tables of ``CLOCKS``."""
        return self.field(self.clocks(), offset, "ptr")

    def own_table(self, offset: int, size: int) -> Value:
        """Return the pointer to a warp's part of a table, of as many bytes as a field of ``CHECK`` says."""
        length = self.check_field(size)
        return self.at(self.table(offset), self.index() * length)

    def slot_of_warp(self, offset: int) -> Value:
        """Return the pointer to a warp's number of 32 bits in one of the tables."""
        return self.item(self.table(offset), self.index(), 4)

    def is_after_last(self, time: Value, offset: int, who: Value) -> Value:
        """Return whether a time is after what a table has for this warp, and for the one of ``who``."""
        serial = self.wide(who >> WHO.LANE_BITS)
        theirs = self.element(self.table(offset), serial % self.warps_of_cluster(), "i32")
        own = self.field(self.slot_of_warp(offset), 0, "i32")
        return self.is_above(time, self.intrinsic("llvm.umax", theirs, own))

    def raise_to(self, place: Value, time: Value) -> None:
        """Raise the time at a place to one that is later."""
        self.put(place, 0, self.intrinsic("llvm.umax", self.field(place, 0, "i32"), time))

    # -- clocks ---------------------------------------------------------------------------------
    def clock_width(self) -> Value:
        return self.check_field(CHECK.WIDTH)

    def clock_bytes(self) -> Value:
        return self.clock_width() * 4 + CLOCK.TAIL

    def own_clock(self, offset: int = CLOCKS.WARPS) -> Value:
        """Return the warp's clock in a table that has one for each warp."""
        return self.at(self.table(offset), self.index() * self.clock_bytes())

    def private_lane(self) -> Value:
        """Return the pointer to the lane, and 1 more, that owns this warp's private clock; 0 if it is not in use."""
        return self.slot_of_warp(CLOCKS.PRIVATE_LANE)

    def scope_clock(self, field: int, wide: int) -> Value:
        """Return a warp's clock of fences (RELEASED or PENDING) for the block's scope, or for wider ones."""
        row = self.index() * 2 + wide
        return self.at(self.table(field), row * self.clock_bytes())

    def tail_of(self, clock: Value) -> Value:
        return self.at(clock, self.clock_width() * 4)

    def clock_base(self) -> Value:
        """Return the serial number of the warp that has the first entry of clocks, as 64 bits."""
        warps = self.warps_of_cluster()
        mine = self.wide(serial_of(self))
        base = mine - mine % warps
        return self.select(self.differs(self.check_field(CHECK.GRID_WIDE), 0), 0, base)

    def own_entry(self) -> Value:
        """Return the index of a warp's own entry in a clock."""
        return self.wide(serial_of(self)) - self.clock_base()

    def mark_synced(self, time: Value) -> None:
        """Record that the lanes of this warp have synchronised with one another at a time."""
        for place in (self.slot_of_warp(CLOCKS.SYNCED), self.item(self.own_clock(), self.own_entry(), 4)):
            self.raise_to(place, time)
