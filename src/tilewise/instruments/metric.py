"""A metric: one figure of a launch under its name; figures of multiprocessors as sums and averages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ESTIMATED", "EXACT", "PARTS", "PREDICTED", "PTX", "Figures", "Metric", "spread", "whole"]

EXACT, ESTIMATED, PREDICTED, PTX = "exact", "estimated", "predicted", "PTX"
PARTS = 4  # of a multiprocessor

Figures = npt.NDArray[Any]  # one for each multiprocessor


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a launch. ``instances`` are what it is made of, as ncu calls them: figures by opcode."""

    name: str
    value: float
    label: str = EXACT
    unit: str = ""
    instances: Mapping[str, float] | None = field(default=None, hash=False)


def spread(name: str, figures: Figures, label: str, unit: str = "") -> list[Metric]:
    """A figure of every multiprocessor as sum, average, least and most."""
    total = float(whole(np.array(figures.sum())))
    total = round(total) * 1.0 if label == ESTIMATED else total  # there are no parts of runs
    if name.startswith("smsp__"):
        ways = {"avg": total / (PARTS * len(figures)), "sum": total}
    else:
        ways = {
            "avg": total / len(figures),
            "max": float(figures.max()),
            "min": float(figures.min()),
            "sum": total,
        }
    return [Metric(f"{name}.{way}", value, label, unit) for way, value in ways.items()]


def whole(figures: Figures) -> Figures:
    """Counts are whole numbers; parts of them, added up, are so but for rounding."""
    near = np.round(figures)
    return np.where(np.abs(figures - near) < 1e-3, near, figures)
