"""Products of complex numbers: their real form by every kernel, on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.epilogue import express
from tilewise.errors import ArgumentError
from tilewise.gpus import GPUS
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.simt import SHAPES
from tilewise.matmul import multiply
from tilewise.reference import compare

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng()
EMULATOR = tw.device("emulator")
SUMS = {"complex64": "float32", "complex128": "float64"}
SMALL = Choice(specs=(KERNELS["general"],), settings=(("partition", "16x16x16"),))  # is compiled soon
every_type = pytest.mark.parametrize("dtype", SUMS)
layouts = st.sampled_from(("nn", "nt", "tn", "tt"))


def normal(*shape: int, dtype: str = "complex64") -> Array:
    return (RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)).astype(dtype)


def matrices(stack: tuple[int, ...], rows: int, columns: int, letter: str, step: int, dtype: str) -> Array:
    """In rows or columns, of which every ``step``-th element is taken, from the end if it is negative."""
    if letter == "t":
        return matrices(stack, columns, rows, "n", step, dtype).swapaxes(-1, -2)
    return normal(*stack, rows, columns * abs(step), dtype=dtype)[..., ::step]


def assert_right(result: Any, a: Array, b: Array, **more: Any) -> None:
    dtype = str(np.result_type(a, b))
    with np.errstate(invalid="ignore"):
        assert result.dtype == dtype and result.shape == (a @ b).shape
    compared = compare(result, a, b, accumulate=SUMS[dtype], **more)
    assert compared, str(compared)


@examples(3, 25)
@given(
    m=st.integers(0, 40), n=st.integers(0, 70), k=st.integers(0, 50), dtype=st.sampled_from((*SUMS,)), layout=layouts,
    steps=st.tuples(*[st.sampled_from((1, 1, 2, -1))] * 2), stacks=st.sampled_from([((), ()), ((3,), ()), ((), (2,)),
    ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((0,), ())]), order=st.sampled_from(("eager", "late", 5)),
    out=st.sampled_from(("none", "rows", "columns", "apart")),
)  # fmt: skip
def test_any_size_layout_and_stack(
    m: int, n: int, k: int, dtype: str, layout: str, steps: tuple[int, int],
    stacks: tuple[tuple[int, ...], tuple[int, ...]], order: Any, out: str,
) -> None:  # fmt: skip
    a = matrices(stacks[0], m, k, layout[0], steps[0], dtype)
    b = matrices(stacks[1], k, n, layout[1], steps[1], dtype)
    *stack, _, _ = np.broadcast_shapes((*stacks[0], 1, 1), (*stacks[1], 1, 1))
    outs: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "rows": lambda: np.full((*stack, m, n + 3), np.nan, dtype)[..., 3:],
        "columns": lambda: np.full((*stack, n, m), np.nan, dtype).swapaxes(-1, -2),
        "apart": lambda: np.full((*stack, m, 2 * n), np.nan, dtype)[..., ::2],
    }
    given = outs[out]()
    result = tw.matmul(a, b, out=given, device=tw.device("emulator", order=order))
    assert given is None or result is given
    assert_right(result, a, b)


@pytest.mark.few(3)
@every_type
@pytest.mark.parametrize(
    ("a", "b"), [((30,), (30, 8)), ((9, 30), (30,)), ((30,), (30,)), ((4, 9, 30), (30,))]
)
def test_vectors(dtype: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = normal(*a, dtype=dtype), normal(*b, dtype=dtype)
    assert_right(tw.matmul(left, right, device="emulator"), left, right)


@pytest.mark.few(
    "nn-general-complex64-None",
    "tt-general-complex128-None",
    "nn-wgmma-complex64-tf32",
    "nn-09_warp_tiled-complex64-None",
)
@pytest.mark.parametrize(
    ("kernel", "dtype", "arithmetic"),
    [
        ("general", "complex64", None), ("general", "complex128", None), ("simt", "complex64", None),
        ("mma", "complex128", None), ("mma", "complex64", "tf32"), ("wgmma", "complex64", "tf32"),
        ("exact32", "complex64", "exact32"), ("09_warp_tiled", "complex64", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_every_kernel_multiplies_the_real_form(
    kernel: str, dtype: str, arithmetic: str | None, layout: str
) -> None:
    spec = KERNELS[kernel]
    a, b = matrices((), 37, 66, layout[0], 1, dtype), matrices((), 66, 29, layout[1], 1, dtype)
    bias = normal(58, dtype=dtype)[::2]  # elements that lie apart, which kernels do not read
    epilogue = tw.epilogue("2 * acc - bias", bias=bias) if spec.epilogues else None
    choice = Choice(specs=(spec,), arithmetic=arithmetic)
    result = multiply(a, b, None, EMULATOR, choice, epilogue)
    assert_right(result, a, b, epilogue=epilogue, arithmetic=arithmetic, terms=64)


@pytest.mark.few("128x256x8", "128x128x8")
@pytest.mark.parametrize("partition", [name for name, shape in SHAPES.items() if shape.takes_pairs])
def test_every_tile_for_pairs_is_right(partition: str) -> None:
    """Several steps of K, of which the last is not whole, as are no tiles; the blocks and their rows of B lie anyhow."""
    a, b = matrices((), 131, 27, "n", 1, "complex64"), matrices((), 27, 70, "t", 1, "complex64")
    choice = Choice(specs=(KERNELS["simt"],), settings=(("partition", partition),))
    assert_right(multiply(a, b, None, tw.device("emulator", order=7), choice), a, b, terms=64)


# Where B's rows are short, K in parts is all that is proposed, but along K there are none.
@example(2, 256, "complex64", "nn", (1, 1), "eager", (), False, None, 1, "acc")
@examples(6, 60)
@given(
    n=st.integers(1, 150), k=st.one_of(st.integers(0, 40), st.integers(128, 400)), dtype=st.sampled_from((*SUMS,)),
    layout=layouts, steps=st.tuples(*[st.sampled_from((1, 1, 1, 2, -1))] * 2), order=st.sampled_from(("eager", "late", 5)),
    stack=st.sampled_from([(), (), (2,), (2, 1)]), tall=st.booleans(), lane=st.sampled_from((None, 1, 2, 4, 8)),
    parts=st.sampled_from((1, 3, 5)), finish=st.sampled_from(("acc", "acc + line", "2 * acc - matrix", "acc + number")),
)  # fmt: skip
def test_a_vector_by_a_matrix(
    n: int, k: int, dtype: str, layout: str, steps: tuple[int, int], order: Any, stack: tuple[int, ...], tall: bool,
    lane: int | None, parts: int, finish: str,
) -> None:  # fmt: skip
    """By the kernel for vectors, which takes complex numbers as they lie; K in parts if the result is in one piece."""
    m, n = (n, 1) if tall else (1, n)
    k = (
        max(k, 1) if stack else k
    )  # NOTE: where b has no elements it is the same for a whole stack, which is one product
    a = matrices(stack, m, k, layout[0], steps[0], dtype)
    b = matrices(stack, k, n, layout[1], steps[1], dtype)
    arrays = {
        "line": normal(n, dtype=dtype),
        "matrix": normal(*stack, m, n, dtype=dtype),
        "number": normal(dtype=dtype),
    }
    epilogue = tw.epilogue(finish, **{name: array for name, array in arrays.items() if name in finish})
    repeats = m * n > 1 and (finish == "acc + number" or (finish == "acc + line" and tall))
    settings: dict[str, Any] = {"along": "k", "rows": 2}
    if lane:
        settings = {"along": "rows", "per_lane": lane, "parts": 1 if stack or repeats else parts}
    choice = Choice(specs=(KERNELS["vector"],), settings=tuple(settings.items()))
    result = multiply(a, b, None, tw.device("emulator", order=order), choice, epilogue)
    assert_right(result, a, b, epilogue=epilogue)


@pytest.mark.parametrize(("layout", "along", "parts"), [("nt", "k", 1), ("nn", "rows", 2)])
def test_the_checker_finds_nothing_in_a_vector_by_a_matrix(layout: str, along: str, parts: int) -> None:
    plan = tw.plan(1, 301, 300, dtype="complex64", gpu="h200", layout=layout)
    chosen = dict(plan.parameters)
    assert (plan.kernel, plan.copies, chosen["along"], chosen["parts"]) == ("vector", (), along, parts)
    assert tw.check(plan, "late") == []


@every_type
@examples(2, 5)
@given(
    bias=st.sampled_from([(), (1,), (11,), (7, 1), (7, 11), (2, 1, 11)]), real=st.booleans(), layout=layouts,
    alpha=st.sampled_from((1.0, -0.75)), in_place=st.booleans(),
)  # fmt: skip
def test_sums_are_scaled_and_added_to(
    dtype: str, bias: tuple[int, ...], real: bool, layout: str, alpha: float, in_place: bool
) -> None:
    """Arrays that broadcast in any way, real ones too; the result may be what is added."""
    a, b = matrices((2,), 7, 20, layout[0], 1, dtype), matrices((), 20, 11, layout[1], 1, dtype)
    added = normal(*bias, dtype=dtype)
    added = np.ascontiguousarray(added.real) if real else added
    c = normal(2, 7, 11, dtype=dtype)
    before = c.copy()
    call = express(added, None, None, alpha, 0.5, c)
    result = multiply(a, b, c if in_place else None, EMULATOR, SMALL, call)
    epilogue = tw.epilogue("alpha * acc + 0.5 * c + bias", alpha=alpha, c=before, bias=added)
    assert_right(result, a, b, epilogue=epilogue)


def test_linear_groups_and_lists() -> None:
    x, weight = normal(5, 40), normal(6, 40)
    assert_right(tw.linear(x, weight, device="emulator"), x, weight.T)
    rows, experts = normal(9, 40), normal(3, 40, 6)
    made = tw.grouped_matmul(rows, experts, np.array([4, 4, 9], "int32"), device="emulator")
    assert_right(made[:4], rows[:4], experts[0])
    assert_right(made[4:], rows[4:], experts[2])
    lists = [normal(5, 40) for _ in range(3)], [normal(40, 6) for _ in range(3)]
    for one, a, b in zip(tw.batched_matmul(*lists, device="emulator"), *lists, strict=True):
        assert_right(one, a, b)


def test_types_are_numpys() -> None:
    """Beside real numbers, whole ones, and those of other precision."""
    a = normal(4, 5)
    for dtype in ("float16", "bfloat16", "float32", "float64", "int8", "int64", "complex128"):
        b = (RANDOM.standard_normal((5, 3)) * 5).astype(tw.interop.numpy_dtype(dtype))
        for left, right in ((a, b), (b.T, a.T)):
            wide = "complex128" if dtype in ("float64", "int64", "complex128") else "complex64"
            kept = [one.astype(wide) for one in (left, right)]
            result = tw.matmul(left, right, device="emulator")
            assert_right(result, *kept)
    out = np.zeros((4, 3), "complex128")
    tw.matmul(a, a[:3].T, out=out, device="emulator")
    assert compare(out, a, a[:3].T)


def test_what_is_not_finite_is_as_in_four_real_products() -> None:
    a, b = normal(6, 8), normal(8, 5)
    a[0, 0], a[1, 1], a[2, 2], b[3, 3] = (
        np.inf,
        complex(0, np.nan),
        complex(-np.inf, np.inf),
        complex(np.inf, 0),
    )
    result = tw.matmul(a, b, device="emulator")
    with np.errstate(all="ignore"):
        real = a.real @ b.real - a.imag @ b.imag
    assert (np.isnan(result.real) == np.isnan(real)).all() and np.isnan(result[1]).all()
    assert_right(result, a, b)


@pytest.mark.few(1)
@every_type
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_the_checker_finds_nothing_wrong_and_no_access_is_wasted(dtype: str, layout: str) -> None:
    """In the launches that lay out real numbers."""
    assert tw.check(tw.plan(37, 26, 35, dtype=dtype, layout=layout)) == []
    plan = tw.plan(128, 96, 64, dtype=dtype, layout=layout, gpu="rtx-2060-super")
    laid_out = [one for one in tw.profile(plan).following if one.kernel == "expand"]
    assert len(laid_out) == len(plan.copies) >= 1
    for one in laid_out:
        assert one["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0
        elements = one.launch.blocks * 32 * 32
        sectors = elements * np.dtype(dtype).itemsize // 32
        assert one["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == sectors
        assert one["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] in (sectors, 2 * sectors)


def test_plans() -> None:
    """By the kernels for the parts, on every GPU; one that says what is laid out first."""
    plan = tw.plan(4096, 4096, 4096, dtype="complex64", arithmetic="tf32", gpu="h200")
    assert plan.problem.flops == 8 * 4096**3 and plan.problem.a == "complex64"
    assert "real numbers first" in str(plan) and "b" in plan.copies
    assert tw.plan(64, 64, 64, dtype="complex64", gpu="h200", copy=False).kernel == "simt"  # takes pairs
    assert tw.plan(4096, 4096, 4096, dtype="complex64", gpu="h200").kernel == "simt"
    assert tw.plan(4096, 4096, 4096, dtype="complex64", arithmetic="exact32", gpu="h200").kernel == "exact32"
    assert tw.plan(4096, 4096, 4096, dtype="complex128", gpu="h200").kernel == "mma"
    for dtype, layout in (("complex64", "nn"), ("complex128", "nt")):
        row = tw.plan(1, 4096, 4096, dtype=dtype, gpu="h200", layout=layout)
        assert (row.kernel, row.copies) == ("vector", ())
    for gpu in GPUS:
        if tw.gpus.find(gpu).capability >= (7, 5):
            assert tw.plan(300, 200, 100, dtype="complex64", gpu=gpu).problem.c == "complex64"
    for result in ("complex64", "complex128"):
        assert tw.plan(64, 64, 64, dtype="complex64", result=result, gpu="h200").problem.c == result
    left, right = normal(30, 20), normal(20, 10)
    again = tw.plan(30, 10, 20, dtype="complex64", gpu="emulator")
    assert_right(tw.matmul(left, right, plan=again, device="emulator"), left, right)


A, B = normal(4, 6), normal(6, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tw.matmul(A, B, activation="relu"),
            "epilogue must add arrays and multiply by real numbers alone",
        ),
        (lambda: tw.matmul(A, B, epilogue=tw.epilogue("acc * s", s=B[:1])), "epilogue must add arrays"),
        (lambda: tw.matmul(A, B, epilogue=tw.epilogue("acc + 1")), "epilogue must add arrays"),
        (lambda: tw.matmul(A, B, alpha=cast(Any, 2j)), "alpha must be a real number, not 'complex'"),
        (
            lambda: tw.matmul(A, B.T.copy().T, copy=False),
            "b must be laid out on the device first",
        ),
        (lambda: tw.matmul(A, B, out=np.zeros((4, 3))), "out must have a type that complex64 can be cast to"),
        (lambda: tw.matmul(A, B, bias=normal(3, dtype="complex128")), "bias must have a type of complex64"),
        (
            lambda: tw.matmul(A, B, arithmetic="f64"),
            "arithmetic must be None or 'f32' or 'tf32' or 'exact32'",
        ),
        (
            lambda: tw.matmul(normal(2, 1, 3, 1, 2, 2), normal(1, 4, 1, 5, 2, 2)),
            "stack must have at most 2 axes",
        ),
        (lambda: tw.quantize(A), "x must have a type of"),
        (lambda: tw.plan(4, 4, 4, dtype="complex256"), "dtype 'complex256' is not known"),
        (
            lambda: tw.plan(4, 4, 4, dtype="complex64", result="float32"),
            "result must be 'complex64' or 'complex128' for operands of complex64, not 'float32'",
        ),
    ],
)
def test_what_cannot_be_had_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(message)
