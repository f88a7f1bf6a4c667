"""The kernels of a PTX text and their parameters, read from its declarations alone."""

from __future__ import annotations

import re

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.launch import Parameter

__all__ = ["entry_named", "read_entries", "read_target"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(
    r"\.param\s*(?:\.align\s+(?P<align>\d+)\s*)?\.(?P<type>[a-z]\w*)\s*"
    r"(?:\.ptr\b(?:\s*\.(?:global|shared|const|local))?(?:\s*\.align\s+\d+)?\s*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\[(?P<count>\d+)\])?"
)
_TARGET = re.compile(r"(?:^|\s)\.target\s+(sm_\d+[af]?)")
_BITS = re.compile(r"[a-z]+(\d+)")


def read_target(ptx: str) -> str:
    """The arch that a PTX text says it is for."""
    match = _TARGET.search(_COMMENT.sub("", ptx))
    if not match:
        raise ArgumentError("ptx", "must have a '.target sm_…' line", fix="is this a PTX text?")
    return match[1]


def read_entries(ptx: str) -> dict[str, tuple[Parameter, ...]]:
    """Every kernel of a PTX text with its parameters, in the order they stand in."""
    text = _COMMENT.sub("", ptx)
    return {match[1]: tuple(_parameters(match[1], match[2] or "")) for match in _ENTRY.finditer(text)}


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
    """The entry that a user means by ``name``: itself, or the one C++ function of that name."""
    if name in entries:
        return name
    # A C++ name is mangled as _Z, its length, itself, then its parameter types.
    mangled = [entry for entry in entries if re.match(rf"_Z{len(name)}{re.escape(name)}", entry)]
    if len(mangled) == 1:
        return mangled[0]
    if mangled:
        known = ", ".join(mangled)
        raise ArgumentError(
            "name", f"must name one kernel: {name!r} is overloaded", fix=f"use one of {known}"
        )
    readable = [_unmangled(entry) for entry in entries]
    if not readable:
        raise ArgumentError(
            "name",
            f"must name a kernel: {name!r} is not there",
            fix=f"the source has no __global__ function; a template is named as one instance, '{name}<32>'",
        )
    raise UnknownNameError("kernel", name, readable)


def _unmangled(entry: str) -> str:
    """The name that a mangled one begins with, namespaces included; without its parameters."""
    rest = entry.removeprefix("_ZN" if entry.startswith("_ZN") else "_Z")
    parts = []
    while (match := re.match(r"\d+", rest)) and rest != entry:
        end = match.end() + int(match[0])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    return "::".join(parts) or entry
