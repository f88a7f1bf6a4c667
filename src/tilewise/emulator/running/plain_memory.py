"""Plain memory that Python and compiled code share."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

__all__ = ["PlainMemory"]

_INTEGERS = {4: struct.Struct("<I"), 8: struct.Struct("<Q")}


class PlainMemory:
    """Plain memory at an address that is a multiple of 64."""

    def __init__(self, size: int) -> None:
        raw = np.zeros(size + 64, np.uint8)
        address: int = raw.__array_interface__["data"][0]
        start = -address % 64
        self.bytes: npt.NDArray[np.uint8] = raw[start : start + size]
        self.address = address + start
        self._view = self.bytes.data

    def set(self, offset: int, value: int, size: int = 8) -> None:
        _INTEGERS[size].pack_into(self._view, offset, value % (1 << (8 * size)))

    def get(self, offset: int, size: int = 4) -> int:
        return int(_INTEGERS[size].unpack_from(self._view, offset)[0])
