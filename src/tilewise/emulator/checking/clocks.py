"""What a checked launch does at every synchronisation: the clocks of its warps. And how findings are kept.

The launch runs on one thread of the CPU, so all of this is in order. See ``check_layout.py`` for the words.
A warp's clock has, as the warp's own entry, the time when its lanes met last: for a lane, what the others of
its warp did up to then happened before.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import (
    ACQUIRE,
    BARRIERS_OF_BLOCK,
    BLOCKWIDE,
    CELLS,
    CHECK,
    CLOCKS,
    FINDING,
    FOREVER,
    LANE_BITS,
    RELAXED,
    RELEASE,
    SEEN,
    SPOT_KEY,
)
from tilewise.emulator.layout import (
    BARRIER,
    BLOCK,
    GENERIC_SHARED,
    LAUNCH,
    RANK_SHIFT,
    WARP,
    WINDOW,
    Space,
)
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = [
    "WHO",
    "check_state",
    "clocks_of",
    "index_of",
    "now_of",
    "own_clock",
    "routines",
    "serial_of",
    "tick",
]

WHO = {"ctx": "ptr", "block": "ptr", "warp": "ptr"}
_NULL = Value("ptr", "null")
_CLUSTER_BARRIER = BARRIERS_OF_BLOCK - 1
_SPREAD = 0x9E3779B97F4A7C15


def routines() -> list[Routine]:
    return [
        *(_begin(), _finding()),
        *(_least(), _release(), _acquire(), _fence(), _proxy(), _spot(), _sync(), _one(), _arrive()),
        *(_through(), _met()),
    ]


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


def _width(r: Routine) -> Value:
    return r.field(check_state(r), CHECK.WIDTH, "i64")


def clocks_of(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.CLOCKS, "ptr")


def own_clock(r: Routine) -> Value:
    start = r.field(clocks_of(r), CLOCKS.WARPS, "ptr")
    return r.at(start, r.op("mul", r.op("mul", index_of(r), _width(r)), 4))


def clock_base(r: Routine) -> Value:
    """The number of the warp that has the first entry of clocks, as 64 bits."""
    warps = r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))
    mine = r.wide(serial_of(r))
    base = r.op("sub", mine, r.op("urem", mine, warps))
    talks = r.compare("icmp ne", r.field(check_state(r), CHECK.TALKS, "i64"), 0)
    return r.select(talks, r.const("i64", 0), base)


def _own_entry(r: Routine) -> Value:
    """Where a warp has its own entry in a clock."""
    return r.op("sub", r.wide(serial_of(r)), clock_base(r))


# -- the start of a block -----------------------------------------------------------------------------
def _begin() -> Routine:
    """A block begins: nothing is known of its shared memory; with the first of a cluster, of no clock."""
    r = Routine("tw_check_begin", "void", ctx="ptr", block="ptr")
    cells = r.field(r["block"], BLOCK.CELLS, "ptr")
    with r.when(r.compare("icmp eq", cells, _NULL)):
        r.give()
    shared = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    stride = r.field(check_state(r), CHECK.STRIDE, "i64")
    r.fill(r.at(cells, r.op("mul", stride, CELLS.STATE)), 0x0F, r.op("and", r.op("add", shared, 3), -4))
    rank = r.field(r["block"], BLOCK.RANK, "i32")
    number = r.wide(r.field(r["block"], BLOCK.CLUSTER_Z, "i32"))
    for offset, size in ((BLOCK.CLUSTER_Y, LAUNCH.CLUSTERS_Y), (BLOCK.CLUSTER_X, LAUNCH.CLUSTERS_X)):
        here = r.wide(r.field(r["block"], offset, "i32"))
        number = r.op("add", r.op("mul", number, r.field(r["ctx"], size, "i64")), here)
    number = r.op("add", r.op("mul", number, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), r.wide(rank))
    first = r.op("mul", number, r.field(r["ctx"], LAUNCH.WARPS, "i64"))
    r.put(r["block"], BLOCK.SERIAL, r.cast("trunc", first, "i32"))
    r.put(r["block"], BLOCK.USED, r.const("i32", 0))
    with r.when(r.compare("icmp eq", rank, 0)):
        _begin_cluster(r, first)
    return r


def _begin_cluster(r: Routine, first: Value) -> None:
    clocks, width = clocks_of(r), _width(r)
    warps = r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))
    row = r.op("mul", width, 4)
    born = now_of(r)
    tick(r)
    r.put(clocks, CLOCKS.BORN, r.wide(born))
    r.put(clocks, CLOCKS.COUNT, r.const("i64", 0))
    for offset, bytes_ in (
        (CLOCKS.WARPS, r.op("mul", warps, row)),
        (CLOCKS.RELEASED, r.op("mul", r.op("mul", warps, row), 2)),
        (CLOCKS.PENDING, r.op("mul", r.op("mul", warps, row), 2)),
        (CLOCKS.FENCED, r.op("mul", warps, 4)),
        (CLOCKS.CAME, r.op("mul", warps, (BARRIERS_OF_BLOCK + 1) * 4)),
        (CLOCKS.GROUPS, r.op("mul", warps, 3 * 128)),
    ):
        r.fill(r.field(clocks, offset, "ptr"), 0, bytes_)
    size = r.op("add", row, SPOT_KEY)
    with r.count(r.field(clocks, CLOCKS.SPOT_COUNT, "i64")) as i:
        r.put(r.at(r.field(clocks, CLOCKS.SPOTS, "ptr"), r.op("mul", i, size)), 0, r.const("i64", 0))
    talks = r.compare("icmp ne", r.field(check_state(r), CHECK.TALKS, "i64"), 0)
    start = r.select(talks, first, r.const("i64", 0))
    with r.count(warps) as i:
        clock = r.at(r.field(clocks, CLOCKS.WARPS, "ptr"), r.op("mul", i, row))
        with r.count(warps) as j:
            r.put(r.item(clock, r.op("add", start, j), 4), 0, born)
        for offset in (CLOCKS.SYNCED, CLOCKS.LEAST):
            r.put(r.item(r.field(clocks, offset, "ptr"), i, 4), 0, born)


# -- findings -----------------------------------------------------------------------------------------
def _finding() -> Routine:
    names = {"kind": "i32", "space": "i32", "line": "i32", "other_line": "i32"}
    more = {"who": "i32", "other": "i32", "bytes": "i32", "flags": "i32"}
    r = Routine("tw_check_finding", "void", ctx="ptr", **names, address="i64", **more)
    state = check_state(r)
    count, start = r.field(state, CHECK.COUNT, "i64"), r.field(state, CHECK.FINDINGS, "ptr")
    with r.count(count) as i:
        known = r.item(start, i, FINDING.SIZE)
        pairs = ((FINDING.KIND, "kind"), (FINDING.LINE, "line"), (FINDING.OTHER_LINE, "other_line"))
        same = r.both(*(r.compare("icmp eq", r.field(known, at, "i32"), r[name]) for at, name in pairs))
        with r.when(same):
            r.put(known, FINDING.COUNT, r.op("add", r.field(known, FINDING.COUNT, "i64"), 1))
            r.give()
    with r.when(r.compare("icmp uge", count, r.field(state, CHECK.CAPACITY, "i64"))):
        r.put(state, CHECK.DROPPED, r.op("add", r.field(state, CHECK.DROPPED, "i64"), 1))
        r.give()
    fresh = r.item(start, count, FINDING.SIZE)
    r.put(state, CHECK.COUNT, r.op("add", count, 1))
    for at, name in (
        (FINDING.KIND, "kind"),
        (FINDING.SPACE, "space"),
        (FINDING.LINE, "line"),
        (FINDING.OTHER_LINE, "other_line"),
        (FINDING.ADDRESS, "address"),
        (FINDING.WHO, "who"),
        (FINDING.OTHER, "other"),
        (FINDING.BYTES, "bytes"),
        (FINDING.FLAGS, "flags"),
    ):
        r.put(fresh, at, r[name])
    r.put(fresh, FINDING.COUNT, r.const("i64", 1))
    return r


# -- clocks -------------------------------------------------------------------------------------------
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
    r.put(r.item(r.field(clocks_of(r), CLOCKS.LEAST, "ptr"), index_of(r), 4), 0, least.get())
    return r


def _release() -> Routine:
    """What this warp did so far, and what it knows of others, goes into a clock.

    If the warp does nothing more before somebody has acquired it, time need not go on, and what is put down
    for it is that no time is too late.
    """
    r = Routine("tw_check_release", "void", **WHO, clock="ptr", goes_on="i32")
    _join(r, r["clock"], own_clock(r))
    time = r.select(r.compare("icmp ne", r["goes_on"], 0), now_of(r), r.const("i32", FOREVER))
    r.put(r.item(r["clock"], _own_entry(r), 4), 0, time)
    r.put(check_state(r), CHECK.NOW, r.op("add", now_of(r), r["goes_on"]))
    return r


def _acquire() -> Routine:
    """What a clock says happened before what this warp does from now on."""
    r = Routine("tw_check_acquire", "void", **WHO, clock="ptr")
    # NOTE: lanes of one warp may synchronise by what lies at an address, too: its own entry is joined as well.
    _join(r, own_clock(r), r["clock"])
    _synced(r, r.field(r.item(own_clock(r), _own_entry(r), 4), 0, "i32"))
    r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r


def _join(r: Routine, target: Value, source: Value) -> None:
    with r.count(_width(r)) as i:
        place = r.item(target, i, 4)
        later = r.intrinsic("llvm.umax", r.field(place, 0, "i32"), r.field(r.item(source, i, 4), 0, "i32"))
        r.put(place, 0, later)


def _of_scope(r: Routine, field: int, wide: int) -> Value:
    """The clock of a warp for the block's scope, or for wider ones."""
    row = r.op("add", r.op("mul", index_of(r), 2), wide)
    return r.at(r.field(clocks_of(r), field, "ptr"), r.op("mul", r.op("mul", row, _width(r)), 4))


def _fence() -> Routine:
    """A fence of the block's scope, or of a wider one: relaxed accesses before it acquire, those after it
    release."""
    r = Routine("tw_check_fence", "void", **WHO, wide="i32")
    far = r.compare("icmp ne", r["wide"], 0)
    for wide in (0, 1):
        with r.when(far if wide else Value("i1", "true")):
            released, pending = _of_scope(r, CLOCKS.RELEASED, wide), _of_scope(r, CLOCKS.PENDING, wide)
            r.call("tw_check_acquire", "void", r["ctx"], r["block"], r["warp"], pending)
            r.call("tw_check_release", "void", r["ctx"], r["block"], r["warp"], released, r.const("i32", 1))
    return r


def _proxy() -> Routine:
    """A fence between this warp's accesses and the asynchronous proxy."""
    r = Routine("tw_check_proxy", "void", **WHO)
    r.put(r.item(r.field(clocks_of(r), CLOCKS.FENCED, "ptr"), index_of(r), 4), 0, now_of(r))
    tick(r)
    return r


def _spot() -> Routine:
    """The clock of what warps synchronise by, by its key, among those of its cluster or of the launch."""
    r = Routine("tw_check_spot", "ptr", ctx="ptr", block="ptr", shared="i32", key="i64")
    clocks, inside = r.field(r["block"], BLOCK.CLOCKS, "ptr"), r.compare("icmp ne", r["shared"], 0)
    here, everywhere = r.field(clocks, CLOCKS.SPOTS, "ptr"), r.field(check_state(r), CHECK.SPOTS, "ptr")
    start = r.select(inside, here, everywhere)
    counts = r.field(clocks, CLOCKS.SPOT_COUNT, "i64"), r.field(check_state(r), CHECK.SPOT_COUNT, "i64")
    count = r.select(inside, *counts)
    row = r.op("mul", _width(r), 4)
    size, wanted = r.op("add", row, SPOT_KEY), r.op("add", r["key"], 1)
    slot = r.variable("i64", r.op("lshr", r.op("mul", wanted, _SPREAD), 40))
    last = r.op("sub", count, 1)
    with r.count(count):
        at = r.op("and", slot.get(), last)
        slot.put(r.op("add", at, 1))
        spot = r.at(start, r.op("mul", at, size))
        key = r.field(spot, 0, "i64")
        with r.when(r.compare("icmp eq", key, 0)):
            r.put(spot, 0, wanted)
            r.fill(r.at(spot, SPOT_KEY), 0, row)
            r.give(r.at(spot, SPOT_KEY))
        with r.when(r.compare("icmp eq", key, wanted)):
            r.give(r.at(spot, SPOT_KEY))
    # NOTE: all are taken. Two addresses that share one seem to synchronise: races may be missed, none made up.
    r.give(r.at(r.at(start, r.op("mul", r.op("and", slot.get(), last), size)), SPOT_KEY))
    return r


def _has(r: Routine, flag: int) -> Value:
    return r.compare("icmp ne", r.op("and", r["how"], flag), 0)


def _sync() -> Routine:
    """Some lanes synchronise by what lies at an address; ``how`` is of ``ACQUIRE``, ``RELEASE`` and so on."""
    r = Routine("tw_check_sync", "void", **WHO, addresses="ptr", mask="i32", space="i32", how="i32")
    before = r.variable("i64", -1)
    with r.each_lane(r["mask"]) as lane:
        address = r.variable("i64", r.field(r.item(r["addresses"], lane, 8), 0, "i64"))
        shared = r.variable("i32", 0)
        away = r.op("sub", address.get(), GENERIC_SHARED)
        with r.when(r.both(r.compare("icmp eq", r["space"], 0), r.compare("icmp ult", away, WINDOW))):
            shared.put(1)
            address.put(away)
        with r.when(r.compare("icmp eq", r["space"], int(Space.SHARED))):
            shared.put(1)
        inside = r.compare("icmp ne", shared.get(), 0)
        with r.when(r.both(r.compare("icmp ult", address.get(), 1 << RANK_SHIFT), inside)):
            rank = r.op("add", r.wide(r.field(r["block"], BLOCK.RANK, "i32")), 1)
            address.put(r.op("or", address.get(), r.op("shl", rank, RANK_SHIFT)))
        with r.unless(r.compare("icmp eq", before.get(), address.get())):
            before.put(address.get())
            given = (r["ctx"], r["block"], r["warp"], shared.get())
            with r.when(r.both(inside, _has(r, SEEN))):
                key = r.op("add", address.get(), 1)
                r.call("tw_check_seen", "void", r["ctx"], r["block"], r["warp"], key)
            with r.unless(inside):
                serial = r.wide(r.field(r["block"], BLOCK.SERIAL, "i32"))
                near = r.op("xor", address.get(), r.op("shl", r.op("add", serial, 1), 40))
                r.call("tw_check_one", "void", *given, near, r["how"], r.const("i32", 0))
            with r.unless(r.both(r.negation(inside), _has(r, BLOCKWIDE))):
                r.call("tw_check_one", "void", *given, address.get(), r["how"], r.const("i32", 1))
    return r


def _one() -> Routine:
    """A warp synchronises by one spot: of its block's own, or of everybody's."""
    r = Routine("tw_check_one", "void", **WHO, shared="i32", key="i64", how="i32", wide="i32")
    spot = r.call("tw_check_spot", "ptr", r["ctx"], r["block"], r["shared"], r["key"])
    given = (r["ctx"], r["block"], r["warp"])
    far = r.compare("icmp ne", r.op("and", r["wide"], r.op("xor", r["shared"], 1)), 0)
    with r.when(_has(r, RELAXED)):
        clocks = [r.select(far, _of_scope(r, field, 1), _of_scope(r, field, 0))
                  for field in (CLOCKS.RELEASED, CLOCKS.PENDING)]  # fmt: skip
        with r.when(_has(r, RELEASE)):
            _join(r, spot, clocks[0])
        with r.when(_has(r, ACQUIRE)):
            _join(r, clocks[1], spot)
        r.give()
    with r.when(_has(r, ACQUIRE)):
        r.call("tw_check_acquire", "void", *given, spot)
    with r.when(_has(r, RELEASE)):
        r.call("tw_check_release", "void", *given, spot, r.const("i32", 1))
    return r


# -- barriers -----------------------------------------------------------------------------------------
def _came(r: Routine, number: Value | int) -> Value:
    """Where it stands in which phase of a barrier a warp came; behind the last, one more than the barrier of
    its block that it waits at, or 0."""
    row = r.op("mul", index_of(r), BARRIERS_OF_BLOCK + 1)
    return r.item(r.field(clocks_of(r), CLOCKS.CAME, "ptr"), r.op("add", row, number), 4)


def _barrier(r: Routine, number: Value) -> tuple[Value, Value]:
    """Where the phases of a barrier are counted, and which one a warp came in."""
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    whole = r.compare("icmp eq", number, _CLUSTER_BARRIER)
    owner = r.select(whole, r.const("i64", 0), rank)
    which = r.op("add", r.op("mul", owner, BARRIERS_OF_BLOCK), number)
    return which, _came(r, number)


def _barrier_clock(r: Routine, which: Value, phase: Value) -> Value:
    both = r.op("add", r.op("mul", which, 2), r.wide(r.op("and", phase, 1)))
    start = r.field(clocks_of(r), CLOCKS.BARRIERS, "ptr")
    return r.at(start, r.op("mul", r.op("mul", both, _width(r)), 4))


def _end(r: Routine, which: Value, phase: Value) -> Value:
    both = r.op("add", r.op("mul", which, 2), r.wide(r.op("and", phase, 1)))
    return r.item(r.field(clocks_of(r), CLOCKS.ENDS, "ptr"), both, 4)


def _finish(r: Routine, clock: Value, end: Value) -> None:
    """The first warp is let through: now those that wait have done what they did."""
    with r.when(r.compare("icmp eq", r.field(end, 0, "i32"), 0)):
        now = now_of(r)
        r.put(end, 0, now)
        tick(r)
        with r.count(_width(r)) as i:
            place = r.item(clock, i, 4)
            r.put(place, 0, r.intrinsic("llvm.umin", r.field(place, 0, "i32"), now))


def _arrive() -> Routine:
    """A warp has come to a barrier: 0 to 15 of its block, 16 of its cluster.

    ``goes_on`` tells whether some of its lanes do anything before they are let through. ``relaxed``: only
    what a fence covers is released.

    What the warp read from others before counts from now on as if a fence had followed: programs that let
    one thread wait for a flag, and the others for that thread at a barrier, hold on every GPU.
    """
    numbers = {"number": "i32", "waits": "i32", "goes_on": "i32", "relaxed": "i32", "fences": "i32"}
    r = Routine("tw_check_arrive", "void", **WHO, **numbers)
    with r.when(r.compare("icmp ne", r["fences"], 0)):
        for wide in (0, 1):
            pending = _of_scope(r, CLOCKS.PENDING, wide)
            r.call("tw_check_acquire", "void", r["ctx"], r["block"], r["warp"], pending)
    which, came = _barrier(r, r.wide(r["number"]))
    with r.when(r.compare("icmp ne", r["waits"], 0)):
        r.put(_came(r, BARRIERS_OF_BLOCK), 0, r.op("add", r["number"], 1))
    phases = r.item(r.field(clocks_of(r), CLOCKS.PHASES, "ptr"), which, 4)
    own = r.item(r.at(r["block"], BLOCK.BARRIERS), r.op("and", r["number"], 15), BARRIER.SIZE)
    arrived = r.variable("i32", r.field(own, BARRIER.THREADS, "i32"))
    with r.when(r.compare("icmp eq", r["number"], _CLUSTER_BARRIER)):
        arrived.put(r.field(r.field(r["block"], BLOCK.FIRST, "ptr"), BLOCK.ARRIVED, "i32"))
        _done_with_others(r)
    with r.when(r.compare("icmp eq", arrived.get(), 0)):
        fresh = r.op("add", r.field(phases, 0, "i32"), 1)
        r.put(phases, 0, fresh)
        r.fill(_barrier_clock(r, which, fresh), 0, r.op("mul", _width(r), 4))
        r.put(_end(r, which, fresh), 0, r.const("i32", 0))
    phase = r.field(phases, 0, "i32")
    r.put(came, 0, phase)
    clock = _barrier_clock(r, which, phase)
    with r.when(r.compare("icmp ne", r["relaxed"], 0)):
        _join(r, clock, _of_scope(r, CLOCKS.RELEASED, 1))
    with r.otherwise():
        r.call("tw_check_release", "void", r["ctx"], r["block"], r["warp"], clock, r["goes_on"])
    return r


def _done_with_others(r: Routine) -> None:
    """A warp that comes to the cluster's barrier has used other blocks' memory: they may end behind it.

    That it is there is enough, even if it orders nothing.
    """
    with r.count(r.field(r["ctx"], LAUNCH.CLUSTER, "i64")) as rank:
        stride = r.op("mul", r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64"), rank)
        other = r.at(r.field(r["block"], BLOCK.FIRST, "ptr"), stride)
        user = r.op("lshr", r.field(other, BLOCK.USER, "i32"), LANE_BITS)
        with r.when(r.compare("icmp eq", user, serial_of(r))):
            r.put(other, BLOCK.USED, r.const("i32", 0))


def _through() -> Routine:
    """The barrier that a warp waits at has let it through, or that of its cluster."""
    r = Routine("tw_check_through", "void", **WHO, cluster="i32")
    number = r.variable("i32", _CLUSTER_BARRIER + 1)
    with r.when(r.compare("icmp eq", r["cluster"], 0)):
        waiting = _came(r, BARRIERS_OF_BLOCK)
        number.put(r.field(waiting, 0, "i32"))
        with r.when(r.compare("icmp eq", number.get(), 0)):
            r.give()
        # NOTE: where lanes are apart, others of the warp may come by while these still wait.
        held = r.at(r["warp"], WARP.WAITING)
        held = r.item(held, r.op("sub", number.get(), 1), 4)
        with r.unless(r.compare("icmp eq", r.field(held, 0, "i32"), 0)):
            r.give()
        r.put(waiting, 0, r.const("i32", 0))
    with r.otherwise(), r.unless(r.compare("icmp eq", r.field(r["warp"], WARP.HELD, "i32"), 0)):
        r.give()
    which, came = _barrier(r, r.wide(r.op("sub", number.get(), 1)))
    phase = r.field(came, 0, "i32")
    clock, end = _barrier_clock(r, which, phase), _end(r, which, phase)
    _finish(r, clock, end)
    _synced(r, r.field(end, 0, "i32"))
    r.call("tw_check_acquire", "void", r["ctx"], r["block"], r["warp"], clock)
    return r


def _synced(r: Routine, time: Value) -> None:
    for place in (
        r.item(r.field(clocks_of(r), CLOCKS.SYNCED, "ptr"), index_of(r), 4),
        r.item(own_clock(r), _own_entry(r), 4),
    ):
        r.put(place, 0, r.intrinsic("llvm.umax", r.field(place, 0, "i32"), time))


def _met() -> Routine:
    """The lanes of a warp have met: what each of them did happened before what the others do now."""
    r = Routine("tw_check_met", "void", **WHO)
    _synced(r, now_of(r))
    tick(r)
    r.call("tw_check_least", "void", r["ctx"], r["block"], r["warp"])
    return r
