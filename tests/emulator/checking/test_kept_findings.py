"""What the checker finds, and how launches end that go wrong, as it is kept: thousands of them, a line for each group."""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.kept_answers import describe_group, kept_lines
from tests.kept_findings import COMMAND, GOLDEN, GROUPS, PARTS, list_part, tell


@pytest.mark.parametrize("part", PARTS)
def test_a_change_of_findings_is_seen(part: str) -> None:
    """Of accesses at every edge, of pairs with all that may lie between them, of misuse; by tool, words, lines and threads."""
    names = list_part(part)
    now = "\n".join(describe_group(name, GROUPS[name]()) for name in names)
    assert_unchanged(kept_lines(GOLDEN, names), now, "what is found", COMMAND, context=0)


def test_what_is_kept_is_of_the_groups_that_there_are() -> None:
    assert sum(len(list_part(part)) for part in PARTS) == len(GROUPS)
    assert kept_lines(GOLDEN, GROUPS) == GOLDEN.read_text(encoding="utf-8").strip()


def test_addresses_are_told_by_the_array_that_is_near() -> None:
    class Array:
        ptr = 0x7F00_0000_1000

    assert tell("at 0x7f0000001004, 0x7f0000000ff0 and 0x40", [Array()]) == "at [x+4], [x-16] and 0x40"
