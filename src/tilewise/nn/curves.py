"""Learning curves as a picture."""

from __future__ import annotations

from tilewise.explain.chart import CHART_HEIGHT, Line, Point, draw_lines
from tilewise.explain.svg import Drawing
from tilewise.nn.float64_model import LossCurves
from tilewise.nn.training import TrainingFigures

__all__ = ["draw_comparison", "draw_learning"]

_TITLE_MOST = 82  # letters that a picture has room for, of the bold ones


def draw_learning(figures: TrainingFigures) -> str:
    """The loss of training and of the test, and the test's accuracy, over epochs."""
    training: list[Point] = []
    for epoch in figures.epochs:
        for number, loss in enumerate(epoch.curve):
            first = number * epoch.steps_a_point
            middle = (
                first + min(first + epoch.steps_a_point, epoch.steps)
            ) / 2  # the last one may be shorter
            training.append((epoch.epoch - 1 + middle / epoch.steps, loss))
    tested = [(float(epoch.epoch), epoch.loss) for epoch in figures.epochs]
    accuracy = [(float(epoch.epoch), epoch.accuracy * 100) for epoch in figures.epochs]
    hidden = figures.options.hidden
    title = f"784-{hidden}-{hidden}-{hidden}-10 on {figures.title}: {figures.source}"
    reached = f"accuracy at the end: {figures.accuracy:.2%}"
    drawing = Drawing(title, f"Losses over {len(figures.epochs)} epochs; {reached}", 2 * CHART_HEIGHT)
    losses = [Line("training", training), Line("test", tested, True)]
    draw_lines(drawing, _shorten(title), ("epoch", "loss"), losses)
    test = [Line("test", accuracy, True)]
    draw_lines(drawing, reached, ("epoch", "accuracy of the test in %"), test, CHART_HEIGHT)
    return drawing.to_svg()


def draw_comparison(curves: LossCurves, title: str) -> str:
    """The loss of each step, here and in float64, and how far the two are apart."""
    here = [(float(i + 1), loss) for i, loss in enumerate(curves.here)]
    there = [(float(i + 1), loss) for i, loss in enumerate(curves.float64)]
    apart = [(at, abs(one - other)) for (at, one), (_, other) in zip(here, there, strict=True)]
    text = f"distance of the two: {curves.farthest:.2g} at most; with the same weights {curves.share:.2f} of the bound"
    drawing = Drawing(title, text, 2 * CHART_HEIGHT)
    lines = [Line("kernels, float16 with float32 weights", here), Line("float64", there)]
    draw_lines(drawing, title, ("step", "loss"), lines)
    draw_lines(drawing, text, ("step", "distance"), [Line("distance", apart)], CHART_HEIGHT)
    return drawing.to_svg()


def _shorten(title: str) -> str:
    """A title with its beginning and the end of its path, where all of it has no room."""
    if len(title) <= _TITLE_MOST:
        return title
    half = _TITLE_MOST // 2
    return f"{title[:half]}…{title[1 + half - _TITLE_MOST :]}"
