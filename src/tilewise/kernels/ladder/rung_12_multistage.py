"""Geometry of rung 12: one block per tile of C, eight rows of tiles at a time, with a ring of stages each."""

from __future__ import annotations

from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.ladder.rung_10_turing_tensor_core import Partition, cost
from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

BLOCK_K = 32

# How many blocks fit on one SM of Ampere: by registers, and with four stages by shared memory too.
PARTITIONS = {
    "128x128x32": Partition(128, 128, 4, 2),
    "128x256x32": Partition(128, 256, 8, 1),
    "64x64x32": Partition(64, 64, 4, 4),
}


def choose(m: int, n: int, _k: int, sms: int) -> Settings:
    """The partition that costs least, as rung 10 counts it: what arrives for each multiply-add is the same."""
    return {"partition": min(PARTITIONS, key=lambda word: cost(PARTITIONS[word], m, n, sms))}


def steps(a: Operand, b: Operand, c: Operand, _workspace: int, settings: Settings) -> list[Step]:
    if settings["result"] != c.dtype:
        raise ArgumentError("result", f"must be {c.dtype!r}, the element type of c", settings["result"])
    partition = PARTITIONS[str(settings["partition"])]
    blocks = ceil_div(c.rows, partition.block_m) * ceil_div(c.columns, partition.block_n)
    shared = int(settings["stages"]) * (partition.block_m + partition.block_n) * BLOCK_K * 2
    args = (a.matrix(), b.matrix(), c.matrix())
    return [Step("multistage", Launch((blocks, 1, 1), (partition.warps * 32, 1, 1), args, shared=shared))]


RUNG = Rung(
    name="12_multistage",
    title="tensor cores fed by asynchronous copies, stages ahead",
    file=Path(__file__).with_suffix(".cu"),
    entries=("multistage",),
    steps=steps,
    rows=("C1", "C2", "C4", "C6"),
    least=(8, 0),
    settings={
        "partition": tuple(PARTITIONS),
        "element": ("float16", "bfloat16"),
        "result": ("float16", "bfloat16", "float32"),
        "stages": (4, 3),
    },
    choose=choose,
    operand_type="float16",
    result_types=("float16", "bfloat16", "float32"),
)
