"""The results of ``tilewise bench gemm`` as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.explain.chart import Ratio, draw_ratios
from tilewise.explain.svg import Drawing

__all__ = ["draw_gemm"]


def draw_gemm(result: Mapping[str, Any]) -> Drawing:
    """Every product that was timed: the rival's time over ours, with its quartiles, by class."""
    ratios = [
        Ratio(row["suite"], _name(row), row["ratio"], tuple(row["ratio_quartiles"]))
        for row in result["rows"]
        if row["status"] == "timed"
    ]
    versions = result["versions"]
    about = (
        result["gpu"],
        f"driver {versions['driver']}",
        f"torch {versions['torch']}",
        result["dtype"],
        result["date"],
    )
    below = f"{', '.join(about)}; device time, medians and quartiles"
    return draw_ratios("PyTorch's time over tilewise's: to the right of 1 is faster", below, ratios)


def _name(row: Mapping[str, Any]) -> str:
    m, n, k = row["size"]
    size = f"{m}³" if m == n == k else f"{m}×{n}×{k}"
    stack = f"{row['batch']} × " if row["batch"] > 1 else ""
    layout = f" {row['layout']}" if row["layout"] != "nn" else ""
    return f"{stack}{size}{layout}"
