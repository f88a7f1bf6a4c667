"""Operands of 8 bits on Hopper's tensor cores: floating-point numbers beside float64, integers equal to NumPy's products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import framed, marked, numbers
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.wgmma_shapes import PARTITIONS_OF, TILES
from tilewise.matmul import multiply
from tilewise.planner import operands_of, target_of
from tilewise.planner.choose import choose
from tilewise.reference import compare
from tilewise.reference import multiply as exact

Array = npt.NDArray[Any]
SPEC = KERNELS["wgmma"]
RANDOM = np.random.default_rng()
FLOATS = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
TYPES = (*FLOATS, "int8")
SUMS = {"int8": "int32"}
LAYOUTS = ("nn", "nt", "tn", "tt")
UNEXCHANGED = {(one.m, one.n) for one in TILES}


def check(
    size: tuple[int, int, int], element: str, layout: str = "nt", stack: tuple[int, ...] = (),
    lie: tuple[int, ...] = (0,) * 6, order: Any = "eager", result: str = "bfloat16", **given: Any,
) -> Array:  # fmt: skip
    """Multiply random matrices as the hardware adds, and compare; what lies beside the result stays as it was."""
    m, n, k = size
    a = framed((*stack, m, k), element, layout[0] == "n", *lie[:2])
    b = framed((*stack, k, n), element, layout[1] == "n", *lie[2:4])
    given = {"partition": "64x64x128", "result": SUMS.get(element, result), **given}
    whole = marked((*stack, m, lie[4] + n + lie[5]), given["result"])
    before, out = whole.copy(), whole[..., lie[4] : lie[4] + n]
    device = tw.device("emulator", order=order, sums="hardware")
    multiply(a, b, out, device, Choice(specs=(SPEC,), settings=tuple(given.items())))
    compared = compare(out, a, b, terms=16)
    assert compared.ok, (size, layout, lie, given, str(compared))
    whole[..., lie[4] : lie[4] + n] = before[..., lie[4] : lie[4] + n]
    assert whole.tobytes() == before.tobytes()
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_any_tile_is_right(element: str) -> None:
    """Another one each time, of those that have registers for it, with sizes that end inside of tiles."""
    operands = operands_of(2048, 2048, 2048, dtype=element, layout="nt")
    fits = []
    for name, tile in PARTITIONS_OF[element].items():
        exchanged = int((tile.m, tile.n) not in UNEXCHANGED)
        settings = SPEC.complete(
            {**SPEC.for_types(operands), "partition": name, "exchanged": exchanged, "b_in_rows": 0}
        )
        if SPEC.why_not(operands, settings) is None:
            fits.append((tile, name, exchanged))
    assert len(fits) >= 20
    tile, name, exchanged = fits[int(RANDOM.integers(len(fits)))]
    m, n = (tile.n + 24, tile.m + 9) if exchanged else (tile.m + 9, tile.n + 24)
    layout = LAYOUTS[int(RANDOM.integers(4))]
    check((m, n, 3 * tile.k + 7), element, layout, partition=name, tiles=2, exchanged=exchanged)


SCHEDULES: tuple[dict[str, int | str], ...] = (
    {}, {"split": 2}, {"parts": 2}, {"cluster": "2x1", "tiles": 2}, {"exchanged": 1}, {"pingpong": 1, "tiles": 3},
    {"partition": "256x128x128", "cluster": "1x2"}, {"partition": "64x8x128", "exchanged": 1},
)  # fmt: skip


def has(schedule: dict[str, int | str], element: str) -> bool:
    """Whether there is such a schedule for the type: sums of integers are not left in memory, others not in turns."""
    return "parts" not in schedule if element == "int8" else "pingpong" not in schedule


@examples(3, 8)
@given(
    m=st.integers(0, 200), n=st.integers(0, 200), k=st.integers(0, 400), layout=st.sampled_from(LAYOUTS),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 8)), st.sampled_from((0, 3, -1))] * 2, *[st.sampled_from((0, 0, 1, 4))] * 2),
    stack=st.sampled_from([(), (), (2, 3)]), element=st.sampled_from(TYPES), which=st.integers(0, len(SCHEDULES) - 1),
    result=st.sampled_from(("bfloat16", "float16", "float32", "float8_e4m3fn")),
)  # fmt: skip
@example(
    70, 61, 200, "nn", (0, 0, 3, 1, 0, 1), (2,), "int8", 0, "bfloat16"
)  # columns of bytes that begin anywhere
@example(130, 150, 300, "tt", (1, 0, 0, -1, 0, 0), (), "float8_e5m2", 1, "float32")
@example(1, 1, 2, "tn", (0,) * 6, (), "float8_e4m3fn", 0, "float16")
def test_any_size_layout_and_alignment(
    m: int, n: int, k: int, layout: str, lie: tuple[int, ...], stack: tuple[int, ...], element: str, which: int,
    result: str,
) -> None:  # fmt: skip
    schedule = SCHEDULES[which]
    if not has(schedule, element) or (stack and "parts" in schedule):
        schedule = {}
    check((m, n, k), element, layout, stack, lie, result=result, **schedule)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("element", "given"),
    [("float8_e4m3fn", {"partition": "128x64x128", "tiles": 3, "cluster": "2x1"}),
     ("int8", {"pingpong": 1, "tiles": 3, "partition": "128x64x128"}),
     ("float8_e5m2", {"split": 3, "parts": 2}),
     ("int8", {"split": 4, "exchanged": 1})],
)  # fmt: skip
def test_any_order_of_copies_and_products(element: str, given: dict[str, Any]) -> None:
    order = ("late", int(RANDOM.integers(2**40)))[int(RANDOM.integers(2))]
    check((300, 140, 500), element, "nn", order=order, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_what_the_planner_proposes_is_right_and_clean(element: str) -> None:
    """Of Hopper and of a GPU that has no such instructions, whose general kernel does it."""
    for gpu in ("h200", "t4"):
        plan = tw.plan(70, 90, 300, dtype=element, gpu=gpu, layout="nn")
        assert plan.kernel == ("wgmma" if gpu == "h200" else "general")
        a, b = numbers((70, 300), element), numbers((300, 90), element)
        assert compare(tw.matmul(a, b, plan=plan, device="emulator"), a, b).ok
    assert tw.check(tw.plan(70, 90, 300, dtype=element, gpu="h200", layout="nn")) == []


def test_groups_of_rows_with_scales() -> None:
    a, b = numbers((90, 272), "float8_e4m3fn"), numbers((3, 272, 48), "float8_e4m3fn")
    of_rows, of_columns = RANDOM.random((90, 1)).astype(np.float32), RANDOM.random(48).astype(np.float32)
    scaled = tw.epilogue("acc * rows * columns", rows=of_rows, columns=of_columns)
    out = np.zeros((90, 48), np.float32)
    tw.grouped_matmul(a, b, np.array([50, 50, 90], np.int32), out, epilogue=scaled, device="emulator")
    for rows, which in ((slice(50), 0), (slice(50, 90), 2)):
        epilogue = tw.epilogue("acc * rows * columns", rows=of_rows[rows], columns=of_columns)
        assert compare(out[rows], a[rows], b[which], epilogue=epilogue).ok


@pytest.mark.few(1)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("kernel", ["general", "vector", "wgmma"])
def test_every_number_is_taken_for_what_it_is(element: str, kernel: str) -> None:
    """Times 1, among zeros: NaN and infinities as well, in rows of their own."""
    every = np.arange(256, dtype=np.uint8).view(FLOATS[element])
    a = np.zeros((256, 16), FLOATS[element])
    a[:, 5], b = every, np.ones((16, 1), FLOATS[element])
    out = np.zeros((256, 1), np.float32)
    multiply(a, b, out, tw.device("emulator"), Choice(specs=(KERNELS[kernel],)))
    assert np.array_equal(out[:, 0], every.astype(np.float32), equal_nan=True)


def test_what_a_result_holds() -> None:
    """bfloat16 unless it is asked for otherwise, rounded once; of float8 beside int8 there is none."""
    a, b = numbers((5, 40), "float8_e4m3fn"), numbers((40, 3), "int8")
    assert tw.matmul(a, a.T, device="emulator").dtype == ml_dtypes.bfloat16
    for dtype in (np.float16, np.float32, np.float64, FLOATS["float8_e4m3fn"]):
        out = np.zeros((5, 5), dtype)
        tw.matmul(a, a.T, out, device="emulator")
        assert compare(out, a, a.T).ok
    with pytest.raises(
        ArgumentError, match=r"both of float8_e4m3fn or float8_e5m2.*; float16 holds every value of it"
    ):
        tw.matmul(a, b, device="emulator")


def test_sums_are_added_up_beside_the_tensor_cores() -> None:
    """Ones until the sum has 13 places: there an instruction's sum stays as it is, ours does not."""
    a = np.ones((64, 1 << 15), FLOATS["float8_e4m3fn"])
    b = np.asfortranarray(np.ones((1 << 15, 8), FLOATS["float8_e4m3fn"]))
    out = np.zeros((64, 8), np.float32)
    multiply(a, b, out, tw.device("emulator", sums="hardware"), Choice(specs=(SPEC,)))
    assert (out == 1 << 15).all()


@pytest.mark.parametrize("element", FLOATS)
def test_the_bound_of_a_sum_notices_a_missing_term(element: str) -> None:
    """And lets pass what the hardware cuts off, of every kind of data."""
    for scale in (np.ones(200), 2.0 ** RANDOM.integers(-4, 5, 200)):
        values = RANDOM.standard_normal((40, 200)) * scale
        a, b = (np.asarray(one).astype(FLOATS[element]) for one in (values, values[::-1].T))
        found = exact(a, b)
        assert compare(found.astype(np.float32), a, b).ok
        less = a.copy()
        less[:, int(np.argmax(scale))] = 0
        assert compare(exact(less, b).astype(np.float32), a, b).failures > 200


@pytest.mark.parametrize(
    ("element", "given", "told"),
    [
        ("float8_e4m3fn", {"pingpong": 1}, "pingpong must be 0"),
        ("float8_e5m2", {"partition": "128x256x128"}, "partition must be a smaller tile"),
        ("float8_e4m3fn", {"partition": "128x128x64"}, "must be 128 deep"),
        ("int8", {"parts": 2}, "parts must be 1 for int8"),
        ("int8", {"result": "float32"}, "result must be 'int32'"),
        ("float8_e4m3fn", {"result": "int32"}, "result must be no integer"),
    ],
)
def test_what_there_is_not_is_said(element: str, given: dict[str, Any], told: str) -> None:
    operands = operands_of(256, 256, 512, dtype=element, layout="nt", result=given.get("result"))
    with pytest.raises(ArgumentError, match=told):
        choose(operands, target_of("h200"), specs=[SPEC], given=given)
