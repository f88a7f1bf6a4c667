"""``st.bulk`` in the run-time support: zeros in shared memory, as many bytes as each lane says."""

from __future__ import annotations

from tilewise.emulator.check_layout import Action
from tilewise.emulator.layout import BLOCK, Space
from tilewise.emulator.llvm.routine import NULL, Routine
from tilewise.emulator.support.bulk_requests import refuse_if

__all__ = ["MOST_BYTES", "STEP", "routines"]

STEP = 8  # what a size is a multiple of
MOST_BYTES = 1 << 24
_BAD_SIZE = 20  # in tensor_map_layout.WRONG


def routines() -> list[Routine]:
    return [_fill(), _fill_one()]


def _fill() -> Routine:
    """Fill a stretch for each lane of ``mask``: 0, or 1 after a fault."""
    pointers = {
        "ctx": "ptr",
        "worker": "ptr",
        "block": "ptr",
        "warp": "ptr",
        "addresses": "ptr",
        "sizes": "ptr",
    }
    r = Routine("tw_fill", "i32", **pointers, mask="i32", line="i32")
    with r.each_lane(r["mask"]) as lane:
        address, count = (r.element(r[name], lane, "i64") for name in ("addresses", "sizes"))
        answer = r.call("tw_fill_one", "i32", *r.pointers(), address, count, lane, r["line"])
        r.give_if(r.differs(answer, 0), answer)
    r.give(0)
    return r


def _fill_one() -> Routine:
    pointers = {"ctx": "ptr", "worker": "ptr", "block": "ptr", "warp": "ptr"}
    r = Routine("tw_fill_one", "i32", **pointers, address="i64", count="i64", lane="i32", line="i32")
    odd = r.differs(r.op("and", r["count"], STEP - 1), 0)
    wrong = r.op("or", odd, r.is_above(r["count"], MOST_BYTES))
    refuse_if(r, wrong, _BAD_SIZE, r["count"])
    shared = r.const("i32", Space.SHARED)
    given = (r["address"], r["count"], shared, r["lane"], r["line"], 1)
    place = r.call("tw_span", "ptr", *r.pointers(), *given)
    r.give_if(r.is_null(place), 1)
    with r.when(r.differs(r.field(r["block"], BLOCK.CELLS, "ptr"), NULL)):  # a checked launch
        store = (shared, Action.STORE, 0, r["line"], NULL)
        touched = (r["lane"], r["address"], r["count"], *store)
        r.call("tw_check_touch", "void", r["ctx"], r["block"], r["warp"], *touched)
    r.fill(place, 0, r["count"])
    r.give(0)
    return r
