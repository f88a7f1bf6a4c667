"""Operands: the layout of a product's matrices in memory, without their addresses."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

from tilewise.devices.tensor_map import TensorMap
from tilewise.errors import ArgumentError
from tilewise.problem import (
    EIGHT_BITS,
    ELEMENT_BYTES,
    FLOAT8,
    SCALED_TERMS,
    Epilogue,
    EpilogueArray,
    Layout,
    Problem,
    multiplied_type,
    sum_type,
)
from tilewise.slots import Gap, MapSlot, Slot

__all__ = ["ALIGNMENT_MOST", "Operand", "Operands", "alignment_of", "ceil_div", "plain_strides"]

ALIGNMENT_MOST = 16  # bytes: the widest load; a better alignment changes nothing
_INDEX_MOST = 2**32 - 1  # elements that a kernel's 32-bit index reaches
# Matrices that lie anywhere are as those of a stack of two axes: so many of the smallest steps, and so many of those.
_PLACES = (2**16, 2**31)
# Operands whose rows lie as a kernel of ours has them.
_PADDED = ("workspace", "copy_a", "copy_b", "parts_a", "parts_b")


def ceil_div(a: int, b: int) -> int:
    """How many pieces of size b cover a."""
    return -(-a // b)


def plain_strides(rows: int, columns: int, strides: tuple[int, int]) -> tuple[int, int]:
    """The strides of rows and columns, those of an axis of one element as in dense rows.

    NOTE: such an axis may have any stride, and plans for operands that differ in it are the same.
    """
    return strides[0] if rows > 1 else columns, strides[1] if columns > 1 else 1


def alignment_of(*numbers: int) -> int:
    """The largest power of two up to :data:`ALIGNMENT_MOST` that divides all of these."""
    bits = ALIGNMENT_MOST
    for number in numbers:
        bits |= number
    return bits & -bits


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix, or a stack of them, as it lies in memory. Strides are in elements.

    ``name`` is one of :data:`OPERANDS`; ``offset`` counts bytes from the operand's address, for what lies inside
    a workspace. ``alignment`` is a power of two that the address is a multiple of. With ``by_pointers`` its matrices
    lie anywhere: the one stride in ``stack`` is what they all are a multiple of apart, and a table says how often.
    """

    name: str
    rows: int
    columns: int
    row_stride: int
    dtype: str
    column_stride: int = 1
    stack: tuple[int, ...] = ()  # strides along the axes of the stack
    alignment: int = ALIGNMENT_MOST
    offset: int = 0
    by_pointers: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(ELEMENT_BYTES[self.dtype])

    @property
    def pitch(self) -> int:
        """Elements from one row to the next; where there is one row, what dense ones would have."""
        own = self.name in _PADDED
        return self.row_stride if self.rows > 1 or own else max(self.columns, 1)

    @property
    def has_rows(self) -> bool:
        """Whether the elements of a row lie side by side and rows do not overlap."""
        if not self.rows * self.columns:
            return True
        dense = self.column_stride == 1 or self.columns <= 1
        return dense and (self.rows <= 1 or self.row_stride >= self.columns)

    @property
    def layout(self) -> str:
        """``"row"``, ``"column"`` where the transpose has rows, or ``"strided"``."""
        if self.has_rows:
            return "row"
        return "column" if self.transposed().has_rows else "strided"

    def transposed(self) -> Operand:
        """The transpose, which lies where the operand does."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            row_stride=self.column_stride,
            column_stride=self.row_stride,
        )

    @property
    def stack_strides(self) -> tuple[int, int]:
        """The strides along the two axes of the stack that kernels know: outer, inner."""
        outer, inner = (0, 0, *self.stack)[-2:]
        return (inner * _PLACES[1] if self.by_pointers else outer), inner

    def check_index(self, argument: str) -> None:
        """Refuse a matrix that 32-bit element indices cannot reach."""
        span = (self.rows - 1) * self.pitch + self.columns if self.rows else 0
        if max(span, self.pitch, self.rows) > _INDEX_MOST:
            raise ArgumentError(
                argument, f"must span at most {_INDEX_MOST:,} elements (32-bit index)", f"{span:,}"
            )

    def matrix(self) -> Slot:
        """The slot for a ``struct Matrix`` of ``tilewise/matrix.cuh``: width, height, pitch, pointer."""
        template = struct.pack("<IIIxxxxQ", self.columns, self.rows, self.pitch, 0)
        return Slot(template, (Gap(16, self.name, self.offset),))

    def pointer(self) -> Slot:
        """The slot for the address alone."""
        return Slot(bytes(8), (Gap(0, self.name, self.offset),))

    def strided(self) -> Slot:
        """The slot for a ``struct Strided`` of ``tilewise/strided.cuh``, whose stack has two levels."""
        template = struct.pack(
            "<IIqqqqQ", self.rows, self.columns, self.row_stride, self.column_stride, *self.stack_strides, 0
        )
        return Slot(template, (Gap(40, self.name, self.offset),))

    def map(self, box: tuple[int, int], swizzle: int, stack: tuple[int, ...] = ()) -> MapSlot:
        """The slot for a tensor map whose boxes are ``box`` rows and columns.

        With ``stack``, how many there are along each axis of a stack, the map has two axes more, the outer one first.
        """
        return self._map((self.rows, self.columns), (self._map_pitch,), box, swizzle, stack)

    def map_of_runs(self, run: int, box: tuple[int, int], stack: tuple[int, ...] = ()) -> MapSlot:
        """The slot for a tensor map of rows that are whole runs of elements, whose boxes are ``box`` runs and rows.

        In a box rows follow one another, each of one run, swizzled, and then those of the next run.
        """
        shape = (self.columns // run, self.rows, run)
        return self._map(
            shape, (run * self.itemsize, self._map_pitch), (*box, run), run * self.itemsize, stack
        )

    @property
    def _map_pitch(self) -> int:
        """Bytes from row to row, as a tensor map takes them."""
        pitch = self.pitch * self.itemsize
        return ceil_div(pitch, 16) * 16 if self.rows <= 1 else pitch

    def _map(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        swizzle: int | None,
        stack: tuple[int, ...],
    ) -> MapSlot:
        if stack:
            counts = _PLACES if self.by_pointers else (1, 1, *stack)[-2:]
            outer, inner = (step * self.itemsize for step in self.stack_strides)
            shape, strides, box = (*counts, *shape), (outer, inner, *strides), (1, 1, *box)
        described = TensorMap(
            0, box, dtype=self.dtype, shape=shape, strides=strides, swizzle=swizzle
        ).described
        return MapSlot(self.name, self.offset, described)


class Operands(NamedTuple):
    """A, B and C of a problem as they lie; ``stack`` is how many there are along each axis of the stack.

    ``extras`` are the arrays of the epilogue, in its order: each as large as C, with strides of 0 where it is not.
    With ``offsets``, which has where each group of A's rows ends, B alone has a stack: a matrix for each group.
    """

    a: Operand
    b: Operand
    c: Operand
    stack: tuple[int, ...] = ()
    extras: tuple[Operand, ...] = ()
    epilogue: Epilogue = Epilogue()
    offsets: Operand | None = None
    arithmetic: str | None = None  # that they are multiplied in, if it is not their own
    in_pairs: bool = False
    """Whether they are complex numbers of which C is pairs of real ones; B, too: its rows are for two columns of A."""
    split: tuple[str, ...] = ()
    """Those of "a" and "b" that bring what a kernel splits them into: it lies at "parts_a" and "parts_b"."""

    @property
    def groups(self) -> int:
        """How many groups of rows have a B of their own; 0 if there is one B."""
        return 0 if self.offsets is None else self.offsets.columns

    def most_tiles(self, m: int, n: int) -> int:
        """The most tiles of so many rows and columns of C that a launch has.

        Every group may end in the middle of a tile, as far as there are rows for it.
        """
        rows = ceil_div(self.a.rows, m)
        if self.groups:
            rows = self.a.rows // m + min(self.groups, self.a.rows)
        return rows * ceil_div(self.b.columns, n) * self.batch

    @property
    def by_pointers(self) -> bool:
        """Whether the matrices of A, B and C lie anywhere."""
        return self.c.by_pointers

    def stack_of(self, operand: Operand) -> tuple[int, ...]:
        """How many matrices of A, B or C there are along each axis that it has a stride for."""
        return (self.groups,) if self.groups and operand.stack else self.stack

    @property
    def batch(self) -> int:
        """How many products there are."""
        return math.prod(self.stack)

    @property
    def extra_bytes(self) -> int:
        """The bytes of the epilogue's arrays, each element once."""
        return sum(one.itemsize * self._count(one) for one in self.extras)

    def _count(self, operand: Operand) -> int:
        repeated = (operand.row_stride, operand.column_stride, *operand.stack)
        sizes = (operand.rows, operand.columns, *self.stack_of(operand))
        return math.prod(size for size, step in zip(sizes, repeated, strict=True) if step)

    @property
    def element(self) -> str:
        """The type that A and B are multiplied in."""
        return multiplied_type(self.a.dtype, self.b.dtype)

    @property
    def widened(self) -> Operand | None:
        """The operand of 8 bits that is widened to the type of the other; None if both have as many."""
        if self.element in EIGHT_BITS:
            return None
        return next((one for one in self[:2] if one.dtype != self.element), None)

    @property
    def other(self) -> str:
        """The type of B where it is the other one of float8; nothing if it is that of A."""
        return self.b.dtype if self.element in FLOAT8 and self.b.dtype != self.element else ""

    def scales_of(self, operand: str) -> Operand | None:
        """The scales of the terms of "a" or "b"; None where there are none."""
        pairs = zip(self.epilogue.arrays, self.extras, strict=True)
        return next((one for array, one in pairs if array.scales == operand), None)

    @property
    def accumulate(self) -> str:
        """The type that sums are kept in."""
        if self.arithmetic == "f16":
            return "float16"
        return sum_type(self.element, self.epilogue.scales_terms)

    @property
    def epilogue_type(self) -> str:
        """The type that an epilogue computes in, whatever the sums were kept in."""
        return "float64" if self.a.dtype in ("float64", "complex128") else "float32"

    def inner(self, axes: int) -> Operands:
        """The same with the innermost ``axes`` of the stack alone: what one launch takes of it."""
        from_ = max(len(self.stack) - axes, 0)
        if not from_:
            return self
        a, b, c, *extras = (replace(one, stack=one.stack[from_:]) for one in (*self[:3], *self.extras))
        return self._replace(a=a, b=b, c=c, stack=self.stack[from_:], extras=tuple(extras))

    def transposed(self) -> Operands:
        """The same product as Cᵀ = Bᵀ·Aᵀ."""
        a, b, c, *extras = (one.transposed() for one in (*self[:3], *self.extras))
        epilogue = self.epilogue.transposed()
        return Operands(
            b, a, c, self.stack, tuple(extras), epilogue, arithmetic=self.arithmetic, split=self.split
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n and k."""
        return self.a.rows, self.b.columns, self.a.columns

    @classmethod
    def of(cls, problem: Problem) -> Operands:
        """Operands that lie densely, each in its layout, as a plan made without arrays takes them to."""
        stack = (problem.batch,) if problem.batch != 1 else ()

        def dense(name: str, rows: int, columns: int, dtype: str, layout: str, of_b: bool = False) -> Operand:
            strides = plain_strides(rows, columns, (columns, 1) if layout == "row" else (1, rows))
            steps = (rows * columns,) if stack or ((name == "b" or of_b) and problem.groups) else ()
            item = int(ELEMENT_BYTES[dtype])
            aligned = alignment_of(*(step * item for step in steps))
            if problem.pointers:
                steps = (aligned // item,)
            by_pointers = problem.pointers
            return Operand(
                name, rows, columns, strides[0], dtype, strides[1], steps, aligned, by_pointers=by_pointers
            )

        def extra(array: EpilogueArray) -> Operand:
            if array.scales:
                runs = ceil_div(problem.k, SCALED_TERMS)
                lines = ceil_div(problem.m if array.scales == "a" else problem.n, array.lines)
                sizes = (lines, runs) if array.scales == "a" else (runs, lines)
                return dense(f"epilogue.{array.name}", *sizes, array.dtype, "row", array.scales == "b")
            made = dense(f"epilogue.{array.name}", problem.m, problem.n, array.dtype, "row")
            if made.by_pointers and not array.pointers:
                made = replace(made, by_pointers=False, stack=(problem.m * problem.n,))
            # NOTE: of a row, or a column, what is kept runs along one axis, and yet along the stack.
            if (array.by_row and array.by_column) or array.name in problem.epilogue.kept:
                return made
            return replace(
                made,
                row_stride=int(array.by_row),
                column_stride=int(array.by_column),
                stack=made.stack if array.pointers else (0,) * len(stack),
            )

        return cls(
            dense("a", problem.m, problem.k, problem.a, problem.a_layout),
            dense("b", problem.k, problem.n, problem.b, problem.b_layout),
            dense("c", problem.m, problem.n, problem.c, problem.c_layout),
            stack,
            tuple(extra(array) for array in problem.epilogue.arrays),
            problem.epilogue,
            dense("offsets", 1, problem.groups, "int32", "row") if problem.groups else None,
            problem.arithmetic,
        )

    def problem(self) -> Problem:
        """What is to be multiplied, whatever the strides: strided operands count as rows."""
        m, n, k = self.sizes
        layouts: list[Layout] = ["column" if one.layout == "column" else "row" for one in self[:3]]
        return Problem(
            m, n, k, self.batch, self.a.dtype, self.b.dtype, self.c.dtype, self.accumulate,
            layouts[0], layouts[1], layouts[2], self.epilogue, self.groups, self.arithmetic,
            self.by_pointers,
        )  # fmt: skip
