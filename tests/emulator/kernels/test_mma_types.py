"""The kernel by mma.sync of float64, and of float32 in tf32, on the emulator beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.kernels.test_mma_kernel import LAYOUTS, RANDOM, Array, Size, framed
from tests.framed import marked
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.instruments.checking import check_bound
from tilewise.interop import numpy_dtype
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind
from tilewise.kernels.gemm.mma import lies, refuse_arch
from tilewise.kernels.gemm.mma_shapes import SHAPES_OF
from tilewise.matmul import multiply
from tilewise.planner import operands_of
from tilewise.reference import compare

SPEC = KERNELS["mma"]
SMALL = {"float32": "16x64x32", "float64": "16x64x16"}
ARITHMETIC = {"float32": "tf32", "float64": None}
TYPES = tuple(SMALL)


def check(
    size: Size, element: str, layout: str = "nn", stack: tuple[int, ...] = (), lie: tuple[int, ...] = (0,) * 6,
    order: Any = "eager", fused: bool = False, **given: Any,
) -> Array:  # fmt: skip
    """Multiply random matrices, compare with float64; what lies beside the result must stay as it was."""
    m, n, k = size
    a = framed((*stack, m, k), element, layout[0] == "n", *lie[:2])
    b = framed((*stack, k, n), element, layout[1] == "n", *lie[2:4])
    whole = marked((*stack, m, lie[4] + n + lie[5]), given.get("result", element))
    before, out = whole.copy(), whole[..., lie[4] : lie[4] + n]
    row, full = RANDOM.standard_normal(n).astype(element), RANDOM.standard_normal((n, m)).astype(element).T
    epilogue = tw.epilogue("tanh(acc * s + row) + full", s=0.1, row=row, full=full) if fused else None
    given = {"partition": SMALL[element], "result": element, **given}
    choice = Choice(specs=(SPEC,), settings=tuple(given.items()), copy=False, arithmetic=ARITHMETIC[element])
    multiply(a, b, out, tw.device("emulator", order=order), choice, *([epilogue] if epilogue else []))
    accumulate = "float64" if element == "float64" else "float32"
    compared = compare(
        out,
        a,
        b,
        accumulate=accumulate,
        terms=16 + 64 * fused,
        epilogue=epilogue,
        arithmetic=ARITHMETIC[element],
    )
    assert compared.ok, (size, layout, lie, given, str(compared))
    whole[..., lie[4] : lie[4] + n] = before[..., lie[4] : lie[4] + n]
    assert whole.tobytes() == before.tobytes()
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_any_tile_is_right(element: str) -> None:
    """Another one each time, in a grid of them, with sizes that end inside of one."""
    number = int(RANDOM.integers(len(SHAPES_OF[element])))
    partition, shape = list(SHAPES_OF[element].items())[number]
    size = shape.tile.m + 9, shape.tile.n + 21, 3 * shape.tile.k + 7
    lie, layout = (8, -1, 0, -1, 3, 1), LAYOUTS[int(RANDOM.integers(4))]
    check(size, element, layout, lie=lie, partition=partition, stages=shape.stages[0])


@examples(2, 6)
@given(
    m=st.integers(0, 70), n=st.integers(0, 140), k=st.integers(0, 100), layout=st.sampled_from(LAYOUTS),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 2, 4))] * 6), stack=st.sampled_from([(), (2, 3)]),
    fused=st.booleans(), element=st.sampled_from(TYPES), split=st.sampled_from((1, 1, 4)), tail=st.integers(0, 1),
)  # fmt: skip
@example(40, 61, 90, "tt", (0, 2, 0, 1, 0, 0), (2,), True, "float64", 2, 0)
@example(40, 61, 90, "tn", (0, 0, 0, 1, 0, 1), (), True, "float32", 2, 1)
@example(70, 141, 90, "nt", (0, 0, 0, 1, 0, 1), (), False, "float64", 3, 1)
def test_any_size_layout_and_alignment(
    m: int,
    n: int,
    k: int,
    layout: str,
    lie: tuple[int, ...],
    stack: tuple[int, ...],
    fused: bool,
    element: str,
    split: int,
    tail: int,
) -> None:
    """The last tile may be in parts of K alone, of one matrix."""
    tail = 0 if stack or split == 1 or m * n == 0 else tail
    check((m, n, k), element, layout, stack, lie, fused=fused, split=split, tail=tail)


def test_any_order_of_threads_and_copies() -> None:
    """Of one type each time."""
    element, layout = (("float32", "tn"), ("float64", "nt"))[int(RANDOM.integers(2))]
    check((20, 100, 200), element, layout, order=int(RANDOM.integers(2**40)))


@examples(2, 6)
@given(
    m=st.integers(0, 70), n=st.integers(0, 70), k=st.integers(0, 120), layout=st.sampled_from(LAYOUTS),
    partition=st.sampled_from(("32x32x16", "16x64x16", "64x32x16")), stages=st.sampled_from((3, 4, 6)),
    stack=st.sampled_from([(), (2, 3)]), fused=st.booleans(), split=st.sampled_from((1, 1, 3)),
    order=st.sampled_from(("eager", "late", 7)),
)  # fmt: skip
@example(70, 40, 90, "nn", "32x32x16", 6, (2,), False, 1, "late")
@example(40, 72, 100, "tt", "32x32x16", 3, (), True, 3, 5)
@example(72, 61, 33, "tn", "64x32x16", 4, (), False, 1, "eager")
def test_float64_in_boxes(
    m: int,
    n: int,
    k: int,
    layout: str,
    partition: str,
    stages: int,
    stack: tuple[int, ...],
    fused: bool,
    split: int,
    order: Any,
) -> None:
    """The copy engine brings lines that begin at multiples of 16 bytes; those across K are whole runs of 8 elements."""
    m, n = (-(-m // 8) * 8 if layout[0] == "t" else m), (-(-n // 8) * 8 if layout[1] == "n" else n)
    given = {"partition": partition, "stages": stages, "split": split, "boxes": int(m * n * k > 0)}
    tail = int(split > 1 and not stack and m * n > 0)
    check((m, n, k), "float64", layout, stack, (8, -1, 0, -1, 3, 1), order, fused, tail=tail, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("element", "layout", "split", "boxes"),
    [("float32", "nn", 1, 0), ("float64", "tn", 2, 0), ("float64", "nn", 1, 1), ("float64", "tt", 2, 1)],
)
def test_the_checker_finds_nothing_wrong(element: str, layout: str, split: int, boxes: int) -> None:
    operands = operands_of(40, 72, 90, dtype=element, layout=layout, arithmetic=ARITHMETIC[element])
    found = {**lies(operands), "partition": SMALL[element], "stages": 4, "split": split, "boxes": boxes}
    device = open_emulator()
    bound = bind(
        SPEC,
        SPEC.complete({**SPEC.for_types(operands), **found}),
        operands,
        operands,
        device,
        "sm_90" if boxes else "sm_80",
    )
    made = {
        "a": device.array(RANDOM.standard_normal((40, 90)).astype(element)),
        "b": device.array(RANDOM.standard_normal((90, 72)).astype(element)),
        "c": device.empty((40, 72), element),
        "workspace": device.empty((bound.workspace_bytes,), "uint8"),
    }
    assert check_bound(bound, {name: array.ptr for name, array in made.items()}, "late") == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("element", "layout", "boxes"),
    [("float32", "tn", 0), ("float64", "nn", 0), ("float64", "nn", 1), ("float64", "tt", 1)],
)
def test_no_bank_conflicts(element: str, layout: str, boxes: int) -> None:
    """Of loads, stores and copies, in a product that ends with its tiles."""
    partition = {"float32": "32x64x32", "float64": "32x32x16"}[element]
    tile = SHAPES_OF[element][partition].tile
    operands = operands_of(tile.m, tile.n, 64, dtype=element, layout=layout, arithmetic=ARITHMETIC[element])
    found = {
        **SPEC.for_types(operands),
        **lies(operands),
        "partition": partition,
        "stages": 4,
        "boxes": boxes,
    }
    plan = SPEC.plan(operands, "h200" if boxes else "a100", SPEC.complete(found))
    assert tw.profile(plan)["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0


@pytest.mark.parametrize(
    ("size", "dtype", "layout", "stages", "message"),
    [
        (
            (32, 32, 32),
            "float32",
            "nn",
            4,
            "boxes must be 0 but for float64 in lines at multiples of 16 bytes",
        ),
        (
            (32, 32, 31),
            "float64",
            "nt",
            4,
            "boxes must be 0 but for float64 in lines at multiples of 16 bytes",
        ),
        ((32, 30, 32), "float64", "nn", 4, "those across k of a multiple of 8"),
        ((30, 32, 32), "float64", "tn", 4, "those across k of a multiple of 8"),
        ((32, 32, 0), "float64", "nn", 4, "boxes must be 0"),
        ((32, 32, 32), "float64", "nn", 2, "stages must be more for operands in boxes, not 2"),
    ],
)
def test_boxes_of_what_the_copy_engine_cannot_bring_are_refused(
    size: Size, dtype: str, layout: str, stages: int, message: str
) -> None:
    operands = operands_of(*size, dtype=dtype, layout=layout, arithmetic=ARITHMETIC[dtype])
    found = {**SPEC.for_types(operands), **lies(operands), "stages": stages, "boxes": 1}
    error = SPEC.why_not(operands, SPEC.complete(found))
    assert error is not None and message in str(error)


def test_boxes_are_for_hopper() -> None:
    operands = operands_of(4096, 4096, 4096, dtype="float64")
    chosen = [
        tw.plan(4096, 4096, 4096, dtype="float64", gpu=gpu).parameters["boxes"] for gpu in ("h200", "a100")
    ]
    assert chosen == [1, 0]
    found = SPEC.complete({**SPEC.for_types(operands), **lies(operands), "stages": 4, "boxes": 1})
    assert "boxes must be 0 on sm_80, not 1; sm_90 is the first" in str(refuse_arch(found, "sm_80"))


# ── tf32 from the front door ──


def test_tf32_is_rounded_to_the_nearest_and_only_if_asked_for() -> None:
    """One product of each sum is not zero, so the result is that of the rounded operands, bit by bit."""
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 24)))
    a[np.arange(40) != np.arange(24)[:, None]] = 0
    device = tw.device("emulator")

    def rounded(x: Array) -> Array:
        bits = x.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)
        found: Array = bits.view(np.float32)
        return found

    found = tw.matmul(a, b, arithmetic="tf32", device=device)
    assert found.dtype == np.float32
    assert (found == np.diag(rounded(a[:, :24]))[:, None] * rounded(b[:24])).all()
    plain = tw.matmul(a, b, device=device)
    assert (plain == tw.matmul(a, b, arithmetic="f32", device=device)).all()
    assert compare(plain, a, b).ok and not compare(found, a, b).ok


@pytest.mark.few(1)
@pytest.mark.parametrize("sort", ["linear", "grouped"])
def test_tf32_of_layers_and_groups(sort: str) -> None:
    """Rounded as a product in tf32 is, and not as float32 would be."""
    rng = np.random.default_rng()
    a, weight = (rng.standard_normal(shape, np.float32) for shape in ((40, 64), (24, 64)))

    def product(arithmetic: str | None) -> Any:
        if sort == "linear":
            return tw.linear(a, weight, arithmetic=arithmetic, device="emulator")
        ends = np.array([16, 40], "int32")
        return tw.grouped_matmul(a, np.stack([weight.T] * 2), ends, arithmetic=arithmetic, device="emulator")

    rounded, own = product("tf32"), product(None)
    assert compare(rounded, a, weight.T, arithmetic="tf32") and compare(own, a, weight.T)
    assert not compare(rounded, a, weight.T)


def test_what_is_not_finite_comes_through_tf32() -> None:
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 24)))
    a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, -np.inf
    a[8, 9] = np.uint32(0x7FFFFFFF).view(np.float32)  # NaN as GPUs make it
    a[9, 10] = np.uint32(0x7F800001).view(np.float32)  # NaN by a bit that tf32 does not have
    found = tw.matmul(a, b, arithmetic="tf32", device="emulator")
    assert compare(found, a, b, arithmetic="tf32").ok


def test_a_plan_in_tf32_is_kept_and_followed(tmp_path: Any) -> None:
    made = tw.plan(24, 24, 40, arithmetic="tf32", gpu="a100")
    assert made.kernel == "mma" and "in tf32" in str(made)
    made.save(tmp_path / "plan.json")
    loaded = tw.Plan.load(tmp_path / "plan.json")
    assert loaded == made
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 24)))
    device = tw.device("emulator")
    found = tw.matmul(a, b, plan=loaded, device=device)
    assert (found == tw.matmul(a, b, arithmetic="tf32", plan=loaded, device=device)).all()
    assert not compare(found, a, b).ok and compare(found, a, b, arithmetic="tf32").ok
    with pytest.raises(ArgumentError, match="plan must be for arithmetic = None"):
        tw.matmul(a, b, arithmetic="f32", plan=loaded, device=device)


@pytest.mark.parametrize(
    ("dtype", "arithmetic", "message"),
    [
        ("float32", "bf16", "None or 'f32' or 'tf32' or 'exact32' for operands of float32, not 'bf16'"),
        ("float64", "tf32", "must be None or 'f64' for operands of float64"),
        ("float16", "bf16", "must be None or 'f16' for operands of float16, not 'bf16'"),
        ("bfloat16", "f16", "must be None for operands of bfloat16"),
        ("float32", "tf23", "did you mean 'tf32'"),
    ],
)
def test_an_arithmetic_that_there_is_not_is_refused(dtype: str, arithmetic: str, message: str) -> None:
    whole = np.ones((8, 8), numpy_dtype(dtype))
    with pytest.raises(ArgumentError, match=message):
        tw.matmul(whole, whole, arithmetic=arithmetic, device="emulator")
    with pytest.raises(ArgumentError, match=message):
        tw.plan(8, 8, 8, dtype=dtype, arithmetic=arithmetic)


def test_a_gpu_without_tf32_says_so() -> None:
    with pytest.raises(ArgumentError, match="arithmetic must be None on sm_75, not 'tf32'"):
        tw.plan(64, 64, 64, arithmetic="tf32", gpu="t4")
