"""Fast path of the race check.

It serves accesses whose lanes' offsets are known at compile time: each word is checked once, for the common case that
no earlier access can race with this one. In any other case it returns false, and ``tw_check`` checks every lane.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import ACCESS, CELLS, CHECK, CLOCKS, SHADOW, STATE, WHO
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.shadow_lookup import look_up_shadow
from tilewise.emulator.layout import BLOCK, LAUNCH, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr
from tilewise.emulator.support.checked import serial_of

__all__ = ["ROW"]

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
