"""``tilewise explain`` up to the launch: what it is told to explain, and where its files go."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewise as tw
from tilewise.cli import explain_command
from tilewise.cli.main import main
from tilewise.errors import ToolError
from tilewise.explain.explanation import _call
from tilewise.gpus import find


@pytest.mark.parametrize(
    ("words", "gpu", "sizes", "dtype", "layout"),
    [
        (("04_tiled",), "h200", (512, 512, 256), "float32", "nn"),
        (("04_tiled", "--gpu", "t4", "-m", "64"), "t4", (64, 512, 256), "float32", "nn"),
        (("04_tiled", "-n", "64", "-k", "32", "--gpu", "a100"), "a100", (512, 64, 32), "float32", "nn"),
        (("64x48x32",), "h200", (64, 48, 32), "bfloat16", "nn"),
        (("64×48×32:tn", "--gpu", "a100", "--dtype", "float16"), "a100", (64, 48, 32), "float16", "tn"),
    ],
)
def test_a_rung_or_a_product_is_planned_as_it_is_asked_for(
    words: tuple[str, ...],
    gpu: str,
    sizes: tuple[int, int, int],
    dtype: str,
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[Any, Any]] = []

    def explain(plan: Any, element: Any) -> None:
        asked.append((plan, element))
        raise ToolError("that is enough")

    monkeypatch.setattr(explain_command, "explain_plan", explain)
    assert main(["explain", *words, "--element", " 3, 20 "]) == 2
    assert "that is enough" in capsys.readouterr().err
    ((plan, element),) = asked
    problem = plan.problem
    assert (plan.gpu, (problem.m, problem.n, problem.k), problem.a, element) == (
        find(gpu).name,
        sizes,
        dtype,
        (3, 20),
    )
    assert "".join("n" if lies == "row" else "t" for lies in (problem.a_layout, problem.b_layout)) == layout


@pytest.mark.parametrize("name", ["64x48.cu", "./64x48.ptx"])
def test_a_file_whose_name_begins_as_a_product_does_is_a_file(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Any] = []

    def open_launch(words: Any, arch: str) -> None:
        opened.append((words.file, words.grid, arch))
        raise ToolError("that is enough")

    monkeypatch.setattr(explain_command, "open_launch", open_launch)
    assert main(["explain", name, "--grid", "2", "--block", "32", "--gpu", "t4"]) == 2
    assert capsys.readouterr().err == "tilewise: error: that is enough\n"
    assert opened == [(name, "2", "sm_75")]


@pytest.mark.parametrize(
    "option", ["-m 1", "-n 1", "-k 1", "--set a=1", "--dtype float32", "--seed 0", "--element 0,0", "--thread 0,0", "--line 1", "--trace a"]
)  # fmt: skip
def test_what_is_of_one_launch_is_none_of_the_ladder(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_command, "explain_ladder", None)
    assert main(["explain", "ladder", *option.split()]) == 2
    said = f"{option.split()[0]} is for one launch; name a rung in place of the ladder"
    assert capsys.readouterr().err == f"tilewise: error: {said}\n"


def test_what_is_asked_for_is_said_and_what_is_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In place of everything, each apart from the next; and each file where it was wanted, or by its figure's name."""
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(
        element=lambda row, column: f"element {row} {column}", thread=lambda block, thread: f"thread {block} {thread}",
        line=lambda number: f"line {number}", figure=lambda name: f"picture {name}", html=lambda: "page", trace=lambda: "events",
        to_dict=lambda: {"kernel": "k"}, subject=SimpleNamespace(title="a title"), verdict=["one", "two"],
        panels=[SimpleNamespace(key="tiles", answer="an answer")], about=["three"],
    )  # fmt: skip
    asked: Any = []
    monkeypatch.setattr(explain_command, "Explanation", SimpleNamespace)
    monkeypatch.setattr(explain_command, "_explain", lambda _args, element: asked.append(element) or found)
    more = "more: --html FILE for the page, --figure NAME, --element R,C, --thread B,T, --line N"
    for line, said in (
        ("--element 0,0 --thread 0,1 --line 1", "element 0 0\n\nthread 0 1\n\nline 1\n"),
        ("--line 2", "line 2\n"),
        ("--figure levels", "wrote levels.svg\n"),
        ("--figure load -o a.svg --html b.html --trace c.json --line 3", "line 3\nwrote a.svg\nwrote b.html\nwrote c.json\n"),
        ("", f"a title\none\ntwo\n\n  tiles  an answer\n\nthree\n{more}\n"),
    ):  # fmt: skip
        assert main(["explain", "04_tiled", *line.split()]) == 0
        assert capsys.readouterr().out == said
    files = {"levels.svg": "picture levels", "a.svg": "picture load", "b.html": "page", "c.json": "events"}
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == files
    assert asked == [(0, 0), None, None, None, None]
    assert main(["explain", "04_tiled", "--json", "--element", "3,4", "--html", "b.html"]) == 0
    plain = json.loads(capsys.readouterr().out)
    whole = {"kernel": "k", "files": ["b.html"], "element": "element 3 4"}
    assert plain == {"schema": 1, "command": "explain", **whole}
    assert main(["explain", "04_tiled", "--html", "no/b.html"]) == 2
    said = "the output cannot be written: No such file or directory, not 'no/b.html'"
    assert capsys.readouterr().err == f"tilewise: error: {said}\n"


@pytest.mark.parametrize("option", ["--element", "--thread"])
@pytest.mark.parametrize("word", ["3", "3,", "3,4,5", "-1,2", "a,b", "1234567890,1"])
def test_a_pair_is_two_numbers(option: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "04_tiled", f"{option}={word}"]) == 2
    assert f"{option} must be two numbers, such as 3,2, not '{word}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        {}, {"dtype": "float16"}, {"layout": "nt"}, {"layout": "tn"}, {"layout": "tt", "gpu": "h200"}, {"batch": 3},
        {"groups": 2}, {"result": "float32"}, {"dtype": "float32"}, {"dtype": "int8", "gpu": "h200"},
    ],
    ids=str,
)  # fmt: skip
def test_the_line_that_explains_a_plan_makes_the_same_plan(given: dict[str, Any]) -> None:
    """And says nothing that goes without saying."""
    settings = {"dtype": "bfloat16", "gpu": "a100", **given}
    plan = tw.plan(64, 48, 32, **settings)
    pretended = SimpleNamespace(explain=lambda plan: plan, plan=tw.plan, ladder=tw.ladder)
    line = _call(plan)
    again = eval(line, {"tw": pretended})
    assert (again.problem, again.gpu, again.kernel) == (plan.problem, plan.gpu, plan.kernel)
    assert line.count("=") == len(settings)
    rung = tw.ladder["04_tiled"].plan(64, 48, 32, gpu="t4")
    again = eval(_call(rung), {"tw": pretended})
    assert (again.problem, again.gpu, again.kernel) == (rung.problem, "t4", "04_tiled")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_a_file_may_be_read_as_any_new_one(tmp_path: Path, mask: int) -> None:
    """It is there as a whole, with nothing beside it, and the mask of new files is as it was."""
    before = os.umask(mask)
    try:
        name = str(tmp_path / "page.html")
        for text in ("first", "sécond"):
            assert explain_command._write_file(name, text) == name
            assert Path(name).read_text("utf-8") == text
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o666 & ~mask
        assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    finally:
        kept = os.umask(before)
    assert kept == mask
