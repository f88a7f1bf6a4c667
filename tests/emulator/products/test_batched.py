"""tw.batched_matmul on the emulator, beside float64: pairs of matrices that lie anywhere."""

from __future__ import annotations

import importlib
import itertools
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise import interop
from tilewise.calls import BoundProduct
from tilewise.errors import ArgumentError
from tilewise.interop import numpy_of
from tilewise.kernels import KERNELS
from tilewise.kernels.stack import table_size
from tilewise.matrices import view_matrices
from tilewise.operands import Operands
from tilewise.problem import Epilogue, EpilogueArray, Layout, Problem
from tilewise.reference import compare, poisoned

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng()
PLAIN = Epilogue()
TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64}
MODULE: Any = importlib.import_module("tilewise.batched_matmul")
LIES = ("rows", "columns", "padded", "strided", "offset")


def lay_out(
    count: int, rows: int, columns: int, dtype: str, lies: str, *, empty: bool = False
) -> list[Array]:
    """Random matrices, each in memory of its own of a random size, so that they lie evenly by chance alone.

    Whether they are ``offset``, and begin where nothing is aligned but their elements, is the same for all.
    """
    found = []
    pitches = {"padded": columns + 8 - columns % 8, "columns": rows, "strided": 2 * columns + 1}
    pitch, apart = pitches.get(lies, columns), 2 if lies == "strided" else 1
    for _ in range(count):
        size = 2 * rows * columns + 4 * rows + 64
        whole = np.empty(size + int(RANDOM.integers(0, 8)) * 512, TYPES[dtype])
        begin = -whole.ctypes.data % 16 // whole.itemsize + (lies == "offset")
        steps = (apart, pitch) if lies == "columns" else (pitch, apart)
        strides = tuple(step * whole.itemsize for step in steps)
        one = np.lib.stride_tricks.as_strided(whole[begin:], (rows, columns), strides)
        one[...] = np.nan if empty else RANDOM.standard_normal((rows, columns))
        found.append(one)
    return found


def are_products(out: list[Any], a: list[Array], b: list[Array], **more: Any) -> bool:
    sums = "float64" if a[0].dtype == np.float64 else "float32"
    pairs = zip(out, a, b, strict=True)
    return all(compare(np.asarray(one), x, y, accumulate=sums, **more).ok for one, x, y in pairs)


def plan_of(kernel: str, a: list[Array], b: list[Array], epilogue: Epilogue = PLAIN, **given: Any) -> tw.Plan:
    """The plan of a kernel with these settings, for so many pairs given by pointers."""
    (m, k), n, element = a[0].shape, b[0].shape[1], a[0].dtype.name
    arithmetic = "tf32" if (kernel, element) == ("mma", "float32") else None
    types = (element, element, element, "float64" if element == "float64" else "float32")
    lie: Layout = "row" if b[0].strides[1] == b[0].itemsize else "column"
    spec = KERNELS[kernel]
    problem = Problem(
        m, n, k, len(a), *types, b_layout=lie, epilogue=epilogue, arithmetic=arithmetic, pointers=True
    )
    chosen = {**spec.for_types(Operands.of(problem)), **given}
    return spec.plan(Operands.of(problem), "h200", spec.complete(chosen))


# ── right ────────────────────────────────────────────────────────────────────────────────────────────────


@examples(2, 10)
@given(
    st.integers(1, 5),
    st.tuples(st.integers(1, 70), st.integers(1, 40), st.integers(0, 40)),
    st.sampled_from(sorted(TYPES)),
    st.tuples(*[st.sampled_from(LIES)] * 3),
    st.sampled_from(["both", "a", "b"]),
    st.sampled_from(["eager", "late", 5]),
)
@example(4, (33, 17, 0), "float32", ("rows", "rows", "rows"), "both", "eager")
@example(3, (1, 1, 1), "float64", ("rows", "columns", "offset"), "b", "late")
@example(4, (1, 40, 33), "float16", ("rows", "rows", "rows"), "both", "late")
@example(4, (70, 1, 40), "float32", ("rows", "rows", "rows"), "both", "late")
@example(17, (16, 8, 24), "bfloat16", ("padded", "columns", "padded"), "both", "late")
def test_matrices_that_lie_anywhere_are_multiplied(
    count: int, sizes: tuple[int, int, int], dtype: str, lies: tuple[str, str, str], lists: str, order: Any
) -> None:
    m, n, k = sizes
    a = lay_out(count, m, k, dtype, lies[0])
    b = lay_out(count, k, n, dtype, lies[1])
    out = lay_out(count, m, n, dtype, lies[2], empty=True)
    given_a, given_b = a if lists != "b" else a[0], b if lists != "a" else b[0]
    every_a, every_b = a if lists != "b" else a[:1] * count, b if lists != "a" else b[:1] * count
    device = tw.device("emulator", order=order)
    assert tw.batched_matmul(given_a, given_b, out, device=device) is out
    assert are_products(out, every_a, every_b)
    made = tw.batched_matmul(given_a, given_b, device=device)
    assert [one.dtype for one in made] == [a[0].dtype] * count and are_products(made, every_a, every_b)


@pytest.mark.few("wgmma-bfloat16-given0", "general-float32-given8")
@pytest.mark.parametrize(
    ("kernel", "dtype", "given"),
    [
        ("wgmma", "bfloat16", {"partition": "64x64x64", "stacked": 1, "b_in_rows": 0}),
        (
            "wgmma",
            "float16",
            {"partition": "128x128x64", "stacked": 1, "b_in_rows": 0, "cluster": "2x1", "tiles": 3},
        ),
        (
            "wgmma",
            "bfloat16",
            {"partition": "64x128x64", "stacked": 1, "b_in_rows": 0, "pingpong": 1, "tiles": 4},
        ),
        ("wgmma", "bfloat16", {"partition": "64x64x64", "stacked": 1, "b_in_rows": 0, "exchanged": 1}),
        ("wgmma", "bfloat16", {"partition": "64x64x64", "stacked": 1, "b_in_rows": 0, "split": 2}),
        ("mma", "float16", {"partition": "64x64x64", "b_in_rows": 0}),
        ("mma", "float32", {"partition": "64x32x32", "b_in_rows": 0, "split": 2}),
        ("mma", "float64", {"partition": "32x32x16", "b_in_rows": 0}),
        ("general", "float32", {"partition": "32x32x16", "b_along_n": 0}),
        ("simt", "float32", {"partition": "32x32x16", "b_along_n": 0}),
    ],
)
def test_every_kernel_finds_them(kernel: str, dtype: str, given: dict[str, Any]) -> None:
    """With tiles of several matrices a block, clusters, K in parts and operands exchanged; and the checker agrees."""
    a, b = lay_out(3, 136, 72, dtype, "rows"), lay_out(3, 72, 72, dtype, "columns")
    out = lay_out(3, 136, 72, dtype, "padded", empty=True)
    plan = plan_of(kernel, a, b, **given)
    tw.batched_matmul(a, b, out, plan=plan, device=tw.device("emulator", order=3))
    assert are_products(out, a, b, arithmetic=plan.problem.arithmetic)
    assert tw.check(plan) == []


def test_more_matrices_than_a_table_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go in several launches, each with its part of what the epilogue has a matrix for each of."""
    monkeypatch.setattr(MODULE, "pointers_most", lambda _extras=0: 16)
    a, b = lay_out(33, 5, 3, "float32", "rows"), lay_out(33, 3, 4, "float32", "rows")
    residual, bias = RANDOM.standard_normal((33, 5, 4)).astype("f4"), RANDOM.standard_normal(4).astype("f4")
    out = tw.batched_matmul(a, b, bias=bias, activation="relu", residual=residual, device="emulator")
    for one, x, y, r in zip(out, a, b, residual, strict=True):
        assert compare(one, x, y, epilogue=tw.epilogue("relu(acc + bias) + r", bias=bias, r=r)).ok
    rest = lay_out(33, 5, 4, "float32", "rows")
    for one, x, y, r in zip(
        tw.batched_matmul(a, b, residual=rest, device="emulator"), a, b, rest, strict=True
    ):
        assert compare(one, x, y, epilogue=tw.epilogue("acc + r", r=r)).ok
    sums = np.empty((33, 4), "float32")
    with pytest.raises(
        ArgumentError, match="epilogue must add up no columns or rows of more than 16 matrices"
    ):
        tw.batched_matmul(a, b, epilogue=tw.epilogue("column_sums(s, acc)", s=sums), device="emulator")


def test_an_epilogue_has_an_array_for_all_or_one_for_each() -> None:
    """A list too, or a stack; and sums of columns."""
    a, b = lay_out(3, 70, 64, "bfloat16", "rows"), lay_out(3, 64, 72, "bfloat16", "rows")
    for c in (lay_out(3, 70, 72, "float32", "offset"), RANDOM.standard_normal((70, 72)).astype("float32")):
        kept, sums = np.empty((3, 70, 72), "float32"), np.empty((3, 72), "float32")
        usual = tw.batched_matmul(a, b, alpha=0.5, beta=2.0, c=c, device="emulator")
        text = "column_sums(sums, keep(kept, 0.5 * acc + 2.0 * c))"
        call = tw.epilogue(text, c=np.stack(c) if isinstance(c, list) else c, kept=kept, sums=sums)
        same = tw.batched_matmul(a, b, epilogue=call, device="emulator")
        for i, (one, other) in enumerate(zip(usual, same, strict=True)):
            which = tw.epilogue("0.5 * acc + 2.0 * c", c=c[i] if isinstance(c, list) else c)
            assert compare(one, a[i], b[i], epilogue=which).ok
            assert compare(kept[i], a[i], b[i], epilogue=which).ok
            assert np.array_equal(one, other)
        assert np.allclose(sums, kept.sum(1), rtol=1e-4, atol=1e-3)


@pytest.mark.few("general")
@pytest.mark.parametrize("kernel", ["general", "mma", "split", "wgmma"])
def test_arrays_of_an_epilogue_may_lie_anywhere(kernel: str) -> None:
    """Gradients that are added up where they are, each with a row and a matrix of its own; and the checker agrees."""
    dtype = "float32" if kernel == "general" else "float16"
    a, b = lay_out(3, 70, 64, dtype, "rows"), lay_out(3, 64, 72, dtype, "rows")
    out, scale = lay_out(3, 70, 72, dtype, "padded"), lay_out(3, 70, 72, "float32", "strided")
    rows = [one[0] for one in lay_out(3, 1, 72, "float32", "offset")]
    before = [one.copy() for one in out]
    text = "(acc + 0.5 * c) * scale + row"
    call = tw.epilogue(text, c=out, scale=scale, row=rows)
    arrays = (("c", dtype, True), ("scale", "float32", True), ("row", "float32", False))
    form = Epilogue(text, tuple(EpilogueArray(name, kind, down, True, True) for name, kind, down in arrays))
    chosen = {"split": 2} if kernel == "split" else {"stacked": 1} if kernel == "wgmma" else {}
    tile = {} if kernel == "general" else {"partition": "64x64x64"}
    plan = plan_of("mma" if kernel == "split" else kernel, a, b, form, **chosen, **tile)
    assert (
        tw.batched_matmul(a, b, out, epilogue=call, plan=plan, device=tw.device("emulator", order=7)) is out
    )
    for i, one in enumerate(out):
        same = tw.epilogue(text, c=before[i], scale=scale[i], row=rows[i])
        assert compare(one, a[i], b[i], epilogue=same).ok
    assert tw.check(plan) == []


def test_lists_of_an_epilogue_are_refused_where_no_list_serves() -> None:
    a, b = lay_out(3, 4, 4, "float32", "rows"), lay_out(3, 4, 4, "float32", "rows")
    kept, rows = lay_out(3, 4, 4, "float32", "rows"), [np.empty(4, "float32")] * 3
    tw.batched_matmul(a, b, epilogue=tw.epilogue("keep(kept, acc)", kept=kept), device="emulator")
    assert are_products(kept, a, b)
    for text, arrays, message in (
        ("acc + r", {"r": rows[:2]}, "r must have an array for each of 3 products, not 2"),
        ("column_sums(s, acc)", {"s": rows}, "s must be one array with the sums of all products"),
        ("keep(kept, acc)", {"kept": [kept[0], kept[1], kept[0]]}, r"kept\[2\] must not overlap kept\[0\]"),
        ("keep(kept, acc)", {"kept": [*kept[:2], b[1]]}, "kept must not overlap b"),
        ("acc + r", {"r": [rows[0], kept[0], kept[1]]}, r"r\[1\] must have the shape of r\[0\], \(1, 4\)"),
    ):
        call = tw.epilogue(text, **arrays)
        with pytest.raises(ArgumentError, match=message):
            tw.batched_matmul(a, b, epilogue=call, device="emulator")


def test_matrices_that_lie_evenly_are_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tables and no other kernel: views of one allocation, forwards and backwards, and stacks themselves."""
    chosen: list[BoundProduct] = []
    prepare = MODULE.prepare

    def note(*args: Any) -> BoundProduct:
        chosen.append(prepare(*args))
        return chosen[-1]

    monkeypatch.setattr(MODULE, "prepare", note)
    a, b = RANDOM.standard_normal((4, 9, 12)).astype("f4"), RANDOM.standard_normal((4, 12, 7)).astype("f4")
    for given_a, given_b in (
        (list(a), list(b)),
        (a, tuple(b)),
        (list(a)[::-1], b[::-1]),
        (a[:, :, ::2], list(b[:, :6])),
    ):
        out = tw.batched_matmul(given_a, given_b, device="emulator")
        assert are_products(out, list(given_a), list(given_b))
        assert not chosen.pop().operands.by_pointers
    shuffled = [a[i] for i in (2, 0, 3, 1)]
    assert are_products(tw.batched_matmul(shuffled, b, device="emulator"), shuffled, list(b))
    assert chosen.pop().operands.by_pointers
    twice = [a[0], a[0], a[1], a[2]]  # which begin as if all were the same
    assert are_products(tw.batched_matmul(twice, b, device="emulator"), twice, list(b))
    assert chosen.pop().operands.by_pointers
    columns = np.empty((9, 28), "f4")  # results side by side in one matrix
    out = [columns[:, i : i + 7] for i in range(0, 28, 7)]
    tw.batched_matmul(a, b, out, device="emulator")
    assert are_products(out, list(a), list(b)) and not chosen.pop().operands.by_pointers


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────


def test_any_library_gives_its_own_kind() -> None:
    torch = pytest.importorskip("torch")
    a, b = lay_out(3, 6, 8, "float32", "rows"), lay_out(3, 8, 4, "float32", "rows")
    x, y = [torch.from_numpy(one) for one in a], [torch.from_numpy(one) for one in b]
    for out in (tw.batched_matmul(x, y), tw.batched_matmul(a, y), tw.batched_matmul([a[0], *x[1:]], b)):
        assert [type(one) for one in out] == [torch.Tensor] * 3 and are_products(out, a, b)
    device = tw.device("emulator")
    held = [device.array(one) for one in a], [device.array(one) for one in b]
    ours = tw.batched_matmul(*held)
    assert all(type(one) is type(held[0][0]) for one in ours) and are_products(
        [one.numpy() for one in ours], a, b
    )
    out = [device.empty((6, 4), "float32") for _ in range(3)]
    tw.batched_matmul(*held, out)
    assert are_products([one.numpy() for one in out], a, b)
    with pytest.raises(ArgumentError, match=r"a\[1\] must not require a gradient"):
        tw.batched_matmul([x[0], x[1].clone().requires_grad_()], y[:2])


def test_host_arrays_of_other_types_and_strides_are_copied() -> None:
    """As tw.matmul converts them; a result of another type too."""
    a, b = [np.arange(6).reshape(2, 3), np.ones((3, 2), int).T], [np.ones((3, 2), "float32")] * 2
    out = tw.batched_matmul(a, b, device="emulator")
    assert [one.tolist() for one in out] == [[[3, 3], [12, 12]], [[3, 3], [3, 3]]] and out[
        0
    ].dtype == np.float64
    x, y = lay_out(3, 5, 4, "float16", "rows"), lay_out(3, 4, 6, "float16", "columns")
    for integers in ("int32", "int64"):
        wide = [one.astype(integers) for one in a]
        exact = tw.batched_matmul(wide, [np.full((3, 2), 2**31 - 1, integers)] * 2, device="emulator")
        for one, left in zip(exact, wide, strict=True):
            assert one.dtype == integers and (one == left @ np.full((3, 2), 2**31 - 1, integers)).all()
    for dtype in (np.float32, np.float64):
        mixed = [poisoned((5, 6), dtype), poisoned((5, 6), dtype), poisoned((6, 5), dtype).T]
        tw.batched_matmul(x, y, mixed, device="emulator")
        rounded = mixed if dtype is np.float32 else [one.astype(np.float16) for one in mixed]
        assert are_products(rounded, x, y)


def test_what_is_only_read_may_be_read_only() -> None:
    """A stack, which others repeat, and a matrix that serves all."""
    a, b = np.broadcast_to(np.arange(6.0).reshape(2, 3), (3, 2, 3)), np.ones((3, 2))
    b.flags.writeable = False
    out = tw.batched_matmul(a, b, device="emulator")
    assert [one.tolist() for one in out] == [[[3, 3], [12, 12]]] * 3
    assert [one.tolist() for one in tw.batched_matmul(a[:1], b, device="emulator")] == [[[3, 3], [12, 12]]]


# ── nothing, and errors ──────────────────────────────────────────────────────────────────────────────────


def test_nothing_may_be_multiplied() -> None:
    assert tw.batched_matmul([], []) == []
    assert tw.batched_matmul([], np.ones((3, 2)), []) == []
    assert tw.batched_matmul(np.ones((0, 2, 3)), np.ones((3, 2))) == []
    for m, n, k in itertools.product((0, 2), repeat=3):
        a, b = [np.ones((m, k)), np.ones((m, k))], [np.ones((k, n)), np.ones((k, n))]
        out = tw.batched_matmul(a, b, bias=np.ones(n), device="emulator")
        assert [one.tolist() for one in out] == [[[k + 1] * n] * m] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [np.ones((2, 3)), np.ones((3, 3))]}, "a[1] must have the shape of a[0], (2, 3), not (3, 3)"),
        ({"a": [np.ones((2, 3)), np.ones((2, 3), "f4")]}, "a[1] must have the element type of a[0], float64, not 'float32'"),
        ({"a": [np.ones(3), np.ones(3)]}, "a[0] must have two dimensions, not 'shape (3,)'"),
        ({"a": [np.ones((2, 3)), "x"]}, "a[1] must be an array"),
        ({"a": np.ones(3)}, "a must be a list of matrices, a matrix or a stack of matrices"),
        ({"a": np.ones((2, 3)), "b": np.ones((3, 2))}, "a and b must be lists of matrices, or one of them"),
        ({"b": [np.ones((3, 2))] * 4}, "b must have as many matrices as a, 3, not 4"),
        ({"b": [np.ones((4, 2))] * 3}, "b must have as many rows as a has columns (3)"),
        ({"out": np.ones((2, 2))}, "out must be a list of matrices"),
        ({"out": []}, "out must have as many matrices as a, 3, not 0"),
        ({"out": [np.ones((2, 2))] * 4}, "out must have as many matrices as a, 3, not 4"),
        ({"out": [np.ones((2, 3))] * 3}, "out must have shape (3, 2, 2)"),
        ({"out": [np.ones((2, 2))] * 3}, "out[1] must not overlap out[0]"),
        ({"out": [np.broadcast_to(1.0, (2, 2))] * 3}, "out[0] must be writable"),
        ({"out": np.broadcast_to(1.0, (3, 2, 2))}, "out must be writable"),
        ({"bias": np.ones(3)}, "bias must broadcast to the result's shape (3, 2, 2)"),
        ({"bias": 1.0, "epilogue": tw.epilogue("acc")}, "epilogue must stand alone"),
        ({"plan": "fast"}, "plan must be a Plan"),
        ({"plan": tw.plan(2, 2, 3, dtype="float64", batch=3)}, "plan must be for pointers = True"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_named(given: dict[str, Any], message: str) -> None:
    four = np.ones((4, 2, 3))
    usual: dict[str, Any] = {"a": [four[0], four[1], four[3]], "b": list(np.ones((3, 3, 2)))}
    with pytest.raises(ArgumentError) as caught:
        tw.batched_matmul(**{**usual, **given}, device="emulator")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("second", "strides"),
    [(np.ones((2, 3)), None), (np.ones((2, 4))[:, :3], (4, 1)), (np.ones((3, 2)).T, (1, 2))],
    ids=["alike", "padded", "turned"],
)
def test_matrices_of_other_strides_are_named_where_no_copy_is_made(
    second: Any, strides: tuple[int, ...] | None
) -> None:
    found = view_matrices("a", [np.ones((2, 3)), second, np.ones((2, 3))])
    assert found is not None
    if strides is None:
        found.check_alike()
        return
    with pytest.raises(ArgumentError) as caught:
        found.check_alike()
    message = f"a[1] must have the strides of a[0], (3, 1), not 'strides {strides}'; copy it first"
    assert str(caught.value).startswith(message)


def test_the_results_overlap_nothing_else() -> None:
    a, b = lay_out(3, 4, 4, "float32", "rows"), lay_out(3, 4, 4, "float32", "rows")
    whole = np.empty((9, 4), "float32")
    for out, message in (
        ([a[2], *lay_out(2, 4, 4, "float32", "rows")], "out must not overlap a"),
        ([*lay_out(2, 4, 4, "float32", "rows"), b[0]], "out must not overlap b"),
        ([whole[:4], whole[3:7], whole[5:]], "out"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tw.batched_matmul(a, b, out, device="emulator")
    line = np.zeros(48, ml_dtypes.float8_e4m3fn)
    operands = [line[16:32].reshape(4, 4)], [line[16:32].reshape(4, 4)]
    for at in (0, 32, 1, 31):  # before and behind the operand, and with its first and its last byte
        result = [line[at : at + 16].reshape(4, 4)]
        with nullcontext() if at % 16 == 0 else pytest.raises(ArgumentError, match="out must not overlap a"):
            tw.batched_matmul(*operands, result, device="emulator")
    wide = np.zeros((4, 40), "float32")  # one result reaches around another, and into an operand behind that
    around, between = wide[:, :4], wide[0, 8:24].reshape(4, 4)
    with pytest.raises(ArgumentError, match="out must not overlap a"):
        tw.batched_matmul([wide[3, :16].reshape(4, 4), a[0]], b[:2], [around, between], device="emulator")
    out = lay_out(3, 4, 4, "float32", "rows")
    call = tw.epilogue("keep(kept, acc)", kept=b[1][None])
    with pytest.raises(ArgumentError, match="kept must not overlap b"):
        tw.batched_matmul(a[:1], b[1:2], out[:1], epilogue=call, device="emulator")
    stack = np.stack(out)
    residual = stack.copy()
    tw.batched_matmul(
        a, b, list(stack), residual=stack, device="emulator"
    )  # in place: each is read before it is written
    for one, x, y, r in zip(stack, a, b, residual, strict=True):
        assert compare(one, x, y, epilogue=tw.epilogue("acc + r", r=r)).ok


def test_a_plan_has_pointers() -> None:
    plan = tw.plan(512, 512, 512, dtype="bfloat16", batch=64, pointers=True)
    assert plan.kernel == "wgmma" and plan.parameters["pointers"] == 128
    assert "by pointers" in str(plan) and tw.Plan.from_dict(plan.to_dict()) == plan
    for batch, size in (
        (2, 16),
        (16, 16),
        (17, 128),
        (128, 128),
        (129, 512),
        (512, 512),
        (513, 1024),
        (1024, 1024),
    ):
        assert table_size(Operands.of(Problem(8, 8, 8, batch, pointers=True))) == size
    with pytest.raises(ArgumentError, match="batch must be 2 at least with pointers, not 1"):
        tw.plan(8, 8, 8, pointers=True)
    with pytest.raises(ArgumentError, match="batch must be at most 1,024 with pointers"):
        tw.plan(8, 8, 8, batch=1025, pointers=True)
    rung, operands = KERNELS["04_tiled"], Operands.of(Problem(4, 2, 3, 2, pointers=True))
    with pytest.raises(ArgumentError, match="pointers must be False for 04_tiled"):
        rung.check(operands, rung.complete({}))


@pytest.mark.few(2)
@pytest.mark.parametrize("kernel", ["general", "mma", "vector", "wgmma"])
def test_tables_are_read_where_the_arguments_are(kernel: str) -> None:
    """Nothing of them is copied to a thread's stack, of which an array that is indexed takes much."""
    spec = KERNELS[kernel]
    form = Epilogue("acc + c", (EpilogueArray("c", "float16", pointers=True),))
    given: dict[str, Any] = {"element": "float16", "result": "float16", "pointers": 512}
    stacked = {"stacked": 1, "partition": "128x128x64"} if kernel == "wgmma" else {}
    built = spec.code(spec.complete({**given, **stacked}), form).kernel(spec.entries[0], "sm_90a").build()
    resources = built.entries[spec.entries[0]].resources
    assert resources is not None and not built.warnings
    assert resources.spills == resources.stack_bytes == resources.local_bytes == 0


def test_lists_of_integers_hold_their_sums_unless_something_happens_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their types, which are known before anything is launched."""
    monkeypatch.setattr(MODULE, "_launch", lambda *_: None)
    a, b = ([np.ones(shape, np.int8)] * 3 for shape in ((4, 6), (6, 5)))
    for epilogue, dtype in ((None, "int32"), (tw.epilogue("acc * x", x=0.5), "float32")):
        found = tw.batched_matmul(a, b, epilogue=epilogue, device="emulator")
        assert [(one.dtype.name, one.shape) for one in found] == [(dtype, (4, 5))] * 3


def test_a_part_of_the_products_has_its_part_of_an_array() -> None:
    """What all of them share is the same for each part."""
    whole = np.arange(5 * 1 * 3, dtype=np.float32).reshape(5, 1, 3)
    for begin, end in ((0, 2), (2, 5), (4, 5)):
        found = numpy_of(MODULE._slice_view(interop.view("x", whole), slice(begin, end)))
        assert (found == whole[begin:end]).all() and found.shape == (end - begin, 1, 3)
        for shared in (whole[:1], whole[0], whole[0, 0]):
            view = interop.view("x", shared)
            assert MODULE._slice_view(view, slice(begin, end)) == view


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (3, 4)])
def test_results_of_any_shape_must_lie_apart(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    monkeypatch.setattr(MODULE, "_launch", lambda *_: None)
    m, n = shape
    a, b = ([np.ones(one, np.float32) for _ in range(2)] for one in ((m, 3), (3, n)))
    memory = np.zeros(2 * m * n, np.float32)
    for first in (m * n, m * n - 1):
        out = [memory[: m * n].reshape(m, n), memory[first : first + m * n].reshape(m, n)]
        if first == m * n:
            assert tw.batched_matmul(a, b, out, device="emulator") is out
        else:
            with pytest.raises(ArgumentError, match=r"^out\[1\] must not overlap out\[0\]"):
                tw.batched_matmul(a, b, out, device="emulator")


def test_matrices_on_a_gpu_that_lie_in_different_ways_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which copies of host arrays make alike."""
    a, b = ([np.ones(shape, np.float32) for _ in range(2)] for shape in ((4, 6), (6, 5)))
    a[1] = np.ones((6, 4), np.float32).T
    assert (tw.batched_matmul(a, b, device="emulator")[1] == 6).all()
    monkeypatch.setattr(MODULE, "HOST", "elsewhere")
    with pytest.raises(ArgumentError, match=r"^a\[1\] must have the strides of a\[0\]"):
        tw.batched_matmul(a, b, device="emulator")
