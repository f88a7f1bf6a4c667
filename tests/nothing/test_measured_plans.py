"""Measured plans: what is kept of them, in which file, and that the planner prefers them."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.operands import Operands
from tilewise.planner import Candidate, choose, list_candidates, operands_of, plan, target_of
from tilewise.planner.measured import (
    KeptPlan,
    describe_operands,
    file_of,
    forget,
    keep,
    merge,
    read,
    recall,
    versions,
)

H200 = target_of("h200")
OPERANDS = operands_of(512, 256, 128, dtype="bfloat16")


@pytest.fixture(autouse=True)
def _own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))


def measured(candidate: Candidate, seconds: float = 1e-6, date: str = "2026-11-26") -> KeptPlan:
    return KeptPlan(
        candidate.spec.name, candidate.settings, candidate.copies, seconds, 2 * seconds, 3, date, versions()
    )


def keep_one(which: int, operands: Operands = OPERANDS, **changes: Any) -> Candidate:
    found = list_candidates(operands, H200)[0][which]
    path = keep(H200, {describe_operands(operands): replace(measured(found), **changes)})
    assert path == file_of(H200) and path.exists()
    return found


def settings_of(candidate: Candidate) -> dict[str, object]:
    return {"kernel": candidate.spec.name, **candidate.settings}


# ── which plan is taken ──


def test_a_plan_with_other_copies_is_not_the_one_that_was_measured() -> None:
    """Its time is that of other launches, even where all settings are the same."""
    first = list_candidates(OPERANDS, H200)[0][0]
    keep_one(3, copies=("a",))
    after = list_candidates(OPERANDS, H200)[0]
    assert settings_of(after[0]) == settings_of(first) and all(one.measured is None for one in after)


@pytest.mark.parametrize("which", [1, 5, -1])
def test_what_was_measured_comes_first(which: int) -> None:
    before = list_candidates(OPERANDS, H200)[0]
    slow = keep_one(which)
    after = list_candidates(OPERANDS, H200)[0]
    assert settings_of(after[0]) == settings_of(slow) != settings_of(before[0])
    assert after[0].measured == 1e-6 and all(one.measured is None for one in after[1:])
    assert sorted(map(str, map(settings_of, after))) == sorted(map(str, map(settings_of, before)))
    made = plan(512, 256, 128, dtype="bfloat16", gpu="h200")
    assert made.measured == 1e-6 and "measured 1.0 µs" in str(made)
    assert made == type(made).from_dict(json.loads(json.dumps(made.to_dict())))


def test_it_is_for_that_problem_and_that_gpu_alone() -> None:
    keep_one(3)
    for other in (
        operands_of(512, 256, 136, dtype="bfloat16"),
        operands_of(512, 256, 128, dtype="float16"),
        operands_of(512, 256, 128, dtype="bfloat16", layout="nt"),
        operands_of(512, 256, 128, dtype="bfloat16", result="float32"),
        operands_of(512, 256, 128, dtype="bfloat16", batch=2),
        OPERANDS._replace(a=replace(OPERANDS.a, alignment=2)),
        OPERANDS._replace(a=replace(OPERANDS.a, row_stride=129)),
    ):
        assert recall(other, H200) is None, describe_operands(other)
        assert choose(other, H200).measured is None
    assert recall(OPERANDS, target_of("h100-sxm")) is None
    assert recall(OPERANDS, replace(H200, sms=60)) is None
    padded = OPERANDS._replace(a=replace(OPERANDS.a, row_stride=136))
    assert recall(padded, H200) is not None, "as aligned as dense rows, and as fast"


def test_what_is_fixed_by_the_caller_stays_so() -> None:
    slow = keep_one(4)
    other = next(name for name in ("64x64x64", "128x64x64") if name != slow.settings["partition"])
    found = choose(OPERANDS, H200, specs=(KERNELS["wgmma"],), given={"partition": other})
    assert found.settings["partition"] == other and found.measured is None


def test_a_plan_that_no_kernel_has_any_more_is_not_taken() -> None:
    first = list_candidates(OPERANDS, H200)[0][0]
    keep_one(2, settings={"partition": "1x1x1"})
    assert settings_of(choose(OPERANDS, H200)) == settings_of(first)
    keep_one(2, kernel="no such kernel")
    assert settings_of(choose(OPERANDS, H200)) == settings_of(first)


def test_another_versions_plans_are_kept_and_not_taken() -> None:
    keep_one(2, versions="tilewise 0.0.1, NVRTC 12.0")
    assert recall(OPERANDS, H200) is None and choose(OPERANDS, H200).measured is None
    path = file_of(H200)
    assert path is not None and not next(iter(read(path).values())).is_current


# ── the file ──


def test_of_two_the_newer_one_stays_and_one_of_this_version_before_all() -> None:
    rows = (
        ("2026-01-02", versions(), True),
        ("2026-01-01", versions(), False),
        ("2026-01-02", versions(), True),  # measured again on a day
        ("2027-01-01", "another", False),
        ("2026-03-01", versions(), True),
    )
    for place, (date, version, stays) in enumerate(rows):
        seconds = 1.0 + place
        keep_one(1, date=date, versions=version, seconds=seconds)
        path = file_of(H200)
        assert path is not None
        (found,) = read(path).values()
        assert (found.seconds == seconds) == stays, (date, version)


def test_a_file_that_was_written_anew_is_read_anew() -> None:
    """Also one of as many bytes."""
    for seconds in (1e-06, 2e-06, 3e-06):
        keep_one(1, seconds=seconds)
        path = file_of(H200)
        assert path is not None
        os.utime(path, (0, 1e6 * seconds))  # a clock may be too coarse to tell them apart
        found = recall(OPERANDS, H200)
        assert found is not None and found.seconds == seconds


def test_files_are_merged(tmp_path: Path) -> None:
    others = tmp_path / "others.json"
    keep_one(1)
    path = file_of(H200)
    assert path is not None
    os.rename(path, others)
    second = operands_of(64, 64, 64)
    keep_one(0, second)
    assert merge(H200, others) == 1
    assert {*read(path)} == {describe_operands(OPERANDS), describe_operands(second)}
    assert forget(H200) == 2 and forget(H200) == 0 and recall(second, H200) is None
    with pytest.raises(ArgumentError, match="file must be there"):
        merge(H200, tmp_path / "none.json")


def test_without_a_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWISE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    assert file_of(H200) is None and recall(OPERANDS, H200) is None and forget(H200) == 0
    with pytest.raises(ArgumentError) as caught:
        keep_one(1)
    said = "TILEWISE_CACHE_DIR must be a directory that can be written, for measured plans to be kept"
    assert str(caught.value).startswith(f"{said}, not 'there is no home directory")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"format": 2, "plans": {}}', '{"format": 1}', '{"format": 1, "plans": [1]}',
        '{"format": 1, "plans": {"x": {}}}', '{"format": 1, "plans": {"x": 3}}', "\udcff",
    ],
)  # fmt: skip
def test_a_damaged_file_costs_no_product_and_is_not_overwritten(text: str) -> None:
    keep_one(1)
    path = file_of(H200)
    assert path is not None
    damaged = text.encode("utf-8", "surrogateescape")
    path.write_bytes(damaged)
    assert recall(OPERANDS, H200) is None and choose(OPERANDS, H200).measured is None
    with pytest.raises(ArgumentError, match="file must hold measured plans"):
        keep_one(1)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("change", ["kernel", "versions", "another", ""])
def test_a_plan_with_other_fields_is_none(change: str) -> None:
    """Too few, too many, or no object at all."""
    keep_one(1)
    path = file_of(H200)
    assert path is not None
    data = json.loads(path.read_text())
    ((name, kept),) = data["plans"].items()
    if kept.pop(change, None) is None:
        kept[change] = 1
    data["plans"][name] = kept if change else [*kept]
    path.write_text(json.dumps(data))
    with pytest.raises(ArgumentError, match="file must hold measured plans: a plan has other fields"):
        read(path)


@pytest.mark.parametrize("name", ["kernel", "settings", "copies", "seconds", "plans", "versions"])
def test_a_plan_with_a_wrong_field_is_none(name: str) -> None:
    keep_one(1)
    path = file_of(H200)
    assert path is not None
    data = json.loads(path.read_text())
    (kept,) = data["plans"].values()
    kept[name] = None
    path.write_text(json.dumps(data))
    with pytest.raises(ArgumentError, match=f"file must hold measured plans: {name} is no "):
        read(path)


def test_a_directory_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(blocked))
    assert recall(OPERANDS, H200) is None
    with pytest.raises(ArgumentError, match="file cannot be written"):
        keep_one(0)


def test_without_a_place_for_files_nothing_is_kept_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TILEWISE_CACHE_DIR", ""), ("XDG_CACHE_HOME", ""), ("HOME", "")):
        monkeypatch.setenv(name, value)
    assert file_of(H200) is None and recall(OPERANDS, H200) is None and forget(H200) == 0
    with pytest.raises(ArgumentError, match=r"TILEWISE_CACHE_DIR must be a directory .* no home directory"):
        keep_one(0)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="file cannot be read: Is a directory"):
        merge(H200, tmp_path)


def _keep_some(first: int) -> None:
    for i in range(first, first + 8):
        keep_one(0, operands_of(8 * i, 16, 16, dtype="bfloat16"))


def test_no_process_loses_what_another_one_keeps() -> None:
    with get_context("spawn").Pool(2) as pool:
        pool.map(_keep_some, (1, 9))
    path = file_of(H200)
    assert path is not None and len(read(path)) == 16


def test_who_keeps_a_plan_waits_for_whoever_has_the_lock() -> None:
    """Until it is given back neither what is kept is read, nor anything written."""
    fcntl = pytest.importorskip("fcntl")
    keep_one(0)
    path = file_of(H200)
    assert path is not None
    before = path.read_text()
    waiting = threading.Thread(target=keep_one, args=(0, operands_of(64, 16, 16, dtype="bfloat16")))
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and path.read_text() == before
        path.write_text(before.replace('"2026-11-26"', '"2026-11-27"'))
    waiting.join()
    assert sorted(plan.date for plan in read(path).values()) == ["2026-11-26", "2026-11-27"]


def test_rows_that_are_repeated_are_not_as_those_that_lie_apart() -> None:
    operands = operands_of(32, 32, 32)
    ways = [replace(operands.a, row_stride=step, column_stride=2) for step in (0, 64)]
    first, second = (describe_operands(operands._replace(a=one)) for one in ways)
    assert first != second and "repeated rows" in first and "repeated" not in second


def test_what_was_measured_is_described_by_how_operands_lie_and_stacks_are_walked() -> None:
    plain = operands_of(64, 48, 32, dtype="float16", layout="nt")
    whole = "64×48×32 float16, sums in float32"
    assert describe_operands(plain) == f"{whole}; a float16 row 16; b float16 column 16; c float16 row 16"
    stack = operands_of(64, 48, 32, dtype="float16", batch=6)
    arrays = "a float16 row 16 s; b float16 row 16 s; c float16 row 16 s"
    assert describe_operands(stack) == f"6 × {whole}; {arrays}"
    a, b, c = (replace(one, stack=(3 * one.rows * one.columns, one.rows * one.columns)) for one in stack[:3])
    b = replace(b, stack=(0, b.stack[1]), alignment=4)
    found = describe_operands(stack._replace(a=a, b=b, c=c, stack=(2, 3)))
    assert found == f"6 × {whole}; stack 2×3; a float16 row 16 ss; b float16 row 4 -s; c float16 row 16 ss"
    split = operands_of(64, 48, 32, arithmetic="exact32")._replace(split=("a", "b"))
    assert "; a and b split before; a float32 row 16" in describe_operands(split)
