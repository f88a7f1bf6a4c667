"""Line tables: which CUDA line and which PTX line each machine instruction comes from.

Machine code compiled with ``-lineinfo`` carries both tables. ``nvdisasm``, a program from a wheel of its
own, reads them; the PTX side of the way, from PTX line to CUDA line, stands in the PTX as ``.loc``.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tilewise.errors import ArgumentError, ToolError, UnknownNameError
from tilewise.toolchain import cache

__all__ = [
    "LineTable",
    "Location",
    "MachineInstruction",
    "SourceLine",
    "disassemble",
    "line_table",
    "ptx_locations",
]

_KIND = "lines"  # in the cache
_FORMAT = "3"  # of what is cached
_TIMEOUT = 120  # seconds; a kernel of 4,000 instructions takes half a second
_PTX_FILE = (
    ".nv_debug_ptx_txt"  # what nvdisasm calls the PTX inside the machine code, with or without a number
)

# What nvdisasm prints.
_SECTION = re.compile(r"\t\.section\t\.text\.([^,\s]+)")
_PLACE = re.compile(r'\t//## File "(.*?)", line (\d+)(?: inlined at "(.*)", line (\d+))?')
_LABEL = re.compile(r"([^\s/].*):")
_OWN_ROUTINE = re.compile(r"\$__internal_\d+_\$.*")  # the assembler's: a division's slow path and the like
_INSTRUCTION = re.compile(r"\s*\{?\s*/\*([0-9a-f]{4,})\*/\s+([^;]*?)\s*;.*")
_TEXT = re.compile(r"(?:(@!?U?P(?:T|\d+))\s+)?([^\s;]+)")
_MEMORY = re.compile(r"(?:LD|LDG|LDS|LDL|LDC|LDGSTS|ST|STG|STS|STL|ULDC|LDCU)(?:\.|$)")
_WIDTH = re.compile(r"[US]?(8|16|32|64|128|256)")

# What the compiler writes into PTX.
_QUOTED_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"')
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:\\.|[^"\\\n])*)"', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_OCTAL = re.compile(r"(?:\\[0-3][0-7]{2})+")


class SourceLine(NamedTuple):
    """A line of a source file, counted from 1. The file is as the compiler recorded it: mostly absolute."""

    file: str
    line: int


class Location(NamedTuple):
    """A source line, and the lines of the calls it was inlined through, the nearest first."""

    source: SourceLine
    callers: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One machine instruction and where it comes from.

    ``cuda`` and ``ptx`` are None where the machine code says nothing: it was compiled without line tables,
    or the instruction belongs to one of the assembler's own routines.

    NOTE: the assembler's own table of CUDA lines has faults that NVRTC 13 still shows. Of two calls of one
    function in a row, ``callers`` names the first for both; and after nested calls across files, a right
    line may stand with the wrong file. :meth:`LineTable.through` goes by the PTX and has neither fault.
    """

    offset: int
    text: str
    cuda: SourceLine | None = None
    callers: tuple[SourceLine, ...] = ()
    ptx: int | None = None
    label: str = ""
    """By which jumps name it, if any do."""

    @property
    def predicate(self) -> str | None:
        """What guards it, such as ``"@!P0"``."""
        found = _TEXT.match(self.text)
        return found[1] if found else None

    @property
    def opcode(self) -> str:
        """The opcode with its modifiers, such as ``"LDS.U.128"``."""
        found = _TEXT.match(self.text)
        return found[2] if found else ""

    @property
    def never(self) -> bool:
        """Whether its guard is constantly false. NOTE: the assembler puts such loads beside copies."""
        return self.predicate in ("@!PT", "@!UPT")

    @property
    def family(self) -> str:
        """The opcode without its modifiers, such as ``"LDS"``."""
        return self.opcode.partition(".")[0]

    @property
    def bits(self) -> int | None:
        """How many bits each lane loads or stores; None where it is no plain load, store or copy."""
        opcode = self.opcode
        if not _MEMORY.match(opcode):
            return None
        widths = [int(found[1]) for part in opcode.split(".")[1:] if (found := _WIDTH.fullmatch(part))]
        return widths[-1] if widths else 32


@dataclass(frozen=True)
class LineTable:
    """The instructions of one entry in order of address, its subroutines included."""

    instructions: tuple[MachineInstruction, ...]

    @functools.cached_property
    def by_cuda(self) -> Mapping[SourceLine, tuple[MachineInstruction, ...]]:
        """The instructions of each CUDA line."""
        return _grouped(self.instructions, lambda instruction: instruction.cuda)

    @functools.cached_property
    def by_ptx(self) -> Mapping[int, tuple[MachineInstruction, ...]]:
        """The instructions of each PTX line."""
        return _grouped(self.instructions, lambda instruction: instruction.ptx)

    def through(self, ptx: str) -> LineTable:
        """The same instructions with the CUDA lines and calls that ``ptx``, their PTX, names.

        Where the PTX names none, an instruction has none.
        """
        locations = ptx_locations(ptx)
        instructions = []
        for item in self.instructions:
            found = locations.get(item.ptx or 0)
            cuda, callers = found if found else (None, ())
            instructions.append(replace(item, cuda=cuda, callers=callers))
        return LineTable(tuple(instructions))

    def at(self, file: str | os.PathLike[str], line: int) -> tuple[MachineInstruction, ...]:
        """The instructions of CUDA line ``line`` of the file whose path ends in ``file``."""
        wanted = _path_parts(os.fspath(file))
        found: list[MachineInstruction] = []
        for source, instructions in self.by_cuda.items():
            parts = _path_parts(source.file)
            if source.line == line and parts[len(parts) - len(wanted) :] == wanted:
                found += instructions
        return tuple(sorted(found, key=lambda instruction: instruction.offset))


def disassemble(cubin: bytes) -> str:
    """The machine code in ``cubin`` as a listing, every entry in it."""
    return _nvdisasm(_tool(), cubin, "--print-code")


def line_table(cubin: bytes, entry: str) -> LineTable:
    """The line table of ``entry`` in ``cubin``; remembered in the disk cache."""
    tool = _tool()
    key = cache.digest(_FORMAT, *_identity(tool), cubin)
    store = cache.default()
    tables = store.get(_KIND, key)
    table = _load(tables[entry]) if tables and entry in tables else None
    if table is not None:
        return table
    listing = _nvdisasm(tool, cubin, "--print-code", "--print-line-info-inline", "--print-line-info-ptx")
    found = {name: tuple(instructions) for name, instructions in _read_listing(listing).items()}
    if not found:
        raise ToolError(f"{tool} printed no code that tilewise can read; pip install -U nvidia-cuda-nvdisasm")
    store.put(_KIND, key, {name: _dump(instructions) for name, instructions in found.items()})
    if entry not in found:
        raise UnknownNameError("entry", entry, found)
    return LineTable(found[entry])


def ptx_locations(ptx: str) -> dict[int, Location]:
    """The CUDA line in force at each PTX line of a function's body, both counted from 1.

    A PTX line that the compiler gave no CUDA line (``.loc`` with line 0) is left out.
    """
    code = _QUOTED_OR_COMMENT.sub(_without_comment, ptx)
    files = {int(number): _plain_name(name) for number, name in _FILE.findall(code)}
    inlined: dict[tuple[int, int, int], tuple[SourceLine, ...]] = {}
    locations: dict[int, Location] = {}
    current: Location | None = None
    depth = 0
    for number, line in enumerate(code.split("\n"), 1):
        if directive := _LOC.match(line):
            file, row, column, *call = (None if group is None else int(group) for group in directive.groups())
            place = (file or 0, row or 0, column or 0)
            current = _located(place, call, files, inlined)
        if depth and current:
            locations[number] = current
        bare = _QUOTED.sub("", line)
        depth += bare.count("{") - bare.count("}")
        if not depth:
            current = None
    return locations


def _located(
    place: tuple[int, int, int],
    call: list[int | None],
    files: Mapping[int, str],
    inlined: dict[tuple[int, int, int], tuple[SourceLine, ...]],
) -> Location | None:
    """The location that a ``.loc`` gives. ``inlined`` remembers how each place was reached: a call's place
    comes first."""
    callers: tuple[SourceLine, ...] = ()
    if call and call[0] is not None:
        file, row, column = (number or 0 for number in call)
        callers = (SourceLine(files.get(file, ""), row), *inlined.get((file, row, column), ()))
    inlined[place] = callers
    file, row, _ = place
    return Location(SourceLine(files[file], row), callers) if row and file in files else None


def _without_comment(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith('"') else "\n" * text.count("\n")


@functools.cache
def _found_in_wheel() -> str | None:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility

        path: str | None = find_nvidia_binary_utility("nvdisasm")
        return path
    except Exception:  # the finder raises types of its own; without it, the PATH may still have the tool
        return None


def _tool() -> str:
    tool = _found_in_wheel() or shutil.which("nvdisasm")
    if tool is None:
        raise ToolError(
            "nvdisasm, which reads machine code, is not installed; pip install nvidia-cuda-nvdisasm"
        )
    return tool


def _identity(tool: str) -> tuple[str, ...]:
    """What distinguishes one version of the tool from another, without running it."""
    try:
        status = os.stat(tool)
    except OSError as error:
        raise ToolError(f"{tool} cannot be run ({error}); pip install -U nvidia-cuda-nvdisasm") from None
    return tool, str(status.st_size), str(status.st_mtime_ns)


def _nvdisasm(tool: str, cubin: bytes, *options: str) -> str:
    """Run nvdisasm. It takes its input from a file only."""
    if not bytes(cubin[:4]) == b"\x7fELF":
        raise ArgumentError("cubin", "must be machine code (an ELF file)", bytes(cubin[:16]))
    try:
        with tempfile.TemporaryDirectory(prefix="tilewise-") as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(cubin)
            done = _run(tool, *options, str(file))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ToolError(
            f"no temporary file can be written for nvdisasm ({reason}); set TMPDIR to a directory with room"
        ) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        reason = said[0].replace(str(file), "the machine code") if said else f"exit status {done.returncode}"
        raise ToolError(
            f"nvdisasm cannot read the machine code ({reason}); it may be damaged, or from a newer compiler: "
            "pip install -U nvidia-cuda-nvdisasm"
        )
    return done.stdout.decode("utf-8", "replace")


def _run(tool: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{tool} cannot be run ({error}); pip install -U nvidia-cuda-nvdisasm") from None


class _Place(NamedTuple):
    """One annotation of a listing: a source line and, where that was inlined, the line of the call."""

    source: SourceLine
    call: SourceLine | None


def _read_listing(listing: str) -> dict[str, list[MachineInstruction]]:
    """The instructions of each entry of an annotated listing.

    An annotation stands before the first instruction it holds for, and only where something changes.
    """
    entries: dict[str, list[MachineInstruction]] = {}
    instructions: list[MachineInstruction] = []
    places: list[_Place] = []
    cuda: SourceLine | None = None
    callers: tuple[SourceLine, ...] = ()
    ptx: int | None = None
    label = ""
    for line in listing.splitlines():
        if found := _INSTRUCTION.fullmatch(line):
            if places:
                cuda, *calls = _chain(places)
                callers, places = tuple(calls), []
            text = " ".join(found[2].split())
            instructions.append(MachineInstruction(int(found[1], 16), text, cuda, callers, ptx, label))
            label = ""
        elif found := _PLACE.fullmatch(line):
            if found[1].startswith(_PTX_FILE):
                ptx = int(found[2]) or None
            else:
                call = SourceLine(_listed_name(found[3]), int(found[4])) if found[3] else None
                places.append(_Place(SourceLine(_listed_name(found[1]), int(found[2])), call))
        elif found := _SECTION.match(line):
            instructions = entries.setdefault(found[1], [])
            places, cuda, callers, ptx, label = [], None, (), None, ""
        elif found := _LABEL.fullmatch(line):
            label = "" if found[1].startswith(".text.") else found[1]
            if _OWN_ROUTINE.fullmatch(label):
                # NOTE: nvdisasm prints nothing here, so the line of whatever stands before would be taken.
                places, cuda, callers, ptx = [], None, (), None
    return {name: instructions for name, instructions in entries.items() if instructions}


def _chain(places: Iterable[_Place]) -> list[SourceLine]:
    """The innermost line and its calls, outwards. Of several places in a row the last one holds."""
    chain: list[SourceLine] = []
    expected: SourceLine | None = None
    for source, call in places:
        if source != expected:
            chain = []
        chain.append(source)
        expected = call
    return [*chain, expected] if expected else chain


def _listed_name(name: str) -> str:
    """A file name as nvdisasm prints it, as the PTX has it.

    NOTE: the assembler takes the last backslash of a name for a path separator and prints it as a slash,
    even when it begins an escape of a character outside ASCII.
    """
    name = re.sub(r"(\\[2-3][0-7]{2})/([2][0-7]{2})", r"\1\\\2", name)
    return _plain_name(name.replace("\\/", "\\\\"))


def _plain_name(name: str) -> str:
    """A file name without the escapes that the compiler puts into it."""

    def decoded(found: re.Match[str]) -> str:
        octets = bytes(int(octal, 8) for octal in found[0].split("\\")[1:])
        return octets.decode("utf-8", "replace")

    return _OCTAL.sub(decoded, name.replace("\\\\", "\0")).replace("\0", "\\")


def _path_parts(path: str) -> list[str]:
    return [part for part in re.split(r"[/\\]", path) if part not in ("", ".")]


_Key = TypeVar("_Key")


def _grouped(
    instructions: Iterable[MachineInstruction], key: Callable[[MachineInstruction], _Key | None]
) -> dict[_Key, tuple[MachineInstruction, ...]]:
    groups: dict[_Key, list[MachineInstruction]] = {}
    for instruction in instructions:
        where = key(instruction)
        if where is not None:
            groups.setdefault(where, []).append(instruction)
    return {where: tuple(group) for where, group in groups.items()}


def _dump(instructions: Iterable[MachineInstruction]) -> bytes:
    """Instructions as JSON: the file names once, and a short row each."""
    files: dict[str, int] = {}

    def listed(source: SourceLine) -> tuple[int, int]:
        return files.setdefault(source.file, len(files)), source.line

    rows = [
        (
            instruction.offset,
            instruction.text,
            listed(instruction.cuda) if instruction.cuda else None,
            [listed(caller) for caller in instruction.callers],
            instruction.ptx,
            instruction.label,
        )
        for instruction in instructions
    ]
    return json.dumps({"files": list(files), "rows": rows}, separators=(",", ":")).encode()


def _load(data: bytes) -> LineTable | None:
    try:
        return LineTable(tuple(_loaded(json.loads(data))))
    except (KeyError, TypeError, ValueError, IndexError):
        return None  # of another version of tilewise: made again


def _loaded(table: Any) -> Iterator[MachineInstruction]:
    files = table["files"]
    for offset, text, cuda, callers, ptx, label in table["rows"]:
        yield MachineInstruction(
            offset,
            text,
            SourceLine(files[cuda[0]], cuda[1]) if cuda else None,
            tuple(SourceLine(files[file], line) for file, line in callers),
            ptx,
            label,
        )
