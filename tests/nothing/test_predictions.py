"""What the planner proposes and predicts for products of many kinds: that it has not changed."""

from __future__ import annotations

import functools

import pytest

from tests.golden_text import assert_unchanged
from tests.predictions import (
    CASES,
    CHANGED,
    COMMAND,
    GOLDEN,
    REFUSALS,
    Case,
    arrangements,
    headers,
    of_changes,
    of_kernel,
    of_refusals,
    summary,
)
from tilewise.kernels import KERNELS


@functools.cache
def kept() -> dict[str, str]:
    """What the file says of each case, by its first line."""
    sections = GOLDEN.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    return {section.splitlines()[0]: section for section in sections}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_of_what_is_proposed_and_predicted_is_seen(case: Case) -> None:
    """If it is meant, the command writes the file anew, and the difference can be reviewed."""
    assert_unchanged(kept().get(f"[{case.name}]", ""), summary(case), "the planner", COMMAND, context=8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_change_of_what_a_kernel_has_is_seen(kernel: str) -> None:
    assert_unchanged(kept().get(f"[the kernel {kernel}]", ""), of_kernel(kernel), f"kernel {kernel}", COMMAND)


@pytest.mark.parametrize(("kernel", "element"), REFUSALS)
def test_a_change_of_what_a_kernel_refuses_is_seen(kernel: str, element: str) -> None:
    now = of_refusals(kernel, element)
    assert_unchanged(kept().get(now.splitlines()[0], ""), now, f"kernel {kernel}", COMMAND)


@pytest.mark.parametrize("case", CHANGED, ids=lambda case: case.name)
def test_a_change_of_which_other_choices_a_proposal_could_have_is_seen(case: Case) -> None:
    now = of_changes(case)
    assert_unchanged(kept().get(now.splitlines()[0], ""), now, "the kernels", COMMAND)


def test_a_change_of_how_operands_are_copied_is_seen() -> None:
    assert_unchanged(kept().get("[copies]", ""), arrangements(), "the copies", COMMAND)


@pytest.mark.parametrize("name", headers())
def test_a_change_of_what_epilogues_become_is_seen(name: str) -> None:
    assert_unchanged(kept().get(name, ""), f"{name}\n{headers()[name]}", "a header", COMMAND)


def test_the_file_has_every_case_and_no_other() -> None:
    refusals = [f"[what {kernel} refuses of {element}]" for kernel, element in REFUSALS]
    kernels, cases = (
        [f"[{name}]" for name in names]
        for names in (map("the kernel {}".format, KERNELS), (case.name for case in CASES))
    )
    changes = [f"[what refuses changes of {case.name}]" for case in CHANGED]
    assert list(kept()) == [*kernels, *refusals, *changes, "[copies]", *headers(), *cases], COMMAND
