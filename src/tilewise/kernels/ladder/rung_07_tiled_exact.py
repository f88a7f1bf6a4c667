"""Geometry of rung 07: one block per TILE×TILE tile of C, for whole multiples of the tile only."""

from __future__ import annotations

from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch


def rule(m: int, n: int, k: int, settings: Settings) -> None:
    tile = int(settings["tile"])
    for argument, size in (("m", m), ("n", n), ("k", k)):
        if size % tile:
            padded = ceil_div(size, tile) * tile
            raise ArgumentError(
                argument,
                f"must be a whole multiple of the tile, {tile}",
                size,
                f"pad with zeros to {padded:,}, or use rung 04_tiled, which takes any size",
            )


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, settings: Settings) -> list[Step]:
    tile = int(settings["tile"])
    grid = (c.columns // tile, c.rows // tile, 1)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("tiled_exact", Launch(grid, (tile, tile, 1), args))]


RUNG = Rung(
    name="07_tiled_exact",
    title="tiles without guards, whole multiples only",
    file=Path(__file__).with_suffix(".cu"),
    entries=("tiled_exact",),
    steps=steps,
    rows=("B3", "E1"),
    settings={"tile": (16, 32)},
    rule=rule,
)
