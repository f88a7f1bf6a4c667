"""What the command line expects of an output: a product of two arguments whose shapes fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewise.bench import outputs
from tilewise.bench.outputs import Expectation, ExpectedProduct, read_expectation
from tilewise.errors import ArgumentError


@pytest.mark.parametrize(
    ("a", "b", "c", "fits"),
    [
        ((3, 5), (5, 4), (3, 4), True), ((3, 5), (6, 4), (3, 4), False), ((3, 5), (5, 4), (4, 3), False),
        ((3, 5), (5, 4), (3, 5), False), ((2, 5), (5, 4), (3, 4), False), ((2, 5), (6, 4), (3, 4), False),
    ],
)  # fmt: skip
def test_a_product_that_is_expected_has_the_shape_of_its_output(
    a: Any, b: Any, c: Any, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        SimpleNamespace(number=i, array=np.ones(shape), before=np.ones(shape))
        for i, shape in enumerate((a, b, c), 1)
    ]
    monkeypatch.setattr(outputs, "find_output", lambda _option, number, made: made[number - 1])
    if fits:
        found = cast(Any, read_expectation("3=1@2", cast(Any, given), None, None))
        assert (found.a.shape, found.b.shape) == (a, b)
        return
    with pytest.raises(ArgumentError) as error:
        read_expectation("3=1@2", cast(Any, given), None, None)
    said = f"--expect must be a product whose shapes fit, not '{a} @ {b} for an output of shape {c}'"
    assert str(error.value) == said


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float32", "float16"])
def test_what_is_not_written_is_wrong_even_if_it_is_what_was_expected(dtype: str) -> None:
    values = np.ones((2, 3), dtype)
    unwritten = np.zeros((2, 3), np.bool_)
    expected = Expectation(1, "y.npy", values, 1e-3, 1e-3)
    assert expected.judge(values.copy(), None).ok and expected.judge(values.copy(), unwritten).ok
    unwritten[1, ::2] = True
    found = expected.judge(values.copy(), unwritten)
    assert (found.ok, found.failures, found.elements) == (False, 2, 6)
    assert "the first at [1, 0]: not written, expected" in found.message


def test_a_product_that_is_not_written_is_wrong_even_if_memory_held_it() -> None:
    ones = np.ones((3, 3), np.float32)
    unwritten = np.zeros((3, 3), np.bool_)
    expected = ExpectedProduct(3, "1@2", ones, ones)
    assert expected.judge(ones * 3, unwritten).ok
    unwritten[2, 1] = True
    found = expected.judge(ones * 3, unwritten)
    assert (found.ok, found.failures) == (False, 1) and "(2, 1)" in found.message
