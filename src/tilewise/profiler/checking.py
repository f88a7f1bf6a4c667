"""Checking a launch: run it in the checked build of the emulator, and say what was found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.devices.emulated import EmulatedDevice
from tilewise.errors import Deadlock, KernelFault
from tilewise.launch import Launch
from tilewise.profiler.findings import Access, Finding
from tilewise.toolchain.binary import Binary

__all__ = ["CheckingDevice", "check_launch"]

_RACE = (
    "put a barrier between the two (__syncthreads, or __syncwarp within a warp), "
    "or make both atomic, or order them by a flag with release and acquire"
)
_RACES = {"WRITE_AFTER_WRITE", "READ_AFTER_WRITE", "WRITE_AFTER_READ"}
# By kind: tool, what is wrong, what the earlier access was and what this one is, what to do.
_WORDS: dict[str, tuple[str, str, str, str, str]] = {
    "WRITE_AFTER_WRITE": ("racecheck", "two threads write", "write", "write", _RACE),
    "READ_AFTER_WRITE": ("racecheck", "a thread reads what another writes", "write", "read", _RACE),
    "WRITE_AFTER_READ": ("racecheck", "a thread overwrites what another reads", "read", "write", _RACE),
    "UNSET": (
        *("initcheck", "a thread reads what nobody has written", "", "read"),
        "write it first: shared memory and new device arrays hold anything",
    ),
    "READ_IN_FLIGHT": (
        *("asyncheck", "a thread reads where a copy in flight will write", "asynchronous copy", "read"),
        "wait for the copy before reading: cp.async.wait_group (then a barrier, for other threads' copies), "
        "or the mbarrier's phase",
    ),
    "WRITE_IN_FLIGHT": (
        *("asyncheck", "a thread writes where a copy in flight will write", "asynchronous copy", "write"),
        "wait for the copy first, or write elsewhere",
    ),
    "SOURCE_IN_FLIGHT": (
        *("asyncheck", "a thread overwrites what a copy in flight still reads", "asynchronous copy", "write"),
        "wait with cp.async.bulk.wait_group.read (or wgmma.wait_group) before the memory is used again",
    ),
    "UNFENCED": (
        *("asyncheck", "the asynchronous proxy reads what a thread wrote, without a fence", "write"),
        *(
            "asynchronous read",
            "put fence.proxy.async between the writes and the copy or wgmma, in the writing threads",
        ),
    ),
    "COPY_AFTER_ACCESS": (
        *("asyncheck", "a copy is issued to memory that other threads may still use", "access"),
        *(
            "asynchronous copy",
            "have everybody who uses the stage arrive at a barrier before it is filled again",
        ),
    ),
}


class CheckingDevice(EmulatedDevice):
    """The emulator, checking every launch: what is wrong with them gathers in ``findings``."""

    def __init__(self, order: str | int = "late") -> None:
        super().__init__(order, threads=1)
        self.findings: list[Finding] = []
        self.source = ""  # of the kernels, to be shown

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        self.findings += check_launch(binary, entry, launch, packed, self, timeout, self.source)


@dataclass
class _Launch:
    """What is known of a checked launch once it runs."""

    checks: Any = None
    build: Any = None
    arrays: list[Any] = field(default_factory=list)


def check_launch(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    device: EmulatedDevice,
    timeout: float | None,
    source: str = "",
) -> list[Finding]:
    """Run a launch in the checked build and return what was found; ``source`` is its CUDA text."""
    from tilewise.emulator.checks import Checks
    from tilewise.emulator.report import Range

    seen = _Launch()

    def watch(build: Any, shape: Launch, arrays: list[Any]) -> Checks:
        ranges = sorted((Range(item.address, item.size, item.name) for item in arrays), key=lambda r: r.start)
        unset = {item.address: item.unset for item in arrays if item.unset is not False}
        seen.build, seen.arrays = build, ranges
        seen.checks = Checks(shape, build.warps, ranges, unset, "talks" in build.notes)
        return seen.checks

    ended: list[Finding] = []
    try:
        device.watched(binary, entry, launch, packed, timeout, "checked", watch)
    except (KernelFault, Deadlock) as error:
        ended = [_ended(error, entry)]
    if seen.checks is None:
        return ended
    return [*(_finding(hit, seen, entry, source) for hit in _folded(seen.checks.hits())), *ended]


def _folded(hits: list[Any]) -> list[Any]:
    """One finding for two lines that race, whichever of them came first, and none for what follows from it."""
    races: dict[frozenset[int], Any] = {}
    others = []
    for hit in hits:
        if hit.kind.name not in _RACES or hit.before is None:
            others.append(hit)
            continue
        pair = frozenset((hit.now.line, hit.before.line))
        known = races.get(pair)
        races[pair] = replace(known, count=known.count + hit.count) if known else hit
    racing = {line for pair in races for line in pair}
    return [
        *races.values(),
        *(hit for hit in others if hit.kind.name != "UNSET" or hit.now.line not in racing),
    ]


def _ended(error: KernelFault | Deadlock, entry: str) -> Finding:
    """What ended the launch."""
    text = str(error)
    if isinstance(error, Deadlock):
        return Finding("synccheck", "deadlock", text, "see who waits for what, and who never comes", entry)
    barrier = "barrier" in text.splitlines()[0]
    return Finding("synccheck" if barrier else "memcheck", "fault", text, "", entry)


def _finding(hit: Any, seen: _Launch, entry: str, source: str) -> Finding:
    tool, what, earlier, now, advice = _WORDS[hit.kind.name]
    shared = hit.space.name == "SHARED" or hit.address >> 56
    space = "shared" if shared else "global"
    array = "" if shared else _array(hit.address, seen.arrays)
    where = f"{space} address {hit.address & 0xFFFF_FFFF if shared else hit.address:#x}"
    message = f"{what} at {where}" + (f", in {array}" if array else "")
    return Finding(
        tool,
        hit.kind.name.lower().replace("_", "-"),
        message,
        advice,
        entry,
        hit.count,
        space,
        hit.address,
        array,
        _access(hit.now, now, seen.build, source),
        _access(hit.before, earlier, seen.build, source) if hit.before else None,
    )


def _array(address: int, ranges: list[Any]) -> str:
    for item in ranges:
        if item.start <= address < item.start + item.size:
            return f"{item.name} at byte {address - item.start:,}"
    return ""


def _access(side: Any, what: str, build: Any, source: str) -> Access:
    from tilewise.emulator.report import source_of

    text, file, line = source_of(build, side.line)
    lines = source.splitlines() if source and file.endswith((".cu", "source")) else []
    x, y, _ = build.block
    linear = side.thread
    thread = None if linear is None else (linear % x, linear // x % y, linear // (x * y))
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    return Access(what, side.block, thread, side.warp, side.line, text, file, line, shown)
