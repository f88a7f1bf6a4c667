"""The names of all metrics that a profile may have, known without a launch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tilewise.emulator.profiling.counted import Counts
from tilewise.errors import UnknownNameError
from tilewise.gpus import find
from tilewise.instruments.bulk_accesses import BULK
from tilewise.instruments.cache_model import Traffic
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.metrics import make_metrics, select_names
from tilewise.instruments.occupancy import occupancy
from tilewise.instruments.profile_launch import DEFAULT_GPU, launch_figures
from tilewise.launch import Launch
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["check_metric_names", "known_metric_names"]

_THREADS = 128  # warps that all parts of a multiprocessor have alike
_CAPABILITIES = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0))
_SPACES = ("shared", "global", "dshared")
_OPS = ("ld", "st", "atom", "red", "ldsm", "stsm", "ldgsts", *BULK)


def check_metric_names(patterns: Sequence[str] | None) -> None:
    """Refuse a name or a pattern that no metric of any launch fits."""
    names = known_metric_names()
    for pattern in patterns or ():
        if not select_names(names, [pattern]):
            raise UnknownNameError("metric", pattern, names)


@functools.cache
def known_metric_names() -> tuple[str, ...]:
    """The names of launches that have every kind of access, none of which ran, on every kind of GPU."""
    found = {name for names in _of_empty_launches() for name in names}
    return tuple(sorted(found | {metric.name for metric in _no_traffic().metrics()}))


def _of_empty_launches() -> Iterator[Sequence[str]]:
    gpu = find(DEFAULT_GPU)
    about: dict[str, Any] = {
        "blocks": [{"items": [], "end": None, "kind": "exit", "tests": None, "whole": True}],
        **{name: [] for name in ("points", "guards", "divisions", "products", "handed")},
        **dict.fromkeys(("deopts", "tables", "ways"), 0),
    }
    nothing, item = np.zeros(1), MachineInstruction(0, "NOP")
    figures: Any = [nothing] * 7
    accesses = [MachineAccess(item, op, space, 32, *figures) for space in _SPACES for op in _OPS]
    launch = Launch((1, 1, 1), (_THREADS, 1, 1))
    said, filled = launch_figures(launch, gpu, 0), occupancy(gpu, _THREADS, 16, grid=1)
    ran = [MachineRuns(item, 0, nothing, nothing, nothing)]
    machines = [Machine("machine code", accesses, ran, capability=one) for one in _CAPABILITIES]
    for machine in (*machines, Machine("predicted", accesses), Machine("machine code", ran=ran)):
        counts = Counts(about, np.ones((1, 64), np.int64), [])
        yield list(make_metrics(machine, counts, filled, said))


def _no_traffic() -> Traffic:
    figures: dict[str, Any] = {item.name: 1 for item in fields(Traffic) if item.name != "waves"}
    return Traffic(**figures)
