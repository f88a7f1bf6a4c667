"""How far from the limit? How long each part of the GPU is busy at least, and what would move the limit."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.roofline import RooflineBound
from tilewise.instruments.verdict import Gain

__all__ = ["make_limits", "show_time"]

_LEFT, _TOP, _STEP = 236.0, 56.0, 30.0
_WIDE = WIDTH - _LEFT - 130


def show_time(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def make_limits(subject: Subject) -> Panel | None:
    """The panel; None where nothing was counted."""
    profile = subject.profile
    counted = profile.machine.accesses or profile.machine.ran
    bounds = [bound for bound in profile.roofline.bounds if bound.seconds > 0] if counted else []
    if not bounds:
        return None
    bounds.sort(key=lambda bound: -bound.seconds)
    gains = list(profile.verdict.gains) if profile.verdict else []
    drawing = Drawing(
        "How long each part of the GPU is busy at least",
        "; ".join(f"{bound.name} {show_time(bound.seconds)}" for bound in bounds),
        _TOP + len(bounds) * _STEP + (64 + len(gains) * 46 if gains else 20),
    )
    drawing.text(24, 26, f"Busy at least, on {profile.gpu.title}", "bold")
    _draw_bounds(drawing, bounds)
    _draw_gains(drawing, gains, bounds[0].seconds, _TOP + len(bounds) * _STEP + 34)
    most = round(bounds[0].seconds * 1e6, 4)
    code = "explanation.subject.profile.roofline"
    facts = [
        Fact("limits.bound", "the limit", most, "µs", "model", f"round({code}.seconds * 1e6, 4)"),
        Fact("limits.flops", "operations", int(profile.roofline.flops), code=f"{code}.flops"),
    ]
    rows = [
        (bound.name, f"{bound.amount:,.4g} {bound.unit}", f"{bound.rate:,.4g}", show_time(bound.seconds))
        for bound in bounds
    ]
    return Panel(
        "limits", "How far from the limit?", _answer(bounds, gains), drawing, facts,
        Table(("part", "amount", "a second", "busy at least"), rows),
    )  # fmt: skip


def _answer(bounds: Sequence[RooflineBound], gains: Sequence[Gain]) -> str:
    uneven = max(bound.uneven for bound in bounds)
    answer = f"{_capital(bounds[0].name)} takes longest: {show_time(bounds[0].seconds)} at least"
    answer += f"; the busiest SM has {uneven:.3g} times its share." if uneven > 1.005 else "."
    if gains:
        answer += f" {_capital(gains[0].what)} cost most: without, {show_time(gains[0].seconds)}."
    return answer


def _draw_bounds(drawing: Drawing, bounds: Sequence[RooflineBound]) -> None:
    for i, bound in enumerate(bounds):
        y, wide = _TOP + i * _STEP, _WIDE * bound.seconds / bounds[0].seconds
        drawing.text(_LEFT - 12, y + 14, bound.name, "", "end")
        drawing.rect(_LEFT, y, max(wide, 1), 19, "f-block" if i == 0 else "f-muted half")
        shown = show_time(bound.seconds) + ("  binds" if i == 0 else "")
        drawing.text(_LEFT + wide + 8, y + 14, shown, "bold" if i == 0 else "")


def _draw_gains(drawing: Drawing, gains: Sequence[Gain], most: float, top: float) -> None:
    if gains:
        drawing.text(24, top, "The limit, if one thing alone were mended", "bold")
    for i, gain in enumerate(gains):
        y, wide = top + 18 + i * 46, (WIDTH - 150) * gain.seconds / most
        drawing.text(24, y + 10, gain.what, "small")
        drawing.rect(24, y + 16, wide, 16, "f-good")
        drawing.rect(24 + wide, y + 16, WIDTH - 150 - wide, 16, "f-good faint")
        drawing.text(WIDTH - 118, y + 29, f"{show_time(gain.seconds)}, {gain.times:.3g}×", "")
