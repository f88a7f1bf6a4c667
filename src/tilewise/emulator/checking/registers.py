"""What a checked launch does about registers that a ``wgmma`` uses: its sums, and elements of A.

From its issue until the warp has waited for its group they are nobody's. What a warp writes into one before, it
has to order by ``wgmma.fence``. A table of each warp has for every such register where it was written since the
last fence, and which group of products uses it; the register's number in it is that of the kernel's list.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, LANE_BITS, WHOLE, Kind
from tilewise.emulator.checking.clocks import (
    WHO,
    check_state,
    clocks_of,
    index_of,
    own_clock,
    own_entry,
    serial_of,
    settle,
)
from tilewise.emulator.checking.records import PRODUCTS, first_of_four, groups_of
from tilewise.emulator.layout import WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = ["ROOM", "routines"]

ROOM = 16  # bytes of a register in the table
_FENCED, _DIRTY, _DONE = (
    0,
    4,
    8,
)  # at its start: whether the warp ever fenced; whether it wrote since; how many
# of its groups it has waited for
_WRITTEN, _GROUP, _ISSUED = 0, 4, 8  # of a register: lines of the PTX, and the group and 1 more


def routines() -> list[Routine]:
    return [_ordered(), _wrote(), _sums(), _used(), _done()]


def _table(r: Routine) -> Value:
    size = r.field(check_state(r), CHECK.REGISTERS, "i64")
    return r.at(r.field(clocks_of(r), CLOCKS.REGISTERS, "ptr"), r.op("mul", index_of(r), size))


def _groups(r: Routine) -> Value:
    """How many groups of products this warp has closed."""
    return r.field(groups_of(r, PRODUCTS), 0, "i32")


def _report(r: Routine, kind: Kind, before: Value, lane: Value) -> None:
    who = r.op("or", r.op("shl", serial_of(r), LANE_BITS), lane)
    other = r.op("or", r.op("shl", serial_of(r), LANE_BITS), WHOLE)
    zero = r.const("i32", 0)
    given = (r.const("i32", int(kind)), r.const("i32", int(Space.SHARED)), r["line"], before)
    r.call("tw_check_finding", "void", r["ctx"], *given, r.const("i64", 0), who, other, zero, zero)


def _first(r: Routine) -> Value:
    """The first of the lanes."""
    r.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
    return r.op("and", r.set("i32", f"call i32 @llvm.cttz.i32({r['mask']}, i1 false)"), 31)


def _ordered() -> Routine:
    """A warp runs ``wgmma.fence``."""
    r = Routine("tw_check_ordered", "void", **WHO)
    table, size = _table(r), r.field(check_state(r), CHECK.REGISTERS, "i64")
    r.put(table, _FENCED, r.const("i32", 1))
    with r.unless(r.compare("icmp eq", r.field(table, _DIRTY, "i32"), 0)):
        r.put(table, _DIRTY, r.const("i32", 0))
        with r.count(size, ROOM, ROOM) as at:
            r.put(r.at(table, at), _WRITTEN, r.const("i32", 0))
    settle(r)
    return r


def _in_flight(r: Routine, entry: Value) -> Value:
    group = r.field(entry, _GROUP, "i32")
    return r.compare("icmp sgt", group, r.field(_table(r), _DONE, "i32"))


def _wrote() -> Routine:
    """Some lanes write a register; ``counts`` says whether it has to be ordered by a fence."""
    r = Routine("tw_check_wrote", "void", **WHO, number="i32", mask="i32", counts="i32", line="i32")
    table = _table(r)
    entry = r.item(table, r["number"], ROOM)
    with r.when(_in_flight(r, entry)):
        _report(r, Kind.REGISTER_IN_FLIGHT, r.field(entry, _ISSUED, "i32"), _first(r))
    with r.unless(r.compare("icmp eq", r["counts"], 0)):
        r.put(entry, _WRITTEN, r["line"])
        r.put(table, _DIRTY, r.const("i32", 1))
    return r


def _sums() -> Routine:
    """Some lanes read a register that a product may yet change."""
    r = Routine("tw_check_sums", "void", **WHO, number="i32", mask="i32", line="i32")
    entry = r.item(_table(r), r["number"], ROOM)
    with r.when(_in_flight(r, entry)):
        _report(r, Kind.SUM_IN_FLIGHT, r.field(entry, _ISSUED, "i32"), _first(r))
    return r


def _used() -> Routine:
    """A warp issues a product that uses registers: their numbers."""
    r = Routine("tw_check_used", "void", **WHO, numbers="ptr", count="i64", line="i32")
    table, whole = _table(r), r.const("i32", WHOLE)
    never = r.compare("icmp eq", r.field(table, _FENCED, "i32"), 0)
    dirty = r.both(r.negation(never), r.compare("icmp ne", r.field(table, _DIRTY, "i32"), 0))
    with r.when(never):
        _report(r, Kind.REGISTER_UNFENCED, r.const("i32", 0), whole)
        r.put(table, _FENCED, r.const("i32", 1))
    group = r.op("add", _groups(r), 1)
    with r.count(r["count"]) as i:
        entry = r.item(table, r.field(r.item(r["numbers"], i, 4), 0, "i32"), ROOM)
        written = r.field(entry, _WRITTEN, "i32")
        with r.when(r.both(dirty, r.compare("icmp ne", written, 0))):
            _report(r, Kind.REGISTER_UNFENCED, written, whole)
        r.put(entry, _WRITTEN, r.const("i32", 0))
        r.put(entry, _GROUP, group)
        r.put(entry, _ISSUED, r["line"])
    return r


def _done() -> Routine:
    """A warp has waited for all of its groups but the last ``keep``; so what its warpgroup read for them is over."""
    r = Routine("tw_check_done", "void", **WHO, keep="i32")
    table = _table(r)
    done = r.intrinsic("llvm.smax", r.field(table, _DONE, "i32"), r.op("sub", _groups(r), r["keep"]))
    r.put(table, _DONE, done)
    time = r.field(r.item(r.field(clocks_of(r), CLOCKS.TOGETHER, "ptr"), first_of_four(r), 4), 0, "i32")
    own = r.wide(r.op("and", r.field(r["warp"], WARP.INDEX, "i32"), 3))
    clock = r.item(own_clock(r), r.op("sub", own_entry(r), own), 4)
    with r.count(4) as i, r.unless(r.compare("icmp eq", i, own)):
        entry = r.item(clock, i, 4)
        r.put(entry, 0, r.intrinsic("llvm.umax", r.field(entry, 0, "i32"), time))
    r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r
