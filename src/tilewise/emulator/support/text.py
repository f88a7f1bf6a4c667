"""The run-time support that compiled kernels call: LLVM text beside this file, with names for offsets.

``${BLOCK.LIVE}`` in ``runtime/*.ll`` stands for the figure of that name in ``layout.py``; other parts are
written in Python, with ``llvm/routine.py``. The text is
compiled once per process and linked to every kernel. Nothing in it knows an instruction.
"""

from __future__ import annotations

import re
from enum import IntEnum
from importlib import import_module, resources

from tilewise.emulator import layout
from tilewise.emulator.llvm.routine import join_modules

__all__ = ["POISON", "Outcome", "support_text"]

# Modules that write their part of the support with ``routine.py``; each has ``routines() -> list[Routine]``.
_ROUTINES = (
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
_TURNS = 64  # that a block has before others of its worker run, if it may wait for those
POISON = 0xFF  # shared and local memory before it is written: NaN as a float


class Outcome(IntEnum):
    """What ``tw_work`` returns."""

    FINISHED = 0  # no block is left to start
    STUCK = 1  # the block's warps all wait for something outside it
    GENERAL = 2  # the general build is needed
    ENDED = 3  # by a fault or the stop flag
    DEADLOCK = 4
    PAUSED = 5  # the block can go on, and lets others have a turn


def support_text() -> str:
    """The whole module."""
    folder = resources.files("tilewise.emulator.support") / "runtime"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".ll")), key=lambda f: f.name)
    text = "\n".join(_filled(file.read_text(encoding="utf-8")) for file in files)
    return join_modules(text, [routine for name in _ROUTINES for routine in import_module(name).routines()])


def _filled(text: str) -> str:
    return re.sub(r"\$\{([\w.]+)\}", lambda match: str(_figure(match[1])), text)


def _figure(name: str) -> int:
    if name == "BARRIERS_SIZE":
        return layout.BARRIERS * layout.BARRIER.SIZE
    if name == "RANKED":  # the first address of shared memory that has a rank
        return 1 << layout.RANK_SHIFT
    if name == "OFFSETS":
        return (1 << layout.RANK_SHIFT) - 1
    if name == "POISON":
        return POISON
    if name == "TURNS":
        return _TURNS
    owner, _, field = name.rpartition(".")
    if owner == "Outcome":
        return int(Outcome[field])
    place = getattr(layout, owner) if owner else layout
    return int(getattr(place, field))
