"""The callback by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "ignore_progress"]

# Called with how many steps are done, how many there are, and what comes next.
Progress = Callable[[int, int, str], None]


def ignore_progress(_done: int, _total: int, _next: str) -> None:
    """Progress callback that does nothing."""
