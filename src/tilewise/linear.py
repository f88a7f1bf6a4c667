"""tw.linear: x · weightᵀ + bias, with weights as torch's linear layers keep them.

NOTE: this module has the name of its function, which is what the package shows under that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilewise import interop
from tilewise.calls import Arrays, BoundProduct, Choice
from tilewise.devices import Device
from tilewise.epilogue import express, view_arrays
from tilewise.errors import ArgumentError, rename_arguments
from tilewise.interop import View
from tilewise.matmul import multiply_scaled, multiply_views
from tilewise.plan import Plan
from tilewise.quantize import scale_sums, shape_of, unwrap
from tilewise.split_float32 import take_parts
from tilewise.warm_calls import WarmCalls, can_compile, describe_extras

__all__ = ["linear", "linear_in_python"]

ArrayT = TypeVar("ArrayT")
_ADDED_UP = {"x": -1, "weight": -1}  # axes
_NAMES = {"a": "x", "b": "weight"}  # of a product's operands


def linear(
    x: ArrayT,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    out: Any = None,
    arithmetic: str | None = None,
    device: Device | str | None = None,
    plan: Plan | None = None,
    copy: bool | None = None,
) -> ArrayT:
    """A linear layer: activation(x · weightᵀ + bias) + residual, in one launch and rounded once.

    ``x`` has shape (…, in), ``weight`` (out, in), ``bias`` (out,); the result has shape (…, out). ``x`` and ``weight``
    may be what :func:`tilewise.quantize` gives: both, or the weight alone beside ``x`` in 16 bits; or, of float32, what
    :func:`tilewise.split_float32` gives. The other arguments are those of :func:`tilewise.matmul`.

    >>> import numpy as np, tilewise as tw
    >>> x, weight, bias = np.ones((2, 3), "float32"), np.ones((4, 3), "float32"), np.full(4, -5, "float32")
    >>> tw.linear(x, weight, bias, activation="relu").max()
    np.float32(0.0)
    """
    if plan is not None and not isinstance(plan, Plan):
        raise ArgumentError("plan", "must be a Plan", type(plan).__name__, "tw.plan(m, n, k) makes one")
    found, parts, arithmetic = take_parts({"x": x, "weight": weight}, _ADDED_UP, arithmetic)
    (x, of_x), (weight, of_weight) = (unwrap(name, one, None) for name, one in found.items())
    scaled = of_x is not None or of_weight is not None
    if scaled and _is_tensor("x", x) and _is_tensor("weight", weight):
        product: ArrayT = _multiply_tensors(
            (x, of_x), (weight, of_weight), bias, residual, activation,
            out=out, arithmetic=arithmetic, device=device, plan=plan, copy=copy,
        )  # fmt: skip
        return product
    operators = interop.operators_for(x, weight, bias, residual)
    if operators is not None:
        scales = {"x.scale": of_x, "weight.scale": of_weight}
        operators.refuse(out=out, plan=plan, copy=copy, split_float32=parts or None, **scales)
        more = {"activation": activation, "residual": residual, "arithmetic": arithmetic, "device": device}
        with rename_arguments(_NAMES):
            recorded: ArrayT = operators.linear(x, weight, bias, **more)
        return recorded
    left = interop.view("x", interop.as_array("x", x))
    weights = interop.view("weight", interop.as_array("weight", weight))
    _check_shapes(left, weights)
    left = left._replace(parts=parts.get("x"))
    right = weights._replace(
        shape=weights.shape[::-1], strides=weights.strides[::-1], parts=parts.get("weight")
    )
    call = express(bias, activation, residual, 1.0, None, None)
    if scaled:
        turned = None if of_weight is None else _turned(of_weight)
        shapes = {"scale_a": left.shape, "scale_b": right.shape}
        call = scale_sums(call, {"scale_a": of_x, "scale_b": turned}, shapes)
    choice = Choice(plan=plan, copy=copy, arithmetic=arithmetic)
    offer = None if scaled or parts else _offer_to_warm_calls(weights, activation, arithmetic)
    with rename_arguments(_NAMES):
        result: ArrayT = multiply_views(left, right, out, device, choice, view_arrays(call), offer)
    return result


def _multiply_tensors(
    of_x: tuple[Any, Any],
    of_weight: tuple[Any, Any],
    bias: Any,
    residual: Any,
    activation: str | None,
    **given: Any,
) -> Any:
    """Tensors with scales: in the end by compiled code, which knows matrices of PyTorch, and scales as an epilogue."""
    (x, scale), (weight, weight_scale) = of_x, of_weight
    _check_shapes(x, weight)
    call = scale_sums(
        express(bias, activation, residual, 1.0, None, None),
        {"scale_a": scale, "scale_b": None if weight_scale is None else weight_scale.T},
        {"scale_a": shape_of("x", x), "scale_b": shape_of("weight", weight)[::-1]},
    )
    scales, tensors = {"x.scale": scale, "weight.scale": weight_scale}, (x, weight, bias, residual)
    try:
        return multiply_scaled(x, weight.T, call, scales, tensors, **given)
    except ArgumentError:
        if interop.operators_for(*tensors) is None:
            interop.view("x", x), interop.view("weight", weight)  # whose error has these names
        raise


def _offer_to_warm_calls(
    weights: View, activation: str | None, arithmetic: str | None
) -> Callable[[BoundProduct, Arrays, bool, Device], None]:
    """What remembers a product for calls with arrays alike."""

    def offer(made: BoundProduct, arrays: Arrays, has_out: bool, where: Device) -> None:
        if _warm is not None:
            given = arrays.a, weights, arrays.out  # the record is of the arrays that a call gives
            extras = describe_extras(arrays.fused, activation, arithmetic=arithmetic)
            _warm.offer(made, given, has_out, where, extras)

    return offer


def _is_tensor(argument: str, array: Any) -> bool:
    """Whether it is PyTorch's."""
    return interop.library_of(argument, interop.as_array(argument, array)).name == "torch"


def _check_shapes(x: Any, weight: Any) -> None:
    """Refuse a scalar, a weight that is no matrix, and sizes that differ along K; of arrays, or of their views."""
    if not x.shape:
        raise ArgumentError("x", "must have at least one dimension", "a scalar")
    if len(weight.shape) != 2:
        raise ArgumentError("weight", "must have the shape (out, in)", tuple(weight.shape))
    if weight.shape[1] != x.shape[-1]:
        rule = f"must have as many columns as x ({x.shape[-1]})"
        raise ArgumentError("weight", rule, f"shapes {tuple(x.shape)} and {tuple(weight.shape)}")


def _turned(scale: Any) -> View:
    """The scale of a weight as that of its transpose."""
    found = interop.view("weight.scale", scale)
    return found._replace(shape=found.shape[::-1], strides=found.strides[::-1])


# ── the compiled call ────────────────────────────────────────────────────────────────────────────────────

linear_in_python = linear  # the whole of it, without the short way
_uncompiled = interop.keep_out_of_dynamo(linear)
_SIGNATURE = (
    "linear($module, x, weight, bias=None, *, activation=None, residual=None, out=None, arithmetic=None, "
    "device=None, plan=None, copy=None)\n--\n\n"
)
_warm = WarmCalls("linear", _SIGNATURE + (linear.__doc__ or ""), _uncompiled) if can_compile() else None
globals()["linear"] = _uncompiled if _warm is None else _warm.function
