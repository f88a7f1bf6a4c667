"""Products of complex numbers in their real form, which every kernel multiplies.

As they lie in memory, the real and imaginary parts of a row of A in turn are a row of twice as many real numbers; so
are those of C. Between these two stands B with four real numbers for each complex one,

    [ re  im]
    [-im  re]

which a launch lays out first: (m, k)·(k, n) is one real product of (m, 2k) and (2k, 2n), with as many multiply-adds as
four. So all layouts, arithmetics and kernels for the type of the parts serve complex numbers. A kernel that takes pairs
makes four of the two numbers of B itself; to one that takes elements A and B come as they are, and C in its real form.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.gemm.limits import STACK_AXES
from tilewise.kernels.spec import ComplexForm, KernelSource, Step
from tilewise.launch import Launch
from tilewise.operands import Operand, Operands, ceil_div
from tilewise.problem import COMPLEX
from tilewise.slots import constant

__all__ = ["expand_step", "faced", "in_real_form", "is_complex", "laid_out", "refuse_complex"]

_TILE, _THREADS = 32, 256
_FILE = Path(__file__).with_suffix(".cu")


def is_complex(operands: Operands) -> bool:
    """Whether complex numbers are to be multiplied, and not in their real form yet."""
    return operands.element in COMPLEX and not operands.in_pairs


def faced(operands: Operands) -> Operands:
    """The product, or that of the transposes, so that elements of C's rows lie side by side.

    A single row of C may be a column as well: then it is little that has to be laid out.
    """
    c = operands.c
    turn = not operands.groups and (not _has_neighbours(c) or c.rows == 1 < c.columns)
    return operands.transposed() if turn else operands


def refuse_complex(operands: Operands) -> ArgumentError | None:
    """Why a complex product has no real form; None if it has one."""
    if operands.by_pointers:
        return ArgumentError(
            "pointers", f"must be False for {operands.element}", True, "make one stack of them"
        )
    if len(operands.stack) > STACK_AXES:
        rule = f"must have at most {STACK_AXES} axes that no common stride walks, of complex numbers"
        return ArgumentError("stack", rule, operands.stack, "copy a and b first, so that none is broadcast")
    if operands.c.dtype not in COMPLEX:
        rule = f"must be {' or '.join(map(repr, COMPLEX))} for operands of {operands.element}"
        return ArgumentError("result", rule, operands.c.dtype)
    turned = faced(operands)
    for one, argument in (
        (turned.c, "out"),
        *((one, one.name.removeprefix("epilogue.")) for one in turned.extras),
    ):
        if not _has_neighbours(one):
            rule = "must have elements side by side along its rows, of complex numbers"
            strides = f"strides {one.row_stride, one.column_stride}"
            return ArgumentError(
                argument, rule, strides, "copy it first, in rows as many as the result's columns"
            )
    return None


def in_real_form(operands: Operands, form: ComplexForm) -> Operands:
    """The operands of the real product; of "pairs" B has two numbers for each element and not four.

    NOTE: B, and A where neighbours in a row are none in memory, do not lie so: copies have to be made of those that
    :func:`laid_out` names.
    """
    operands = faced(operands)
    part = COMPLEX[operands.element]
    a, b = operands.a, operands.b
    c, *extras = (_parts(one) for one in (operands.c, *operands.extras))
    if form != "elements":
        a, b = _parts(a), _parts(b)
    if form == "matrices":
        b = replace(operands.b, rows=2 * operands.b.rows, columns=2 * operands.b.columns, dtype=part)
    arrays = tuple(replace(one, dtype=COMPLEX[one.dtype], by_column=True) for one in operands.epilogue.arrays)
    epilogue = replace(operands.epilogue, arrays=arrays)
    in_pairs = form != "matrices"
    return operands._replace(a=a, b=b, c=c, extras=tuple(extras), epilogue=epilogue, in_pairs=in_pairs)


def laid_out(operands: Operands, form: ComplexForm) -> tuple[str, ...]:
    """The names of the operands of a complex product that have to be laid out before a kernel can read them."""
    if form == "elements":
        return ()
    a, b = faced(operands)[:2]
    needed = [one for one in (a, b) if not _has_neighbours(one) or (one is b and form == "matrices")]
    return tuple(one.name for one in needed if one.rows * one.columns)


def expand_step(source: Operand, copy: Operand, operands: Operands) -> Step:
    """The launch that lays out a complex operand as real numbers: two for each of A, four for each of B."""
    fourfold = copy.rows == 2 * source.rows
    counts = [
        1 if step == 0 else size for size, step in zip(operands.stack_of(source), source.stack, strict=True)
    ]
    outer, inner = (1, 1, *counts)[-2:]
    rows, columns = source.rows, source.columns
    if copy.column_stride == 1:  # what lies behind a line's last element is set, too
        columns = ceil_div(copy.row_stride, 2)
    else:
        rows = ceil_div(copy.column_stride, 2 if fourfold else 1)
    blocks = ceil_div(rows, _TILE) * ceil_div(columns, _TILE) * outer * inner
    numbers = (constant("I", number) for number in (rows, columns, inner))
    defines = (("PART", copy.dtype), ("FOURFOLD", int(fourfold)))
    launch = Launch(
        (blocks, 1, 1), (_THREADS, 1, 1), (source.strided(), copy.strided(), *numbers), programmatic=True
    )
    return Step("expand", launch, KernelSource(_FILE, defines))


def _has_neighbours(operand: Operand) -> bool:
    """Whether elements of a row lie side by side."""
    return operand.column_stride == 1 or operand.columns <= 1 or not operand.rows


def _parts(operand: Operand) -> Operand:
    """A matrix whose rows lie side by side as the parts of its elements."""
    return replace(
        operand,
        columns=2 * operand.columns,
        row_stride=2 * operand.row_stride,
        column_stride=1,
        dtype=COMPLEX[operand.dtype],
        stack=tuple(2 * step for step in operand.stack),
    )
