"""CuPy's arrays: a GPU's memory."""

from __future__ import annotations

import sys
from typing import Any

from tilewise.interop.dtypes import element_type, numpy_dtype
from tilewise.interop.view import CUDA, HOST, Library, View, strides_in_elements

__all__ = ["CupyLibrary"]


class CupyLibrary(Library):
    """Arrays of ``cupy``, which the caller has imported."""

    name = "cupy"
    preference = 3

    def __init__(self) -> None:
        self._cupy: Any = sys.modules["cupy"]

    def view(self, argument: str, array: Any) -> View:
        """The view of a cupy.ndarray."""
        dtype = array.dtype
        strides = strides_in_elements(argument, array.strides, dtype.itemsize)
        name = element_type(argument, dtype)
        space = (CUDA, int(array.device.id))
        return View(int(array.data.ptr), tuple(array.shape), strides, name, space, self, array)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """A new array from CuPy's pool, on the GPU of ``like`` and CuPy's current stream there."""
        with self._cupy.cuda.Device(like.space[1]):
            return self._cupy.empty(shape, numpy_dtype(dtype))

    def stream(self, like: View) -> int | None:
        """CuPy's current stream on the GPU of ``like``."""
        with self._cupy.cuda.Device(like.space[1]):
            return int(self._cupy.cuda.get_current_stream().ptr)

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy a CuPy array elsewhere."""
        if space == HOST:
            return f"cupy.asnumpy({argument})"
        return f"cupy.asarray({argument}) under cupy.cuda.Device({space[1]})"
