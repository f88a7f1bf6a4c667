"""What the profiler counts and reckons, as it is kept: of accesses in every pattern, of copies, models and machine code."""

from __future__ import annotations

import pytest

from tests import kept_machine
from tests.golden_text import assert_unchanged
from tests.kept_answers import describe_group, kept_lines
from tests.kept_figures import COMMAND, GOLDEN, GROUPS, PARTS, list_part
from tests.printed_launches import head


@pytest.mark.parametrize("part", PARTS)
def test_a_change_of_figures_is_seen(part: str) -> None:
    """Of what PTX does: counts of accesses, copies and slow paths; metrics, tables, samples, and the model of the caches."""
    names = list_part(part)
    now = "\n".join(describe_group(name, GROUPS[name]()) for name in names)
    assert_unchanged(kept_lines(GOLDEN, names), now, "what is counted", COMMAND, context=0)


_KERNELS = ("shapes", "memory", "numbers", "copied")


@pytest.mark.parametrize("kernel", [*_KERNELS, "opcodes", "places"])
def test_a_change_of_figures_of_machine_code_is_seen(kernel: str) -> None:
    """How counts are joined with machine code, the roofline and the verdict; and what is known of its instructions."""
    kept = kept_machine.GOLDEN.read_text(encoding="utf-8")
    if not kept.startswith(head()):
        pytest.skip(f"{kept.splitlines()[0]} made the file, here is {head()}")
    names = [name for name in kept_machine.GROUPS if name.startswith(kernel)]
    now = "\n".join(describe_group(name, kept_machine.GROUPS[name]()) for name in names)
    assert_unchanged(
        kept_lines(kept_machine.GOLDEN, names), now, "what is joined", kept_machine.COMMAND, context=0
    )


def test_what_is_kept_is_of_the_groups_that_there_are() -> None:
    assert sum(len(list_part(part)) for part in PARTS) == len(GROUPS)
    assert kept_lines(GOLDEN, GROUPS) == GOLDEN.read_text(encoding="utf-8").strip()
    kept = kept_machine.GOLDEN.read_text(encoding="utf-8").splitlines()[1:]
    assert kept_lines(kept_machine.GOLDEN, kept_machine.GROUPS).splitlines() == kept
