"""Runs PTX in the counted build, for tests that look at what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

import tilewise as tw
from tilewise.devices.arguments import pack
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.counted import Counters, Counts
from tilewise.launch import Launch, dim3

__all__ = ["Array", "banks", "counted", "pieces"]

Array = npt.NDArray[Any]


def counted(
    kernel: tw.Kernel,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    shared: int = 0,
    multiprocessors: int = 1,
    threads: int | None = None,
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

    launch = Launch(dim3("grid", grid), dim3("block", block), shared=shared)
    device.watched(binary, entry, launch, packed.parts, None, "counted", watch)
    packed.copy_back()
    return made[0].counts()


def banks(offsets: Array, active: Array, width: int) -> int:
    """Wavefronts of an access to shared memory, counted the long way: byte by byte, bank by bank."""
    lanes = 32 if width <= 4 else 128 // width
    total = 0
    for start in range(0, 32, lanes):
        wanted: dict[int, set[int]] = {}
        for lane in range(start, start + lanes):
            if active[lane]:
                for byte in range(int(offsets[lane]), int(offsets[lane]) + width):
                    wanted.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, wanted.values()), default=0)
    return total


def pieces(addresses: Array, active: Array, width: int, unit: int) -> int:
    """Different pieces of memory that an access touches."""
    return len(
        {(int(a) + i) // unit for a, on in zip(addresses, active, strict=True) if on for i in range(width)}
    )
