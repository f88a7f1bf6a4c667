"""Launch of the kernel for Hopper's tensor cores: tiles for every size, operands in rows or columns, whole stacks.

The copy engine reads a matrix by its tensor map, which can only describe rows (or columns) that begin at multiples of
16 bytes; an operand that lies otherwise is copied first. A result is stored by the engine if its rows begin so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewise.devices.tensor_map import BYTES
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.epilogue import epilogue_slot
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

__all__ = ["SPEC"]

BLOCK_K = 64
ROW_BYTES = 128  # of a box, the most that its swizzle allows
WARPGROUP = 128  # threads
BARRIER_BYTES = 16  # of a stage: one that says it is full, one that says it is empty
BOX_BYTES = 64 * ROW_BYTES  # of results; each warpgroup that multiplies has two
STACK_AXES = 2
ALIGNMENT = 16  # bytes: of a row's beginning, for the copy engine
MOST_TILES = 128
MOST_SIZE = 2**31  # of the engine's coordinates
MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile of a block, the warpgroups that multiply it, and the stages that shared memory has room for."""

    tile: Tile
    consumers: int
    stages: int

    @property
    def m(self) -> int:
        """Rows of the block's tile."""
        return self.tile.m

    @property
    def n(self) -> int:
        """Columns of the block's tile."""
        return self.tile.n

    @property
    def threads(self) -> int:
        """Threads of a block: the warpgroups that multiply, and the one that copies."""
        return (self.consumers + 1) * WARPGROUP

    @property
    def shared_bytes(self) -> int:
        """The stages with their barriers, and the boxes of results."""
        stage = (self.m + self.n) * BLOCK_K * 2 + BARRIER_BYTES
        return self.stages * stage + self.consumers * 2 * BOX_BYTES


SHAPES = {
    "128x256x64": Shape(Tile(128, 256, BLOCK_K), 2, 4),
    "256x128x64": Shape(Tile(256, 128, BLOCK_K), 2, 4),
    "256x192x64": Shape(Tile(256, 192, BLOCK_K), 2, 3),
    "192x192x64": Shape(Tile(192, 192, BLOCK_K), 3, 3),
    "128x192x64": Shape(Tile(128, 192, BLOCK_K), 2, 4),
    "128x128x64": Shape(Tile(128, 128, BLOCK_K), 2, 6),
    "128x64x64": Shape(Tile(128, 64, BLOCK_K), 2, 8),
    "64x128x64": Shape(Tile(64, 128, BLOCK_K), 1, 8),
    "64x64x64": Shape(Tile(64, 64, BLOCK_K), 1, 8),
}
CLUSTERS = {"1x1": (1, 1), "2x1": (2, 1), "1x2": (1, 2)}
SPLITS = (1, 2, 4, 8, 16)


def shape_of(settings: Settings) -> Shape:
    return SHAPES[str(settings["partition"])]


def cluster_of(settings: Settings) -> tuple[int, int]:
    """Blocks of a cluster below one another and side by side, those that split K aside."""
    return CLUSTERS[str(settings["cluster"])]


def clusters(operands: Operands, settings: Settings) -> int:
    """How many clusters cover the stack with a tile for each block, or for all of them where they split K."""
    (m, n, _), shape, (down, across) = operands.sizes, shape_of(settings), cluster_of(settings)
    return ceil_div(m, shape.m * down) * ceil_div(n, shape.n * across) * operands.batch


def candidates(operands: Operands, _settings: Settings, sms: int) -> Iterator[Settings]:
    """Every tile that is not much too large, with clusters, splits of K, and several tiles a block."""
    m, n, k = operands.sizes
    lies = {"a_in_rows": int(in_rows(operands.a)), "b_in_rows": int(in_rows(operands.b))}
    lies["stacked"] = int(operands.batch > 1)
    for partition, shape in SHAPES.items():
        if (shape.m > 64 and shape.m >= 2 * m) or (shape.n > 64 and shape.n >= 2 * n):
            continue
        found: dict[str, int | str] = {**lies, "partition": partition}
        for cluster in ("1x1", "2x1") if m > shape.m else ("1x1",):
            made = {**found, "cluster": cluster}
            most = ceil_div(clusters(operands, made), max(sms // cluster_of(made)[0], 1))
            for tiles in sorted({1, min(ceil_div(most, 2), MOST_TILES), min(most, MOST_TILES)}):
                yield {**made, "tiles": tiles}
        alone = clusters(operands, {**found, "cluster": "1x1"})
        for split in SPLITS[1:]:
            if may_split(shape) and alone * split <= 2 * sms and ceil_div(k, BLOCK_K) >= 2 * split:
                yield {**found, "split": split}


def may_split(shape: Shape) -> bool:
    """Whether the sums of a tile need no registers of the warps that copy, and fit where its stages were."""
    room = shape.stages * (shape.m + shape.n) * BLOCK_K * 2
    return shape.m * shape.n <= 128 * 128 and shape.m * (shape.n + 4) * 4 <= room


def in_rows(operand: Operand) -> bool:
    """Whether the kernel takes the operand as rows, not as columns. A single column may be either."""
    return is_aligned(operand) or not is_aligned(operand.transposed())


def is_readable(operand: Operand) -> bool:
    """Whether a tensor map can describe the operand: rows or columns, each beginning at a multiple of 16 bytes."""
    return is_aligned(operand) or is_aligned(operand.transposed())


def _lines(operand: Operand, settings: Settings) -> Operand:
    """The operand as the rows that the settings take it for: of itself, or of its transpose.

    One row, one column and nothing at all may be either.
    """
    name = "b_in_rows" if operand.name.endswith("b") else "a_in_rows"
    return operand if settings[name] else operand.transposed()


def is_aligned(rows: Operand) -> bool:
    """Whether there are rows, each beginning at a multiple of 16 bytes. Where there is one, the pitch is nothing."""
    if not rows.has_rows:
        return False
    apart = (rows.pitch if rows.rows > 1 else 0, *rows.stack)
    return rows.alignment % ALIGNMENT == 0 and all(step * rows.itemsize % ALIGNMENT == 0 for step in apart)


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse what the engine's coordinates do not reach, and settings that do not go together."""
    for argument, size in zip("mnk", operands.sizes, strict=True):
        if size >= MOST_SIZE:
            return LaunchError(argument, "must be less than 2^31 for kernel wgmma", f"{size:,}")
    for name, operand in (("a_in_rows", operands.a), ("b_in_rows", operands.b)):
        if not is_aligned(_lines(operand, settings)):
            return ArgumentError(name, "must be as the operand lies", settings[name])
    inner = operands.inner(STACK_AXES)
    if bool(settings["stacked"]) != (inner.batch > 1):
        return ArgumentError("stacked", "must be 1 for a stack, else 0", settings["stacked"])
    shape, split = shape_of(settings), int(settings["split"])
    if split > 1 and (cluster_of(settings) != (1, 1) or int(settings["tiles"]) != 1):
        return ArgumentError("split", "must be 1 with a cluster or several tiles a block", split)
    if split > 1 and not may_split(shape):
        return ArgumentError("split", f"must be 1 for a tile of {shape.m}×{shape.n}", split)
    blocks = clusters(inner, settings) * split * 2
    if blocks > MOST_BLOCKS:
        return LaunchError("batch", f"must make at most {MOST_BLOCKS:,} blocks", f"{blocks:,}")
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    shape, (down, across), split = shape_of(settings), cluster_of(settings), int(settings["split"])
    stack = operands.stack if settings["stacked"] else ()
    maps = (
        _map(_lines(a, settings), bool(settings["a_in_rows"]), shape.m, across, stack),
        _map(_lines(b, settings), not settings["b_in_rows"], shape.n, down, stack),
        _result_map(c, stack),
    )
    blocks = down * across * split
    launched = ceil_div(clusters(operands, settings), int(settings["tiles"]))
    inner = operands.stack[-1] if operands.stack else 1
    numbers = (operands.sizes[2], max(operands.batch, 1), max(inner, 1), is_aligned(c))
    launch = Launch(
        (launched * blocks, 1, 1),
        (shape.threads, 1, 1),
        (*maps, c.strided(), *(constant("I", number) for number in numbers), epilogue_slot(operands)),
        shared=shape.shared_bytes,
        cluster=(blocks, 1, 1) if blocks > 1 else None,
        programmatic=True,
    )
    return [Step("wgmma_gemm", launch)]


def _map(rows: Operand, along_k: bool, size: int, sharers: int, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map of A or B, whose tile is ``size`` along M or N; ``sharers`` blocks load a part of it each.

    NOTE: where it is empty, the engine does not touch it, and the map is as many zeros.
    """
    if not rows.rows * rows.columns:
        return Slot(bytes(BYTES))
    part = size // sharers
    if along_k:
        box = (part, BLOCK_K)
    else:
        box = (BLOCK_K if part % BLOCK_K == 0 else BLOCK_K // sharers, BLOCK_K)
    return rows.map(box, ROW_BYTES, stack)


def _result_map(c: Operand, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map of C; if the engine cannot store it, as many zeros."""
    if not is_aligned(c):
        return Slot(bytes(BYTES))
    return c.map((64, ROW_BYTES // c.itemsize), ROW_BYTES, stack)


def work(operands: Operands, settings: Settings) -> Work:
    shape, (down, _) = shape_of(settings), cluster_of(settings)
    a, b, c = operands[:3]
    first, second = (_lines(one, settings) for one in (a, b))
    return Work(
        "wgmma_gemm",
        shape.tile,
        shape.threads,
        stages=shape.stages,
        cluster=down,
        split=int(settings["split"]),
        split_in_cluster=True,
        tiles=int(settings["tiles"]),
        store_bytes=16 if is_aligned(c) else c.itemsize,
        straddling=straddling(first, second, shape.tile, down),
    )


def defines(settings: Settings) -> dict[str, object]:
    """Compile-time values; how many tiles a block computes is decided by the grid alone."""
    shape, (down, across) = shape_of(settings), cluster_of(settings)
    return {
        "BLOCK_M": shape.m,
        "BLOCK_N": shape.n,
        "CONSUMERS": shape.consumers,
        "STAGES": shape.stages,
        "CLUSTER_M": down,
        "CLUSTER_N": across,
        "SPLIT": settings["split"],
        "A_IN_ROWS": settings["a_in_rows"],
        "B_IN_ROWS": settings["b_in_rows"],
        "STACKED": settings["stacked"],
        "ELEMENT": settings["element"],
        "RESULT": settings["result"],
        "THREADS": shape.threads,
        "SHARED_BYTES": shape.shared_bytes,
    }


def tiles(settings: Settings) -> dict[str, Tile]:
    """The tiles at every level."""
    shape, (down, across) = shape_of(settings), cluster_of(settings)
    return {
        "cluster": Tile(shape.m * down, shape.n * across, BLOCK_K * int(settings["split"])),
        "block": shape.tile,
        "instruction": Tile(64, shape.n, 16),
    }


SPEC = KernelSpec(
    name="wgmma",
    title="Hopper's tensor cores: any tile, rows or columns, stacks",
    file=Path(__file__).with_suffix(".cu"),
    entries=("wgmma_gemm",),
    steps=steps,
    work=work,
    least=(9, 0),
    arch="sm_90a",
    settings={
        "partition": tuple(SHAPES),
        "element": ("bfloat16", "float16"),
        "result": ("bfloat16", "float16", "float32"),
        "cluster": tuple(CLUSTERS),
        "split": SPLITS,
        "tiles": tuple(range(1, MOST_TILES + 1)),  # of C that a block computes, one after another
        "a_in_rows": (1, 0),
        "b_in_rows": (1, 0),
        "stacked": (0, 1),
    },
    refuse=refuse,
    candidates=candidates,
    element_types=("bfloat16", "float16"),
    defines=defines,
    tiles=tiles,
    raster="grouped",
    stack_axes=STACK_AXES,
    epilogues=True,
    readable=is_readable,
    lies="have rows or columns that begin at multiples of 16 bytes",
)
