"""PTX on the CPU: a compiler from PTX to the machine's own vector code, and what runs it."""

from __future__ import annotations

from tilewise.emulator.build import Build, Store, build_kernel
from tilewise.emulator.families import (
    addresses,
    approximate,
    arithmetic,
    atomics,
    barriers,
    bits,
    clusters,
    convert,
    copies,
    floats,
    integers,
    loads,
    maps,
    matrix,
    mbarriers,
    mma,
    moves,
    stores,
    system,
    video,
    warp,
    wgmma,
    wmma,
)
from tilewise.emulator.native import Target, host
from tilewise.emulator.running.run import Range, RangeTable, Runner

__all__ = ["Build", "Range", "RangeTable", "Runner", "Store", "Target", "build_kernel", "host"]

# The tables of instructions fill in when their modules are imported.
FAMILIES = (
    approximate,
    addresses,
    arithmetic,
    atomics,
    barriers,
    bits,
    clusters,
    convert,
    copies,
    floats,
    integers,
    loads,
    maps,
    matrix,
    mbarriers,
    mma,
    moves,
    stores,
    system,
    video,
    warp,
    wgmma,
    wmma,
)
