"""tw.linear: x · weightᵀ + bias, with weights as torch's linear layers keep them."""

from __future__ import annotations

from typing import Any, TypeVar

from tilewise import interop
from tilewise.calls import Choice
from tilewise.devices import Device
from tilewise.epilogue import express, view_arrays
from tilewise.errors import ArgumentError
from tilewise.matmul import multiply_views
from tilewise.plan import Plan

__all__ = ["linear"]

ArrayT = TypeVar("ArrayT")


def linear(
    x: ArrayT,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    out: Any = None,
    device: Device | str | None = None,
    plan: Plan | None = None,
    copy: bool | None = None,
) -> ArrayT:
    """A linear layer: activation(x · weightᵀ + bias) + residual, in one launch and rounded once.

    ``x`` has shape (…, in), ``weight`` (out, in), ``bias`` (out,); the result has shape (…, out). The other arguments
    are those of :func:`tilewise.matmul`.

    >>> import numpy as np, tilewise as tw
    >>> x, weight, bias = np.ones((2, 3), "float32"), np.ones((4, 3), "float32"), np.full(4, -5, "float32")
    >>> tw.linear(x, weight, bias, activation="relu").max()
    np.float32(0.0)
    """
    if plan is not None and not isinstance(plan, Plan):
        raise ArgumentError("plan", "must be a Plan", type(plan).__name__, "tw.plan(m, n, k) makes one")
    left = interop.view("x", interop.as_array("x", x))
    weights = interop.view("weight", interop.as_array("weight", weight))
    if not left.shape:
        raise ArgumentError("x", "must have at least one dimension", "a scalar")
    if len(weights.shape) != 2:
        raise ArgumentError("weight", "must have the shape (out, in)", weights.shape)
    if weights.shape[1] != left.shape[-1]:
        rule = f"must have as many columns as x ({left.shape[-1]})"
        raise ArgumentError("weight", rule, f"shapes {left.shape} and {weights.shape}")
    right = weights._replace(shape=weights.shape[::-1], strides=weights.strides[::-1])
    fused = view_arrays(express(bias, activation, residual, 1.0, None, None))
    result: ArrayT = multiply_views(left, right, out, device, Choice(plan=plan, copy=copy), fused)
    return result
