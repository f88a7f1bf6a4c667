"""What routines of the run-time support tell the checker, which is in the room above this one."""

from __future__ import annotations

from tilewise.emulator.check_layout import WHO
from tilewise.emulator.layout import BLOCK, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import NULL, Routine

__all__ = ["accessor", "check_touch", "is_checked", "record_finding", "serial_of"]


def is_checked(r: Routine) -> Value:
    """Return whether the launch is a checked one."""
    return r.differs(r.field(r["block"], BLOCK.CELLS, "ptr"), NULL)


def serial_of(r: Routine) -> Value:
    """Return the number of a warp within the launch."""
    return r.op("add", r.field(r["block"], BLOCK.SERIAL, "i32"), r.field(r["warp"], WARP.INDEX, "i32"))


def accessor(r: Routine, lane: Value | int) -> Value:
    """Return the name, in shadow memory and findings, of a lane of the warp."""
    return r.op("or", r.op("shl", serial_of(r), WHO.LANE_BITS), lane)


def check_touch(
    r: Routine,
    lane: Value | int,
    address: Value,
    count: Value | int,
    space: int,
    action: Value | int,
    flags: Value | int = 0,
    line: Value | None = None,
    values: Value = NULL,
) -> None:
    """Check and record a lane's access to a stretch of memory, in the routine's line if no other is given."""
    given = (lane, address, r.fixed(count, "i64"), space, action, flags, line or r["line"], values)
    r.call("tw_check_touch", "void", r["ctx"], r["block"], r["warp"], *given)


def record_finding(
    r: Routine,
    kind: Value | int,
    who: Value,
    line: Value | int,
    before: Value | int = 0,
    address: Value | int = 0,
    other: Value | int = 0,
    count: Value | int = 0,
    flags: Value | int = 0,
    space: Value | int = Space.SHARED,
) -> None:
    """Record a finding: what ``who`` did in a line, and ``other`` in the line ``before`` if there are two."""
    found = (kind, space, line, before, r.fixed(address, "i64"), who, other, count, flags)
    r.call("tw_check_finding", "void", r["ctx"], *found)
