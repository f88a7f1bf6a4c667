"""Launches that multiply float32 on Hopper's tensor cores, as exactly as sums in float32 do.

A pass splits each element into two float16, scaled by a power of two for each row of A and column of B; how operands
lie does not matter to what follows. The tensor cores multiply these parts, and sums are added up in float32. Where
elements of a line are so far apart that the small ones lose bits, or are not finite, the general kernel computes the
results instead, in float32: nobody has to know what the operands hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.epilogue import epilogue_slot
from tilewise.kernels.gemm.general import SHAPES as SHAPES_OF_REMEDY
from tilewise.kernels.gemm.general import SPEC as GENERAL
from tilewise.kernels.gemm.general import runs_along_columns
from tilewise.kernels.gemm.limits import STACK_AXES, name_defines, refuse_blocks, refuse_sizes
from tilewise.kernels.spec import (
    KernelSource,
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
)
from tilewise.kernels.stack import stack_slot
from tilewise.launch import Launch
from tilewise.operands import alignment_of
from tilewise.problem import Tile
from tilewise.slots import joined

__all__ = ["LEAST_K", "SPEC", "split_steps"]

WARPGROUP = 128  # threads
SHARED_MOST = 227 << 10  # bytes of shared memory that a block can have
BARRIER_BYTES, BOX_BYTES = 16, 64 * 64 * 4  # of a stage, and of a warpgroup
DEPTH = 64  # of a step
LEAST_K = 64  # of shorter sums float32 is more exact
MOST_TILES = 64
PARTS_BYTES = 4  # of an element: two float16
SPREAD_BYTES, ROOT_BYTES = 8, 4  # of a line
REGION_BYTES = 256  # that parts of the workspace begin at multiples of
SPLIT_THREADS, SPLIT_CLUSTER, LINES_ACROSS = 256, 8, 32  # of split_halves.cu
FLAG_BYTES = 4  # of a region
_COORDINATES = 2**31
REMEDY, REMEDY_BLOCKS = "64x64x16", 528  # the tile of the general kernel; four blocks for each SM
_SPLIT = Path(__file__).with_name("split_halves.cu")


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile of a block, and the warpgroups that multiply it."""

    tile: Tile

    @property
    def consumers(self) -> int:
        return 1 if self.tile.m == 64 else 2

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * WARPGROUP

    @property
    def rows(self) -> int:
        """Of a warpgroup, which are stored or left out together."""
        return self.tile.m // self.consumers

    @property
    def stages(self) -> int:
        return min((SHARED_MOST - self.consumers * BOX_BYTES) // self._stage_bytes, 8)

    @property
    def shared_bytes(self) -> int:
        return self.stages * self._stage_bytes + self.consumers * BOX_BYTES

    @property
    def _stage_bytes(self) -> int:
        return (self.tile.m + self.tile.n) * DEPTH * PARTS_BYTES + BARRIER_BYTES


SHAPES = {
    f"{m}x{n}x{DEPTH}": Shape(Tile(m, n, DEPTH)) for m, n in ((256, 128), (128, 128), (128, 64), (64, 64))
}


def shape_of(settings: Settings) -> Shape:
    return SHAPES[str(settings["partition"])]


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of A, or the columns of B, of all matrices of a stack, and where what is made of them lies.

    ``source`` has them as rows. Where the stack repeats a matrix there is one copy of it.
    """

    source: Operand
    counts: tuple[int, int] = (1, 1)  # matrices along the two axes of the stack
    begin: int = 0  # of its part of the workspace, or of another operand
    home: str = "workspace"  # the operand that it is a part of
    made: bool = False  # before the call: nothing is left to split

    @property
    def count(self) -> int:
        return math.prod(self.counts) * self.source.rows

    @property
    def depth(self) -> int:
        """Elements of a copy, with zeros behind the last one."""
        return ceil_div(self.source.columns, DEPTH) * DEPTH

    @property
    def spreads(self) -> int:
        """Where, in the workspace, counts of large and tiny elements begin."""
        return self.begin + _whole(self.count * self.depth * PARTS_BYTES)

    @property
    def roots(self) -> int:
        return self.spreads + _whole(self.count * SPREAD_BYTES)

    @property
    def end(self) -> int:
        return self.roots + _whole(self.count * ROOT_BYTES)

    @property
    def along_k(self) -> bool:
        """Whether neighbours along K lie closest together."""
        return runs_along_columns(self.source)

    @property
    def blocks(self) -> int:
        """That split them, in whole clusters."""
        if self.made:
            return 0
        return ceil_div(self.count, SPLIT_CLUSTER if self.along_k else LINES_ACROSS) * SPLIT_CLUSTER

    def map(self, rows: int) -> MapSlot:
        """The tensor map of both parts, the high one first."""
        parts = Operand(self.home, self.count, 2 * self.depth, 2 * self.depth, "float16", offset=self.begin)
        return parts.map((rows, DEPTH), 2 * DEPTH)

    def slot(self) -> Slot:
        """The slot for a ``struct SplitLines``."""
        outer, inner = self.counts
        apart = self.source.rows
        steps = (inner * apart if outer > 1 else 0, apart if inner > 1 else 0)
        addresses = (_address(place, self.home) for place in (self.spreads, self.roots))
        return joined(*addresses, *(constant("I", step) for step in steps))

    def source_slot(self) -> Slot:
        """The slot for a ``struct Source``."""
        addresses = (_address(place, self.home) for place in (self.begin, self.spreads, self.roots))
        numbers = (self.counts[1], self.count, self.along_k, self.blocks)
        return joined(self.source.strided(), *addresses, *(constant("I", number) for number in numbers))


def _whole(size: int) -> int:
    return ceil_div(size, REGION_BYTES) * REGION_BYTES


def _address(offset: int, home: str = "workspace") -> Slot:
    return Operand(home, 1, 1, 1, "float32", offset=offset).pointer()


def lines_of(operands: Operands) -> tuple[Lines, Lines]:
    """Rows of A and columns of B, one behind the other in the workspace; what was made before lies elsewhere."""
    found, begin = [], 0
    for operand, source in ((operands.a, operands.a), (operands.b, operands.b.transposed())):
        steps = (0, 0, *operand.stack)[-2:]
        sizes = (1, 1, *operands.stack)[-2:]
        outer, inner = (1 if step == 0 else size for size, step in zip(sizes, steps, strict=True))
        if operand.name in operands.split:
            found.append(Lines(source, (outer, inner), 0, f"parts_{operand.name}", made=True))
        else:
            found.append(Lines(source, (outer, inner), begin))
            begin = found[-1].end
    return found[0], found[1]


def _end_of(lines: tuple[Lines, ...]) -> int:
    """Where the workspace goes on behind them."""
    return max((one.end for one in lines if not one.made), default=0)


def split_steps(source: Operand) -> tuple[list[Step], int]:
    """The launch that splits the rows of a matrix into an operand "parts" of so many bytes, for products to come."""
    lines = Lines(source, home="parts")
    return [_split((lines, replace(lines, made=True)))], lines.end


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    m, n, _ = operands.sizes
    for name, shape in SHAPES.items():
        tile = shape.tile
        if (tile.m > 64 and tile.m >= 2 * m) or (tile.n > 64 and tile.n >= 2 * n):
            continue
        share = max(ceil_div(count_tiles(operands, {"partition": name}), sms), 1)
        yield {**settings, "partition": name, "tiles": min(share, MOST_TILES)}


def count_regions(operands: Operands, settings: Settings) -> int:
    """Parts of C, of all matrices, that are stored or left out."""
    (m, n, _), shape = operands.sizes, shape_of(settings)
    return ceil_div(m, shape.rows) * ceil_div(n, shape.tile.n) * operands.batch


def count_tiles(operands: Operands, settings: Settings) -> int:
    (m, n, _), tile = operands.sizes, shape_of(settings).tile
    return ceil_div(m, tile.m) * ceil_div(n, tile.n) * operands.batch


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    if error := refuse_sizes(operands, "exact32"):
        return error
    if operands.sizes[2] < LEAST_K:
        return LaunchError("k", f"must be {LEAST_K} at least for kernel exact32", operands.sizes[2])
    inner = operands.inner(STACK_AXES)
    for lines in lines_of(inner):
        # NOTE: what the copy engine's coordinates reach, which count lines of all matrices, and both parts of each.
        if lines.count >= _COORDINATES or 2 * lines.depth >= _COORDINATES:
            rule = f"must have less than {_COORDINATES:,} lines, half as long, for kernel exact32"
            return ArgumentError(lines.source.name, rule, f"{lines.count:,} of {operands.sizes[2]:,}")
    if not operands.c.has_rows:
        strides = operands.c.row_stride, operands.c.column_stride
        return ArgumentError("c", "must have contiguous rows for kernel exact32", f"strides {strides}")
    try:
        operands.c.check_index("c")
    except ArgumentError as error:
        return error
    if operands.epilogue.summed:
        rule = "must add up no columns or rows for kernel exact32"
        return ArgumentError("epilogue", rule, operands.epilogue.expression)
    return refuse_blocks(count_regions(inner, settings) * 8)


def steps(operands: Operands, settings: Settings) -> list[Step]:
    lines, shape = lines_of(operands), shape_of(settings)
    c, tile = operands.c, shape.tile
    apart = (c.row_stride if c.rows > 1 else 0, *c.stack)
    numbers = (lines[0].depth, operands.sizes[2], operands.batch)
    args = (
        lines[0].map(tile.m),
        lines[1].map(tile.n),
        *(one.slot() for one in lines),
        c.strided(),
        *(constant("I", number) for number in numbers),
        stack_slot(operands),
        constant("I", alignment_of(c.alignment, *(step * c.itemsize for step in apart)) == 16),
        _address(_end_of(lines)),
        epilogue_slot(operands),
    )
    blocks = ceil_div(count_tiles(operands, settings), int(settings["tiles"]))
    launch = Launch((blocks, 1, 1), (shape.threads, 1, 1), args, shared=shape.shared_bytes, programmatic=True)
    split = [] if all(one.made for one in lines) else [_split(lines)]
    return [*split, Step("exact32", launch), _remedy(operands, settings, _end_of(lines))]


def _split(lines: tuple[Lines, Lines]) -> Step:
    a, b = lines
    args = (a.source_slot(), b.source_slot(), constant("I", a.depth))
    launch = Launch(
        (a.blocks + b.blocks, 1, 1),
        (SPLIT_THREADS, 1, 1),
        args,
        cluster=(SPLIT_CLUSTER, 1, 1),
        programmatic=True,
    )
    defines = (("THREADS", SPLIT_THREADS), ("CLUSTER", SPLIT_CLUSTER))
    return Step("split_halves", launch, KernelSource(_SPLIT, defines))


def _remedy(operands: Operands, settings: Settings, left_out: int) -> Step:
    """The launch of the general kernel, for what was left out."""
    a, b, c = operands[:3]
    shape = shape_of(settings)
    lie = {"a_along_k": int(runs_along_columns(a)), "b_along_n": int(runs_along_columns(b))}
    made = GENERAL.code(GENERAL.complete({"partition": REMEDY, "result": c.dtype, **lie}), operands.epilogue)
    code = replace(made, defines=(*made.defines, ("REGION_M", shape.rows), ("REGION_N", shape.tile.n)))
    args = (
        *(one.strided() for one in (a, b, c)),
        stack_slot(operands),
        constant("I", operands.batch),
        _address(left_out),
        epilogue_slot(operands),
    )
    tile = SHAPES_OF_REMEDY[REMEDY]
    tiles = count_regions(operands, settings) * (shape.rows // tile.block.m) * (shape.tile.n // tile.block.n)
    launch = Launch((min(tiles, REMEDY_BLOCKS), 1, 1), (tile.threads, 1, 1), args, programmatic=True)
    return Step("remedy", launch, code)


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """Both parts of A and B, what is known of their lines, and what was left out."""
    inner = operands.inner(STACK_AXES)
    return _end_of(lines_of(inner)) + count_regions(inner, settings) * FLAG_BYTES


def work(operands: Operands, settings: Settings) -> Work:
    shape, c = shape_of(settings), operands.c
    lines = [one for one in lines_of(operands) if not one.made]
    # Lines whose neighbours lie across K are read twice, for the largest of each line first.
    moved = sum(one.count * one.depth * PARTS_BYTES * (2 if one.along_k else 3) for one in lines)
    return Work(
        "exact32",
        shape.tile,
        shape.threads,
        stages=shape.stages,
        tiles=int(settings["tiles"]),
        storers=shape.consumers,
        launches=3 if lines else 2,
        extra_bytes=moved,
        store_bytes=16 if alignment_of(c.alignment, c.row_stride * c.itemsize) == 16 else c.itemsize,
    )


def defines(settings: Settings) -> dict[str, object]:
    shape = shape_of(settings)
    return {
        "BLOCK_M": shape.tile.m,
        "BLOCK_N": shape.tile.n,
        "CONSUMERS": shape.consumers,
        "STAGES": shape.stages,
        **name_defines(settings, "result"),
        "THREADS": shape.threads,
        "SHARED_BYTES": shape.shared_bytes,
    }


SPEC = KernelSpec(
    name="exact32",
    title="float32 on Hopper's tensor cores, as exact as in float32",
    file=Path(__file__).with_suffix(".cu"),
    entries=("exact32",),
    steps=steps,
    work=work,
    least=(9, 0),
    arch="sm_90a",
    settings={
        "partition": tuple(SHAPES),
        "result": ("float32", "float64", "float16", "bfloat16"),
        "tiles": tuple(range(1, MOST_TILES + 1)),  # of C that a block computes, one after another
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
    arithmetic={"float32": ("exact32",)},
    defines=defines,
    tiles=lambda settings: {
        "block": shape_of(settings).tile,
        "instruction": Tile(64, shape_of(settings).tile.n, 16),
    },
    raster="grouped",
    strided=True,
    stack_axes=STACK_AXES,
    epilogues=True,
)
