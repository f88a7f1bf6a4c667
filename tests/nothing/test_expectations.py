"""What the command line expects of an output: a product of two arguments whose shapes fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from tilewise.bench import outputs, unwritten
from tilewise.bench.outputs import Expectation, ExpectedProduct, read_expectation
from tilewise.bench.unwritten import Unwritten, list_unwritten
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
    for tolerances in ((0.0, None), (None, 0.0)):
        with pytest.raises(ArgumentError) as error:
            read_expectation("3=1@2", cast(Any, given), *tolerances)
        said = "--expect has a bound of its own for a product, not '3=1@2'; leave --rtol and --atol out"
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


@pytest.mark.parametrize(
    ("dtype", "expected", "got", "relative", "absolute", "ok"),
    [
        ("uint8", 100, 101, 1.0, 200.0, False), ("int32", 100, 101, 1.0, 200.0, False), ("bool", 1, 0, 1.0, 200.0, False),
        ("uint8", 101, 101, 0.0, 0.0, True), ("float32", 1.0, 1.5, 0.0, 0.5, True), ("float32", 1.0, 1.5, 0.0, 0.4375, False),
        ("float32", 4.0, 5.0, 0.25, 0.0, True), ("float32", 4.0, 5.0, 0.21875, 0.0, False), ("float32", 5.0, 4.0, 0.25, 0.0, True),
        ("float32", -4.0, -5.0, 0.25, 0.0, True), ("float32", 4.0, 5.5, 0.25, 0.5, True), ("float32", 0.0, 0.0, 0.0, 0.0, True),
        ("float32", np.inf, np.inf, 0.0, 0.0, True), ("float32", np.inf, 1.0, 0.5, 0.5, False),
        ("float32", 1.0, np.inf, 0.5, 0.5, False), ("float32", np.inf, -np.inf, 0.5, 0.5, False),
        ("float32", np.nan, np.nan, 0.5, 0.5, False), ("float32", 1.0, np.nan, 0.5, 0.5, False),
    ],
)  # fmt: skip
def test_a_number_is_as_expected_within_a_part_of_what_is_expected(
    dtype: str, expected: float, got: float, relative: float, absolute: float, ok: bool
) -> None:
    """The bound itself is within; integers are equal or not, an infinity and no number are as they are."""
    values = np.array([expected, 1], dtype)
    judged = Expectation(2, "y.npy", values, relative, absolute).judge(np.array([got, 1], dtype), None)
    assert (judged.ok, judged.failures, judged.elements) == (ok, not ok, 2)
    exact = dtype in ("uint8", "int32", "bool")
    rule = "equal" if exact else f"within {absolute:g} + {relative:g}·|expected|"
    held, wanted = np.array([got], dtype)[0], values[0]
    where = f"1 of 2 elements not {rule}; the first at [0]: {held}, expected {wanted}"
    assert judged.message == (f"all 2 elements {rule}" if ok else where)


def test_integers_that_no_double_tells_apart_are_told_apart() -> None:
    expected = Expectation(1, "y.npy", np.array([2**60 + 1]), 0.0, 0.0)
    assert not expected.judge(np.array([2**60]), None).ok


def test_arrays_that_cannot_be_expected_are_refused(tmp_path: Path) -> None:
    """Of another shape, of what is no real number, in a file of another kind, and words of no form."""
    given = cast(Any, [SimpleNamespace(number=1, array=np.ones(3, np.float32), is_new=True, word="new")])
    paths = [str(tmp_path / name) for name in ("short.npy", "complex.npy", "two.npy")]
    np.save(paths[0], np.ones(2))
    np.save(paths[1], np.ones(3, np.complex64))
    with Path(paths[2]).open("wb") as stream:
        np.savez(stream, x=np.ones(3))
    for path, rule in zip(
        paths,
        (
            f"must have the shape (3,) of {given[0]}, not (2,)",
            "must hold real numbers, not dtype('complex64')",
            "must hold one array, as np.save writes it",
        ),
        strict=True,
    ):
        with pytest.raises(ArgumentError) as error:
            read_expectation(path, given, None, None)
        assert str(error.value) == f"--expect {path!r} {rule}"
    with pytest.raises(ArgumentError) as error:
        outputs.split_spec("-o", "")
    assert str(error.value) == "-o must look like FILE.npy or NUMBER=FILE.npy, not ''"
    assert outputs.split_spec("-o", "0=a=b.npy") == (0, "a=b.npy")
    with pytest.raises(ArgumentError) as error:
        outputs.save_output(given[0], str(tmp_path), np.ones(3))
    assert str(error.value) == f"-o {str(tmp_path)!r} cannot be written: Is a directory"


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("bool", "bool"), ("int16", "int16"), ("uint8", "uint8"), ("float64", "float64"), ("float16", "float16"),
     ("bfloat16", "float32"), ("float8_e5m2", "float32"), ("float8_e4m3fn", "float32"), ("complex64", "complex64")],
)  # fmt: skip
def test_what_is_saved_has_a_type_that_numpy_reads(dtype: str, kept: str, tmp_path: Path) -> None:
    values = np.ones((2, 3)).astype(getattr(ml_dtypes, dtype, dtype))
    outputs.save_output(cast(Any, None), str(tmp_path / "y.npy"), values)
    found = np.load(tmp_path / "y.npy")
    assert (found.dtype.name, found.shape) == (kept, (2, 3)) and found.all()


@pytest.mark.parametrize(
    ("name", "relative", "absolute"),
    [
        ("float64", 1e-7, 1e-7), ("float32", 1e-5, 1e-5), ("float16", 1e-3, 1e-5), ("bfloat16", 1.6e-2, 1e-5),
        ("float8_e4m3fn", 0.125, 1e-5), ("float8_e5m2", 0.125, 1e-5),
    ],
)  # fmt: skip
def test_how_near_is_near_enough_follows_from_the_type_unless_it_is_said(
    name: str, relative: float, absolute: float, tmp_path: Path
) -> None:
    np.save(tmp_path / "y.npy", np.ones(3, np.float32))
    array = np.ones(3, np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name))
    given = cast(Any, [SimpleNamespace(number=1, array=array, before=None, is_new=True, word="new")])
    for said_relative, said_absolute in ((None, None), (0.0, None), (None, 0.0), (0.5, 0.25)):
        found = cast(Any, read_expectation(f"1={tmp_path / 'y.npy'}", given, said_relative, said_absolute))
        assert found.relative == (relative if said_relative is None else said_relative)
        assert found.absolute == (absolute if said_absolute is None else said_absolute)


def test_a_product_of_doubles_is_held_to_their_digits() -> None:
    a, b = np.random.default_rng(3).standard_normal((2, 16, 16))
    for dtype, error, ok in (("float64", 0, True), ("float64", 1e-9, False), ("float32", 1e-9, True), ("float32", 1e-3, False)):  # fmt: skip
        got = (a.astype(dtype).astype("float64") @ b.astype(dtype).astype("float64") * (1 + error)).astype(
            dtype
        )
        assert ExpectedProduct(3, "1@2", a.astype(dtype), b.astype(dtype)).judge(got, None).ok == ok, (
            dtype,
            error,
        )


@pytest.mark.parametrize(
    ("kinds", "number", "chosen"),
    [
        ("new old number", None, 1), ("old old", None, None), ("new new", None, None), ("number old", None, 2),
        ("old new old", None, 2), ("old new", 1, 1), ("number new", 1, None), ("new", 2, None), ("number", None, None),
        ("", None, None), ("", 1, None),
    ],
)  # fmt: skip
def test_an_output_without_a_number_is_the_one_new_array_or_the_only_one(
    kinds: str, number: int | None, chosen: int | None
) -> None:
    made = [
        SimpleNamespace(
            number=i, word=kind, array=None if kind == "number" else object(), is_new=kind == "new"
        )
        for i, kind in enumerate(kinds.split(), 1)
    ]
    if chosen is not None:
        assert outputs.find_output("-o", number, cast(Any, made)).number == chosen
        return
    rule = "say which array," if number is None else "name an array"
    arrays = [item for item in made if item.array is not None]
    listed = ", ".join(f"{item.number} for {item.word}" for item in arrays)
    fix = f"{listed}; such as {arrays[-1].number}=…" if arrays else "the launch has none"
    with pytest.raises(ArgumentError) as error:
        outputs.find_output("-o", number, cast(Any, made))
    asked = "" if number is None else f", not {number}"
    assert str(error.value) == f"-o must {rule} by the number of its --arg{asked}; {fix}"


def test_operands_of_an_expected_product_are_matrices_that_are_set() -> None:
    arrays = [np.ones((2, 2)), np.ones(4), None, np.ones((2, 2, 1))]
    made = cast(Any, [SimpleNamespace(number=i, before=array) for i, array in enumerate(arrays, 1)])
    assert outputs._operand("1@2", 1, made).shape == (2, 2)
    for number in (2, 3, 4, 5):
        with pytest.raises(ArgumentError, match=f"argument {number} is no array of two dimensions"):
            outputs._operand("1@2", number, made)


def test_elements_that_are_not_written_are_told_by_their_places() -> None:
    for count, first, last, told in (
        (1, (0, 3), (0, 3), "1 of 9 elements not written of --arg 'new:f32[9]' (number 4), at [0, 3]"),
        (
            2,
            (0, 3),
            (1, 0),
            "2 of 9 elements not written of --arg 'new:f32[9]' (number 4), from [0, 3] to [1, 0]",
        ),
        (9, (0, 0), (2, 2), "no element written of --arg 'new:f32[9]' (number 4)"),
    ):
        assert str(Unwritten(4, "new:f32[9]", count, 9, first, last)) == told
    many = str(Unwritten(1, "y", 1200, 3400, (0,), (9,)))
    assert many == "1,200 of 3,400 elements not written of --arg 'y' (number 1), from [0] to [9]"
    mask = np.zeros((3, 3), np.bool_)
    mask.flat[[2, 3, 7]] = True
    made = cast(Any, [SimpleNamespace(number=n, word=f"w{n}") for n in (1, 2, 3)])
    found = list_unwritten(made, {1: mask, 2: np.zeros(4, np.bool_)})
    assert found == [Unwritten(1, "w1", 3, 9, (0, 2), (2, 1))]


@pytest.mark.parametrize(
    ("dtype", "free"),
    [("float64", 51), ("float32", 22), ("float16", 9), ("bfloat16", 6), ("float8_e4m3fn", 0), ("float8_e5m2", 1), ("int8", 8),
     ("uint16", 16), ("int64", 64)],
)  # fmt: skip
def test_a_pattern_is_a_quiet_nan_below_zero_with_all_other_bits_at_random(dtype: str, free: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    pattern = unwritten._pattern((64, 64), kind, np.random.default_rng(1))
    bits = pattern.view(f"uint{8 * kind.itemsize}").ravel()
    assert pattern.dtype == kind and pattern.shape == (64, 64)
    whole = 2 ** (8 * kind.itemsize) - 1
    assert int(np.bitwise_and.reduce(bits)) == whole - (2**free - 1)
    assert int(np.bitwise_or.reduce(bits)) == whole
