"""``tilewise bench plans`` as a command: what it prints of what was measured, and how it ends. No GPU."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from tilewise.bench import plan_trials, plans, tune
from tilewise.bench.plan_trials import ReadyPlan, _even_groups, time_in_turns
from tilewise.cli.main import main
from tilewise.devices import gpu
from tilewise.errors import DeviceUnavailable
from tilewise.interop import numpy_dtype
from tilewise.operands import Operands
from tilewise.planner import Candidate, list_candidates, operands_of
from tilewise.planner.target import Target, target_of
from tilewise.problem import ELEMENT_BYTES


@pytest.mark.parametrize("wrong", [0, 2])
def test_wrong_results_are_told_and_fail(
    wrong: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = plans.SummaryRow("4×5×6", "wgmma", "1.50", "2.50", "mma", "2.25", "1.11")
    times = SimpleNamespace(
        gpu="NVIDIA H200",
        problems=[object()] * 8,
        near=0.75,
        worst=1.114,
        wrong=wrong,
        to_dict=lambda: {"near": 0.75},
    )
    monkeypatch.setattr(gpu, "open", lambda ordinal: f"gpu:{ordinal}")
    monkeypatch.setattr(plans, "bench_plans", lambda device, progress: {"gpu:0": times}[device])
    monkeypatch.setattr(plans, "summary_rows", lambda given: [row] if given is times else [])
    assert main(["bench", "plans"]) == bool(wrong)
    out = capsys.readouterr().out
    assert "every plan that is proposed, on NVIDIA H200" in out
    assert any(line.split() == list(row) for line in out.splitlines())
    assert "within 5 % of the best for 75.0% of 8, at worst 1.11×" in out
    assert ("WRONG: 2 plans" in out) == bool(wrong)
    assert main(["bench", "plans", "--json"]) == bool(wrong)
    assert json.loads(capsys.readouterr().out)["result"] == {"near": 0.75}


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_ordinal: int) -> Any:
        raise DeviceUnavailable("there is no GPU to use: none is there")

    monkeypatch.setattr(gpu, "open", refuse)
    assert main(["bench", "plans"]) == 2
    assert "there is no GPU to use" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_settings_of_a_measured_plan_repeat_no_type_of_its_problem(dtype: str) -> None:
    found, _ = list_candidates(operands_of(512, 512, 512, dtype=dtype), target_of("h200"))
    assert found and not any({*plans._chosen_settings(one).values()} & {*ELEMENT_BYTES} for one in found)


def test_groups_that_are_measured_are_even_and_have_all_rows() -> None:
    ends = _even_groups(operands_of(10, 4, 8, groups=3))
    assert ends is not None and ends.tolist() == [3, 6, 10] and ends.dtype == "int32"
    assert _even_groups(operands_of(10, 4, 8)) is None


def test_a_plan_is_timed_behind_each_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that always follows the same plan would be measured with what that one leaves: clocks, caches."""
    started: list[int] = []
    ready = [ReadyPlan(functools.partial(started.append, i), i + 1, np.zeros(0), None) for i in range(4)]

    def timed(device: object, launch: Callable[[], None]) -> float:
        launch()
        return 6.0 * (started[-1] + 1) ** 2

    monkeypatch.setattr(plan_trials, "_time", timed)
    times = time_in_turns(cast("Any", None), ready, rounds=40)
    assert times == [6.0, 12.0, 18.0, 24.0]
    rounds = [started[i : i + 4] for i in range(0, len(started), 4)]
    assert len(rounds) == 41 and all(sorted(turn) == [0, 1, 2, 3] for turn in rounds)
    assert len(set(itertools.pairwise(started))) >= 12


class MultipliedOnHost:
    """In the place of a product's arrays: A and B at random, as densely as their layouts say, and C by NumPy."""

    def __init__(self, device: object, operands: Operands) -> None:
        random = np.random.default_rng()
        self.batch, (m, n, k) = operands.batch, operands.sizes
        a, b = (random.standard_normal((self.batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
        self.c = (a.astype(np.float64) @ b).astype(np.float32)
        turned = [one.layout != "row" for one in operands[:3]]
        lying = [x.swapaxes(1, 2) if turn else x for x, turn in zip((a, b, self.c), turned, strict=True)]
        first, second, self.held = (np.ascontiguousarray(one).ravel() for one in lying)
        self.host = {"a": first, "b": second}

    def result(self) -> npt.NDArray[np.float32]:
        return self.held


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_rows_of_the_first_and_the_last_product_are_checked(layout: str) -> None:
    operands = operands_of(30, 7, 11, batch=3, layout=layout)
    candidate = list_candidates(operands, target_of("h200"))[0][0]
    arrays = MultipliedOnHost(None, operands)
    assert plans._is_right(cast("Any", arrays), operands, candidate)
    for product in (0, 2):
        for row in (0, 29):
            place = (product * 30 + row) * 7 + 6
            before = arrays.held[place]
            arrays.held[place] += 1
            assert not plans._is_right(cast("Any", arrays), operands, candidate)
            arrays.held[place] = before
    assert plans._is_right(cast("Any", arrays), operands, candidate)


@pytest.mark.parametrize("first", ["right", "wrong"])
def test_plans_of_each_problem_are_held_against_the_first_and_timed(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are predicted at most six times the least; a wrong first one leaves no other that is right."""
    told: list[Any] = []
    device = SimpleNamespace(title="a GPU", name="gpu:0", runs_on_gpu=True)
    samples = iter([np.ones(4, np.float32), np.ones(4, np.float32), np.full(4, 2, np.float32)] * 2)

    def list_some(operands: Operands, target: Target) -> tuple[list[Candidate], list[Any]]:
        found = list_candidates(operands, target)[0][:4]
        times = (1e-6, 2e-6, 6e-6, 6.1e-6)
        predicted = [replace(one.prediction, seconds=time) for one, time in zip(found, times, strict=True)]
        return [
            replace(one, prediction=prediction) for one, prediction in zip(found, predicted, strict=True)
        ], []

    def make_ready(bound: object, seconds: float, arrays: object) -> ReadyPlan:
        told.append((bound, seconds))
        return ReadyPlan(lambda: None, 1, next(samples), None)

    monkeypatch.setattr(plans, "target_of_device", lambda given: {"gpu:0": target_of("h200")}[given.name])
    monkeypatch.setattr(plans, "list_candidates", list_some)
    monkeypatch.setattr(plans, "ProductArrays", MultipliedOnHost)
    monkeypatch.setattr(plans, "bind_all", lambda device, operands, found: iter(range(len(found))))
    monkeypatch.setattr(plans, "make_ready", make_ready)
    monkeypatch.setattr(
        plans, "time_in_turns", lambda device, ready, rounds: [3e-6, 2e-6, 5e-6][: len(ready)]
    )
    monkeypatch.setattr(plans, "_is_right", lambda arrays, operands, one: first == "right")
    problems = [("float32", "nt", 1, 64, 32, 16), ("bfloat16", "nn", 5, 16, 16, 16)]
    progress: list[tuple[int, int, str]] = []
    found = plans.bench_plans(cast("Any", device), problems, lambda *step: progress.append(step))
    assert told == [(0, 1e-6), (1, 2e-6), (2, 6e-6)] * 2
    assert progress == [(0, 2, "64×32×16 float32 nt"), (1, 2, "5 × 16×16×16 bfloat16 nn")]
    assert found.gpu == "a GPU" and [one.problem for one in found.problems] == problems
    for one in found.problems:
        assert [(plan.predicted, plan.seconds) for plan in one.plans] == [
            (1e-6, 3e-6),
            (2e-6, 2e-6),
            (6e-6, 5e-6),
        ]
        assert [plan.right for plan in one.plans] == [first == "right", first == "right", False]


class Capturing:
    """A GPU that says what is captured and what runs at once."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.sizes: list[int] = []

    def empty(self, shape: tuple[int], dtype: str) -> Any:
        assert dtype == "uint8"
        self.sizes.append(*shape)
        return SimpleNamespace(ptr=4096)

    @contextlib.contextmanager
    def capture(self) -> Iterator[Any]:
        self.told.append("capture")
        yield SimpleNamespace(launch=lambda: self.told.append("replay"))
        self.told.append("captured")


@pytest.mark.parametrize(("seconds", "count"), [(1.0, 2), (1e-3, 2), (2e-4, 10), (1e-9, 40)])
def test_a_graph_holds_as_many_launches_as_last_two_milliseconds(
    seconds: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over sets of arrays in turn; what one launch before left is the sample. No fewer than two, no more than 40."""
    device = Capturing()

    class Bound:
        workspace_bytes = 0

        def __call__(self, addresses: dict[str, int]) -> None:
            assert addresses["workspace"] == 4096
            device.told.append(f"start {addresses['a']}")

    arrays = SimpleNamespace(
        device=device,
        addresses=lambda which: {"a": which},
        poison=lambda: device.told.append("poison"),
        result=lambda: np.arange(10),
    )
    monkeypatch.setattr(plan_trials, "GpuDevice", Capturing)
    ready = plan_trials.make_ready(cast("Any", Bound()), seconds, cast("Any", arrays))
    started = [f"start {which}" for which in range(count)]
    assert device.told == ["poison", "start 0", "capture", *started, "captured"]
    assert (ready.count, ready.sample.tolist(), device.sizes) == (count, [*range(10)], [1])
    ready.launch()
    assert device.told[-1] == "replay"


# ── what is compared, and what is kept ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("problem", "apart"),
    [
        ({"dtype": "float32"}, 2.0**-12), ({"dtype": "bfloat16"}, 2.0**-6), ({"dtype": "float16"}, 2.0**-6),
        ({"dtype": "float64"}, 2.0**-40), ({"dtype": "complex64"}, 2.0**-12), ({"dtype": "complex128"}, 2.0**-40),
        ({"dtype": "float16", "result": "float32"}, 2.0**-6), ({"dtype": "float32", "result": "float16"}, 2.0**-6),
        ({"dtype": "float8_e4m3fn", "result": "float8_e4m3fn"}, 2.0**-2), ({"dtype": "float8_e4m3fn", "result": "float32"}, 2.0**-6),
        ({"dtype": "float16", "arithmetic": "f16"}, 2.0**-4), ({"dtype": "float32", "arithmetic": "tf32"}, 2.0**-8),
        ({"dtype": "float32", "arithmetic": "exact32"}, 2.0**-12),
    ],
    ids=str,
)  # fmt: skip
def test_results_agree_within_some_roundings_of_the_largest(problem: dict[str, Any], apart: float) -> None:
    """The bound itself is within; where one has no number the other has to have none, too."""
    operands = operands_of(4, 4, 4, **problem)

    def agree(one: list[float], other: list[float]) -> bool:
        held = [ReadyPlan(lambda: None, 1, np.array(values), None) for values in (one, other)]
        assert held[0].agrees_with(held[1], operands) is held[1].agrees_with(held[0], operands)
        return held[0].agrees_with(held[1], operands)

    assert agree([4.0, 1.0], [4.0, 1.0 + 4 * apart]) and not agree([4.0, 1.0], [4.0, 1.0 + 4.001 * apart])
    assert agree([4.0, np.nan, np.inf], [4.0, np.nan, -np.inf]) and agree([], [])
    assert not agree([4.0, np.nan], [4.0, 1.0])


@pytest.mark.parametrize(
    ("nbytes", "on_gpu", "count"),
    [
        (120 << 20, True, 2), ((120 << 20) + 1, True, 2), (1 << 40, True, 2), (60 << 20, True, 3), ((60 << 20) + 1, True, 2),
        (20 << 20, True, 7), (17 << 20, True, 8), (1, True, 8), (0, True, 8), (1, False, 1),
    ],
)  # fmt: skip
def test_sets_of_arrays_outgrow_a_cache_and_are_eight_at_most(
    nbytes: int, on_gpu: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([nbytes, 0])
    monkeypatch.setattr(plan_trials, "_numbers", lambda *_: SimpleNamespace(nbytes=next(given)))
    monkeypatch.setattr(plan_trials.ProductArrays, "_make_set", lambda _self: {})
    device = cast("Any", SimpleNamespace(runs_on_gpu=on_gpu))
    arrays = plan_trials.ProductArrays(device, operands_of(8, 8, 8))
    assert len(arrays._sets) == count and {*arrays.host} == {"a", "b"}


def test_elements_from_the_first_to_the_last_in_memory_are_counted() -> None:
    usual = operands_of(3, 5, 7, batch=2)
    a = usual.a
    for one, first, size in (
        (a, 0, 2 * 3 * 7), (replace(a, row_stride=10), 0, 21 + 2 * 10 + 6 + 1), (replace(a, row_stride=-7, stack=(0,)), 14, 21),
        (replace(a, row_stride=0, column_stride=0, stack=(0,)), 0, 1), (replace(a, rows=0), 0, 1),
        (replace(a, column_stride=-1, stack=(-21,)), 6 + 21, 42),
    ):  # fmt: skip
        assert plan_trials._reach(one, usual) == (first, size)


def test_random_numbers_are_repeated_beyond_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that large operands take no time; integers are several, and of complex numbers both parts."""
    monkeypatch.setattr(plan_trials, "_BLOCK", 500)
    for dtype in ("float32", "bfloat16", "int32", "complex64"):
        a = operands_of(8, 8, 8, dtype=dtype).a
        found = plan_trials._numbers(np.random.default_rng(1), 1200, a).astype("complex128")
        assert found.shape == (1200,) and np.array_equal(found[:500], found[500:1000])
        drawn = np.random.default_rng(1).standard_normal(500)
        kept = (
            (drawn * 16).astype("int32")
            if dtype == "int32"
            else drawn.astype(numpy_dtype(a.dtype)).astype("complex128")
        )
        assert np.array_equal(found[:500].real, kept.real)
        assert bool(np.std(found.imag) > 0.9) is (dtype == "complex64")
        assert not np.array_equal(found.imag, found.real)


def test_a_sample_of_a_large_result_skips_an_even_number_of_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else of a matrix with an even number of columns some would never be looked at."""
    monkeypatch.setattr(plan_trials, "_SAMPLE", 4)
    device = SimpleNamespace(empty=lambda shape, dtype: SimpleNamespace(ptr=0))
    bound = cast("Any", lambda addresses: None)
    bound.workspace_bytes = 0
    for count, step in ((3, 1), (7, 1), (8, 3), (12, 3), (16, 5)):
        arrays = SimpleNamespace(
            device=device, addresses=lambda _: {}, poison=lambda: None, result=lambda n=count: np.arange(n)
        )
        ready = plan_trials.make_ready(bound, 1.0, cast("Any", arrays))
        assert ready.count == 1 and ready.sample.tolist() == [*range(0, count, step)]


@pytest.mark.parametrize(
    ("times", "agree", "final", "again", "kept"),
    [
        ([2.0, 1.0, 1.08, 1.09], "1111", [1, 2, 0], [1.0, 0.5, 3.0], 2),
        ([1.0, 2.0], "11", [0], [1.0], 0),
        ([3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "1111111", [1, 2, 3, 4, 5, 0], [1, 1, 1, 1, 0.5, 3], 5),
        ([3.0, 1.0, 2.0], "101", [2, 0], [2.0, 3.0], 2),
        ([1.01, 1.0], "11", [1, 0], [1.0, 1.01], 1),
        ([1.01, 1.0], "11", [1, 0], [1.0, 1.0099], 0),
    ],
)
def test_the_fastest_are_timed_once_more_and_the_predicted_best_with_them(
    times: list[float], agree: str, final: list[int], again: list[float], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Those that are within 8 % of the fastest, five at most; another than the predicted best has to gain 1 %."""
    timed: list[tuple[list[int], int, float]] = []
    answers = iter([times, again])
    ready = [
        SimpleNamespace(number=i, agrees_with=lambda _one, _operands, right=right: right == "1")
        for i, right in enumerate(agree)
    ]
    waiting = iter(ready)

    def time_them(_device: object, plans: list[Any], rounds: int, until: float) -> list[float]:
        timed.append(([one.number for one in plans], rounds, until))
        return [*next(answers)]

    monkeypatch.setattr(tune, "ProductArrays", lambda *_: None)
    monkeypatch.setattr(tune, "bind_all", lambda _device, _operands, candidates, _until: candidates)
    monkeypatch.setattr(tune, "make_ready", lambda *_: next(waiting))
    monkeypatch.setattr(tune, "time_in_turns", time_them)
    prediction = SimpleNamespace(seconds=1.0)
    candidates = [
        SimpleNamespace(spec=SimpleNamespace(name=f"k{i}"), prediction=prediction, plan=lambda *_, i=i: i)
        for i in range(len(times))
    ]
    steps: list[Any] = []
    device: Any = SimpleNamespace(synchronize=lambda: None)
    operands = operands_of(8, 8, 8)
    found = tune._try_all(
        operands, device, cast("Any", None), cast("Any", candidates), np.inf, lambda *step: steps.append(step)
    )
    assert timed == [([*range(len(times))], 3, np.inf), (final, 9, np.inf)]
    expected = dict(enumerate(times)) | dict(zip(final, again, strict=True))
    assert [(one.plan, one.seconds, one.agrees) for one in cast("Any", found)] == [
        (i, expected[i], right == "1") for i, right in enumerate(agree)
    ]
    assert tune._fastest(found) == kept
    assert steps == [(i, len(times), f"{operands.problem()}: k{i}") for i in range(len(times))]
