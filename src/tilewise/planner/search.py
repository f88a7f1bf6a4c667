"""Search the constants of a kernel for the best choices: ``python -m tilewise.planner.search UNIT SECONDS FILE…``.

Least squares (:mod:`tilewise.planner.fit`) makes predictions near measured times, of all plans alike. A product takes
the plan with the best prediction, and between the best plans a few percent decide, which least squares does not look
at. This walks at random among the constants of one unit, and those that go with it, and goes where choices get better,
and the predicted times of plans near the best: on all GPUs together that were measured and have one chip. Plans that
are predicted within a few percent of the first count as chosen, too: a product with one more array may take any.
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

__all__ = ["UNIT", "UNITS", "loss", "search"]

UNIT = "wgmma_gemm"
NAMES = (
    *(f"{UNIT}.{name}" for name in (
        "macs_per_clock", "warp_clocks", "start_clocks", "store_bytes_per_clock", "latency_clocks",
        "warp_macs_per_clock", "stores_per_clock", "memory_share", "joules_per_mac", "split_clocks", "outside",
        "idle_memory", "memory_latency_clocks", "stored_between", "stored_beside", "stored_alone",
        "cluster_saves", "waits",
    )),
    "straddling", "cut_lines", "cluster_start_clocks", "cluster_step_clocks", "joules_per_l2_byte",
    "sm_bytes_per_clock", "pair_bytes_per_clock",
)  # fmt: skip
GPUS = ("h200", "h100-sxm")
OWN = (
    "straddling", "cut_lines", "cluster_start_clocks", "cluster_bytes_per_clock", "sm_bytes_per_clock",
    "pair_bytes_per_clock", f"{UNIT}.split_clocks", f"{UNIT}.memory_share", f"{UNIT}.idle_memory",
)  # fmt: skip
"""What the second GPU and those behind it have of their own; all else is as on the first."""


def _of_widening(suffix: str) -> tuple[str, ...]:
    """What is searched for the choices of 8 bits that are widened: of both kernels that do it."""
    of_wgmma = (
        "macs_per_clock", "warp_clocks", "start_clocks", "store_bytes_per_clock", "latency_clocks",
        "warp_macs_per_clock", "stores_per_clock", "memory_share", "split_clocks", "idle_memory",
        "memory_latency_clocks", "element_clocks",
    )  # fmt: skip
    of_vector = (
        "macs_per_clock",
        "warp_clocks",
        "start_clocks",
        "latency_clocks",
        "memory_share",
        "idle_memory",
    )
    return (
        *(f"wgmma_widened{suffix}.{name}" for name in of_wgmma),
        *(f"vector_widened{suffix}.{name}" for name in of_vector),
    )


def _of_float64() -> tuple[str, ...]:
    """What is searched for the choices of float64: of both ways in which the kernel by mma.sync is fed."""
    names = (
        "macs_per_clock", "warp_clocks", "start_clocks", "store_bytes_per_clock", "latency_clocks",
        "warp_macs_per_clock", "memory_share", "joules_per_mac", "outside", "felt_beside",
    )  # fmt: skip
    return tuple(f"{unit}.{name}" for unit in ("mma_f64", "mma_f64_boxes") for name in names)


UNITS = {
    UNIT: (NAMES, OWN),
    "mma_f64": (_of_float64(), ()),
    **{f"wgmma_widened{suffix}": (_of_widening(suffix),) * 2 for suffix in ("", "_int8")},
}
"""What is searched for the choices of a unit, and what of it each GPU has of its own."""
MOST = {
    **{f"{unit}.memory_share": 0.97 for unit in (*UNITS, "vector_widened", "vector_widened_int8")},
    **{f"{unit}.idle_memory": 1.2 for unit in UNITS},
    **{f"{unit}.felt_beside": 1.0 for unit in ("mma_f64", "mma_f64_boxes")},
    "mma_f64_boxes.memory_share": 0.97,
    f"{UNIT}.outside": 1.2,
}
STEPS = (0.03, 0.1, 0.3)  # of a logarithm
NEAR, FAR = 1.05, 1.12  # a chosen plan's time over the best one's: good, and bad
MARGINS = ((1.0, 0.5), (1.025, 0.25), (1.05, 0.25))
"""Times the least prediction up to which the worst plan counts as the chosen one, and how much."""
CLOSE, WORTH = 1.25, 1.7  # plans whose times are to be right, and those that could be chosen

Problems = Mapping[Key, Sequence[Measured]]


def group(measured: Sequence[Measured], unit: str = UNIT) -> Problems:
    """The plans of each problem that has some of the unit, without those that nobody would choose."""
    found: dict[Key, list[Measured]] = {}
    for one in measured:
        found.setdefault(one.key, []).append(one)
    kept = {}
    for key, plans in found.items():
        best = min(one.seconds for one in plans)
        if any(one.work.unit == unit for one in plans):
            kept[key] = [one for one in plans if one.seconds <= WORTH * best]
    return kept


def loss(problems: Problems, target: Target) -> float:
    """How bad choices are, and the predictions of plans that are near the best."""
    total = 0.0
    for plans in problems.values():
        best = min(one.seconds for one in plans)
        predicted = [(one.predict(target), one.seconds) for one in plans]
        least = min(predicted)[0]
        for margin, share in MARGINS:
            ratio = max(spent for guess, spent in predicted if guess <= margin * least) / best
            total += share * (max(math.log(ratio) - 0.01, 0.0) + 0.6 * max(ratio - FAR, 0.0))
            total += share * 0.15 * min(max(20 * (ratio - NEAR), 0.0), 1.0)
        close = [abs(math.log(guess / spent)) for guess, spent in predicted if spent <= CLOSE * best]
        total += 0.12 * sum(close) / len(close)
    return total


def search(
    problems: Sequence[Problems], targets: Sequence[Target], seconds: float, seed: int = 0, unit: str = UNIT
) -> list[Constants]:
    """The best constants of a unit that were found in this time for each target, from its own on."""
    names, own = UNITS[unit]
    draw, end = random.Random(seed), time.monotonic() + seconds

    def lose(each: Sequence[Constants]) -> float:
        known = (replace(target, constants=one) for target, one in zip(targets, each, strict=True))
        return sum(map(loss, problems, known))

    places = [(0, name) for name in names] + [(i, name) for i in range(1, len(targets)) for name in own]
    best = [target.constants for target in targets]
    least = lose(best)
    while time.monotonic() < end:
        tried = list(best)
        for which, name in draw.sample(places, draw.choice((1, 1, 2, 3))):
            value = get_constant(tried[which], name) * math.exp(draw.gauss(0, draw.choice(STEPS)))
            value = min(value, MOST.get(name, math.inf))
            for i, constants in enumerate(tried):
                if i == which or (which == 0 and name not in own):
                    tried[i] = set_constants(constants, {name: value})
        found = lose(tried)
        if found < least:
            best, least = tried, found
    return best


def main() -> None:
    if len(sys.argv) < 4 or sys.argv[1] not in UNITS:
        sys.exit(f"usage: python -m tilewise.planner.search {'|'.join(UNITS)} SECONDS FILE…")
    unit, (names, own) = sys.argv[1], UNITS[sys.argv[1]]
    targets = [target_of(gpu) for gpu in GPUS]
    problems = [group(read_of_gpu(sys.argv[3:], target.name), unit) for target in targets]
    found = search(problems, targets, float(sys.argv[2]), unit=unit)
    for target, plans, constants in zip(targets, problems, found, strict=True):
        if not plans:
            continue
        print(target.name)
        for name in names if target is targets[0] else own:
            print(f"{name:36} {get_constant(constants, name):.4g}")
        for label, known in (("before", target.constants), ("after", constants)):
            measured = (one for of_problem in plans.values() for one in of_problem)
            print(label, judge(measured, replace(target, constants=known)))


if __name__ == "__main__":
    main()
