"""Shapes and strides: what a slice of an array is, and how to copy between two layouts by rectangles.

Pure arithmetic on bytes: no memory is touched and no GPU is needed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.errors import ArgumentError, integer

__all__ = [
    "Rectangle",
    "as_dtype",
    "as_shape",
    "contiguous",
    "extent",
    "is_contiguous",
    "rectangles",
    "slice_layout",
]

_PITCH_MOST = 2**31 - 1  # of a two-dimensional copy


class Rectangle(NamedTuple):
    """A two-dimensional copy: ``height`` rows of ``width`` bytes; offsets and pitches in bytes."""

    to: int
    from_: int
    width: int
    height: int
    to_pitch: int
    from_pitch: int


class _Axis(NamedTuple):
    size: int
    to: int
    from_: int


def as_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of integers, none of them negative; one integer is a shape of one axis."""
    if hasattr(shape, "__index__"):
        return (integer("shape", shape),)
    if isinstance(shape, str | bytes) or not hasattr(shape, "__iter__"):
        raise ArgumentError("shape", "must be a tuple of integers", shape)
    return tuple(integer(f"shape[{i}]", size) for i, size in enumerate(shape))


def as_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """``dtype`` as NumPy's, if its elements have a fixed size and no Python objects."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentError("dtype", "must be a NumPy or ml_dtypes element type", dtype) from None
    if found.hasobject or not found.itemsize:
        raise ArgumentError("dtype", "must have elements of a fixed size", found)
    if not found.isnative:
        raise ArgumentError(
            "dtype", "must be in the machine's byte order", found, "use .astype(dtype.newbyteorder('='))"
        )
    return found


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of a dense array, its last axis running fastest."""
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the strides are those of a dense array; an axis of one element may have any stride."""
    if 0 in shape:
        return True
    dense = contiguous(shape, itemsize)
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, dense, strict=True))


def extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The first byte that an array touches and the one after the last, counted from its first element."""
    if 0 in shape:
        return 0, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(min(step, 0) for step in reach), sum(max(step, 0) for step in reach) + itemsize


def slice_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], key: Any
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Offset, shape and strides of ``x[key]`` for integers, slices, ``...`` and None."""
    keys = tuple(_basic(part) for part in (key if isinstance(key, tuple) else (key,)))
    if not any(part is Ellipsis for part in keys):
        keys = (*keys, Ellipsis)  # NOTE: without it, an index for every axis would read an element
    # NumPy does the arithmetic on an array that has our layout and no memory behind it: basic indexing
    # makes a view and reads nothing.
    whole = np.lib.stride_tricks.as_strided(np.empty(1, np.uint8), shape, strides, writeable=False)
    try:
        part = whole[keys]
    except (IndexError, ValueError, TypeError) as error:
        raise ArgumentError("index", f"must fit the shape {shape}", key, str(error)) from None
    offset = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return (0 if 0 in part.shape else offset), part.shape, part.strides


def _basic(part: Any) -> Any:
    """A part of an index as NumPy takes it, if it is one that makes a view."""
    if part is None or isinstance(part, slice | EllipsisType):
        return part
    try:
        if isinstance(part, bool):
            raise TypeError
        return operator.index(part)
    except TypeError:
        raise ArgumentError(
            "index",
            "must be made of integers, slices, ... and None",
            type(part).__name__,
            "use .numpy()[index] for a copy on the host",
        ) from None


def rectangles(
    shape: tuple[int, ...], itemsize: int, to: tuple[int, ...], from_: tuple[int, ...]
) -> Iterator[Rectangle]:
    """The copies that move every element from the layout ``from_`` to the layout ``to``, few and large."""
    if 0 in shape:
        return
    axes = [_Axis(*axis) for axis in zip(shape, to, from_, strict=True) if axis[0] > 1]
    to_start, from_start = 0, 0
    for i, axis in enumerate(axes):
        if axis.to < 0:  # walk it from its other end
            to_start += (axis.size - 1) * axis.to
            from_start += (axis.size - 1) * axis.from_
            axes[i] = _Axis(axis.size, -axis.to, -axis.from_)
    axes = _merged(sorted(axes, key=lambda axis: (axis.to, abs(axis.from_)), reverse=True))
    width = itemsize
    if axes and axes[-1].to == axes[-1].from_ == itemsize:
        width = axes.pop().size * itemsize
    rows = _rows(axes, width)
    outer = [axis for axis in axes if axis is not rows]
    for index in itertools.product(*(range(axis.size) for axis in outer)):
        at_to = to_start + sum(i * axis.to for i, axis in zip(index, outer, strict=True))
        at_from = from_start + sum(i * axis.from_ for i, axis in zip(index, outer, strict=True))
        yield Rectangle(at_to, at_from, width, rows.size, rows.to, rows.from_)


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """Join neighbouring axes that one step can walk in both layouts; the slowest comes first."""
    merged: list[_Axis] = []
    for axis in axes:
        if merged:
            last = merged[-1]
            if last.to == axis.to * axis.size and last.from_ == axis.from_ * axis.size:
                merged[-1] = _Axis(last.size * axis.size, axis.to, axis.from_)
                continue
        merged.append(axis)
    return merged


def _rows(axes: list[_Axis], width: int) -> _Axis:
    """The longest axis that a two-dimensional copy can walk, else one row."""
    able = [axis for axis in axes if width <= axis.to <= _PITCH_MOST and width <= axis.from_ <= _PITCH_MOST]
    return max(able, key=lambda axis: axis.size, default=_Axis(1, width, width))
