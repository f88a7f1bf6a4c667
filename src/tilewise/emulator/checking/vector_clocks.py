"""Vector clocks of a checked launch: by warp, up to which time what each other warp did happened before.

The launch runs on one thread of the CPU, so the routines need no atomics. ``check_layout.py`` defines the terms.
A warp's own entry in its clock is the time of its last warp-wide synchronisation: for a lane, what the others of its
warp did up to then happened before.

A lane that synchronises alone (it sets a flag, arrives, waits) does so for itself: what it releases does not cover
what other lanes did since the last warp-wide synchronisation, and what it acquires they acquire at the next one. So a
clock has a *tail* behind its entries, for one lane that it covers further than the lane's warp; and what one lane alone
has acquired is in a *private* clock of its warp. There is one of each: if it is in use, the whole warp counts as
covered. Races may be missed by that, none are made up.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, FOREVER, TAIL, WHO
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, Ptr, Routine, routine
from tilewise.emulator.support.checked import accessor, serial_of

__all__ = [
    "ALL",
    "WARP_PARAMETERS",
    "acquire",
    "check_state",
    "clock_base",
    "clock_bytes",
    "clock_width",
    "clocks_of",
    "covered_lane",
    "has_private_clock",
    "index_of",
    "join",
    "lone_lane",
    "mark_synced",
    "merge_private_clock",
    "now_of",
    "ordered_before",
    "own_clock",
    "own_entry",
    "raise_to",
    "release",
    "scope_clock",
    "slot_of_warp",
    "tick",
    "update_least",
    "warps_of_cluster",
    "widen",
]

WARP_PARAMETERS = ("ctx", "block", "warp")  # of a routine that a warp calls
ALL = Value("i32", "-1")  # in place of a lane that synchronises: several lanes do
_TRUE = Value("i32", "1")
_BY, _TILL = 0, 4  # in a clock's tail: one lane, and up to when; 0 if there is none
_FENCED_LANES = 8  # in the tail of a fence's clock: up to when it covers any one lane of this warp; 0 if none


def check_state(r: Routine) -> Value:
    return r.field(r["ctx"], LAUNCH.WATCH, "ptr")


def now_of(r: Routine) -> Value:
    return r.field(check_state(r), CHECK.NOW, "i32")


def tick(r: Routine) -> None:
    r.change(check_state(r), CHECK.NOW, "add", 1)


def index_of(r: Routine) -> Value:
    """The index of a warp within its cluster, as 64 bits."""
    warps = r.field(r["ctx"], LAUNCH.WARPS, "i64")
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    return r.op("add", r.op("mul", rank, warps), r.wide(r.field(r["warp"], WARP.INDEX, "i32")))


def warps_of_cluster(r: Routine) -> Value:
    return r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))


def clock_width(r: Routine) -> Value:
    return r.field(check_state(r), CHECK.WIDTH, "i64")


def clocks_of(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.CLOCKS, "ptr")


def clock_bytes(r: Routine) -> Value:
    """The size of a clock in bytes."""
    return r.op("add", r.op("mul", clock_width(r), 4), TAIL)


def own_clock(r: Routine) -> Value:
    return r.at(r.field(clocks_of(r), CLOCKS.WARPS, "ptr"), r.op("mul", index_of(r), clock_bytes(r)))


def clock_base(r: Routine) -> Value:
    """The serial number of the warp that has the first entry of clocks, as 64 bits."""
    warps = warps_of_cluster(r)
    mine = r.wide(serial_of(r))
    base = r.op("sub", mine, r.op("urem", mine, warps))
    grid_wide = r.differs(r.field(check_state(r), CHECK.GRID_WIDE, "i64"), 0)
    return r.select(grid_wide, 0, base)


def own_entry(r: Routine) -> Value:
    """The index of a warp's own entry in a clock."""
    return r.op("sub", r.wide(serial_of(r)), clock_base(r))


def scope_clock(r: Routine, field: int, wide: int) -> Value:
    """A warp's clock of fences (RELEASED or PENDING) for the block's scope, or for wider ones."""
    row = r.op("add", r.op("mul", index_of(r), 2), wide)
    return r.at(r.field(clocks_of(r), field, "ptr"), r.op("mul", row, clock_bytes(r)))


def lone_lane(r: Routine, mask: Value) -> Value:
    """The lane that synchronises alone, while others of its warp are there; else ``ALL``."""
    first = r.find_lowest(mask)
    alone = r.equals(r.op("and", mask, r.op("sub", mask, 1)), 0)
    live = r.field(r["warp"], WARP.LIVE, "i32")
    others = r.differs(r.op("and", live, r.op("sub", live, 1)), 0)
    return r.select(r.both(alone, others), first, ALL)


def slot_of_warp(r: Routine, place: int) -> Value:
    """Return the pointer to a warp's number of 32 bits in one of the tables of ``CLOCKS``."""
    return r.item(r.field(clocks_of(r), place, "ptr"), index_of(r), 4)


def _tail(r: Routine, clock: Value) -> Value:
    return r.at(clock, r.op("mul", clock_width(r), 4))


def _private_lane(r: Routine) -> Value:
    """Pointer to the lane, and 1 more, that owns this warp's private clock; 0 if it is not in use."""
    return slot_of_warp(r, CLOCKS.PRIVATE_LANE)


def _private_clock(r: Routine) -> Value:
    return r.at(r.field(clocks_of(r), CLOCKS.PRIVATE, "ptr"), r.op("mul", index_of(r), clock_bytes(r)))


def covered_lane(r: Routine, clock: Value) -> Value:
    """The lane that a clock covers further than the lane's warp; meaningless if the tail is not in use."""
    return r.field(_tail(r, clock), _BY, "i32")


def has_private_clock(r: Routine) -> Value:
    """Whether a lane of this warp has acquired what the others have not."""
    return r.differs(r.field(_private_lane(r), 0, "i32"), 0)


def mark_synced(r: Routine, time: Value) -> None:
    """Record that the lanes of this warp have synchronised with one another at a time."""
    for place in (slot_of_warp(r, CLOCKS.SYNCED), r.item(own_clock(r), own_entry(r), 4)):
        raise_to(r, place, time)


def raise_to(r: Routine, place: Value, time: Value) -> None:
    """Raise the time at a place to one that is later."""
    r.put(place, 0, r.intrinsic("llvm.umax", r.field(place, 0, "i32"), time))


# -- the routines ------------------------------------------------------------------------------------
@routine("tw_check_least", "void", *WARP_PARAMETERS)
def update_least(r: Routine) -> None:
    """Recompute LEAST of a warp whose clock has changed: the least of the entries of its block."""
    clock = own_clock(r)
    start = r.op("sub", r.wide(r.field(r["block"], BLOCK.SERIAL, "i32")), clock_base(r))
    least = r.variable("i32", -1)
    with r.count(r.field(r["ctx"], LAUNCH.WARPS, "i64")) as i:
        least.put(r.intrinsic("llvm.umin", least.get(), r.element(clock, r.op("add", start, i), "i32")))
    r.put(slot_of_warp(r, CLOCKS.LEAST), 0, least.get())


def _entry_of(r: Routine, who: Value) -> tuple[Value, Value]:
    """The index of an accessor's warp in a clock, and whether the clock has it."""
    entry = r.op("sub", r.wide(r.op("lshr", who, WHO.LANE_BITS)), clock_base(r))
    return entry, r.is_below(entry, clock_width(r))


@routine("tw_check_join", "void", *WARP_PARAMETERS)
def join(r: Routine, target: Ptr, source: Ptr, lane: I32 = ALL) -> None:
    """Join ``source`` into ``target``, on behalf of a lane."""
    with r.count(clock_width(r)) as i:
        raise_to(r, r.item(target, i, 4), r.element(source, i, "i32"))
    tail = _tail(r, source)
    time, every = r.field(tail, _TILL, "i32"), r.field(tail, _FENCED_LANES, "i32")
    with r.when(r.differs(time, 0)):
        _cover(r, target, r.field(tail, _BY, "i32"), time)
    with r.when(r.differs(every, 0)):
        with r.when(r.compare("icmp slt", lane, 0)):
            raise_to(r, r.item(target, own_entry(r), 4), every)
        with r.otherwise():
            _cover(r, target, accessor(r, lane), every)


@routine("tw_check_cover", "void", *WARP_PARAMETERS)
def _cover(r: Routine, clock: Ptr, who: I32, time: I32) -> None:
    """Have a clock cover one lane up to a time. Another lane in its tail is extended to its whole warp."""
    entry, inside = _entry_of(r, who)
    r.give_if(r.negation(inside))
    known = r.element(clock, entry, "i32")
    r.give_if(r.is_at_least(known, time))
    tail = _tail(r, clock)
    by, till = r.field(tail, _BY, "i32"), r.variable("i32", time)
    with r.when(r.equals(by, who)):
        till.put(r.intrinsic("llvm.umax", time, r.field(tail, _TILL, "i32")))
    with r.otherwise():
        _fold_tail(r, clock)
    r.put(tail, _BY, who)
    r.put(tail, _TILL, till.get())


@routine("tw_check_widen", "void", *WARP_PARAMETERS)
def widen(r: Routine, clock: Ptr) -> None:
    """Extend what a clock's tail covers to the lane's whole warp."""
    _fold_tail(r, clock)
    tail = _tail(r, clock)
    raise_to(r, r.item(clock, own_entry(r), 4), r.field(tail, _FENCED_LANES, "i32"))
    r.put(tail, _FENCED_LANES, 0)


def _fold_tail(r: Routine, clock: Value) -> None:
    tail = _tail(r, clock)
    time = r.field(tail, _TILL, "i32")
    with r.when(r.differs(time, 0)):
        entry, inside = _entry_of(r, r.field(tail, _BY, "i32"))
        with r.when(inside):
            raise_to(r, r.item(clock, entry, 4), time)
        r.put(tail, _TILL, 0)


@routine("tw_check_settle", "void", *WARP_PARAMETERS)
def merge_private_clock(r: Routine) -> None:
    """Join what one lane alone has acquired into its warp's clock."""
    keeper = _private_lane(r)
    with r.when(r.differs(r.field(keeper, 0, "i32"), 0)):
        join(r, own_clock(r), _private_clock(r))
        r.fill(_private_clock(r), 0, clock_bytes(r))
        r.put(keeper, 0, 0)
        update_least(r)


@routine("tw_check_release", "void", *WARP_PARAMETERS)
def release(r: Routine, clock: Ptr, goes_on: I32 = _TRUE, lane: I32 = ALL, after: I32 = ALL) -> None:
    """Join into a clock what this warp did so far and has acquired; of one lane alone what it did itself, and what
    its warp did before its last warp-wide synchronisation.

    If the warp does nothing more before another one acquires it (``goes_on`` is 0), time need not go on, and the warp's
    entry is FOREVER. With ``after``, the release counts from the next warp-wide synchronisation on.
    """
    several, now = r.compare("icmp slt", lane, 0), now_of(r)
    with r.when(several):
        merge_private_clock(r)
    join(r, clock, own_clock(r))
    mine = r.op("add", lane, 1)
    with r.when(r.both(r.differs(mine, 0), r.equals(r.field(_private_lane(r), 0, "i32"), mine))):
        join(r, clock, _private_clock(r))
    with r.when(r.both(several, r.compare("icmp slt", after, 0))):
        time = r.select(r.differs(goes_on, 0), now, FOREVER)
        r.put(r.item(clock, own_entry(r), 4), 0, time)
    with r.otherwise():
        with r.when(several):
            r.put(_tail(r, clock), _FENCED_LANES, now)
        with r.otherwise():
            _cover(r, clock, accessor(r, lane), now)
    r.put(check_state(r), CHECK.NOW, r.op("add", now, goes_on))


@routine("tw_check_acquire", "void", *WARP_PARAMETERS)
def acquire(r: Routine, clock: Ptr, lane: I32 = ALL) -> None:
    """Join a clock into that of this warp, or into the private clock of one lane of it."""
    with r.unless(r.compare("icmp slt", lane, 0)):
        keeper, mine = _private_lane(r), r.op("add", lane, 1)
        with r.when(r.differs(r.field(keeper, 0, "i32"), mine)):
            merge_private_clock(r)
        r.put(keeper, 0, mine)
        join(r, _private_clock(r), clock, lane)
        r.give()
    # NOTE: lanes of one warp may synchronise by what lies at an address, too: its own entry is joined as well.
    join(r, own_clock(r), clock)
    mark_synced(r, r.element(own_clock(r), own_entry(r), "i32"))
    update_least(r)


@routine("tw_check_known", "i1", *WARP_PARAMETERS)
def ordered_before(r: Routine, other: I32, time: I32, me: I32) -> None:
    """Whether the access of ``other`` at a time happened before one of ``me``, a lane of this warp."""
    entry, inside = _entry_of(r, other)
    with r.unless(inside):
        r.give(r.differs(r.field(check_state(r), CHECK.INCOMPLETE, "i64"), 0))
    mine = r.op("add", r.op("and", me, WHO.LANE_MASK), 1)
    own = r.equals(r.field(_private_lane(r), 0, "i32"), mine)
    found = r.variable("i1", 0)
    for clock, counts in ((own_clock(r), Value("i1", "true")), (_private_clock(r), own)):
        with r.when(counts):
            row = r.is_at_least(r.element(clock, entry, "i32"), time)
            tail = _tail(r, clock)
            apart = r.op("xor", r.field(tail, _BY, "i32"), other)
            whole = r.equals(r.op("and", other, WHO.LANE_MASK), WHO.WHOLE)
            warp = r.both(r.equals(r.op("lshr", apart, WHO.LANE_BITS), 0), whole)
            those = r.op("or", r.equals(apart, 0), warp)
            till = r.is_at_least(r.field(tail, _TILL, "i32"), time)
            found.put(r.op("or", found.get(), r.op("or", row, r.both(those, till))))
    r.give(found.get())


@routine("tw_check_met", "void", *WARP_PARAMETERS)
def _sync_warp(r: Routine) -> None:
    """Synchronise the lanes of a warp: what each did so far happened before what the others do from now on."""
    merge_private_clock(r)
    for wide in (0, 1):
        widen(r, scope_clock(r, CLOCKS.RELEASED, wide))
    mark_synced(r, now_of(r))
    tick(r)
    update_least(r)
