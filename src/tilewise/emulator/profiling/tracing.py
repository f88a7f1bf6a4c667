"""The traced build: which sectors of global memory every block touched, in order.

It is for models of caches, and slower than the counted build: every access of a warp is written down as the
sectors that its lanes touch. A log that is full takes no more, and says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import BLOCK, Space
from tilewise.emulator.llvm.emit import NULL, vector
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.lowering.context import Watcher
from tilewise.emulator.lowering.watch import WORKER_WATCH, Memories, touches
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.profiling.copies import watch_copy
from tilewise.emulator.profiling.support import look_for
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["BYPASS", "PREFETCH", "READ", "WRITE", "Tracer", "Tracing", "routines"]

# A read past the L1 bypasses it; a prefetch goes no further than the L2; a mark says which block what follows is of.
READ, WRITE, BYPASS, MARK, PREFETCH = 0, 1, 2, 3, 4
_KIND_SHIFT, _KINDS = 61, 7
_SECTORS = (1 << _KIND_SHIFT) - 1
_USED, _CAPACITY, _LOST, _BLOCK = 0, 8, 16, 24
_HEADER = 64
_SECTOR_SHIFT = 5
_NONE = -1
_OF_COPIES = {"load": BYPASS, "multicast": BYPASS, "store": WRITE, "reduce": WRITE, "prefetch": PREFETCH}


class Tracing(Watcher):
    """Emits code that logs the sectors that a kernel touches."""

    def before(self, instruction: Instruction) -> Any:
        accesses = operation_of(instruction).accesses
        copies = any(access.action == "copy" for access in accesses)
        if not copies and space_of(instruction) in ("param", "const", "local", "shared"):
            return None
        if any(access.rows for access in accesses):
            return None  # they lie in shared memory
        found = touches(self.e, instruction)
        return [touch for touch in found if touch.access.space in (Space.GLOBAL, Space.GENERIC)]

    def after(self, instruction: Instruction, seen: Any) -> None:
        e = self.e
        if way := operation_of(instruction).copy_kind(instruction):
            log = e.load("ptr", e.offset("%worker", WORKER_WATCH), 8)
            watch_copy(e, instruction, way, NULL, log, _OF_COPIES.get(way, READ))
            return
        for touch in seen or ():
            kind = READ if touch.action == "load" else WRITE
            if touch.action == "copy":
                kind = BYPASS if "cg" in instruction.parts else READ
            buffer = e.list_addresses(touch.addresses)
            log = e.load("ptr", e.offset("%worker", WORKER_WATCH), 8)
            block = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8)
            e.call("tw_trace", "void", log, block, buffer, e.mask(), e.const("i64", kind))


def routines() -> list[Routine]:
    return [_trace(), _block(), _sector(), _entry()]


def _entry() -> Routine:
    """Append one word to the log."""
    r = Routine("tw_trace_word", "void", log="ptr", word="i64")
    used = r.field(r["log"], _USED, "i64")
    with r.when(r.is_at_least(used, r.field(r["log"], _CAPACITY, "i64"))):
        r.change(r["log"], _LOST, "add", 1, "i64")
        r.give()
    r.put(r.item(r.at(r["log"], _HEADER), used, 8), 0, r["word"])
    r.put(r["log"], _USED, used + 1)
    return r


def _trace() -> Routine:
    """Log the sectors that the lanes touch, each once."""
    r = Routine("tw_trace", "void", log="ptr", block="i64", addresses="ptr", mask="i32", kind="i64")
    r.call("tw_trace_block", "void", r["log"], r["block"])
    pieces = r.reserve(vector("i64"), 64)
    count = r.variable("i32", 0)
    with r.each_lane(r["mask"]) as lane:
        address = r.element(r["addresses"], lane, "i64")
        sector = address >> _SECTOR_SHIFT
        found = r.variable("i1", 0)
        # Generic addresses of other spaces lie beyond all memory.
        found.put(r.differs(address >> 56, 0))
        look_for(r, found, sector, pieces, count.get())
        with r.unless(found.get()):
            r.put(r.item(pieces, count.get(), 8), 0, sector)
            count.add(1)
            r.call("tw_trace_sector", "void", r["log"], sector, r["kind"])
    return r


def _block() -> Routine:
    """Log the block's number if it differs from the last one logged."""
    r = Routine("tw_trace_block", "void", log="ptr", block="i64")
    with r.when(r.differs(r.field(r["log"], _BLOCK, "i64"), r["block"])):
        r.put(r["log"], _BLOCK, r["block"])
        mark = r["block"] | (MARK << _KIND_SHIFT)
        r.call("tw_trace_word", "void", r["log"], mark)
    return r


def _sector() -> Routine:
    r = Routine("tw_trace_sector", "void", log="ptr", sector="i64", kind="i64")
    r.call("tw_trace_word", "void", r["log"], r["sector"] | (r["kind"] << _KIND_SHIFT))
    return r


class Tracer(Memories):
    """Memory for the log of each worker of one launch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._logs: dict[int, npt.NDArray[np.int64]] = {}

    def worker(self, number: int) -> int:
        log = np.zeros(_HEADER // 8 + self._most, np.int64)
        log[_CAPACITY // 8], log[_BLOCK // 8] = self._most, _NONE
        self._logs[number] = log
        return int(log.ctypes.data)

    @property
    def lost(self) -> int:
        """How many words did not fit into the logs."""
        return sum(int(log[_LOST // 8]) for log in self._logs.values())

    def blocks(self) -> dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]]:
        """Map each block to its sectors in program order, and how it accessed each."""
        parts: dict[int, list[npt.NDArray[np.int64]]] = {}
        for log in self._logs.values():
            words = log[_HEADER // 8 : _HEADER // 8 + int(log[_USED // 8])]
            kinds = (words >> _KIND_SHIFT) & _KINDS
            starts = np.flatnonzero(kinds == MARK)
            for i, start in enumerate(starts):
                end = starts[i + 1] if i + 1 < len(starts) else len(words)
                block = int(words[start] & _SECTORS)
                parts.setdefault(block, []).append(words[start + 1 : end])
        joined = {block: np.concatenate(parts[block]) for block in sorted(parts)}
        return {
            block: (words & _SECTORS, ((words >> _KIND_SHIFT) & _KINDS).astype(np.int8))
            for block, words in joined.items()
        }
