"""Launch of rung 08: 256 threads per 128×128 tile of C, tiles numbered row by row."""

from __future__ import annotations

from pathlib import Path

from tilewise.gpus import arch_capability
from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, access_bytes, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile

_BLOCK = Tile(128, 128, 8)  # BLOCK_M, BLOCK_N, BLOCK_K and THREADS of tilewise/register_tile.cuh
_THREADS = 256


def steps(operands: Operands, _settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    grid = (ceil_div(c.rows, _BLOCK.m) * ceil_div(c.columns, _BLOCK.n), 1, 1)
    return [Step("register_tiled", Launch(grid, (_THREADS, 1, 1), (a.matrix(), b.matrix(), c.matrix())))]


def work(operands: Operands, _settings: Settings) -> Work:
    load, store = access_bytes(*operands[:2]), access_bytes(operands.c)
    return Work("ffma", _BLOCK, _THREADS, resident=2, load_bytes=load, store_bytes=store)


SPEC = KernelSpec(
    name="08_register_tiled",
    title="8×8 sums a thread in registers, the next step prefetched",
    file=Path(__file__).with_suffix(".cu"),
    entries=("register_tiled",),
    steps=steps,
    work=work,
    tiles=lambda _settings: {"block": _BLOCK, "thread": Tile(8, 8, 1)},
    superseded=lambda _dtype, arch: arch_capability(arch) >= (8, 0),  # by simt
)
