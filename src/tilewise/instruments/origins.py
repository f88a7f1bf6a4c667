"""A line of PTX → the lines of the sources that it came from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tilewise.instruments.findings import Access, CallLine
from tilewise.toolchain.binary import Binary

__all__ = ["Origins"]

_DEEPEST = 8  # nested calls that are listed
_OFFSETS = (1 << 24) - 1  # of an address of shared memory: where it is in its block's
_MOST_SHARED = 227 << 10  # bytes that any GPU gives a block


class Origins:
    """The lines of a kernel: of its PTX, and those of the sources that they came from."""

    def __init__(self, build: Any, binary: Binary) -> None:
        self._build, self._binary = build, binary
        self._ptx = build.ptx.splitlines()
        self._sources: dict[str, list[str]] = {}
        self._from: dict[int, list[tuple[str, int]]] | None = None

    def shared_advice(self, end: int, dynamic: int) -> str:
        """What to do about an access to shared memory up to a byte beyond it, where a launch says how much there is."""
        needed = (end & _OFFSETS) - self._build.shared_bytes
        if ".extern .shared" not in self._build.ptx or not 0 < needed <= _MOST_SHARED:
            return ""
        return (
            f"give the launch more dynamic shared memory: it has {dynamic:,} bytes, and this access needs {needed:,} "
            f"(shared={needed}, --shared {needed}); or keep the index within what there is"
        )

    def access(self, side: Any, what: str) -> Access:
        x, y, _ = self._build.block
        linear = side.thread
        thread = None if linear is None else (linear % x, linear // x % y, linear // (x * y))
        return self.at(side.line, what, side.block, thread, side.warp)

    def at(
        self,
        line: int,
        what: str,
        block: tuple[int, int, int],
        thread: tuple[int, int, int] | None,
        warp: int = 0,
    ) -> Access:
        text = self._ptx[line - 1].strip() if 0 < line <= len(self._ptx) else ""
        if self._from is None:
            self._from = _origins(self._ptx)
        places = [
            CallLine(_named(file), number, self._text(file, number))
            for file, number in self._from.get(line, [])
        ]
        if not places:
            return Access(what, block, thread, warp, line, text)
        first, *calls = places
        return Access(what, block, thread, warp, line, text, first.file, first.line, first.text, tuple(calls))

    def _text(self, file: str, number: int) -> str:
        lines = self._lines(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def _lines(self, file: str) -> list[str]:
        if file not in self._sources:
            self._sources[file] = self._read(file).splitlines() if file else []
        return self._sources[file]

    def _read(self, file: str) -> str:
        if Path(file).name == Path(self._binary.filename).name:
            return self._binary.source
        own = Path(__file__).parents[1] / "include" / _named(file)
        for path in (own, Path(file)):
            if path.is_file():
                return path.read_text(encoding="utf-8", errors="replace")
        return ""


def _named(file: str) -> str:
    """A file's name for messages: headers of the package by their name in it."""
    parts = Path(file).parts
    return "/".join(parts[-2:]) if len(parts) > 1 and parts[-2] == "tilewise" else file


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_PLACE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")


def _origins(lines: list[str]) -> dict[int, list[tuple[str, int]]]:
    """By line of the PTX: file and line of the source, then those of the calls that led there."""
    files = {match[1]: match[2] for line in lines if (match := _FILE.match(line))}
    callers: dict[tuple[str, ...], tuple[str, ...]] = {}  # of the places that were named last
    found: dict[int, list[tuple[str, int]]] = {}
    now: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if match := _PLACE.match(line):
            now = match.group(1, 2, 3)
            callers[now] = match.group(4, 5, 6) if match[4] else ()
        elif now and now[1] != "0":
            chain: list[tuple[str, int]] = []
            at = now
            while at and len(chain) < _DEEPEST:
                chain.append((files.get(at[0], "CUDA source"), int(at[1])))
                at = callers.get(at, ())
            found[number] = chain
        if line.startswith("}"):
            now = ()
    return found
