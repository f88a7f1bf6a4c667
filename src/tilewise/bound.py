"""A bound plan: compiled for a device, its arguments laid out; called as often as wanted.

A call fills the operands' addresses into the launches' arguments and starts them; nothing is compiled, chosen or
checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.devices.seam import Device
from tilewise.launch import Launch
from tilewise.slots import MapSlot
from tilewise.toolchain.binary import Binary, Resources

__all__ = ["Bound", "BoundLaunch"]


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """One launch of a bound: the machine code, the shape of the launch, its arguments as slots."""

    binary: Binary
    entry: str
    launch: Launch

    @property
    def resources(self) -> Resources | None:
        """What the assembler reports of the kernel."""
        return self.binary.entries[self.entry].resources

    @property
    def name(self) -> str:
        """The kernel's name as its source has it."""
        return self.binary.shown(self.entry)

    def pack(self, addresses: Mapping[str, int], device: Device) -> list[bytes]:
        """The bytes of each argument, with the operands' addresses."""
        return [
            slot.fill(addresses, device.encode_map) if isinstance(slot, MapSlot) else slot.fill(addresses)
            for slot in self.launch.args
        ]


@dataclass(frozen=True, slots=True)
class Bound:
    """Launches on a device, one after another, that lack only the addresses of their operands.

    ``copies`` lay operands out in rows, once a call, before the others. ``regions`` says at which byte of the
    workspace its parts begin.
    ``shifts`` is for stacks that the kernel cannot take in one launch: the launches are repeated once for each, with
    the operands' addresses moved by so many bytes. ``main`` is which of the launches multiplies.
    """

    device: Device
    copies: tuple[BoundLaunch, ...]
    launches: tuple[BoundLaunch, ...]
    workspace_bytes: int = 0
    regions: Mapping[str, int] = field(default_factory=dict)
    shifts: tuple[Mapping[str, int], ...] = ({},)
    main: int = 0

    @property
    def main_packed(self) -> int:
        """Which of what :meth:`packed` gives is the launch that multiplies."""
        return len(self.copies) + self.main

    @property
    def binaries(self) -> list[Binary]:
        """What its launches are of."""
        return [launch.binary for launch in (*self.copies, *self.launches)]

    def packed(self, addresses: Mapping[str, int]) -> Iterator[tuple[BoundLaunch, list[bytes]]]:
        """Every launch with the bytes of its arguments, in order."""
        addresses = dict(addresses)
        workspace = addresses.get("workspace", 0)
        for name, offset in self.regions.items():
            addresses[name] = workspace + offset
        for launch in self.copies:
            yield launch, launch.pack(addresses, self.device)
        for shift in self.shifts:
            moved = {name: address + shift.get(name, 0) for name, address in addresses.items()}
            for launch in self.launches:
                yield launch, launch.pack(moved, self.device)

    def __call__(
        self, addresses: Mapping[str, int], stream: int | None = None, timeout: float | None = None
    ) -> None:
        """Start the launches on a stream: another library's raw handle, or None for the device's current one.

        ``addresses`` maps the operands' names to where they lie, "workspace" among them if there is one.
        """
        for launch, packed in self.packed(addresses):
            self.device.run(launch.binary, launch.entry, launch.launch, packed, timeout, stream)

    def prepare(self, addresses: Mapping[str, int], arrays: Sequence[object] = ()) -> Callable[[], None]:
        """The launches with these addresses for good; calling the result starts them on the current stream."""
        ready = [
            self.device.prepare(launch.binary, launch.entry, launch.launch, packed, arrays)
            for launch, packed in self.packed(addresses)
        ]
        if len(ready) == 1:
            return ready[0]

        def start_all() -> None:
            for start in ready:
                start()

        return start_all
