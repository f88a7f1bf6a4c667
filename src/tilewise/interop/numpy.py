"""NumPy's arrays: host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.errors import ArgumentError
from tilewise.interop.dtypes import element_type, numpy_dtype
from tilewise.interop.view import HOST, Library, View, strides_in_elements

__all__ = ["NumpyLibrary", "as_array", "describe_host", "numpy_of"]

# What stands for an array without being one: NumPy's functions take these too.
_ARRAY_LIKE = (list, tuple, range, bool, int, float, complex, np.generic, memoryview)


class NumpyLibrary(Library):
    """Arrays of NumPy and of its subclasses that add no arithmetic of their own."""

    name = "numpy"
    preference = 0
    read_only_fix = "copy it first: numpy.array(x)"

    def view(self, argument: str, array: npt.NDArray[Any]) -> View:
        """The view of an ndarray; a matrix and a memmap count as what they hold."""
        if type(array) is not np.ndarray:
            _check_subclass(argument, array)
        return describe_host(argument, np.asarray(array), self, array)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> npt.NDArray[Any]:
        """A new ndarray."""
        return np.empty(shape, numpy_dtype(dtype))

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy an ndarray to a GPU."""
        return f"tw.device('gpu:{space[1]}').array({argument})"


def describe_host(argument: str, array: npt.NDArray[Any], library: Library, owner: Any) -> View:
    """The view of an ndarray over memory that belongs to ``owner`` of ``library``."""
    flags = array.flags
    name = element_type(argument, array.dtype)
    if not flags.aligned:
        fix = f"copy it first: numpy.array({argument})"
        raise ArgumentError(argument, "must be aligned to its elements", "an unaligned array", fix)
    strides = strides_in_elements(argument, array.strides, array.itemsize)
    ptr: int = array.__array_interface__["data"][0]
    return View(ptr, array.shape, strides, name, HOST, library, owner, not flags.writeable)


def numpy_of(view: View) -> npt.NDArray[Any]:
    """An array of any library as a NumPy array over the same memory. NOTE: on a GPU, to look at its strides alone."""
    dtype = numpy_dtype(view.dtype)
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    described = {
        "version": 3,
        "shape": view.shape,
        "strides": tuple(step * dtype.itemsize for step in view.strides),
        "typestr": f"|V{dtype.itemsize}",
        "data": (view.ptr, view.read_only),
    }
    return np.asarray(_Holder(described, view.owner)).view(dtype)


class _Holder:
    """Memory in the form that NumPy takes; NumPy keeps this, and this keeps the owner."""

    def __init__(self, described: dict[str, Any], owner: object) -> None:
        self.__array_interface__, self._owner = described, owner


_INSTEAD = {
    "tilewise.quantize.Quantized": "its values and its scale are arrays, and so is what dequantize() gives",
    "tilewise.split_float32.SplitFloat32": "its source is one",
}
"""What products take instead of what we make of arrays, where they do not take that."""


def as_array(argument: str, value: Any) -> Any:
    """Lists, tuples and numbers as ``numpy.asarray`` has them; arrays of every library as they are.

    An ndarray in the other byte order, or whose elements do not lie at multiples of their size, is copied
    into one that kernels can read: its values stay. NOTE: so this is for operands, not for ``out``.
    """
    if isinstance(value, np.ndarray):
        return value if _is_plain(value) else _repack(value)
    fix = _INSTEAD.get(f"{type(value).__module__}.{type(value).__name__}")
    if fix is not None:
        raise ArgumentError(argument, "must be an array here", type(value).__name__, fix)
    if not isinstance(value, _ARRAY_LIKE) and type(value).__module__ != "array":
        return value
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        fix = "stack arrays of a library with its own function"
        raise ArgumentError(argument, f"must be convertible to an array: {reason}", None, fix) from error


def _is_plain(array: npt.NDArray[Any]) -> bool:
    dtype = array.dtype
    if dtype.hasobject or dtype.names is not None or not dtype.itemsize:
        return True  # nothing that packing would mend: the view refuses it
    steps = array.strides
    return dtype.isnative and array.flags.aligned and not any(step % dtype.itemsize for step in steps)


def _repack(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("="), order="C", copy=True)


def _check_subclass(argument: str, array: npt.NDArray[Any]) -> None:
    """Refuse subclasses whose elements mean more than their numbers."""
    if isinstance(array, np.ma.MaskedArray):
        fix = f"fill the masked elements first: {argument}.filled(0)"
        raise ArgumentError(argument, "must have no mask", "a masked array", fix)
    if type(array).__array_ufunc__ is not np.ndarray.__array_ufunc__:
        rule = "must not have arithmetic of its own, which tw.matmul would leave out"
        raise ArgumentError(argument, rule, type(array).__name__, f"pass numpy.asarray({argument})")
