"""A measurement: its samples, what it is compared with, its budget, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["COLUMNS", "Measurement", "cells"]

COLUMNS = ("what", "figure", "against", "ratio", "budget", "")

_BAD = ("over", "under", "WRONG")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples, and those of what they stand against, taken in turn: sample i against sample i.

    ``ratio_unit`` is "%", "×" or words. A budget bounds the median of the ratios, or of the samples where
    there is nothing to stand against: ``least`` from below, ``most`` from above. ``judged`` is False where
    the budget is for another size than the measured one.
    """

    name: str
    what: str
    unit: str = ""
    samples: tuple[float, ...] = ()
    against: str = ""
    rival: tuple[float, ...] = ()
    ratio_unit: str = ""
    least: float | None = None
    most: float | None = None
    aim: float | None = None
    judged: bool = True
    wrong: bool = False
    note: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        if not self.rival:
            return ()
        factor = 100 if self.ratio_unit == "%" else 1
        return tuple(mine / theirs * factor for mine, theirs in zip(self.samples, self.rival, strict=True))

    @property
    def verdict(self) -> str:
        """ "ok", "over", "under"; "" where there is no budget; else why nothing is judged."""
        if self.wrong:
            return "WRONG"
        if not self.samples:
            return "not measured"
        if self.least is None and self.most is None:
            return ""
        if not self.judged:
            return "not judged"
        value = statistics.median(self.ratios or self.samples)
        if self.least is not None and not value >= self.least:
            return "under"
        return "over" if self.most is not None and not value <= self.most else "ok"

    @property
    def missed(self) -> bool:
        """Whether the figure is measured and not within its budget."""
        return self.verdict in _BAD

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "figure": _summary(self.samples),
            "against": self.against,
            "rival": _summary(self.rival),
            "ratio_unit": self.ratio_unit,
            "ratio": _summary(self.ratios),
            "budget": {"least": self.least, "most": self.most, "aim": self.aim},
            "verdict": self.verdict,
            "note": self.note,
        }


def _summary(samples: Sequence[float]) -> dict[str, Any] | None:
    if not samples:
        return None
    rounded = [_rounded(value) for value in samples]
    return {
        "median": _rounded(statistics.median(samples)),
        "least": min(rounded),
        "most": max(rounded),
        "samples": rounded,
    }


def _rounded(value: float) -> float:
    """To five digits: more of them say nothing, and a file is read by people, too."""
    return float(f"{value:.5g}")


def cells(row: Mapping[str, Any]) -> list[str]:
    """A figure, as :meth:`Figure.to_dict` gives it, as a row under :data:`COLUMNS`."""
    if row["figure"] is None:
        return [row["what"], "", row["note"], "", "", row["verdict"]]
    figure = _text(row["figure"], row["unit"])
    against = row["against"]
    if row["rival"] is not None:
        against += f": {_number(row['rival']['median'])} {row['unit']}" if row["ratio_unit"] in "%×" else ""
    ratio = _text(row["ratio"], row["ratio_unit"]) if row["ratio"] else ""
    unit = row["ratio_unit"] if row["ratio"] else row["unit"]
    budget = row["budget"]
    bounds = [
        f"{sign} {_with_unit(_number(budget[name]), unit)}"
        for name, sign in (("least", "≥"), ("most", "≤"), ("aim", "aim"))
        if budget[name] is not None
    ]
    return [row["what"], figure, against, ratio, ", ".join(bounds), row["verdict"]]


def _text(summary: Mapping[str, Any], unit: str) -> str:
    median, least, most = (_number(summary[name]) for name in ("median", "least", "most"))
    spread = f" ({least}–{most})" if len(summary["samples"]) > 1 else ""
    return f"{_with_unit(median, unit)}{spread}"


def _with_unit(number: str, unit: str) -> str:
    return f"{number}{'' if unit in ('%', '×') else ' '}{unit}".rstrip()


def _number(value: float) -> str:
    """Three digits, or a whole number."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 or not value else f"{value:.2g}"
