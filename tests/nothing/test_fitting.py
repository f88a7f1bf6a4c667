"""How constants of the cost model are fitted and searched for: what is counted, and what is left as it is."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewise.epilogue import epilogue
from tilewise.planner import fit as fitting
from tilewise.planner import list_candidates, operands_of, target_of
from tilewise.planner import search as searching
from tilewise.planner.constants import FITTED, Constants
from tilewise.planner.fit import FIXED, Measured, Quality, get_constant, judge, read, set_constants
from tilewise.planner.search import MOST, NAMES, OWN, UNIT, group, loss, search

H200, H100 = target_of("h200"), target_of("h100-sxm")
KNOWN = FITTED["h200"]


def plan(key: str, seconds: float, predicted: float = 1.0, unit: str = UNIT) -> Measured:
    """A plan that was measured at so many seconds, and is predicted to take so many."""
    stand_in = SimpleNamespace(
        key=key, problem=key, seconds=seconds, work=SimpleNamespace(unit=unit), predict=lambda _: predicted
    )
    return cast(Measured, stand_in)


def by_name(keyed: Any) -> dict[str, Any]:
    return dict(keyed)


def quality(ratios: Sequence[float], errors: Sequence[float] = (0.0,)) -> Quality:
    keyed: Any = {("run", number): ratio for number, ratio in enumerate(ratios)}
    return Quality(keyed, tuple(errors))


def test_a_choice_is_judged_by_the_plan_with_the_least_prediction() -> None:
    plans = [plan("a", 4.0, 1.0), plan("a", 2.0, 2.0), plan("b", 3.0, 5.0), plan("b", 6.0, 6.0)]
    found = judge(plans, H200)
    assert by_name(found.ratios) == {"a": 2.0, "b": 1.0}
    assert found.errors == pytest.approx([math.log(4), 0, math.log(5 / 3), 0])
    assert (found.worst, found.within(1.0), found.within(1.99), found.within(2.0)) == (2, 0.5, 0.5, 1)


def test_a_plan_of_a_results_file_is_predicted_as_when_it_is_proposed(tmp_path: Path) -> None:
    """With the copies that it makes first. A plan that lacks a setting is none."""
    operands = operands_of(3000, 3000, 3001, dtype="bfloat16", layout="nt")
    proposed = list_candidates(operands, target_of("a100"))[0]
    first = next(one for one in proposed if one.copies)
    names = {one.spec.name: list(one.settings) for one in proposed}
    plans = [[one.spec.name, list(one.settings.values()), 5.0] for one in (proposed[0], first)]
    problem = {"size": [3000, 3000, 3001], "dtype": "bfloat16", "layout": "nt", "plans": plans}
    file = tmp_path / "plans.json"
    file.write_text(json.dumps({"settings": names, "problems": [problem]}))
    found = [one.predict(target_of("a100")) for one in read(file)]
    assert found == [one.prediction.seconds for one in (proposed[0], first)]
    scaled = epilogue("acc * scale", scale=np.ones((1, 3000), "float32"))
    without, with_scale = (
        operands_of(3000, 3000, 3001, dtype="bfloat16", layout="nt", epilogue=one) for one in (None, scaled)
    )
    file.write_text(json.dumps({"settings": names, "problems": [{**problem, "scaled": True}]}))
    assert [one.problem for one in read(file)] == [with_scale.problem()] * 2 != [without.problem()] * 2
    plans[0][1] = [*proposed[0].settings.values()][:-1]
    file.write_text(json.dumps({"settings": names, "problems": [problem]}))
    with pytest.raises(ValueError, match="shorter"):
        read(file)


def test_figures_of_many_choices_are_their_share_their_worst_and_their_mean() -> None:
    found = quality([1.0, 1.05, 2.0, 4.0], [0.1, 0.3, 0.2])
    assert (found.within(1.05), found.worst, found.median_error) == (0.5, 4.0, 0.2)
    assert found.mean == pytest.approx((1.05 * 8) ** 0.25)
    assert str(found) == (
        "4 problems: 50.0% within 5 % of the best plan, worst 4.000, mean 1.7024; median error of times 20.0%"
    )


def test_a_constant_is_read_and_set_by_its_name_alone() -> None:
    changed = set_constants(KNOWN, {"watts": 3, "wgmma.start_clocks": 5, "wgmma.latency_clocks": 7})
    assert (changed.watts, changed.units["wgmma"].start_clocks, changed.units["wgmma"].latency_clocks) == (
        3,
        5,
        7,
    )
    assert [get_constant(changed, name) for name in ("watts", "wgmma.start_clocks")] == [3, 5]
    unit = replace(KNOWN.units["wgmma"], start_clocks=5.0, latency_clocks=7.0)
    assert changed == replace(KNOWN, watts=3.0, units={**KNOWN.units, "wgmma": unit})
    assert set_constants(KNOWN, {}) == KNOWN


def test_what_is_fitted_is_positive_finite_and_not_fixed() -> None:
    names = fitting._names(KNOWN)
    for name in names[::7]:
        assert 0 < get_constant(KNOWN, name) < math.inf and name not in FIXED
        zero, endless = (set_constants(KNOWN, {name: value}) for value in (0.0, math.inf))
        assert name not in fitting._names(zero) and name not in fitting._names(endless)
    assert len(set(names)) == len(names) and {"pass_seconds", "wgmma.start_clocks"} <= set(names)


def test_constants_of_units_that_were_not_measured_are_not_fitted() -> None:
    measured = [plan("a", 1, unit="wgmma"), plan("a", 1, unit="ffma")]
    for name, used in (("watts", True), ("wgmma.waits", True), ("ffma.waits", True), ("mma8.waits", False)):
        assert fitting._used(name, measured) is used


@pytest.mark.parametrize("start", [(1.0, 1.0), (-3.0, 4.0)])
def test_least_squares_find_the_least(start: tuple[float, float]) -> None:
    """Of sums of squares that are none of a line: Rosenbrock's valley, whose floor is at (1, 1)."""

    def errors(at: fitting.Vector) -> fitting.Vector:
        return np.array([10 * (at[1] - at[0] ** 2), 1 - at[0]])

    found = fitting._least_squares(errors, np.array(start))
    assert errors(found) @ errors(found) < 1e-3


def test_least_squares_end_where_no_step_helps() -> None:
    asked = []

    def errors(at: fitting.Vector) -> fitting.Vector:
        asked.append(tuple(at))
        return np.array([1.0 + abs(at[0]) ** 0.5])  # least at a point where the slope leads astray

    assert fitting._least_squares(errors, np.zeros(1)) == [0.0]
    assert len(asked) == 1 + 1 + 8  # where it begins, for the slope, and eight shorter and shorter steps


def test_a_plan_counts_by_how_near_it_is_to_the_best_of_its_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is that of the logarithm; constants pull back to where they begin."""
    plans = [plan("a", 4.0, 8.0), plan("a", 2.0, 3.0), plan("a", 1000.0, 500.0), plan("b", 5.0, 5.5)]
    seen: list[fitting.Vector] = []

    def least_squares(errors: Any, start: fitting.Vector) -> fitting.Vector:
        seen.extend((errors(start), errors(start + 0.5)))
        return start

    monkeypatch.setattr(fitting, "_least_squares", least_squares)
    found = fitting.fit(plans, H200)
    for name in fitting._names(KNOWN):
        assert get_constant(found, name) == pytest.approx(get_constant(KNOWN, name))
    at_first, moved = seen
    least = fitting._WEIGHT_LEAST
    assert 2 / 1000 < least < 0.5
    expected = [0.5 * math.log(2), math.log(1.5), least * math.log(0.5), math.log(1.1)]
    assert at_first[:4] == pytest.approx(expected) and not at_first[4:].any()
    assert moved[:4] == pytest.approx(expected) and moved[4:] == pytest.approx(0.5 * fitting._LEASH)


def test_halves_are_fitted_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each problem is judged by constants that were fitted without it, and all are judged."""
    plans = [plan(key, seconds, seconds) for key in "abcdef" for seconds in (1.0, 2.0)]
    fitted: list[set[str]] = []
    judged: list[tuple[set[str], float]] = []

    def fit_some(part: Sequence[Measured], target: Any) -> Constants:
        fitted.append({str(one.problem) for one in part})
        return replace(KNOWN, watts=float(len(fitted)))

    def judge_some(part: Sequence[Measured], target: Any) -> Quality:
        judged.append(({str(one.problem) for one in part}, target.constants.watts))
        return judge(part, target)

    monkeypatch.setattr(fitting, "fit", fit_some)
    monkeypatch.setattr(fitting, "judge", judge_some)
    found = fitting.cross_validate(plans, H200, 0)
    first, second = fitted
    assert len(first) == len(second) == 3 and first | second == set("abcdef")
    assert sorted(judged, key=lambda one: one[1]) == [(second, 1.0), (first, 2.0)]
    assert set(by_name(found.ratios)) == set("abcdef") and len(found.errors) == len(plans)


def test_the_command_prints_each_constant_and_how_good_choices_are_before_and_after(tmp_path: Path) -> None:
    """Of plans of one GPU alone; three times on halves."""
    plans = [
        ["12_multistage", {"partition": tile, "stages": 4}, time]
        for tile, time in (("64x64x32", 9.0), ("128x128x32", 7.0))
    ]
    problems = [{"size": [size, 512, 512], "dtype": "bfloat16", "plans": plans} for size in (512, 1024)]
    for gpu in ("H200", "H100 PCIe"):
        data = {"gpu": f"NVIDIA {gpu}, 132 SMs", "problems": problems[: 1 + (gpu == "H200")]}
        (tmp_path / f"{gpu}.json").write_text(json.dumps(data))
    files = [str(path) for path in tmp_path.iterdir()]
    ran = subprocess.run(
        [sys.executable, "-m", "tilewise.planner.fit", *files], capture_output=True, text=True, check=True
    )
    *constants, before, after, first, second, third = ran.stdout.splitlines()
    shown = dict(line.split() for line in constants)
    assert [*shown] == fitting._names(KNOWN) and all(0 < float(value) < math.inf for value in shown.values())
    changed = {name for name, value in shown.items() if value != f"{get_constant(KNOWN, name):.4g}"}
    assert changed and all("." not in name or name.startswith("mma16.") for name in changed), (
        "units that were measured"
    )
    assert before.startswith("as they are  2 problems: ") and after.startswith("fitted anew  2 problems: ")
    assert all(line.startswith("halves       2 problems: ") for line in (first, second, third))


def test_constants_are_blurred_by_a_factor_of_two_at_most() -> None:
    blurred = fitting._blurred(KNOWN)
    factors = [get_constant(blurred, name) / get_constant(KNOWN, name) for name in fitting._names(KNOWN)]
    assert 0.5 <= min(factors) < 0.7 and 1.4 < max(factors) <= 2
    assert all(get_constant(blurred, name) == get_constant(KNOWN, name) for name in FIXED)
    assert fitting._blurred(KNOWN) == blurred


def test_problems_are_searched_that_have_a_plan_of_the_unit_without_plans_that_nobody_takes() -> None:
    plans = [
        plan("a", 1.0), plan("a", 1.7, unit="other"), plan("a", 1.71), plan("b", 1.0, unit="other"), plan("c", 5.0),
    ]  # fmt: skip
    assert by_name(group(plans)) == {"a": plans[:2], "c": plans[4:]}


@pytest.mark.parametrize(
    ("chosen", "other", "lost"),
    [
        (1.0, 1.2, 0.0),  # the best plan is taken
        (1.005, 1.0, 0.0),  # within a hundredth
        (1.05, 1.0, math.log(1.05) - 0.01),
        (1.1, 1.0, math.log(1.1) - 0.01 + 0.15),
        (1.07, 1.0, math.log(1.07) - 0.01 + 0.15 * 20 * 0.02),
        (1.2, 1.0, math.log(1.2) - 0.01 + 0.6 * 0.08 + 0.15),
    ],
)
def test_a_choice_costs_what_it_takes_beyond_the_best(chosen: float, other: float, lost: float) -> None:
    """Predictions being right: the plan that is taken is predicted as the other is, and comes first."""
    plans = [
        plan("a", chosen, 0.5 * chosen),
        plan("a", other, 2 * other),
        plan("a", 1.3, 2.6),
        plan("a", 1.25, 2.5),
    ]
    near = [one for one in plans if one.seconds <= 1.25 * min(one.seconds for one in plans)]
    expected = lost + 0.12 * math.log(2) * len(near) / len(near)
    assert loss({("r", cast(Any, "a")): plans}, H200) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("guess", "share"), [(1.0, 1.0), (1.024, 0.5), (1.026, 0.25), (1.049, 0.25), (1.051, 0.0)]
)
def test_a_plan_that_is_predicted_near_the_first_counts_as_chosen(guess: float, share: float) -> None:
    """By half, if it is as good as the first; by a quarter each within two percent and a half, and five."""
    plans = [plan("a", 1.0, 1.0), plan("a", 1.3, guess)]
    lost = math.log(1.3) - 0.01 + 0.6 * 0.18 + 0.15
    assert loss({("r", cast(Any, "a")): plans}, H200) == pytest.approx(share * lost)


def test_predictions_count_of_plans_near_the_best_alone_and_problems_add_up() -> None:
    one = [plan("a", 1.0, 1.0), plan("a", 1.25, 2.5), plan("a", 1.26, 100.0)]
    other = [plan("b", 2.0, 4.0)]
    keyed: Any = {"a": one, "b": other}
    assert loss(keyed, H200) == pytest.approx(0.12 * math.log(2) / 2 + 0.12 * math.log(2))


def test_a_search_keeps_what_is_better_and_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    seen: dict[str, list[Constants]] = {"h200": [], "h100-sxm": []}

    def wish(_problems: object, target: Any) -> float:
        """Far less time of memory's, more of its share than there may be, and on H100s more that clusters take in."""
        seen[target.name].append(target.constants)
        of_unit, taken = target.constants.units[UNIT], min(target.constants.cluster_bytes_per_clock, 1000.0)
        return float(of_unit.memory_latency_clocks - 100 * of_unit.memory_share - taken)

    monkeypatch.setattr(searching, "loss", wish)
    found, on_h100 = search([{}, {}], [H200, H100], 300)
    first, second = seen["h200"], seen["h100-sxm"]
    assert len(first) == len(second) == 300 and (first[0], second[0]) == (KNOWN, H100.constants)
    assert found.units[UNIT].memory_share == MOST[f"{UNIT}.memory_share"]
    assert found.units[UNIT].memory_latency_clocks < 0.9 * KNOWN.units[UNIT].memory_latency_clocks
    assert on_h100.cluster_bytes_per_clock > 1.1 * H100.constants.cluster_bytes_per_clock
    for one, other in zip(first, second, strict=True):
        assert all(
            get_constant(constants, name) <= most for name, most in MOST.items() for constants in (one, other)
        )
        for before, after, names in ((KNOWN, one, NAMES), (H100.constants, other, {*NAMES, *OWN})):
            moved = [
                name
                for name in fitting._names(KNOWN)
                if get_constant(after, name) != get_constant(before, name)
            ]
            assert set(moved) <= set(names)
        shared = [name for name in NAMES if name not in OWN]
        changed = [name for name in shared if get_constant(one, name) != get_constant(KNOWN, name)]
        assert all(get_constant(one, name) == get_constant(other, name) for name in changed)
    totals = [sum(wish({}, replace(t, constants=c)) for t, c in zip((H200, H100), pair, strict=True))
              for pair in zip(first[:300], second[:300], strict=True)]  # fmt: skip
    kept = sum(wish({}, replace(t, constants=c)) for t, c in ((H200, found), (H100, on_h100)))
    assert kept == min(totals)
    assert search([{}], [H200], 0) == [KNOWN]


def test_what_was_found_is_printed_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [plan("a", 1.0, 1.0), plan("a", 2.0, 3.0)]
    better = [set_constants(KNOWN, {"watts": 0.25}), set_constants(KNOWN, {OWN[0]: 0.75})]
    given: list[Any] = []

    def read_plans(paths: Sequence[str], gpu: str) -> list[Measured]:
        given.append((list(paths), gpu))
        return plans

    def find(_problems: object, _targets: object, seconds: float, unit: str) -> list[Constants]:
        given.append((seconds, unit))
        return better

    monkeypatch.setattr(searching, "read_of_gpu", read_plans)
    monkeypatch.setattr(searching, "search", find)
    monkeypatch.setattr(sys, "argv", ["search", UNIT, "1.5", "one.json", "two.json"])
    monkeypatch.setitem(searching.UNITS, UNIT, (("watts", *NAMES), OWN))
    searching.main()
    lines = [line.split(" ", 1)[0] for line in capsys.readouterr().out.splitlines()]
    assert given == [(["one.json", "two.json"], gpu) for gpu in ("h200", "h100-sxm")] + [(1.5, UNIT)]
    assert lines == ["h200", "watts", *NAMES, "before", "after", "h100-sxm", *OWN, "before", "after"]
    monkeypatch.setattr(searching, "read_of_gpu", lambda _paths, gpu: plans * (gpu != "h200"))
    searching.main()  # of a GPU without any nothing is told
    lines = [line.split(" ", 1)[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["h100-sxm", *OWN, "before", "after"]
    plans.clear()
    searching.main()
    assert capsys.readouterr().out == ""
    for argv in (["search", UNIT, "1.5"], ["search", "none", "1.5", "one.json"]):
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit, match=f"usage.*{UNIT}"):
            searching.main()


def test_the_search_is_a_command_that_says_what_it_needs() -> None:
    given = [sys.executable, "-m", "tilewise.planner.search"]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "usage: python -m tilewise.planner.search wgmma_gemm|mma_f64|wgmma_widened|wgmma_widened_int8 SECONDS FILE…\n"
    )
