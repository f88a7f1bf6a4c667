"""Tensor map and coordinates of a copy → a checked plan of the copy."""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.bulk_requests import REQUEST, refuse_if, request
from tilewise.emulator.support.tensor_map_layout import AXES, ELEMENT_SIZES, LIMITS, MAGIC, MAP, MODES

__all__ = ["LONGEST", "PLAN", "make_plan"]

LONGEST = 256 * 32  # bytes of a row
_TF32 = 11  # and one more: the element types that are rounded when they are loaded
_FLOATS = 6  # the first of the element types that have NaN


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


@routine("tw_tensor_plan", "i32", *POINTERS)
def make_plan(r: Routine, data: Ptr, plan: Ptr, lane: I32, line: I32) -> None:
    tensor = r.at(data, REQUEST.MAP)
    r.fill(plan, 0, PLAN.BYTES)
    named = request(r, data, REQUEST.GLOBAL)
    _Plan(r, plan, tensor, named).make()


class _Plan:
    def __init__(self, r: Routine, plan: Value, tensor: Value, named: Value) -> None:
        self.r, self.plan, self.tensor, self.named = r, plan, tensor, named

    def refuse(self, wrong: Value, why: int) -> None:
        refuse_if(self.r, wrong, why, self.named)

    def byte(self, offset: int) -> Value:
        return self.r.wide(self.r.field(self.tensor, offset, "i8"))

    def make(self) -> None:
        r = self.r
        self.refuse(r.differs(r.field(self.tensor, MAP.MAGIC, "i64"), MAGIC), 1)
        self.rank, self.mode = self.byte(MAP.RANK), self.byte(MAP.MODE)
        self.element, self.interleave = self.byte(MAP.ELEMENT), self.byte(MAP.INTERLEAVE)
        self.swizzle, self.nan = self.byte(MAP.SWIZZLE), self.byte(MAP.NAN)
        self.interleaved = r.differs(self.interleave, 0)
        self.im2col = r.equals(self.mode, MODES["im2col"])
        self._check_kind()
        self._element()
        for axis in range(AXES):
            self._axis(axis)
        self._row()
        self._images()
        self._extent()

    def _check_kind(self) -> None:
        r = self.r
        asked = request(r, r["data"], REQUEST.IM2COL)
        least = r.select(r.op("or", self.interleaved, self.im2col), r.const("i64", 3), 1)
        self.refuse(r.is_above(self.rank, AXES), 11)
        self.refuse(r.is_below(self.rank, least), 11)
        self.refuse(r.differs(self.rank, request(r, r["data"], REQUEST.SIZE)), 2)
        wants = r.differs(asked, 0)
        self.refuse(r.both(self.im2col, r.negation(wants)), 3)
        self.refuse(r.both(r.negation(self.im2col), wants), 4)
        for value, most in (
            (self.element, len(ELEMENT_SIZES) - 1),
            (self.interleave, 2),
            (self.swizzle, 3),
            (self.nan, 1),
        ):
            self.refuse(r.is_above(value, most), 10)
        floating = r.is_at_least(self.element, _FLOATS)
        self.refuse(r.both(r.differs(self.nan, 0), r.negation(floating)), 10)
        wide, other = r.equals(self.interleave, 2), r.differs(self.swizzle, 1)
        self.refuse(r.both(wide, other), 10)

    def _element(self) -> None:
        r = self.r
        packed = sum((size.bit_length() - 1) << (2 * number) for number, size in enumerate(ELEMENT_SIZES))
        power = r.op("and", r.op("lshr", packed, r.op("mul", self.element, 2)), 3)
        self.size = r.op("shl", 1, power)
        self.unit = r.select(self.interleaved, r.op("shl", self.interleave, 4), self.size)
        self.grain = r.op("shl", r.intrinsic("llvm.umax", self.interleave, 1), 4)
        address = r.field(self.tensor, MAP.ADDRESS, "i64")
        self.crooked(address)
        for offset, value in ((PLAN.ADDRESS, address), (PLAN.UNIT, self.unit)):
            r.put(self.plan, offset, value)
        for offset, value in ((PLAN.ELEMENT, self.element), (PLAN.NAN, self.nan)):
            r.put(self.plan, offset, r.narrow(value))
        rounds = r.is_at_most(r.op("sub", self.element, _TF32), 1)
        r.put(self.plan, PLAN.ROUNDS, r.cast("zext", rounds, "i32"))
        self.rounds = rounds

    def crooked(self, value: Value) -> None:
        wrong = self.r.op("and", value, self.r.op("sub", self.grain, 1))
        self.refuse(self.r.differs(wrong, 0), 5)

    def _axis(self, axis: int) -> None:
        """Store size, stride, step, start and count of an axis; one beyond the rank has one element."""
        r, number = self.r, self.r.const("i64", axis)
        there = r.is_below(number, self.rank)
        one, zero = r.const("i64", 1), r.const("i64", 0)
        size = r.select(there, r.field(self.tensor, MAP.SIZES + 8 * axis, "i64"), one)
        self.refuse(r.equals(size, 0), 6)
        self.refuse(r.is_above(size, LIMITS["size"]), 6)
        step = r.select(there, self.byte(MAP.STEPS + axis), one)
        self.refuse(r.is_above(r.op("sub", step, 1), LIMITS["step"] - 1), 9)
        stride = self.unit
        if axis:
            stride = r.select(there, r.field(self.tensor, MAP.STRIDES + 8 * (axis - 1), "i64"), zero)
            self.crooked(stride)
            self.refuse(r.is_at_least(stride, LIMITS["stride"]), 5)
        else:
            step = r.select(self.interleaved, step, one)
        start = r.field(r["data"], REQUEST.COORDINATES + 8 * axis, "i64")
        start = r.select(there, r.op("ashr", r.op("shl", start, 32), 32), zero)
        box = r.wide(r.field(self.tensor, MAP.BOX + 2 * axis, "i16"))
        tiled = r.both(there, r.negation(self.im2col))
        self.refuse(r.both(tiled, r.is_above(r.op("sub", box, 1), LIMITS["box"] - 1)), 7)
        count = r.op("udiv", r.op("add", box, r.op("sub", step, 1)), step)
        # An interleaved copy takes one slice of the axis that counts slices.
        slices = r.both(self.interleaved, r.equals(r.op("add", number, 2), self.rank))
        count = r.select(r.both(tiled, r.negation(slices)), count, one)
        for offset, value in (
            (PLAN.SIZE, size),
            (PLAN.STEP, step),
            (PLAN.STRIDE, stride),
            (PLAN.START, start),
            (PLAN.COUNT, count),
        ):
            r.put(self.plan, offset + 8 * axis, value)

    def _row(self) -> None:
        """Store the length and pitch of rows; for im2col a row is the channels of a pixel, or a slice."""
        r, plan = self.r, self.plan
        length = r.wide(r.field(self.tensor, MAP.BOX, "i16"))
        self.refuse(r.is_above(r.op("sub", length, 1), LIMITS["box"] - 1), 7)
        plain = r.negation(self.interleaved)
        with r.when(self.im2col):
            r.put(plan, PLAN.COUNT, r.select(plain, length, 1))
        whole = r.op("mul", length, self.size)
        self.refuse(r.differs(r.op("and", whole, 15), 0), 8)
        row = r.op("mul", r.field(plan, PLAN.COUNT, "i64"), self.unit)
        span = r.op("shl", 16, self.swizzle)
        turned = r.differs(self.swizzle, 0)
        self.refuse(r.both(plain, turned, r.is_above(row, span)), 8)
        r.put(plan, PLAN.ROW, row)
        r.put(plan, PLAN.PITCH, r.select(r.both(plain, turned), span, row))
        r.put(plan, PLAN.SWIZZLE, r.op("sub", r.op("shl", 1, self.swizzle), 1))
        step = r.differs(r.field(plan, PLAN.STEP, "i64"), 1)
        first = r.op("mul", r.field(plan, PLAN.START, "i64"), self.size)
        self.refuse(r.both(plain, r.differs(r.op("and", first, 15), 0)), 12)
        # A row is copied as it is unless elements of it are skipped or rounded. NOTE: pixels have no gaps.
        odd = r.op("or", self.rounds, r.both(step, r.negation(self.im2col)))
        r.put(plan, PLAN.ODD, r.cast("zext", odd, "i32"))

    def _images(self) -> None:
        """Store the bounding box of an im2col copy, and the axes that its pixels step along."""
        r, plan = self.r, self.plan
        with r.unless(self.im2col):
            r.put(plan, PLAN.PIXELS, r.const("i64", 0))
        with r.otherwise():
            pixels = r.wide(r.field(self.tensor, MAP.BOX + 2, "i16"))
            self.refuse(r.is_above(r.op("sub", pixels, 1), LIMITS["pixels"] - 1), 7)
            r.put(plan, PLAN.PIXELS, pixels)
            spatial = r.op("sub", self.rank, 2)
            first = r.select(self.interleaved, r.const("i64", 0), 1)
            with r.count(spatial) as i:
                self._corner(i, r.op("mul", r.op("add", first, i), 8))
            last = r.op("mul", r.op("sub", self.rank, 1), 8)
            r.put(r.at(plan, last), PLAN.BOUNDED, r.const("i64", 1))
            r.put(r.at(plan, last), PLAN.UPPER, r.const("i64", (1 << 62)))

    def _corner(self, i: Value, axis: Value) -> None:
        """Store the bounds of one axis of an image. ``axis`` is the offset of its numbers in the plan."""
        r = self.r
        mine = r.at(self.plan, axis)
        corners = [
            r.resize(r.field(r.at(self.tensor, r.op("mul", i, 2)), corner, "i16"), "i64", True)
            for corner in (MAP.LOWER, MAP.UPPER)
        ]
        lower = corners[0]
        upper = r.op("add", r.op("sub", r.field(mine, PLAN.SIZE, "i64"), 1), corners[1])
        start = r.field(mine, PLAN.START, "i64")
        outside = r.op("or", r.compare("icmp slt", start, lower), r.compare("icmp sgt", start, upper))
        self.refuse(outside, 13)
        offset = r.field(r.at(r["data"], r.op("mul", i, 8)), REQUEST.OFFSETS, "i64")
        offset = r.op("and", offset, 0xFFFF)
        # 16 bits for one axis, 8 for each of two, 5 for each of three.
        bits = r.op("udiv", 16, r.op("sub", self.rank, 2))
        self.refuse(r.differs(r.op("lshr", offset, bits), 0), 14)
        for place, value in (
            (PLAN.LOWER, lower),
            (PLAN.UPPER, upper),
            (PLAN.OFFSETS, offset),
            (PLAN.BOUNDED, r.const("i64", 1)),
        ):
            r.put(mine, place, value)

    def _extent(self) -> None:
        """Store how many bytes are copied, and how many of shared memory they span."""
        r, plan = self.r, self.plan
        rows = r.variable("i64", r.field(plan, PLAN.PIXELS, "i64"))
        with r.unless(self.im2col):
            rows.put(r.const("i64", 1))
            for axis in range(1, AXES):
                rows.put(r.op("mul", rows.get(), r.field(plan, PLAN.COUNT + 8 * axis, "i64")))
        count, row = rows.get(), r.field(plan, PLAN.ROW, "i64")
        extent = r.op("mul", count, r.field(plan, PLAN.PITCH, "i64"))
        line = r.select(r.both(self.interleaved, r.differs(self.swizzle, 0)), r.const("i64", 127), 0)
        extent = r.without(r.op("add", extent, line), line)
        r.put(plan, PLAN.EXTENT, extent)
        r.put(plan, PLAN.TOTAL, r.op("mul", count, row))
