"""Slots: the arguments of a launch before the addresses of its operands are known. Plain data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewise.devices.tensor_map import Description

__all__ = ["OPERANDS", "SCALARS", "Gap", "MapSlot", "Slot", "constant", "joined", "places_of", "table_of"]

OPERANDS = (
    "a",
    "b",
    "c",
    "offsets",
    "workspace",
    "copy_a",
    "copy_b",
    "parts_a",
    "parts_b",
    "sums",
    "bias",
    "residual",
    "scale_a",
    "scale_b",
)
SCALARS = ("alpha", "beta")  # numbers that a call gives, where operands are given by address


class Gap(NamedTuple):
    """Where in a slot a call puts the address of ``operand`` plus ``addend``, or the bits of a number or a table."""

    offset: int
    operand: str
    addend: int = 0
    size: int = 8  # bytes


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter of a kernel: its bytes, and the gaps in them that addresses or scalars fill."""

    template: bytes
    gaps: tuple[Gap, ...] = ()

    def fill(self, addresses: Mapping[str, int]) -> bytes:
        """The bytes of the parameter, with the operands' addresses."""
        made = bytearray(self.template)
        for offset, operand, addend, size in self.gaps:
            made[offset : offset + size] = (addresses[operand] + addend).to_bytes(size, "little")
        return bytes(made)


@dataclass(frozen=True, slots=True)
class MapSlot:
    """A parameter that is a tensor map of an operand: encoded once the operand's address is known."""

    operand: str
    addend: int
    described: Description

    def fill(self, addresses: Mapping[str, int], encode: Callable[[Description, int], bytes]) -> bytes:
        """The 128 bytes of the map, as ``encode``, the device's own way, makes them."""
        return encode(self.described, addresses[self.operand] + self.addend)


def places_of(operand: str) -> str:
    """The name under which a call gives the table of where an operand's matrices lie, as the bits of one number."""
    return f"{operand}.places"


def table_of(places: Sequence[int]) -> int:
    """Entries of 64 bits as the bits of one number, which is what a call gives."""
    return int.from_bytes(struct.pack(f"<{len(places)}Q", *places), "little")


def constant(code: str, value: float) -> Slot:
    """A parameter that is the same number at every call; ``code`` is its type as ``struct`` has it, such as ``"I"``."""
    return Slot(struct.pack(f"<{code}", value))


def joined(*slots: Slot) -> Slot:
    """One slot for a struct whose members these are, one behind another."""
    template, gaps = b"", []
    for one in slots:
        gaps += [Gap(len(template) + gap.offset, *gap[1:]) for gap in one.gaps]
        template += one.template
    return Slot(template, tuple(gaps))
