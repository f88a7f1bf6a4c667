"""The run-time support that compiled kernels call, as one LLVM module, which is linked to every kernel.

It is compiled once, and its machine code kept on the disk. Nothing in it knows an instruction.
"""

from __future__ import annotations

from importlib import import_module

from tilewise.emulator.llvm.routine import join_modules

__all__ = ["support_text"]

# Modules that write a part of the support with ``llvm/routine.py``; each has ``routines() -> list[Routine]``.
_ROUTINES = (
    "tilewise.emulator.support.scheduler",
    "tilewise.emulator.support.cluster_start",
    "tilewise.emulator.support.block_barrier",
    "tilewise.emulator.support.warp_sync",
    "tilewise.emulator.support.memory_access",
    "tilewise.emulator.support.flights",
    "tilewise.emulator.support.mbarrier",
    "tilewise.emulator.support.cluster",
    "tilewise.emulator.support.dependents",
    "tilewise.emulator.support.lenient",
    "tilewise.emulator.support.wgmma_queue",
    "tilewise.emulator.checking.block_begin",
    "tilewise.emulator.checking.vector_clocks",
    "tilewise.emulator.checking.sync_vars",
    "tilewise.emulator.checking.barrier_clocks",
    "tilewise.emulator.checking.race_check",
    "tilewise.emulator.checking.race_check_fast",
    "tilewise.emulator.checking.async_copies",
    "tilewise.emulator.checking.wgmma_registers",
    "tilewise.emulator.checking.shuffles",
    "tilewise.emulator.profiling.support",
    "tilewise.emulator.profiling.slow_path_counts",
    "tilewise.emulator.profiling.tracing",
    "tilewise.emulator.profiling.recording",
    "tilewise.emulator.profiling.copies",
    "tilewise.emulator.support.bulk_requests",
    "tilewise.emulator.support.fills",
    "tilewise.emulator.support.tensor_plan",
    "tilewise.emulator.support.tensor",
    "tilewise.emulator.support.reduction",
    "tilewise.emulator.support.tensor_map_edits",
)


def support_text() -> str:
    """The whole module."""
    return join_modules(routine for name in _ROUTINES for routine in import_module(name).routines())
