"""Describe: two arrays by NumPy's rules of matmul → operands of a product, and the shape of its result.

One-dimensional operands, stacks and broadcasting; no array is touched.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence, Set
from typing import NamedTuple

from tilewise.epilogue import PLAIN, Fused, scales_form
from tilewise.errors import ArgumentError
from tilewise.expression import Expression, parse
from tilewise.interop.view import View
from tilewise.operands import Operand, Operands, alignment_of, ceil_div, plain_strides
from tilewise.problem import ELEMENT_BYTES, SCALED_TERMS, Epilogue, EpilogueArray

__all__ = ["Shapes", "describe", "group_shapes", "result_shapes"]

_SHAPES = 1024  # pairs that are remembered


class Shapes(NamedTuple):
    """What multiplying two arrays gives, by their shapes alone."""

    stack: tuple[int, ...]
    m: int
    n: int
    k: int
    result: tuple[int, ...]  # without the axes that one-dimensional operands have not
    groups: int = 0  # of rows of A that have a matrix of B each

    def stack_of(self, operand: str) -> tuple[int, ...]:
        """How many matrices of "a" or "b" there are, along each axis."""
        return (self.groups,) if self.groups and operand == "b" else self.stack


class _Axis(NamedTuple):
    """One axis of a stack: how many, and the strides along it of A, B, C and the arrays of the epilogue."""

    size: int
    steps: tuple[int, ...]


@functools.lru_cache(_SHAPES)
def result_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> Shapes:
    """The sizes of a product by NumPy's rules; an error that names both shapes where they do not fit."""
    for argument, shape in (("a", a), ("b", b)):
        if not shape:
            raise ArgumentError(argument, "must have at least one dimension", "a scalar", "use * for scalars")
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    k = left[-1]
    if right[-2] != k:
        rule = f"must have as many rows as a has columns ({k})"
        raise ArgumentError("b", rule, f"shapes {tuple(a)} and {tuple(b)}")
    stack = _broadcast(left[:-2], right[:-2], a, b)
    m, n = left[-2], right[-1]
    rows = (m,) if len(a) > 1 else ()
    columns = (n,) if len(b) > 1 else ()
    return Shapes(stack, m, n, k, (*stack, *rows, *columns))


@functools.lru_cache(_SHAPES)
def group_shapes(a: tuple[int, ...], b: tuple[int, ...], offsets: tuple[int, ...]) -> Shapes:
    """The sizes of a grouped product: rows [T, K] by a stack [E, K, N], with E ends of groups."""
    if len(a) != 2:
        raise ArgumentError("a", "must have two dimensions, (rows, k)", f"shape {a}")
    if len(b) != 3 or not b[0]:
        raise ArgumentError(
            "b", "must have the shape (groups, k, columns), with a group at least", f"shape {b}"
        )
    if b[1] != a[1]:
        rule = f"must have matrices with as many rows as a has columns ({a[1]})"
        raise ArgumentError("b", rule, f"shapes {a} and {b}")
    if offsets != (b[0],):
        rule = f"must have the shape ({b[0]},), an end for each matrix of b"
        raise ArgumentError("offsets", rule, f"shape {offsets}")
    return Shapes((), a[0], b[2], a[1], (a[0], b[2]), b[0])


def _broadcast(
    left: tuple[int, ...], right: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[int, ...]:
    if left == right:
        return left
    length = max(len(left), len(right))
    padded = [(1,) * (length - len(stack)) + stack for stack in (left, right)]
    found = []
    for one, other in zip(*padded, strict=True):
        if one != other and 1 not in (one, other):
            shapes = f"shapes {tuple(a)} and {tuple(b)}"
            raise ArgumentError("a and b", "must have stacks that broadcast", shapes)
        found.append(other if one == 1 else one)
    return tuple(found)


def describe(
    a: View,
    b: View,
    c: View,
    shapes: Shapes,
    fused: Fused = PLAIN,
    offsets: View | None = None,
    by_pointers: Container[str] = (),
) -> Operands:
    """The operands of the product of two arrays, written to a third, its stack as short as strides allow.

    ``by_pointers`` are the operands whose matrices lie anywhere, multiples of the stride of their stack apart.
    """
    stack, m, n, k, _, groups = shapes
    a_rows, a_columns = (a.strides[-2], a.strides[-1]) if len(a.shape) > 1 else (k, a.strides[-1])
    b_rows, b_columns = (b.strides[-2], b.strides[-1]) if len(b.shape) > 1 else (b.strides[-1], 1)
    scales = {
        i: scales_form(fused, name, view, (m, n, k), bool(groups))
        for i, (name, view) in enumerate(fused.arrays.items(), 1)
        if name in fused.scales
    }
    results, rows, columns = _lie_of_results(c, shapes, fused, scales, (len(a.shape) > 1, len(b.shape) > 1))
    axes = [
        _Axis(size, (_step(a, i, len(stack)), _step(b, i, len(stack)), *(steps[i] for steps in results)))
        for i, size in enumerate(stack)
    ]
    axes = _merged([axis for axis in axes if axis.size != 1])
    expression = parse(fused.expression)
    if expression.summed:
        _check_sums(expression, a, b, groups)
    of_b = {i for i, form in scales.items() if form.scales == "b"}  # which have no rows of C
    apart = {i for i, name in enumerate(fused.names, 3) if name in expression.column_sums}
    if _may_join(axes, scales, apart) and _joins_rows(
        axes[-1], m, (a_rows, *(0 if i in of_b else step for i, step in enumerate(rows)))
    ):  # one matrix with more rows, times the same B
        last = axes.pop()
        if m == 1:
            a_rows = last.steps[0]
            rows = [rows[i] if i in of_b else step for i, step in enumerate(last.steps[2:])]
        m *= last.size
    sizes = tuple(axis.size for axis in axes)

    def make(name: str, view: View, rows: int, columns: int, strides: tuple[int, int], which: int) -> Operand:
        steps = tuple(int(axis.steps[which]) for axis in axes)
        if groups and name == "b":
            steps = (view.strides[0] if groups > 1 else k * n,)
        elif groups and which - 2 in of_b:  # which have a matrix for each of B's
            steps = (results[which - 2][0],)
        return _operand(name, view, (rows, columns), strides, steps, name in by_pointers)

    extras = tuple(
        make(f"epilogue.{name}", view, *_sizes_of(scales.get(i), m, n, k), (rows[i], columns[i]), 2 + i)
        for i, (name, view) in enumerate(zip(fused.names, fused.views, strict=True), 1)
    )
    return Operands(
        make("a", a, m, k, (a_rows, a_columns), 0),
        make("b", b, k, n, (b_rows, b_columns), 1),
        make("c", c, m, n, (rows[0], columns[0]), 2),
        sizes,
        extras,
        _form_of(fused, extras, scales),
        None if offsets is None else make("offsets", offsets, 1, groups, (groups, 1), 0),
        split=tuple(name for name, view in (("a", a), ("b", b)) if view.parts is not None),
    )


def _may_join(axes: Sequence[_Axis], scales: Mapping[int, EpilogueArray], apart: Set[int]) -> bool:
    """Whether matrices of the last axis may be rows of one.

    Not where each has something of its own: sums, which are ``apart``, or scales of B; nor where tiles of rows have
    scales in common.
    """
    own = apart | {i + 2 for i, form in scales.items() if form.scales == "b"}
    tiled = any(form.scales == "a" and form.lines > 1 for form in scales.values())
    return bool(axes) and not tiled and not any(axes[-1].steps[i] for i in own)


def _operand(
    name: str,
    view: View,
    sizes: tuple[int, int],
    strides: tuple[int, int],
    steps: tuple[int, ...],
    anywhere: bool,
) -> Operand:
    """The operand that an array is, of so many rows and columns, with these strides from matrix to matrix."""
    (rows, columns), item = sizes, int(ELEMENT_BYTES[view.dtype])
    row_stride, column_stride = plain_strides(rows, columns, strides)
    aligned = alignment_of(view.ptr, *(step * item for step in steps))
    return Operand(
        name, rows, columns, row_stride, view.dtype, column_stride, steps, aligned, by_pointers=anywhere
    )


def _lie_of_results(
    c: View,
    shapes: Shapes,
    fused: Fused,
    scales: Mapping[int, EpilogueArray],
    two_axes: tuple[bool, bool],
) -> tuple[list[list[int]], list[int], list[int]]:
    """Of C and the arrays of the epilogue, which broadcast to its shape: strides along the stack, rows and columns.

    ``scales`` of terms, by the places of their arrays, broadcast to the stack alone. ``two_axes``: whether A and B have
    rows and columns.
    """
    results = [
        list(c.strides),
        *(
            _scale_strides(scales[i].name, view, shapes.stack_of(scales[i].scales))
            if i in scales
            else _broadcast_strides(view, shapes.result)
            for i, view in enumerate(fused.views, 1)
        ),
    ]
    columns = [steps.pop() if two_axes[1] or i in scales else 1 for i, steps in enumerate(results)]
    rows = [steps.pop() if two_axes[0] or i in scales else shapes.n for i, steps in enumerate(results)]
    return results, rows, columns


def _check_sums(expression: Expression, a: View, b: View, groups: int) -> None:
    """Refuse sums of columns and rows where a result has no rows and columns, or groups of rows."""
    for argument, view in (("a", a), ("b", b)):
        if len(view.shape) < 2:
            rule = f"must have two dimensions at least, with sums in {expression.summed[0]}"
            raise ArgumentError(argument, rule, f"shape {view.shape}")
    if groups:
        rule = "must add up no columns or rows of groups"
        raise ArgumentError("epilogue", rule, expression.text, "add up the result")


def _form_of(fused: Fused, extras: tuple[Operand, ...], scales: Mapping[int, EpilogueArray]) -> Epilogue:
    """The epilogue as a problem has it: what its arrays run along, as they lie; of scales of terms their own form."""
    if fused.is_plain:
        return fused.form
    arrays = tuple(
        scales.get(i)
        or EpilogueArray(
            name,
            one.dtype,
            one.rows > 1 and one.row_stride != 0,
            one.columns > 1 and one.column_stride != 0,
            one.by_pointers,
        )
        for i, (name, one) in enumerate(zip(fused.names, extras, strict=True), 1)
    )
    return Epilogue(fused.expression, arrays, tuple(name for name, _ in fused.numbers))


def _broadcast_strides(view: View, shape: tuple[int, ...]) -> list[int]:
    """The strides of an array along each axis of a shape that it broadcasts to: 0 where it is repeated."""
    missing = len(shape) - len(view.shape)
    own = zip(view.shape, view.strides, shape[missing:], strict=True)
    return [0] * missing + [0 if size == 1 != wanted else step for size, step, wanted in own]


def _scale_strides(name: str, view: View, stack: tuple[int, ...]) -> list[int]:
    """The strides of scales of terms along the stack, rows and columns: 0 where they are the same."""
    own = (1,) * (len(stack) + 2 - len(view.shape)) + view.shape
    if len(own) > len(stack) + 2 or any(
        size not in (1, wanted) for size, wanted in zip(own, stack, strict=False)
    ):
        raise ArgumentError(name, f"must have a stack that broadcasts to {stack}", f"shape {view.shape}")
    strides = (0,) * (len(own) - len(view.shape)) + view.strides
    return [0 if size == 1 else step for size, step in zip(own, strides, strict=True)]


def _sizes_of(scales: EpilogueArray | None, m: int, n: int, k: int) -> tuple[int, int]:
    """Rows and columns of an array of the epilogue: as the result, or of scales of terms."""
    if scales is None:
        return m, n
    runs = ceil_div(k, SCALED_TERMS)
    return (ceil_div(m, scales.lines), runs) if scales.scales == "a" else (runs, ceil_div(n, scales.lines))


def _step(view: View, axis: int, axes: int) -> int:
    """The stride of an operand along an axis of the stack: 0 where it is broadcast."""
    own = axis - (axes - max(len(view.shape) - 2, 0))
    return view.strides[own] if own >= 0 and view.shape[own] != 1 else 0


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """Axes that one stride of each operand can walk become one."""
    merged: list[_Axis] = []
    for axis in axes:
        if merged:
            last = merged[-1]
            if all(far == near * axis.size for far, near in zip(last.steps, axis.steps, strict=True)):
                merged[-1] = _Axis(last.size * axis.size, axis.steps)
                continue
        merged.append(axis)
    return merged


def _joins_rows(axis: _Axis, m: int, rows: tuple[int, ...]) -> bool:
    """Whether the matrices along this axis are one tall A, with one tall C, and share B.

    ``rows`` are the strides from row to row of A, C and the arrays of the epilogue.
    """
    a, b, *others = axis.steps
    return b == 0 and (m == 1 or all(step == m * row for step, row in zip((a, *others), rows, strict=True)))
