"""The assembler's report on each kernel: registers, shared and constant bytes, barriers, spills."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from tilewise.toolchain.binary import Resources

__all__ = ["constant_bytes", "read_report"]

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_BARRIERS = re.compile(r"used (\d+) barriers")
_BYTES = re.compile(r"(\d+)(?:\+(\d+))? bytes (smem|lmem|cmem)")


def read_report(log: str, cubin: bytes) -> dict[str, Resources]:
    """Resources by entry name, from the log of one compilation and the machine code it made."""
    constants = constant_bytes(cubin)
    found: dict[str, Resources] = {}
    entry, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack = match[1], (0, 0, 0)
        elif match := _STACK.search(line):
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry:
            sizes = {"smem": 0, "lmem": 0, "cmem": 0}
            for first, second, where in _BYTES.findall(match[2]):
                sizes[where] += int(first) + int(second or 0)
            barriers = _BARRIERS.search(match[2])
            found[entry] = Resources(
                registers=int(match[1]),
                shared_bytes=sizes["smem"],
                # From sm_90 on the report leaves constants out; the machine code's own sections have them.
                constant_bytes=sizes["cmem"] or constants.get(entry, 0),
                barriers=int(barriers[1]) if barriers else 0,
                stack_bytes=stack[0],
                spill_store_bytes=stack[1],
                spill_load_bytes=stack[2],
                local_bytes=sizes["lmem"],
            )
            entry = ""
    return found


def constant_bytes(cubin: bytes) -> dict[str, int]:
    """Bytes of each kernel's constant banks, from the section table of the machine code."""
    totals: dict[str, int] = {}
    for name, size in _sections(cubin):
        match = re.fullmatch(r"\.nv\.constant\d+\.(.+)", name)
        if match:
            totals[match[1]] = totals.get(match[1], 0) + size
    return totals


def _sections(cubin: bytes) -> Iterator[tuple[str, int]]:
    """Name and size of each section of a 64-bit little-endian ELF file."""
    if len(cubin) < 64 or cubin[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    for header in headers:
        start = names_at + header[0]
        yield cubin[start : cubin.index(b"\0", start)].decode(), header[5]
