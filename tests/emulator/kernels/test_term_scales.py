"""Scales of 8 bits that differ along K, and the two types of float8 in one product: every kernel that has them, beside
float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import framed
from tests.thorough import examples, thorough_example
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.wgmma_shapes import BETWEEN_SIZES, shape_of
from tilewise.matmul import multiply
from tilewise.planner import list_candidates, operands_of, target_of
from tilewise.reference import compare

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng()
TYPES = ("float8_e4m3fn", "float8_e5m2")
LAYOUTS = ("nn", "nt", "tn", "tt")
PAIRS = [(one, other) for one in TYPES for other in TYPES]
WIDENED = [("bfloat16", TYPES[0]), (TYPES[1], "float16"), ("float16", "int8"), ("int8", "bfloat16")]
INTEGERS = ("int8", "int8")
LINES = (0, 1, 128, -1)  # that share a scale; 0: there is none for each 128 of K; -1: all share one


def scales(lines: int, rows: int, k: int, stack: tuple[int, ...], turned: bool) -> Array | None:
    """Scales of rows of A, of very different sizes, which lie in rows or in columns."""
    if lines == 0:
        return None
    shape = (*stack, 1 if lines < 0 else -(-rows // lines), -(-k // 128))
    found = (2.0 ** RANDOM.integers(-9, 9, shape) * RANDOM.uniform(1, 2, shape)).astype(np.float32)
    return np.ascontiguousarray(found.swapaxes(-1, -2)).swapaxes(-1, -2) if turned else found


def check(
    a: Array, b: Array, of_a: Array | None, of_b: Array | None, order: Any = "eager", **given: Any
) -> None:
    """Multiply, by the plan that the planner takes or as is given, and compare with float64; results are float32."""
    chosen = {"specs": None, **given}
    specs, settings = chosen.pop("specs"), tuple(chosen.items())
    names = {"s": of_a, "t": of_b}
    found = {name: one for name, one in names.items() if one is not None}
    terms = ", ".join(name if one is not None else "1" for name, one in names.items())
    epilogue = tw.epilogue(f"scaled(acc, {terms})", **found) if found else None
    out = np.full(
        (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.nan, np.float32
    )
    multiply(a, b, out, tw.device("emulator", order=order), Choice(specs=specs, settings=settings), epilogue)
    left = a if of_a is None else tw.Quantized(a, of_a)
    right = b if of_b is None else tw.Quantized(b, of_b)
    compared = compare(out, left, right, terms=16)
    assert compared.ok, (a.shape, b.shape, a.dtype, b.dtype, given, str(compared))


@examples(1, 30)
@given(
    size=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 600)), layout=st.sampled_from(LAYOUTS),
    types=st.sampled_from((*PAIRS, *WIDENED, INTEGERS, INTEGERS)), of_a=st.sampled_from(LINES), of_b=st.sampled_from(LINES), turned=st.booleans(),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 8)), st.sampled_from((0, 3, -1))] * 2), stack=st.sampled_from([(), (), (2, 3)]),
    kernel=st.sampled_from(("wgmma", "mma", "general", None)),
)  # fmt: skip
@thorough_example((130, 200, 400), "nt", PAIRS[1], 1, 128, True, (0,) * 4, (), "wgmma")  # as layers have it
@example((130, 200, 400), "nn", PAIRS[2], 1, 1, False, (0, 1, 0, 1), (2, 3), "wgmma")  # as their gradients do
@example((5, 300, 300), "nt", PAIRS[0], 1, 128, False, (0,) * 4, (), None)  # a few rows, which are exchanged
@thorough_example((70, 90, 400), "nt", PAIRS[1], 128, 1, True, (0,) * 4, (2, 3), "mma")
@example((70, 90, 400), "tn", PAIRS[2], 1, -1, False, (1, 3, 1, 3), (), "general")
@example((9, 300, 400), "nt", WIDENED[0], 0, 128, False, (0,) * 4, (), None)  # weights that are widened
@thorough_example((200, 130, 700), "nn", WIDENED[1], 1, 0, True, (0,) * 4, (2, 3), "wgmma")
@thorough_example((70, 90, 400), "nt", WIDENED[2], 0, 1, False, (0,) * 4, (), "mma")
@thorough_example((70, 90, 400), "tn", WIDENED[3], 128, 0, False, (1, 3, 1, 3), (2, 3), "general")
@example((130, 200, 400), "nt", INTEGERS, 1, 128, True, (0,) * 4, (), "wgmma")
@thorough_example((130, 200, 400), "nn", INTEGERS, 128, 1, False, (0,) * 4, (2, 3), "mma")
@thorough_example((70, 90, 400), "tt", INTEGERS, -1, 1, False, (1, 3, 1, 3), (), "general")
def test_any_size_layout_and_scales(
    size: tuple[int, int, int], layout: str, types: tuple[str, str], of_a: int, of_b: int, turned: bool,
    lie: tuple[int, ...], stack: tuple[int, ...], kernel: str | None,
) -> None:  # fmt: skip
    m, n, k = size
    of_a, of_b = (
        lines if type_ in ("int8", *TYPES) else 0 for lines, type_ in zip((of_a, of_b), types, strict=True)
    )
    of_a = of_a or int(types == INTEGERS and not of_b)  # without any their sums are integers
    a = framed((*stack, m, k), types[0], layout[0] == "n", *lie[:2])
    b = framed((*((1, *stack[1:]) if stack else ()), k, n), types[1], layout[1] == "n", *lie[2:])
    left = scales(of_a, m, k, stack, turned)
    right = scales(of_b, n, k, (1,) * len(stack), not turned)
    specs = None if kernel is None else (KERNELS[kernel],)
    check(
        a,
        b,
        left,
        None if right is None else right.swapaxes(-1, -2),
        int(RANDOM.integers(2**30)),
        specs=specs,
    )


def proposals(
    gpu: str, size: tuple[int, int, int], lines: tuple[int, int], types: tuple[str, str] = TYPES
) -> dict[str, Any]:
    """What is proposed for a GPU, each tile once with its schedule, and by how it splits K or not."""
    (m, n, k), runs = size, -(-size[2] // 128)
    given = {"t": np.ones((runs, -(-n // lines[1])), np.float32)}
    if lines[0]:
        given["s"] = np.ones((-(-m // lines[0]), runs), np.float32)
    operands = operands_of(
        m, n, k, dtype=types[0], b_dtype=types[1], layout="nt", result="float32",
        epilogue=tw.epilogue(f"scaled(acc, {'s' if lines[0] else '1'}, t)", **given),
    )  # fmt: skip
    found: dict[str, Any] = {}
    for one in list_candidates(operands, target_of(gpu))[0]:
        names = ("partition", "exchanged", "cluster", "split", "parts", "tiles")
        parts = (
            str(min(one.settings[name], 2) if name in names[3:] else one.settings[name])
            for name in names
            if name in one.settings
        )
        found.setdefault(" ".join((one.spec.name, *parts)), one)
    return found


SIZES = {
    "few rows": (20, 700, 2000),
    "one": (200, 300, 700),
    "deep": (70, 130, 3000),
    "many": (1500, 2100, 260),
}
CASES = [
    pytest.param(types, size, lines, one, id=f"{'x'.join(types)} {lines[0]}x{lines[1]} {name}")
    for types, size, lines in (
        *((TYPES, size, lines) for size in SIZES.values() for lines in ((1, 128), (1, 1), (128, 1))),
        *((WIDENED[0], size, (0, lines)) for size in list(SIZES.values())[:3] for lines in (1, 128)),
        (INTEGERS, SIZES["one"], (1, 128)),
        (INTEGERS, SIZES["few rows"], (128, 1)),
    )
    for name, one in proposals("h200", size, lines, types).items()
    if not name.startswith("general") and (size != SIZES["many"] or "256x128" in name or "128x192" in name)
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("types", "size", "lines", "candidate"), CASES)
def test_proposed_tiles_clusters_and_parts_of_k(
    types: tuple[str, str], size: tuple[int, int, int], lines: tuple[int, int], candidate: Any
) -> None:
    m, n, k = size
    a, b = framed((m, k), types[0], True, 0, -1), framed((k, n), types[1], False, 0, -1)
    left, right = scales(lines[0], m, k, (), True), scales(lines[1], n, k, (), True)
    assert right is not None
    settings = {name: value for name, value in candidate.settings.items() if name != "result"}
    order = "eager" if m > 1000 else int(RANDOM.integers(2**30))
    check(a, b, left, right.T, order, specs=(candidate.spec,), **settings)


@pytest.mark.parametrize(
    ("kernel", "size", "settings"),
    [
        # Its second tile begins in the middle of columns with a scale in common.
        ("wgmma", (130, 400, 300), {"partition": "128x192x128"}),
        # Its second part of K begins in the middle of a run.
        ("mma", (70, 60, 320), {"partition": "64x128x64", "split": 2, "stages": 3}),
        ("mma", (70, 60, 320), {"partition": "64x64x128", "split": 2, "stages": 2}),
    ],
    ids=["wgmma", "mma", "mma of two stages"],
)
def test_tiles_and_parts_that_begin_inside_of_a_scale(
    kernel: str, size: tuple[int, int, int], settings: dict[str, Any]
) -> None:
    m, n, k = size
    a, b = framed((m, k), TYPES[0], True, 0, -1), framed((k, n), TYPES[1], False, 0, -1)
    left, right = scales(1, m, k, (), True), scales(128, n, k, (), False)
    assert right is not None
    check(a, b, left, right.T, specs=(KERNELS[kernel],), **settings)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("gpu", "kernel", "lines", "types"),
    [
        ("h200", "wgmma", (1, 128), TYPES),
        ("h200", "wgmma", (1, 1), TYPES),
        ("h200", "wgmma", (0, 1), WIDENED[0]),
        ("h200", "wgmma", (1, 128), INTEGERS),
        ("rtx4090", "mma", (1, 1), TYPES),
        ("a100", "mma", (0, 128), WIDENED[0]),
        ("a100", "mma", (1, 128), INTEGERS),
        ("a100", "general", (1, 128), TYPES),
    ],
)
def test_launches_have_no_races(
    gpu: str, kernel: str, lines: tuple[int, int], types: tuple[str, str]
) -> None:
    found = next(
        one for one in proposals(gpu, (140, 150, 300), lines, types).values() if one.spec.name == kernel
    )
    assert tw.check(found.plan(found.operands, target_of(gpu))) == []


@pytest.mark.parametrize(("lines", "between"), [((1, 1), True), ((128, 1), True), ((1, 128), False)])
def test_no_tile_begins_inside_of_columns_that_share_scales(lines: tuple[int, int], between: bool) -> None:
    """As those do whose width is none of the usual ones."""
    found = [
        one.settings for one in proposals("h200", (4096,) * 3, lines).values() if one.spec.name == "wgmma"
    ]
    tiles = {shape_of(one).tile for one in found if not one["exchanged"]}
    assert bool({(one.m, one.n) for one in tiles} & BETWEEN_SIZES) is between


def test_a_wrong_scale_is_noticed() -> None:
    """By the yardstick of the other tests: one scale of another run, row or tile."""
    a, b = framed((40, 500), TYPES[0], True, 0, 0), framed((500, 300), TYPES[0], False, 0, 0)
    left, right = (RANDOM.uniform(1, 2, shape).astype(np.float32) for shape in ((40, 4), (3, 4)))
    made: Any = tw.matmul(
        a, b, np.zeros((40, 300), np.float32), scale_a=left, scale_b=right.T, device="emulator"
    )
    assert compare(made, tw.Quantized(a, left), tw.Quantized(b, right.T)).ok
    for changed, at in ((left, (3, 2)), (left, (39, 3)), (right, (2, 0)), (right, (0, 3))):
        before = changed[at]
        changed[at] = before * np.float32(1.05)
        assert not compare(made, tw.Quantized(a, left), tw.Quantized(b, right.T)).ok
        changed[at] = before


def test_whatever_else_happens_to_the_sums() -> None:
    """Scales along K of one operand and of whole rows of the other, and an epilogue; by names and in one expression."""
    x, w = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((50, 400), (70, 400)))
    left, right = tw.quantize(x, axis=-1, block=128), tw.quantize(w, "float8_e5m2", axis=-1)
    bias, residual = (
        RANDOM.standard_normal(70).astype(np.float32),
        RANDOM.standard_normal((50, 70)).astype(np.float32),
    )
    made: Any = tw.linear(left, right, bias, activation="relu", residual=residual, device="emulator")
    text = "relu(scaled(acc, s, 1) * t + bias) + residual"
    given = {"s": left.scale, "t": right.scale.T, "bias": bias, "residual": residual}
    turned = tw.Quantized(right.values.T, right.scale.T)
    whole = tw.epilogue("relu(acc + bias) + residual", bias=bias, residual=residual)
    assert compare(made, left, turned, epilogue=whole).ok
    own: Any = tw.matmul(left.values, turned.values, epilogue=tw.epilogue(text, **given), device="emulator")
    assert (
        np.abs(own.astype(np.float32) - made.astype(np.float32)).max()
        <= 2**-6 * np.abs(made.astype(np.float32)).max()
    )
    sums = np.zeros(70, np.float32)
    tw.matmul(left, turned, device="emulator", epilogue=tw.epilogue("column_sums(b, acc)", b=sums))
    assert np.allclose(sums, (left.dequantize() @ turned.dequantize()).sum(0), rtol=1e-3, atol=1e-2)


def test_special_numbers() -> None:
    """NaN and infinity among numbers, and NaN among scales, reach what they are multiplied with, and nothing else."""
    a, b = framed((20, 300), TYPES[1], True, 0, 0), framed((300, 40), TYPES[1], False, 0, 0)
    left, right = scales(1, 20, 300, (), False), scales(1, 40, 300, (), False)
    assert left is not None and right is not None
    a[3, 7], b[200, 5], left[9, 1], right[8, 2] = np.nan, np.inf, np.nan, np.nan
    for kernel in ("wgmma", "mma", "general"):
        check(a, b, left, right.T, specs=(KERNELS[kernel],))


def test_rows_of_a_stack_become_one_matrix_where_their_scales_do() -> None:
    """Whether or not they are joined, the result is that of each matrix by itself."""
    x, w = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 200, 300), (40, 300)))
    weight = tw.quantize(w, block=(128, 128))
    for left in (tw.quantize(x, axis=-1, block=128), tw.quantize(x, block=(128, 128))):
        made: Any = tw.linear(left, weight, device="emulator")
        for i in range(3):
            alone: Any = tw.linear(tw.Quantized(left.values[i], left.scale[i]), weight, device="emulator")
            assert made[i].tobytes() == alone.tobytes()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda q: tw.matmul(q.values.astype("float16"), q.values, scale_a=q.scale, device="emulator"),
         r"scale_a must be the same along k, for an operand of float16, .*for operands of 8 bits"),
        (lambda q: tw.matmul(q.values, q.values, scale_a=q.scale.astype("float16"), device="emulator"), "scale_a must have the type float32"),
        (lambda q: tw.matmul(q.values, q.values, scale_a=np.ones((256, 3), "float32"), device="emulator"),
         r"scale_a must be the same along k, .* \(256, 1\) or \(256, 2\) or \(2, 2\), not \(256, 3\)"),
        (lambda q: tw.matmul(q.values, q.values, scale_a=np.ones((3, 256, 2), "float32"), device="emulator"), "scale_a must have a stack"),
        (lambda q: tw.batched_matmul([q.values], [q.values], epilogue=tw.epilogue("scaled(acc, s, 1)", s=q.scale), device="emulator"),
         "s must be the same along k, for lists of matrices"),
        (lambda q: tw.epilogue("scaled(acc, s, 1)", s=2.0), "s must be an array: it has scales of terms"),
        (lambda q: tw.matmul(q.values, q.values, epilogue=tw.epilogue("scaled(acc, 1, s)", s=np.ones((1, 256), "float32")), device="emulator"),
         r"^s must have one for each 128 of k: the shape \(2, 256\) or \(2, 2\), not \(1, 256\)"),
        (lambda q: tw.matmul(q.values, q.values.astype("int8"), device="emulator"), "must have a type of"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence(call: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        call(tw.quantize(np.ones((256, 256), np.float32), axis=-1, block=128))


def test_the_two_types_of_float8_by_name() -> None:
    plan = tw.plan(256, 256, 256, dtype=TYPES[1], b_dtype=TYPES[0], layout="nt", gpu="h200")
    assert plan.kernel == "wgmma" and plan.problem.c == "bfloat16"
    assert tw.Plan.from_dict(plan.to_dict()) == plan
    assert (
        tw.plan(256, 256, 256, dtype=TYPES[1], b_dtype=TYPES[0], layout="nt", gpu="rtx4090").kernel == "mma"
    )
    a, b = (RANDOM.standard_normal((30, 40)).astype(getattr(ml_dtypes, one)) for one in TYPES)
    made: Any = tw.linear(a, b, device="emulator")
    assert compare(made, a, b.T).ok
