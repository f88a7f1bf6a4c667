"""Logs that workers of a traced or a recorded launch write: rows of one length behind a header.

A log that is full takes no more, and counts what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I64, Ptr, Routine, routine
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.watch import WORKER_WATCH, Memories

__all__ = [
    "KIND_SHIFT",
    "LAST_BLOCK",
    "MARK",
    "OWN",
    "Logs",
    "own_log",
    "reserve_row",
    "trace_block",
    "trace_sector",
]

_USED, _CAPACITY, _LOST = 0, 8, 16
OWN = 24  # from here on, the header has what each kind of log knows besides
_HEADER = 64

# A trace's rows are words: a sector and from this bit on what was done there; or a mark, which says what
# block the words behind it are of. Its header has the block of the last one.
LAST_BLOCK, KIND_SHIFT, MARK = OWN, 61, 3


def own_log(e: Context) -> Value:
    """Return the pointer to the log of the worker that runs the code."""
    return e.load("ptr", e.offset("%worker", WORKER_WATCH), 8)


def reserve_row(r: Routine, length: int) -> Value:
    """Return the pointer to a new row of the routine's ``log``; leave the routine if the log is full."""
    used = r.field(r["log"], _USED, "i64")
    with r.when(r.is_at_least(used, r.field(r["log"], _CAPACITY, "i64"))):
        r.change(r["log"], _LOST, "add", 1, "i64")
        r.give()
    r.put(r["log"], _USED, used + 1)
    return r.item(r.at(r["log"], _HEADER), used, length)


@routine("tw_trace_word", "void")
def _trace_word(r: Routine, log: Ptr, word: I64) -> None:
    r.put(reserve_row(r, 8), 0, word)


@routine("tw_trace_block", "void")
def trace_block(r: Routine, log: Ptr, block: I64) -> None:
    """Log the block's number if it differs from the last one logged."""
    with r.when(r.differs(r.field(log, LAST_BLOCK, "i64"), block)):
        r.put(log, LAST_BLOCK, block)
        _trace_word(r, log, block | (MARK << KIND_SHIFT))


@routine("tw_trace_sector", "void")
def trace_sector(r: Routine, log: Ptr, sector: I64, kind: I64) -> None:
    """Log a sector, and what was done there."""
    _trace_word(r, log, sector | (kind << KIND_SHIFT))


class Logs(Memories):
    """Memory for the log of each worker of one launch."""

    def __init__(self, most: int, words: int = 1, header: Mapping[int, int] | None = None) -> None:
        """``most`` rows of ``words`` numbers; ``header`` is what else it begins with, by offset."""
        self._most, self._words = most, words
        self._header = {_CAPACITY: most, **(header or {})}
        self._logs: list[npt.NDArray[np.int64]] = []

    def worker(self) -> int:
        log = np.zeros(_HEADER // 8 + self._most * self._words, np.int64)
        for offset, value in self._header.items():
            log[offset // 8] = value
        self._logs.append(log)
        return int(log.ctypes.data)

    @property
    def lost(self) -> int:
        """How many rows did not fit into the logs."""
        return sum(int(log[_LOST // 8]) for log in self._logs)

    def rows(self) -> list[npt.NDArray[np.int64]]:
        """Return the rows of each log."""
        used = [int(log[_USED // 8]) for log in self._logs]
        return [
            log[_HEADER // 8 :][: count * self._words].reshape(-1, self._words)
            for log, count in zip(self._logs, used, strict=True)
        ]
