"""What a checked launch does at every access and every synchronisation: the run-time half of the checker.

The launch runs on one thread of the CPU, so all of this is in order. See ``check_layout.py`` for the words.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import (
    ACQUIRE,
    BARRIERS_OF_BLOCK,
    CELL,
    CHECK,
    CLOCKS,
    FINDING,
    NARROW,
    RANGE,
    SEVERAL,
    SPOT_KEY,
    SPOTS,
    RELEASE,
    SEEN,
    STRONG,
    TOLD,
    Action,
    Kind,
)
from tilewise.emulator.emit import Value
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
from tilewise.emulator.routine import Routine

__all__ = ["WHO", "clocks_of", "index_of", "now_of", "routines", "serial_of"]

WHO = {"ctx": "ptr", "block": "ptr", "warp": "ptr"}
_NULL = Value("ptr", "null")
_LANE_BITS = 6
_CLUSTER_BARRIER = BARRIERS_OF_BLOCK - 1


def routines() -> list[Routine]:
    return [
        *(_begin(), _finding(), _cell(), _ordered(), _conflict(), _word(), _check()),
        *(_release(), _acquire(), _spot(), _sync(), _arrive(), _through(), _met()),
    ]


def _state(r: Routine) -> Value:
    return r.field(r["ctx"], LAUNCH.WATCH, "ptr")


def now_of(r: Routine) -> Value:
    return r.field(_state(r), CHECK.NOW, "i32")


def _tick(r: Routine) -> None:
    r.put(_state(r), CHECK.NOW, r.op("add", now_of(r), 1))


def index_of(r: Routine) -> Value:
    """Of a warp within its cluster, as 64 bits."""
    warps = r.field(r["ctx"], LAUNCH.WARPS, "i64")
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    return r.op("add", r.op("mul", rank, warps), r.wide(r.field(r["warp"], WARP.INDEX, "i32")))


def serial_of(r: Routine) -> Value:
    """The number of a warp within the launch."""
    return r.op("add", r.field(r["block"], BLOCK.SERIAL, "i32"), r.field(r["warp"], WARP.INDEX, "i32"))


def _width(r: Routine) -> Value:
    return r.field(_state(r), CHECK.WIDTH, "i64")


def clocks_of(r: Routine) -> Value:
    return r.field(r["block"], BLOCK.CLOCKS, "ptr")


def _own_clock(r: Routine) -> Value:
    start = r.field(clocks_of(r), CLOCKS.WARPS, "ptr")
    return r.at(start, r.op("mul", r.op("mul", index_of(r), _width(r)), 4))


def _entry(r: Routine, serial: Value) -> Value:
    """Where a warp has its entry in a clock; beyond the width if it has none."""
    warps = r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))
    mine = r.wide(serial_of(r))
    base = r.op("sub", mine, r.op("urem", mine, warps))
    talks = r.compare("icmp ne", r.field(_state(r), CHECK.TALKS, "i64"), 0)
    return r.op("sub", r.wide(serial), r.select(talks, r.const("i64", 0), base))


# -- the start of a block -----------------------------------------------------------------------------
def _begin() -> Routine:
    """A block begins: nothing is known of its shared memory; with the first of a cluster, of no clock."""
    r = Routine("tw_check_begin", "void", ctx="ptr", block="ptr")
    cells = r.field(r["block"], BLOCK.CELLS, "ptr")
    with r.when(r.compare("icmp eq", cells, _NULL)):
        r.give()
    shared = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    words = r.op("lshr", r.op("add", shared, 3), 2)
    r.fill(cells, 0, r.op("mul", words, CELL.SIZE))
    with r.count(words) as i:
        r.put(r.item(cells, i, CELL.SIZE), CELL.UNSET, r.const("i32", 15))
    clocks = clocks_of(r)
    rank = r.field(r["block"], BLOCK.RANK, "i32")
    with r.when(r.compare("icmp eq", rank, 0)):
        r.fill(r.field(clocks, CLOCKS.WARPS, "ptr"), 0, r.field(clocks, CLOCKS.BYTES, "i64"))
        r.put(clocks, CLOCKS.COUNT, r.const("i64", 0))
    number = r.wide(r.field(r["block"], BLOCK.CLUSTER_Z, "i32"))
    for offset, size in ((BLOCK.CLUSTER_Y, LAUNCH.CLUSTERS_Y), (BLOCK.CLUSTER_X, LAUNCH.CLUSTERS_X)):
        here = r.wide(r.field(r["block"], offset, "i32"))
        number = r.op("add", r.op("mul", number, r.field(r["ctx"], size, "i64")), here)
    number = r.op("add", r.op("mul", number, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), r.wide(rank))
    first = r.op("mul", number, r.field(r["ctx"], LAUNCH.WARPS, "i64"))
    r.put(r["block"], BLOCK.SERIAL, r.cast("trunc", first, "i32"))
    return r


# -- findings -----------------------------------------------------------------------------------------
def _finding() -> Routine:
    names = {"kind": "i32", "space": "i32", "line": "i32", "other_line": "i32"}
    r = Routine("tw_check_finding", "void", ctx="ptr", **names, address="i64", who="i32", other="i32")
    state = _state(r)
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
    ):
        r.put(fresh, at, r[name])
    r.put(fresh, FINDING.COUNT, r.const("i64", 1))
    return r


# -- accesses -----------------------------------------------------------------------------------------
def _cell() -> Routine:
    """The cell of the word at an address, or null if nothing is known of it."""
    r = Routine("tw_check_cell", "ptr", ctx="ptr", block="ptr", space="i32", address="i64")
    address = r.variable("i64", r["address"])
    shared = r.variable("i32", 0)
    with r.when(r.compare("icmp eq", r["space"], int(Space.SHARED))):
        shared.put(1)
    with r.when(r.compare("icmp eq", r["space"], int(Space.GENERIC))):
        away = r.op("sub", r["address"], GENERIC_SHARED)
        with r.when(r.compare("icmp ult", away, WINDOW)):
            shared.put(1)
            address.put(away)
    with r.when(r.compare("icmp ne", shared.get(), 0)):
        rank = r.op("lshr", r.op("and", address.get(), WINDOW - 1), RANK_SHIFT)
        owner = r.variable("ptr", r["block"])
        with r.when(r.compare("icmp ne", rank, 0)):
            first = r.field(r["block"], BLOCK.FIRST, "ptr")
            stride = r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64")
            owner.put(r.at(first, r.op("mul", r.op("sub", rank, 1), stride)))
            with r.when(r.compare("icmp ugt", rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))):
                r.give(_NULL)
        offset = r.op("and", address.get(), (1 << RANK_SHIFT) - 1)
        with r.when(r.compare("icmp uge", offset, r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64"))):
            r.give(_NULL)
        cells = r.field(owner.get(), BLOCK.CELLS, "ptr")
        r.give(r.item(cells, r.op("lshr", offset, 2), CELL.SIZE))
    state = _state(r)
    last = r.field(state, CHECK.LAST, "ptr")
    with r.unless(r.compare("icmp eq", last, _NULL)), r.when(_within(r, last)):
        r.give(_cell_in(r, last))
    low, high = r.variable("i64", 0), r.variable("i64", r.field(state, CHECK.RANGE_COUNT, "i64"))
    ranges = r.field(state, CHECK.RANGES, "ptr")
    with r.loop() as loop:
        loop.leave(r.compare("icmp uge", low.get(), high.get()))
        middle = r.op("lshr", r.op("add", low.get(), high.get()), 1)
        item = r.item(ranges, middle, RANGE.SIZE)
        with r.when(_within(r, item)):
            r.put(state, CHECK.LAST, item)
            r.give(_cell_in(r, item))
        with r.when(r.compare("icmp ult", r["address"], r.field(item, RANGE.FIRST, "i64"))):
            high.put(middle)
        with r.otherwise():
            low.put(r.op("add", middle, 1))
    r.give(_NULL)
    return r


def _within(r: Routine, item: Value) -> Value:
    first, end = r.field(item, RANGE.FIRST, "i64"), r.field(item, RANGE.END, "i64")
    return r.compare("icmp ult", r.op("sub", r["address"], first), r.op("sub", end, first))


def _cell_in(r: Routine, item: Value) -> Value:
    offset = r.op("sub", r["address"], r.field(item, RANGE.FIRST, "i64"))
    return r.item(r.field(item, RANGE.CELLS, "ptr"), r.op("lshr", offset, 2), CELL.SIZE)


def _ordered() -> Routine:
    """Whether what another warp did up to a time happened before what this one does now."""
    r = Routine("tw_check_ordered", "i1", **WHO, serial="i32", time="i32")
    entry = _entry(r, r["serial"])
    with r.unless(r.compare("icmp ult", entry, _width(r))):
        r.give(Value("i1", "false"))
    known = r.field(r.item(_own_clock(r), entry, 4), 0, "i32")
    r.give(r.compare("icmp uge", known, r["time"]))
    return r


def _conflict() -> Routine:
    """Whether an earlier access, at a time by someone, and one by a lane of this warp now are a race."""
    r = Routine("tw_check_conflict", "i1", **WHO, who="i32", time="i32", other="i32")
    no = Value("i1", "false")
    with r.when(r.compare("icmp eq", r["time"], 0)):
        r.give(no)
    mine, theirs = r.op("lshr", r["who"], _LANE_BITS), r.op("lshr", r["other"], _LANE_BITS)
    with r.when(r.compare("icmp eq", mine, theirs)):
        with r.when(r.compare("icmp eq", r["who"], r["other"])):
            r.give(no)
        synced = r.field(r.item(r.field(clocks_of(r), CLOCKS.SYNCED, "ptr"), index_of(r), 4), 0, "i32")
        r.give(r.compare("icmp ugt", r["time"], synced))
    given = (r["ctx"], r["block"], r["warp"], theirs, r["time"])
    r.give(r.negation(r.call("tw_check_ordered", "i1", *given)))
    return r


def _report(r: Routine, kind: Kind, other_line: Value, other: Value) -> None:
    given = (r.const("i32", int(kind)), r["space"], r["line"], other_line, r["address"], r["who"], other)
    r.call("tw_check_finding", "void", r["ctx"], *given)


def _word() -> Routine:
    """One lane's access to (some bytes of) one word."""
    names = {"cell": "ptr", "who": "i32", "bytes": "i32", "action": "i32"}
    r = Routine("tw_check_word", "void", **WHO, **names, line="i32", space="i32", address="i64")
    cell, writes = r["cell"], r.compare("icmp ne", r["action"], int(Action.LOAD))
    _against_write(r, writes)
    _against_flights(r, writes)
    missing = r.op("and", r.field(cell, CELL.UNSET, "i32"), r["bytes"])
    with (
        r.unless(r.compare("icmp eq", r["action"], int(Action.STORE))),
        r.unless(r.compare("icmp eq", missing, 0)),
    ):
        _report(r, Kind.UNSET, r.const("i32", 0), r["who"])
    unset = r.field(cell, CELL.UNSET, "i32")
    r.put(cell, CELL.UNSET, r.op("and", unset, r.op("xor", missing, -1)))
    with r.when(writes):
        for time, who, line in (
            (CELL.READ, CELL.READER, CELL.READ_LINE),
            (CELL.EARLIER, CELL.EARLIER_READER, CELL.EARLIER_LINE),
        ):
            given = (r["ctx"], r["block"], r["warp"], r["who"], r.field(cell, time, "i32"))
            reader = r.field(cell, who, "i32")
            with r.when(r.call("tw_check_conflict", "i1", *given, reader)):
                _report(r, Kind.WRITE_AFTER_READ, r.field(cell, line, "i32"), reader)
            r.put(cell, time, r.const("i32", 0))
        _note(r, CELL.WRITTEN, CELL.WRITER, CELL.WRITE_LINE, r["who"])
        r.put(cell, CELL.BYTES, r["bytes"])
    with r.otherwise(), r.when(r.compare("icmp eq", r.op("and", r["bytes"], STRONG), 0)):
        _read(r)
    return r


def _note(r: Routine, time: int, who: int, line: int, value: Value) -> None:
    r.put(r["cell"], time, now_of(r))
    r.put(r["cell"], who, value)
    r.put(r["cell"], line, r["line"])


def _against_write(r: Routine, writes: Value) -> None:
    """This access and the last write."""
    cell = r["cell"]
    before = r.field(cell, CELL.BYTES, "i32")
    time, writer = r.field(cell, CELL.WRITTEN, "i32"), r.field(cell, CELL.WRITER, "i32")
    line = r.field(cell, CELL.WRITE_LINE, "i32")
    both = r.op("and", before, r["bytes"])
    overlaps = r.compare("icmp ne", r.op("and", both, 15), 0)
    strong = r.compare("icmp ne", r.op("and", both, STRONG), 0)
    narrow = r.compare("icmp ne", r.op("and", r.op("or", before, r["bytes"]), NARROW), 0)
    warps = r.cast("trunc", r.field(r["ctx"], LAUNCH.WARPS, "i64"), "i32")
    mine, theirs = r.op("lshr", r["who"], _LANE_BITS), r.op("lshr", writer, _LANE_BITS)
    apart = r.compare("icmp ne", r.op("udiv", mine, warps), r.op("udiv", theirs, warps))
    agreed = r.both(strong, r.negation(r.both(narrow, apart)))
    at_once = r.both(writes, r.compare("icmp eq", line, r["line"]), r.compare("icmp eq", time, now_of(r)))
    at_once = r.both(at_once, r.compare("icmp eq", mine, theirs))
    with r.when(r.both(overlaps, r.negation(agreed), r.negation(at_once))):
        given = (r["ctx"], r["block"], r["warp"], r["who"], time, writer)
        with r.when(r.call("tw_check_conflict", "i1", *given)):
            with r.when(writes):
                _report(r, Kind.WRITE_AFTER_WRITE, line, writer)
            with r.otherwise():
                _report(r, Kind.READ_AFTER_WRITE, line, writer)


def _against_flights(r: Routine, writes: Value) -> None:
    """This access and copies that are in flight."""
    from tilewise.emulator.check_layout import ARRIVING, LEAVING

    state = r.field(r["cell"], CELL.STATE, "i32")
    with r.unless(r.compare("icmp eq", state, 0)):
        line, who = r.field(r["cell"], CELL.WRITE_LINE, "i32"), r.field(r["cell"], CELL.WRITER, "i32")
        with r.unless(r.compare("icmp eq", r.op("and", state, ARRIVING), 0)):
            with r.when(writes):
                _report(r, Kind.WRITE_IN_FLIGHT, line, who)
            with r.otherwise():
                _report(r, Kind.READ_IN_FLIGHT, line, who)
        with r.unless(r.compare("icmp eq", r.op("and", state, LEAVING), 0)), r.when(writes):
            read_line, reader = (
                r.field(r["cell"], CELL.READ_LINE, "i32"),
                r.field(r["cell"], CELL.READER, "i32"),
            )
            _report(r, Kind.SOURCE_IN_FLIGHT, read_line, reader)


def _read(r: Routine) -> None:
    """Remember who read, and the one of another warp who did before."""
    cell = r["cell"]
    reader, time = r.field(cell, CELL.READER, "i32"), r.field(cell, CELL.READ, "i32")
    mine, theirs = r.op("lshr", r["who"], _LANE_BITS), r.op("lshr", reader, _LANE_BITS)
    who = r.variable("i32", r["who"])
    with r.when(r.both(r.compare("icmp eq", mine, theirs), r.compare("icmp ne", time, 0))):
        other = r.compare("icmp ne", reader, r["who"])
        with r.when(r.both(other, r.compare("icmp eq", time, now_of(r)))):
            who.put(r.op("or", r.op("shl", mine, _LANE_BITS), SEVERAL))
    with r.otherwise():
        r.put(cell, CELL.EARLIER, time)
        r.put(cell, CELL.EARLIER_READER, reader)
        r.put(cell, CELL.EARLIER_LINE, r.field(cell, CELL.READ_LINE, "i32"))
    _note(r, CELL.READ, CELL.READER, CELL.READ_LINE, who.get())


def _check() -> Routine:
    """An access by some lanes: of each, ``size`` bytes at its address."""
    names = {"addresses": "ptr", "mask": "i32", "size": "i32", "space": "i32"}
    r = Routine("tw_check", "void", **WHO, **names, action="i32", flags="i32", line="i32")
    serial = r.op("shl", serial_of(r), _LANE_BITS)
    with r.each_lane(r["mask"]) as lane:
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        end = r.op("add", address, r.wide(r["size"]))
        who = r.op("or", serial, lane)
        place = r.variable("i64", address)
        with r.loop() as loop:
            here = place.get()
            loop.leave(r.compare("icmp uge", here, end))
            within = r.op("and", here, 3)
            room = r.op("sub", r.const("i64", 4), within)
            left = r.op("sub", end, here)
            size = r.intrinsic("llvm.umin", room, left)
            place.put(r.op("add", here, size))
            ones = r.op("sub", r.op("shl", r.const("i64", 1), size), 1)
            bytes_ = r.cast("trunc", r.op("shl", ones, within), "i32")
            cell = r.call("tw_check_cell", "ptr", r["ctx"], r["block"], r["space"], here)
            loop.again(r.compare("icmp eq", cell, _NULL))
            flags = r.op("or", bytes_, r["flags"])
            given = (
                r["ctx"],
                r["block"],
                r["warp"],
                cell,
                who,
                flags,
                r["action"],
                r["line"],
                r["space"],
                here,
            )
            r.call("tw_check_word", "void", *given)
    return r


# -- synchronisation ----------------------------------------------------------------------------------
def _release() -> Routine:
    """What this warp did so far, and what it knows of others, goes into a clock."""
    r = Routine("tw_check_release", "void", **WHO, clock="ptr")
    _join(r, r["clock"], _own_clock(r))
    entry = _entry(r, serial_of(r))
    with r.when(r.compare("icmp ult", entry, _width(r))):
        r.put(r.item(r["clock"], entry, 4), 0, now_of(r))
    _tick(r)
    return r


def _acquire() -> Routine:
    """What a clock says happened before what this warp does from now on."""
    r = Routine("tw_check_acquire", "void", **WHO, clock="ptr")
    _join(r, _own_clock(r), r["clock"])
    return r


def _join(r: Routine, target: Value, source: Value) -> None:
    with r.count(_width(r)) as i:
        place = r.item(target, i, 4)
        later = r.intrinsic("llvm.umax", r.field(place, 0, "i32"), r.field(r.item(source, i, 4), 0, "i32"))
        r.put(place, 0, later)


def _spot() -> Routine:
    """The clock of what warps synchronise by, by its key, among those of its cluster or of the launch."""
    r = Routine("tw_check_spot", "ptr", ctx="ptr", block="ptr", shared="i32", key="i64")
    clocks = r.field(r["block"], BLOCK.CLOCKS, "ptr")
    here, everywhere = r.field(clocks, CLOCKS.SPOTS, "ptr"), r.field(_state(r), CHECK.SPOTS, "ptr")
    start = r.select(r.compare("icmp ne", r["shared"], 0), here, everywhere)
    size = r.op("add", r.op("mul", _width(r), 4), SPOT_KEY)
    wanted = r.op("add", r["key"], 1)
    with r.count(SPOTS) as i:
        spot = r.at(start, r.op("mul", i, size))
        key = r.field(spot, 0, "i64")
        with r.when(r.compare("icmp eq", key, 0)):
            r.put(spot, 0, wanted)
            r.give(r.at(spot, SPOT_KEY))
        with r.when(r.compare("icmp eq", key, wanted)):
            r.give(r.at(spot, SPOT_KEY))
    r.give(r.at(r.at(start, r.op("mul", size, SPOTS - 1)), SPOT_KEY))
    return r


def _sync() -> Routine:
    """Some lanes synchronise by what lies at an address; ``how`` is of ``ACQUIRE``, ``RELEASE`` and so on."""
    names = {"addresses": "ptr", "mask": "i32", "space": "i32", "how": "i32", "scope": "i32"}
    r = Routine("tw_check_sync", "void", **WHO, **names)
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
        own = r.compare("icmp ult", address.get(), 1 << RANK_SHIFT)
        with r.when(r.both(own, r.compare("icmp ne", shared.get(), 0))):
            rank = r.op("add", r.wide(r.field(r["block"], BLOCK.RANK, "i32")), 1)
            address.put(r.op("or", address.get(), r.op("shl", rank, RANK_SHIFT)))
        with r.when(r.both(r.compare("icmp ne", r["scope"], 0), r.compare("icmp eq", shared.get(), 0))):
            serial = r.wide(r.field(r["block"], BLOCK.SERIAL, "i32"))
            address.put(r.op("xor", address.get(), r.op("shl", r.op("add", serial, 1), 40)))
        key = r.op("add", address.get(), 1)
        with r.unless(r.compare("icmp eq", r.op("and", r["how"], TOLD), 0)):
            bit = r.op("shl", r.const("i32", 1), lane)
            r.call("tw_check_told", "void", r["ctx"], r["block"], r["warp"], bit, key)
        with r.unless(r.compare("icmp eq", before.get(), address.get())):
            before.put(address.get())
            with r.unless(r.compare("icmp eq", r.op("and", r["how"], SEEN), 0)):
                r.call("tw_check_seen", "void", r["ctx"], r["block"], r["warp"], key)
            spot = r.call("tw_check_spot", "ptr", r["ctx"], r["block"], shared.get(), address.get())
            given = (r["ctx"], r["block"], r["warp"], spot)
            with r.unless(r.compare("icmp eq", r.op("and", r["how"], ACQUIRE), 0)):
                r.call("tw_check_acquire", "void", *given)
            with r.unless(r.compare("icmp eq", r.op("and", r["how"], RELEASE), 0)):
                r.call("tw_check_release", "void", *given)
    return r


def _came(r: Routine, number: Value | int) -> Value:
    """Where it stands in which phase of a barrier a warp came; behind the last, which barrier it came to."""
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


def _arrive() -> Routine:
    """A warp has come to a barrier: 0 to 15 of its block, 16 of its cluster."""
    r = Routine("tw_check_arrive", "void", **WHO, number="i32")
    which, came = _barrier(r, r.wide(r["number"]))
    r.put(_came(r, BARRIERS_OF_BLOCK), 0, r["number"])
    phases = r.item(r.field(clocks_of(r), CLOCKS.PHASES, "ptr"), which, 4)
    own = r.item(r.at(r["block"], BLOCK.BARRIERS), r.op("and", r["number"], 15), BARRIER.SIZE)
    arrived = r.variable("i32", r.field(own, BARRIER.THREADS, "i32"))
    with r.when(r.compare("icmp eq", r["number"], _CLUSTER_BARRIER)):
        arrived.put(r.field(r.field(r["block"], BLOCK.FIRST, "ptr"), BLOCK.ARRIVED, "i32"))
    with r.when(r.compare("icmp eq", arrived.get(), 0)):
        fresh = r.op("add", r.field(phases, 0, "i32"), 1)
        r.put(phases, 0, fresh)
        r.fill(_barrier_clock(r, which, fresh), 0, r.op("mul", _width(r), 4))
    phase = r.field(phases, 0, "i32")
    r.put(came, 0, phase)
    r.call("tw_check_release", "void", r["ctx"], r["block"], r["warp"], _barrier_clock(r, which, phase))
    return r


def _through() -> Routine:
    """The barrier that a warp came to last has let it through."""
    r = Routine("tw_check_through", "void", **WHO)
    which, came = _barrier(r, r.wide(r.field(_came(r, BARRIERS_OF_BLOCK), 0, "i32")))
    clock = _barrier_clock(r, which, r.field(came, 0, "i32"))
    r.call("tw_check_acquire", "void", r["ctx"], r["block"], r["warp"], clock)
    r.call("tw_check_met", "void", r["ctx"], r["block"], r["warp"])
    return r


def _met() -> Routine:
    """The lanes of a warp have met: what each of them did happened before what the others do now."""
    r = Routine("tw_check_met", "void", **WHO)
    r.put(r.item(r.field(clocks_of(r), CLOCKS.SYNCED, "ptr"), index_of(r), 4), 0, now_of(r))
    _tick(r)
    return r
