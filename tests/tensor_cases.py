"""Copies of tensors to try, on whatever device, against the model."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import tilewise as tw
from tests.tensor_kernels import FILL, kernel
from tests.tensor_model import Box
from tilewise.devices.seam import Device
from tilewise.devices.tensor_map import ELEMENTS

__all__ = ["Case", "boxes", "images", "run_load", "run_store"]

_MOST_SHARED = 48 * 1024
_MOST_MEMORY = 1 << 18


@dataclass
class Case:
    """``coordinates`` come innermost first, as instructions take them; the rest as tw.TensorMap does."""

    memory: npt.NDArray[np.uint8]
    dtype: str
    coordinates: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] | None = None
    swizzle: int | None = None
    interleave: int | None = None
    fill: str = "zero"
    at: int = 0
    offsets: tuple[int, ...] = ()
    image: dict[str, Any] = field(default_factory=dict)

    def map(self, address: int) -> tw.TensorMap:
        how: dict[str, Any] = {
            "dtype": self.dtype, "shape": self.shape, "strides": self.strides, "element_strides": self.steps,
            "swizzle": self.swizzle, "interleave": self.interleave, "fill": self.fill,
        }  # fmt: skip
        if self.image:
            return tw.TensorMap.im2col(address, **self.image, **how)
        return tw.TensorMap(address, self.box, **how)

    def numbers(self, box: Box, end: int) -> npt.NDArray[np.int32]:
        kind = len(self.coordinates) + (10 if self.image else 0)
        given = [*self.coordinates, *[0] * (5 - len(self.coordinates))]
        listed = [kind, self.at, box.bytes, end, *given, *self.offsets, *[0] * (3 - len(self.offsets))]
        return np.array(listed, np.int32)


def run_load(case: Case, device: Device) -> None:
    x = device.array(case.memory)
    made = case.map(x.ptr)
    box = Box(made.described, case.coordinates, case.at, case.offsets)
    before = np.full(box.end, FILL, np.uint8)
    out = device.array(before)
    kernel("load")(
        1,
        64,
        [made, device.array(case.numbers(box, box.end)), out],
        shared=box.end,
        device=device,
        timeout=60,
    )
    assert out.numpy().tobytes() == box.loaded(case.memory, before).tobytes()


def run_store(case: Case, device: Device) -> None:
    x = device.array(case.memory)
    made = case.map(x.ptr)
    box = Box(made.described, case.coordinates, case.at)
    shared = np.frombuffer(os.urandom(box.end), np.uint8)
    args = [made, device.array(case.numbers(box, box.end)), device.array(shared)]
    kernel("store")(1, 64, args, shared=box.end, device=device, timeout=60)
    assert x.numpy().tobytes() == box.stored(case.memory, shared).tobytes()


def _memory(seed: int, size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(np.random.default_rng(seed).bytes(size), np.uint8)


@st.composite
def boxes(draw: Any, stores: bool = False) -> Case:
    """A tiled copy of any rank, element type, swizzle and interleave, anywhere in and around its tensor."""
    rank = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(list(ELEMENTS)))
    interleave = draw(st.sampled_from([None, None, None, 16, 32])) if rank >= 3 else None
    swizzle = 32 if interleave == 32 else draw(st.sampled_from([None, 32, 64, 128]))
    size = ELEMENTS[dtype].size
    grain = 16 // size  # elements of 16 bytes
    unit = interleave or size
    widest = (swizzle or 256) // 16 if not interleave else 4
    inner = grain * draw(st.integers(1, max(1, min(widest, 256 // grain, 8))))
    lengths = [inner]
    for axis in range(1, rank):
        slices = interleave and axis == rank - 2
        lengths.append(1 if slices else draw(st.integers(1, 6 if rank < 4 else 3)))
    steps = [draw(st.integers(1, 3)) if axis or interleave else 1 for axis in range(rank)]
    sizes = [
        draw(st.integers(1, 20 if not interleave else 9)),
        *(draw(st.integers(1, 5)) for _ in range(rank - 1)),
    ]
    if draw(st.booleans()):
        sizes[0] = -(-sizes[0] // grain) * grain
    strides: list[int] = []
    reach = sizes[0] * unit
    step = interleave or 16
    for length in sizes[1:]:
        stride = -(-reach // step) * step + step * draw(st.integers(0, 2))
        strides.append(stride)
        reach = stride * length
    least = 0 if stores else -4
    coordinates = [draw(st.integers(least, size + 2)) for size in sizes]
    if not interleave:
        coordinates[0] = grain * draw(st.integers(least, 3))
    shape = tuple(sizes[::-1]) + ((interleave // size,) if interleave else ())
    fill = draw(st.sampled_from(["zero", "nan"])) if ELEMENTS[dtype].floating else "zero"
    memory = _memory(draw(st.integers(0, 2**32)), max(-(-reach // 16) * 16, 16))
    at = 128 * draw(st.integers(0, 9))
    case = Case(
        memory, dtype, tuple(coordinates), shape, tuple(strides[::-1]), tuple(lengths[::-1]), tuple(steps[::-1]),
        swizzle, interleave, fill, at,
    )  # fmt: skip
    assert len(memory) <= _MOST_MEMORY
    return case


@st.composite
def images(draw: Any, stores: bool = False) -> Case:
    """An im2col copy: images of one to three axes, corners, steps, offsets and interleaves of any kind."""
    axes = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["uint8", "float16", "float32", "uint64", "tfloat32"]))
    size = ELEMENTS[dtype].size
    grain = 16 // size
    interleave = draw(st.sampled_from([None, None, None, 16, 32]))
    swizzle = 32 if interleave == 32 else draw(st.sampled_from([None, 32, 64, 128]))
    channels = interleave // size if interleave else grain * draw(st.integers(1, (swizzle or 64) // 16))
    depth = draw(st.integers(1, 3)) * (1 if interleave else grain)  # slices, or channels
    sizes = [draw(st.integers(1, 6)) for _ in range(axes)]
    count = draw(st.integers(1, 3))
    least, most = {1: (-9, 9), 2: (-9, 9), 3: (-4, 4)}[axes]
    lower, upper, coordinates = [], [], []
    for length in sizes:
        low = 0 if stores else draw(st.integers(least, min(most, length - 1)))
        high = 0 if stores else draw(st.integers(max(least, low - length + 1), most))
        lower.append(low)
        upper.append(high)
        coordinates.append(draw(st.integers(low, length - 1 + high)))
    offsets = () if stores else tuple(draw(st.integers(0, 5)) for _ in range(axes))
    batch = draw(st.integers(0, 3)) if stores else draw(st.integers(-2, 3))
    first = draw(st.integers(0 if stores else -1, 4)) * (1 if interleave else grain)
    at = (*coordinates[::-1], first, batch) if interleave else (first, *coordinates[::-1], batch)
    steps = [draw(st.integers(1, 3)) for _ in range(axes + 1)]
    steps = [steps[0], 1, *steps[1:]] if interleave else [*steps, 1]
    shape = (count, depth, *sizes, channels) if interleave else (count, *sizes, depth)
    strides = tuple(math.prod(shape[i + 1 :]) * size for i in range(len(steps) - 1))
    memory = _memory(draw(st.integers(0, 2**32)), strides[0] * count)
    image = {
        "lower": tuple(lower),
        "upper": tuple(upper),
        "channels": channels,
        "pixels": draw(st.integers(1, 60)),
    }
    where = 128 * draw(st.integers(0, 9))
    return Case(
        memory, dtype, at, shape, strides, (), tuple(steps), swizzle, interleave, "zero", where, offsets, image
    )  # fmt: skip
