"""What the planner proposes and predicts for products of many kinds: that it has not changed (``tests/golden/predictions.txt``)."""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.predictions import CASES, COMMAND, GOLDEN, Case, summary


def sections() -> list[str]:
    """What the file says of each case."""
    return GOLDEN.read_text(encoding="utf-8").rstrip("\n").split("\n\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_of_what_is_proposed_and_predicted_is_seen(case: Case) -> None:
    """If it is meant, the command writes the file anew, and the difference can be reviewed."""
    now = summary(case)
    golden = next((part for part in sections() if part.splitlines()[0] == now.splitlines()[0]), "")
    assert_unchanged(golden, now, "the planner", COMMAND, context=8)


def test_the_file_has_every_case_once() -> None:
    assert [part.splitlines()[0] for part in sections()] == [f"[{case.name}]" for case in CASES], COMMAND
