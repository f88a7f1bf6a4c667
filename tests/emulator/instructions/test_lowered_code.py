"""The LLVM code of every instruction, as it is kept: a change of it is seen, also where no result that is tested tells."""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.lowered_texts import COMMAND, GOLDEN, PARTS, describe_part, describe_routines, expand_line


@pytest.mark.parametrize("part", range(PARTS))
def test_a_change_of_the_code_of_an_instruction_is_seen(part: int) -> None:
    """In the fast build and in the general one, counted and checked; by a line for all of a kind."""
    kept = "\n".join(
        [line for line in GOLDEN.read_text().splitlines() if not line.startswith("s")][part::PARTS]
    )
    assert_unchanged(
        kept, "\n".join(describe_part(part)), "the code that instructions are lowered to", COMMAND, context=0
    )


def test_a_change_of_a_routine_that_kernels_call_is_seen() -> None:
    """Copies in flight, barriers and faults; what the checker knows, and what the profiler counts."""
    kept = "\n".join(line for line in GOLDEN.read_text().splitlines() if line.startswith("s"))
    now = "\n".join(describe_routines())
    assert_unchanged(kept, now, "the routines of the run-time support", COMMAND, context=0)


def test_a_line_stands_for_each_of_its_words() -> None:
    assert expand_line("a.{u,s} {{%r0, %r1}}{,; 1}") == [
        "a.u {%r0, %r1}", "a.u {%r0, %r1}, 1", "a.s {%r0, %r1}", "a.s {%r0, %r1}, 1",
    ]  # fmt: skip
