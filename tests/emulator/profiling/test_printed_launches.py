"""What commands print of launches: profiles, explanations, runs and checks, whole."""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.printed_launches import COMMAND, FOLDER, LINES, file_of, head, show


@pytest.mark.parametrize("name", LINES)
def test_what_is_printed_stays_as_it_is(name: str) -> None:
    kept = file_of(name).read_text(encoding="utf-8")
    if not kept.startswith(head()):
        pytest.skip(f"{kept.splitlines()[0]} made the file, here is {head()}")
    assert_unchanged(kept, show(name), file_of(name).name, COMMAND)


def test_no_file_is_kept_that_nothing_prints() -> None:
    assert {*FOLDER.iterdir()} == {FOLDER / "mixed.cu", *map(file_of, LINES)}
