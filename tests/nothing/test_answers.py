"""What calls answer, over a broad range of what they may be given: that it has not changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from tests.answers import COMMAND, SUBJECTS, answers_of, describe_line, expand_line, file_of, subject
from tests.answers.shown import show
from tests.golden_text import assert_unchanged


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_change_of_an_answer_is_seen(name: str) -> None:
    """If it is meant, the command writes the files anew; with the subject and a piece of a line it prints the answers."""
    lines, names = subject(name)
    now = "\n".join(describe_line(line, names) for line in lines)
    kept = file_of(name).read_text(encoding="utf-8")
    assert_unchanged(kept, now, f"an answer of {name}", f"{COMMAND} write {name}", context=1)


@pytest.mark.parametrize("name", SUBJECTS)
def test_lines_can_be_called(name: str) -> None:
    """None of them uses a name that is not there, or is no Python: both would be an answer, too."""
    kept = file_of(name).read_text(encoding="utf-8")
    assert not re.findall(r"^ +(?:NameError|SyntaxError|UnboundLocalError)", kept, re.MULTILINE)


def test_a_line_stands_for_each_of_its_words() -> None:
    assert expand_line("f(«1|2», «|x»)") == ["f(1, )", "f(1, x)", "f(2, )", "f(2, x)"]


def test_values_are_shown_the_same_everywhere() -> None:
    names: Mapping[str, object] = {"one": object(), "np": np, "many": {3, 1, 2}}
    shown = [
        answer for _, answer in answers_of("«one|many|np.float32(0.1)|np.arange(3)[::2]|[].x|1 / 3»", names)
    ]
    assert shown == [
        "<object object>",
        "{1, 2, 3}",
        "0.1",
        "int64 (2,) by (16,) 0, 2",
        "AttributeError",
        "0.333333",
    ]
    assert show("a\nb") == "a⏎b"
