"""The kernels of a PTX text and their parameters, read from its declarations alone."""

from __future__ import annotations

import functools
import math
import re

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.launch import Dim3, Parameter, readable
from tilewise.toolchain.binary import Entry

__all__ = ["entry_named", "read_entries", "read_moved_registers", "read_target"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(
    r"\.param\s*(?:\.align\s+(?P<align>\d+)\s*)?\.(?P<type>[a-z]\w*)\s*"
    r"(?:\.ptr\b(?:\s*\.(?:global|shared|const|local))?(?:\s*\.align\s+\d+)?\s*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\[(?P<count>\d+)\])?"
)
_THREADS = re.compile(r"\.(maxntid|reqntid)\s+(\d+(?:\s*,\s*\d+){0,2})")
_TARGET = re.compile(r"(?:^|\s)\.target\s+(sm_\d+[af]?)")
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)?\.(?:entry|func)\b", re.MULTILINE)
_MOVED = re.compile(r"\bsetmaxnreg\.(inc|dec)[\w.]*\s+(\d+)")
_BITS = re.compile(r"[a-z]+(\d+)")


def read_target(ptx: str) -> str:
    """The arch that a PTX text names as its target."""
    match = _TARGET.search(_COMMENT.sub("", ptx))
    if not match:
        raise ArgumentError("ptx", "must have a '.target sm_…' line", fix="is this a PTX text?")
    return match[1]


def read_entries(ptx: str) -> dict[str, Entry]:
    """Every kernel of a PTX text with its parameters, in the order they stand in."""
    text = _COMMENT.sub("", ptx)
    found = {}
    for match in _ENTRY.finditer(text):
        rules = {
            rule[1]: rule[2] for rule in _THREADS.finditer(text[match.end() : text.find("{", match.end())])
        }
        most, needed = (_sizes(rules.get(name)) for name in ("maxntid", "reqntid"))
        parameters = tuple(_parameters(match[1], match[2] or ""))
        found[match[1]] = Entry(match[1], parameters, None, math.prod(most) if most else None, needed)
    return found


@functools.lru_cache(256)
def read_moved_registers(ptx: str, entry: str) -> tuple[int | None, int | None]:
    """The fewest registers a thread that a kernel takes by setmaxnreg, and the fewest it leaves; None: it does not."""
    if "setmaxnreg" not in ptx:
        return None, None
    text = _COMMENT.sub("", ptx)
    begin = next((match.end() for match in _ENTRY.finditer(text) if match[1] == entry), len(text))
    end = _FUNCTION.search(text, begin)
    moved: dict[str, list[int]] = {"inc": [], "dec": []}
    for match in _MOVED.finditer(text, begin, end.start() if end else len(text)):
        moved[match[1]].append(int(match[2]))
    return min(moved["inc"], default=None), min(moved["dec"], default=None)


def _sizes(text: str | None) -> Dim3 | None:
    if text is None:
        return None
    x, y, z = [*map(int, text.split(",")), 1, 1][:3]
    return x, y, z


def _parameters(entry: str, text: str) -> list[Parameter]:
    found = []
    for part in filter(str.strip, text.split(",")):
        match = _PARAMETER.fullmatch(part.strip())
        bits = _BITS.fullmatch(match["type"]) if match else None
        if not match or not bits:
            raise ArgumentError("ptx", f"has a parameter of {entry} that cannot be read", part.strip())
        size = int(bits[1]) // 8
        align = int(match["align"] or size)
        found.append(Parameter(match["name"], match["type"], size * int(match["count"] or 1), align))
    return found


def entry_named(name: str, entries: list[str]) -> str:
    """The entry that a user's ``name`` stands for: itself, or the one C++ function of that name."""
    if name in entries:
        return name
    # A C++ name is mangled as _Z, its length, itself, then its parameter types.
    mangled = [entry for entry in entries if re.match(rf"_Z{len(name)}{re.escape(name)}", entry)]
    if len(mangled) == 1:
        return mangled[0]
    written = [entry for entry in entries if "".join(readable(entry).split()) == "".join(name.split())]
    if len(written) == 1:  # an instance of a template
        return written[0]
    if mangled:
        known = ", ".join(mangled)
        raise ArgumentError(
            "name", f"must name one kernel: {name!r} is overloaded", fix=f"use one of {known}"
        )
    shown = [readable(entry) for entry in entries]
    if not shown:
        raise ArgumentError(
            "name",
            f"must name a kernel: {name!r} is not there",
            fix=f"the source has no __global__ function; a template is named as one instance, '{name}<32>'",
        )
    raise UnknownNameError("kernel", name, shown)
