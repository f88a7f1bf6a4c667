"""Geometry of rung 10: one block per tile of C along a Hilbert curve, and the choice of the partition.

A partition is block_m × block_n × block_k; its warps have 64×64 elements of C each, or 32×32 in the
smallest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch


@dataclass(frozen=True, slots=True)
class Partition:
    """The tile of a block, and how many warps share it; ``resident`` blocks fit on one SM of Turing."""

    block_m: int
    block_n: int
    warps: int
    resident: int


PARTITIONS = {
    "128x256x32": Partition(128, 256, 8, 1),
    "128x128x32": Partition(128, 128, 4, 2),
    "64x64x32": Partition(64, 64, 4, 4),
}

WARPS_TO_HIDE_LATENCY = 8  # on an SM: two for each of its four schedulers
LOAD_COST = 32  # multiply-adds of a tensor core in the time that one element takes to arrive


def cost(partition: Partition, m: int, n: int, sms: int) -> float:
    """What the busiest SM spends on each k, in multiply-adds.

    It computes whole tiles, the padding at the edges and the idle SMs of a last wave included; it does so
    more slowly where it has fewer warps than hide the latency; and it waits for the elements of A and B
    that its tiles need, of which a larger tile needs fewer. k multiplies every partition's cost alike.
    """
    blocks = ceil_div(m, partition.block_m) * ceil_div(n, partition.block_n)
    blocks_each = ceil_div(blocks, sms)
    warps = partition.warps * min(blocks_each, partition.resident)
    slowdown = max(1.0, WARPS_TO_HIDE_LATENCY / warps)
    computing = partition.block_m * partition.block_n * slowdown
    loading = (partition.block_m + partition.block_n) * LOAD_COST
    return blocks_each * (computing + loading)


def choose(m: int, n: int, _k: int, sms: int) -> Settings:
    """The partition that costs least; of equals the larger, which reads less of A and B."""
    return {"partition": min(PARTITIONS, key=lambda word: cost(PARTITIONS[word], m, n, sms))}


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, settings: Settings) -> list[Step]:
    if settings["result"] != c.dtype:
        raise ArgumentError("result", f"must be {c.dtype!r}, the element type of c", settings["result"])
    partition = PARTITIONS[str(settings["partition"])]
    blocks = ceil_div(c.rows, partition.block_m) * ceil_div(c.columns, partition.block_n)
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("turing_tensor_core", Launch((blocks, 1, 1), (partition.warps * 32, 1, 1), args))]


RUNG = Rung(
    name="10_turing_tensor_core",
    title="tensor cores, loads ahead of the sums",
    file=Path(__file__).with_suffix(".cu"),
    entries=("turing_tensor_core",),
    steps=steps,
    rows=("C1", "C2", "C3", "C4", "C6"),
    settings={
        "partition": tuple(PARTITIONS),
        "accumulate": ("float32", "float16"),
        "result": ("float16", "float32"),
    },
    choose=choose,
    operand_type="float16",
    result_types=("float16", "float32"),
    accumulate=lambda settings: str(settings["accumulate"]),
)
