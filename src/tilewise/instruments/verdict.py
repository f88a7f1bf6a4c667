"""The verdict on a launch: what binds it, and the gain from removing each known slowdown.

What is gained is evaluated: the roofline again, with the one thing mended. Names are those of ncu's rules where it has
one for the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tilewise.emulator.profiling.accesses import BANKS, WORD_BYTES
from tilewise.gpus import Gpu
from tilewise.instruments.line_figures import SourceFinder
from tilewise.instruments.machine import Machine, MachineAccess
from tilewise.instruments.roofline import ISSUING, MEMORY_CYCLES, Roofline
from tilewise.instruments.spills import LOCAL
from tilewise.toolchain.binary import Binary

__all__ = ["Gain", "Verdict", "judge_launch"]

LEAST_GAIN = 1.03  # of the bound: what is worth saying
_BANK_BYTES = BANKS * WORD_BYTES  # that all banks give at once


@dataclass(frozen=True, slots=True)
class Gain:
    """A slowdown, and the bound without it."""

    what: str
    seconds: float
    """The bound if this alone were mended."""
    times: float
    """How much lower that bound is."""
    where: str = ""
    """The line of the source that does most of it, with its text."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What binds a launch, and the possible gains, greatest first."""

    gpu: str
    bound: str
    seconds: float
    idle_sms: int
    """Multiprocessors that have no block."""
    sms: int
    gains: tuple[Gain, ...]
    next_bound: str
    """What would bind if what binds now took no time."""
    next_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the lines to print, the answer first."""
        found = [f"{_time(self.seconds)} at least on {self.gpu}, bound by {self.bound}"]
        if self.idle_sms:
            found[0] += f"; {self.idle_sms} of {self.sms} SMs have no block"
        for gain in self.gains:
            found.append(f"{gain.what}: {_time(gain.seconds)} without, {gain.times:.3g} times less")
            found += [f"  {text}" for text in (gain.where, gain.remedy) if text]
        if not self.gains:
            found.append(
                f"nothing is known to hold it up; next comes {self.next_bound}, {_time(self.next_seconds)}"
            )
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())


def judge_launch(machine: Machine, roofline: Roofline, gpu: Gpu, binary: Binary) -> Verdict | None:
    """Return the verdict on a launch; None without machine code, which alone shows the instructions issued."""
    if not machine.ran:
        return None
    rest = [bound for bound in roofline.bounds if bound is not roofline.binding]
    after = max(rest, key=lambda bound: bound.seconds, default=roofline.binding)
    issued = sum((item.runs for item in machine.ran), np.zeros(gpu.sms))
    gains = sorted(_gains(machine, roofline, gpu, binary), key=lambda gain: gain.seconds)
    return Verdict(
        gpu.name,
        roofline.binding.name,
        roofline.seconds,
        int((issued == 0).sum()),
        gpu.sms,
        tuple(gain for gain in gains if gain.times >= LEAST_GAIN),
        after.name,
        after.seconds,
    )


def _gains(machine: Machine, roofline: Roofline, gpu: Gpu, binary: Binary) -> Iterator[Gain]:
    """Yield every known kind of slowdown with its gain, however small."""
    find = SourceFinder(binary)

    def gain(what: str, changed: Roofline, where: str, remedy: str) -> Gain:
        return Gain(what, changed.seconds, roofline.seconds / changed.seconds, where, remedy)

    for space, what, remedy in (
        ("shared", "shared bank conflicts", "pad rows, swizzle, or give lanes of a warp neighbouring words"),
        (
            "global",
            "uncoalesced global access",
            "give lanes of a warp neighbouring words, or go through shared memory",
        ),
    ):
        accesses = [access for access in machine.accesses if access.space == space]
        if space == "global" and not any((one.sectors > one.ideal_sectors).any() for one in accesses):
            # No sector is in vain, and yet the L1 looks up more lines than the words would fill.
            what, remedy = "global access in parts of lines", "have a warp read whole lines of 128 bytes"
        spared = sum((_excess(access) for access in accesses), np.zeros(1))
        if float(spared.sum()):
            changed = _less(roofline, MEMORY_CYCLES, float(spared.sum()))
            yield gain(what, changed, _worst(accesses, find), remedy)
    local = [item for item in machine.ran if item.instruction.family in LOCAL]
    if spent := sum(float(item.runs.sum()) for item in local):
        changed = _less(roofline, ISSUING, spent)
        yield gain(
            "local memory (spills, indexed arrays)", changed, "", "fewer values at once, or more registers"
        )
    even = replace(roofline, bounds=tuple(replace(bound, uneven=1.0) for bound in roofline.bounds))
    yield gain(
        "idle SMs and the tail of the last wave",
        even,
        "",
        f"more blocks, or a number of them that {gpu.sms} SMs share evenly: smaller tiles, or K in parts",
    )


def _excess(access: MachineAccess) -> Any:
    """Return the cycles beyond those of the same words side by side."""
    if access.turns is not None:
        least = access.runs if access.data is None else np.maximum(access.runs, access.data / _BANK_BYTES)
        return np.maximum(access.turns - least, 0.0)
    return np.maximum(access.waves - access.phases, 0.0)


def _less(roofline: Roofline, name: str, spared: float) -> Roofline:
    """Return the roofline with less work for one of its parts."""
    bounds = [
        replace(bound, amount=max(bound.amount - spared, 0.0)) if bound.name == name else bound
        for bound in roofline.bounds
    ]
    return replace(roofline, bounds=tuple(bounds))


def _worst(accesses: Sequence[MachineAccess], find: SourceFinder) -> str:
    """Return the source line whose accesses waste the most cycles."""
    by_line: dict[str, float] = {}
    for access in accesses:
        place = find.describe(access.instruction.ptx)
        by_line[place] = by_line.get(place, 0.0) + float(_excess(access).sum())
    return max(by_line, key=by_line.__getitem__, default="")


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
