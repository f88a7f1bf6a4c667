"""Host arrays of any library as NumPy arrays over the same memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import exchange
from tilewise.devices.strides import extent
from tilewise.errors import ArgumentError

__all__ = ["gpu_of", "is_array", "view_on_host"]

_PROTOCOLS = ("__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array__")
_HOST = (1, 3, 11)  # DLPack's numbers of host memory: pageable, page-locked by CUDA, page-locked by ROCm
_GPU = (exchange.CUDA, exchange.CUDA_MANAGED)
_NO_STREAM: Any = None  # what exporters of host memory are passed, which has no streams
_IMMUTABLE = ("jax", "jaxlib")  # libraries whose arrays are immutable, though DLPack does not mark them so


def is_array(value: Any) -> bool:
    """Whether a value offers itself as an array, of whatever size: a tensor of one element is no number."""
    # NOTE: the types are checked first, because a property of an instance may copy, or wait for a GPU.
    kind = type(value)
    return any(hasattr(kind, name) for name in _PROTOCOLS) or any(hasattr(value, name) for name in _PROTOCOLS)


def gpu_of(argument: str, value: Any) -> str:
    """The GPU that another library's array lies on, as ``"gpu:1"``; empty if it lies in host memory."""
    if getattr(value, "requires_grad", False):
        raise ArgumentError(
            argument,
            "must not require grad: what a kernel does to it is not recorded",
            type(value).__name__,
            "x.detach()",
        )
    if hasattr(value, "__dlpack_device__") and hasattr(value, "__dlpack__"):
        try:
            kind, ordinal = value.__dlpack_device__()
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise ArgumentError(argument, f"must be handed over by DLPack, but refuses: {said}") from error
        if int(kind) in _GPU:
            return f"gpu:{int(ordinal)}"
        if int(kind) not in _HOST:
            raise ArgumentError(
                argument,
                "must lie in host memory or on an NVIDIA GPU",
                f"an array on DLPack's device type {int(kind)}",
                "copy it to the host first: x.cpu()",
            )
        return ""
    return "a GPU" if getattr(value, "__cuda_array_interface__", None) is not None else ""


def view_on_host(argument: str, value: Any) -> npt.NDArray[Any]:
    """A NumPy array over the memory of a host array: read-only if the array is, or if there is only a copy of it."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise ArgumentError(
                argument,
                "must have no mask, which a kernel cannot see",
                type(value).__name__,
                "x.filled(value), or x.data for the elements behind the mask too",
            )
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            view = _viewed(exchange.from_capsule(exchange.request(value, _NO_STREAM), value))
        except ArgumentError as error:  # it calls its argument by another name
            raise ArgumentError(argument, error.rule, error.value, error.fix) from error
        if type(value).__module__.partition(".")[0] in _IMMUTABLE:
            view.flags.writeable = False
        return view
    found = np.asarray(value)
    if not np.may_share_memory(found, np.asarray(value)):
        found.flags.writeable = False  # each time a new copy: what is written to it is lost
    return found


def _viewed(foreign: exchange.Foreign) -> npt.NDArray[Any]:
    """A NumPy array over memory that DLPack describes, keeping its owner alive."""
    low, high = extent(foreign.shape, foreign.strides, foreign.dtype.itemsize)
    if high == low:
        return np.empty(foreign.shape, foreign.dtype)
    memory = (ctypes.c_uint8 * (high - low)).from_address(foreign.ptr + low)
    memory.owner = foreign.owner  # type: ignore[attr-defined]  # ctypes objects take attributes
    view: npt.NDArray[Any] = np.ndarray(
        foreign.shape, foreign.dtype, memoryview(memory), -low, foreign.strides
    )
    view.flags.writeable = not foreign.read_only
    return view
