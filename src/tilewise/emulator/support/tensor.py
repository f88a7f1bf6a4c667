"""Tensor copies in the run-time support: boxes of a tensor, or pixels of images, to and from shared memory.

A request and its tensor map become a *plan*: how far the copy goes along each of five axes (those beyond the
map's rank have one element), where it begins, how rows lie in shared memory. Then it goes row by row. What
the manual leaves open is as an H200 was seen to do it: rows narrower than the swizzle lie a swizzle apart, a
store writes the last 16 bytes that reach over the end of the innermost axis whole, the NaN that fills is 0x7ff7
in every 16 bits, elements of tf32 are rounded to the nearest even when they are loaded, and an interleaved
copy takes slices of one element of the axis but one from the outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.check_layout import StoreStep
from tilewise.emulator.layout import OFFSETS, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, NULL, POINTERS, Ptr, Routine, routine
from tilewise.emulator.numerics.rounding import FORMATS, narrow
from tilewise.emulator.support.bulk_requests import (
    REQUEST,
    Verb,
    each_block,
    find_span,
    follow,
    refuse_if,
    request,
    touch,
)
from tilewise.emulator.support.mbarrier import complete_bytes
from tilewise.emulator.support.memory_access import find_array
from tilewise.emulator.support.reduction import reduce_row, reduction_of_tensor
from tilewise.emulator.support.tensor_map_layout import AXES, ELEMENT_SIZES, LIMITS, MAGIC, MAP, MODES

__all__ = ["PLAN", "make_plan", "store_tensor", "walk_rows"]

_NAN = 0x7FF7
_CHUNK, _LINE = 16, 128  # bytes that stay together in a swizzle; bytes of a line of it
_LONGEST = 256 * 32  # bytes of a row
_TF32 = 11  # and one more: the element types that are rounded when they are loaded
_FLOATS = 6  # the first of the element types that have NaN


# -- the plan -----------------------------------------------------------------------------------------
class PLAN:
    """Offsets. Of what there is for each axis, five numbers of 64 bits lie behind one another."""

    ADDRESS, UNIT = 0, 8  # of the tensor; bytes of an element, or of a slice
    START, COUNT, STEP, SIZE, STRIDE = 16, 56, 96, 136, 176
    LOWER, UPPER, BOUNDED, OFFSETS = 216, 256, 296, 336  # of im2col; which axes pixels are counted along
    ROW, PITCH = 376, 384  # bytes of a row, and from one to the next in shared memory
    EXTENT, TOTAL = 392, 400  # bytes of shared memory that it lies in, and that are copied
    SWIZZLE = 408  # which bits of a line's number change addresses
    PIXELS = 416  # 0 for a box
    ELEMENT, NAN, ROUNDS, ODD = 424, 428, 432, 436  # ODD: rows are not copied as they are
    SPOIL, REDUCTION = 440, 444
    BASE, AT = 448, 456  # where offset 0 of shared memory lies in the host's, and the offset of the copy
    FIRST, LIMIT = 464, 472  # the array that was touched last, as tw_find returns it
    WATCH = 480  # where a watched launch writes down what it sees of the rows
    STORE_STEP = 488  # of a store to global memory: which of ``StoreStep``
    BYTES = 512


class _PlanRoutine(Routine):
    """The routine that makes a plan. It has the map's fields, and what follows from them, as numbers of 64 bits."""

    def read_map(self) -> None:
        self.plan, self.tensor = self["plan"], self.at(self["data"], REQUEST.MAP)
        self.fill(self.plan, 0, PLAN.BYTES)
        self.named = request(self, self["data"], REQUEST.GLOBAL)
        self.refuse(self.differs(self.field(self.tensor, MAP.MAGIC, "i64"), MAGIC), 1)
        self.rank, self.mode = self.byte(MAP.RANK), self.byte(MAP.MODE)
        self.type_number, self.interleave = self.byte(MAP.ELEMENT), self.byte(MAP.INTERLEAVE)
        self.swizzle, self.nan = self.byte(MAP.SWIZZLE), self.byte(MAP.NAN)
        self.interleaved = self.differs(self.interleave, 0)
        self.im2col = self.equals(self.mode, MODES["im2col"])

    def refuse(self, wrong: Value, why: int) -> None:
        refuse_if(self, wrong, why, self.named)

    def byte(self, offset: int) -> Value:
        return self.wide(self.field(self.tensor, offset, "i8"))

    def is_outside(self, length: Value, limit: str) -> Value:
        """Return whether a length is 0, or above its limit."""
        return self.is_above(length - 1, LIMITS[limit] - 1)

    def check_kind(self) -> None:
        asked = request(self, self["data"], REQUEST.IM2COL)
        least = self.select(self.interleaved | self.im2col, self.const("i64", 3), 1)
        self.refuse(self.is_above(self.rank, AXES), 11)
        self.refuse(self.is_below(self.rank, least), 11)
        self.refuse(self.differs(self.rank, request(self, self["data"], REQUEST.SIZE)), 2)
        wants = self.differs(asked, 0)
        self.refuse(self.both(self.im2col, self.negation(wants)), 3)
        self.refuse(self.both(self.negation(self.im2col), wants), 4)
        self.refuse(self.is_above(self.type_number, len(ELEMENT_SIZES) - 1), 10)
        for value, most in ((self.interleave, 2), (self.swizzle, 3), (self.nan, 1)):
            self.refuse(self.is_above(value, most), 10)
        floating = self.is_at_least(self.type_number, _FLOATS)
        self.refuse(self.both(self.differs(self.nan, 0), self.negation(floating)), 10)
        self.refuse(self.both(self.equals(self.interleave, 2), self.differs(self.swizzle, 1)), 10)

    def store_element(self) -> None:
        """Store what the element type says, and the tensor's address."""
        packed = sum((size.bit_length() - 1) << (2 * number) for number, size in enumerate(ELEMENT_SIZES))
        power = (packed >> (self.type_number * 2)) & 3
        self.size = 1 << power
        self.unit = self.select(self.interleaved, self.interleave << 4, self.size)
        self.grain = self.intrinsic("llvm.umax", self.interleave, 1) << 4
        address = self.field(self.tensor, MAP.ADDRESS, "i64")
        self.check_grain(address)
        self.put_fields(self.plan, {PLAN.ADDRESS: address, PLAN.UNIT: self.unit})
        kind = {PLAN.ELEMENT: self.narrow(self.type_number), PLAN.NAN: self.narrow(self.nan)}
        self.put_fields(self.plan, kind)
        self.rounds = self.is_at_most(self.type_number - _TF32, 1)
        self.put(self.plan, PLAN.ROUNDS, self.cast("zext", self.rounds, "i32"))

    def check_grain(self, value: Value) -> None:
        self.refuse(self.differs(value & (self.grain - 1), 0), 5)

    def store_axis(self, axis: int) -> None:
        """Store size, stride, step, start and count of an axis; one beyond the rank has one element."""
        number, one, zero = (self.const("i64", value) for value in (axis, 1, 0))
        there = self.is_below(number, self.rank)
        size = self.select(there, self.field(self.tensor, MAP.SIZES + 8 * axis, "i64"), one)
        self.refuse(self.equals(size, 0), 6)
        self.refuse(self.is_above(size, LIMITS["size"]), 6)
        step = self.select(there, self.byte(MAP.STEPS + axis), one)
        self.refuse(self.is_outside(step, "step"), 9)
        stride = self.unit
        if axis:
            stride = self.select(there, self.field(self.tensor, MAP.STRIDES + 8 * (axis - 1), "i64"), zero)
            self.check_grain(stride)
            self.refuse(self.is_at_least(stride, LIMITS["stride"]), 5)
        else:
            step = self.select(self.interleaved, step, one)
        start = self.field(self["data"], REQUEST.COORDINATES + 8 * axis, "i64")
        start = self.select(there, self.op("ashr", start << 32, 32), zero)
        box = self.wide(self.field(self.tensor, MAP.BOX + 2 * axis, "i16"))
        tiled = self.both(there, self.negation(self.im2col))
        self.refuse(self.both(tiled, self.is_outside(box, "box")), 7)
        count = (box + (step - 1)) // step
        # An interleaved copy takes one slice of the axis that counts slices.
        slices = self.both(self.interleaved, self.equals(number + 2, self.rank))
        count = self.select(self.both(tiled, self.negation(slices)), count, one)
        fields = {PLAN.SIZE: size, PLAN.STEP: step, PLAN.STRIDE: stride, PLAN.START: start, PLAN.COUNT: count}
        self.put_fields(self.plan, {offset + 8 * axis: value for offset, value in fields.items()})

    def store_row(self) -> None:
        """Store the length and pitch of rows; for im2col a row is the channels of a pixel, or a slice."""
        plan, length = self.plan, self.wide(self.field(self.tensor, MAP.BOX, "i16"))
        self.refuse(self.is_outside(length, "box"), 7)
        plain = self.negation(self.interleaved)
        with self.when(self.im2col):
            self.put(plan, PLAN.COUNT, self.select(plain, length, 1))
        self.refuse(self.has_any(length * self.size, 15), 8)
        row = self.field(plan, PLAN.COUNT, "i64") * self.unit
        span = 16 << self.swizzle
        turned = self.differs(self.swizzle, 0)
        self.refuse(self.both(plain, turned, self.is_above(row, span)), 8)
        self.put(plan, PLAN.ROW, row)
        self.put(plan, PLAN.PITCH, self.select(self.both(plain, turned), span, row))
        self.put(plan, PLAN.SWIZZLE, (1 << self.swizzle) - 1)
        step = self.differs(self.field(plan, PLAN.STEP, "i64"), 1)
        first = self.field(plan, PLAN.START, "i64") * self.size
        self.refuse(self.both(plain, self.has_any(first, 15)), 12)
        # A row is copied as it is unless elements of it are skipped or rounded. NOTE: pixels have no gaps.
        odd = self.rounds | self.both(step, self.negation(self.im2col))
        self.put(plan, PLAN.ODD, self.cast("zext", odd, "i32"))

    def store_images(self) -> None:
        """Store the bounding box of an im2col copy, and the axes that its pixels step along."""
        with self.when(self.im2col):
            pixels = self.wide(self.field(self.tensor, MAP.BOX + 2, "i16"))
            self.refuse(self.is_outside(pixels, "pixels"), 7)
            self.put(self.plan, PLAN.PIXELS, pixels)
            first = self.select(self.interleaved, self.const("i64", 0), 1)
            with self.count(self.rank - 2) as i:
                self.store_corner(i, (first + i) * 8)
            last = self.at(self.plan, (self.rank - 1) * 8)
            self.put(last, PLAN.BOUNDED, self.const("i64", 1))
            self.put(last, PLAN.UPPER, self.const("i64", 1 << 62))

    def store_corner(self, i: Value, axis: Value) -> None:
        """Store the bounds of one axis of an image. ``axis`` is the offset of its numbers in the plan."""
        mine, corner = self.at(self.plan, axis), self.at(self.tensor, i * 2)
        corners = (self.field(corner, of, "i16") for of in (MAP.LOWER, MAP.UPPER))
        lower, upper = (self.resize(bound, "i64", True) for bound in corners)
        upper = self.field(mine, PLAN.SIZE, "i64") - 1 + upper
        start = self.field(mine, PLAN.START, "i64")
        below, above = self.compare("icmp slt", start, lower), self.compare("icmp sgt", start, upper)
        self.refuse(below | above, 13)
        offset = self.field(self.at(self["data"], i * 8), REQUEST.OFFSETS, "i64")
        offset &= 0xFFFF
        # 16 bits for one axis, 8 for each of two, 5 for each of three.
        bits = 16 // (self.rank - 2)
        self.refuse(self.differs(offset >> bits, 0), 14)
        self.put_fields(mine, {PLAN.LOWER: lower, PLAN.UPPER: upper, PLAN.OFFSETS: offset})
        self.put(mine, PLAN.BOUNDED, self.const("i64", 1))

    def store_extent(self) -> None:
        """Store how many bytes are copied, and how many of shared memory they span."""
        rows = self.variable("i64", self.field(self.plan, PLAN.PIXELS, "i64"))
        with self.unless(self.im2col):
            rows.put(self.const("i64", 1))
            for axis in range(1, AXES):
                rows.put(rows.get() * self.field(self.plan, PLAN.COUNT + 8 * axis, "i64"))
        count, row = rows.get(), self.field(self.plan, PLAN.ROW, "i64")
        extent = count * self.field(self.plan, PLAN.PITCH, "i64")
        turned = self.both(self.interleaved, self.differs(self.swizzle, 0))
        line = self.select(turned, self.const("i64", 127), 0)
        extent = self.without(extent + line, line)
        self.put_fields(self.plan, {PLAN.EXTENT: extent, PLAN.TOTAL: count * row})


@routine("tw_tensor_plan", "i32", *POINTERS)
def make_plan(r: _PlanRoutine, data: Ptr, plan: Ptr, lane: I32, line: I32) -> None:
    """Check a request and its tensor map, and make the copy's plan of them: 0, or 1 after a fault."""
    r.read_map()
    r.check_kind()
    r.store_element()
    for axis in range(AXES):
        r.store_axis(axis)
    r.store_row()
    r.store_images()
    r.store_extent()


# -- the two directions ---------------------------------------------------------------------------------
def _plan_copy(r: Routine) -> Value:
    """Make the copy's plan; leave the routine after a fault."""
    plan = r.reserve(f"[{PLAN.BYTES} x i8]", 64)
    r.give_unless_zero(make_plan(r, r["data"], plan, r["lane"]))
    return plan


def _aim(r: Routine, plan: Value, address: Value, write: int) -> None:
    """Resolve an address of shared memory and store its host pointer in the plan."""
    refuse_if(r, r.has_any(address, _LINE - 1), 17, address)
    place = find_span(r, address, r.field(plan, PLAN.EXTENT, "i64"), Space.SHARED, write)
    offset = address & OFFSETS
    r.put(plan, PLAN.BASE, r.at(place, 0 - offset))
    r.put(plan, PLAN.AT, offset)


@routine("tw_tensor_load", "i32", *POINTERS)
def _load(r: Routine, data: Ptr, lane: I32, line: I32, spoil: I32) -> None:
    """Load a box or pixels; with ``spoil`` read nothing and overwrite the targets."""
    plan = _plan_copy(r)
    r.put(plan, PLAN.SPOIL, spoil)
    target, barrier = (request(r, data, offset) for offset in (REQUEST.SHARED, REQUEST.MBARRIER))
    with each_block(r, data) as at:
        _aim(r, plan, at(target), 1)
        r.give_unless_zero(walk_rows(r, plan, lane, Verb.LOAD))
        with r.when(r.equals(spoil, 0)):
            total = r.field(plan, PLAN.TOTAL, "i64")
            r.give_unless_zero(complete_bytes(r, at(barrier), total, lane))


@routine("tw_tensor_store", "i32", *POINTERS)
def store_tensor(r: Routine, data: Ptr, lane: I32, line: I32, step: I32) -> None:
    """Store or reduce a box or pixels; ``step`` of ``StoreStep`` says what happens to the rows in global memory."""
    plan = _plan_copy(r)
    r.put(plan, PLAN.STORE_STEP, step)
    verb = r.narrow(request(r, data, REQUEST.VERB))
    reduces = r.equals(verb, Verb.REDUCE)
    with r.when(reduces):
        operation = r.narrow(request(r, data, REQUEST.REDUCTION))
        kind = reduction_of_tensor(r, operation, r.field(plan, PLAN.ELEMENT, "i32"))
        refuse_if(r, r.compare("icmp slt", kind, 0), 16, request(r, data, REQUEST.GLOBAL))
        r.put(plan, PLAN.REDUCTION, kind)
    for axis in range(AXES):
        start = r.field(plan, PLAN.START + 8 * axis, "i64")
        refuse_if(r, r.compare("icmp slt", start, 0), 15, request(r, data, REQUEST.GLOBAL))
    with r.when(r.differs(step, StoreStep.RELEASE)):
        _aim(r, plan, request(r, data, REQUEST.SHARED), 0)
    r.give(walk_rows(r, plan, lane, verb))


# -- row after row --------------------------------------------------------------------------------------
@routine("tw_tensor_rows", "i32", *POINTERS)
def walk_rows(r: Routine, plan: Ptr, lane: I32, line: I32, verb: I32) -> None:
    """Process each row of a box, or of the pixels of images."""
    r.put(plan, PLAN.FIRST, r.const("i64", 0))
    r.put(plan, PLAN.LIMIT, r.const("i64", 0))
    # Where the row begins along each axis; row after row these change.
    at = r.reserve(f"[{8 * AXES} x i8]", 64)
    r.copy(at, r.at(plan, PLAN.START), 8 * AXES)
    offset = r.variable("i64", r.field(plan, PLAN.AT, "i64"))
    pitch = r.field(plan, PLAN.PITCH, "i64")
    with (
        r.when(r.equals(r.field(plan, PLAN.PIXELS, "i64"), 0)),
        _box(r, at, 4),
        _box(r, at, 3),
        _box(r, at, 2),
        _box(r, at, 1),
    ):
        _row(r, at, offset.get())
        offset.add(pitch)
    with r.otherwise(), r.count(r.field(plan, PLAN.PIXELS, "i64")):
        shifted = r.reserve(f"[{8 * AXES} x i8]", 64)
        for axis in range(AXES):
            there = r.field(at, 8 * axis, "i64") + r.field(plan, PLAN.OFFSETS + 8 * axis, "i64")
            r.put(shifted, 8 * axis, there)
        _row(r, shifted, offset.get())
        offset.add(pitch)
        _next_pixel(r, at)


@contextmanager
def _box(r: Routine, at: Value, axis: int) -> Iterator[None]:
    """Loop along one axis of a box."""
    plan = r["plan"]
    r.put(at, 8 * axis, r.field(plan, PLAN.START + 8 * axis, "i64"))
    step = r.field(plan, PLAN.STEP + 8 * axis, "i64")
    with r.count(r.field(plan, PLAN.COUNT + 8 * axis, "i64")):
        yield
        r.change(at, 8 * axis, "add", step, "i64")


def _next_pixel(r: Routine, at: Value) -> None:
    """Step to the next pixel: along the image's first axis, at its end back to its start and along the next."""
    plan = r["plan"]
    going = r.variable("i1", 1)
    for axis in range(AXES):
        bounded = r.differs(r.field(plan, PLAN.BOUNDED + 8 * axis, "i64"), 0)
        with r.when(r.both(going.get(), bounded)):
            there = r.field(at, 8 * axis, "i64") + r.field(plan, PLAN.STEP + 8 * axis, "i64")
            beyond = r.compare("icmp sgt", there, r.field(plan, PLAN.UPPER + 8 * axis, "i64"))
            r.put(at, 8 * axis, r.select(beyond, r.field(plan, PLAN.LOWER + 8 * axis, "i64"), there))
            going.put(beyond)


def _row(r: Routine, at: Value, offset: Value) -> None:
    """Find where a row lies in global memory and which of its elements are in the tensor, and copy or count it."""
    plan = r["plan"]
    there = r.const("i1", 1)
    place = r.field(plan, PLAN.ADDRESS, "i64")
    for axis in range(1, AXES):
        here = r.field(at, 8 * axis, "i64")
        there = r.both(there, r.is_below(here, r.field(plan, PLAN.SIZE + 8 * axis, "i64")))
        place += here * r.field(plan, PLAN.STRIDE + 8 * axis, "i64")
    start, step = r.field(at, 0, "i64"), r.field(plan, PLAN.STEP, "i64")
    count = r.field(plan, PLAN.COUNT, "i64")
    # The elements start + i·step, of which those from ``low`` up to ``high`` are not outside.
    zero = r.const("i64", 0)
    before = r.intrinsic("llvm.smax", zero - start, zero)
    low = (before + (step - 1)) // step
    after = r.intrinsic("llvm.smax", r.field(plan, PLAN.SIZE, "i64") - start, zero)
    high = (after + (step - 1)) // step
    high = r.select(there, r.intrinsic("llvm.smin", high, count), zero)
    low = r.intrinsic("llvm.smin", low, high)
    place += start * r.field(plan, PLAN.UNIT, "i64")
    row = (plan, offset, place, low, high)
    with r.when(r.equals(r["verb"], Verb.LOAD)):
        r.give_unless_zero(_fetch(r, *row, r["lane"]))
    with r.otherwise_when(r.equals(r["verb"], Verb.LOOK)):
        r.call("tw_watch_row", "void", *row)
    with r.otherwise():
        r.give_unless_zero(_gather(r, *row, r["lane"], r["verb"]))


def _reach(r: Routine, address: Value, count: Value, write: int) -> Value:
    """Return a pointer to global memory; the plan caches the array that was found last."""
    plan = r["plan"]
    away = address - r.field(plan, PLAN.FIRST, "i64")
    limit = r.intrinsic("llvm.usub.sat", r.field(plan, PLAN.LIMIT, "i64"), count)
    with r.when(r.is_at_least(away, limit)), r.unless(find_array(r, address, count, r.at(plan, PLAN.FIRST))):
        find_span(r, address, count, Space.GLOBAL, write)
        r.give(1)
    if not write:
        touch(r, address, count)
    return r.as_pointer(address)


# -- loads ----------------------------------------------------------------------------------------------
@routine("tw_tensor_fetch", "i32", *POINTERS)
def _fetch(r: Routine, plan: Ptr, offset: I64, place: I64, low: I64, high: I64, lane: I32, line: I32) -> None:
    """Copy a row from global memory to shared memory."""
    row, unit = r.field(plan, PLAN.ROW, "i64"), r.field(plan, PLAN.UNIT, "i64")
    whole = r.both(
        r.equals(low, 0),
        r.equals(high, r.field(plan, PLAN.COUNT, "i64")),
        r.equals(r.field(plan, PLAN.ODD, "i32"), 0),
        r.equals(r.field(plan, PLAN.SPOIL, "i32"), 0),
    )
    source = r.variable("ptr", NULL)
    with r.when(whole):
        source.put(_reach(r, place, row, 0))
    with r.otherwise():
        scratch = r.reserve(f"[{_LONGEST} x i8]", 64)
        source.put(scratch)
        with r.when(r.differs(r.field(plan, PLAN.SPOIL, "i32"), 0)):
            r.fill(scratch, 0xFF, row)
        with r.otherwise():
            with r.when(r.equals(r.field(plan, PLAN.NAN, "i32"), 0)):
                r.fill(scratch, 0, row)
            with r.otherwise(), r.count(row, step=2) as at:
                r.put(r.at(scratch, at), 0, r.const("i16", _NAN))
            with r.when(r.is_below(low, high)):
                _copy_in(r, scratch, unit)
            rounds = r.differs(r.field(plan, PLAN.ROUNDS, "i32"), 0)
            # To tf32, the upper 19 bits of an f32.
            with r.when(rounds), r.count(high * unit, low * unit, 4) as at:
                number = r.cast("bitcast", r.field(r.at(scratch, at), 0, "i32"), "float")
                r.put(r.at(scratch, at), 0, narrow(r, number, FORMATS["tf32"], "rn") << 13)
    _locate(r, plan, offset, source.get(), 0)


def _copy_in(r: Routine, scratch: Value, unit: Value) -> None:
    """Copy the elements of a row that are in the tensor."""
    step = r.field(r["plan"], PLAN.STEP, "i64")
    with r.when(r.equals(step, 1)):
        count = (r["high"] - r["low"]) * unit
        skip = r["low"] * unit
        given = _reach(r, r["place"] + skip, count, 0)
        r.copy(r.at(scratch, skip), given, count)
    with r.otherwise(), r.count(r["high"], r["low"]) as i:
        far = (i * step) * unit
        given = _reach(r, r["place"] + far, unit, 0)
        r.copy(r.at(scratch, i * unit), given, unit)


@routine("tw_tensor_place", "void")
def _locate(r: Routine, plan: Ptr, offset: I64, row: Ptr, back: I32) -> None:
    """Copy a row into shared memory, or with ``back`` out of it, as its swizzle orders it."""
    base, length = r.field(plan, PLAN.BASE, "ptr"), r.field(plan, PLAN.ROW, "i64")
    swizzle, back = r.field(plan, PLAN.SWIZZLE, "i64"), r.differs(r["back"], 0)
    with r.when(r.equals(swizzle, 0)):
        here = r.at(base, offset)
        r.copy(r.select(back, row, here), r.select(back, here, row), length)
        r.give()
    # A line of 128 bytes that is a row of its own: all of it is turned round alike.
    line = r.both(r.equals(length, _LINE), r.equals(offset & (_LINE - 1), 0), r.negation(back))
    with r.when(line):
        turn = _turn(r, offset, swizzle)
        here = r.at(base, offset)
        for chunk in range(_LINE // _CHUNK):
            value = r.field(row, chunk * _CHUNK, "<4 x i32>")
            r.put(r.at(here, turn ^ (chunk * _CHUNK)), 0, value)
        r.give()
    with r.count(length, step=_CHUNK) as at:
        there = offset + at
        here = r.at(base, there ^ _turn(r, there, swizzle))
        mine = r.at(row, at)
        value = r.load("<4 x i32>", r.select(back, here, mine).ref, 1)
        r.store(value, r.select(back, mine, here).ref, 1)


def _turn(r: Routine, offset: Value, swizzle: Value) -> Value:
    """Return the bits that the swizzle flips in an address."""
    return ((offset >> 7) & swizzle) << 4


# -- stores ---------------------------------------------------------------------------------------------
@routine("tw_tensor_gather", "i32", *POINTERS)
def _gather(
    r: Routine, plan: Ptr, offset: I64, place: I64, low: I64, high: I64, lane: I32, line: I32, verb: I32
) -> None:
    """Copy a row from shared memory to global memory, or reduce it; at other steps of a store, check its target."""
    r.give_if(r.is_at_least(low, high), 0)
    unit, step = r.field(plan, PLAN.UNIT, "i64"), r.field(plan, PLAN.STEP, "i64")
    scratch = r.reserve(f"[{_LONGEST} x i8]", 64)
    plain = r.equals(r.field(plan, PLAN.SWIZZLE, "i64"), 0)
    straight = r.at(r.field(plan, PLAN.BASE, "ptr"), offset)
    now = r.field(plan, PLAN.STORE_STEP, "i32")
    writes, over = (r.equals(now, one) for one in (StoreStep.WRITE, StoreStep.RELEASE))
    with r.unless(plain | over):
        _locate(r, plan, offset, scratch, 1)
    row = r.select(plain, straight, scratch)
    reduces = r.equals(verb, Verb.REDUCE)
    with r.when(r.equals(step, 1)):
        skip = low * unit
        place, given = r["place"] + skip, r.at(row, skip)
        exact = (high - low) * unit
        with r.unless(writes):
            follow(r, place, exact, reduces, given, now)
            r.give(0)
        # The last 16 bytes are written whole, but not beyond the array: behind it, on a GPU, lies no other array.
        rounded = (exact + (_CHUNK - 1)) & (-_CHUNK)
        room = find_array(r, place, rounded, r.at(plan, PLAN.FIRST))
        count = r.select(room, rounded, exact)
        _deliver(r, _reach(r, place, count, 1), given, count)
    with r.otherwise(), r.count(high, low) as i:
        far = (i * step) * unit
        place, given = r["place"] + far, r.at(row, i * unit)
        with r.when(writes):
            _deliver(r, _reach(r, place, unit, 1), given, unit)
        with r.otherwise():
            follow(r, place, unit, reduces, given, now)


def _deliver(r: Routine, place: Value, row: Value, count: Value) -> None:
    with r.when(r.equals(r["verb"], Verb.REDUCE)):
        reduce_row(r, r.field(r["plan"], PLAN.REDUCTION, "i32"), place, row, count)
    with r.otherwise():
        r.copy(place, row, count)
