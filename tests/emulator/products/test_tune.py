"""tw.tune, tw.tuning and ``tilewise tune`` on the emulator: plans measured, the fastest kept, and taken from then on."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tilewise as tw
from tests.documented import documented_keys
from tilewise.bench import plan_trials
from tilewise.bench import tune as tune_module
from tilewise.bench.plan_trials import ReadyPlan, bind_all, make_ready
from tilewise.cli.main import main
from tilewise.cli.parser import parse
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError, DeviceError
from tilewise.operands import Operands
from tilewise.planner import list_candidates, operands_of, target_of_device
from tilewise.planner.measured import KeptPlan, describe_operands, file_of, keep, read, versions

EMULATOR = target_of_device(open_emulator())


@pytest.fixture(autouse=True)
def _own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")


def pretend_times(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """The n-th plan takes so long, the last figure being for all others."""
    order: list[int] = []

    def time_them(_device: Any, plans: Sequence[ReadyPlan], _rounds: int, _until: float) -> list[float]:
        for one in plans:
            if id(one) not in order:
                order.append(id(one))
        return [seconds[min(order.index(id(one)), len(seconds) - 1)] for one in plans]

    monkeypatch.setattr(tune_module, "time_in_turns", time_them)


def test_the_fastest_is_kept_and_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = list_candidates(operands_of(40, 24, 72), EMULATOR)[0]
    pretend_times(monkeypatch, 3.0, 2.5, 1.0, 9.0)
    tuned = tw.tune(40, 24, 72, most=4)
    third = predicted[2]
    assert (tuned.plan.kernel, tuned.plan.measured) == (third.spec.name, 1.0)
    assert [one.seconds for one in tuned.tried] == [1.0, 2.5, 3.0, 9.0]
    assert (tuned.gain, tuned.kept.plans, tuned.wrong) == (3.0, 4, ())
    assert "1,000,000.00 µs" in str(tuned) and "3.00 times" in str(tuned)
    again = tw.tune(40, 24, 72, most=4)
    assert again.tried == () and again.kept == tuned.kept and "measured before" in str(again)
    pretend_times(monkeypatch, 1.0, 0.995, 2.0)
    once_more = tw.tune(40, 24, 72, most=3, again=True)
    assert all(one.plan.measured is None for one in once_more.tried)
    assert once_more.plan.kernel == predicted[0].spec.name, "1 % is nothing"


def test_plans_that_are_predicted_far_behind_the_best_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice its time is the most: the plan that takes just that is measured, one that takes more is not."""
    found, refused = list_candidates(operands_of(40, 24, 72), EMULATOR)
    tried: list[list[float]] = []

    def refuse(_operands: Any, _device: Any, _target: Any, candidates: Sequence[Any], *_: Any) -> None:
        tried.append([one.prediction.seconds for one in candidates])
        raise DeviceError("nothing is measured here")

    monkeypatch.setattr(tune_module, "_try_all", refuse)
    for times, most, worth in (
        ((9.0, 2.0, 1.0, 2.25, 1.5), 9, [1.0, 1.5, 2.0]),
        ((9.0, 2.0, 1.0, 2.25, 1.5), 2, [1.0, 1.5]),
        ((9.0, 9.0), 9, [9.0, 9.0]),
        ((9.0, 1.0), 9, [1.0]),
    ):
        listed = [
            replace(one, prediction=replace(one.prediction, seconds=seconds))
            for one, seconds in zip(found, times, strict=False)
        ]
        monkeypatch.setattr(tune_module, "list_candidates", lambda *_, listed=listed: (listed, refused))
        with pytest.raises(DeviceError, match="nothing is measured here"):
            tw.tune(40, 24, 72, most=most)
        assert tried.pop() == worth


def pretend_wrong(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The result of one plan, counted from 1, is another than the first one's."""
    turn: list[int] = []
    agrees = ReadyPlan.agrees_with

    def lie(self: ReadyPlan, other: ReadyPlan, operands: Operands) -> bool:
        turn.append(0)
        return len(turn) != which and agrees(self, other, operands)

    monkeypatch.setattr(ReadyPlan, "agrees_with", lie)


def test_a_plan_with_another_result_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_times(monkeypatch, 3.0, 1.0, 2.0)
    pretend_wrong(monkeypatch, 2)
    tuned = tw.tune(40, 24, 72, most=3)
    assert [one.seconds for one in tuned.wrong] == [1.0] and tuned.kept.seconds == 2.0


CASES: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "float16": ((40, 48, 33), {"dtype": "float16", "layout": "nt"}),
    "bfloat16 by int8": ((20, 32, 64), {"dtype": "bfloat16", "b_dtype": "int8"}),
    "float8": ((32, 48, 64), {"dtype": "float8_e4m3fn", "layout": "nt"}),
    "int8": ((33, 20, 48), {"dtype": "int8"}),
    "int64": ((9, 10, 11), {"dtype": "int64"}),
    "complex64": ((12, 20, 16), {"dtype": "complex64", "layout": "tn"}),
    "float64 stack": ((20, 12, 16), {"dtype": "float64", "batch": 3}),
    "groups": ((40, 24, 32), {"dtype": "float16", "groups": 3}),
    "pointers": ((24, 20, 16), {"batch": 3, "pointers": True}),
    "tf32": ((40, 32, 32), {"arithmetic": "tf32"}),
    "one element": ((1, 1, 1), {}),
    "no terms": ((20, 12, 0), {"dtype": "bfloat16"}),
}


@pytest.mark.parametrize("case", CASES)
def test_plans_of_every_kind_agree(case: str) -> None:
    sizes, problem = CASES[case]
    tuned = tw.tune(*sizes, most=3, **problem)
    assert tuned.tried and not tuned.wrong, tuned
    assert all(0 < one.seconds < 60 for one in tuned.tried)


def spoil_last(sample: Any) -> Any:
    spoiled = sample.copy()
    spoiled[-1] = spoiled[-1] + spoiled.dtype.type(
        1 if spoiled.dtype.kind == "i" else np.abs(sample).max() / 8
    )
    return spoiled


def spoil_to_nan(sample: Any) -> Any:
    spoiled = sample.copy()
    spoiled[len(spoiled) // 2] = spoiled[0] + 1 if spoiled.dtype.kind == "i" else np.nan
    return spoiled


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_random_integers_are_many_different_ones(dtype: str) -> None:
    """Zeros and ones alone would hide most of what a kernel can do wrong."""
    held = plan_trials.ProductArrays(open_emulator(), operands_of(32, 32, 32, dtype=dtype)).host
    assert all(len(set(values.tolist())) > 20 for values in held.values())


def test_numbers_are_drawn_for_what_a_product_reads_and_for_nothing_else() -> None:
    """Where they were drawn for the result, too, its bytes would count among those that sets have to outgrow a cache."""
    added = tw.epilogue("acc + bias", bias=np.zeros(24, np.float32))
    arrays = plan_trials.ProductArrays(open_emulator(), operands_of(17, 24, 40, epilogue=added))
    assert {name: values.size for name, values in arrays.host.items()} == {
        "a": 17 * 40, "b": 40 * 24, "epilogue.bias": 24,
    }  # fmt: skip


@pytest.mark.parametrize("spoil", [spoil_last, spoil_to_nan])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8"])
def test_results_that_differ_are_noticed(dtype: str, spoil: Callable[[Any], Any]) -> None:
    operands = operands_of(17, 24, 40, dtype=dtype)
    found = list_candidates(operands, EMULATOR)[0][:1]
    arrays = plan_trials.ProductArrays(open_emulator(), operands)
    (bound,) = bind_all(open_emulator(), operands, found)
    ready = make_ready(bound, 1.0, arrays)
    a, b = (arrays.host[name].reshape(shape).astype("complex128" if dtype == "complex64" else "float64")
            for name, shape in (("a", (17, 40)), ("b", (40, 24))))  # fmt: skip
    got = arrays.result().reshape(17, 24).astype(a.dtype)
    assert np.abs(got - a @ b).max() <= 0.01 * np.abs(a @ b).max(), "the product is one of these arrays"
    other = ReadyPlan(ready.launch, ready.count, spoil(ready.sample), None)
    assert ready.agrees_with(ready, operands)
    assert not ready.agrees_with(other, operands) and not other.agrees_with(ready, operands)


@pytest.mark.parametrize(
    ("dtype", "result", "agree"),
    [
        ("float32", "float32", False), ("float32", "float16", True), ("float16", "float32", True),
        ("float64", "float32", False), ("int8", "float32", True),
    ],
)  # fmt: skip
def test_results_agree_as_far_as_the_coarser_type_of_operands_and_result_tells(
    dtype: str, result: str, agree: bool
) -> None:
    """Of what differs by a few roundings of 16 bits."""
    operands = operands_of(4, 4, 4, dtype=dtype, result=result)
    one, other = (
        ReadyPlan(lambda: None, 1, np.array([1.0, 0.5 + more], result), None) for more in (0.0, 2.0**-8)
    )
    assert one.agrees_with(other, operands) is agree


def test_a_plan_that_writes_nothing_does_not_pass_by_the_result_before_it() -> None:
    class Idle:
        workspace_bytes = 0

        def __call__(self, _addresses: object) -> None: ...

    operands = operands_of(17, 24, 40)
    arrays = plan_trials.ProductArrays(open_emulator(), operands)
    (bound,) = bind_all(open_emulator(), operands, list_candidates(operands, EMULATOR)[0][:1])
    right = make_ready(bound, 1.0, arrays)
    idle = make_ready(cast(Any, Idle()), 1.0, arrays)
    assert right.agrees_with(right, operands) and not idle.agrees_with(right, operands)


def test_what_a_program_multiplies_is_measured_once() -> None:
    a, b = np.random.default_rng(1).standard_normal((2, 30, 30)).astype("float32")
    before = tw.matmul(a, b)
    with tw.tuning(most=2) as tuned:
        products = [
            tw.matmul(a, b),
            tw.matmul(a, b),
            tw.matmul(a[::-1], b.T),
            tw.linear(a, b, activation="relu"),
        ]
        tw.matmul(a[:0], b)
        tw.ladder["04_tiled"](a, b)
        tw.matmul(a, b, plan=tw.plan(30, 30, 30, gpu="emulator"))
    assert [one.problem for one in tuned] == [
        "30×30×30 float32, sums in float32",
        "30×30×30 float32, sums in float32",
        "30×30×30 float32, sums in float32, then relu(acc)",
    ]
    for got in products[:2]:
        np.testing.assert_allclose(got, before, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(products[2], a[::-1] @ b.T, rtol=1e-4, atol=1e-4)
    with tw.tuning(most=2) as again:
        tw.matmul(a, b)
    assert again == []
    tw.matmul(a[:7], b)
    path = file_of(EMULATOR)
    assert path is not None and len(read(path)) == 3, "outside of it nothing is measured"


def test_whatever_a_program_multiplies_is_measured_as_it_lies() -> None:
    """Scales along K, lists of matrices, arrays that are read and written, sums of columns, strides."""
    random = np.random.default_rng(2)

    def drawn(*shape: int) -> Any:
        return random.standard_normal(shape).astype("float32")

    a, b, sums = drawn(20, 30), drawn(30, 24), np.zeros(24, "float32")
    with tw.tuning(most=2) as tuned:
        tw.matmul(
            tw.quantize(drawn(16, 256), axis=-1, block=128),
            tw.quantize(drawn(24, 256), axis=-1, block=128).mT,
        )
        tw.batched_matmul([drawn(10, 20), drawn(10, 20)], [drawn(20, 12), drawn(20, 12)])
        tw.matmul(a, b, bias=drawn(24), activation="gelu", residual=drawn(20, 24), beta=0.5, c=drawn(20, 24))
        tw.matmul(a, b, epilogue=tw.epilogue("column_sums(sums, acc)", sums=sums))
        tw.matmul(a[::-2, ::-1], b)
    assert len(tuned) == 5 and not any(one.wrong for one in tuned), tuned
    np.testing.assert_allclose(sums, (a @ b).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [1 << 40, -(1 << 40) - 24, (1 << 40) + 3])
def test_matrices_that_lie_far_apart_are_measured_side_by_side(step: int) -> None:
    """Two of a list may lie terabytes from one another; what is measured is the same kind of product."""
    dense = operands_of(20, 24, 40, dtype="float16", batch=2)
    far = dense._replace(b=replace(dense.b, stack=(step,)))
    near = plan_trials.bring_together(far)
    assert (near.a, near.c) == (dense.a, dense.c) and 40 * 24 <= near.b.stack[0] < 40 * 24 + 2 * 64
    assert (near.b.stack[0] - step) % 64 == 0 and describe_operands(near) == describe_operands(far)
    assert tune_module.tune_operands(far, open_emulator(), most=2).tried


def test_a_plan_that_no_kernel_has_any_more_is_measured_anew() -> None:
    operands = operands_of(40, 24, 72)
    kept = tw.tune(40, 24, 72, most=2).kept
    keep(EMULATOR, {describe_operands(operands): replace(kept, kernel="no such kernel")})
    a, b = np.ones((40, 72), "float32"), np.ones((72, 24), "float32")
    with tw.tuning(most=2) as tuned:
        tw.matmul(a, b)
    assert len(tuned) == 1 and tuned[0].kept.kernel != "no such kernel"


def test_threads_that_meet_the_same_product_measure_it_once() -> None:
    a = np.ones((20, 20), "float32")
    with tw.tuning(most=2) as tuned:
        threads = [threading.Thread(target=tw.matmul, args=(a, a)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert len(tuned) == 1


def test_too_little_memory_costs_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise DeviceError("out of memory")

    monkeypatch.setattr(tune_module, "ProductArrays", fail)
    a = np.ones((20, 20), "float32")
    with pytest.warns(RuntimeWarning, match="was not tuned: out of memory"), tw.tuning(most=2) as tuned:
        assert tw.matmul(a, a)[0, 0] == 20
    assert tuned == []
    with pytest.raises(DeviceError):
        tw.tune(20, 20, 20)


def test_time_that_is_over_ends_it_with_one_plan_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    time_one = plan_trials._time

    def count(device: Any, launch: Callable[[], None]) -> float:
        turns.append(0)
        return time_one(device, launch)

    monkeypatch.setattr(plan_trials, "_time", count)
    tuned = tw.tune(40, 24, 72, most=6, seconds=1e-9)
    assert 1 <= len(tuned.tried) < 6
    assert len(turns) == 4 * len(tuned.tried), (
        "two rounds each, of which one counts, of all plans and of the last ones"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"most": 0}, "most must be at least 1, not 0"),
        ({"seconds": 0}, "seconds must be above 0, not 0"),
        ({"seconds": float("nan")}, "seconds must be above 0, not nan"),
        ({"dtype": "float33"}, "dtype"),
        ({"arithmetic": "f16"}, "arithmetic"),
    ],
)
def test_errors(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tw.tune(8, 8, 8, **given)


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, 0, 8)])
def test_a_product_without_elements_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ArgumentError, match="m, n and batch must be at least 1, to be tuned"):
        tw.tune(*sizes)


# ── the command ──


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["tune", *argv])
    return code, *capsys.readouterr()


def test_the_command_measures_as_many_plans_as_the_functions_for_as_long() -> None:
    given = parse(["tune", "8x8x8"])
    for function in (tw.tune, tw.tuning):
        defaults = inspect.signature(function).parameters
        assert (given.most, given.seconds) == (defaults["most"].default, defaults["seconds"].default)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "24x16x40", "8x16x24:nt", "--dtype", "float32", "--most", "2")
    assert (code, err) == (0, "")
    assert "24×16×40 float32" in out and "2 products, kept in " in out and "measured µs" in out
    code, out, _ = run(capsys, "24x16x40", "--dtype", "float32", "--json")
    data = json.loads(out)
    assert code == 0 and data.keys() == documented_keys("`tune`") | {"schema", "command"}
    assert [one["measured_before"] for one in data["products"]] == [True]
    assert data["products"][0].keys() == documented_keys("`products` of `tune`") - {"agrees"}
    kept = Path(data["file"])
    others = tmp_path / "others.json"
    others.write_bytes(kept.read_bytes())
    code, out, _ = run(capsys, "--list")
    assert code == 0 and "8×16×24" in out and ": 2, in " in out
    code, out, _ = run(capsys, "--forget")
    assert code == 0 and "2 dropped" in out and not kept.exists()
    code, out, _ = run(capsys, "--merge", str(others), "--json")
    data = json.loads(out)
    assert code == 0 and data.keys() | {*next(iter(data["kept"].values()))} == documented_keys(
        "`tune --list`"
    ) | {"schema", "command"}
    assert data["plans"] == 2 and all(plan["used"] for plan in data["kept"].values())


def test_kept_plans_are_listed_in_microseconds_with_what_they_gained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = KeptPlan("simt", {}, (), 1.5e-3, 3.75e-3, 2, "2026-11-28", versions())
    keep(
        EMULATOR,
        {"one": plan, "other": replace(plan, seconds=2e-6, predicted_best=2e-6, versions="tilewise 0")},
    )
    code, out, _ = run(capsys, "--list")
    rows = [line.split() for line in out.splitlines() if "simt" in line]
    assert code == 0 and rows == [
        ["one", "simt", "1,500.00", "2.50", "2026-11-28"],
        ["other", "simt", "2.00", "1.00", "2026-11-28", "not", "used:", "by", "tilewise", "0"],
    ]


def test_the_command_marks_the_plan_with_another_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_times(monkeypatch, 3e-6, 1e-6, 2e-6)
    pretend_wrong(monkeypatch, 2)
    code, out, _ = run(capsys, "40x24x72", "--most", "3")
    rows = out[out.index("measured µs") :].splitlines()[1:4]
    assert code == 1 and "gave another result" in out
    assert [line.rstrip().endswith("DIFFERS") for line in rows] == [True, False, False], out


@pytest.mark.parametrize(("which", "json_too"), [(2, False), (5, False), (2, True), (5, True)])
def test_the_command_fails_for_another_result_of_any_product(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, which: int, json_too: bool
) -> None:
    pretend_times(monkeypatch, *(3e-6, 1e-6, 2e-6) * 2)
    pretend_wrong(monkeypatch, which)
    code, _, _ = run(capsys, "40x24x72", "24x40x72", "--most", "3", *(["--json"] if json_too else []))
    assert code == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "product must be given, such as 4096x4096x4096"),
        (["8x8x8", "--list"], "not '8x8x8 and --list'"),
        (["8x8"], "product must be MxNxK"),
        (["--merge", "no-such-file.json"], "file must be there, not 'no-such-file.json'"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and message in err


def test_plans_that_nobody_asks_for_any_more_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are being compiled are waited for, and the others never begin."""
    go, begun = threading.Event(), list[int]()

    def bind(number: int, *_: object) -> int:
        begun.append(number)
        if number:
            go.wait(30)
        return number

    monkeypatch.setattr(plan_trials, "bind", bind)
    candidates: Any = [SimpleNamespace(spec=i, settings={}, operands=None) for i in range(100)]
    bounds: Any = bind_all(open_emulator(), operands_of(8, 8, 8), candidates)
    assert next(bounds) == 0
    threading.Timer(0.05, go.set).start()
    bounds.close()
    go.wait(30)
    time.sleep(0.1)
    assert len(begun) < 100
