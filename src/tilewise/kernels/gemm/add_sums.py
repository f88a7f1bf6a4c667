"""Launches that add up the partial sums of columns and rows, which an epilogue left in the workspace."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tilewise.kernels.epilogue import PARTIALS, PartialSums, is_of_all_matrices, partial_sums
from tilewise.kernels.spec import KernelSource, Step
from tilewise.launch import Launch
from tilewise.operands import Operand, Operands, ceil_div
from tilewise.slots import Gap, Slot, constant

__all__ = ["add_columns", "add_steps"]

_FILE = Path(__file__).with_suffix(".cu")
_LANES, _THREADS = 32, 1024


def add_steps(operands: Operands, slots: tuple[int, int]) -> list[Step]:
    """A launch for each array of sums of the epilogue; ``slots`` are those of :func:`partial_sums`."""
    extras = dict(zip((one.name for one in operands.epilogue.arrays), operands.extras, strict=True))
    found = [_add(parts, extras[parts.name], operands) for parts in partial_sums(operands, slots)]
    return [step for step in found if step is not None]


def _add(parts: PartialSums, target: Operand, operands: Operands) -> Step | None:
    """The launch that adds up one array's; None if it has no elements."""
    length, count = parts.length, parts.parts
    # As a column, whose length and stride are those of the sums.
    stride = target.column_stride if parts.of_columns else target.row_stride
    column = replace(target, rows=length, columns=1, row_stride=stride, column_stride=1)
    stack = operands.stack
    if is_of_all_matrices(operands, target):
        column, count, stack = replace(column, stack=()), count * operands.batch, ()
    if not length * math.prod(stack):
        return None
    from_ = Slot(bytes(8), (Gap(0, PARTIALS, parts.offset),)) if count else Slot(bytes(8))
    return _add_up(from_, column, count, operands.epilogue_type, stack, parts.of_columns)


def add_columns(parts: Slot, to: Operand, count: int, sum_type: str) -> Step:
    """The launch that adds up ``count`` rows of sums; ``to`` is a column of as many rows as these have columns."""
    return _add_up(parts, to, count, sum_type, (), True)


def _add_up(
    parts: Slot, to: Operand, count: int, sum_type: str, stack: tuple[int, ...], of_columns: bool
) -> Step:
    defines = {"SUM": sum_type, "RESULT": to.dtype, "OF_COLUMNS": int(of_columns), "THREADS": _THREADS}
    numbers = constant("I", count), constant("I", max(stack[-1] if stack else 1, 1))
    blocks = ceil_div(to.rows, _LANES) * math.prod(stack)
    launch = Launch((blocks, 1, 1), (_THREADS, 1, 1), (parts, to.strided(), *numbers), programmatic=True)
    return Step("add_sums", launch, KernelSource(_FILE, tuple(defines.items())))
