"""The clocks of a checked launch: what each of its warps may count on to have happened before.

The launch runs on one thread of the CPU, so all of this is in order. See ``check_layout.py`` for the words.
A warp's clock has, as the warp's own entry, the time when its lanes met last: for a lane, what the others of
its warp did up to then happened before.

A lane that synchronises alone (it sets a flag, arrives, waits) does so for itself: what others of its warp did
since they met last is not covered by what it releases, and what it acquires they do not know before they meet
again. Behind its entries a clock therefore has room for one lane of some warp that is covered further than its
warp; and what one lane alone has acquired is kept in a *private* clock of its warp. There is room for one each:
where it is taken, the whole warp counts as covered. Races may be missed by that, none are made up.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, FOREVER, LANE_BITS, TAIL, WHOLE
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = [
    "ALL",
    "WHO",
    "acquire",
    "check_state",
    "clock_base",
    "clocks_of",
    "index_of",
    "join",
    "knows_more",
    "lane_covered",
    "lane_of",
    "now_of",
    "of_scope",
    "own_clock",
    "own_entry",
    "release",
    "routines",
    "row_of",
    "serial_of",
    "settle",
    "synced",
    "tick",
    "widen",
    "width_of",
]

WHO = {"ctx": "ptr", "block": "ptr", "warp": "ptr"}
ALL = -1  # as a lane that synchronises: several do
_LANES = (1 << LANE_BITS) - 1
_BY, _TILL = 0, 4  # in a clock's tail: one lane, and up to when; 0 if there is none
_EVERY = (
    8  # in the tail of what a fence covered: up to when, for each lane of this warp that uses it alone; or 0
)


def routines() -> list[Routine]:
    return [_least(), _join(), _cover(), _widen(), _settle(), _release(), _acquire(), _known(), _met()]


def check_state(r: Routine) -> Value:
    return r.field(r["ctx"], LAUNCH.WATCH, "ptr")


def now_of(r: Routine) -> Value:
    return r.field(check_state(r), CHECK.NOW, "i32")


def tick(r: Routine) -> None:
    r.put(check_state(r), CHECK.NOW, r.op("add", now_of(r), 1))


def index_of(r: Routine) -> Value:
    """Of a warp within its cluster, as 64 bits."""
    warps = r.field(r["ctx"], LAUNCH.WARPS, "i64")
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    return r.op("add", r.op("mul", rank, warps), r.wide(r.field(r["warp"], WARP.INDEX, "i32")))


def serial_of(r: Routine) -> Value:
    """The number of a warp within the launch."""
    return r.op("add", r.field(r["block"], BLOCK.SERIAL, "i32"), r.field(r["warp"], WARP.INDEX, "i32"))


def width_of(r: Routine) -> Value:
    return r.field(check_state(r), CHECK.WIDTH, "i64")


def clocks_of(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.CLOCKS, "ptr")


def row_of(r: Routine) -> Value:
    """Bytes of a clock."""
    return r.op("add", r.op("mul", width_of(r), 4), TAIL)


def own_clock(r: Routine) -> Value:
    return r.at(r.field(clocks_of(r), CLOCKS.WARPS, "ptr"), r.op("mul", index_of(r), row_of(r)))


def clock_base(r: Routine) -> Value:
    """The number of the warp that has the first entry of clocks, as 64 bits."""
    warps = r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))
    mine = r.wide(serial_of(r))
    base = r.op("sub", mine, r.op("urem", mine, warps))
    talks = r.compare("icmp ne", r.field(check_state(r), CHECK.TALKS, "i64"), 0)
    return r.select(talks, r.const("i64", 0), base)


def own_entry(r: Routine) -> Value:
    """Where a warp has its own entry in a clock."""
    return r.op("sub", r.wide(serial_of(r)), clock_base(r))


def of_scope(r: Routine, field: int, wide: int) -> Value:
    """The clock of a warp for the block's scope, or for wider ones."""
    row = r.op("add", r.op("mul", index_of(r), 2), wide)
    return r.at(r.field(clocks_of(r), field, "ptr"), r.op("mul", row, row_of(r)))


def lane_of(r: Routine, mask: Value) -> Value:
    """The lane that synchronises alone, while others of its warp are there; else ``ALL``."""
    r.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
    first = r.set("i32", f"call i32 @llvm.cttz.i32({mask}, i1 false)")
    alone = r.compare("icmp eq", r.op("and", mask, r.op("sub", mask, 1)), 0)
    live = r.field(r["warp"], WARP.LIVE, "i32")
    others = r.compare("icmp ne", r.op("and", live, r.op("sub", live, 1)), 0)
    return r.select(r.both(alone, others), first, r.const("i32", ALL))


def _by_warp(r: Routine, place: int) -> Value:
    return r.item(r.field(clocks_of(r), place, "ptr"), index_of(r), 4)


def _who(r: Routine, lane: Value | int) -> Value:
    return r.op("or", r.op("shl", serial_of(r), LANE_BITS), lane)


def _tail(r: Routine, clock: Value) -> Value:
    return r.at(clock, r.op("mul", width_of(r), 4))


def _keeper(r: Routine) -> Value:
    """Where it stands whose the private clock of this warp is: a lane and 1 more."""
    return _by_warp(r, CLOCKS.KEEPER)


def _private(r: Routine) -> Value:
    return r.at(r.field(clocks_of(r), CLOCKS.PRIVATE, "ptr"), r.op("mul", index_of(r), row_of(r)))


def lane_covered(r: Routine, clock: Value) -> Value:
    """Who it is that a clock covers further than its warp; it need not cover anybody."""
    return r.field(_tail(r, clock), _BY, "i32")


def knows_more(r: Routine) -> Value:
    """Whether some lane of this warp has acquired what the others have not."""
    return r.compare("icmp ne", r.field(_keeper(r), 0, "i32"), 0)


# -- what other routines call --------------------------------------------------------------------------
def join(r: Routine, target: Value, source: Value, lane: Value | int = ALL) -> None:
    """What one clock covers, another one covers from now on; ``lane`` is who uses it."""
    given = (r["ctx"], r["block"], r["warp"], target, source, r.fixed(lane, "i32"))
    r.call("tw_check_join", "void", *given)


def widen(r: Routine, clock: Value) -> None:
    """The lane that a clock covers further stands for its warp."""
    r.call("tw_check_widen", "void", r["ctx"], r["block"], r["warp"], clock)


def settle(r: Routine) -> None:
    """What a lane alone has acquired, its warp knows."""
    r.call("tw_check_settle", "void", r["ctx"], r["block"], r["warp"])


def release(
    r: Routine, clock: Value, goes_on: Value | int = 1, lane: Value | int = ALL, after: int = -1
) -> None:
    """See ``tw_check_release``."""
    given = (r["ctx"], r["block"], r["warp"], clock, r.fixed(goes_on, "i32"), r.fixed(lane, "i32"))
    r.call("tw_check_release", "void", *given, r.const("i32", after))


def acquire(r: Routine, clock: Value, lane: Value | int = ALL) -> None:
    """What a clock says happened before what this warp, or one lane of it, does from now on."""
    r.call("tw_check_acquire", "void", r["ctx"], r["block"], r["warp"], clock, r.fixed(lane, "i32"))


def synced(r: Routine, time: Value) -> None:
    """The lanes of this warp have met since a time."""
    for place in (_by_warp(r, CLOCKS.SYNCED), r.item(own_clock(r), own_entry(r), 4)):
        r.put(place, 0, r.intrinsic("llvm.umax", r.field(place, 0, "i32"), time))


# -- the routines ------------------------------------------------------------------------------------
def _least() -> Routine:
    """The clock of a warp has changed: up to when all that its block did happened before."""
    r = Routine("tw_check_least", "void", **WHO)
    clock = own_clock(r)
    start = r.op("sub", r.wide(r.field(r["block"], BLOCK.SERIAL, "i32")), clock_base(r))
    least = r.variable("i32", -1)
    with r.count(r.field(r["ctx"], LAUNCH.WARPS, "i64")) as i:
        least.put(
            r.intrinsic("llvm.umin", least.get(), r.field(r.item(clock, r.op("add", start, i), 4), 0, "i32"))
        )
    r.put(_by_warp(r, CLOCKS.LEAST), 0, least.get())
    return r


def _entry_of(r: Routine, who: Value) -> tuple[Value, Value]:
    """The entry of somebody's warp in a clock, and whether there is one."""
    entry = r.op("sub", r.wide(r.op("lshr", who, LANE_BITS)), clock_base(r))
    return entry, r.compare("icmp ult", entry, width_of(r))


def _later(r: Routine, place: Value, time: Value) -> None:
    r.put(place, 0, r.intrinsic("llvm.umax", r.field(place, 0, "i32"), time))


def _join() -> Routine:
    r = Routine("tw_check_join", "void", **WHO, target="ptr", source="ptr", lane="i32")
    with r.count(width_of(r)) as i:
        _later(r, r.item(r["target"], i, 4), r.field(r.item(r["source"], i, 4), 0, "i32"))
    tail = _tail(r, r["source"])
    time, every = r.field(tail, _TILL, "i32"), r.field(tail, _EVERY, "i32")
    with r.unless(r.compare("icmp eq", time, 0)):
        _cover_one(r, r["target"], r.field(tail, _BY, "i32"), time)
    with r.unless(r.compare("icmp eq", every, 0)):
        with r.when(r.compare("icmp slt", r["lane"], 0)):
            _later(r, r.item(r["target"], own_entry(r), 4), every)
        with r.otherwise():
            _cover_one(r, r["target"], _who(r, r["lane"]), every)
    return r


def _cover_one(r: Routine, clock: Value, who: Value, time: Value) -> None:
    r.call("tw_check_cover", "void", r["ctx"], r["block"], r["warp"], clock, who, time)


def _cover() -> Routine:
    """A clock covers one lane up to a time. If it has another one in its tail, that stands for its warp now."""
    r = Routine("tw_check_cover", "void", **WHO, clock="ptr", who="i32", time="i32")
    entry, inside = _entry_of(r, r["who"])
    with r.unless(inside):
        r.give()
    known = r.field(r.item(r["clock"], entry, 4), 0, "i32")
    with r.when(r.compare("icmp uge", known, r["time"])):
        r.give()
    tail = _tail(r, r["clock"])
    by, time = r.field(tail, _BY, "i32"), r.variable("i32", r["time"])
    with r.when(r.compare("icmp eq", by, r["who"])):
        time.put(r.intrinsic("llvm.umax", r["time"], r.field(tail, _TILL, "i32")))
    with r.otherwise():
        _widen_one(r, r["clock"])
    r.put(tail, _BY, r["who"])
    r.put(tail, _TILL, time.get())
    return r


def _widen() -> Routine:
    r = Routine("tw_check_widen", "void", **WHO, clock="ptr")
    _widen_one(r, r["clock"])
    tail = _tail(r, r["clock"])
    _later(r, r.item(r["clock"], own_entry(r), 4), r.field(tail, _EVERY, "i32"))
    r.put(tail, _EVERY, r.const("i32", 0))
    return r


def _widen_one(r: Routine, clock: Value) -> None:
    tail = _tail(r, clock)
    time = r.field(tail, _TILL, "i32")
    with r.unless(r.compare("icmp eq", time, 0)):
        entry, inside = _entry_of(r, r.field(tail, _BY, "i32"))
        with r.when(inside):
            _later(r, r.item(clock, entry, 4), time)
        r.put(tail, _TILL, r.const("i32", 0))


def _settle() -> Routine:
    r = Routine("tw_check_settle", "void", **WHO)
    keeper = _keeper(r)
    with r.unless(r.compare("icmp eq", r.field(keeper, 0, "i32"), 0)):
        join(r, own_clock(r), _private(r))
        r.fill(_private(r), 0, row_of(r))
        r.put(keeper, 0, r.const("i32", 0))
        r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r


def _release() -> Routine:
    """What this warp did so far, and what it knows of others, goes into a clock; of one lane alone what it did
    itself, and what its warp did before they met last.

    If the warp does nothing more before somebody has acquired it, time need not go on, and what is put down
    for it is that no time is too late. With ``after``, what is released may be used once the lanes have met.
    """
    r = Routine("tw_check_release", "void", **WHO, clock="ptr", goes_on="i32", lane="i32", after="i32")
    several, now = r.compare("icmp slt", r["lane"], 0), now_of(r)
    with r.when(several):
        settle(r)
    join(r, r["clock"], own_clock(r))
    mine = r.op("add", r["lane"], 1)
    with r.when(
        r.both(r.compare("icmp ne", mine, 0), r.compare("icmp eq", r.field(_keeper(r), 0, "i32"), mine))
    ):
        join(r, r["clock"], _private(r))
    with r.when(r.both(several, r.compare("icmp slt", r["after"], 0))):
        time = r.select(r.compare("icmp ne", r["goes_on"], 0), now, r.const("i32", FOREVER))
        r.put(r.item(r["clock"], own_entry(r), 4), 0, time)
    with r.otherwise():
        with r.when(several):
            r.put(_tail(r, r["clock"]), _EVERY, now)
        with r.otherwise():
            _cover_one(r, r["clock"], _who(r, r["lane"]), now)
    r.put(check_state(r), CHECK.NOW, r.op("add", now, r["goes_on"]))
    return r


def _acquire() -> Routine:
    r = Routine("tw_check_acquire", "void", **WHO, clock="ptr", lane="i32")
    with r.unless(r.compare("icmp slt", r["lane"], 0)):
        keeper, mine = _keeper(r), r.op("add", r["lane"], 1)
        with r.unless(r.compare("icmp eq", r.field(keeper, 0, "i32"), mine)):
            settle(r)
        r.put(keeper, 0, mine)
        join(r, _private(r), r["clock"], r["lane"])
        r.give()
    # NOTE: lanes of one warp may synchronise by what lies at an address, too: its own entry is joined as well.
    join(r, own_clock(r), r["clock"])
    synced(r, r.field(r.item(own_clock(r), own_entry(r), 4), 0, "i32"))
    r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r


def _known() -> Routine:
    """Whether what somebody (``other``) did at a time happened before what ``me`` does, of this warp."""
    r = Routine("tw_check_known", "i1", **WHO, other="i32", time="i32", me="i32")
    entry, inside = _entry_of(r, r["other"])
    with r.unless(inside):
        r.give(r.compare("icmp ne", r.field(check_state(r), CHECK.BLIND, "i64"), 0))
    mine = r.op("add", r.op("and", r["me"], _LANES), 1)
    own = r.compare("icmp eq", r.field(_keeper(r), 0, "i32"), mine)
    found = r.variable("i1", 0)
    for clock, counts in ((own_clock(r), Value("i1", "true")), (_private(r), own)):
        with r.when(counts):
            row = r.compare("icmp uge", r.field(r.item(clock, entry, 4), 0, "i32"), r["time"])
            tail = _tail(r, clock)
            apart = r.op("xor", r.field(tail, _BY, "i32"), r["other"])
            whole = r.compare("icmp eq", r.op("and", r["other"], _LANES), WHOLE)
            warp = r.both(r.compare("icmp eq", r.op("lshr", apart, LANE_BITS), 0), whole)
            those = r.op("or", r.compare("icmp eq", apart, 0), warp)
            till = r.compare("icmp uge", r.field(tail, _TILL, "i32"), r["time"])
            found.put(r.op("or", found.get(), r.op("or", row, r.both(those, till))))
    r.give(found.get())
    return r


def _met() -> Routine:
    """The lanes of a warp have met: what each of them did happened before what the others do now."""
    r = Routine("tw_check_met", "void", **WHO)
    settle(r)
    for wide in (0, 1):
        widen(r, of_scope(r, CLOCKS.RELEASED, wide))
    synced(r, now_of(r))
    tick(r)
    r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r
