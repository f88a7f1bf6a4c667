"""Spilled registers, and the loads and stores of local memory that they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilewise.instruments.machine import MachineRuns
from tilewise.toolchain.binary import Resources

__all__ = ["LOCAL", "Spills", "spills_of"]

LOCAL = ("LDL", "STL")  # families of machine instructions that load and store local memory


@dataclass(frozen=True, slots=True)
class Spills:
    """Bytes of spilled registers, and the share of local memory in a launch's instructions."""

    stored_bytes: int
    """That a thread's code stores to make room: each store in the code once."""
    loaded_bytes: int
    local: float
    """Instructions that loaded or stored local memory, counted by warp."""
    instructions: float
    """All of them."""

    @property
    def bytes(self) -> int:
        return self.stored_bytes + self.loaded_bytes

    @property
    def share(self) -> float:
        """The share of the instructions run that load or store local memory."""
        return self.local / self.instructions if self.instructions else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
            "loaded_bytes": self.loaded_bytes,
            "local_instructions": self.local,
            "share": self.share,
        }

    def __str__(self) -> str:
        part = f"{self.share:.1%} of the instructions that ran load or store local memory"
        if not self.bytes:
            return f"no spills; {part} (arrays that are indexed)"
        return (
            f"{self.bytes:,} bytes a thread ({self.stored_bytes:,} stored, {self.loaded_bytes:,} loaded); {part}; "
            "fewer values at once, or more registers (smaller blocks, other launch bounds), would spare them"
        )


def spills_of(resources: Resources | None, ran: Iterable[MachineRuns]) -> Spills | None:
    """Return a launch's spills; None without spills and local accesses, or without a report."""
    if resources is None:
        return None
    everything = [(item.instruction.family, float(item.runs.sum())) for item in ran]
    local = sum(runs for family, runs in everything if family in LOCAL)
    if not resources.spills and not local:
        return None
    total = sum(runs for _, runs in everything)
    return Spills(resources.spill_store_bytes, resources.spill_load_bytes, local, total)
