"""Bulk copies, and what products of four warps read of shared memory: what they move, and ncu's names for it.

Nothing of this depends on the machine code: a bulk copy stays one, and a product reads its matrices once.
Copies go past the pipe that counts wavefronts and bank conflicts, so they have none. Products go through it:
each takes a wavefront for every 128 bytes, however its matrices lie, and never has a conflict. Both were
measured on an H200 (``tests/golden/hardware/bulk.json``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewise.emulator.profiling.accesses import LINE_BYTES, SECTOR_BYTES
from tilewise.emulator.profiling.copies import Moved
from tilewise.emulator.profiling.counted import Copied, Counts, WgmmaRuns
from tilewise.instruments.machine import MachineAccess
from tilewise.instruments.metric import Figures, Metric, spread, whole
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["BULK", "accesses_in_bulk", "bulk_metrics", "more_sectors", "shared_lines"]

_WARPS = 4  # that share a product
_PRODUCTS = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
_COPIES = ("UBLKCP", "UBLKRED", "UBLKPF", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "STAS", "REDAS")
# What a copy does → the operation in names of metrics.
_OPS = {
    "load": "tma_ld",
    "multicast": "tma_mc",
    "store": "tma_st",
    "reduce": "tma_red",
    "prefetch": "tma_pf",
    "send": "dshared_tma_st",
    "send_reduce": "dshared_tma_red",
    "remote": "dshared_stas",
    "remote_reduce": "dshared_redas",
}
BULK = (*_OPS.values(), "gmma")
_LOADS = ("tma_ld", "tma_mc")
_TMA = {
    "tma": (*_LOADS, "tma_st", "tma_red", "dshared_tma_st", "dshared_tma_red"),
    "tma_ld": _LOADS,
    "tma_st": ("tma_st",),
    "tma_red": ("tma_red",),
    **{op: (op,) for op in _OPS.values() if op.startswith("dshared")},
}
_READ, _WRITTEN = "l1tex__m_xbar2l1tex_read", "l1tex__m_l1tex2xbar_write"
# Names of sectors that come and go between L1 and the rest → operations, and whether of all blocks that get them.
_MOVED = {
    f"{_READ}_{{}}_mem_global_op_tma_ld": _LOADS,
    f"{_READ}_{{}}_mem_global_op_tma_ld_dest_self": ("tma_ld",),
    f"{_READ}_{{}}_mem_global_op_tma_ld_dest_multicast": ("tma_mc",),
    f"{_WRITTEN}_{{}}_mem_global_op_tma_st": ("tma_st",),
    f"{_WRITTEN}_{{}}_mem_global_op_tma_red": ("tma_red",),
    f"{_READ}_{{}}_mem_dshared_op_tma_st": ("dshared_tma_st",),
    f"{_READ}_{{}}_mem_dshared_op_tma_red": ("dshared_tma_red",),
    f"{_WRITTEN}_{{}}_mem_dshared_op_tma_st": ("dshared_tma_st",),
    f"{_WRITTEN}_{{}}_mem_dshared_op_tma_red": ("dshared_tma_red",),
}


def accesses_in_bulk(counts: Counts, code: Sequence[tuple[float, MachineInstruction]]) -> list[MachineAccess]:
    """What copies and products did, by machine instruction: ``code`` has those of the launch and how often
    each ran. Where there is none for a line of the PTX, the line itself stands for it."""
    copies, products = counts.copies(), counts.products()
    there = _by_line([item.line for item in copies], code, _COPIES)
    found = []
    for copied in copies:
        for share, item in _shares(there, copied.line, copied.name):
            found += _copied(copied, item, share)
    there = _by_line([item.line for item in products], code, _PRODUCTS)
    for product in products:
        for share, item in _shares(there, product.line, "wgmma.mma_async"):
            found.append(_product(product, item, share))
    return found


_Items = list[tuple[float, MachineInstruction]]  # how often each ran


def _by_line(
    lines: Sequence[int], code: Sequence[tuple[float, MachineInstruction]], families: Sequence[str]
) -> dict[int | None, _Items]:
    """Machine instructions by the line of the PTX that they do.

    The assembler gives some of them the line of a neighbour: as many as there are lines left go to those in turn.
    """
    found: dict[int | None, _Items] = defaultdict(list)
    strays = []
    for runs, item in code:
        if item.family in families:
            if item.ptx in lines:
                found[item.ptx].append((runs, item))
            else:
                strays.append((runs, item))
    left = [line for line in sorted(lines) if line not in found]
    if len(left) == len(strays):
        strays.sort(key=lambda stray: stray[1].offset)
        for line, (runs, item) in zip(left, strays, strict=True):
            found[line].append((runs, replace(item, ptx=line)))
    return found


def _shares(there: Mapping[int | None, _Items], line: int, name: str) -> _Items:
    """The machine instructions of a line of the PTX, and which part of its runs each has."""
    items = there.get(line) or [(1.0, MachineInstruction(0, name, ptx=line))]
    total = sum(runs for runs, _ in items)
    return [(runs / total if total else 1 / len(items), item) for runs, item in items]


def _copied(copied: Copied, item: MachineInstruction, share: float) -> list[MachineAccess]:
    """A copy, in shared memory (that of all blocks that get it) and in global memory, or that of the cluster."""
    op, zero = _OPS[copied.way], copied[Moved.RUNS] * 0.0
    # Of the copy engine's, there is one for each lane; the others are instructions of whole warps.
    runs = copied[Moved.RUNS if copied.way.startswith("remote") else Moved.COPIES] * share
    inside = copied[Moved.ALL_BYTES] * share
    sectors, outside = copied[Moved.ALL_SECTORS] * share, copied[Moved.BYTES] * share
    there = "dshared" if op.startswith("dshared") else "global"
    if copied.way == "prefetch":
        inside = zero
    ideal = np.ceil(inside / SECTOR_BYTES)
    return [
        MachineAccess(item, op, "shared", 0, runs, zero, zero, zero, zero, zero, inside),
        MachineAccess(item, op, there, 0, runs, zero, zero, zero, sectors, ideal, outside),
    ]


def _product(product: WgmmaRuns, item: MachineInstruction, share: float) -> MachineAccess:
    runs = product.runs * share
    size = runs * product.shared_bytes / _WARPS
    waves, zero = size / LINE_BYTES, runs * 0.0
    return MachineAccess(item, "gmma", "shared", 0, runs, waves, waves, waves, zero, zero, size)


def shared_lines(accesses: Sequence[MachineAccess]) -> float:
    """Lines of 128 bytes that copies read and write in shared memory: what all its banks do at once."""
    copies = [access for access in accesses if access.space == "shared" and access.op in _OPS.values()]
    return sum(float(access.bytes.sum()) for access in copies) / LINE_BYTES


def more_sectors(counts: Counts) -> float:
    """Sectors that come to SMs beyond those that one block asks for: to others of its cluster, and for what lies
    outside a tensor."""
    loads = [copied for copied in counts.copies() if copied.way in ("load", "multicast")]
    return sum(float((item[Moved.ALL_SECTORS] - item[Moved.SECTORS]).sum()) for item in loads)


def bulk_metrics(accesses: Sequence[MachineAccess], size: int, label: str) -> list[Metric]:
    """Figures of copies and products under ncu's names; none where a launch has none of either."""

    def total(ops: Sequence[str], what: str, space: str = "") -> Figures:
        some = [access for access in accesses if access.op in ops and space in ("", access.space)]
        return whole(sum((getattr(access, what) for access in some), np.zeros(size)))

    ops = {access.op for access in accesses}
    found: list[Metric] = []
    if ops & {*_OPS.values()}:
        for name, some in _TMA.items():
            for family in ("smsp__sass", "sm__sass"):
                if family == "sm__sass" and "tma" not in name:
                    continue  # ncu has no such names
                figures = total(some, "runs", "shared")
                found += spread(f"{family}_inst_executed_op_{name}", figures, label, "inst")
        for name, some in _MOVED.items():
            sectors = total(some, "sectors")
            found += spread(name.format("sectors"), sectors, label, "sector")
            found += spread(name.format("bytes"), sectors * SECTOR_BYTES, label, "byte")
    if "gmma" in ops:
        moved = total(("gmma",), "bytes")
        for family in ("smsp__sass", "sm__sass"):
            found += spread(f"{family}_data_bytes_mem_shared_op_gmma", moved, label, "byte")
            runs = total(("gmma",), "runs")
            found += spread(f"{family}_inst_executed_op_shared_gmma", runs, label, "inst")
        waves = total(("gmma",), "waves")
        found += spread("sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma", waves, label)
    return found
