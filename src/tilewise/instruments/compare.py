"""Compare two profiles, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.instruments.metrics import select_names
from tilewise.instruments.profile import DEFAULT, Profile, format_number

__all__ = ["compare_profiles", "compare_rows"]


def compare_profiles(
    names: Sequence[str], profiles: Sequence[Profile], patterns: Sequence[str] | None = None
) -> str:
    """Return a table of the metrics of both profiles: each value, and the second as a multiple of the first."""
    first, second = profiles
    rows = [["", *names, "ratio"], *compare_rows(first, second, patterns)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  " + "  ".join(f"{row[i]:>{widths[i]}}" for i in (1, 2, 3)) for row in rows
    ]
    head = [str(first), str(second), ""]
    return "\n".join(line.rstrip() for line in [*head, *lines]) + "\n"


def compare_rows(first: Profile, second: Profile, patterns: Sequence[str] | None = None) -> list[list[str]]:
    """Return a row for each metric of both: name, both values, and the second as a multiple of the first."""
    first.select(patterns)
    rows = []
    for name in dict.fromkeys(select_names([name for name in first if name in second], patterns or DEFAULT)):
        a, b = first[name], second[name]
        if a or b or patterns:
            rows.append(
                [name, format_number(a), format_number(b), f"{b / a:.3g}" if a else "" if not b else "∞"]
            )
    return rows
