"""Address spaces. Every access is checked: inside an allocation, and aligned to its own width."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ptx_types import UNSIGNED, Array

# A generic address names its space by its window (the bits from 40 up). Global, constant and kernel-parameter
# addresses are their own generic addresses; shared and local ones are offsets, as on hardware.
WINDOW_BITS = 40
WINDOWS = {"global": 1, "shared": 2, "local": 3, "const": 4, "param": 5, "code": 6}
BASES = {name: number << WINDOW_BITS for name, number in WINDOWS.items()}
GUARD = 256
ALL = slice(None)


class BadAddress(Exception):
    """Position ``at`` of a batch of addresses is wrong; turned into a Fault by whoever knows the threads."""

    def __init__(self, at: int, address: int, why: str, group: Any) -> None:
        super().__init__(why)
        self.at, self.address, self.why, self.group = at, address, why, group


def check_alignment(offsets: Array, width: int, addresses: Array, group: Any) -> None:
    """Raise BadAddress unless all offsets are multiples of ``width`` bytes."""
    if width > 1:
        wrong = offsets & np.uint64(width - 1)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise BadAddress(at, int(addresses[at]), f"is not aligned to {width} bytes", group)


class Space:
    """Bytes that accesses of any power-of-two width can index."""

    name = "?"

    def __init__(self, size: int, base: int = 0) -> None:
        self.size, self.base = size, base
        self.bytes: Array = np.zeros((size + 15) // 8 * 8, np.uint8)
        self.views: dict[int, Array] = {w: self.bytes.view(UNSIGNED[8 * w]) for w in (1, 2, 4, 8)}

    def locate(self, addresses: Array, width: int, group: Any) -> Array:
        """Byte offsets of checked addresses (uint64)."""
        offsets = addresses - np.uint64(self.base) if self.base else addresses
        # NOTE: an address below the base wraps to a huge offset, so that one comparison checks both ends.
        if self.size < width or int(offsets.max()) > self.size - width:
            at = int(np.flatnonzero(offsets > max(self.size - width, -1))[0]) if self.size >= width else 0
            why = f"is outside the {self.size} bytes of {self.name} memory"
            raise BadAddress(at, int(addresses[at]), why, group)
        check_alignment(offsets, width, addresses, group)
        return offsets


class SharedSpace(Space):
    name = "shared"


class ConstantSpace(Space):
    name = "constant"


class ParameterSpace(Space):
    name = "parameter"


class LocalSpace(Space):
    """Each thread has its own ``size`` bytes: the same address means another place in each."""

    name = "local"

    def __init__(self, size: int, threads: int) -> None:
        size = (size + 15) // 16 * 16
        super().__init__(size * threads)
        self.size = size
        self.row = np.arange(threads, dtype=np.uint64) * np.uint64(size)

    def locate(self, addresses: Array, width: int, group: Any) -> Array:
        offsets: Array = super().locate(addresses, width, group) + self.row[group]
        return offsets


@dataclass
class Allocation:
    """One registered array and where it lies."""

    array: Array
    start: int
    end: int


class Memory(Space):
    """Global memory: NumPy arrays at made-up addresses, each with a guard gap after it.

    A launch works on a copy and writes it back into the arrays when it ends, also when it fails.
    """

    name = "global"

    def __init__(self) -> None:
        super().__init__(0, BASES["global"])
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []
        self.next = self.base

    def alloc(self, array: Array) -> int:
        """The address of a contiguous array (C or Fortran order), registered if it was not yet."""
        if not isinstance(array, np.ndarray) or not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise ValueError("alloc(array): needs a contiguous NumPy array; register the base array instead")
        low = array.ctypes.data
        for known in self.allocations:
            at = known.array.ctypes.data
            if at == low and known.array.nbytes == array.nbytes:
                return known.start
            if array.nbytes and low < at + known.array.nbytes and at < low + array.nbytes:
                raise ValueError("alloc(array): overlaps an array that is already registered; use an offset")
        start = self.next
        self.allocations.append(Allocation(array, start, start + array.nbytes))
        self.starts.append(start)
        self.next = start + (array.nbytes + 2 * GUARD - 1) // GUARD * GUARD
        return start

    def begin(self) -> None:
        """Copy the arrays in."""
        Space.__init__(self, self.next - self.base, self.base)
        for a in self.allocations:
            self.bytes[a.start - self.base : a.end - self.base] = a.array.reshape(-1, order="A").view(
                np.uint8
            )

    def finish(self) -> None:
        """Copy the arrays out; a read-only one must not have changed."""
        for a in self.allocations:
            new = self.bytes[a.start - self.base : a.end - self.base]
            if not a.array.flags.writeable:
                if not np.array_equal(new, a.array.reshape(-1, order="A").view(np.uint8)):
                    raise ValueError("the launch wrote into a read-only array")
                continue
            flat = a.array.reshape(-1) if a.array.flags.c_contiguous else a.array.T.reshape(-1)
            flat.view(np.uint8)[:] = new

    def forget(self, count: int) -> None:
        """Drop all but the first ``count`` allocations."""
        if count < len(self.allocations):
            self.next = self.allocations[count].start
            del self.allocations[count:], self.starts[count:]

    def locate(self, addresses: Array, width: int, group: Any) -> Array:
        low, high = int(addresses.min()), int(addresses.max())
        at = bisect.bisect_right(self.starts, low) - 1
        if at < 0 or high + width > self.allocations[at].end:
            self.check_each(addresses, width, group)
        offsets = addresses - np.uint64(self.base)
        check_alignment(offsets, width, addresses, group)
        return offsets

    def check_each(self, addresses: Array, width: int, group: Any) -> None:
        """The slow way, for accesses that touch several arrays at once or a wrong place."""
        for position, address in enumerate(addresses.tolist()):
            at = bisect.bisect_right(self.starts, address) - 1
            if at < 0 or address + width > self.allocations[at].end:
                near = ""
                if at >= 0:
                    array = self.allocations[at].array
                    near = (
                        f" (byte {address - self.allocations[at].start} of argument array {at}, "
                        f"which has {array.nbytes})"
                    )
                raise BadAddress(position, address, "is outside every global array" + near, group)


@dataclass
class Pointer:
    """An argument: the address of ``array`` plus ``offset_bytes``."""

    array: Array
    offset_bytes: int = 0
