"""Launch of rung 05: as rung 04, one block per TILE×TILE tile of C, one thread per element."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    tile = int(settings["tile"])
    grid = (ceil_div(c.columns, tile), ceil_div(c.rows, tile), 1)
    return [Step("tiled_conflicted", Launch(grid, (tile, tile, 1), (a.matrix(), b.matrix(), c.matrix())))]


def work(_operands: Operands, settings: Settings) -> Work:
    tile = int(settings["tile"])
    return Work("thread", Tile(tile, tile, tile), threads=tile * tile, resident=2048 // (tile * tile))


SPEC = KernelSpec(
    name="05_tiled_conflicted",
    title="tiles indexed [x][y]: right, and full of bank conflicts",
    file=Path(__file__).with_suffix(".cu"),
    entries=("tiled_conflicted",),
    steps=steps,
    work=work,
    settings={"tile": (32, 16, 8)},
    defines=lambda settings: {"TILE": settings["tile"]},
    tiles=lambda settings: {
        "block": Tile(int(settings["tile"]), int(settings["tile"]), int(settings["tile"]))
    },
    practical=False,
)
