"""Buffers of one call of XLA's foreign function interface, as arrays: in rows, on the device that runs the call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.devices.strides import contiguous
from tilewise.interop.dtypes import numpy_dtype
from tilewise.interop.view import HOST, Library, View

__all__ = ["XlaBuffer", "XlaLibrary"]


@functools.lru_cache(4096)
def _strides_of_rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return contiguous(shape, 1)


@dataclass(slots=True, eq=False)  # NOTE: not frozen, which takes four times as long to make
class XlaBuffer:
    """Memory that XLA owns and keeps for the length of a call; on a GPU, in the order of its stream."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    space: tuple[int, int]
    stream: int | None = None  # XLA's CUstream; None in host memory
    allocate: Callable[[int], int] | None = None  # the address of so many bytes that live as long as the call

    @classmethod
    def in_rows(cls, ptr: int, shape: tuple[int, ...], dtype: str, **where: Any) -> XlaBuffer:
        """The buffer of an array that lies in rows, as XLA's arguments and results do here."""
        return cls(ptr, shape, _strides_of_rows(shape), dtype, **where)

    def transposed(self) -> XlaBuffer:
        """The same memory with the last two axes swapped."""
        shape, strides = ((*one[:-2], one[-1], one[-2]) for one in (self.shape, self.strides))
        return XlaBuffer(self.ptr, shape, strides, self.dtype, self.space, self.stream, self.allocate)


class XlaLibrary(Library):
    """Buffers of a call: nothing but the handler of our calls makes them, which gives memory for results as well."""

    name = "xla"
    preference = 3

    def view(self, argument: str, array: XlaBuffer) -> View:
        """The view of a buffer."""
        return View(array.ptr, array.shape, array.strides, array.dtype, array.space, self, array)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """Memory for the length of the call: NumPy's on the host, XLA's own on a GPU, which knows what is left."""
        if like.space == HOST:
            return np.empty(shape, numpy_dtype(dtype))
        buffer: XlaBuffer = like.owner
        assert buffer.allocate is not None
        nbytes = int(np.prod(shape, dtype=np.int64)) * numpy_dtype(dtype).itemsize
        where = {"space": buffer.space, "stream": buffer.stream, "allocate": buffer.allocate}
        return XlaBuffer.in_rows(buffer.allocate(nbytes), shape, dtype, **where)

    def stream(self, like: View) -> int | None:
        """The stream that XLA has ordered the call on."""
        buffer: XlaBuffer = like.owner
        return buffer.stream

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy an operand elsewhere: before the call."""
        return f"jax.device_put({argument}, …)"
