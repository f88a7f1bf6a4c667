"""Launch of rung 12: one block per tile of C, eight rows of tiles at a time, with a ring of stages each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tilewise.kernels.ladder.rung_10_turing_tensor_core import BLOCK_K, Partition
from tilewise.kernels.spec import KernelSpec, Operands, Settings, Step, Work, access_bytes, ceil_div
from tilewise.launch import Launch
from tilewise.problem import Tile

# How many blocks fit on one SM of Ampere: by registers, and with four stages by shared memory too.
PARTITIONS = {
    "128x128x32": Partition(128, 128, 4, 2),
    "128x256x32": Partition(128, 256, 8, 1),
    "64x64x32": Partition(64, 64, 4, 4),
}


def partition_of(settings: Settings) -> Partition:
    return PARTITIONS[str(settings["partition"])]


def shared_bytes(settings: Settings) -> int:
    """The ring of stages, which is all the shared memory of a block."""
    partition = partition_of(settings)
    return int(settings["stages"]) * (partition.block_m + partition.block_n) * BLOCK_K * 2


def candidates(_operands: Operands, _settings: Settings, _sms: int) -> Iterator[Settings]:
    for partition, stages in itertools.product(PARTITIONS, (4, 3)):
        yield {"partition": partition, "stages": stages}


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    partition = partition_of(settings)
    blocks = ceil_div(c.rows, partition.block_m) * ceil_div(c.columns, partition.block_n)
    args = (a.matrix(), b.matrix(), c.matrix())
    block = (partition.warps * 32, 1, 1)
    return [Step("multistage", Launch((blocks, 1, 1), block, args, shared=shared_bytes(settings)))]


def work(operands: Operands, settings: Settings) -> Work:
    partition = partition_of(settings)
    block = Tile(partition.block_m, partition.block_n, BLOCK_K)
    load, store = access_bytes(*operands[:2]), access_bytes(operands.c)
    threads, stages = partition.warps * 32, int(settings["stages"])
    return Work("mma16", block, threads, partition.resident, stages, load_bytes=load, store_bytes=store)


def defines(settings: Settings) -> dict[str, object]:
    return {
        **partition_of(settings).defines(),
        "ELEMENT": settings["element"],
        "RESULT": settings["result"],
        "STAGES": settings["stages"],
        "SHARED_BYTES": shared_bytes(settings),
    }


SPEC = KernelSpec(
    name="12_multistage",
    title="tensor cores fed by asynchronous copies, stages ahead",
    file=Path(__file__).with_suffix(".cu"),
    entries=("multistage",),
    steps=steps,
    work=work,
    least=(8, 0),
    settings={
        "partition": tuple(PARTITIONS),
        "element": ("float16", "bfloat16"),
        "result": ("float16", "bfloat16", "float32"),
        "stages": (4, 3),
    },
    candidates=candidates,
    element_types=("float16", "bfloat16"),
    defines=defines,
    tiles=lambda settings: partition_of(settings).tiles(Tile(16, 8, 16)),
    raster="grouped",
    practical=False,
)
