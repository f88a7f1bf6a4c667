"""What errors of sums may become: bounds that hold, and that are no wider than they have to be."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.error_bounds import Bounded, BoundedArithmetic
from tilewise.reference import Comparison, compare, multiply

Numbers = npt.NDArray[np.float64]
EXACT = BoundedArithmetic(0.0, 0.0)  # of a type that never rounds
COARSE, UNIT, LEAST = BoundedArithmetic(2.0**-8, 2.0**-20), 2.0**-8, 2.0**-20
numbers = st.floats(-4, 4).map(lambda x: round(x, 3))
errors = st.sampled_from([0.0, 0.125, 0.5])
SIDES = np.linspace(-1, 1, 101)


def bounded(value: float, error: float = 0.0) -> Bounded:
    return Bounded(np.asarray(value, np.float64), np.asarray(error, np.float64))


def pair(found: Bounded) -> tuple[float, float]:
    return float(found.value), float(found.error)


def furthest(function: Callable[..., Any], value: Any, *given: Bounded) -> float:
    """How far a function gets from a value where each number is anywhere within its error."""
    places = np.meshgrid(*(float(one.value) + float(one.error) * SIDES for one in given))
    return float(np.abs(np.asarray(function(*places)) - value).max())


@given(a=numbers, b=numbers, of_a=errors, of_b=errors)
def test_the_bound_is_what_the_operands_errors_can_make_of_a_result(
    a: float, b: float, of_a: float, of_b: float
) -> None:
    x, y = bounded(a, of_a), bounded(b, of_b)
    for name, function in (("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply)):
        found = getattr(EXACT, name)(x, y)
        assert found.value == function(a, b)
        assert found.error == pytest.approx(furthest(function, found.value, x, y), abs=1e-12)
    for name, nearer in (("_min", np.minimum), ("_max", np.maximum)):
        found = getattr(EXACT, name)(x, y)
        assert found.value == nearer(a, b) and found.error == max(of_a, of_b)
        assert furthest(nearer, found.value, x, y) <= found.error + 1e-12
    for name, value in (("negate", -a), ("identity", a), ("_abs", abs(a))):
        found = getattr(EXACT, name)(x)
        assert (found.value, found.error) == (value, of_a)


@given(a=numbers, b=st.floats(1, 4), sign=st.sampled_from([1, -1]), of_a=errors, of_b=errors)
def test_the_bound_of_a_quotient_is_reached_where_the_divisor_is_least(
    a: float, b: float, sign: int, of_a: float, of_b: float
) -> None:
    x, y = bounded(a, of_a), bounded(sign * b, of_b)
    found = EXACT.divide(x, y)
    assert found.error == pytest.approx(furthest(np.divide, found.value, x, y), abs=1e-9)


def test_a_divisor_that_may_be_zero_bounds_nothing() -> None:
    with np.errstate(all="ignore"):
        for b, error, finite in ((1.0, 0.99, True), (1.0, 1.0, False), (-1.0, 2.0, False), (0.0, 0.0, False)):
            found = EXACT.divide(bounded(3.0), bounded(b, error))
            assert np.isfinite(found.error) == finite
            assert finite or found.error == np.inf


ROOTS: list[tuple[str, Callable[[Any], Any], tuple[float, float]]] = [
    ("exp", np.exp, (-3, 3)),
    ("log", np.log, (0.6, 9)),
    ("sqrt", np.sqrt, (0.6, 9)),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (0.6, 9)),
]


@pytest.mark.parametrize(("name", "function", "span"), ROOTS, ids=[one[0] for one in ROOTS])
def test_functions_without_a_steepest_slope_are_bounded_by_their_end(
    name: str, function: Callable[[Any], Any], span: tuple[float, float]
) -> None:
    for value in np.linspace(*span, 23):
        for error in (0.0, 0.125, 0.5):
            found = EXACT.call(name, bounded(value, error))
            assert found.value == pytest.approx(function(value), rel=1e-12)
            assert found.error == pytest.approx(
                furthest(function, found.value, bounded(value, error)), abs=1e-9
            )


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt"])
def test_what_may_be_negative_bounds_no_root_and_no_logarithm(name: str) -> None:
    """Of zero there is a root; neither its inverse nor a logarithm has a bound there."""
    with np.errstate(all="ignore"):
        assert EXACT.call(name, bounded(1.0, 1.5)).error == np.inf
        at_zero = EXACT.call(name, bounded(1.0, 1.0)).error
        assert at_zero == (1.0 if name == "sqrt" else np.inf)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "erf": np.vectorize(math.erf),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def slope(function: Callable[..., Any], x: Any) -> Any:
    return (function(x + 1e-5) - function(x - 1e-5)) / 2e-5


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_and_their_gradients_are_what_their_names_say(name: str) -> None:
    """Their errors grow by the steepest slope that there is, or by a little more."""
    x, function = np.linspace(-6, 6, 1201), SMOOTH[name]
    of = {name: function} | ({} if name == "erf" else {f"{name}_grad": lambda x: slope(function, x)})
    for called, values in of.items():
        exact = EXACT.call(called, Bounded(x, np.zeros_like(x)))
        assert exact.value == pytest.approx(values(x), abs=1e-8)
        assert not exact.error.any()
        steepest = np.abs(np.diff(values(x)) / np.diff(x)).max()
        steep = EXACT.call(called, Bounded(x, np.ones_like(x))).error
        assert (steep >= steepest).all() and (steep <= 1.06 * steepest).all()


def test_each_operation_rounds_once_and_a_function_a_few_times() -> None:
    x, y = bounded(3.0), bounded(0.5)
    for name, value in (("add", 3.5), ("subtract", 2.5), ("multiply", 1.5), ("divide", 6.0)):
        found = getattr(COARSE, name)(x, y)
        assert (found.value, found.error) == (value, UNIT * value + LEAST)
    for name in ("exp", "log", "sqrt", "rsqrt"):
        found = COARSE.call(name, bounded(9.0))
        assert found.error == pytest.approx(8 * UNIT * found.value + LEAST)
    for value, size in (
        (0.25, 1.0),
        (-0.25, 1.0),
        (7.0, 7.0),
        (-7.0, 7.0),
    ):  # what cancels inside is as large
        assert COARSE.call("tanh", bounded(value)).error == pytest.approx(8 * UNIT * size + LEAST)
    for found in (COARSE.negate(x), COARSE._min(x, y), COARSE._max(x, y), COARSE._abs(x), COARSE._relu(x)):
        assert not found.error  # nothing is rounded
    assert COARSE.number(-3.0).error == 3 * UNIT + LEAST and not COARSE.array([3.0, -1.0]).error.any()
    found = COARSE.add(bounded(3.0, 0.25), y)
    assert found.error == 0.25 + UNIT * (3.5 + 0.25) + LEAST  # of what it may be


@given(a=numbers, power=st.integers(0, 9), error=errors)
def test_powers_are_products(a: float, power: int, error: float) -> None:
    found = EXACT.power(bounded(a, error), power)
    assert found.value == pytest.approx(a**power, rel=1e-12)
    bound = (abs(a) + error) ** power - abs(a) ** power
    assert found.error == pytest.approx(bound, rel=1e-9, abs=1e-9)
    if power == 1:
        assert pair(found) == (a, error)
    roundings = max(power - 1, 0)  # of a product, as of its factors
    assert COARSE.power(bounded(1.0), power).error == pytest.approx(roundings * UNIT, rel=0.05)


ORDER: dict[str, Callable[[int, int], bool]] = {
    "<": lambda p, q: p < q,
    "<=": lambda p, q: p <= q,
    ">": lambda p, q: p > q,
    ">=": lambda p, q: p >= q,
    "==": lambda p, q: p == q,
    "!=": lambda p, q: p != q,
}


@given(a=st.integers(-2, 2), b=st.integers(-2, 2), of_a=st.integers(0, 1), of_b=st.integers(0, 1))
def test_a_comparison_is_sure_where_no_error_turns_it(a: int, b: int, of_a: int, of_b: int) -> None:
    x, y = bounded(a, of_a), bounded(b, of_b)
    places = [(a + i, b + j) for i in (-of_a, 0, of_a) for j in (-of_b, 0, of_b)]
    for sign, holds in ORDER.items():
        found = EXACT.compare(sign, x, y)
        assert found.value == holds(a, b)
        assert not found.sure or {holds(p, q) for p, q in places} == {holds(a, b)}
        assert found.sure == (of_a + of_b == 0 or abs(a - b) > of_a + of_b)


def test_errors_turn_no_comparison_of_what_is_not_finite() -> None:
    for a, b in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, -np.inf)):
        with np.errstate(invalid="ignore"):
            assert EXACT.compare("<", bounded(a, 0.5), bounded(b, 0.5)).sure
            assert EXACT.compare("<", bounded(a, math.inf), bounded(b, 0.5)).sure  # as of sums that overflow


def test_conditions_are_sure_where_what_is_unsure_does_not_matter() -> None:
    known = {
        (value, True): EXACT.compare("<", bounded(0.0), bounded(1.0 if value else -1.0))
        for value in (True, False)
    }
    known |= {
        (value, False): EXACT.compare("<", bounded(0.0, 9.0), bounded(1.0 if value else -1.0))
        for value in (True, False)
    }
    for (p, sure_p), one in known.items():
        inverse = EXACT.invert(one)
        assert (bool(inverse.value), bool(inverse.sure)) == (not p, sure_p)
        for (q, sure_q), other in known.items():
            ways = [
                (s, t) for s in ({p} if sure_p else {True, False}) for t in ({q} if sure_q else {True, False})
            ]
            for found, holds in ((EXACT.both(one, other), all), (EXACT.either(one, other), any)):
                assert found.value == holds((p, q))
                assert found.sure == (len({holds(way) for way in ways}) == 1)


@given(a=numbers, b=numbers, of_a=errors, of_b=errors, holds=st.booleans(), sure=st.booleans())
def test_where_a_condition_is_unsure_either_side_may_be_the_kernels(
    a: float, b: float, of_a: float, of_b: float, holds: bool, sure: bool
) -> None:
    condition = EXACT.compare("<", bounded(0.0, 0.0 if sure else 9.0), bounded(1.0 if holds else -1.0))
    found = EXACT.where(condition, bounded(a, of_a), bounded(b, of_b))
    value, own = (a, of_a) if holds else (b, of_b)
    assert found.value == value
    assert found.error == (own if sure else max(abs(a - value) + of_a, abs(b - value) + of_b))
    assert EXACT.call("where", condition, bounded(a, of_a), bounded(b, of_b)) == found


def test_pieces_of_functions_are_put_together() -> None:
    for value, clamped, kept, slope_ in (
        (-2.0, -1.0, 0.0, 0.0),
        (0.5, 0.5, 0.5, 1.0),
        (5.0, 3.0, 5.0, 1.0),
        (0.0, 0.0, 0.0, 0.0),
    ):
        assert pair(EXACT.call("clamp", bounded(value, 0.25), bounded(-1.0), bounded(3.0))) == (clamped, 0.25)
        assert pair(EXACT.call("relu", bounded(value, 0.25))) == (kept, 0.25)
        assert pair(EXACT.call("relu_grad", bounded(value))) == (slope_, 0)
    assert EXACT.call("relu_grad", bounded(0.1, 0.25)).error == 1
    assert np.isnan(EXACT.call("relu_grad", bounded(np.nan)).value)
    arithmetic = BoundedArithmetic(0.0, 0.0)
    kept_ = arithmetic.keep("z", bounded(2.0))
    assert pair(kept_) == (2.0, 0) and arithmetic.kept["z"] is kept_


# ── bounds of whole results, computed a second time ──


def random(shape: tuple[int, int], seed: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tried(exact: Numbers, bound: Numbers, check: Callable[[Any], Any], tolerance: float = 0.01) -> None:
    """Errors a little below a bound pass everywhere; each one a little above it fails."""
    signs = np.where(np.arange(exact.size) % 3, 1, -1).reshape(exact.shape)
    below, above = (check(exact + share * bound * signs) for share in (1 - tolerance, 1 + tolerance))
    assert below.ok and (above.ok, above.failures) == (False, exact.size)


def compare_with(a: Any, b: Any, how: dict[str, Any], got: Any) -> Comparison:
    return compare(got, a, b, **how)


def rounded_once(exact: Any, sums: Any) -> Any:
    """The bound of results in float64 whose sums have these errors."""
    return sums + 2.0**-53 * (np.abs(exact) + sums) + 2.0**-1074


def growth(steps: int, unit: float) -> float:
    return steps * unit / (1 - steps * unit) if steps <= 64 else 7 * math.sqrt(steps) * unit


@pytest.mark.parametrize(("k", "scale"), [(3, 1.0), (50, 1.0), (300, 1.0), (5, 2.0**-120), (5, 2.0**-75)])
def test_in_tf32_each_operand_may_be_rounded(k: int, scale: float) -> None:
    a, b = random((4, k), 1) * np.float32(scale), random((k, 3), 2) * np.float32(scale)
    wide, other = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    share, least, unit = 2.0**-11, 2.0**-137, 2.0**-24
    rounded = np.zeros((4, 3))
    for i in range(k):  # (|a| + e)·(|b| + f) - |a|·|b| of each product, e and f the roundings
        p, q = wide[:, i : i + 1], other[i : i + 1]
        rounded += (p * (1 + share) + least) * (q * (1 + share) + least) - p * q
    sizes, steps = wide @ other, growth(k + 1, unit)
    sums = steps * sizes + (k + 1) * 2.0**-149 + rounded * (1 + steps)
    exact = multiply(a, b)
    tried(exact, rounded_once(exact, sums), lambda got: compare(got, a, b, arithmetic="tf32"))


@pytest.mark.parametrize("k", [7, 32, 33, 128, 129, 300])
def test_of_float8_operands_places_may_be_cut_off(k: int) -> None:
    """Of every 32 products and the sum before them, which begins anew after 128; of two types as of one."""
    other = ml_dtypes.float8_e5m2 if k % 2 else ml_dtypes.float8_e4m3fn
    a, b = random((3, k), 1, ml_dtypes.float8_e4m3fn), random((k, 2), 2, other)
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound, unit = np.zeros((3, 2)), 2.0**-24
    for i, j in np.ndindex(3, 2):
        products, lost, variance = x[i] * y[:, j], 0.0, 0.0
        for first in range(0, k, 32):
            part, step = slice(first, min(first + 32, k)), first // 128 * 128
            before, after = products[step:first].sum(), products[step : part.stop].sum()
            largest = max(np.abs(x[i, part]).max() * np.abs(y[part, j]).max(), abs(before), abs(after))
            kept = 2.0**-13 * largest
            lost += kept * ((abs(np.sign(products[part]).sum()) + 1) / 2 + 1)
            variance += kept**2 * 33 / 12
        sums = growth(k + 1, unit) * np.abs(products).sum() + (k + 1) * 2.0**-149
        sums += lost + 7 * math.sqrt(variance)
        bound[i, j] = rounded_once(products.sum(), sums)
    tried(multiply(a, b), bound, lambda got: compare(got, a, b))


@pytest.mark.parametrize("accumulate", ["float32", "float16"])
@pytest.mark.parametrize(("m", "k"), [(5, 7), (90, 7)])
def test_sums_of_columns_and_rows_have_the_errors_of_all_they_add(accumulate: str, m: int, k: int) -> None:
    a, b = random((m, k), 1), random((k, 4), 2)
    unit, least = {"float32": (2.0**-24, 2.0**-149), "float16": (2.0**-11, 2.0**-24)}[accumulate]
    products = multiply(a, b)
    each = growth(k + 1, unit) * (np.abs(a).astype(float) @ np.abs(b).astype(float)) + (k + 1) * least
    for axis, name in ((0, "column_sums"), (1, "row_sums")):
        out = np.zeros(products.shape[1 - axis], np.float32)
        epilogue = tw.epilogue(f"{name}(sums, acc)", sums=out)
        count, exact = products.shape[axis], products.sum(axis)
        sums = (
            each.sum(axis)
            + growth(count + 1, unit) * (np.abs(products) + each).sum(axis)
            + (count + 1) * least
        )
        bound = rounded_once(exact, sums)
        how = {"accumulate": accumulate, "epilogue": epilogue, "kept": "sums"}
        tried(exact, bound, functools.partial(compare_with, a, b, how))


@pytest.mark.parametrize(("name", "axis"), [("column_sums", 1), ("row_sums", 2), ("column_sums", (0, 1))])
def test_sums_of_a_stack_are_those_of_each_matrix_or_of_all(name: str, axis: Any) -> None:
    """One array of the sums of columns serves a whole stack; its shape says so."""
    a, b = random((3 * 5, 7), 1).reshape(3, 5, 7), random((7, 4), 2)
    products = multiply(a, b)
    each = growth(8, 2.0**-24) * (np.abs(a).astype(float) @ np.abs(b).astype(float)) + 8 * 2.0**-149
    exact = products.sum(axis)
    count = products.size // exact.size
    sizes = (np.abs(products) + each).sum(axis)
    sums = each.sum(axis) + growth(count + 1, 2.0**-24) * sizes + (count + 1) * 2.0**-149
    epilogue = tw.epilogue(f"{name}(sums, acc)", sums=exact.astype(np.float32))
    how = {"accumulate": "float32", "epilogue": epilogue, "kept": "sums"}
    tried(exact, rounded_once(exact, sums), functools.partial(compare_with, a, b, how))


EIGHT = {"float8_e4m3fn": (2.0**-4, 2.0**-10, 448.0), "float8_e5m2": (2.0**-3, 2.0**-17, 57344.0)}


@pytest.mark.parametrize("name", [*EIGHT, "int8"])
@given(value=st.floats(-5, 5), power=st.integers(-20, 20))
@settings(max_examples=40)
def test_results_of_8_bits_are_the_nearest_that_there_are(name: str, value: float, power: int) -> None:
    """Of those beyond the largest, the largest; of exact sums no other passes than the one or two that are nearest."""
    exact = np.array([[value * 2.0**power]])
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    every = np.arange(256, dtype=np.uint8).view(dtype)
    there = every[np.isfinite(every.astype(np.float64))]
    highest = EIGHT[name][2] if name in EIGHT else 127.0
    near = np.clip(exact[0, 0], -highest if name in EIGHT else -128.0, highest)
    order = np.argsort(np.abs(there.astype(np.float64) - near), kind="stable")
    epilogue = tw.epilogue("acc")
    least = abs(float(there[order[0]]) - near)
    for one in (*there[order[:6]], there[order[-1]]):
        passes = compare(
            np.full((1, 1), one), exact, np.ones((1, 1)), accumulate="float64", epilogue=epilogue
        )
        distance = abs(float(one) - near)
        if distance <= least:
            assert passes
        elif name == "int8":
            assert bool(passes) == (distance <= 0.5) or distance == pytest.approx(
                0.5
            )  # sums have errors, too
        else:
            unit, half_step, _ = EIGHT[name]
            share = distance / (unit * abs(near) + half_step)
            assert bool(passes) == (share < 1) or share == pytest.approx(1)
