"""Arrays of other libraries: viewed without a copy, and results in the caller's kind on the caller's stream.

The only place that names torch, cupy and jax. None of them is imported here: an array of theirs can only
come from a caller who has imported them.

NOTE: the function ``view`` takes the place of the module of that name in this package:
``from tilewise.interop.view import View`` finds the module, ``interop.view`` is the function.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

from tilewise.devices.emulated import EmulatedArray
from tilewise.devices.gpu import GpuArray
from tilewise.errors import ArgumentError
from tilewise.interop.cupy import CupyLibrary
from tilewise.interop.dtypes import numpy_dtype, result_type
from tilewise.interop.handover import HandoverLibrary, speaks_a_protocol
from tilewise.interop.jax import JaxLibrary, XlaBuffer, XlaLibrary, functions_for
from tilewise.interop.mixing import Common, common
from tilewise.interop.numpy import NumpyLibrary, as_array, numpy_of
from tilewise.interop.own import OwnLibrary
from tilewise.interop.torch import TorchLibrary, keep_out_of_dynamo
from tilewise.interop.torch import operators_for as torch_operators_for
from tilewise.interop.view import CUDA, HOST, Library, View, may_overlap

__all__ = [
    "CUDA",
    "HOST",
    "Common",
    "Library",
    "View",
    "as_array",
    "common",
    "keep_out_of_dynamo",
    "library_of",
    "may_overlap",
    "numpy_dtype",
    "numpy_of",
    "operators_for",
    "result_type",
    "view",
    "view_output",
]

_OWN, _HANDOVER, _XLA = OwnLibrary(), HandoverLibrary(), XlaLibrary()
# The class whose instances are a library's arrays, and what serves them.
_FRAMEWORKS: dict[str, tuple[str, Callable[[], Library]]] = {
    "numpy": ("ndarray", functools.cache(NumpyLibrary)),
    "torch": ("Tensor", functools.cache(TorchLibrary)),
    "cupy": ("ndarray", functools.cache(CupyLibrary)),
    "jax": ("Array", functools.cache(JaxLibrary)),
}
_by_type: dict[type, Library] = {}


def operators_for(*arrays: Any) -> Any:
    """The module whose ``matmul`` and ``linear`` a call with these goes through: torch's operators or JAX's functions.

    None where a product is a launch and nothing else: of arrays in memory that record no gradients.
    """
    return torch_operators_for(*arrays) or functions_for(*arrays)


def view(argument: str, array: Any) -> View:
    """The view of an array of any library; an ArgumentError that names ``argument`` if there is none."""
    library = _by_type.get(type(array))
    if library is None:
        library = library_of(argument, array)
    return library.view(argument, array)


def view_output(argument: str, array: Any) -> View:
    """The view of an array to write into: refuses read-only memory and elements that share memory."""
    found = view(argument, array)
    if found.read_only:
        raise ArgumentError(argument, "must be writable", "a read-only array", found.library.read_only_fix)
    if _shares_memory_with_itself(found):
        rule, fix = "must have elements that share no memory", "copy it first"
        value = f"shape {found.shape} with strides {found.strides} of elements"
        raise ArgumentError(argument, rule, value, fix)
    return found


def _shares_memory_with_itself(view: View) -> bool:
    """Whether elements along one axis, or along two of them, lie in the same place."""
    if 0 in view.shape:  # NumPy's empty arrays have strides of 0
        return False
    axes = [(size, abs(step)) for size, step in zip(view.shape, view.strides, strict=True) if size > 1]
    if any(not step for _, step in axes):
        return True
    # Steps of two axes first meet where each has gone as far as the other's step, less what both have in common.
    return any(
        size > across // math.gcd(step, across) and other > step // math.gcd(step, across)
        for (size, step), (other, across) in itertools.combinations(axes, 2)
    )


def library_of(argument: str, array: Any) -> Library:
    """The library of an array, by its type; a new type is classified when it is first met."""
    kind = type(array)
    found = _by_type.get(kind)
    if found is None:
        found = _by_type[kind] = _recognise(argument, array)
    return found


def _recognise(argument: str, array: Any) -> Library:
    """The library that a base class of the array's type belongs to, else that of the protocols it supports."""
    if isinstance(array, GpuArray | EmulatedArray):
        return _OWN
    if isinstance(array, XlaBuffer):
        return _XLA
    for base in type(array).__mro__:
        root = base.__module__.partition(".")[0]
        root = "jax" if root == "jaxlib" else root  # JAX's compiled half
        marker, make = _FRAMEWORKS.get(root, ("", None))
        framework = sys.modules.get(root)
        if make is not None and framework is not None and isinstance(array, getattr(framework, marker)):
            return make()
    if speaks_a_protocol(array):
        return _HANDOVER
    rule = "must be an array of NumPy, PyTorch, CuPy, JAX or tilewise, or one that speaks DLPack"
    raise ArgumentError(argument, rule, type(array).__name__, f"use numpy.asarray({argument})")
