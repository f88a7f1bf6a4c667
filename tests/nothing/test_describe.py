"""The shape rules of a product, and what becomes of its stack: NumPy's rules without any array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from operator import mul
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.describe import Shapes, describe, group_shapes, result_shapes
from tilewise.epilogue import Fused, describe_dense, epilogue
from tilewise.errors import ArgumentError
from tilewise.interop import HOST, View
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import _shifts
from tilewise.operands import Operand, Operands
from tilewise.planner import operands_of

Ints = tuple[int, ...]


def dense(shape: Ints) -> Ints:
    """The strides of a dense array, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def array(shape: Ints, strides: Ints | None = None, dtype: str = "float32", ptr: int = 0) -> View:
    """An array that is nowhere: describing one reads nothing."""
    nobody = cast(Any, None)
    return View(ptr, shape, dense(shape) if strides is None else strides, dtype, HOST, nobody, nobody)


def described(a: View, b: View, c: View | None = None) -> Operands:
    shapes = result_shapes(a.shape, b.shape)
    return describe(a, b, array(shapes.result, dtype=a.dtype) if c is None else c, shapes)


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 3), (3, 4), Shapes((), 2, 4, 3, (2, 4))),
        ((3,), (3, 4), Shapes((), 1, 4, 3, (4,))),
        ((2, 3), (3,), Shapes((), 2, 1, 3, (2,))),
        ((3,), (3,), Shapes((), 1, 1, 3, ())),
        ((0,), (0,), Shapes((), 1, 1, 0, ())),
        ((5, 2, 3), (3, 4), Shapes((5,), 2, 4, 3, (5, 2, 4))),
        ((5, 2, 3), (3,), Shapes((5,), 2, 1, 3, (5, 2))),
        ((3,), (5, 3, 4), Shapes((5,), 1, 4, 3, (5, 4))),
        ((5, 1, 2, 3), (6, 3, 4), Shapes((5, 6), 2, 4, 3, (5, 6, 2, 4))),
        ((1, 2, 3), (0, 3, 4), Shapes((0,), 2, 4, 3, (0, 2, 4))),
    ],
)
def test_shapes(a: Ints, b: Ints, expected: Shapes) -> None:
    assert result_shapes(a, b) == expected


SHAPE = st.lists(st.integers(0, 3), max_size=5).map(tuple)


@given(SHAPE, SHAPE)
def test_shapes_are_numpys(a: Ints, b: Ints) -> None:
    try:
        expected = np.matmul(np.ones(a), np.ones(b)).shape
    except ValueError:
        with pytest.raises(ArgumentError):
            result_shapes(a, b)
    else:
        assert result_shapes(a, b).result == expected


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((), (3,), "a must have at least one dimension, not 'a scalar'; use * for scalars"),
        ((3,), (), "b must have at least one dimension"),
        ((2, 3), (4, 5), "b must have as many rows as a has columns (3), not 'shapes (2, 3) and (4, 5)'"),
        ((3,), (4,), "b must have as many rows as a has columns (3), not 'shapes (3,) and (4,)'"),
        (
            (2, 2, 3),
            (3, 3, 4),
            "a and b must have stacks that broadcast, not 'shapes (2, 2, 3) and (3, 3, 4)'",
        ),
    ],
)
def test_shapes_that_do_not_fit(a: Ints, b: Ints, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        result_shapes(a, b)
    assert str(caught.value).startswith(message)


# ── every product, and no other ──────────────────────────────────────────────────────────────────────────


@st.composite
def strided(draw: st.DrawFn, shape: Ints) -> View:
    """An array whose axes lie in any order, forwards or backwards, dense or with gaps, or all at one place."""
    strides, step = [0] * len(shape), 1
    for axis in draw(st.permutations(range(len(shape)))):
        strides[axis] = step * draw(st.sampled_from((1, 1, 1, -1, 2, 0)))
        step *= max(shape[axis], 1) * (abs(strides[axis]) // step or 1)
    return array(shape, tuple(strides))


@st.composite
def operands(draw: st.DrawFn) -> tuple[View, View, View]:
    stack = draw(st.lists(st.integers(1, 3), max_size=4))
    m, n, k = (draw(st.integers(1, 3)) for _ in range(3))

    def one_of(matrix: Ints) -> Ints:
        own = stack[draw(st.integers(0, len(stack))) :]  # without the first axes, which are broadcast then
        return (*(1 if draw(st.integers(0, 4)) == 0 else size for size in own), *matrix)

    left = (k,) if draw(st.booleans()) and draw(st.booleans()) else one_of((m, k))
    right = (k,) if draw(st.booleans()) and draw(st.booleans()) else one_of((k, n))
    a, b = draw(strided(left)), draw(strided(right))
    shape = result_shapes(left, right).result
    order = draw(st.permutations(range(len(shape))))
    steps = dense(tuple(shape[axis] for axis in order))
    return a, b, array(shape, tuple(steps[order.index(axis)] for axis in range(len(shape))))


Products = dict[int, list[tuple[int, int]]]


def products_of_views(a: View, b: View, c: View) -> Products:
    """By NumPy's rules: for the place of each element of C, the places of the elements that it is the sum of."""

    def places(view: View) -> Any:
        found = np.zeros(view.shape, np.int64)
        for axis, step in enumerate(view.strides):
            found += (np.arange(view.shape[axis]) * step).reshape((-1, *(1,) * (view.ndim - axis - 1)))
        return found

    left, right, at = places(a), places(b), places(c)
    if a.ndim == 1:
        left, at = left[None], np.expand_dims(at, -1 if b.ndim == 1 else -2)
    if b.ndim == 1:
        right, at = right[:, None], at[..., None]
    stack = at.shape[:-2]
    left = np.broadcast_to(left, (*stack, *left.shape[-2:]))
    right = np.broadcast_to(right, (*stack, *right.shape[-2:]))
    return {
        int(at[(*z, i, j)]): list(
            zip(left[(*z, i)].tolist(), right[(*z, slice(None), j)].tolist(), strict=True)
        )
        for z in np.ndindex(*stack)
        for i in range(at.shape[-2])
        for j in range(at.shape[-1])
    }


def products_of_operands(found: Operands) -> Products:
    """The same, as a kernel works it out."""

    def place(one: Operand, z: Ints, row: int, column: int) -> int:
        stack = sum(i * step for i, step in zip(z, one.stack, strict=True))
        return stack + row * one.row_stride + column * one.column_stride

    m, n, k = found.sizes
    return {
        place(found.c, z, i, j): [(place(found.a, z, i, p), place(found.b, z, p, j)) for p in range(k)]
        for z in itertools.product(*map(range, found.stack))
        for i in range(m)
        for j in range(n)
    }


@given(operands())
def test_the_operands_make_the_same_products(views: tuple[View, View, View]) -> None:
    a, b, c = views
    found = describe(a, b, c, result_shapes(a.shape, b.shape))
    assert products_of_operands(found) == products_of_views(a, b, c)
    assert 1 not in found.stack


@given(operands(), st.data(), st.integers(0, 2))
def test_launches_for_a_few_axes_each_have_the_matrices_of_the_whole_stack(
    views: tuple[View, View, View], data: st.DataObject, axes: int
) -> None:
    """Arrays of an epilogue go along with A, B and C."""
    a, b, c = views
    shape = tuple(1 if data.draw(st.booleans()) else size for size in c.shape)
    fused = Fused("acc + x", ("x",), (data.draw(strided(shape)),))
    found = describe(a, b, c, result_shapes(a.shape, b.shape), fused)

    def places(some: Operands, begin: Mapping[str, int]) -> list[list[int]]:
        each = (*some[:3], *some.extras)
        return [
            [begin.get(one.name, 0) + one.itemsize * sum(map(mul, z, one.stack)) for one in each]
            for z in itertools.product(*map(range, some.stack))
        ]

    launches = _shifts(replace(KERNELS["general"], stack_axes=axes), found)
    inner = found.inner(axes)
    assert len(inner.stack) <= axes
    assert [place for begin in launches for place in places(inner, begin)] == places(found, {})


# ── stacks as short as strides allow ─────────────────────────────────────────────────────────────────────


def test_axes_that_one_stride_walks_become_one() -> None:
    found = described(array((4, 5, 6, 2, 3)), array((4, 5, 6, 3, 7)))
    assert found.stack == (120,) and found.sizes == (2, 7, 3)
    assert (found.a.stack, found.b.stack, found.c.stack) == ((6,), (21,), (14,))


def test_axes_stay_apart_where_an_operand_needs_two_strides() -> None:
    a = array((4, 5, 2, 3), (60, 6, 3, 1))  # every other of ten
    found = described(a, array((4, 5, 3, 7)))
    assert found.stack == (4, 5)
    assert (found.a.stack, found.b.stack, found.c.stack) == ((60, 6), (105, 21), (70, 14))


def test_axes_of_one_element_are_dropped_whatever_their_strides() -> None:
    a = array((1, 4, 1, 2, 3), (999, 6, -17, 3, 1))
    found = described(a, array((4, 1, 3, 7)))
    assert found.stack == (4,) and found.a.stack == (6,)


def test_a_stack_times_one_matrix_is_a_tall_matrix() -> None:
    found = described(array((4, 5, 2, 3)), array((3, 7)))
    assert found.stack == () and found.sizes == (40, 7, 3)
    assert (found.a.row_stride, found.c.row_stride) == (3, 7)
    # A matrix that is repeated by stride 0 is one matrix as well.
    assert described(array((4, 2, 3)), array((4, 3, 7), (0, 7, 1))).sizes == (8, 7, 3)


def test_rows_of_a_stack_make_a_matrix() -> None:
    found = described(array((4, 1, 3), (30, 99, 1)), array((3, 7)))
    assert found.stack == () and found.sizes == (4, 7, 3)
    assert (found.a.row_stride, found.c.row_stride) == (30, 7)


def test_a_stack_with_gaps_stays_a_stack() -> None:
    found = described(array((4, 2, 3), (7, 3, 1)), array((3, 7)))
    assert found.stack == (4,) and found.sizes == (2, 7, 3)
    assert (found.a.stack, found.b.stack) == ((7,), (0,))
    c = array((4, 2, 7), (20, 7, 1))  # so it does where only the result has gaps
    assert described(array((4, 2, 3)), array((3, 7)), c).stack == (4,)


def test_only_the_innermost_axis_becomes_rows() -> None:
    found = described(array((6, 4, 2, 3)), array((6, 1, 3, 7)))
    assert found.stack == (6,) and found.sizes == (8, 7, 3)
    found = described(array((6, 4, 2, 3)), array((4, 3, 7)))
    assert found.stack == (6, 4) and found.b.stack == (0, 21)


def test_one_matrix_times_a_stack() -> None:
    found = described(array((2, 3)), array((4, 5, 3, 7)))
    assert found.stack == (20,) and found.a.stack == (0,)


def test_empty_stacks() -> None:
    assert described(array((0, 2, 3)), array((0, 3, 7))).batch == 0
    m, n, _ = described(array((0, 2, 3)), array((3, 7))).sizes  # no rows is nothing to do either
    assert m * n == 0


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────────────


def test_vectors_are_rows_and_columns() -> None:
    found = described(array((3,), (5,)), array((3, 7)))
    assert found.sizes == (1, 7, 3) and found.a.column_stride == 5
    found = described(array((2, 3)), array((3,), (-2,)))
    assert found.sizes == (2, 1, 3)
    assert (found.b.rows, found.b.columns, found.b.row_stride, found.b.column_stride) == (3, 1, -2, 1)
    assert (found.c.row_stride, found.c.column_stride) == (1, 1)
    assert described(array((3,)), array((3,))).sizes == (1, 1, 3)


def test_a_stack_times_a_vector_is_a_tall_matrix_times_it() -> None:
    found = described(array((4, 2, 3)), array((3,)))
    assert found.stack == () and found.sizes == (8, 1, 3)


# ── alignment ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("ptr", "alignment"), [(0, 16), (64, 16), (24, 8), (20, 4), (18, 2), (33, 1)])
def test_the_address_decides_the_alignment(ptr: int, alignment: int) -> None:
    assert described(array((2, 3), ptr=ptr), array((3, 4))).a.alignment == alignment


def test_so_do_the_steps_of_the_stack() -> None:
    found = described(array((4, 2, 3), ptr=32), array((4, 3, 4), ptr=32))
    assert (found.a.alignment, found.b.alignment) == (8, 16)  # matrices of 24 and of 48 bytes
    assert described(array((4, 2, 3), dtype="float16"), array((4, 3, 4), dtype="float16")).a.alignment == 4
    assert (
        described(array((2, 3)), array((4, 3, 4))).a.alignment == 16
    )  # where it is broadcast it takes no step


def test_strides_of_axes_of_one_element_are_the_same_for_all() -> None:
    one, other = (described(array((1, 3), (step, 1)), array((3, 1), (1, step))) for step in (3, 1000))
    assert one == other


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("stack", [(), (1,), (3,)])
def test_each_matrix_of_a_stack_has_its_own_scales_of_a_shared_b(m: int, stack: Ints) -> None:
    """Rows of the stack become one matrix only where they have the same scales."""
    a, b, scales = (3, m, 256), (256, 5), array((*stack, 2, 5))
    fused = Fused("scaled(acc, 1, t)", ("t",), (scales,), scales=("", "t"))
    shapes = result_shapes(a, b)
    left, right = array(a, dtype="float8_e4m3fn"), array(b, dtype="float8_e4m3fn")
    made = describe(left, right, array(shapes.result, dtype="bfloat16"), shapes, fused)
    assert (made.batch, made.a.rows) == ((3, m) if stack == (3,) else (1, 3 * m))
    (extra,) = made.extras
    for i, run, column in itertools.product(range(3), range(2), range(5)):
        apart = extra.stack[0] * i if made.stack else 0
        place = apart + run * extra.row_stride + column * extra.column_stride
        assert place == (i * 10 if stack == (3,) else 0) + run * 5 + column


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("m", [1, 2, 4])
def test_a_plan_made_without_arrays_is_for_those_that_lie_densely(m: int, n: int) -> None:
    shapes = result_shapes((m, 3), (3, n))
    for shape in ((n,), (1, n), (m, 1), (m, n), (1, 1)):
        given = np.zeros(shape, np.float32)
        fused = Fused("acc + x", ("x",), (array(shape),))
        made = describe(array((m, 3)), array((3, n)), array((m, n)), shapes, fused)
        dense_form = describe_dense(epilogue("acc + x", x=given), (m, n), 3, ("float32", "float32"))
        assert made.epilogue == dense_form


def test_matrices_whose_rows_share_scales_by_tiles_stay_apart() -> None:
    """Even where they lie as the rows of one: a tile of it would begin inside of one of theirs."""
    scales = array((2, 2, 2), (400, 2, 1))
    fused = Fused("scaled(acc, s, 1)", ("s",), (scales,), scales=("s", ""))
    shapes = result_shapes((2, 200, 256), (256, 5))
    left, right = (array(one, dtype="float8_e4m3fn") for one in ((2, 200, 256), (256, 5)))
    made = describe(left, right, array(shapes.result, dtype="bfloat16"), shapes, fused)
    assert made.stack == (2,) and (made.a.rows, made.extras[0].rows) == (200, 2)
    own = fused._replace(views=(array((2, 200, 2)),))
    made = describe(left, right, array(shapes.result, dtype="bfloat16"), shapes, own)
    assert made.stack == () and (made.a.rows, made.extras[0].rows) == (400, 400)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_dense_groups_lie_as_a_plan_made_without_arrays_takes_them_to(groups: int) -> None:
    left, right, ends = (array(one) for one in ((30, 8), (groups, 8, 5), (groups,)))
    shapes = group_shapes((30, 8), (groups, 8, 5), (groups,))
    assert shapes.result == (30, 5) and shapes.stack_of("b") == (groups,) and shapes.stack_of("a") == ()
    found = describe(left, right, array((30, 5)), shapes, offsets=ends._replace(dtype="int32"))
    expected = operands_of(30, 5, 8, groups=groups)
    assert found.offsets == expected.offsets and found.problem() == expected.problem()
    assert [one.stack for one in found[:3]] == [(), (40,), ()]
    apart = array((groups, 8, 5), (99, 5, 1))
    found = describe(left, apart, array((30, 5)), shapes, offsets=ends._replace(dtype="int32"))
    assert found.b.stack == (99 if groups > 1 else 40,)


@pytest.mark.parametrize(
    ("shape", "of_a", "of_b"),
    [((4,), 128, None), ((1, 4), 128, None), ((2, 4), 128, None), ((200, 4), 1, None), ((3, 4), None, None), ((2, 5), None, None),
     ((4, 1), None, 128), ((4, 2), None, 128), ((4, 200), None, 1), ((4, 3), None, None), ((5, 2), None, None)],
)  # fmt: skip
def test_scales_of_terms_have_one_for_each_128_of_k_and_for_one_line_or_128_or_all(
    shape: Ints, of_a: int | None, of_b: int | None
) -> None:
    """Of 200 lines and 512 terms; told by how many lines have each in common."""
    for text, lines, operand in (("scaled(acc, s, 1)", of_a, "a"), ("scaled(acc, 1, s)", of_b, "b")):
        call = epilogue(text, s=np.ones(shape, np.float32))
        if lines is not None:
            found = operands_of(200, 200, 512, dtype="int8", epilogue=call)
            assert found.epilogue.lines_of(operand) == lines, text
            continue
        with pytest.raises(ArgumentError) as caught:
            operands_of(200, 200, 512, dtype="int8", epilogue=call)
        shapes = "(200, 4) or (2, 4)" if operand == "a" else "(4, 200) or (4, 2)"
        assert str(caught.value) == f"s must have one for each 128 of k: the shape {shapes}, not {shape}"


@pytest.mark.parametrize("k", [1, 100, 128])
def test_scales_of_few_terms_may_have_no_axis_for_these(k: int) -> None:
    for text, shape, lines in (
        ("scaled(acc, 1, s)", (200,), 1), ("scaled(acc, 1, s)", (2,), 128), ("scaled(acc, 1, s)", (1,), 128),
        ("scaled(acc, s, 1)", (1,), 128), ("scaled(acc, s, 1)", (200, 1), 1), ("scaled(acc, s, 1)", (2, 1), 128),
    ):  # fmt: skip
        found = operands_of(200, 200, k, dtype="int8", epilogue=epilogue(text, s=np.ones(shape, np.float32)))
        assert max(found.epilogue.lines_of("a"), found.epilogue.lines_of("b")) == lines, (text, shape)


@pytest.mark.parametrize("name", ["a", "b"])
def test_sums_of_columns_and_rows_are_of_matrices_alone(name: str) -> None:
    left, right = ((3,), (2, 3, 6)) if name == "a" else ((2, 4, 3), (3,))
    shapes = result_shapes(left, right)
    sums = Fused("row_sums(s, acc)", ("s",), (array(shapes.result),), row_sums=("s",))
    with pytest.raises(ArgumentError) as caught:
        describe(array(left), array(right), array(shapes.result), shapes, sums)
    assert str(caught.value) == f"{name} must have two dimensions at least, with sums in s, not 'shape (3,)'"


def test_groups_of_rows_have_no_sums() -> None:
    shapes = group_shapes((4, 3), (2, 3, 6), (2,))
    sums = Fused("column_sums(s, acc)", ("s",), (array((1, 6)),), column_sums=("s",))
    with pytest.raises(ArgumentError) as caught:
        describe(array((4, 3)), array((2, 3, 6)), array((4, 6)), shapes, sums, array((2,), dtype="int32"))
    message = (
        "epilogue must add up no columns or rows of groups, not 'column_sums(s, acc)'; add up the result"
    )
    assert str(caught.value) == message


@pytest.mark.parametrize(("of_each", "stack"), [(True, (2,)), (False, ())])
def test_matrices_whose_columns_are_summed_each_by_itself_stay_apart(
    of_each: bool, stack: tuple[int, ...]
) -> None:
    """Where one array has the sums of all, they are rows of one matrix."""
    out = array((2, 1, 6), (6 if of_each else 0, 0, 1))
    sums = Fused("column_sums(s, acc)", ("s",), (out,), column_sums=("s",))
    shapes = result_shapes((2, 4, 3), (3, 6))
    assert describe(array((2, 4, 3)), array((3, 6)), array((2, 4, 6)), shapes, sums).stack == stack
