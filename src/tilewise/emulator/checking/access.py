"""What a checked launch does at every access to memory.

``tw_check`` goes lane by lane and word by word, and serves every access; ``usual.py`` has quicker ways for some
of them. ``tw_check_touch`` is for a stretch of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import (
    BITWISE,
    BYTES,
    CELLS,
    CLOCKS,
    FLAGS,
    LANE_BITS,
    LINE_BITS,
    PASSED_ON,
    PLACE,
    PROXY,
    SEVERAL,
    WHOLE,
    WHOLE_WARP,
    Action,
    Kind,
)
from tilewise.emulator.checking.clocks import WHO, clocks_of, index_of, serial_of, settle
from tilewise.emulator.checking.where import is_in, where
from tilewise.emulator.checking.words import Word, judge, note
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Loop, Routine, Variable

__all__ = ["routines"]

_NULL = Value("ptr", "null")
_FALSE = Value("i1", "false")
_LANES = (1 << LANE_BITS) - 1


def routines() -> list[Routine]:
    return [where(), _check(), _padded(), _touch(), _leave()]


def _check() -> Routine:
    """An access by some lanes: of each, ``size`` bytes at its address.

    ``values`` are those that a store is about to write, element after element of all lanes; null if they are
    not known.
    """
    names = {"addresses": "ptr", "mask": "i32", "size": "i32", "space": "i32", "action": "i32"}
    more = {"flags": "i32", "line": "i32", "values": "ptr", "element": "i32"}
    r = Routine("tw_check", "void", **WHO, **names, **more)
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    r.fill(place, 0, PLACE.SIZE)
    word = Word(r, _excused)
    writes = r.compare("icmp ne", r["action"], int(Action.LOAD))
    stores = r.compare("icmp eq", r["action"], int(Action.STORE))
    valued = r.both(stores, r.compare("icmp ne", r["values"], _NULL))
    same = r.variable("i1", 0)
    with _each_address(r, writes) as (lane, address, name):
        word.begin()
        with _each_word(r, place, address, r.wide(r["size"])) as (loop, here, size, bytes_):
            word.at(place, here, r.op("or", word.high, name), bytes_)
            _used(word, place)
            loop.again(_usual_read(word, writes))
            same.put(0)
            with r.when(valued):
                _compare(word, place, lane, r.op("sub", here, address), size, same)
            judge(word, writes, stores, same)
    return r


@contextmanager
def _each_word(
    r: Routine, place: Value, start: Value, count: Value
) -> Iterator[tuple[Loop, Value, Value, Value]]:
    """Go through a stretch of memory by the words that are known: the loop, where it is, how many bytes of the word
    are meant, and which, a bit for each."""
    end = r.op("add", start, count)
    at = r.variable("i64", start)
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.compare("icmp uge", here, end))
        within = r.op("and", here, 3)
        size = r.intrinsic("llvm.umin", r.op("sub", r.const("i64", 4), within), r.op("sub", end, here))
        at.put(r.op("add", here, size))
        ones = r.op("sub", r.op("shl", r.const("i64", 1), size), 1)
        bytes_ = r.cast("trunc", r.op("shl", ones, within), "i32")
        loop.again(r.negation(is_in(r, place, here, r["space"])))
        yield loop, here, size, bytes_


def _excused(r: Routine) -> Value:
    """Whether bytes that nobody wrote do not matter to an access."""
    found = r.variable("i1", r.compare("icmp ne", r.op("and", r["flags"], BITWISE), 0))
    with r.unless(r.compare("icmp eq", r.op("and", r["flags"], PASSED_ON), 0)):
        given = (r["ctx"], r["block"], r["addresses"], r["mask"], r["size"], r["space"])
        found.put(r.call("tw_check_padded", "i1", *given))
    return found.get()


def _padded() -> Routine:
    """Whether the same bytes are unset of what each lane reads, and not all of them: those between the members
    of a structure."""
    names = {"addresses": "ptr", "mask": "i32", "size": "i32", "space": "i32"}
    r = Routine("tw_check_padded", "i1", ctx="ptr", block="ptr", **names)
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    size = r.wide(r["size"])
    before = r.variable("i64", 0)
    with r.each_lane(r["mask"]) as lane:
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        unset = r.variable("i64", 0)
        with r.count(size) as i:
            here = r.op("add", address, i)
            known = r.call("tw_check_where", "i1", r["ctx"], r["block"], r["space"], here, place)
            with r.unless(known):
                r.give(_FALSE)
            offset = r.op("sub", here, r.field(place, PLACE.FIRST, "i64"))
            column = r.at(
                r.field(place, PLACE.CELLS, "ptr"),
                r.op("mul", r.field(place, PLACE.STRIDE, "i64"), CELLS.STATE),
            )
            state = r.wide(r.field(r.at(column, r.op("and", offset, -4)), 0, "i32"))
            bit = r.op("and", r.op("lshr", state, r.op("and", offset, 3)), 1)
            unset.put(r.op("or", unset.get(), r.op("shl", bit, i)))
        every = r.compare("icmp eq", unset.get(), r.op("sub", r.op("shl", r.const("i64", 1), size), 1))
        other = r.both(r.compare("icmp ne", before.get(), 0), r.compare("icmp ne", before.get(), unset.get()))
        with r.when(r.op("or", r.op("or", every, other), r.compare("icmp eq", unset.get(), 0))):
            r.give(_FALSE)
        before.put(unset.get())
    r.give(r.compare("icmp ne", before.get(), 0))
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
        name = r.select(single, lane, r.const("i32", SEVERAL))
        whole = r.compare("icmp ne", r.op("and", r["flags"], WHOLE_WARP), 0)
        yield lane, address, r.select(whole, r.const("i32", WHOLE), name)


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
    settle(r)
    given = (r["ctx"], r["block"], r["warp"], user, time, r.op("shl", serial_of(r), LANE_BITS))
    known = r.call("tw_check_known", "i1", *given)
    with r.when(known):  # as long as this warp was there, so was the memory
        r.put(r["block"], BLOCK.USED, r.const("i32", 0))
        r.give()
    done = r.wide(r.op("add", r.field(r["block"], BLOCK.DONE, "i32"), 1))
    with r.when(r.compare("icmp uge", done, r.field(r["ctx"], LAUNCH.WARPS, "i64"))):
        zero = r.const("i32", 0)
        kind, space = r.const("i32", int(Kind.EARLY_EXIT)), r.const("i32", int(Space.SHARED))
        who = r.op("shl", serial_of(r), LANE_BITS)
        use = r.field(r["block"], BLOCK.USE, "i32")
        found = (kind, space, zero, use, r.const("i64", 0), who, user, zero, zero)
        r.call("tw_check_finding", "void", r["ctx"], *found)
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
            note(word, (CELLS.READ, CELLS.READER, CELLS.READING))
            quick.put(1)
        with r.otherwise(), r.when(r.both(plain, others, second)):
            note(word, (CELLS.EARLIER, CELLS.EARLIER_READER, CELLS.EARLIER_READING))
            quick.put(1)
        with r.when(r.both(plain, full)):  # two others are remembered
            quick.put(1)
    return quick.get()


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
    )
    theirs = r.at(r["values"], r.op("add", start, r.op("mul", r.wide(r.op("and", other, 31)), element)))
    old = r.select(beside, theirs, r.at(r.field(place, PLACE.MEMORY, "ptr"), word.offset))
    _equal(r, mine, old, size, same)


def _equal(r: Routine, mine: Value, old: Value, size: Value, same: Variable) -> None:
    same.put(1)
    with r.count(size) as i:
        equal = r.compare("icmp eq", r.field(r.at(mine, i), 0, "i8"), r.field(r.at(old, i), 0, "i8"))
        same.put(r.both(same.get(), equal))


def _touch() -> Routine:
    """An access of one lane to a stretch of memory; ``values`` are what a store puts there, or null."""
    names = {"lane": "i32", "address": "i64", "bytes": "i64", "space": "i32", "action": "i32"}
    r = Routine("tw_check_touch", "void", **WHO, **names, flags="i32", line="i32", values="ptr")
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    r.fill(place, 0, PLACE.SIZE)
    word = Word(r)
    writes = r.compare("icmp ne", r["action"], int(Action.LOAD))
    stores = r.compare("icmp eq", r["action"], int(Action.STORE))
    valued = r.compare("icmp ne", r["values"], _NULL)
    same = r.variable("i1", 0)
    with _each_word(r, place, r["address"], r["bytes"]) as (_, here, size, bytes_):
        word.at(place, here, r.op("or", word.high, r["lane"]), bytes_)
        _used(word, place)
        same.put(0)
        with r.when(valued):
            old = r.at(r.field(place, PLACE.MEMORY, "ptr"), word.offset)
            _equal(r, r.at(r["values"], r.op("sub", here, r["address"])), old, size, same)
        judge(word, writes, stores, same)
        proxy = r.compare("icmp ne", r.op("and", r["flags"], PROXY), 0)
        with r.when(r.both(proxy, r.negation(writes))):
            _against_proxy(word)
    return r


def _against_proxy(word: Word) -> None:
    """The asynchronous proxy reads what a thread wrote: a fence of the writer or of this warp must lie between."""
    r = word.r
    time, who, info = (word.get(column) for column in (CELLS.WRITTEN, CELLS.WRITER, CELLS.WRITE))
    thread = r.compare("icmp eq", r.op("and", info, PROXY), 0)
    with r.when(r.both(thread, r.compare("icmp ugt", time, word.born))):
        warps = r.op("mul", r.field(r["ctx"], LAUNCH.WARPS, "i64"), r.field(r["ctx"], LAUNCH.CLUSTER, "i64"))
        serial, fenced = r.wide(r.op("lshr", who, LANE_BITS)), r.field(clocks_of(r), CLOCKS.FENCED, "ptr")
        theirs = r.field(r.item(fenced, r.op("urem", serial, warps), 4), 0, "i32")
        own = r.field(r.item(fenced, index_of(r), 4), 0, "i32")
        # NOTE: of other clusters' fences nothing is known here.
        near = r.compare("icmp eq", r.op("udiv", serial, warps), r.op("udiv", r.wide(word.serial), warps))
        since = r.compare("icmp ugt", time, r.intrinsic("llvm.umax", theirs, own))
        with r.when(r.both(near, since)):
            word.report(Kind.UNFENCED, who, info)
