"""Geometry of rung 13: clusters of blocks one below the other, and what the copy engine has to be told.

The copy engine reads a matrix by its tensor map, and that can only describe rows that begin at multiples of
16 bytes. An operand whose rows do not is copied into the workspace first. A result is stored by the engine
if its rows begin so, and element by element if not.
"""

from __future__ import annotations

from pathlib import Path

from tilewise.devices.tensor_map import BYTES, TensorMap
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

BLOCK_M, BLOCK_K = 128, 64
THREADS = 384
ALIGNMENT = 16  # bytes: of a row's beginning, for the copy engine
ROW_BYTES = 128  # of a box, the most that its swizzle allows
HALF_ROWS = 64  # that one warpgroup has of a tile

BLOCK_N = {"128x256x64": 256, "128x128x64": 128}
STAGES = {"128x256x64": 4, "128x128x64": 6}
BARRIER_BYTES = 16  # of a stage: one that says it is full, one that says it is empty
RESULT_BYTES = 4 * HALF_ROWS * ROW_BYTES  # two boxes for each warpgroup that multiplies
MOST_TILES = 128

LOAD_COST = 64  # multiply-adds of the tensor cores in the time that one element takes to arrive


def cost(block_n: int, m: int, n: int, sms: int) -> int:
    """What the busiest SM spends on each k, in multiply-adds; see rung 10."""
    blocks = ceil_div(m, BLOCK_M) * ceil_div(n, block_n)
    return ceil_div(blocks, sms) * (BLOCK_M * block_n + (BLOCK_M + block_n) * LOAD_COST)


def choose(m: int, n: int, _k: int, sms: int) -> Settings:
    """The partition that costs least, clusters of two unless the second block would have no row of C, and
    so many tiles a block that all blocks run at once."""
    partition = min(BLOCK_N, key=lambda word: cost(BLOCK_N[word], m, n, sms))
    cluster = 2 if m > BLOCK_M else 1
    tiles = ceil_div(clusters(m, n, partition, cluster), max(sms // cluster, 1))
    return {"partition": partition, "cluster": cluster, "tiles": min(tiles, MOST_TILES)}


def clusters(m: int, n: int, partition: str, cluster: int) -> int:
    """How many clusters cover C with a tile for each block."""
    return ceil_div(m, BLOCK_M * cluster) * ceil_div(n, BLOCK_N[partition])


def rule(m: int, n: int, k: int, _settings: Settings) -> None:
    """Refuse a size that the engine's coordinates do not reach."""
    for argument, size in (("m", m), ("n", n), ("k", k)):
        if size >= 2**31:
            raise LaunchError(argument, "must be less than 2^31 for rung 13_warp_specialised", f"{size:,}")


def steps(a: Operand, b: Operand, c: Operand, workspace: int, settings: Settings) -> list[Step]:
    if settings["result"] != c.dtype:
        raise ArgumentError("result", f"must be {c.dtype!r}, the element type of c", settings["result"])
    partition, cluster = str(settings["partition"]), int(settings["cluster"])
    block_n, stages = BLOCK_N[partition], STAGES[partition]
    prepared, operands = _aligned((a, b), workspace)
    box_c = (HALF_ROWS, ROW_BYTES // _size(c))
    maps = (_map(operands[0], (BLOCK_M, BLOCK_K)), _map(operands[1], (BLOCK_K, BLOCK_K)), _map(c, box_c))
    launched = ceil_div(clusters(c.rows, c.columns, partition, cluster), int(settings["tiles"]))
    launch = Launch(
        (launched * cluster, 1, 1),
        (THREADS, 1, 1),
        (*maps, c.matrix(), a.columns, int(is_aligned(c))),
        shared=stages * ((BLOCK_M + block_n) * BLOCK_K * 2 + BARRIER_BYTES) + RESULT_BYTES,
        cluster=(cluster, 1, 1) if cluster > 1 else None,
    )
    return [*prepared, Step("warp_specialised", launch)]


def is_aligned(operand: Operand) -> bool:
    """Whether a tensor map can describe the operand as it lies. Where there is one row, the pitch is nothing."""
    apart = operand.pitch * _size(operand) if operand.rows > 1 else 0
    return operand.address % ALIGNMENT == 0 and apart % ALIGNMENT == 0


def _size(operand: Operand) -> int:
    return 4 if operand.dtype == "float32" else 2


def _padded(operand: Operand, address: int) -> Operand:
    """The operand as it lies in the workspace."""
    pitch = ceil_div(operand.columns * 2, ALIGNMENT) * ALIGNMENT // 2
    return Operand(address, operand.rows, operand.columns, pitch, operand.dtype)


def _bytes(operand: Operand) -> int:
    """What the operand takes of the workspace."""
    if is_aligned(operand) or not operand.rows * operand.columns:
        return 0
    return operand.rows * _padded(operand, 0).pitch * 2


def _aligned(operands: tuple[Operand, Operand], workspace: int) -> tuple[list[Step], list[Operand]]:
    """Copies of the operands that the engine cannot read as they lie, and what it is to read."""
    prepared, found = [], []
    for operand in operands:
        size = _bytes(operand)
        if size:
            copy = _padded(operand, workspace)
            copy.check_index("workspace")
            chunks = copy.rows * copy.pitch * 2 // ALIGNMENT
            launch = Launch((ceil_div(chunks, 256), 1, 1), (256, 1, 1), (operand.matrix(), copy.matrix()))
            prepared.append(Step("align_rows", launch))
            operand, workspace = copy, workspace + size
        found.append(operand)
    return prepared, found


def _map(operand: Operand, box: tuple[int, int]) -> TensorMap | bytes:
    """The tensor map of an operand; for one that the engine will not touch, as many zeros."""
    if not operand.rows * operand.columns or not is_aligned(operand):
        return bytes(BYTES)
    size = _size(operand)
    pitch = (
        operand.pitch if operand.rows > 1 else ceil_div(operand.columns * size, ALIGNMENT) * ALIGNMENT // size
    )
    return TensorMap(
        operand.address,
        box,
        dtype=operand.dtype,
        shape=(operand.rows, operand.columns),
        strides=(pitch * size,),
        swizzle=ROW_BYTES,
    )


class _Aligning(Rung):
    """A rung whose workspace depends on how the operands lie, and whose binary not on how many tiles there are."""

    def defines(self, settings: Settings) -> dict[str, int]:
        return super().defines({name: value for name, value in settings.items() if name != "tiles"})

    def room(self, a: Operand, b: Operand, _c: Operand, _settings: Settings) -> int:
        return _bytes(a) + _bytes(b)


RUNG = _Aligning(
    name="13_warp_specialised",
    title="warps with jobs, copies by an engine, clusters",
    file=Path(__file__).with_suffix(".cu"),
    entries=("warp_specialised", "align_rows"),
    steps=steps,
    rows=("C1", "C2", "C4", "C6", "C7"),
    least=(9, 0),
    arch="sm_90a",
    settings={
        "partition": tuple(BLOCK_N),
        "element": ("float16", "bfloat16"),
        "result": ("float16", "bfloat16", "float32"),
        "cluster": (2, 1),
        "tiles": tuple(range(1, MOST_TILES + 1)),  # of C that a block computes, one after another
    },
    rule=rule,
    choose=choose,
    operand_type="float16",
    result_types=("float16", "bfloat16", "float32"),
)
