"""Columns and rows that an epilogue adds up, in every kernel that takes one: right, and the same bits every time."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.expression import PREFIX
from tilewise.kernels import KERNELS
from tilewise.kernels.epilogue import epilogue_header
from tilewise.matmul import multiply
from tilewise.planner import operands_of
from tilewise.problem import Epilogue, EpilogueArray
from tilewise.reference import compare

RANDOM = np.random.default_rng()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BOTH = "column_sums(down, acc * s) + row_sums(across, relu(acc))"
HOPPER: dict[str, Any] = {"partition": "64x64x64"}
WAYS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("general", "float32", {"partition": "64x64x16"}),
    ("mma", "float64", {"partition": "32x32x16"}),
    ("mma", "bfloat16", {"partition": "64x32x64"}),
    ("mma", "bfloat16", {"partition": "64x64x64", "split": 2}),
    ("wgmma", "bfloat16", HOPPER),
    ("wgmma", "bfloat16", {**HOPPER, "split": 2}),
    ("wgmma", "bfloat16", {"partition": "128x80x64", "exchanged": 1, "a_in_rows": 1, "b_in_rows": 0}),
    ("wgmma", "bfloat16", {"partition": "128x80x64"}),
)


def draw(*shape: int, dtype: Any = "float32") -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def add_up(
    a: Any, b: Any, kernel: str, given: dict[str, Any], order: Any, of_all: bool = False
) -> tuple[Any, Any]:
    """The sums of columns and of rows of a product; those of columns of each matrix of a stack, or of all."""
    *stack, m, n = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]
    wide = "float64" if a.dtype == np.float64 else "float32"
    down = np.full((n,) if of_all else (*stack, n), np.nan, wide)
    across = np.full((m, *stack[::-1]), np.nan, BFLOAT16 if wide == "float32" else wide).T
    epilogue = tw.epilogue(BOTH, s=0.5, down=down, across=across)
    choice = Choice(specs=(KERNELS[kernel],), settings=tuple(given.items()))
    result = multiply(a, b, None, tw.device("emulator", order=order), choice, epilogue)
    for found, kept in ((result, None), (down, "down"), (across, "across")):
        compared = compare(found, a, b, accumulate=wide, terms=64, epilogue=epilogue, kept=kept)
        assert compared.ok, (kept, str(compared))
    return down, across


@given(
    m=st.integers(1, 150),
    n=st.integers(1, 150),
    k=st.sampled_from([8, 72]),
    stack=st.sampled_from([(), (3,), (2, 2)]),
    shared=st.booleans(),
    of_all=st.booleans(),
    way=st.sampled_from(WAYS),
    orders=st.permutations(["eager", "late", 1, 2]),
)
@example(20, 40, 8, (2, 2), False, False, WAYS[0], ["late", "eager"])
@example(10, 40, 8, (3,), False, False, WAYS[1], ["late", "eager"])  # warps of a tile that have no row
@example(20, 40, 8, (), False, False, WAYS[7], ["late", "eager"])  # and boxes that have no column
@examples(2, 5)
def test_sums_in_every_kernel(
    m: int, n: int, k: int, stack: tuple[int, ...], shared: bool, of_all: bool, way: Any, orders: list[Any]
) -> None:
    """Matrices that share B are one tall matrix, but where each has sums of its own; in any order the same bits."""
    kernel, dtype, given = way
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    a = draw(*stack, m, k, dtype=kind)
    b = np.swapaxes(draw(*(() if shared else stack), n, k, dtype=kind), -1, -2)
    if kernel == "wgmma":
        given = {**given, "b_in_rows": 0, "stacked": int(bool(stack) and not (shared and of_all))}
    if shared and of_all and stack:
        a = np.ascontiguousarray(a)
        given = {name: value for name, value in given.items() if name != "stacked"}
    found = [add_up(a, b, kernel, given, order, of_all) for order in orders[:2]]
    for one, same in zip(*found, strict=True):
        assert one.tobytes() == same.tobytes()


@pytest.mark.few(2)
@pytest.mark.parametrize("along", ["k", "rows"])
@pytest.mark.parametrize("flip", [False, True])
def test_sums_of_products_with_a_vector(along: str, flip: bool) -> None:
    a, b = draw(3, 1, 33), draw(3, 33, 70)
    if flip:
        a, b = np.swapaxes(b, 1, 2), np.swapaxes(a, 1, 2)
    add_up(a, b, "vector", {"along": along}, "late", of_all=True)
    add_up(a, b, "vector", {"along": along}, "late")


def test_sums_of_parts_of_k() -> None:
    a, b = draw(70, 264, dtype=BFLOAT16), draw(264, 96, dtype=BFLOAT16)
    add_up(a, b, "wgmma", {**HOPPER, "parts": 2}, "late")


@pytest.mark.parametrize("n", [96, 99])
def test_sums_of_rows_of_whole_runs_and_of_single_columns(n: int) -> None:
    """More rows than the warps of a block have one each: a thread adds up several, 8 columns of each at a time, or one."""
    given = {**HOPPER, "b_in_rows": 0}
    add_up(draw(150, 72, dtype=BFLOAT16), draw(n, 72, dtype=BFLOAT16).T, "wgmma", given, "late")


def test_arrays_of_sums_are_not_read() -> None:
    given = {name: np.zeros(32, np.float32) for name in ("down", "x")}
    operands = operands_of(32, 32, 32, epilogue=tw.epilogue("column_sums(down, acc) * x", **given))
    header = epilogue_header(operands.epilogue, "float")
    assert re.findall(r"Neighbours<.*> (\w+);", header) == [f"{PREFIX}x"]


def test_a_bias_has_its_gradient_from_the_launch_that_makes_it() -> None:
    torch: Any = pytest.importorskip("torch")
    x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((24, 16), (20, 16), (20,)))
    onward = torch.randn(20, 12)
    before = torch.nn.functional.linear(x, weight, bias)
    slope = torch.randn(24, 12)
    (torch.nn.functional.gelu(before) @ onward).backward(slope)
    gradient = torch.empty(20)
    text = "column_sums(gradient, acc * gelu_grad(before))"
    epilogue = tw.epilogue(text, gradient=gradient, before=before.detach())
    tw.matmul(slope, onward.T, epilogue=epilogue, device="emulator")
    assert torch.allclose(gradient, bias.grad, atol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 5, 4), (5, 0, 4), (5, 6, 0)], ids=str)
def test_sums_of_nothing_are_zeros(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    down, across = add_up(draw(2, m, k), draw(k, n), "general", {}, "late", of_all=True)
    assert not down.any() and not across.any()


@pytest.mark.few(1)
@pytest.mark.parametrize("gpu", ["h200", "rtx-2060-super"])
def test_plans_with_sums_are_checked_and_cost_more(gpu: str) -> None:
    down, across = np.zeros(96, np.float32), np.zeros((2, 70), np.float32)
    epilogue = tw.epilogue(BOTH, s=1, down=down, across=across)
    plans = [tw.plan(70, 96, 72, dtype="float16", gpu=gpu, batch=2, epilogue=one) for one in (epilogue, None)]
    assert tw.check(plans[0], "late") == []
    with_sums, without = (plan.seconds for plan in plans)
    assert with_sums is not None and without is not None and with_sums > without


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "given", [{"partition": "128x256x64"}, {"partition": "128x128x64", "pingpong": 1}], ids=str
)
def test_a_gradient_of_a_bias_spills_nothing(given: dict[str, object]) -> None:
    arrays = EpilogueArray("db", "float32", False, True), EpilogueArray("before", "bfloat16")
    spec, form = KERNELS["wgmma"], Epilogue("column_sums(db, acc * gelu_grad(before))", arrays)
    resources = (
        spec.code(spec.complete(given), form)
        .kernel("wgmma_gemm", "sm_90a")
        .build()
        .entries["wgmma_gemm"]
        .resources
    )
    assert resources is not None and resources.spill_store_bytes == resources.spill_load_bytes == 0


def test_what_cannot_be_added_up_is_named() -> None:
    a, b, whole = draw(2, 4, 3), draw(3, 6), draw(6)
    for text, arrays, message in (
        ("column_sums(s, acc)", {"s": draw(4)}, r"^s must have the shape \(2, 6\) or \(6,\), not \(4,\)"),
        ("row_sums(s, acc)", {"s": draw(4)}, r"^s must have the shape \(2, 4\), not \(4,\)"),
        ("column_sums(s, acc)", {"s": np.float32(1)}, "^s must be an array|^s must be writable"),
        ("column_sums(s, acc)", {"s": draw(6).astype("float64")}, "^s must have a type of"),
        ("column_sums(s, acc + r)", {"s": whole, "r": whole}, "^s must not overlap r"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tw.matmul(a, b, epilogue=tw.epilogue(text, **arrays), device="emulator")
    with pytest.raises(ArgumentError, match=r"^s must have the shape \(6,\), not \(4,\)"):
        tw.matmul(a[0], b, epilogue=tw.epilogue("column_sums(s, acc)", s=draw(4)), device="emulator")
    with pytest.raises(ArgumentError, match=r"^a must have two dimensions at least, with sums in s"):
        tw.matmul(
            draw(3),
            np.broadcast_to(b, (2, 3, 6)),
            epilogue=tw.epilogue("column_sums(s, acc)", s=whole),
            device="emulator",
        )
    ends = np.array([1, 4], "int32")
    with pytest.raises(ArgumentError, match=r"^epilogue must add up no columns or rows of groups"):
        tw.grouped_matmul(
            a[0],
            np.stack([b, b]),
            ends,
            epilogue=tw.epilogue("column_sums(s, acc)", s=whole),
            device="emulator",
        )
    with pytest.raises(ArgumentError, match=r"^epilogue must add up no columns or rows of groups"):
        tw.plan(4, 6, 3, groups=2, epilogue=tw.epilogue("column_sums(s, acc)", s=whole))
    deep = np.lib.stride_tricks.as_strided(draw(400), (2, 2, 2, 4, 3), (400, 160, 64, 12, 4))
    with pytest.raises(
        ArgumentError, match=r"s must have sums for each matrix of a stack with more than 2 axes"
    ):
        tw.matmul(
            deep, draw(2, 2, 2, 3, 6), epilogue=tw.epilogue("column_sums(s, acc)", s=whole), device="emulator"
        )
