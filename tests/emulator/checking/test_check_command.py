"""``tilewise check``: what it prints, and the code it ends with."""

from __future__ import annotations

import itertools
import json
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.bench.unwritten import Unwritten
from tilewise.cli import check_command
from tilewise.cli.main import main
from tilewise.instruments.findings import Finding

GOLDEN = Path(__file__).parents[2] / "golden" / "checker"
FAULTS = GOLDEN / "faults.cu"
ARRAY, NEW = ["--arg", "f32[64]"], ["--arg", "new:f32[64]"]
LAUNCHES = {
    "reversed": [*ARRAY, *NEW],
    "unset": NEW,
    "beyond": [*ARRAY, *NEW],
    "divergent": NEW,
    "not_awaited": [*ARRAY, *NEW],
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    return code, capsys.readouterr().out


def launch(name: str, *more: str) -> list[str]:
    return [str(FAULTS), "--kernel", name, "--grid", "1", "--block", "64", *LAUNCHES.get(name, []), *more]


def settled(text: str) -> str:
    """Without what differs from one process, or one compiler, to the next."""
    text = text.replace(str(FAULTS), "faults.cu")
    text = re.sub(r", seed \d+: ", ": ", text)
    text = re.sub(r"global address 0x[0-9a-f]+", "global address …", text)
    return re.sub(r"PTX line \d+: .*", "PTX line …", text)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_fault_is_printed(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out = run(capsys, *launch(name))
    assert code == 1
    assert settled(out) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_a_sound_kernel_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, *launch("copied", *ARRAY, *NEW))
    assert (code, settled(out)) == (0, "copied of faults.cu, order late: nothing found\n")


def test_an_array_that_is_new_is_unset(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, *launch("copied", *NEW, *NEW))
    assert code == 1
    assert out.startswith("initcheck: a thread reads uninitialised memory at global address")


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, *launch("reversed", "--json", "--order", "eager"))
    found = json.loads(out)
    assert (code, found["order"]) == (1, "eager")
    (finding,) = found["findings"]
    assert (finding["tool"], finding["kind"], finding["count"]) == ("racecheck", "read-write", 64)
    assert {finding["now"]["line"], finding["before"]["line"]} == {6, 7}


def test_the_seed_is_told_and_makes_the_same_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "sign.cu"
    file.write_text("__global__ void f(const float *x, float *y) { if (*x > 0) *y = 1; else y[1] = 1; }")
    argv = [str(file), "--grid", "1", "--block", "1", "--arg", "f32[1]", "--arg", "new:f32[2]"]
    fresh = [json.loads(run(capsys, *argv, "--json")[1]) for _ in range(6)]
    assert len({found["seed"] for found in fresh}) > 1
    for found in fresh:
        code, out = run(capsys, *argv, "--seed", str(found["seed"]))
        assert code == 0 and f"order late, seed {found['seed']}: nothing found, 1 element not written" in out
        assert (
            f"from {found['unwritten'][0]['first']}" in out or f"at {found['unwritten'][0]['first']}" in out
        )
    rung = ["04_tiled", "-m", "8", "-n", "8", "-k", "8"]
    assert re.search(r"order late, seed \d+: nothing found", run(capsys, *rung)[1])
    for given, seed in itertools.product((rung, argv), (0, 5)):
        assert json.loads(run(capsys, *given, "--seed", str(seed), "--json")[1])["seed"] == seed


@pytest.mark.parametrize("absolute", [False, True])
def test_paths_are_shown_as_they_were_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    """Of the file, and of a header beside it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own.h").write_text(
        "__device__ float back(const float *s) { return s[63 - threadIdx.x]; }\n"
    )
    reversed_ = FAULTS.read_text(encoding="utf-8").replace("s[63 - threadIdx.x]", "back(s)")
    (tmp_path / "there" / "k.cu").write_text('#include "own.h"\n' + reversed_)
    monkeypatch.chdir(tmp_path / "here")
    folder = f"{tmp_path}/here/../there" if absolute else "../there"
    code, out = run(capsys, f"{folder}/k.cu", *launch("reversed")[1:])
    assert code == 1 and f"    {folder}/k.cu:7\n" in out and f"    {folder}/own.h:1\n" in out
    assert out.splitlines()[-1].startswith(f"reversed of {folder}/k.cu, order late")


@pytest.mark.parametrize("order", ["late", "eager", "7"])
def test_a_rung(capsys: pytest.CaptureFixture[str], order: str) -> None:
    code, out = run(
        capsys, "04_tiled", "-m", "33", "-n", "17", "-k", "40", "--order", order, "--set", "tile=16"
    )
    assert (code, settled(out)) == (0, f"04_tiled, 33×17×40, order {order}: nothing found\n")


def test_a_rungs_size_is_the_examples_where_none_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    for given, size in ((("-k", "40"), "96×64×40"), (("-m", "33", "-n", "17"), "33×17×128")):
        assert run(capsys, "04_tiled", *given)[1].startswith(f"04_tiled, {size}, order")


def test_ptx_of_any_compiler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tilewise.kernel import Kernel

    file = tmp_path / "faults.ptx"
    file.write_text(Kernel(FAULTS.read_text(encoding="utf-8"), "reversed", "sm_80").ptx, encoding="utf-8")
    arguments = launch("reversed")
    code, out = run(capsys, str(file), *arguments[1:])
    assert code == 1
    assert "two threads" in out or "another" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["04_tiled", "--grid", "1"], "--grid is for files"),
        ([str(FAULTS)], "--grid must be given for a file"),
        (["none.cu"], "file 'none.cu' cannot be read"),
        (launch("reversed", "--order", "sideways"), "sideways"),
        (
            launch("copied", "--arg", "new:4", "--arg", "null"),
            "--arg must be such as f32[640,448], s32[64]",
        ),
        ([str(FAULTS), "-m", "4", "--grid", "1", "--block", "64"], "-m is for rungs"),
    ],
)
def test_wrong_use_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main(["check", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_equal_writes_are_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "equal.cu"
    path.write_text('extern "C" __global__ void equal(const int *x, int *y) { *y = x[threadIdx.x]; }\n')
    how = [str(path), "--grid", "1", "--block", "64", "--arg", "zeros:s32[64]", "--arg", "new:s32[1]"]
    code, out = run(capsys, *how)
    assert (code, out.splitlines()[0][:17]) == (0, "racecheck (info):")
    assert re.search(r"order late, seed \d+: nothing found, 1 note\n$", out)
    code, out = run(capsys, *how, "--json")
    found = json.loads(out)
    assert (code, found["findings"], [item["kind"] for item in found["notes"]]) == (0, [], ["equal-writes"])


@pytest.mark.parametrize(
    ("levels", "unwritten", "code", "said"),
    [
        ([], [], 0, "nothing found"), (["error"], [], 1, "1 finding"), (["warning"], [], 1, "1 finding"),
        (["error", "warning"], [], 1, "2 findings"), (["info"], [], 0, "nothing found, 1 note"),
        (["info", "info", "warning"], [], 1, "1 finding, 2 notes"), ([], [1], 0, "nothing found, 1 element not written"), ([], [2], 0, "nothing found, 2 elements not written"),
        (["error"] * 3, [1, 1200], 1, "3 findings, 1,201 elements not written"),
    ],
)  # fmt: skip
def test_what_is_found_is_counted_and_warnings_are_found_too(
    levels: list[str], unwritten: list[int], code: int, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found = [Finding("tool", "kind", f"of level {level}", "", "k", level=level) for level in levels]
    missing = [Unwritten(1, "new:f32[2000]", count, 2000, (0,), (count - 1,)) for count in unwritten]
    launch = SimpleNamespace(
        kernel=SimpleNamespace(name="k"), seed=5, check=lambda *_, **__: (found, missing)
    )
    for name, stand_in in (("is_file", True), ("launch_spec", None), ("open_launch", launch)):
        monkeypatch.setattr(check_command, name, lambda *_, it=stand_in: it)
    given = Namespace(target="k.cu", order="late", timeout=None, lenient=False, json=False)
    assert check_command.check(given) == code
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"k of k.cu, order late, seed 5: {said}"
    assert out.count("of level") == len(levels) and out.count("note: ") == len(missing)
