"""Charts of made-up figures, mark by mark; ``python -m tests.pictures`` writes ``tests/golden/pictures.txt`` anew.

``tests/nothing/test_pictures.py`` compares it: look at the pictures after a change that is meant to change them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from tilewise.explain.chart import CHART_HEIGHT, Line, Ratio, draw_lines, draw_ratios
from tilewise.explain.panels.climb import Climber, draw_climb
from tilewise.explain.svg import Drawing

GOLDEN = Path(__file__).parent / "golden" / "pictures.txt"
COMMAND = "python -m tests.pictures"

CLIMBERS = (
    Climber("01_slow", "one thread", (100, 100, 100), 2e-3, "latency", None),  # 1 GFLOP/s
    Climber("02_quick", "all of them", (100, 100, 100), 2e-5, "fp32", 2e-4),  # 100, and 10 measured
    Climber("03_fast", "many", (1000, 1000, 1000), 2e-4, "memory", 4e-4),  # 10 TFLOP/s, and 5 measured
)


def list_pictures() -> str:
    """Each picture's name and size, and its marks with all their places."""
    return "\n".join(
        f"── {drawing.title}, {drawing.width:g}×{drawing.height:g}: {drawing.desc}\n{drawing.body}\n"
        for drawing in _pictures()
    )


def _pictures() -> Iterator[Drawing]:
    rising = [(0.0, 5.0), (1.0, 7.5), (2.0, math.inf), (4.0, 9.0)]
    falling = [(float(x), 10.0 / x) for x in (1, 2, 3)]
    for title, lines, down in (
        ("One line", [Line("", rising)], 0.0),
        ("Three lines", [Line("a", rising), Line("b", falling, dotted=True), Line("c", falling[1:])], 12.0),
        ("A level one", [Line("", [(3.0, 2.0), (8.0, 2.0)])], 0.0),
        ("A point", [Line("", [(3.0, -2.0)], dotted=True)], 0.0),
    ):
        drawing = Drawing(title, "Lines over two axes.", CHART_HEIGHT + down)
        draw_lines(drawing, title, ("across", "up"), lines, down)
        yield drawing
    ratios = [
        Ratio("first", "even", 1.0, (0.9, 1.2)), Ratio("second", "worse", 0.4, (0.5, 0.6)),
        Ratio("first", "better", 2.5, (1.5, 2.0)),
    ]  # fmt: skip
    yield draw_ratios("Ratios", "below", ratios)
    yield draw_climb(CLIMBERS, "a GPU")
    drawing = Drawing("Marks", "One of each kind.", 90, 200)
    drawing.rect(1, 2.5, 30, 40.125, "f-good", "a tip", corner=4)
    drawing.arrow(10, 10, 40, 50)
    drawing.arrow(10, 10, 10, 10, "bad")
    drawing.circle(5, 6, 7.333, "f-warp", "another")
    with drawing.group("some", "half"):
        drawing.cells(
            0,
            10,
            60,
            40,
            [[1, 1, 2], [1, 1, 2], [0, 3, 3], [2, 2, 2]],
            {1: "f-block", 2: "f-warp", 3: "f-good"},
        )
    inner = Drawing("Inner", "A part.", 10)
    inner.text(1, 2, "within", anchor="end")
    drawing.place(inner, 3.5, 4)
    yield drawing


if __name__ == "__main__":
    GOLDEN.write_text(list_pictures(), encoding="utf-8")
