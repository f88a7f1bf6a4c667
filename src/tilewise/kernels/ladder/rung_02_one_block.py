"""Launch of rung 02: one block as wide and as high as C, at most 1,024 threads."""

from __future__ import annotations

from pathlib import Path

from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work
from tilewise.launch import Launch
from tilewise.problem import Tile

_THREADS_MOST = 1_024  # of a block, on every GPU that runs CUDA


def refuse(operands: Operands, _settings: Settings) -> ArgumentError | None:
    m, n, _ = operands.sizes
    if m * n <= _THREADS_MOST:
        return None
    return LaunchError(
        "m*n",
        f"must be at most {_THREADS_MOST:,}, the most threads that one block has",
        f"{m} × {n} = {m * n:,}",
        "use rung 03_simple, which takes any size",
    )


def steps(operands: Operands, _settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    block = (c.columns, c.rows, 1)
    return [Step("one_block", Launch((1, 1, 1), block, (a.matrix(), b.matrix(), c.matrix())))]


def work(operands: Operands, _settings: Settings) -> Work:
    m, n, _ = operands.sizes
    return Work("thread", Tile(max(m, 1), max(n, 1), 1), threads=m * n)


SPEC = KernelSpec(
    name="02_one_block",
    title="one block, one thread per element",
    file=Path(__file__).with_suffix(".cu"),
    entries=("one_block",),
    steps=steps,
    work=work,
    refuse=refuse,
    practical=False,
)
