"""Geometry of rung 09: one block of 256 threads per 256×128 tile of the output, in a row.

The kernel's matrices are column-major. Memory that holds a row-major matrix holds, read column-major, its
transpose; C = A·B is Cᵀ = Bᵀ·Aᵀ; so the kernel's A is the caller's B, and the kernel's B the caller's A.
"""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

BLOCK_M, BLOCK_N, STEP = 256, 128, 8
STAGES = 4
B_PAD = 4  # words after each row of B in shared memory
SHARED = STAGES * STEP * (BLOCK_M + BLOCK_N + B_PAD) * 4


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, _settings: Settings) -> list[Step]:
    blocks = ceil_div(c.columns, BLOCK_M) * ceil_div(c.rows, BLOCK_N)
    args = (b.matrix(), a.matrix(), c.matrix())
    return [Step("warp_tiled", Launch((blocks, 1, 1), (256, 1, 1), args, shared=SHARED))]


RUNG = Rung(
    name="09_warp_tiled",
    title="tiles at every level, asynchronous copies",
    file=Path(__file__).with_suffix(".cu"),
    entries=("warp_tiled",),
    steps=steps,
    rows=("D1", "D2", "D3", "D4", "D5", "D6", "D7"),
    least=(8, 0),
    settings={"raster": ("hilbert", "row", "column")},
)
