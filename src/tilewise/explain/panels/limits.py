"""How far from the limit? How long each part of the GPU is busy at least, and what would move the limit."""

from __future__ import annotations

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing

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
    bounds = (
        [bound for bound in profile.roofline.bounds if bound.seconds > 0]
        if profile.machine.accesses or profile.machine.ran
        else []
    )
    if not bounds:
        return None
    verdict = profile.verdict
    gains = list(verdict.gains) if verdict else []
    bounds.sort(key=lambda bound: -bound.seconds)
    most = bounds[0].seconds
    drawing = Drawing(
        "How long each part of the GPU is busy at least",
        "; ".join(f"{bound.name} {show_time(bound.seconds)}" for bound in bounds),
        _TOP + len(bounds) * _STEP + (64 + len(gains) * 46 if gains else 20),
    )
    drawing.text(24, 26, f"Busy at least, on {profile.gpu.title}", "bold")
    for i, bound in enumerate(bounds):
        y = _TOP + i * _STEP
        drawing.text(_LEFT - 12, y + 14, bound.name, "", "end")
        drawing.rect(
            _LEFT, y, max(_WIDE * bound.seconds / most, 1), 19, "f-block" if i == 0 else "f-muted half"
        )
        drawing.text(
            _LEFT + _WIDE * bound.seconds / most + 8,
            y + 14,
            show_time(bound.seconds) + ("  binds" if i == 0 else ""),
            "bold" if i == 0 else "",
        )
    top = _TOP + len(bounds) * _STEP + 34
    if gains:
        drawing.text(24, top, "The limit, if one thing alone were mended", "bold")
    for i, gain in enumerate(gains):
        y = top + 18 + i * 46
        drawing.text(24, y + 10, gain.what, "small")
        drawing.rect(24, y + 16, (WIDTH - 150) * gain.seconds / most, 16, "f-good")
        drawing.rect(
            24 + (WIDTH - 150) * gain.seconds / most,
            y + 16,
            (WIDTH - 150) * (1 - gain.seconds / most),
            16,
            "f-good faint",
        )
        drawing.text(WIDTH - 118, y + 29, f"{show_time(gain.seconds)}, {gain.times:.3g}×", "")
    uneven = max(bound.uneven for bound in bounds)
    answer = f"{_capital(bounds[0].name)} takes longest: {show_time(most)} at least"
    answer += f"; the busiest SM has {uneven:.3g} times its share." if uneven > 1.005 else "."
    if gains:
        answer += f" {_capital(gains[0].what)} cost most: without, {show_time(gains[0].seconds)}."
    facts = [
        Fact(
            "limits.bound",
            "the limit",
            round(most * 1e6, 4),
            "µs",
            "model",
            "round(explanation.subject.profile.roofline.seconds * 1e6, 4)",
        ),
        Fact(
            "limits.flops",
            "operations",
            int(profile.roofline.flops),
            code="explanation.subject.profile.roofline.flops",
        ),
    ]
    rows = [
        (bound.name, f"{bound.amount:,.4g} {bound.unit}", f"{bound.rate:,.4g}", show_time(bound.seconds))
        for bound in bounds
    ]
    return Panel(
        "limits", "How far from the limit?", answer, drawing, facts,
        Table(("part", "amount", "a second", "busy at least"), rows),
    )  # fmt: skip
