"""Operands: what a kernel's 32-bit indices reach, and how matrices without arrays are taken to lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tilewise.calls import _fused_key
from tilewise.epilogue import Fused
from tilewise.errors import ArgumentError
from tilewise.interop import numpy_dtype, view
from tilewise.kernels.gemm.limits import refuse_types
from tilewise.kernels.spec import access_bytes
from tilewise.kernels.stack import TABLE_SIZES, refuse_table, stack_slot, table_size
from tilewise.operands import Operand, Operands
from tilewise.planner.verdict import _pad
from tilewise.problem import ELEMENT_BYTES, Epilogue, EpilogueArray, Layout, Problem
from tilewise.slots import places_of


@pytest.mark.parametrize(
    ("rows", "columns", "pitch", "reached"),
    [
        (2, 8, 2**32 - 9, True),  # the last element has the index 2³² - 2
        (2, 8, 2**32 - 8, False),
        (3, 1, 2**31 - 1, True),
        (3, 1, 2**31, False),
        (1, 2**32 - 1, 1, True),
        (0, 8, 2**32, False),  # the pitch is a number of 32 bits too
    ],
)
def test_an_index_reaches_the_last_element_and_no_further(
    rows: int, columns: int, pitch: int, reached: bool
) -> None:
    operand = Operand("workspace", rows, columns, pitch, "float32")
    if reached:
        operand.check_index("a")
    else:
        with pytest.raises(ArgumentError, match="32-bit index"):
            operand.check_index("a")


SIZES, LAYOUTS = st.integers(2, 9), st.sampled_from(("row", "column"))
ELEMENTS = st.sampled_from(("float16", "float32", "float64"))


@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    batch=st.integers(1, 3),
    a=ELEMENTS,
    c=ELEMENTS,
    layouts=st.tuples(*[LAYOUTS] * 3),
)
def test_dense_operands_are_of_the_problem_that_they_were_made_for(
    m: int, n: int, k: int, batch: int, a: str, c: str, layouts: tuple[Layout, Layout, Layout]
) -> None:
    """Sums are wide if what is multiplied is, whatever the result holds."""
    sums = "float64" if a == "float64" else "float32"
    problem = Problem(m, n, k, batch, a, a, c, sums, *layouts)
    assert Operands.of(problem).problem() == problem


@given(sizes=st.tuples(*[st.integers(1, 2)] * 3), layouts=st.tuples(*[LAYOUTS] * 3))
def test_an_axis_of_one_element_has_the_stride_that_calls_give_it(
    sizes: tuple[int, int, int], layouts: tuple[Layout, Layout, Layout]
) -> None:
    """That of dense rows, whatever the layout: else a plan would be for no call."""
    problem = Problem(*sizes, 1, "float32", "float32", "float32", "float32", *layouts)
    for one, layout in zip(Operands.of(problem)[:3], layouts, strict=True):
        row, column = (one.columns, 1) if layout == "row" else (1, one.rows)
        expected = (row if one.rows > 1 else one.columns, column if one.columns > 1 else 1)
        assert (one.row_stride, one.column_stride) == expected


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_elements_have_the_bytes_that_numpy_gives_them(dtype: str) -> None:
    """A number in TF32 lies in memory as a float32."""
    like = numpy_dtype("float32" if dtype == "tfloat32" else dtype)
    assert Operand("a", 2, 3, 3, dtype).itemsize == like.itemsize


@given(m=SIZES, n=SIZES, k=SIZES, element=ELEMENTS)
def test_dense_matrices_by_pointers_lie_a_multiple_of_their_step_apart(
    m: int, n: int, k: int, element: str
) -> None:
    """The widest step of those that are a power of two, and no wider than what is read at once."""
    for one in Operands.of(Problem(m, n, k, 2, element, element, element, pointers=True))[:3]:
        (step,) = one.stack
        assert one.by_pointers and one.rows * one.columns % step == 0
        assert one.alignment == step * one.itemsize
        assert one.alignment == 16 or one.rows * one.columns // step % 2 == 1


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 40),
            st.sampled_from([1, 2, 4, 8]),
            st.sampled_from([2, 4, 8, 16]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_the_widest_access_is_one_that_every_row_is_aligned_for(
    given: list[tuple[int, int, int, int]],
) -> None:
    """Where there is one row, its address alone decides; where there are several, so does what they lie apart."""
    types = {1: "int8", 2: "float16", 4: "float32", 8: "float64"}
    operands = [Operand("a", rows, 1, pitch, types[size], alignment=at) for rows, pitch, size, at in given]
    multiples = [number for rows, pitch, size, at in given for number in (at, (rows > 1) * pitch * size)]
    wide = max(width for width in (1, 2, 4, 8, 16) if not any(number % width for number in multiples))
    assert access_bytes(*operands) == wide


@given(
    st.integers(1, 40), st.integers(2, 40), st.integers(0, 20),
    st.sampled_from(["float8_e4m3fn", "float16", "float32", "float64"]), st.booleans(),
)  # fmt: skip
def test_lines_are_padded_to_the_next_multiple_of_16_bytes(
    lines: int, length: int, gap: int, dtype: str, turned: bool
) -> None:
    """In rows or in columns."""
    matrix = Operand("a", lines, length, length + gap, dtype, 1)
    padded = _pad(matrix.transposed() if turned else matrix)
    padded = padded.transposed() if turned else padded
    if lines == 1:  # a row stays as it is; a column may count as rows of one
        assert turned or padded == matrix
        return
    assert replace(padded, row_stride=matrix.row_stride) == matrix
    bytes_, had = padded.row_stride * matrix.itemsize, matrix.row_stride * matrix.itemsize
    assert bytes_ % 16 == 0 and had <= bytes_ < had + 16


@pytest.mark.parametrize("extras", range(7))
@pytest.mark.parametrize("size", TABLE_SIZES[1:])
@pytest.mark.parametrize("more", [0, 1])
def test_tables_take_as_many_matrices_as_arguments_have_room_for(extras: int, size: int, more: int) -> None:
    """Each array of an epilogue that lies anywhere has a table of its own beside those of A, B and C."""
    names = [f"x{i}" for i in range(extras)]
    arrays = tuple(EpilogueArray(name, "float32", pointers=True) for name in names)
    epilogue = Epilogue(" + ".join(["acc", *names]), arrays)
    operands = Operands.of(Problem(4, 8, 4, size + more, epilogue=epilogue, pointers=True))
    room = 30 << 10  # of the 32,764 bytes of a launch, which has other arguments too
    fitting = [one for one in TABLE_SIZES if one * 8 * (3 + extras) <= room]
    error = refuse_table(operands, table_size(operands))
    if size + more <= fitting[-1]:
        slot = stack_slot(operands)
        assert error is None and size + more <= table_size(operands)
        assert len(slot.template) == 8 + 8 * table_size(operands) * (3 + extras) <= 8 + room
        assert [gap.size for gap in slot.gaps] == [8 * (size + more)] * (3 + extras)
        for exchanged, order in ((False, "abc"), (True, "bac")):  # where the kernel sees B first
            gaps = stack_slot(operands, exchanged).gaps
            named = [*order, *(f"epilogue.{name}" for name in names)]
            assert [gap.operand for gap in gaps] == [places_of(name) for name in named]
    else:
        assert error is not None
        assert str(error).startswith(
            f"batch must be at most {fitting[-1]:,} with pointers, not {size + more}"
        )


_SUMMED = Epilogue("column_sums(s, acc)", (EpilogueArray("s", "float32", False, True),))
_SCALED = Epilogue("acc * 2")


@pytest.mark.parametrize(
    ("element", "result", "epilogue", "argument"),
    [
        ("int8", "int32", Epilogue(), None),
        ("int8", "float32", _SCALED, None),
        ("int8", "int32", _SCALED, "result"),
        ("int8", "float32", _SUMMED, "epilogue"),
        ("int32", "int32", Epilogue(), None),
        ("int32", "int64", Epilogue(), "result"),
        ("int64", "int64", _SCALED, "epilogue"),
        ("float64", "float8_e4m3fn", Epilogue(), "result"),
        ("float64", "float32", _SUMMED, None),
        ("float32", "float8_e5m2", _SCALED, None),
    ],
)
def test_a_result_that_no_sums_become_is_refused_by_name(
    element: str, result: str, epilogue: Epilogue, argument: str | None
) -> None:
    operands = Operands.of(Problem(8, 8, 8, 1, element, element, result, epilogue=epilogue))
    refused = refuse_types(operands, {"element": element, "result": result})
    assert (None if refused is None else refused.argument) == argument


def test_every_array_of_an_epilogue_counts_by_how_it_is_aligned() -> None:
    """A product that is remembered reads its arrays as widely as those lay of the call that it was made for."""
    memory = np.zeros(9, np.float32)
    row, whole = memory[:4], memory[4:8]
    fused = [
        Fused("acc + row + whole", ("row", "whole"), (view("row", row), view("whole", one)))
        for one in (whole, memory[5:])
    ]
    assert _fused_key(fused[0]) != _fused_key(fused[1]) == _fused_key(fused[1])


@pytest.mark.parametrize(("m", "n"), [(1, 8), (8, 1), (1, 1)])
def test_of_a_stack_of_rows_or_columns_each_has_its_own_place_in_what_is_kept(m: int, n: int) -> None:
    """A bias of one row serves them all."""
    kept, bias = np.zeros((3, m, n), np.float32), np.zeros(n, np.float32)
    call = tw.epilogue("keep(kept, acc) + bias", kept=kept, bias=bias)
    problem = tw.plan(m, n, 5, batch=3, epilogue=call).problem
    stacks = {one.name: one.stack for one in Operands.of(problem).extras}
    assert stacks == {"epilogue.kept": (m * n,), "epilogue.bias": (0,)}


@pytest.mark.parametrize(
    ("a", "b", "other"),
    [
        ("float8_e4m3fn", "float8_e5m2", "float8_e5m2"),
        ("float8_e5m2", "float8_e4m3fn", "float8_e4m3fn"),
        ("float8_e5m2", "float8_e5m2", ""),
        ("float16", "float8_e5m2", ""),
        ("float8_e5m2", "float16", ""),
        ("bfloat16", "int8", ""),
        ("float32", "float32", ""),
    ],
)
def test_b_is_of_another_type_where_both_are_float8(a: str, b: str, other: str) -> None:
    """What is widened has the type of the other operand by then."""
    assert Operands.of(Problem(4, 8, 16, a=a, b=b)).other == other


@given(bytes_=st.sampled_from(["float16", "float32", "float64"]), batch=st.integers(1, 3))
def test_each_element_of_an_epilogues_arrays_counts_once(bytes_: str, batch: int) -> None:
    """Of a row those of a row, however many rows of a result read them."""
    arrays = (
        EpilogueArray("row", bytes_, by_row=False),
        EpilogueArray("column", bytes_, by_column=False),
        EpilogueArray("whole", bytes_),
        EpilogueArray("one", bytes_, False, False),
    )
    problem = Problem(5, 7, 3, batch, epilogue=Epilogue("acc + row + column + whole + one", arrays))
    size = int(ELEMENT_BYTES[bytes_])
    assert Operands.of(problem).extra_bytes == size * (7 + 5 + 35 * batch + 1)


@pytest.mark.parametrize(("operand", "lines"), [("a", 1), ("a", 128), ("b", 1), ("b", 128)])
@pytest.mark.parametrize("k", [100, 128, 300])
def test_scales_of_terms_lie_in_rows_that_follow_those_of_their_operand(
    operand: Literal["a", "b"], lines: int, k: int
) -> None:
    array = EpilogueArray("s", "float32", scales=operand, lines=lines)
    text = "scaled(acc, s, 1)" if operand == "a" else "scaled(acc, 1, s)"
    problem = Problem(200, 330, k, a="int8", b="int8", epilogue=Epilogue(text, (array,)))
    runs, count = {100: 1, 128: 1, 300: 3}[k], {"a": {1: 200, 128: 2}, "b": {1: 330, 128: 3}}[operand][lines]
    operands = Operands.of(problem)
    scales = operands.extras[0]
    assert (scales.rows, scales.columns) == ((count, runs) if operand == "a" else (runs, count))
    assert operands.scales_of(operand) == scales and scales.has_rows
    assert operands.scales_of("b" if operand == "a" else "a") is None


def test_an_array_of_each_matrix_may_lie_evenly_where_the_matrices_do_not() -> None:
    arrays = (EpilogueArray("even", "float32"), EpilogueArray("uneven", "float32", pointers=True))
    problem = Problem(5, 7, 4, 2, epilogue=Epilogue("acc + even + uneven", arrays), pointers=True)
    even, uneven = Operands.of(problem).extras
    assert (even.by_pointers, even.stack) == (False, (35,))
    assert (uneven.by_pointers, uneven.stack) == (True, (1,))


def test_the_transpose_of_a_product_is_computed_in_the_same_way() -> None:
    problem = Problem(4, 8, 64, 3, arithmetic="exact32", c_layout="column")
    operands = Operands.of(problem)._replace(split=("b",))
    turned = operands.transposed()
    assert (turned.arithmetic, turned.split, turned.stack) == ("exact32", ("b",), (3,))
    assert (turned.a, turned.c) == (operands.b.transposed(), operands.c.transposed())
    assert turned.transposed() == operands
