"""Launches that take a gradient back through an activation, and add up its columns for that of a bias."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.gemm.add_sums import add_columns
from tilewise.kernels.spec import KernelSource, Step
from tilewise.launch import Launch
from tilewise.operands import Operand, ceil_div
from tilewise.slots import Gap, Slot, constant

__all__ = ["ELEMENTS", "SUMS", "activation_gradient_steps", "count_parts"]

ELEMENTS = ("float16", "bfloat16", "float32")
SUMS = "sums"  # the operand that has what each tile's columns add up to, in float32

_FILE = Path(__file__).with_suffix(".cu")
_THREADS = 256
_COLUMNS = 256  # of a tile
_LEAST_ROWS = 64
_WARPS = 8
_MOST_PARTS = 256  # tiles down, whose sums are added up afterwards


def _tile_rows(rows: int) -> int:
    """How many rows a tile has: whole turns of its warps."""
    return max(_LEAST_ROWS, ceil_div(ceil_div(rows, _MOST_PARTS), _WARPS) * _WARPS)


def count_parts(rows: int) -> int:
    """How many sums there are of each column before they are added up."""
    return ceil_div(rows, _tile_rows(rows))


def activation_gradient_steps(
    gradient: Operand,
    kept: Operand,
    made: Operand,
    bias: Operand | None,
    activation: str | None,
    from_result: bool,
) -> list[Step]:
    """The launches for a matrix of gradients.

    ``kept`` is what the activation was given, or what it gave if ``from_result``; ``made`` is written, unless there is
    no activation. ``bias`` is a column with a sum for each column of the gradients, or None.
    """
    defines = {
        "ELEMENT": gradient.dtype,
        "ACTIVATION": activation or "none",
        "FROM_RESULT": int(from_result),
    }
    tiles = count_parts(gradient.rows) * ceil_div(gradient.columns, _COLUMNS)
    sums = Slot(bytes(8), () if bias is None else (Gap(0, SUMS),))
    matrices = (one.strided() for one in (gradient, kept, made))
    launch = Launch(
        (tiles, 1, 1),
        (_THREADS, 1, 1),
        (*matrices, sums, constant("I", _tile_rows(gradient.rows))),
        programmatic=True,
    )
    found = [Step("activation_gradient", launch, KernelSource(_FILE, tuple(defines.items())))]
    if bias is not None:
        found.append(add_columns(sums, bias, count_parts(gradient.rows), "float32"))
    return found
