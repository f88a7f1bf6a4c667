"""A metric: one named figure of a launch; figures of multiprocessors become sums and averages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ESTIMATED", "EXACT", "PARTS", "PREDICTED", "PTX", "Figures", "Metric", "round_counts", "spread"]

EXACT, ESTIMATED, PREDICTED, PTX = "exact", "estimated", "predicted", "PTX"
PARTS = 4  # of a multiprocessor

Figures = npt.NDArray[Any]  # one for each multiprocessor


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a launch. ``instances`` are its parts, as ncu calls them: figures by opcode."""

    name: str
    value: float
    label: str = EXACT
    unit: str = ""
    instances: Mapping[str, float] | None = field(default=None, hash=False)


def spread(name: str, figures: Figures, label: str, unit: str = "") -> list[Metric]:
    """Return sum, average, least and most of a figure over the multiprocessors."""
    total = float(round_counts(np.array(figures.sum())))
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


def round_counts(figures: Figures) -> Figures:
    """Round counts that are whole but for rounding errors."""
    near = np.round(figures)
    return np.where(np.abs(figures - near) < 1e-3, near, figures)
