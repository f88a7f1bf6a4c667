"""What docs/command.md says of the JSON that commands print."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "command.md"


def documented_keys(row: str) -> set[str]:
    """The keys in a row of its tables; what is in another case than a key is prose."""
    lines = _PAGE.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {row} |"))
    return set(re.findall(r"`(\w+)`", line.removeprefix(f"| {row} |")))
