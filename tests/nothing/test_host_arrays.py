"""Which host arrays a product is written into as it is made, and which by way of memory of its own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tilewise.calls import Choice
from tilewise.host_arrays import needs_own_memory
from tilewise.interop.view import HOST, View
from tilewise.kernels import KERNELS

EIGHT_BITS = {"float8_e4m3fn", "float8_e5m2", "int8"}
REAL = {"float64", "float32", "float16", "bfloat16", "int32", "int64"} | EIGHT_BITS
RUNG = Choice(specs=(KERNELS["04_tiled"],))  # which makes no results of 8 bits


def result(
    dtype: str, shape: tuple[int, ...] = (4, 5), strides: tuple[int, ...] = (5, 1), space: Any = HOST
) -> View:
    return View(4096, shape, strides, dtype, space, cast("Any", None), None)


def written_as_made(multiplied: str, choice: Choice, **lies: Any) -> set[str]:
    return {dtype for dtype in REAL if not needs_own_memory(result(dtype, **lies), multiplied, choice)}


@pytest.mark.parametrize(
    ("multiplied", "made"),
    [
        ("float64", {"float64"}),
        ("float32", {"float32", *EIGHT_BITS}),
        ("float16", {"float32", "float16", *EIGHT_BITS}),
        ("bfloat16", {"float32", "bfloat16", *EIGHT_BITS}),
        ("float8_e4m3fn", {"float32", "float16", "bfloat16", *EIGHT_BITS}),
        ("float8_e5m2", {"float32", "float16", "bfloat16", *EIGHT_BITS}),
        ("int8", {"int32"}),
        ("int32", {"int32"}),
        ("int64", {"int64"}),
    ],
)
def test_kernels_make_some_results_of_each_type_and_others_are_cast(multiplied: str, made: set[str]) -> None:
    assert written_as_made(multiplied, Choice()) == made
    assert written_as_made(multiplied, RUNG) == made - EIGHT_BITS
    assert written_as_made(multiplied, Choice(specs=(KERNELS["general"],))) == made
    assert written_as_made(multiplied, Choice(specs=(KERNELS["general"], KERNELS["04_tiled"]))) == made
    for choice in (Choice(settings=(("result", "float16"),)), RUNG._replace(settings=(("tile", 16),))):
        assert written_as_made(multiplied, choice) == REAL  # the kernel says what it has
    for dtype in REAL - made:  # memory of a GPU is written as it is, or refused
        assert not needs_own_memory(result(dtype, space=(2, 0)), multiplied, Choice())


def test_sums_of_bytes_that_something_happens_to_are_made_as_numbers_of_16_bits_or_8() -> None:
    changed = Choice(changed=True)
    assert written_as_made("int8", changed) == {"float32", "float16", "bfloat16", *EIGHT_BITS}


@pytest.mark.parametrize(
    ("shape", "strides", "in_rows"),
    [
        ((4, 5), (5, 1), True),
        ((4, 5), (7, 1), True),
        ((4, 5), (4, 1), False),  # rows that overlap
        ((4, 5), (-5, 1), False),
        ((4, 5), (1, 4), False),
        ((4, 5), (10, 2), False),
        ((1, 5), (0, 1), True),
        ((1, 5), (1, 4), False),
        ((4, 1), (1, 9), True),
        ((4, 1), (0, 1), False),
        ((5,), (1,), True),
        ((5,), (2,), False),
        ((), (), True),
        ((3, 4, 5), (1, 5, 1), True),  # whatever the stack's own
        ((3, 4, 5), (20, 1, 4), False),
    ],
)
def test_numbers_that_are_complex_are_made_in_rows(
    shape: tuple[int, ...], strides: tuple[int, ...], in_rows: bool
) -> None:
    """And all others by kernels that have no form for other strides."""
    given = result("complex64", shape, strides)
    assert needs_own_memory(given, "complex64", Choice()) is not in_rows
    only = Choice(specs=(KERNELS["simt"],))
    assert needs_own_memory(result("float32", shape, strides), "float32", only) is not in_rows
    for choice in (Choice(), Choice(specs=(KERNELS["simt"], KERNELS["general"]))):
        assert not needs_own_memory(result("float32", shape, strides), "float32", choice)


def test_complex_results_of_another_type_are_cast() -> None:
    assert needs_own_memory(result("complex128"), "complex64", Choice())
    assert not needs_own_memory(result("complex128"), "complex128", Choice())
