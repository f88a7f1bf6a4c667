"""Products in compiled JAX on a GPU: beside the same in float64, and beside JAX's own."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewise

os.environ.setdefault(
    "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
)  # the other tests of this process need memory too
jax: Any = pytest.importorskip("jax")
primitive: Any = pytest.importorskip("tilewise.interop.jax.primitive")
jnp = jax.numpy
tw: Any = tilewise

pytestmark = pytest.mark.gpu

DRAW = np.random.default_rng(7)
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
every_type = pytest.mark.parametrize("dtype", [*EPS])


@pytest.fixture(autouse=True)
def _on_a_gpu() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")


def random(*shape: int, dtype: str = "float32") -> Any:
    return jnp.asarray(DRAW.standard_normal(shape), "float32").astype(dtype)


def peer(x: Any, weight: Any, bias: Any, activation: str | None = None) -> Any:
    """tw.linear by JAX, in full precision."""
    pre = jnp.matmul(x, weight.T, precision="highest") + bias
    return pre if activation is None else primitive.ACTIVATIONS[activation](pre)


def error(found: Any, wanted: Any) -> float:
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def assert_close(found: Any, peers: Any, wanted: Any, dtype: str) -> None:
    """That no error is much larger than that of JAX's own result."""
    leaves = (jax.tree.leaves(one) for one in (found, peers, wanted))
    for one, other, want in zip(*leaves, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        # NOTE: in float32 the order of sums decides, and JAX's is another one.
        most = 2 * error(other, want) + (32 if dtype == "float32" else 4) * EPS[dtype]
        assert error(one, want) < most, (error(one, want), most)


def both(make: Callable[[Callable[..., Any]], Any], *inputs: Any) -> tuple[Any, Any, Any]:
    """What ``make`` gives of our layer, of JAX's, and of JAX's in float64, for the inputs."""
    ours, theirs = jax.jit(make(tw.linear))(*inputs), jax.jit(make(peer))(*inputs)
    jax.config.update("jax_enable_x64", True)
    try:
        wide = jax.tree.map(lambda one: one.astype("float64"), inputs)
        return ours, theirs, jax.jit(make(peer))(*wide)
    finally:
        jax.config.update("jax_enable_x64", False)


@every_type
def test_a_model_has_the_gradients_of_jaxs(dtype: str) -> None:
    def make(linear: Callable[..., Any]) -> Any:
        def loss(weights: Any, x: Any) -> Any:
            (w1, b1), (w2, b2) = weights
            y = linear(linear(x, w1, b1, activation="gelu"), w2, b2, activation="silu")
            return (y.astype(jnp.promote_types(y.dtype, "float32")) ** 2).mean()

        return jax.value_and_grad(loss, (0, 1))

    for rows in (64, 200):
        weights = (
            (random(512, 256, dtype=dtype) / 16, random(512, dtype=dtype)),
            (random(384, 512, dtype=dtype) / 16, random(384, dtype=dtype)),
        )
        assert_close(*both(make, weights, random(2, rows, 256, dtype=dtype)), dtype)


@every_type
def test_stacks_and_batches(dtype: str) -> None:
    weight, bias = random(96, 128, dtype=dtype), random(96, dtype=dtype)
    for axes, shape in (
        ((None, None, 0), (64, 128)),
        ((0, None, None), (3, 64, 128)),
        ((0, None, 0), (3, 128)),
    ):
        x = random(*shape, dtype=dtype)
        added = bias if axes[2] is None else random(3, 96, dtype=dtype)
        ours, theirs, wanted = both(lambda f, axes=axes: jax.vmap(f, axes), x, weight, added)  # type: ignore[misc]
        assert_close(ours, theirs, wanted, dtype)


@every_type
def test_k_in_parts(dtype: str) -> None:
    """A product whose plan may want workspace, which XLA gives."""
    x, weight = random(64, 16384, dtype=dtype), random(64, 16384, dtype=dtype)
    assert_close(*both(lambda f: f, x, weight, random(64, dtype=dtype)), dtype)


def test_second_derivatives() -> None:
    def make(linear: Callable[..., Any]) -> Any:
        def loss(x: Any, weight: Any, bias: Any) -> Any:
            return (linear(x, weight, bias, activation="tanh") ** 2).sum()

        return jax.jacfwd(jax.grad(loss), 0)

    assert_close(*both(make, random(4, 16), random(8, 16) / 4, random(8)), "float32")


def test_many_calls_in_a_row() -> None:
    a, b = random(128, 128), random(128, 128) / 12
    step = jax.jit(lambda x: jnp.tanh(tw.matmul(x, b)))
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, one: step(one), x))
    x, wanted = a, np.asarray(a, "float64")
    for _ in range(50):
        x = step(x)
        wanted = np.tanh(wanted @ np.asarray(b, "float64"))
    assert error(x, wanted) < 1e-3
    np.testing.assert_array_equal(np.asarray(looped(a)), np.asarray(x))


def test_as_in_memory() -> None:
    for arithmetic in (None, "tf32", "exact32"):
        function = functools.partial(tw.matmul, arithmetic=arithmetic)
        a, b = random(300, 200), random(200, 100)
        np.testing.assert_array_equal(np.asarray(jax.jit(function)(a, b)), np.asarray(function(a, b)))
