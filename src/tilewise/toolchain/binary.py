"""The toolchain's results: PTX, machine code, and the assembler's report on each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewise.launch import Dim3, Parameter, readable

__all__ = ["Binary", "Entry", "Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What one thread or block of a kernel takes, as the assembler reports it.

    ``constant_bytes`` is None where the assembler does not report it (from sm_90 on).
    """

    registers: int
    shared_bytes: int
    constant_bytes: int | None
    barriers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    local_bytes: int = 0

    @property
    def spills(self) -> int:
        """Bytes spilled to local memory, stores and loads together."""
        return self.spill_store_bytes + self.spill_load_bytes

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "spills": self.spills}


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a binary. ``resources`` is None where nothing assembled the PTX."""

    name: str
    parameters: tuple[Parameter, ...]
    resources: Resources | None = None
    most_threads: int | None = None  # of a block, by the kernel's own word
    block: Dim3 | None = None  # the only one that it takes


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source: its PTX, its machine code for ``arch`` (None for foreign PTX), its entries."""

    arch: str
    ptx: str
    cubin: bytes | None
    entries: Mapping[str, Entry]
    warnings: tuple[str, ...] = ()
    lowered: Mapping[str, str] = field(default_factory=dict)  # name asked for → entry name
    source: str = ""
    filename: str = "kernel.cu"
    key: str = ""  # content address: equal keys mean equal machine code
    origin: str = ""  # the same without the arch: equal ones mean one module, with one set of variables

    @property
    def is_foreign(self) -> bool:
        """Whether PTX is what it was made from: no source of ours is behind its lines."""
        return self.source == self.ptx

    @property
    def module_key(self) -> str:
        """What the module is known by, on a device that runs it: its content, whatever the arch."""
        return self.origin or self.key or self.ptx

    def shown(self, entry: str) -> str:
        """An entry's name for messages: the name that was asked for, or the C++ name of a mangled one."""
        return next((name for name, known in self.lowered.items() if known == entry), readable(entry))
