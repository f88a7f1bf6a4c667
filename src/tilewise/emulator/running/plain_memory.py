"""Plain memory that Python and compiled code share."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["PlainMemory"]

_INTEGERS = {4: struct.Struct("<I"), 8: struct.Struct("<Q")}


class PlainMemory:
    """Plain memory at an address that is a multiple of 64."""

    def __init__(self, size: int, words: Mapping[int, int] | None = None) -> None:
        """Allocate zeros; ``words`` are other numbers of 64 bits that it begins with, by their offsets."""
        raw = np.zeros(size + 64, np.uint8)
        address: int = raw.__array_interface__["data"][0]
        start = -address % 64
        self.bytes: npt.NDArray[np.uint8] = raw[start : start + size]
        self.address = address + start
        self._view = self.bytes.data
        if words:  # all at once: of a launch there are many
            numbers = [0] * (size // 8)
            for offset, value in words.items():
                numbers[offset // 8] = value
            struct.pack_into(f"<{len(numbers)}Q", self._view, 0, *numbers)

    def set(self, offset: int, value: int, size: int = 8) -> None:
        _INTEGERS[size].pack_into(self._view, offset, value % (1 << (8 * size)))

    def get(self, offset: int, size: int = 4) -> int:
        return int(_INTEGERS[size].unpack_from(self._view, offset)[0])
