"""What a checked launch does about copies in flight: from their issue until the program has waited for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import ARRIVING, CELL, CLOCKS, COPIES, COPY, Action
from tilewise.emulator.check_support import (
    WHO,
    clocks_of,
    index_of,
    now_of,
)
from tilewise.emulator.emit import Value
from tilewise.emulator.layout import Space
from tilewise.emulator.routine import Routine

__all__ = ["routines"]

_NULL = Value("ptr", "null")


def routines() -> list[Routine]:
    return [_copy(), _commit(), _landed(), _told(), _seen(), _land()]


def _groups(r: Routine) -> Value:
    """Where the groups of this warp's lanes are counted."""
    return r.item(r.field(clocks_of(r), CLOCKS.GROUPS, "ptr"), index_of(r), 128)


def _copy() -> Routine:
    """Some lanes issue copies to shared memory, each of ``size`` bytes."""
    r = Routine("tw_check_copy", "void", **WHO, addresses="ptr", mask="i32", size="i32", line="i32")
    clocks = clocks_of(r)
    space, store = r.const("i32", int(Space.SHARED)), r.const("i32", int(Action.STORE))
    given = (r["ctx"], r["block"], r["warp"], r["addresses"], r["mask"], r["size"])
    r.call("tw_check", "void", *given, space, store, r.const("i32", 0), r["line"])
    count = r.field(clocks, CLOCKS.COUNT, "i64")
    with r.when(r.compare("icmp uge", count, COPIES)):
        r.give()
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    fresh = r.variable("ptr", r.item(start, count, COPY.SIZE))
    with r.count(count) as i:
        old = r.item(start, i, COPY.SIZE)
        with r.when(r.compare("icmp eq", r.field(old, COPY.LANES, "i32"), 0)):
            fresh.put(old)
    copy = fresh.get()
    with r.when(r.compare("icmp eq", copy, r.item(start, count, COPY.SIZE))):
        r.put(clocks, CLOCKS.COUNT, r.op("add", count, 1))
    r.put(copy, COPY.LANES, r["mask"])
    r.put(copy, COPY.WARP, r.cast("trunc", index_of(r), "i32"))
    r.put(copy, COPY.SIZE_, r["size"])
    r.put(copy, COPY.LINE, r["line"])
    r.put(copy, COPY.KEY, r.const("i64", 0))
    r.copy(r.at(copy, COPY.GROUPS), _groups(r), 128)
    with r.each_lane(r["mask"]) as lane:
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        r.put(r.item(r.at(copy, COPY.PLACES), lane, 4), 0, r.cast("trunc", address, "i32"))
        _each_word(r, address, r["size"], _begin)
    return r


def _begin(r: Routine, cell: Value) -> None:
    r.put(cell, CELL.STATE, r.op("or", r.field(cell, CELL.STATE, "i32"), ARRIVING))


def _each_word(r: Routine, address: Value, size: Value, act: Callable[[Routine, Value], None]) -> None:
    with r.count(r.wide(size), 0, 4) as offset:
        place, space = r.op("add", address, offset), r.const("i32", int(Space.SHARED))
        cell = r.call("tw_check_cell", "ptr", r["ctx"], r["block"], space, place)
        with r.unless(r.compare("icmp eq", cell, _NULL)):
            act(r, cell)


def _commit() -> Routine:
    """Some lanes close a group."""
    r = Routine("tw_check_commit", "void", **WHO, mask="i32")
    with r.each_lane(r["mask"]) as lane:
        place = r.item(_groups(r), lane, 4)
        r.put(place, 0, r.op("add", r.field(place, 0, "i32"), 1))
    return r


def _landed() -> Routine:
    """Some lanes have waited for their groups but the last ``keep``; -1 for all."""
    r = Routine("tw_check_landed", "void", **WHO, mask="i32", keep="i32")
    with _each_copy(r) as copy:
        mine = r.compare("icmp eq", r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
        with r.when(mine), r.each_lane(r.op("and", r.field(copy, COPY.LANES, "i32"), r["mask"])) as lane:
            own = r.field(r.item(r.at(copy, COPY.GROUPS), lane, 4), 0, "i32")
            since = r.op("sub", r.field(r.item(_groups(r), lane, 4), 0, "i32"), own)
            with r.when(r.compare("icmp sgt", since, r["keep"])):
                r.call("tw_check_land", "void", r["ctx"], r["block"], r["warp"], copy, lane, now_of(r))
    return r


def _told() -> Routine:
    """Some lanes have an mbarrier told of their copies so far: they are there when its phase is over."""
    r = Routine("tw_check_told", "void", **WHO, mask="i32", key="i64")
    with _each_copy(r) as copy:
        mine = r.compare("icmp eq", r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
        lanes = r.op("and", r.field(copy, COPY.LANES, "i32"), r["mask"])
        free = r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), 0)
        with r.when(r.both(mine, free, r.compare("icmp ne", lanes, 0))):
            r.put(copy, COPY.KEY, r["key"])
            r.put(copy, COPY.TIME, now_of(r))
    return r


def _seen() -> Routine:
    """A phase of an mbarrier was seen to be over: the copies that it was told of are there."""
    r = Routine("tw_check_seen", "void", **WHO, key="i64")
    with _each_copy(r) as copy:
        with r.when(r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), r["key"])):
            time = r.field(copy, COPY.TIME, "i32")
            with r.each_lane(r.field(copy, COPY.LANES, "i32")) as lane:
                r.call("tw_check_land", "void", r["ctx"], r["block"], r["warp"], copy, lane, time)
    return r


@contextmanager
def _each_copy(r: Routine) -> Iterator[Value]:
    clocks = clocks_of(r)
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    with r.count(r.field(clocks, CLOCKS.COUNT, "i64")) as i:
        yield r.item(start, i, COPY.SIZE)


def _land() -> Routine:
    """The copy of one lane is there, as of a time."""
    r = Routine("tw_check_land", "void", **WHO, copy="ptr", lane="i32", time="i32")
    copy, lane = r["copy"], r["lane"]
    bit = r.op("shl", r.const("i32", 1), lane)
    r.put(copy, COPY.LANES, r.op("and", r.field(copy, COPY.LANES, "i32"), r.op("xor", bit, -1)))
    address = r.wide(r.field(r.item(r.at(copy, COPY.PLACES), lane, 4), 0, "i32"))

    def end(r: Routine, cell: Value) -> None:
        r.put(cell, CELL.STATE, r.op("and", r.field(cell, CELL.STATE, "i32"), ~ARRIVING))
        r.put(cell, CELL.WRITTEN, r["time"])

    _each_word(r, address, r.field(copy, COPY.SIZE_, "i32"), end)
    return r
