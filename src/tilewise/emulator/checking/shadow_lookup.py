"""Address → its cells in shadow memory."""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, RANGE, SHADOW
from tilewise.emulator.checking.check_routine import CheckRoutine
from tilewise.emulator.layout import BLOCK, GENERIC_SHARED, LAUNCH, RANK_SHIFT, WINDOW, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, Ptr, routine
from tilewise.emulator.support.cluster_parts import find_block

__all__ = ["find_shadow", "look_up_shadow"]


def find_shadow(r: CheckRoutine, place: Value, here: Value, space: Value) -> Value:
    """Whether an address has shadow memory; ``place`` then describes it. It is a cache as well, and zero at first."""
    away = r.op("sub", here, r.field(place, SHADOW.FIRST, "i64"))
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
    away = r.op("sub", address, GENERIC_SHARED)
    with r.when(r.both(r.equals(space, 0), r.is_below(away, WINDOW))):
        start.put(GENERIC_SHARED)
    with r.when(r.differs(start.get(), -1)):
        _in_shared(r, start.get())
    _in_global(r, _range_of(r))


def _in_shared(r: CheckRoutine, start: Value) -> None:
    """Answer for an address of shared memory, whose window begins at ``start``."""
    place, state = r["place"], r.state()
    within = r.op("and", r.op("sub", r["address"], start), WINDOW - 1)
    rank = r.op("lshr", within, RANK_SHIFT)
    owner = r.variable("ptr", r["block"])
    with r.when(r.differs(rank, 0)):
        r.give_if(r.is_above(rank, r.field(r["ctx"], LAUNCH.CLUSTER, "i64")), 0)
        owner.put(find_block(r, r.field(r["block"], BLOCK.FIRST, "ptr"), r.op("sub", rank, 1)))
    here = owner.get()
    size = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64")
    first_address = r.op("add", start, r.op("shl", rank, RANK_SHIFT))
    with r.when(r.differs(here, r["block"])):
        r.put(place, SHADOW.OWNER, here)
    r.put(place, SHADOW.FIRST, first_address)
    r.put(place, SHADOW.BYTES, size)
    r.put(place, SHADOW.CELLS, r.field(here, BLOCK.CELLS, "ptr"))
    r.put(place, SHADOW.STRIDE, r.field(state, CHECK.STRIDE, "i64"))
    r.put(place, SHADOW.MEMORY, r.field(here, BLOCK.SHARED, "ptr"))
    r.put(place, SHADOW.BEGAN, r.field(r.clocks(), CLOCKS.BEGAN, "i64"))
    r.give(r.is_below(r.op("sub", r["address"], first_address), size))


def _range_of(r: CheckRoutine) -> Value:
    """The range that an address of global memory lies in; returns false from the routine if there is none."""
    state = r.state()
    known = r.variable("ptr", r.field(state, CHECK.LAST, "ptr"))
    r.give_if(r.is_null(known.get()), 0)
    with r.unless(_within(r, known.get())):
        known.put(NULL)
        low, high = (r.variable("i64", 0), r.variable("i64", r.field(state, CHECK.RANGE_COUNT, "i64")))
        with r.loop() as loop:
            loop.leave(r.is_at_least(low.get(), high.get()))
            middle = r.op("lshr", r.op("add", low.get(), high.get()), 1)
            item = r.item(r.field(state, CHECK.RANGES, "ptr"), middle, RANGE.SIZE)
            with r.when(_within(r, item)):
                known.put(item)
                low.put(high.get())
            with r.otherwise_when(r.is_below(r["address"], r.field(item, RANGE.FIRST, "i64"))):
                high.put(middle)
            with r.otherwise():
                low.put(r.op("add", middle, 1))
        r.give_if(r.is_null(known.get()), 0)
        r.put(state, CHECK.LAST, known.get())
    return known.get()


def _in_global(r: CheckRoutine, item: Value) -> None:
    """Answer for an address within an array."""
    place = r["place"]
    first = r.field(item, RANGE.FIRST, "i64")
    cells = r.field(item, RANGE.CELLS, "ptr")
    r.put(place, SHADOW.FIRST, first)
    # NOTE: memory without cells is given no bytes, so that the cached ``place`` never matches it.
    none = r.is_null(cells)
    size = r.op("sub", r.field(item, RANGE.END, "i64"), first)
    r.put(place, SHADOW.BYTES, r.select(none, 0, size))
    r.put(place, SHADOW.CELLS, cells)
    r.put(place, SHADOW.STRIDE, r.field(item, RANGE.STRIDE, "i64"))
    r.put(place, SHADOW.MEMORY, r.as_pointer(first))
    r.put(place, SHADOW.BEGAN, r.const("i64", 0))
    r.give(r.differs(cells, NULL))


def _within(r: CheckRoutine, item: Value) -> Value:
    first, end = r.field(item, RANGE.FIRST, "i64"), r.field(item, RANGE.END, "i64")
    return r.is_below(r.op("sub", r["address"], first), r.op("sub", end, first))
