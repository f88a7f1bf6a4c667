"""What a checked launch does about one word of memory that is accessed.

The access is compared with what is known of the word (the last write, two reads, copies in flight, bytes that
nobody wrote), and noted down there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.emulator.check_layout import (
    ARRIVING,
    BYTES,
    CELLS,
    CHECK,
    CLOCKS,
    CONSTANT,
    DOUBTFUL,
    FOREIGN,
    LANE_BITS,
    LINE_BITS,
    MANY_LEAVING,
    MIXED,
    NARROW,
    PLACE,
    PROXY,
    SEVERAL,
    STRONG,
    WHOLE,
    Kind,
)
from tilewise.emulator.checking.clocks import (
    check_state,
    clock_base,
    clocks_of,
    index_of,
    knows_more,
    lane_covered,
    now_of,
    own_clock,
    serial_of,
)
from tilewise.emulator.layout import LAUNCH
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine, Variable

__all__ = ["Word", "judge", "note"]

_NULL = Value("ptr", "null")
_LANES = (1 << LANE_BITS) - 1
_UNASKED = 2
_TIMES = (CELLS.WRITTEN, CELLS.READ, CELLS.EARLIER, CELLS.PLAIN)


@dataclass
class Word:
    """One lane's access to one word, and who it is that makes it: code for it in a routine that has, of the
    access, ``space``, ``action``, ``flags`` and ``line``."""

    r: Routine
    excused: Callable[[Routine], Value] | None = None  # whether bytes that nobody wrote do not matter

    def __post_init__(self) -> None:
        r = self.r
        self.now, self.serial = now_of(r), serial_of(r)
        self.clock, self.base = own_clock(r), clock_base(r)
        self.width = r.field(check_state(r), CHECK.WIDTH, "i64")
        self.blind = r.compare("icmp ne", r.field(check_state(r), CHECK.BLIND, "i64"), 0)
        self.high = r.op("shl", self.serial, LANE_BITS)
        self.line = r.op("shl", r["line"], LINE_BITS)
        # Some lane that is covered further than its warp; whether some lane of this warp knows more than others.
        self.further, self.private = r.op("lshr", lane_covered(r, self.clock), LANE_BITS), knows_more(r)
        self.sure = {column: (r.variable("i32", -1), r.variable("i32", 0)) for column in _TIMES}
        self.excuse = r.variable("i32", _UNASKED)
        self.flags = r.op("and", r["flags"], (1 << LINE_BITS) - 1)
        self.warps = r.cast("trunc", r.field(r["ctx"], LAUNCH.WARPS, "i64"), "i32")
        self.alone = r.compare("icmp ne", r.field(check_state(r), CHECK.ALONE, "i64"), 0)
        self.least = r.field(r.item(r.field(clocks_of(r), CLOCKS.LEAST, "ptr"), index_of(r), 4), 0, "i32")

    def begin(self) -> None:
        """Another lane's accesses begin: what one lane alone knows is not sure for the next."""
        with self.r.when(self.private):
            for who, _ in self.sure.values():
                who.put(-1)

    def at(self, place: Value, address: Value, who: Value, bytes_: Value) -> None:
        """The cell of an address in a ``PLACE`` that has it."""
        r = self.r
        self.who, self.bytes, self.address = who, bytes_, address
        self.born = r.cast("trunc", r.field(place, PLACE.BORN, "i64"), "i32")
        self.remote = r.compare("icmp ne", r.field(place, PLACE.OWNER, "ptr"), _NULL)
        self.inside = r.compare("icmp ne", self.born, 0)  # of shared memory
        self.past = r.select(r.op("or", self.inside, self.alone), self.least, r.const("i32", 0))
        self.offset = r.op("sub", address, r.field(place, PLACE.FIRST, "i64"))
        row = r.op("mul", r.op("lshr", self.offset, 2), 4)
        cells, stride = (r.field(place, PLACE.CELLS, "ptr"), r.field(place, PLACE.STRIDE, "i64"))
        self.cell = [r.at(cells, r.op("add", row, r.op("mul", stride, i))) for i in range(CELLS.COLUMNS)]
        self.info = r.op("or", r.op("or", self.line, bytes_), self.flags)

    def strong(self, info: Value) -> Value:
        """Whether an access is atomic."""
        return self.r.compare("icmp ne", self.r.op("and", info, STRONG), 0)

    def get(self, column: int) -> Value:
        return self.r.field(self.cell[column], 0, "i32", 4)

    def put(self, column: int, value: Value) -> None:
        self.r.put(self.cell[column], 0, value, 4)

    def mine(self, other: Value) -> Value:
        """Whether somebody is of this warp."""
        return self.r.compare("icmp eq", self.r.op("lshr", other, LANE_BITS), self.serial)

    def unordered(self, other: Value, time: Value, column: int) -> Value:
        """Whether what somebody did at a time need not have happened before this; ``column`` has the time."""
        r = self.r
        entry = r.op("sub", r.wide(r.op("lshr", other, LANE_BITS)), self.base)
        inside = r.compare("icmp ult", entry, self.width)
        known = r.field(r.item(self.clock, r.select(inside, entry, r.const("i64", 0)), 4), 0, "i32", 4)
        before = r.select(inside, r.compare("icmp uge", known, time), self.blind)
        own_bytes = r.compare("icmp eq", r.op("and", other, _LANES), MIXED)
        late = r.variable("i1", r.negation(r.op("or", before, r.both(own_bytes, self.mine(other)))))
        further = r.compare("icmp eq", self.further, r.op("lshr", other, LANE_BITS))
        with r.when(late.get()):
            # Neighbouring words mostly have been accessed by the same, at the same time.
            who, till = self.sure[column]
            again = r.both(r.compare("icmp eq", who.get(), other), r.compare("icmp uge", till.get(), time))
            late.put(r.negation(again))
        with r.when(r.both(late.get(), r.op("or", further, self.private))):
            given = (r["ctx"], r["block"], r["warp"], other, time, self.who)
            with r.when(r.call("tw_check_known", "i1", *given)):
                late.put(0)
                who.put(other)
                till.put(time)
        return late.get()

    def awaited(self, info: Value, other: Value, reads: bool) -> Value:
        """Whether it is a copy of this warp's: lanes that wait for its mbarrier need not meet. Or a read that
        the warp made as one: it is over for all of them."""
        r = self.r
        copy = r.compare("icmp ne", r.op("and", info, PROXY), 0)
        if not reads:  # groups of stores to global memory are waited for by the lane that issued them alone
            copy = r.both(copy, self.inside)
        else:
            copy = r.op("or", copy, r.compare("icmp eq", r.op("and", other, _LANES), WHOLE))
        return r.both(copy, self.mine(other))

    def is_copied(self, write: Value) -> Value:
        """Whether it is a copy in flight that last wrote these bytes. To global memory it may come with part of
        a word, whose other bytes are anybody's."""
        r = self.r
        meets = r.compare("icmp ne", r.op("and", r.op("and", write, self.bytes), BYTES), 0)
        return r.op("or", self.inside, r.both(meets, r.compare("icmp ne", r.op("and", write, PROXY), 0)))

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
        theirs = r.op("udiv", r.op("lshr", other, LANE_BITS), self.warps)
        return r.both(strong, r.negation(r.both(narrow, r.compare("icmp ne", block, theirs))))

    def against(self, columns: tuple[int, int, int], reads: bool) -> tuple[Value, Value, Value, Value]:
        """An earlier access: whether this one touches the same bytes and is not ordered after it; its time,
        who and information."""
        r = self.r
        time, who, info = (self.get(column) for column in columns)
        meet = r.compare("icmp ne", r.op("and", r.op("and", info, self.bytes), BYTES), 0)
        late, other = (r.compare("icmp ugt", time, self.born), r.compare("icmp ne", who, self.who))
        found = r.variable("i1", 0)
        with r.when(r.both(meet, late, other)):
            agreed = r.op("or", self.agreed(info, who), self.awaited(info, who, reads))
            with r.unless(agreed):
                found.put(self.unordered(who, time, columns[0]))
        return found.get(), time, who, info

    def report(self, kind: Kind | Value, other: Value, info: Value) -> None:
        r = self.r
        number = r.const("i32", int(kind)) if isinstance(kind, Kind) else kind
        other_line = r.op("lshr", info, LINE_BITS)
        flags = r.op("or", self.flags, r.op("shl", r.op("and", info, (1 << LINE_BITS) - 1), 8))
        given = (number, r["space"], r["line"], other_line, self.address, self.who, other, self.bytes, flags)
        r.call("tw_check_finding", "void", r["ctx"], *given)


def judge(word: Word, writes: Value, stores: Value, same: Variable) -> None:
    """Judge one access and note it down. ``same`` is told whether a store changes nothing."""
    r = word.r
    found, time, who, info = word.against((CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE), False)
    kind = r.select(writes, r.const("i32", Kind.WRITE_AFTER_WRITE), r.const("i32", Kind.READ_AFTER_WRITE))
    with r.when(found):
        with r.unless(r.both(stores, same.get())):
            word.report(kind, who, info)
        with r.otherwise(), r.unless(_one_constant(word, info)):
            word.report(Kind.EQUAL_WRITES, who, info)
    with r.when(r.both(word.strong(word.flags), word.strong(info))):
        plain, _, writer, write = word.against((CELLS.PLAIN, CELLS.PLAIN_WRITER, CELLS.PLAIN_WRITE), False)
        with r.when(plain):
            word.report(kind, writer, write)
    with r.when(writes):
        for columns in (
            (CELLS.READ, CELLS.READER, CELLS.READING),
            (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING),
        ):
            early, _, reader, reading = word.against(columns, True)
            with r.when(early):
                word.report(Kind.WRITE_AFTER_READ, reader, reading)
    _against_state(word, writes, stores)
    _remember(word, writes, time, who, info)


def _one_constant(word: Word, info: Value) -> Value:
    """Whether a line always stores the same: then it cannot race with itself for the worse."""
    r = word.r
    constant = r.compare("icmp ne", r.op("and", r["flags"], CONSTANT), 0)
    return r.both(constant, r.compare("icmp eq", r.op("lshr", info, LINE_BITS), r["line"]))


def _against_state(word: Word, writes: Value, stores: Value) -> None:
    """Bytes that nobody wrote, and copies in flight."""
    r = word.r
    state = word.get(CELLS.STATE)
    odd = r.op("and", state, r.op("or", word.bytes, ARRIVING | MANY_LEAVING))
    with r.unless(r.compare("icmp eq", odd, 0)):
        missing = r.op("and", state, word.bytes)
        with r.unless(stores), r.unless(r.compare("icmp eq", missing, 0)):
            if word.excused:  # asked once, as bytes count as written when they have been read
                with r.when(r.compare("icmp eq", word.excuse.get(), _UNASKED)):
                    word.excuse.put(r.cast("zext", word.excused(r), "i32"))
            with r.unless(r.compare("icmp eq", word.excuse.get(), 1)):
                word.report(Kind.UNSET, word.who, r.const("i32", 0))
        writer, write = word.get(CELLS.WRITER), word.get(CELLS.WRITE)
        arriving = r.both(r.compare("icmp ne", r.op("and", state, ARRIVING), 0), word.is_copied(write))
        with r.when(arriving), r.unless(word.agreed(write, writer)):
            kind = r.select(writes, r.const("i32", Kind.WRITE_IN_FLIGHT), r.const("i32", Kind.READ_IN_FLIGHT))
            word.report(kind, writer, write)
        with r.when(writes), r.unless(r.compare("icmp eq", r.op("and", state, MANY_LEAVING), 0)):
            word.report(Kind.SOURCE_IN_FLIGHT, word.get(CELLS.READER), word.get(CELLS.READING))
    foreign = r.select(word.remote, r.const("i32", FOREIGN), r.const("i32", 0))
    rest = r.op("or", r.op("and", state, r.op("xor", word.bytes, -1)), foreign)
    word.put(CELLS.STATE, rest)


def _remember(word: Word, writes: Value, time: Value, who: Value, info: Value) -> None:
    r = word.r
    with r.when(writes):
        # Neighbours within a word that lanes of one instruction write are remembered together.
        together = r.both(
            r.compare("icmp eq", time, word.now),
            word.mine(who),
            r.compare("icmp eq", r.op("lshr", info, LINE_BITS), r["line"]),
            r.compare("icmp eq", r.op("and", r.op("and", info, word.bytes), BYTES), 0),
        )
        with r.when(r.both(word.strong(word.flags), r.negation(word.strong(info)))):
            # Others may come to it by atomic accesses, which agree with this one.
            pairs = ((CELLS.PLAIN, time), (CELLS.PLAIN_WRITER, who), (CELLS.PLAIN_WRITE, info))
            for column, value in pairs:
                word.put(column, value)
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
        "or", r.compare("icmp ule", time, word.born), r.negation(word.unordered(who, time, CELLS.READ))
    )
    own = word.mine(who)
    with r.when(r.both(own, r.negation(stale), r.compare("icmp ne", who, word.who))):
        alike = r.compare("icmp eq", r.op("and", r.op("xor", info, word.info), BYTES), 0)
        both = r.op("or", word.high, r.select(alike, r.const("i32", SEVERAL), r.const("i32", MIXED)))
        word.put(CELLS.READER, both)
        word.put(CELLS.READING, r.op("or", word.info, r.op("and", info, BYTES)))
        word.put(CELLS.READ, word.now)
    with r.otherwise():
        with r.when(r.op("or", own, stale)):
            note(word, (CELLS.READ, CELLS.READER, CELLS.READING))
        with r.otherwise():
            earlier, reader = word.get(CELLS.EARLIER), word.get(CELLS.EARLIER_READER)
            free = r.op(
                "or",
                r.compare("icmp ule", earlier, word.born),
                r.negation(word.unordered(reader, earlier, CELLS.EARLIER)),
            )
            with r.when(r.op("or", free, word.mine(reader))):
                note(word, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))


def note(word: Word, columns: tuple[int, int, int]) -> None:
    for column, value in zip(columns, (word.now, word.who, word.info), strict=True):
        word.put(column, value)
