"""Shadow memory: where the cells of an address are, and the race check of one word, emitted into a routine.

An access is compared with the word's shadow (its last write, two reads, copies in flight, uninitialised bytes), and
recorded there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.emulator.check_layout import (
    ACCESS,
    CELLS,
    CHECK,
    CLOCKS,
    RANGE,
    SHADOW,
    STATE,
    WHO,
    Action,
    FindingKind,
)
from tilewise.emulator.checking.check_routine import CheckRoutine
from tilewise.emulator.checking.vector_clocks import COVERED_LANE, ordered_before
from tilewise.emulator.layout import BLOCK, GENERIC, LAUNCH, RANK_SHIFT, WINDOW, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, Ptr, routine
from tilewise.emulator.support.checked import record_finding, serial_of
from tilewise.emulator.support.cluster_parts import find_block
from tilewise.emulator.support.memory_access import find_range

__all__ = ["ShadowWord", "check_and_record", "find_cell", "find_shadow", "look_up_shadow", "reserve_shadow"]

_UNKNOWN = 2
_TIME_COLUMNS = (CELLS.WRITTEN, CELLS.READ, CELLS.EARLIER, CELLS.PLAIN)


# -- address → cells -------------------------------------------------------------------------------
def reserve_shadow(r: CheckRoutine) -> Value:
    """Return the pointer to an empty ``SHADOW``, for a lookup to fill in."""
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    r.fill(place, 0, SHADOW.SIZE)
    return place


def find_cell(r: CheckRoutine, place: Value, offset: Value) -> list[Value]:
    """Return the pointers to the cell's columns for an address ``offset`` bytes into a ``SHADOW``."""
    row, stride = offset & -4, r.field(place, SHADOW.STRIDE, "i64")
    first = r.at(r.field(place, SHADOW.CELLS, "ptr"), row)
    return [r.at(first, stride * column) for column in range(CELLS.COLUMNS)]


def find_shadow(r: CheckRoutine, place: Value, here: Value, space: Value) -> Value:
    """Whether an address has shadow memory; ``place`` then describes it. It is a cache as well, and zero at first."""
    away = here - r.field(place, SHADOW.FIRST, "i64")
    known = r.variable("i1", r.is_below(away, r.field(place, SHADOW.BYTES, "i64")))
    with r.unless(known.get()):
        known.put(look_up_shadow(r, space, here, place))
    return known.get()


@routine("tw_check_where", "i1", "ctx", "block")
def look_up_shadow(r: CheckRoutine, space: I32, address: I64, place: Ptr) -> None:
    """The routine ``tw_check_where``: fills in ``place`` for an address; false if it has no shadow memory."""
    r.put(place, SHADOW.OWNER, NULL)
    start = r.variable("i64", -1)  # of the window of shared memory
    with r.when(r.equals(space, Space.SHARED)):
        start.put(0)
    away = address - GENERIC.SHARED
    with r.when(r.both(r.equals(space, 0), r.is_below(away, WINDOW))):
        start.put(GENERIC.SHARED)
    with r.when(r.differs(start.get(), -1)):
        _in_shared(r, start.get())
    _in_global(r, _range_of(r))


def _in_shared(r: CheckRoutine, start: Value) -> None:
    """Answer for an address of shared memory, whose window begins at ``start``."""
    place = r["place"]
    within = (r["address"] - start) & (WINDOW - 1)
    rank = within >> RANK_SHIFT
    owner = r.variable("ptr", r["block"])
    with r.when(r.differs(rank, 0)):
        r.give_if(r.is_above(rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), 0)
        owner.put(find_block(r, r.field(r["block"], BLOCK.FIRST, "ptr"), rank - 1))
    here = owner.get()
    size = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    first_address = start + (rank << RANK_SHIFT)
    with r.when(r.differs(here, r["block"])):
        r.put(place, SHADOW.OWNER, here)
    cells, memory = r.field(here, BLOCK.CELLS, "ptr"), r.field(here, BLOCK.SHARED, "ptr")
    r.put_fields(place, {SHADOW.FIRST: first_address, SHADOW.BYTES: size, SHADOW.CELLS: cells})
    r.put_fields(place, {SHADOW.STRIDE: r.check_field(CHECK.STRIDE), SHADOW.MEMORY: memory})
    r.put(place, SHADOW.BEGAN, r.field(r.clocks(), CLOCKS.BEGAN, "i64"))
    r.give(r.is_below(r["address"] - first_address, size))


def _range_of(r: CheckRoutine) -> Value:
    """The range that an address of global memory lies in; returns false from the routine if there is none."""
    state = r.state()
    known = r.variable("ptr", r.field(state, CHECK.LAST, "ptr"))
    r.give_if(r.is_null(known.get()), 0)
    first, end = (r.field(known.get(), field, "i64") for field in (RANGE.FIRST, RANGE.END))
    with r.unless(r.is_below(r["address"] - first, end - first)):
        ranges, count = r.field(state, CHECK.RANGES, "ptr"), r.field(state, CHECK.RANGE_COUNT, "i64")
        item, inside = find_range(r, ranges, count, RANGE.SIZE, r["address"])
        r.give_if(r.negation(inside), 0)
        known.put(item)
        r.put(state, CHECK.LAST, item)
    return known.get()


def _in_global(r: CheckRoutine, item: Value) -> None:
    """Answer for an address within an array."""
    place, cells = r["place"], r.field(item, RANGE.CELLS, "ptr")
    first, end, stride = (r.field(item, field, "i64") for field in (RANGE.FIRST, RANGE.END, RANGE.STRIDE))
    # NOTE: memory without cells is given no bytes, so that the cached ``place`` never matches it.
    size = r.select(r.is_null(cells), 0, end - first)
    r.put_fields(place, {SHADOW.FIRST: first, SHADOW.BYTES: size, SHADOW.CELLS: cells, SHADOW.STRIDE: stride})
    r.put_fields(place, {SHADOW.MEMORY: r.as_pointer(first), SHADOW.BEGAN: r.const("i64", 0)})
    r.give(r.differs(cells, NULL))


# -- one word --------------------------------------------------------------------------------------


@dataclass
class ShadowWord:
    """Emits the check of one lane's access to one word, in a routine whose parameters are the access's ``space``,
    ``action``, ``flags`` and ``line``."""

    r: CheckRoutine
    ignores_unset: Callable[[CheckRoutine], Value] | None = None  # whether uninitialised bytes are no finding

    def __post_init__(self) -> None:
        r = self.r
        self.now, self.serial = r.now(), serial_of(r)
        self.clock, self.base = r.own_clock(), r.clock_base()
        self.width = r.clock_width()
        self.blind = r.differs(r.check_field(CHECK.INCOMPLETE), 0)
        self.high = self.serial << WHO.LANE_BITS
        self.line = r["line"] << ACCESS.LINE_BITS
        # The lane that this clock covers further than its warp; whether a lane of this warp has a private clock.
        self.further = r.field(r.tail_of(self.clock), COVERED_LANE, "i32") >> WHO.LANE_BITS
        self.private = r.differs(r.field(r.private_lane(), 0, "i32"), 0)
        self.proven = {column: (r.variable("i32", -1), r.variable("i32", 0)) for column in _TIME_COLUMNS}
        self.unset_ignored = r.variable("i32", _UNKNOWN)
        self.flags = r["flags"] & ((1 << ACCESS.LINE_BITS) - 1)
        self.warps = r.narrow(r.field(r["ctx"], LAUNCH.WARPS, "i64"))
        self.alone = r.differs(r.check_field(CHECK.ALONE), 0)
        self.least = r.element(r.table(CLOCKS.LEAST), r.index(), "i32")
        self.place = reserve_shadow(r)
        self.writes = r.differs(r["action"], Action.LOAD)
        self.stores = r.equals(r["action"], Action.STORE)
        self.same = r.variable("i1", 0)  # whether a store leaves the value as it was

    def begin_lane(self) -> None:
        """Start on another lane: drop what was proven by the private clock of the one before."""
        with self.r.when(self.private):
            for who, _ in self.proven.values():
                who.put(-1)

    def select_cell(self, address: Value, who: Value, bytes_: Value) -> None:
        """Select the cell of an address that was found, for an access by ``who`` to some bytes."""
        r, place = self.r, self.place
        self.who, self.bytes, self.address = who, bytes_, address
        self.born = r.narrow(r.field(place, SHADOW.BEGAN, "i64"))
        self.remote = r.differs(r.field(place, SHADOW.OWNER, "ptr"), NULL)
        self.inside = r.differs(self.born, 0)  # of shared memory
        self.ordered_until = r.select(self.inside | self.alone, self.least, 0)
        self.offset = address - r.field(place, SHADOW.FIRST, "i64")
        self.cell = find_cell(r, place, self.offset)
        self.memory = r.at(r.field(place, SHADOW.MEMORY, "ptr"), self.offset)
        self.info = self.line | bytes_ | self.flags
        self.same.put(0)

    def get(self, column: int) -> Value:
        return self.r.field(self.cell[column], 0, "i32")

    def put(self, column: int, value: Value) -> None:
        self.r.put(self.cell[column], 0, value)

    def record(self, columns: tuple[int, int, int]) -> None:
        """Record the access in these columns."""
        for column, value in zip(columns, (self.now, self.who, self.info), strict=True):
            self.put(column, value)

    def is_own_warp(self, other: Value) -> Value:
        """Whether an access was made by this warp."""
        return self.r.equals(self.r.op("lshr", other, WHO.LANE_BITS), self.serial)

    def is_unordered(self, other: Value, time: Value, column: int) -> Value:
        """Whether the access of ``other`` at a time, read from ``column``, is not ordered before this one."""
        r = self.r
        entry = r.wide(other >> WHO.LANE_BITS) - self.base
        inside = r.is_below(entry, self.width)
        known = r.element(self.clock, r.select(inside, entry, 0), "i32")
        before = r.select(inside, r.is_at_least(known, time), self.blind)
        own_bytes = r.equals(other & WHO.LANE_MASK, WHO.MIXED)
        late = r.variable("i1", r.negation(before | r.both(own_bytes, self.is_own_warp(other))))
        further = r.equals(self.further, other >> WHO.LANE_BITS)
        with r.when(late.get()):
            # Neighbouring words were mostly accessed by the same lanes, at the same time.
            who, till = self.proven[column]
            again = r.both(r.equals(who.get(), other), r.is_at_least(till.get(), time))
            late.put(r.negation(again))
        with r.when(r.both(late.get(), further | self.private)):
            known = ordered_before(r, other, time, self.who)
            with r.when(known):
                late.put(0)
                who.put(other)
                till.put(time)
        return late.get()

    def is_awaited(self, info: Value, other: Value, reads: bool) -> Value:
        """Whether an earlier access is a copy that this warp issued, or a read that it made as one.

        Lanes that wait for a copy's mbarrier need not synchronise; a read that all lanes make as one is over for all.
        """
        r = self.r
        copy = r.has_any(info, ACCESS.PROXY)
        if not reads:  # groups of stores to global memory are waited for by the lane that issued them alone
            copy = r.both(copy, self.inside)
        else:
            copy |= r.equals(other & WHO.LANE_MASK, WHO.WHOLE)
        return r.both(copy, self.is_own_warp(other))

    def is_write_in_flight(self, write: Value) -> Value:
        """Whether these bytes are those that a copy in flight writes: one to global memory may write part of a word."""
        r = self.r
        meets = r.has_any(write & self.bytes, ACCESS.BYTES)
        return self.inside | r.both(meets, r.has_any(write, ACCESS.PROXY))

    def are_atomic(self, before: Value, other: Value) -> Value:
        """Whether both accesses are atomic, of scopes that include each other: then they do not race."""
        r = self.r
        first, second = (info & (ACCESS.STRONG | ACCESS.DOUBTFUL) for info in (before, self.info))
        most = first | second  # of both atomic, or one atomic and one doubtful
        both = r.has_any(first & second, ACCESS.STRONG)
        strong = r.either(both, r.equals(most, ACCESS.STRONG | ACCESS.DOUBTFUL))
        narrow = r.has_any(before | self.info, ACCESS.BLOCK_SCOPED)
        block = self.serial // self.warps
        theirs = (other >> WHO.LANE_BITS) // self.warps
        return r.both(strong, r.negation(r.both(narrow, r.differs(block, theirs))))

    def find_conflict(self, columns: tuple[int, int, int], reads: bool) -> tuple[Value, Value, Value, Value]:
        """Return whether the access in these columns races with this one; its time, accessor and the rest."""
        r = self.r
        time, who, info = (self.get(column) for column in columns)
        meet = r.has_any(info & self.bytes, ACCESS.BYTES)
        late, other = (r.is_above(time, self.born), r.differs(who, self.who))
        found = r.variable("i1", 0)
        with r.when(r.both(meet, late, other)):
            agreed = self.are_atomic(info, who) | self.is_awaited(info, who, reads)
            with r.unless(agreed):
                found.put(self.is_unordered(who, time, columns[0]))
        return found.get(), time, who, info

    def report(self, kind: FindingKind | Value, other: Value, info: Value) -> None:
        r = self.r
        before = info >> ACCESS.LINE_BITS
        flags = self.flags | ((info & ((1 << ACCESS.LINE_BITS) - 1)) << 8)
        found = (before, self.address, other, self.bytes, flags, r["space"])
        record_finding(r, kind, self.who, *found)


def check_and_record(word: ShadowWord) -> None:
    """Report the races of one access, and record it."""
    r, writes, stores = word.r, word.writes, word.stores
    found, time, who, info = word.find_conflict(CELLS.LAST_WRITE, False)
    kind = r.select(writes, FindingKind.WRITE_AFTER_WRITE, FindingKind.READ_AFTER_WRITE)
    with r.when(found):
        with r.unless(r.both(stores, word.same.get())):
            word.report(kind, who, info)
        with r.otherwise():
            # Two writes of one line, of a constant: such a race with itself changes nothing.
            constant = r.has_any(r["flags"], ACCESS.CONSTANT)
            alike = r.equals(info >> ACCESS.LINE_BITS, r["line"])
            with r.unless(r.both(constant, alike)):
                word.report(FindingKind.EQUAL_WRITES, who, info)
    with r.when(r.both(r.has_any(word.flags, ACCESS.STRONG), r.has_any(info, ACCESS.STRONG))):
        plain, _, writer, write = word.find_conflict(CELLS.PLAIN_STORE, False)
        with r.when(plain):
            word.report(kind, writer, write)
    with r.when(writes):
        for columns in (CELLS.LAST_READ, CELLS.EARLIER_READ):
            early, _, reader, reading = word.find_conflict(columns, True)
            with r.when(early):
                word.report(FindingKind.WRITE_AFTER_READ, reader, reading)
    _check_state(word)
    _record(word, time, who, info)


def _check_state(word: ShadowWord) -> None:
    """Report reads of uninitialised bytes, and accesses to memory of copies in flight."""
    r = word.r
    state = word.get(CELLS.STATE)
    odd = state & (word.bytes | (STATE.ARRIVING | STATE.MANY_LEAVING))
    with r.when(r.differs(odd, 0)):
        missing = state & word.bytes
        with r.unless(word.stores), r.when(r.differs(missing, 0)):
            # Found out once per access: bytes count as written once they have been read.
            if word.ignores_unset:
                with r.when(r.equals(word.unset_ignored.get(), _UNKNOWN)):
                    word.unset_ignored.put(r.cast("zext", word.ignores_unset(r), "i32"))
            with r.when(r.differs(word.unset_ignored.get(), 1)):
                word.report(FindingKind.UNSET, word.who, r.const("i32", 0))
        writer, write = word.get(CELLS.WRITER), word.get(CELLS.WRITE)
        arriving = r.both(r.has_any(state, STATE.ARRIVING), word.is_write_in_flight(write))
        with r.when(arriving), r.unless(word.are_atomic(write, writer)):
            kind = r.select(word.writes, FindingKind.WRITE_IN_FLIGHT, FindingKind.READ_IN_FLIGHT)
            word.report(kind, writer, write)
        with r.when(word.writes), r.when(r.has_any(state, STATE.MANY_LEAVING)):
            word.report(FindingKind.SOURCE_IN_FLIGHT, word.get(CELLS.READER), word.get(CELLS.READING))
    foreign = r.select(word.remote, STATE.FOREIGN, 0)
    word.put(CELLS.STATE, r.without(state, word.bytes) | foreign)


def _record(word: ShadowWord, time: Value, who: Value, info: Value) -> None:
    r = word.r
    with r.when(word.writes):
        # Bytes of one word that lanes of one instruction write are one record.
        together = r.both(
            r.equals(time, word.now),
            word.is_own_warp(who),
            r.equals(info >> ACCESS.LINE_BITS, r["line"]),
            r.equals(info & word.bytes & ACCESS.BYTES, 0),
        )
        with r.when(r.both(r.has_any(word.flags, ACCESS.STRONG), r.negation(r.has_any(info, ACCESS.STRONG)))):
            # Later atomic accesses do not race with this write, but may with the plain one before it.
            for column, value in zip(CELLS.PLAIN_STORE, (time, who, info), strict=True):
                word.put(column, value)
        mixed = word.high | WHO.MIXED
        joint = word.info | (info & ACCESS.BYTES)
        word.put(CELLS.WRITER, r.select(together, mixed, word.who))
        word.put(CELLS.WRITE, r.select(together, joint, word.info))
        word.put(CELLS.WRITTEN, word.now)
    with r.otherwise():
        _record_read(word)


def _record_read(word: ShadowWord) -> None:
    """Record a read. Of reads that are not ordered, those of two warps are kept."""
    r = word.r
    time, who, info = (word.get(column) for column in CELLS.LAST_READ)
    stale = r.is_at_most(time, word.born) | r.negation(word.is_unordered(who, time, CELLS.READ))
    own = word.is_own_warp(who)
    with r.when(r.both(own, r.negation(stale), r.differs(who, word.who))):
        alike = r.equals((info ^ word.info) & ACCESS.BYTES, 0)
        word.put(CELLS.READER, word.high | r.select(alike, WHO.SEVERAL, WHO.MIXED))
        word.put(CELLS.READING, word.info | (info & ACCESS.BYTES))
        word.put(CELLS.READ, word.now)
    with r.otherwise():
        with r.when(own | stale):
            word.record(CELLS.LAST_READ)
        with r.otherwise():
            earlier, reader = word.get(CELLS.EARLIER), word.get(CELLS.EARLIER_READER)
            ordered = r.negation(word.is_unordered(reader, earlier, CELLS.EARLIER))
            past = r.is_at_most(earlier, word.born)
            with r.when(r.either(past, ordered, word.is_own_warp(reader))):
                word.record(CELLS.EARLIER_READ)
