"""Strides: slices, contiguous arrays, and the rectangles that a copy of any layout is made of."""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.devices.gpu import arrays
from tilewise.devices.gpu.driver import driver
from tilewise.devices.strides import contiguous, extent, is_contiguous, rectangles, slice_layout
from tilewise.errors import ArgumentError


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index that fits ``shape``: integers, slices of either direction, an ellipsis, new axes."""
    parts: list[Any] = [
        draw(st.slices(size) if not size or draw(st.booleans()) else st.integers(-size, size - 1))
        for size in shape[: draw(st.integers(0, len(shape)))]
    ]
    if draw(st.booleans()):
        parts.append(...)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@given(st.data(), st.lists(st.integers(0, 5), max_size=4), st.sampled_from([1, 2, 4, 8, 16]))
def test_a_slice_is_numpys_slice(data: st.DataObject, sizes: list[int], itemsize: int) -> None:
    whole = np.zeros(sizes, f"V{itemsize}").transpose(data.draw(st.permutations(range(len(sizes)))))
    key = data.draw(keys(whole.shape))
    offset, shape, strides = slice_layout(whole.shape, whole.strides, key)
    expected = whole[(*key, ...)] if ... not in key else whole[key]
    assert shape == expected.shape
    if expected.size:
        assert offset == address(expected) - address(whole)
        assert [step for size, step in zip(shape, strides, strict=True) if size > 1] == [
            step for size, step in zip(shape, expected.strides, strict=True) if size > 1
        ]
        first, end = extent(shape, strides, itemsize)
        assert 0 <= offset + first < offset + end <= whole.nbytes
    else:
        assert offset == 0  # where NumPy may have one that lies behind the array


@pytest.mark.parametrize(
    "key", [[0, 1], True, (0, False), np.zeros(3, bool), 1.0, "a", 3, (0, 0, 0), slice("a")]
)
def test_a_key_that_is_no_basic_index_is_refused(key: Any) -> None:
    with pytest.raises(ArgumentError, match="index must"):
        slice_layout((3, 4), (16, 4), key)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], itemsize: int) -> npt.NDArray[Any]:
    """An array of this shape in some order of axes, with gaps, some axes backwards."""
    axes = range(len(shape))
    order = draw(st.permutations(axes))
    steps = [draw(st.integers(1, 3)) for _ in axes]
    gaps = [draw(st.integers(1, 3)) for _ in axes]
    sizes = [size * step + gap for size, step, gap in zip(shape, steps, gaps, strict=True)]
    whole = np.frombuffer(bytearray(math.prod(sizes) * itemsize), f"V{itemsize}")
    whole = whole.reshape([sizes[axis] for axis in order]).transpose(np.argsort(order))
    apart: Any = (*(slice(0, size * step, step) for size, step in zip(shape, steps, strict=True)), ...)
    backwards: Any = (*(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in axes), ...)
    view: npt.NDArray[Any] = whole[apart][backwards]
    return view


@given(st.data(), st.lists(st.integers(0, 5), max_size=4).map(tuple), st.sampled_from([1, 2, 4, 8]))
def test_rectangles_copy_every_element_and_no_other(
    data: st.DataObject, shape: tuple[int, ...], itemsize: int
) -> None:
    to, from_ = data.draw(layouts(shape, itemsize)), data.draw(layouts(shape, itemsize))
    for axis in data.draw(st.sets(st.sampled_from(range(len(shape))))) if shape and 0 not in shape else ():
        # the same along it: all elements that are copied lie at one place
        from_ = np.broadcast_to(from_[(*[slice(None)] * axis, slice(1))], shape)
    below, beneath = whole_of(to), whole_of(from_)
    below[:], beneath[:] = (np.frombuffer(random.randbytes(x.size), np.uint8) for x in (below, beneath))
    wanted = below.copy()
    start = address(to) - address(below)
    np.ndarray(shape, to.dtype, wanted.data, start, to.strides)[...] = from_
    for part in rectangles(shape, itemsize, to.strides, from_.strides):
        assert part.height == 1 or min(part.to_pitch, part.from_pitch) >= part.width
        for row in range(part.height):
            ctypes.memmove(
                address(to) + part.to + row * part.to_pitch,
                address(from_) + part.from_ + row * part.from_pitch,
                part.width,
            )
    assert np.array_equal(below, wanted)


class CopyingDriver:
    """The driver's copies, of memory of the host; all else is the driver's own."""

    def __init__(self, way: str, to: npt.NDArray[Any], from_: npt.NDArray[Any]) -> None:
        self.own, self.way, self.arrays = driver(), way, (to, from_)

    def move(self, target: int, source: int, width: int) -> None:
        for place, array in zip((target, source), self.arrays, strict=True):
            assert 0 <= place - address(array) <= array.size - width
        ctypes.memmove(target, source, width)

    def __getattr__(self, name: str) -> Any:
        ways = {"cuMemcpyHtoDAsync": "to", "cuMemcpyDtoHAsync": "from", "cuMemcpyDtoDAsync": "on"}
        if name not in ways:
            return getattr(self.own, name)

        def copy(target: int, source: int, width: int, _stream: int) -> tuple[int]:
            assert self.way == ways[name]
            self.move(target, source, width)
            return (0,)

        return copy

    def cuMemcpy2DAsync(self, copy: Any, _stream: int) -> tuple[int]:  # noqa: N802
        host = self.own.CUmemorytype.CU_MEMORYTYPE_HOST
        assert (copy.dstMemoryType == host, copy.srcMemoryType == host) == (
            self.way == "from",
            self.way == "to",
        )
        target = int(copy.dstHost if self.way == "from" else copy.dstDevice)
        source = int(copy.srcHost if self.way == "to" else copy.srcDevice)
        for row in range(copy.Height):
            self.move(target + row * copy.dstPitch, source + row * copy.srcPitch, copy.WidthInBytes)
        return (0,)


@given(st.data(), st.lists(st.integers(0, 5), max_size=4).map(tuple), st.sampled_from(["to", "from", "on"]))
def test_the_driver_copies_every_rectangle(data: st.DataObject, shape: tuple[int, ...], way: str) -> None:
    """To a GPU, from it, or on it."""
    to, from_ = data.draw(layouts(shape, 4)), data.draw(layouts(shape, 4))
    below, beneath = whole_of(to), whole_of(from_)
    beneath[:] = np.frombuffer(random.randbytes(beneath.size), np.uint8)
    device = SimpleNamespace(name="a GPU", _scope=lambda _doing: contextlib.nullcontext())
    array = SimpleNamespace(shape=shape, dtype=to.dtype, nbytes=to.nbytes, device=device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "driver", lambda: CopyingDriver(way, below, beneath))
        places = ((address(one), one.strides) for one in (to, from_))
        arrays.GpuArray._transfer(cast(Any, array), cast(Any, SimpleNamespace(raw=0)), way, *places)
    assert to.tobytes() == from_.tobytes()


def test_rectangles_are_few() -> None:
    dense = contiguous((64, 32, 16), 4)
    assert [part.width for part in rectangles((64, 32, 16), 4, dense, dense)] == [64 * 32 * 16 * 4]
    pitched = list(rectangles((640, 448), 4, (448 * 4, 4), (512 * 4, 4)))
    assert pitched == [(0, 0, 448 * 4, 640, 448 * 4, 512 * 4)]
    assert len(list(rectangles((640, 448), 4, (448 * 4, 4), (4, 640 * 4)))) <= 448  # a transposed one
    assert not list(rectangles((3, 0), 4, (0, 4), (0, 4)))


@given(st.lists(st.integers(0, 4), max_size=4).map(tuple), st.sampled_from([1, 2, 8]))
def test_contiguous_is_numpys(shape: tuple[int, ...], itemsize: int) -> None:
    made = np.empty(shape, f"V{itemsize}")
    assert is_contiguous(shape, made.strides, itemsize)
    assert is_contiguous(shape, contiguous(shape, itemsize), itemsize)
    if made.size:
        assert contiguous(shape, itemsize) == made.strides
    assert is_contiguous(shape, made.T.strides[::-1], itemsize)
    assert is_contiguous(made.T.shape, made.T.strides, itemsize) == made.T.flags.c_contiguous


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def whole_of(view: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """All the bytes that a view was cut from."""
    while isinstance(view.base, np.ndarray):
        view = view.base
    return view.view(np.uint8)


@pytest.mark.parametrize(
    ("to", "from_", "copies"),
    [
        (16, 16, 1), (20, 2**31 - 1, 1), (20, 2**31, 3), (2**31 - 1, 20, 1), (2**31, 20, 3), (2**31, 2**31, 3),
        (16, 15, 3), (16, 0, 3), (20, -20, 3),
    ],
)  # fmt: skip
def test_rows_of_one_copy_lie_as_far_apart_as_a_copy_can_walk(to: int, from_: int, copies: int) -> None:
    """Forwards, without overlaps, and by less than 2 GiB: else each row is a copy of its own."""
    found = list(rectangles((3, 4), 4, (to, 4), (from_, 4)))
    assert len(found) == copies and {one.width for one in found} <= {16, 48}
    assert sum(one.width * one.height for one in found) == 48
    if copies == 3:
        places = [(0, 0), (to, from_), (2 * to, 2 * from_)]
        assert sorted((one.to, one.from_) for one in found) == sorted(places)
