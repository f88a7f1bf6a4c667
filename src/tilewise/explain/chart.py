"""Charts: lines over two axes, and ratios as marks on either side of 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilewise.explain.svg import WIDTH, Drawing, find_ticks

__all__ = ["CHART_HEIGHT", "Line", "Point", "Ratio", "draw_lines", "draw_ratios"]

Point = tuple[float, float]
CHART_HEIGHT = 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 40.0, 44.0
_COLOURS = ("block", "warp", "good")
_LETTER = 6.2  # units that a small letter takes, about


class Line(NamedTuple):
    """A line of a chart, with a mark at each point where it is ``dotted``."""

    name: str
    points: Sequence[Point]
    dotted: bool = False


class Ratio(NamedTuple):
    """A mark: a ratio, the quartiles around it, and the group it stands in."""

    group: str
    name: str
    ratio: float
    quartiles: tuple[float, float]


def draw_lines(
    drawing: Drawing, title: str, axes: tuple[str, str], lines: Sequence[Line], down: float = 0
) -> None:
    """Axes with ticks and names, across and along, and the lines, whose names are above the axes if they are several;
    ``down``: what is above. Points that are not finite are left out; one that is alone is labelled."""
    points = [point for line in lines for point in line.points if math.isfinite(point[1])]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    if low > 0 and low < high / 2:
        low = 0.0
    first, last = (0.0, last) if first <= 1 else (first, last)
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    width, height = WIDTH - _LEFT - _RIGHT, CHART_HEIGHT - _TOP - _BOTTOM
    floor = down + CHART_HEIGHT - _BOTTOM

    def place(x: float, y: float) -> Point:
        return _LEFT + (x - first) / ((last - first) or 1) * width, floor - (y - low) / (high - low) * height

    drawing.text(16, down + 22, title, "bold")
    for value in find_ticks(low, high):
        at = place(first, value)[1]
        drawing.line(_LEFT, at, WIDTH - _RIGHT, at)
        drawing.text(_LEFT - 6, at + 4, f"{value:g}", "small", "end")
    for value in find_ticks(first, last):
        drawing.text(place(value, low)[0], floor + 16, f"{value:g}", "small", "middle")
    drawing.text(_LEFT + width / 2, floor + 34, axes[0], "small muted", "middle")
    drawing.text(_LEFT, down + 36, axes[1], "small muted")
    if len(lines) > 1:  # else the axis says what it is
        _draw_names(drawing, lines, down + _TOP - 4)
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        finite = [place(x, y) for x, y in line.points if math.isfinite(y)]
        drawing.polyline(finite, f"s-{colour} round mid{_dash(number, line)}")
        for x, y in finite if line.dotted else ():
            drawing.circle(x, y, 3, f"f-{colour}")
        if len(line.points) == len(finite) == 1:
            (x, y), value = finite[0], line.points[0][1]
            anchor = "start" if x < _LEFT + width / 2 else "end"
            drawing.text(x, y - 8, f"{value:.4g}", "small", anchor)


def _dash(number: int, line: Line) -> str:
    return " dash" if number > 0 and not line.dotted else ""


def _draw_names(drawing: Drawing, lines: Sequence[Line], base: float) -> None:
    """The lines' names in a row that ends at the right, each behind a piece of its line."""
    right = WIDTH - _RIGHT
    for number, line in reversed([*enumerate(lines)]):
        colour = _COLOURS[number % len(_COLOURS)]
        drawing.text(right, base, line.name, "small", "end")
        right -= _LETTER * len(line.name) + 6
        drawing.line(right - 22, base - 4, right, base - 4, f"s-{colour} thick{_dash(number, line)}")
        right -= 22 + 18


_NAMES, _ROW, _HEAD = 226.0, 17.0, 64.0


def draw_ratios(title: str, below: str, ratios: Sequence[Ratio]) -> Drawing:
    """A line a ratio, over powers of two: to the right of 1 is better. Groups stand together, with their names."""
    groups: dict[str, list[Ratio]] = {}
    for one in ratios:
        groups.setdefault(one.group, []).append(one)
    ends = [math.log2(end) for one in ratios for end in (one.ratio, *one.quartiles)] or [0.0]
    low, high = math.floor(min(ends) * 2) / 2, math.ceil(max(ends) * 2) / 2
    if low == high:  # all are the same power of two
        low, high = low - 0.5, high + 0.5
    height = _HEAD + len(ratios) * _ROW + len(groups) * 26 + 34
    said = "; ".join(f"{one.group} {one.name}: {one.ratio:.2f}" for one in ratios)
    drawing = Drawing(title, said, height)

    def place(ratio: float) -> float:
        return _NAMES + (math.log2(ratio) - low) / (high - low) * (WIDTH - _NAMES - 60)

    drawing.text(16, 24, title, "bold")
    for mark in (0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8):
        if low <= math.log2(mark) <= high:
            x = place(mark)
            drawing.line(x, _HEAD - 8, x, height - 34, "s-text" if mark == 1 else "s-rule")
            drawing.text(x, _HEAD - 14, f"{mark:g}", "small muted", "middle")
    y = _HEAD
    for name, rows in groups.items():
        y += 26
        drawing.text(16, y - 8, name, "small bold")
        for one in rows:
            drawing.text(_NAMES - 16, y + 8, one.name, "small", "end")
            colour = "block" if one.ratio >= 1 else "warp"
            left, right = place(min(one.ratio, one.quartiles[0])), place(max(one.ratio, one.quartiles[1]))
            drawing.line(left, y + 4, right, y + 4, f"s-{colour} thick")
            shown = f"{one.ratio:.2f}"
            if one.ratio >= 1:
                drawing.circle(place(one.ratio), y + 4, 4, f"f-{colour}")
            else:
                drawing.rect(place(one.ratio) - 4, y, 8, 8, f"f-{colour}")
            if one.ratio >= 1:
                drawing.text(right + 10, y + 8, shown, "small")
            else:
                drawing.text(left - 10, y + 8, shown, "small", "end")
            y += _ROW
    drawing.text(16, height - 10, below, "small muted")
    return drawing
