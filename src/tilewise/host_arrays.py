"""Host arrays of any library: written to by way of NumPy, and multiplied on a GPU by way of copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import Arrays, Choice, prepare, start
from tilewise.describe import Shapes
from tilewise.devices import Device
from tilewise.devices.emulated import EmulatedArray
from tilewise.epilogue import Fused
from tilewise.interop import HOST, View, numpy_of
from tilewise.problem import COMPLEX, EIGHT_BITS, FLOAT8, INTEGERS, multiplied_type

__all__ = ["multiply_staged", "needs_own_memory", "overwrite", "written_type"]


def overwrite(result: View, values: npt.NDArray[Any]) -> None:
    """Write values into a host array, in its element type."""
    target = numpy_of(result)
    target[...] = np.reshape(values, target.shape)
    if isinstance(result.owner, EmulatedArray):
        result.owner.fill(target)  # it notes which of its elements are set


def needs_own_memory(result: View, multiplied: str, choice: Choice) -> bool:
    """Whether a product cannot be written into a host array as it is: for its element type, or for how it lies."""
    if result.space != HOST:
        return False
    if multiplied in COMPLEX or (
        choice.kernels is not None and not any(spec.strided for spec in choice.kernels)
    ):
        return not _has_rows(result) or _needs_cast(result, multiplied, choice)
    return _needs_cast(result, multiplied, choice)


def _needs_cast(result: View, multiplied: str, choice: Choice) -> bool:
    if choice.settings or result.dtype == choice.result_type(multiplied):
        return False
    if multiplied in INTEGERS and not choice.changed:
        return True
    if result.dtype in EIGHT_BITS and multiplied != "float64":
        return choice.kernels is not None and not any(
            result.dtype in spec.settings.get("result", ()) for spec in choice.kernels
        )
    if multiplied in (*FLOAT8, "int8"):
        return result.dtype not in ("float16", "bfloat16", "float32")
    return result.dtype != "float32" or multiplied not in ("float16", "bfloat16")


def written_type(result: View, multiplied: str, choice: Choice) -> str:
    """The type that a kernel writes for a host array: its own, or one that NumPy casts to it: float32 of sums of few
    bits, which would be rounded twice otherwise."""
    if not _needs_cast(result, multiplied, choice):
        return result.dtype
    narrow = multiplied in (*FLOAT8, "float16", "bfloat16")
    return "float32" if narrow and not choice.settings else choice.result_type(multiplied)


def _has_rows(result: View) -> bool:
    """Whether the last axis is dense, and steps along the one before do not go back into a row."""
    if 0 in result.shape:
        return True
    rows, columns = (1, 1, *result.shape)[-2:]
    row_step, column_step = (0, 0, *result.strides)[-2:]
    return (columns <= 1 or column_step == 1) and (rows <= 1 or row_step >= columns)


def multiply_staged(
    left: View,
    right: View,
    fused: Fused,
    shapes: Shapes,
    where: Device,
    choice: Choice,
    result: View,
    offsets: View | None = None,
    keeps: bool = False,
) -> npt.NDArray[Any]:
    """The product of host arrays, multiplied on a GPU: copied there, and what is to be written to ``result``.

    Its elements are the result's if a kernel makes such. With ``keeps`` they are those that it has where no group of
    rows has anything.
    """
    x, y = (interop.view(name, where.array(numpy_of(one))) for name, one in (("a", left), ("b", right)))
    there = {name: where.array(numpy_of(one)) for name, one in fused.arrays.items()}
    moved = fused._replace(views=tuple(interop.view(name, one) for name, one in there.items()))
    if keeps:
        made = where.array(numpy_of(result))
    else:
        multiplied = multiplied_type(left.dtype, right.dtype)
        dtype = written_type(result, multiplied, choice)
        made = where.empty(shapes.result, interop.numpy_dtype(dtype))
    ends = None if offsets is None else interop.view("offsets", where.array(numpy_of(offsets)))
    arrays = Arrays(x, y, interop.view("out", made), moved, ends)
    start(prepare(arrays, shapes, where, choice), arrays, where, (None,))
    for name in fused.written:
        overwrite(fused.arrays[name], there[name].numpy())
    return made.numpy()
