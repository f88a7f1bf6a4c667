"""Search the constants of a kernel for the best choices: ``python -m tilewise.planner.search SECONDS FILE…``.

Least squares (:mod:`tilewise.planner.fit`) makes predictions near measured times, of all plans alike. A product takes
the plan with the best prediction, and between the best plans a few percent decide, which least squares does not look
at. This walks at random among the constants of one unit, and those that all units share, and goes where choices get
better, and the predicted times of plans near the best.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewise.planner.constants import Constants
from tilewise.planner.fit import Key, Measured, get_constant, judge, read_of_gpu, set_constants
from tilewise.planner.target import Target, target_of

__all__ = ["UNIT", "loss", "search"]

UNIT = "wgmma_gemm"
NAMES = (
    *(f"{UNIT}.{name}" for name in (
        "macs_per_clock", "warp_clocks", "start_clocks", "store_bytes_per_clock", "latency_clocks",
        "warp_macs_per_clock", "stores_per_clock", "memory_share", "joules_per_mac", "split_clocks", "outside",
        "idle_memory", "memory_latency_clocks",
    )),
    "l2_bytes_per_clock", "straddling", "cluster_start_clocks", "cluster_step_clocks", "joules_per_l2_byte",
    "add_seconds", "part_seconds",
)  # fmt: skip
MOST = {f"{UNIT}.memory_share": 0.97, f"{UNIT}.idle_memory": 1.2, f"{UNIT}.outside": 1.2}
STEPS = (0.03, 0.1, 0.3)  # of a logarithm
NEAR, FAR = 1.05, 1.12  # a chosen plan's time over the best one's: good, and bad
CLOSE, WORTH = 1.25, 1.7  # plans whose times are to be right, and those that could be chosen

Problems = Mapping[Key, Sequence[Measured]]


def group(measured: Sequence[Measured]) -> Problems:
    """The plans of each problem that has some of the unit, without those that nobody would choose."""
    found: dict[Key, list[Measured]] = {}
    for one in measured:
        found.setdefault(one.key, []).append(one)
    kept = {}
    for key, plans in found.items():
        best = min(one.seconds for one in plans)
        if any(one.work.unit == UNIT for one in plans):
            kept[key] = [one for one in plans if one.seconds <= WORTH * best]
    return kept


def loss(problems: Problems, target: Target) -> float:
    """How bad choices are, and the predictions of plans that are near the best."""
    total = 0.0
    for plans in problems.values():
        best = min(one.seconds for one in plans)
        predicted = [(one.predict(target), one.seconds) for one in plans]
        ratio = min(predicted)[1] / best
        total += max(math.log(ratio) - 0.01, 0.0) + 0.6 * max(ratio - FAR, 0.0)
        total += 0.15 * min(max(20 * (ratio - NEAR), 0.0), 1.0)
        close = [abs(math.log(guess / spent)) for guess, spent in predicted if spent <= CLOSE * best]
        total += 0.12 * sum(close) / len(close)
    return total


def search(problems: Problems, target: Target, seconds: float, seed: int = 0) -> Constants:
    """The best constants that were found in this time, from the target's on."""
    draw, end = random.Random(seed), time.monotonic() + seconds
    best, least = target.constants, loss(problems, target)
    while time.monotonic() < end:
        tried = {}
        for name in draw.sample(NAMES, draw.choice((1, 1, 2, 3))):
            value = get_constant(best, name) * math.exp(draw.gauss(0, draw.choice(STEPS)))
            tried[name] = min(value, MOST.get(name, math.inf))
        constants = set_constants(best, tried)
        found = loss(problems, replace(target, constants=constants))
        if found < least:
            best, least = constants, found
    return best


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: python -m tilewise.planner.search SECONDS FILE…")
    target = target_of("h200")
    measured = read_of_gpu(sys.argv[2:], target.name)
    problems = group(measured)
    found = search(problems, target, float(sys.argv[1]))
    for name in NAMES:
        print(f"{name:36} {get_constant(found, name):.4g}")
    for label, constants in (("before", target.constants), ("after", found)):
        quality = judge(
            (one for plans in problems.values() for one in plans), replace(target, constants=constants)
        )
        print(label, quality)


if __name__ == "__main__":
    main()
