"""Matrices in shared memory that a ``wgmma`` in flight reads."""

from __future__ import annotations

from tilewise.emulator.check_layout import COPY, PROXY, WHOLE, Action, CopySide
from tilewise.emulator.checking.flight_records import PRODUCTS, SHARED, Mark, mark, with_rank
from tilewise.emulator.checking.vector_clocks import WARP_PARAMETERS, call_for_warp
from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Routine, routine
from tilewise.emulator.support.checked import accessor, check_touch

__all__: list[str] = []

_ROWS = 8  # of a brick of a matrix, each of 16 bytes


@routine("tw_check_matrix", "void", *WARP_PARAMETERS)
def _walk_matrix(
    r: Routine, bits: I64, first: I32, rows: I32, bricks: I32, across: I32, what: I32, time: I32, who: I32
) -> None:
    """Mark each row of 16 bytes of the matrix that a descriptor describes (``wgmma_descriptor.py``) as read or free."""

    def part(low: int, mask: int) -> Value:
        return r.op("and", r.op("lshr", bits, low), mask)

    start, leading, stride = (r.op("shl", part(low, 0x3FFF), 4) for low in (0, 16, 32))
    mode, base = part(62, 3), part(49, 7)
    plain = r.equals(mode, 0)
    span = r.select(plain, 16, r.op("lshr", 256, mode))
    chunks = r.op("sub", r.op("lshr", span, 4), 1)
    wide = r.select(plain, 0, r.op("sub", 4, mode))
    turned = r.differs(across, 0)
    far = r.select(turned, r.select(plain, leading, stride), stride)
    near = r.select(turned, r.select(plain, stride, leading), leading)
    end = r.wide(r.op("add", first, rows))
    with r.count(end, r.wide(first)) as j, r.count(r.wide(bricks)) as c:
        inner, outer = r.select(turned, j, c), r.select(turned, c, j)
        at = r.op("add", start, r.op("shl", r.op("and", inner, chunks), 4))
        at = r.op("add", at, r.op("mul", r.op("lshr", inner, wide), near))
        at = r.op("add", at, r.op("mul", outer, far))
        with r.count(_ROWS) as row:
            place = r.op("add", at, r.op("mul", row, span))
            turn = r.op("and", r.op("sub", r.op("lshr", place, 7), base), chunks)
            place = with_rank(r, r.op("xor", place, r.op("shl", turn, 4)))
            _mark_row(r, place)


def _mark_row(r: Routine, place: Value) -> None:
    with r.when(r.equals(r["what"], Mark.LEAVE)):
        # NOTE: while it is issued, ``time`` is the line of the PTX.
        check_touch(r, WHOLE, place, 16, SHARED, Action.LOAD, PROXY, r["time"])
    mark(r, SHARED, place, r.const("i64", 16), r["what"], r["time"], r["who"])


@routine("tw_check_product", "void", *WARP_PARAMETERS)
def _issue(r: Routine, bits: I64, first: I32, rows: I32, bricks: I32, across: I32, line: I32) -> None:
    """Record a wgmma's read of a matrix: of A, if ``first`` is not 0, the warp's own rows; B once for four warps."""
    index = r.op("and", r.field(r["warp"], WARP.INDEX, "i32"), 3)
    own = r.differs(first, 0)  # of A: 16 of its 64 rows
    r.give_if(r.negation(r.op("or", own, r.equals(index, 0))))
    start = r.select(own, r.op("mul", index, 2), 0)
    numbers = (1, 0, PRODUCTS, CopySide.FROM_SHARED, line)
    copy = call_for_warp(r, "tw_check_record", *numbers, result="ptr")
    r.give_if(r.is_null(copy))
    high = r.narrow(r.op("lshr", bits, 32))
    request = (r.narrow(bits), high, start, rows, bricks, across)
    for i, value in enumerate(request):
        r.put(copy, COPY.PLACES + 4 * i, value)
    given = (bits, start, rows, bricks, across, Mark.LEAVE, line)
    call_for_warp(r, "tw_check_matrix", *given, accessor(r, WHOLE))
