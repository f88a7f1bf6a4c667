"""Gradients of fused products: dA = dP · Bᴴ and dB = Aᴴ · dP by our kernels, with dP = dY · activation'(pre).

Each lies as its operand does: autograd would copy the gradient of a weight that lies another way.

``pre``, what the activation was given, is stored by the launch of the forward pass where the result alone does not say
it. dP is an operand of both products and the result of neither, so torch's own derivatives of activations make it, in
one pass over dY.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

import tilewise as tw
from tilewise.interop.torch.batching import map_product, product_shape
from tilewise.interop.torch.terms import OPERANDS, Terms, needs_pre, result_dtype

__all__ = [
    "RecordedProduct",
    "TransformedProduct",
    "differentiate",
    "needs_dispatcher",
    "remember",
    "start_product",
]

Multiply = Callable[..., torch.Tensor]
Gradients = tuple[torch.Tensor | None, ...]


# ── forward ──────────────────────────────────────────────────────────────────────────────────────────────


def start_product(terms: Terms) -> tuple[torch.Tensor, torch.Tensor]:
    """The product of tensors in memory, and ``pre``, the result again if it is not kept."""
    a, b, bias, c, residual, activation, alpha, beta, keep, device = terms
    # NOTE: compiled code takes no device, not even None.
    more: dict[str, Any] = {} if device is None else {"device": device}
    if not keep:
        if c is not None:
            more |= {"c": c, "beta": beta}
        result = tw.matmul(a, b, bias=bias, activation=activation, residual=residual, alpha=alpha, **more)
        return result, result
    pre = torch.empty(product_shape(a.shape, b.shape), dtype=result_dtype(a, b), device=a.device)
    given: dict[str, Any] = {"pre": pre}
    text = "acc"
    if alpha != 1:
        text, given["alpha"] = "alpha * acc", alpha
    if c is not None:
        text, given["beta"], given["c"] = f"{text} + beta * c", beta, c
    if bias is not None:
        text, given["bias"] = f"{text} + bias", bias
    text = f"{activation}(keep(pre, {text}))"
    if residual is not None:
        text, given["residual"] = f"{text} + residual", residual
    return tw.matmul(a, b, epilogue=tw.epilogue(text, **given), **more), pre


# ── backward ─────────────────────────────────────────────────────────────────────────────────────────────


def remember(
    ctx: Any, needs: tuple[bool, ...], terms: Terms, result: torch.Tensor, pre: torch.Tensor
) -> None:
    """Save for :func:`differentiate` what it needs of a forward pass, and nothing more.

    ``needs`` says which operands need a gradient.
    NOTE: the dispatcher leaves out arguments at the end that have their defaults.
    """
    ctx.needs = needs = (*needs, *(False,) * OPERANDS)[:OPERANDS]
    need_a, need_b, *others = needs
    ctx.terms = Terms(None, None, None, None, None, *terms[OPERANDS:])  # type: ignore[arg-type]
    ctx.likes = tuple(None if one is None else (one.shape, one.dtype) for one in terms.operands)
    ctx.turned = _lies_in_columns(terms.a), _lies_in_columns(terms.b)
    ctx.set_materialize_grads(False)
    derived = terms.activation is not None and (need_a or need_b or any(others[:2]))
    ctx.from_result = derived and not needs_pre(terms.activation, terms.residual)
    ctx.recomputes = derived and not ctx.from_result and not terms.keep
    ctx.save_for_backward(
        terms.a if need_b or ctx.recomputes else None,
        terms.b if need_a or ctx.recomputes else None,
        terms.bias if ctx.recomputes else None,
        terms.c if ctx.recomputes else None,
        result if ctx.from_result else pre if derived and not ctx.recomputes else None,
    )


def differentiate(
    ctx: Any, d_result: torch.Tensor | None, d_pre: torch.Tensor | None, multiply: Multiply
) -> Gradients:
    """The gradients of the operands, None for one that needs none. ``multiply`` is a product that has gradients."""
    a, b, bias, c, saved = ctx.saved_tensors
    terms = ctx.terms
    needs = ctx.needs
    d_residual = d_result if needs[4] else None
    if d_result is not None and terms.activation is not None and any(needs[:4]):
        if ctx.recomputes:
            more = {} if c is None else {"c": c, "beta": terms.beta}
            saved = multiply(a, b, bias=bias, alpha=terms.alpha, **more)
        d_result = _through_activation(terms.activation, d_result, saved, ctx.from_result)
    if d_pre is not None:  # of a second derivative, which goes through what was kept
        d_result = d_pre if d_result is None else d_result + d_pre
    d_a, d_b = (None, None)
    if d_result is not None:
        d_a, d_b = _of_factors(ctx, a, b, d_result, multiply)
    d_c = d_result * terms.beta if needs[3] and d_result is not None and terms.beta != 1 else d_result
    every = (d_a, d_b, d_result, d_c, d_residual)
    return tuple(
        _sum_to(one, *like) if need and one is not None and like is not None else None
        for one, like, need in zip(every, ctx.likes, needs, strict=True)
    )


def _through_activation(
    name: str, gradient: torch.Tensor, saved: torch.Tensor, from_result: bool
) -> torch.Tensor:
    """dY · activation'(pre), of pre or of the activation's own value."""
    aten = torch.ops.aten
    result: torch.Tensor
    if name == "relu":
        result = aten.threshold_backward(gradient, saved, 0)
    elif name == "tanh":
        result = aten.tanh_backward(gradient, saved if from_result else saved.tanh())
    elif name == "sigmoid":
        result = aten.sigmoid_backward(gradient, saved if from_result else saved.sigmoid())
    elif name == "silu" and torch.is_grad_enabled():  # torch's own has no derivative
        share = saved.sigmoid()
        result = gradient * share * (1 + saved * (1 - share))
    elif name == "silu":
        result = aten.silu_backward(gradient, saved)
    else:
        result = aten.gelu_backward(gradient, saved, approximate="none" if name == "gelu" else "tanh")
    return result


def _of_factors(
    ctx: Any, a: torch.Tensor | None, b: torch.Tensor | None, gradient: torch.Tensor, multiply: Multiply
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of both matrices, of stacks where they were broadcast; one-dimensional ones are as matrices."""
    (a_shape, _), (b_shape, _) = ctx.likes[:2]
    if len(a_shape) == 1:
        gradient = gradient.unsqueeze(-1 if len(b_shape) == 1 else -2)
        a = a if a is None else a.unsqueeze(0)
    if len(b_shape) == 1:
        gradient = gradient.unsqueeze(-1)
        b = b if b is None else b.unsqueeze(1)
    a_turned, b_turned = ctx.turned
    alpha = ctx.terms.alpha
    d_a = d_b = None
    if ctx.needs[0] and b is not None:
        d_a = _multiply_lying(gradient, _adjoint(b), alpha, a_turned, multiply)
        d_a = d_a.squeeze(-2) if len(a_shape) == 1 else d_a
    if ctx.needs[1] and a is not None:
        if len(b_shape) <= 2 and a.ndim > 2:  # one product over all rows of the stack
            a, gradient = a.flatten(0, -2), gradient.flatten(0, -2)
        d_b = _multiply_lying(_adjoint(a), gradient, alpha, b_turned, multiply)
        d_b = d_b.squeeze(-1) if len(b_shape) == 1 else d_b
    return d_a, d_b


def _multiply_lying(
    left: torch.Tensor, right: torch.Tensor, alpha: float, turned: bool, multiply: Multiply
) -> torch.Tensor:
    """The product in memory by rows, or ``turned``, by columns."""
    if turned:
        return multiply(right.mT, left.mT, alpha=alpha).mT
    return multiply(left, right, alpha=alpha)


def _lies_in_columns(operand: torch.Tensor) -> bool:
    """Whether neighbours in a column are neighbours in memory, and those in a row are not."""
    return operand.ndim > 1 and operand.stride(-2) == 1 and operand.stride(-1) != 1


def _adjoint(matrix: torch.Tensor) -> torch.Tensor:
    """The transpose; of complex numbers conjugated, in memory of its own."""
    return matrix.mH.resolve_conj() if matrix.is_complex() else matrix.mT


def _sum_to(gradient: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of what was broadcast to the gradient's shape: the sum over what it was repeated along."""
    if gradient.shape != shape:
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient if gradient.dtype == dtype else gradient.to(dtype)


def needs_dispatcher(operands: Sequence[torch.Tensor | None]) -> bool:
    """Whether a launch of these is no launch but has to be traced: something is watching, or they stand for tensors."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or any(one is not None and (one.is_meta or isinstance(one, FakeTensor)) for one in operands)
    )


class RecordedProduct(torch.autograd.Function):
    """A product in memory that autograd records, without torch's dispatcher.

    ``apply`` takes the terms; what it gives is the result, and ``pre`` with it if that is kept.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Launch, and save what the backward pass needs."""
        terms = Terms(*args)
        result, pre = start_product(terms)
        remember(ctx, ctx.needs_input_grad, terms, result, pre)
        return (result, pre) if terms.keep else result

    @staticmethod
    def backward(ctx: Any, d_result: Any, d_pre: Any = None) -> Any:
        """The gradients of the operands; the other arguments have none."""
        return (*differentiate(ctx, d_result, d_pre, tw.matmul), *(None,) * (len(Terms._fields) - OPERANDS))


class TransformedProduct(RecordedProduct):
    """The same in ``torch.func``, which asks for the context by itself; for that every call costs more."""

    @staticmethod
    def forward(*args: Any) -> Any:
        """Launch, or trace a launch."""
        terms = Terms(*args)
        make = torch.ops.tilewise._product if needs_dispatcher(terms.operands) else _launch
        result, pre = make(*terms)
        return (result, pre) if terms.keep else result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save what the backward pass needs."""
        terms = Terms(*inputs)
        remember(ctx, ctx.needs_input_grad, terms, *(output if terms.keep else (output, output)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """All products of a batch as one."""
        return map_product(info, in_dims, args, TransformedProduct.apply)


def _launch(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return start_product(Terms(*args))
