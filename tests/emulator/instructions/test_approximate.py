"""Approximate instructions: within the errors that the PTX ISA allows, and its tables of special operands."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.harness.many import Array, refused, run

_SEED = np.random.SeedSequence()
_RNG = np.random.default_rng(_SEED)
_INF, _NAN = float("inf"), float("nan")
_TINY = 2.0**-126  # the smallest normal float


def _singles(count: int, low: float, high: float) -> Array:
    """Floats between two magnitudes, as many in each octave, of both signs."""
    size = np.exp2(_RNG.uniform(np.log2(low), np.log2(high), count))
    signed: Array = np.clip(size, low, high) * _RNG.choice([-1.0, 1.0], count)
    return signed.astype(np.float32)


def _run(name: str, *inputs: Array, way: str = "vector") -> Array:
    """Results as an array of the inputs' type."""
    sources = ", ".join(f"{{{letter}}}" for letter in "ab"[: len(inputs)])
    bits = inputs[0].dtype.itemsize * 8
    (result,) = run(
        [(f"{name} {{d}}, {sources};", bits)], [array.view(f"u{bits // 8}") for array in inputs], way
    )
    return result.view(inputs[0].dtype)


def _ulps(got: Array, exact: Array) -> float:
    """The largest error in units of the last digit of the exact result as a float; NaN is too much."""
    unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(exact))), -126) - 23)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / unit))


def _relative(got: Array, exact: Array) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - exact) / np.abs(exact)))


def _absolute(got: Array, exact: Array) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - exact)))


def _exact(function: Callable[..., Array], *inputs: Array) -> Array:
    with np.errstate(all="ignore"):
        return function(*(array.astype(np.float64) for array in inputs))


_PI = np.pi
_COUNT = 40_000


@pytest.mark.parametrize(
    ("name", "function", "low", "high", "error", "bound"),
    [
        ("rcp.approx.f32", np.reciprocal, 2.0**-126, 2.0**126, _ulps, 1.0),
        ("sqrt.approx.f32", np.sqrt, 2.0**-149, 2.0**127, _relative, 2.0**-23),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 2.0**-149, 2.0**127, _relative, 2.0**-22.9),
        ("sin.approx.f32", np.sin, 2.0**-149, 2 * _PI, _absolute, 2.0**-20.5),
        ("sin.approx.f32", np.sin, 1.0, 100 * _PI, _absolute, 2.0**-14.7),
        ("cos.approx.f32", np.cos, 2.0**-149, 2 * _PI, _absolute, 2.0**-20.5),
        ("cos.approx.f32", np.cos, 1.0, 100 * _PI, _absolute, 2.0**-14.7),
        ("sin.approx.ftz.2pi.f32", lambda x: np.sin(2 * _PI * x), _TINY, 1.0, _absolute, 2.0**-20.5),
        ("cos.approx.ftz.2pi.f32", lambda x: np.cos(2 * _PI * x), _TINY, 1.0, _absolute, 2.0**-20.5),
        ("lg2.approx.f32", np.log2, 0.5, 2.0, _absolute, 2.0**-22),
        ("lg2.approx.f32", np.log2, 2.0**-149, 0.5, _relative, 2.0**-22),
        ("lg2.approx.f32", np.log2, 2.0, 2.0**127, _relative, 2.0**-22),
        ("ex2.approx.f32", np.exp2, 2.0**-149, 127.9, _ulps, 2.0),
        ("tanh.approx.f32", np.tanh, 2.0**-126, 2.0**127, _relative, 2.0**-11),
    ],
)
def test_errors_of_floats(
    name: str,
    function: Callable[[Array], Array],
    low: float,
    high: float,
    error: Callable[[Array, Array], float],
    bound: float,
) -> None:
    x = _singles(_COUNT, low, high)
    if name.split(".")[0] in ("sqrt", "rsqrt", "lg2"):
        x = np.abs(x)
    if name.startswith("lg2") and high == 2.0:
        x[:1000] = 1 + np.arange(-500, 500, dtype=np.float32) * np.float32(2**-23)
    assert error(_run(name, x), _exact(function, x)) <= bound, _SEED.entropy
    assert (_run(name, x[:64], way="uniform") == _run(name, x[:64])).all()


def test_quotients() -> None:
    a, b = _singles(_COUNT, 2.0**-60, 2.0**60), _singles(_COUNT, 2.0**-60, 2.0**60)
    for name in ("div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"):
        assert _ulps(_run(name, a, b), _exact(np.divide, a, b)) <= 2.0
    a, b = _singles(_COUNT, 2.0**-149, 2.0**127), _singles(_COUNT, 2.0**-149, 2.0**127)
    exact = _exact(np.divide, a, b)
    fits = np.abs(exact) < 2.0**128 * (1 - 2.0**-25)
    assert _ulps(_run("div.full.f32", a, b)[fits], exact[fits]) <= 2.0
    large = _singles(500, 2.0**126 * 1.0001, 2.0**127.9)
    zeros = _run("div.approx.f32", _singles(500, 2.0**-100, 2.0**127), large)
    assert (zeros == 0).all(), "a divisor above 2**126 gives zero"
    assert len(set(np.signbit(zeros))) == 2
    assert np.isnan(_run("div.approx.f32", np.full(500, _INF, np.float32), large)).all()
    assert (_run("div.approx.f32", large[:1] * 0 + 1, np.array([_INF], np.float32)) == 0).all()
    assert (_run("div.full.f32", large[:1] * 0 - 1, np.array([0], np.float32)) == -_INF).all()


def test_divisors_beyond_two_to_the_126th_and_no_smaller_ones_give_zero() -> None:
    b = np.array([2.0**126, -(2.0**126), np.nextafter(np.float32(2.0**126), np.float32(_INF))], np.float32)
    assert _run("div.approx.f32", np.full(3, 2.0**126, np.float32), b).tolist() == [1.0, -1.0, 0.0]


# What the PTX ISA's tables say of operands that are not usual numbers; and .ftz.
_TABLES: dict[str, list[tuple[float, float]]] = {
    "rcp.approx.f32": [(-_INF, -0.0), (-0.0, -_INF), (0.0, _INF), (_INF, 0.0), (_NAN, _NAN),
                       (2.0**127, 2.0**-127)],
    "rcp.approx.ftz.f32": [(-_TINY / 2, -_INF), (_TINY / 2, _INF), (2.0**127, 0.0), (-(2.0**127), -0.0)],
    "sqrt.approx.f32": [(-_INF, _NAN), (-1.0, _NAN), (-0.0, -0.0), (0.0, 0.0), (_INF, _INF), (_NAN, _NAN)],
    "sqrt.approx.ftz.f32": [(_TINY / 2, 0.0), (-_TINY / 2, -0.0)],
    "rsqrt.approx.f32": [(-_INF, _NAN), (-1.0, _NAN), (-0.0, -_INF), (0.0, _INF), (_INF, 0.0), (_NAN, _NAN)],
    "rsqrt.approx.ftz.f32": [(_TINY / 2, _INF), (-_TINY / 2, -_INF), (4.0, 0.5)],
    "sin.approx.f32": [(-_INF, _NAN), (-0.0, -0.0), (0.0, 0.0), (_INF, _NAN), (_NAN, _NAN),
                       (2.0**-149, 2.0**-149)],
    "sin.approx.ftz.f32": [(_TINY / 2, 0.0), (-_TINY / 2, -0.0)],
    "cos.approx.f32": [(-_INF, _NAN), (-0.0, 1.0), (0.0, 1.0), (_INF, _NAN), (_NAN, _NAN)],
    "cos.approx.ftz.f32": [(_TINY / 2, 1.0)],
    "sin.approx.ftz.2pi.f32": [(-_INF, _NAN), (-0.0, -0.0), (_TINY / 2, 0.0), (-_TINY / 2, -0.0), (_NAN, _NAN),
                               (0.25, 1.0), (-0.25, -1.0), (2.0**22 - 0.25, -1.0), (2.0**127, 0.0),
                               (0.5, -0.0), (-0.5, 0.0), (1.0, 0.0), (-1.0, -0.0), (2.5, -0.0), (-3.0, -0.0)],
    "cos.approx.ftz.2pi.f32": [(_INF, _NAN), (-0.0, 1.0), (_TINY / 2, 1.0), (0.5, -1.0), (_NAN, _NAN),
                               (2.0**23 - 0.5, -1.0), (-(2.0**127), 1.0)],
    "lg2.approx.f32": [(-_INF, _NAN), (-1.0, _NAN), (-0.0, -_INF), (0.0, -_INF), (_INF, _INF), (_NAN, _NAN),
                       (1.0, 0.0), (2.0**-149, -149.0), (2.0**127, 127.0)],
    "lg2.approx.ftz.f32": [(_TINY / 2, -_INF), (-_TINY / 2, -_INF)],
    "ex2.approx.f32": [(-_INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (_INF, _INF), (_NAN, _NAN), (10.0, 1024.0),
                       (-127.0, 2.0**-127), (-149.0, 2.0**-149), (-160.0, 0.0), (128.0, _INF), (3e38, _INF)],
    "ex2.approx.ftz.f32": [(-127.0, 0.0), (_TINY / 2, 1.0), (-126.0, _TINY)],
    "tanh.approx.f32": [(-_INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (_INF, 1.0), (_NAN, _NAN),
                        (2.0**-149, 2.0**-149)],
}  # fmt: skip


@pytest.mark.parametrize("way", ["vector", "uniform"])
@pytest.mark.parametrize("name", _TABLES)
def test_special_operands(name: str, way: str) -> None:
    given, wanted = (np.array(column, np.float32) for column in zip(*_TABLES[name], strict=True))
    got = _run(name, given, way=way)
    same = (got.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(got) & np.isnan(wanted))
    assert same.all(), list(zip(given[~same], got[~same], wanted[~same], strict=True))


@pytest.mark.parametrize(
    "name", [name for name in _TABLES if name.startswith(("sin", "cos", "lg2", "ex2", "tanh"))]
)
def test_all_nan_are_the_one_that_gpus_give(name: str) -> None:
    given = np.array([x for x, y in _TABLES[name] if np.isnan(y)] or [_NAN], np.float32)
    assert (_run(name, given).view(np.uint32) == 0x7FFF_FFFF).all()


def test_waves_far_out_stay_in_range() -> None:
    x = _singles(2000, 2.0**10, 2.0**127)
    for name in ("sin.approx.f32", "cos.approx.f32"):
        assert (np.abs(_run(name, x)) <= 1).all()


@pytest.mark.parametrize(
    ("name", "function", "error", "bound"),
    [
        ("ex2.approx.f16", np.exp2, _relative, 2.0**-9.9),
        ("ex2.approx.ftz.bf16", np.exp2, _relative, 2.0**-7),
        ("tanh.approx.f16", np.tanh, _absolute, 2.0**-10.987),
        ("tanh.approx.bf16", np.tanh, _absolute, 2.0**-8),
    ],
)
def test_every_two_byte_operand(
    name: str, function: Callable[[Array], Array], error: Callable[[Array, Array], float], bound: float
) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    type_ = name.split(".")[-1]
    kind, least, top = (
        (np.float16, 2.0**-14, 65504.0) if type_ == "f16" else (ml_dtypes.bfloat16, _TINY, 3.3e38)
    )
    (result,) = run([(f"{name} {{d}}, {{a}};", 16)], [bits])
    (pairs,) = run([(f"{name}x2 {{d}}, {{a}};", 32)], [bits.view(np.uint32)])
    assert (pairs.view(np.uint16) == result).all(), "each half of a pair is as one alone"
    with np.errstate(invalid="ignore"):  # NaN
        x, got = bits.view(kind).astype(np.float64), result.view(kind).astype(np.float64)
    exact = _exact(function, x)
    assert (result[np.isnan(x)] == 0x7FFF).all()
    if (
        function is np.exp2
    ):  # relative errors mean something between the smallest normal number and the largest
        assert (got[exact > top * 1.01] == _INF).all()
        assert (got[exact < least / 2**12] == 0).all()
        usual = (exact >= least) & (exact < top)
        assert error(got[usual], exact[usual]) <= bound
    else:
        number = ~np.isnan(x)
        assert error(got[number], exact[number]) <= bound
        assert (np.signbit(got) == np.signbit(x))[number].all()


def test_doubles() -> None:
    x = np.abs(_singles(4000, 2.0**-100, 2.0**100)).astype(np.float64) * (1 + _RNG.random(4000) * 2.0**-24)
    assert _relative(_run("rsqrt.approx.f64", x), 1 / np.sqrt(x)) <= 2.0**-52
    for name, function in (
        ("rcp.approx.ftz.f64", np.reciprocal),
        ("rsqrt.approx.ftz.f64", lambda v: 1 / np.sqrt(v)),
    ):
        got = _run(name, x)
        assert (got.view(np.uint64) & 0xFFFF_FFFF == 0).all(), "the lower word is zero"
        assert _relative(got, function(x)) <= 2.0**-19
        tiny = 2.0**-1030
        special = np.array([-_INF, -tiny, -0.0, 0.0, tiny, _INF, _NAN])
        wanted = [_NAN if name[1] == "s" else -0.0, -_INF, -_INF, _INF, _INF, 0.0, _NAN]
        found = _run(name, special)
        assert [str(value) for value in found] == [str(value) for value in wanted], name
        assert found.view(np.uint64)[-1] == 0x7FFF_FFFF_0000_0000
    assert _run("rcp.approx.ftz.f64", np.array([2.0**1023]))[0] == 0, "a subnormal result is flushed"


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("ex2.approx.bf16 %h0, %h1;", "it must be .ftz"),
        ("ex2.approx.bf16x2 %r0, %r1;", "it must be .ftz"),
        ("ex2.approx.ftz.f16x2 %r0, %r1;", "the modifier .ftz"),
        ("tanh.approx.ftz.bf16x2 %r0, %r1;", "the modifier .ftz"),
        ("ex2.f32 %r0, %r1;", "approximate"),
    ],
)
def test_which_functions_flush_is_said(instruction: str, why: str) -> None:
    """Powers of 2 in bfloat16, alone or in pairs, must, and others of two bytes must not."""
    assert why in refused(instruction)
