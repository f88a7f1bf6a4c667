"""What commands print of results that are made up, whole: text, JSON and Markdown; and their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_text import assert_unchanged
from tests.printed import (
    CASES,
    COMMAND,
    GOLDEN,
    MEASURED,
    OPTIONS,
    file_of,
    list_measured,
    list_options,
    show,
)


def assert_same(kept: Path, now: str) -> None:
    assert_unchanged(kept.read_text(encoding="utf-8"), now, kept.name, COMMAND)


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed_stays_as_it_is(name: str) -> None:
    assert_same(file_of(CASES[name]), show(CASES[name]))


def test_options_stay_as_they_are() -> None:
    """Their names, what they take, what they are where they are not given, and what is said of them."""
    assert_same(OPTIONS, list_options())


def test_what_is_measured_stays_what_it_is() -> None:
    """So that results of one version can be read beside those of another."""
    assert_same(MEASURED, list_measured())


def test_no_file_is_kept_that_nothing_prints() -> None:
    files = {MEASURED, OPTIONS, *map(file_of, CASES.values())}
    assert {*GOLDEN.iterdir()} == files
