"""What a checked launch does about operations in flight: from their issue until the program has waited for them.

Whatever the order of the launch: a copy is not there, and its source is not free, until whoever uses them may
know. The words of its destination are marked as arriving, those of its source as leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import (
    ARRIVING,
    CELLS,
    CLOCKS,
    COPIES,
    COPY,
    GROUP_KINDS,
    LANE_BITS,
    LEAVING,
    MANY_LEAVING,
    PLACE,
    PROXY,
    RELEASE,
    STRONG,
    Action,
)
from tilewise.emulator.checking.clocks import WHO, clocks_of, index_of, now_of, serial_of
from tilewise.emulator.layout import BLOCK, LAUNCH, RANK_SHIFT, WARP, Flight, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.support.bulk import REQUEST, Verb, each_block
from tilewise.emulator.support.tensor_plan import PLAN

__all__ = ["BULKS", "COPIED", "PRODUCTS", "routines"]

COPIED, BULKS, PRODUCTS = (
    0,
    1,
    2,
)  # kinds of groups: of cp.async, of bulk copies, of wgmma
_NULL = Value("ptr", "null")
_SHARED = int(Space.SHARED)
_PHASE_BIT = 61  # of an mbarrier
_SET, _LAND, _LEAVE, _FREE = (
    0,
    1,
    2,
    3,
)  # what may be done with the marks of a stretch of memory
_ROWS = 8  # of a brick of a matrix, each of 16 bytes


def routines() -> list[Routine]:
    return [
        *(_mark(), _record(), _copy(), _commit(), _landed(), _told(), _seen(), _land()),
        *(_bulk(), _arrives(), _leaves(), _matrix(), _product()),
    ]


def _given(r: Routine) -> tuple[Value, Value, Value]:
    return r["ctx"], r["block"], r["warp"]


def _mark(  # what happens to each word of a stretch of shared memory
) -> Routine:
    names = {
        "address": "i64",
        "bytes": "i64",
        "what": "i32",
        "time": "i32",
        "who": "i32",
    }
    r = Routine("tw_check_mark", "void", ctx="ptr", block="ptr", **names)
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    with r.count(r["bytes"], 0, 4) as offset:
        here, space = r.op("add", r["address"], offset), r.const("i32", _SHARED)
        known = r.call("tw_check_where", "i1", r["ctx"], r["block"], space, here, place)
        with r.unless(known):
            r.give()
        row = r.op("and", r.op("sub", here, r.field(place, PLACE.FIRST, "i64")), -4)
        cells, stride = (
            r.field(place, PLACE.CELLS, "ptr"),
            r.field(place, PLACE.STRIDE, "i64"),
        )
        cell = [r.at(cells, r.op("add", row, r.op("mul", stride, i))) for i in range(CELLS.COLUMNS)]
        state = r.field(cell[CELLS.STATE], 0, "i32")
        leaving = r.op("and", state, MANY_LEAVING)
        changed = r.variable("i32", state)
        with r.when(r.compare("icmp eq", r["what"], _SET)):
            changed.put(r.op("or", state, ARRIVING))
        with r.when(r.compare("icmp eq", r["what"], _LAND)):
            changed.put(r.op("and", state, ~ARRIVING))
            r.put(cell[CELLS.WRITTEN], 0, r["time"])
        with r.when(r.compare("icmp eq", r["what"], _LEAVE)):
            full = r.compare("icmp eq", leaving, MANY_LEAVING)
            changed.put(r.select(full, state, r.op("add", state, LEAVING)))
        with r.when(r.compare("icmp eq", r["what"], _FREE)):
            none = r.compare("icmp eq", leaving, 0)
            changed.put(r.select(none, state, r.op("sub", state, LEAVING)))
            own = r.compare("icmp eq", r.field(cell[CELLS.READER], 0, "i32"), r["who"])
            with r.when(own):
                r.put(cell[CELLS.READ], 0, r["time"])
        r.put(cell[CELLS.STATE], 0, changed.get())
    return r


# -- records --------------------------------------------------------------------------------------------
def _groups(r: Routine, kind: Value | int) -> Value:
    """Where the groups of this warp's lanes are counted."""
    number = r.fixed(kind, "i64") if isinstance(kind, int) else r.wide(kind)
    row = r.op("add", r.op("mul", index_of(r), GROUP_KINDS), number)
    return r.item(r.field(clocks_of(r), CLOCKS.GROUPS, "ptr"), row, 128)


def _record() -> Routine:
    """A free record, of some lanes of a warp; null if there are too many."""
    numbers = {
        "mask": "i32",
        "bytes": "i32",
        "kind": "i32",
        "leaves": "i32",
        "line": "i32",
    }
    r = Routine("tw_check_record", "ptr", **WHO, **numbers)
    clocks = clocks_of(r)
    count, start = (
        r.field(clocks, CLOCKS.COUNT, "i64"),
        r.field(clocks, CLOCKS.COPIES, "ptr"),
    )
    found = r.variable("ptr", _NULL)
    with r.when(r.compare("icmp ult", count, COPIES)):
        found.put(r.item(start, count, COPY.SIZE))
        r.put(clocks, CLOCKS.COUNT, r.op("add", count, 1))
    with r.otherwise(), r.count(count) as i:
        old = r.item(start, i, COPY.SIZE)
        with r.when(r.compare("icmp eq", r.field(old, COPY.LANES, "i32"), 0)):
            found.put(old)
    copy = found.get()
    with r.when(r.compare("icmp eq", copy, _NULL)):
        r.give(_NULL)
    for offset, value in (
        (COPY.LANES, r["mask"]),
        (COPY.WARP, r.cast("trunc", index_of(r), "i32")),
        (COPY.BYTES, r["bytes"]),
        (COPY.LINE, r["line"]),
        (COPY.KEY, r.const("i64", 0)),
        (COPY.TIME, now_of(r)),
        (COPY.KIND, r["kind"]),
        (COPY.LEAVES, r["leaves"]),
    ):
        r.put(copy, offset, value)
    r.copy(r.at(copy, COPY.GROUPS), _groups(r, r["kind"]), 128)
    r.give(copy)
    return r


@contextmanager
def _each_copy(r: Routine) -> Iterator[Value]:
    clocks = clocks_of(r)
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    with r.count(r.field(clocks, CLOCKS.COUNT, "i64")) as i:
        yield r.item(start, i, COPY.SIZE)


def _place(r: Routine, copy: Value, lane: Value) -> Value:
    return r.item(r.at(copy, COPY.PLACES), lane, 4)


# -- cp.async -------------------------------------------------------------------------------------------
def _copy() -> Routine:
    """Some lanes issue copies to shared memory, each of ``size`` bytes."""
    r = Routine(
        "tw_check_copy",
        "void",
        **WHO,
        addresses="ptr",
        mask="i32",
        size="i32",
        line="i32",
    )
    space, store = r.const("i32", _SHARED), r.const("i32", int(Action.STORE))
    zero = r.const("i32", 0)
    given = (
        *_given(r),
        r["addresses"],
        r["mask"],
        r["size"],
        space,
        store,
        zero,
        r["line"],
        _NULL,
    )
    r.call("tw_check", "void", *given, r.const("i32", 4))
    numbers = (r["mask"], r["size"], r.const("i32", COPIED), zero, r["line"])
    copy = r.call("tw_check_record", "ptr", *_given(r), *numbers)
    with r.when(r.compare("icmp eq", copy, _NULL)):
        r.give()
    with r.each_lane(r["mask"]) as lane:
        address = r.field(r.item(r["addresses"], lane, 8), 0, "i64")
        r.put(_place(r, copy, lane), 0, r.cast("trunc", address, "i32"))
        marked = (address, r.wide(r["size"]), r.const("i32", _SET), zero, zero)
        r.call("tw_check_mark", "void", r["ctx"], r["block"], *marked)
    return r


def _commit() -> Routine:
    """Some lanes close a group."""
    r = Routine("tw_check_commit", "void", **WHO, mask="i32", kind="i32")
    with r.each_lane(r["mask"]) as lane:
        place = r.item(_groups(r, r["kind"]), lane, 4)
        r.put(place, 0, r.op("add", r.field(place, 0, "i32"), 1))
    return r


def _landed() -> Routine:
    """Some lanes have waited for their groups but the last ``keep``; -1 for all."""
    r = Routine("tw_check_landed", "void", **WHO, mask="i32", keep="i32", kind="i32")
    with _each_copy(r) as copy:
        mine = r.compare("icmp eq", r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
        kind = r.compare("icmp eq", r.field(copy, COPY.KIND, "i32"), r["kind"])
        with (
            r.when(r.both(mine, kind)),
            r.each_lane(r.op("and", r.field(copy, COPY.LANES, "i32"), r["mask"])) as lane,
        ):
            own = r.field(r.item(r.at(copy, COPY.GROUPS), lane, 4), 0, "i32")
            since = r.op("sub", r.field(r.item(_groups(r, r["kind"]), lane, 4), 0, "i32"), own)
            with r.when(r.compare("icmp sgt", since, r["keep"])):
                r.call("tw_check_land", "void", *_given(r), copy, lane, now_of(r))
    _trim(r)
    return r


def _trim(r: Routine) -> None:
    """Forget records at the end that are done."""
    clocks = clocks_of(r)
    start = r.field(clocks, CLOCKS.COPIES, "ptr")
    with r.loop() as loop:
        count = r.field(clocks, CLOCKS.COUNT, "i64")
        loop.leave(r.compare("icmp eq", count, 0))
        last = r.item(start, r.op("sub", count, 1), COPY.SIZE)
        loop.leave(r.compare("icmp ne", r.field(last, COPY.LANES, "i32"), 0))
        r.put(clocks, CLOCKS.COUNT, r.op("sub", count, 1))


# -- mbarriers ------------------------------------------------------------------------------------------
def _phase(r: Routine, key: Value) -> Value:
    """The parity of the phase that an mbarrier is in; its key is its address with a rank, and 1 more."""
    place = Value("ptr", r.alloca(f"[{PLACE.SIZE} x i8]", 8))
    address, found = r.op("sub", key, 1), r.variable("i32", 0)
    given = (r["ctx"], r["block"], r.const("i32", _SHARED), address, place)
    with r.when(r.call("tw_check_where", "i1", *given)):
        offset = r.op("sub", address, r.field(place, PLACE.FIRST, "i64"))
        word = r.field(r.at(r.field(place, PLACE.MEMORY, "ptr"), offset), 0, "i64")
        found.put(r.cast("trunc", r.op("and", r.op("lshr", word, _PHASE_BIT), 1), "i32"))
    return found.get()


def _told() -> Routine:
    """Some lanes have mbarriers told of their copies so far: they are there when its phase is over."""
    r = Routine("tw_check_told", "void", **WHO, addresses="ptr", mask="i32")
    with r.each_lane(r["mask"]) as lane:
        address = r.op("and", r.field(r.item(r["addresses"], lane, 8), 0, "i64"), 0xFFFF_FFFF)
        key = r.op("add", _ranked(r, address), 1)
        phase = _phase(r, key)
        bit = r.op("shl", r.const("i32", 1), lane)
        with _each_copy(r) as copy:
            mine = r.compare("icmp eq", r.wide(r.field(copy, COPY.WARP, "i32")), index_of(r))
            lanes = r.op("and", r.field(copy, COPY.LANES, "i32"), bit)
            kind = r.compare("icmp eq", r.field(copy, COPY.KIND, "i32"), COPIED)
            free = r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), 0)
            with r.when(r.both(mine, kind, free, r.compare("icmp ne", lanes, 0))):
                r.put(copy, COPY.KEY, key)
                r.put(copy, COPY.PHASE, phase)
                r.put(copy, COPY.TIME, now_of(r))
    return r


def _ranked(r: Routine, address: Value) -> Value:
    """An address of shared memory with the rank of its block."""
    rank = r.op("add", r.wide(r.field(r["block"], BLOCK.RANK, "i32")), 1)
    named = r.op("or", address, r.op("shl", rank, RANK_SHIFT))
    return r.select(r.compare("icmp ult", address, 1 << RANK_SHIFT), named, address)


def _seen() -> Routine:
    """A phase of an mbarrier was seen to be over: the copies that it was told of in that phase are there."""
    r = Routine("tw_check_seen", "void", **WHO, key="i64")
    phase = _phase(r, r["key"])
    with _each_copy(r) as copy:
        told = r.compare("icmp eq", r.field(copy, COPY.KEY, "i64"), r["key"])
        over = r.compare("icmp ne", r.field(copy, COPY.PHASE, "i32"), phase)
        with r.when(r.both(told, over)):
            time = r.field(copy, COPY.TIME, "i32")
            with r.each_lane(r.field(copy, COPY.LANES, "i32")) as lane:
                r.call("tw_check_land", "void", *_given(r), copy, lane, time)
    _trim(r)
    return r


def _land() -> Routine:
    """What one lane issued is over, as of a time."""
    r = Routine("tw_check_land", "void", **WHO, copy="ptr", lane="i32", time="i32")
    copy, lane = r["copy"], r["lane"]
    bit = r.op("shl", r.const("i32", 1), lane)
    r.put(
        copy,
        COPY.LANES,
        r.op("and", r.field(copy, COPY.LANES, "i32"), r.op("xor", bit, -1)),
    )
    with r.when(r.compare("icmp eq", r.field(copy, COPY.KIND, "i32"), PRODUCTS)):
        numbers = [r.field(_place(r, copy, r.const("i32", i)), 0, "i32") for i in range(6)]
        high, low = r.wide(numbers[1]), r.wide(numbers[0])
        given = (
            r.op("or", r.op("shl", high, 32), low),
            *numbers[2:],
            r.const("i32", _FREE),
            r["time"],
        )
        r.call("tw_check_matrix", "void", *_given(r), *given)
        r.give()
    address = r.wide(r.field(_place(r, copy, lane), 0, "i32"))
    leaves = r.compare("icmp ne", r.field(copy, COPY.LEAVES, "i32"), 0)
    what = r.select(leaves, r.const("i32", _FREE), r.const("i32", _LAND))
    who = r.op("or", r.op("shl", serial_of(r), LANE_BITS), lane)
    given = (address, r.wide(r.field(copy, COPY.BYTES, "i32")), what, r["time"], who)
    r.call("tw_check_mark", "void", r["ctx"], r["block"], *given)
    return r


# -- bulk copies ----------------------------------------------------------------------------------------
def _bulk() -> Routine:
    """A lane issues a bulk copy; ``data`` is its request."""
    names = {
        "worker": "ptr",
        "kind": "i32",
        "data": "ptr",
        "lane": "i32",
        "line": "i32",
    }
    r = Routine("tw_check_bulk", "i32", **WHO, **names)
    data = r["data"]
    verb = r.cast("trunc", r.field(data, REQUEST.VERB, "i64"), "i32")
    count = r.variable("i64", r.op("and", r.field(data, REQUEST.SIZE, "i64"), 0xFFFF_FFFF))
    with r.when(r.compare("icmp eq", r["kind"], int(Flight.TENSOR))):
        plan = Value("ptr", r.alloca(f"[{PLAN.BYTES} x i8]", 64))
        given = (
            r["ctx"],
            r["worker"],
            r["block"],
            r["warp"],
            data,
            plan,
            r["lane"],
            r["line"],
        )
        failed = r.call("tw_tensor_plan", "i32", *given)
        with r.when(r.compare("icmp ne", failed, 0)):
            r.give(failed)
        count.put(r.field(plan, PLAN.EXTENT, "i64"))
    # NOTE: a size may be anything. What is larger than shared memory is a fault, once the copy itself is issued.
    count.put(r.intrinsic("llvm.umin", count.get(), r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")))
    near = _ranked(r, r.field(data, REQUEST.SHARED, "i64"))
    far = _ranked(r, r.op("and", r.field(data, REQUEST.GLOBAL, "i64"), 0xFFFF_FFFF))
    barrier = r.field(data, REQUEST.MBARRIER, "i64")
    store = r.const("i32", int(Action.STORE))
    own = (r["lane"], r["line"])
    with r.when(r.compare("icmp eq", verb, Verb.LOAD)):
        with each_block(r, data) as at:
            target = (
                _ranked(r, at(near)),
                count.get(),
                _ranked(r, at(_ranked(r, barrier))),
                store,
            )
            r.call("tw_check_arrives", "void", *_given(r), *target, *own)
        r.give(r.const("i32", 0))
    with r.when(r.compare("icmp ult", verb, Verb.SEND)):
        r.call(
            "tw_check_leaves",
            "void",
            *_given(r),
            near,
            count.get(),
            r.const("i64", 0),
            *own,
        )
        r.give(r.const("i32", 0))
    with r.when(r.compare("icmp ult", verb, Verb.WRITE)):
        r.call(
            "tw_check_leaves",
            "void",
            *_given(r),
            near,
            count.get(),
            _ranked(r, barrier),
            *own,
        )
    changes = r.op(
        "or",
        r.compare("icmp eq", verb, Verb.SEND_REDUCE),
        r.compare("icmp eq", verb, Verb.CHANGE),
    )
    action = r.select(changes, r.const("i32", int(Action.ATOMIC)), store)
    r.call(
        "tw_check_arrives",
        "void",
        *_given(r),
        far,
        count.get(),
        _ranked(r, barrier),
        action,
        *own,
    )
    r.give(r.const("i32", 0))
    return r


_STRETCH = {"address": "i64", "bytes": "i64", "barrier": "i64"}
_ONE = {"lane": "i32", "line": "i32"}


def _new_record(r: Routine, kind: int, leaves: int) -> Value:
    bit = r.op("shl", r.const("i32", 1), r["lane"])
    size = r.cast("trunc", r["bytes"], "i32")
    numbers = (bit, size, r.const("i32", kind), r.const("i32", leaves), r["line"])
    copy = r.call("tw_check_record", "ptr", *_given(r), *numbers)
    with r.when(r.compare("icmp eq", copy, _NULL)):
        r.give()
    r.put(_place(r, copy, r["lane"]), 0, r.cast("trunc", r["address"], "i32"))
    with r.unless(r.compare("icmp eq", r["barrier"], 0)):
        key = r.op("add", r["barrier"], 1)
        r.put(copy, COPY.KEY, key)
        r.put(copy, COPY.PHASE, _phase(r, key))
        once = (
            r.const("i32", 1),
            r["barrier"],
            r.const("i32", RELEASE),
            r.const("i32", 1),
        )
        r.call("tw_check_one", "void", *_given(r), *once)
    return copy


def _arrives() -> Routine:
    """Something will write a stretch of shared memory, and tell an mbarrier."""
    r = Routine("tw_check_arrives", "void", **WHO, **_STRETCH, action="i32", **_ONE)
    space, zero = r.const("i32", _SHARED), r.const("i32", 0)
    changes = r.compare("icmp eq", r["action"], int(Action.ATOMIC))
    flags = r.select(changes, r.const("i32", PROXY | STRONG), r.const("i32", PROXY))
    given = (
        r["lane"],
        r["address"],
        r["bytes"],
        space,
        r["action"],
        flags,
        r["line"],
        _NULL,
    )
    r.call("tw_check_touch", "void", *_given(r), *given)
    _new_record(r, BULKS, 0)
    marked = (r["address"], r["bytes"], r.const("i32", _SET), zero, zero)
    r.call("tw_check_mark", "void", r["ctx"], r["block"], *marked)
    return r


def _leaves() -> Routine:
    """Something will read a stretch of shared memory; an mbarrier of 0 means that it is of a group."""
    r = Routine("tw_check_leaves", "void", **WHO, **_STRETCH, **_ONE)
    space, flags, zero = (
        r.const("i32", _SHARED),
        r.const("i32", PROXY),
        r.const("i32", 0),
    )
    action = r.const("i32", int(Action.LOAD))
    given = (
        r["lane"],
        r["address"],
        r["bytes"],
        space,
        action,
        flags,
        r["line"],
        _NULL,
    )
    r.call("tw_check_touch", "void", *_given(r), *given)
    _new_record(r, BULKS, 1)
    marked = (r["address"], r["bytes"], r.const("i32", _LEAVE), zero, zero)
    r.call("tw_check_mark", "void", r["ctx"], r["block"], *marked)
    return r


# -- wgmma ----------------------------------------------------------------------------------------------
_MATRIX = {
    "bits": "i64",
    "first": "i32",
    "rows": "i32",
    "bricks": "i32",
    "across": "i32",
}


def _matrix() -> Routine:
    """Go through the rows of 16 bytes of a matrix that a descriptor describes: see ``wgmma_descriptor.py``."""
    r = Routine("tw_check_matrix", "void", **WHO, **_MATRIX, what="i32", time="i32")
    bits = r["bits"]

    def part(low: int, mask: int) -> Value:
        return r.op("and", r.op("lshr", bits, low), mask)

    start, leading, stride = (r.op("shl", part(low, 0x3FFF), 4) for low in (0, 16, 32))
    mode, base = part(62, 3), part(49, 7)
    plain = r.compare("icmp eq", mode, 0)
    span = r.select(plain, r.const("i64", 16), r.op("lshr", r.const("i64", 256), mode))
    chunks = r.op("sub", r.op("lshr", span, 4), 1)
    wide = r.select(plain, r.const("i64", 0), r.op("sub", r.const("i64", 4), mode))
    across = r.compare("icmp ne", r["across"], 0)
    far = r.select(across, r.select(plain, leading, stride), stride)
    near = r.select(across, r.select(plain, stride, leading), leading)
    end = r.wide(r.op("add", r["first"], r["rows"]))
    with r.count(end, r.wide(r["first"])) as j, r.count(r.wide(r["bricks"])) as c:
        inner, outer = r.select(across, j, c), r.select(across, c, j)
        at = r.op("add", start, r.op("shl", r.op("and", inner, chunks), 4))
        at = r.op("add", at, r.op("mul", r.op("lshr", inner, wide), near))
        at = r.op("add", at, r.op("mul", outer, far))
        with r.count(_ROWS) as row:
            place = r.op("add", at, r.op("mul", row, span))
            turn = r.op("and", r.op("sub", r.op("lshr", place, 7), base), chunks)
            place = _ranked(r, r.op("xor", place, r.op("shl", turn, 4)))
            _each_row(r, place)
    return r


def _each_row(r: Routine, place: Value) -> None:
    many = r.const("i64", 16)
    who = r.op("shl", serial_of(r), LANE_BITS)
    with r.when(r.compare("icmp eq", r["what"], _LEAVE)):
        space, flags = r.const("i32", _SHARED), r.const("i32", PROXY)
        # NOTE: while it is issued, ``time`` is the line of the PTX.
        given = (
            r.const("i32", 0),
            place,
            many,
            space,
            r.const("i32", int(Action.LOAD)),
            flags,
            r["time"],
            _NULL,
        )
        r.call("tw_check_touch", "void", *_given(r), *given)
    r.call(
        "tw_check_mark",
        "void",
        r["ctx"],
        r["block"],
        place,
        many,
        r["what"],
        r["time"],
        who,
    )


def _product() -> Routine:
    """A warp issues a wgmma that reads a matrix: of A, if ``first`` is not 0, its own rows; B once for all four."""
    r = Routine("tw_check_product", "void", **WHO, **_MATRIX, line="i32")
    index = r.op("and", r.field(r["warp"], WARP.INDEX, "i32"), 3)
    own = r.compare("icmp ne", r["first"], 0)  # of A: 16 of its 64 rows
    with r.unless(r.op("or", own, r.compare("icmp eq", index, 0))):
        r.give()
    first = r.select(own, r.op("mul", index, 2), r.const("i32", 0))
    numbers = (
        r.const("i32", 1),
        r.const("i32", 0),
        r.const("i32", PRODUCTS),
        r.const("i32", 1),
        r["line"],
    )
    copy = r.call("tw_check_record", "ptr", *_given(r), *numbers)
    with r.when(r.compare("icmp eq", copy, _NULL)):
        r.give()
    high = r.cast("trunc", r.op("lshr", r["bits"], 32), "i32")
    kept = (
        r.cast("trunc", r["bits"], "i32"),
        high,
        first,
        r["rows"],
        r["bricks"],
        r["across"],
    )
    for i, value in enumerate(kept):
        r.put(_place(r, copy, r.const("i32", i)), 0, value)
    given = (
        r["bits"],
        first,
        r["rows"],
        r["bricks"],
        r["across"],
        r.const("i32", _LEAVE),
        r["line"],
    )
    r.call("tw_check_matrix", "void", *_given(r), *given)
    return r
