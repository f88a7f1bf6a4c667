"""The roofline of a launch: how long each part of a GPU must be busy for it, and which takes longest.

Work comes from a profile; rates from the GPU table, at its boost clock. No launch is faster than its slowest
part: that is the bound. Of what an SM has of its own, the SM with the most to do is the slowest: where blocks are few,
or do not come out even, that is more than its share of the whole. Where no model of the caches was asked for, what
comes from memory and from L2 is not known.

The L1 and shared memory are one memory, all of whose banks give a word each a cycle: to loads of global and of shared
memory (``accesses.turns``), to stores of shared memory, and to products of four warps that read it (wavefronts). Loads
of global memory are counted as if the L1 had them: no launch is faster for what it lacks. Bulk copies go past the pipe
that those go through; they read or write 128 bytes a cycle there. Whether both can be in one cycle is not known, so
each is a bound of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewise.errors import ArgumentError
from tilewise.gpus import Gpu
from tilewise.instruments.bulk_accesses import count_shared_lines
from tilewise.instruments.machine import Figures, Machine, MachineAccess

__all__ = ["ISSUING", "MEMORY_CYCLES", "Roofline", "RooflineBound", "flops_of", "memory_cycles", "roofline"]

ISSUING, MEMORY_CYCLES = "issuing instructions", "L1 and shared memory"  # names of bounds
_LANES = 32
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\b")
_SHORT = {"1688": (16, 8, 8), "16816": (16, 8, 16), "16832": (16, 8, 32), "8816": (8, 8, 16), "884": (8, 8, 4),
          "16864": (16, 8, 64), "88128": (8, 8, 128), "168128": (16, 8, 128), "168256": (16, 8, 256)}  # fmt: skip
# Families of machine instructions → operations of one thread.
_SCALAR = {
    "FFMA": ("fp32", 2), "FADD": ("fp32", 1), "FMUL": ("fp32", 1), "DFMA": ("fp64", 2), "DADD": ("fp64", 1),
    "DMUL": ("fp64", 1), "FFMA2": ("fp32", 4), "FADD2": ("fp32", 2), "FMUL2": ("fp32", 2),
}  # fmt: skip
_TENSOR = ("HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA")


@dataclass(frozen=True, slots=True)
class RooflineBound:
    """One part of the GPU: its work, its rate, and the time that takes."""

    name: str
    amount: float
    unit: str
    rate: float
    """Per second, of the whole GPU."""
    uneven: float = 1.0
    """How much more the busiest SM has to do of it than the average one."""

    @property
    def seconds(self) -> float:
        return self.amount * self.uneven / self.rate


@dataclass(frozen=True, slots=True)
class Roofline:
    """The bounds of all parts of the GPU; the longest holds."""

    gpu: str
    flops: float
    bounds: tuple[RooflineBound, ...]
    memory_bytes: float | None
    """From and to memory, where a model of the caches says so."""

    @property
    def binding(self) -> RooflineBound:
        """The part that takes longest."""
        return max(self.bounds, key=lambda bound: bound.seconds)

    @property
    def seconds(self) -> float:
        """The least time of the launch."""
        return self.binding.seconds

    @property
    def intensity(self) -> float | None:
        """Operations for each byte of memory traffic."""
        return self.flops / self.memory_bytes if self.memory_bytes else None

    def reached(self, seconds: float) -> float:
        """Return the bound as a share of a measured time; 1 is the bound itself."""
        if not seconds > 0:
            raise ArgumentError("seconds", "must be above 0", seconds)
        return self.seconds / seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the roofline as plain data."""
        return {
            **asdict(self),
            "binding": self.binding.name,
            "seconds": self.seconds,
            "intensity": self.intensity,
        }

    def __str__(self) -> str:
        rows = [
            f"{bound.name}: {bound.amount:,.4g} {bound.unit}, {bound.seconds * 1e6:,.4g} µs"
            for bound in self.bounds
        ]
        return f"bound by {self.binding.name}, {self.seconds * 1e6:,.4g} µs on {self.gpu}\n" + "\n".join(
            f"  {row}" for row in rows
        )


def flops_of(opcode: str) -> tuple[str, int]:
    """Return the peak of the GPU table that bounds a machine instruction, and its operations for a warp."""
    family, _, words = opcode.partition(".")
    if family in _SCALAR:
        kind, each = _SCALAR[family]
        return kind, each * _LANES
    if family == "HFMA2":
        return "fp16", 4 * _LANES
    if family not in _TENSOR:
        return "", 0
    found = _SHAPE.search(opcode)
    shape = tuple(int(group) for group in found.groups()) if found else None
    if shape is None:
        shape = next((_SHORT[word] for word in words.split(".") if word in _SHORT), None)
    if shape is None:
        return "", 0
    m, n, k = shape
    operations = 2 * m * n * k // (4 if "GMMA" in family else 1)  # four warps share one of those
    return _kind(family, words), operations


def _kind(family: str, words: str) -> str:
    if family in ("IMMA", "IGMMA"):
        return "int8"
    if family == "DMMA":
        return "fp64_tensor"
    if family == "QGMMA":
        return "fp8_fp16" if "F16" in words.split(".") else "fp8_fp32"
    if "BF16" in words:
        return "bf16"
    if "TF32" in words:
        return "tf32"
    return "fp16_fp32" if "F32" in words else "fp16_fp16"


def roofline(
    machine: Machine, metrics: Mapping[str, float], gpu: Gpu, operand_bytes: int | None = None
) -> Roofline:
    """Return the roofline of a profile.

    Without a model of the caches memory moves ``operand_bytes``, if that is known: each once, and nothing is in L2 yet.
    """
    work = _operations(machine)
    bounds = []
    for kind, amount in work.items():
        rate = 2 * gpu.fp32_peak if kind == "fp16" else getattr(gpu.peaks, kind)
        if rate:
            bounds.append(_bound(f"{kind} arithmetic", amount, "operations", rate))
    clock = gpu.sms * gpu.boost_mhz * 1e6
    issued = sum((item.runs for item in machine.ran), np.zeros(1))
    bounds.append(_bound(ISSUING, issued, "instructions", gpu.limits.partitions_per_sm * clock))
    bounds.append(_bound(MEMORY_CYCLES, memory_cycles(machine.accesses), "cycles", clock))
    if copied := count_shared_lines(machine.accesses):
        uneven = _uneven(issued)
        bounds.append(
            RooflineBound("bulk copies in shared memory", copied, "lines of 128 bytes", clock, uneven)
        )
    memory = None
    if "dram__bytes_read.sum" in metrics:
        memory = metrics["dram__bytes_read.sum"] + metrics["dram__bytes_write.sum"]
        bounds.append(RooflineBound("memory", memory, "bytes", gpu.memory_bandwidth))
    elif operand_bytes:
        bounds.append(
            RooflineBound("memory, each operand once", operand_bytes, "bytes", gpu.memory_bandwidth)
        )
    return Roofline(gpu.name, sum(float(amount.sum()) for amount in work.values()), tuple(bounds), memory)


def _operations(machine: Machine) -> dict[str, Figures]:
    """Return the operations of each SM, by the peak that bounds them."""
    work: dict[str, Figures] = {}
    # How often products of four warps ran is counted, not inferred from their blocks.
    products = [access for access in machine.accesses if access.op == "gmma"]
    counted = {access.instruction.offset: access.runs for access in products}
    for item in machine.ran:
        kind, operations = flops_of(item.instruction.opcode)
        if not operations or "RZ, RZ" in item.instruction.text:
            continue  # multiplying by zero is how the assembler moves a constant
        family = item.instruction.family
        runs = counted.get(item.instruction.offset, item.runs) if "GMMA" in family else item.runs
        if family in _SCALAR or family == "HFMA2":
            amount = item.threads * (operations / _LANES)
        else:
            amount = runs * float(operations)
        work[kind] = work[kind] + amount if kind in work else amount
    return work


def memory_cycles(accesses: Iterable[MachineAccess]) -> Figures:
    """Return the cycles that accesses take of each SM's L1 and shared memory, which are one memory."""
    total = np.zeros(1)
    for access in accesses:
        total = total + (access.waves if access.turns is None else access.turns)
    return total


def _bound(name: str, amounts: Figures, unit: str, rate: float) -> RooflineBound:
    return RooflineBound(name, float(amounts.sum()), unit, rate, _uneven(amounts))


def _uneven(amounts: Figures) -> float:
    """Return the greatest share of an SM over the average one."""
    total = float(amounts.sum())
    return float(amounts.max()) * len(amounts) / total if total else 1.0
