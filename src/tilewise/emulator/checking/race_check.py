"""The race check of a warp's access to memory.

``tw_check`` goes lane by lane and word by word, and serves every access; ``tw_check_touch`` checks one access to a
stretch of memory. The fast path is for accesses whose lanes' offsets are known at compile time: each word is checked
once, for the common case that no earlier access can race with this one. In any other case it returns false, and
``tw_check`` checks every lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import (
    ACCESS,
    CELLS,
    CHECK,
    CLOCKS,
    SHADOW,
    STATE,
    WHO,
    Action,
    FindingKind,
)
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.shadow_memory import (
    ShadowWord,
    check_and_record,
    find_shadow,
    look_up_shadow,
    store_access,
)
from tilewise.emulator.checking.vector_clocks import merge_private_clock, ordered_before
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, ZERO_I32, Loop, MutableValue, Ptr, routine
from tilewise.emulator.support.checked import accessor, record_finding, serial_of

__all__ = ["ROW", "check_access"]


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
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    r.fill(place, 0, SHADOW.SIZE)
    word = ShadowWord(r, _ignores_unset)
    writes = r.differs(action, Action.LOAD)
    stores = r.equals(action, Action.STORE)
    valued = r.both(stores, r.differs(values, NULL))
    same = r.variable("i1", 0)
    with _each_distinct_address(r, writes) as (lane, address, name):
        word.begin_lane()
        with _each_shadow_word(r, place, address, r.wide(size)) as (loop, here, count, bytes_):
            word.select_cell(place, here, r.op("or", word.high, name), bytes_)
            _mark_used(word, place)
            loop.again(_fast_read(word, writes))
            same.put(0)
            with r.when(valued):
                _compare_stored(word, place, lane, r.op("sub", here, address), count, same)
            check_and_record(word, writes, stores, same)


@contextmanager
def _each_shadow_word(
    r: CheckRoutine, place: Value, start: Value, count: Value
) -> Iterator[tuple[Loop, Value, Value, Value]]:
    """Loop over the words of a stretch that have shadow memory: yields the loop, an address, how many bytes of the
    word are accessed, and which, a bit for each."""
    end = r.op("add", start, count)
    at = r.variable("i64", start)
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.is_at_least(here, end))
        within = r.op("and", here, 3)
        size = r.intrinsic("llvm.umin", r.op("sub", 4, within), r.op("sub", end, here))
        at.put(r.op("add", here, size))
        ones = r.op("sub", r.op("shl", 1, size), 1)
        bytes_ = r.narrow(r.op("shl", ones, within))
        loop.again(r.negation(find_shadow(r, place, here, r["space"])))
        yield loop, here, size, bytes_


def _ignores_unset(r: CheckRoutine) -> Value:
    """Whether this access may read uninitialised bytes: a bitwise operation, or a copy of a structure's padding."""
    found = r.variable("i1", r.differs(r.op("and", r["flags"], ACCESS.BITWISE), 0))
    with r.when(r.differs(r.op("and", r["flags"], ACCESS.PASSED_ON), 0)):
        found.put(_unset_is_padding(r, r["addresses"], r["mask"], r["size"], r["space"]))
    return found.get()


@routine("tw_check_padded", "i1", "ctx", "block")
def _unset_is_padding(r: CheckRoutine, addresses: Ptr, mask: I32, size: I32, space: I32) -> None:
    """Whether the uninitialised bytes are padding of a structure: the same in each lane's read, and not all of it."""
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    count = r.wide(size)
    before = r.variable("i64", 0)
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        unset = r.variable("i64", 0)
        with r.count(count) as i:
            here = r.op("add", address, i)
            known = look_up_shadow(r, space, here, place)
            r.give_if(r.negation(known), 0)
            offset = r.op("sub", here, r.field(place, SHADOW.FIRST, "i64"))
            stride = r.op("mul", r.field(place, SHADOW.STRIDE, "i64"), CELLS.STATE)
            column = r.at(r.field(place, SHADOW.CELLS, "ptr"), stride)
            state = r.wide(r.field(r.at(column, r.op("and", offset, -4)), 0, "i32"))
            bit = r.op("and", r.op("lshr", state, r.op("and", offset, 3)), 1)
            unset.put(r.op("or", unset.get(), r.op("shl", bit, i)))
        every = r.equals(unset.get(), r.op("sub", r.op("shl", 1, count), 1))
        other = r.both(r.differs(before.get(), 0), r.differs(before.get(), unset.get()))
        r.give_if(r.op("or", r.op("or", every, other), r.equals(unset.get(), 0)), 0)
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
        alone = r.op("shl", 1, lane)
        together = r.variable("i32", alone)
        with r.unless(writes):
            every = r.field(r["addresses"], 0, "<32 x i64>", 64)
            together.put(r.op("and", r.bits(r.equals(every, r.splat(address))), rest))
        those = together.get()
        left.put(r.without(rest, those))
        single = r.equals(those, alone)
        name = r.select(single, lane, WHO.SEVERAL)
        whole = r.differs(r.op("and", r["flags"], ACCESS.WHOLE_WARP), 0)
        yield lane, address, r.select(whole, WHO.WHOLE, name)


def _mark_used(word: ShadowWord, place: Value) -> None:
    """If the memory is another block's, record its use there: that block must not exit before it."""
    r = word.r
    owner = r.field(place, SHADOW.OWNER, "ptr")
    with r.unless(r.is_null(owner)):
        r.put(owner, BLOCK.USED, word.now)
        r.put(owner, BLOCK.USER, word.who)
        r.put(owner, BLOCK.USE, r["line"])


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
    done = r.wide(r.op("add", r.field(r["block"], BLOCK.DONE, "i32"), 1))
    with r.when(r.is_at_least(done, r.field(r["ctx"], LAUNCH.WARPS, "i64"))):
        use = r.field(r["block"], BLOCK.USE, "i32")
        record_finding(r, FindingKind.EARLY_EXIT, accessor(r, 0), use, 0, user, line=ZERO_I32)


def _fast_read(word: ShadowWord, writes: Value) -> Value:
    """Whether a few comparisons suffice to see that a read races with nothing; then it is recorded."""
    r = word.r
    quick = r.variable("i1", 0)
    with r.unless(writes):
        state = r.equals(r.op("and", word.get(CELLS.STATE), STATE.FLAGS | ACCESS.BYTES), 0)
        past = r.is_at_most(word.get(CELLS.WRITTEN), word.ordered_until)
        plain = r.both(state, past, r.negation(word.remote))
        reader, earlier = word.get(CELLS.READER), word.get(CELLS.EARLIER_READER)
        first = r.op("or", r.is_at_most(word.get(CELLS.READ), word.ordered_until), r.equals(reader, word.who))
        over = r.is_at_most(word.get(CELLS.EARLIER), word.ordered_until)
        second = r.either(over, r.equals(earlier, word.who))
        others = r.negation(word.is_own_warp(reader))
        full = r.both(others, r.negation(second), r.negation(word.is_own_warp(earlier)))
        with r.when(r.both(plain, first)):
            store_access(word, (CELLS.READ, CELLS.READER, CELLS.READING))
            quick.put(1)
        with r.otherwise(), r.when(r.both(plain, others, second)):
            store_access(word, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))
            quick.put(1)
        with r.when(r.both(plain, full)):  # two others are remembered
            quick.put(1)
    return quick.get()


def _compare_stored(
    word: ShadowWord, place: Value, lane: Value, offset: Value, size: Value, same: MutableValue
) -> None:
    """Set ``same`` to whether a store writes what is there already, or what another lane of it writes."""
    r = word.r
    element = r.wide(r["element"])
    number = r.op("udiv", offset, element)
    within = r.op("sub", offset, r.op("mul", number, element))
    start = r.op("add", r.op("mul", r.op("mul", number, element), 32), within)
    mine = r.at(r["values"], r.op("add", start, r.op("mul", r.wide(lane), element)))
    writer = word.get(CELLS.WRITER)
    other = r.op("and", writer, WHO.LANE_MASK)
    beside = r.both(
        r.equals(word.get(CELLS.WRITTEN), word.now),
        word.is_own_warp(writer),
        r.equals(r.op("lshr", word.get(CELLS.WRITE), ACCESS.LINE_BITS), r["line"]),
    )
    theirs = r.at(r["values"], r.op("add", start, r.op("mul", r.wide(r.op("and", other, 31)), element)))
    old = r.select(beside, theirs, r.at(r.field(place, SHADOW.MEMORY, "ptr"), word.offset))
    _equal(r, mine, old, size, same)


def _equal(r: CheckRoutine, mine: Value, old: Value, size: Value, same: MutableValue) -> None:
    same.put(1)
    with r.count(size) as i:
        equal = r.equals(r.field(r.at(mine, i), 0, "i8"), r.field(r.at(old, i), 0, "i8"))
        same.put(r.both(same.get(), equal))


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
    place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
    r.fill(place, 0, SHADOW.SIZE)
    word = ShadowWord(r)
    writes = r.differs(action, Action.LOAD)
    stores = r.equals(action, Action.STORE)
    valued = r.differs(values, NULL)
    same = r.variable("i1", 0)
    with _each_shadow_word(r, place, address, length) as (_, here, size, bytes_):
        word.select_cell(place, here, r.op("or", word.high, lane), bytes_)
        _mark_used(word, place)
        same.put(0)
        with r.when(valued):
            old = r.at(r.field(place, SHADOW.MEMORY, "ptr"), word.offset)
            _equal(r, r.at(values, r.op("sub", here, address)), old, size, same)
        check_and_record(word, writes, stores, same)
        proxy = r.differs(r.op("and", flags, ACCESS.PROXY), 0)
        with r.when(r.both(proxy, r.negation(writes))):
            _check_proxy_fence(word)


def _check_proxy_fence(word: ShadowWord) -> None:
    """Report a read by the asynchronous proxy of a thread's write with no proxy fence of either warp between."""
    r = word.r
    time, who, info = (word.get(column) for column in (CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE))
    thread = r.equals(r.op("and", info, ACCESS.PROXY), 0)
    with r.when(r.both(thread, r.is_above(time, word.born))):
        warps = r.warps_of_cluster()
        serial, fenced = r.wide(r.op("lshr", who, WHO.LANE_BITS)), r.table(CLOCKS.FENCED)
        theirs = r.element(fenced, r.op("urem", serial, warps), "i32")
        own = r.element(fenced, r.index(), "i32")
        # NOTE: of other clusters' fences nothing is known here.
        near = r.equals(r.op("udiv", serial, warps), r.op("udiv", r.wide(word.serial), warps))
        since = r.is_above(time, r.intrinsic("llvm.umax", theirs, own))
        with r.when(r.both(near, since)):
            word.report(FindingKind.UNFENCED, who, info)


# -- the fast path ---------------------------------------------------------------------------------
_WARP_SHIFT = WHO.LANE_BITS
ROW = 384  # bytes of a table for 32 words: which word, counted from the first; which lane; which bytes
_VECTOR = "<32 x i32>"


class _FastAccess:
    """The start of both routines: where the words' cells are, and up to which time everything is ordered before."""

    def __init__(self, r: CheckRoutine) -> None:
        self.r = r
        place = r.reserve(f"[{SHADOW.SIZE} x i8]", 8)
        shared = r.equals(r["space"], Space.SHARED)
        odd = r.differs(r.op("and", r["address"], 3), 0)
        r.give_if(odd, 0)
        state = r.state()
        self.cells = r.variable("ptr", r.field(r["block"], BLOCK.CELLS, "ptr"))
        self.stride = r.variable("i64", r.field(state, CHECK.STRIDE, "i64"))
        self.offset = r.variable("i64", r["address"])
        limit = r.variable("i64", r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64"))
        past = r.variable("i32", r.field(r.slot_of_warp(CLOCKS.LEAST), 0, "i32"))
        with r.unless(shared):
            found = look_up_shadow(r, r["space"], r["address"], place)
            local = r.is_null(r.field(place, SHADOW.OWNER, "ptr"))
            r.give_if(r.negation(r.both(found, local)), 0)
            self.cells.put(r.field(place, SHADOW.CELLS, "ptr"))
            self.stride.put(r.field(place, SHADOW.STRIDE, "i64"))
            self.offset.put(r.op("sub", r["address"], r.field(place, SHADOW.FIRST, "i64")))
            limit.put(r.field(place, SHADOW.BYTES, "i64"))
            alone = r.differs(r.field(state, CHECK.ALONE, "i64"), 0)
            inside = r.differs(r.field(place, SHADOW.BEGAN, "i64"), 0)
            past.put(r.select(r.op("or", alone, inside), past.get(), 0))
        far = r.op("mul", r["span"], 4)
        room = r.is_at_most(far, limit.get())
        fits = r.is_at_most(self.offset.get(), r.op("sub", limit.get(), far))
        r.give_if(r.negation(r.both(room, fits)), 0)
        self.ordered_until, self.now = past.get(), r.now()
        self.high = r.op("shl", serial_of(r), _WARP_SHIFT)
        self.line = r.op("shl", r["line"], ACCESS.LINE_BITS)
        self.first = r.at(self.cells.get(), self.offset.get())
        self.writes = r.differs(r["writes"], 0)


@check_routine("tw_check_row", "i1")
def _row(
    r: CheckRoutine, address: I64, table: Ptr, words: I64, space: I32, writes: I32, line: I32, span: I64
) -> None:
    """Check and record an access to adjacent words, a multiple of 32 of them; false if it needs the full check."""
    access = _FastAccess(r)
    past, now = r.splat(access.ordered_until), r.splat(access.now)
    with r.count(words, 0, 32) as start:
        part = r.item(table, r.op("lshr", start, 5), ROW)
        who = r.op("or", r.splat(access.high), r.field(part, 128, _VECTOR, 4))
        info = r.op("or", r.splat(access.line), r.field(part, 256, _VECTOR, 4))
        first = r.item(access.first, start, 4)
        columns = [r.at(first, r.op("mul", access.stride.get(), i)) for i in range(CELLS.COLUMNS)]
        row = _WordRow(r, columns, who, info, past, now)
        with r.when(access.writes):
            row.store()
        with r.otherwise():
            row.load()
    r.give(1)


class _WordRow:
    """The shadow cells of 32 adjacent words, as vectors."""

    def __init__(
        self, r: CheckRoutine, columns: list[Value], who: Value, info: Value, past: Value, now: Value
    ) -> None:
        self.r, self.columns, self.who, self.info = r, columns, who, info
        self.ordered_until, self.now = past, now

    def get(self, column: int) -> Value:
        return self.r.field(self.columns[column], 0, _VECTOR, 4)

    def put(self, column: int, value: Value) -> None:
        self.r.put(self.columns[column], 0, value)

    def is_late(self, time: int, who: int) -> Value:
        """Which words' recorded accesses are another lane's and not known to be ordered before."""
        r = self.r
        later = r.is_above(self.get(time), self.ordered_until)
        return r.op("and", later, r.differs(self.get(who), self.who))

    def has_any(self, lanes: Value) -> Value:
        return self.r.differs(self.r.bits(lanes), 0)

    def leave_fast_path(self, lanes: Value) -> None:
        with self.r.when(self.has_any(lanes)):
            self.r.give(0)

    def load(self) -> None:
        r = self.r
        state = r.op("and", self.get(CELLS.STATE), STATE.FLAGS | STATE.UNSET)
        wrong = r.op("or", self.is_late(CELLS.WRITTEN, CELLS.WRITER), r.differs(state, 0))
        self.leave_fast_path(wrong)
        reader, earlier = self.get(CELLS.READER), self.get(CELLS.EARLIER_READER)
        shift = r.const(_VECTOR, _WARP_SHIFT)
        warp = r.op("lshr", self.who, shift)
        is_late = r.is_above(self.get(CELLS.READ), self.ordered_until)
        own = r.equals(r.op("lshr", reader, shift), warp)
        first = r.op("or", r.op("xor", is_late, 1), own)  # goes to the first place
        again = r.op("and", is_late, own)
        self.leave_fast_path(r.op("and", again, self.are_two_lanes(reader)))
        with r.when(self.has_any(first)):
            several = r.op("or", r.op("shl", warp, shift), WHO.SEVERAL)
            who = r.select(r.op("and", again, r.differs(reader, self.who)), several, self.who)
            self.select(first, (CELLS.READ, CELLS.READER, CELLS.READING), who)
        second = r.is_at_most(self.get(CELLS.EARLIER), self.ordered_until)
        second = r.op("or", second, r.equals(r.op("lshr", earlier, shift), warp))
        second = r.op("and", second, r.op("xor", first, 1))
        with r.when(self.has_any(second)):
            self.select(second, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))

    def are_two_lanes(self, reader: Value) -> Value:
        """Of two readers of one warp: whether they are two single lanes, which the full check has to record."""
        r = self.r
        alone = [r.op("and", who, WHO.LANE_MASK) for who in (reader, self.who)]
        together = [r.equals(lane, WHO.SEVERAL) for lane in alone]
        other = r.differs(reader, self.who)
        return r.op("and", other, r.op("xor", r.op("or", *together), 1))

    def select(self, lanes: Value, columns: tuple[int, int, int], who: Value | None = None) -> None:
        for column, value in zip(columns, (self.now, who or self.who, self.info), strict=True):
            self.put(column, self.r.select(lanes, value, self.get(column)))

    def store(self) -> None:
        r = self.r
        state = r.op("and", self.get(CELLS.STATE), STATE.FLAGS)
        wrong = r.differs(state, 0)
        for time, who in (
            (CELLS.WRITTEN, CELLS.WRITER),
            (CELLS.READ, CELLS.READER),
            (CELLS.EARLIER, CELLS.EARLIER_READER),
        ):
            wrong = r.op("or", wrong, self.is_late(time, who))
        self.leave_fast_path(wrong)
        self.put_all((CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE))
        self.put(CELLS.STATE, r.const(self.who, 0))

    def put_all(self, columns: tuple[int, int, int], who: Value | None = None) -> None:
        """Record the access in these columns."""
        for column, value in zip(columns, (self.now, who or self.who, self.info), strict=True):
            self.put(column, value)


@check_routine("tw_check_few", "i1")
def _few(
    r: CheckRoutine, address: I64, table: Ptr, words: I64, space: I32, writes: I32, line: I32, span: I64
) -> None:
    """Check and record an access to words that are not all adjacent; false if it needs the full check."""
    access = _FastAccess(r)
    with r.count(words) as i:
        number = r.op("and", i, 31)
        entry = r.at(r.item(table, r.op("lshr", i, 5), ROW), r.op("mul", number, 4))
        first = r.item(access.first, r.field(entry, 0, "i32"), 4)
        columns = [r.at(first, r.op("mul", access.stride.get(), j)) for j in range(CELLS.COLUMNS)]
        who = r.op("or", access.high, r.field(entry, 128, "i32"))
        info = r.op("or", access.line, r.field(entry, 256, "i32"))
        one = _OneWord(r, columns, who, info, access.ordered_until, access.now)
        with r.when(access.writes):
            one.store()
        with r.otherwise():
            one.load()
    r.give(1)


class _OneWord(_WordRow):
    """The shadow cell of one word, as scalars."""

    def get(self, column: int) -> Value:
        return self.r.field(self.columns[column], 0, "i32")

    def has_any(self, lanes: Value) -> Value:
        return lanes

    def load(self) -> None:
        r = self.r
        state = r.op("and", self.get(CELLS.STATE), STATE.FLAGS | STATE.UNSET)
        wrong = r.op("or", self.is_late(CELLS.WRITTEN, CELLS.WRITER), r.differs(state, 0))
        self.leave_fast_path(wrong)
        reader, warp = self.get(CELLS.READER), r.op("lshr", self.who, _WARP_SHIFT)
        is_late = r.is_above(self.get(CELLS.READ), self.ordered_until)
        own = r.equals(r.op("lshr", reader, _WARP_SHIFT), warp)
        again = r.both(is_late, own)
        self.leave_fast_path(r.both(again, self.are_two_lanes(reader)))
        with r.when(r.op("or", r.negation(is_late), own)):
            several = r.op("or", r.op("shl", warp, _WARP_SHIFT), WHO.SEVERAL)
            who = r.select(r.both(again, r.differs(reader, self.who)), several, self.who)
            self.put_all((CELLS.READ, CELLS.READER, CELLS.READING), who)
        with r.otherwise():
            earlier = r.op("lshr", self.get(CELLS.EARLIER_READER), _WARP_SHIFT)
            free = r.is_at_most(self.get(CELLS.EARLIER), self.ordered_until)
            with r.when(r.op("or", free, r.equals(earlier, warp))):
                self.put_all((CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))
