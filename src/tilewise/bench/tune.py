"""tw.tune: the plans of a product measured on the device that is here, and the fastest kept for what comes after.

Half of the time is the compiler's. What is kept is preferred by the planner wherever it chooses for such a device: in
tw.matmul and its kin, in tw.plan and tw.explain. Another plan may add up in another order, whose roundings are others.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tilewise import calls, warm_calls
from tilewise.bench.plan_trials import (
    ProductArrays,
    ReadyPlan,
    bind_all,
    bring_together,
    make_ready,
    time_in_turns,
)
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.devices import Device
from tilewise.devices import device as resolve
from tilewise.epilogue import EpilogueCall
from tilewise.errors import ArgumentError, DeviceError, integer
from tilewise.operands import Operands
from tilewise.plan import Plan
from tilewise.planner import Candidate, Target, list_candidates, target_of_device
from tilewise.planner.listing import operands_of
from tilewise.planner.measured import KeptPlan, describe_operands, keep, recall, versions

__all__ = ["MOST", "SECONDS", "TriedPlan", "Tuned", "tune", "tune_operands", "tuning"]

# Plans that are measured: the fastest has been among the first 12 predictions in nearly all problems.
MOST = 16
SECONDS = 20.0  # after which no more plans of a product are begun
_WORTH = 2.0  # times the best prediction, beyond which a plan is not measured
_ROUNDS = 3  # of all plans
_FINALISTS = 5
_NEAR = 1.08  # times the fastest, beyond which a plan is no finalist
_FINAL_ROUNDS = 9
_GAIN = 1.01  # that another plan than the predicted best has to bring


@dataclass(frozen=True, slots=True)
class TriedPlan:
    """A plan that was measured; ``agrees`` is whether its result was that of the predicted best."""

    plan: Plan
    seconds: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class Tuned:
    """The plans of a product that were measured, the fastest first; none if they were measured before."""

    problem: str
    device: str
    kept: KeptPlan
    plan: Plan
    tried: tuple[TriedPlan, ...]
    seconds: float
    """That measuring took."""

    @property
    def gain(self) -> float:
        """The time of the plan that is predicted to be the fastest, over that of the one that is."""
        return self.kept.predicted_best / self.kept.seconds

    @property
    def wrong(self) -> tuple[TriedPlan, ...]:
        """Plans whose result differed from that of the predicted best: none, unless something is broken."""
        return tuple(one for one in self.tried if not one.agrees)

    def __str__(self) -> str:
        how = f"of {self.kept.plans} measured" if self.tried else "measured before"
        return (
            f"{self.problem}\n  {self.kept.seconds * 1e6:,.2f} µs by {self.plan.kernel}, the fastest {how}; "
            f"as predicted {self.kept.predicted_best * 1e6:,.2f} µs ({self.gain:.2f} times)"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "device": self.device,
            "seconds": self.kept.seconds,
            "predicted_best": self.kept.predicted_best,
            "gain": self.gain,
            "plan": self.plan.to_dict(),
            "tried": [
                {"plan": one.plan.to_dict(), "seconds": one.seconds, "agrees": one.agrees}
                for one in self.tried
            ],
            "measured_before": not self.tried,
            "tuning_seconds": self.seconds,
        }


def tune(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    b_dtype: str | None = None,
    batch: int = 1,
    groups: int = 0,
    pointers: bool = False,
    result: str | None = None,
    layout: str = "nn",
    epilogue: EpilogueCall | None = None,
    arithmetic: str | None = None,
    device: Device | str | None = None,
    most: int = MOST,
    seconds: float = SECONDS,
    again: bool = False,
    progress: Progress = ignore_progress,
) -> Tuned:
    """Measure plans for C[m, n] = A[m, k] · B[k, n] on a device and keep the fastest, which is taken from then on.

    The problem is as in :func:`tilewise.plan`. ``most`` plans are measured, those that are predicted to be the fastest,
    on random numbers, in turns; none is begun after ``seconds``. What was measured before by this version is not
    measured ``again`` unless that is asked for. Of a GPU that others use meanwhile the times say little.

    >>> import tilewise as tw
    >>> tuned = tw.tune(64, 48, 32, device="emulator", most=2)
    >>> tw.plan(64, 48, 32, gpu="emulator").kernel == tuned.plan.kernel
    True
    """
    operands = operands_of(
        m, n, k, dtype=dtype, b_dtype=b_dtype, batch=batch, groups=groups, pointers=pointers, result=result,
        layout=layout, epilogue=epilogue, arithmetic=arithmetic,
    )  # fmt: skip
    where = resolve(device)
    found = tune_operands(operands, where, most=most, seconds=seconds, again=again, progress=progress)
    _forget_calls()
    return found


def tune_operands(
    operands: Operands,
    device: Device,
    *,
    most: int = MOST,
    seconds: float = SECONDS,
    again: bool = False,
    progress: Progress = ignore_progress,
) -> Tuned:
    """The same for operands as they lie."""
    most, target, began = integer("most", most, least=1), target_of_device(device), time.monotonic()
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ArgumentError("seconds", "must be above 0", seconds)
    if operands.split:
        raise ArgumentError(" and ".join(operands.split), "must not be split before, to be tuned")
    if _is_empty(operands):
        raise ArgumentError("m, n and batch", "must be at least 1, to be tuned", str(operands.problem()))
    operands = bring_together(operands)
    listed, refused = list_candidates(operands, target)
    if not listed:
        raise refused[0].error
    known = recall(operands, target) if listed[0].measured is not None else None
    if known is not None and not again:
        return Tuned(str(operands.problem()), device.title, known, listed[0].plan(operands, target), (), 0.0)
    predicted = sorted(listed, key=lambda one: one.prediction.seconds)
    worth = _WORTH * predicted[0].prediction.seconds
    candidates = [replace(one, measured=None) for one in predicted if one.prediction.seconds <= worth][:most]
    tried = _try_all(operands, device, target, candidates, began + seconds, progress)
    best, first = _fastest(tried), tried[0]
    kept = KeptPlan(
        candidates[best].spec.name, candidates[best].settings, candidates[best].copies, tried[best].seconds,
        first.seconds, len(tried), datetime.now(UTC).date().isoformat(), versions(),
    )  # fmt: skip
    keep(target, {describe_operands(operands): kept})
    ordered = tuple(sorted(tried, key=lambda one: one.seconds))
    plan = list_candidates(operands, target)[0][0].plan(operands, target)
    return Tuned(str(operands.problem()), device.title, kept, plan, ordered, time.monotonic() - began)


def _try_all(
    operands: Operands,
    device: Device,
    target: Target,
    candidates: list[Candidate],
    until: float,
    progress: Progress,
) -> list[TriedPlan]:
    """Each plan run once and compared with the first, then all timed in turns, and the fastest of them again."""
    device.synchronize()
    arrays, ready = ProductArrays(device, operands), list[ReadyPlan]()
    for candidate, bound in zip(candidates, bind_all(device, operands, candidates, until), strict=False):
        progress(len(ready), len(candidates), f"{operands.problem()}: {candidate.spec.name}")
        ready.append(make_ready(bound, candidate.prediction.seconds, arrays))
        if time.monotonic() > until:
            break
    times = time_in_turns(device, ready, _ROUNDS, until)
    agree = [one.agrees_with(ready[0], operands) for one in ready]
    right = sorted((i for i, agrees in enumerate(agree) if agrees), key=times.__getitem__)
    final = [i for i in right if times[i] <= _NEAR * times[right[0]]][:_FINALISTS]
    final += [0] if 0 not in final else []
    again = time_in_turns(device, [ready[i] for i in final], _FINAL_ROUNDS, until)
    for i, seconds in zip(final, again, strict=True):
        times[i] = seconds
    return [
        TriedPlan(one.plan(operands, target), spent, agrees)
        for one, spent, agrees in zip(candidates, times, agree, strict=False)
    ]


def _fastest(tried: list[TriedPlan]) -> int:
    """Which plan to keep: the first, which is predicted to be the fastest, unless another one is worth it."""
    right = [i for i, one in enumerate(tried) if one.agrees]
    best = min(right, key=lambda i: tried[i].seconds)
    return best if tried[best].seconds * _GAIN <= tried[0].seconds else 0


# ── whatever a program multiplies ────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def tuning(*, most: int = MOST, seconds: float = SECONDS) -> Iterator[list[Tuned]]:
    """``with tw.tuning():`` measures the plans of each product that is met for the first time, before it is multiplied.

    It yields the list of what was measured. That takes a second or two for each kind of product, and memory for two
    more of its arrays at least; products met in the capture of a graph are multiplied as predicted.

    >>> import numpy as np, tilewise as tw
    >>> a, b = np.ones((40, 20), "float32"), np.ones((20, 30), "float32")
    >>> with tw.tuning(most=2) as tuned:
    ...     c = tw.matmul(a, b, device="emulator")
    >>> [one.problem for one in tuned]
    ['40×30×20 float32, sums in float32']
    """
    found: list[Tuned] = []
    alone = threading.Lock()

    def measure(operands: Operands, device: Device) -> None:
        if operands.split or _is_empty(operands):
            return
        try:
            with alone:
                tuned = tune_operands(operands, device, most=most, seconds=seconds)
        except DeviceError as error:  # too little memory, mostly: the product can do without
            warnings.warn(f"{operands.problem()} was not tuned: {error}", RuntimeWarning, stacklevel=2)
            return
        if tuned.tried:  # or it was measured before
            found.append(tuned)

    integer("most", most, least=1)
    _forget_calls()
    with calls.measure_new_kinds(measure):
        yield found


def _is_empty(operands: Operands) -> bool:
    return 0 in (*operands.sizes[:2], operands.batch)


def _forget_calls() -> None:
    """What was bound before a plan was measured is chosen anew."""
    calls.forget()
    warm_calls.forget_all()
