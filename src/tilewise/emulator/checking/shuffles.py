"""What a checked launch knows of values that a shuffle took from lanes which do not take part in it.

Such a value is undefined, and programs may throw it away: it is wrong only where it is used. A table of each warp has
a row for every register that such a value may come to: by lane the shuffle that it is from, or 0. Row 0 is of no
register, and always 0.
"""

from __future__ import annotations

from functools import partial, reduce

from tilewise.emulator.check_layout import CHECK, CLOCKS, SHUFFLED, FindingKind
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, Ptr
from tilewise.emulator.support.checked import accessor, record_finding

__all__ = ["HEAD_BYTES", "ROW_BYTES"]

HEAD_BYTES = 64  # in front of the rows: whether any of them was ever set
ROW_BYTES = 32 * 8


def _table(r: CheckRoutine) -> Value:
    size = r.check_field(CHECK.SHUFFLED)
    return r.at(r.table(CLOCKS.SHUFFLED), r.op("mul", r.index(), size))


def _row(r: CheckRoutine, register: Value) -> Value:
    return r.item(r.at(_table(r), HEAD_BYTES), register, ROW_BYTES)


def _return_if_all_defined(r: CheckRoutine) -> None:
    r.give_if(r.equals(r.field(_table(r), 0, "i32"), 0))


@check_routine("tw_check_shuffle")
def _shuffle(
    r: CheckRoutine, target: I32, value: I32, sources: Ptr, named: Ptr, mask: I32, line: I32
) -> None:
    """Lanes read ``value`` of other lanes: by lane which, and the lanes that its mask names."""
    values, row = r.reserve(f"[{ROW_BYTES} x i8]", 8), _row(r, target)
    r.copy(values, _row(r, value), ROW_BYTES)
    with r.each_lane(mask) as lane:
        source = r.element(sources, lane, "i32")
        names = r.element(named, lane, "i32")
        found = r.variable("i64", r.element(values, source, "i64"))
        members = r.op("and", names, mask)
        present = r.op("and", r.op("lshr", members, source), 1)
        # NOTE: a lane that does not name itself has a wrong mask, which is another finding.
        own = r.op("and", r.op("lshr", members, lane), 1)
        with r.when(r.is_below(present, own)):
            lanes = r.op("or", r.op("shl", lane, SHUFFLED.READER), source)
            low = r.op("or", r.op("shl", line, SHUFFLED.LINE), lanes)
            found.put(r.op("or", r.op("shl", r.wide(names), SHUFFLED.MASK), r.wide(low)))
            r.put(_table(r), 0, 1)
        r.put(r.item(row, lane, 8), 0, found.get())


@check_routine("tw_check_spread")
def _spread(r: CheckRoutine, target: I32, first: I32, second: I32, third: I32, mask: I32) -> None:
    """Lanes compute ``target`` of up to three others; 0 stands for none."""
    _return_if_all_defined(r)
    rows = [_row(r, register) for register in (first, second, third)]
    row = _row(r, target)
    with r.each_lane(mask) as lane:
        found = [r.element(source, lane, "i64") for source in rows]
        worst = reduce(partial(r.intrinsic, "llvm.umax"), found)
        r.put(r.item(row, lane, 8), 0, worst)


@check_routine("tw_check_use")
def _use(r: CheckRoutine, register: I32, mask: I32, line: I32) -> None:
    """Lanes do with a register what others see: store it, branch by it, take it for an address."""
    _return_if_all_defined(r)
    row = _row(r, register)
    with r.each_lane(mask) as lane:
        known = r.element(row, lane, "i64")
        with r.when(r.differs(known, 0)):
            low = r.narrow(known)
            who, other = accessor(r, lane), accessor(r, r.op("and", r.op("lshr", low, SHUFFLED.READER), 31))
            shuffle = r.op("lshr", low, SHUFFLED.LINE)
            record_finding(r, FindingKind.SHUFFLE_INACTIVE_LANE, who, shuffle, known, other)
            r.put(r.item(row, lane, 8), 0, r.const("i64", 0))
