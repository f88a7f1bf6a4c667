"""Expressions of epilogues: what is read, what is refused and where, and what they come to."""

from __future__ import annotations

import cmath
import contextlib
import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.error_bounds import BoundedArithmetic
from tilewise.errors import ArgumentError
from tilewise.expression import ACTIVATIONS, FUNCTIONS, parse

FLOAT32 = BoundedArithmetic(2.0**-24, 2.0**-149)


def conditions(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    compared = st.builds(
        "({} {} {})".format, values, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), values
    )
    return compared | st.builds("({} {} {})".format, compared, st.sampled_from(["and", "or"]), compared)


def combined(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, values, st.sampled_from("+-*"), values),
        st.builds("(-{})".format, values),
        st.builds("({})**{}".format, values, st.integers(0, 4)),
        st.builds("({} if {} else {})".format, values, conditions(values), values),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), values, values),
        st.builds("abs({})".format, values),
    )


leaves = st.sampled_from(["acc", "x", "y", "0.5", "2", "1e-3"])
expressions = st.recursive(leaves, combined, max_leaves=12)


@given(expressions, st.tuples(*[st.integers(-4, 4)] * 3))
@settings(max_examples=300, deadline=None)
def test_an_expression_means_what_it_means_in_python(text: str, given: tuple[int, int, int]) -> None:
    """With operands as exact as these nothing is uncertain but what rounding adds, and Python says what comes out."""
    names = dict(zip(("acc", "x", "y"), map(float, given), strict=True))
    found = parse(text).evaluate(FLOAT32, {name: FLOAT32.array(value) for name, value in names.items()})
    wanted = eval(
        text, {"__builtins__": {"min": min, "max": max, "abs": abs}}, names
    )  # the strategy wrote it
    close = math.isclose(float(found.value), wanted, rel_tol=1e-9, abs_tol=1e-12)
    assert close or abs(float(found.value) - wanted) <= float(found.error)


@given(expressions, st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_the_bound_holds_for_float32(text: str, seed: int) -> None:
    """The same in float32, step by step, on operands with errors: never outside the bound."""
    random = np.random.default_rng(seed)
    exact = {name: random.standard_normal(200) for name in ("acc", "x", "y")}
    rough = {
        name: (value * (1 + random.uniform(-1, 1, 200) * 1e-5)).astype(np.float32)
        for name, value in exact.items()
    }
    bounds = {
        name: FLOAT32.array(value)._replace(error=np.abs(value - rough[name]) + 1e-30)
        for name, value in exact.items()
    }
    with np.errstate(all="ignore"):
        found = parse(text).evaluate(FLOAT32, bounds)
        computed = parse(text).evaluate(InFloat32(), rough)
    inside = np.abs(computed - found.value) <= found.error
    assert np.all(inside | ~np.isfinite(found.value)), text


class InFloat32:
    """Every operation in float32."""

    add, subtract, multiply, negate = operator.add, operator.sub, operator.mul, operator.neg
    both, either, invert = np.logical_and, np.logical_or, np.logical_not

    def number(self, value: float) -> Any:
        return np.float32(value)

    def power(self, a: Any, power: int) -> Any:
        return np.prod([a] * power, axis=0, dtype=np.float32) if power else np.ones_like(a)

    def compare(self, sign: str, a: Any, b: Any) -> Any:
        return {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}.get(
            sign, np.equal if sign == "==" else np.not_equal
        )(a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def call(self, function: str, *given: Any) -> Any:
        return {"min": np.minimum, "max": np.maximum, "abs": np.abs}[function](*given)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_derivative_is_the_slope_of_its_function(name: str) -> None:
    """Which also holds the slopes that bounds are made of."""
    x, step = np.linspace(-6, 6, 4001) + 1e-4, 1e-6
    function, derivative = parse(f"{name}(acc)"), parse(f"{name}_grad(acc)")

    def at(expression: Any, where: Any, error: float = 0.0) -> Any:
        return expression.evaluate(
            FLOAT32, {"acc": FLOAT32.array(where)._replace(error=np.full(x.shape, error))}
        )

    slope = (at(function, x + step).value - at(function, x - step).value) / (2 * step)
    assert np.allclose(at(derivative, x).value, slope, atol=1e-7)
    for expression in (function, derivative):
        near = at(expression, x, 1e-3)
        moved = np.abs(at(expression, x + 1e-3).value - near.value)
        assert np.all(moved <= near.error * (1 + 1e-9) + 1e-15)


def test_functions_are_those_of_the_header() -> None:
    from tilewise.toolchain.compile import own_headers

    header = own_headers()["tilewise/activation.cuh"]
    for name in FUNCTIONS:
        assert name == "where" or f" {name}(T " in header, name


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("acc +", "cannot be read here", None),
        ("max(acc, nothing(acc))", "calls nothing, which is not known", 9),
        ("relu(acc, 1)", "has 2 arguments; relu takes 1", 0),
        ("relu(x=acc)", "takes its arguments by place", 0),
        ("1 + relu(acc, slope=2)", "takes its arguments by place", 4),
        ("keep(p, value=acc)", "takes its arguments by place", 0),
        ("max(*acc)", "takes its arguments by place", 0),
        ("1 + (acc > 0)", "is a condition, where a number has to be", 5),
        ("acc if 1 else 2", "must be a condition", 7),
        ("acc ** 0.5", "must have a whole power from 0 to 8", 0),
        ("acc + x.real", "is nothing that an epilogue can do", 6),
        ("acc + x[0]", "is nothing that an epilogue can do", 6),
        ("keep(3, acc)", "must be keep(name, value)", 0),
        ("keep(p, acc) + keep(p, 1)", "keeps p a second time", 15),
        ("scaled(acc, p)", "must be scaled(acc, a, b): names of arrays of scales, or 1", 0),
        ("scaled(acc, p, q, r)", "must be scaled(acc, a, b): names of arrays of scales, or 1", 0),
        ("2 * scaled(p, q, r)", "must be scaled(acc, a, b): names of arrays of scales, or 1", 4),
        ("scaled(acc, é, 1)", "must be scaled(acc, a, b): names of arrays of scales, or 1", 0),
        ("scaled(acc, 1, 1)", "must have scales of a or of b, by names of their own", 0),
        ("2 * scaled(acc, p, p)", "must have scales of a or of b, by names of their own", 4),
        ("scaled(acc, p, q) + scaled(acc, p, r)", "must have the same scales everywhere", 20),
        ("scaled(acc, p, q) + scaled(acc, r, q)", "must have the same scales everywhere", 20),
        ("scaled(acc, p, 1) + scaled(acc, p, q)", "must have the same scales everywhere", 20),
        ("scaled(acc, p, q) * p", "has p, the scales of terms, in another place", 20),
        ("scaled(acc, p, q) * q", "has q, the scales of terms, in another place", 20),
        ("scaled(acc, p, q) - acc", "must be scaled(acc, …) everywhere", 20),
        ("acc + column_sums(p)", "must be column_sums(name, value): the name of an array", 6),
        ("row_sums(p, column_sums(p, acc))", "adds up into p a second time", 12),
        ("keep(p, column_sums(p, acc))", "adds up into p a second time", 8),
        ("p * row_sums(p, acc)", "adds up into p, which is read too", 4),
        ("acc * True", "is a condition", 6),
        ("acc * é", "has a name that CUDA C++ cannot have", 6),
        ("keep(é, acc)", "has a name that CUDA C++ cannot have", 5),
        ("'é' if nothing(acc) > 0 else 1", "calls nothing, which is not known", 7),
        ("acc * 1e999", "is too large a number", 6),
        ("relu", "is a function: write relu(…)", 0),
        ("0 < acc < 1 and acc", "is a condition, where a number has to be", 0),
        ("where(0 < acc < 1, 1, 2)", "must compare two numbers", 6),
        ("+" * 200 + "acc", "is nested more than 100 deep", None),
        ("(" * 900 + "acc" + ")" * 900, "cannot be read here", None),
        ("acc" + " + acc" * 999, "must have at most 2,000 characters", None),
        ("", "cannot be read here", None),
        ("acc; acc", "cannot be read here", None),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, what: str, column: int | None) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"epilogue {what}"), message
    if column is not None:
        *_, shown, caret = message.splitlines()
        assert shown == f"  {text}" and caret == " " * (column + 2) + "^"


@pytest.mark.parametrize("wrong", ["acc[0] + é", "x acc"])
def test_blanks_around_an_expression_are_no_part_of_it(wrong: str) -> None:
    assert parse("  acc + x ").text == "acc + x"
    messages = []
    for text in (wrong, f"  {wrong} "):
        with pytest.raises(ArgumentError) as caught:
            parse(text)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "place",
    [
        "{} + acc", "acc - {}", "{} * acc", "acc / {}", "{} ** 2 + acc", "-{} + acc", "+{} + acc", "relu({}) + acc",
        "max({}, acc)", "min(acc, {})", "{} if acc > 1 else 2", "acc if acc > 1 else {}", "acc if {} > 1 else 2",
        "acc if 1 < {} else 2", "acc if acc > 0 and {} > 0 else 1", "acc if {} > 0 or acc > 0 else 1",
        "acc if not {} > 0 else 1", "where({} > 0, acc, 1)", "where(acc > 0, {}, 1)", "where(acc > 0, 1, {})",
        "keep(k, acc * {})", "column_sums(s, {} + acc)", "row_sums(s, acc) + {}",
    ],
)  # fmt: skip
def test_every_place_of_an_expression_is_looked_into(place: str) -> None:
    """For the names that a call has to give, what is wrong, and how deep it is nested."""
    assert parse(place.format("x")).names == ("x",)
    assert parse(place.format("acc")).names == ()
    assert parse(place.format("(" + " + ".join(["y"] * 20) + ")")).names == ("y",)
    for wrong, what in (
        ("nothing(acc)", "calls nothing"),
        ("1e999", "is too large"),
        ("acc[0]", "is nothing that"),
    ):
        with pytest.raises(ArgumentError, match=f"^epilogue {what}"):
            parse(place.format(wrong))
    with pytest.raises(ArgumentError, match="nested more than 100 deep"):
        parse(place.format("(" + "+" * 101 + "acc)"))


@given(st.integers(-2, 12))
def test_powers_are_those_from_0_to_8(power: int) -> None:
    text = f"acc ** {power}"
    if 0 <= power <= 8:
        assert parse(text).evaluate(FLOAT32, {"acc": FLOAT32.array(3.0)}).value == 3.0**power
    else:
        with pytest.raises(ArgumentError, match="must have a whole power from 0 to 8"):
            parse(text)


@pytest.mark.parametrize("inner", ["({} > 0)", "(0 > {})"])
def test_both_sides_of_a_comparison_are_a_level_deeper(inner: str) -> None:
    def nest(levels: int) -> str:
        text = "acc"
        for _ in range(levels // 2):
            text = f"(1 if {inner.format(text)} else 0)"
        return text

    assert parse(nest(100)).names == ()
    with pytest.raises(ArgumentError, match="nested more than 100 deep"):
        parse(nest(102))


@pytest.mark.parametrize("wrap", ["not {}", "({} and 1 > 0)", "(0 > 1 or {})"])
def test_a_condition_that_is_nested_too_deep_is_called_that(wrap: str) -> None:
    """Where it stands: the condition of a choice is a level below, and the sides of a comparison two below it."""

    def choice(levels: int) -> str:
        text = "acc > 0"
        for _ in range(levels):
            text = wrap.format(text)
        return f"1 if {text} else 0"

    assert parse(choice(98)).names == ()
    for levels in (99, 100, 101, 150):
        with pytest.raises(ArgumentError, match="is nested more than 100 deep"):
            parse(choice(levels))


def linear(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, values, st.sampled_from("+-*/"), values),
        st.builds("({}{})".format, st.sampled_from("+-"), values),
        st.builds("({})**{}".format, values, st.integers(0, 3)),
    )


@given(
    st.recursive(st.sampled_from(["acc", "x", "s", "2"]), linear, max_leaves=7),
    st.tuples(*[st.builds(complex, st.integers(-9, 9), st.integers(-9, 9))] * 2),
)
@settings(max_examples=300)
def test_what_is_called_linear_is_done_to_each_part(text: str, values: tuple[complex, complex]) -> None:
    """Of complex numbers: to the real parts and to the imaginary ones, as if they were numbers of their own."""
    if not parse(text).is_linear(["s"]):
        return

    def at(acc: complex, x: complex) -> complex:
        return complex(eval(text, {"__builtins__": {}}, {"acc": acc, "x": x, "s": 4.0}))

    with contextlib.suppress(ZeroDivisionError, OverflowError):
        whole = at(*values)
        apart = complex(*(at(*(getattr(value, part) for value in values)).real for part in ("real", "imag")))
        assert whole == pytest.approx(apart, rel=1e-12) or not cmath.isfinite(whole)


@pytest.mark.parametrize(
    ("text", "is_linear"),
    [
        *(("acc", True), ("-acc", True), ("acc + x", True), ("s * acc - 2 * x", True), ("acc * s * 2", True)),
        *(
            ("acc / s", True),
            ("(acc - x) / 2", True),
            ("acc * (s / 2) ** 2 / s", True),
            ("s ** 2 * acc", True),
        ),
        *(
            ("acc * x", False),
            ("s / acc", False),
            ("acc / x", False),
            ("acc ** 2", False),
            ("acc + s", False),
        ),
        *(
            ("acc + 1", False),
            ("relu(acc)", False),
            ("acc if acc > x else x", False),
            ("acc / (x * s)", False),
        ),
    ],
)
def test_what_is_linear(text: str, is_linear: bool) -> None:
    assert parse(text).is_linear(["s"]) == is_linear
