"""Figures under the names that NVIDIA's profiler gives them, ``tilewise__`` ones where it has none.

A figure is counted on every multiprocessor; ``.sum`` is of the whole GPU, ``.avg``, ``.min`` and ``.max`` are
over multiprocessors. Those of the ``smsp__`` family are over the four parts of a multiprocessor in the
hardware, to which the warps of a block are dealt in turn: they have ``.min`` and ``.max`` where blocks are
whole multiples of four warps, as quarters of the multiprocessor's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.emulator.profiling.counted import Counts
from tilewise.profiler.machine import Access, Figures, Machine, Ran
from tilewise.profiler.occupancy import Occupancy

__all__ = ["EXACT", "Metric", "chosen", "make_metrics", "spread"]

EXACT, ESTIMATED, PREDICTED, PTX = "exact", "estimated", "predicted", "PTX"
_PARTS = 4  # of a multiprocessor


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a launch."""

    name: str
    value: float
    label: str = EXACT
    unit: str = ""


# Metrics of shared memory: what ncu calls an operation → operations of the machine code.
_SHARED_OPS = {
    "": ("ld", "st", "ldsm", "stsm", "atom", "ldgsts"),
    "_op_ld": ("ld", "ldsm"),
    "_op_st": ("st", "stsm"),
    "_op_atom": ("atom",),
    "_op_ldsm": ("ldsm",),
    "_op_stsm": ("stsm",),
    "_op_ldgsts": ("ldgsts",),
}
_SASS_SHARED_OPS = {**_SHARED_OPS, "_op_ld": ("ld",), "_op_st": ("st",)}
_GLOBAL_OPS = {"ld": ("ld",), "st": ("st",), "atom": ("atom",), "red": ("red",), "ldgsts": ("ldgsts",)}
_EXECUTED = ("smsp__inst_executed", "sm__inst_executed", "smsp__sass_inst_executed", "sm__sass_inst_executed")
_OPCODES = {
    "ffma": ("FFMA", "FFMA2"),
    "fadd": ("FADD", "FADD2"),
    "fmul": ("FMUL", "FMUL2"),
    "dfma": ("DFMA",),
    "dadd": ("DADD",),
    "dmul": ("DMUL",),
    "hfma": ("HFMA2",),
    "hadd": ("HADD2",),
    "hmul": ("HMUL2",),
}
_TENSOR = {
    "hmma": ("HMMA",),
    "imma": ("IMMA",),
    "dmma": ("DMMA",),
    "hgmma": ("HGMMA",),
    "igmma": ("IGMMA",),
    "qgmma": ("QGMMA",),
    "bgmma": ("BGMMA",),
}


def spread(name: str, figures: Figures, label: str, unit: str = "") -> list[Metric]:
    """A figure of every multiprocessor as sum, average, least and most."""
    total = float(figures.sum())
    if name.startswith("smsp__"):
        ways = {"avg": total / (_PARTS * len(figures)), "sum": total}
    else:
        ways = {
            "avg": total / len(figures),
            "max": float(figures.max()),
            "min": float(figures.min()),
            "sum": total,
        }
    return [Metric(f"{name}.{way}", value, label, unit) for way, value in ways.items()]


def make_metrics(
    machine: Machine, counts: Counts, occupancy: Occupancy | None, launch: Mapping[str, float]
) -> dict[str, Metric]:
    """Every figure of a launch by its name."""
    size = len(counts.rows)
    label = EXACT if machine.level == "machine code" else PREDICTED
    found = _shared(machine.accesses, size, label) + _global(machine.accesses, size, label)
    found += _instructions(machine.ran, size) if machine.ran else _ptx_instructions(counts, size)
    found += _bytes(machine.accesses, size, label)
    found += _barriers(counts, size)
    for name in ("smsp__warps_launched", "sm__warps_launched"):
        found += spread(name, counts.block_runs(0) * 1.0, EXACT, "warp")
    found += _branches(counts)
    found += _launch(occupancy, launch)
    named = {metric.name: metric for metric in found}
    if launch.get("block_size", 1) % (32 * _PARTS) == 0:
        named |= _of_parts(named)
    return named


def _of_parts(named: Mapping[str, Metric]) -> dict[str, Metric]:
    """Least and most over the parts of multiprocessors, where the warps of a block are dealt to them evenly:
    taken to be a quarter of the multiprocessor's."""
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
                    part = Metric(f"{stem}.{way}", whole.value / _PARTS, ESTIMATED, whole.unit)
                    found[part.name] = part
    return found


def chosen(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Names that fit one of the patterns, as ncu takes them: ``l1tex__*``, ``regex:…``, or a name without
    its last word for all that begin so."""
    import re

    known = list(names)
    kept: list[str] = []
    for pattern in patterns:
        fits: Callable[[str], bool]
        if pattern.startswith("regex:"):
            fits = re.compile(pattern.removeprefix("regex:")).search  # type: ignore[assignment]
        elif any(sign in pattern for sign in "*?["):

            def fits(name: str, pattern: str = pattern) -> bool:
                return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")

        else:

            def fits(name: str, pattern: str = pattern) -> bool:
                return name == pattern or name.rpartition(".")[0] == pattern

        kept += sorted(name for name in known if fits(name) and name not in kept)
    return kept


def _sum(accesses: Iterable[Access], what: str, size: int) -> Figures:
    total = np.zeros(size)
    for access in accesses:
        total = total + getattr(access, what)
    return whole(total)


def whole(figures: Figures) -> Figures:
    """Counts are whole numbers; parts of them, added up, are so but for rounding."""
    near = np.round(figures)
    return np.where(np.abs(figures - near) < 1e-3, near, figures)


def _label(accesses: Sequence[Access], label: str) -> str:
    return label if all(access.exact for access in accesses) else ESTIMATED


def _shared(accesses: Sequence[Access], size: int, label: str) -> list[Metric]:
    here = [access for access in accesses if access.space == "shared"]
    found: list[Metric] = []
    families = (
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared",
            _SHARED_OPS,
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
            found += spread(f"{conflicts}{suffix}", waves - phases, said)
            found += spread(f"{wavefronts}{suffix}", waves, said)
    ideal = _sum(here, "ideal", size)
    found += spread("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal", ideal, label)
    found += [
        Metric("memory_l1_wavefronts_shared", float(_sum(here, "waves", size).sum()), label),
        Metric("memory_l1_wavefronts_shared_ideal", float(ideal.sum()), label),
    ]
    runs = {
        "shared": ("ld", "st", "atom", "ldsm", "stsm"),
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


def _global(accesses: Sequence[Access], size: int, label: str) -> list[Metric]:
    here = [access for access in accesses if access.space == "global"]
    found: list[Metric] = []
    for suffix, ops in _GLOBAL_OPS.items():
        for family in ("l1tex__t", "smsp__sass_l1tex_t"):
            # For the L1 an asynchronous copy is a load.
            as_load = suffix == "ld" and family == "l1tex__t"
            some = [access for access in here if access.op in ops or (as_load and access.op == "ldgsts")]
            requests, sectors = _sum(some, "runs", size), _sum(some, "sectors", size)
            said = _label(some, label)
            found += spread(f"{family}_requests_pipe_lsu_mem_global_op_{suffix}", requests, said)
            found += spread(f"{family}_sectors_pipe_lsu_mem_global_op_{suffix}", sectors, said, "sector")
            if family == "l1tex__t":
                many = float(sectors.sum() / requests.sum()) if requests.any() else 0.0
                average = f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{suffix}.ratio"
                found.append(Metric(average, many, said, "sector/request"))
            else:
                for owner in ("smsp__sass", "sm__sass"):
                    found += spread(f"{owner}_inst_executed_op_global_{suffix}", requests, said)
    sectors, ideal = _sum(here, "sectors", size), _sum(here, "ideal_sectors", size)
    found += [
        Metric("memory_l2_theoretical_sectors_global", float(sectors.sum()), _label(here, label), "sector"),
        Metric(
            "memory_l2_theoretical_sectors_global_ideal", float(ideal.sum()), _label(here, label), "sector"
        ),
        Metric("memory_l1_tag_requests_global", float(_sum(here, "runs", size).sum()), _label(here, label)),
    ]
    if (sectors <= ideal).all():
        # What the data stage makes of lanes that are not side by side is not known here.
        found += spread("l1tex__data_bank_conflicts_pipe_lsu_mem_global", np.zeros(size), label)
    return found


def _bytes(accesses: Sequence[Access], size: int, label: str) -> list[Metric]:
    """What lanes asked for, by space and operation; ncu has no such names."""
    found: list[Metric] = []
    for space in ("shared", "global"):
        for op in ("ld", "st", "atom", "red", "ldsm", "stsm", "ldgsts"):
            some = [access for access in accesses if access.space == space and access.op == op]
            if some:
                figures = _sum(some, "bytes", size)
                found += spread(f"tilewise__bytes_{space}_op_{op}", figures, _label(some, label), "byte")
    return found


def _instructions(ran: Sequence[Ran], size: int) -> list[Metric]:
    """Of the machine code. What touches no memory is told from its block."""

    def runs(families: Sequence[str] | None = None, threads: bool = False) -> Figures:
        total = np.zeros(size)
        for item in ran:
            if families is None or item.instruction.family in families:
                total = total + (item.threads if threads else item.runs)
        return whole(total)

    everything, on = runs(), runs(threads=True)
    found: list[Metric] = []
    for name in _EXECUTED:
        found += spread(name, everything, ESTIMATED, "inst")
    found += spread("smsp__thread_inst_executed_pred_on", on, ESTIMATED)
    fp32 = runs(("FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2"), threads=True)
    found += spread("smsp__sass_thread_inst_executed_op_fp32_pred_on", fp32, ESTIMATED)
    for suffix, families in _OPCODES.items():
        figures = runs(families, threads=True)
        found += spread(f"smsp__sass_thread_inst_executed_op_{suffix}_pred_on", figures, ESTIMATED)
    for suffix, families in _TENSOR.items():
        found += spread(f"tilewise__inst_executed_op_{suffix}", runs(families), ESTIMATED, "inst")
    found += spread(
        "sm__inst_executed_pipe_tensor", runs([f for some in _TENSOR.values() for f in some]), ESTIMATED
    )
    for suffix, families in (("local", ("LDL", "STL")), ("local_ld", ("LDL",)), ("local_st", ("STL",))):
        found += spread(f"smsp__sass_inst_executed_op_{suffix}", runs(families), ESTIMATED)
    for family in ("smsp__sass", "sm__sass"):
        found += spread(f"{family}_inst_executed_op_branch", runs(("BRA", "BRX", "JMP")), ESTIMATED)
    return found


def _ptx_instructions(counts: Counts, size: int) -> list[Metric]:
    """Where there is no machine code: instructions of the PTX, which are not the same ones."""
    everything, threads = np.zeros(size), np.zeros(size)
    for item in counts.executed():
        everything, threads = everything + item.runs, threads + item.on_threads
    found = spread("tilewise__ptx_inst_executed", everything, PTX, "inst")
    return found + spread("tilewise__ptx_thread_inst_executed_pred_on", threads, PTX)


def _barriers(counts: Counts, size: int) -> list[Metric]:
    """How often warps came to a barrier of their block."""
    total = np.zeros(size)
    for item in counts.executed():
        if (
            item.name.startswith(("bar.", "barrier."))
            and "cluster" not in item.name
            and "warp" not in item.name
        ):
            total = total + item.runs
    return spread("tilewise__inst_executed_op_barrier", total, EXACT, "inst")


def _branches(counts: Counts) -> list[Metric]:
    """Divergence, at PTX level: what the assembler makes of short branches is not a branch any more."""
    executed = counts.executed()
    branches = [item for item in executed if item.splits is not None]
    split = sum((item.splits for item in branches if item.splits is not None), np.zeros(len(counts.rows)))
    runs = float(sum(int(item.runs.sum()) for item in branches))
    whole = sum(float(item.runs.sum()) for item in executed)
    threads = sum(float(item.threads.sum()) for item in executed)
    uniform = 100 * (1 - float(split.sum()) / runs) if runs else 100.0
    return [
        *spread("smsp__sass_branch_targets_threads_divergent", split * 1.0, PTX),
        Metric("smsp__sass_average_branch_targets_threads_uniform.pct", uniform, PTX, "%"),
        Metric("smsp__thread_inst_executed_per_inst_executed.ratio", threads / whole if whole else 0.0, PTX),
    ]


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
    found += [
        Metric(f"launch__occupancy_limit_{names[name]}", float(limit), EXACT, "block")
        for name, limit in occupancy.limits.items()
    ]
    found += [
        Metric("launch__registers_per_thread", float(occupancy.registers)),
        Metric("launch__shared_mem_config_size", float(occupancy.shared_config), EXACT, "byte"),
        Metric("sm__maximum_warps_per_active_cycle_pct", 100 * occupancy.ratio, EXACT, "%"),
        Metric("sm__maximum_warps_avg_per_active_cycle", float(occupancy.warps), EXACT, "warp"),
    ]
    if occupancy.waves is not None:
        found.append(Metric("launch__waves_per_multiprocessor", occupancy.waves))
    if occupancy.tail is not None:
        found.append(Metric("tilewise__last_wave.ratio", occupancy.tail))
    return found
