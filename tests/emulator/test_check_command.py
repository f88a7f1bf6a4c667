"""``tilewise check``: what it prints, and the code it ends with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tilewise.cli.main import main

GOLDEN = Path(__file__).parents[1] / "golden" / "checker"
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
    assert out.startswith("initcheck: a thread reads what nobody has written at global address")


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, *launch("reversed", "--json", "--order", "eager"))
    found = json.loads(out)
    assert (code, found["order"]) == (1, "eager")
    (finding,) = found["findings"]
    assert (finding["tool"], finding["kind"], finding["count"]) == ("racecheck", "read-write", 64)
    assert {finding["now"]["line"], finding["before"]["line"]} == {6, 7}


@pytest.mark.parametrize("order", ["late", "eager", "7"])
def test_a_rung(capsys: pytest.CaptureFixture[str], order: str) -> None:
    code, out = run(
        capsys, "04_tiled", "-m", "33", "-n", "17", "-k", "40", "--order", order, "--set", "tile=16"
    )
    assert (code, settled(out)) == (0, f"04_tiled, 33×17×40, order {order}: nothing found\n")


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
