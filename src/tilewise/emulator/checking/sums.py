"""What a checked launch does about the sums of ``wgmma``: until a warp has waited for them they are nobody's."""

from __future__ import annotations

from tilewise.emulator.check_layout import LANE_BITS, Kind
from tilewise.emulator.checking.clocks import WHO, serial_of
from tilewise.emulator.layout import LAUNCH, WARP, Space
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.support.wgmma import INFO, PRODUCTS, RECORD

__all__ = ["routines"]


def routines() -> list[Routine]:
    return [_sums()]


def _sums() -> Routine:
    """A warp reads a register, at a place in its memory, that may be a sum in flight.

    NOTE: in the eager order nothing is kept of products once they are performed.
    """
    r = Routine("tw_check_sums", "void", **WHO, place="i32", mask="i32", line="i32")
    with r.when(r.compare("icmp eq", r.field(r["ctx"], LAUNCH.ORDER, "i64"), 0)):
        r.give()
    state = r.at(r["warp"], WARP.PRODUCTS)
    records = r.field(state, PRODUCTS.RECORDS, "ptr")
    first, end = r.field(state, PRODUCTS.KEPT, "i32"), r.field(state, PRODUCTS.END, "i32")
    with r.count(r.wide(end), r.wide(first)) as i:
        record = r.item(records, i, RECORD.SIZE)
        info = r.field(record, RECORD.INFO, "ptr")
        places = r.field(info, INFO.PLACES, "ptr")
        with r.count(r.wide(r.field(info, INFO.REGISTERS, "i32"))) as j:
            its = r.compare("icmp eq", r.field(r.item(places, j, 4), 0, "i32"), r["place"])
            with r.when(its):
                r.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
                lane = r.set("i32", f"call i32 @llvm.cttz.i32({r['mask']}, i1 false)")
                who = r.op("or", r.op("shl", serial_of(r), LANE_BITS), r.op("and", lane, 31))
                kind, space = (r.const("i32", int(number)) for number in (Kind.SUM_IN_FLIGHT, Space.SHARED))
                issued, zero = r.field(record, RECORD.LINE, "i32"), r.const("i32", 0)
                given = (kind, space, r["line"], issued, r.const("i64", 0), who, who, zero, zero)
                r.call("tw_check_finding", "void", r["ctx"], *given)
                r.give()
    return r
