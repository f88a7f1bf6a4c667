"""What a checked launch does at every access to memory.

``tw_check`` goes lane by lane and word by word, and serves every access; ``usual.py`` has quicker ways for
some of them. ``tw_check_touch`` is for a stretch of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewise.emulator.check_layout import (
    ARRIVING,
    BYTES,
    CELLS,
    CHECK,
    CLOCKS,
    DOUBTFUL,
    FLAGS,
    FOREIGN,
    LANE_BITS,
    LINE_BITS,
    MANY_LEAVING,
    MIXED,
    NARROW,
    PLACE,
    PROXY,
    RANGE,
    SEVERAL,
    STRONG,
    Action,
    Kind,
)
from tilewise.emulator.checking.clocks import (
    WHO,
    check_state,
    clock_base,
    clocks_of,
    index_of,
    now_of,
    own_clock,
    serial_of,
)
from tilewise.emulator.layout import BLOCK, GENERIC_SHARED, LAUNCH, RANK_SHIFT, WARP, WINDOW, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine, Variable

__all__ = ["Word", "routines"]

_NULL = Value("ptr", "null")
_TRUE, _FALSE = Value("i1", "true"), Value("i1", "false")
_WARP_SHIFT = LANE_BITS
_LANES = (1 << LANE_BITS) - 1


def routines() -> list[Routine]:
    return [_where(), _check(), _touch(), _leave()]


# -- where ----------------------------------------------------------------------------------------------
def _where() -> Routine:
    """Where the cells of an address are; whether anything is known of it."""
    r = Routine(
        "tw_check_where",
        "i1",
        ctx="ptr",
        block="ptr",
        space="i32",
        address="i64",
        place="ptr",
    )
    r.put(r["place"], PLACE.OWNER, _NULL)
    start = r.variable("i64", -1)  # of the window of shared memory
    with r.when(r.compare("icmp eq", r["space"], int(Space.SHARED))):
        start.put(0)
    away = r.op("sub", r["address"], GENERIC_SHARED)
    with r.when(r.both(r.compare("icmp eq", r["space"], 0), r.compare("icmp ult", away, WINDOW))):
        start.put(GENERIC_SHARED)
    with r.unless(r.compare("icmp eq", start.get(), -1)):
        _in_shared(r, start.get())
    _in_global(r, _range_of(r))
    return r


def _in_shared(r: Routine, start: Value) -> None:
    """Answer for an address of shared memory, whose window begins at ``start``."""
    place, state = r["place"], check_state(r)
    within = r.op("and", r.op("sub", r["address"], start), WINDOW - 1)
    rank = r.op("lshr", within, RANK_SHIFT)
    owner = r.variable("ptr", r["block"])
    with r.when(r.compare("icmp ne", rank, 0)):
        first = r.field(r["block"], BLOCK.FIRST, "ptr")
        stride = r.field(r["ctx"], LAUNCH.BLOCK_STRIDE, "i64")
        with r.when(r.compare("icmp ugt", rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))):
            r.give(_FALSE)
        owner.put(r.at(first, r.op("mul", r.op("sub", rank, 1), stride)))
    here = owner.get()
    size = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    first_address = r.op("add", start, r.op("shl", rank, RANK_SHIFT))
    with r.unless(r.compare("icmp eq", here, r["block"])):
        r.put(place, PLACE.OWNER, here)
    r.put(place, PLACE.FIRST, first_address)
    r.put(place, PLACE.BYTES, size)
    r.put(place, PLACE.CELLS, r.field(here, BLOCK.CELLS, "ptr"))
    r.put(place, PLACE.STRIDE, r.field(state, CHECK.STRIDE, "i64"))
    r.put(place, PLACE.MEMORY, r.field(here, BLOCK.SHARED, "ptr"))
    r.put(place, PLACE.BORN, r.field(clocks_of(r), CLOCKS.BORN, "i64"))
    r.give(r.compare("icmp ult", r.op("sub", r["address"], first_address), size))


def _range_of(r: Routine) -> Value:
    """The array that an address of global memory lies in; answers at once if there is none."""
    state = check_state(r)
    known = r.variable("ptr", r.field(state, CHECK.LAST, "ptr"))
    with r.when(r.compare("icmp eq", known.get(), _NULL)):
        r.give(_FALSE)
    with r.unless(_within(r, known.get())):
        known.put(_NULL)
        low, high = (
            r.variable("i64", 0),
            r.variable("i64", r.field(state, CHECK.RANGE_COUNT, "i64")),
        )
        with r.loop() as loop:
            loop.leave(r.compare("icmp uge", low.get(), high.get()))
            middle = r.op("lshr", r.op("add", low.get(), high.get()), 1)
            item = r.item(r.field(state, CHECK.RANGES, "ptr"), middle, RANGE.SIZE)
            with r.when(_within(r, item)):
                known.put(item)
                low.put(high.get())
            with r.otherwise():
                with r.when(r.compare("icmp ult", r["address"], r.field(item, RANGE.FIRST, "i64"))):
                    high.put(middle)
                with r.otherwise():
                    low.put(r.op("add", middle, 1))
        with r.when(r.compare("icmp eq", known.get(), _NULL)):
            r.give(_FALSE)
        r.put(state, CHECK.LAST, known.get())
    return known.get()


def _in_global(r: Routine, item: Value) -> None:
    """Answer for an address within an array."""
    place = r["place"]
    first = r.field(item, RANGE.FIRST, "i64")
    cells = r.field(item, RANGE.CELLS, "ptr")
    r.put(place, PLACE.FIRST, first)
    # NOTE: of memory without cells, nothing must be found by what is remembered here.
    none = r.compare("icmp eq", cells, _NULL)
    size = r.op("sub", r.field(item, RANGE.END, "i64"), first)
    r.put(place, PLACE.BYTES, r.select(none, r.const("i64", 0), size))
    r.put(place, PLACE.CELLS, cells)
    r.put(place, PLACE.STRIDE, r.field(item, RANGE.STRIDE, "i64"))
    r.put(place, PLACE.MEMORY, r.set("ptr", f"inttoptr {first} to ptr"))
    r.put(place, PLACE.BORN, r.const("i64", 0))
    r.give(r.compare("icmp ne", cells, _NULL))


def _within(r: Routine, item: Value) -> Value:
    first, end = r.field(item, RANGE.FIRST, "i64"), r.field(item, RANGE.END, "i64")
    return r.compare("icmp ult", r.op("sub", r["address"], first), r.op("sub", end, first))


# -- every access -----------------------------------------------------------------------------------------
@dataclass
class Word:
    """One lane's access to one word, and who it is that makes it: code for it in a routine that has, of the
    access, ``space``, ``action``, ``flags`` and ``line``."""

    r: Routine

    def __post_init__(self) -> None:
        r = self.r
        self.now, self.serial = now_of(r), serial_of(r)
        self.clock, self.base = own_clock(r), clock_base(r)
        self.width = r.field(check_state(r), CHECK.WIDTH, "i64")
        self.blind = r.compare("icmp ne", r.field(check_state(r), CHECK.BLIND, "i64"), 0)
        self.high = r.op("shl", self.serial, _WARP_SHIFT)
        self.line = r.op("shl", r["line"], LINE_BITS)
        self.warps = r.cast("trunc", r.field(r["ctx"], LAUNCH.WARPS, "i64"), "i32")
        self.alone = r.compare("icmp ne", r.field(check_state(r), CHECK.ALONE, "i64"), 0)
        self.least = r.field(r.item(r.field(clocks_of(r), CLOCKS.LEAST, "ptr"), index_of(r), 4), 0, "i32")

    def at(self, place: Value, address: Value, who: Value, bytes_: Value) -> None:
        """The cell of an address in a ``PLACE`` that has it."""
        r = self.r
        self.who, self.bytes, self.address = who, bytes_, address
        self.born = r.cast("trunc", r.field(place, PLACE.BORN, "i64"), "i32")
        self.remote = r.compare("icmp ne", r.field(place, PLACE.OWNER, "ptr"), _NULL)
        inside = r.compare("icmp ne", self.born, 0)
        self.past = r.select(r.op("or", inside, self.alone), self.least, r.const("i32", 0))
        self.offset = r.op("sub", address, r.field(place, PLACE.FIRST, "i64"))
        row = r.op("mul", r.op("lshr", self.offset, 2), 4)
        cells, stride = (
            r.field(place, PLACE.CELLS, "ptr"),
            r.field(place, PLACE.STRIDE, "i64"),
        )
        self.cell = [r.at(cells, r.op("add", row, r.op("mul", stride, i))) for i in range(CELLS.COLUMNS)]
        self.info = r.op("or", r.op("or", self.line, bytes_), r["flags"])

    def get(self, column: int) -> Value:
        return self.r.field(self.cell[column], 0, "i32", 4)

    def put(self, column: int, value: Value) -> None:
        self.r.put(self.cell[column], 0, value, 4)

    def mine(self, other: Value) -> Value:
        """Whether somebody is of this warp."""
        return self.r.compare("icmp eq", self.r.op("lshr", other, _WARP_SHIFT), self.serial)

    def unordered(self, other: Value, time: Value) -> Value:
        """Whether what somebody did at a time need not have happened before this."""
        r = self.r
        entry = r.op("sub", r.wide(r.op("lshr", other, _WARP_SHIFT)), self.base)
        inside = r.compare("icmp ult", entry, self.width)
        known = r.field(
            r.item(self.clock, r.select(inside, entry, r.const("i64", 0)), 4),
            0,
            "i32",
            4,
        )
        before = r.select(inside, r.compare("icmp uge", known, time), self.blind)
        own_bytes = r.compare("icmp eq", r.op("and", other, _LANES), MIXED)
        return r.negation(r.op("or", before, r.both(own_bytes, self.mine(other))))

    def awaited(self, info: Value, other: Value) -> Value:
        """Whether it is a copy of this warp's: lanes that wait for its mbarrier need not meet."""
        r = self.r
        return r.both(r.compare("icmp ne", r.op("and", info, PROXY), 0), self.mine(other))

    def agreed(self, before: Value, other: Value) -> Value:
        """Whether both accesses are atomic, of scopes that include each other."""
        r = self.r
        first, second = (r.op("and", info, STRONG | DOUBTFUL) for info in (before, self.info))
        most = r.op("or", first, second)  # of both atomic, or one atomic and one doubtful
        strong = r.op(
            "or",
            r.compare("icmp ne", r.op("and", r.op("and", first, second), STRONG), 0),
            r.compare("icmp eq", most, STRONG | DOUBTFUL),
        )
        narrow = r.compare("icmp ne", r.op("and", r.op("or", before, self.info), NARROW), 0)
        block = r.op("udiv", self.serial, self.warps)
        theirs = r.op("udiv", r.op("lshr", other, _WARP_SHIFT), self.warps)
        return r.both(strong, r.negation(r.both(narrow, r.compare("icmp ne", block, theirs))))

    def against(self, columns: tuple[int, int, int]) -> tuple[Value, Value, Value, Value]:
        """An earlier access: whether this one touches the same bytes and is not ordered after it; its time,
        who and information."""
        r = self.r
        time, who, info = (self.get(column) for column in columns)
        meet = r.compare("icmp ne", r.op("and", r.op("and", info, self.bytes), BYTES), 0)
        late, other = (
            r.compare("icmp ugt", time, self.born),
            r.compare("icmp ne", who, self.who),
        )
        found = r.variable("i1", 0)
        with r.when(r.both(meet, late, other)):
            agreed = r.op("or", self.agreed(info, who), self.awaited(info, who))
            found.put(r.both(self.unordered(who, time), r.negation(agreed)))
        return found.get(), time, who, info

    def report(self, kind: Kind | Value, other: Value, info: Value) -> None:
        r = self.r
        number = r.const("i32", int(kind)) if isinstance(kind, Kind) else kind
        other_line = r.op("lshr", info, LINE_BITS)
        flags = r.op("or", r["flags"], r.op("shl", r.op("and", info, (1 << LINE_BITS) - 1), 8))
        given = (
            number,
            r["space"],
            r["line"],
            other_line,
            self.address,
            self.who,
            other,
            self.bytes,
            flags,
        )
        r.call("tw_check_finding", "void", r["ctx"], *given)


def _access(word: Word, writes: Value, stores: Value, same: Variable) -> None:
    """Judge one access and note it down. ``same`` is told whether a store changes nothing."""
    r = word.r
    found, time, who, info = word.against((CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE))
    with r.when(found):
        kind = r.select(
            writes,
            r.const("i32", Kind.WRITE_AFTER_WRITE),
            r.const("i32", Kind.READ_AFTER_WRITE),
        )
        with r.unless(r.both(stores, same.get())):
            word.report(kind, who, info)
    with r.when(writes):
        for columns in (
            (CELLS.READ, CELLS.READER, CELLS.READING),
            (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING),
        ):
            early, _, reader, reading = word.against(columns)
            with r.when(early):
                word.report(Kind.WRITE_AFTER_READ, reader, reading)
    _against_state(word, writes, stores)
    _note(word, writes, time, who, info)


def _against_state(word: Word, writes: Value, stores: Value) -> None:
    """Bytes that nobody wrote, and copies in flight."""
    r = word.r
    state = word.get(CELLS.STATE)
    odd = r.op("and", state, r.op("or", word.bytes, ARRIVING | MANY_LEAVING))
    with r.unless(r.compare("icmp eq", odd, 0)):
        missing = r.op("and", state, word.bytes)
        with r.unless(stores), r.unless(r.compare("icmp eq", missing, 0)):
            word.report(Kind.UNSET, word.who, r.const("i32", 0))
        arriving = r.compare("icmp ne", r.op("and", state, ARRIVING), 0)
        writer, write = word.get(CELLS.WRITER), word.get(CELLS.WRITE)
        with r.when(arriving), r.unless(word.agreed(write, writer)):
            kind = r.select(
                writes,
                r.const("i32", Kind.WRITE_IN_FLIGHT),
                r.const("i32", Kind.READ_IN_FLIGHT),
            )
            word.report(kind, writer, write)
        with (
            r.when(writes),
            r.unless(r.compare("icmp eq", r.op("and", state, MANY_LEAVING), 0)),
        ):
            word.report(Kind.SOURCE_IN_FLIGHT, word.get(CELLS.READER), word.get(CELLS.READING))
    foreign = r.select(word.remote, r.const("i32", FOREIGN), r.const("i32", 0))
    rest = r.op("or", r.op("and", state, r.op("xor", word.bytes, -1)), foreign)
    word.put(CELLS.STATE, rest)


def _note(word: Word, writes: Value, time: Value, who: Value, info: Value) -> None:
    r = word.r
    with r.when(writes):
        # Neighbours within a word that lanes of one instruction write are remembered together.
        together = r.both(
            r.compare("icmp eq", time, word.now),
            word.mine(who),
            r.compare("icmp eq", r.op("lshr", info, LINE_BITS), r["line"]),
            r.compare("icmp eq", r.op("and", r.op("and", info, word.bytes), BYTES), 0),
        )
        mixed = r.op("or", word.high, MIXED)
        joint = r.op("or", word.info, r.op("and", info, BYTES))
        word.put(CELLS.WRITER, r.select(together, mixed, word.who))
        word.put(CELLS.WRITE, r.select(together, joint, word.info))
        word.put(CELLS.WRITTEN, word.now)
    with r.otherwise():
        _read(word)


def _read(word: Word) -> None:
    """Note a read. Of those that are not ordered, two are remembered, of different warps."""
    r = word.r
    time, who, info = (word.get(column) for column in (CELLS.READ, CELLS.READER, CELLS.READING))
    stale = r.op(
        "or",
        r.compare("icmp ule", time, word.born),
        r.negation(word.unordered(who, time)),
    )
    own = word.mine(who)
    with r.when(r.both(own, r.negation(stale), r.compare("icmp ne", who, word.who))):
        alike = r.compare("icmp eq", r.op("and", r.op("xor", info, word.info), BYTES), 0)
        both = r.op(
            "or",
            word.high,
            r.select(alike, r.const("i32", SEVERAL), r.const("i32", MIXED)),
        )
        was_mixed = r.compare("icmp eq", r.op("and", who, _LANES), MIXED)
        word.put(CELLS.READER, r.select(was_mixed, who, both))
        word.put(CELLS.READING, r.op("or", word.info, r.op("and", info, BYTES)))
        word.put(CELLS.READ, word.now)
    with r.otherwise():
        with r.when(r.op("or", own, stale)):
            _set(word, (CELLS.READ, CELLS.READER, CELLS.READING))
        with r.otherwise():
            earlier, reader = word.get(CELLS.EARLIER), word.get(CELLS.EARLIER_READER)
            free = r.op(
                "or",
                r.compare("icmp ule", earlier, word.born),
                r.negation(word.unordered(reader, earlier)),
            )
            with r.when(r.op("or", free, word.mine(reader))):
                _set(word, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))


def _set(word: Word, columns: tuple[int, int, int]) -> None:
    for column, value in zip(columns, (word.now, word.who, word.info), strict=True):
        word.put(column, value)


def _check() -> Routine:
    """An access by some lanes: of each, ``size`` bytes at its address.

    ``values`` are those that a store is about to write, element after element of all lanes; null if they are
    not known.
    """
    names = {
        "addresses": "ptr",
        "mask": "i32",
        "size": "i32",
        "space": "i32",
        "action": "i32",
    }
    more = {"flags": "i32", "line": "i32", "values": "ptr", "element": "i32"}
    r = Routine("tw_check", "void", **WHO, **names, **more)
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    r.fill(place, 0, PLACE.SIZE)
    word = Word(r)
    writes = r.compare("icmp ne", r["action"], int(Action.LOAD))
    stores = r.compare("icmp eq", r["action"], int(Action.STORE))
    valued = r.both(stores, r.compare("icmp ne", r["values"], _NULL))
    same = r.variable("i1", 0)
    with _each_address(r, writes) as (lane, address, name):
        end = r.op("add", address, r.wide(r["size"]))
        at = r.variable("i64", address)
        with r.loop() as loop:
            here = at.get()
            loop.leave(r.compare("icmp uge", here, end))
            within = r.op("and", here, 3)
            size = r.intrinsic(
                "llvm.umin",
                r.op("sub", r.const("i64", 4), within),
                r.op("sub", end, here),
            )
            at.put(r.op("add", here, size))
            ones = r.op("sub", r.op("shl", r.const("i64", 1), size), 1)
            bytes_ = r.cast("trunc", r.op("shl", ones, within), "i32")
            _find(r, place, here, loop)
            word.at(place, here, r.op("or", word.high, name), bytes_)
            _used(word, place)
            loop.again(_usual_read(word, writes))
            same.put(0)
            with r.when(valued):
                _compare(word, place, lane, r.op("sub", here, address), size, same)
            _access(word, writes, stores, same)
    return r


@contextmanager
def _each_address(r: Routine, writes: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Over the lanes: the first one's number, its address, and the number by which it is remembered.

    Lanes that read the same are one.
    """
    left = r.variable("i32", r["mask"])
    r.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
    with r.loop() as loop:
        rest = left.get()
        loop.leave(r.compare("icmp eq", rest, 0))
        lane = r.set("i32", f"call i32 @llvm.cttz.i32({rest}, i1 true)")
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        alone = r.op("shl", r.const("i32", 1), lane)
        together = r.variable("i32", alone)
        with r.unless(writes):
            every = r.field(r["addresses"], 0, "<32 x i64>", 64)
            together.put(r.op("and", r.bits(r.compare("icmp eq", every, r.splat(address))), rest))
        those = together.get()
        left.put(r.op("and", rest, r.op("xor", those, -1)))
        single = r.compare("icmp eq", those, alone)
        yield lane, address, r.select(single, lane, r.const("i32", SEVERAL))


def _used(word: Word, place: Value) -> None:
    """If the memory is another block's, have it know: it must not end before."""
    r = word.r
    owner = r.field(place, PLACE.OWNER, "ptr")
    with r.unless(r.compare("icmp eq", owner, _NULL)):
        r.put(owner, BLOCK.USED, word.now)
        r.put(owner, BLOCK.USER, word.who)
        r.put(owner, BLOCK.USE, r["line"])


def _leave() -> Routine:
    """Some lanes of a warp leave. With the last ones of a block its memory goes: nobody may use it any more."""
    r = Routine("tw_check_leave", "void", **WHO, lanes="i32")
    time, user = r.field(r["block"], BLOCK.USED, "i32"), r.field(r["block"], BLOCK.USER, "i32")
    last = r.compare("icmp eq", r["lanes"], r.field(r["warp"], WARP.LIVE, "i32"))
    some = r.both(r.compare("icmp ne", time, 0), r.compare("icmp ne", r["lanes"], 0))
    with r.unless(r.both(some, last)):
        r.give()
    entry = r.op("sub", r.wide(r.op("lshr", user, _WARP_SHIFT)), clock_base(r))
    known = r.field(r.item(own_clock(r), entry, 4), 0, "i32")
    with r.when(r.compare("icmp uge", known, time)):  # as long as this warp was there, so was the memory
        r.put(r["block"], BLOCK.USED, r.const("i32", 0))
        r.give()
    done = r.wide(r.op("add", r.field(r["block"], BLOCK.DONE, "i32"), 1))
    with r.when(r.compare("icmp uge", done, r.field(r["ctx"], LAUNCH.WARPS, "i64"))):
        zero = r.const("i32", 0)
        kind, space = r.const("i32", int(Kind.EARLY_EXIT)), r.const("i32", int(Space.SHARED))
        who = r.op("shl", serial_of(r), LANE_BITS)
        use = r.field(r["block"], BLOCK.USE, "i32")
        given = (kind, space, zero, use, r.const("i64", 0), who, user, zero, zero)
        r.call("tw_check_finding", "void", r["ctx"], *given)
    return r


def _usual_read(word: Word, writes: Value) -> Value:
    """Whether it is a read with which nothing is wrong, as is easily seen; then it is noted."""
    r = word.r
    quick = r.variable("i1", 0)
    with r.unless(writes):
        state = r.compare("icmp eq", r.op("and", word.get(CELLS.STATE), FLAGS | BYTES), 0)
        past = r.compare("icmp ule", word.get(CELLS.WRITTEN), word.past)
        plain = r.both(state, past, r.negation(word.remote))
        reader, earlier = word.get(CELLS.READER), word.get(CELLS.EARLIER_READER)
        first = r.op(
            "or",
            r.compare("icmp ule", word.get(CELLS.READ), word.past),
            r.compare("icmp eq", reader, word.who),
        )
        second = r.op(
            "or",
            r.compare("icmp ule", word.get(CELLS.EARLIER), word.past),
            r.compare("icmp eq", earlier, word.who),
        )
        others = r.negation(word.mine(reader))
        full = r.both(others, r.negation(second), r.negation(word.mine(earlier)))
        with r.when(r.both(plain, first)):
            _set(word, (CELLS.READ, CELLS.READER, CELLS.READING))
            quick.put(1)
        with r.otherwise(), r.when(r.both(plain, others, second)):
            _set(word, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))
            quick.put(1)
        with r.when(r.both(plain, full)):  # two others are remembered
            quick.put(1)
    return quick.get()


def _find(r: Routine, place: Value, here: Value, loop: object) -> None:
    """See that ``place`` has an address; else the loop's next turn."""
    away = r.op("sub", here, r.field(place, PLACE.FIRST, "i64"))
    known = r.variable("i1", r.compare("icmp ult", away, r.field(place, PLACE.BYTES, "i64")))
    with r.unless(known.get()):
        known.put(r.call("tw_check_where", "i1", r["ctx"], r["block"], r["space"], here, place))
    loop.again(r.negation(known.get()))  # type: ignore[attr-defined]


def _compare(word: Word, place: Value, lane: Value, offset: Value, size: Value, same: Variable) -> None:
    """Whether a store leaves what is there, or what another lane of the same instruction puts there."""
    r = word.r
    element = r.wide(r["element"])
    number = r.op("udiv", offset, element)
    within = r.op("sub", offset, r.op("mul", number, element))
    start = r.op("add", r.op("mul", r.op("mul", number, element), 32), within)
    mine = r.at(r["values"], r.op("add", start, r.op("mul", r.wide(lane), element)))
    writer = word.get(CELLS.WRITER)
    other = r.op("and", writer, _LANES)
    beside = r.both(
        r.compare("icmp eq", word.get(CELLS.WRITTEN), word.now),
        word.mine(writer),
        r.compare("icmp eq", r.op("lshr", word.get(CELLS.WRITE), LINE_BITS), r["line"]),
        r.compare("icmp ult", other, 32),
    )
    theirs = r.at(
        r["values"],
        r.op("add", start, r.op("mul", r.wide(r.op("and", other, 31)), element)),
    )
    old = r.select(beside, theirs, r.at(r.field(place, PLACE.MEMORY, "ptr"), word.offset))
    _equal(r, mine, old, size, same)


def _equal(r: Routine, mine: Value, old: Value, size: Value, same: Variable) -> None:
    same.put(1)
    with r.count(size) as i:
        equal = r.compare("icmp eq", r.field(r.at(mine, i), 0, "i8"), r.field(r.at(old, i), 0, "i8"))
        same.put(r.both(same.get(), equal))


def _touch() -> Routine:
    """An access of one lane to a stretch of memory; ``values`` are what a store puts there, or null."""
    names = {
        "lane": "i32",
        "address": "i64",
        "bytes": "i64",
        "space": "i32",
        "action": "i32",
    }
    r = Routine("tw_check_touch", "void", **WHO, **names, flags="i32", line="i32", values="ptr")
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    r.fill(place, 0, PLACE.SIZE)
    word = Word(r)
    writes = r.compare("icmp ne", r["action"], int(Action.LOAD))
    stores = r.compare("icmp eq", r["action"], int(Action.STORE))
    valued = r.compare("icmp ne", r["values"], _NULL)
    same = r.variable("i1", 0)
    end = r.op("add", r["address"], r["bytes"])
    at = r.variable("i64", r["address"])
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.compare("icmp uge", here, end))
        within = r.op("and", here, 3)
        size = r.intrinsic("llvm.umin", r.op("sub", r.const("i64", 4), within), r.op("sub", end, here))
        at.put(r.op("add", here, size))
        ones = r.op("sub", r.op("shl", r.const("i64", 1), size), 1)
        bytes_ = r.cast("trunc", r.op("shl", ones, within), "i32")
        _find(r, place, here, loop)
        word.at(place, here, r.op("or", word.high, r["lane"]), bytes_)
        _used(word, place)
        same.put(0)
        with r.when(valued):
            old = r.at(r.field(place, PLACE.MEMORY, "ptr"), word.offset)
            _equal(r, r.at(r["values"], r.op("sub", here, r["address"])), old, size, same)
        _access(word, writes, stores, same)
        proxy = r.compare("icmp ne", r.op("and", r["flags"], PROXY), 0)
        with r.when(r.both(proxy, r.negation(writes), r.compare("icmp ne", word.born, 0))):
            _against_proxy(word)
    return r


def _against_proxy(word: Word) -> None:
    """The asynchronous proxy reads what a thread wrote: a fence of the writer or of this warp must lie between."""
    r = word.r
    time, who, info = (word.get(column) for column in (CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE))
    warps = r.op(
        "mul",
        r.field(r["ctx"], LAUNCH.WARPS, "i64"),
        r.field(r["ctx"], LAUNCH.CLUSTER, "i64"),
    )
    writer = r.op("urem", r.wide(r.op("lshr", who, _WARP_SHIFT)), warps)
    fenced = r.field(clocks_of(r), CLOCKS.FENCED, "ptr")
    last = r.intrinsic(
        "llvm.umax",
        r.field(r.item(fenced, writer, 4), 0, "i32"),
        r.field(r.item(fenced, index_of(r), 4), 0, "i32"),
    )
    thread = r.compare("icmp eq", r.op("and", info, PROXY), 0)
    with r.when(
        r.both(
            thread,
            r.compare("icmp ugt", time, word.born),
            r.compare("icmp ugt", time, last),
        )
    ):
        word.report(Kind.UNFENCED, who, info)
