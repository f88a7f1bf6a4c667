"""``st.bulk`` in the run-time support: zeros in shared memory, as many bytes as each lane says."""

from __future__ import annotations

from tilewise.emulator.check_layout import Action
from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.bulk_requests import find_span, refuse_if
from tilewise.emulator.support.checked import check_touch, is_checked

__all__ = ["MOST_BYTES", "STEP"]

STEP = 8  # what a size is a multiple of
MOST_BYTES = 1 << 24
_BAD_SIZE = 20  # in tensor_map_layout.WRONG


@routine("tw_fill", "i32", *POINTERS)
def _fill(r: Routine, addresses: Ptr, sizes: Ptr, mask: I32, line: I32) -> None:
    """Fill a stretch for each lane of ``mask``: 0, or 1 after a fault."""
    with r.each_lane(mask) as lane:
        address, count = (r.element(source, lane, "i64") for source in (addresses, sizes))
        r.give_unless_zero(_fill_one(r, address, count, lane))


@routine("tw_fill_one", "i32", *POINTERS)
def _fill_one(r: Routine, address: I64, count: I64, lane: I32, line: I32) -> None:
    odd = r.differs(r.op("and", count, STEP - 1), 0)
    wrong = r.op("or", odd, r.is_above(count, MOST_BYTES))
    refuse_if(r, wrong, _BAD_SIZE, count)
    place = find_span(r, address, count, Space.SHARED, 1)
    with r.when(is_checked(r)):
        check_touch(r, lane, address, count, Space.SHARED, Action.STORE)
    r.fill(place, 0, count)
