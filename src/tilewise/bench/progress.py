"""How long work tells how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "silent"]

# Called with how many steps are done, how many there are, and what comes next.
Progress = Callable[[int, int, str], None]


def silent(_done: int, _total: int, _next: str) -> None:
    """Nobody listens."""
