"""Gradients of fused products: dA = dP · Bᴴ and dB = Aᴴ · dP by our kernels, with dP = dY · activation'(pre).

Each lies as its operand does: autograd would copy the gradient of a weight that lies another way.

``pre``, what the activation was given, is stored by the launch of the forward pass where the result alone does not say
it. dP is an operand of both products and the result of neither: one pass over dY makes it, and the gradient of a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tilewise as tw
from tilewise.interop.torch.activation_gradients import pass_back
from tilewise.interop.torch.batching import map_product, product_shape
from tilewise.interop.torch.terms import OPERANDS, Terms, needs_dispatcher, needs_pre, result_dtype

__all__ = [
    "RecordedLinear",
    "RecordedProduct",
    "TransformedProduct",
    "differentiate",
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
    ctx: Any,
    needs: tuple[bool, ...],
    terms: Terms,
    result: torch.Tensor,
    pre: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> None:
    """Save for :func:`differentiate` what it needs of a forward pass, and nothing more.

    ``needs`` says which operands need a gradient. ``weight`` is what ``b`` is the transpose of, if that was given.
    NOTE: the dispatcher leaves out arguments at the end that have their defaults.
    """
    ctx.needs = needs = (*needs, *(False,) * OPERANDS)[:OPERANDS]
    need_a, need_b, need_bias, need_c, _ = needs
    a, b, bias, c, _, activation, alpha, beta, keep, _ = terms
    ctx.activation, ctx.alpha, ctx.beta = activation, alpha, beta
    ctx.turned = _lies_in_columns(a), _lies_in_columns(b)
    ctx.has_weight = weight is not None
    b = b if weight is None else weight  # NOTE: no view of it, which second derivatives would not go through
    ctx.likes = [None if one is None else (one.shape, one.dtype) for one in (a, b, bias, c, terms.residual)]
    ctx.set_materialize_grads(False)
    ctx.from_result = ctx.recomputes = False
    if activation is None or not (need_a or need_b or need_bias or need_c):
        ctx.save_for_backward(a if need_b else None, b if need_a else None, None, None, None)
        return
    ctx.from_result = not needs_pre(activation, terms.residual)
    ctx.recomputes = again = not ctx.from_result and not keep
    ctx.save_for_backward(
        a if need_b or again else None,
        b if need_a or again else None,
        bias if again else None,
        c if again else None,
        result if ctx.from_result else None if again else pre,
    )


def differentiate(
    ctx: Any, d_result: torch.Tensor | None, d_pre: torch.Tensor | None, multiply: Multiply
) -> Gradients:
    """The gradients of the operands, None for one that needs none. ``multiply`` is a product that has gradients."""
    a, b, bias, c, saved = ctx.saved_tensors
    need_a, need_b, need_bias, need_c, need_residual = ctx.needs
    d_residual = d_result if need_residual else None
    d_bias = None
    if d_result is not None and ctx.activation is not None and (need_a or need_b or need_bias or need_c):
        if ctx.recomputes:
            more = {} if c is None else {"c": c, "beta": ctx.beta}
            saved = multiply(a, b.mT if ctx.has_weight else b, bias=bias, alpha=ctx.alpha, **more)
        d_result, d_bias = _through_activation(ctx, d_result, saved, d_pre is None)
    elif d_result is not None and d_pre is None and _wants_sums(ctx, d_result):
        passed = pass_back(d_result, None, None, False, True)
        d_bias = passed and passed.sums
    if d_pre is not None:  # of a second derivative, which goes through what was kept
        d_result = d_pre if d_result is None else d_result + d_pre
    d_a, d_b, d_c = None, None, None
    if d_result is not None:
        d_a, d_b = _of_factors(ctx, a, b, d_result, multiply)
        d_bias = d_result if need_bias and d_bias is None else d_bias
        if need_c:
            d_c = d_result if ctx.beta == 1 else d_result * ctx.beta
    return tuple(
        one if one is None or like is None else _sum_to(one, *like)
        for one, like in zip((d_a, d_b, d_bias, d_c, d_residual), ctx.likes, strict=True)
    )


def _wants_sums(ctx: Any, gradient: torch.Tensor) -> bool:
    """Whether the gradient of the bias is what the columns of the result's add up to."""
    shape, dtype = ctx.likes[2] or (None, None)
    return bool(ctx.needs[2]) and shape == gradient.shape[-1:] and dtype == gradient.dtype


def _through_activation(
    ctx: Any, gradient: torch.Tensor, saved: torch.Tensor, alone: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """dY · activation'(pre), of pre or of the activation's own value; and the gradient of the bias, where the same pass
    gives it: if ``alone``, nothing else goes into it.
    """
    name, from_result = ctx.activation, ctx.from_result
    passed = pass_back(gradient, saved, name, from_result, alone and _wants_sums(ctx, gradient))
    if passed is not None:
        return passed
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
    return result, None


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
    d_a = d_b = None
    if ctx.needs[0] and b is not None:
        if a_turned:
            d_a = multiply(_conjugate(b.mT if ctx.has_weight else b), gradient.mT, alpha=ctx.alpha).mT
        else:
            d_a = multiply(gradient, _conjugate(b if ctx.has_weight else b.mT), alpha=ctx.alpha)
        d_a = d_a.squeeze(-2) if len(a_shape) == 1 else d_a
    if ctx.needs[1] and a is not None:
        if len(b_shape) <= 2 and a.ndim > 2:  # one product over all rows of the stack
            a, gradient = a.flatten(0, -2), gradient.flatten(0, -2)
        if b_turned:
            d_b = multiply(gradient.mT, _conjugate(a), alpha=ctx.alpha)
        else:
            d_b = multiply(_conjugate(a.mT), gradient, alpha=ctx.alpha)
        d_b = d_b if b_turned == ctx.has_weight else d_b.mT
        d_b = d_b.squeeze(-1) if len(b_shape) == 1 else d_b
    return d_a, d_b


def _lies_in_columns(operand: torch.Tensor) -> bool:
    """Whether neighbours in a column are neighbours in memory, and those in a row are not."""
    strides = operand.stride()
    return len(strides) > 1 and bool(strides[-2] == 1) and bool(strides[-1] != 1)  # NOTE: they may be symbols


def _conjugate(matrix: torch.Tensor) -> torch.Tensor:
    """Of complex numbers the conjugates, in memory of their own."""
    return matrix.conj().resolve_conj() if matrix.is_complex() else matrix


def _sum_to(gradient: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of what was broadcast to the gradient's shape: the sum over what it was repeated along."""
    if gradient.shape != shape:
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient if gradient.dtype == dtype else gradient.to(dtype)


class RecordedProduct(torch.autograd.function._SingleLevelFunction):
    """A product in memory that autograd records, without torch's dispatcher.

    ``apply`` takes the terms; what it gives is the result, and ``pre`` with it if that is kept.
    NOTE: Function would look first whether ``torch.func`` is active, in as much time again; whoever calls this knows.
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


class RecordedLinear(RecordedProduct):
    """The same of ``x`` and a weight of shape (out, in), whose transpose autograd need not record by itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, *others: Any) -> Any:
        """Launch, and save what the backward pass needs."""
        terms = Terms(x, weight.mT, *others)
        result, pre = start_product(terms)
        remember(ctx, ctx.needs_input_grad, terms, result, pre, weight)
        return (result, pre) if terms.keep else result


class TransformedProduct(RecordedProduct, torch.autograd.Function):
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
