"""What a checked launch knows of values that a shuffle took from lanes which do not take part in it.

Such a value is undefined, and programs may throw it away: it is wrong only where it is used. A table of each warp has
a row for every register that such a value may come to: by lane the shuffle that it is from, or 0. Row 0 is of no
register, and always 0.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, SHUFFLED, FindingKind
from tilewise.emulator.checking.vector_clocks import WARP_PARAMETERS, check_state, clocks_of, index_of
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.support.checked import accessor, record_finding

__all__ = ["HEAD_BYTES", "ROW_BYTES", "routines"]

HEAD_BYTES = 64  # in front of the rows: whether any of them was ever set
ROW_BYTES = 32 * 8


def routines() -> list[Routine]:
    return [_shuffle(), _spread(), _use()]


def _table(r: Routine) -> Value:
    size = r.field(check_state(r), CHECK.SHUFFLED, "i64")
    return r.at(r.field(clocks_of(r), CLOCKS.SHUFFLED, "ptr"), r.op("mul", index_of(r), size))


def _row(r: Routine, register: str) -> Value:
    return r.item(r.at(_table(r), HEAD_BYTES), r[register], ROW_BYTES)


def _return_if_all_defined(r: Routine) -> None:
    r.give_if(r.equals(r.field(_table(r), 0, "i32"), 0))


def _shuffle() -> Routine:
    """Lanes read ``value`` of other lanes: by lane which, and the lanes that its mask names."""
    given = {"target": "i32", "value": "i32", "sources": "ptr", "named": "ptr", "mask": "i32", "line": "i32"}
    r = Routine("tw_check_shuffle", "void", **WARP_PARAMETERS, **given)
    values, target = r.reserve(f"[{ROW_BYTES} x i8]", 8), _row(r, "target")
    r.copy(values, _row(r, "value"), ROW_BYTES)
    with r.each_lane(r["mask"]) as lane:
        source = r.element(r["sources"], lane, "i32")
        named = r.element(r["named"], lane, "i32")
        found = r.variable("i64", r.element(values, source, "i64"))
        members = r.op("and", named, r["mask"])
        present = r.op("and", r.op("lshr", members, source), 1)
        # NOTE: a lane that does not name itself has a wrong mask, which is another finding.
        own = r.op("and", r.op("lshr", members, lane), 1)
        with r.when(r.is_below(present, own)):
            lanes = r.op("or", r.op("shl", lane, SHUFFLED.READER), source)
            low = r.op("or", r.op("shl", r["line"], SHUFFLED.LINE), lanes)
            found.put(r.op("or", r.op("shl", r.wide(named), SHUFFLED.MASK), r.wide(low)))
            r.put(_table(r), 0, 1)
        r.put(r.item(target, lane, 8), 0, found.get())
    return r


def _spread() -> Routine:
    """Lanes compute ``target`` of up to three others; 0 stands for none."""
    given = dict.fromkeys(("target", "first", "second", "third", "mask"), "i32")
    r = Routine("tw_check_spread", "void", **WARP_PARAMETERS, **given)
    _return_if_all_defined(r)
    rows = [_row(r, name) for name in ("first", "second", "third")]
    target = _row(r, "target")
    with r.each_lane(r["mask"]) as lane:
        first, second, third = (r.element(row, lane, "i64") for row in rows)
        worst = r.intrinsic("llvm.umax", r.intrinsic("llvm.umax", first, second), third)
        r.put(r.item(target, lane, 8), 0, worst)
    return r


def _use() -> Routine:
    """Lanes do with a register what others see: store it, branch by it, take it for an address."""
    r = Routine("tw_check_use", "void", **WARP_PARAMETERS, register="i32", mask="i32", line="i32")
    _return_if_all_defined(r)
    row = _row(r, "register")
    with r.each_lane(r["mask"]) as lane:
        known = r.element(row, lane, "i64")
        with r.when(r.differs(known, 0)):
            low = r.narrow(known)
            who, other = accessor(r, lane), accessor(r, r.op("and", r.op("lshr", low, SHUFFLED.READER), 31))
            lines = (r["line"], r.op("lshr", low, SHUFFLED.LINE))
            record_finding(r, FindingKind.SHUFFLE_INACTIVE_LANE, who, *lines, known, other)
            r.put(r.item(row, lane, 8), 0, r.const("i64", 0))
    return r
