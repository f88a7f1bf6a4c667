"""``matmul`` and ``linear`` of JAX: for jax.jit, jax.grad and other derivatives, jax.vmap, and what is made of them.

``tw.matmul`` and ``tw.linear`` come here by themselves where an array is a tracer.
"""

from __future__ import annotations

import numbers
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.expression import ACTIVATIONS
from tilewise.interop.dtypes import element_type, result_type
from tilewise.interop.jax.primitive import bind_product, product_shape
from tilewise.interop.jax.product_attributes import ADDED, ProductAttributes
from tilewise.interop.numpy import as_array
from tilewise.problem import (
    COMPLEX,
    INTEGERS,
    can_multiply,
    finished_type,
    multiplied_type,
    resolve_arithmetic,
    result_of,
    sum_type,
)

__all__ = ["linear", "matmul", "refuse"]

_jax: Any = jax
_WIDE = ("float64", "int64", "complex128")  # what JAX has only where it was asked for


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    arithmetic: str | None = None,
    device: str | None = None,
) -> Any:
    """:func:`tilewise.matmul` of JAX's arrays and tracers: activation(alpha·A·B + beta·c + bias) + residual.

    ``a``, ``b``, ``bias``, ``c`` and ``residual`` have derivatives of any order, forwards and backwards. The other
    arguments are fixed when a function is traced. ``device`` is where arrays in host memory are multiplied.

    >>> import jax
    >>> from tilewise.interop.jax import matmul
    >>> jax.jit(matmul)(jax.numpy.ones((2, 3)), jax.numpy.ones((3, 4))).shape
    (2, 4)
    """
    a, b = _as_matrix("a", a), _as_matrix("b", b)
    row, column = a.ndim == 1, b.ndim == 1
    a = a[None] if row else a
    b = b[:, None] if column else b
    if a.shape[-1] != b.shape[-2]:
        rule = f"must have as many rows as a has columns ({a.shape[-1]})"
        shapes = f"shapes {a.shape[row:]} and {b.shape[: b.ndim - column]}"
        raise ArgumentError("b", rule, shapes)
    added = {"c": None if beta == 0 else c, "bias": bias, "residual": residual}
    if c is None and beta:
        raise ArgumentError("c", "must be given with beta", fix="c is the matrix that beta multiplies")
    fixed = ProductAttributes(
        alpha=_check_factor("alpha", alpha),
        beta=1.0 if beta is None else _check_factor("beta", beta),
        activation=activation,
        arithmetic=arithmetic,
        device=device,
    )
    return _multiply(a, b, added, fixed, ("a", "b"), row, column)


def linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    arithmetic: str | None = None,
    device: str | None = None,
) -> Any:
    """:func:`tilewise.linear` of JAX's arrays and tracers: activation(x · weightᵀ + bias) + residual.

    The weight is multiplied as it lies, without a copy of its transpose. Otherwise as :func:`matmul`.
    """
    x, weight = _as_matrix("x", x), _as_matrix("weight", weight)
    if weight.ndim != 2:
        raise ArgumentError("weight", "must have the shape (out, in)", weight.shape)
    if weight.shape[1] != x.shape[-1]:
        rule = f"must have as many columns as x ({x.shape[-1]})"
        raise ArgumentError("weight", rule, f"shapes {x.shape} and {weight.shape}")
    row = x.ndim == 1
    added = {"c": None, "bias": bias, "residual": residual}
    fixed = ProductAttributes(transpose_b=True, activation=activation, arithmetic=arithmetic, device=device)
    return _multiply(x[None] if row else x, weight, added, fixed, ("x", "weight"), row, False)


def refuse(**given: Any) -> None:
    """Refuse arguments that a product in compiled code has no use for."""
    fixes = {
        "out": "take the result: JAX arrays never change",
        "epilogue": "use bias=, activation= and the like",
        "plan": "leave it out, or call tw.matmul outside of jax.jit, jax.grad and jax.vmap",
        "copy": "leave it out, or call tw.matmul outside of jax.jit, jax.grad and jax.vmap",
        "split_float32": "give the matrix itself",
    }
    for name, value in given.items():
        if value is not None:
            rule = "must be None inside of jax.jit, jax.grad, jax.vmap and the like"
            fix = fixes.get(name, "multiply by what Quantized.dequantize() gives")
            raise ArgumentError(name, rule, fix=fix)


# ── what both do ─────────────────────────────────────────────────────────────────────────────────────────


def _multiply(
    a: Any,
    b: Any,
    added: dict[str, Any],
    fixed: ProductAttributes,
    names: tuple[str, str],
    row: bool,
    column: bool,
) -> Any:
    """A product of matrices, where ``row`` and ``column`` say which axis of the result was put in for one."""
    _check_fixed(fixed)
    given = {name: _as_jax_array(name, added[name]) for name in ADDED if added[name] is not None}
    attributes = fixed._replace(arrays=tuple(given))
    a, b = _in_one_type(a, b, names)
    multiplied = multiplied_type(str(a.dtype), str(b.dtype))
    resolve_arithmetic(attributes.arithmetic, multiplied)
    try:
        shape = product_shape(a.shape, b.shape, attributes)
    except ValueError:
        shapes = f"shapes {a.shape} and {b.shape}"
        raise ArgumentError(" and ".join(names), "must have stacks that broadcast", shapes) from None
    _check_result_type(result_of(multiplied, attributes.changes_sums))
    shown = shape[: len(shape) - 2] + shape[len(shape) - 2 + row : len(shape) - column]
    if attributes.changes_sums:
        sums = _epilogue_type(multiplied, attributes)
        for name, array in given.items():
            given[name] = _fit_added(name, array, shown, sums, row, column)
            if sums in COMPLEX:  # kernels read an element for each column
                given[name] = jnp.broadcast_to(given[name], (*given[name].shape[:-1], shape[-1]))
    (result,) = bind_product(a, b, *given.values(), attributes=attributes)
    return result.reshape(shown)


def _as_matrix(argument: str, value: Any) -> Any:
    """A matrix of numbers, of JAX or NumPy, as JAX has it."""
    found = _as_jax_array(argument, value)
    if not found.ndim:
        raise ArgumentError(argument, "must have at least one dimension", "a scalar", "use * for scalars")
    return found


def _as_jax_array(argument: str, value: Any) -> Any:
    if not isinstance(value, _jax.Array):
        value = as_array(argument, value)
        if not isinstance(value, np.ndarray):
            rule = "must be an array of JAX or NumPy where another one is a tracer"
            raise ArgumentError(argument, rule, type(value).__name__, f"use jax.numpy.asarray({argument})")
        element_type(argument, value.dtype)
        return jnp.asarray(value)
    if not isinstance(value.dtype, np.dtype):
        raise ArgumentError(argument, "must have numbers as elements", str(value.dtype))
    return value


def _in_one_type(a: Any, b: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Both in the type that they are multiplied in; 8 bits beside 16 are widened by the launch."""
    left, right = (element_type(name, one.dtype) for name, one in zip(names, (a, b), strict=True))
    if left != right and can_multiply(left, right):
        return a, b
    dtype = result_type(left, right, exact=True, arguments=names)
    _check_result_type(dtype)
    return a.astype(dtype), b.astype(dtype)


def _check_result_type(dtype: str) -> None:
    if dtype in _WIDE and not _jax.config.jax_enable_x64:
        fix = "jax.config.update('jax_enable_x64', True), or use narrower operands"
        raise ArgumentError("the result", f"would be {dtype}, which JAX has turned off", fix=fix)


def _epilogue_type(multiplied: str, attributes: ProductAttributes) -> str:
    """The type that something is done to the sums in."""
    if multiplied in COMPLEX:
        if attributes.activation is not None:
            fix = "do it to the result"
            raise ArgumentError("activation", "must be None for complex numbers", attributes.activation, fix)
        return multiplied
    if multiplied in INTEGERS and multiplied != "int8":
        which = next(iter(attributes.arrays), "activation" if attributes.activation else "alpha")
        raise ArgumentError(which, f"must be left out for {multiplied}", fix="do it to the result")
    return finished_type(sum_type(multiplied))


def _fit_added(name: str, array: Any, shape: tuple[int, ...], sums: str, row: bool, column: bool) -> Any:
    """What is added, as an array that broadcasts to a result of matrices, in a type that kernels read beside sums."""
    behind = shape[max(len(shape) - array.ndim, 0) :]
    if array.ndim > len(shape) or any(
        size not in (1, wanted) for size, wanted in zip(array.shape, behind, strict=True)
    ):
        raise ArgumentError(name, f"must broadcast to the result's shape {shape}", array.shape)
    dtype = element_type(name, array.dtype)
    if result_type(sums, dtype, arguments=("a", name)) != sums:
        rule = f"must have a type that {sums} holds"
        raise ArgumentError(name, rule, dtype, f"convert it: {name}.astype({sums!r})")
    halves = sums == "float32" and dtype in ("float16", "bfloat16")
    if not halves and (sums, dtype) != ("float64", "float32"):
        array = array.astype(sums)
    if array.ndim and row:
        array = jnp.expand_dims(array, -2)
    return jnp.expand_dims(array, -1) if array.ndim and column else array


def _check_fixed(fixed: ProductAttributes) -> None:
    if fixed.activation is not None and fixed.activation not in ACTIVATIONS:
        raise UnknownNameError("activation", fixed.activation, ACTIVATIONS)
    if fixed.device is not None and not isinstance(fixed.device, str):
        rule = "must be 'gpu', 'gpu:N', 'emulator' or None inside of jax.jit and the like"
        raise ArgumentError("device", rule, type(fixed.device).__name__)


def _check_factor(argument: str, value: Any) -> float:
    """A factor, which is part of the launch. NOTE: so it cannot be a tracer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        fix = (
            f"multiply {'an operand' if argument == 'alpha' else 'c'} by it"
            if hasattr(value, "dtype")
            else ""
        )
        raise ArgumentError(argument, "must be a number", type(value).__name__, fix)
    return float(value)
