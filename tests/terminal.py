"""A terminal that is none: what is printed into it can be read."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def in_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, call: Callable[[], object]) -> list[str]:
    """The lines that something prints in a terminal of so many columns, without what gives them colours."""
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("TERM", "xterm")
        patched.setattr(sys, "stdout", terminal := Terminal())
        call()
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
