"""tw.profile and tw.check of plans: stacks, copies, workspaces, and plans that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tilewise as tw
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.kernels import KERNELS, RUNGS
from tilewise.plan import Plan
from tilewise.planner import choose, plan, target_of
from tilewise.planner.listing import operands_of


def plan_of(
    kernel: str,
    gpu: str,
    dtype: str,
    layout: str = "nn",
    batch: int = 1,
    arithmetic: str | None = None,
    **settings: Any,
) -> Plan:
    operands = operands_of(70, 50, 90, dtype=dtype, layout=layout, batch=batch, arithmetic=arithmetic)
    target = target_of(gpu)
    return choose(operands, target, specs=(KERNELS[kernel],), given=settings).plan(operands, target)


def test_a_plan_is_profiled_as_its_rung_is() -> None:
    rung = tw.ladder["04_tiled"]
    profile, same = tw.profile(rung.plan(96, 64, 32, gpu="l4")), rung.profile(96, 64, 32, gpu="l4")
    assert profile.gpu.name == "l4" and profile.binary.arch == "sm_89"
    assert dict(profile) == dict(same)
    assert profile["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 96 * 64 * 32


def test_a_plan_for_the_emulator_is_profiled_as_on_an_h200() -> None:
    assert tw.profile(plan(40, 40, 40, gpu="emulator")).gpu.name == "h200"


def test_a_copy_has_a_profile_of_its_own() -> None:
    made = plan_of("12_multistage", "h200", "float16", "nt")
    assert made.copies == ("b",)
    multiplied, copied = tw.profile(made).all
    assert copied.kernel == "arrange" and multiplied.kernel != "arrange"


@pytest.mark.few("11_parallel_k")
@pytest.mark.parametrize("kernel", ["11_parallel_k", "exact32"])
def test_partial_sums_have_profiles_of_their_own(kernel: str) -> None:
    if kernel == "exact32":
        exact = plan_of("exact32", "h200", "float32", arithmetic="exact32")
        assert [one.kernel for one in tw.profile(exact).all] == ["exact32", "split_halves", "remedy"]
    else:
        assert len(tw.profile(plan_of("11_parallel_k", "h200", "float32", split=4)).all) == 2


def test_a_stack_is_launched_product_by_product_where_the_kernel_takes_one() -> None:
    assert len(tw.profile(plan_of("04_tiled", "h200", "float32", batch=3)).all) == 3


def test_the_groups_of_a_plan_have_all_rows_between_them() -> None:
    made = plan(31, 20, 16, gpu="h200", groups=3)
    assert tw.profile(made)["tilewise__bytes_global_op_st.sum"] == 4 * 31 * 20
    read = tw.record(made).matrices
    assert {name: (one.rows, one.columns, one.count) for name, one in read.items()} == {
        "a": (31, 16, 1), "b": (16, 20, 3), "c": (31, 20, 1),
    }  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("order", ["eager", "late", 7])
def test_nothing_is_wrong_with_plans(order: str | int) -> None:
    for made in (
        plan_of("12_multistage", "h200", "float16", "tt"),
        plan_of("11_parallel_k", "h200", "float32", split=4),
        plan_of("04_tiled", "rtx-2060-super", "float32", batch=2),
        plan(33, 20, 17, layout="tn", gpu="emulator"),
    ):
        assert tw.check(made, order) == [], made


def test_what_is_wrong_with_a_plan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for its partial sums, a plan writes out of bounds."""
    made = plan_of("11_parallel_k", "h200", "float32", split=4)
    short = replace(RUNGS["11_parallel_k"], workspace=lambda _operands, _settings: 256)
    monkeypatch.setitem(KERNELS._specs, short.name, short)
    (found,) = tw.check(made)
    assert found.tool == "memcheck"
    assert found.kind in (
        "out-of-bounds",
        "use-after-free",
    )  # as it happens that something lay behind or did not


def test_what_is_no_plan_is_refused() -> None:
    verbs: tuple[Any, ...] = (tw.profile, tw.check)
    for verb in verbs:
        with pytest.raises(ArgumentError, match=r"^plan must be a Plan, not 'str'; tw\.plan"):
            verb("04_tiled")
    small = plan(8, 8, 8)
    with pytest.raises(ArgumentError, match=r"^sample must be"):
        tw.profile(small, sample=0)
    with pytest.raises(UnknownNameError, match="order"):
        tw.check(small, "soon")
    with pytest.raises(ArgumentError) as caught:
        tw.profile(plan(0, 8, 8))
    rule = "must be of at least one launch, and a product without elements has none"
    assert str(caught.value) == f"a profile {rule}"
    assert tw.check(plan(0, 8, 8)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float64"}, "a must have elements of type float32 for simt, not 'float64'"),
        ({"result": "float64"}, "result must be 'float64', the element type of c, not 'float32'"),
        ({"groups": 2}, "groups must be 0 for simt, not 2"),
    ],
)
@pytest.mark.parametrize("verb", [tw.profile, tw.check, tw.record])
def test_a_plan_that_was_changed_to_a_product_that_its_kernel_lacks_is_refused(
    verb: Callable[[Plan], object], change: dict[str, Any], message: str
) -> None:
    made = tw.plan(64, 48, 32)
    assert made.kernel == "simt"
    with pytest.raises(ArgumentError, match=f"^{message}"):
        verb(replace(made, problem=tw.plan(64, 48, 32, **change).problem))
