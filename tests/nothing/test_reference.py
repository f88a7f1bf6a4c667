"""The yardstick itself: it passes what is rounded correctly and fails everything else."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.quantize import Quantized
from tilewise.reference import Comparison, _add_up, _judge, compare, multiply, poisoned

TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
every_type = pytest.mark.parametrize("kind", TYPES)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)


def operands(seed: int, m: int, n: int, k: int, dtype: npt.DTypeLike = np.float32) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)


def summed(a: npt.NDArray[Any], b: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A·B with every product and every partial sum rounded to ``dtype``, first to last."""
    left, right = a.astype(dtype), b.astype(dtype)
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for k in range(a.shape[1]):
        total = (total + left[:, k : k + 1] * right[k]).astype(dtype)
    return total


@every_type
@given(seed=seeds, m=sizes, n=sizes, k=st.integers(0, 300))
@settings(max_examples=25, deadline=None)
def test_sums_in_any_type_pass(kind: str, seed: int, m: int, n: int, k: int) -> None:
    dtype = TYPES[kind]
    a, b = operands(seed, m, n, k, dtype)
    assert compare(summed(a, b, dtype), a, b, accumulate=kind)


@every_type
@given(seed=seeds, k=st.integers(1, 100))
@settings(max_examples=25, deadline=None)
def test_the_exact_result_rounded_once_passes(kind: str, seed: int, k: int) -> None:
    a, b = operands(seed, 9, 7, k, TYPES[kind])
    assert compare(multiply(a, b).astype(TYPES[kind]), a, b, accumulate=kind)


def test_each_part_of_complex_numbers_has_its_bound() -> None:
    (a, b), (c, d) = operands(1, 4, 3, 20), operands(2, 4, 3, 20)
    z, w = a + 1j * c, b + 1j * d
    exact = multiply(z, w)
    assert exact.dtype == np.complex128 and compare(exact.astype("complex64"), z, w)
    for part in (1, 1j):
        for wrong in (1e-4, np.nan, np.inf):
            got = exact.copy()
            got[2, 1] += complex(0, wrong) if part == 1j else wrong
            found = compare(got.astype("complex64"), z, w)
            assert not found and found.where == (2, 1) and (found.failures, found.elements) == (1, 24)
    assert not compare(poisoned((4, 3), "complex64"), z, w)
    assert not compare(exact.conj().astype("complex64"), z, w)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_float64_has_its_own_bound_unless_another_is_said(dtype: str) -> None:
    a = np.random.default_rng(1).standard_normal((6, 6)).astype(dtype)
    assert compare(a @ a, a, a).ok and not compare(a @ a + 1e-9, a, a).ok
    assert compare(a @ a + 1e-9, a, a, accumulate="float32").ok
    narrow = {"float64": np.float32, "complex128": np.complex64}[dtype]
    assert compare(
        a.astype(narrow) @ a.astype(narrow), a, a, terms=6
    ).ok  # of which nobody says what summed it


@pytest.mark.parametrize("left", [True, False])
def test_one_complex_operand_makes_a_complex_product(left: bool) -> None:
    (a, b), (c, d) = operands(1, 4, 3, 20), operands(2, 4, 3, 20)
    z, w = (a + 1j * c, b) if left else (a, b + 1j * d)
    got = multiply(z, w).astype("complex64")
    assert compare(got, z, w)
    got[2, 1] += 1e-3j
    found = compare(got, z, w)
    assert (found.ok, found.where, found.failures) == (False, (2, 1), 1)


@pytest.mark.parametrize("of_columns", [True, False])
def test_complex_stacks_and_an_epilogues_arrays_are_taken_apart_too(of_columns: bool) -> None:
    (a, b), (c, d) = operands(1, 8, 3, 20), operands(2, 8, 3, 20)
    z, w = (a + 1j * c).reshape(2, 4, 20), np.stack([b + 1j * d, b - 2j * d])
    added = (b + 1j * d)[:1] if of_columns else (a + 1j * c).reshape(2, 4, 20)[..., :1]
    epilogue = tw.epilogue("acc * 2 + x", x=added)
    got = (multiply(z, w) * 2 + added).astype("complex64")
    assert compare(got, z, w, epilogue=epilogue)
    assert not compare(multiply(z, w).astype("complex64"), z, w, epilogue=epilogue)
    got[1, 3, 0] += 1e-3j
    found = compare(got, z, w, epilogue=epilogue)
    assert (found.where, found.failures, found.elements) == ((1, 3, 0), 1, 48)


def test_products_of_integers_are_in_the_order_of_the_operands() -> None:
    a, b = np.array([[1, 2], [3, 4], [5, 6]], np.int8), np.array([[1, -1], [7, 2]], np.int8)
    assert compare(a.astype(np.int32) @ b, a, b) and compare(a.astype(np.int32) @ b, a.astype(np.uint8), b)
    assert compare(b.astype(np.int32) @ b @ b, b @ b, b) and not compare(
        (a[:2].astype(np.int32) @ b).T, a[:2], b
    )


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_result_of_another_shape_is_refused(dtype: str) -> None:
    a, b = np.ones((4, 2), dtype), np.ones((2, 3), dtype)
    with pytest.raises(ArgumentError) as caught:
        compare(np.full((3, 4), 2, dtype), a, b)
    assert str(caught.value) == "result must have the shape (4, 3), not (3, 4)"


# -- the bound, computed a second time ------------------------------------------------------------
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


def bound_of(row: Any, column: Any, terms: int, accumulate: str, result: str) -> float:
    """What is allowed of one element, from its row of A and its column of B."""
    pairs = [(float(x), float(y)) for x, y in zip(row, column, strict=True)]
    steps, unit = len(pairs) + terms, UNIT[accumulate]
    size = math.fsum(abs(x * y) for x, y in pairs)
    if accumulate in ("float16", "bfloat16") and steps > 64:
        walk = 4 * math.sqrt(math.fsum((x * y) ** 2 for x, y in pairs))
        size = min(size, walk + abs(math.fsum(x * y for x, y in pairs)))
    roundings = (steps + 1) * unit
    growth = roundings / (1 - roundings) if roundings < 1 else math.inf
    if steps + 1 > 64:
        growth = min(growth, 7 * math.sqrt(steps + 1) * unit)
    sums = growth * size + (steps + 1) * LEAST[accumulate]
    exact = math.fsum(x * y for x, y in pairs)
    return sums + UNIT[result] * (abs(exact) + sums) + LEAST[result]


def bounds_of(a: Any, b: Any, terms: int, accumulate: str, result: str) -> npt.NDArray[np.float64]:
    return np.array([[bound_of(row, column, terms, accumulate, result) for column in b.T] for row in a])


@pytest.mark.parametrize("accumulate", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("k", "terms"), [(1, 0), (5, 2), (62, 0), (63, 0), (64, 0), (65, 0), (40, 30), (700, 1)]
)
@pytest.mark.parametrize("scale", [1.0, 2.0**-74, 0.0])
def test_an_error_just_below_the_bound_passes_and_one_just_above_it_fails(
    accumulate: str, k: int, terms: int, scale: float
) -> None:
    a, b = operands(k, 5, 4, k)
    a, b = a * np.float32(scale), b * np.float32(scale)
    exact, signs = multiply(a, b), np.where(np.arange(20) % 3, 1, -1).reshape(5, 4)
    bound = bounds_of(a, b, terms, accumulate, "float64")
    for share in (0.99, 1.01):
        verdict = compare(exact + share * bound * signs, a, b, accumulate=accumulate, terms=terms)
        assert (verdict.ok, verdict.failures) == ((True, 0) if share < 1 else (False, 20))
        assert verdict.worst == pytest.approx(share, rel=1e-6)


@every_type
@pytest.mark.parametrize("accumulate", TYPES)
def test_the_share_of_the_bound_is_what_it_is_by_hand(kind: str, accumulate: str) -> None:
    """Results of every type: the last rounding, and the sums' errors that it grows by."""
    for k in (3, 40, 80, 600):
        a, b = operands(k, 6, 5, k)
        exact, bound = multiply(a, b), bounds_of(a, b, 0, accumulate, kind)
        got = (exact + np.linspace(-3, 3, 30).reshape(6, 5) * bound).astype(TYPES[kind])
        shares = np.abs(got.astype(np.float64) - exact) / bound
        verdict = compare(got, a, b, accumulate=accumulate)
        at = verdict.where
        assert at is not None and verdict.worst == pytest.approx(shares.max(), rel=1e-6)
        assert shares[at] == shares.max() and (verdict.got, verdict.expected) == (got[at], exact[at])
        assert (verdict.failures, verdict.elements) == (int(np.count_nonzero(shares >= 1)), 30)


@pytest.mark.parametrize("k", [5, 300])
def test_sums_in_float16_have_their_own_bound_and_the_result_another(k: int) -> None:
    """That of the sums as with accumulate, but one rounding to float32; infinity only where sums may overflow."""
    a, b = operands(k, 5, 4, k, np.float16)
    exact, bound = multiply(a, b), bounds_of(a, b, 0, "float16", "float32")
    for share in (0.99, 1.01):
        assert bool(compare(exact + share * bound, a, b, arithmetic="f16")) == (share < 1)
    assert not compare(np.full((5, 4), np.inf), a, b, arithmetic="f16")
    large, eights = np.full((5, k), 2.0**15, np.float16), np.full((k, 4), 8, np.float16)
    for value, ok in ((np.inf, True), (-np.inf, False), (np.nan, False)):
        assert bool(compare(np.full((5, 4), value, np.float32), large, eights, arithmetic="f16")) == ok
    beyond = np.full((1, 1), 65520.0, np.float32)  # sums just beyond the largest float16: any number is right
    for factor, ok in ((1.0, True), (0.25, False)):
        one, other = np.full((1, 1), 256 * factor, np.float16), np.full((1, 1), 256, np.float16)
        assert bool(compare(beyond / 2, one, other, arithmetic="f16")) == ok


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])  # operands cannot tell float64's
@pytest.mark.parametrize("result", [0.0, 1.0, -3.0, 0.375])
def test_one_rounding_to_the_results_type_is_allowed_and_no_more(kind: str, result: float) -> None:
    got = np.array([[result]], TYPES[kind])
    for share in (0.99, 1.01):
        away = share * (UNIT[kind] * abs(result) + LEAST[kind]) / (1 - share * UNIT[kind])
        exact = np.array([[result + (away if result >= 0 else -away)]])
        assert bool(compare(got, exact, np.ones((1, 1)), accumulate="float64")) == (share < 1)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_only_a_sum_within_its_bound_of_the_range_may_be_infinite(kind: str) -> None:
    finfo: Any = ml_dtypes.finfo  # it has no types
    largest = float(finfo(TYPES[kind]).max)
    got, one = np.full((1, 1), np.inf, TYPES[kind]), np.ones((1, 1))
    for share, ok in ((0.99, True), (1.01, False)):
        exact = np.array([[largest * (1 - share * UNIT[kind])]])
        assert bool(compare(got, exact, one, accumulate="float64")) == ok
        assert bool(compare(-got, -exact, one, accumulate="float64")) == ok
        assert not compare(-got, exact, one, accumulate="float64")


def test_the_reference_is_exact_where_float64_can_be() -> None:
    a, b = operands(5, 4, 3, 20)
    exact = [
        [sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row, col, strict=True)) for col in b.T]
        for row in a
    ]
    got = multiply(a, b)
    assert all(
        abs(Fraction(got[i, j]) - exact[i][j]) < Fraction(1, 10**13) for i in range(4) for j in range(3)
    )


@given(seed=seeds, m=sizes, n=sizes, k=st.integers(1, 200), data=st.data())
@settings(max_examples=50, deadline=None)
def test_one_element_that_was_not_written_fails(
    seed: int, m: int, n: int, k: int, data: st.DataObject
) -> None:
    a, b = operands(seed, m, n, k)
    result = multiply(a, b).astype(np.float32)
    where = (data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1)))
    result[where] = poisoned((1,), np.float32)[0]
    verdict = compare(result, a, b)
    assert not verdict
    assert (verdict.failures, verdict.where) == (1, where)
    assert "1 of" in str(verdict)
    assert "nan" in str(verdict)


@given(seed=seeds, m=st.integers(1, 40), tile=st.sampled_from([8, 16, 32]), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_dropped_tile_of_k_fails(seed: int, m: int, tile: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["float64", "float32", "float16"]))
    # NOTE: the bound for long sums in float16 is as wide as what a dropped tile changes.
    steps = data.draw(st.integers(1, 2 if kind == "float16" else 8))
    a, b = operands(seed, 16 + m, 16 + m, tile * steps, TYPES[kind])
    step = data.draw(st.integers(0, steps - 1)) * tile
    short = a.copy()
    short[:, step : step + tile] = 0
    assert not compare(summed(short, b, TYPES[kind]), a, b, accumulate=kind)


@given(seed=seeds, m=st.integers(2, 40), k=st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_a_transposed_result_fails(seed: int, m: int, k: int) -> None:
    a, b = operands(seed, m, m, k)
    assert not compare(multiply(a, b).T.astype(np.float32), a, b)


@pytest.mark.parametrize(
    ("promised", "kept"), [("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16")]
)
def test_sums_kept_in_a_shorter_type_than_promised_fail(promised: str, kept: str) -> None:
    a, b = operands(7, 32, 32, 500, TYPES[kept])
    result = summed(a, b, TYPES[kept]).astype(TYPES[promised])
    assert compare(result, a, b, accumulate=kept)
    assert not compare(result, a, b, accumulate=promised)


@given(seed=seeds, special=st.sampled_from([np.inf, -np.inf, np.nan]), data=st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_not_finite_must_be_the_same(seed: int, special: float, data: st.DataObject) -> None:
    a, b = operands(seed, 6, 5, 4)
    a[data.draw(st.integers(0, 5)), data.draw(st.integers(0, 3))] = special
    good = multiply(a, b).astype(np.float32)
    assert compare(good, a, b)
    at = tuple(np.argwhere(~np.isfinite(good))[0])
    for wrong in (np.inf, -np.inf, np.nan, 1.0):
        changed = good.copy()
        changed[at] = wrong
        assert bool(compare(changed, a, b)) == np.array_equal(changed, good, equal_nan=True)


def test_integers_of_8_bits_are_exact_where_the_sum_is_not_finite() -> None:
    a, b = np.array([[np.inf], [np.nan], [-np.inf]], np.float32), np.ones((1, 1), np.float32)
    good = np.array([[127], [0], [-128]], np.int8)
    assert compare(good, a, b)
    for row, wrong in ((0, 126), (1, 1), (1, -1), (2, -127)):
        changed = good.copy()
        changed[row] = wrong
        found = compare(changed, a, b)
        assert (found.ok, found.where, found.failures) == (False, (row, 0), 1)


@pytest.mark.parametrize(
    ("kind", "unit", "least", "most"),
    [
        (np.dtype(np.int8), 0.0, 1.0, 127.0),
        (
            np.dtype(ml_dtypes.float8_e4m3fn),
            2.0**-4,
            2.0**-9,
            448.0,
        ),  # 3 bits behind the point, exponents from -6 to 8
        (np.dtype(ml_dtypes.float8_e5m2), 2.0**-3, 2.0**-16, 57344.0),  # 2 bits, exponents from -14 to 15
    ],
)
def test_results_of_8_bits_may_be_off_by_half_of_a_step_and_end_with_the_largest(
    kind: np.dtype[Any], unit: float, least: float, most: float
) -> None:
    """Of what lies near 0 half of the least step, and the roundoff's share beside that."""
    one = np.ones((1, 1), np.float64)
    for steps in (0.25, 0.49, 0.52, 0.75, 1.25):  # by which a sum is beyond the number that it became
        for number in (0.0, least, -3 * least):
            expected = (abs(number) + steps * least) * (-1 if number < 0 else 1)
            within = steps * least < least / 2 + unit * abs(expected)
            got = np.full((1, 1), number).astype(kind)
            assert compare(got, expected * one, one, accumulate="float64").ok == within
    for sign, end in ((1, most), (-1, -128.0 if kind == np.int8 else -most)):
        largest = np.full((1, 1), end).astype(kind)
        below = np.full((1, 1), end - sign * (1 if kind == np.int8 else 2 * unit * most)).astype(kind)
        for far in (1.0, 2.0, 1e30):
            assert compare(largest, far * end * one, one, accumulate="float64")
        assert below != largest and not compare(below, 2 * end * one, one, accumulate="float64")


def test_an_infinity_where_the_reference_has_none_fails() -> None:
    a, b = operands(11, 8, 8, 8)
    for special in (np.inf, np.nan):
        result = multiply(a, b).astype(np.float32)
        result[3, 4] = special
        verdict = compare(result, a, b)
        assert (verdict.ok, verdict.where, verdict.worst) == (False, (3, 4), np.inf)


def test_a_sum_beyond_the_types_range_may_be_infinite() -> None:
    a, b = np.full((2, 16), 200, np.float16), np.full((16, 2), 200, np.float16)
    with np.errstate(over="ignore"):
        result = multiply(a, b).astype(np.float16)
    assert np.isinf(result).all()
    assert compare(result, a, b)
    assert not compare(-result, a, b)


def test_what_overflowed_in_float16_may_be_any_integer_of_8_bits() -> None:
    """Nothing is known of it: an infinite error, of which integers add no share."""
    a, b = np.array([[300, -300]], np.float16), np.full((2, 1), 300, np.float16)
    for got in (-128, 0, 5, 127):
        assert compare(np.full((1, 1), got, np.int8), a, b, arithmetic="f16")
        assert bool(compare(np.full((1, 1), got, np.int8), a, b)) == (got == 0)


def test_integers_are_poisoned_too() -> None:
    for kind in (np.int32, np.int8, np.uint8):
        assert (poisoned((3, 2), kind) == np.iinfo(kind).min).all()
    assert np.isnan(poisoned((3, 2), ml_dtypes.bfloat16).astype(np.float32)).all()


def test_nothing_to_compare_passes() -> None:
    nothing = compare(
        np.empty((0, 4), np.float32), np.empty((0, 3), np.float32), np.empty((3, 4), np.float32)
    )
    assert nothing == Comparison(True, 0.0, None, None, None, 0, 0)
    no_terms = np.empty((2, 0), np.float32), np.empty((0, 3), np.float32)
    assert compare(np.zeros((2, 3), np.float32), *no_terms)
    assert not compare(np.ones((2, 3), np.float32), *no_terms)


@pytest.mark.parametrize("which", ["", "a", "b", "ab"])
def test_each_operand_with_scales_is_allowed_two_roundings_more(which: str) -> None:
    half = np.full((1, 1), 0.5, np.float32)
    pairs = list(zip("ab", operands(3, 5, 4, 7, np.float16), strict=True))
    given = [Quantized(one, half) if name in which else one for name, one in pairs]
    a, b = (one * half if name in which else one for name, one in pairs)
    bound = bounds_of(a, b, 2 * len(which), "float32", "float64")
    for share in (0.99, 1.01):
        assert bool(compare(multiply(a, b) + share * bound, *given)) == (share < 1)


@pytest.mark.parametrize("scaled", [False, True])
def test_products_that_tensor_cores_drop_are_allowed_of_8_bits_alone(scaled: bool) -> None:
    """What lies 14 places below the largest product is gone, of numbers with scales too."""
    small = np.full((1, 32), 2.0**-7)
    small[0, 0] = 1
    for kind, allowed in ((ml_dtypes.float8_e4m3fn, True), (np.float16, False)):
        a, b = small.astype(kind), small.T.astype(kind)
        one = np.ones((1, 1), np.float32)
        given = (Quantized(a, 4 * one), Quantized(b, one)) if scaled else (a, b)
        assert bool(compare(4 * one if scaled else one, *given)) == allowed


def test_an_error_of_exactly_the_bound_fails() -> None:
    bound, expected = np.full(3, 0.5), np.zeros(3)
    found = _judge(np.array([0.5, -0.25, np.nextafter(0.5, 0)]), expected, bound, math.inf)
    assert (found.ok, found.failures, found.where) == (False, 1, (0,))


def test_tiny_operands_may_be_rounded_to_nothing_in_tf32() -> None:
    """2⁻¹³⁷ lies midway between 0 and the least number of tf32."""
    large, got = np.full((1, 1), 2.0**60, np.float32), np.zeros((1, 1), np.float32)
    for exponent, passes in ((-137, True), (-135, False)):
        tiny = np.full((1, 1), 2.0**exponent, np.float32)
        for a, b in ((tiny, large), (large, tiny)):
            assert compare(got, a, b, arithmetic="tf32").ok == passes


@pytest.mark.parametrize("terms", [1, 3, 63, 64, 1000])
def test_sums_of_columns_may_be_off_by_the_errors_of_their_terms_and_a_rounding_of_each(terms: int) -> None:
    """As of a product with as many terms; in whole matrices, and of values whose type is coarse near 0."""
    values, errors = np.full((2, terms, 3), -1.5), np.full((2, terms, 3), 0.25)
    for axes, count in (((-2,), terms), ((0, 1), 2 * terms), ((-1,), 3)):
        for unit, least in ((2.0**-24, 2.0**-149), (2.0**-11, 2.0**-24), (0.0, 0.5)):
            total, bound = _add_up(values, errors, axes, (unit, least))
            steps = count + 1
            growth = 7 * math.sqrt(steps) if steps > 64 else steps / (1 - steps * unit)
            assert (total == -1.5 * count).all()
            assert bound == pytest.approx(
                0.25 * count + growth * unit * 1.75 * count + steps * least, rel=1e-12
            )
