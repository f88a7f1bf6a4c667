"""tw.grouped_matmul of numbers of 8 bits with scales, on the emulator, beside float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.errors import ArgumentError
from tilewise.quantize import scale_sums
from tilewise.reference import compare

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng()
SCALES: tuple[dict[str, Any], ...] = ({}, {"axis": -1}, {"axis": -1, "block": 128}, {"block": (128, 128)})
TYPES = (("float8_e4m3fn", "float8_e5m2"), ("int8", "int8"), ("", "float8_e4m3fn"), ("", "int8"))


def quantized(x: Array, dtype: str, how: dict[str, Any]) -> Any:
    """Numbers with scales of very different sizes; without a type those of 16 bits as they are."""
    if not dtype:
        return x.astype(ml_dtypes.bfloat16)
    found: Any = tw.quantize(x, dtype, **how)
    return found._replace(
        scale=found.scale * 2.0 ** RANDOM.integers(-6, 6, found.scale.shape).astype("float32")
    )


def rows_of(x: Any, begin: int, end: int) -> Any:
    """Some rows, each with scales of its own."""
    if not isinstance(x, tw.Quantized):
        return x[begin:end]
    rows = x.values.shape[0]
    scale = x.scale if x.scale.shape[0] in (1, rows) else np.repeat(x.scale, 128, 0)[:rows]
    return tw.Quantized(x.values[begin:end], scale[begin:end] if scale.shape[0] == rows else scale)


@examples(5, 40)
@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=5), rest=st.integers(0, 20), n=st.integers(1, 200),
    k=st.integers(1, 500), types=st.sampled_from(TYPES), how=st.tuples(*[st.sampled_from(SCALES)] * 2),
    gpu=st.sampled_from(("h200", "a100")), order=st.sampled_from(("eager", "late", 3)),
)  # fmt: skip
@example(
    [140, 0, 90], 3, 150, 400, TYPES[0], (SCALES[2], SCALES[3]), "h200", 3
)  # as a mixture of experts has them
@example([100, 60], 0, 130, 300, TYPES[1], (SCALES[1], SCALES[1]), "h200", "late")
@example([100, 60], 0, 130, 300, TYPES[2], (SCALES[0], SCALES[2]), "a100", "eager")
def test_each_group_has_the_scales_of_its_matrix(
    sizes: list[int], rest: int, n: int, k: int, types: tuple[str, str], how: Any, gpu: str, order: Any
) -> None:
    ends, rows = np.cumsum(sizes, dtype="int32"), sum(sizes) + rest
    a = quantized(RANDOM.standard_normal((rows, k)).astype(np.float32), types[0], how[0])
    b = quantized(RANDOM.standard_normal((len(sizes), n, k)).astype(np.float32), types[1], how[1]).mT
    out = np.full((rows, n), np.nan, np.float32)
    scales = {"scale_a": a.scale if types[0] else None, "scale_b": b.scale}
    call = scale_sums(None, scales, {"scale_a": (rows, k), "scale_b": b.values.shape}, grouped=True)
    plan = tw.plan(
        rows, n, k, dtype=types[0] or "bfloat16", b_dtype=types[1], layout="nt", result="float32", gpu=gpu,
        groups=len(sizes), epilogue=call,
    )  # fmt: skip
    tw.grouped_matmul(a, b, ends, out, plan=plan, device=tw.device("emulator", order=order))
    for group, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        scale = b.scale[group if len(b.scale) > 1 else 0]
        compared = compare(
            out[begin:end], rows_of(a, begin, end), tw.Quantized(b.values[group], scale), terms=16
        )
        assert compared.ok, (group, plan.kernel, str(compared))
    assert np.isnan(out[sum(sizes) :]).all()


def test_what_else_happens_to_the_sums_of_groups() -> None:
    x, w = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((60, 256), (2, 40, 256)))
    a, b, ends = (
        tw.quantize(x, axis=-1, block=128),
        tw.quantize(w, block=(128, 128)).mT,
        np.array([25, 60], "int32"),
    )
    bias = RANDOM.standard_normal(40).astype(np.float32)
    made: Any = tw.grouped_matmul(
        a, b, ends, epilogue=tw.epilogue("relu(acc + bias)", bias=bias), device="emulator"
    )
    assert made.dtype == ml_dtypes.bfloat16
    for group, rows in enumerate((slice(0, 25), slice(25, 60))):
        part: Any = tw.matmul(
            tw.Quantized(a.values[rows], a.scale[rows]), tw.Quantized(b.values[group], b.scale[group]),
            bias=bias, activation="relu", device="emulator",
        )  # fmt: skip
        assert np.allclose(made[rows].astype(np.float32), part.astype(np.float32), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "tpu"}, "device must be"),
        ({"arithmetic": "f16"}, "arithmetic must be"),
        ({"plan": tw.plan(8, 8, 8, groups=1, gpu="h200")}, "plan must be"),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_what_else_a_call_is_given_counts_with_scales_as_without(
    given: dict[str, Any], message: str, scaled: bool
) -> None:
    """Seen by what is wrong with it."""
    a, b, ends = np.ones((6, 16), "float32"), np.ones((2, 8, 16), "float32"), np.array([4, 6], "int32")
    left, right = (tw.quantize(a, axis=-1), tw.quantize(b, axis=-1).mT) if scaled else (a, b.swapaxes(1, 2))
    with pytest.raises(ArgumentError, match=message):
        tw.grouped_matmul(left, right, ends, **given)


def test_rows_have_scales_for_each_run_of_k_where_matrices_may_have_one_for_all() -> None:
    for runs in (2, 1):
        given = {"s": np.ones((300, runs), np.float32), "t": np.ones((3, 1, 100), np.float32)}
        epilogue = tw.epilogue("scaled(acc, s, t)", **given)
        more: dict[str, Any] = {"dtype": "float8_e4m3fn", "groups": 3, "epilogue": epilogue, "gpu": "h200"}
        if runs == 2:
            assert tw.plan(300, 100, 256, **more).problem.epilogue.lines_of("b") == 1
            continue
        with pytest.raises(ArgumentError, match=r"s must have one for each 128 of k: the shape \(300, 2\)"):
            tw.plan(300, 100, 256, **more)


def test_launches_of_groups_with_scales_have_no_races() -> None:
    given = {"s": np.ones((300, 2), np.float32), "t": np.ones((3, 2, 1), np.float32)}
    plan = tw.plan(
        300,
        100,
        256,
        dtype="float8_e4m3fn",
        layout="nt",
        groups=3,
        epilogue=tw.epilogue("scaled(acc, s, t)", **given),
    )
    assert plan.kernel == "wgmma" and tw.check(plan) == []


def test_scales_of_other_shapes_are_refused() -> None:
    a, b, ends = (
        tw.quantize(np.ones((60, 256), "float32")),
        tw.quantize(np.ones((2, 256, 40), "float32")),
        np.array([25, 60], "int32"),
    )
    for shape in ((3, 1, 40), (2, 3, 40), (2, 2, 7)):
        with pytest.raises(ArgumentError, match="scale_b must"):
            tw.grouped_matmul(a, tw.Quantized(b.values, np.ones(shape, "float32")), ends, device="emulator")
