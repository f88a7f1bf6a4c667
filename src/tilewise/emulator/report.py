"""What went wrong, in the words of the program: kernel, block, thread, address, lines."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.emulator.build import Build
from tilewise.emulator.layout import FAULT, FaultKind, Space
from tilewise.emulator.parse import parse
from tilewise.emulator.syntax import Instruction
from tilewise.errors import Deadlock, KernelFault

__all__ = ["Range", "Waiting", "deadlock", "fault", "place_of"]

_LINE_SHOWN = 200  # characters of a PTX line


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
            return (
                "a barrier above 15, a count of threads that is no multiple of 32, two counts at one barrier, "
                "or lanes of one warp that name different ones"
            )
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


def _lines(build: Build, line: int, indent: str = "  ") -> str:
    """The PTX line with its text, and the CUDA line it came from."""
    if not line:
        return ""
    lines = build.ptx.splitlines()
    text = lines[line - 1].strip() if line <= len(lines) else ""
    text = text if len(text) <= _LINE_SHOWN else text[:_LINE_SHOWN] + "…"
    shown = f"\n{indent}PTX line {line}: {text}"
    module = parse(build.ptx)
    for function in module.functions.values():
        for item in function.body:
            if isinstance(item, Instruction) and item.line == line and item.source:
                return f"{shown}\n{indent}{module.files.get(item.file, 'CUDA source')}:{item.source}"
    return shown


@dataclass(slots=True)
class Waiting:
    """A warp that is not done; of its lanes, those that live, and those that wait for other lanes."""

    warp: int
    live: int
    meeting: int
    line: int  # of the PTX, where lanes wait for other lanes
    loop: int  # line of the loop in which it looked at memory last
    barriers: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    # number, lanes that wait there, PTX line, threads that came, threads that it is for


def deadlock(
    build: Build, block: tuple[int, int, int], waiting: Sequence[Waiting], asks: bool = False
) -> Deadlock:
    """The error when no warp can go on: who waits for what. ``asks``: some look at memory in a loop."""
    said: dict[str, list[str]] = {}  # what is waited for → who waits
    for item in waiting:
        free = item.live & ~item.meeting
        for number, lanes, line, arrived, wanted in item.barriers:
            free &= ~lanes
            why = f"at barrier {number}, where {arrived} of {wanted} threads have come"
            said.setdefault(why + _lines(build, line, "    "), []).append(_who(item, lanes))
        if item.meeting:
            why = "for other lanes of the warp" + _lines(build, item.line, "    ")
            said.setdefault(why, []).append(_who(item, item.meeting))
        if free:
            why = "in a loop for memory to change" + _lines(build, item.loop, "    ") if asks else "for those"
            said.setdefault(why, []).append(_who(item, free))
    shown = []
    for why, who in said.items():
        more = f" and {len(who) - 8} more" if len(who) > 8 else ""
        many = len(who) > 1 or who[0].startswith("lanes")
        shown.append(f"  {', '.join(who[:8])}{more} {'wait' if many else 'waits'} {why}")
    left = build.warps - len(waiting)
    gone = f"; {left} of its {build.warps} warps have left" if left else ""
    title = "no block gets on" if asks else "every warp waits"
    return Deadlock(f"deadlock in kernel {build.entry}, block {block}: {title}{gone}\n" + "\n".join(shown))


def _who(item: Waiting, lanes: int) -> str:
    if lanes == item.live:
        return f"warp {item.warp}"
    return f"lanes {lanes:#010x} of warp {item.warp}"
