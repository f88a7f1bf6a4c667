"""The climb: how far each rung of the ladder may come at most, what binds it, and how far it came on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.limits import show_time
from tilewise.explain.svg import WIDTH, Drawing

__all__ = ["Climber", "draw_climb", "make_climb", "show_rate"]

_LEFT, _TOP, _ROW, _RIGHT = 196.0, 66.0, 31.0, 150.0
_WIDE = WIDTH - _LEFT - _RIGHT


@dataclass(frozen=True, slots=True)
class Climber:
    """A rung in the climb. ``seconds`` is the least that a product of its size takes, ``measured`` what it took."""

    name: str
    title: str
    size: tuple[int, int, int]
    seconds: float
    bound: str
    measured: float | None

    @property
    def rate(self) -> float:
        """Operations a second at most."""
        return self._rate(self.seconds)

    @property
    def measured_rate(self) -> float | None:
        """Operations a second that were reached."""
        return self._rate(self.measured) if self.measured else None

    def _rate(self, seconds: float) -> float:
        m, n, k = self.size
        return 2 * m * n * k / seconds


def show_rate(rate: float) -> str:
    """Operations a second in the unit that suits them."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}FLOP/s"
    return f"{rate / 1e6:.3g} MFLOP/s"


def draw_climb(climbers: Sequence[Climber], gpu: str) -> Drawing:
    """The picture: a line a rung, over powers of ten of operations a second."""
    rates = [rate for one in climbers for rate in (one.rate, one.measured_rate) if rate]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    foot = _TOP + len(climbers) * _ROW
    drawing = Drawing(
        f"The rungs of the ladder on {gpu}",
        "; ".join(f"{one.name}: at most {show_rate(one.rate)}{_measured_text(one)}" for one in climbers),
        foot + 58,
    )

    def place(rate: float) -> float:
        return _LEFT + (math.log10(rate) - low) / (high - low) * _WIDE

    drawing.text(16, 24, f"Operations a second on {gpu}, each mark ten times the one before", "bold")
    for power in range(low, high + 1):
        x = place(10.0**power)
        drawing.line(x, _TOP - 8, x, foot - 6)
        drawing.text(x, _TOP - 16, show_rate(10.0**power).removesuffix("FLOP/s"), "small muted", "middle")
    for i, one in enumerate(climbers):
        y = _TOP + i * _ROW + 8
        drawing.text(_LEFT - 14, y + 5, one.name, "", "end")
        x = place(one.rate)
        if one.measured_rate:
            drawing.line(place(one.measured_rate), y, x, y, "s-block")
        drawing.circle(x, y, 7, "f-bg s-block thick", f"at most: {show_rate(one.rate)}")
        if one.measured_rate:
            drawing.circle(
                place(one.measured_rate), y, 4, "f-block", f"measured: {show_rate(one.measured_rate)}"
            )
        shown = show_rate(one.measured_rate or one.rate)
        drawing.text(x + 14, y + 5, shown, "small bold" if one.measured_rate else "small")
    drawing.circle(_LEFT + 6, foot + 24, 4, "f-block")
    drawing.text(_LEFT + 20, foot + 29, "measured", "small")
    drawing.circle(_LEFT + 116, foot + 24, 7, "f-bg s-block thick")
    drawing.text(_LEFT + 130, foot + 29, "at most: the part of the GPU that is busy longest binds", "small")
    return drawing


def make_climb(climbers: Sequence[Climber], gpu: str, source: str) -> Panel:
    """The panel. ``source`` says where measured times are from."""
    first, last = climbers[0], climbers[-1]
    best = max(climbers, key=lambda one: one.rate)
    answer = f"From {show_rate(first.rate)} of {first.name} to {show_rate(best.rate)} of {best.name}, at most"
    if first.measured_rate and last.measured_rate:
        reached = last.measured_rate / first.measured_rate
        answer += f"; measured, the last rung is {reached:,.0f} times as fast as the first"
    facts = []
    for one in (first, last):
        rate = f"{one.rate / 1e12:.4g}"
        facts.append(Fact(f"climb.{one.name}", f"{one.name}, at most", rate, "TFLOP/s", "model"))
        if one.measured_rate:
            rate = f"{one.measured_rate / 1e12:.4g}"
            facts.append(Fact(f"climb.{one.name}.measured", one.name, rate, "TFLOP/s", "measured"))
    rows = [_row(one) for one in climbers]
    return Panel(
        "climb", "What does each rung bring?", f"{answer}. {source}".strip(), draw_climb(climbers, gpu), facts,
        Table(("rung", "what it is", "size", "at least", "bound by", "measured", "of the limit"), rows),
        guess="One thread, then all of them, then tensor cores. How many times faster is the last rung?",
    )  # fmt: skip


def _measured_text(one: Climber) -> str:
    return f", measured {show_rate(one.measured_rate)}" if one.measured_rate else ""


def _row(one: Climber) -> tuple[str, ...]:
    size = "×".join(map(str, one.size))
    found = one.name, one.title, size, show_time(one.seconds), one.bound
    if one.measured is None:
        return (*found, "", "")
    return (*found, show_time(one.measured), f"{one.seconds / one.measured:.0%}")
