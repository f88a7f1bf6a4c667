"""Figures by line: of the CUDA source, of the PTX, of the machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.emulator.profiling.counted import Counts
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.spills import LOCAL
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import own_headers
from tilewise.toolchain.lines import ptx_locations

__all__ = [
    "FIGURES",
    "LineFigures",
    "SourceFinder",
    "by_cuda",
    "by_machine",
    "by_ptx",
    "figure_names",
    "listed_rows",
    "listing",
]

_LARGEST_FILE = 1 << 24  # bytes of a source that is read for its lines
FIGURES = ("instructions", "wavefronts", "conflicts", "sectors", "ideal")


@dataclass(slots=True)
class LineFigures:
    """Figures of one line."""

    file: str
    line: int
    text: str
    instructions: float = 0.0
    wavefronts: float = 0.0
    conflicts: float = 0.0
    sectors: float = 0.0
    ideal_sectors: float = 0.0
    local: float = 0.0
    """Instructions that load or store local memory: spilled registers, arrays that are indexed."""

    @property
    def excess_sectors(self) -> float:
        """Sectors beyond those of as many bytes side by side."""
        return max(0.0, self.sectors - self.ideal_sectors)


def _worst_first(lines: Iterable[LineFigures]) -> list[LineFigures]:
    return sorted(
        lines, key=lambda item: (-item.conflicts, -item.excess_sectors, -item.instructions, item.line)
    )


class _Lines:
    """Figures by file and line."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], LineFigures] = {}

    def at(self, file: str, line: int, text: str) -> LineFigures:
        return self.found.setdefault((file, line), LineFigures(file, line, text))


def by_ptx(machine: Machine, counts: Counts, binary: Binary) -> list[LineFigures]:
    """Return figures by PTX line: instructions are the PTX's, accesses the machine code's."""
    lines, text = _Lines(), binary.ptx.split("\n")

    def at(line: int) -> LineFigures:
        return lines.at(binary.filename if binary.is_foreign else "PTX", line, text[line - 1].strip())

    for item in counts.instruction_runs():
        at(item.line).instructions += float(item.runs.sum())
    for ran in machine.ran:
        if ran.instruction.ptx and ran.instruction.family in LOCAL:
            at(ran.instruction.ptx).local += float(ran.runs.sum())
    for access in machine.accesses:
        _add(at(access.instruction.ptx or 1), access)
    return _worst_first(lines.found.values())


def by_cuda(machine: Machine, counts: Counts, binary: Binary) -> list[LineFigures]:
    """Return figures by line of the source; none if the PTX names no source."""
    find, lines = SourceFinder(binary), _Lines()
    if not find.locations:
        return []

    def at(ptx: int | None) -> LineFigures | None:
        place = find.place(ptx)
        return lines.at(*place) if place else None

    for item in machine.ran:
        if where := at(item.instruction.ptx):
            _add_runs(where, item)
    for access in machine.accesses:
        if where := at(access.instruction.ptx):
            _add(where, access)
    return _worst_first(lines.found.values())


def by_machine(machine: Machine) -> list[LineFigures]:
    """Return figures by machine instruction; the line is its address."""
    lines = _Lines()
    for item in machine.ran:
        _add_runs(lines.at("machine code", item.instruction.offset, item.instruction.text), item)
    for access in machine.accesses:
        _add(lines.at("machine code", access.instruction.offset, access.instruction.text), access)
    return _worst_first(lines.found.values())


def _add_runs(line: LineFigures, item: MachineRuns) -> None:
    runs = float(item.runs.sum())
    line.instructions += runs
    line.local += runs * (item.instruction.family in LOCAL)


def _add(line: LineFigures, access: MachineAccess) -> None:
    line.wavefronts += float(access.waves.sum())
    line.conflicts += float((access.waves - access.phases).sum())
    line.sectors += float(access.sectors.sum())
    line.ideal_sectors += float(access.ideal_sectors.sum())


class SourceFinder:
    """Where lines of the PTX come from: the source, and the headers that came with it."""

    def __init__(self, binary: Binary) -> None:
        self.locations = {} if binary.is_foreign else ptx_locations(binary.ptx)
        self._ptx = (binary.filename, binary.ptx.split("\n"))
        self._files = {binary.filename: binary.source.split("\n")}
        self._files |= {name: text.split("\n") for name, text in own_headers().items()}
        self._others: dict[str, list[str]] = {}

    def place(self, ptx: int | None) -> tuple[str, int, str] | None:
        """File, line and text of the source; None where the PTX does not say."""
        found = self.locations.get(ptx or 0)
        if found is None:
            return None
        file, line = found.source
        plain = file.replace("\\", "/")
        name = next((name for name in self._files if plain.endswith(name)), None)
        lines = self._read(file) if name is None else self._files[name]
        # Of a header that lies elsewhere, the end of its path says enough.
        name = "/".join(plain.split("/")[-2:]) if name is None else name
        return name, line, lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        """The lines of a file that is no header of ours; none if it cannot be read.

        NOTE: a source may name any file by ``#line``, devices and pipes that never end among them.
        """
        if file not in self._others:
            lines: list[str] = []
            with contextlib.suppress(OSError, ValueError):
                path = Path(file)
                if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
                    lines = path.read_text("utf-8", "replace").split("\n")
            self._others[file] = lines
        return self._others[file]

    def describe(self, ptx: int | None) -> str:
        """The same as text; the line of the PTX where it does not say."""
        file, lines = self._ptx
        number = min(max(ptx or 1, 1), len(lines))
        file, line, text = self.place(ptx) or (file, number, lines[number - 1].strip())
        return f"{file}:{line}  {text}"


def listing(lines: Iterable[LineFigures], most: int = 20, width: int = 70) -> str:
    """Lines with their figures as a table; local memory has a column where some line uses it."""
    shown = list(lines)[:most]
    names = figure_names(shown)
    rows = [[*names, "line", ""], *listed_rows(shown, most, width)]
    count = len(names)
    widths = [max(len(row[i]) for row in rows) for i in range(count + 1)]
    return "\n".join(
        "  ".join(
            [
                *(f"{row[i]:>{widths[i]}}" for i in range(count)),
                f"{row[count]:<{widths[count]}}",
                row[count + 1],
            ]
        ).rstrip()
        for row in rows
    )


def figure_names(lines: Sequence[LineFigures]) -> tuple[str, ...]:
    """What the columns of figures are called: :data:`FIGURES`, and local memory where some line uses it."""
    return (*FIGURES, "local") if any(item.local for item in lines) else FIGURES


def listed_rows(lines: Iterable[LineFigures], most: int = 20, width: int = 70) -> list[list[str]]:
    """By line: its figures in the order of :func:`figure_names`, where it is, and its text."""
    shown = list(lines)[:most]
    rows = []
    for item in shown:
        figures = [item.instructions, item.wavefronts, item.conflicts, item.sectors, item.ideal_sectors]
        figures += [item.local] if len(figure_names(shown)) > len(figures) else []
        place = f"{item.file}:{item.line:#x}" if item.file == "machine code" else f"{item.file}:{item.line}"
        rows.append(
            [*(f"{round(figure):,}" if figure else "" for figure in figures), place, item.text[:width]]
        )
    return rows
