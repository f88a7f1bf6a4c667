"""Launch of rung 03: 16×16 threads a block, blocks side by side over C."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile

_BLOCK = 16  # threads along each side of a block


def steps(operands: Operands, _settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    grid = (ceil_div(c.columns, _BLOCK), ceil_div(c.rows, _BLOCK), 1)
    return [Step("simple", Launch(grid, (_BLOCK, _BLOCK, 1), (a.matrix(), b.matrix(), c.matrix())))]


def work(_operands: Operands, _settings: Settings) -> Work:
    return Work("thread", Tile(_BLOCK, _BLOCK, 1), threads=_BLOCK * _BLOCK, resident=8)


SPEC = KernelSpec(
    name="03_simple",
    title="one thread per element, straight from global memory",
    file=Path(__file__).with_suffix(".cu"),
    entries=("simple",),
    steps=steps,
    work=work,
    tiles=lambda _settings: {"block": Tile(_BLOCK, _BLOCK, 1)},
    practical=False,
)
