"""The verdict on a plan: what the predicted time is spent on, and what would shorten it.

What would be gained is evaluated, not guessed: the best plan again, for operands with the one thing mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewise.errors import ArgumentError
from tilewise.operands import ALIGNMENT_MOST, Operand, Operands, ceil_div
from tilewise.planner.choose import choose
from tilewise.planner.target import Target

__all__ = ["PlanGain", "PlanVerdict", "judge_plan"]

_LEAST_SHARE = 0.03  # of the time: a term that is worth naming
_LEAST_GAIN = 1.05
_MOST_TERMS = 6
_BESIDE = ("memory", "power")  # terms that run beside the others


@dataclass(frozen=True, slots=True)
class PlanGain:
    """One thing that could be otherwise, and the predicted seconds of the best plan if it were."""

    what: str
    seconds: float
    times: float  # how much less that is
    kernel: str


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """What a plan is predicted to take, what it is spent on (the most first), and what would shorten it."""

    gpu: str
    kernel: str
    seconds: float
    bound: str
    rate: float  # operations a second
    terms: tuple[tuple[str, float], ...]
    gains: tuple[PlanGain, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """What to print, the answer first."""
        head = f"{self.seconds * 1e6:,.1f} µs predicted on {self.gpu} by {self.kernel}, {self.rate / 1e12:,.1f} TFLOP/s"
        head += f", bound by {self.bound}"
        spent = [
            f"{name} {seconds * 1e6:,.2f} µs ({seconds / self.seconds:.0%})"
            for name, seconds in self.terms
            if name not in _BESIDE
        ]
        beside = [f"{name} {seconds * 1e6:,.2f} µs" for name, seconds in self.terms if name in _BESIDE]
        found = [head, f"  spent on {', '.join(spent)}{'; beside these ' * bool(beside)}{', '.join(beside)}"]
        found += [
            f"{gain.what}: {gain.seconds * 1e6:,.1f} µs by {gain.kernel}, {gain.times:.3g} times less"
            for gain in self.gains
        ]
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())


def judge_plan(operands: Operands, target: Target, *, copy: bool | None = None) -> PlanVerdict:
    """The verdict on the best plan for these operands."""
    best = choose(operands, target, copy=copy)
    spent = best.prediction.seconds
    terms = sorted(best.prediction.terms.items(), key=lambda term: -term[1])
    named = [(name, seconds) for name, seconds in terms if seconds >= _LEAST_SHARE * spent]
    gains = []
    for what, changed in _changes(operands):
        try:
            other = choose(changed, target, copy=copy)
        except ArgumentError:  # no kernel has it
            continue
        times = spent / other.prediction.seconds
        if times >= _LEAST_GAIN:
            gains.append(PlanGain(what, other.prediction.seconds, times, other.spec.name))
    gains.sort(key=lambda gain: -gain.times)
    rate = operands.problem().flops / spent if spent else 0.0
    return PlanVerdict(
        target.name,
        best.spec.name,
        spent,
        best.prediction.bound,
        rate,
        tuple(named[:_MOST_TERMS]),
        tuple(gains),
    )


def _changes(operands: Operands) -> Iterator[tuple[str, Operands]]:
    """Operands with one thing otherwise, each with its words."""
    padded = operands._replace(a=_pad(operands.a), b=_pad(operands.b), c=_pad(operands.c))
    if padded != operands and not any(one.stack for one in operands[:3]):
        yield "rows that begin at multiples of 16 bytes", padded
    if operands.a.dtype == "float32" and not operands.arithmetic:
        yield 'arithmetic="exact32"', operands._replace(arithmetic="exact32")
        yield 'arithmetic="tf32"', operands._replace(arithmetic="tf32")
    if operands.a.dtype == "float16" and not operands.arithmetic:
        yield 'arithmetic="f16"', operands._replace(arithmetic="f16")


def _pad(operand: Operand) -> Operand:
    """The matrix with rows, or columns, that begin at multiples of 16 bytes."""
    step = ALIGNMENT_MOST // operand.itemsize
    if operand.layout == "row" and operand.rows > 1:
        return replace(operand, row_stride=ceil_div(operand.row_stride, step) * step)
    if operand.layout == "column" and operand.columns > 1:
        return replace(operand, column_stride=ceil_div(operand.column_stride, step) * step)
    return operand
