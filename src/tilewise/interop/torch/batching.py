"""The shape of a product, and vmap's rule: one product with a longer stack in the place of one an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewise.errors import ArgumentError
from tilewise.interop.torch.terms import OPERANDS, Terms

__all__ = ["map_product", "product_shape"]

_torch: Any = torch  # for what torch leaves without types


def product_shape(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The shape of a product, of sizes that may be symbols."""
    for argument, shape in (("a", a), ("b", b)):
        if not len(shape):
            raise ArgumentError(argument, "must have at least one dimension", "a scalar", "use * for scalars")
    inner = b[-2] if len(b) > 1 else b[0]
    if inner != a[-1]:
        rule = f"must have as many rows as a has columns ({a[-1]})"
        raise ArgumentError("b", rule, f"shapes {tuple(a)} and {tuple(b)}")
    if len(a) <= 2 or len(b) <= 2:
        return [*a[:-2], *b[:-2], *a[-2:-1], *(b[-1:] if len(b) > 1 else ())]
    try:
        stack = _torch.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
    except RuntimeError:
        found = f"shapes {tuple(a)} and {tuple(b)}"
        raise ArgumentError("a and b", "must have stacks that broadcast", found) from None
    return [*stack, a[-2], b[-1]]


def map_product(info: Any, in_dims: Sequence[Any], args: Sequence[Any], product: Callable[..., Any]) -> Any:
    """vmap's rule of a product: what ``product`` gives of operands with their batches in front, and where those are.

    NOTE: arguments at the end that have their defaults may be missing in ``args`` and ``in_dims``.
    """
    terms = Terms(*args)
    axes = [axis if isinstance(axis, int) else None for axis in (*in_dims, *(None,) * OPERANDS)[:OPERANDS]]
    ranks = [terms.a.ndim - (axes[0] is not None), terms.b.ndim - (axes[1] is not None)]
    row, column, ndim = ranks[0] == 1, ranks[1] == 1, max(2, *ranks)
    a = _spread(terms.a, axes[0], row, False, ndim)
    b = _spread(terms.b, axes[1], False, column, ndim)
    if axes[0] is None and axes[1] is None:  # the batch is in the other terms alone
        a = a.expand(info.batch_size, *a.shape)
    others = [
        None if one is None else _spread(one, axis, row, column, ndim)
        for one, axis in zip(terms.operands[2:], axes[2:], strict=True)
    ]
    results = product(a, b, *others, *terms[OPERANDS:])
    single = isinstance(results, torch.Tensor)
    squeezed = []
    for one in (results,) if single else results[: 1 + terms.keep]:
        one = one.squeeze(-2) if row else one
        squeezed.append(one.squeeze(-1) if column else one)
    if single:
        return squeezed[0], 0
    return (squeezed[0], squeezed[1] if terms.keep else results[1]), (0, 0 if terms.keep else None)


def _spread(one: torch.Tensor, axis: int | None, row: bool, column: bool, ndim: int) -> torch.Tensor:
    """An operand with the batch in front, if it has one, and then ``ndim`` axes.

    ``row`` and ``column`` say which of the last two axes it lacks, as what goes with one-dimensional operands does.
    """
    one = one if axis is None else one.movedim(axis, 0)
    batch, shape = (one.shape[:0], one.shape) if axis is None else (one.shape[:1], one.shape[1:])
    one = one.reshape(*batch, *(1,) * (ndim - row - column - len(shape)), *shape)
    one = one.unsqueeze(-1) if column else one
    return one.unsqueeze(-2) if row else one
