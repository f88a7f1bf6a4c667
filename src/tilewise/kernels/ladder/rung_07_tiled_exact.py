"""Launch of rung 07: one block per TILE×TILE tile of C, for whole multiples of the tile only."""

from __future__ import annotations

from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    tile = int(settings["tile"])
    for argument, size in zip("mnk", operands.sizes, strict=True):
        if size % tile:
            padded = ceil_div(size, tile) * tile
            return ArgumentError(
                argument,
                f"must be a whole multiple of the tile, {tile}",
                size,
                f"pad with zeros to {padded:,}, or use rung 04_tiled, which takes any size",
            )
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    tile = int(settings["tile"])
    grid = (ceil_div(c.columns, tile), ceil_div(c.rows, tile), 1)
    return [Step("tiled_exact", Launch(grid, (tile, tile, 1), (a.matrix(), b.matrix(), c.matrix())))]


def work(_operands: Operands, settings: Settings) -> Work:
    tile = int(settings["tile"])
    return Work("thread", Tile(tile, tile, tile), threads=tile * tile, resident=2048 // (tile * tile))


SPEC = KernelSpec(
    name="07_tiled_exact",
    title="tiles without guards, whole multiples only",
    file=Path(__file__).with_suffix(".cu"),
    entries=("tiled_exact",),
    steps=steps,
    work=work,
    settings={"tile": (16, 32)},
    refuse=refuse,
    defines=lambda settings: {"TILE": settings["tile"]},
    tiles=lambda settings: {
        "block": Tile(int(settings["tile"]), int(settings["tile"]), int(settings["tile"]))
    },
    practical=False,
)
