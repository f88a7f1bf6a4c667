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

from tilewise.emulator.check_layout import CELLS, CHECK, CLOCK, CLOCKS, SYNC, WHO, FindingKind
from tilewise.emulator.checking.check_routine import ALL, CheckRoutine, check_routine
from tilewise.emulator.layout import BLOCK, LAUNCH
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr, routine
from tilewise.emulator.support.checked import accessor, record_finding

__all__ = [
    "COVERED_LANE",
    "acquire",
    "join",
    "merge_private_clock",
    "ordered_before",
    "release",
    "sync_by_one",
    "update_least",
    "widen",
]

_HASH_FACTOR = 0x9E3779B97F4A7C15
_TRUE, _FALSE = Value("i32", "1"), Value("i32", "0")
COVERED_LANE, _TILL = 0, 4  # in a clock's tail: one lane, and up to when; 0 if there is none
_FENCED_LANES = 8  # in the tail of a fence's clock: up to when it covers any one lane of this warp; 0 if none


@check_routine("tw_check_least")
def update_least(r: CheckRoutine) -> None:
    """Recompute LEAST of a warp whose clock has changed: the least of the entries of its block."""
    clock = r.own_clock()
    start = r.wide(r.field(r["block"], BLOCK.SERIAL, "i32")) - r.clock_base()
    least = r.variable("i32", -1)
    with r.count(r.field(r["ctx"], LAUNCH.WARPS, "i64")) as i:
        least.put(r.intrinsic("llvm.umin", least.get(), r.element(clock, start + i, "i32")))
    r.put(r.slot_of_warp(CLOCKS.LEAST), 0, least.get())


def _entry_of(r: CheckRoutine, who: Value) -> tuple[Value, Value]:
    """The index of an accessor's warp in a clock, and whether the clock has it."""
    entry = r.wide(who >> WHO.LANE_BITS) - r.clock_base()
    return entry, r.is_below(entry, r.clock_width())


@check_routine("tw_check_join")
def join(r: CheckRoutine, target: Ptr, source: Ptr, lane: I32 = ALL, own: I32 = _FALSE) -> None:
    """Join ``source`` into ``target``, on behalf of a lane; with ``own`` without what another of its warp did alone."""
    with r.count(r.clock_width()) as i:
        r.raise_to(r.item(target, i, 4), r.element(source, i, "i32"))
    tail = r.tail_of(source)
    time, every = r.field(tail, _TILL, "i32"), r.field(tail, _FENCED_LANES, "i32")
    who = r.field(tail, COVERED_LANE, "i32")
    apart = who ^ accessor(r, lane)
    neighbour = r.both(r.differs(apart, 0), r.equals(apart >> WHO.LANE_BITS, 0))
    left_out = r.both(neighbour, r.both(r.differs(own, 0), r.compare("icmp sge", lane, 0)))
    with r.when(r.both(r.differs(time, 0), r.negation(left_out))):
        _cover(r, target, who, time)
    with r.when(r.differs(every, 0)):
        with r.when(r.compare("icmp slt", lane, 0)):
            r.raise_to(r.item(target, r.own_entry(), 4), every)
        with r.otherwise():
            _cover(r, target, accessor(r, lane), every)


@check_routine("tw_check_cover")
def _cover(r: CheckRoutine, clock: Ptr, who: I32, time: I32) -> None:
    """Have a clock cover one lane up to a time. Another lane in its tail is extended to its whole warp."""
    entry, inside = _entry_of(r, who)
    r.give_if(r.negation(inside))
    r.give_if(r.is_at_least(r.element(clock, entry, "i32"), time))
    tail = r.tail_of(clock)
    by, till = r.field(tail, COVERED_LANE, "i32"), r.variable("i32", time)
    with r.when(r.equals(by, who)):
        till.put(r.intrinsic("llvm.umax", time, r.field(tail, _TILL, "i32")))
    with r.otherwise():
        _fold_tail(r, clock)
    r.put(tail, COVERED_LANE, who)
    r.put(tail, _TILL, till.get())


@check_routine("tw_check_widen")
def widen(r: CheckRoutine, clock: Ptr) -> None:
    """Extend what a clock's tail covers to the lane's whole warp."""
    _fold_tail(r, clock)
    tail = r.tail_of(clock)
    r.raise_to(r.item(clock, r.own_entry(), 4), r.field(tail, _FENCED_LANES, "i32"))
    r.put(tail, _FENCED_LANES, 0)


def _fold_tail(r: CheckRoutine, clock: Value) -> None:
    tail = r.tail_of(clock)
    time = r.field(tail, _TILL, "i32")
    with r.when(r.differs(time, 0)):
        entry, inside = _entry_of(r, r.field(tail, COVERED_LANE, "i32"))
        with r.when(inside):
            r.raise_to(r.item(clock, entry, 4), time)
        r.put(tail, _TILL, 0)


@check_routine("tw_check_settle")
def merge_private_clock(r: CheckRoutine) -> None:
    """Join what one lane alone has acquired into its warp's clock."""
    keeper = r.private_lane()
    with r.when(r.differs(r.field(keeper, 0, "i32"), 0)):
        join(r, r.own_clock(), r.own_clock(CLOCKS.PRIVATE))
        r.fill(r.own_clock(CLOCKS.PRIVATE), 0, r.clock_bytes())
        r.put(keeper, 0, 0)
        update_least(r)


@check_routine("tw_check_release")
def release(r: CheckRoutine, clock: Ptr, goes_on: I32 = _TRUE, lane: I32 = ALL, after: I32 = ALL) -> None:
    """Join into a clock what this warp did so far and has acquired; of one lane alone what it did itself, and what
    its warp did before its last warp-wide synchronisation.

    If the warp does nothing more before another one acquires it (``goes_on`` is 0), time need not go on, and the warp's
    entry is CLOCK.FOREVER. With ``after``, the release counts from the next warp-wide synchronisation on.
    """
    several, now = r.compare("icmp slt", lane, 0), r.now()
    with r.when(several):
        merge_private_clock(r)
    join(r, clock, r.own_clock())
    mine = lane + 1
    with r.when(r.both(r.differs(mine, 0), r.equals(r.field(r.private_lane(), 0, "i32"), mine))):
        join(r, clock, r.own_clock(CLOCKS.PRIVATE))
    with r.when(r.both(several, r.compare("icmp slt", after, 0))):
        time = r.select(r.differs(goes_on, 0), now, CLOCK.FOREVER)
        r.put(r.item(clock, r.own_entry(), 4), 0, time)
    with r.otherwise():
        with r.when(several):
            r.put(r.tail_of(clock), _FENCED_LANES, now)
        with r.otherwise():
            _cover(r, clock, accessor(r, lane), now)
    r.put(r.state(), CHECK.NOW, now + goes_on)


@check_routine("tw_check_acquire")
def acquire(r: CheckRoutine, clock: Ptr, lane: I32 = ALL) -> None:
    """Join a clock into that of this warp, or into the private clock of one lane of it."""
    with r.unless(r.compare("icmp slt", lane, 0)):
        keeper, mine = r.private_lane(), lane + 1
        with r.when(r.differs(r.field(keeper, 0, "i32"), mine)):
            merge_private_clock(r)
        r.put(keeper, 0, mine)
        join(r, r.own_clock(CLOCKS.PRIVATE), clock, lane)
        r.give()
    # NOTE: lanes of one warp may synchronise by what lies at an address, too: its own entry is joined as well.
    join(r, r.own_clock(), clock)
    r.mark_synced(r.element(r.own_clock(), r.own_entry(), "i32"))
    update_least(r)


@check_routine("tw_check_known", "i1")
def ordered_before(r: CheckRoutine, other: I32, time: I32, me: I32) -> None:
    """Whether the access of ``other`` at a time happened before one of ``me``, a lane of this warp."""
    entry, inside = _entry_of(r, other)
    r.give_if(r.negation(inside), r.differs(r.check_field(CHECK.INCOMPLETE), 0))
    mine = (me & WHO.LANE_MASK) + 1
    own = r.equals(r.field(r.private_lane(), 0, "i32"), mine)
    found = r.variable("i1", 0)
    for clock, counts in ((r.own_clock(), Value("i1", "true")), (r.own_clock(CLOCKS.PRIVATE), own)):
        with r.when(counts):
            row = r.is_at_least(r.element(clock, entry, "i32"), time)
            tail = r.tail_of(clock)
            apart = r.field(tail, COVERED_LANE, "i32") ^ other
            whole = r.equals(other & WHO.LANE_MASK, WHO.WHOLE)
            warp = r.both(r.equals(apart >> WHO.LANE_BITS, 0), whole)
            those = r.equals(apart, 0) | warp
            till = r.is_at_least(r.field(tail, _TILL, "i32"), time)
            found.put(found.get() | (row | r.both(those, till)))
    r.give(found.get())


@check_routine("tw_check_met")
def _sync_warp(r: CheckRoutine) -> None:
    """Synchronise the lanes of a warp: what each did so far happened before what the others do from now on."""
    merge_private_clock(r)
    for wide in (0, 1):
        widen(r, r.scope_clock(CLOCKS.RELEASED, wide))
    r.mark_synced(r.now())
    r.tick()
    update_least(r)


# -- clocks by the address that warps synchronise by --------------------------------------------------
@routine("tw_check_spot", "ptr", "ctx", "block")
def _find_sync_var(r: CheckRoutine, shared: I32, key: I64) -> None:
    """Key → clock of a sync variable, in the hash table of its cluster or of the launch; a new one is entered."""
    clocks, state, inside = r.clocks(), r.state(), r.differs(shared, 0)
    here, everywhere = r.field(clocks, CLOCKS.SYNC_VARS, "ptr"), r.field(state, CHECK.SYNC_VARS, "ptr")
    start = r.select(inside, here, everywhere)
    few, many = r.field(clocks, CLOCKS.SYNC_VAR_COUNT, "i64"), r.field(state, CHECK.SYNC_VAR_COUNT, "i64")
    count = r.select(inside, few, many)
    row = r.clock_bytes()
    size, wanted = row + SYNC.KEY_BYTES, key + 1
    slot = r.variable("i64", (wanted * _HASH_FACTOR) >> 40)
    last = count - 1
    with r.count(count):
        at = slot.get() & last
        slot.put(at + 1)
        spot = r.at(start, at * size)
        there = r.field(spot, 0, "i64")
        with r.when(r.equals(there, 0)):
            r.put(spot, 0, wanted)
            r.fill(r.at(spot, SYNC.KEY_BYTES), 0, row)
            r.give(r.at(spot, SYNC.KEY_BYTES))
        r.give_if(r.equals(there, wanted), r.at(spot, SYNC.KEY_BYTES))
    # NOTE: all are taken. Two addresses that share one seem to synchronise: races may be missed, none made up.
    r.give(r.at(r.at(start, (slot.get() & last) * size), SYNC.KEY_BYTES))


@check_routine("tw_check_one")
def sync_by_one(r: CheckRoutine, shared: I32, key: I64, how: I32, wide: I32, lane: I32) -> None:
    """A warp, or one lane of it, synchronises by one sync variable, of its cluster (``shared``) or of the launch."""
    spot = _find_sync_var(r, shared, key)
    far = r.has_any(wide, shared ^ 1)
    with r.when(r.has_any(how, SYNC.RELAXED)):
        both = [
            [r.scope_clock(field, wider) for wider in (1, 0)] for field in (CLOCKS.RELEASED, CLOCKS.PENDING)
        ]
        released, pending = (r.select(far, *clocks) for clocks in both)
        with r.when(r.has_any(how, SYNC.RELEASE)):
            join(r, spot, released, lane, 1)
        with r.when(r.has_any(how, SYNC.ACQUIRE)):
            join(r, pending, spot)
        r.give()
    with r.when(r.has_any(how, SYNC.ACQUIRE)):
        acquire(r, spot, lane)
    with r.when(r.has_any(how, SYNC.RELEASE)):
        release(r, spot, 1, lane)


# -- the beginning of a block ----------------------------------------------------------------------
@routine("tw_check_begin", "void", "ctx", "block")
def _begin_block(r: CheckRoutine, cluster: I64) -> None:
    """Mark a block's shared memory as uninitialised; with the first block of a cluster, reset the cluster's clocks."""
    cells = r.field(r["block"], BLOCK.CELLS, "ptr")
    r.give_if(r.is_null(cells))
    shared = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    stride = r.check_field(CHECK.STRIDE)
    r.fill(r.at(cells, stride * CELLS.STATE), 0x0F, (shared + 3) & -4)
    rank = r.field(r["block"], BLOCK.RANK, "i32")
    number = cluster * r.field(r["ctx"], LAUNCH.CLUSTER, "i64") + r.wide(rank)
    first = number * r.field(r["ctx"], LAUNCH.WARPS, "i64")
    r.put(r["block"], BLOCK.SERIAL, r.narrow(first))
    r.put(r["block"], BLOCK.USED, 0)
    with r.when(r.equals(rank, 0)):
        _begin_cluster(r, first)


def _begin_cluster(r: CheckRoutine, first: Value) -> None:
    clocks, warps, row, born = r.clocks(), r.warps_of_cluster(), r.clock_bytes(), r.now()
    r.tick()
    r.put(clocks, CLOCKS.BEGAN, r.wide(born))
    r.put(clocks, CLOCKS.COUNT, r.const("i64", 0))
    zeros, end = (r.field(clocks, field, "i64") for field in (CLOCKS.WARPS, CLOCKS.FENCES))
    r.fill(r.as_pointer(zeros), 0, end - zeros)
    size = row + SYNC.KEY_BYTES
    with r.count(r.field(clocks, CLOCKS.SYNC_VAR_COUNT, "i64")) as i:
        r.put(r.at(r.field(clocks, CLOCKS.SYNC_VARS, "ptr"), i * size), 0, r.const("i64", 0))
    start = r.select(r.differs(r.check_field(CHECK.GRID_WIDE), 0), first, 0)
    with r.count(warps) as i:
        clock = r.at(r.field(clocks, CLOCKS.WARPS, "ptr"), i * row)
        with r.count(warps) as j:
            r.put(r.item(clock, start + j, 4), 0, born)
        for offset in (CLOCKS.SYNCED, CLOCKS.LEAST):
            r.put(r.item(r.field(clocks, offset, "ptr"), i, 4), 0, born)


@check_routine("tw_check_named")
def _report_unnamed_lanes(r: CheckRoutine, mask: I32, line: I32) -> None:
    """Report lanes (none, mostly) that run a warp-wide instruction whose mask does not name them."""
    r.give_if(r.equals(mask, 0))
    record_finding(r, FindingKind.BAD_MASK, accessor(r, r.find_lowest(mask, True)))


@check_routine("tw_check_took")
def _note_allocations(r: CheckRoutine, addresses: Ptr, mask: I32, line: I32) -> None:
    """Record who allocated blocks of the heap, and in which line, behind the sizes that lie at the addresses."""
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        place = r.as_pointer(address)
        r.put(place, 4, line)
        r.put(place, 8, accessor(r, lane))
