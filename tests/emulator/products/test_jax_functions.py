"""Products that JAX compiles, differentiates and maps: beside its own, in float64 where nothing else is tried."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.expression import ACTIVATIONS

tw: Any = tilewise
jax: Any = pytest.importorskip("jax")
functions: Any = pytest.importorskip("tilewise.interop.jax.functions")
primitive: Any = pytest.importorskip("tilewise.interop.jax.primitive")
jnp = jax.numpy

DRAW = np.random.default_rng(5)
SETTINGS = ("jax_enable_x64", "jax_disable_most_optimizations")


@pytest.fixture(autouse=True)
def _float64_compiled_fast() -> Iterator[None]:
    """Float64 in JAX, and programs that XLA does little to improve: compiling them is most of what the tests take."""
    for setting in SETTINGS:
        jax.config.update(setting, True)
    yield
    for setting in SETTINGS:
        jax.config.update(setting, False)


def random(*shape: int, dtype: str = "float64") -> Any:
    return jnp.asarray(DRAW.standard_normal(shape)).astype(dtype)


def matmul(a: Any, b: Any, bias: Any = 0.0, activation: str | None = None, residual: Any = 0.0) -> Any:
    """tw.matmul by JAX."""
    pre = jnp.matmul(a, b) + bias
    return (pre if activation is None else primitive.ACTIVATIONS[activation](pre)) + residual


def assert_close(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        scale = float(jnp.abs(other).max()) if other.size else 0.0
        np.testing.assert_allclose(
            np.asarray(one, "complex128"), np.asarray(other, "complex128"), rtol=rtol, atol=rtol * scale
        )


def assert_same(
    ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Any, rtol: float = 1e-9
) -> None:
    """That results, tangents and gradients agree, compiled and not."""
    where = tuple(range(len(inputs)))
    wanted = theirs(*inputs)
    directions = tuple(random(*one.shape, dtype=one.dtype) for one in inputs)
    weights = random(*wanted.shape, dtype=wanted.dtype)

    def every(function: Callable[..., Any], *given: Any) -> Any:
        y, tangent = jax.jvp(function, given, directions)
        gradients = jax.grad(lambda *x: (function(*x) * weights).sum().real, where)(*given)
        return y, tangent, gradients

    assert_close(ours(*inputs), wanted, rtol)
    assert_close(
        jax.jit(functools.partial(every, ours))(*inputs),
        jax.jit(functools.partial(every, theirs))(*inputs),
        rtol,
    )


# ── results and derivatives ──────────────────────────────────────────────────────────────────────────────

SHAPES = [
    ((5, 7), (7, 3)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((2, 5, 7), (7, 3)),
    ((5, 7), (2, 7, 3)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((7,), (2, 7, 3)),
    ((2, 5, 7), (7,)),
    ((0, 7), (7, 3)),
    ((5, 0), (0, 3)),
    ((2, 5, 7), (2, 7, 0)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_every_shape(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert_same(tw.matmul, jnp.matmul, random(*a), random(*b))


@pytest.mark.parametrize(
    ("activation", "residual"),
    [(None, False), *((one, False) for one in ACTIVATIONS), (None, True), ("silu", True), ("tanh", True)],
)
def test_every_activation(activation: str | None, residual: bool) -> None:
    terms = (random(4, 6), random(6, 5), random(5), *([random(4, 5)] if residual else []))

    def ours(a: Any, b: Any, bias: Any, added: Any = None) -> Any:
        return tw.matmul(a, b, bias=bias, activation=activation, residual=added)

    def theirs(a: Any, b: Any, bias: Any, added: Any = 0.0) -> Any:
        return matmul(a, b, bias, activation, added)

    assert_same(ours, theirs, *terms)


def test_factors_and_what_is_added() -> None:
    def ours(a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Any:
        return tw.matmul(a, b, c=c, bias=bias, residual=residual, alpha=0.5, beta=-2, activation="tanh")

    def theirs(a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Any:
        return jnp.tanh(0.5 * jnp.matmul(a, b) - 2 * c + bias) + residual

    a, b = random(2, 4, 6), random(6, 5)
    assert_same(ours, theirs, a, b, random(4, 1), random(5), random(2, 1, 5))
    assert_same(ours, theirs, a, random(6), random(2, 4), random(4), random())


def test_the_residual_alone_moves() -> None:
    """And no sum does, whose tangent would be a sum of nothing."""
    a, b, residual, direction = random(4, 6), random(6, 5), random(4, 5), random(4, 5)
    y, moved = jax.jvp(
        lambda one: tw.matmul(a, b, activation="silu", residual=one), (residual,), (direction,)
    )
    assert_close((y, moved), (matmul(a, b, 0.0, "silu", residual), direction))


def test_linear_multiplies_the_weight_as_it_lies() -> None:
    def ours(x: Any, weight: Any, bias: Any) -> Any:
        return tw.linear(x, weight, bias, activation="silu")

    def theirs(x: Any, weight: Any, bias: Any) -> Any:
        return matmul(x, weight.T, bias, "silu")

    for shape in ((4, 6), (2, 3, 6), (6,)):
        assert_same(ours, theirs, random(*shape), random(5, 6), random(5))
    step = jax.grad(lambda x, weight: ours(x, weight, jnp.zeros(5)).sum(), (0, 1))
    text = jax.jit(step).lower(random(4, 6), random(5, 6)).as_text()
    assert text.count("@tilewise.product") == 3 and "stablehlo.transpose" not in text


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_second_derivatives(activation: str | None) -> None:
    a, b = random(3, 4), random(4, 2)

    def loss(product: Callable[..., Any], a: Any, b: Any) -> Any:
        return (product(a, b, activation=activation) ** 2).sum()

    for outer, inner in ((jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacrev), (jax.jacrev, jax.jacfwd)):
        ours, theirs = (
            jax.jit(outer(inner(functools.partial(loss, one), (0, 1)), (0, 1))) for one in (tw.matmul, matmul)
        )
        assert_close(ours(a, b), theirs(a, b))


def test_derivatives_of_derivatives_by_other_operands() -> None:
    a, b, residual, direction = random(3, 4), random(4, 2), random(3, 2), random(3, 4)

    def tangent(product: Callable[..., Any], residual: Any, bias: Any) -> Any:
        """The tangent by ``a``, of which the second result is kept."""
        layer = functools.partial(product, activation="gelu", residual=residual, bias=bias)
        return jax.jvp(lambda a: layer(a, b), (a,), (direction,))

    for at in (0, 1):
        found, wanted = (
            jax.jacfwd(lambda *x, f=one: tangent(f, *x), at)(residual, random(2) * 0)
            for one in (tw.matmul, matmul)
        )
        assert_close(found, wanted)


def test_what_every_device_has_a_part_of() -> None:
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("rows",))
    rows, whole = jax.sharding.PartitionSpec("rows", None), jax.sharding.PartitionSpec()

    def loss(product: Callable[..., Any], a: Any, b: Any) -> Any:
        return (jax.shard_map(product, mesh=mesh, in_specs=(rows, whole), out_specs=rows)(a, b) ** 2).sum()

    a, b = random(4, 6), random(6, 5)
    ours, theirs = (
        jax.jit(jax.value_and_grad(functools.partial(loss, one), (0, 1)))(a, b) for one in (tw.matmul, matmul)
    )
    assert_close(ours, theirs)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [("float32", 1e-5), ("float16", 2e-2), ("bfloat16", 1e-1), ("complex64", 1e-5), ("complex128", 1e-9)],
)
def test_every_type(dtype: str, rtol: float) -> None:
    a, b, bias = (random(*shape, dtype=dtype) for shape in ((6, 8), (8, 5), (5,)))
    if dtype.startswith("complex"):
        a, b = a * (1 + 2j), b * (2 - 1j)
        activation = None
    else:
        activation = "tanh"
    assert_same(
        lambda a, b, bias: tw.matmul(a, b, bias=bias, activation=activation),
        lambda a, b, bias: matmul(a, b, bias, activation).astype(dtype),
        a, b, bias, rtol=rtol,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right"),
    [("int8", "int8"), ("int32", "int32"), ("int64", "int64"), ("int16", "int8"), ("float32", "float64"),
     ("bfloat16", "int8"), ("float8_e4m3fn", "float8_e4m3fn"), ("float16", "float8_e5m2"), ("float32", "complex64"),
     ("float16", "bfloat16"), ("int8", "float32")],
)  # fmt: skip
def test_types_are_those_of_arrays_in_memory(left: str, right: str) -> None:
    a, b = (
        jnp.asarray(DRAW.integers(-4, 4, shape)).astype(t) for shape, t in (((4, 6), left), ((6, 5), right))
    )
    assert_close(jax.jit(tw.matmul)(a, b), tw.matmul(a, b))


def test_gradients_beside_eight_bits() -> None:
    x, weight = random(4, 6, dtype="bfloat16"), jnp.asarray(DRAW.integers(-4, 4, (5, 6))).astype("int8")
    found = jax.grad(lambda x: tw.linear(x, weight).astype("float32").sum())(x)
    wanted = jax.grad(lambda x: (x.astype("float32") @ weight.astype("float32").T).sum())(x)
    assert_close(found, wanted, 1e-2)


def test_without_float64() -> None:
    jax.config.update("jax_enable_x64", False)
    a, b = random(4, 6, dtype="float32"), random(6, 5, dtype="float32")
    assert_same(tw.matmul, jnp.matmul, a, b, rtol=1e-5)
    exact = jax.jit(functools.partial(tw.matmul, arithmetic="exact32"))(a, b)
    assert_close(exact, a @ b, 1e-5)
    with pytest.raises(ArgumentError, match=r"the result would be float64, which JAX has turned off"):
        jax.jit(tw.matmul)(a, jnp.ones((6, 5), "int32"))


# ── vmap ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2), (-1, 0)])
def test_a_batch_is_one_product(axes: tuple[int | None, int | None]) -> None:
    shapes = [(4, 6), (6, 5)]
    a, b = (
        random(*shape) if axis is None else jnp.moveaxis(random(3, *shape), 0, axis)
        for shape, axis in zip(shapes, axes, strict=True)
    )
    mapped = jax.jit(jax.vmap(tw.matmul, axes))
    assert_close(mapped(a, b), jax.vmap(jnp.matmul, axes)(a, b))
    assert mapped.lower(a, b).as_text().count("@tilewise.product") == 1
    assert_same(jax.vmap(tw.matmul, axes), jax.vmap(jnp.matmul, axes), a, b)


def test_batches_of_everything() -> None:
    def ours(a: Any, b: Any, bias: Any) -> Any:
        return tw.matmul(a, b, bias=bias, activation="tanh")

    def theirs(a: Any, b: Any, bias: Any) -> Any:
        return matmul(a, b, bias, "tanh")

    for axes in ((None, None, 0), (0, None, 0), (None, 0, None)):
        inputs = [
            random(*shape) if axis is None else random(3, *shape)
            for shape, axis in zip([(4, 6), (6, 5), (5,)], axes, strict=True)
        ]
        assert_same(jax.vmap(ours, axes), jax.vmap(theirs, axes), *inputs)
    vectors = random(3, 6), random(6, 5), random(3, 5)
    assert_same(jax.vmap(ours, (0, None, 0)), jax.vmap(theirs, (0, None, 0)), *vectors)
    twice = [jax.vmap(jax.vmap(one, (0, None, None)), (None, 0, 0)) for one in (ours, theirs)]
    assert_same(*twice, random(3, 4, 6), random(2, 6, 5), random(2, 5))
    each = [jax.vmap(jax.grad(lambda w, x, f=f: f(x, w, 0.0).sum()), (None, 0)) for f in (ours, theirs)]
    w, x = random(6, 5), random(3, 6)
    assert_close(each[0](w, x), each[1](w, x))


# ── within other programs ────────────────────────────────────────────────────────────────────────────────


def _step(linear: Callable[..., Any], weights: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent of two layers."""

    def loss(weights: Any) -> Any:
        (w1, b1), (w2, b2) = weights
        return ((linear(linear(x, w1, b1, activation="gelu"), w2, b2) - y) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda one, d: one - 0.1 * d, weights, gradients)


def test_a_network_trains_as_jaxs() -> None:
    def peer(x: Any, weight: Any, bias: Any, activation: str | None = None) -> Any:
        return matmul(x, weight.T, bias, activation)

    def train(linear: Callable[..., Any], weights: Any) -> Any:
        return jax.lax.scan(lambda now, _: _step(linear, now, x, y)[::-1], weights, None, length=4)

    x, y = random(8, 6), random(8, 3)
    weights = (random(10, 6) * 0.3, jnp.zeros(10)), (random(3, 10) * 0.3, jnp.zeros(3))
    found, losses = jax.jit(functools.partial(train, tw.linear))(weights)
    assert_close((found, losses), jax.jit(functools.partial(train, peer))(weights))
    assert losses[-1] < losses[0]


def test_rematerialised() -> None:
    x, w = random(4, 6), random(6, 6)

    def deep(product: Callable[..., Any], w: Any) -> Any:
        layer = jax.checkpoint(functools.partial(product, activation="silu"))
        return layer(layer(x, w), w).sum()

    ours, theirs = (jax.jit(jax.grad(functools.partial(deep, one)))(w) for one in (tw.matmul, matmul))
    assert_close(ours, theirs)


def test_many_calls_in_flight_from_many_threads() -> None:
    chain = jax.jit(lambda a, b: functools.reduce(lambda x, _: tw.matmul(x, b), range(4), a))
    inputs = [(random(16, 16), random(16, 16) / 4) for _ in range(8)]
    found: dict[int, Any] = {}

    def run(i: int) -> None:
        found[i] = [chain(*inputs[(i + j) % 8]) for j in range(24)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, results in found.items():
        for j, one in enumerate(results):
            a, b = inputs[(i + j) % 8]
            assert_close(one, a @ b @ b @ b @ b)


def test_without_compiling() -> None:
    a, b = random(4, 6), random(6, 5)
    with jax.disable_jit():
        assert_same(tw.matmul, jnp.matmul, a, b)
    assert_close(functions.matmul(a, np.asarray(b)), a @ b)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": np.ones((2, 4))}, r"out must be None inside of jax\.jit.*take the result"),
        ({"epilogue": tw.epilogue("max(acc, 0)")}, "epilogue must be None.*use bias=, activation="),
        ({"copy": False}, "copy must be None.*leave it out"),
        ({"plan": tw.plan(2, 4, 3)}, "plan must be None.*leave it out"),
        ({"scale_a": 2.0}, r"scale_a must be None.*dequantize"),
        ({"bias": jnp.ones(3)}, r"bias must broadcast to the result's shape \(2, 4\), not \(3,\)"),
        ({"bias": object()}, "bias must be an array of JAX or NumPy"),
        ({"beta": 2.0}, "c must be given with beta"),
        ({"alpha": True}, "alpha must be a number"),
        ({"arithmetic": "f16"}, "arithmetic must be None or 'f64' for operands of float64"),
        ({"residual": jnp.ones((2, 4), "complex64")}, "residual must have a type that float64 holds, not 'complex64'"),
        ({"device": tw.device("emulator")}, "device must be 'gpu', 'gpu:N', 'emulator' or None"),
    ],
)  # fmt: skip
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        jax.jit(lambda a: tw.matmul(a, jnp.ones((3, 4)), **given))(jnp.ones((2, 3)))
    assert "\n" not in str(caught.value)


def test_other_refusals() -> None:
    a = jnp.ones((2, 3))
    with pytest.raises(UnknownNameError, match="activation 'rely' is not known"):
        functions.matmul(a, a.T, activation="rely")
    for b, message in (
        (jnp.ones((4, 4)), r"b must have as many rows as a has columns \(3\), not .*\(2, 3\) and \(4, 4\)"),
        (jnp.ones(2), r"b must have as many rows.*\(2, 3\) and \(2,\)"),
        (jnp.ones(()), "b must have at least one dimension"),
        (jax.random.key(0), "b must have numbers as elements"),
    ):
        with pytest.raises(ArgumentError, match=message):
            jax.jit(tw.matmul)(a, b)
    with pytest.raises(ArgumentError, match="a and b must have stacks that broadcast"):
        jax.jit(tw.matmul)(jnp.ones((2, 4, 3)), jnp.ones((5, 3, 4)))
    for weight, message in (
        (jnp.ones(3), r"weight must have the shape \(out, in\)"),
        (a.T, "weight must have as many"),
    ):
        with pytest.raises(ArgumentError, match=message):
            jax.jit(tw.linear)(a, weight)
    with pytest.raises(ArgumentError, match="x must have at least one dimension"):
        jax.jit(tw.linear)(jnp.ones(()), a)
    with pytest.raises(ArgumentError, match=r"alpha must be a number.*multiply an operand by it"):
        jax.jit(lambda s: functions.matmul(a, a.T, alpha=s))(2.0)
    whole = jnp.ones((3, 3), "int32")
    with pytest.raises(ArgumentError, match="bias must be left out for int32"):
        jax.jit(lambda a: tw.matmul(a, a, bias=jnp.ones(3)))(whole)
    with pytest.raises(ArgumentError, match="activation must be None for complex numbers"):
        jax.jit(lambda a: tw.matmul(a, a, activation="relu"))(whole.astype("complex64"))
    with pytest.raises(ArgumentError, match=r"must be a concrete array.*tw\.matmul or tw\.linear"):
        jax.jit(tw.grouped_matmul)(a, jnp.ones((1, 3, 4)), jnp.asarray([2]))


def test_a_failure_within_a_call_is_one_line() -> None:
    failing = jax.jit(functools.partial(tw.matmul, device="gpu:x"))
    with pytest.raises(Exception, match="device must be 'gpu', 'gpu:N' or 'emulator', not 'gpu:x'") as caught:
        failing(jnp.ones((2, 3)), jnp.ones((3, 4))).block_until_ready()
    assert type(caught.value).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and "Traceback" not in str(
        caught.value
    )
    assert_close(jax.jit(tw.matmul)(jnp.ones((2, 3)), jnp.ones((3, 4))), jnp.full((2, 4), 3.0))
