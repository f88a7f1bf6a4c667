"""float32 on the SIMT units, on the emulator, beside float64: tiles, layouts, alignment, stacks, parts of K, epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.simt import SHAPES, lie
from tilewise.matmul import multiply
from tilewise.operands import Operands
from tilewise.planner import operands_of
from tilewise.problem import Problem
from tilewise.reference import compare

EMULATOR = open_emulator()
SPEC = KERNELS["simt"]
RANDOM = np.random.default_rng()


def operand(shape: tuple[int, ...], in_rows: bool, pad: int) -> npt.NDArray[np.float32]:
    """Random elements, each matrix in rows or columns with so many elements beside them."""
    *stack, rows, columns = shape
    if not in_rows:
        return operand((*stack, columns, rows), True, pad).swapaxes(-1, -2)
    return RANDOM.standard_normal((*stack, rows, columns + pad), np.float32)[..., :columns]


def check(
    size: tuple[int, int, int],
    stack: tuple[int, ...] = (),
    layout: str = "nn",
    pad: int = 0,
    order: Any = "eager",
    **given: Any,
) -> None:
    """Multiply random matrices and compare with float64; what lies beside the result must stay as it was."""
    m, n, k = size
    a, b = operand((*stack, m, k), layout[0] == "n", pad), operand((*stack, k, n), layout[1] == "n", pad)
    whole = np.full((*stack, m, n + 3), 7, given.get("result", "float32"))
    given.pop("result", None)
    chosen = Choice(specs=(SPEC,), settings=tuple(given.items()))
    multiply(a, b, whole[..., :n], tw.device("emulator", order=order), chosen)
    assert compare(whole[..., :n], a, b, terms=given.get("parts", 16)).ok
    assert (whole[..., n:] == 7).all()


@pytest.mark.few("64x32x16-nt", "32x32x16-tt")
@pytest.mark.parametrize(
    ("partition", "layout"),
    list(zip(SPEC.settings["partition"], ["nn", "tn", "nt", "tt", "nt", "tt"], strict=True)),
)
def test_every_tile_is_right(partition: str, layout: str) -> None:
    """Sizes that end inside of a tile, of a step, and of 16 bytes."""
    check((150, 277, 53), layout=layout, partition=partition)


@given(
    size=st.tuples(st.integers(0, 90), st.integers(0, 90), st.integers(0, 70)),
    stack=st.sampled_from([(), (3,), (2, 2)]),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
    pad=st.sampled_from([0, 1, 4]),
    result=st.sampled_from(["float32", "float16", "float64"]),
    order=st.sampled_from(["eager", "late", 5]),
)
@examples(2, 8)
def test_any_operands(
    size: tuple[int, int, int], stack: tuple[int, ...], layout: str, pad: int, result: str, order: Any
) -> None:
    check(size, stack, layout, pad, order, result=result, partition="64x32x16")


@pytest.mark.few("late-1")
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("order", ["eager", "late", 5])
def test_aligned_lines_are_copied_16_bytes_at_a_time(order: Any, parts: int) -> None:
    """Tiles, K and its parts end anywhere; the last piece of a line is whole, or cut off."""
    for pad, whole in ((4, 1), (2, 0)):
        m, n = 72 - pad, 104 - pad
        given: dict[str, Any] = {"parts": parts, "a_bytes": 16, "b_bytes": 16, "whole_copies": whole}
        check((m, n, 75), layout="tn", pad=pad, order=order, partition="64x32x16", **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("parts", [2, 7])
def test_parts_of_k_are_added_up(parts: int) -> None:
    """More parts than steps leave some without any."""
    check((70, 45, 90), parts=parts, partition="32x32x16")
    check((70, 45, 17), parts=parts, partition="32x32x16", result="float16")


@pytest.mark.few("9-3-late")
@pytest.mark.parametrize("order", ["eager", "late", 5])
@pytest.mark.parametrize(("tail", "parts"), [(1, 2), (9, 3), (4, 7)])
def test_the_last_tiles_alone_may_be_in_parts(tail: int, parts: int, order: Any) -> None:
    """Of nine, which end inside of C; all of them, too. More parts than steps leave some without any."""
    given: dict[str, Any] = {"partition": "32x32x16", "parts": parts, "tail": tail, "order": order}
    check((70, 77, 90), **given)
    check((70, 77, 49), layout="tt", pad=1, result="float16", **given)


def test_the_last_tiles_parts_go_by_the_same_epilogue() -> None:
    """Two bands of rows of tiles, so that the last tiles lie one below another; the same bits every time."""
    a, b, bias = operand((300, 40), False, 1), operand((40, 66), True, 0), operand((1, 66), True, 0)[0]
    epilogue = tw.epilogue("relu(acc + bias) * 2", bias=bias)
    chosen = Choice(specs=(SPEC,), settings=(("partition", "32x32x16"), ("parts", 2), ("tail", 11)))
    first, again = (multiply(a, b, None, EMULATOR, chosen, epilogue) for _ in range(2))
    assert compare(first, a, b, epilogue=epilogue, terms=2).ok and (first == again).all()


@pytest.mark.few("33")
@pytest.mark.parametrize("parts", [8, 15, 16, 33, 64])
def test_threads_that_share_the_parts_of_a_run_add_up_all(parts: int) -> None:
    """Whole numbers, so that each part counts; of the last block's threads some have no run. The same bits each time."""
    a = RANDOM.integers(-8, 9, (9, 300)).astype(np.float32)
    b = RANDOM.integers(-8, 9, (300, 131)).astype(np.float32)
    settings = (("partition", "32x32x16"), ("parts", parts))
    whole = np.full((9, 133), 7, np.float32)
    multiply(a, b, whole[:, :131], EMULATOR, Choice(specs=(SPEC,), settings=settings))
    assert (whole[:, :131] == a @ b).all() and (whole[:, 131:] == 7).all()
    a = operand((9, 300), True, 0)
    late = tw.device("emulator", order="late")
    first, again = (
        multiply(a, b, None, device, Choice(specs=(SPEC,), settings=settings)) for device in (EMULATOR, late)
    )
    assert (first == again).all() and compare(first, a, b, terms=parts).ok


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", ["64x32x16", "32x32x16"])
def test_something_may_happen_to_the_sums(partition: str) -> None:
    """In a stack that shares B, and in parts of K; the result lies in rows that begin anywhere."""
    a, b, bias = operand((2, 70, 50), True, 0), operand((50, 66), False, 3), operand((1, 66), True, 0)[0]
    epilogue = tw.epilogue("relu(acc + bias) * 2", bias=bias)
    chosen = Choice(specs=(SPEC,), settings=(("partition", partition),))
    assert compare(multiply(a, b, None, EMULATOR, chosen, epilogue), a, b, epilogue=epilogue).ok
    whole = np.zeros((70, 67), np.float16)
    parts = Choice(specs=(SPEC,), settings=(("partition", partition), ("parts", 3)))
    multiply(a[0], b, whole[:, 1:], EMULATOR, parts, epilogue)
    assert compare(whole[:, 1:], a[0], b, epilogue=epilogue, terms=3).ok and not whole[:, 0].any()


def test_the_checker_finds_nothing() -> None:
    """Where parts of K are added up, whose sums go through shared memory as results do, and copies of zeros before them."""
    for n, layout in ((50, "nn"), (48, "tn")):
        operands = operands_of(40, n, 40, layout=layout)
        for tail in (0, 1):
            settings = SPEC.complete({"partition": "32x32x16", "parts": 2, "tail": tail, **lie(operands)})
            assert tw.check(SPEC.plan(operands, "h200", settings), "late") == []


def test_it_is_planned_for_large_products_of_float32() -> None:
    """On GPUs that copy asynchronously; a strided operand is copied first."""
    assert tw.plan(4096, 4096, 4096).kernel == tw.plan(4096, 4096, 4096, gpu="a100").kernel == "simt"
    assert tw.plan(4096, 4096, 4096, gpu="t4").kernel != "simt"
    assert int(tw.plan(512, 512, 512).parameters["parts"]) > 1


def test_what_it_cannot_have_is_refused() -> None:
    operands = Operands.of(Problem(64, 64, 64))
    for name, value in (("a_along_k", 0), ("b_along_n", 0), ("a_bytes", 16)):
        error = SPEC.refuse(operands, SPEC.complete({"b_bytes": 16, name: value}))
        assert error is not None and error.argument == name
    cut_off = Operands.of(Problem(64, 66, 64))
    assert SPEC.refuse(cut_off, SPEC.complete({"whole_copies": 1})).argument == "whole_copies"  # type: ignore[union-attr]
    lines = operands_of(64, 64, 64, layout="tn")
    with pytest.raises(ArgumentError, match="whole_copies must be 0 where 4 bytes are copied at once, not 1"):
        SPEC.check(lines, SPEC.complete({"a_along_k": 0, "a_bytes": 4, "b_bytes": 16, "whole_copies": 1}))
    stack = Operands.of(Problem(64, 64, 64, 2))
    with pytest.raises(ArgumentError, match="parts must be 1 for stacks, not 2"):
        SPEC.check(stack, SPEC.complete({"parts": 2}))
    with pytest.raises(ArgumentError, match="tail must be 0 where K is in one part, not 1"):
        SPEC.check(Operands.of(Problem(64, 64, 64)), SPEC.complete({"tail": 1}))
    with pytest.raises(ArgumentError, match="tail must be at most 1, as there are tiles, not 2"):
        SPEC.check(Operands.of(Problem(64, 64, 64)), SPEC.complete({"parts": 2, "tail": 2}))
    with pytest.raises(ArgumentError, match="tail must be one of 0, 1, …, 16383, not 16384"):
        SPEC.complete({"parts": 2, "tail": 16384})
    sums = np.empty(8, np.float32)
    with pytest.raises(ArgumentError, match="must add up no columns or rows for kernel simt"):
        multiply(
            operand((8, 8), True, 0), operand((8, 8), True, 0), None, EMULATOR, Choice(specs=(SPEC,)),
            tw.epilogue("column_sums(s, acc)", s=sums),
        )  # fmt: skip


@pytest.mark.few("0-128x256x8-0", "1-128x256x8-1")
@pytest.mark.parametrize("tail", [0, 1])
@pytest.mark.parametrize("partition", SPEC.settings["partition"])
@pytest.mark.parametrize("in_pairs", [0, 1])
def test_sums_stay_in_registers_and_banks_do_not_conflict(partition: str, in_pairs: int, tail: int) -> None:
    """Spills would cost more than anything else; what is turned on its way is put into 32 banks."""
    if in_pairs and not SHAPES[partition].takes_pairs:
        return
    chosen = {"partition": partition, "in_pairs": in_pairs, "parts": 1 + tail, "tail": tail}
    built = SPEC.code(SPEC.complete(chosen)).kernel("simt", "sm_90a").build()
    resources = built.entries["simt"].resources
    assert resources is not None and resources.spills == 0
