"""Count what bulk and tensor copies move, for the counted and the traced build.

A copy goes in *pieces*, none of which crosses a line of 128 bytes, in global memory or in shared memory, or
the tensor's edge. A piece takes as many sectors of 32 bytes as it touches; one that goes to several blocks of
a cluster, two at least. What lies outside a tensor is requested as well. So an H200 counts them
(``tests/golden/hardware/bulk.json``).

Copies are looked at where they are issued. Their operands lie in columns (``families/bulk.py``); rows of a
tensor are gone through as in the copy itself (``support/tensor.py``).
"""

from __future__ import annotations

from enum import IntEnum

from tilewise.emulator.families.bulk import Columns, put_prefetch
from tilewise.emulator.families.tensor_copies import put_tensor_prefetch
from tilewise.emulator.layout import BLOCK, OFFSETS, Flight
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, Ptr, Routine, routine
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.profiling.logs import trace_block, trace_sector
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.support.bulk_requests import NONE, REQUEST, Verb, request, take_map, take_operands
from tilewise.emulator.support.tensor import PLAN, make_plan, walk_rows

__all__ = ["COPY_VERBS", "CopyFigure", "watch_copy"]

# What a copy does → its verb in the run-time support.
COPY_VERBS = {
    "load": Verb.LOAD,
    "multicast": Verb.LOAD,
    "store": Verb.STORE,
    "reduce": Verb.REDUCE,
    "prefetch": Verb.LOAD,
    "send": Verb.SEND,
    "send_reduce": Verb.SEND_REDUCE,
    "remote": Verb.WRITE,
    "remote_reduce": Verb.CHANGE,
}
_LINE, _SECTOR_SHIFT = 128, 5
_PAIR = 2  # sectors of a piece for several blocks, at least


class CopyFigure(IntEnum):
    """The figures of a copy, 64 bits each, in the slots that ``Figure`` has for other accesses."""

    RUNS = 0
    COPIES = 1  # one for each lane
    BYTES = 2  # of shared memory, in one block
    SECTORS = 3  # of global memory, for one block
    OUTSIDE = 4  # such ones beyond the tensor's edge
    ALL_BYTES = 5  # of shared memory, in all blocks that get them
    ALL_SECTORS = 6  # that come to all of them, from within and without the tensor
    TENSORS = 7  # copies that have a tensor map


class _SINK:
    """A structure of compiled code: where to count the pieces of one copy, and how."""

    FIGURES = 0  # pointer, or null
    LOG = 8  # pointer, or null
    KIND = 16  # what a log says of each sector, in place
    LEAST = 24  # sectors of a piece
    RECEIVERS = 32  # blocks
    LOADS = 40  # whether what lies outside is requested
    STRAIGHT = 48  # whether only lines of global memory part pieces
    SIZE = 64


def watch_copy(
    e: Context, instruction: Instruction, way: str, figures: Value | str, log: Value, kind: int
) -> None:
    """Emit code that counts a copy just issued: into ``figures``, or its sectors into ``log``."""
    tensor = "tensor" in instruction.parts
    if way == "prefetch":  # which does nothing, and leaves no operands
        (put_tensor_prefetch if tensor else put_prefetch)(Columns(e, instruction), instruction)
    flight = Flight.TENSOR if tensor else Flight.REMOTE if way.startswith("remote") else Flight.BULK
    numbers = (flight, COPY_VERBS[way], int(way == "prefetch"), kind)
    e.call_or_leave("tw_watch_bulk", e.columns(), figures, log, *numbers, e.mask(), instruction.line)


# -- run-time support ---------------------------------------------------------------------------------
def _note(r: Routine, sink: Value, figure: CopyFigure, amount: Value) -> None:
    """Add an amount to a figure of the copy."""
    figures = r.field(sink, _SINK.FIGURES, "ptr")
    with r.unless(r.is_null(figures)):
        r.change(figures, 8 * figure, "add", amount, "i64")


@routine("tw_watch_bulk", "i32", *POINTERS)
def _count_bulk(
    r: Routine,
    columns: Ptr,
    figures: Ptr,
    log: Ptr,
    kind: I32,
    verb: I32,
    straight: I32,
    how: I32,
    mask: I32,
    line: I32,
) -> None:
    """Count what the copies of some lanes move; ``how`` is what a log says of their sectors."""
    r.give_if(r.equals(mask, 0), 0)
    sink = r.reserve(f"[{_SINK.SIZE} x i8]", 8)
    data = r.reserve(f"[{REQUEST.VALUES} x i8]", 64)
    loads = r.equals(verb, Verb.LOAD)
    outside = r.is_at_most(verb, Verb.REDUCE)  # what goes from block to block touches no memory
    tensor = r.equals(kind, Flight.TENSOR)
    r.put(sink, _SINK.FIGURES, figures)
    r.put(sink, _SINK.LOG, r.select(outside, log, NULL))
    r.put(sink, _SINK.KIND, r.wide(how))
    r.put(sink, _SINK.LOADS, r.wide(loads))
    r.put(sink, _SINK.STRAIGHT, r.wide(straight))
    with r.unless(r.is_null(log)):
        trace_block(r, log, r.field(r["block"], BLOCK.NUMBER, "i64"))
    _note(r, sink, CopyFigure.RUNS, r.const("i64", 1))
    lanes = r.wide(r.count_bits(mask))
    _note(r, sink, CopyFigure.COPIES, lanes)
    with r.when(tensor):
        _note(r, sink, CopyFigure.TENSORS, lanes)
    with r.each_lane(mask) as lane:
        take_operands(r, data, columns, lane)
        # How many blocks get the copy: only loads may have several.
        lists = r.both(loads, r.equals(straight, 0))
        listed = r.select(lists, request(r, data, REQUEST.BLOCKS), NONE)
        several, one = r.differs(listed, NONE), r.const("i64", 1)
        r.put(sink, _SINK.RECEIVERS, r.select(several, r.count_bits(listed & 0xFFFF), one))
        r.put(sink, _SINK.LEAST, r.select(several, _PAIR, one))
        with r.when(tensor):
            _count_tensor(r, sink, data, lane)
        with r.otherwise():
            count = request(r, data, REQUEST.SIZE) & 0xFFFF_FFFF
            _note_bytes(r, sink, count)
            with r.when(r.is_below(verb, Verb.WRITE)):
                offset, place = (request(r, data, at) for at in (REQUEST.SHARED, REQUEST.GLOBAL))
                _count_pieces(r, sink, place, offset, count, CopyFigure.SECTORS)


def _note_for_receivers(r: Routine, sink: Value, figure: CopyFigure, amount: Value) -> None:
    _note(r, sink, figure, amount * r.field(sink, _SINK.RECEIVERS, "i64"))


def _note_bytes(r: Routine, sink: Value, count: Value) -> None:
    _note(r, sink, CopyFigure.BYTES, count)
    _note_for_receivers(r, sink, CopyFigure.ALL_BYTES, count)


def _count_tensor(r: Routine, sink: Value, data: Value, lane: Value) -> None:
    """Count a tensor copy, row by row of its box or of its pixels."""
    take_map(r, data, lane)
    plan = r.reserve(f"[{PLAN.BYTES} x i8]", 64)
    r.give_unless_zero(make_plan(r, data, plan, lane))
    r.put(plan, PLAN.AT, r.field(data, REQUEST.SHARED, "i64") & OFFSETS)
    r.put(plan, PLAN.WATCH, sink)
    with r.when(r.differs(r["verb"], Verb.LOAD)):
        # What lies outside is not written: the bytes of a store are counted row by row.
        r.put(plan, PLAN.TOTAL, r.const("i64", 0))
    _note_bytes(r, sink, r.field(plan, PLAN.TOTAL, "i64"))
    r.give_unless_zero(walk_rows(r, plan, lane, Verb.LOOK))


@routine("tw_watch_row", "void")
def _count_row(r: Routine, plan: Ptr, offset: I64, place: I64, low: I64, high: I64) -> None:
    """Count one row: the part within the tensor and, of a load, the parts before and behind it."""
    sink = r.field(plan, PLAN.WATCH, "ptr")
    unit, step = r.field(plan, PLAN.UNIT, "i64"), r.field(plan, PLAN.STEP, "i64")
    with r.when(r.differs(step, 1)):
        # Elements do not lie side by side, as interleaved ones: they are counted one by one.
        with r.count(high, low) as i:
            start = place + (i * step) * unit
            _count_pieces(r, sink, start, start, unit, CopyFigure.SECTORS)
        r.give()

    def part(first: Value, end: Value, figure: CopyFigure) -> None:
        with r.when(r.is_below(first, end)):
            skip, count = first * unit, (end - first) * unit
            there = offset + skip
            # What lies outside has no address: it is counted as it lies in shared memory.
            start = there if figure is CopyFigure.OUTSIDE else place + skip
            _count_pieces(r, sink, start, there, count, figure)

    part(low, high, CopyFigure.SECTORS)
    with r.when(r.differs(r.field(sink, _SINK.LOADS, "i64"), 0)):
        part(r.const("i64", 0), low, CopyFigure.OUTSIDE)
        part(r.intrinsic("llvm.umax", low, high), r.field(plan, PLAN.COUNT, "i64"), CopyFigure.OUTSIDE)
    with r.otherwise():
        _note_bytes(r, sink, (high - low) * unit)


@routine("tw_watch_pieces", "void")
def _count_pieces(r: Routine, sink: Ptr, place: I64, offset: I64, length: I64, figure: I64) -> None:
    """Count adjacent bytes in pieces that cross no line of 128 bytes at either end of the copy."""
    line = r.const("i64", _LINE)
    least, log = r.field(sink, _SINK.LEAST, "i64"), r.field(sink, _SINK.LOG, "ptr")
    within = r.equals(figure, CopyFigure.SECTORS)
    writes = r.both(within, r.differs(log, NULL))
    straight = r.differs(r.field(sink, _SINK.STRAIGHT, "i64"), 0)
    away = r.select(straight, place, offset) - place
    kind = r.field(sink, _SINK.KIND, "i64")
    at, end = r.variable("i64", place), place + length
    total = r.variable("i64", 0)
    with r.loop() as loop:
        here = at.get()
        loop.leave(r.compare("icmp sge", here, end))
        room = line - (here & (_LINE - 1))
        other = line - ((here + away) & (_LINE - 1))
        until = here + r.intrinsic("llvm.umin", room, other)
        until = r.intrinsic("llvm.smin", until, end)
        first, last = (at >> _SECTOR_SHIFT for at in (here, until - 1))
        # One sector alone, where two are the least, comes with its neighbour.
        alone = r.is_below(last - first, least - 1)
        first = r.select(alone, first & (-_PAIR), first)
        last = r.select(alone, last | 1, last)
        total.add(last - first + 1)
        with r.when(writes), r.count(last + 1, first) as sector:
            trace_sector(r, log, sector, kind)
        at.put(until)
    figures = r.field(sink, _SINK.FIGURES, "ptr")
    with r.unless(r.is_null(figures)):
        here = r.item(figures, figure, 8)
        r.change(here, 0, "add", total.get(), "i64")
        _note_for_receivers(r, sink, CopyFigure.ALL_SECTORS, total.get())
