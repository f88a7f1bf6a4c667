"""``tilewise explain`` up to the launch: what it is told to explain, and where its files go."""

from __future__ import annotations

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
