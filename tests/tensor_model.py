"""Copies of tensors in NumPy: which bytes of shared memory are which bytes of global memory.

Written from the manual's chapter on tensors, element by element; knows nothing of how anyone does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewise.devices.tensor_map import Description

__all__ = ["Box", "rows_of"]

Bytes = npt.NDArray[np.uint8]
_SPANS = {0: 0, 32: 1, 64: 3, 128: 7}


@dataclass(frozen=True)
class Row:
    """A row of a box: where each of its elements lies in global memory, -1 for those outside the tensor."""

    shared: int  # offset of its first byte before swizzling, from the copy's own
    elements: list[int]


def rows_of(d: Description, coordinates: Sequence[int], offsets: Sequence[int] = ()) -> Iterator[Row]:
    unit = d.interleave or d.element.size
    strides = (unit, *d.strides)
    starts = _boxes(d, coordinates) if d.corners is None else _pixels(d, coordinates, offsets)
    length = d.box[0] if d.corners is None else (1 if d.interleave else d.box[0])
    step = d.steps[0] if d.interleave and d.corners is None else 1
    count = -(-length // step)
    pitch = d.swizzle if d.swizzle and not d.interleave else count * unit
    for number, start in enumerate(starts):
        elements = []
        for i in range(count):
            at = (start[0] + i * step, *start[1:])
            inside = all(0 <= x < size for x, size in zip(at, d.sizes, strict=True))
            elements.append(sum(x * s for x, s in zip(at, strides, strict=True)) if inside else -1)
        yield Row(number * pitch, elements)


def _boxes(d: Description, coordinates: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where each row of a box begins."""
    rank = len(d.sizes)
    ranges = []
    for axis in range(rank - 1, 0, -1):
        one_slice = bool(d.interleave) and axis == rank - 2
        ranges.append([coordinates[axis]] if one_slice else [
            coordinates[axis] + i for i in range(0, d.box[axis], d.steps[axis])
        ])  # fmt: skip
    for outer in itertools.product(*ranges):
        yield (coordinates[0], *outer[::-1])


def _pixels(d: Description, coordinates: Sequence[int], offsets: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where each pixel that an im2col copy goes through lies."""
    assert d.corners is not None
    first = 0 if d.interleave else 1
    axes = range(first, first + len(d.sizes) - 2)
    lower = dict(zip(axes, d.corners[0], strict=True))
    upper = {axis: d.sizes[axis] - 1 + corner for axis, corner in zip(axes, d.corners[1], strict=True)}
    filter_ = dict(zip(axes, offsets or [0] * len(axes), strict=True))
    at = list(coordinates)
    for _ in range(d.box[1]):
        yield tuple(x + filter_.get(axis, 0) for axis, x in enumerate(at))
        for axis in axes:
            at[axis] += d.steps[axis]
            if at[axis] <= upper[axis]:
                break
            at[axis] = lower[axis]
        else:
            at[-1] += d.steps[-1]


@dataclass(frozen=True)
class Box:
    """One copy: what a tensor map describes, where it begins, and where it lies in shared memory."""

    described: Description
    coordinates: tuple[int, ...]
    at: int = 0
    offsets: tuple[int, ...] = ()

    @property
    def unit(self) -> int:
        return self.described.interleave or self.described.element.size

    @property
    def rows(self) -> list[Row]:
        return list(rows_of(self.described, self.coordinates, self.offsets))

    @property
    def bytes(self) -> int:
        """What an mbarrier is told of: all of the box, inside the tensor or not."""
        return sum(len(row.elements) for row in self.rows) * self.unit

    @property
    def end(self) -> int:
        """Where shared memory has to reach."""
        last = self.rows[-1]
        span = max(len(last.elements) * self.unit, self.described.swizzle)
        return self.at + -(-(last.shared + span) // 128) * 128

    def swizzled(self, offset: int) -> int:
        """Chunks of 16 bytes change places by the number of the line of 128 bytes that they are in."""
        return offset ^ (offset // 128 & _SPANS[self.described.swizzle]) * 16

    def loaded(self, memory: Bytes, shared: Bytes) -> Bytes:
        """Shared memory after a load."""
        result = shared.copy()
        size = self.described.element.size
        outside = np.frombuffer(
            b"\xf7\x7f" * self.unit if self.described.nan else b"\0\0" * self.unit, np.uint8
        )
        for row in self.rows:
            for i, element in enumerate(row.elements):
                value = memory[element : element + self.unit] if element >= 0 else outside[: self.unit]
                if self.described.element.ptx in (11, 12) and element >= 0:
                    value = _tf32(value)
                for k in range(0, self.unit, min(size, 16)):
                    there = self.swizzled(self.at + row.shared + i * self.unit + k)
                    result[there : there + min(size, 16)] = value[k : k + min(size, 16)]
        return result

    def stored(self, memory: Bytes, shared: Bytes) -> Bytes:
        """Global memory after a store: the last 16 bytes of a row that reach over its end are written whole."""
        result = memory.copy()
        for place, there in self.pairs():
            result[place] = shared[there]
        return result

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Every byte that a store writes: where it goes, and where in shared memory it comes from."""
        for row in self.rows:
            inside = [i for i, element in enumerate(row.elements) if element >= 0]
            if not inside:
                continue
            first = row.elements[inside[0]] - inside[0] * self.unit
            straight = not self.described.interleave
            last = -(-(inside[-1] + 1) * self.unit // 16) * 16 if straight else 0
            for i in inside if not straight else ():
                for k in range(self.unit):
                    yield row.elements[i] + k, self.swizzled(self.at + row.shared + i * self.unit + k)
            for k in range(inside[0] * self.unit, last):
                yield first + k, self.swizzled(self.at + row.shared + k)
        return


def _tf32(value: Bytes) -> Bytes:
    """Floats rounded to 10 digits after the point, halfway to even; NaN without its payload."""
    bits = np.frombuffer(value.tobytes(), np.uint32).astype(np.uint64)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFF_E000
    nan = bits & 0x7FFF_FFFF > 0x7F80_0000
    return np.where(nan, 0x7FFF_E000, rounded).astype(np.uint32).view(np.uint8)
