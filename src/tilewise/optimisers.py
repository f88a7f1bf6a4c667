"""Steps of optimisers as epilogues: the product is the gradient of a weight, the result is the new weight.

The weight and what an optimiser knows of it are read and written in place, each element by the thread that has its sum:
the gradient itself is never in memory.
"""

from __future__ import annotations

from typing import Any

from tilewise.epilogue import epilogue
from tilewise.errors import ArgumentError, integer
from tilewise.expression import EpilogueCall

__all__ = ["adam", "sgd"]


def sgd(
    master: Any,
    *,
    rate: Any,
    momentum: Any = None,
    mu: Any = 0.9,
    decay: Any = 0.0,
    scale: Any = 1.0,
) -> EpilogueCall:
    """A step of gradient descent, fused into the product that is the weight's gradient.

    With ``gradient`` = scale·A·B + decay·master: momentum becomes mu·momentum + gradient, and master becomes
    master - rate·momentum (rate·gradient without ``momentum``). ``master`` and ``momentum``, of the result's shape, are
    updated in place: float32 arrays, as a rule, under operands of 16 bits. The result is the new weight, rounded to its
    own type; ``out`` may be ``master`` itself. ``rate`` and the others are numbers, or arrays that broadcast.

    >>> import numpy as np, tilewise as tw
    >>> x, dy = np.ones((4, 2), "float32"), np.ones((4, 3), "float32")
    >>> master = np.ones((3, 2), "float32")
    >>> tw.matmul(dy.T, x, out=master, epilogue=tw.sgd(master, rate=0.125))[0].tolist()
    [0.5, 0.5]
    """
    given = {"master": master, "rate": rate}
    gradient = _gradient(given, scale)
    if not _is_number(decay, 0):
        gradient, given["decay"] = f"{gradient} + decay * master", decay
    if momentum is not None:
        gradient = f"keep(momentum, mu * momentum + {gradient})"
        given |= {"momentum": momentum, "mu": mu}
    return epilogue(f"keep(master, master - rate * ({gradient}))", **given)


def adam(
    master: Any,
    *,
    first: Any,
    second: Any,
    step: int,
    rate: Any,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    decay: Any = 0.0,
    scale: Any = 1.0,
) -> EpilogueCall:
    """A step of Adam with decoupled weight decay (AdamW), fused into the product that is the weight's gradient.

    ``first`` and ``second`` are the running means of the gradient scale·A·B and of its square, zeros before the first
    step; ``step`` counts from 1. They and ``master``, of the result's shape, are updated in place. The result is the
    new weight, rounded to its own type; ``out`` may be ``master`` itself.
    """
    count = integer("step", step, least=1)
    for beta in betas:
        if not 0 <= beta < 1:
            raise ArgumentError("betas", "must be at least 0 and less than 1", betas)
    given = {"master": master, "first": first, "second": second, "rate": rate, "epsilon": epsilon}
    gradient = _gradient(given, scale)
    given |= {"new_first": 1 - betas[0], "new_second": 1 - betas[1]}
    given |= {"size": 1 / (1 - betas[0] ** count), "square_size": 1 / (1 - betas[1] ** count)}
    mean = f"keep(first, first + new_first * ({gradient} - first))"
    square = f"keep(second, second + new_second * (({gradient}) ** 2 - second))"
    way = f"size * {mean} / (sqrt(square_size * {square}) + epsilon)"
    if not _is_number(decay, 0):
        way, given["decay"] = f"{way} + decay * master", decay
    return epilogue(f"keep(master, master - rate * ({way}))", **given)


def _gradient(given: dict[str, Any], scale: Any) -> str:
    """The expression of the gradient; adds what it needs to what is given."""
    if _is_number(scale, 1):
        return "acc"
    given["scale"] = scale
    return "scale * acc"


def _is_number(value: Any, wanted: int) -> bool:
    return isinstance(value, int | float) and value == wanted
