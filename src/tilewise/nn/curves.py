"""Learning curves as a picture: SVG, written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tilewise.nn.float64_model import LossCurves
from tilewise.nn.training import TrainingFigures

__all__ = ["draw_comparison", "draw_learning"]

_WIDTH, _HEIGHT = 760, 300  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 44
_COLOURS = ("#1f6fb4", "#c4501b", "#2f8f4e")

Point = tuple[float, float]


class _Line(NamedTuple):
    name: str
    points: list[Point]
    dotted: bool = False


def draw_learning(figures: TrainingFigures) -> str:
    """The loss of training and of the test, and the test's accuracy, over epochs."""
    training: list[Point] = []
    for epoch in figures.epochs:
        for number, loss in enumerate(epoch.curve):
            middle = min((number + 0.5) * epoch.steps_a_point, epoch.steps)
            training.append((epoch.epoch - 1 + middle / epoch.steps, loss))
    tested = [(float(epoch.epoch), epoch.loss) for epoch in figures.epochs]
    accuracy = [(float(epoch.epoch), epoch.accuracy * 100) for epoch in figures.epochs]
    hidden = figures.options.hidden
    title = f"784-{hidden}-{hidden}-{hidden}-10 on {figures.title}: {figures.source}"
    losses = _draw_panel(
        title, "epoch", "loss", [_Line("training", training), _Line("test", tested, True)], 0
    )
    right = _draw_panel(
        f"accuracy at the end: {figures.accuracy:.2%}", "epoch", "accuracy of the test in %",
        [_Line("test", accuracy, True)], _HEIGHT,
    )  # fmt: skip
    return _picture(losses + right, 2)


def draw_comparison(curves: LossCurves, title: str) -> str:
    """The loss of each step, here and in float64, and how far the two are apart."""
    here = [(float(i + 1), loss) for i, loss in enumerate(curves.here)]
    there = [(float(i + 1), loss) for i, loss in enumerate(curves.float64)]
    apart = [(at, abs(one - other)) for (at, one), (_, other) in zip(here, there, strict=True)]
    lines = [_Line("kernels, float16 with float32 weights", here), _Line("float64", there)]
    upper = _draw_panel(title, "step", "loss", lines, 0)
    text = f"distance of the two: {curves.farthest:.2g} at most; with the same weights {curves.share:.2f} of the bound"
    return _picture(upper + _draw_panel(text, "step", "distance", [_Line("distance", apart)], _HEIGHT), 2)


def _picture(content: list[str], panels: int) -> str:
    size = f'width="{_WIDTH}" height="{_HEIGHT * panels}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {size} fill="white"/>', *content, "</svg>", ""])


def _draw_panel(title: str, across: str, along: str, lines: Sequence[_Line], down: int) -> list[str]:
    """Axes with ticks, and the lines; ``down``: pixels above it."""
    points = [point for line in lines for point in line.points if math.isfinite(point[1])]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    if low > 0 and low < high / 2:
        low = 0.0
    first, last = (0.0, last) if first <= 1 else (first, last)
    high = high if high > low else low + 1
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> str:
        right = _LEFT + (x - first) / ((last - first) or 1) * width
        return f"{right:.1f},{down + _TOP + (high - y) / (high - low) * height:.1f}"

    drawn = [f'<text x="{_LEFT}" y="{down + 22}" font-weight="bold">{escape(title)}</text>']
    for value in _ticks(low, high):
        at = down + _TOP + (high - value) / (high - low) * height
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    floor = down + _HEIGHT - _BOTTOM
    for value in _ticks(first, last):
        at = _LEFT + (value - first) / ((last - first) or 1) * width
        drawn.append(f'<text x="{at:.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>')
    drawn.append(f'<text x="{_LEFT + width / 2}" y="{floor + 34}" text-anchor="middle">{across}</text>')
    turned = f'transform="rotate(-90 14 {down + _TOP + height / 2})"'
    drawn.append(f'<text x="14" y="{down + _TOP + height / 2}" text-anchor="middle" {turned}>{along}</text>')
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        finite = [place(x, y) for x, y in line.points if math.isfinite(y)]
        drawn.append(
            f'<polyline points="{" ".join(finite)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        if line.dotted:
            drawn += [
                f'<circle cx="{at.partition(",")[0]}" cy="{at.partition(",")[2]}" r="3" fill="{colour}"/>'
                for at in finite
            ]
        if len(lines) > 1:  # else the axis says what it is
            right, below = _WIDTH - _RIGHT - 8, down + _TOP + 14 + 16 * number
            drawn.append(
                f'<text x="{right}" y="{below}" text-anchor="end" fill="{colour}">{escape(line.name)}</text>'
            )
    return drawn


def _ticks(low: float, high: float) -> list[float]:
    """Some five round numbers from one to the other."""
    if high <= low:
        return [low]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / apart - 1e-9)
    return [round(i * apart, 12) for i in range(first, math.floor(high / apart + 1e-9) + 1)]
