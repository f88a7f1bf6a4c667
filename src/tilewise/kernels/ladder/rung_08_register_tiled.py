"""Geometry of rung 08: 256 threads per 128×128 tile of C, tiles numbered row by row."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

_BLOCK_M = _BLOCK_N = 128  # BLOCK_M, BLOCK_N and THREADS of tilewise/register_tile.cuh
_THREADS = 256


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, _settings: Settings) -> list[Step]:
    grid = (ceil_div(c.rows, _BLOCK_M) * ceil_div(c.columns, _BLOCK_N), 1, 1)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("register_tiled", Launch(grid, (_THREADS, 1, 1), args))]


RUNG = Rung(
    name="08_register_tiled",
    title="8×8 sums a thread in registers, the next step prefetched",
    file=Path(__file__).with_suffix(".cu"),
    entries=("register_tiled",),
    steps=steps,
    rows=("C2", "C6"),
)
