"""What is never given back: blocks of a kernel's heap, and arrays of a device."""

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

__all__ = ["Block", "HostArrays", "blocks_kept"]

_OWN = str(Path(__file__).parents[1])  # frames of the package itself are not where somebody allocates
_HEADER, _SIZE, _FREE = 16, 4, 0x8000_0000  # of a block, see ``emulator/ptx/library.py``
_LINE, _WHO = 8, 12  # what the checked build notes in it


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the heap that a launch took and did not give back."""

    line: int  # of the PTX
    who: int
    size: int


def blocks_kept(heap: int, used: int) -> list[Block]:
    """The blocks that the last launch kept, of a heap at an address that is in use so far; forgets who took them."""
    data = memoryview((ctypes.c_char * used).from_address(heap)).cast("B")
    found, at = [], _HEADER

    def word(offset: int) -> int:
        return int.from_bytes(data[at + offset : at + offset + 4], sys.byteorder)

    while at < used:
        logarithm, line = word(_SIZE), word(_LINE)
        size = 1 << (logarithm & 63)
        if size < _HEADER:  # somebody has written over it: what follows is not known
            break
        if line and not logarithm & _FREE:
            found.append(Block(line, word(_WHO), size - _HEADER))
        data[at + _LINE : at + _HEADER] = bytes(_HEADER - _LINE)
        at += size
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    allocation: weakref.ref[Any]
    name: str
    size: int
    file: str
    line: int


class HostArrays:
    """The arrays that a device has made, and where in the program."""

    def __init__(self) -> None:
        self._made: list[_Made] = []

    def add(self, allocation: Any) -> None:
        frame: Any = sys._getframe(1)
        while frame and frame.f_code.co_filename.startswith(_OWN):
            frame = frame.f_back
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        self._made = [item for item in self._made if item.allocation() is not None]
        self._made.append(_Made(weakref.ref(allocation), allocation.name, allocation.size, file, line))

    def forget(self) -> None:
        self._made.clear()

    def leaks(self) -> list[Finding]:
        """Those that somebody still refers to."""
        gc.collect()
        found = []
        for item in self._made:
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
