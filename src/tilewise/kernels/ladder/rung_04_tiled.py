"""Geometry of rung 04: one block per TILE×TILE tile of C, one thread per element."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, settings: Settings) -> list[Step]:
    tile = int(settings["tile"])
    grid = (ceil_div(c.columns, tile), ceil_div(c.rows, tile), 1)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("tiled", Launch(grid, (tile, tile, 1), args))]


RUNG = Rung(
    name="04_tiled",
    title="tiles in shared memory",
    file=Path(__file__).with_suffix(".cu"),
    entries=("tiled",),
    steps=steps,
    rows=("A4",),
    settings={"tile": (32, 16, 8), "element": ("float32", "float64", "float16")},
    accumulate=lambda settings: "float64" if settings["element"] == "float64" else "float32",
)
