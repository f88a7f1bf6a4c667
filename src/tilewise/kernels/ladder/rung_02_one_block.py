"""Geometry of rung 02: one block as wide and as high as C, at most 1,024 threads."""

from __future__ import annotations

from pathlib import Path

from tilewise.errors import LaunchError
from tilewise.kernels.rung import Operand, Rung, Settings, Step
from tilewise.launch import Launch

_THREADS_MOST = 1_024  # of a block, on every GPU that runs CUDA


def rule(m: int, n: int, _k: int, _settings: Settings) -> None:
    if m * n > _THREADS_MOST:
        raise LaunchError(
            "m*n",
            f"must be at most {_THREADS_MOST:,}, the most threads that one block has",
            f"{m} × {n} = {m * n:,}",
            "use rung 03_simple, which takes any size",
        )


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, _settings: Settings) -> list[Step]:
    block = (c.columns, c.rows, 1)
    return [Step("one_block", Launch((1, 1, 1), block, (a.matrix(), b.matrix(), c.matrix())))]


RUNG = Rung(
    name="02_one_block",
    title="one block, one thread per element",
    file=Path(__file__).with_suffix(".cu"),
    entries=("one_block",),
    steps=steps,
    rows=("A3",),
    rule=rule,
)
