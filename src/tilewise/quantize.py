"""tw.quantize: numbers as 8 bits with scales, of any array; and back. tw.matmul multiplies them as what they stand for.

NOTE: this module has the name of its function, which is what the package shows under that name.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import start_on_gpu
from tilewise.devices import gpu
from tilewise.epilogue import EpilogueCall, epilogue
from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.expression import SUM
from tilewise.host_arrays import overwrite
from tilewise.interop import HOST, View, numpy_dtype, numpy_of
from tilewise.kernels.bind import bind_steps
from tilewise.kernels.quantize import MOST, dequantize_steps, quantize_steps
from tilewise.kernels.spec import Step
from tilewise.operands import Operand, alignment_of

__all__ = ["Quantized", "quantize", "scale_sums", "unwrap"]

_NUMBERS = ("float32", "float16", "bfloat16")
_MOST_AXES = 4


class Quantized(NamedTuple):
    """Numbers as 8 bits: ``values`` times ``scale``, which broadcasts to them."""

    values: Any
    scale: Any

    def dequantize(self, dtype: str = "float32") -> Any:
        """The numbers, in an array of the caller's kind.

        >>> import numpy as np, tilewise as tw
        >>> tw.quantize(np.array([[1.0, -2.0]], "float32"), "int8").dequantize().round(2).tolist()
        [[1.0, -2.0]]
        """
        if dtype not in _NUMBERS:
            raise UnknownNameError("dtype", dtype, _NUMBERS)
        values, scale = _view("values", self.values), interop.view("scale", self.scale)
        if values.dtype not in MOST:
            raise ArgumentError("values", f"must have a type of {', '.join(MOST)}", values.dtype)
        if scale.ndim != values.ndim or any(
            s not in (1, v) for s, v in zip(scale.shape, values.shape, strict=True)
        ):
            rule = f"must have the shape {values.shape}, or 1 where it is the same"
            raise ArgumentError("scale", rule, scale.shape, "reshape it")
        if scale.dtype != "float32":
            raise ArgumentError("scale", "must have the type float32", scale.dtype)
        common = interop.common({"values": values, "scale": scale})
        result = common.library.empty(values.shape, dtype, common.like)
        target = interop.view("numbers", result)
        if common.space == HOST:
            with np.errstate(all="ignore"):
                numbers = numpy_of(values).astype(np.float32) * numpy_of(scale)
                overwrite(target, numbers.astype(numpy_dtype(dtype)))
        elif 0 not in values.shape:
            _dequantize_on_gpu(values, scale, target, common)
        return common.library.finish(result, common.like)


def quantize(x: Any, dtype: str = "float8_e4m3fn", *, axis: int | None = None) -> Quantized:
    """Numbers as 8 bits with scales: ``values`` and ``scale``, so that ``values * scale`` is about ``x``.

    ``dtype`` is "float8_e4m3fn", "float8_e5m2" or "int8". The numbers along ``axis`` share a scale, that of the largest
    of them; with None all do. For a product that is the axis which it sums over: -1 of ``a`` and -2 of ``b``, or -1 of
    a weight of :func:`tilewise.linear`. ``scale`` has the shape of ``x`` with 1 along ``axis``. ``x`` is an array of
    any kind that :func:`tilewise.matmul` takes, in float32, float16 or bfloat16; the results are of its kind and lie
    where it does. NaN stays NaN, of "int8" 0; infinities leave nothing of their line.

    :func:`tilewise.matmul` and :func:`tilewise.linear` multiply what this gives as the numbers that it stands for.

    >>> import numpy as np, tilewise as tw
    >>> x = np.array([[1.0, 2.0], [-4.0, 3.0]], "float32")
    >>> q = tw.quantize(x, axis=-1)
    >>> (q.values.astype("float32") * q.scale).tolist()
    [[1.0, 2.0], [-4.0, 3.0]]
    """
    if dtype not in MOST:
        raise UnknownNameError("dtype", dtype, MOST)
    numbers = _view("x", x)
    if numbers.dtype not in _NUMBERS:
        raise ArgumentError(
            "x", f"must have a type of {', '.join(_NUMBERS)}", numbers.dtype, "convert it first"
        )
    shared = _shared_axes(axis, numbers)
    shape = tuple(1 if i in shared else size for i, size in enumerate(numbers.shape))
    common = interop.common({"x": numbers})
    made = (
        common.library.empty(numbers.shape, dtype, common.like),
        common.library.empty(shape, "float32", common.like),
    )
    values, scale = interop.view("values", made[0]), interop.view("scale", made[1])
    if common.space == HOST:
        found = _quantize_on_host(numpy_of(numbers), dtype, shared)
        overwrite(values, found[0])
        overwrite(scale, found[1])
    elif 0 not in numbers.shape:
        _quantize_on_gpu(numbers, values, scale, common)
    return Quantized(*(common.library.finish(one, common.like) for one in made))


def _view(argument: str, array: Any) -> View:
    """The view of an array of two to four axes."""
    found = interop.view(argument, interop.as_array(argument, array))
    if not 2 <= found.ndim <= _MOST_AXES:
        rule = f"must have two to {_MOST_AXES} dimensions"
        raise ArgumentError(argument, rule, f"shape {found.shape}", "reshape it")
    return found


def _shared_axes(axis: int | None, numbers: View) -> tuple[int, ...]:
    """The axes along which a scale is the same."""
    if axis is None:
        return tuple(range(numbers.ndim))
    given = axis if isinstance(axis, int) and axis < 0 else integer("axis", axis) - numbers.ndim
    if given not in (-1, -2):
        raise ArgumentError("axis", "must be one of the last two, or None", axis)
    return (numbers.ndim + given,)


def _quantize_on_host(
    numbers: npt.NDArray[Any], dtype: str, shared: tuple[int, ...]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """As the kernel does it, to the last bit."""
    wide, most = numbers.astype(np.float32), np.float32(MOST[dtype])
    with np.errstate(all="ignore"):
        largest = np.fmax.reduce(np.abs(wide), axis=shared, keepdims=True, initial=0)
        all_of_them = largest / most
        scale = np.where(all_of_them > 0, all_of_them, np.float32(1))
        clipped = np.clip(wide / scale, -128 if dtype == "int8" else -most, most)
        if dtype == "int8":
            clipped = np.nan_to_num(np.rint(clipped))
        return clipped.astype(numpy_dtype(dtype)), scale


def _quantize_on_gpu(numbers: View, values: View, scale: View, common: interop.Common) -> None:
    lines = math.prod(scale.shape)
    workspace = common.library.empty((4 * lines,), "uint8", common.like)
    kept = interop.view("largest", workspace)
    operands = (_operand(name, one) for name, one in (("x", numbers), ("values", values), ("scale", scale)))
    x, values_, scales = operands
    # NOTE: the strides tell the kernel what shares a scale. Of one line both are 0, as for a whole matrix.
    largest = Operand(
        "largest", scales.rows, scales.columns, scales.row_stride, "int32", scales.column_stride, scales.stack
    )
    x, largest, values_, scales = _along_rows(x, largest, values_, scales)
    used = {"x": numbers, "largest": kept, "values": values, "scale": scale}
    _launch(quantize_steps(x, largest, values_, scales, _stack(numbers), lines), used, common)


def _dequantize_on_gpu(values: View, scale: View, numbers: View, common: interop.Common) -> None:
    used = {"values": values, "scale": scale, "numbers": numbers}
    operands = (_operand(name, one) for name, one in used.items())
    _launch(dequantize_steps(*_along_rows(*operands), stack=_stack(values)), used, common)


def _stack(view: View) -> tuple[int, int]:
    """How many matrices there are along two axes of the stack."""
    outer, inner = (1, 1, *view.shape[:-2])[-2:]
    return outer, inner


def _operand(name: str, view: View) -> Operand:
    """The matrices of a view; strides are 0 along axes of one element."""
    steps = tuple(0 if size == 1 else step for size, step in zip(view.shape, view.strides, strict=True))
    *stack, rows, columns = steps
    return Operand(
        name, view.shape[-2], view.shape[-1], rows, view.dtype, columns, tuple(stack), alignment_of(view.ptr)
    )


def _along_rows(first: Operand, *others: Operand) -> tuple[Operand, ...]:
    """All of them, or their transposes, so that neighbours in a row of the first one lie closest together."""
    turned = first.columns == 1 or 0 < abs(first.row_stride) < abs(first.column_stride)
    return tuple(one.transposed() if turned else one for one in (first, *others))


def _launch(steps: list[Step], used: dict[str, View], common: interop.Common) -> None:
    """Start launches on the caller's stream, on the GPU that holds the arrays."""
    device = gpu.open(common.space[1])
    bound = bind_steps(steps, device)
    addresses = {name: view.ptr for name, view in used.items()}
    start_on_gpu(bound, addresses, tuple(used.values()), device, common.streams)


def _shape_of(name: str, scale: Any) -> tuple[int, ...]:
    if isinstance(scale, int | float):
        return ()
    shape = getattr(scale, "shape", None)  # NOTE: views take microseconds, and are made later anyway
    return interop.view(name, interop.as_array(name, scale)).shape if shape is None else tuple(shape)


# ── products ─────────────────────────────────────────────────────────────────────────────────────────────


def unwrap(argument: str, array: Any, scale: Any) -> tuple[Any, Any]:
    """The array to multiply, and the scale of its numbers: of what was quantised, its own."""
    if not isinstance(array, Quantized):
        return array, scale
    if scale is not None:
        rule = f"must be left out where {argument} brings its own scale"
        raise ArgumentError(f"scale_{argument}", rule)
    return array.values, array.scale


def scale_sums(call: EpilogueCall | None, scales: dict[str, Any]) -> EpilogueCall | None:
    """An epilogue that first multiplies each sum by the scales that there are."""
    found = {name: scale for name, scale in scales.items() if scale is not None}
    if not found:
        return call
    for name, scale in found.items():
        shape = _shape_of(name, scale)
        axis = -1 if name == "scale_a" else -2
        if len(shape) >= -axis and shape[axis] != 1:
            rule = f"must be the same along k: have 1 as its {'last' if axis == -1 else 'last but one'} size"
            raise ArgumentError(name, rule, f"shape {shape}")
        if call is not None and name in call.given:
            raise ArgumentError(name, "must not be a name in the epilogue too")
    scaled = f"({' * '.join((SUM, *found))})"
    if call is None:
        return epilogue(scaled, **found)
    return epilogue(re.sub(rf"\b{SUM}\b", scaled, call.expression.text), **found, **call.given)
