"""Metrics of instructions: counts by class and pipe, and divergent branches.

The runs of what touches no memory follow from the basic block that it is in, so these figures are estimates; see
``flow.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewise.emulator.profiling.counted import Counts
from tilewise.instruments.classes import CLASSES, PIPED, PIPES, category_of, class_of, pipes_of
from tilewise.instruments.machine import MEMORY, Machine, MachineAccess, MachineRuns, width_of
from tilewise.instruments.metric import ESTIMATED, EXACT, PTX, Figures, Metric, round_counts, spread
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["barrier_metrics", "instruction_metrics", "ptx_metrics", "unclassified_opcode_notes"]

_BOTH = ("smsp", "sm")
# smsp__sass_thread_inst_executed_op_*_pred_on: opcodes that have a metric of their own, and sums of them.
_SINGLE = {
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
_TOGETHER = (("fadd", "fmul", "ffma"), ("dadd", "dmul", "dfma"), ("hadd", "hmul", "hfma"))
_TENSOR = ("hmma", "imma", "dmma", "bmma", "hgmma", "igmma", "qgmma", "bgmma")
_GMMA = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
_BRANCHES = ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET")
# smsp__inst_executed_op_*: counted whether or not a guard lets any thread through.
_OPERATIONS = {
    "branch": (*_BRANCHES, "EXIT", "BSYNC", "NANOSLEEP"),
    "generic_atom": ("ATOM", "ATOMG"),
    "generic_ld": ("LD",),
    "generic_st": ("ST",),
    "global_ld": ("LDG",),
    "global_red": ("RED", "REDG"),
    "global_st": ("STG",),
    "ldc": ("LDC",),
    "ldgsts": ("LDGSTS",),
    "ldsm": ("LDSM",),
    "local_ld": ("LDL",),
    "local_st": ("STL",),
    "shared_atom": ("ATOMS",),
    "shared_ld": ("LDS",),
    "shared_st": ("STS",),
    "shared_stsm": ("STSM",),
    "redas": ("REDAS",),
    "stas": ("STAS",),
}
# smsp__sass_inst_executed_op_*, but for those of which ``metrics.py`` knows what they touched.
_SASS_OPERATIONS = {
    "atom": ("ATOM", "ATOMG", "ATOMS"),
    "branch": _BRANCHES,
    "ld": ("LD", "LDG", "LDL", "LDS", "LDSM", *_GMMA),
    "local": ("LDL", "STL"),
    "local_ld": ("LDL",),
    "local_st": ("STL",),
    "st": ("ST", "STAS", "STG", "STL", "STS", "STSM"),
}
_WIDE = {*MEMORY, "LDL", "STL", "STAS", "REDAS"}  # of which ncu tells the widths
# smsp__inst_executed_op_*: opcodes of the copy engine, and ways of its bulk copies.
_ENGINE = (("tma_ld", ("UTMALDG",), ("S.G",)), ("tma_st", ("UTMASTG", "UTMAREDG"), ("G.S", "S.S")))
_FP8 = (8, 9)  # the compute capability from which on there is a class of its own for it


@dataclass(slots=True)
class _Sum:
    """Runs of like instructions, their threads, and the threads that a guard let through."""

    runs: Figures
    active: Figures
    threads: Figures


class _Kind(NamedTuple):
    """The key under which instructions are counted: opcode, pipes, bits a lane, direction of a bulk copy."""

    opcode: str
    pipes: tuple[str, ...] | None
    bits: int
    way: str  # "S.G", "G.S" or "S.S": to shared memory from global, and so on


def instruction_metrics(machine: Machine, counts: Counts, threads: float) -> list[Metric]:
    """Return all metrics of the machine code's instructions; ``threads`` were launched."""
    sums = _Sums(machine.ran, len(counts.rows))
    found = _launch(sums, counts.block_runs(0) * 1.0, threads)
    found += _classes(sums, machine.capability)
    found += _operations(sums)
    found += _accesses(machine.accesses, sums.size)
    found += _pipes(sums) if machine.capability == PIPED else _tensor_pipes(sums, machine.capability)
    found += _opcodes(sums)
    found += _branches(machine.ran, sums.of(_BRANCHES))
    return found


def _kind(item: MachineInstruction) -> _Kind:
    family = item.family
    bits = width_of(item) if family in _WIDE else 0
    way = ".".join(item.opcode.split(".")[1:3]) if family.startswith("UBLK") else ""
    return _Kind(family, pipes_of(item), bits, way)


class _Sums:
    """Sums of runs, by kind of instruction."""

    def __init__(self, ran: Iterable[MachineRuns], size: int) -> None:
        self.size = size
        self.by_key: dict[_Kind, _Sum] = {}
        for item in ran:
            key = _kind(item.instruction)
            if key not in self.by_key:
                self.by_key[key] = _Sum(np.zeros(size), np.zeros(size), np.zeros(size))
            found = self.by_key[key]
            found.runs += item.runs
            found.active += item.active
            found.threads += item.threads

    def total(self, chosen: Callable[[_Kind], bool], what: str = "runs") -> Figures:
        found = np.zeros(self.size)
        for key, item in self.by_key.items():
            if chosen(key):
                found = found + getattr(item, what)
        return round_counts(found)

    def of(self, opcodes: Collection[str], what: str = "runs") -> Figures:
        return self.total(lambda kind: kind.opcode in opcodes, what)

    def of_class(self, name: str) -> Figures:
        return self.total(lambda kind: class_of(kind.opcode) == name, "threads")

    def on(self, pipe: str) -> Figures:
        return self.total(lambda kind: pipe in (kind.pipes or ()))

    def going(self, ways: Collection[str]) -> Figures:
        return self.total(lambda kind: kind.way in ways)

    def as_wide_as(self, bits: int) -> Figures:
        return self.total(lambda kind: kind.bits == bits)

    def everything(self, what: str = "runs") -> Figures:
        return self.total(lambda kind: True, what)


def _launch(sums: _Sums, warps: Figures, threads: float) -> list[Metric]:
    """Return the metrics of all instructions together."""
    runs, active, on = (sums.everything(what) for what in ("runs", "active", "threads"))
    found: list[Metric] = []
    for family in _BOTH:
        for name in (f"{family}__inst_executed", f"{family}__sass_inst_executed"):
            found += spread(name, runs, ESTIMATED, "inst")
        found += spread(f"{family}__sass_thread_inst_executed", active, ESTIMATED, "inst")
        found += spread(f"{family}__sass_thread_inst_executed_pred_on", on, ESTIMATED, "inst")
    found += spread("smsp__thread_inst_executed", active, ESTIMATED, "inst")
    found += spread("smsp__thread_inst_executed_pred_on", on, ESTIMATED, "inst")
    found += spread("smsp__thread_inst_executed_pred_off", round_counts(active - on), ESTIMATED, "inst")
    executed, launched = float(runs.sum()), float(warps.sum())
    for what, figures in (("", active), ("_pred_on", on)):
        ratio = float(figures.sum()) / executed if executed else 0.0
        # ncu has both names for it; the first is the old one.
        for name in ("smsp__thread_inst_executed", "smsp__average_thread_inst_executed"):
            found.append(Metric(f"{name}{what}_per_inst_executed.ratio", ratio, ESTIMATED))
    if launched:
        average = "smsp__average_inst_executed_per_warp.ratio"
        found += [
            Metric(average, executed / launched, ESTIMATED, "inst/warp"),
            Metric("smsp__threads_launched.sum", threads, EXACT, "thread"),
            Metric("smsp__average_threads_launched_per_warp.ratio", threads / launched, EXACT, "thread/warp"),
        ]
    return found


def _classes(sums: _Sums, capability: tuple[int, int] | None) -> list[Metric]:
    """Return the threads that ran instructions, by class."""
    found: list[Metric] = []
    figures = {name: sums.of(opcodes, "threads") for name, opcodes in _SINGLE.items()}
    for name in CLASSES:
        if name != "fp8" or (capability or (0, 0)) >= _FP8:
            figures[name] = sums.of_class(name)
    named = {f"op_{name}": item for name, item in figures.items()}
    for group in _TOGETHER:
        named[f"ops_{'_'.join((group[0], group[1], group[2]))}"] = sum(figures[name] for name in group)  # type: ignore[assignment]
    for family in _BOTH:
        for name, item in named.items():
            found += spread(f"{family}__sass_thread_inst_executed_{name}_pred_on", item, ESTIMATED, "inst")
    return found


def _operations(sums: _Sums) -> list[Metric]:
    """Return the warps that ran each operation, even where a guard let no thread through."""
    found: list[Metric] = []
    named = {f"smsp__inst_executed_op_{name}": sums.of(opcodes) for name, opcodes in _OPERATIONS.items()}
    for name, engine, ways in _ENGINE:
        named[f"smsp__inst_executed_op_{name}"] = sums.of(engine) + sums.going(ways)
    named |= {f"tilewise__inst_executed_op_{name}": sums.of((name.upper(),)) for name in _TENSOR}
    for family in _BOTH:
        for name, opcodes in _SASS_OPERATIONS.items():
            named[f"{family}__sass_inst_executed_op_{name}"] = sums.of(opcodes)
        for bits in (8, 16, 32, 64, 128):
            named[f"{family}__sass_inst_executed_op_memory_{bits}b"] = sums.as_wide_as(bits)
    for name, figures in named.items():
        found += spread(name, figures, ESTIMATED, "inst")
    return found


def _accesses(accesses: Sequence[MachineAccess], size: int) -> list[Metric]:
    """Return the warps that ran each access, where a guard let a thread through."""
    found: list[Metric] = []
    outside = [item for item in accesses if item.space == "global"]
    copies = [item for item in outside if item.op == "ldgsts"]
    named = {
        "global": [item for item in outside if item.op in ("ld", "st", "atom", "red")],
        "ldgsts_cache_access": [item for item in copies if ".BYPASS" not in item.instruction.opcode],
        "ldgsts_cache_bypass": [item for item in copies if ".BYPASS" in item.instruction.opcode],
        "shared_stsm": [item for item in accesses if item.op == "stsm"],
    }
    for name, some in named.items():
        figures = round_counts(sum((item.runs for item in some), np.zeros(size)))
        label = EXACT if all(item.exact for item in some) else ESTIMATED
        for family in _BOTH:
            found += spread(f"{family}__sass_inst_executed_op_{name}", figures, label, "inst")
    return found


def _pipes(sums: _Sums) -> list[Metric]:
    """Return the warps' instructions by pipe."""
    found: list[Metric] = []
    named = {f"pipe_{pipe}": sums.on(pipe) for pipe in PIPES}
    for family in _BOTH:
        for name, item in named.items():
            found += spread(f"{family}__inst_executed_{name}", item, ESTIMATED, "inst")
    reads = {
        "mem_lg": ("LDL", "LDG", "LDGDEPBAR", "ATOMG"),
        "mem_shared": ("LDS", "LDSM", "ATOMS"),
        "ops_generic": ("LD", "ATOM"),
    }
    for name, opcodes in reads.items():
        found += spread(f"sm__inst_executed_pipe_lsu_{name}_cmd_read", sums.of(opcodes), ESTIMATED, "inst")
    return found


def _tensor_pipes(sums: _Sums, capability: tuple[int, int] | None) -> list[Metric]:
    """Return metrics of tensor pipes where the pipes are not known: ``mma`` of warps, not the tensor memory's own."""
    kinds = {"hmma": ("HMMA", "QMMA", "OMMA"), "imma": ("IMMA", "BMMA"), "dmma": ("DMMA",)}
    if capability is None:
        return []
    if capability != (8, 0):
        del kinds["dmma"]  # another pipe has it
    named = {f"pipe_tensor_op_{kind}": sums.of(opcodes) for kind, opcodes in kinds.items()}
    if capability == (8, 0):
        half = sums.total(lambda kind: kind.opcode == "HFMA2" and "tensor" in (kind.pipes or ()))
        named["pipe_tensor_op_hmma"] = named["pipe_tensor_op_hmma"] + half
    named["pipe_tensor"] = sum(named.values(), np.zeros(sums.size))
    found: list[Metric] = []
    for family in _BOTH:
        for name, item in named.items():
            found += spread(f"{family}__inst_executed_{name}", item, ESTIMATED, "inst")
    return found


def _opcodes(sums: _Sums) -> list[Metric]:
    """Return instructions by opcode and by ncu's category of opcodes."""
    found = []
    for what, name in (("runs", "sass__inst_executed"), ("threads", "sass__thread_inst_executed_true")):
        by_opcode: dict[str, float] = {}
        by_category: dict[str, float] = {}
        for (opcode, *_), item in sums.by_key.items():
            figure = float(getattr(item, what).sum())
            by_opcode[opcode] = by_opcode.get(opcode, 0.0) + figure
            category = category_of(opcode) or "Other"
            by_category[category] = by_category.get(category, 0.0) + figure
        for way, parts in (("opcode", by_opcode), ("opcode_category", by_category)):
            if what == "runs" or way == "opcode":
                total = float(round_counts(np.array([sum(parts.values())]))[0])
                listed = {key: float(round_counts(np.array(value))) for key, value in parts.items() if value}
                ordered = dict(sorted(listed.items(), key=lambda pair: (-pair[1], pair[0])))
                found.append(Metric(f"{name}_per_{way}", total, ESTIMATED, "inst", ordered))
    return found


def _branches(ran: Sequence[MachineRuns], targets: Figures) -> list[Metric]:
    """Return the metrics of branches: all, and those that split a warp."""
    parted = np.zeros(len(targets))
    for item in ran:
        if item.parted is not None and item.instruction.family in _BRANCHES:
            parted = parted + item.parted
    parted = np.minimum(parted, targets)
    total = float(targets.sum())
    uniform = 100 * (1 - float(parted.sum()) / total) if total else 0.0
    found: list[Metric] = []
    for family in _BOTH:
        found += spread(f"{family}__sass_branch_targets", targets, ESTIMATED, "branches")
        for way, figures in (("divergent", parted), ("uniform", round_counts(targets - parted))):
            found += spread(f"{family}__sass_branch_targets_threads_{way}", figures, ESTIMATED, "branches")
    average = "smsp__sass_average_branch_targets_threads_uniform.pct"
    return [*found, Metric(average, uniform, ESTIMATED, "%")]


def unclassified_opcode_notes(ran: Iterable[MachineRuns], capability: tuple[int, int] | None) -> list[str]:
    """Return notes that name the opcodes without a known class or pipe."""
    opcodes = {item.instruction.family: item.instruction for item in ran if item.runs.any()}
    notes = []
    classless = sorted(opcode for opcode in opcodes if class_of(opcode) is None)
    if classless:
        notes.append(
            f"of {', '.join(classless)} no class is known: they are in none of the metrics of classes"
        )
    pipeless = sorted(opcode for opcode, item in opcodes.items() if pipes_of(item) is None)
    if capability == PIPED and pipeless:
        notes.append(f"of {', '.join(pipeless)} no pipe is known: they are in none of the metrics of pipes")
    return notes


# -- where there is no machine code ---------------------------------------------------------------------
def ptx_metrics(counts: Counts) -> list[Metric]:
    """Return metrics of PTX instructions and branches, for a launch without machine code."""
    executed, size = counts.instruction_runs(), len(counts.rows)
    runs = sum((item.runs for item in executed), np.zeros(size))
    threads = sum((item.threads for item in executed), np.zeros(size))
    on = sum((item.on_threads for item in executed), np.zeros(size))
    found = spread("tilewise__ptx_inst_executed", runs, PTX, "inst")
    found += spread("tilewise__ptx_thread_inst_executed_pred_on", on, PTX)
    branches = [item for item in executed if item.splits is not None]
    split = sum((item.splits for item in branches if item.splits is not None), np.zeros(size))
    taken, whole_runs = float(sum(int(item.runs.sum()) for item in branches)), float(runs.sum())
    uniform = 100 * (1 - float(split.sum()) / taken) if taken else 0.0
    ratio = float(threads.sum()) / whole_runs if whole_runs else 0.0
    return [
        *found,
        *spread("smsp__sass_branch_targets_threads_divergent", split * 1.0, PTX),
        Metric("smsp__sass_average_branch_targets_threads_uniform.pct", uniform, PTX, "%"),
        Metric("smsp__thread_inst_executed_per_inst_executed.ratio", ratio, PTX),
        Metric("smsp__average_thread_inst_executed_per_inst_executed.ratio", ratio, PTX),
    ]


def barrier_metrics(counts: Counts) -> list[Metric]:
    """Return how often warps came to a barrier of their block."""
    total = np.zeros(len(counts.rows))
    for item in counts.instruction_runs():
        names = ("bar.", "barrier.")
        if item.name.startswith(names) and "cluster" not in item.name and "warp" not in item.name:
            total = total + item.runs
    return spread("tilewise__inst_executed_op_barrier", total, EXACT, "inst")
