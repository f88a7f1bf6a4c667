"""Launch of rung 01: one block of one thread, whatever the size."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work
from tilewise.launch import Launch
from tilewise.problem import Tile


def steps(operands: Operands, _settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    return [Step("single_thread", Launch((1, 1, 1), (1, 1, 1), (a.matrix(), b.matrix(), c.matrix())))]


def work(operands: Operands, _settings: Settings) -> Work:
    m, n, k = operands.sizes
    return Work("thread", Tile(max(m, 1), max(n, 1), max(k, 1)), threads=1)


SPEC = KernelSpec(
    name="01_single_thread",
    title="one thread computes everything",
    file=Path(__file__).with_suffix(".cu"),
    entries=("single_thread",),
    steps=steps,
    work=work,
    practical=False,
)
