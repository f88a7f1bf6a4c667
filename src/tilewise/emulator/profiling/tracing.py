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
from tilewise.emulator.llvm.routine import I32, I64, Ptr, Routine, routine
from tilewise.emulator.lowering.context import Watcher
from tilewise.emulator.lowering.watch import touches
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.profiling import logs
from tilewise.emulator.profiling.copies import watch_copy
from tilewise.emulator.profiling.support import look_for
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["BYPASS", "PREFETCH", "READ", "WRITE", "Tracer", "Tracing"]

# A read past the L1 bypasses it; a prefetch goes no further than the L2. Between these is ``MARK``.
READ, WRITE, BYPASS, PREFETCH = 0, 1, 2, 4
_KINDS = 7
_SECTORS = (1 << logs.KIND_SHIFT) - 1
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
            watch_copy(e, instruction, way, NULL, logs.own_log(e), _OF_COPIES.get(way, READ))
            return
        for touch in seen or ():
            kind = READ if touch.action == "load" else WRITE
            if touch.action == "copy":
                kind = BYPASS if "cg" in instruction.parts else READ
            buffer = e.list_addresses(touch.addresses)
            log = logs.own_log(e)
            block = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8)
            e.call("tw_trace", "void", log, block, buffer, e.mask(), e.const("i64", kind))


@routine("tw_trace", "void")
def _trace(r: Routine, log: Ptr, block: I64, addresses: Ptr, mask: I32, kind: I64) -> None:
    """Log the sectors that the lanes touch, each once."""
    logs.trace_block(r, log, block)
    pieces = r.reserve(vector("i64"), 64)
    count = r.variable("i32", 0)
    with r.each_lane(mask) as lane:
        address = r.element(addresses, lane, "i64")
        sector = address >> _SECTOR_SHIFT
        found = r.variable("i1", 0)
        # Generic addresses of other spaces lie beyond all memory.
        found.put(r.differs(address >> 56, 0))
        look_for(r, found, sector, pieces, count.get())
        with r.unless(found.get()):
            r.put(r.item(pieces, count.get(), 8), 0, sector)
            count.add(1)
            logs.trace_sector(r, log, sector, kind)


class Tracer(logs.Logs):
    """Memory for the log of each worker of one launch."""

    def __init__(self, most: int) -> None:
        super().__init__(most, header={logs.LAST_BLOCK: _NONE})

    def blocks(self) -> dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]]:
        """Map each block to its sectors in program order, and how it accessed each."""
        parts: dict[int, list[npt.NDArray[np.int64]]] = {}
        for rows in self.rows():
            words = rows[:, 0]
            kinds = (words >> logs.KIND_SHIFT) & _KINDS
            starts = np.flatnonzero(kinds == logs.MARK)
            for i, start in enumerate(starts):
                end = starts[i + 1] if i + 1 < len(starts) else len(words)
                block = int(words[start] & _SECTORS)
                parts.setdefault(block, []).append(words[start + 1 : end])
        joined = {block: np.concatenate(parts[block]) for block in sorted(parts)}
        return {
            block: (words & _SECTORS, ((words >> logs.KIND_SHIFT) & _KINDS).astype(np.int8))
            for block, words in joined.items()
        }
