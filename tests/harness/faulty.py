"""Kernels with one fault each, and the same kernels mended: see ``cases.py`` for how they are written."""

from __future__ import annotations

from functools import cache

import tilewise as tw
from tests.harness.cases import HEAD, Case
from tests.harness.faulty_flights import FLIGHTS
from tests.harness.faulty_lanes import LANES
from tests.harness.faulty_memory import BARRIERS, MEMORY, UNSET
from tests.harness.faulty_races import RACES

__all__ = ["CASES", "kernel_of", "marked"]

CASES = [*RACES, *UNSET, *MEMORY, *BARRIERS, *FLIGHTS, *LANES]
_PER_SOURCE = 8


@cache
def _sources() -> dict[str, str]:
    """By case: the source that both of its kernels are in."""
    found: dict[str, str] = {}
    for arch in sorted({case.arch for case in CASES}):
        cases = [case for case in CASES if case.arch == arch]
        for start in range(0, len(cases), _PER_SOURCE):
            group = cases[start : start + _PER_SOURCE]
            text = "\n".join([HEAD, *(case.text(mended) for case in group for mended in (False, True))])
            found |= dict.fromkeys([case.name for case in group], text)
    return found


def kernel_of(case: Case, mended: bool) -> tw.Kernel:
    name = f"{case.name}_{'mended' if mended else 'faulty'}"
    return tw.Kernel(_sources()[case.name], name, case.arch)


def marked(case: Case) -> set[int]:
    """The lines of the faulty kernel that its finding has to name."""
    lines = _sources()[case.name].splitlines()
    start = next(i for i, line in enumerate(lines) if f" {case.name}_faulty(" in line)
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    return {i + 1 for i in range(start, end) if "//!" in lines[i]}
