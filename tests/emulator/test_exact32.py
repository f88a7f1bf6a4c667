"""float32 in parts on the emulator, beside float64: tiles, layouts, stacks, epilogues, and data of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.operands import Operands
from tilewise.problem import Problem
from tilewise.reference import compare

SPEC = KERNELS["exact32"]
RANDOM = np.random.default_rng()
Matrix = npt.NDArray[np.float32]


def plan_for(size: tuple[int, int, int], batch: int = 1, **given: Any) -> tw.Plan:
    """The kernel's plan of these settings."""
    problem = Problem(*size, batch, arithmetic="exact32", c=given.get("result", "float32"))
    return SPEC.plan(Operands.of(problem), "h200", SPEC.complete(given))


def multiply(a: Matrix, b: Matrix, order: Any = "eager", **given: Any) -> Matrix:
    """A·B by the kernel itself, into the middle of an array that must stay as it was beside it."""
    *stack, m, n = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]
    stack = stack[0]
    whole = np.full((*stack, m, n + 5), 7, given.get("result", "float32"))
    plan = plan_for((m, n, a.shape[-1]), int(np.prod(stack)), **given)
    tw.matmul(a, b, out=whole[..., :n], plan=plan, device=tw.device("emulator", order=order))
    assert (whole[..., n:] == 7).all()
    return whole[..., :n]


def normal(*shape: int) -> Matrix:
    return RANDOM.standard_normal(shape, np.float32)


def off(got: Matrix, a: Matrix, b: Matrix) -> float:
    """The largest error, where 1 is float32's unit roundoff of the sum of |a|·|b|."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    sizes = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return float((np.abs(got - exact) / sizes).max() * 2**24)


@pytest.mark.parametrize("partition", SPEC.settings["partition"])
def test_every_tile_is_right(partition: str) -> None:
    """Sizes that end inside of a tile, and more tiles than blocks."""
    a, b = normal(300, 200), normal(200, 150)
    assert off(multiply(a, b, partition=partition, tiles=2), a, b) < 8


@pytest.mark.parametrize("order", ["late", 3])
def test_every_order_gives_the_same_bits(order: Any) -> None:
    a, b = normal(130, 330), normal(330, 70)
    assert np.array_equal(multiply(a, b, order, tiles=3), multiply(a, b))


def test_what_small_elements_would_lose_is_computed_in_float32() -> None:
    """Rows of A grow where columns of B shrink; infinities and NaN; the other parts of C stay on the tensor cores."""
    a, b = normal(200, 130), normal(130, 150)
    scales = np.float32(2.0) ** RANDOM.integers(-60, 60, 130).astype(np.float32)
    a[:10] *= scales
    b[:, 140:] /= scales[:, None]
    a[70, 3], a[140, 5], b[7, 30] = np.inf, np.nan, -np.inf
    got = multiply(a, b, partition="128x64x64")
    assert compare(got, a, b).ok
    everywhere = tw.matmul(a, b, plan=KERNELS["general"].plan(*general(a, b)))
    assert (got == everywhere).mean() > 0.4


def general(a: Matrix, b: Matrix) -> Any:
    problem = Problem(a.shape[0], b.shape[1], a.shape[1])
    return Operands.of(problem), "h200", KERNELS["general"].complete({})
