"""Arrays of any other library that speaks DLPack or the CUDA array interface."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from tilewise.devices import exchange, gpu
from tilewise.devices.gpu import GpuArray
from tilewise.errors import ArgumentError
from tilewise.interop.dtypes import element_type, numpy_dtype
from tilewise.interop.own import describe_gpu
from tilewise.interop.view import HOST, Library, View, strides_in_elements

__all__ = ["HandedOverArray", "HandoverLibrary", "adopt_gpu_array", "speaks_a_protocol"]

_CUDA_HOST = 3  # DLPack's device type of page-locked host memory


class HandedOverArray(NamedTuple):
    """A caller's array, kept together with what its handover gave."""

    source: Any
    memory: Any


class HandoverLibrary(Library):
    """Arrays of libraries that are not known by name. Results are NumPy's on the host, ours on a GPU."""

    name = "dlpack"
    preference = 1

    def view(self, argument: str, array: Any) -> View:
        """The view of what the array hands over; on a GPU, our current stream waits for its work."""
        if not hasattr(array, "__dlpack_device__"):
            held = adopt_gpu_array(argument, array, None)
            return describe_gpu(argument, held, self, HandedOverArray(array, held))
        kind, ordinal = (int(number) for number in array.__dlpack_device__())
        if kind in (exchange.CUDA, exchange.CUDA_MANAGED):
            held = adopt_gpu_array(argument, array, ordinal)
            return describe_gpu(argument, held, self, HandedOverArray(array, held))
        if kind not in (exchange.CPU, _CUDA_HOST):
            rule = "must lie in host memory or on an NVIDIA GPU"
            raise ArgumentError(argument, rule, f"on DLPack device type {kind}", "copy it there first")
        return self._view_host(argument, array)

    def _view_host(self, argument: str, array: Any) -> View:
        try:
            # DLPack has no streams on the host: None is what it asks for there.
            foreign = exchange.from_capsule(exchange.request(array, cast(int, None)), array)
        except ArgumentError as error:
            raise _renamed(error, argument) from error
        strides = strides_in_elements(argument, foreign.strides, foreign.dtype.itemsize)
        name = element_type(argument, foreign.dtype)
        held = HandedOverArray(array, foreign.owner)
        return View(foreign.ptr, foreign.shape, strides, name, HOST, self, held, foreign.read_only)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """A NumPy array, or our own on the GPU where ``like`` lies."""
        if like.space == HOST:
            return np.empty(shape, numpy_dtype(dtype))
        return gpu.open(like.space[1]).empty(shape, numpy_dtype(dtype))

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy such an array elsewhere."""
        return f"a copy of {argument} by its own library"


def speaks_a_protocol(array: Any) -> bool:
    """Whether an object hands its memory over by DLPack or the CUDA array interface."""
    kind = type(array)
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return True
    return hasattr(array, "__cuda_array_interface__")


def adopt_gpu_array(argument: str, array: Any, ordinal: int | None) -> GpuArray:
    """Another library's array as one of ours on GPU ``ordinal``; None looks for the GPU where it lies."""
    if ordinal is not None:
        return _adopt(argument, array, ordinal)
    # The CUDA array interface does not say which GPU; a device refuses memory that is not its own.
    for candidate in range(gpu.count() - 1):
        try:
            return _adopt(argument, array, candidate)
        except ArgumentError:
            continue
    return _adopt(argument, array, max(gpu.count() - 1, 0))


def _adopt(argument: str, array: Any, ordinal: int) -> GpuArray:
    device = gpu.open(ordinal)
    try:
        return device.array(array)
    except ArgumentError as error:
        raise _renamed(error, argument) from error


def _renamed(error: ArgumentError, argument: str) -> ArgumentError:
    """The same refusal, naming the caller's argument instead of the handover's."""
    return ArgumentError(argument, error.rule, error.value, error.fix)
