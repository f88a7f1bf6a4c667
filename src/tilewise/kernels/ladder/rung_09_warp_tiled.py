"""Launch of rung 09: one block of 256 threads per 256×128 tile of the output, in a row.

The kernel's matrices are column-major. Memory that holds a row-major matrix holds, read column-major, its
transpose; C = A·B is Cᵀ = Bᵀ·Aᵀ; so the kernel's A is the caller's B, and the kernel's B the caller's A.
"""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, access_bytes, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile

BLOCK = Tile(256, 128, 8)
STAGES = 4
THREADS = 256
B_PAD = 4  # words after each row of B in shared memory
SHARED = STAGES * BLOCK.k * (BLOCK.m + BLOCK.n + B_PAD) * 4
_RASTERS = {"hilbert": "hilbert", "row": "row_by_row", "column": "column_by_column"}


def steps(operands: Operands, _settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    blocks = ceil_div(c.columns, BLOCK.m) * ceil_div(c.rows, BLOCK.n)
    args = (b.matrix(), a.matrix(), c.matrix())
    return [Step("warp_tiled", Launch((blocks, 1, 1), (THREADS, 1, 1), args, shared=SHARED))]


def work(operands: Operands, _settings: Settings) -> Work:
    block, load = Tile(BLOCK.n, BLOCK.m, BLOCK.k), access_bytes(*operands[:2])
    return Work("ffma", block, THREADS, stages=STAGES, load_bytes=load, store_bytes=access_bytes(operands.c))


SPEC = KernelSpec(
    name="09_warp_tiled",
    title="tiles at every level, asynchronous copies",
    file=Path(__file__).with_suffix(".cu"),
    entries=("warp_tiled",),
    steps=steps,
    work=work,
    least=(8, 0),
    settings={"raster": tuple(_RASTERS)},
    defines=lambda settings: {
        "RASTER": _RASTERS[str(settings["raster"])],
        "THREADS": THREADS,
        "SHARED_BYTES": SHARED,
    },
    tiles=lambda _settings: {
        "block": Tile(BLOCK.n, BLOCK.m, BLOCK.k),
        "warp": Tile(64, 64, BLOCK.k),
        "thread": Tile(16, 8, 1),
    },
    practical=False,
)
