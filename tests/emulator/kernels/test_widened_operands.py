"""Operands of 8 bits beside 16: each number is taken for what it is, and multiplied and summed as if it had 16 bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import framed, numbers
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.wgmma_shapes import WIDENING, named
from tilewise.matmul import multiply
from tilewise.planner import operands_of, target_of
from tilewise.planner.choose import list_candidates
from tilewise.reference import compare

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng()
NARROW: dict[str, Any] = {
    "int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2
}  # fmt: skip
WIDE: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LAYOUTS = ("nn", "nt", "tn", "tt")


def check(a: Array, b: Array, order: Any = "eager", **given: Any) -> Array:
    """Multiply, by the plan that the planner takes or as is given, and compare with float64."""
    found = {"specs": None, **given}
    specs, chosen = found.pop("specs"), tuple(found.items())
    wide = a.dtype if a.dtype.itemsize == 2 else b.dtype
    out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), wide)
    multiply(a, b, out, tw.device("emulator", order=order), Choice(specs=specs, settings=chosen))
    compared = compare(out, a, b, terms=16)
    assert compared.ok, (a.shape, b.shape, a.dtype, b.dtype, given, str(compared))
    return out


@examples(3, 12)
@given(
    size=st.tuples(st.one_of(st.integers(0, 9), st.integers(0, 300)), st.integers(0, 300), st.integers(0, 500)),
    layout=st.sampled_from(LAYOUTS), wide=st.sampled_from(list(WIDE)), narrow=st.sampled_from(list(NARROW)),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 8)), st.sampled_from((0, 3, -1))] * 2), stack=st.sampled_from([(), (), (2, 3)]),
    first=st.booleans(),
)  # fmt: skip
@example((1, 70, 200), "nn", "bfloat16", "int8", (0,) * 4, (), False)  # a row by weights in rows
@example((1, 70, 200), "nt", "float16", "float8_e5m2", (0, 0, 1, 0), (2, 3), False)  # which begin anywhere
@example((90, 33, 260), "tt", "bfloat16", "float8_e4m3fn", (0, -1, 0, -1), (), True)
@example((2, 2, 0), "nt", "float16", "int8", (0, 0, 0, 3), (), False)  # a copy of nothing
def test_any_size_layout_and_alignment(
    size: tuple[int, int, int], layout: str, wide: str, narrow: str, lie: tuple[int, ...], stack: tuple[int, ...], first: bool
) -> None:  # fmt: skip
    (m, n, k), (left, right) = size, (narrow, wide) if first else (wide, narrow)
    a = framed((*stack, m, k), left, layout[0] == "n", *lie[:2])
    check(a, framed((*stack, k, n), right, layout[1] == "n", *lie[2:]))


@pytest.mark.few("1-float8_e5m2-float16", "40-int8-bfloat16")
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("rows", [1, 40])
def test_every_number_is_taken_for_what_it_is(wide: str, narrow: str, rows: int) -> None:
    """Times 1, among zeros: NaN and infinities as well, in columns of their own. A row alone goes to another kernel."""
    every = np.arange(256, dtype=np.uint8).view(NARROW[narrow])
    for lies_along_k in (True, False):
        weights = np.zeros((256, 48), NARROW[narrow])
        weights[:, 37] = every
        b = weights.T if lies_along_k else np.ascontiguousarray(weights.T)
        x = np.zeros((rows, 48), WIDE[wide])
        x[:, 37] = 1
        out = tw.matmul(x, b, device="emulator")
        assert out.dtype == x.dtype
        assert np.array_equal(
            out.astype(np.float64), np.tile(every.astype(np.float64), (rows, 1)), equal_nan=True
        )


@pytest.mark.few("int8-bfloat16-16", "float8_e4m3fn-float16-4")
@pytest.mark.parametrize("rows", [16, 4])  # of a block: two of a warp at once, or warps that share one
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("narrow", NARROW)
def test_a_row_by_weights_of_8_bits(narrow: str, wide: str, rows: int) -> None:
    """Numbers of rows and depths that leave some over, and rows that begin at no multiple of 16 bytes."""
    for columns, k in ((37, 544), (16, 300), (2, 1000), (35, 1024)):
        x, weights = numbers((1, k), wide), numbers((columns, k), narrow)
        check(x, weights.T, specs=(KERNELS["vector"],), along="k", rows=rows, widened=narrow)


SCHEDULES: tuple[dict[str, int | str], ...] = (
    {"split": 3}, {"cluster": "2x1", "tiles": 2, "partition": "64x32x128"}, {"cluster": "1x2", "partition": "128x16x128"},
    {"tiles": 3}, {"parts": 2}, {"partition": "64x128x128", "split": 2}, {"partition": "128x256x128"},
    {"partition": "192x128x128", "tiles": 2}, {"partition": "192x64x128", "split": 2},
)  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_any_schedule_and_order(schedule: dict[str, int | str]) -> None:
    """In the order of the hardware, as late as may be, or at random; the weights may be A or B."""
    tile = named(WIDENING[int(RANDOM.integers(5))]).replace("x64", "x128")
    order = ("late", int(RANDOM.integers(2**40)))[int(RANDOM.integers(2))]
    wide, narrow = list(WIDE)[int(RANDOM.integers(2))], list(NARROW)[int(RANDOM.integers(3))]
    x, weights = numbers((21, 704), wide), numbers((300, 704), narrow)
    given = {"partition": tile, "widened": narrow, "specs": (KERNELS["wgmma"],), **schedule}
    check(x, weights.T, order, exchanged=1, b_in_rows=0, **given)
    check(weights, x.T, order, exchanged=0, b_in_rows=0, **given)


def test_what_is_planned_for_each_kind_of_product() -> None:
    """Tensor cores read rows along K as they are; weights that lie otherwise become 16 bits first, as everywhere else."""

    def planned(m: int, layout: str, gpu: str = "h200") -> tuple[str, object, tuple[str, ...]]:
        made = tw.plan(m, 4096, 4096, dtype="bfloat16", b_dtype="int8", layout=layout, gpu=gpu)
        return made.kernel, made.parameters.get("widened", "none"), made.copies

    assert planned(8, "nt") == planned(64, "nt") == ("wgmma", "int8", ())
    assert planned(64, "nn") == ("wgmma", "none", ("b",))
    assert planned(1, "nt", "a100") == planned(1, "nt", "t4") == ("vector", "int8", ())
    assert planned(64, "nt", "a100") == ("mma", "none", ("b",))
    assert planned(64, "nt", "t4")[1:] == ("none", ("b",))
    found, _ = list_candidates(
        operands_of(64, 512, 512, dtype="float16", b_dtype="int8", layout="nt"), target_of("h200"), copy=False
    )
    assert {one.spec.name for one in found} == {"wgmma"}


@pytest.mark.few("h200-nt")
@pytest.mark.parametrize(("gpu", "layout"), [("h200", "nt"), ("a100", "nn")])
def test_plans_of_them_are_clean(gpu: str, layout: str) -> None:
    plan = tw.plan(20, 96, 300, dtype="bfloat16", b_dtype="float8_e4m3fn", gpu=gpu, layout=layout)
    assert "b" in plan.copies and tw.check(plan) == []


@pytest.mark.parametrize(("wide", "narrow"), [("float16", "float8_e5m2"), ("bfloat16", "int8")])
def test_registers_are_whole_before_the_fence(wide: str, narrow: str) -> None:
    """What widens takes one instruction of the first, which the compiler would move behind it."""
    scaled = tw.epilogue("scaled(acc, 1, s)", s=np.ones((4, 256), np.float32))
    plan = tw.plan(16, 256, 512, dtype=wide, b_dtype=narrow, gpu="h200", layout="nt", epilogue=scaled)
    assert plan.kernel == "wgmma" and tw.check(plan) == []


def test_a_plan_of_them_is_profiled_and_followed() -> None:
    plan = tw.plan(20, 96, 300, dtype="bfloat16", b_dtype="float8_e4m3fn", layout="nt")
    assert "bfloat16·float8_e4m3fn→bfloat16" in str(plan) and plan.tiles["instruction"].k == 16
    assert tw.profile(plan)["smsp__inst_executed.sum"] > 0
    x, weights = numbers((20, 300), "bfloat16"), numbers((96, 300), "float8_e4m3fn")
    assert compare(tw.matmul(x, weights.T, plan=plan, device="emulator"), x, weights.T).ok
    with pytest.raises(
        ArgumentError,
        match="b_dtype must be float32, unless one has 8 bits and the other 16, or both are of float8",
    ):
        tw.plan(20, 96, 300, dtype="float32", b_dtype="int8")
    with pytest.raises(ArgumentError, match="plan must be for b = 'bfloat16'"):
        tw.matmul(x, weights.T.astype(ml_dtypes.bfloat16), plan=plan, device="emulator")


@pytest.mark.parametrize("narrow", ["int8", "float8_e4m3fn"])
def test_quantised_weights_of_a_layer(narrow: str) -> None:
    """As the numbers that they stand for, before the bias: within what rounding them to 8 bits makes."""
    x, weights = numbers((5, 70), "bfloat16"), RANDOM.standard_normal((33, 70)).astype(np.float32)
    quantised, bias = tw.quantize(weights, narrow, axis=-1), numbers((33,), "bfloat16")
    out = tw.linear(x, quantised, bias, activation="relu", device="emulator")
    scaled = tw.epilogue("max(acc * scale + bias, 0)", scale=quantised.scale.T, bias=bias)
    assert out.dtype == x.dtype
    assert compare(out, x, quantised.values.T, epilogue=scaled).ok


def test_groups_of_rows_by_weights_of_8_bits() -> None:
    """Each expert's weights become 16 bits first."""
    x, weights = numbers((50, 96), "bfloat16"), numbers((3, 96, 40), "int8")
    out = tw.grouped_matmul(x, weights, np.array([20, 20, 50], np.int32), device="emulator")
    assert out.dtype == ml_dtypes.bfloat16
    assert compare(out[:20], x[:20], weights[0]).ok and compare(out[20:], x[20:], weights[2]).ok


def test_deep_stacks_and_results_of_other_types() -> None:
    """Of more axes than a launch knows host arrays are converted, as by NumPy; results of another type are rounded once."""
    x, weights = numbers((2, 3, 4, 5, 40), "float16")[:, ::2, ::-1], numbers((2, 2, 4, 40, 7), "int8")
    assert compare(tw.matmul(x, weights, device="emulator"), x, weights).ok
    for dtype in (np.float32, np.float64, ml_dtypes.float8_e5m2):
        out = np.zeros((5, 7), dtype)
        tw.matmul(x[0, 0, 0], weights[0, 0, 0], out, device="emulator")
        assert compare(out, x[0, 0, 0], weights[0, 0, 0], accumulate="float32").ok


def test_lists_of_both_types_are_multiplied_by_way_of_stacks() -> None:
    x = [numbers((4, 40), "float16") for _ in range(3)]
    weights = [numbers((40, 7), "int8") for _ in range(3)]
    for one, other, out in zip(x, weights, tw.batched_matmul(x, weights, device="emulator"), strict=True):
        assert compare(out, one, other).ok
