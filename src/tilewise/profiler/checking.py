"""Checking a launch: run it in the checked build of the emulator, and say what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tilewise.devices.emulated import EmulatedDevice
from tilewise.errors import Deadlock, KernelFault, LaunchTimeout
from tilewise.launch import Launch
from tilewise.profiler.findings import Access, Call, Finding
from tilewise.toolchain.binary import Binary

__all__ = ["CheckingDevice", "check_launch"]


class _Words(NamedTuple):
    """How a kind of finding is told."""

    tool: str
    kind: str
    what: str
    before: str  # what the earlier access was
    now: str
    advice: str


_RACE = (
    "put a barrier between the two (__syncthreads, or __syncwarp within a warp), or make both atomic, or order "
    "them by a flag: a fence before it is set, and one after it was seen"
)
_COPY = "asynchronous copy"
_WAIT = (
    "wait for the copy before reading: cp.async.wait_group (then a barrier, for other threads' copies), or the "
    "phase of the mbarrier that it is told to"
)
_WORDS = {
    "WRITE_AFTER_WRITE": _Words("racecheck", "write-write", "two threads write", "write", "write", _RACE),
    "READ_AFTER_WRITE": _Words(
        "racecheck", "read-write", "a thread reads what another writes", "write", "read", _RACE
    ),
    "WRITE_AFTER_READ": _Words(
        "racecheck", "read-write", "a thread overwrites what another reads", "read", "write", _RACE
    ),
    "UNSET": _Words(
        *("initcheck", "unset", "a thread reads what nobody has written", "", "read"),
        "write it first: shared memory and new device arrays hold anything",
    ),
    "READ_IN_FLIGHT": _Words(
        *(
            "asyncheck",
            "read-in-flight",
            "a thread reads where a copy in flight will write",
            _COPY,
            "read",
            _WAIT,
        )
    ),
    "WRITE_IN_FLIGHT": _Words(
        *(
            "asyncheck",
            "write-in-flight",
            "a thread writes where a copy in flight will write",
            _COPY,
            "write",
        ),
        "wait for the copy first, or write elsewhere",
    ),
    "SOURCE_IN_FLIGHT": _Words(
        *(
            "asyncheck",
            "source-in-flight",
            "a thread overwrites what is still being read",
            "asynchronous read",
        ),
        *(
            "write",
            "wait with cp.async.bulk.wait_group.read, or wgmma.wait_group, before the memory is used again",
        ),
    ),
    "SUM_IN_FLIGHT": _Words(
        *("asyncheck", "sum-in-flight", "a sum of wgmma is read that nobody waited for", "wgmma", "read"),
        "put wgmma.wait_group before the sums are read",
    ),
    "UNFENCED": _Words(
        *(
            "asyncheck",
            "unfenced",
            "the asynchronous proxy reads what a thread wrote, without a fence",
            "write",
        ),
        "asynchronous read",
        "put fence.proxy.async between the writes and the copy or wgmma, in the writing threads",
    ),
    "COPY_AFTER_ACCESS": _Words(
        *(
            "asyncheck",
            "copy-too-early",
            "a copy is issued to memory that others may still use",
            "access",
            _COPY,
        ),
        "have everybody who uses the memory arrive at a barrier before it is filled again",
    ),
    "EARLY_EXIT": _Words(
        *(
            "racecheck",
            "early-exit",
            "a block ends while others may still use its shared memory",
            "access",
            "exit",
        ),
        "keep every block until nobody uses its memory: barrier.cluster (cluster.sync()) before it ends",
    ),
}
_MBARRIER = (
    "put a barrier (of the cluster, for other blocks' mbarriers) between the initialisation and the first use"
)
_FAULTS = {
    "OUT_OF_BOUNDS": ("memcheck", "out-of-bounds", "keep the index within the array, or test it first"),
    "MISALIGNED": ("memcheck", "misaligned", "access 2, 4, 8 or 16 bytes at a multiple of so many"),
    "READ_ONLY": ("memcheck", "read-only", "write to memory that can be written"),
    "NO_BLOCK": ("memcheck", "no-such-block", "name a block that the cluster has"),
    "BLOCK_GONE": (
        *("memcheck", "block-gone"),
        "keep every block until nobody uses its shared memory: barrier.cluster (cluster.sync()) before it ends",
    ),
    "BAD_BARRIER": ("synccheck", "bad-barrier", "give all who come to a barrier the same number and count"),
    "APART": (
        *("synccheck", "divergent-barrier"),
        "make all threads of a warp reach the barrier, or none: take it out of the branch",
    ),
    "BAD_CLUSTER_BARRIER": (
        *("synccheck", "bad-barrier"),
        "let each thread arrive at the cluster's barrier and wait for it by turns",
    ),
    "BAD_MBARRIER": (
        "synccheck",
        "bad-mbarrier",
        "initialise an mbarrier with as many arrivals as come in a phase",
    ),
    "WARPGROUP": ("synccheck", "divergent-wgmma", "let all four warps of a warpgroup come to it together"),
    "MATRIX": ("memcheck", "out-of-bounds", "see that the descriptor's matrix lies in shared memory"),
    "BAD_COPY": ("memcheck", "bad-copy", "see to sizes, alignments and the tensor map"),
    "FREED": ("memcheck", "use-after-free", "keep the device array until the last launch that uses it"),
}
_DEEPEST = 8  # calls within calls that are told
_PROXY = 64  # a flag of an access: by the asynchronous proxy


class CheckingDevice(EmulatedDevice):
    """The emulator, checking every launch: what is wrong with them gathers in ``findings``."""

    def __init__(self, order: str | int = "late", sums: str | None = None) -> None:
        super().__init__(order, threads=1, sums=sums)
        self.findings: list[Finding] = []

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        self.findings += check_launch(binary, entry, launch, packed, self, timeout)


@dataclass
class _Launch:
    """What is known of a checked launch once it runs."""

    entry: str
    checks: Any = None
    build: Any = None
    arrays: list[Any] = field(default_factory=list)
    access: Callable[[Any, str], Access] | None = None


def check_launch(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    device: EmulatedDevice,
    timeout: float | None = None,
) -> list[Finding]:
    """Run a launch in the checked build and return what was found.

    What ends the launch is a finding as well, and the last one.
    """
    from tilewise.emulator.running.checked import Checks
    from tilewise.emulator.running.report import Range

    seen = _Launch(entry)
    held: list[Any] = []

    def watch(build: Any, shape: Launch, arrays: list[Any]) -> Checks:
        ranges = sorted((Range(item.address, item.size, item.name) for item in arrays), key=lambda r: r.start)
        unset = {item.address: item.unset for item in arrays if item.unset is not False}
        held.extend(arrays)
        seen.build, seen.arrays = build, ranges
        made = seen.checks = Checks(shape, build.warps, ranges, unset, "talks" in build.notes)
        return made

    ended: KernelFault | Deadlock | LaunchTimeout | None = None
    try:
        device.watched(binary, entry, launch, packed, timeout, "checked", watch)
    except (KernelFault, Deadlock, LaunchTimeout) as error:
        ended = error
    if seen.checks is None:
        return [_ended(ended, entry, None)] if ended else []
    unset = seen.checks.unset()
    for item in held:
        item.unset = unset.get(item.address, item.unset)
    listing = _Listing(seen.build, binary)
    found = _folded([_finding(hit, seen, listing) for hit in seen.checks.hits()])
    return [*found, *([_ended(ended, entry, listing)] if ended else [])]


# -- what was found ---------------------------------------------------------------------------------------
def _finding(hit: Any, seen: _Launch, listing: _Listing) -> Finding:
    name = hit.kind.name
    shared = hit.space.name == "SHARED" or hit.address >> 56
    if shared and hit.flags & _PROXY and name in ("WRITE_AFTER_READ", "WRITE_AFTER_WRITE"):
        name = "COPY_AFTER_ACCESS"
    elif hit.flags >> 8 & _PROXY and name == "READ_AFTER_WRITE":
        name = "READ_IN_FLIGHT"
    words = _WORDS[name]
    space = "shared" if shared else "global"
    array = "" if shared else _array(hit.address, seen.arrays)
    where = f"{space} address {hit.address & 0xFF_FFFF if shared else hit.address:#x}"
    message = f"{words.what} at {where}" + (f", in {array}" if array else "")
    if name in ("EARLY_EXIT", "SUM_IN_FLIGHT"):
        message = words.what
    now = listing.access(hit.now, words.now)
    before = listing.access(hit.before, words.before) if hit.before else None
    advice = words.advice
    if words.tool == "racecheck" and before and "mbarrier" in now.ptx and "mbarrier.init" in before.ptx:
        words = words._replace(kind="uninitialised-mbarrier")
        message, advice = f"a thread may use an mbarrier before it is initialised, at {where}", _MBARRIER
    return Finding(
        *(words.tool, words.kind, message, advice, seen.entry, hit.count, space, hit.address),
        *(array, now, before),
    )


def _array(address: int, ranges: list[Any]) -> str:
    for item in ranges:
        if item.start <= address < item.start + item.size:
            return f"{item.name} at byte {address - item.start:,}"
    return ""


def _places(finding: Finding) -> frozenset[tuple[Any, ...]]:
    return frozenset(side.place for side in (finding.now, finding.before) if side)


def _folded(found: list[Finding]) -> list[Finding]:
    """One finding for what is wrong with the same two lines, and none for what only follows from others."""
    kept: dict[tuple[Any, ...], Finding] = {}
    for item in found:
        key = (item.tool, item.kind, item.space, _places(item))
        known = kept.get(key)
        kept[key] = replace(known, count=known.count + item.count) if known else item
    items = [item for item in kept.values() if not any(_follows(item, other) for other in kept.values())]
    return sorted(items, key=_rank)


def _follows(item: Finding, other: Finding) -> bool:
    """Whether one finding is nothing but another one, seen again."""
    if item is other:
        return False
    if item.tool == "racecheck" and other.tool == "asyncheck":  # a race with a copy is a copy in flight
        return _places(item) == _places(other)
    if item.kind == "unset":  # read before others wrote it
        return (
            other.tool in ("racecheck", "asyncheck")
            and item.now is not None
            and item.now.place in _places(other)
        )
    if item.kind == "write-in-flight":  # a copy that nobody waited for, and the next one to the same place
        early = other.kind == "read-in-flight" and item.before is not None and other.before is not None
        return early and len(_places(item)) == 1 and _places(item) <= _places(other)
    if item.kind == "write-write" and other.kind == "read-write" and len(_places(item)) == 1:
        return False
    return False


def _rank(item: Finding) -> tuple[Any, ...]:
    """The order in which findings are told: by where they are, whatever the order of the launch."""
    now = item.now.ptx_line if item.now else 0
    before = item.before.ptx_line if item.before else 0
    return min(now, before or now), max(now, before), item.tool, item.kind


# -- what ended the launch ----------------------------------------------------------------------------------
def _ended(error: KernelFault | Deadlock | LaunchTimeout, entry: str, listing: _Listing | None) -> Finding:
    text = str(error)
    if isinstance(error, Deadlock):
        advice = "see who waits for what, and who never comes"
        return Finding("synccheck", "deadlock", text, advice, entry)
    if isinstance(error, LaunchTimeout):
        return Finding("synccheck", "timeout", text, "give it more time, or see what it waits for", entry)
    details: Any = error.details
    if details is None:
        return Finding("memcheck", "fault", text, "", entry)
    tool, kind, advice = _FAULTS.get(details.kind, ("memcheck", details.kind.lower().replace("_", "-"), ""))
    now = None
    if listing is not None and details.line:
        what = "arrival" if tool == "synccheck" else details.what
        now = listing.at(details.line, what, details.block, details.thread)
    return Finding(
        *(tool, kind, text.splitlines()[0], advice, entry, 1, details.space, details.address),
        *(details.array, now),
    )


# -- lines --------------------------------------------------------------------------------------------------
class _Listing:
    """The lines of a kernel: of its PTX, and those of the sources that they came from."""

    def __init__(self, build: Any, binary: Binary) -> None:
        self._build, self._binary = build, binary
        self._ptx = build.ptx.splitlines()
        self._sources: dict[str, list[str]] = {}
        self._from: dict[int, list[tuple[str, int]]] | None = None

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
            Call(_named(file), number, self._text(file, number)) for file, number in self._from.get(line, [])
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
    """A file as people know it: headers of the package by their name in it."""
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
