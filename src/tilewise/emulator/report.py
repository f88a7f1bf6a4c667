"""What went wrong, in the words of the program: kernel, block, thread, address, lines."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewise.emulator.build import Build
from tilewise.emulator.layout import FAULT, FaultKind, Space, Status
from tilewise.emulator.parse import parse
from tilewise.emulator.syntax import Instruction
from tilewise.errors import Deadlock, KernelFault

__all__ = ["Range", "deadlock", "fault", "place_of"]


@dataclass(frozen=True, slots=True)
class Range:
    """Memory that a launch may touch, and what to call it."""

    start: int
    size: int
    name: str


Said = Mapping[tuple[tuple[int, int, int], int], str]  # by block and thread


def fault(build: Build, record: bytes, ranges: Sequence[Range], shared_bytes: int, said: Said) -> KernelFault:
    """The error for a fault that compiled code recorded; ``said`` is what failed assertions say."""
    kind, line, x, y, z, linear = struct.unpack_from("<iIIIII", record, 0)
    (address,) = struct.unpack_from("<Q", record, FAULT.ADDRESS)
    size, space, write = struct.unpack_from("<III", record, FAULT.SIZE)
    what = _what(FaultKind(kind), address, size, Space(space), bool(write), ranges, build, shared_bytes)
    if kind == FaultKind.ASSERT:
        what = said.get(((x, y, z), linear), what)
    return KernelFault(what + place_of(build, (x, y, z), linear, line))


def place_of(build: Build, block: tuple[int, int, int], linear: int, line: int) -> str:
    """Kernel, block, thread and lines, as further lines of a message."""
    return f"\n  in kernel {build.entry}, block {block}, thread {_thread(linear, build.block)}{_lines(build, line)}"


def _what(
    kind: FaultKind,
    address: int,
    size: int,
    space: Space,
    write: bool,
    ranges: Sequence[Range],
    build: Build,
    shared_bytes: int,
) -> str:
    verb, name = ("write" if write else "read"), space.name.lower()
    match kind:
        case FaultKind.OUT_OF_BOUNDS:
            where = _nearest(address, ranges) if space == Space.GLOBAL else _room(space, build, shared_bytes)
            return f"out-of-bounds {verb} of {size} bytes at {name} address {address:#x}: {where}"
        case FaultKind.MISALIGNED:
            return f"misaligned {verb} of {size} bytes at {name} address {address:#x}: no multiple of {size}"
        case FaultKind.READ_ONLY:
            return f"write of {size} bytes to {name} address {address:#x}, which can only be read"
        case FaultKind.TRAP:
            return "the kernel trapped"
        case FaultKind.ASSERT:
            return "an assertion of the kernel failed"
        case FaultKind.BAD_BARRIER:
            return "a barrier above 15, a count of threads that is no multiple of 32, or two counts at one barrier"
        case FaultKind.BAD_INDEX:
            return "a brx.idx index beyond its table of targets"
        case FaultKind.BAD_CALL:
            return "a call through a pointer to no function that fits, or to one that is running already"
    return f"fault {int(kind)}"


def _room(space: Space, build: Build, shared_bytes: int) -> str:
    sizes = {
        Space.SHARED: ("the block has", shared_bytes),
        Space.LOCAL: ("the thread has", build.local_bytes),
        Space.CONST: ("the module has", len(build.constants)),
        Space.PARAM: ("the kernel has", build.parameter_bytes),
    }
    owner, size = sizes.get(space, ("there are", 0))
    return f"{owner} {size:,} bytes of it"


def _nearest(address: int, ranges: Sequence[Range]) -> str:
    if not ranges:
        return "the launch has no arrays"

    def distance(item: Range) -> int:
        if address < item.start:
            return item.start - address
        return max(0, address - item.start - item.size + 1)

    near = min(ranges, key=distance)
    if address < near.start:
        return f"{near.start - address:,} bytes before {near.name} ({near.size:,} bytes)"
    end = near.start + near.size
    if address >= end:
        return f"{address - end:,} bytes past the end of {near.name} ({near.size:,} bytes)"
    return f"it runs over the end of {near.name} ({near.size:,} bytes)"


def _thread(linear: int, block: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = block
    return linear % x, linear // x % y, linear // (x * y)


def _lines(build: Build, line: int) -> str:
    """The PTX line with its text, and the CUDA line it came from."""
    if not line:
        return ""
    lines = build.ptx.splitlines()
    text = lines[line - 1].strip() if line <= len(lines) else ""
    shown = f"\n  PTX line {line}: {text}"
    module = parse(build.ptx)
    for function in module.functions.values():
        for item in function.body:
            if isinstance(item, Instruction) and item.line == line and item.source:
                return f"{shown}\n  {module.files.get(item.file, 'CUDA source')}:{item.source}"
    return shown


def deadlock(
    build: Build,
    block: tuple[int, int, int],
    waiting: Sequence[tuple[int, int, list[int], int]],
    asks: bool = False,
) -> Deadlock:
    """The error when no warp can go on: who waits for what."""
    shown = []
    for warp, status, barriers, line in waiting[:8]:
        if barriers:
            names = ", ".join(map(str, barriers))
            shown.append(f"  warp {warp} waits at barrier {names}{_lines(build, line)}")
        elif status == Status.WAITING:
            shown.append(f"  warp {warp} has lanes that wait for others of its lanes{_lines(build, line)}")
        else:
            shown.append(f"  warp {warp} waits in a loop for memory to change")
    if len(waiting) > 8:
        shown.append(f"  and {len(waiting) - 8} more warps")
    left = build.warps - len(waiting)
    gone = f"; {left} of its {build.warps} warps have left" if left else ""
    why = "no block gets on" if asks else "every warp waits"
    return Deadlock(f"deadlock in kernel {build.entry}, block {block}: {why}{gone}\n" + "\n".join(shown))
