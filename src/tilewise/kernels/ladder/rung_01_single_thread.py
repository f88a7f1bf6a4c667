"""Geometry of rung 01: one block of one thread, whatever the size."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step
from tilewise.launch import Launch


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, _settings: Settings) -> list[Step]:
    return [Step("single_thread", Launch((1, 1, 1), (1, 1, 1), (a.matrix(), b.matrix(), c.matrix())))]


RUNG = Rung(
    name="01_single_thread",
    title="one thread computes everything",
    file=Path(__file__).with_suffix(".cu"),
    entries=("single_thread",),
    steps=steps,
    rows=("A2",),
)
