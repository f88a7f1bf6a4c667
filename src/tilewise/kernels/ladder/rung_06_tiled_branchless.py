"""Geometry of rung 06: as rung 04, one block per TILE×TILE tile of C, one thread per element."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, settings: Settings) -> list[Step]:
    tile = int(settings["tile"])
    grid = (ceil_div(c.columns, tile), ceil_div(c.rows, tile), 1)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("tiled_branchless", Launch(grid, (tile, tile, 1), args))]


RUNG = Rung(
    name="06_tiled_branchless",
    title="tiles loaded without a branch",
    file=Path(__file__).with_suffix(".cu"),
    entries=("tiled_branchless",),
    steps=steps,
    rows=("A6",),
    settings={"tile": (32, 16, 8)},
)
