"""What changed? A figure of two rungs, one above the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.explain.panel import Panel
from tilewise.explain.svg import Drawing

__all__ = ["make_beside"]

_HEAD = 40.0


def make_beside(rungs: Mapping[str, Sequence[Panel]], first: Sequence[str]) -> Panel:
    """The panel: the figures of all rungs, of which any two can be chosen; drawn are the banks of ``first``, or what
    both have."""
    panels = {name: {panel.key: panel for panel in listed} for name, listed in rungs.items()}
    questions = {panel.key: panel.question for listed in rungs.values() for panel in listed}
    both = [key for key in questions if all(key in panels[name] for name in first)]
    key = "banks" if "banks" in both else both[0]
    above, below = (panels[name][key] for name in first)
    drawing = Drawing(
        f"{first[0]} and {first[1]}",
        f"{first[0]}: {above.answer} {first[1]}: {below.answer}",
        2 * _HEAD + above.figure.height + below.figure.height,
    )
    top = 0.0
    for name, panel in zip(first, (above, below), strict=True):
        drawing.text(16, top + 26, name, "large bold")
        drawing.place(panel.figure, 0, top + _HEAD)
        top += _HEAD + panel.figure.height
    figures = {
        name: {panel.key: [panel.figure.height, panel.answer, panel.figure.body] for panel in listed}
        for name, listed in rungs.items()
    }
    chosen = [*(list(rungs).index(name) for name in first), list(questions).index(key)]
    data = {
        "rungs": list(rungs),
        "figures": figures,
        "questions": list(questions.items()),
        "chosen": chosen,
        "head": _HEAD,
    }
    said = " ".join(f"{name}: {panel.answer}" for name, panel in zip(first, (above, below), strict=True))
    answer = f"Two rungs, one above the other. Here: {questions[key].lower()} {said}"
    return Panel("beside", "What changes from rung to rung?", answer, drawing, data=data)
