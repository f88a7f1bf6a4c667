"""The kernel by mma.sync of int8, whose sums are exact, and of float8, on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.kernels.test_mma_kernel import LAYOUTS, RANDOM, Array, Size
from tests.framed import framed, marked
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.instruments.checking import check_bound
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind
from tilewise.kernels.gemm.mma import lies
from tilewise.kernels.gemm.mma_shapes import SHAPES_OF
from tilewise.matmul import multiply
from tilewise.planner import operands_of
from tilewise.problem import EIGHT_BITS, FLOAT8
from tilewise.reference import compare

SPEC = KERNELS["mma"]
SMALL = "16x64x128"
RESULTS = {"int8": ("int32",), **dict.fromkeys(FLOAT8, ("bfloat16", "float32", *FLOAT8))}


def check(
    size: Size, element: str, layout: str = "nt", stack: tuple[int, ...] = (), lie: tuple[int, ...] = (0, 0, 0),
    order: Any = "eager", fused: bool = False, result: str | None = None, **chosen: Any,
) -> Array:  # fmt: skip
    """Multiply any bytes, compare with float64, int32 bit for bit; what lies beside the result stays as it was."""
    m, n, k = size
    a = framed((*stack, m, k), element, layout[0] == "n", 0, lie[0])
    b = framed((*stack, k, n), element, layout[1] == "n", 0, lie[1])
    result = result or ("float16" if fused and element == "int8" else RESULTS[element][0])
    whole = marked((*stack, m, n + lie[2]), result)
    before, out = whole.copy(), whole[..., :n]
    row, column = (RANDOM.uniform(0.5, 2.0, length).astype("float32") for length in (n, m))
    epilogue = tw.epilogue("acc * row * column", row=row, column=column[:, None]) if fused else None
    settings = {"partition": SMALL, "result": result, **chosen}
    choice = Choice(specs=(SPEC,), settings=tuple(settings.items()))
    multiply(a, b, out, tw.device("emulator", order=order), choice, *([epilogue] if epilogue else []))
    if result == "int32":
        assert (out == a.astype("int32") @ b.astype("int32")).all()
    else:
        compared = compare(out, a, b, epilogue=epilogue)
        assert compared.ok, (size, layout, lie, chosen, str(compared))
    assert (whole[..., n:].view(np.uint8) == before[..., n:].view(np.uint8)).all()
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("element", EIGHT_BITS)
def test_any_tile_is_right(element: str) -> None:
    """Another one each time, in a grid of them, with sizes that end inside of one."""
    number = int(RANDOM.integers(len(SHAPES_OF[element])))
    partition, shape = list(SHAPES_OF[element].items())[number]
    size = shape.tile.m + 9, shape.tile.n + 21, 3 * shape.tile.k + 8
    result = str(RANDOM.choice(RESULTS[element]))
    check(size, element, lie=(16, 4, 3), result=result, partition=partition, stages=shape.stages[0])


@examples(3, 8)
@given(
    m=st.integers(0, 70), n=st.integers(0, 140), k=st.integers(0, 300), layout=st.sampled_from(LAYOUTS),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 4, 8))] * 3), stack=st.sampled_from([(), (2, 3)]),
    fused=st.booleans(), element=st.sampled_from(EIGHT_BITS), split=st.sampled_from((1, 1, 4)), tail=st.integers(0, 1),
)  # fmt: skip
@example(40, 61, 301, "tn", (1, 0, 1), (2,), True, "int8", 2, 0)
@example(33, 70, 130, "tt", (0, 1, 0), (), True, "int8", 1, 0)
@example(40, 61, 259, "nn", (0, 1, 0), (), False, "float8_e5m2", 4, 0)
@example(70, 141, 259, "nn", (0, 1, 0), (), False, "int8", 2, 1)
def test_any_size_layout_and_alignment(
    m: int, n: int, k: int, layout: str, lie: tuple[int, ...], stack: tuple[int, ...], fused: bool, element: str, split: int,
    tail: int,
) -> None:  # fmt: skip
    """What does not lie along K, or not at multiples of 4 bytes, is laid out anew first. The last tile may be in parts of
    K alone, of one matrix."""
    tail = 0 if stack or split == 1 or m * n == 0 else tail
    check((m, n, k), element, layout, stack, lie, fused=fused, split=split, tail=tail)


def test_sums_of_int8_wrap() -> None:
    """Modulo 2³², those of parts of K too."""
    k = 3 * 2**16
    a = np.full((16, k), -128, "int8")
    out = np.zeros((16, 16), "int32")
    choice = Choice(specs=(SPEC,), settings=(("partition", "16x64x128"), ("split", 2)))
    multiply(a, a.T, out, tw.device("emulator"), choice)
    assert (out == np.int64(k * 128 * 128).astype("int32")).all()


def test_what_is_not_finite_comes_through() -> None:
    a, b = framed((20, 160), "float8_e5m2", True, 0, 0), framed((160, 24), "float8_e5m2", False, 0, 0)
    a[3, 4], a[5, 140], b[7, 8] = np.inf, np.nan, -np.inf
    out = np.zeros((20, 24), "float32")
    multiply(a, b, out, tw.device("emulator"), Choice(specs=(SPEC,), settings=(("partition", SMALL),)))
    assert compare(out, a, b).ok and np.isnan(out[5]).all() and np.isinf(out[3]).any()


def test_any_order_of_threads_and_copies() -> None:
    """Of one type each time."""
    check((20, 100, 400), str(RANDOM.choice(EIGHT_BITS)), order=int(RANDOM.integers(2**40)))


@pytest.mark.few(1)
@pytest.mark.parametrize(("element", "arch", "split"), [("float8_e4m3fn", "sm_89", 1), ("int8", "sm_80", 2)])
def test_the_checker_finds_nothing_wrong(element: str, arch: str, split: int) -> None:
    operands = operands_of(40, 72, 300, dtype=element, layout="nt")
    found = {**lies(operands), "partition": SMALL, "stages": 4, "split": split}
    device = open_emulator()
    bound = bind(SPEC, SPEC.complete({**SPEC.for_types(operands), **found}), operands, operands, device, arch)
    made = {
        "a": device.array(framed((40, 300), element, True, 0, 0)),
        "b": device.array(framed((72, 300), element, True, 0, 0)),
        "c": device.empty((40, 72), operands.c.dtype),
        "workspace": device.empty((bound.workspace_bytes,), "uint8"),
    }
    assert check_bound(bound, {name: array.ptr for name, array in made.items()}, "late") == []


def test_no_bank_conflicts() -> None:
    """Of loads, stores and copies, in products that end with their tiles, with results of bytes too."""
    for element, result in (("int8", "int32"), ("float8_e4m3fn", "float8_e4m3fn")):
        tile = SHAPES_OF[element]["32x64x128"].tile
        operands = operands_of(tile.m, tile.n, 256, dtype=element, layout="nt", result=result)
        found = {**SPEC.for_types(operands), **lies(operands), "partition": "32x64x128", "stages": 4}
        plan = SPEC.plan(operands, "l40s", SPEC.complete(found))
        assert tw.profile(plan)["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0


def test_plans_take_it_where_there_are_instructions() -> None:
    """Of float8 since Ada, of int8 since Ampere; on Hopper the warpgroups' are faster."""

    def kernel(gpu: str, dtype: str) -> str:
        return tw.plan(1024, 1024, 1024, dtype=dtype, gpu=gpu).kernel

    assert [kernel(gpu, "float8_e4m3fn") for gpu in ("a100", "l40s", "h200")] == ["general", "mma", "wgmma"]
    assert [kernel(gpu, "int8") for gpu in ("t4", "a100", "rtx4090", "h200")] == [
        "general",
        "mma",
        "mma",
        "wgmma",
    ]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"a_bytes": 2}, "^a_bytes must be at least 4 for elements of int8"),
        ({"a_in_rows": 0}, "^a_in_rows must be as the operand lies"),
        ({"b_in_rows": 1}, "^b_in_rows must be as the operand lies"),
        ({"partition": "128x128x32"}, "^partition must be one of 128x128x64"),
        ({"result": "float16"}, "^result must be 'int32'"),
    ],
)
def test_refusals_say_what_is_wrong(chosen: dict[str, Any], message: str) -> None:
    operands = operands_of(64, 64, 64, dtype="int8", layout="nt", result=chosen.get("result"))
    given = SPEC.complete({**SPEC.for_types(operands), **lies(operands), "partition": SMALL, **chosen})
    with pytest.raises(ArgumentError, match=message):
        SPEC.check(operands, given)


def test_older_archs_are_refused() -> None:
    given = SPEC.complete({"element": "float8_e5m2", "partition": SMALL})
    assert "sm_89 is the first" in str(SPEC.refuse_arch(given, "sm_86"))
    assert SPEC.refuse_arch(SPEC.complete({"element": "int8", "partition": SMALL, "stages": 2}), "sm_75")
    assert (
        SPEC.refuse_arch(SPEC.complete({"element": "int8", "partition": SMALL, "stages": 4}), "sm_80") is None
    )
