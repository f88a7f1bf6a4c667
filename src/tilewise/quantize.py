"""tw.quantize: numbers as 8 bits with scales, of any array; and back. tw.matmul multiplies them as what they stand for.

NOTE: this module has the name of its function, which is what the package shows under that name.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import start_steps
from tilewise.devices import gpu
from tilewise.epilogue import EpilogueCall, epilogue
from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.expression import SCALED, SUM
from tilewise.host_arrays import overwrite
from tilewise.interop import HOST, View, numpy_dtype, numpy_of
from tilewise.kernels.quantize import MOST, dequantize_steps, quantize_steps, quantize_tiles_steps
from tilewise.kernels.spec import Step
from tilewise.operands import ALIGNMENT_MOST, Operand, alignment_of, ceil_div
from tilewise.problem import SCALED_TERMS
from tilewise.scales import check_scale, numbers_sharing, spread

__all__ = ["Quantized", "quantize", "scale_sums", "shape_of", "unwrap"]

_NUMBERS = ("float32", "float16", "bfloat16")
_MOST_AXES = 4
_LEAST = 2.0**-149  # a scale of numbers so small that theirs would be none
_HAVE_STRIDES = ("numpy", "torch", "cupy")  # libraries whose arrays may lie in columns


class Quantized(NamedTuple):
    """Numbers as 8 bits: ``values`` times ``scale``.

    ``scale`` broadcasts to them; or, made with ``block``, has an element for each so many of them.
    """

    values: Any
    scale: Any

    @property
    def mT(self) -> Quantized:  # noqa: N802  # as arrays have it
        """The same of the transposes: of weights of shape (groups, n, k) those of shape (groups, k, n)."""
        return Quantized(self.values.swapaxes(-1, -2), self.scale.swapaxes(-1, -2))

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
        check_scale("scale", scale.shape, values.shape)
        if scale.dtype != "float32":
            raise ArgumentError("scale", "must have the type float32", scale.dtype)
        shared = numbers_sharing(values.shape, scale.shape)
        common = interop.common({"values": values, "scale": scale})
        result = common.library.empty(values.shape, dtype, common.like)
        target = interop.view("numbers", result)
        if common.space == HOST:
            with np.errstate(all="ignore"):
                numbers = numpy_of(values).astype(np.float32) * spread(numpy_of(scale), values.shape, shared)
                overwrite(target, numbers.astype(numpy_dtype(dtype)))
        elif 0 not in values.shape:
            _dequantize_on_gpu(values, scale, shared, target, common)
        return common.library.finish(result, common.like)


def quantize(
    x: Any,
    dtype: str = "float8_e4m3fn",
    *,
    axis: int | None = None,
    block: int | tuple[int, int] | None = None,
) -> Quantized:
    """Numbers as 8 bits with scales: ``values`` and ``scale``, so that ``values * scale`` is about ``x``.

    ``dtype`` is "float8_e4m3fn", "float8_e5m2" or "int8". The numbers along ``axis`` share a scale, that of the largest
    of them; with None all do. For a product that is the axis which it sums over: -1 of ``a`` and -2 of ``b``, or -1 of
    a weight of :func:`tilewise.linear`. ``scale`` has the shape of ``x`` with 1 along ``axis``. ``x`` is an array of
    any kind that :func:`tilewise.matmul` takes, in float32, float16 or bfloat16; the results are of its kind and lie
    where it does. NaN stays NaN, of "int8" 0; infinities leave nothing of their line.

    ``block=128`` gives each 128 numbers along ``axis`` a scale of their own, ``block=(128, 128)`` without ``axis`` each
    128 by 128 of the last two axes: what outliers there are spoil less. ``scale`` has as many elements along these
    axes.

    :func:`tilewise.matmul`, :func:`tilewise.linear` and :func:`tilewise.grouped_matmul` multiply what this gives as the
    numbers that it stands for.

    >>> import numpy as np, tilewise as tw
    >>> x = np.array([[1.0, 2.0], [-4.0, 3.0]], "float32")
    >>> q = tw.quantize(x, axis=-1)
    >>> (q.values.astype("float32") * q.scale).tolist()
    [[1.0, 2.0], [-4.0, 3.0]]
    >>> tw.quantize(np.ones((256, 300), "float32"), block=(128, 128)).scale.shape
    (2, 3)
    """
    if dtype not in MOST:
        raise UnknownNameError("dtype", dtype, MOST)
    numbers = _view("x", x)
    if numbers.dtype not in _NUMBERS:
        raise ArgumentError(
            "x", f"must have a type of {', '.join(_NUMBERS)}", numbers.dtype, "convert it first"
        )
    shared = _shared_along(axis, block, numbers)
    shape = tuple(ceil_div(size, one) if one else 1 for size, one in zip(numbers.shape, shared, strict=True))
    common = interop.common({"x": numbers})
    made = (
        common.library.empty(numbers.shape, dtype, common.like),
        _empty_scale(shape, block is not None and shared[-2] == 1, common),
    )
    values, scale = interop.view("values", made[0]), interop.view("scale", made[1])
    if common.space == HOST:
        found = _quantize_on_host(numpy_of(numbers), dtype, shared)
        overwrite(values, found[0])
        overwrite(scale, found[1])
    elif 0 not in numbers.shape:
        _quantize_on_gpu(numbers, values, scale, shared, common)
    return Quantized(*(common.library.finish(one, common.like) for one in made))


def _empty_scale(shape: tuple[int, ...], of_runs: bool, common: interop.Common) -> Any:
    """An array for scales. Those of runs along rows lie in columns, if the library has such: kernels read one run of
    many rows at a time."""
    if of_runs and common.library.name in _HAVE_STRIDES:
        turned = (*shape[:-2], shape[-1], shape[-2])
        return common.library.empty(turned, "float32", common.like).swapaxes(-1, -2)
    return common.library.empty(shape, "float32", common.like)


def _view(argument: str, array: Any) -> View:
    """The view of an array of two to four axes."""
    found = interop.view(argument, interop.as_array(argument, array))
    if not 2 <= found.ndim <= _MOST_AXES:
        rule = f"must have two to {_MOST_AXES} dimensions"
        raise ArgumentError(argument, rule, f"shape {found.shape}", "reshape it")
    return found


def _shared_along(axis: int | None, block: int | tuple[int, int] | None, numbers: View) -> tuple[int, ...]:
    """How many numbers share a scale, along each axis; 0: all, if there are any."""
    if axis is None:
        if block is None:
            return (0,) * numbers.ndim
        if block != (SCALED_TERMS, SCALED_TERMS):
            rule = f"must be ({SCALED_TERMS}, {SCALED_TERMS}) without axis"
            raise ArgumentError("block", rule, block, f"with block={SCALED_TERMS} give axis=-1 or axis=-2")
        return (*(1 for _ in numbers.shape[:-2]), *block)
    negative = isinstance(axis, (int, np.integer)) and axis < 0
    given = int(axis) if negative else integer("axis", axis) - numbers.ndim
    if given not in (-1, -2):
        raise ArgumentError("axis", "must be one of the last two, or None", axis)
    if block not in (None, SCALED_TERMS):
        raise ArgumentError("block", f"must be {SCALED_TERMS} with axis, or None", block)
    along = 0 if block is None else SCALED_TERMS
    return tuple(along if i - numbers.ndim == given else 1 for i in range(numbers.ndim))


def _quantize_on_host(
    numbers: npt.NDArray[Any], dtype: str, shared: tuple[int, ...]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """As the kernel does it, to the last bit."""
    wide, most = numbers.astype(np.float32), np.float32(MOST[dtype])
    with np.errstate(all="ignore"):
        largest = np.abs(wide)
        for axis, one in enumerate(shared):
            if one == 0:
                largest = np.fmax.reduce(largest, axis=axis, keepdims=True, initial=0)
            elif one > 1 and largest.shape[axis]:
                largest = np.fmax.reduceat(largest, range(0, largest.shape[axis], one), axis)
        largest = np.fmax(largest, 0)
        all_of_them = largest / most
        least = np.where(largest > 0, np.float32(_LEAST), np.float32(1))
        scale = np.where(all_of_them > 0, all_of_them, least)
        clipped = np.clip(wide / spread(scale, wide.shape, shared), -128 if dtype == "int8" else -most, most)
        if dtype == "int8":
            clipped = np.nan_to_num(np.rint(clipped))
        return clipped.astype(numpy_dtype(dtype)), scale


def _quantize_on_gpu(
    numbers: View, values: View, scale: View, shared: tuple[int, ...], common: interop.Common
) -> None:
    used = {"x": numbers, "values": values, "scale": scale}
    turned, (x, values_, scales) = _along_rows(*(_operand(name, one) for name, one in used.items()))
    if _tiles_of(shared, numbers.shape, turned) != (1, 1):
        rows, columns = (SCALED_TERMS if one > 1 else 1 for one in shared[-2:])
        tiles = (columns, rows) if turned else (rows, columns)
        _launch(quantize_tiles_steps(x, values_, scales, _stack(numbers), tiles), used, common)
        return
    lines = math.prod(scale.shape)
    used["largest"] = interop.view("largest", common.library.empty((4 * lines,), "uint8", common.like))
    # NOTE: the strides tell the kernel what shares a scale. Of one line both are 0, as for a whole matrix.
    largest = replace(scales, name="largest", dtype="int32", alignment=ALIGNMENT_MOST)
    _launch(quantize_steps(x, largest, values_, scales, _stack(numbers), lines), used, common)


def _dequantize_on_gpu(
    values: View, scale: View, shared: tuple[int, ...], numbers: View, common: interop.Common
) -> None:
    used = {"values": values, "scale": scale, "numbers": numbers}
    turned, (x, scales, made) = _along_rows(*(_operand(name, one) for name, one in used.items()))
    tiles = _tiles_of(shared, values.shape, turned)
    _launch(dequantize_steps(x, scales, made, stack=_stack(values), shared=tiles), used, common)


def _tiles_of(shared: tuple[int, ...], shape: tuple[int, ...], turned: bool) -> tuple[int, int]:
    """Rows and columns that share a scale, as a kernel has them: what is shared by all along an axis has a stride of 0.

    NOTE: of an axis with no more numbers than share a scale all do.
    """
    rows, columns = (one if 1 < one < size else 1 for one, size in zip(shared[-2:], shape[-2:], strict=True))
    return (columns, rows) if turned else (rows, columns)


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


def _along_rows(first: Operand, *others: Operand) -> tuple[bool, list[Operand]]:
    """All of them, or, which is said first, their transposes, so that neighbours in a row of the first one lie closest
    together."""
    turned = first.columns == 1 or 0 < abs(first.row_stride) < abs(first.column_stride)
    return turned, [one.transposed() if turned else one for one in (first, *others)]


def _launch(steps: list[Step], used: dict[str, View], common: interop.Common) -> None:
    """Start launches on the caller's stream, on the GPU that holds the arrays."""
    start_steps(steps, used, gpu.open(common.space[1]), common.streams)


# ── products ─────────────────────────────────────────────────────────────────────────────────────────────


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """The shape of an array, or of a number."""
    if isinstance(array, int | float):
        return ()
    shape = getattr(array, "shape", None)  # NOTE: views take microseconds, and are made later anyway
    return interop.view(name, interop.as_array(name, array)).shape if shape is None else tuple(shape)


def unwrap(argument: str, array: Any, scale: Any) -> tuple[Any, Any]:
    """The array to multiply, and the scale of its numbers: of what was quantised, its own."""
    if not isinstance(array, Quantized):
        return array, scale
    if scale is not None:
        rule = f"must be left out where {argument} brings its own scale"
        raise ArgumentError(f"scale_{argument}", rule)
    return array.values, array.scale


def scale_sums(
    call: EpilogueCall | None,
    scales: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    grouped: bool = False,
) -> EpilogueCall | None:
    """An epilogue that first multiplies each sum by the scales that there are, or the sum of scaled terms.

    ``scales`` are "scale_a" and "scale_b", and ``shapes`` those of A and B under these names. Those of B are of terms
    if rows are ``grouped``, as no array of the result's shape has them.
    """
    found = {name: scale for name, scale in scales.items() if scale is not None}
    if not found:
        return call
    of_terms = {
        name
        for name, scale in found.items()
        if (grouped and name == "scale_b") or _differs_along_k(name, shape_of(name, scale), shapes[name])
    }
    for name, scale in found.items():
        _refuse_one_axis(name, shape_of(name, scale), shapes[name])
        if call is not None and name in call.given:
            raise ArgumentError(name, "must not be a name in the epilogue too")
    names = [name if name in of_terms else "1" for name in ("scale_a", "scale_b")]
    acc = f"{SCALED}({SUM}, {', '.join(names)})" if of_terms else SUM
    scaled = f"({' * '.join((acc, *(name for name in found if name not in of_terms)))})"
    if call is None:
        return epilogue(scaled, **found)
    return epilogue(re.sub(rf"\b{SUM}\b", scaled, call.expression.text), **found, **call.given)


def _refuse_one_axis(name: str, scale: tuple[int, ...], operand: tuple[int, ...]) -> None:
    """Refuse scales in one axis where they would broadcast along the other operand's lines."""
    if len(scale) != 1 or scale[0] == 1:
        return
    if name == "scale_a" and len(operand) > 1:
        rule, fix = "must have an axis for k too, beside a matrix", f"give it shape {(*scale, 1)}"
        raise ArgumentError(name, rule, f"shape {scale}", fix)
    if name == "scale_b" and len(operand) == 1:
        rule, fix = "must have an axis for columns too, beside a vector", f"give it shape {(*scale, 1)}"
        raise ArgumentError(name, rule, f"shape {scale}", fix)


def _differs_along_k(name: str, scale: tuple[int, ...], operand: tuple[int, ...]) -> bool:
    """Whether there is a scale for each run of K, or tiles share scales; by the shapes of scales and of the operand."""
    axis = -1 if name == "scale_a" else -2
    if len(scale) < 2:
        return len(scale) == 1 == len(operand) and axis == -1 and scale[0] != 1
    if scale[axis] != 1:
        return True
    across, lines = scale[-3 - axis], operand[-3 - axis] if len(operand) > 1 else 1
    return across not in (1, lines) and across == ceil_div(lines, SCALED_TERMS)
