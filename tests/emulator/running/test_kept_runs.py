"""Whole programs as they are kept: their code and results, recordings, what is printed, orders of blocks, lines of sources."""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.kept_answers import describe_group, kept_lines
from tests.kept_runs import COMMAND, GOLDEN, GROUPS

_CODE = ["texts 0", "texts 1", "families", "watched", "shapes"]
_PARTS = {"code": _CODE, "others": [name for name in GROUPS if name not in _CODE]}


@pytest.mark.parametrize("part", _PARTS)
def test_a_change_of_whole_programs_is_seen(part: str) -> None:
    """The code of random programs in every build, what they give in every order, and what is recorded of small products."""
    names = _PARTS[part]
    now = "\n".join(describe_group(name, GROUPS[name]()) for name in names)
    assert_unchanged(kept_lines(GOLDEN, names), now, "what programs become", COMMAND, context=0)


def test_what_is_kept_is_of_the_groups_that_there_are() -> None:
    assert kept_lines(GOLDEN, GROUPS) == GOLDEN.read_text(encoding="utf-8").strip()
