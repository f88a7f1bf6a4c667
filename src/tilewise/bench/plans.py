"""Every plan that the planner proposes, measured on a GPU: how good its first choice is.

Device time: each plan's launches are captured in a graph, in a row over rotated buffers, and the graphs of a problem
replayed in turns. A plan's result is checked before it is timed: that of the first with float64, others with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.bench import environment as here
from tilewise.bench.plan_trials import ProductArrays, ReadyPlan, bind_all, make_ready, time_in_turns
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.devices.gpu import GpuDevice
from tilewise.operands import Operand, Operands
from tilewise.planner import Candidate, list_candidates, operands_of, target_of_device
from tilewise.reference import compare

__all__ = [
    "NEAR",
    "PROBLEMS",
    "MeasuredPlan",
    "MeasuredPlans",
    "PlanTimes",
    "Problem",
    "SummaryRow",
    "bench_plans",
    "summary_rows",
]

NEAR = 1.05  # times the best plan's time: what counts as near it

Problem = tuple[str, str, int, int, int, int]  # dtype, layout, batch, m, n, k

_ROUNDS = 4  # and one before that is not counted
_WORTH = 6.0  # times the best prediction, beyond which a plan is not measured
_ROWS = 24  # of a result that are checked


def _shapes(
    dtype: str, *sizes: tuple[int, int, int], layout: str = "nn", batch: int = 1
) -> Iterator[Problem]:
    return ((dtype, layout, batch, *size) for size in sizes)


_CUBES = tuple((size,) * 3 for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192))
_WIDE = ((6144,) * 3, (4096, 6144, 4096), (8192, 10240, 8192), (4096, 24576, 1536), (4096, 32768, 512),
         (4096, 2112, 7168), (4224, 2048, 8192), (16384, 1024, 8192), (1024, 16384, 8192), (4093, 4093, 4093),
         (1024, 50257, 768))  # fmt: skip
_SKINNY = ((1, 28672, 4096), (1, 4096, 14336), (8, 6144, 4096), (16, 7168, 2048), (64, 2112, 7168),
           (64, 64, 16384), (256, 256, 16384))  # fmt: skip

PROBLEMS: tuple[Problem, ...] = (
    *_shapes("bfloat16", *_CUBES, *_WIDE, *_SKINNY),
    *_shapes("bfloat16", (512, 512, 512), (2048, 2048, 2048), (1, 28672, 4096), (129, 300, 77), layout="nt"),
    *_shapes("float32", *_CUBES[:7], (128, 4096, 4096), (1, 4096, 14336), (4096, 1, 4096), (35, 8457, 2560)),
    *_shapes("float32", (512, 512, 512), (64, 64, 64), (2048, 2048, 2048), layout="nt"),
    *_shapes("float32", (16, 16, 16), (64, 64, 64), batch=1000),
    *_shapes("float64", (64, 64, 64), (512, 512, 512), (2048, 2048, 2048), (1, 4096, 4096)),
    *_shapes("float16", (64, 64, 64), (300, 500, 700), (16, 4096, 4096), (1024, 1024, 64)),
    *_shapes("bfloat16", (512, 512, 512), (128, 128, 64), batch=64),
    # To try constants on that were fitted to the others.
    *_shapes("float32", (300, 300, 300), (100, 100, 5000), (1, 8192, 1024), (64, 10, 128), (32, 768, 784)),
    *_shapes("float32", (768, 768, 3072)),
    *_shapes("float32", (777, 333, 555), layout="tt"),
    *_shapes("float32", (2048, 64, 2048), layout="tn"),
    *_shapes("float32", (1, 1000, 1000), layout="nt"),
    *_shapes("float32", (32, 32, 32), batch=1000),
    *_shapes("float32", (1, 512, 512), batch=64),
    *_shapes("float32", (1, 512, 512), layout="nt", batch=64),
    *_shapes("bfloat16", (32, 4096, 4096), (200, 200, 200), (100, 300, 500), (28672, 1, 4096)),
    *_shapes("bfloat16", (1024, 1024, 1024), layout="tn"),
    *_shapes("bfloat16", (256, 256, 256), batch=16),
    *_shapes("float16", (4096, 1, 8192), (256, 256, 64), (32, 784, 512)),
    *_shapes("float16", (1024, 1024, 4096), layout="nt"),
    *_shapes("float64", (1024, 1024, 1024)),
    *_shapes("float64", (1, 4096, 4096), layout="nt"),
    *_shapes("float64", (64, 64, 64), batch=100),
)


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A plan with its prediction and its time; ``right`` is whether the result was within its bound."""

    kernel: str
    settings: Mapping[str, int | str]
    predicted: float
    seconds: float
    right: bool

    def to_list(self) -> list[Any]:
        """Kernel, settings, predicted and measured microseconds."""
        return [
            self.kernel,
            dict(self.settings),
            round(self.predicted * 1e6, 2),
            round(self.seconds * 1e6, 2),
        ]


@dataclass(frozen=True, slots=True)
class MeasuredPlans:
    """The plans of one problem, the best prediction first: the first is what a product takes."""

    problem: Problem
    plans: tuple[MeasuredPlan, ...]

    @property
    def chosen(self) -> MeasuredPlan:
        """The plan that a product takes."""
        return self.plans[0]

    @property
    def best(self) -> MeasuredPlan:
        """The fastest plan of those with right results; the chosen one if there is none."""
        right = [one for one in self.plans if one.right]
        return min(right or [self.chosen], key=lambda one: one.seconds)

    @property
    def ratio(self) -> float:
        """The chosen plan's time over the best one's."""
        return self.chosen.seconds / self.best.seconds

    @property
    def wrong(self) -> list[str]:
        """Kernels of plans whose result was beyond its bound."""
        return [one.kernel for one in self.plans if not one.right]

    def to_dict(self) -> dict[str, Any]:
        dtype, layout, batch, *size = self.problem
        return {
            "dtype": dtype,
            "layout": layout,
            "batch": batch,
            "size": size,
            "ratio": round(self.ratio, 4),
            "wrong": self.wrong,
            "plans": [one.to_list() for one in self.plans],
        }


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """What was measured on a GPU, and how near the choices are to the best plans."""

    date: str
    gpu: str
    problems: tuple[MeasuredPlans, ...]

    @property
    def near(self) -> float:
        """The share of problems whose chosen plan is within 5 % of the best one."""
        return sum(one.ratio <= NEAR for one in self.problems) / max(len(self.problems), 1)

    @property
    def worst(self) -> float:
        """The largest ratio of a chosen plan's time to the best one's."""
        return max((one.ratio for one in self.problems), default=1.0)

    @property
    def wrong(self) -> int:
        """How many plans had a result beyond its bound."""
        return sum(len(one.wrong) for one in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """What a result file holds; :func:`tilewise.planner.fit.read` reads it."""
        return {
            "benchmark": "plans",
            "date": self.date,
            "gpu": self.gpu,
            "versions": here.versions(),
            "near": round(self.near, 4),
            "worst": round(self.worst, 4),
            "wrong": self.wrong,
            "problems": [one.to_dict() for one in self.problems],
        }


class SummaryRow(NamedTuple):
    """A problem as a row of a table; times in microseconds."""

    problem: str
    chosen: str
    predicted: str
    measured: str
    best: str
    best_time: str
    ratio: str


def summary_rows(times: PlanTimes) -> list[SummaryRow]:
    """A row for each problem: what is chosen, how long it takes, and the best plan there is."""
    return [
        SummaryRow(
            _describe(one.problem),
            one.chosen.kernel,
            f"{one.chosen.predicted * 1e6:.1f}",
            f"{one.chosen.seconds * 1e6:.1f}",
            one.best.kernel,
            f"{one.best.seconds * 1e6:.1f}",
            f"{one.ratio:.2f}",
        )
        for one in times.problems
    ]


def _describe(problem: Problem) -> str:
    dtype, layout, batch, m, n, k = problem
    return f"{f'{batch} × ' if batch != 1 else ''}{m}×{n}×{k} {dtype} {layout}"


def bench_plans(
    device: GpuDevice, problems: Iterable[Problem] = PROBLEMS, progress: Progress = ignore_progress
) -> PlanTimes:
    """Measure the plans of each problem that the planner proposes for this GPU."""
    listed = list(problems)
    found = []
    for done, problem in enumerate(listed):
        progress(done, len(listed), _describe(problem))
        found.append(_measure(device, problem))
    return PlanTimes(datetime.now(UTC).date().isoformat(), device.title, tuple(found))


def _measure(device: GpuDevice, problem: Problem) -> MeasuredPlans:
    """The plans of a problem, each checked, and timed in turns with the others."""
    dtype, layout, batch, m, n, k = problem
    operands = operands_of(m, n, k, dtype=dtype, batch=batch, layout=layout)
    found, _ = list_candidates(operands, target_of_device(device))
    least = min(one.prediction.seconds for one in found)
    found = [one for one in found if one.prediction.seconds <= _WORTH * least]
    arrays = ProductArrays(device, operands)
    ready: list[ReadyPlan] = []
    for candidate, bound in zip(found, bind_all(device, operands, found), strict=True):
        ready.append(make_ready(bound, candidate.prediction.seconds, arrays))
        if len(ready) == 1:
            first_is_right = _is_right(arrays, operands, candidate)
    times = time_in_turns(device, ready, _ROUNDS)
    plans = [
        MeasuredPlan(
            candidate.spec.name,
            _chosen_settings(candidate),
            candidate.prediction.seconds,
            seconds,
            first_is_right and one.agrees_with(ready[0], operands),
        )
        for candidate, seconds, one in zip(found, times, ready, strict=True)
    ]
    return MeasuredPlans(problem, tuple(plans))


def _chosen_settings(candidate: Candidate) -> dict[str, int | str]:
    """The settings without those that the element types decide."""
    types = ("element", "result", "accumulate")
    return {name: value for name, value in candidate.settings.items() if name not in types}


def _is_right(arrays: ProductArrays, operands: Operands, candidate: Candidate) -> bool:
    """Whether some rows of the result, of its first and last product, are within their bound."""
    a, b, c = operands[:3]
    split = candidate.settings.get("split", 0)
    accumulate, terms = (
        candidate.spec.accumulate(candidate.settings),
        split if isinstance(split, int) else 0,
    )
    held = (arrays.host["a"], arrays.host["b"], arrays.result())
    rows = np.unique(np.linspace(0, c.rows - 1, _ROWS).astype(int))
    for which in {0, operands.batch - 1}:
        left, right, found = (
            _matrix(values, one, which) for values, one in zip(held, (a, b, c), strict=True)
        )
        if not compare(found[rows], left[rows], right, accumulate=accumulate, terms=terms).ok:
            return False
    return True


def _matrix(values: npt.NDArray[Any], operand: Operand, which: int) -> npt.NDArray[Any]:
    """One matrix of a dense stack, whichever way it lies."""
    size = operand.rows * operand.columns
    lines = values[which * size :][:size]
    if operand.layout == "row":
        return lines.reshape(operand.rows, operand.columns)
    return lines.reshape(operand.columns, operand.rows).T
