"""Matrices in shared memory that a ``wgmma`` in flight reads."""

from __future__ import annotations

from tilewise.emulator.check_layout import COPY, PROXY, WHOLE, Action, CopySide
from tilewise.emulator.checking.flight_records import PRODUCTS, SHARED, Mark, mark, with_rank
from tilewise.emulator.checking.vector_clocks import WARP_PARAMETERS, call_for_warp
from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.support.checked import accessor, check_touch

__all__ = ["routines"]

_ROWS = 8  # of a brick of a matrix, each of 16 bytes


def routines() -> list[Routine]:
    return [_walk_matrix(), _issue()]


_MATRIX = {"bits": "i64", "first": "i32", "rows": "i32", "bricks": "i32", "across": "i32"}


def _walk_matrix() -> Routine:
    """Mark each row of 16 bytes of the matrix that a descriptor describes (``wgmma_descriptor.py``) as read or free."""
    r = Routine("tw_check_matrix", "void", **WARP_PARAMETERS, **_MATRIX, what="i32", time="i32", who="i32")
    bits = r["bits"]

    def part(low: int, mask: int) -> Value:
        return r.op("and", r.op("lshr", bits, low), mask)

    start, leading, stride = (r.op("shl", part(low, 0x3FFF), 4) for low in (0, 16, 32))
    mode, base = part(62, 3), part(49, 7)
    plain = r.equals(mode, 0)
    span = r.select(plain, 16, r.op("lshr", 256, mode))
    chunks = r.op("sub", r.op("lshr", span, 4), 1)
    wide = r.select(plain, 0, r.op("sub", 4, mode))
    across = r.differs(r["across"], 0)
    far = r.select(across, r.select(plain, leading, stride), stride)
    near = r.select(across, r.select(plain, stride, leading), leading)
    end = r.wide(r.op("add", r["first"], r["rows"]))
    with r.count(end, r.wide(r["first"])) as j, r.count(r.wide(r["bricks"])) as c:
        inner, outer = r.select(across, j, c), r.select(across, c, j)
        at = r.op("add", start, r.op("shl", r.op("and", inner, chunks), 4))
        at = r.op("add", at, r.op("mul", r.op("lshr", inner, wide), near))
        at = r.op("add", at, r.op("mul", outer, far))
        with r.count(_ROWS) as row:
            place = r.op("add", at, r.op("mul", row, span))
            turn = r.op("and", r.op("sub", r.op("lshr", place, 7), base), chunks)
            place = with_rank(r, r.op("xor", place, r.op("shl", turn, 4)))
            _mark_row(r, place)
    return r


def _mark_row(r: Routine, place: Value) -> None:
    with r.when(r.equals(r["what"], Mark.LEAVE)):
        # NOTE: while it is issued, ``time`` is the line of the PTX.
        check_touch(r, WHOLE, place, 16, SHARED, Action.LOAD, PROXY, r["time"])
    mark(r, SHARED, place, r.const("i64", 16), r["what"], r["time"], r["who"])


def _issue() -> Routine:
    """Record a wgmma's read of a matrix: of A, if ``first`` is not 0, the warp's own rows; B once for four warps."""
    r = Routine("tw_check_product", "void", **WARP_PARAMETERS, **_MATRIX, line="i32")
    index = r.op("and", r.field(r["warp"], WARP.INDEX, "i32"), 3)
    own = r.differs(r["first"], 0)  # of A: 16 of its 64 rows
    r.give_if(r.negation(r.op("or", own, r.equals(index, 0))))
    first = r.select(own, r.op("mul", index, 2), 0)
    numbers = (1, 0, PRODUCTS, CopySide.FROM_SHARED, r["line"])
    copy = call_for_warp(r, "tw_check_record", *numbers, result="ptr")
    r.give_if(r.is_null(copy))
    high = r.narrow(r.op("lshr", r["bits"], 32))
    request = (r.narrow(r["bits"]), high, first, r["rows"], r["bricks"], r["across"])
    for i, value in enumerate(request):
        r.put(copy, COPY.PLACES + 4 * i, value)
    given = (r["bits"], first, r["rows"], r["bricks"], r["across"], Mark.LEAVE, r["line"])
    call_for_warp(r, "tw_check_matrix", *given, accessor(r, WHOLE))
    return r
