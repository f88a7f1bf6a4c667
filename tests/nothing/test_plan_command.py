"""``tilewise plan``: what it lists, saves and refuses, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tilewise as tw
from tilewise.cli.main import main

PLAN = ["plan", "-m", "512", "-n", "256", "-k", "1024"]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    return code, *capsys.readouterr()


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_plans_as_json_are_as_many_as_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    ten = run_json(capsys, *PLAN)["plans"]
    assert {(*map(one["problem"].get, "mnk"),) for one in ten} == {(512, 256, 1024)}
    assert len(ten) == 10 and run_json(capsys, *PLAN, "--most", "2")["plans"] == ten[:2]


def test_a_plan_says_where_its_time_goes_and_why_the_others_cannot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused, out = run_json(capsys, *PLAN)["refused"], " ".join(run(capsys, *PLAN)[1].split())
    assert refused and all(" ".join([one["kernel"], *one["why"].split()]) in out for one in refused)
    total = float(out.split(" µs predicted")[0])
    shares = re.findall(r"([\d.]+) µs \((\d+)%\)", out)
    assert len(shares) > 2
    for each, share in shares:
        assert int(share) == pytest.approx(100 * float(each) / total, abs=2.5)


def test_parts_of_what_is_printed_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict, the plan, the others, and who cannot; with an empty line between two."""
    parts = [part.splitlines() for part in run(capsys, *PLAN)[1].split("\n\n")]
    assert [bool(re.match(start, part[0])) for start, part in zip(
        (r"[\d.]+ µs predicted", "512×256×1024 bfloat16", r"the plans .* \(10 of", "kernels that"), parts, strict=True
    )] == [True] * 4  # fmt: skip
    assert len(parts[2]) == 12 and all(parts)


def test_where_there_is_no_plan_the_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    tf32 = (*PLAN, "--dtype", "float32", "--arithmetic", "tf32")
    assert run_json(capsys, *tf32, "--gpu", "a100")["plans"][0]["problem"]["arithmetic"] == "tf32"
    code, _, err = run(capsys, *tf32, "--gpu", "t4")
    assert code == 2 and "arithmetic must be None on sm_75" in err
    code, _, err = run(capsys, *PLAN, "--gpu", "v100-sxm-16gb")
    assert code == 2 and "gpu must be sm_75 or newer" in err


@pytest.mark.parametrize("layout", ["nt", "tt"])
def test_without_copies_there_are_the_plans_that_have_none(
    capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    """The SIMT kernel reads any layout, but some faster once it is copied."""
    every = (*PLAN, "--dtype", "float32", "--gpu", "a100", "--layout", layout, "--most", "99")
    plans = run_json(capsys, *every)["plans"]
    kept = [one for one in plans if not one["copies"]]
    assert run_json(capsys, *every, "--no-copy")["plans"] == kept and 0 < len(kept) < len(plans)


def test_the_plan_that_is_saved_is_the_first_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    first = run_json(capsys, *PLAN, "--save", str(file))["plans"][0]
    assert tw.Plan.load(file) == tw.Plan.from_dict(first)
