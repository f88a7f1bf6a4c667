"""The primitive of a product in JAX: its shape, its derivatives, its rule for vmap, and the call that XLA makes of it.

Operands are ``a``, ``b`` and the arrays that :class:`ProductAttributes` names, in that order. Matrices have two axes at
least, and the others broadcast to the result. Results are the product, and ``pre`` behind it if that is kept.

All derivatives are made of the primitive itself, so they have derivatives too: dP = dA · B + A · dB + beta·dc + dbias
is linear, and JAX transposes it: dA = dP · Bᵀ and dB = Aᵀ · dP. A transpose is an attribute; nothing is copied for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from tilewise.errors import ArgumentError
from tilewise.interop.jax.ffi_target import TARGET, handlers
from tilewise.interop.jax.product_attributes import ProductAttributes, needs_pre
from tilewise.problem import finished_type, multiplied_type, result_of, sum_type

__all__ = ["ACTIVATIONS", "bind_product", "product_shape"]

_jax: Any = jax
_STACK_AXES = (
    2  # with more, operands of two types are converted first: no kernel would find a way to widen them
)

ACTIVATIONS: dict[str, Any] = {
    "relu": _jax.nn.relu,
    "gelu": functools.partial(_jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(_jax.nn.gelu, approximate=True),
    "silu": _jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": _jax.nn.sigmoid,
}
"""JAX's own, whose derivatives are those of a product with an activation."""

_product = Primitive("tilewise_product")
_product.multiple_results = True


def bind_product(a: Any, b: Any, *added: Any, attributes: ProductAttributes) -> list[Any]:
    """The product, and ``pre`` if it is kept, traced or computed."""
    results: list[Any] = _product.bind(*_vary_alike(a, b, *added), product=attributes)
    return results


# ── shapes and types ─────────────────────────────────────────────────────────────────────────────────────


def product_shape(a: Sequence[int], b: Sequence[int], attributes: ProductAttributes) -> tuple[int, ...]:
    """The shape of a product of matrices, or stacks of them, that lie so."""
    rows = a[-1] if attributes.transpose_a else a[-2]
    columns = b[-2] if attributes.transpose_b else b[-1]
    return (*jnp.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])), rows, columns)


def _result_type(a: Any, b: Any, attributes: ProductAttributes) -> str:
    return result_of(multiplied_type(str(a.dtype), str(b.dtype)), attributes.changes_sums)


def _sums_type(a: Any, b: Any) -> str:
    """The type that an epilogue computes in."""
    multiplied = multiplied_type(str(a.dtype), str(b.dtype))
    return multiplied if multiplied.startswith("complex") else finished_type(sum_type(multiplied))


def _describe_results(a: Any, b: Any, *added: Any, product: ProductAttributes) -> list[Any]:
    """The shapes and types of the results."""
    shape, dtype = product_shape(a.shape, b.shape, product), jnp.dtype(_result_type(a, b, product))
    where = {}
    if _varying_axes(a):  # all operands vary alike
        where = {"sharding": a.sharding.update(spec=(None,) * len(shape)), "manual_axis_type": a.mat}
    return [_jax.core.ShapedArray(shape, dtype, **where)] * (1 + product.keep)


def _vary_alike(*operands: Any) -> tuple[Any, ...]:
    """The operands such that all vary over the same axes of a mesh, which jax.shard_map keeps count of.

    NOTE: the transpose of that adds up the gradient of what is the same everywhere.
    """
    if not hasattr(_jax, "typeof"):  # before JAX 0.6, which keeps no such count
        return operands
    varying = [_varying_axes(_jax.typeof(one)) for one in operands]
    every = frozenset().union(*varying)
    return tuple(
        one if axes == every else _jax.lax.pcast(one, tuple(every - axes), to="varying")
        for one, axes in zip(operands, varying, strict=True)
    )


def _varying_axes(aval: Any) -> frozenset[Any]:
    """The axes of a mesh that an array is known to vary over; none outside of jax.shard_map."""
    found: frozenset[Any] = getattr(getattr(aval, "mat", None), "varying", frozenset())
    return found


# ── the call ─────────────────────────────────────────────────────────────────────────────────────────────


def _call_target(a: Any, b: Any, *added: Any, product: ProductAttributes) -> list[Any]:
    """XLA's call of our handler. It wants arrays in rows, which is how they are without a user's transposes."""
    if a.dtype != b.dtype and max(a.ndim, b.ndim) > 2 + _STACK_AXES:
        common = multiplied_type(str(a.dtype), str(b.dtype))
        a, b = a.astype(common), b.astype(common)
    shape, dtype = product_shape(a.shape, b.shape, product), jnp.dtype(_result_type(a, b, product))
    kinds = [_jax.ShapeDtypeStruct(shape, dtype)] * (1 + product.keep)
    results: list[Any] = _jax.ffi.ffi_call(TARGET, kinds)(a, b, *added, product=product.to_json())
    return results


# ── vmap ─────────────────────────────────────────────────────────────────────────────────────────────────


def _map_batch(args: Sequence[Any], axes: Sequence[Any], *, product: ProductAttributes) -> tuple[Any, Any]:
    """One product with a longer stack in the place of one for each element of a batch."""
    mapped = [axis is not None for axis in axes]
    ndim = max(one.ndim - has_batch for one, has_batch in zip(args[:2], mapped, strict=False))
    spread = [
        _batch_in_front(one, axis, ndim) if has_batch else one
        for one, axis, has_batch in zip(args, axes, mapped, strict=True)
    ]
    if not any(mapped[:2]):  # the batch is in what is added alone
        size = next(one.shape[axis] for one, axis, batch in zip(args, axes, mapped, strict=True) if batch)
        a = spread[0]
        spread[0] = jnp.broadcast_to(a, (size, *(1,) * (ndim - a.ndim), *a.shape))
    results = bind_product(*spread, attributes=product)
    return results, [0] * len(results)


def _batch_in_front(one: Any, axis: int, ndim: int) -> Any:
    """An operand with its batch as the first axis, and then ``ndim`` axes."""
    one = jnp.moveaxis(one, axis, 0)
    return one.reshape(one.shape[0], *(1,) * (ndim + 1 - one.ndim), *one.shape[1:])


# ── derivatives ──────────────────────────────────────────────────────────────────────────────────────────


def _push_forward(
    primals: Sequence[Any], tangents: Sequence[Any], *, product: ProductAttributes
) -> tuple[list[Any], list[Any]]:
    """The results and their tangents."""
    a, b, *added = primals
    d_added = dict(zip(product.arrays, tangents[2:], strict=True))
    d_residual = d_added.pop("residual", None)
    moves = [one for one in (*tangents[:2], *d_added.values()) if not _is_zero(one)]
    keep = product.keep or (bool(moves) and needs_pre(product))
    results = bind_product(a, b, *added, attributes=product._replace(keep=keep))
    result, saved = results[0], results[-1]
    d_pre = _differentiate_sums(a, b, tangents[0], tangents[1], d_added, product, result) if moves else None
    d_result = d_pre
    if d_pre is not None and product.activation is not None:
        d_result = _differentiate_activation(product, saved, d_pre, keep, _sums_type(a, b))
    if d_residual is not None and not _is_zero(d_residual):
        spread = _broadcast_tangent(d_residual, result, _sums_type(a, b))
        d_result = spread if d_result is None else d_result + spread
    found = [d_result, d_pre][: 1 + product.keep]
    shown = results[: 1 + product.keep]
    # NOTE: one is missing where the residual alone moves, which ``pre`` knows nothing of.
    return shown, [jnp.zeros_like(one) if d is None else d for one, d in zip(shown, found, strict=True)]


def _differentiate_sums(
    a: Any, b: Any, d_a: Any, d_b: Any, d_added: dict[str, Any], product: ProductAttributes, result: Any
) -> Any:
    """The tangent of what the activation is given."""
    plain = product._replace(arrays=(), activation=None, keep=False)
    terms = []
    if not _is_zero(d_a):
        terms += bind_product(d_a, b, attributes=plain)
    if not _is_zero(d_b):
        terms += bind_product(a, d_b, attributes=plain)
    terms = [one.astype(result.dtype) for one in terms]
    for name, tangent in d_added.items():
        if not _is_zero(tangent):
            spread = _broadcast_tangent(tangent, result, _sums_type(a, b))
            terms.append(spread * product.beta if name == "c" and product.beta != 1 else spread)
    return functools.reduce(lambda one, other: one + other, terms)


def _broadcast_tangent(tangent: Any, result: Any, sums: str) -> Any:
    """The tangent of what broadcasts to the result. NOTE: its transpose adds up, in the type of sums."""
    return jnp.broadcast_to(tangent.astype(sums), result.shape).astype(result.dtype)


def _differentiate_activation(
    product: ProductAttributes, saved: Any, d_pre: Any, is_pre: bool, sums: str
) -> Any:
    """activation'(pre) · dP, of pre or of the activation's own value."""
    wide, d_wide = saved.astype(sums), d_pre.astype(sums)
    if is_pre:
        _, made = _jax.jvp(ACTIVATIONS[product.activation or ""], (wide,), (d_wide,))
    elif product.activation == "relu":
        made = jnp.where(wide > 0, d_wide, 0)
    elif product.activation == "tanh":
        made = (1 - wide * wide) * d_wide
    else:
        made = wide * (1 - wide) * d_wide
    return made.astype(saved.dtype)


def _pull_back(
    cotangents: Sequence[Any], a: Any, b: Any, *added: Any, product: ProductAttributes
) -> list[Any]:
    """The cotangent of the operand that the product is linear in."""
    (gradient,) = cotangents
    if not product.is_bilinear:
        rule = "must be linear in what is transposed; with an activation or terms that are added it is not"
        raise ArgumentError("a product", rule, fix="leave them out of what jax.linear_transpose is given")
    if _is_zero(gradient):
        return [ad.Zero(one.aval) if ad.is_undefined_primal(one) else None for one in (a, b)]
    if ad.is_undefined_primal(a):
        return [_sum_to(_gradient_of_a(a.aval, b, gradient, product), a.aval), None]
    return [None, _sum_to(_gradient_of_b(a, b.aval, gradient, product), b.aval)]


def _gradient_of_a(a: Any, b: Any, gradient: Any, product: ProductAttributes) -> Any:
    """dA = dY · Bᵀ, or its transpose B · dYᵀ where A is transposed."""
    turn = product.transpose_b
    if product.transpose_a:
        (found,) = bind_product(b, gradient, attributes=product._replace(transpose_a=turn, transpose_b=True))
    else:
        (found,) = bind_product(
            gradient, b, attributes=product._replace(transpose_a=False, transpose_b=not turn)
        )
    return found


def _gradient_of_b(a: Any, b: Any, gradient: Any, product: ProductAttributes) -> Any:
    """dB = Aᵀ · dY, or its transpose dYᵀ · A where B is transposed. Of a B for all of a stack, over all its rows."""
    turn = product.transpose_a
    if b.ndim == 2 and a.ndim > 2 and not turn:
        a, gradient = (one.reshape(-1, one.shape[-1]) for one in (a, gradient))
    if product.transpose_b:
        (found,) = bind_product(gradient, a, attributes=product._replace(transpose_a=True, transpose_b=turn))
    else:
        (found,) = bind_product(
            a, gradient, attributes=product._replace(transpose_a=not turn, transpose_b=False)
        )
    return found


def _sum_to(gradient: Any, aval: Any) -> Any:
    """The gradient of what was broadcast: the sum over what it was repeated along, in its type."""
    more = gradient.ndim - aval.ndim
    axes = [i for i in range(gradient.ndim) if i < more or gradient.shape[i] != aval.shape[i - more]]
    if axes:
        gradient = gradient.sum(axis=tuple(axes)).reshape(aval.shape)
    return gradient.astype(aval.dtype)


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


# ── what JAX is told ─────────────────────────────────────────────────────────────────────────────────────


def _register() -> None:
    """Give JAX the primitive's rules, and XLA the handler."""
    for platform, handler in handlers.items():
        _jax.ffi.register_ffi_target(TARGET, _jax.ffi.pycapsule(handler), platform=platform, api_version=1)
    _product.def_impl(functools.partial(xla.apply_primitive, _product))
    _product.def_abstract_eval(_describe_results)
    mlir.register_lowering(_product, mlir.lower_fun(_call_target, multiple_results=True))
    batching.primitive_batchers[_product] = _map_batch
    ad.primitive_jvps[_product] = _push_forward
    ad.primitive_transposes[_product] = _pull_back


_register()
