"""What commands print of launches: profiles, explanations, runs and checks, whole."""

from __future__ import annotations

import difflib

import pytest

from tests.printed_launches import COMMAND, FOLDER, LINES, file_of, head, show


@pytest.mark.parametrize("name", LINES)
def test_what_is_printed_stays_as_it_is(name: str) -> None:
    kept = file_of(name).read_text(encoding="utf-8")
    if not kept.startswith(head()):
        pytest.skip(f"{kept.splitlines()[0]} made the file, here is {head()}")
    changed = list(
        difflib.unified_diff(kept.splitlines(), show(name).splitlines(), "golden", "now", lineterm="")
    )
    assert not changed, "\n".join((f"{name}.txt has changed; if that is meant: {COMMAND}", *changed))


def test_no_file_is_kept_that_nothing_prints() -> None:
    assert {*FOLDER.iterdir()} == {FOLDER / "mixed.cu", *map(file_of, LINES)}
