"""A finding: something wrong in one launch, located in the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tilewise.errors import ArgumentError

__all__ = ["LEVELS", "Access", "CallLine", "Finding", "at_least"]

LEVELS = ("info", "warning", "error")  # as compute-sanitizer's racecheck has them, the least first

Dim3 = tuple[int, int, int]
_WIDE = 100  # characters of a line that are shown


@dataclass(frozen=True, slots=True)
class CallLine:
    """A line of the source with a call that the compiler inlined."""

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding: which thread touched memory, and where in the source."""

    what: str  # "write", "read", "copy" …
    block: Dim3 | None  # None for the host
    thread: Dim3 | None  # None for several threads of one warp
    warp: int
    ptx_line: int
    ptx: str
    file: str = ""
    line: int = 0
    text: str = ""  # of that line
    calls: tuple[CallLine, ...] = ()  # that led there, the innermost first

    def __str__(self) -> str:
        who = f"thread {self.thread}" if self.thread is not None else f"several threads of warp {self.warp}"
        shown = f"{self.what} by " + ("the host" if self.block is None else f"{who} of block {self.block}")
        if self.line:
            shown += f"\n    {self.file}:{self.line}"
            shown += _pointed(self.text)
        for call in self.calls:
            shown += f"\n    called at {call.file}:{call.line}{_pointed(call.text)}"
        return shown + (f"\n    PTX line {self.ptx_line}: {_short(self.ptx)}" if self.ptx_line else "")

    @property
    def location(self) -> tuple[Any, ...]:
        """The line of the program and the calls that led there: of its source if it is known, else of its PTX."""
        if not self.line:
            return "", self.ptx_line
        return self.file, self.line, *((call.file, call.line) for call in self.calls)


def _pointed(text: str) -> str:
    body = _short(text.strip())
    return f"\n      {body}\n      {'^' * len(body)}" if body else ""


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in one launch.

    ``tool`` is what compute-sanitizer calls the check (``memcheck``, ``initcheck``, ``racecheck``,
    ``synccheck``), or ``asyncheck`` for what it has no name for. ``count`` is how often it was seen. ``level`` is
    "error"; "warning" for values that are undefined, of which GPUs make something; or "info" for what did no harm
    because of the values that this launch had.
    """

    tool: str
    kind: str
    message: str
    advice: str
    kernel: str
    count: int = 1
    space: str = ""
    address: int | None = None
    array: str = ""
    now: Access | None = None
    before: Access | None = None
    level: str = "error"

    def __str__(self) -> str:
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        grave = "" if self.level == "error" else f" ({self.level})"
        parts = [f"{self.tool}{grave}: {self.message}{times}"] + [f"  in kernel {self.kernel}"] * bool(
            self.kernel
        )
        parts += [f"  {side}" for side in (self.now, self.before) if side is not None]
        return "\n".join([*parts, f"  → {self.advice}"] if self.advice else parts)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def at_least(level: str, found: Iterable[Finding]) -> list[Finding]:
    """The findings of a level or a graver one."""
    if level not in LEVELS:
        raise ArgumentError("level", f"must be one of {', '.join(LEVELS)}", level)
    return [item for item in found if LEVELS.index(item.level) >= LEVELS.index(level)]
