"""JAX's arrays: host memory, or a GPU's by DLPack. They never change, so a result is handed over once written."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import gpu
from tilewise.errors import ArgumentError
from tilewise.interop.dtypes import numpy_dtype
from tilewise.interop.handover import HandedOverArray, adopt_gpu_array
from tilewise.interop.numpy import describe_host
from tilewise.interop.own import describe_gpu
from tilewise.interop.view import HOST, Library, View

__all__ = ["JaxLibrary", "functions_for"]

_ALIGNMENT = 64  # JAX takes host memory over without a copy from here on


class JaxLibrary(Library):
    """Arrays of ``jax``, which the caller has imported: concrete ones that lie on one device."""

    name = "jax"
    preference = 3
    read_only_fix = "JAX arrays never change: take the result instead"

    def __init__(self) -> None:
        self._jax: Any = sys.modules["jax"]

    def view(self, argument: str, array: Any) -> View:
        """The view of a jax.Array; refuses tracers and arrays that are split over devices."""
        device = self._device(argument, array)
        if device.platform == "cpu":
            host = np.asarray(array)  # waits for the work that makes it; no copy
            found = describe_host(argument, host, self, HandedOverArray(array, host))
        elif device.platform in ("gpu", "cuda"):
            _, ordinal = array.__dlpack_device__()
            held = adopt_gpu_array(argument, array, int(ordinal))
            found = describe_gpu(argument, held, self, HandedOverArray(array, held))
        else:
            rule, fix = "must lie on the CPU or on an NVIDIA GPU", self.move(argument, HOST)
            raise ArgumentError(argument, rule, device.platform, fix)
        return found._replace(read_only=True)

    def _device(self, argument: str, array: Any) -> Any:
        """The one device of a concrete array of numbers."""
        if isinstance(array, self._jax.core.Tracer):
            rule = "must be a concrete array: inside jax.jit, jax.grad and jax.vmap there is only a tracer"
            fix = "call tw.matmul or tw.linear, this outside of them, or it through jax.pure_callback"
            raise ArgumentError(argument, rule, None, fix)
        if not isinstance(array.dtype, np.dtype):
            raise ArgumentError(argument, "must have numbers as elements", str(array.dtype))
        if array.is_deleted():
            rule = "must not have been deleted or donated"
            raise ArgumentError(argument, rule, None, "keep the array, or leave out donate_argnums")
        devices = array.devices()
        if len(devices) != 1:
            fix = f"gather it first: jax.device_put({argument}, jax.devices()[0])"
            raise ArgumentError(argument, "must lie on one device", f"on {len(devices)}", fix)
        return next(iter(devices))

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """Memory that :meth:`finish` hands over: NumPy's on the host, our own on a GPU."""
        if dtype == "float64" and not self._jax.config.jax_enable_x64:
            fix = "jax.config.update('jax_enable_x64', True), or use float32 operands"
            raise ArgumentError("the result", "would be float64, which JAX has turned off", None, fix)
        if like.space == HOST:
            return _aligned_empty(shape, numpy_dtype(dtype))
        return gpu.open(like.space[1]).empty(shape, numpy_dtype(dtype))

    def finish(self, result: Any, like: View) -> Any:
        """A jax.Array over the memory of ``result``, which must not be written any more."""
        if like.space == HOST:
            (device,) = like.owner.source.devices()
            return self._jax.device_put(result, device, may_alias=True)
        return self._jax.dlpack.from_dlpack(result)

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy a JAX array elsewhere."""
        which = "'cpu')[0" if space == HOST else f"'gpu')[{space[1]}"
        return f"jax.device_put({argument}, jax.devices({which}])"


def functions_for(*arrays: Any) -> Any:
    """The module of functions that a product of these goes through: of tracers of JAX, which stand for arrays. None
    where there are none.
    """
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "core") or not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return None
    return importlib.import_module("tilewise.interop.jax.functions")


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -int(raw.ctypes.data) % _ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)
