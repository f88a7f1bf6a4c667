"""The real form of complex products: which have one, how it lies, and what is laid out first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.kernels.gemm.real_form import faced, in_real_form, laid_out, refuse_complex
from tilewise.kernels.spec import ComplexForm
from tilewise.operands import Operand, Operands
from tilewise.planner import operands_of


def product(m: int = 6, n: int = 10, k: int = 4, **given: Any) -> Operands:
    return operands_of(m, n, k, dtype="complex64", **given)


def in_columns(one: Operand) -> Operand:
    return replace(one, row_stride=1, column_stride=one.rows)


def apart(one: Operand) -> Operand:
    """Every second element of rows."""
    return replace(one, row_stride=2 * one.columns, column_stride=2)


def test_what_has_no_real_form_is_told() -> None:
    whole = tw.epilogue("acc + x", x=np.zeros((6, 10), np.complex64))
    plain, extra = product(), product(epilogue=whole)
    strides = "must have elements side by side along its rows, of complex numbers, not"
    fix = "copy it first, in rows as many as the result's columns"
    told = [
        (plain, None),
        (product(batch=2), None),
        (product(batch=2, pointers=True), "pointers must be False for complex64, not True; make one stack of them"),
        (
            plain._replace(stack=(2, 1, 3)),
            "stack must have at most 2 axes that no common stride walks, of complex numbers, not (2, 1, 3); "
            "copy a and b first, so that none is broadcast",
        ),
        (plain._replace(stack=(2, 3)), None),
        (
            plain._replace(c=replace(plain.c, dtype="float32")),
            "result must be 'complex64' or 'complex128' for operands of complex64, not 'float32'",
        ),
        (plain._replace(c=in_columns(plain.c)), None),
        (plain._replace(c=apart(plain.c)), f"out {strides} 'strides (2, 20)'; {fix}"),
        (extra, None),
        (extra._replace(extras=(apart(extra.extras[0]),)), f"x {strides} 'strides (20, 2)'; {fix}"),
        (extra._replace(c=in_columns(extra.c)), f"x {strides} 'strides (1, 10)'; {fix}"),
        (extra._replace(c=in_columns(extra.c), extras=(in_columns(extra.extras[0]),)), None),
    ]  # fmt: skip
    for operands, expected in told:
        found = refuse_complex(operands)
        assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize(("m", "n", "columns", "turned"), [(6, 10, False, False), (6, 10, True, True), (1, 10, False, True),
    (1, 1, False, False), (6, 1, False, False), (1, 10, True, True)])  # fmt: skip
def test_a_product_is_turned_where_columns_lie_side_by_side_or_there_is_one_row(
    m: int, n: int, columns: bool, turned: bool
) -> None:
    operands = product(m, n)
    operands = operands._replace(c=in_columns(operands.c)) if columns else operands
    assert faced(operands) == (operands.transposed() if turned else operands)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_numbers_become_two_and_those_of_b_four_that_a_kernel_for_pairs_makes_itself(layout: str) -> None:
    """A row of parts has twice the columns, and rows begin twice as far apart; what lies across is laid out first.

    To a kernel for elements A and B come as they are.
    """
    operands = product(layout=layout, batch=3)
    across = [name for name, letter in zip("ab", layout, strict=True) if letter == "t"]
    forms: tuple[tuple[ComplexForm, int, list[str]], ...] = (("matrices", 8, ["b"]), ("pairs", 4, []))
    for form, rows_of_b, always in forms:
        real = in_real_form(operands, form)
        assert real.sizes == (6, 20, 8) and real.b.rows == rows_of_b and real.stack == (3,)
        assert {one.dtype for one in real[:3]} == {"float32"} and real.in_pairs == (form == "pairs")
        assert (real.c.row_stride, real.c.column_stride, real.c.stack) == (20, 1, (120,))
        assert sorted(laid_out(operands, form)) == sorted({*across, *always})
    real = in_real_form(operands, "elements")
    assert real[:2] == operands[:2] and real.c.columns == 20 and real.in_pairs
    assert laid_out(operands, "elements") == ()
    assert laid_out(product(m=0, layout=layout), "matrices") == ("b",)
    assert laid_out(product(k=0, layout=layout), "pairs") == ()
