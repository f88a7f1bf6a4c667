"""Boxes of tensor copies: which elements of an array they hold, and where each lies in shared memory.

For maps of tiled copies without interleave or steps; a box by any other is not told apart.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewise.emulator.support.tensor_map_layout import AXES, ELEMENT_SIZES, MAGIC, MAP, MODES

__all__ = ["TensorBoxes", "read_map"]

Numbers = npt.NDArray[np.int64]
_ROW = 16  # bytes that a swizzle leaves together
_LINE = 128


@dataclass(frozen=True, slots=True)
class TensorBoxes:
    """The boxes of a tensor map. Axes come innermost first; strides are bytes."""

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    itemsize: int
    swizzle: int  # so many rows of 16 bytes change places: 1, 2, 4 or 8

    def elements(
        self, coordinates: tuple[int, ...], shared: int, corners: bool = False
    ) -> tuple[Numbers, Numbers]:
        """Return the address of each element of a box within the array, and its place in shared memory, for these
        coordinates and this shared address; with ``corners`` only those of the outermost elements within the array.
        """
        limits = list(zip(self.box, coordinates, self.sizes, strict=True))
        if not corners and all(at >= 0 and at + length <= size for length, at, size in limits):
            places, offsets = _whole_box(self.box, self.strides, self.itemsize)
            first = self.address + sum(at * step for at, step in zip(coordinates, self.strides, strict=True))
            lie = offsets + shared
            return places + first, lie ^ lie // _LINE % self.swizzle * _ROW
        axes = [np.arange(length, dtype=np.int64) for length in self.box]
        if corners:
            axes = [
                np.unique(np.clip([0, length - 1], -at, max(size - 1 - at, -at)))
                for length, at, size in limits
            ]
        grids = np.meshgrid(*reversed(axes), indexing="ij")[::-1]
        inside = np.ones(grids[0].shape, bool)
        place = np.full(grids[0].shape, self.address, np.int64)
        at, step = np.full(grids[0].shape, shared, np.int64), self.itemsize
        for axis, grid in enumerate(grids):
            index = grid + coordinates[axis]
            inside &= (index >= 0) & (index < self.sizes[axis])
            place += index * self.strides[axis]
            at += grid * step
            step *= self.box[axis]
        # Rows of 16 bytes change places by the number of the line of 128 bytes that they are in.
        turned = at // _LINE % self.swizzle * _ROW
        return place[inside], (at ^ turned)[inside]


@functools.lru_cache(16)
def _whole_box(box: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[Numbers, Numbers]:
    """Return each element's distance from the first, in the array and in shared memory, of a box within its array."""
    grids = np.meshgrid(*(np.arange(length, dtype=np.int64) for length in reversed(box)), indexing="ij")[::-1]
    places, offsets = np.zeros(grids[0].shape, np.int64), np.zeros(grids[0].shape, np.int64)
    step = itemsize
    for grid, stride, length in zip(grids, strides, box, strict=True):
        places += grid * stride
        offsets += grid * step
        step *= length
    return places.reshape(-1), offsets.reshape(-1)


def read_map(raw: bytes) -> TensorBoxes | None:
    """Return the boxes of a tensor map in the emulator's layout; None for other bytes or other kinds of maps."""
    if len(raw) < MAP.UPPER or struct.unpack_from("<Q", raw, MAP.MAGIC)[0] != MAGIC:
        return None
    rank = raw[MAP.RANK]
    steps = raw[MAP.STEPS : MAP.STEPS + AXES]
    if raw[MAP.MODE] != MODES["tiled"] or raw[MAP.INTERLEAVE] or any(step > 1 for step in steps[:rank]):
        return None
    itemsize = ELEMENT_SIZES[raw[MAP.ELEMENT]]
    outer = struct.unpack_from("<4Q", raw, MAP.STRIDES)[: rank - 1]
    return TensorBoxes(
        struct.unpack_from("<Q", raw, MAP.ADDRESS)[0],
        struct.unpack_from("<5Q", raw, MAP.SIZES)[:rank],
        (itemsize, *outer),
        struct.unpack_from("<5H", raw, MAP.BOX)[:rank],
        itemsize,
        1 << raw[MAP.SWIZZLE],
    )
