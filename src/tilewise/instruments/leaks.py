"""Leaks: blocks of a kernel's heap, and arrays of a device, that were never freed."""

from __future__ import annotations

import ctypes
import gc
import linecache
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.instruments.findings import Access, Finding

__all__ = ["HeapBlock", "HostArrays", "find_leaked_blocks"]

_OWN = str(Path(__file__).parents[1])  # frames of the package itself are not where a program allocates
_HEADER, _SIZE, _FREE = 16, 4, 0x8000_0000  # of a block, see ``emulator/ptx/library.py``
_LINE, _WHO = 8, 12  # what the checked build records in it


@dataclass(frozen=True, slots=True)
class HeapBlock:
    """A block of the heap that a launch allocated and did not free."""

    line: int  # of the PTX
    who: int
    size: int


def find_leaked_blocks(heap: int, used: int) -> list[HeapBlock]:
    """The blocks that the last launch left allocated in ``used`` bytes of the heap at an address; clears who allocated
    them."""
    data = memoryview((ctypes.c_char * used).from_address(heap)).cast("B")
    found, at = [], _HEADER

    def word(offset: int) -> int:
        return int.from_bytes(data[at + offset : at + offset + 4], sys.byteorder)

    while at < used:
        logarithm, line = word(_SIZE), word(_LINE)
        size = 1 << (logarithm & 63)
        if size < _HEADER:  # overwritten: what follows cannot be read
            break
        if line and not logarithm & _FREE:
            found.append(HeapBlock(line, word(_WHO), size - _HEADER))
        data[at + _LINE : at + _HEADER] = bytes(_HEADER - _LINE)
        at += size
    return found


@dataclass(frozen=True, slots=True)
class _TrackedArray:
    allocation: weakref.ref[Any]
    name: str
    size: int
    file: str
    line: int


class HostArrays:
    """The arrays that a device has made, and where in the program."""

    def __init__(self) -> None:
        self._tracked: list[_TrackedArray] = []

    def add(self, allocation: Any) -> None:
        frame: Any = sys._getframe(1)
        while frame and frame.f_code.co_filename.startswith(_OWN):
            frame = frame.f_back
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        self._tracked = [item for item in self._tracked if item.allocation() is not None]
        self._tracked.append(
            _TrackedArray(weakref.ref(allocation), allocation.name, allocation.size, file, line)
        )

    def forget(self) -> None:
        self._tracked.clear()

    def leaks(self) -> list[Finding]:
        """A finding for each array that is still referenced."""
        gc.collect()
        found = []
        for item in self._tracked:
            if (allocation := item.allocation()) is None:
                continue
            text = linecache.getline(item.file, item.line).strip()
            made = Access("allocation", None, None, 0, 0, "", item.file, item.line, text)
            message = f"{item.size:,} bytes were never given back: {item.name}"
            advice = "let go of the array (del) before the device's end"
            found.append(
                Finding(
                    *("memcheck", "leak", message, advice, ""),
                    space="global",
                    address=allocation.address,
                    array=item.name,
                    now=made,
                )
            )
        return found
