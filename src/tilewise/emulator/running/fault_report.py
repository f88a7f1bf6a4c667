"""A recorded fault or a deadlock → an error that names kernel, block, thread, address and lines."""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from tilewise.emulator.build import Build
from tilewise.emulator.layout import (
    FAULT,
    OFFSETS,
    RANK_SHIFT,
    WINDOW,
    WINDOWS,
    ClusterFault,
    FaultKind,
    MbarrierFault,
    Space,
)
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.support.tensor_map_layout import OF_MAPS, WRONG
from tilewise.emulator.support.wgmma_descriptor import described
from tilewise.errors import Deadlock, KernelFault
from tilewise.launch import Dim3, Launch, readable

__all__ = [
    "Details",
    "Range",
    "Waiting",
    "deadlock",
    "describe_fault",
    "fault",
    "locate_thread",
    "name_arguments",
]

_LINE_SHOWN = 200  # characters of a PTX line
_MISUSED = {
    MbarrierFault.NOT_INITIALISED: "is not one: it was not initialised, or has been written over since",
    MbarrierFault.COUNT: "is given a count that it cannot have: from 1 to 1,048,575, or to 511 in .layout::v1",
    MbarrierFault.TOO_MANY: "has more arrivals than are pending in its phase: it was initialised with too low a count, "
    "or a thread arrives twice",
    MbarrierFault.BYTES: "would have more than 1,048,575 bytes to come, or come too many",
    MbarrierFault.COMPLETES: "would complete its phase by a .noComplete arrival",
}


@dataclass(frozen=True, slots=True)
class Range:
    """Memory that a launch may touch, and what to call it."""

    start: int
    size: int
    name: str


def name_arguments(ranges: Sequence[Range], packed: Sequence[bytes], labels: Sequence[str]) -> list[Range]:
    """The ranges, with the name of the argument that holds an address of theirs: alone, in a struct or a tensor map."""
    starts = [item.start for item in ranges]
    named: dict[int, list[str]] = {}
    for data, label in zip(packed, labels, strict=False):  # not all launches have labels
        for (address,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
            i = bisect.bisect_right(starts, address) - 1
            if i >= 0 and address < starts[i] + ranges[i].size and label not in named.setdefault(i, []):
                named[i].append(label)
    return [
        replace(item, name=f"{' and '.join(named[i])}, {item.name}") if named.get(i) else item
        for i, item in enumerate(ranges)
    ]


@dataclass(frozen=True, slots=True)
class Details:
    """What a fault was, one by one; ``kind`` is a name of ``FaultKind``, ``space`` a small one of ``Space``."""

    kind: str
    what: str  # "read" or "write"
    space: str
    address: int
    size: int
    block: Dim3
    thread: Dim3 = (0, 0, 0)
    line: int = 0  # of the PTX
    array: str = ""  # that it lies in, if in any


AssertionTexts = Mapping[tuple[Dim3, int], str]  # by block and thread


def fault(
    build: Build,
    record: bytes,
    ranges: Sequence[Range],
    shared_bytes: int,
    assertions: AssertionTexts,
    launch: Launch,
) -> KernelFault:
    """The error for a fault that compiled code recorded; ``assertions`` are the texts of failed assertions."""
    cluster = launch.cluster or (1, 1, 1)
    number, line, x, y, z, linear = struct.unpack_from("<iIIIII", record, 0)
    (address,) = struct.unpack_from("<Q", record, FAULT.ADDRESS)
    size, space_number, write = struct.unpack_from("<III", record, FAULT.SIZE)
    kind, space, block = FaultKind(number), Space(space_number), (x, y, z)
    touched = [item.name for item in ranges if item.start <= address < item.start + item.size]
    details = Details(
        *(kind.name, "write" if write else "read", space.name.lower(), address, size),
        *(block, _thread(linear, build.block), line),
        touched[0] if touched and space == Space.GLOBAL else "",
    )
    what = describe_fault(details, cluster, ranges, build, shared_bytes)
    if kind == FaultKind.TRAP and build.finds_workspace and not launch.cooperative:
        what = _NOT_COOPERATIVE
    if kind == FaultKind.ASSERT:
        what = assertions.get((block, linear), what)
    found = KernelFault(what + locate_thread(build, block, linear, line, cluster))
    found.details = details
    return found


def locate_thread(build: Build, block: Dim3, linear: int, line: int, cluster: Dim3 = (1, 1, 1)) -> str:
    """Kernel, block, thread and lines, as further lines of a message."""
    where = f"block {block}"
    if cluster != (1, 1, 1):
        (x, y, z), (sx, sy, sz) = block, cluster
        rank = x % sx + sx * (y % sy + sy * (z % sz))
        where += f" (rank {rank} in cluster {(x // sx, y // sy, z // sz)})"
    where += f", thread {_thread(linear, build.block)}"
    return f"\n  in kernel {readable(build.entry)}, {where}{_quote_line(build, line)}"


_NOT_COOPERATIVE = (
    "the kernel trapped, as grid.sync() does in a launch that is not cooperative: "
    "give it cooperative=True (--cooperative)"
)
# Faults whose message depends on nothing else.
_FIXED_TEXTS = {
    FaultKind.TRAP: "the kernel trapped",
    FaultKind.ASSERT: "an assertion of the kernel failed",
    FaultKind.BAD_INDEX: "a brx.idx index beyond its table of targets",
    FaultKind.BAD_BARRIER: (
        "a barrier above 15, a count of threads that is no multiple of 32, two counts at one barrier, "
        "or lanes of one warp that name different ones"
    ),
    FaultKind.WARPGROUP: (
        "a wgmma by less than a whole warpgroup: all 32 lanes of a warp have to come to it together, and "
        "the block must have all four warps, of which the first is a multiple of 4"
    ),
    FaultKind.STACK_OVERFLOW: "stack overflow: a function has called itself until the 16,384 bytes that each thread has"
    " for such calls were full",
    FaultKind.BAD_CALL: "a call through a pointer to no function that fits, or to one that is running already",
}


def describe_fault(
    found: Details, cluster: Dim3, ranges: Sequence[Range], build: Build, shared_bytes: int
) -> str:
    """The message for a fault, in one line."""
    verb, space, address, size = found.what, found.space, found.address, found.size
    at, kind = _describe_address(address, space, found.block, cluster), FaultKind[found.kind]
    match kind:
        case FaultKind.OUT_OF_BOUNDS:
            if space == "own" and " of block " in at:
                where = "an access without ::cluster reaches only the block's own shared memory"
            elif space == "global":
                where = _nearest(address, ranges)
            else:
                where = _describe_size(space, build, shared_bytes)
            return f"out-of-bounds {verb} of {size} bytes at {at}: {where}"
        case FaultKind.MISALIGNED:
            return f"misaligned {verb} of {size} bytes at {at}: no multiple of {size}"
        case FaultKind.READ_ONLY:
            return f"write of {size} bytes to {at}, which can only be read"
        case FaultKind.BAD_CLUSTER_BARRIER:
            return {
                ClusterFault.TWICE: "barrier.cluster.arrive by a thread that has yet to wait for the last one",
                ClusterFault.NOT_ARRIVED: "barrier.cluster.wait by a thread that has not arrived",
            }[ClusterFault(size)]
        case FaultKind.NO_BLOCK:
            rank = (address >> RANK_SHIFT) - 1
            return f"{verb} of {size} bytes at {at}: the cluster has no block of rank {rank}"
        case FaultKind.BLOCK_EXITED:
            return f"{verb} of {size} bytes at {at}: this block of the cluster has exited"
        case FaultKind.APART:
            return (
                f"a barrier in divergent code: lanes {address % 2**32:#010x} of a warp are at this barrier, lanes "
                f"{address >> 32:#010x} do not come to it; make all threads of the warp reach it or leave the kernel, "
                "or use barrier.sync without .aligned"
            )
        case FaultKind.BAD_MBARRIER:
            return f"the mbarrier at {at} {_MISUSED[MbarrierFault(size)]}"
        case FaultKind.BAD_COPY:
            return _describe_copy_fault(address, size)
        case FaultKind.MATRIX:
            where = described(address, size, verb == "write")
            return f"a wgmma reads {where}; {_describe_size('shared', build, shared_bytes)}"
    return _FIXED_TEXTS.get(kind, f"fault {int(kind)}")


def _describe_address(address: int, space: str, block: Dim3, cluster: Dim3) -> str:
    """An address for a message; in shared memory it may be of another block of the cluster than ``block``."""
    rank = (address >> RANK_SHIFT) - 1
    if space not in ("shared", "own") or not 0 <= rank < math.prod(cluster):
        return f"{'shared' if space == 'own' else space} address {address:#x}"
    (x, y, z), (sx, sy, sz) = block, cluster
    owner = (x - x % sx + rank % sx, y - y % sy + rank // sx % sy, z - z % sz + rank // (sx * sy))
    return f"shared address {address & OFFSETS:#x} of block {owner}"


def _describe_copy_fault(address: int, why: int) -> str:
    """The message for a wrong bulk copy. ``address`` is that of its tensor map, or the wrong number itself."""
    if why in OF_MAPS:
        for name in ("param", "const", "shared"):
            if (window := WINDOWS[name]) <= address < window + WINDOW:
                return f"the tensor map at {name} address {address - window:#x} and a copy: {WRONG[why]}"
        return f"the tensor map at global address {address:#x} and a copy: {WRONG[why]}"
    return f"a bulk copy: {WRONG[why]} ({address:#x})"


def _describe_size(space: str, build: Build, shared_bytes: int) -> str:
    sizes = {
        "shared": ("the block has", shared_bytes),
        "own": ("the block has", shared_bytes),
        "local": ("the thread has", build.local_bytes),
        "const": ("the module has", build.constant_bytes),
        "param": ("the kernel has", build.parameter_bytes),
    }
    owner, size = sizes.get(space, ("there are", 0))
    return f"{owner} {size:,} bytes of it"


# Bytes on either side of address 0 in which an index from a null pointer is thought to lie.
_NULL_PAGE = 1 << 16


def _nearest(address: int, ranges: Sequence[Range]) -> str:
    if min(address, (1 << 64) - address) < _NULL_PAGE:
        return "a null pointer, or a place near one"
    if not ranges:
        return "the launch has no arrays"

    def distance(item: Range) -> int:
        return max(0, item.start - address, address - item.start - item.size + 1)

    near = min(ranges, key=distance)
    if address < near.start:
        return f"{near.start - address:,} bytes before {near.name} ({near.size:,} bytes)"
    end = near.start + near.size
    if address >= end:
        return f"{address - end:,} bytes past the end of {near.name} ({near.size:,} bytes)"
    return f"it runs over the end of {near.name} ({near.size:,} bytes)"


def _thread(linear: int, block: Dim3) -> Dim3:
    x, y, _ = block
    return linear % x, linear // x % y, linear // (x * y)


def source_of(build: Build, line: int) -> tuple[str, str, int]:
    """The text of a PTX line, and the file and line that it came from, if known."""
    lines = build.ptx.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    module = parse(build.ptx)
    near = [name for name, item in module.functions.items() if item.body_line <= line <= item.last_line]
    for function in filter(None, map(module.function, near)):
        for item in function.body:
            if isinstance(item, Instruction) and item.line == line and item.source:
                return text, module.files.get(item.file, "CUDA source"), item.source
    return text, "", 0


def _quote_line(build: Build, line: int, indent: str = "  ") -> str:
    """The PTX line with its text, and the CUDA line that it came from."""
    if not line:
        return ""
    text, file, source = source_of(build, line)
    text = text if len(text) <= _LINE_SHOWN else text[:_LINE_SHOWN] + "…"
    shown = f"\n{indent}PTX line {line}: {text}"
    return f"{shown}\n{indent}{file}:{source}" if source else shown


@dataclass(slots=True)
class Waiting:
    """A warp that is not done, and what its lanes wait for."""

    warp: int
    block: Dim3
    live: int  # lanes
    loop: int  # line of the loop in which it looked at memory last
    waits: list[tuple[int, str, int]] = field(default_factory=list)  # lanes, for what, line of the PTX

    @property
    def free(self) -> int:
        """The lanes that wait for nothing within their own cluster."""
        return self.live & ~reduce(or_, (lanes for lanes, _, _ in self.waits), 0)

    def add(self, lanes: int, why: str, line: int) -> None:
        """Record what lanes wait for, those aside that wait for something already."""
        if lanes := lanes & self.free:
            self.waits.append((lanes, why, line))


def deadlock(
    build: Build, block: Dim3, waiting: Sequence[Waiting], asks: bool = False, cluster: Dim3 = (1, 1, 1)
) -> Deadlock:
    """The error when no warp can go on: which waits for what. ``asks``: some poll memory in a loop.

    ``block`` is the first one of its cluster.
    """
    blocks = math.prod(cluster)
    waiters: dict[str, list[str]] = {}  # what is waited for → who waits
    for item in waiting:
        item.add(item.free, *(("in a loop for memory to change", item.loop) if asks else ("for those", 0)))
        for lanes, why, line in item.waits:
            who = f"warp {item.warp}" + (f" of block {item.block}" if blocks > 1 else "")
            who = who if lanes == item.live else f"lanes {lanes:#010x} of {who}"
            waiters.setdefault(why + _quote_line(build, line, "    "), []).append(who)
    shown = []
    for why, names in waiters.items():
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        many = len(names) > 1 or names[0].startswith("lanes")
        shown.append(f"  {', '.join(names[:8])}{more} {'wait' if many else 'waits'} {why}")
    warps = build.warps * blocks
    left = warps - len(waiting)
    gone = f"; {left} of its {warps} warps have left" if left else ""
    title = "no block gets on" if asks else "every warp waits"
    where = f"block {block}"
    if blocks > 1:
        index = tuple(at // size for at, size in zip(block, cluster, strict=True))
        where = f"cluster {index} of {blocks} blocks from block {block} on"
    return Deadlock(
        f"deadlock in kernel {readable(build.entry)}, {where}: {title}{gone}\n" + "\n".join(shown)
    )
