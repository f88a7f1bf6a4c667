"""Fit the cost model to plans that were measured: least squares on the logarithm of their times.

``python -m tilewise.planner.fit docs/results/plans-*.json`` prints the constants, and how good the choice is
with them: on all problems, and on those of one half when fitted on the other. Plans near the best of their problem
count more, since the choice is among them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.epilogue import epilogue
from tilewise.gpus import from_driver_name
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.arrange import ways_to_read
from tilewise.kernels.gemm.wgmma_shapes import BOX
from tilewise.kernels.spec import KernelSpec, Work
from tilewise.operands import ALIGNMENT_MOST, Operand, Operands, ceil_div
from tilewise.planner.constants import FITTED, Constants, UnitCost
from tilewise.planner.cost import copy_seconds, predict_work
from tilewise.planner.listing import operands_of
from tilewise.planner.target import Target, target_of
from tilewise.problem import Problem

__all__ = [
    "Key",
    "Measured",
    "Quality",
    "fit",
    "get_constant",
    "judge",
    "read",
    "read_of_gpu",
    "set_constants",
]

FIXED = (
    "clock", "memory_bandwidth", "launch", "watts", "mma8.memory_share", "mma8.macs_per_clock",
    *(f"{unit}.{name}" for unit in ("general", "general64") for name in ("macs_per_clock", "memory_share", "waits")),
    *(f"{unit}.{name}" for unit in ("vector", "vector_rows") for name in ("macs_per_clock", "store_bytes_per_clock")),
    *(f"{unit}.memory_latency_clocks" for unit in ("general", "general64")), "general64.latency_clocks",
    "vector_rows.memory_share",
)  # fmt: skip
"""Constants that are as the GPU's row or its driver says, or that the data cannot tell from another."""

_ANY_WIDTH = "2026-11-27"  # since when tiles of all widths are stored alike
_SHARED_PARTS = "2026-11-27T04"  # since when several threads may add up the parts of the same sums
_WHOLE_LINES = "2026-11-27T17"  # since when copies lie at whole lines of the memory
_TURNS = 25
_STEP = 1e-4  # of a logarithm, for derivatives
_LEASH = 0.02  # how much a constant is held where it was: for those that the data says nothing of
_WEIGHT_LEAST = 0.15

Vector = npt.NDArray[np.float64]
Key = tuple[str, Problem]


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan that was measured: what it does, and how long that took."""

    run: str  # its results file: times of one run compare, those of two may not
    problem: Problem
    kernel: str
    settings: Mapping[str, int | str]
    seconds: float
    operands: Operands  # as the kernel reads them: after the copies
    inner: Operands  # what one launch takes of them
    sources: Operands  # as they lie
    work: Work

    @property
    def key(self) -> Key:
        """What its time compares with: the problem in its run."""
        return self.run, self.problem

    def predict(self, target: Target) -> float:
        """Seconds that the cost model predicts."""
        copying = copy_seconds(self.operands, self.sources, target)
        return predict_work(self.work, self.inner, self.operands, copying, target).seconds


def read_of_gpu(paths: Iterable[str | Path], gpu: str) -> list[Measured]:
    """The plans of those results files that were measured on this GPU of the table."""
    return [one for path in paths if _measured_on(path) == gpu for one in read(path)]


def _measured_on(path: str | Path) -> str:
    title = json.loads(Path(path).read_text(encoding="utf-8"))["gpu"].partition(",")[0]
    row = from_driver_name(title)
    return row.name if row else ""


def read(path: str | Path) -> list[Measured]:
    """The measured plans of a results file, as ``bench plans`` writes them or with values alone as settings.

    A plan is its kernel, its settings, and last its microseconds; a table names the settings that values are of.
    """
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    found = []
    for entry in data["problems"]:
        m, n, k = entry["size"]
        rest = {name: entry[name] for name in ("batch", "layout", "arithmetic", "b_dtype") if name in entry}
        if entry.get("scaled"):  # as the rows of weights are that tw.quantize made
            rest["epilogue"] = epilogue("acc * scale", scale=np.ones((1, n), "float32"))
            rest["result"] = entry["dtype"]
        operands = operands_of(m, n, k, dtype=entry["dtype"], **rest)
        for kernel, values, *_, microseconds in entry["plans"]:
            named = isinstance(values, dict)
            settings = values if named else dict(zip(data["settings"][kernel], values, strict=True))
            date = data.get("date", _SHARED_PARTS)
            one = _measured(Path(path).name, operands, KERNELS[kernel], settings, microseconds * 1e-6, date)
            found.append(_as_it_was(one, date))
    return found


def _as_it_was(one: Measured, date: str) -> Measured:
    """With the work that its kernel did when it was measured."""
    if date < _SHARED_PARTS:
        one = replace(one, work=replace(one.work, parts_in_turn=one.work.parts))
    columns = one.work.block.n
    if date >= _ANY_WIDTH or one.kernel != "wgmma" or columns % BOX == 0 or columns <= BOX // 2:
        return one
    return replace(one, work=replace(one.work, whole_boxes=False))


def _measured(
    run: str, operands: Operands, spec: KernelSpec, settings: Mapping[str, object], seconds: float, date: str
) -> Measured:
    complete = spec.complete({**spec.for_types(operands), **settings})
    ways = [read for read, _ in ways_to_read(spec, operands)]  # of which the settings are those of one
    reads = next((read for read in ways if spec.why_not(read, complete) is None), ways[0])
    if date < _WHOLE_LINES:
        reads = reads._replace(a=_copied_closely(reads.a), b=_copied_closely(reads.b))
    newer = {name: holds for name, holds in spec.promises(reads, complete).items() if name not in settings}
    complete |= newer  # than the file
    inner = reads.inner(spec.stack_axes)
    work = spec.work(inner, complete)
    return Measured(run, operands.problem(), spec.name, complete, seconds, reads, inner, operands, work)


def _copied_closely(one: Operand) -> Operand:
    """A copy with its lines as near as they may be; any other operand as it is."""
    if not one.name.startswith("copy_"):
        return one
    lines = one if one.column_stride == 1 else one.transposed()
    pitch = (
        max(ceil_div(lines.columns * lines.itemsize, ALIGNMENT_MOST), 1) * ALIGNMENT_MOST // lines.itemsize
    )
    stack = tuple(step // lines.row_stride * pitch for step in lines.stack)
    closer = replace(lines, row_stride=pitch, stack=stack)
    return closer if one.column_stride == 1 else closer.transposed()


@dataclass(frozen=True, slots=True)
class Quality:
    """How good choices are: each problem's chosen plan against its best, and the times that were predicted."""

    ratios: Mapping[Key, float]
    errors: tuple[float, ...]  # |log(predicted / measured)| of all plans

    def within(self, ratio: float) -> float:
        """The share of problems whose chosen plan takes at most so many times the best one's time."""
        return sum(value <= ratio for value in self.ratios.values()) / len(self.ratios)

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return max(self.ratios.values())

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return math.exp(sum(math.log(value) for value in self.ratios.values()) / len(self.ratios))

    @property
    def median_error(self) -> float:
        """The median of the errors of the logarithm."""
        return float(np.median(self.errors))

    def __str__(self) -> str:
        return (
            f"{len(self.ratios)} problems: {self.within(1.05):.1%} within 5 % of the best plan, "
            f"worst {self.worst:.3f}, mean {self.mean:.4f}; median error of times {self.median_error:.1%}"
        )


def judge(measured: Iterable[Measured], target: Target) -> Quality:
    """How good the choices among measured plans are."""
    by_problem: dict[Key, list[tuple[float, float]]] = {}
    for one in measured:
        by_problem.setdefault(one.key, []).append((one.predict(target), one.seconds))
    ratios = {key: min(plans)[1] / min(s for _, s in plans) for key, plans in by_problem.items()}
    errors = [abs(math.log(p / s)) for plans in by_problem.values() for p, s in plans]
    return Quality(ratios, tuple(errors))


def fit(measured: Sequence[Measured], target: Target) -> Constants:
    """The constants that predict these plans best, from the target's on."""
    begin = target.constants
    names = [name for name in _names(begin) if _used(name, measured)]
    times = np.log([one.seconds for one in measured])
    best: dict[Key, float] = {}
    for one in measured:
        best[one.key] = min(one.seconds, best.get(one.key, math.inf))
    weights = np.array([max(best[one.key] / one.seconds, _WEIGHT_LEAST) for one in measured])
    first = np.log([get_constant(begin, name) for name in names])

    def errors(values: Vector) -> Vector:
        trial = replace(target, constants=set_constants(begin, dict(zip(names, np.exp(values), strict=True))))
        predicted = np.log([one.predict(trial) for one in measured])
        found: Vector = np.concatenate([weights * (predicted - times), _LEASH * (values - first)])
        return found

    return set_constants(begin, dict(zip(names, np.exp(_least_squares(errors, first)), strict=True)))


def _least_squares(errors: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Levenberg's and Marquardt's method."""
    at, damping = start, 1e-2
    found = errors(at)
    for _ in range(_TURNS):
        columns = [(errors(at + _STEP * unit) - found) / _STEP for unit in np.eye(len(at))]
        slopes = np.stack(columns, axis=1)
        square, gradient, cost = slopes.T @ slopes, slopes.T @ found, found @ found
        for _ in range(8):
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -gradient)
            trial = at + np.asarray(np.clip(step, -0.5, 0.5), np.float64)
            tried = errors(trial)
            if tried @ tried < cost:
                break
            damping *= 4
        else:
            return at
        at, found, damping = trial, tried, damping / 3
        if cost - found @ found < 1e-6 * cost:
            return at
    return at


# ── constants by name: "launch", "wgmma.macs_per_clock" ──────────────────────────────────────────────────


def _names(constants: Constants) -> list[str]:
    plain = [one.name for one in fields(Constants) if one.name not in ("units", "cluster_share")]
    units = [f"{unit}.{one.name}" for unit in constants.units for one in fields(UnitCost)]
    return [
        name
        for name in (*plain, *units)
        if name not in FIXED and 0 < get_constant(constants, name) < math.inf
    ]


def _used(name: str, measured: Sequence[Measured]) -> bool:
    unit = name.partition(".")[0]
    return "." not in name or any(one.work.unit == unit for one in measured)


def get_constant(constants: Constants, name: str) -> float:
    """A constant by its name, such as "watts", or "wgmma.start_clocks" of a unit."""
    unit, _, of_unit = name.rpartition(".")
    return float(getattr(constants.units[unit] if unit else constants, of_unit))


def set_constants(constants: Constants, values: Mapping[str, float]) -> Constants:
    """The constants with those that are named set to these values."""
    units = dict(constants.units)
    plain: dict[str, Any] = {}
    for name, value in values.items():
        unit, _, of_unit = name.rpartition(".")
        if unit:
            changed: dict[str, Any] = {of_unit: float(value)}
            units[unit] = replace(units[unit], **changed)
        else:
            plain[of_unit] = float(value)
    return replace(constants, units=units, **plain)


def cross_validate(measured: Sequence[Measured], target: Target, seed: int) -> Quality:
    """How good the choice is on problems that the constants were not fitted to: one half by the other, both ways."""
    problems = list(dict.fromkeys(one.problem for one in measured))
    order = np.random.default_rng(seed).permutation(len(problems))
    half = {problems[i] for i in order[: len(problems) // 2]}
    parts = [[one for one in measured if (one.problem in half) is inside] for inside in (True, False)]
    judged = [
        judge(other, replace(target, constants=fit(part, target)))
        for part, other in zip(parts, reversed(parts), strict=True)
    ]
    return Quality({**judged[0].ratios, **judged[1].ratios}, judged[0].errors + judged[1].errors)


def _blurred(constants: Constants) -> Constants:
    """Constants off by a factor of up to two, so that a cross-validation does not begin at what it is to find."""
    random = np.random.default_rng(0)
    return set_constants(
        constants,
        {name: get_constant(constants, name) * 2 ** random.uniform(-1, 1) for name in _names(constants)},
    )


def main(paths: Sequence[str]) -> None:
    """Fit, and print the constants and how good they are."""
    measured, target = read_of_gpu(paths, "h200"), target_of("h200")
    fitted = replace(target, constants=fit(measured, target))
    for name in _names(fitted.constants):
        print(f"{name:<32} {get_constant(fitted.constants, name):.4g}")
    print("as they are ", judge(measured, target))
    print("fitted anew ", judge(measured, fitted))
    blurred = replace(target, constants=_blurred(FITTED["h200"]))
    for seed in range(3):
        print("halves      ", cross_validate(measured, blurred, seed))


if __name__ == "__main__":
    main(sys.argv[1:])
