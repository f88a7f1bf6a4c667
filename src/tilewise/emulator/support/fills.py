"""``st.bulk`` in the run-time support: zeros in shared memory, as many bytes as each lane says."""

from __future__ import annotations

from tilewise.emulator.check_layout import Action
from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.routine import POINTERS, Routine
from tilewise.emulator.support.bulk_requests import find_span, refuse_if
from tilewise.emulator.support.checked import check_touch, is_checked

__all__ = ["MOST_BYTES", "STEP", "routines"]

STEP = 8  # what a size is a multiple of
MOST_BYTES = 1 << 24
_BAD_SIZE = 20  # in tensor_map_layout.WRONG


def routines() -> list[Routine]:
    return [_fill(), _fill_one()]


def _fill() -> Routine:
    """Fill a stretch for each lane of ``mask``: 0, or 1 after a fault."""
    r = Routine("tw_fill", "i32", **POINTERS, addresses="ptr", sizes="ptr", mask="i32", line="i32")
    with r.each_lane(r["mask"]) as lane:
        address, count = (r.element(r[name], lane, "i64") for name in ("addresses", "sizes"))
        r.give_unless_zero(r.call("tw_fill_one", "i32", *r.pointers(), address, count, lane, r["line"]))
    r.give(0)
    return r


def _fill_one() -> Routine:
    r = Routine("tw_fill_one", "i32", **POINTERS, address="i64", count="i64", lane="i32", line="i32")
    odd = r.differs(r.op("and", r["count"], STEP - 1), 0)
    wrong = r.op("or", odd, r.is_above(r["count"], MOST_BYTES))
    refuse_if(r, wrong, _BAD_SIZE, r["count"])
    place = find_span(r, r["address"], r["count"], Space.SHARED, 1)
    with r.when(is_checked(r)):
        check_touch(r, r["lane"], r["address"], r["count"], Space.SHARED, Action.STORE)
    r.fill(place, 0, r["count"])
    r.give(0)
    return r
