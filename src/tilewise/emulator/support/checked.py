"""What routines of the run-time support tell the checker, which is in the room above this one."""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, FINDING, WHO
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, ZERO_I32, ZERO_I64, Routine, routine

__all__ = ["accessor", "check_touch", "is_checked", "record_finding", "serial_of"]

_SHARED = Value("i32", str(int(Space.SHARED)))


def is_checked(r: Routine) -> Value:
    """Return whether the launch is a checked one."""
    return r.differs(r.field(r["block"], BLOCK.CELLS, "ptr"), NULL)


def serial_of(r: Routine) -> Value:
    """Return the number of a warp within the launch."""
    return r.field(r["block"], BLOCK.SERIAL, "i32") + r.field(r["warp"], WARP.INDEX, "i32")


def accessor(r: Routine, lane: Value | int) -> Value:
    """Return the name, in shadow memory and findings, of a lane of the warp."""
    return (serial_of(r) << WHO.LANE_BITS) | lane


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


@routine("tw_check_finding", "void", "ctx")
def record_finding(
    r: Routine,
    kind: I32,
    who: I32,
    line: I32,
    other_line: I32 = ZERO_I32,
    address: I64 = ZERO_I64,
    other: I32 = ZERO_I32,
    length: I32 = ZERO_I32,
    flags: I32 = ZERO_I32,
    space: I32 = _SHARED,
) -> None:
    """Record a finding: what ``who`` did in a line, and ``other`` in ``other_line`` if there are two."""
    state = r.field(r["ctx"], LAUNCH.WATCH, "ptr")
    count, start = r.field(state, CHECK.COUNT, "i64"), r.field(state, CHECK.FINDINGS, "ptr")
    key = {FINDING.KIND: kind, FINDING.LINE: line, FINDING.OTHER_LINE: other_line}
    with r.count(count) as i:
        known = r.item(start, i, FINDING.SIZE)
        with r.when(r.both(*(r.equals(r.field(known, at, "i32"), value) for at, value in key.items()))):
            r.change(known, FINDING.COUNT, "add", 1, "i64")
            r.give()
    with r.when(r.is_at_least(count, r.field(state, CHECK.CAPACITY, "i64"))):
        r.change(state, CHECK.DROPPED, "add", 1, "i64")
        r.give()
    fresh = r.item(start, count, FINDING.SIZE)
    r.put(state, CHECK.COUNT, count + 1)
    r.put_fields(fresh, {**key, FINDING.SPACE: space, FINDING.ADDRESS: address, FINDING.WHO: who})
    r.put_fields(fresh, {FINDING.OTHER: other, FINDING.BYTES: length, FINDING.FLAGS: flags})
    r.put(fresh, FINDING.COUNT, r.const("i64", 1))
