"""tw.grouped_matmul on the emulator, beside float64: rows in groups, each multiplied by a matrix of its own."""

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
from tilewise.epilogue import describe_dense
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.operands import Operands
from tilewise.planner import list_candidates, operands_of, target_of
from tilewise.problem import Epilogue, Problem
from tilewise.reference import compare, poisoned

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng()
TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64}
SMALL: dict[str, Any] = {"partition": "64x64x64"}
PLAIN = Epilogue()


def draw(*shape: int, dtype: Any, pad: int = 0) -> Array:
    """Random matrices whose rows begin so many elements apart more than they have."""
    whole = RANDOM.standard_normal((*shape[:-1], shape[-1] + pad)).astype(dtype)
    return whole[..., : shape[-1]]


def matrices(groups: int, k: int, n: int, dtype: Any, lies: str) -> Array:
    """One matrix a group: in rows, in columns, strided, or the last group's first."""
    if lies == "columns":
        return draw(groups, n, k, dtype=dtype, pad=-k % 8).swapaxes(1, 2)
    found = draw(groups, k, n, dtype=dtype, pad=-n % 8)
    return {
        "rows": found,
        "reversed": found[::-1],
        "strided": draw(n, groups, k, dtype=dtype).T.swapaxes(0, 1),
    }[lies]


def ends_of(sizes: list[int]) -> Array:
    return np.cumsum(sizes, dtype="int32")


def assert_groups(out: Array, a: Array, b: Array, ends: Array, **more: Any) -> None:
    """That each group's rows are its product, and that the rows after the last end are as poisoned as before."""
    sums = "float64" if a.dtype == np.float64 else "float32"
    begin = 0
    for group, end in enumerate(ends):
        compared = compare(out[begin:end], a[begin:end], b[group], accumulate=sums, **more)
        assert compared.ok, (group, str(compared))
        begin = end
    assert np.isnan(out[begin:].astype(np.float64)).all()


def plan_of(
    kernel: str, a: Array, b: Array, result: str = "", epilogue: Epilogue = PLAIN, **given: Any
) -> tw.Plan:
    """The plan of a kernel with these settings, for operands of these sizes."""
    (m, k), (groups, _, n), element = a.shape, b.shape, a.dtype.name
    problem = Problem(m, n, k, 1, element, element, result or element, epilogue=epilogue, groups=groups)
    spec, operands = KERNELS[kernel], Operands.of(problem)
    chosen = spec.complete({**spec.for_types(operands), "grouped": 1, **given})
    return spec.plan(operands, "h200", chosen)


def multiply(
    a: Array, b: Array, ends: Array, order: Any = "eager", plan: tw.Plan | None = None, result: str = ""
) -> Array:
    """The product in a part of a wider array, whose other columns must stay as they are.

    Its rows begin where the copy engine can store, or elsewhere.
    """
    rest = int(RANDOM.choice([8 - b.shape[2] % 8, 3]))
    whole = poisoned((a.shape[0], b.shape[2] + rest), TYPES[result or a.dtype.name])
    out = whole[:, : b.shape[2]]
    device = tw.device("emulator", order=order)
    assert tw.grouped_matmul(a, b, ends, out, device=device, plan=plan) is out
    assert np.isnan(whole[:, b.shape[2] :].astype(np.float64)).all()
    return out


# ── right ────────────────────────────────────────────────────────────────────────────────────────────────

MANY = [0] * 20 + [1, 70, 0, 3] + [0] * 9 + [2] * 31 + [64]  # more groups than a warp has lanes


@examples(3, 15)
@given(
    st.lists(st.integers(0, 90), min_size=1, max_size=9),
    st.integers(0, 70),
    st.integers(1, 140),
    st.sampled_from([0, 8, 64, 200]),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 1),
    st.sampled_from(["eager", "late", 1, 7]),
)
@example([5], 0, 8, 64, True, 1, 0, "late")
@example([0, 0], 9, 8, 64, True, 1, 1, "late")
@example(MANY, 5, 72, 64, False, 100, 0, "late")
@example(MANY, 5, 72, 64, True, 100, 1, 3)
def test_tensor_cores_multiply_groups_of_any_size(
    sizes: list[int], rest: int, n: int, k: int, columns: bool, tiles: int, pingpong: int, order: Any
) -> None:
    """Empty ones, many, one alone; rows of no group; blocks with a tile each, with some, and one with all."""
    a = draw(sum(sizes) + rest, k, dtype=TYPES["bfloat16"])
    b = matrices(len(sizes), k, n, TYPES["bfloat16"], "columns" if columns else "rows")
    a[sum(sizes) :] = np.nan
    given = {"a_in_rows": 1, "b_in_rows": int(not columns), "tiles": tiles, "pingpong": pingpong, **SMALL}
    out = multiply(a, b, ends_of(sizes), order, plan_of("wgmma", a, b, **given))
    assert_groups(out, a, b, ends_of(sizes))


@examples(4, 15)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=9),
    st.integers(0, 40),
    st.integers(1, 50),
    st.integers(0, 40),
    st.sampled_from(sorted(TYPES)),
    st.sampled_from(["rows", "columns", "strided", "reversed"]),
    st.booleans(),
)
@example(MANY, 3, 20, 9, "float32", "strided", False)
def test_the_planners_choice_is_right_for_any_type_and_layout(
    sizes: list[int], rest: int, n: int, k: int, dtype: str, lies: str, turned: bool
) -> None:
    """A in rows, or turned: in columns."""
    a, b = draw(sum(sizes) + rest, k, dtype=TYPES[dtype]), matrices(len(sizes), k, n, TYPES[dtype], lies)
    a = np.asfortranarray(a) if turned else a
    assert_groups(multiply(a, b, ends_of(sizes)), a, b, ends_of(sizes))


@pytest.mark.parametrize("k", [256, 1])
def test_columns_of_a_are_laid_out_in_rows_for_tensor_cores(k: int) -> None:
    """The copy engine takes no box of them that begins with a group, in the middle of 16 bytes."""
    a = np.asfortranarray(draw(160, k, dtype=np.float16))
    b, ends = draw(3, k, 72, dtype=np.float16), ends_of([23, 100, 37])
    plan = plan_of("wgmma", np.ascontiguousarray(a), b, **SMALL)
    assert_groups(multiply(a, b, ends, plan=plan), a, b, ends)
    operands = operands_of(160, 72, k, dtype="float16", layout="tn", groups=3)
    found, _ = list_candidates(operands, target_of("h200"), specs=(KERNELS["wgmma"],))
    assert found and all("a" in one.copies for one in found)


@pytest.mark.few(1)
@pytest.mark.parametrize(("partition", "pingpong"), [("128x128x64", 0), ("128x128x64", 1), ("64x128x64", 0)])
def test_larger_tiles_end_inside_of_groups(partition: str, pingpong: int) -> None:
    sizes = [130, 0, 65, 200]
    a, b = draw(400, 136, dtype=TYPES["bfloat16"]), matrices(4, 136, 264, TYPES["bfloat16"], "columns")
    given: dict[str, Any] = {"partition": partition, "pingpong": pingpong, "b_in_rows": 0, "tiles": 3}
    plan = plan_of("wgmma", a, b, result="float32", **given)
    assert_groups(multiply(a, b, ends_of(sizes), 5, plan, "float32"), a, b, ends_of(sizes))


def test_an_operand_that_lies_otherwise_is_copied_first() -> None:
    """Rows that begin at odd elements are nothing that a tensor map describes."""
    a, b, ends = (
        draw(70, 65, dtype=np.float16, pad=2),
        draw(3, 65, 33, dtype=np.float16),
        ends_of([30, 1, 38]),
    )
    plan = plan_of("wgmma", a, b, **SMALL)
    for matrices_so in (b, draw(3, 65, 40, dtype=np.float16)[::-1, :, :33]):
        assert_groups(multiply(a, matrices_so, ends, plan=plan), a, matrices_so, ends)


@pytest.mark.few("general")
@pytest.mark.parametrize(("kernel", "chosen"), [("wgmma", SMALL), ("general", {})], ids=["wgmma", "general"])
def test_an_epilogue_counts_rows_of_the_result(kernel: str, chosen: dict[str, Any]) -> None:
    a, b, ends = draw(90, 64, dtype=np.float16), draw(3, 64, 72, dtype=np.float16), ends_of([10, 0, 70])
    bias, residual = draw(72, dtype=np.float32), draw(90, 72, dtype=np.float16)
    epilogue = tw.epilogue("relu(acc + bias) + r", bias=bias, r=residual)
    form = describe_dense(epilogue, (90, 72), 64, ("float16", "float16"))
    out = poisoned((90, 72), np.float16)
    plan = plan_of(kernel, a, b, epilogue=form, **chosen)
    tw.grouped_matmul(a, b, ends, out, epilogue=epilogue, plan=plan, device="emulator")
    for begin, end, group in ((0, 10, 0), (10, 80, 2)):
        part = tw.epilogue("relu(acc + bias) + r", bias=bias, r=residual[begin:end])
        assert compare(out[begin:end], a[begin:end], b[group], epilogue=part).ok
    assert np.isnan(out[80:].astype(np.float32)).all()


def test_any_library_gives_its_own_kind() -> None:
    torch = pytest.importorskip("torch")
    a, weight = torch.randn(40, 16, dtype=torch.bfloat16), torch.randn(3, 24, 16, dtype=torch.bfloat16)
    ends = torch.tensor([11, 11, 40], dtype=torch.int32)
    result = tw.grouped_matmul(a, weight.mT, ends)
    assert type(result) is torch.Tensor and result.dtype == torch.bfloat16
    wanted = torch.cat([a[:11].double() @ weight[0].double().T, a[11:].double() @ weight[2].double().T])
    assert torch.allclose(result.double(), wanted, rtol=2**-7, atol=1e-3)
    device = tw.device("emulator")
    held = [device.array(x) for x in (a.float().numpy(), weight.float().mT.numpy(), ends.numpy())]
    ours = tw.grouped_matmul(*held)
    assert np.allclose(ours.numpy(), wanted.numpy(), atol=1e-4)
    mixed = tw.grouped_matmul(np.ones((2, 3)), np.ones((1, 3, 2), "float32"), ends[:1])  # host arrays convert
    assert mixed.tolist() == [[3, 3], [3, 3]] and type(mixed) is torch.Tensor


# ── whatever the ends hold ───────────────────────────────────────────────────────────────────────────────


@examples(10, 20)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 150), min_size=1, max_size=40),
    st.sampled_from(["wgmma", "general"]),
)
@example([100, 50, -1, 2**31 - 1, 7], "wgmma")
@example([-(2**31), 2**31 - 1, 0, 0, 0], "general")
@example([90] * 32 + [10] * 7 + [95], "wgmma")  # they decrease where a warp takes its next 32
def test_no_end_leads_outside_of_the_arrays(ends: list[int], kernel: str) -> None:
    """The emulator faults where memory beside the arrays is touched; every row is a product with one matrix or none."""
    a, b = draw(100, 64, dtype=TYPES["bfloat16"]), draw(len(ends), 64, 40, dtype=TYPES["bfloat16"])
    plan = plan_of(kernel, a, b, **(SMALL if kernel == "wgmma" else {}))
    out = multiply(a, b, np.array(ends, "int32"), plan=plan)
    begin = 0
    for group, end in enumerate(ends):
        end = max(begin, min(end, 100))
        assert compare(out[begin:end], a[begin:end], b[group]).ok
        begin = end
    assert np.isnan(out[begin:].astype(np.float32)).all()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kernel", "given"),
    [("wgmma", {**SMALL, "tiles": 4}), ("wgmma", {**SMALL, "tiles": 4, "pingpong": 1}), ("general", {})],
)
def test_the_checker_finds_nothing_wrong(kernel: str, given: dict[str, Any]) -> None:
    a, b = draw(150, 136, dtype=TYPES["bfloat16"]), draw(4, 136, 72, dtype=TYPES["bfloat16"])
    for order in ("late", 3):
        assert tw.check(plan_of(kernel, a, b, **given), order) == []


@pytest.mark.few(2)
@pytest.mark.parametrize(("partition", "pingpong"), [("128x256x64", 0), ("192x192x64", 0), ("128x128x64", 1)])
def test_the_walk_leaves_the_sums_in_registers(partition: str, pingpong: int) -> None:
    built = KERNELS["wgmma"].kernel("sm_90a", partition=partition, pingpong=pingpong, grouped=1).build()
    resources = built.entries["wgmma_gemm"].resources
    assert resources is not None
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert not built.warnings


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_has_groups() -> None:
    """Few rows a group get low tiles, many rows high ones; a plan for one B does not serve."""
    low = tw.plan(512, 4096, 4096, dtype="bfloat16", groups=64, layout="nt")
    high = tw.plan(32768, 4096, 4096, dtype="bfloat16", groups=8, layout="nt")
    assert low.kernel == high.kernel == "wgmma"
    assert low.tiles["block"].m == 64 and high.tiles["block"].m >= 128
    assert "in 64 groups" in str(low) and tw.Plan.from_dict(low.to_dict()) == low
    assert low.problem.bytes == 2 * (512 * 4096 * 2 + 64 * 4096 * 4096)
    a, b, ends = np.ones((4, 3), "float32"), np.ones((2, 3, 2), "float32"), np.array([1, 4], "int32")
    with pytest.raises(ArgumentError, match="plan must be for groups = 2, as the operands are, not 0"):
        tw.grouped_matmul(a, b, ends, plan=tw.plan(4, 2, 3), device="emulator")
    with pytest.raises(ArgumentError, match="groups must be 0 for 04_tiled"):
        KERNELS["04_tiled"].check(Operands.of(Problem(4, 2, 3, groups=2)), KERNELS["04_tiled"].complete({}))


@pytest.mark.parametrize("given", [{"cluster": "2x1"}, {"split": 2}, {"exchanged": 1}, {"grouped": 0}])
def test_what_groups_cannot_have_is_refused(given: dict[str, Any]) -> None:
    spec = KERNELS["wgmma"]
    operands = Operands.of(Problem(64, 64, 64, 1, "bfloat16", "bfloat16", "bfloat16", groups=2))
    error = spec.why_not(operands, spec.complete({"grouped": 1, **given}))
    assert error is not None and error.argument == next(iter(given))
    general = KERNELS["general"]
    for grouped in (0, 1):
        error = general.why_not(operands, general.complete({"element": "bfloat16", "grouped": grouped}))
        assert (None if error is None else error.argument) == (None if grouped else "grouped")


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": np.ones(3)}, "a must have two dimensions"),
        ({"b": np.ones((3, 2))}, "b must have the shape (groups, k, columns)"),
        ({"b": np.ones((0, 3, 2))}, "b must have the shape (groups, k, columns), with a group at least"),
        ({"b": np.ones((2, 4, 2))}, "b must have matrices with as many rows as a has columns (3)"),
        ({"offsets": np.array([1, 2, 4], "int32")}, "offsets must have the shape (2,), an end for each matrix of b"),
        ({"offsets": np.array([[1, 4]], "int32")}, "offsets must have the shape (2,)"),
        ({"offsets": np.array([1, 4])}, "offsets must hold int32, not 'int64'"),
        ({"offsets": [1.0, 4.0]}, "offsets must hold int32, not 'float64'"),
        ({"offsets": np.array([1, 0, 4], "int32")[::2]}, "offsets must be contiguous"),
        ({"out": np.ones((4, 3))}, "out must have shape (4, 2)"),
        ({"out": np.ones((4, 2), complex)}, "out must have a type that kernels write"),
        ({"plan": "fast"}, "plan must be a Plan"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_named(given: dict[str, Any], message: str) -> None:
    usual = {"a": np.ones((4, 3)), "b": np.ones((2, 3, 2)), "offsets": np.array([1, 4], "int32")}
    with pytest.raises(ArgumentError) as caught:
        tw.grouped_matmul(**{**usual, **given}, device="emulator")
    assert message in str(caught.value)


def test_nothing_may_be_multiplied() -> None:
    """No rows, no columns; and sums of no terms are zero, in the rows of groups alone."""
    ends = np.array([0, 3], "int32")
    assert tw.grouped_matmul(np.ones((0, 3)), np.ones((2, 3, 4)), ends, device="emulator").shape == (0, 4)
    assert tw.grouped_matmul(np.ones((5, 3)), np.ones((2, 3, 0)), ends, device="emulator").shape == (5, 0)
    out = tw.grouped_matmul(np.ones((5, 0)), np.ones((2, 0, 2)), ends, np.ones((5, 2)), device="emulator")
    assert out.tolist() == [[0, 0]] * 3 + [[1, 1]] * 2


def test_the_result_is_an_array_as_one_that_its_epilogue_reads() -> None:
    x = tw.device("emulator").array(np.ones(4))
    a, b, ends = np.ones((0, 3)), np.ones((2, 3, 4)), np.zeros(2, "int32")
    result = tw.grouped_matmul(a, b, ends, epilogue=tw.epilogue("acc + x", x=x))
    assert isinstance(result, type(x)) and result.shape == (0, 4)


def test_the_result_overlaps_nothing() -> None:
    a, b = np.ones((4, 3)), np.ones((2, 3, 3))
    with pytest.raises(ArgumentError, match="out must not overlap a"):
        tw.grouped_matmul(a, b, np.array([1, 4], "int32"), a, device="emulator")


@pytest.mark.parametrize("has_out", [False, True])
def test_host_arrays_that_go_by_way_of_a_gpus_memory_keep_what_belongs_to_no_group(
    has_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tw.device("emulator")
    monkeypatch.setattr(type(device), "runs_on_gpu", True)  # so host arrays are copied there and back
    a, b, ends = draw(9, 16, dtype=np.float32), matrices(2, 16, 8, np.float32, "rows"), ends_of([4, 3])
    kept, out = poisoned((9, 8), np.float32), np.full((9, 8), 7, np.float32) if has_out else None
    epilogue = tw.epilogue("relu(keep(kept, acc))", kept=kept)
    found = tw.grouped_matmul(a, b, ends, out, epilogue=epilogue, device=device)
    assert (found is out) == has_out
    assert_groups(kept[:7], a[:7], b, ends)
    assert np.array_equal(found[:7], np.maximum(kept[:7], 0))
    if has_out:
        assert (found[7:] == 7).all()
    assert np.isnan(kept[7:]).all()
