"""The run-time support of ``wgmma``: a warp's products in flight, and when they are performed.

A warp of a warpgroup multiplies 16 of the 64 rows. What it issues goes to a list in its own memory; a commit
closes a group of them. They are performed for all four warps together, so that B is prepared once for the
four: where some warp waits, once all four have committed as many groups; in eager order, as soon as they
have. Only in order that a seed may also show what happens then, one warp is let go ahead at a commit.

In every order but the eager one, sums are away from where they are issued to where the warp itself waits: in a
place of their own, where products find them, and the registers hold NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.layout import LAUNCH, WARP, FaultKind, Status
from tilewise.emulator.llvm.emit import NULL, Value
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.cluster_parts import find_warp
from tilewise.emulator.support.flights import advance_seed
from tilewise.emulator.support.memory_access import record_lanes_fault

__all__ = ["BATCH", "CAPACITY", "INFO", "PRODUCTS", "RANKS", "RECORD"]

CAPACITY = 32  # products that a warp can have in flight
BATCH = 64  # elements of K at most that are multiplied in one go
RANKS = 4 * BATCH * 256  # in the panel, behind B as floats: their exponents, where those are wanted
PANEL_BYTES = RANKS + 2 * BATCH * 256
_WARPS = 4
_ALL_WARPS = (1 << _WARPS) - 1  # a bit for each
_REGISTER = 128  # bytes
_EAGER, _LATE = 0, 1


class PRODUCTS:
    """A warp's queue of products, at ``WARP.PRODUCTS``."""

    FIRST, END = 0, 4  # of its records, those to be performed
    COMMITTED = 8  # groups closed so far
    AWAITED = 12  # how many groups it waits for all four warps to have closed, or 0
    LINE = 16  # of the PTX, where it waits
    KEPT = 20  # the first of its records whose sums are away; those before FIRST have been performed
    RECORDS = 24  # pointer to its records
    SIZE = 64


class RECORD:
    """One product in the queue."""

    INFO = 0  # pointer to what is known of it when it is compiled
    A = 8  # A's descriptor, or a pointer to the places of its registers
    B = 16  # B's descriptor
    GROUP = 24
    LINE = 28
    ADDS = 32  # whether it adds to what D holds
    METADATA = 36  # the place of the register that says which elements a sparse A has
    SIZE = 64


class INFO:
    """The constant of a ``wgmma`` instruction. Places of registers are bytes from the start of the warp."""

    PACK, MULTIPLY = 0, 8  # functions
    PLACES = 16  # pointer to the places of D's registers
    AWAY = 24  # how far from there they are while they are away
    REGISTERS = 32  # of D
    COLUMNS = 36  # of D, in eights
    MOST = 40  # products that can be done in one go


# -- small parts ------------------------------------------------------------------------------------
def _state(r: Routine, warp: Value) -> Value:
    return r.at(warp, WARP.PRODUCTS)


def _record(r: Routine, state: Value, index: Value) -> Value:
    return r.item(r.field(state, PRODUCTS.RECORDS, "ptr"), index, RECORD.SIZE)


@contextmanager
def _each_warp_of_group(r: Routine, which: Value | None = None) -> Iterator[Value]:
    """Write a loop over the four warps of the warpgroup, or those whose bits are set in ``which``; yield the warp."""
    start = r.wide(r.field(r["warp"], WARP.INDEX, "i32") & (-_WARPS))
    with r.count(_WARPS) as number:
        warp = find_warp(r, r["block"], start + number)
        selected = Value("i1", "true") if which is None else r.has_any(which >> r.narrow(number), 1)
        with r.when(selected):
            yield warp


def _moves_sums(r: Routine) -> Value:
    """Whether sums lie elsewhere while a product on them is in flight: in every order but the eager one."""
    return r.differs(r.field(r["ctx"], LAUNCH.ORDER, "i64"), _EAGER)


@routine("tw_wgmma_next", "ptr", "warp")
def _find_next(r: Routine, target: I32) -> None:
    """Return a warp's oldest product of the first ``target`` groups, or null."""
    state = _state(r, r["warp"])
    first, end = r.field(state, PRODUCTS.FIRST, "i32"), r.field(state, PRODUCTS.END, "i32")
    with r.when(r.is_below(first, end)):
        record = _record(r, state, first)
        r.give_if(r.is_below(r.field(record, RECORD.GROUP, "i32"), target), record)
    r.give(NULL)


@routine("tw_wgmma_run", "i64", "warp")
def _count_run(r: Routine, target: I32) -> None:
    """Return how many products, from the oldest on, can be performed at once: they add to the same sums."""
    state = _state(r, r["warp"])
    first, end = r.field(state, PRODUCTS.FIRST, "i32"), r.field(state, PRODUCTS.END, "i32")
    oldest = _record(r, state, first)
    info = r.field(oldest, RECORD.INFO, "ptr")
    limit = r.intrinsic("llvm.umin", r.wide(r.field(info, INFO.MOST, "i32")), r.wide(end - first))
    length = r.variable("i64", 1)
    with r.loop() as loop:
        now = length.get()
        loop.leave(r.is_at_least(now, limit))
        record = r.item(oldest, now, RECORD.SIZE)
        loop.leave(r.differs(r.field(record, RECORD.INFO, "ptr"), info))
        loop.leave(r.is_at_least(r.field(record, RECORD.GROUP, "i32"), target))
        loop.leave(r.equals(r.field(record, RECORD.ADDS, "i32"), 0))
        length.add(1)
    r.give(length.get())


@routine("tw_wgmma_same", "i1")
def _same_matrices(r: Routine, a: Ptr, b: Ptr, count: I64) -> None:
    """Whether two runs of records multiply by the same matrices B."""
    with r.count(count) as i:
        records = [r.item(first, i, RECORD.SIZE) for first in (a, b)]
        infos = [r.field(record, RECORD.INFO, "ptr") for record in records]
        matrices = [r.field(record, RECORD.B, "i64") for record in records]
        packs = [r.field(info, INFO.PACK, "ptr") for info in infos]
        columns = [r.field(info, INFO.COLUMNS, "i32") for info in infos]
        alike = [r.equals(*pair) for pair in (matrices, packs, columns)]
        r.give_if(r.negation(r.both(*alike)), 0)
    r.give(1)


@routine("tw_wgmma_finish", "void", "ctx", "warp")
def _finish(r: Routine, count: I64) -> None:
    """Remove a warp's oldest products; where sums are moved, keep the records until the sums are back."""
    state = _state(r, r["warp"])
    first = r.field(state, PRODUCTS.FIRST, "i32") + r.resize(count, "i32", False)
    r.put(state, PRODUCTS.FIRST, first)
    with r.unless(_moves_sums(r)):
        r.put(state, PRODUCTS.KEPT, first)
        _reset_if_empty(r, state)


@routine("tw_wgmma_return", "void", "ctx", "warp")
def _return_sums(r: Routine, target: I32) -> None:
    """Move back the sums that products of the first ``target`` groups changed, unless a later one changes them too."""
    state = _state(r, r["warp"])
    r.give_if(r.negation(_moves_sums(r)))
    end = r.field(state, PRODUCTS.END, "i32")
    with r.loop() as loop:
        kept = r.field(state, PRODUCTS.KEPT, "i32")
        loop.leave(r.is_at_least(kept, r.field(state, PRODUCTS.FIRST, "i32")))
        record = _record(r, state, kept)
        loop.leave(r.is_at_least(r.field(record, RECORD.GROUP, "i32"), target))
        info = r.field(record, RECORD.INFO, "ptr")
        following = kept + 1
        with r.unless(_in_flight(r, following, end, info)):
            _move_sums(r, info, back=True)
        r.put(state, PRODUCTS.KEPT, following)
    _reset_if_empty(r, state)


def _reset_if_empty(r: Routine, state: Value) -> None:
    """Start the queue at its beginning again if it is empty."""
    kept, end = (r.field(state, name, "i32") for name in (PRODUCTS.KEPT, PRODUCTS.END))
    with r.when(r.equals(kept, end)):
        r.put_fields(state, dict.fromkeys((PRODUCTS.KEPT, PRODUCTS.FIRST, PRODUCTS.END), 0))


@routine("tw_wgmma_in_flight", "i1", "warp")
def _in_flight(r: Routine, first: I32, end: I32, info: Ptr) -> None:
    """Whether one of the warp's records changes the same sums as ``info``."""
    state = _state(r, r["warp"])
    with r.count(r.wide(end), r.wide(first)) as i:
        other = r.field(_record(r, state, i), RECORD.INFO, "ptr")
        r.give_if(_same_sums(r, other, info), 1)
    r.give(0)


@routine("tw_wgmma_same_sums", "i1")
def _same_sums(r: Routine, a: Ptr, b: Ptr) -> None:
    """Whether two products change the same sums.

    NOTE: tables are compared by what they hold: a warp may have gone on to the general build, which has its own.
    """
    counts = [r.field(info, INFO.REGISTERS, "i32") for info in (a, b)]
    r.give_if(r.differs(*counts), 0)
    tables = [r.field(info, INFO.PLACES, "ptr") for info in (a, b)]
    with r.count(r.wide(counts[0])) as i:
        r.give_if(r.differs(*(r.element(places, i, "i32") for places in tables)), 0)
    r.give(1)


def _move_sums(r: Routine, info: Value, back: bool) -> None:
    """Move sums elsewhere and leave NaN in the registers, or move them back."""
    places = r.field(info, INFO.PLACES, "ptr")
    away = r.field(info, INFO.AWAY, "i64")
    with r.count(r.wide(r.field(info, INFO.REGISTERS, "i32"))) as i:
        here = r.at(r["warp"], r.element(places, i, "i32"))
        there = r.at(here, away)
        if back:
            r.copy(here, there, _REGISTER)
        else:
            r.copy(there, here, _REGISTER)
            r.fill(here, 0xFF, _REGISTER)


# -- performing -------------------------------------------------------------------------------------
@routine("tw_wgmma_until", "i32", *POINTERS)
def _perform_groups(r: Routine, which: I32, target: I32) -> None:
    """Perform the products of the first ``target`` groups of the warps whose bits are set in ``which``."""
    panel = r.reserve(f"[{PANEL_BYTES} x i8]", 64)
    with r.loop() as rounds:
        leader, oldest = r.variable("ptr", NULL), r.variable("ptr", NULL)
        with _each_warp_of_group(r, which) as warp:
            record = _find_next(r, target, warp=warp)
            free = r.is_null(leader.get())
            with r.when(r.both(free, r.differs(record, NULL))):
                leader.put(warp)
                oldest.put(record)
        rounds.leave(r.is_null(leader.get()))
        count = _count_run(r, target, warp=leader.get())
        info = r.field(oldest.get(), RECORD.INFO, "ptr")
        _invoke(r, info, INFO.PACK, leader.get(), oldest.get(), count, panel)
        with _each_warp_of_group(r, which) as warp:
            record = _find_next(r, target, warp=warp)
            with r.when(r.differs(record, NULL)):
                length = _count_run(r, target, warp=warp)
                # NOTE: records beyond the run may be anything: they are compared only if they are there.
                enough = r.is_at_least(length, count)
                with r.when(enough), r.when(_same_matrices(r, oldest.get(), record, count)):
                    own = r.field(record, RECORD.INFO, "ptr")
                    _invoke(r, own, INFO.MULTIPLY, warp, record, count, panel)
                    _finish(r, count, warp=warp)


def _invoke(
    r: Routine, info: Value, function: int, warp: Value, record: Value, count: Value, panel: Value
) -> None:
    """Call a function of a product; return if it failed: it has recorded the fault."""
    away = r.field(info, INFO.AWAY, "i64")
    base = r.at(warp, r.select(_moves_sums(r), away, 0))
    given = (r["ctx"], r["worker"], r["block"], warp, record, count, panel, base)
    r.give_unless_zero(r.call_at(r.field(info, function, "ptr"), "i32", *given), 2)


@routine("tw_wgmma_least", "i32", "ctx", "block", "warp")
def _groups_of_all(r: Routine) -> None:
    """Return how many groups all four warps of the warpgroup have committed."""
    least = r.variable("i32", -1)
    with _each_warp_of_group(r) as warp:
        closed = r.field(_state(r, warp), PRODUCTS.COMMITTED, "i32")
        least.put(r.intrinsic("llvm.umin", least.get(), closed))
    r.give(least.get())


# -- the instructions -------------------------------------------------------------------------------
def _check(r: Routine) -> None:
    """Leave with a fault unless all lanes of the warp run, and its warpgroup is whole."""
    warps = r.field(r["ctx"], LAUNCH.WARPS, "i64")
    end = (r.wide(r.field(r["warp"], WARP.INDEX, "i32")) & (-_WARPS)) + _WARPS
    with r.unless(r.both(r.equals(r["mask"], -1), r.is_at_most(end, warps))):
        record_lanes_fault(r, FaultKind.WARPGROUP, r["mask"])
        r.give(2)


@routine("tw_wgmma_issue", "i32", *POINTERS)
def _issue(
    r: Routine, info: Ptr, records: I64, a: I64, b: I64, adds: I32, metadata: I32, mask: I32, line: I32
) -> None:
    """Append a product to the warp's queue."""
    _check(r)
    state = _state(r, r["warp"])
    r.put(state, PRODUCTS.RECORDS, r.at(r["warp"], records))
    with r.when(r.equals(r.field(state, PRODUCTS.END, "i32"), CAPACITY)):
        _compact(r, state)
    end = r.field(state, PRODUCTS.END, "i32")
    with r.when(_moves_sums(r)):
        kept = r.field(state, PRODUCTS.KEPT, "i32")
        with r.unless(_in_flight(r, kept, end, info)):
            _move_sums(r, info, back=False)
    record = _record(r, state, end)
    group = r.field(state, PRODUCTS.COMMITTED, "i32")
    r.put_fields(record, {RECORD.INFO: info, RECORD.A: a, RECORD.B: b, RECORD.GROUP: group})
    r.put_fields(record, {RECORD.LINE: line, RECORD.ADDS: adds, RECORD.METADATA: metadata})
    r.put(state, PRODUCTS.END, end + 1)


def _compact(r: Routine, state: Value) -> None:
    """Make room in a full queue: move it to the front, or perform the warp's products if all are in flight."""
    kept = r.field(state, PRODUCTS.KEPT, "i32")
    with r.when(r.equals(kept, 0)):
        target = r.field(state, PRODUCTS.COMMITTED, "i32") + 1
        _perform_own(r, target)
        _return_sums(r, target)
    with r.otherwise():
        records = r.field(state, PRODUCTS.RECORDS, "ptr")
        there = CAPACITY - kept
        r.move(records, r.item(records, kept, RECORD.SIZE), r.wide(there) * RECORD.SIZE)
        for name in (PRODUCTS.FIRST, PRODUCTS.END, PRODUCTS.KEPT):
            r.change(state, name, "sub", kept)


def _perform_own(r: Routine, target: Value) -> None:
    _perform(r, 1 << (r.field(r["warp"], WARP.INDEX, "i32") & (_WARPS - 1)), target)


def _perform(r: Routine, which: Value | int, target: Value) -> None:
    r.give_unless_zero(_perform_groups(r, which, target), 2)


@routine("tw_wgmma_commit", "i32", *POINTERS)
def _commit(r: Routine, mask: I32, line: I32) -> None:
    """Commit a group; resume the warps of the warpgroup that waited for it."""
    _check(r)
    state = _state(r, r["warp"])
    closed = r.field(state, PRODUCTS.COMMITTED, "i32") + 1
    r.put(state, PRODUCTS.COMMITTED, closed)
    order = r.field(r["ctx"], LAUNCH.ORDER, "i64")
    least = _groups_of_all(r)
    with r.when(r.equals(order, _EAGER)), r.when(r.equals(least, closed)):
        _perform(r, _ALL_WARPS, closed)
    with r.when(r.is_above(order, _LATE)):
        heads = r.equals((advance_seed(r) >> 40) & 1, 0)
        with r.when(heads):
            _perform_own(r, closed)
    with _each_warp_of_group(r) as warp:
        _resume(r, warp, least)


def _resume(r: Routine, warp: Value, least: Value) -> None:
    state = _state(r, warp)
    awaited = r.field(state, PRODUCTS.AWAITED, "i32")
    waits = r.differs(awaited, 0)
    with r.when(r.both(waits, r.is_at_most(awaited, least))):
        _perform(r, _ALL_WARPS, awaited)
        _return_sums(r, awaited, warp=warp)
        r.put(state, PRODUCTS.AWAITED, 0)
        r.put(warp, WARP.BLOCKED, 0)
        with r.when(r.equals(r.field(warp, WARP.STATUS, "i32"), Status.WAITING)):
            r.put(warp, WARP.STATUS, Status.READY)


@routine("tw_wgmma_wait", "i32", *POINTERS)
def _wait(r: Routine, left: I32, mask: I32, line: I32) -> None:
    """Wait until no more than ``left`` groups are in flight: 0 goes on, 1 waits for other warps, 2 failed."""
    _check(r)
    state = _state(r, r["warp"])
    closed = r.field(state, PRODUCTS.COMMITTED, "i32")
    target = r.intrinsic("llvm.usub.sat", closed, left)
    least = _groups_of_all(r)
    with r.when(r.is_at_most(target, least)):
        _perform(r, _ALL_WARPS, target)
        _return_sums(r, target)
        r.give(0)
    r.put(state, PRODUCTS.AWAITED, target)
    r.put(state, PRODUCTS.LINE, line)
    r.put(r["warp"], WARP.BLOCKED, -1)
    r.give(1)
