"""A finding: something wrong in one launch, in the words of the program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Access", "Finding"]

Dim3 = tuple[int, int, int]
_WIDE = 100  # characters of a line that are shown


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding: who touched memory, and where in the source."""

    what: str  # "write", "read", "copy" …
    block: Dim3
    thread: Dim3 | None  # None for several threads of one warp
    warp: int
    ptx_line: int
    ptx: str
    file: str = ""
    line: int = 0
    text: str = ""  # of that line

    def __str__(self) -> str:
        who = f"thread {self.thread}" if self.thread is not None else f"several threads of warp {self.warp}"
        shown = f"{self.what} by {who} of block {self.block}"
        if self.line:
            shown += f"\n    {self.file}:{self.line}"
        if self.text:
            body = _short(self.text.strip())
            shown += f"\n      {body}\n      {'^' * len(body)}"
        return shown + (f"\n    PTX line {self.ptx_line}: {_short(self.ptx)}" if self.ptx_line else "")

    @property
    def place(self) -> tuple[str, int]:
        """The line of the program: of its source if it is known, else of its PTX."""
        return (self.file, self.line) if self.line else ("", self.ptx_line)


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in one launch.

    ``tool`` is what compute-sanitizer calls the check (``memcheck``, ``initcheck``, ``racecheck``,
    ``synccheck``), or ``asyncheck`` for what it has no name for. ``count`` is how often it was seen.
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

    def __str__(self) -> str:
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        parts = [f"{self.tool}: {self.message}{times}", f"  in kernel {self.kernel}"]
        parts += [f"  {side}" for side in (self.now, self.before) if side is not None]
        return "\n".join([*parts, f"  → {self.advice}"] if self.advice else parts)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
