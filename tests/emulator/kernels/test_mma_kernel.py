"""The kernel by mma.sync on the emulator, beside float64: tiles, layouts, alignments, stacks, parts of K, Turing."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import marked
from tests.thorough import examples
from tilewise.calls import Choice, ready
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.instruments.checking import check_bound
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind
from tilewise.kernels.gemm.mma import TWO_STAGES, lies, narrowest, refuse_arch
from tilewise.kernels.gemm.mma_shapes import SHAPES
from tilewise.matmul import multiply
from tilewise.operands import Operand, Operands, alignment_of
from tilewise.planner import operands_of
from tilewise.problem import Layout, Problem
from tilewise.reference import compare

SPEC = KERNELS["mma"]
RANDOM = np.random.default_rng()
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
LAYOUTS = ("nn", "nt", "tn", "tt")
ELEMENTS = ("float16", "bfloat16")
SMALL = "16x64x64"
Size = tuple[int, int, int]
Array = npt.NDArray[Any]


def framed(shape: tuple[int, ...], dtype: Any, in_rows: bool, skip: int, gap: int) -> Array:
    """Random matrices in rows or in columns, among NaN: ``skip`` elements before each line and ``gap`` after it.

    With a gap of -1 lines begin at multiples of 8 elements.
    """
    *stack, rows, columns = shape
    if not in_rows:
        return framed((*stack, columns, rows), dtype, True, skip, gap).swapaxes(-1, -2)
    after = gap if gap >= 0 else -(skip + columns) % 8
    whole = marked((*stack, rows, skip + columns + after), np.dtype(dtype).name)
    inside = whole[..., skip : skip + columns]
    inside[...] = RANDOM.standard_normal(inside.shape).astype(dtype)
    return inside


def check(
    size: Size, layout: str = "nn", stack: tuple[int, ...] = (), lie: tuple[int, ...] = (0,) * 6,
    order: Any = "eager", fused: bool = False, **given: Any,
) -> Array:  # fmt: skip
    """Multiply random matrices, compare with float64; what lies beside the result must stay as it was."""
    (m, n, k), element = size, given.get("element", "float16")
    a = framed((*stack, m, k), DTYPES[element], layout[0] == "n", *lie[:2])
    b = framed((*stack, k, n), DTYPES[element], layout[1] == "n", *lie[2:4])
    result = given.setdefault("result", element)
    whole = marked((*stack, m, lie[4] + n + lie[5]), result)
    before, out = whole.copy(), whole[..., lie[4] : lie[4] + n]
    row, full = RANDOM.standard_normal(n).astype(np.float32), RANDOM.standard_normal((n, m)).astype(a.dtype).T
    epilogue = tw.epilogue("tanh(acc * s + row) + full", s=0.1, row=row, full=full) if fused else None
    choice = Choice(specs=(SPEC,), settings=tuple(given.items()), copy=False)
    multiply(a, b, out, tw.device("emulator", order=order), choice, *([epilogue] if epilogue else []))
    terms = 16  # what parts of K add
    compared = compare(out, a, b, terms=terms + 64 * fused, epilogue=epilogue)
    assert compared.ok, (size, layout, lie, given, str(compared))
    whole[..., lie[4] : lie[4] + n] = before[..., lie[4] : lie[4] + n]
    assert whole.tobytes() == before.tobytes()
    return out


@pytest.mark.few("16x128x64", "64x16x64")
@pytest.mark.parametrize("number", range(len(SHAPES)), ids=SHAPES)
def test_every_tile_is_right(number: int) -> None:
    """Sizes that end inside of a tile, in a grid of tiles; types, layouts and epilogues in turns."""
    partition, shape = list(SHAPES.items())[number]
    size = shape.tile.m + 9, shape.tile.n + 21, 3 * shape.tile.k + 17
    element, result = ELEMENTS[number % 2], (*ELEMENTS, "float32")[number % 3]
    how: dict[str, Any] = {
        "partition": partition,
        "element": element,
        "result": result,
        "stages": shape.stages[0],
    }
    check(size, LAYOUTS[number % 4], lie=(8, -1, 0, -1, 3, 1), fused=number % 3 == 1, **how)


LIES = st.tuples(*[st.sampled_from((0, 0, 1, 2, 4, 8))] * 6)


@examples(2, 6)
@given(
    m=st.integers(0, 70), n=st.integers(0, 140), k=st.integers(0, 200), layout=st.sampled_from(LAYOUTS), lie=LIES,
    stack=st.sampled_from([(), (), (2, 3)]), fused=st.booleans(), element=st.sampled_from(ELEMENTS),
)  # fmt: skip
@example(m=1, n=1, k=2, layout="tt", lie=(0,) * 6, stack=(), fused=False, element="float16")
@example(m=40, n=70, k=90, layout="nn", lie=(1, 1, 1, 1, 0, 0), stack=(), fused=False, element="float16")
@example(m=33, n=65, k=0, layout="nn", lie=(0,) * 6, stack=(2,), fused=True, element="bfloat16")
def test_any_size_layout_and_alignment(
    m: int,
    n: int,
    k: int,
    layout: str,
    lie: tuple[int, ...],
    stack: tuple[int, ...],
    fused: bool,
    element: str,
) -> None:
    check((m, n, k), layout, stack, lie, fused=fused, element=element, partition=SMALL)


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["late", "random"])
@pytest.mark.parametrize(("layout", "lie"), [("tn", (0,) * 6), ("nt", (2, 0, 1, 0, 0, 0))])
def test_any_order_of_threads_and_copies(order: Any, layout: str, lie: tuple[int, ...]) -> None:
    """Copies past the registers; and those of one operand by way of them, those of the other in 4 bytes at once."""
    order = int(RANDOM.integers(2**40)) if order == "random" else order
    check((20, 100, 600), layout, lie=lie, order=order, partition=SMALL)


@pytest.mark.few("2-tn")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("split", [1, 2])
def test_copies_of_16_bytes_bring_all_or_none(layout: str, split: int) -> None:
    """Of lines that end with whole ones, wherever tiles, K and its parts end; what lies beyond them is NaN."""
    for size, whole in (((24, 72, 152), 1), ((24, 70, 152), 0)):
        lie = (0, 8, 8, -1, 0, 0)
        if whole or layout[1] == "n":
            check(size, layout, lie=lie, order="late", partition=SMALL, split=split, whole_copies=whole)


@pytest.mark.few(1)
@pytest.mark.parametrize(("split", "k"), [(2, 64), (16, 640)])
def test_parts_of_k_are_added_in_their_order(split: int, k: int) -> None:
    """With fewer steps than parts some have none."""
    stack, fused, result = ((2,), True, "float16") if split == 2 else ((), False, "float32")
    check((40, 61, k), "nt", stack, fused=fused, partition=SMALL, split=split, result=result)


@pytest.mark.parametrize(("tail", "fused", "result"), [(1, False, "float16"), (5, True, "float32")])
def test_the_last_tiles_alone_may_be_in_parts(tail: int, fused: bool, result: str) -> None:
    """Of nine bands of rows, the last of one; with results as wide as sums, and half as wide."""
    given: dict[str, Any] = {"partition": SMALL, "split": 3, "tail": tail, "result": result}
    check((139, 61, 200), "nt", fused=fused, order="late", **given)


def test_tails_that_cannot_be_are_refused() -> None:
    summed = tw.epilogue("column_sums(s, acc)", s=np.empty(40, np.float32))
    plain = operands_of(40, 40, 40, dtype="float16")
    for operands, split, tail, rule in (
        (plain, 1, 1, "tail must be 0 where K is in one part, not 1"),
        (plain, 2, 4, "tail must be at most 3, as there are tiles, not 4"),
        (operands_of(40, 40, 40, dtype="float16", batch=2), 2, 1, "tail must be 0 for stacks, not 1"),
        (operands_of(40, 40, 40, dtype="float16", epilogue=summed), 2, 1,
         "tail must be 0 where columns or rows are added up, not 1"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=rule):
            SPEC.check(operands, SPEC.complete({"partition": SMALL, "split": split, "tail": tail}))
    SPEC.check(plain, SPEC.complete({"partition": SMALL, "split": 2, "tail": 3}))


def test_the_order_does_not_change_the_bits() -> None:
    a, b = framed((40, 500), np.float16, True, 0, 0), framed((500, 70), np.float16, True, 0, 0)
    devices = [tw.device("emulator", order=order) for order in ("eager", "late", 1, 2)]
    for tail in (0, 2):
        choice = Choice(specs=(SPEC,), settings=(("partition", SMALL), ("split", 4), ("tail", tail)))
        assert len({multiply(a, b, None, device, choice).tobytes() for device in devices}) == 1


def test_matrices_may_be_the_same_again_and_rows_lie_in_any_order() -> None:
    """A stack whose axes repeat; rows from the last to the first, and one row for all."""
    a, b = framed((3, 1, 20, 72), np.float16, True, 0, 0), framed((2, 72, 40), np.float16, False, 0, 0)
    choice = Choice(specs=(SPEC,), settings=(("partition", SMALL),), copy=False)
    device = open_emulator()
    result = multiply(a, b, None, device, choice)
    for i, j in np.ndindex(3, 2):
        assert compare(result[i, j], a[i, 0], b[j]).ok
    back, same = a[0, 0, ::-1], np.broadcast_to(b[0].T[:1], (40, 72)).T
    for left, right in ((back, b[0]), (back, same)):
        assert compare(multiply(left, right, None, device, choice), left, right).ok


def test_special_values_come_through() -> None:
    a, b = framed((20, 70), np.float16, True, 0, 2), framed((70, 30), np.float16, True, 0, 2)
    a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, -np.inf
    result = multiply(a, b, None, open_emulator(), Choice(specs=(SPEC,), settings=(("partition", SMALL),)))
    assert compare(result, a, b).ok


# ── what the emulator has no device for: the same kernels as other GPUs have them ──


def dense(
    size: Size,
    layout: str,
    in_bytes: tuple[int, int] = (16, 16),
    element: str = "float16",
    result: str | None = None,
    batch: int = 1,
) -> Operands:
    """Operands whose lines lie so far apart that they are aligned for accesses of so many bytes, A's and B's."""
    names: dict[str, Layout] = {"n": "row", "t": "column"}
    made = Operands.of(
        Problem(
            *size,
            batch,
            element,
            element,
            result or element,
            a_layout=names[layout[0]],
            b_layout=names[layout[1]],
        )
    )

    def apart(one: Operand, aligned: int) -> Operand:
        step = max(one.row_stride, one.column_stride)
        while alignment_of(2 * step) != aligned:
            step += 1
        lines = {"column_stride": step} if one.row_stride == 1 else {"row_stride": step}
        return Operand(one.name, one.rows, one.columns, **{"row_stride": 1, **lines}, dtype=one.dtype)  # type: ignore[arg-type]

    return made._replace(a=apart(made.a, in_bytes[0]), b=apart(made.b, in_bytes[1]))


def build(operands: Operands, arch: str, **given: Any) -> tuple[Any, dict[str, Any], dict[str, int]]:
    """The product bound on the emulator for an arch, its arrays and their addresses."""
    device = open_emulator()
    found = SPEC.complete({**SPEC.for_types(operands), **lies(operands), **given})
    bound = bind(SPEC, found, operands, operands, device, arch)
    m, n, _ = operands.sizes
    made: dict[str, Any] = {"c": device.empty((m, n), DTYPES[operands.c.dtype])}
    for one in operands[:2]:
        lines, apart = (one.columns, one.column_stride) if one.row_stride == 1 else (one.rows, one.row_stride)
        values = RANDOM.standard_normal((lines, apart)).astype(DTYPES[one.dtype])
        made[one.name] = device.array(values)
    made["workspace"] = device.empty((bound.workspace_bytes,), "uint8")
    return bound, made, {name: array.ptr for name, array in made.items()}


def matrix(one: Operand, made: dict[str, Any]) -> Array:
    values: Array = made[one.name].numpy()
    return values[:, : one.rows].T if one.row_stride == 1 else values[:, : one.columns]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("layout", "in_bytes", "given"),
    [
        ("nn", (16, 4), {"partition": "128x64x32"}), ("tt", (8, 16), {"split": 2}), ("nt", (4, 2), {}),
        ("tn", (2, 8), {}),
    ],
)  # fmt: skip
def test_on_turing(layout: str, in_bytes: tuple[int, int], given: dict[str, Any]) -> None:
    operands = dense((100, 90, 330), layout, in_bytes)
    bound, made, addresses = build(operands, "sm_75", **{"partition": SMALL, "stages": TWO_STAGES, **given})
    bound(addresses)
    compared = compare(made["c"].numpy(), matrix(operands.a, made), matrix(operands.b, made), terms=2)
    assert compared.ok, compared


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("arch", "layout", "in_bytes", "given"),
    [
        ("sm_80", "nt", 16, {"stages": 3}), ("sm_80", "tn", 4, {"split": 2, "tail": 2}),
        ("sm_80", "nn", 2, {"stages": TWO_STAGES}), ("sm_75", "tt", 16, {"stages": TWO_STAGES}),
    ],
)  # fmt: skip
def test_the_checker_finds_nothing_wrong(
    arch: str, layout: str, in_bytes: int, given: dict[str, Any]
) -> None:
    bound, _, addresses = build(
        dense((40, 72, 264), layout, (in_bytes, in_bytes)), arch, partition=SMALL, **given
    )
    assert check_bound(bound, addresses, "late") == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("gpu", "partition", "layout", "result"),
    [
        ("a100", "64x64x64", "nn", "float32"), ("a100", "16x128x64", "nt", "float16"),
        ("a100", "64x128x32", "nt", "float16"), ("t4", "128x64x32", "tn", "float16"),
    ],
)  # fmt: skip
def test_no_bank_conflicts(gpu: str, partition: str, layout: str, result: str) -> None:
    """Of loads, stores and copies, in a product that ends with its tiles."""
    shape = SHAPES[partition]
    operands = dense((shape.tile.m, shape.tile.n, 128), layout, result=result)
    given = {"partition": partition, "stages": TWO_STAGES if gpu == "t4" else shape.stages[0]}
    plan = SPEC.plan(operands, gpu, SPEC.complete({**SPEC.for_types(operands), **lies(operands), **given}))
    assert tw.profile(plan)["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0


# ── what is refused ──


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"a_in_rows": 0}, "a_in_rows"),
        ({"b_bytes": 2}, "stages"),
        ({"partition": "128x256x64", "stages": TWO_STAGES}, "partition"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], wrong: str) -> None:
    error = SPEC.why_not(dense((64, 64, 64), "nn"), SPEC.complete({"element": "float16", **given}))
    assert error is not None and error.argument == wrong


def test_accesses_are_no_wider_than_lines_are_aligned_for() -> None:
    operands = dense((64, 64, 64), "nt", (4, 4))
    found = lies(operands)
    assert (narrowest(found), found["b_in_rows"]) == (4, 0)
    error = SPEC.why_not(operands, SPEC.complete({**found, "b_bytes": 8}))
    assert error is not None and "at most 4" in str(error)
    cut_off = dense((64, 68, 64), "nn")
    assert lies(cut_off)["whole_copies"] == 0 and lies(dense((64, 64, 64), "nt"))["whole_copies"] == 1
    error = SPEC.why_not(cut_off, SPEC.complete({**lies(cut_off), "whole_copies": 1}))
    assert error is not None and str(error).endswith(
        "whole_copies must be 0 where lines end within 16 bytes, not 1"
    )


@pytest.mark.parametrize(
    ("size", "batch", "pitch", "promised"),
    [
        ((128, 128, 64), 1, 128, (1, 1, 1)),
        ((128, 128, 64), 1, 136, (1, 1, 1)),
        ((128, 128, 64), 1, 132, (1, 0, 1)),  # rows begin at multiples of 8 bytes
        ((128, 120, 64), 1, 120, (0, 1, 1)),
        ((72, 128, 64), 1, 128, (0, 1, 1)),
        ((128, 124, 64), 1, 128, (0, 0, 1)),  # and end within 16
        ((128, 128, 64), 3, 128, (1, 1, 0)),
    ],
)
def test_what_is_compiled_for_whole_results_alone(
    size: Size, batch: int, pitch: int, promised: tuple[int, ...]
) -> None:
    operands = dense(size, "nn", batch=batch)
    operands = operands._replace(c=replace(operands.c, row_stride=pitch))
    names = ("whole", "whole_rows", "single")
    given: dict[str, Any] = {"partition": "64x64x64", "element": "float16", **lies(operands)}
    found = SPEC.promises(operands, SPEC.complete(given))
    assert tuple(found[name] for name in names) == promised
    for name, holds in zip(names, promised, strict=True):
        error = SPEC.why_not(operands, SPEC.complete({**given, name: 1}))
        assert (error is None) == bool(holds)
        assert error is None or str(error).startswith(f"{name} must be 0")


@pytest.mark.few(1)
@pytest.mark.parametrize("whole", [1, 0])
@pytest.mark.parametrize("split", [1, 2])
def test_whole_results_are_written_as_others(whole: int, split: int) -> None:
    """With an epilogue, too; two products of a stack are none."""
    given: dict[str, Any] = {"partition": "64x64x64", "split": split, "whole": whole, "whole_rows": whole}
    check((128, 64, 72), "nt", single=whole, **given)
    check((128, 64, 72), "nt", (2,), **given)
    check((128, 56, 72), "nn", **{**given, "whole": 0})


@pytest.mark.parametrize(
    ("arch", "given", "wrong"),
    [
        ("sm_75", {"element": "bfloat16", "stages": TWO_STAGES}, "element"),
        ("sm_75", {"stages": 3}, "stages"),
        ("sm_86", {"partition": "128x256x64"}, "shared memory"),
    ],
)
def test_what_an_arch_does_not_have_is_refused(arch: str, given: dict[str, Any], wrong: str) -> None:
    found = SPEC.complete(given)
    assert wrong in str(refuse_arch(found, arch))
    operands = dense((64, 64, 64), "nn", element=str(found["element"]))
    with pytest.raises(ArgumentError, match=wrong):
        bind(SPEC, found, operands, operands, open_emulator(), arch)


def test_a_product_made_ready_holds_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made = open_emulator(), []
    a, out = device.zeros((16, 256), "float16"), device.zeros((16, 16), "float16")
    b = device.zeros((256, 16), "float16")
    empty = device.empty

    def note(*args: Any) -> Any:
        array = empty(*args)
        made.append(weakref.ref(array))
        return array

    monkeypatch.setattr(device, "empty", note)
    settings = (("partition", SMALL), ("split", 2))
    call = ready(a, b, out, device, Choice(specs=(SPEC,), settings=settings))
    (workspace,) = made
    held = workspace()
    assert held is not None and held.nbytes == call.made.bound.workspace_bytes > 0
    del held, call
    assert workspace() is None
