"""Launch of rung 10: one block per tile of C along a Hilbert curve.

A partition is block_m × block_n × block_k; its warps have 64×64 elements of C each, or 32×32 in the
smallest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, access_bytes, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile

BLOCK_K = 32


@dataclass(frozen=True, slots=True)
class Partition:
    """The tile of a block, and how many warps share it; ``resident`` blocks fit on one SM."""

    block_m: int
    block_n: int
    warps: int
    resident: int

    @property
    def warp_edge(self) -> int:
        """Rows and columns of C that a warp has."""
        return math.isqrt(self.block_m * self.block_n // self.warps)

    def tiles(self, instruction: Tile) -> dict[str, Tile]:
        """The tile at each level."""
        edge = self.warp_edge
        return {
            "block": Tile(self.block_m, self.block_n, BLOCK_K),
            "warp": Tile(edge, edge, BLOCK_K),
            "instruction": instruction,
        }

    def defines(self) -> dict[str, object]:
        """The compile-time numbers of the kernel."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "WARP_M": self.warp_edge,
            "WARP_N": self.warp_edge,
            "THREADS": self.warps * 32,
        }


PARTITIONS = {
    "128x256x32": Partition(128, 256, 8, 1),
    "128x128x32": Partition(128, 128, 4, 2),
    "64x64x32": Partition(64, 64, 4, 4),
}


def partition_of(settings: Settings) -> Partition:
    return PARTITIONS[str(settings["partition"])]


def candidates(_operands: Operands, _settings: Settings, _sms: int) -> Iterator[Settings]:
    for partition in PARTITIONS:
        yield {"partition": partition}


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    partition = partition_of(settings)
    blocks = ceil_div(c.rows, partition.block_m) * ceil_div(c.columns, partition.block_n)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("turing_tensor_core", Launch((blocks, 1, 1), (partition.warps * 32, 1, 1), args))]


def work(operands: Operands, settings: Settings) -> Work:
    partition = partition_of(settings)
    block = Tile(partition.block_m, partition.block_n, BLOCK_K)
    load, store = access_bytes(*operands[:2]), access_bytes(operands.c)
    threads = partition.warps * 32
    return Work("mma8", block, threads, partition.resident, 2, load_bytes=load, store_bytes=store)


SPEC = KernelSpec(
    name="10_turing_tensor_core",
    title="tensor cores, loads ahead of the sums",
    file=Path(__file__).with_suffix(".cu"),
    entries=("turing_tensor_core",),
    steps=steps,
    work=work,
    settings={
        "partition": tuple(PARTITIONS),
        "accumulate": ("float32", "float16"),
        "result": ("float16", "float32"),
    },
    candidates=candidates,
    element_types=("float16",),
    accumulate=lambda settings: str(settings["accumulate"]),
    defines=lambda settings: {
        **partition_of(settings).defines(),
        "ACCUMULATE": settings["accumulate"],
        "RESULT": settings["result"],
    },
    tiles=lambda settings: partition_of(settings).tiles(Tile(16, 8, 8)),
    raster="hilbert",
    practical=False,
)
