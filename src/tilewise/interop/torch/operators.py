"""torch's operators ``tilewise::linear`` and ``tilewise::matmul``: for gradients, torch.compile, torch.func, autocast.

Importing this module registers them. Both are made of ``tilewise::_product``, which has a kernel, a rule for tensors
without elements, one for gradients and one for vmap: what differentiates, compiles or transforms sees that one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch import autograd_function
from torch.utils import flop_counter

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.interop.torch.batching import map_product, product_shape
from tilewise.interop.torch.gradients import (
    RecordedLinear,
    RecordedProduct,
    TransformedProduct,
    differentiate,
    remember,
    start_product,
)
from tilewise.interop.torch.terms import (
    Terms,
    check_activation,
    have_tangents,
    multiply_by_torch,
    needs_dispatcher,
    needs_pre,
    result_dtype,
)

__all__ = ["allow_in_graph", "linear", "matmul", "needs_dispatcher", "refuse"]

_torch: Any = torch  # for what torch leaves without types
_single_level: Any = autograd_function
_flop_counter: Any = flop_counter
_functorch: Any = _torch._C._functorch
_recorded: Any = RecordedProduct
_recorded_linear: Any = RecordedLinear
_transformed: Any = TransformedProduct
_LIBRARY: Any = _torch.library.Library("tilewise", "DEF")
_TERMS = (
    "Tensor? bias=None, Tensor? c=None, Tensor? residual=None, str? activation=None, "
    "float alpha=1.0, float beta=1.0"
)
_LIBRARY.define(f"matmul(Tensor a, Tensor b, {_TERMS}, str? device=None) -> Tensor")
_LIBRARY.define(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, Tensor? residual=None, "
    "str? device=None) -> Tensor"
)
_LIBRARY.define(
    f"_product(Tensor a, Tensor b, {_TERMS}, bool keep=False, str? device=None) -> (Tensor, Tensor)"
)
_TENSOR_OR_NONE = (torch.Tensor, type(None))
_NOT_A_SHAPE = "must broadcast to the result's shape"


# ── shapes and types ─────────────────────────────────────────────────────────────────────────────────────


def _check_tensors(names: Sequence[str], operands: Sequence[Any]) -> None:
    """Refuse arrays of other libraries beside tensors that record gradients."""
    for name, one in zip(names, operands, strict=False):
        if not isinstance(one, _TENSOR_OR_NONE):
            rule = "must be a torch.Tensor where another one requires a gradient or is in a transform"
            raise ArgumentError(name, rule, type(one).__name__, f"use torch.as_tensor({name})")


def _check_terms(terms: Terms, shape: Sequence[int]) -> None:
    """Refuse what does not lie beside ``a`` or does not broadcast to the result."""
    for name, one in zip(Terms._fields[1:], terms.operands[1:], strict=False):
        if one is None:
            continue
        if one.device != terms.a.device:
            rule = f"must lie on the device of the first operand, {terms.a.device}"
            raise ArgumentError(name, rule, str(one.device), f"use {name}.to({str(terms.a.device)!r})")
        if name != "b" and (
            one.ndim > len(shape)
            or any(size not in (1, n) for size, n in zip(one.shape[::-1], shape[::-1], strict=False))
        ):
            raise ArgumentError(name, f"{_NOT_A_SHAPE} {tuple(shape)}", tuple(one.shape))
    check_activation(terms.activation)


def _check_linear(x: torch.Tensor, weight: torch.Tensor) -> None:
    """Refuse what makes no linear layer, by the names of its arguments."""
    if x.is_nested:
        raise ArgumentError("x", "must be one dense tensor", "a nested tensor", "use x.to_padded_tensor(0)")
    if not x.ndim:
        raise ArgumentError("x", "must have at least one dimension", "a scalar")
    if weight.ndim != 2:
        raise ArgumentError("weight", "must have the shape (out, in)", tuple(weight.shape))
    if weight.shape[1] != x.shape[-1]:
        rule = f"must have as many columns as x ({x.shape[-1]})"
        raise ArgumentError("weight", rule, f"shapes {tuple(x.shape)} and {tuple(weight.shape)}")
    if weight.device != x.device:
        rule = f"must lie on the device of x, {x.device}"
        raise ArgumentError("weight", rule, str(weight.device), f"use weight.to({str(x.device)!r})")


# ── tilewise::_product ────────────────────────────────────────────────────────────────────────────────────


def _product(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel: a launch on the device that holds the tensors, or on tilewise's own for those in host memory."""
    terms = Terms(*args)
    with torch.no_grad():  # autograd's part is done, and tw.matmul has none in it
        result, pre = start_product(terms)
    return result, pre if terms.keep else result.new_empty(0)


def _fake_product(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel would give, of tensors without elements."""
    terms = Terms(*args)
    shape = product_shape(terms.a.shape, terms.b.shape)
    _check_terms(terms, shape)
    result = terms.a.new_empty(shape, dtype=result_dtype(terms.a, terms.b))
    return result, result.new_empty(shape if terms.keep else [0])


class _OperatorProduct(torch.autograd.function._SingleLevelFunction):
    """The operator's node in autograd's graph: as of torch.library.register_autograd, but inside of torch.func too.

    NOTE: ``torch.func`` runs the kernel for autograd on the tensors of one level, as it does for torch's own operators.
    ``Function`` takes itself to be outside of that and goes through all levels; its base class does not.
    """

    @staticmethod
    def forward(ctx: Any, keys: Any, *args: Any) -> Any:
        """Go on below autograd. NOTE: that is the next level of torch.func, if there is one, which may record too."""
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            results = torch.ops.tilewise._product.default.redispatch(
                keys & torch._C._after_autograd_keyset, *args
            )
        remember(ctx, ctx.needs_input_grad[1:], Terms(*args), *results)
        return results

    @staticmethod
    def backward(ctx: Any, d_result: Any, d_pre: Any) -> Any:
        """The gradients of the operands; the keys and the other arguments have none."""
        gradients = differentiate(ctx, d_result, d_pre, matmul)
        return (None, *gradients, *(None,) * (len(Terms._fields) - len(gradients)))


_operator_node: Any = _OperatorProduct


def _differentiable_product(keys: Any, *args: Any) -> Any:
    """The kernel for autograd."""
    if _records(Terms(*args).operands):
        if not torch._C._are_functorch_transforms_active():
            return _operator_node.apply(keys, *args)
        with _single_level.enable_single_level_autograd_function():
            return _operator_node.apply(keys, *args)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.tilewise._product.default.redispatch(keys & torch._C._after_autograd_keyset, *args)


def _count_operations(a: Sequence[int], b: Sequence[int], *_: Any, out_shape: Any = None, **__: Any) -> int:
    """How many operations torch's FlopCounterMode counts for a product, by shapes."""
    return 2 * math.prod(product_shape(a, b)) * a[-1]


def _map_batch(info: Any, in_dims: Any, *args: Any) -> Any:
    return map_product(info, in_dims, args, torch.ops.tilewise._product)


# ── tilewise::matmul and tilewise::linear ────────────────────────────────────────────────────────────────


def _records(operands: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd records an operation on these."""
    if torch.is_grad_enabled():
        for one in operands:
            if one is not None and one.requires_grad:
                return True
    return False


def _compose_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    device: str | None = None,
) -> torch.Tensor:
    """``tilewise::matmul`` by ``tilewise::_product``.

    NOTE: where a transform hides that gradients are recorded, ``pre`` is computed again in the backward pass.
    """
    operands = a, b, bias, c, residual
    check_activation(activation)
    keep = needs_pre(activation, residual) and _records(operands)
    terms = Terms(a, b, bias, c, residual, activation, alpha, beta, keep, device)
    if have_tangents(operands):
        return multiply_by_torch(terms)
    result: torch.Tensor = torch.ops.tilewise._product(*terms)[0]
    return result


def _compose_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    device: str | None = None,
) -> torch.Tensor:
    """``tilewise::linear`` by ``tilewise::_product``."""
    _check_linear(x, weight)
    return _compose_matmul(x, weight.mT, bias, None, residual, activation, 1.0, 1.0, device)


def _cast_for(device: str, operator: Any) -> Any:
    """The operator as autocast has it: both factors in autocast's type; what is added is added in float32 anyway."""

    def call(a: torch.Tensor, b: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        dtype = torch.get_autocast_dtype(device)
        a, b = (
            one.to(dtype) if one.is_floating_point() and one.dtype != torch.float64 else one for one in (a, b)
        )
        with torch.autocast(device, enabled=False):
            result: torch.Tensor = operator(a, b, *args, **kwargs)
        return result

    return call


def _register() -> None:
    """Give the operators their kernels and rules."""
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl("_product", _product, key)
    torch.library.register_fake("tilewise::_product", _fake_product, lib=_LIBRARY)
    _LIBRARY.impl("_product", _differentiable_product, "Autograd", with_keyset=True)
    torch.library.register_vmap("tilewise::_product", _map_batch, lib=_LIBRARY)
    _flop_counter.register_flop_formula(torch.ops.tilewise._product)(_count_operations)
    for name, compose in (("matmul", _compose_matmul), ("linear", _compose_linear)):
        _LIBRARY.impl(name, compose, "CompositeImplicitAutograd")
        _LIBRARY.impl(name, compose, "FuncTorchBatchedDecomposition")
        for device in ("cpu", "cuda"):
            call = _cast_for(device, getattr(torch.ops.tilewise, name).default)
            _LIBRARY.impl(name, call, f"Autocast{device.upper()}")


_register()


# ── the routes of a call ─────────────────────────────────────────────────────────────────────────────────


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    c: torch.Tensor | None = None,
    arithmetic: str | None = None,
    device: Any = None,
) -> torch.Tensor:
    """:func:`tilewise.matmul` of tensors by the cheapest way that records gradients where they are wanted."""
    refuse(arithmetic=arithmetic)
    _check_tensors(Terms._fields, (a, b, bias, c, residual))
    factor = 1.0 if beta is None else beta
    return _multiply(a, b, bias, c if factor else None, residual, activation, alpha, factor, device)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    arithmetic: str | None = None,
    device: Any = None,
) -> torch.Tensor:
    """:func:`tilewise.linear` of tensors, by the cheapest way that records gradients where they are wanted."""
    refuse(arithmetic=arithmetic)
    _check_tensors(("x", "weight", "bias", "residual"), (x, weight, bias, residual))
    _check_linear(x, weight)
    operands = x, weight, bias, None, residual
    if (
        _records(operands)
        and not torch._C._are_functorch_transforms_active()
        and not needs_dispatcher(operands)
        and not have_tangents(operands)
    ):
        check_activation(activation)
        keep = needs_pre(activation, residual)
        terms = (*map(_unwrap, operands), activation, 1.0, 1.0, keep, device)
        made = _recorded_linear.apply(*terms)
        result: torch.Tensor = made[0] if keep else made
        return result
    return _multiply(x, weight.mT, bias, None, residual, activation, 1.0, 1.0, device)


def refuse(**given: Any) -> None:
    """Refuse arguments that a product has no use for where gradients are recorded or a transform runs."""
    for name, value in given.items():
        if value is not None:
            rule = "must be None where gradients are recorded, in torch.func and for fake tensors"
            fix = "use torch.no_grad() or .detach()"
            if name == "epilogue":
                fix += ", or bias=, activation= and the like"
            elif name == "split_float32":
                fix += ", or give the matrix itself"
            elif "scale" in name:
                fix += ", or multiply by what Quantized.dequantize() gives"
            raise ArgumentError(name, rule, fix=fix)


def _multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
    alpha: float,
    beta: float,
    device: Any,
) -> torch.Tensor:
    """The product, by the cheapest of three routes: the operator, autograd's Function, a launch."""
    a, b, bias, c, residual = operands = tuple(map(_unwrap, (a, b, bias, c, residual)))
    check_activation(activation)
    if have_tangents(operands):
        terms = Terms(a, b, bias, c, residual, activation, alpha, beta)
        _check_terms(terms, product_shape(a.shape, b.shape))
        return multiply_by_torch(terms)
    if needs_dispatcher(operands):
        name = device if device is None or isinstance(device, str) else device.name
        return _compose_matmul(a, b, bias, c, residual, activation, alpha, beta, name)
    records = _records(operands)
    keep = records and needs_pre(activation, residual)
    terms = Terms(a, b, bias, c, residual, activation, alpha, beta, keep, device)
    if torch._C._are_functorch_transforms_active():
        _check_terms(terms, product_shape(a.shape, b.shape))
        made = _transformed.apply(*terms)
    elif records:
        made = _recorded.apply(*terms)
    else:
        return start_product(terms)[0]
    result: torch.Tensor = made[0] if keep else made
    return result


def _unwrap(operand: torch.Tensor | None) -> Any:
    """The tensor in what a transform that has ended left around it."""
    return operand if operand is None else _functorch.unwrap_if_dead(operand)


# ── torch.compile ────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def allow_in_graph() -> None:
    """Have torch.compile trace tw.matmul and tw.linear as operators, where its graph would break else.

    ``Linear`` and what ``patch`` made do without. With ``out``, ``plan``, ``copy`` and ``epilogue`` it breaks still.
    """

    def _launch(function: Any) -> Any:
        return _torch.compiler.disable(lambda *args, **given: function(*args, **given))

    launch_matmul, launch_linear = _launch(tw.matmul), _launch(tw.linear)

    def trace_matmul(
        a: Any, b: Any, out: Any = None, *, beta: float | None = None, c: Any = None, **given: Any
    ) -> Any:
        if out is not None or any(given.get(name) is not None for name in ("epilogue", "plan", "copy")):
            return launch_matmul(a, b, out, beta=beta, c=c, **given)
        named = {name: given[name] for name in given if name not in ("epilogue", "plan", "copy")}
        factor = 1.0 if beta is None else beta
        return torch.ops.tilewise.matmul(a, b, c=c if factor else None, beta=factor, **named)

    def trace_linear(x: Any, weight: Any, bias: Any = None, **given: Any) -> Any:
        if any(given.get(name) is not None for name in ("out", "plan", "copy")):
            return launch_linear(x, weight, bias, **given)
        named = {name: given[name] for name in given if name not in ("out", "plan", "copy")}
        return torch.ops.tilewise.linear(x, weight, bias, **named)

    _torch.compiler.substitute_in_graph(tw.matmul, skip_signature_check=True)(trace_matmul)
    _torch.compiler.substitute_in_graph(tw.linear, skip_signature_check=True)(trace_linear)
