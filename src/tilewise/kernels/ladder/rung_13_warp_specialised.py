"""Launch of rung 13: clusters of blocks one below the other, and what the copy engine has to be told.

The copy engine reads a matrix by its tensor map, and that can only describe rows that begin at multiples of
16 bytes. An operand whose rows do not is copied into the workspace first. A result is stored by the engine
if its rows begin so, and element by element if not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tilewise.devices.tensor_map import BYTES
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.spec import (
    KernelSpec,
    MapSlot,
    Operand,
    Operands,
    Settings,
    Slot,
    Step,
    Work,
    ceil_div,
    constant,
    straddling,
)
from tilewise.launch import Launch
from tilewise.problem import Tile

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
MOST_SIZE = 2**31  # of the engine's coordinates


def block_n(settings: Settings) -> int:
    return BLOCK_N[str(settings["partition"])]


def stages(settings: Settings) -> int:
    return STAGES[str(settings["partition"])]


def shared_bytes(settings: Settings) -> int:
    """The ring of stages with their barriers, and the boxes of results."""
    return stages(settings) * ((BLOCK_M + block_n(settings)) * BLOCK_K * 2 + BARRIER_BYTES) + RESULT_BYTES


def clusters(operands: Operands, settings: Settings) -> int:
    """How many clusters cover C with a tile for each block."""
    m, n, _ = operands.sizes
    return ceil_div(m, BLOCK_M * int(settings["cluster"])) * ceil_div(n, block_n(settings))


def candidates(operands: Operands, _settings: Settings, sms: int) -> Iterator[Settings]:
    """Both partitions, with clusters and without, and tiles from one a block to all blocks at once."""
    for partition in BLOCK_N:
        for cluster in (1, 2) if operands.c.rows > BLOCK_M else (1,):
            found = {"partition": partition, "cluster": cluster}
            at_once = max(sms // cluster, 1)
            most = min(ceil_div(clusters(operands, found), at_once), MOST_TILES)
            for tiles in sorted({1, ceil_div(most, 4), ceil_div(most, 2), most}):
                yield {**found, "tiles": tiles}


def refuse(operands: Operands, _settings: Settings) -> ArgumentError | None:
    """Refuse a size that the engine's coordinates do not reach."""
    for argument, size in zip("mnk", operands.sizes, strict=True):
        if size >= MOST_SIZE:
            return LaunchError(argument, "must be less than 2^31 for rung 13_warp_specialised", f"{size:,}")
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    cluster, c = int(settings["cluster"]), operands.c
    prepared, (a, b) = _align(operands)
    boxes = ((BLOCK_M, BLOCK_K), (BLOCK_K, BLOCK_K), (HALF_ROWS, ROW_BYTES // c.itemsize))
    maps = [_map(operand, box) for operand, box in zip((a, b, c), boxes, strict=True)]
    launched = ceil_div(clusters(operands, settings), int(settings["tiles"]))
    launch = Launch(
        (launched * cluster, 1, 1),
        (THREADS, 1, 1),
        (*maps, c.matrix(), constant("I", a.columns), constant("I", is_aligned(c))),
        shared=shared_bytes(settings),
        cluster=(cluster, 1, 1) if cluster > 1 else None,
    )
    return [*prepared, Step("warp_specialised", launch)]


def is_aligned(operand: Operand) -> bool:
    """Whether a tensor map can describe the operand as it lies. Where there is one row, the pitch is nothing."""
    apart = operand.pitch * operand.itemsize if operand.rows > 1 else 0
    return operand.alignment % ALIGNMENT == 0 and apart % ALIGNMENT == 0


def _copy_of(operand: Operand, offset: int) -> Operand:
    """The operand as it lies in the workspace, from byte ``offset`` on."""
    pitch = ceil_div(operand.columns * operand.itemsize, ALIGNMENT) * ALIGNMENT // operand.itemsize
    return replace(operand, name="workspace", row_stride=pitch, alignment=ALIGNMENT, offset=offset)


def _copy_bytes(operand: Operand) -> int:
    """What the operand takes of the workspace."""
    if is_aligned(operand) or not operand.rows * operand.columns:
        return 0
    return operand.rows * _copy_of(operand, 0).row_stride * operand.itemsize


def _align(operands: Operands) -> tuple[list[Step], list[Operand]]:
    """Copies of the operands that the engine cannot read as they lie, and what it is to read."""
    prepared, found, offset = [], [], 0
    for operand in operands[:2]:
        size = _copy_bytes(operand)
        if size:
            copy = _copy_of(operand, offset)
            copy.check_index("workspace")
            blocks = ceil_div(size // ALIGNMENT, 256)
            launch = Launch((blocks, 1, 1), (256, 1, 1), (operand.matrix(), copy.matrix()))
            prepared.append(Step("align_rows", launch))
            operand, offset = copy, offset + size
        found.append(operand)
    return prepared, found


def workspace_bytes(operands: Operands, _settings: Settings) -> int:
    return _copy_bytes(operands.a) + _copy_bytes(operands.b)


def work(operands: Operands, settings: Settings) -> Work:
    both = operands.a, operands.b
    copied, cluster = [_copy_bytes(one) for one in both], int(settings["cluster"])
    block = Tile(BLOCK_M, block_n(settings), BLOCK_K)
    a, b = (_copy_of(one, 0) if size else one for one, size in zip(both, copied, strict=True))
    return Work(
        "wgmma",
        block,
        THREADS,
        stages=stages(settings),
        cluster=cluster,
        tiles=int(settings["tiles"]),
        launches=1 + sum(size > 0 for size in copied),
        extra_bytes=2 * sum(copied),
        store_bytes=16 if is_aligned(operands.c) else operands.c.itemsize,
        straddling=straddling(a, b, block, cluster),
    )


def _map(operand: Operand, box: tuple[int, int]) -> MapSlot | Slot:
    """The tensor map of an operand; for one that the engine will not touch, as many zeros."""
    if not operand.rows * operand.columns or not is_aligned(operand):
        return Slot(bytes(BYTES))
    return operand.map(box, swizzle=ROW_BYTES)


def defines(settings: Settings) -> dict[str, object]:
    """Compile-time values; how many tiles a block computes is decided by the grid alone."""
    return {
        "BLOCK_N": block_n(settings),
        "STAGES": stages(settings),
        "CLUSTER": settings["cluster"],
        "ELEMENT": settings["element"],
        "RESULT": settings["result"],
        "THREADS": THREADS,
        "SHARED_BYTES": shared_bytes(settings),
    }


def tiles(settings: Settings) -> dict[str, Tile]:
    block = Tile(BLOCK_M, block_n(settings), BLOCK_K)
    return {
        "cluster": Tile(BLOCK_M * int(settings["cluster"]), block.n, block.k),
        "block": block,
        "instruction": Tile(64, block.n, 16),
    }


SPEC = KernelSpec(
    name="13_warp_specialised",
    title="warps with jobs, copies by an engine, clusters",
    file=Path(__file__).with_suffix(".cu"),
    entries=("warp_specialised", "align_rows"),
    steps=steps,
    work=work,
    least=(9, 0),
    arch="sm_90a",
    settings={
        "partition": tuple(BLOCK_N),
        "element": ("float16", "bfloat16"),
        "result": ("float16", "bfloat16", "float32"),
        "cluster": (2, 1),
        "tiles": tuple(range(1, MOST_TILES + 1)),  # of C that a block computes, one after another
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
    element_types=("float16", "bfloat16"),
    defines=defines,
    tiles=tiles,
    raster="grouped",
    practical=False,
)
