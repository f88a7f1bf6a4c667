"""Runs PTX in the counted build, for tests that look at what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

import tilewise as tw
from tilewise.devices.arguments import pack
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.profiling.counted import Counters, Counts
from tilewise.launch import Launch, dim3

__all__ = ["Array", "banks", "copy_passes", "copy_waves", "counted", "groups", "pieces"]

Array = npt.NDArray[Any]


def counted(
    kernel: tw.Kernel,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    shared: int = 0,
    multiprocessors: int = 1,
    threads: int | None = None,
    cluster: int | None = None,
) -> Counts:
    """What a launch came to."""
    device = open_emulator(threads=threads)
    binary = kernel.build()
    entry = kernel.entry_in(binary)
    packed = pack(kernel.name, binary.entries[entry].parameters, args, device)
    made: list[Counters] = []

    def watch(build: Any, _launch: Launch, _reachable: Any) -> Counters:
        made.append(Counters(build, multiprocessors))
        return made[0]

    whole = None if cluster is None else dim3("cluster", cluster)
    launch = Launch(dim3("grid", grid), dim3("block", block), shared=shared, cluster=whole)
    device.launcher.run(binary, entry, launch, packed.parts, None, "counted", watch)
    packed.copy_back()
    return made[0].counts()


def groups(offsets: Array, active: Array, width: int, kind: str) -> list[list[int]]:
    """Lanes that go together, of those that run: by 128 bytes, or by twice as many lanes in pairs of a load."""
    lanes = 32 if width <= 4 else 128 // width
    if kind == "load" and width > 4:
        for by in (1, 2):
            with_both = [i for i in range(32) if active[i] and active[i ^ by]]
            if all(offsets[i] == offsets[i ^ by] for i in with_both):
                lanes = min(32, 256 // width)
    found = [[i for i in range(start, start + lanes) if active[i]] for start in range(0, 32, lanes)]
    return [group for group in found if group]


def banks(offsets: Array, active: Array, width: int, kind: str = "store") -> int:
    """Wavefronts of an access to shared memory, counted the long way: lane by lane, byte by byte, bank by bank.

    ``kind`` is "load", "store" or "atomic", in which no two lanes share a word.
    """
    total = 0
    for group in groups(offsets, active, width, kind):
        wanted: dict[int, set[tuple[int, int]]] = {}
        for lane in group:
            for byte in range(int(offsets[lane]), int(offsets[lane]) + width):
                whose = lane if kind == "atomic" else 0
                wanted.setdefault(byte // 4 % 32, set()).add((byte // 4, whose))
        total += max(map(len, wanted.values()))
    return total


def copy_waves(targets: Array, sources: Array, active: Array, width: int) -> int:
    """Wavefronts of an asynchronous copy: in each group, of the lane that shares its banks with most others."""
    total = 0
    for group in groups(targets, active, width, "copy"):
        longest = 0
        for lane in group:
            crowds = []
            for side in (targets, sources):
                words = {lane: [(int(side[lane]) // 4 + i) % 32 for i in range(width // 4)] for lane in group}
                crowds.append(max(sum(bank in other for other in words.values()) for bank in words[lane]))
            longest = max(longest, crowds[0] + crowds[1] - 1)
        total += longest
    return total


def copy_passes(targets: Sequence[int | None], sources: Sequence[int | None]) -> int:
    """Return the wavefronts of an asynchronous copy past the L1.

    Sectors go from one line to another together if they keep their distance, or all go backwards.
    """
    groups: dict[tuple[int, int], tuple[set[tuple[int, int]], set[tuple[int, int]]]] = {}
    for target, source in zip(targets, sources, strict=True):
        if target is None or source is None:
            continue
        forward, backward = groups.setdefault((source // 128, target // 128), (set(), set()))
        one, other, within = source // 32, target // 32, (source - target) % 32
        forward.add(((one - other) % 4, within))
        backward.add(((one + other) % 4, within))
    return sum(min(len(forward), len(backward)) for forward, backward in groups.values())


def pieces(addresses: Array, active: Array, width: int, unit: int) -> int:
    """Different pieces of memory that an access touches."""
    return len(
        {(int(a) + i) // unit for a, on in zip(addresses, active, strict=True) if on for i in range(width)}
    )
