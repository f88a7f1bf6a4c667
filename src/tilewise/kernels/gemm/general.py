"""Launch of the general kernel: any strides, any layout, a whole stack in one launch; the sums of SIMT units.

It serves what no faster kernel has a form for. Its tiles go from large ones, for large matrices, to one element a
thread, for stacks of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.epilogue import epilogue_slot, scales_slot
from tilewise.kernels.gemm.limits import (
    BYTE_SETTINGS,
    STACK_AXES,
    define_bytes,
    name_defines,
    refuse_blocks,
    refuse_sizes,
    refuse_types,
    scales_terms,
)
from tilewise.kernels.spec import (
    KernelSpec,
    Operand,
    Operands,
    Settings,
    Step,
    Work,
    ceil_div,
)
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.problem import EIGHT_BITS, ELEMENT_BYTES, FLOAT8, INTEGERS, Tile, sum_type

__all__ = ["SPEC"]

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_ELEMENTS = (*_FLOATS, *FLOAT8, *INTEGERS)


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile of a block and of a thread; ``resident`` blocks fit on an SM."""

    block: Tile
    thread: Tile
    resident: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.block.m // self.thread.m) * (self.block.n // self.thread.n)


SHAPES = {
    "64x64x16": Shape(Tile(64, 64, 16), Tile(4, 4, 1), 4),
    "32x32x16": Shape(Tile(32, 32, 16), Tile(2, 2, 1), 8),
    "16x16x16": Shape(Tile(16, 16, 16), Tile(1, 1, 1), 8),
    "128x128x8": Shape(Tile(128, 128, 8), Tile(8, 8, 1), 2),
    "128x16x32": Shape(Tile(128, 16, 32), Tile(4, 2, 1), 4),
    "16x128x32": Shape(Tile(16, 128, 32), Tile(2, 4, 1), 4),
}


def shape_of(settings: Settings) -> Shape:
    return SHAPES[str(settings["partition"])]


def candidates(operands: Operands, settings: Settings, _sms: int) -> Iterator[Settings]:
    a, b = operands[:2]
    along = {"a_along_k": int(runs_along_columns(a)), "b_along_n": int(runs_along_columns(b))}
    for partition in SHAPES:
        found = {**settings, "partition": partition}
        if fits(found):
            yield {**along, "partition": partition, "grouped": int(operands.groups > 0)}


def fits(settings: Settings) -> bool:
    """Whether the two stages of a block fit into the shared memory that needs no asking."""
    shape = shape_of(settings)
    item = int(ELEMENT_BYTES[sum_type(str(settings["element"]))])
    return 2 * (shape.block.m + 4 + shape.block.n + 4) * shape.block.k * item <= 48 * 1024


def runs_along_columns(operand: Operand) -> bool:
    """Whether elements that are neighbours in a row lie closer together than those in a column."""
    return operand.rows <= 1 or abs(operand.column_stride) <= abs(operand.row_stride)


def blocks(operands: Operands, settings: Settings) -> int:
    """How many blocks a launch has: one for each tile, or for as many as groups of rows may have."""
    block = shape_of(settings).block
    return operands.most_tiles(block.m, block.n)


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    if error := refuse_sizes(operands, "general") or refuse_blocks(
        blocks(operands.inner(STACK_AXES), settings)
    ):
        return error
    if unfit := refuse_types(operands, settings):
        return unfit
    if not fits(settings):
        return ArgumentError(
            "partition", f"must be a smaller one for {settings['element']}", settings["partition"]
        )
    if bool(settings["grouped"]) != (operands.groups > 0):
        return ArgumentError("grouped", "must be 1 for groups of rows, else 0", settings["grouped"])
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    grid = (blocks(operands, settings), 1, 1)
    ends = () if operands.offsets is None else (operands.offsets.pointer(),)
    matrices = (a.strided(), b.strided(), c.strided())
    scales = (scales_slot(operands),) if scales_terms(settings) else ()
    args = (
        *matrices,
        stack_slot(operands, inner=operands.groups or None),
        *ends,
        *scales,
        epilogue_slot(operands, sum_slots(operands, settings)),
    )
    return [Step("general", Launch(grid, (shape_of(settings).threads, 1, 1), args))]


def sum_slots(operands: Operands, settings: Settings) -> tuple[int, int]:
    """How many partial sums there are of a column, each warp's, and of a row, each block's."""
    (m, n, _), shape = operands.sizes, shape_of(settings)
    warp_m = 32 // (shape.block.n // shape.thread.n) * shape.thread.m
    return ceil_div(m, warp_m), ceil_div(n, shape.block.n)


def work(_operands: Operands, settings: Settings) -> Work:
    shape = shape_of(settings)
    double = settings["element"] in ("float64", "int64")
    # For each k, a warp reads the rows of its threads, which have most of them in common, 16 bytes at once, and their
    # columns one by one: a turn of shared memory for each, two for columns of float64.
    rows = ceil_div(shape.thread.m * (8 if double else 4), 16)
    columns = shape.thread.n * (2 if double else 1)
    return Work(
        "general64" if double else "general",
        shape.block,
        shape.threads,
        resident=shape.resident,
        stages=2,
        shared_reads=shape.threads // 32 * shape.block.k * (rows + columns),
    )


def defines(settings: Settings) -> dict[str, object]:
    shape = shape_of(settings)
    return {
        "BLOCK_M": shape.block.m,
        "BLOCK_N": shape.block.n,
        "BLOCK_K": shape.block.k,
        "THREAD_M": shape.thread.m,
        "THREAD_N": shape.thread.n,
        "THREADS": shape.threads,
        **name_defines(settings, "element", "result", "a_along_k", "b_along_n", "grouped", "pointers"),
        **define_bytes(settings),
    }


SPEC = KernelSpec(
    name="general",
    title="any strides and stacks, on the SIMT units",
    file=Path(__file__).with_suffix(".cu"),
    entries=("general",),
    steps=steps,
    work=work,
    settings={
        "partition": tuple(SHAPES),
        "element": _ELEMENTS,
        "result": (*_FLOATS, "int32", "int64", *EIGHT_BITS),
        "a_along_k": (1, 0),
        "b_along_n": (1, 0),
        "grouped": (0, 1),
        "pointers": TABLE_SIZES,
        **BYTE_SETTINGS,
    },
    refuse=refuse,
    candidates=candidates,
    element_types=_ELEMENTS,
    accumulate=lambda settings: sum_type(str(settings["element"]), scales_terms(settings)),
    arithmetic={"float32": (None, "exact32")},
    defines=defines,
    tiles=lambda settings: {"block": shape_of(settings).block, "thread": shape_of(settings).thread},
    raster="grouped",
    strided=True,
    epilogues=True,
    sum_slots=sum_slots,
    grouped=True,
    stack_axes=STACK_AXES,
)
