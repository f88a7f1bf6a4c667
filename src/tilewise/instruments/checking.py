"""A bound → findings: its launches run in the checked build of the emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices.emulated import observe_arrays
from tilewise.devices.host_launches import HostLauncher
from tilewise.devices.host_modules import SavedVariables
from tilewise.emulator.check_layout import SHUFFLED
from tilewise.emulator.running.checked_launch import Checks
from tilewise.emulator.running.fault_report import Details, Range, describe_fault, name_arguments
from tilewise.errors import Deadlock, KernelFault, LaunchTimeout
from tilewise.instruments.advice import FAULTS, FINDING_TEXTS, MBARRIER, STORE
from tilewise.instruments.findings import Access, Finding, at_least
from tilewise.instruments.leaks import HeapBlock, HostArrays, find_leaked_blocks
from tilewise.instruments.origins import Origins
from tilewise.instruments.profile_launch import check_on_host, modules_of
from tilewise.launch import Launch, readable

__all__ = ["Checker", "check_bound"]


_PROXY = 64  # a flag of an access: by the asynchronous proxy
_WITHOUT_ADDRESS = {  # findings that have no address
    *("EARLY_EXIT", "SUM_IN_FLIGHT", "REGISTER_IN_FLIGHT", "REGISTER_UNFENCED", "BAD_MASK"),
}


def check_bound(
    bound: Bound,
    addresses: Mapping[str, int],
    order: str | int = "late",
    *,
    sums: str | None = None,
    timeout: float | None = None,
    level: str = "warning",
    lenient: bool = False,
) -> list[Finding]:
    """Run a bound's launches in the checked build, on operands at these addresses, and return what was found."""
    return Checker(order, sums, level=level, lenient=lenient).check(bound, addresses, timeout)


class Checker:
    """Checks the launches of a program, one after another: what is wrong with them gathers in ``findings``.

    Variables of a module, and the heap of its kernels, live on from one launch to the next: they begin with what they
    hold outside, where nothing of it is seen. ``level`` is the least that findings must have ("info", "warning",
    "error"), as of compute-sanitizer's racecheck; with ``lenient`` what GPUs usually let pass does not end a launch. As
    a context it also looks at arrays: at its end it reports those that were made on the emulator meanwhile and are
    still there.

    >>> import tilewise as tw
    >>> with Checker() as checker:
    ...     kept = tw.device("emulator").array([1.0, 2.0])
    >>> checker.findings[0].kind
    'leak'
    """

    def __init__(
        self,
        order: str | int = "late",
        sums: str | None = None,
        *,
        level: str = "warning",
        lenient: bool = False,
    ) -> None:
        self.findings: list[Finding] = at_least(level, [])
        self._level = level
        self._launcher = HostLauncher(order, threads=1, sums=sums, lenient=lenient)
        self._variables: SavedVariables = {}
        self._arrays = HostArrays()
        self._observing = contextlib.ExitStack()

    def __enter__(self) -> Checker:
        self._arrays.forget()
        self._observing.enter_context(observe_arrays(self._arrays.add))
        return self

    def __exit__(self, *_: object) -> None:
        self._observing.close()
        self.findings += self._arrays.leaks()

    def check(
        self, bound: Bound, addresses: Mapping[str, int] | None = None, timeout: float | None = None
    ) -> list[Finding]:
        """Run a bound's launches, and return what was found of them; ``findings`` has it as well.

        What ends a launch is a finding too, the last one: those behind it are not run.
        """
        check_on_host(bound)
        found: list[Finding] = []
        self._launcher.modules = modules = modules_of(bound)
        with modules.apart(bound.binaries, self._variables):
            for launch, packed in bound.packed(addresses or {}):
                more, ended = _check_launch(launch, packed, self._launcher, timeout)
                found += at_least(self._level, more)
                if ended:
                    break
        self.findings += found
        return found


@dataclass
class _Launch:
    """A checked launch while it runs: its build, arrays and checks."""

    entry: str
    packed: Sequence[bytes]
    labels: Sequence[str]  # of its arguments
    checks: Any = None
    build: Any = None
    ranges: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0  # of a block

    def watch(self, build: Any, shape: Launch, held: list[Any]) -> Checks:
        """The memory that the checked build writes to, of allocations that the launch may touch."""
        ranges = sorted((Range(item.address, item.size, item.name) for item in held), key=lambda r: r.start)
        unset = {item.address: item.unset for item in held if item.unset is not False}
        self.build, self.held = build, list(held)
        self.ranges = name_arguments(ranges, self.packed, self.labels)
        self.cluster, self.shared_bytes = shape.cluster or (1, 1, 1), build.shared_bytes + shape.shared
        made = self.checks = Checks(shape, build.warps, ranges, unset, build.notes)
        return made


def _check_launch(
    bound: BoundLaunch, packed: list[bytes], launcher: HostLauncher, timeout: float | None
) -> tuple[list[Finding], bool]:
    """The findings of a launch, and whether a fault ended it: then that is the last finding."""
    binary, entry = bound.binary, bound.entry
    parameters = binary.entries[entry].parameters
    seen = _Launch(entry, packed, [parameter.label(i) for i, parameter in enumerate(parameters)])
    ended: KernelFault | Deadlock | LaunchTimeout | None = None
    try:
        launcher.run(binary, entry, bound.launch, packed, timeout, "checked", seen.watch)
    except (KernelFault, Deadlock, LaunchTimeout) as error:
        ended = error
    if seen.checks is None:
        return [_fatal_finding(ended, entry)] if ended else [], ended is not None
    unset = seen.checks.unset()
    for item in seen.held:
        item.unset = unset.get(item.address, item.unset)
    listing = Origins(seen.build, binary)
    found = _merge_repeated([_finding(hit, seen, listing) for hit in seen.checks.hits()])
    if lost := seen.checks.dropped:
        message = (
            f"more was found than a launch has room for: {lost:,} times in further lines, which are left out"
        )
        advice = "see to what is listed, and check again"
        found.append(Finding("racecheck", "left-out", message, advice, readable(entry), lost))
    if ended:
        found.append(_fatal_finding(ended, entry, listing, bound.launch.shared))
    elif heap := launcher.find_heap(binary):
        found += _leak_findings(find_leaked_blocks(*heap), seen, listing)
    return _drop_consequences(found), ended is not None


# -- what was found ---------------------------------------------------------------------------------------
def _finding(hit: Any, seen: _Launch, listing: Origins) -> Finding:
    name, entry = hit.kind.name, readable(seen.entry)
    if name in FAULTS:
        return _tolerated_fault(hit, seen, listing)
    shared = hit.space.name == "SHARED" or hit.address >> 56
    if shared and hit.flags & _PROXY and name in ("WRITE_AFTER_READ", "WRITE_AFTER_WRITE"):
        name = "COPY_AFTER_ACCESS"
    elif hit.flags >> 8 & _PROXY and name == "READ_AFTER_WRITE":
        name = "READ_IN_FLIGHT"
    elif name == "UNSET" and not shared and seen.checks.is_early(hit.address):
        name = "EARLY_READ"
    text = FINDING_TEXTS[name]
    now = listing.access(hit.now, text.now)
    before = listing.access(hit.before, text.before) if hit.before else None
    if name == "SHUFFLE_INACTIVE_LANE":
        message = f"{text.what}: {_describe_shuffle(hit.address)}"
        return Finding(
            *(text.tool, text.kind, message, text.advice, entry, hit.count),
            now=now,
            before=before,
            level=text.level,
        )
    if name in _WITHOUT_ADDRESS:
        return Finding(text.tool, text.kind, text.what, text.advice, entry, hit.count, now=now, before=before)
    space = "shared" if shared else "global"
    array = "" if shared else _array(hit.address, seen.ranges)
    where = f"{space} address {hit.address & 0xFF_FFFF if shared else hit.address:#x}"
    message, advice = f"{text.what} at {where}" + (f", in {array}" if array else ""), text.advice
    if name in ("READ_IN_FLIGHT", "WRITE_IN_FLIGHT") and not shared:
        advice = STORE
    if text.tool == "racecheck" and before and "mbarrier" in now.ptx and "mbarrier.init" in before.ptx:
        text = text._replace(kind="uninitialised-mbarrier")
        message, advice = f"a thread may use an mbarrier before it is initialised, at {where}", MBARRIER
    return Finding(
        *(text.tool, text.kind, message, advice, entry, hit.count, space, hit.address),
        *(array, now, before, text.level),
    )


# What a thread did that faulted in another way than by an access.
_WHAT = {
    "trap": "trap",
    "assert": "assertion",
    "stack-overflow": "call",
    "bad-call": "call",
    "bad-index": "jump",
}


def _describe_shuffle(value: int) -> str:
    """The read that a value came from which its shuffle did not define."""
    source, reader = value & 31, value >> SHUFFLED.READER & 31
    mask = f"{value >> SHUFFLED.MASK & 0xFFFF_FFFF:#010x}"
    return f"lane {reader} reads lane {source}, which takes no part in it (mask {mask})"


def _tolerated_fault(hit: Any, seen: _Launch, listing: Origins) -> Finding:
    """The finding of a fault that did not end a lenient launch."""
    tool, kind, advice = FAULTS[hit.kind.name]
    what, space = "write" if hit.flags & 1 else "read", hit.space.name.lower()
    details = Details(hit.kind.name, what, space, hit.address, hit.bytes, hit.now.block)
    message = describe_fault(details, seen.cluster, seen.ranges, seen.build, seen.shared_bytes)
    now = listing.access(hit.now, what)
    return Finding(tool, kind, message, advice, readable(seen.entry), hit.count, space, hit.address, now=now)


def _leak_findings(blocks: list[HeapBlock], seen: _Launch, listing: Origins) -> list[Finding]:
    """One finding for the blocks of the heap that each line of the program allocated and no launch freed."""
    by_line: dict[int, list[HeapBlock]] = {}
    for block in blocks:
        by_line.setdefault(block.line, []).append(block)
    found = []
    for line, items in sorted(by_line.items()):
        size = sum(item.size for item in items)
        blocks_of = "a block" if len(items) == 1 else f"{len(items):,} blocks"
        message = f"{blocks_of} of the kernel's heap, {size:,} bytes, never given back"
        taken = listing.access(seen.checks.side(items[0].who, line), "malloc")
        advice = "free what malloc gave, or have a later launch do so"
        found.append(
            Finding("memcheck", "leak", message, advice, readable(seen.entry), len(items), now=taken)
        )
    return found


def _array(address: int, ranges: list[Any]) -> str:
    for item in ranges:
        if item.start <= address < item.start + item.size:
            return f"{item.name} at byte {address - item.start:,}"
    return ""


def _locations(finding: Finding) -> frozenset[tuple[Any, ...]]:
    return frozenset(side.location for side in (finding.now, finding.before) if side)


def _merge_repeated(found: list[Finding]) -> list[Finding]:
    """One finding for all that are of the same kind and the same two lines."""
    kept: dict[tuple[Any, ...], Finding] = {}
    for item in found:
        key = (item.tool, item.kind, item.space, _locations(item))
        known = kept.get(key)
        kept[key] = replace(known, count=known.count + item.count) if known else item
    return sorted(kept.values(), key=_rank)


def _drop_consequences(found: list[Finding]) -> list[Finding]:
    """The findings without those that another one causes."""
    return [
        item
        for item in found
        if not any(_is_consequence(item, other) for other in found if other is not item)
    ]


def _is_consequence(item: Finding, other: Finding) -> bool:
    """Whether one finding only follows from another one."""
    mine, theirs = _locations(item), _locations(other)
    match item.tool, item.kind:
        case "racecheck", "uninitialised-mbarrier":  # by those who use it next
            return (
                other.kind == item.kind
                and _side(item.before) == _side(other.before)
                and _rank(other) < _rank(item)
            )
        case "racecheck", kind:
            if other.tool == "asyncheck":  # a race with a copy is a copy in flight
                return mine == theirs
            if kind == "equal-writes":  # of values that differ at another time or place
                return other.tool == item.tool and other.kind != kind and mine <= theirs
            return kind == "write-write" and other.kind == "read-write" and mine <= theirs
        case "initcheck", "unset":  # read before others wrote it; or no mbarrier, for that reason
            causes = other.tool in ("racecheck", "asyncheck") or other.kind == "bad-mbarrier"
            return causes and _side(item.now) in theirs
        case "asyncheck", "copy-too-early":  # others read there without having waited
            return other.kind in ("read-in-flight", "source-in-flight") and mine == theirs
        case (
            "asyncheck",
            "write-in-flight",
        ):  # a copy that no thread waited for, and the next one to the same address
            early = other.kind == "read-in-flight" and item.before is not None and other.before is not None
            return early and len(mine) == 1 and mine <= theirs
    return False


def _side(side: Access | None) -> tuple[Any, ...]:
    return side.location if side else ()


def _rank(item: Finding) -> tuple[Any, ...]:
    """The sort key of findings: by line, whatever the order of the launch."""
    now = item.now.ptx_line if item.now else 0
    before = item.before.ptx_line if item.before else 0
    return min(now, before or now), max(now, before), item.tool, item.kind


# -- what ended the launch ----------------------------------------------------------------------------------
def _fatal_finding(
    error: KernelFault | Deadlock | LaunchTimeout,
    symbol: str,
    listing: Origins | None = None,
    dynamic: int = 0,
) -> Finding:
    """The finding of what ended a launch; ``dynamic`` are its bytes of dynamic shared memory."""
    text, entry = str(error), readable(symbol)
    if isinstance(error, Deadlock):
        advice = "see who waits for what, and who never comes"
        return Finding("synccheck", "deadlock", text, advice, entry)
    if isinstance(error, LaunchTimeout):
        return Finding("synccheck", "timeout", text, "give it more time, or see what it waits for", entry)
    details: Any = error.details
    if details is None:
        return Finding("memcheck", "fault", text, "", entry)
    if details.kind == "TRAP" and not details.line:  # in no line of the program's: in ``free``
        text, advice = (
            "free of what malloc did not give, or what was given back before",
            "free each block once",
        )
        return Finding("memcheck", "bad-free", text, advice, entry)
    tool, kind, advice = FAULTS.get(details.kind, ("memcheck", details.kind.lower().replace("_", "-"), ""))
    now = None
    if listing is not None and kind == "out-of-bounds" and details.space in ("shared", "own"):
        advice = listing.shared_advice(details.address + details.size, dynamic) or advice
    if listing is not None and details.line:
        what = "arrival" if tool == "synccheck" else _WHAT.get(kind, details.what)
        now = listing.at(details.line, what, details.block, details.thread)
    return Finding(
        *(tool, kind, text.splitlines()[0], advice, entry, 1, details.space, details.address),
        *(details.array, now),
    )
