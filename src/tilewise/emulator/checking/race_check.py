"""The race check of a warp's access to memory.

``tw_check`` goes lane by lane and word by word, and serves every access; ``tw_check_touch`` checks one access to a
stretch of memory. The fast path is for accesses whose lanes' offsets are known at compile time: each word is checked
once, for the common case that no earlier access can race with this one. In any other case it returns false, and
``tw_check`` checks every lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import ACCESS, CELLS, CHECK, CLOCKS, SHADOW, STATE, WHO, FindingKind
from tilewise.emulator.checking import shadow_memory
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.vector_clocks import merge_private_clock, ordered_before
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, ZERO_I32, Loop, Ptr, routine
from tilewise.emulator.support.checked import accessor, record_finding, serial_of

__all__ = ["ROW", "check_access"]

ROW = 384  # bytes of a table for 32 words: which word, counted from the first; which lane; which bytes
_VECTOR = "<32 x i32>"


@check_routine("tw_check")
def check_access(
    r: CheckRoutine,
    addresses: Ptr,
    mask: I32,
    size: I32,
    space: I32,
    action: I32,
    flags: I32,
    line: I32,
    values: Ptr,
    element: I32,
) -> None:
    """Check and record an access by some lanes: of each, ``size`` bytes at its address.

    ``values`` are those that a store is about to write, element after element of all lanes; null if they are
    not known.
    """
    word = shadow_memory.ShadowWord(r, _ignores_unset)
    valued = r.both(word.stores, r.differs(values, NULL))
    with _each_distinct_address(r, word.writes) as (lane, address, name):
        word.begin_lane()
        with _each_word(word, address, r.wide(size), name) as (loop, offset, count):
            loop.again(_fast_read(word))
            with r.when(valued):
                _compare_stored(word, lane, offset, count)
            shadow_memory.check_and_record(word)


@contextmanager
def _each_word(
    word: shadow_memory.ShadowWord, start: Value, length: Value, lane: Value
) -> Iterator[tuple[Loop, Value, Value]]:
    """Loop over the words of a lane's access that have shadow memory, and select the cell of each; yield the loop, and
    where in the access its bytes in the word begin and how many they are."""
    r, place = word.r, word.place
    end = start + length
    at = r.variable("i64", start)
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.is_at_least(here, end))
        within = here & 3
        count = r.intrinsic("llvm.umin", 4 - within, end - here)
        at.put(here + count)
        ones = (1 << count) - 1
        loop.again(r.negation(shadow_memory.find_shadow(r, place, here, r["space"])))
        word.select_cell(here, word.high | lane, r.narrow(ones << within))
        owner = r.field(place, SHADOW.OWNER, "ptr")
        with r.unless(r.is_null(owner)):  # a block whose memory is used must not exit before it
            r.put_fields(owner, {BLOCK.USED: word.now, BLOCK.USER: word.who, BLOCK.USE: r["line"]})
        yield loop, here - start, count


def _ignores_unset(r: CheckRoutine) -> Value:
    """Whether this access may read uninitialised bytes: a bitwise operation, or a copy of a structure's padding."""
    found = r.variable("i1", r.has_any(r["flags"], ACCESS.BITWISE))
    with r.when(r.has_any(r["flags"], ACCESS.PASSED_ON)):
        found.put(_unset_is_padding(r, r["addresses"], r["mask"], r["size"], r["space"]))
    return found.get()


@routine("tw_check_padded", "i1", "ctx", "block")
def _unset_is_padding(r: CheckRoutine, addresses: Ptr, mask: I32, size: I32, space: I32) -> None:
    """Whether the uninitialised bytes are padding of a structure: the same in each lane's read, and not all of it."""
    place, count = shadow_memory.reserve_shadow(r), r.wide(size)
    before = r.variable("i64", 0)
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        unset = r.variable("i64", 0)
        with r.count(count) as i:
            here = address + i
            r.give_if(r.negation(shadow_memory.look_up_shadow(r, space, here, place)), 0)
            offset = here - r.field(place, SHADOW.FIRST, "i64")
            state = r.wide(r.field(shadow_memory.find_cell(r, place, offset)[CELLS.STATE], 0, "i32"))
            bit = (state >> (offset & 3)) & 1
            unset.put(unset.get() | (bit << i))
        every = r.equals(unset.get(), (1 << count) - 1)
        other = r.both(r.differs(before.get(), 0), r.differs(before.get(), unset.get()))
        r.give_if(every | other | r.equals(unset.get(), 0), 0)
        before.put(unset.get())
    r.give(r.differs(before.get(), 0))


@contextmanager
def _each_distinct_address(r: CheckRoutine, writes: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over the distinct addresses of the lanes: yields a first lane, its address, and the lane to record.

    Lanes that read one address are recorded as one access.
    """
    left = r.variable("i32", r["mask"])
    with r.loop() as loop:
        rest = left.get()
        loop.leave(r.equals(rest, 0))
        lane = r.find_lowest(rest, True)
        address = r.element(r["addresses"], lane, "i64")
        alone = 1 << lane
        together = r.variable("i32", alone)
        with r.unless(writes):
            every = r.field(r["addresses"], 0, "<32 x i64>", 64)
            together.put(r.bits(r.equals(every, r.splat(address))) & rest)
        those = together.get()
        left.put(r.without(rest, those))
        single = r.equals(those, alone)
        name = r.select(single, lane, WHO.SEVERAL)
        whole = r.has_any(r["flags"], ACCESS.WHOLE_WARP)
        yield lane, address, r.select(whole, WHO.WHOLE, name)


@check_routine("tw_check_leave")
def _leave(r: CheckRoutine, lanes: I32) -> None:
    """Some lanes of a warp exit. Report a block whose last lanes exit while another block may still use its memory."""
    time, user = r.field(r["block"], BLOCK.USED, "i32"), r.field(r["block"], BLOCK.USER, "i32")
    last = r.equals(lanes, r.field(r["warp"], WARP.LIVE, "i32"))
    some = r.both(r.differs(time, 0), r.differs(lanes, 0))
    r.give_if(r.negation(r.both(some, last)))
    merge_private_clock(r)
    known = ordered_before(r, user, time, accessor(r, 0))
    with r.when(known):  # as long as this warp was there, so was the memory
        r.put(r["block"], BLOCK.USED, 0)
        r.give()
    done = r.wide(r.field(r["block"], BLOCK.DONE, "i32") + 1)
    with r.when(r.is_at_least(done, r.field(r["ctx"], LAUNCH.WARPS, "i64"))):
        use = r.field(r["block"], BLOCK.USE, "i32")
        record_finding(r, FindingKind.EARLY_EXIT, accessor(r, 0), use, 0, user, line=ZERO_I32)


def _fast_read(word: shadow_memory.ShadowWord) -> Value:
    """Whether a few comparisons suffice to see that a read races with nothing; then it is recorded."""
    r = word.r
    quick = r.variable("i1", 0)
    with r.unless(word.writes):
        state = r.equals(word.get(CELLS.STATE) & (STATE.FLAGS | ACCESS.BYTES), 0)
        past = r.is_at_most(word.get(CELLS.WRITTEN), word.ordered_until)
        plain = r.both(state, past, r.negation(word.remote))
        reader, earlier = word.get(CELLS.READER), word.get(CELLS.EARLIER_READER)
        first = r.is_at_most(word.get(CELLS.READ), word.ordered_until) | r.equals(reader, word.who)
        over = r.is_at_most(word.get(CELLS.EARLIER), word.ordered_until)
        second = r.either(over, r.equals(earlier, word.who))
        others = r.negation(word.is_own_warp(reader))
        full = r.both(others, r.negation(second), r.negation(word.is_own_warp(earlier)))
        with r.when(r.both(plain, first)):
            word.record(CELLS.LAST_READ)
            quick.put(1)
        with r.otherwise(), r.when(r.both(plain, others, second)):
            word.record(CELLS.EARLIER_READ)
            quick.put(1)
        with r.when(r.both(plain, full)):  # two others are remembered
            quick.put(1)
    return quick.get()


def _compare_stored(word: shadow_memory.ShadowWord, lane: Value, offset: Value, count: Value) -> None:
    """Set ``word.same`` to whether a store writes what is there already, or what another lane of it writes."""
    r = word.r
    element = r.wide(r["element"])
    number = offset // element
    within = offset - number * element
    start = (number * element) * 32 + within
    mine = r.at(r["values"], start + r.wide(lane) * element)
    writer = word.get(CELLS.WRITER)
    other = writer & WHO.LANE_MASK
    beside = r.both(
        r.equals(word.get(CELLS.WRITTEN), word.now),
        word.is_own_warp(writer),
        r.equals(word.get(CELLS.WRITE) >> ACCESS.LINE_BITS, r["line"]),
        # NOTE: the time and the line are those of another turn too, behind which the other's values have changed.
        r.has_any(r["mask"] >> (other & 31), 1),
        r.equals(r.element(r["addresses"], other & 31, "i64"), r.element(r["addresses"], lane, "i64")),
    )
    theirs = r.at(r["values"], start + r.wide(other & 31) * element)
    _compare(word, mine, r.select(beside, theirs, word.memory), count)


def _compare(word: shadow_memory.ShadowWord, mine: Value, old: Value, count: Value) -> None:
    r = word.r
    word.same.put(1)
    with r.count(count) as i:
        equal = r.equals(r.field(r.at(mine, i), 0, "i8"), r.field(r.at(old, i), 0, "i8"))
        word.same.put(r.both(word.same.get(), equal))


@check_routine("tw_check_touch")
def _check_stretch(
    r: CheckRoutine,
    lane: I32,
    address: I64,
    length: I64,
    space: I32,
    action: I32,
    flags: I32,
    line: I32,
    values: Ptr,
) -> None:
    """Check and record one lane's access to a stretch of memory; ``values`` are what a store writes, or null."""
    word = shadow_memory.ShadowWord(r)
    with _each_word(word, address, length, lane) as (_, offset, count):
        with r.when(r.differs(values, NULL)):
            _compare(word, r.at(values, offset), word.memory, count)
        shadow_memory.check_and_record(word)
        proxy = r.has_any(flags, ACCESS.PROXY)
        with r.when(r.both(proxy, r.negation(word.writes))):
            _check_proxy_fence(word)


def _check_proxy_fence(word: shadow_memory.ShadowWord) -> None:
    """Report a read by the asynchronous proxy of a thread's write with no proxy fence of either warp between."""
    r = word.r
    time, who, info = (word.get(column) for column in CELLS.LAST_WRITE)
    thread = r.equals(info & ACCESS.PROXY, 0)
    with r.when(r.both(thread, r.is_above(time, word.born))):
        warps, serial = r.warps_of_cluster(), r.wide(who >> WHO.LANE_BITS)
        # NOTE: of other clusters' fences nothing is known here.
        near = r.equals(serial // warps, r.wide(word.serial) // warps)
        with r.when(r.both(near, r.is_after_last(time, CLOCKS.FENCED, who))):
            word.report(FindingKind.UNFENCED, who, info)


# -- the fast path ---------------------------------------------------------------------------------


class _FastRoutine(CheckRoutine):
    """A routine of the fast path: where the words' cells are, and up to which time everything is ordered before."""

    def find_cells(self) -> None:
        """Find the cells; return false from the routine if there are none that it can check."""
        place, state = shadow_memory.reserve_shadow(self), self.state()
        self.give_if(self.has_any(self["address"], 3), 0)
        cells = self.variable("ptr", self.field(self["block"], BLOCK.CELLS, "ptr"))
        self.stride = self.variable("i64", self.field(state, CHECK.STRIDE, "i64"))
        offset = self.variable("i64", self["address"])
        limit = self.variable("i64", self.field(self["ctx"], LAUNCH.SHARED_BYTES, "i64"))
        past = self.variable("i32", self.field(self.slot_of_warp(CLOCKS.LEAST), 0, "i32"))
        with self.unless(self.equals(self["space"], Space.SHARED)):
            found = shadow_memory.look_up_shadow(self, self["space"], self["address"], place)
            local = self.is_null(self.field(place, SHADOW.OWNER, "ptr"))
            self.give_if(self.negation(self.both(found, local)), 0)
            cells.put(self.field(place, SHADOW.CELLS, "ptr"))
            self.stride.put(self.field(place, SHADOW.STRIDE, "i64"))
            offset.put(self["address"] - self.field(place, SHADOW.FIRST, "i64"))
            limit.put(self.field(place, SHADOW.BYTES, "i64"))
            alone = self.differs(self.field(state, CHECK.ALONE, "i64"), 0)
            inside = self.differs(self.field(place, SHADOW.BEGAN, "i64"), 0)
            past.put(self.select(alone | inside, past.get(), 0))
        far = self["span"] * 4
        room = self.is_at_most(far, limit.get())
        fits = self.is_at_most(offset.get(), limit.get() - far)
        self.give_if(self.negation(self.both(room, fits)), 0)
        self.ordered_until, self.moment = past.get(), self.now()
        self.synced = self.field(self.slot_of_warp(CLOCKS.SYNCED), 0, "i32")
        self.high = serial_of(self) << WHO.LANE_BITS
        self.first = self.at(cells.get(), offset.get())


@check_routine("tw_check_row", "i1")
def _check_row(
    r: _FastRoutine, address: I64, table: Ptr, words: I64, space: I32, writes: I32, line: I32, span: I64
) -> None:
    """Check and record an access to adjacent words, a multiple of 32 of them; false if it needs the full check."""
    r.find_cells()
    with r.count(words, 0, 32) as start:
        _WordRow(r, r.item(r.first, start, 4), r.item(table, start >> 5, ROW)).check()
    r.give(1)


@check_routine("tw_check_few", "i1")
def _check_few(
    r: _FastRoutine, address: I64, table: Ptr, words: I64, space: I32, writes: I32, line: I32, span: I64
) -> None:
    """Check and record an access to words that are not all adjacent; false if it needs the full check."""
    r.find_cells()
    with r.count(words) as i:
        number = i & 31
        entry = r.at(r.item(table, i >> 5, ROW), number * 4)
        _OneWord(r, r.item(r.first, r.field(entry, 0, "i32"), 4), entry).check()
    r.give(1)


class _WordRow:
    """The shadow cells of 32 adjacent words, as vectors, and the access to them, which an entry of the table says."""

    type = _VECTOR

    def __init__(self, r: _FastRoutine, first: Value, entry: Value) -> None:
        self.r = r
        self.columns = [r.at(first, r.stride.get() * i) for i in range(CELLS.COLUMNS)]
        self.who = self.spread(r.high) | r.field(entry, 128, self.type, 4)
        line = self.spread(r["line"] << ACCESS.LINE_BITS)
        self.info = line | r.field(entry, 256, self.type, 4)
        self.ordered_until, self.now = self.spread(r.ordered_until), self.spread(r.moment)
        self.synced = self.spread(r.synced)

    def spread(self, value: Value) -> Value:
        return self.r.splat(value)

    def has_any(self, lanes: Value) -> Value:
        return self.r.differs(self.r.bits(lanes), 0)

    def get(self, column: int) -> Value:
        return self.r.field(self.columns[column], 0, self.type, 4)

    def put(self, column: int, value: Value) -> None:
        self.r.put(self.columns[column], 0, value)

    def check(self) -> None:
        r = self.r
        with r.when(r.differs(r["writes"], 0)):
            self.store()
        with r.otherwise():
            self.load()

    def is_late(self, time: int, who: int) -> Value:
        """Which words' recorded accesses are another lane's and not known to be ordered before."""
        r = self.r
        later = r.is_above(self.get(time), self.ordered_until)
        return later & r.differs(self.get(who), self.who)

    def leave_fast_path(self, lanes: Value) -> None:
        self.r.give_if(self.has_any(lanes), 0)

    def load(self) -> None:
        r = self.r
        state = self.get(CELLS.STATE) & (STATE.FLAGS | STATE.UNSET)
        wrong = self.is_late(CELLS.WRITTEN, CELLS.WRITER) | r.differs(state, 0)
        self.leave_fast_path(wrong)
        reader, warp = self.get(CELLS.READER), self.who >> WHO.LANE_BITS
        is_late = r.is_above(self.get(CELLS.READ), self.ordered_until)
        own = r.equals(reader >> WHO.LANE_BITS, warp)
        # NOTE: the warp may have synchronised since, where others of its block have not.
        again = own & r.is_above(self.get(CELLS.READ), self.synced)
        self.leave_fast_path(again & self.are_two_lanes(reader))
        first = (is_late ^ 1) | own  # goes to the first place
        with r.when(self.has_any(first)):
            several = (warp << WHO.LANE_BITS) | WHO.SEVERAL
            who = r.select(again & r.differs(reader, self.who), several, self.who)
            self.record(CELLS.LAST_READ, first, who)
        others = first ^ 1
        with r.when(self.has_any(others)):
            second = r.is_at_most(self.get(CELLS.EARLIER), self.ordered_until)
            earlier = self.get(CELLS.EARLIER_READER) >> WHO.LANE_BITS
            second = (second | r.equals(earlier, warp)) & others
            with r.when(self.has_any(second)):
                self.record(CELLS.EARLIER_READ, second)

    def are_two_lanes(self, reader: Value) -> Value:
        """Of two readers of one warp: whether they are two single lanes, which the full check has to record."""
        r = self.r
        alone = [who & WHO.LANE_MASK for who in (reader, self.who)]
        together = [r.equals(lane, WHO.SEVERAL) for lane in alone]
        other = r.differs(reader, self.who)
        return other & (r.op("or", *together) ^ 1)

    def store(self) -> None:
        r = self.r
        wrong = r.has_any(self.get(CELLS.STATE), STATE.FLAGS)
        for time, who, _ in (CELLS.LAST_WRITE, CELLS.LAST_READ, CELLS.EARLIER_READ):
            wrong |= self.is_late(time, who)
        self.leave_fast_path(wrong)
        self.record(CELLS.LAST_WRITE)
        self.put(CELLS.STATE, r.const(self.who, 0))

    def record(
        self, columns: tuple[int, int, int], lanes: Value | None = None, who: Value | None = None
    ) -> None:
        """Record the access in these columns, where lanes are given in theirs alone."""
        for column, value in zip(columns, (self.now, who or self.who, self.info), strict=True):
            self.put(column, value if lanes is None else self.r.select(lanes, value, self.get(column)))


class _OneWord(_WordRow):
    """The shadow cell of one word, as scalars."""

    type = "i32"

    def spread(self, value: Value) -> Value:
        return value

    def has_any(self, lanes: Value) -> Value:
        return lanes

    def record(
        self, columns: tuple[int, int, int], lanes: Value | None = None, who: Value | None = None
    ) -> None:
        super().record(columns, None, who)
