"""Bytes read and written at each level of the memory: shared, global as requested, L2, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewise.emulator.profiling.accesses import SECTOR_BYTES
from tilewise.instruments.machine import MachineAccess
from tilewise.instruments.metric import ESTIMATED, EXACT, Metric

__all__ = ["Level", "levels"]

# Operations that read, and those that write, by space: a bulk load reads global memory and writes shared memory.
_READ = {
    "shared": {"ld", "ldsm", "gmma", "tma_st", "tma_red", "dshared_tma_st", "dshared_tma_red"},
    "global": {"ld", "ldgsts", "tma_ld", "tma_mc", "tma_pf", "tma_red"},
}
_WRITTEN = {
    "shared": {"st", "stsm", "ldgsts", "tma_ld", "tma_mc"},
    "global": {"st", "tma_st", "tma_red"},
}
_BOTH = {"atom", "red"}


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes that are read and written at one level of the memory."""

    name: str
    read: float
    written: float
    label: str


def levels(
    accesses: Sequence[MachineAccess], metrics: Mapping[str, Metric], label: str = EXACT
) -> list[Level]:
    """Return the levels, nearest first; L2 and memory only with a model of the caches."""
    found = []
    for space, what in (("shared", "bytes"), ("global", "bytes"), ("global", "sectors")):
        here = [access for access in accesses if access.space == space]
        unit = SECTOR_BYTES if what == "sectors" else 1
        amount = {}
        for way, ops in (("read", _READ[space]), ("written", _WRITTEN[space])):
            amount[way] = unit * sum(
                float(getattr(item, what).sum()) for item in here if item.op in ops | _BOTH
            )
        name = "shared memory" if space == "shared" else "global memory, by lanes"
        name = "global memory, by sectors" if what == "sectors" else name
        said = label if all(item.exact for item in here) else ESTIMATED
        found.append(Level(name, amount["read"], amount["written"], said))
    pairs = {
        "L2": (
            "lts__t_sectors_srcunit_tex_op_read.sum",
            "lts__t_sectors_srcunit_tex_op_write.sum",
            SECTOR_BYTES,
        ),
        "memory": ("dram__bytes_read.sum", "dram__bytes_write.sum", 1),
    }
    for name, (read_name, written_name, unit) in pairs.items():
        if read_name in metrics:
            read, written = metrics[read_name], metrics[written_name]
            found.append(Level(name, unit * read.value, unit * written.value, read.label))
    return found
