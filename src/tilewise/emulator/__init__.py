"""PTX on the CPU: a compiler from PTX to the machine's own vector code, and what runs it."""

from __future__ import annotations

from tilewise.emulator.analysis.variable_layout import Initial, initial_content
from tilewise.emulator.build import Build, Store, build_kernel
from tilewise.emulator.families import enter_rows
from tilewise.emulator.native import CpuTarget, host_cpu
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import PtxModule, PtxVariable
from tilewise.emulator.running.run import Range, RangeTable, Runner

__all__ = [
    "Build",
    "CpuTarget",
    "Initial",
    "PtxModule",
    "PtxVariable",
    "Range",
    "RangeTable",
    "Runner",
    "Store",
    "build_kernel",
    "host_cpu",
    "initial_content",
    "parse",
]

enter_rows()
