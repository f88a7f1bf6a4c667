"""What ``tilewise bench gemm`` found: a row for each product, and the classes summed up. Plain data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tilewise.bench.gemm_cases import GemmCase
from tilewise.plan import Plan

__all__ = [
    "OURS",
    "GemmFigures",
    "GemmRow",
    "GpuLoad",
    "Spread",
    "SuiteSummary",
    "Timing",
    "describe_plan",
    "geometric_mean",
    "summarise",
    "timed_row",
]

OURS = "tilewise"

Status = Literal["timed", "wrong", "failed", "skipped"]


class Spread(NamedTuple):
    """A median and the quartiles around it."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The quartiles of at least one sample."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        return cls(*statistics.quantiles(samples, n=4, method="inclusive"))


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What the GPU ran at while something was measured, on average."""

    clock_mhz: float
    watts: float
    celsius: float

    def to_dict(self) -> dict[str, float]:
        return {name: round(getattr(self, name), 1) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one product by each contender: round i of one beside round i of the others."""

    seconds: Mapping[str, Sequence[float]]
    loads: Mapping[str, GpuLoad] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GemmRow:
    """One product as measured. A ratio is the rival's time over ours: above 1, ours is faster."""

    case: GemmCase
    dtype: str
    status: Status
    note: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    worst_share_of_bound: float | None = None
    rival: str = ""
    times: Mapping[str, Spread] = field(default_factory=dict)  # seconds
    ratio: Spread | None = None
    loads: Mapping[str, GpuLoad] = field(default_factory=dict)
    launches: int = 0  # in a graph
    sets: int = 0  # of operands, in turn
    buffer_bytes: int = 0
    cold: bool = True  # whether the buffers are too large for L2
    spent: float = 0.0  # seconds from the first random number to the last check, compiling among them

    @property
    def seconds(self) -> float | None:
        """Our median time of one product."""
        return self.times[OURS].median if OURS in self.times else None

    @property
    def rival_seconds(self) -> float | None:
        """The rival's median time of one product."""
        return self.times[self.rival].median if self.rival in self.times else None

    @property
    def tflops(self) -> float | None:
        return self.case.flops(self.dtype) / self.seconds / 1e12 if self.seconds else None

    @property
    def gigabytes_per_second(self) -> float | None:
        return self.case.bytes(self.dtype) / self.seconds / 1e9 if self.seconds else None

    def to_dict(self) -> dict[str, Any]:
        case, spread = self.case, self.ratio
        return {
            "suite": case.suite,
            "size": [case.m, case.n, case.k],
            "batch": case.batch,
            "layout": case.layout,
            "fused": case.fused,
            "dtype": self.dtype,
            "status": self.status,
            "note": self.note,
            "right": self.status == "timed" if self.worst_share_of_bound is not None else None,
            "worst_share_of_bound": _digits(self.worst_share_of_bound),
            "rival": self.rival,
            "torch_us": _microseconds(self.rival_seconds),
            "us": _microseconds(self.seconds),
            "quartiles_us": {
                name: [_microseconds(one.low), _microseconds(one.high)] for name, one in self.times.items()
            },
            "contenders_us": {name: _microseconds(one.median) for name, one in self.times.items()},
            "ratio": _digits(spread.median if spread else None),
            "ratio_quartiles": [_digits(spread.low), _digits(spread.high)] if spread else None,
            "tflops": _digits(self.tflops),
            "gigabytes_per_second": _digits(self.gigabytes_per_second),
            **{name: self.plan.get(name) for name in _PLAN_KEYS},
            "loads": {name: load.to_dict() for name, load in self.loads.items()},
            "launches": self.launches,
            "sets": self.sets,
            "buffer_bytes": self.buffer_bytes,
            "cold": self.cold,
            "spent_seconds": round(self.spent, 2),
        }


_PLAN_KEYS = (
    "kernel",
    "partition",
    "stages",
    "split",
    "cluster",
    "raster",
    "copies",
    "predicted_us",
    "settings",
)


def describe_plan(plan: Plan) -> dict[str, Any]:
    """What was chosen, as a row has it."""
    types = ("element", "result", "accumulate")
    settings = {name: value for name, value in plan.parameters.items() if name not in types}
    block = plan.tiles.get("block")
    return {
        "kernel": plan.kernel,
        "partition": settings.get("partition", "" if block is None else f"{block.m}x{block.n}x{block.k}"),
        "stages": plan.stages,
        "split": plan.split,
        "cluster": str(settings.get("cluster", "")),
        "raster": plan.raster,
        "copies": list(plan.copies),
        "predicted_us": _microseconds(plan.seconds),
        "settings": settings,
    }


def timed_row(case: GemmCase, dtype: str, timing: Timing, **rest: Any) -> GemmRow:
    """The row of a product that was timed: its rival is the fastest of those that are not ours."""
    times = {name: Spread.of(samples) for name, samples in timing.seconds.items()}
    rival = min((name for name in times if name != OURS), key=lambda name: times[name].median)
    pairs = zip(timing.seconds[rival], timing.seconds[OURS], strict=True)
    ratio = Spread.of([theirs / ours for theirs, ours in pairs])
    return GemmRow(case, dtype, "timed", rival=rival, times=times, ratio=ratio, loads=timing.loads, **rest)


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """A class of products: how many were timed, the geometric mean of their ratios, and the worst."""

    suite: str
    timed: int
    geomean: float | None
    worst: float | None
    worst_case: str
    wrong: int
    failed: int
    skipped: int

    def to_dict(self) -> dict[str, Any]:
        whole = {name: getattr(self, name) for name in self.__slots__}
        return {**whole, "geomean": _digits(self.geomean), "worst": _digits(self.worst)}


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of no values."""
    listed = list(values)
    return math.exp(sum(map(math.log, listed)) / len(listed)) if listed else None


def summarise(rows: Sequence[GemmRow]) -> list[SuiteSummary]:
    """A summary for each class, in the order in which they come."""
    return [
        _summarise_suite(suite, [row for row in rows if row.case.suite == suite])
        for suite in dict.fromkeys(row.case.suite for row in rows)
    ]


def _summarise_suite(suite: str, rows: Sequence[GemmRow]) -> SuiteSummary:
    ratios = [(row.ratio.median, row) for row in rows if row.ratio is not None]
    worst = min(ratios, key=lambda pair: pair[0], default=None)
    count = {status: sum(row.status == status for row in rows) for status in ("wrong", "failed", "skipped")}
    return SuiteSummary(
        suite=suite,
        timed=len(ratios),
        geomean=geometric_mean(ratio for ratio, _ in ratios),
        worst=worst[0] if worst else None,
        worst_case=f"{worst[1].case} {worst[1].case.layout}" if worst else "",
        **count,
    )


@dataclass(frozen=True, slots=True)
class GemmFigures:
    """A run: where, how and with what it was measured, and what was found."""

    date: str
    command: str
    gpu: str
    dtype: str
    seed: int
    versions: Mapping[str, str | None]
    machine: Mapping[str, Any]
    clocks: Mapping[str, Any]
    protocol: Mapping[str, Any]
    seconds: float  # that the run took
    rows: tuple[GemmRow, ...]

    @property
    def ok(self) -> bool:
        """Whether no result was wrong and nothing failed."""
        return not any(row.status in ("wrong", "failed") for row in self.rows)

    @property
    def geomean(self) -> float | None:
        """Of the classes' geometric means, so that each class weighs the same."""
        means = [one.geomean for one in summarise(self.rows)]
        return geometric_mean(mean for mean in means if mean is not None)

    def to_dict(self) -> dict[str, Any]:
        plain = ("date", "command", "gpu", "dtype", "seed", "versions", "machine", "clocks", "protocol")
        return {
            "benchmark": "gemm",
            **{name: getattr(self, name) for name in plain},
            "seconds": round(self.seconds, 1),
            "geomean": _digits(self.geomean),
            "suites": [one.to_dict() for one in summarise(self.rows)],
            "rows": [row.to_dict() for row in self.rows],
        }


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else _digits(seconds * 1e6)


def _digits(value: float | None) -> float | None:
    """To five digits: more of them say nothing; None of what is not finite, which JSON cannot hold."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
