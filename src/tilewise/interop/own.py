"""tilewise's own arrays: on a GPU, and the emulator's."""

from __future__ import annotations

from typing import Any

from tilewise.devices.emulated import EmulatedArray
from tilewise.devices.gpu import GpuArray
from tilewise.interop.dtypes import element_type, numpy_dtype
from tilewise.interop.view import CUDA, HOST, Library, View, strides_in_elements

__all__ = ["OwnLibrary", "describe_gpu"]


class OwnLibrary(Library):
    """Arrays that ``tw.device(...)`` made."""

    name = "tilewise"
    preference = 2
    read_only_fix = "copy it first: device.array(x.numpy())"

    def view(self, argument: str, array: GpuArray | EmulatedArray) -> View:
        """The view of a device array; an emulated one lies in host memory."""
        if isinstance(array, GpuArray):
            return describe_gpu(argument, array, self, array)
        strides = strides_in_elements(argument, array.strides, array.dtype.itemsize)
        name = element_type(argument, array.dtype)
        return View(array.ptr, array.shape, strides, name, HOST, self, array)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> GpuArray | EmulatedArray:
        """A new array on the device of ``like``."""
        made: GpuArray | EmulatedArray = like.owner.device.empty(shape, numpy_dtype(dtype))
        return made

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy a device array elsewhere."""
        if space == HOST:
            return f"{argument}.numpy()"
        return f"tw.device('gpu:{space[1]}').array({argument}.numpy())"


def describe_gpu(argument: str, array: GpuArray, library: Library, owner: Any) -> View:
    """The view of a GPU array whose memory belongs to ``owner`` of ``library``.

    NOTE: reading the address notes that our current stream uses the memory, which so outlives that use.
    """
    strides = strides_in_elements(argument, array.strides, array.dtype.itemsize)
    name = element_type(argument, array.dtype)
    space = (CUDA, array.device.ordinal)
    return View(array.ptr, array.shape, strides, name, space, library, owner, array.read_only)
