"""What the command prints with: tables, progress and JSON, in a terminal and elsewhere."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from tests.terminal import Terminal, in_terminal
from tilewise.cli import draw

WORD = st.text("abcdefghij-/.×|", min_size=1, max_size=22)
CELL = st.lists(WORD, max_size=6).map(" ".join)
WORD_OF = ["rung", "shared bytes", "time", "what it is", "GFLOP/s", "settings", "from"]


@given(st.data(), st.integers(30, 130), st.integers(1, 7))
@hypothesis.settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_tables_fit_and_break_no_word(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject, columns: int, count: int
) -> None:
    names = [f"{WORD_OF[i]} {i}" for i in range(count)]
    rows = data.draw(st.lists(st.lists(CELL, min_size=count, max_size=count), min_size=1, max_size=4))
    right = [name for name in names if data.draw(st.booleans())]
    lines = in_terminal(monkeypatch, columns, lambda: draw.table(names, rows, right))
    assert max(map(len, lines)) <= columns
    printed = [word.rstrip(",") for line in lines for word in line.split()]
    is_named = ":" in "".join(lines) or {word for name in names[1:] for word in name.split()} <= {*printed}
    assert is_named or not any(cell for row in rows for cell in row[1:])
    assert lines == [line.rstrip() for line in lines]
    for row in rows:
        for word in " ".join(row).split():
            assert word in printed


def test_a_rule_lies_below_the_names_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = in_terminal(monkeypatch, 40, lambda: draw.table(["name", "size"], [["a", "1"]], right=["size"]))
    assert lines == ["name  size", "─" * 10, "a        1"]


def test_a_column_alone_that_is_too_wide_is_broken_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = in_terminal(monkeypatch, 30, lambda: draw.table(["x"], [["1 " * 20]], right=["x"]))
    assert [len(line) for line in lines] == [29, 9] and " ".join(lines).split() == ["1"] * 20


def test_cells_below_a_row_too_wide_are_named_and_set_in_further_on_every_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, cells = [f"name{i}" for i in range(6)], [f"{i}" * 12 for i in range(6)]
    first, *lines = in_terminal(monkeypatch, 30, lambda: draw.table(names, [cells]))
    assert first == cells[0] and len(lines) > 2
    assert [len(line) - len(line.lstrip()) for line in lines] == [2] + [4] * (len(lines) - 1)
    assert " ".join(map(str.strip, lines)) == ", ".join(map("{}: {}".format, names[1:], cells[1:]))


def test_a_row_too_wide_with_nothing_beside_its_first_cell_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"name{i}" for i in range(6)]
    rows = [["first", *[""] * 5], ["second", *["x" * 12] * 5]]
    lines = in_terminal(monkeypatch, 30, lambda: draw.table(names, rows))
    assert lines[:2] == ["first", "second"] and len(lines) > 3


@pytest.mark.parametrize("text", ["12345678", "  1 2   ", " " * 8])
def test_a_line_with_just_enough_room_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert in_terminal(monkeypatch, 8, lambda: draw.line(text)) == [text]


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with draw.progress("demo") as step:
            step(0, 2, "first")
            step(1, 2, "second")
        assert bool(stream.getvalue()) == drawn


@given(st.integers(0, 4), st.integers(1, 1023))
@example(1, 1)
def test_an_amount_of_bytes_is_in_the_largest_unit_that_it_has_one_of(power: int, count: int) -> None:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    whole = f"{count}.0 {units[power]}" if power else f"{count} bytes"
    assert draw.amount(count * 1024**power) == whole
    just_below = draw.amount(1024**power - 1)
    assert just_below == ["0 bytes", "1023 bytes", "1.0 MiB", "1.0 GiB", "1.0 TiB"][power]


@given(st.floats(1e-9, 1e5))
@example(0.0009996)
@example(0.9999)
def test_a_duration_is_its_time_to_three_digits_without_an_exponent(seconds: float) -> None:
    number, unit = draw.duration(seconds).split()
    size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert "e" not in number
    assert float(number) * size == pytest.approx(seconds, rel=0.0051, abs=0.5e-9)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0 ns"), (4e-10, "0 ns"), (9.994e-7, "999 ns"), (1e-6, "1 µs"), (1.2345e-5, "12.3 µs"), (9.994e-4, "999 µs"),
        (9.996e-4, "1000 µs"), (1e-3, "1 ms"), (0.25, "250 ms"), (1.0, "1 s"), (61.26, "61.3 s"), (1234.5, "1234 s"),
    ],
)  # fmt: skip
def test_a_duration_has_the_largest_unit_that_it_is_one_of(seconds: float, told: str) -> None:
    assert draw.duration(seconds) == told


@pytest.mark.parametrize(
    ("cell", "style"),
    [
        ("yes", "green"), ("yes: all", "green"), ("ok", "green"), ("ok?", ""), ("no", ""), ("NO", "bold red"), ("NO: 3", "bold red"),
        ("WRONG", "bold red"), ("failed", "bold red"), ("over: 5 ms", "bold red"), ("under", "bold red"), ("", ""), ("not over", ""),
    ],
)  # fmt: skip
def test_a_verdict_in_a_table_has_its_colour(cell: str, style: str) -> None:
    assert draw._style(cell) == style


def test_a_line_too_wide_is_broken_between_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a long word nor at a hyphen; what follows a break stands further in than what came before it."""
    lines = in_terminal(monkeypatch, 12, lambda: draw.line("  a b-c-d-e-f-g abcdefghijklmnop h", hanging=3))
    assert lines == ["  a", "     b-c-d-e-f-g", "     abcdefghijklmnop", "     h"]
    assert in_terminal(monkeypatch, 8, lambda: draw.line("one two\nthree four")) == [
        "one two",
        "three",
        "four",
    ]


@pytest.mark.parametrize(("columns", "has_room"), [(7, False), (8, True)])
def test_a_text_fits_where_its_longest_line_does(
    monkeypatch: pytest.MonkeyPatch, columns: int, has_room: bool
) -> None:
    found: list[bool] = []
    in_terminal(monkeypatch, columns, lambda: found.append(draw.fits("1\n12345678\n12")))
    in_terminal(monkeypatch, columns, lambda: found.append(draw.fits("")))
    assert found == [has_room, True]
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert draw.fits("1" * 1000)


def test_facts_are_in_two_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {"a": "1", "longer": "word " * 5}
    draw.facts(pairs)
    assert capsys.readouterr().out.splitlines() == ["  a       1", "  longer  " + ("word " * 5).strip()]
    lines = in_terminal(monkeypatch, 23, lambda: draw.facts(pairs))
    assert lines == ["  a       1", "  longer  word word", "          word word", "          word"]


def test_a_bar_is_moved_by_each_step_and_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Bar:
        def __init__(self, *columns: object, console: Any, transient: bool) -> None:
            told.append((len(columns), console.stderr, transient))

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            told.append("end")

        def add_task(self, what: str, total: int | None) -> int:
            told.append((what, total))
            return 3

        def update(self, task: int, **step: object) -> None:
            told.append((task, step))

    monkeypatch.setattr(draw, "Bar", Bar)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with draw.progress("demo") as step:
        step(1, 2, "second")
    steps = {"completed": 1, "total": 2, "description": "second"}
    assert told == [(5, True, True), ("", None), (3, steps), "end"]


@pytest.mark.parametrize(
    ("as_json", "as_markdown", "has_markdown", "printed"),
    [
        (False, False, True, ""), (True, False, True, "JSON"), (False, True, True, "| µ |"), (True, True, True, "JSON"),
        (False, True, False, ""),
    ],
)  # fmt: skip
def test_a_measurement_is_written_as_it_is_asked_for(
    as_json: bool, as_markdown: bool, has_markdown: bool, printed: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file, result = tmp_path / "a.json", {"figure": [1.5], "what": "µ"}
    args = Namespace(out=str(file), json=as_json, markdown=as_markdown, what="gemm")
    markdown = (lambda found: f"| {found['what']} |") if has_markdown else None
    assert draw.write_result(args, result, markdown) is (as_json or as_markdown)
    assert file.read_text("utf-8") == '{\n "figure": [\n  1.5\n ],\n "what": "\\u00b5"\n}\n'
    out = capsys.readouterr().out
    if printed != "JSON":
        assert out == printed
        return
    whole = {"schema": 1, "command": "bench", "measured": "gemm", "result": result}
    assert out == json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    draw.write_json_line("bench", {"measured": "gemm", "result": result})
    assert capsys.readouterr().out == json.dumps(whole, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(("in_one", "columns"), [(True, 97), (False, 80)])
def test_a_line_is_as_wide_as_the_terminal_and_elsewhere_80_columns(
    monkeypatch: pytest.MonkeyPatch, in_one: bool, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setattr(sys, "stdout", Terminal() if in_one else io.StringIO())
    assert draw.width() == columns


def test_numbers_that_are_not_finite_stay_json(capsys: pytest.CaptureFixture[str]) -> None:
    draw.write_json("run", {"a": [float("nan"), float("inf")], "b": (1.5, None)})
    found = json.loads(capsys.readouterr().out)
    assert found == {"schema": draw.SCHEMA, "command": "run", "a": ["nan", "inf"], "b": [1.5, None]}
