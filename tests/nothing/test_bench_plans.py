"""``tilewise bench plans`` as a command: what it prints of what was measured, and how it ends. No GPU."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewise.bench import plan_trials, plans
from tilewise.bench.plan_trials import ReadyPlan, _even_groups, time_in_turns
from tilewise.cli.main import main
from tilewise.devices import gpu
from tilewise.errors import DeviceUnavailable
from tilewise.planner import list_candidates, operands_of
from tilewise.planner.target import target_of
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
