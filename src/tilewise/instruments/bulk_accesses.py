"""Memory traffic of bulk copies, and of ``wgmma`` in shared memory, under ncu's names.

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
from tilewise.emulator.profiling.copies import CopyFigure
from tilewise.emulator.profiling.counted import CopyCounts, Counts, WgmmaRuns
from tilewise.instruments.machine import MachineAccess
from tilewise.instruments.metric import Figures, Metric, round_counts, spread
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["BULK", "bulk_metrics", "count_extra_sectors", "count_shared_lines", "list_bulk_accesses"]

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


def list_bulk_accesses(
    counts: Counts, code: Sequence[tuple[float, MachineInstruction]]
) -> list[MachineAccess]:
    """Return the accesses of copies and products by machine instruction: ``code`` has those of the launch and
    how often each ran. Where a PTX line has no machine instruction, the line itself stands for one.
    """
    copies, products = counts.copies(), counts.products()
    there = _by_line([item.line for item in copies], code, _COPIES)
    found = []
    for copied in copies:
        for share, item in _share_runs(there, copied.line, copied.name):
            found += _copy_accesses(copied, item, share)
    there = _by_line([item.line for item in products], code, _PRODUCTS)
    for product in products:
        for share, item in _share_runs(there, product.line, "wgmma.mma_async"):
            found.append(_product_access(product, item, share))
    return found


_Items = list[tuple[float, MachineInstruction]]  # how often each ran


def _by_line(
    lines: Sequence[int], code: Sequence[tuple[float, MachineInstruction]], families: Sequence[str]
) -> dict[int | None, _Items]:
    """Map PTX lines to the machine instructions that implement them.

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


def _share_runs(there: Mapping[int | None, _Items], line: int, name: str) -> _Items:
    """Return a PTX line's machine instructions, each with its share of the line's runs."""
    items = there.get(line) or [(1.0, MachineInstruction(0, name, ptx=line))]
    total = sum(runs for runs, _ in items)
    return [(runs / total if total else 1 / len(items), item) for runs, item in items]


def _copy_accesses(copied: CopyCounts, item: MachineInstruction, share: float) -> list[MachineAccess]:
    """Return a copy's two accesses: to shared memory of all receivers, and to global or the cluster's memory."""
    op, zero = _OPS[copied.kind], copied[CopyFigure.RUNS] * 0.0
    # Of the copy engine's, there is one for each lane; the others are instructions of whole warps.
    runs = copied[CopyFigure.RUNS if copied.kind.startswith("remote") else CopyFigure.COPIES] * share
    inside = copied[CopyFigure.ALL_BYTES] * share
    sectors, outside = copied[CopyFigure.ALL_SECTORS] * share, copied[CopyFigure.BYTES] * share
    there = "dshared" if op.startswith("dshared") else "global"
    if copied.kind == "prefetch":
        inside = zero
    ideal = np.ceil(inside / SECTOR_BYTES)
    return [
        MachineAccess(item, op, "shared", 0, runs, zero, zero, zero, zero, zero, inside),
        MachineAccess(item, op, there, 0, runs, zero, zero, zero, sectors, ideal, outside),
    ]


def _product_access(product: WgmmaRuns, item: MachineInstruction, share: float) -> MachineAccess:
    runs = product.runs * share
    size = runs * product.shared_bytes / _WARPS
    waves, zero = size / LINE_BYTES, runs * 0.0
    return MachineAccess(item, "gmma", "shared", 0, runs, waves, waves, waves, zero, zero, size)


def count_shared_lines(accesses: Sequence[MachineAccess]) -> float:
    """Return how many lines of 128 bytes of shared memory copies read and write."""
    copies = [access for access in accesses if access.space == "shared" and access.op in _OPS.values()]
    return sum(float(access.bytes.sum()) for access in copies) / LINE_BYTES


def count_extra_sectors(counts: Counts) -> float:
    """Return the sectors that reach SMs beyond one block's: for other blocks of a cluster, and for what
    lies outside a tensor.
    """
    loads = [copied for copied in counts.copies() if copied.kind in ("load", "multicast")]
    return sum(float((item[CopyFigure.ALL_SECTORS] - item[CopyFigure.SECTORS]).sum()) for item in loads)


def bulk_metrics(accesses: Sequence[MachineAccess], size: int, label: str) -> list[Metric]:
    """Return the metrics of copies and products; none for a launch without either."""

    def total(ops: Sequence[str], what: str, space: str = "") -> Figures:
        some = [access for access in accesses if access.op in ops and space in ("", access.space)]
        return round_counts(sum((getattr(access, what) for access in some), np.zeros(size)))

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
