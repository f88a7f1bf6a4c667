"""What the planner proposes and predicts for products of many kinds: that it has not changed."""

from __future__ import annotations

import functools

import pytest

from tests.golden_text import assert_unchanged
from tests.predictions import CASES, COMMAND, GOLDEN, Case, summary


@functools.cache
def kept() -> dict[str, str]:
    """What the file says of each case, by its first line."""
    sections = GOLDEN.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    return {section.splitlines()[0]: section for section in sections}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_of_what_is_proposed_and_predicted_is_seen(case: Case) -> None:
    """If it is meant, the command writes the file anew, and the difference can be reviewed."""
    assert_unchanged(kept().get(f"[{case.name}]", ""), summary(case), "the planner", COMMAND, context=8)


def test_the_file_has_every_case_and_no_other() -> None:
    assert list(kept()) == [f"[{case.name}]" for case in CASES], COMMAND
