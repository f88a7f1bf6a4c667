"""The one writer of pictures: SVG by hand, with classes in the place of colours, for light and dark.

A picture is 720 units wide and scales. Stand-alone it brings its style along; within the page the page has it, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape

__all__ = ["STYLE", "WIDTH", "Drawing", "find_ticks"]

WIDTH = 720

# Okabe and Ito's colours, which those who see few colours tell apart; figures say the same by words or dashes as well.
_LIGHT = {
    "bg": "#ffffff", "panel": "#f6f7f9", "text": "#1b1f24", "muted": "#59616b", "rule": "#d4d9df", "quiet": "#e6e9ed",
    "block": "#0072b2", "warp": "#c34f00", "thread": "#a4508b", "good": "#00785a", "bad": "#b3261e", "mark": "#e69f00",
}  # fmt: skip
_DARK = {
    "bg": "#14171b", "panel": "#1c2126", "text": "#e8ebee", "muted": "#a3acb6", "rule": "#3a424b", "quiet": "#2a3037",
    "block": "#56b4e9", "warp": "#f08a4b", "thread": "#d79cc4", "good": "#3fc79a", "bad": "#ff8a80", "mark": "#f0c04a",
}  # fmt: skip
COLOURS = ("block", "warp", "thread", "good", "bad", "mark", "quiet", "muted", "text", "rule", "panel", "bg")


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _paint(what: str, colour: str) -> str:
    """Plain first: what converts pictures knows no variables, and would paint all of it black."""
    return f"{what}:{_LIGHT[colour]};{what}:var(--{colour})"


def _rules() -> str:
    rules = [
        ".fig text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;font-size:14px;"
        f"{_paint('fill', 'text')};font-variant-numeric:tabular-nums}}",
        ".fig .small{font-size:12px}.fig .large{font-size:18px}.fig .bold{font-weight:600}",
        ".fig .mono{font-family:ui-monospace,'SF Mono',Consolas,monospace;font-size:13px}",
        f".fig .muted{{{_paint('fill', 'muted')}}}.fig .dash{{stroke-dasharray:4 3}}",
        ".fig .mid{stroke-width:1.6}.fig .thick{stroke-width:2.5}",
        ".fig .none{fill:none}.fig .faint{fill-opacity:.18}.fig .half{fill-opacity:.5}",
        ".fig .round{stroke-linejoin:round;stroke-linecap:round}",
    ]
    rules += [
        f".fig .f-{name}{{{_paint('fill', name)}}}.fig .s-{name}{{{_paint('stroke', name)}}}"
        for name in COLOURS
    ]
    return "".join(rules)


STYLE = (
    f":root{{{_variables(_LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_variables(_DARK)}}}}}"
    f":root[data-theme=dark]{{{_variables(_DARK)}}}"
    f"@media print{{:root{{{_variables(_LIGHT)}}}}}" + _rules()
)
"""The rules of all classes, with the colours of both themes as variables."""


class Drawing:
    """A picture under way. Places are in its units, from the upper left corner.

    >>> drawing = Drawing("A square", "One square of 10 units.", 40)
    >>> drawing.rect(10, 10, 10, 10, "f-block")
    >>> drawing.to_svg().count("<rect")
    2
    """

    def __init__(self, title: str, desc: str, height: float, width: float = WIDTH) -> None:
        self.title, self.desc, self.height, self.width = title, desc, height, width
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, classes: str, tip: str = "", corner: float = 0
    ) -> None:
        """A rectangle; ``tip`` is shown by a browser where the pointer rests."""
        round_ = f' rx="{_number(corner)}"' if corner else ""
        size = f'width="{_number(width)}" height="{_number(height)}"'
        self._add(f'<rect x="{_number(x)}" y="{_number(y)}" {size}{round_} class="{classes}"', "rect", tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "s-rule") -> None:
        ends = f'x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}"'
        self._parts.append(f'<line {ends} class="{classes}"/>')

    def polyline(self, points: Sequence[tuple[float, float]], classes: str) -> None:
        listed = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{listed}" class="none {classes}"/>')

    def circle(self, x: float, y: float, radius: float, classes: str, tip: str = "") -> None:
        place = f'cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
        self._add(f'<circle {place} class="{classes}"', "circle", tip)

    def text(self, x: float, y: float, text: str, classes: str = "", anchor: str = "start") -> None:
        """Text whose base line begins, ends (``end``) or is centred (``middle``) there."""
        how = f' text-anchor="{anchor}"' if anchor != "start" else ""
        class_ = f' class="{classes}"' if classes else ""
        self._parts.append(f'<text x="{_number(x)}" y="{_number(y)}"{how}{class_}>{escape(text)}</text>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, colour: str = "muted") -> None:
        """A line with a head at its end."""
        length = math.hypot(x2 - x1, y2 - y1) or 1
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        self.line(x1, y1, x2, y2, f"s-{colour}")
        ends = [
            (x2, y2),
            (x2 - 7 * dx - 4 * dy, y2 - 7 * dy + 4 * dx),
            (x2 - 7 * dx + 4 * dy, y2 - 7 * dy - 4 * dx),
        ]
        listed = " ".join(f"{_number(x)},{_number(y)}" for x, y in ends)
        self._parts.append(f'<polygon points="{listed}" class="f-{colour}"/>')

    @contextmanager
    def group(self, name: str = "", classes: str = "") -> Iterator[None]:
        """What is drawn within is one group; scripts find it by ``data-name``."""
        words = f' data-name="{escape(name)}"' if name else ""
        words += f' class="{classes}"' if classes else ""
        self._parts.append(f"<g{words}>")
        yield
        self._parts.append("</g>")

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Another picture as a part of this one."""
        self._parts.append(f'<g transform="translate({_number(x)} {_number(y)})">{other.body}</g>')

    @property
    def body(self) -> str:
        """What is drawn, without what a picture has around it."""
        return "\n".join(self._parts)

    def cells(
        self, x: float, y: float, width: float, height: float, values: Sequence[Sequence[int]],
        classes: Mapping[int, str],
    ) -> None:  # fmt: skip
        """A grid of cells as large as given in all; equal neighbours in a row, and equal rows, become one rectangle.

        Cells of a value without a class are left out.
        """
        rows = len(values)
        tall = height / max(rows, 1)
        first = 0
        while first < rows:
            last = first
            while last + 1 < rows and list(values[last + 1]) == list(values[first]):
                last += 1
            for start, end, value in _runs(values[first]):
                if value in classes:
                    wide = width / len(values[first])
                    box = (
                        x + start * wide,
                        y + first * tall,
                        (end - start) * wide,
                        (last + 1 - first) * tall,
                    )
                    self.rect(*box, classes[value])
            first = last + 1

    def to_svg(self, standalone: bool = True, name: str = "") -> str:
        """The picture as text; with its style if it is to stand alone. ``name`` makes its ids unique on a page."""
        ids = f"{name or 'figure'}-title", f"{name or 'figure'}-desc"
        size = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        if standalone:
            size += f' width="{_number(self.width)}" height="{_number(self.height)}"'
        words = f'class="fig" {size} role="img" aria-labelledby="{" ".join(ids)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {words}>'
        style = f"<style>{STYLE}</style>" if standalone else ""
        ground = f'<rect width="{_number(self.width)}" height="{_number(self.height)}" class="f-bg"/>'
        told = (
            f'<title id="{ids[0]}">{escape(self.title)}</title><desc id="{ids[1]}">{escape(self.desc)}</desc>'
        )
        return f"{head}{told}{style}{ground if standalone else ''}\n{self.body}\n</svg>\n"

    def _add(self, opening: str, tag: str, tip: str) -> None:
        self._parts.append(f"{opening}><title>{escape(tip)}</title></{tag}>" if tip else f"{opening}/>")


def _runs(row: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[start]:
            yield start, end, int(row[start])
            start = end


def _number(value: float) -> str:
    """Two decimals at most, and no more characters than that takes."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))


def find_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Some round numbers from one to the other."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / apart - 1e-9)
    return [round(i * apart, 12) for i in range(first, math.floor(high / apart + 1e-9) + 1)]
