"""Products of integers: exact modulo 2ⁿ, as NumPy has them, for every size, layout and stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise import interop
from tilewise.calls import Choice
from tilewise.describe import result_shapes
from tilewise.devices.emulated import open_emulator
from tilewise.epilogue import view_arrays
from tilewise.errors import ArgumentError
from tilewise.host_arrays import multiply_staged
from tilewise.kernels.gemm.general import SPEC as GENERAL
from tilewise.kernels.gemm.general import fits
from tilewise.planner import choose, operands_of, target_of

TYPES = ("int8", "int32", "int64")
SUMS = {"int8": "int32", "int32": "int32", "int64": "int64"}


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Every value that there is, the extremes often: sums go round."""
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.2, limits.min, found).astype(dtype)


def expected(a: Any, b: Any) -> Any:
    """By NumPy, in the type of the sums."""
    wide = SUMS[a.dtype.name]
    return a.astype(wide) @ b.astype(wide)


@given(
    dtype=st.sampled_from(TYPES),
    sizes=st.tuples(st.integers(1, 70), st.integers(0, 90), st.integers(1, 70)),
    stack=st.sampled_from([(), (3,), (2, 1)]),
    turned=st.tuples(st.booleans(), st.booleans()),
    step=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
@examples(2, 8)
def test_any_size_layout_and_stack(
    dtype: str,
    sizes: tuple[int, int, int],
    stack: tuple[int, ...],
    turned: tuple[bool, bool],
    step: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = sizes

    def made(rows: int, columns: int, turn: bool) -> Any:
        shape = (*stack, columns, rows * step) if turn else (*stack, rows * step, columns)
        values = whole(rng, shape, dtype)
        return (values.swapaxes(-1, -2) if turn else values)[..., ::step, :]

    a, b = made(m, k, turned[0]), made(k, n, turned[1])
    c = tw.matmul(a, b, device="emulator")
    assert c.dtype == SUMS[dtype] and (c == expected(a, b)).all()
    assert (tw.matmul(a[..., :1, :], b) == expected(a[..., :1, :], b)).all()  # a row times a matrix
    if k:
        found = tw.reference.compare(c, a, b)
        wrong = c.copy()
        wrong.flat[-1] ^= 1
        assert found and not tw.reference.compare(wrong, a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "partition", [one for one in GENERAL.settings["partition"] if fits({"partition": one, "element": "int8"})]
)
def test_every_tile_is_right_and_clean(partition: str) -> None:
    """Under the checker, warps in any order."""
    operands, target = operands_of(70, 33, 50, dtype="int8"), target_of("emulator")
    made = choose(operands, target, specs=(GENERAL,), given={"partition": partition})
    plan = made.plan(operands, target)
    assert plan.problem.c == plan.problem.accumulate == SUMS["int8"]
    assert tw.check(plan, "late") == []
    rng = np.random.default_rng(3)
    a, b = whole(rng, (70, 50), "int8"), whole(rng, (50, 33), "int8")
    assert (tw.matmul(a, b, plan=plan, device="emulator") == expected(a, b)).all()


def test_types_that_are_converted_and_results_that_are_given() -> None:
    rng = np.random.default_rng(4)
    a, b = whole(rng, (9, 20), "int16"), whole(rng, (20, 7), "uint8")
    c = tw.matmul(a, b)
    assert c.dtype == np.int32 and (c == a.astype("int32") @ b.astype("int32")).all()
    wide = tw.matmul(a.astype("int64"), b)
    assert wide.dtype == np.int64 and (wide == c).all()
    for dtype in ("int64", "int16", "float64"):
        out = np.zeros((9, 7), dtype)
        assert tw.matmul(a, b, out=out) is out and (out == c.astype(dtype)).all()
    groups = tw.grouped_matmul(a.astype("int8"), np.stack([b.astype("int8")] * 2), np.array([4, 9], "int32"))
    assert (groups == expected(a.astype("int8"), b.astype("int8"))).all()
    assert (tw.matmul(a, b.astype("float32")) == (a.astype("float32") @ b.astype("float32"))).all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "float64"])
def test_a_copy_on_a_device_is_multiplied_in_the_type_of_the_sums(dtype: str) -> None:
    """Whatever the host array holds that it is written to then."""
    arrays = {
        "a": np.full((2, 3), 9, "int8"),
        "b": np.full((3, 4), 9, "int8"),
        "out": np.zeros((2, 4), dtype),
    }
    a, b, out = (interop.view(name, array) for name, array in arrays.items())
    shapes = result_shapes(a.shape, b.shape)
    made = multiply_staged(a, b, view_arrays(None), shapes, open_emulator(), Choice(), out)
    assert made.dtype == np.int32 and (made == 243).all()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a, b: tw.matmul(a, b, bias=np.ones(7)), "bias must be left out for integers"),
        (lambda a, b: tw.matmul(a, b, alpha=2.0), "alpha must be left out for integers"),
        (lambda a, b: tw.matmul(a, b, activation="relu"), "an epilogue must be left out for integers"),
        (lambda a, b: tw.matmul(a, b, arithmetic="tf32"), "arithmetic must be None for operands of int32"),
        (lambda a, b: tw.matmul(a > 0, b > 0), "a and b must be integers that int8, int32 or int64 hold"),
        (lambda a, b: tw.matmul(a, b.astype("uint64")), "convert both: .astype('int64')"),
        (lambda a, b: tw.ladder["04_tiled"](a, b), "a must have elements of type float32"),
        (lambda a, b: tw.plan(8, 8, 8, dtype="int8", result="int8"), "result must be 'int32' for int8"),
        (lambda a, b: tw.plan(8, 8, 8, result="int32"), "result must be"),
    ],
)
def test_what_integers_have_not_is_told(call: Any, error: str) -> None:
    a, b = np.ones((9, 20), "int32"), np.ones((20, 7), "int32")
    with pytest.raises(ArgumentError) as caught:
        call(a, b)
    assert error in str(caught.value)
