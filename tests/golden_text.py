"""Text that is kept in a file, and what has changed since."""

from __future__ import annotations

import difflib


def assert_unchanged(kept: str, now: str, what: str, command: str, context: int = 3) -> None:
    """Fail with the lines that differ, and with the command that keeps the new text if it is meant."""
    both = kept.splitlines(), now.splitlines()
    changed = list(difflib.unified_diff(*both, "golden", "now", n=context, lineterm=""))
    assert not changed, "\n".join((f"{what} has changed; if that is meant: {command}", *changed))
