"""Two profiles side by side."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.instruments.metrics import chosen
from tilewise.instruments.profile import DEFAULT, Profile, shown

__all__ = ["compared_rows", "comparison"]


def comparison(
    names: Sequence[str], profiles: Sequence[Profile], patterns: Sequence[str] | None = None
) -> str:
    """A table of the metrics that both have: each value, and the second as a multiple of the first."""
    first, second = profiles
    rows = [["", *names, "ratio"], *compared_rows(first, second, patterns)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  " + "  ".join(f"{row[i]:>{widths[i]}}" for i in (1, 2, 3)) for row in rows
    ]
    head = [str(first), str(second), ""]
    return "\n".join(line.rstrip() for line in [*head, *lines]) + "\n"


def compared_rows(first: Profile, second: Profile, patterns: Sequence[str] | None = None) -> list[list[str]]:
    """By metric that both have: its name, each value, and the second as a multiple of the first."""
    first.chosen(patterns)
    rows = []
    for name in dict.fromkeys(chosen([name for name in first if name in second], patterns or DEFAULT)):
        a, b = first[name], second[name]
        if a or b or patterns:
            rows.append([name, shown(a), shown(b), f"{b / a:.3g}" if a else "" if not b else "∞"])
    return rows
