"""Geometry of rung 03: 16×16 threads a block, blocks side by side over C."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

_BLOCK = 16  # threads along each side of a block


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, _settings: Settings) -> list[Step]:
    grid = (ceil_div(c.columns, _BLOCK), ceil_div(c.rows, _BLOCK), 1)
    return [Step("simple", Launch(grid, (_BLOCK, _BLOCK, 1), (a.matrix(), b.matrix(), c.matrix())))]


RUNG = Rung(
    name="03_simple",
    title="one thread per element, straight from global memory",
    file=Path(__file__).with_suffix(".cu"),
    entries=("simple",),
    steps=steps,
    rows=("B2",),
)
