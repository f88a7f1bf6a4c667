"""Metrics of a launch under the names of NVIDIA's profiler, or ``tilewise__`` ones where it has none.

A figure is counted on every multiprocessor; ``.sum`` is of the whole GPU, ``.avg``, ``.min`` and ``.max`` are
over multiprocessors. Those of the ``smsp__`` family are over the four parts of a multiprocessor in the
hardware, to which the warps of a block are dealt in turn: they have ``.min`` and ``.max`` where blocks are
whole multiples of four warps, as quarters of the multiprocessor's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tilewise.emulator.profiling.accesses import LINE_BYTES, SECTOR_BYTES
from tilewise.emulator.profiling.counted import Counts
from tilewise.errors import ArgumentError
from tilewise.gpus import find
from tilewise.instruments.bulk_accesses import BULK, bulk_metrics
from tilewise.instruments.instruction_metrics import barrier_metrics, instruction_metrics, ptx_metrics
from tilewise.instruments.machine import Machine, MachineAccess
from tilewise.instruments.metric import (
    ESTIMATED,
    EXACT,
    PARTS,
    PREDICTED,
    Figures,
    Metric,
    round_counts,
    spread,
)
from tilewise.instruments.occupancy import Occupancy

__all__ = ["make_metrics", "select_names"]

# Metrics of shared memory: what ncu calls an operation → operations of the machine code.
_SHARED_OPS = {
    "": ("ld", "st", "ldsm", "stsm", "atom", "ldgsts", "gmma"),
    "_op_ld": ("ld", "ldsm"),
    "_op_st": ("st", "stsm"),
    "_op_atom": ("atom",),
    "_op_ldsm": ("ldsm",),
    "_op_stsm": ("stsm",),
    "_op_ldgsts": ("ldgsts",),
}
_SASS_SHARED_OPS = {**_SHARED_OPS, "_op_ld": ("ld",), "_op_st": ("st",)}
_L1_SHARED_OPS = {**_SHARED_OPS, "_op_gmma": ("gmma",)}
_WITH_DATA = ("", "_op_ld", "_op_st")
_GLOBAL_OPS = {"ld": ("ld",), "st": ("st",), "atom": ("atom",), "red": ("red",), "ldgsts": ("ldgsts",)}


def make_metrics(
    machine: Machine, counts: Counts, occupancy: Occupancy | None, launch: Mapping[str, float]
) -> dict[str, Metric]:
    """Return every metric of a launch by name."""
    size = len(counts.rows)
    label = EXACT if machine.level == "machine code" else PREDICTED
    found = _shared(machine.accesses, size, label) + _global(machine.accesses, size, label)
    if machine.ran:
        found += instruction_metrics(machine, counts, launch.get("thread_count", 0.0))
    else:
        found += ptx_metrics(counts)
    found += _bytes(machine.accesses, size, label)
    found += bulk_metrics(machine.accesses, size, label)
    found += barrier_metrics(counts)
    for name in ("smsp__warps_launched", "sm__warps_launched"):
        found += spread(name, counts.block_runs(0) * 1.0, EXACT, "warp")
    found += _launch(occupancy, launch)
    named = {metric.name: metric for metric in found}
    if launch.get("block_size", 1) % (32 * PARTS) == 0:
        named |= _of_parts(named)
    return named


def _of_parts(named: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return least and most over the parts of multiprocessors, taken to be a quarter of the multiprocessor's: the warps
    of a block are dealt to the parts evenly.
    """
    found = {}
    for name in named:
        if name.startswith("smsp__") and name.endswith(".sum"):
            stem = name.removesuffix(".sum")
            twin = (
                stem.replace("smsp__sass_l1tex_", "l1tex__")
                if "l1tex" in stem
                else stem.replace("smsp__", "sm__")
            )
            for way in ("max", "min"):
                whole = named.get(f"{twin}.{way}")
                if whole is not None and named[f"{twin}.sum"].value == named[name].value:
                    part = Metric(f"{stem}.{way}", whole.value / PARTS, ESTIMATED, whole.unit)
                    found[part.name] = part
    return found


def select_names(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match a pattern, as ncu takes them: ``l1tex__*``, ``regex:…``, or a name without its last
    part, which matches all names that begin so.
    """
    import re

    known = list(names)
    kept: list[str] = []
    for pattern in patterns:
        fits: Callable[[str], bool]
        if pattern.startswith("regex:"):
            try:
                fits = re.compile(pattern.removeprefix("regex:")).search  # type: ignore[assignment]
            except re.error as error:
                raise ArgumentError(
                    "metrics", f"has a pattern that cannot be read ({error})", pattern
                ) from None
        elif any(sign in pattern for sign in "*?["):

            def fits(name: str, pattern: str = pattern) -> bool:
                return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")

        else:

            def fits(name: str, pattern: str = pattern) -> bool:
                return name == pattern or name.rpartition(".")[0] == pattern

        kept += sorted(name for name in known if fits(name) and name not in kept)
    return kept


def _sum(accesses: Iterable[MachineAccess], what: str, size: int) -> Figures:
    total = np.zeros(size)
    for access in accesses:
        figures = getattr(access, what)
        total = total if figures is None else total + figures
    return round_counts(total)


def _touched(accesses: Sequence[MachineAccess], size: int) -> Figures:
    """Return the different sectors of each run, added up."""
    total = np.zeros(size)
    for item in accesses:
        total = total + (item.sectors if item.touched is None else item.touched)
    return round_counts(total)


def _average(
    name: str, accesses: Sequence[MachineAccess], what: str, most: int, label: str, size: int
) -> list[Metric]:
    """Return the average bytes of data in a wavefront or sector, and its percentage of the bytes that fit."""
    units, data = float(_sum(accesses, what, size).sum()), float(_sum(accesses, "data", size).sum())
    ratio = data / units if units else 0.0
    stem = f"smsp__sass_average_data_bytes_per_{name}"
    return [
        Metric(f"{stem}.ratio", ratio, label, "byte"),
        Metric(f"{stem}.pct", 100 * ratio / most, label, "%"),
    ]


def _label(accesses: Sequence[MachineAccess], label: str) -> str:
    return label if all(access.exact for access in accesses) else ESTIMATED


def _shared(accesses: Sequence[MachineAccess], size: int, label: str) -> list[Metric]:
    here = [access for access in accesses if access.space == "shared"]
    found: list[Metric] = []
    families = (
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared",
            _L1_SHARED_OPS,
        ),
        (
            "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared",
            "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared",
            _SASS_SHARED_OPS,
        ),
    )
    for conflicts, wavefronts, operations in families:
        for suffix, ops in operations.items():
            if conflicts.startswith("l1tex") and suffix.endswith("sm"):
                continue  # ncu has no such names
            some = [access for access in here if access.op in ops]
            waves, phases = _sum(some, "waves", size), _sum(some, "phases", size)
            said = _label(some, label)
            for family in (conflicts, wavefronts):
                figures = waves - phases if family is conflicts else waves
                found += spread(f"{family}{suffix}", figures, said)
                if family.startswith("smsp__"):
                    found += spread(f"{family.replace('smsp__', 'sm__')}{suffix}", figures, said)
            if suffix in _WITH_DATA:
                found += _average(f"wavefront_mem_shared{suffix}", some, "waves", LINE_BYTES, said, size)
    every = _sum(here, "waves", size)
    said = _label(here, label)
    found += spread("smsp__sass_l1tex_pipe_lsu_wavefronts_mem_shared", every, said)
    ideal = _sum(here, "ideal", size)
    found += spread("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal", ideal, said)
    found += [
        Metric("memory_l1_wavefronts_shared", float(every.sum()), said),
        Metric("memory_l1_wavefronts_shared_ideal", float(ideal.sum()), said),
        Metric("derived__memory_l1_wavefronts_shared_excessive", float(every.sum() - ideal.sum()), said),
    ]
    runs = {
        "shared": ("ld", "st", "atom", "ldsm", "stsm", "gmma"),
        "shared_ld": ("ld",),
        "shared_st": ("st",),
        "shared_atom": ("atom",),
        "ldsm": ("ldsm",),
        "ldgsts": ("ldgsts",),
    }
    for suffix, ops in runs.items():
        some = [access for access in here if access.op in ops]
        for family in ("smsp__sass", "sm__sass"):
            name = f"{family}_inst_executed_op_{suffix}"
            found += spread(name, _sum(some, "runs", size), _label(some, label))
    return found


def _global(accesses: Sequence[MachineAccess], size: int, label: str) -> list[Metric]:
    # For the metrics of this function, what comes and goes in bulk does not pass the L1.
    here = [access for access in accesses if access.space == "global" and access.op not in BULK]
    found: list[Metric] = []
    for suffix, ops in _GLOBAL_OPS.items():
        for family in ("l1tex__t", "smsp__sass_l1tex_t"):
            # For the L1 an asynchronous copy is a load.
            as_load = suffix == "ld" and family == "l1tex__t"
            some = [access for access in here if access.op in ops or (as_load and access.op == "ldgsts")]
            requests, sectors = _sum(some, "runs", size), _sum(some, "sectors", size)
            if family.startswith("smsp__"):  # of atomics, those alone that are touched
                sectors = _touched(some, size)
            said = _label(some, label)
            found += spread(f"{family}_requests_pipe_lsu_mem_global_op_{suffix}", requests, said)
            found += spread(f"{family}_sectors_pipe_lsu_mem_global_op_{suffix}", sectors, said, "sector")
            if family == "l1tex__t":
                many = float(sectors.sum() / requests.sum()) if requests.any() else 0.0
                average = f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{suffix}.ratio"
                found.append(Metric(average, many, said, "sector/request"))
                name = f"l1tex__t_bytes_pipe_lsu_mem_global_op_{suffix}"
                found += spread(name, sectors * SECTOR_BYTES, said, "byte")
            else:
                if suffix in ("ld", "st"):
                    name = f"sector_mem_global_op_{suffix}"
                    found += _average(name, some, "sectors", SECTOR_BYTES, said, size)
                for owner in ("smsp__sass", "sm__sass"):
                    found += spread(f"{owner}_inst_executed_op_global_{suffix}", requests, said)
    asked, ideal = _sum(here, "sectors", size), _sum(here, "ideal_sectors", size)
    lines, label_here = _sum(here, "lines", size), _label(here, label)
    touched = _touched(here, size)
    found += [
        Metric("memory_l2_theoretical_sectors_global", float(touched.sum()), label_here, "sector"),
        Metric(
            "memory_l2_theoretical_sectors_global_ideal", float(ideal.sum()), _label(here, label), "sector"
        ),
        Metric("memory_l1_tag_requests_global", float(lines.sum()), label_here),
        Metric(
            "derived__memory_l2_theoretical_sectors_global_excessive",
            float((touched - ideal).sum()),
            label_here,
            "sector",
        ),
    ]
    if (asked <= ideal).all():
        # What the data stage makes of lanes that are not side by side is not known here.
        found += spread("l1tex__data_bank_conflicts_pipe_lsu_mem_global", np.zeros(size), label)
    return found


def _bytes(accesses: Sequence[MachineAccess], size: int, label: str) -> list[Metric]:
    """Return the bytes that lanes request, by space and operation; ncu has no such metrics."""
    found: list[Metric] = []
    for space in ("shared", "global", "dshared"):
        for op in ("ld", "st", "atom", "red", "ldsm", "stsm", "ldgsts", *BULK):
            some = [access for access in accesses if access.space == space and access.op == op]
            if some and not (space == "shared" and op == "tma_pf"):
                figures, name = _sum(some, "bytes", size), op.removeprefix("dshared_")
                found += spread(f"tilewise__bytes_{space}_op_{name}", figures, _label(some, label), "byte")
    return found


def _launch(occupancy: Occupancy | None, launch: Mapping[str, float]) -> list[Metric]:
    found = [Metric(f"launch__{name}", value) for name, value in launch.items()]
    if occupancy is None:
        return found
    names = {
        "registers": "registers",
        "shared": "shared_mem",
        "warps": "warps",
        "blocks": "blocks",
        "barriers": "barriers",
    }
    limits = occupancy.limits
    # As ncu has it: no more than the blocks that there may be, and so many of a kernel without barriers.
    limits = {**limits, "barriers": min(limits["blocks"], limits.get("barriers", limits["blocks"]))}
    found += [
        Metric(f"launch__occupancy_limit_{names[name]}", float(limit), EXACT, "block")
        for name, limit in limits.items()
    ]
    registers = max(occupancy.registers, find(occupancy.gpu).limits.min_registers_per_thread)
    found += [
        Metric("launch__registers_per_thread", float(registers)),
        Metric("launch__registers_per_thread_allocated", float(-(-registers // 8) * 8)),
        Metric("launch__shared_mem_config_size", float(occupancy.shared_config), EXACT, "byte"),
        Metric("sm__maximum_warps_per_active_cycle_pct", 100 * occupancy.ratio, EXACT, "%"),
        Metric("sm__maximum_warps_avg_per_active_cycle", float(occupancy.warps), EXACT, "warp"),
    ]
    if occupancy.waves is not None:
        found.append(Metric("launch__waves_per_multiprocessor", occupancy.waves))
    if occupancy.tail is not None:
        found.append(Metric("tilewise__last_wave.ratio", occupancy.tail))
    return found
