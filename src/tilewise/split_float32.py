"""tw.split_float32: what products in "exact32" make of a matrix, made once, for weights that stay.

NOTE: this module has the name of its function, which is what the package shows under that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise import interop
from tilewise.calls import start_steps
from tilewise.devices import device as resolve
from tilewise.devices import gpu
from tilewise.errors import ArgumentError, integer
from tilewise.interop import HOST, View
from tilewise.kernels.gemm.exact32 import LEAST_K, SPEC, split_steps
from tilewise.operands import Operand, alignment_of

__all__ = ["SplitFloat32", "split_float32", "take_parts"]

_ARITHMETIC = "exact32"


@dataclass(frozen=True, slots=True)
class SplitFloat32:
    """A matrix of float32 and its parts, which products along ``axis`` read instead.

    NOTE: the parts are of the numbers that it held when it was split; both are read, so it must not change.
    """

    source: Any
    parts: Any  # bytes beside it, 4 for each number and 12 for each line; None where products have no use for them
    axis: int  # -1 or -2

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the matrix."""
        return tuple(self.source.shape)


def split_float32(x: Any, *, axis: int) -> SplitFloat32:
    """A matrix of float32, split into parts for products in "exact32" once instead of at each product.

    ``axis`` is the one that products add up: -1 of ``a`` and of a weight of :func:`tilewise.linear`, -2 of ``b``.
    :func:`tilewise.matmul` and :func:`tilewise.linear` take what this gives in place of the matrix; by one plan the
    results have the same bits. It needs as much memory again as the matrix, which has to stay as it is. Where there are
    no such parts, on GPUs before Hopper, for sums of fewer than 64 terms and for host arrays that a GPU multiplies, it
    is multiplied like the matrix alone.

    >>> import numpy as np, tilewise as tw
    >>> x, weight = np.ones((2, 128), "float32"), np.ones((4, 128), "float32")
    >>> tw.linear(x, tw.split_float32(weight, axis=-1))[0, 0]
    np.float32(128.0)
    """
    array = interop.as_array("x", x)
    matrix = interop.view("x", array)
    if matrix.ndim != 2:
        raise ArgumentError("x", "must be a matrix", f"shape {matrix.shape}", "split each matrix by itself")
    if matrix.dtype != "float32":
        raise ArgumentError("x", "must have the type float32", matrix.dtype)
    along = integer("axis", axis, -2, 1)
    along = along - 2 if along >= 0 else along
    return SplitFloat32(array, _make_parts(matrix, along), along)


def _make_parts(matrix: View, along: int) -> Any:
    """The array of the parts, on the device that multiplies; None where they would not be used."""
    common = interop.common({"x": matrix})
    device = resolve(None) if common.space == HOST else gpu.open(common.space[1])
    if common.space == HOST and common.like.library.name == "tilewise":
        device = matrix.owner.device
    copied = common.space == HOST and device.runs_on_gpu
    if copied or device.arch != SPEC.arch or matrix.shape[along] < LEAST_K or 0 in matrix.shape:
        return None
    (rows, columns), (down, across) = matrix.shape, matrix.strides
    source = Operand("x", rows, columns, down, "float32", across, alignment=alignment_of(matrix.ptr))
    steps, size = split_steps(source if along == -1 else source.transposed())
    parts = common.library.empty((size,), "uint8", common.like)
    start_steps(steps, {"x": matrix, "parts": interop.view("parts", parts)}, device, common.streams)
    return common.library.finish(parts, common.like)


def take_parts(
    arrays: dict[str, Any], axes: dict[str, int], arithmetic: str | None
) -> tuple[dict[str, Any], dict[str, View], str | None]:
    """The matrices themselves, views of the parts that some of them bring, by name, and what to multiply in.

    ``axes`` are those that the product adds up.
    """
    split = {name: one for name, one in arrays.items() if isinstance(one, SplitFloat32)}
    if not split:
        return arrays, {}, arithmetic
    for name, one in split.items():
        if one.axis != axes[name]:
            rule = f"must be split with axis={axes[name]}, which this product adds up"
            raise ArgumentError(name, rule, f"axis={one.axis}")
    if arithmetic not in (None, _ARITHMETIC):
        rule = f'must be "{_ARITHMETIC}" or None for what split_float32 gives'
        raise ArgumentError("arithmetic", rule, arithmetic)
    found = {name: one.source if name in split else one for name, one in arrays.items()}
    parts = {name: interop.view(name, one.parts) for name, one in split.items() if one.parts is not None}
    return found, parts, _ARITHMETIC
