"""What a checked launch does about ``cp.async``, groups of copies, and mbarriers that are told of copies."""

from __future__ import annotations

from tilewise.emulator.check_layout import CLOCKS, COPY, Action, Way
from tilewise.emulator.checking import bulks, products, records
from tilewise.emulator.checking.clocks import WHO, clocks_of, index_of, now_of, tick
from tilewise.emulator.checking.records import (
    COPIED,
    PRODUCTS,
    SHARED,
    Mark,
    context,
    each_copy,
    first_of_four,
    groups_of,
    phase_of,
    place_of,
    ranked,
    trim,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = ["routines"]

_NULL = Value("ptr", "null")


def routines() -> list[Routine]:
    """Those of all that may be in flight."""
    own = [_copy(), _commit(), _landed(), _told(), _seen()]
    return [*records.routines(), *own, *bulks.routines(), *products.routines()]


def _copy() -> Routine:
    """Some lanes issue copies to shared memory, each of ``size`` bytes."""
    r = Routine("tw_check_copy", "void", **WHO, addresses="ptr", mask="i32", size="i32", line="i32")
    space, store = r.const("i32", SHARED), r.const("i32", int(Action.STORE))
    zero = r.const("i32", 0)
    given = (*context(r), r["addresses"], r["mask"], r["size"], space, store, zero, r["line"], _NULL)
    r.call("tw_check", "void", *given, r.const("i32", 4))
    numbers = (r["mask"], r["size"], r.const("i32", COPIED), r.const("i32", int(Way.TO_SHARED)), r["line"])
    copy = r.call("tw_check_record", "ptr", *context(r), *numbers)
    with r.when(r.compare("icmp eq", copy, _NULL)):
        r.give()
    with r.each_lane(r["mask"]) as lane:
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        r.put(place_of(r, copy, lane), 0, r.cast("trunc", address, "i32"))
        marked = (space, address, r.wide(r["size"]), r.const("i32", Mark.SET), zero, zero)
        r.call("tw_check_mark", "void", r["ctx"], r["block"], *marked)
    return r


def _commit() -> Routine:
    """Some lanes close a group."""
    r = Routine("tw_check_commit", "void", **WHO, mask="i32", kind="i32")
    with r.each_lane(r["mask"]) as lane:
        place = r.item(groups_of(r, r["kind"]), lane, 4)
        r.put(place, 0, r.op("add", r.field(place, 0, "i32"), 1))
    return r


def _landed() -> Routine:
    """Some lanes have waited for their groups but the last ``keep``; -1 for all. With ``reads``, only until the
    groups have read what they copy.

    A product is one operation of four warps: when one of them has waited for it, it is over for all.
    """
    r = Routine("tw_check_landed", "void", **WHO, mask="i32", keep="i32", kind="i32", reads="i32")
    products, first = r.compare("icmp eq", r["kind"], PRODUCTS), first_of_four(r)
    some = r.variable("i1", 0)
    with each_copy(r) as copy:
        warp = r.wide(r.field(copy, COPY.WARP, "i32"))
        beside = r.both(products, r.compare("icmp ult", r.op("sub", warp, first), 4))
        mine = r.op("or", r.compare("icmp eq", warp, index_of(r)), beside)
        kind = r.compare("icmp eq", r.field(copy, COPY.KIND, "i32"), r["kind"])
        source = r.compare("icmp eq", r.field(copy, COPY.WAY, "i32"), int(Way.FROM_SHARED))
        meant = r.op("or", source, r.compare("icmp eq", r["reads"], 0))
        with (
            r.when(r.both(mine, kind, meant)),
            r.each_lane(r.op("and", r.field(copy, COPY.LANES, "i32"), r["mask"])) as lane,
        ):
            own = r.field(r.item(r.at(copy, COPY.GROUPS), lane, 4), 0, "i32")
            since = r.op("sub", r.field(r.item(groups_of(r, r["kind"]), lane, 4), 0, "i32"), own)
            with r.when(r.compare("icmp sgt", since, r["keep"])):
                r.call("tw_check_land", "void", *context(r), copy, lane, now_of(r))
                some.put(1)
    trim(r)
    with r.when(r.both(products, some.get())):
        r.put(r.item(r.field(clocks_of(r), CLOCKS.TOGETHER, "ptr"), first, 4), 0, now_of(r))
        tick(r)
    return r


def _told() -> Routine:
    """Some lanes have mbarriers told of their copies so far: they are there when its phase is over."""
    r = Routine("tw_check_told", "void", **WHO, addresses="ptr", mask="i32")
    with r.each_lane(r["mask"]) as lane:
        address = r.op("and", r.field(r.item(r["addresses"], lane, 8), 0, "i64"), 0xFFFF_FFFF)
        key = r.op("add", ranked(r, address), 1)
        phase = phase_of(r, key)
        bit = r.op("shl", r.const("i32", 1), lane)
        with each_copy(r) as copy:
            mine = r.compare("icmp eq", r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
            lanes = r.op("and", r.field(copy, COPY.LANES, "i32"), bit)
            kind = r.compare("icmp eq", r.field(copy, COPY.KIND, "i32"), COPIED)
            free = r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), 0)
            with r.when(r.both(mine, kind, free, r.compare("icmp ne", lanes, 0))):
                r.put(copy, COPY.KEY, key)
                r.put(copy, COPY.PHASE, phase)
                r.put(copy, COPY.TIME, now_of(r))
    return r


def _seen() -> Routine:
    """A phase of an mbarrier was seen to be over: the copies that it was told of in that phase are there."""
    r = Routine("tw_check_seen", "void", **WHO, key="i64")
    phase = phase_of(r, r["key"])
    with each_copy(r) as copy:
        told = r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), r["key"])
        over = r.compare("icmp ne", r.field(copy, COPY.PHASE, "i32"), phase)
        with r.when(r.both(told, over)):
            time = r.field(copy, COPY.TIME, "i32")
            with r.each_lane(r.field(copy, COPY.LANES, "i32")) as lane:
                r.call("tw_check_land", "void", *context(r), copy, lane, time)
    trim(r)
    return r
