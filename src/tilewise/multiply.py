"""tw.matmul: the front door. Arrays in, array out.

NOTE: a module named as the function would take its place in the package once it is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.devices import device as resolve
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernels import Rung, ladder

__all__ = ["matmul"]

_TYPES = ("float32", "float64", "float16")
_LARGE = 128 * 128 * 128  # multiply-adds from which the larger tiles are worth their compilation
_DEEP = 16  # k so many times the larger of m and n: then slices of k share the work


def matmul(a: Any, b: Any, *, out: Any = None, device: Device | str | None = None) -> Any:
    """Multiply matrices: C[m, n] = A[m, k] · B[k, n].

    ``a`` and ``b`` are NumPy arrays or device arrays of float32, float64 or float16, of any sizes and
    strides; float16 is summed in float32. One-dimensional operands and stacks of matrices work as in
    ``numpy.matmul``. ``out`` is written if given, and returned. ``device`` is where to multiply: a GPU if
    there is one, else the emulator.

    >>> import numpy as np, tilewise as tw
    >>> tw.matmul(np.ones((2, 3), "float32"), np.ones((3, 4), "float32"))[0, 0]
    np.float32(3.0)
    """
    for argument, operand in (("a", a), ("b", b)):
        _check(argument, operand)
    if str(a.dtype) != str(b.dtype):
        rule = f"must have the type of a, {a.dtype}"
        raise ArgumentError("b", rule, str(b.dtype), "convert one with .astype")
    if len(a.shape) == len(b.shape) == 2:
        return _multiply(a, b, out, device)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        rule = "must have two dimensions on a device"
        raise ArgumentError("a and b", rule, f"{len(a.shape)} and {len(b.shape)}")
    return _stacked(a, b, out, device)


def _check(argument: str, operand: Any) -> None:
    if not isinstance(operand, np.ndarray | Array):
        raise ArgumentError(
            argument, "must be a NumPy array or a device array", type(operand).__name__, "use numpy.asarray"
        )
    if str(operand.dtype) not in _TYPES:
        rule = f"must have elements of type {', '.join(_TYPES)}"
        raise ArgumentError(argument, rule, str(operand.dtype), "convert with .astype")
    if not operand.shape:
        raise ArgumentError(argument, "must have at least one dimension", "a scalar")


def _multiply(a: Any, b: Any, out: Any, device: Device | str | None) -> Any:
    if a.shape[1] != b.shape[0]:
        raise _mismatch(a.shape[1], a, b)
    target = device if isinstance(device, Device) else _target(a, b, device)
    rung, settings = choose(int(a.shape[0]), int(b.shape[1]), int(a.shape[1]), str(a.dtype), target)
    return rung(a, b, out=out, device=target, **settings)


def _mismatch(k: int, a: Any, b: Any) -> ArgumentError:
    rule = f"must have as many rows as a has columns ({k})"
    return ArgumentError("b", rule, f"shapes {tuple(a.shape)} and {tuple(b.shape)}")


def _target(a: Any, b: Any, device: str | None) -> Device:
    if device is None:
        for operand in (a, b):
            if isinstance(operand, Array):
                return operand.device
    return resolve(device)


def choose(m: int, n: int, k: int, dtype: str, device: Device) -> tuple[Rung, dict[str, str]]:
    """The best rung for a problem on a device, and its settings."""
    if dtype == "float16" and device.name != "emulator" and m * n * k >= _LARGE:
        return ladder["10_turing_tensor_core"], {"result": "float16"}
    if dtype != "float32" or m * n * k < _LARGE:
        return ladder["04_tiled"], {}
    if k >= _DEEP * max(m, n):
        return ladder["11_parallel_k"], {}
    newer = arch_capability(device.arch) >= ladder["09_warp_tiled"].least
    if newer and device.name != "emulator" and min(m, n) >= 512:
        return ladder["09_warp_tiled"], {}
    return ladder["08_register_tiled"], {}


def _stacked(a: npt.NDArray[Any], b: npt.NDArray[Any], out: Any, device: Device | str | None) -> Any:
    """One-dimensional operands and stacks, as ``numpy.matmul`` has them."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise _mismatch(left.shape[-1], a, b)
    try:
        stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        shapes = f"shapes {a.shape} and {b.shape}"
        raise ArgumentError("a and b", "must have stacks that broadcast", shapes) from None
    left = np.broadcast_to(left, (*stack, *left.shape[-2:]))
    right = np.broadcast_to(right, (*stack, *right.shape[-2:]))
    whole = np.empty((*stack, left.shape[-2], right.shape[-1]), a.dtype)
    result = whole[..., 0, :] if a.ndim == 1 else whole
    result = result[..., 0] if b.ndim == 1 else result
    if out is not None:
        _check_out(out, result)
    for index in np.ndindex(*stack):
        whole[index] = _multiply(left[index], right[index], None, device)
    if out is None:
        return result[()]  # a scalar where no dimension is left
    np.copyto(out, result)
    return out


def _check_out(out: Any, result: npt.NDArray[Any]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        rule = f"must be a NumPy array of shape {result.shape} and type {result.dtype}"
        got = f"{out.shape} of {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ArgumentError("out", rule, got)
    if not out.flags.writeable:
        raise ArgumentError("out", "must be writable", "a read-only array")
