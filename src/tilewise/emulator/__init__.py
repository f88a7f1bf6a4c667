"""PTX on the CPU: a compiler from PTX to the machine's own vector code, and what runs it."""

from __future__ import annotations

from tilewise.emulator import (
    arithmetic,
    barriers,
    convert,
    copies,
    floats,
    integers,
    memory,
    moves,
)
from tilewise.emulator.build import Build, Store, build_kernel
from tilewise.emulator.native import Target, host
from tilewise.emulator.run import Range, Runner

__all__ = ["Build", "Range", "Runner", "Store", "Target", "build_kernel", "host"]

# The tables of instructions fill in when their modules are imported.
FAMILIES = (arithmetic, barriers, convert, copies, floats, integers, memory, moves)
