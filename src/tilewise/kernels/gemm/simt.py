"""Launch of the kernel for float32 on the SIMT units: operands that have their neighbours along either axis, stacks.

What lies along K is turned on its way to shared memory, four bytes at a time; what begins anywhere is copied so, too.
Where tiles of C are few, blocks share K: each leaves its sums in the workspace, and another launch adds them up. Where
they are many, but the last of them too few for all SMs, blocks share K of those alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.epilogue import epilogue_slot
from tilewise.kernels.gemm.add_parts import (
    MOST_TAIL,
    Tail,
    add_step,
    parts_bytes,
    parts_in_turn,
    parts_of,
    tail_parts,
)
from tilewise.kernels.gemm.arrange import ends_whole
from tilewise.kernels.gemm.limits import STACK_AXES, name_defines, refuse_blocks, refuse_sizes
from tilewise.kernels.spec import KernelSpec, Operand, Operands, Settings, Step, Work, ceil_div, constant
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.operands import alignment_of
from tilewise.problem import EIGHT_BITS, Tile

__all__ = ["SPEC"]

PIECE = 4  # elements in 16 bytes
PARTS = tuple(range(1, 65))
MOST_WAVES = 5  # of blocks that an SM holds at once, where K is in parts
LEAST_DEPTH = 64  # of K that a part has, if it is proposed
ANYWAY = {"a_bytes": 4, "b_bytes": 4, "whole_copies": 0}  # what may be asked for, however the operands lie


@dataclass(frozen=True, slots=True)
class Shape:
    """The tiles of a block and of a warp, its stages; ``resident`` blocks fit on an SM."""

    block: Tile
    warp: Tile
    stages: int
    resident: int

    @property
    def threads(self) -> int:
        return (self.block.m // self.warp.m) * (self.block.n // self.warp.n) * 32

    @property
    def thread(self) -> Tile:
        return Tile(self.warp.m // 8, self.warp.n // 4, 1)

    def shared_bytes(self, settings: Settings) -> int:
        """What is turned has padded lines."""
        turned = bool(settings["a_along_k"]) + (not settings["b_along_n"])
        columns = self.block.n // 2 if settings["in_pairs"] else self.block.n
        return self.stages * self.block.k * (self.block.m + columns + turned * PIECE) * 4

    @property
    def takes_pairs(self) -> bool:
        """Whether there is a row of B for each thread that copies a part of one, where each is for two columns of A."""
        return self.block.k // 2 * self.block.n // PIECE >= self.threads


def _shape(m: int, n: int, k: int, warp_m: int, warp_n: int, stages: int, resident: int) -> tuple[str, Shape]:
    return f"{m}x{n}x{k}", Shape(Tile(m, n, k), Tile(warp_m, warp_n, k), stages, resident)


SHAPES = dict(
    (
        _shape(128, 256, 8, 64, 64, 4, 1),
        _shape(128, 128, 8, 64, 64, 4, 2),
        _shape(128, 64, 16, 64, 32, 4, 3),
        _shape(64, 64, 16, 32, 32, 4, 4),
        _shape(64, 32, 16, 32, 16, 4, 5),
        _shape(32, 32, 16, 32, 16, 6, 8),
    )
)


def shape_of(settings: Settings) -> Shape:
    return SHAPES[str(settings["partition"])]


def is_turned(operand: Operand) -> bool:
    """Whether neighbours in memory lie in a column."""
    return not operand.has_rows


def lines_of(operand: Operand) -> Operand:
    """The operand whose rows are what lies side by side: itself, or its transpose."""
    return operand.transposed() if is_turned(operand) else operand


def is_copied_narrowly(operand: Operand) -> bool:
    """Whether it is copied 4 bytes at a time: neighbours along K, which are turned on their way, and odd lines."""
    return copied_bytes(operand, is_turned(operand) == (operand.name in ("b", "copy_b"))) == 4


def copied_bytes(operand: Operand, along_k: bool) -> int:
    """What one copy brings: 16 bytes, if lines begin at multiples of that and lie as they are needed."""
    lines = lines_of(operand)
    apart = (lines.pitch if lines.rows > 1 else 0, *lines.stack)
    aligned = alignment_of(operand.alignment, *(step * operand.itemsize for step in apart)) == 16
    return 16 if aligned and not along_k else 4


def lie(operands: Operands) -> dict[str, int | str]:
    """The settings that say how the operands lie."""
    a_along_k, b_along_n = not is_turned(operands.a), not is_turned(operands.b)
    a_bytes, b_bytes = copied_bytes(operands.a, a_along_k), copied_bytes(operands.b, not b_along_n)
    return {
        "a_along_k": int(a_along_k),
        "b_along_n": int(b_along_n),
        "a_bytes": a_bytes,
        "b_bytes": b_bytes,
        "whole_copies": int(
            a_bytes == b_bytes == 16 and all(ends_whole(lines_of(one)) for one in operands[:2])
        ),
        "in_pairs": int(operands.in_pairs),
    }


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    (m, n, k), found = operands.sizes, {**settings, **lie(operands)}
    for name, shape in SHAPES.items():
        tile = shape.block
        if (tile.m > 32 and tile.m >= 2 * m) or (tile.n > 32 and tile.n >= 2 * n):
            continue
        if operands.in_pairs and not shape.takes_pairs:
            continue
        yield {**found, "partition": name, "parts": 1}
        if operands.batch != 1:
            continue
        tiles, most = count_tiles(operands, shape), min(k // LEAST_DEPTH, PARTS[-1])
        for parts in even_parts(tiles, most, sms, shape.resident):
            yield {**found, "partition": name, "parts": parts}
        tail = tiles % (sms * shape.resident) if tiles > sms * shape.resident else 0
        for parts in tail_parts(tail, most, sms * shape.resident):
            yield {**found, "partition": name, "parts": parts, "tail": tail}


def even_parts(tiles: int, most: int, sms: int, resident: int) -> Iterator[int]:
    """In how many parts K is worth being multiplied: those that leave the fewest SMs idle at last.

    As many as give each SM one block, two, and so on, until it is full; then such as share the blocks out more evenly.
    """
    if not tiles:
        return
    most = min(most, MOST_WAVES * sms * resident // tiles)
    best = tiles / (sms * ceil_div(tiles, sms))
    for parts in range(2, most + 1):
        each = ceil_div(tiles * parts, sms)  # blocks of an SM
        if parts < most and ceil_div(tiles * (parts + 1), sms) == each:
            continue
        share = tiles * parts / (sms * each)
        if each <= resident or share > best:
            yield parts
        if each >= resident:
            best = max(best, share)


def tail_of(operands: Operands, settings: Settings) -> Tail | None:
    """The last tiles, if they alone are in parts."""
    return Tail.of(operands, shape_of(settings).block, int(settings["tail"]))


def count_tiles(operands: Operands, shape: Shape) -> int:
    m, n, _ = operands.sizes
    return ceil_div(m, shape.block.m) * ceil_div(n, shape.block.n) * operands.batch


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    if error := refuse_sizes(operands, "simt"):
        return error
    if operands.epilogue.summed:
        rule = "must add up no columns or rows for kernel simt"
        return ArgumentError("epilogue", rule, operands.epilogue.expression)
    inner, parts = operands.inner(STACK_AXES), int(settings["parts"])
    for name, needed in lie(operands).items():
        if settings[name] not in (needed, ANYWAY.get(name, needed)):
            return ArgumentError(name, "must be as the operand lies", settings[name])
    if settings["whole_copies"] and 4 in (settings["a_bytes"], settings["b_bytes"]):
        return ArgumentError("whole_copies", "must be 0 where 4 bytes are copied at once", 1)
    if settings["in_pairs"] and not settings["b_along_n"]:
        return ArgumentError("b_along_n", "must be 1 for complex numbers", 0)
    if settings["in_pairs"] and not shape_of(settings).takes_pairs:
        return ArgumentError("partition", "must be another one for complex numbers", settings["partition"])
    if parts > 1:
        if inner.batch != 1:
            return ArgumentError("parts", "must be 1 for stacks", parts)
        try:
            parts_of(operands).check_index("c")
        except ArgumentError as error:
            return error
    if (tail := tail_of(operands, settings)) and (unfit := tail.refuse(operands, parts)):
        return unfit
    return refuse_blocks(count_tiles(inner, shape_of(settings)) * parts)


def steps(operands: Operands, settings: Settings) -> list[Step]:
    shape, parts = shape_of(settings), int(settings["parts"])
    tail = tail_of(operands, settings)
    c = parts_of(operands) if parts > 1 and not tail else operands.c
    apart = (c.row_stride if c.rows > 1 else 0, *c.stack)
    aligned = alignment_of(c.alignment, *(step * c.itemsize for step in apart))
    args = (
        operands.a.strided(),
        operands.b.strided(),
        c.strided(),
        stack_slot(operands),
        constant("I", aligned >= min(PIECE * c.itemsize, 16)),
        *((constant("I", tail.whole), tail.sums(parts).pointer()) if tail else ()),
        epilogue_slot(operands),
    )
    blocks = tail.whole + tail.count * parts if tail else count_tiles(operands, shape) * parts
    shared = shape.shared_bytes(settings)
    launch = Launch((blocks, 1, 1), (shape.threads, 1, 1), args, shared=shared, programmatic=True)
    multiply = Step("simt", launch, resident=shape.resident)
    return [multiply] if parts == 1 else [multiply, add_step(operands, parts, shape.resident, tail=tail)]


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The sums of every part of K, if there are several."""
    inner, parts = operands.inner(STACK_AXES), int(settings["parts"])
    return tail.sum_bytes(parts) if (tail := tail_of(inner, settings)) else parts_bytes(inner, parts)


def estimate_waiting(shape: Shape, settings: Settings) -> tuple[float, float]:
    """Of reads from shared memory, and of the instructions that copying 4 bytes at a time takes beyond 16: their share.

    Fitted to the plans of 44 problems on an H100 and 29 on an H200, in part by hand, as those of complex numbers are.
    Where an SM holds several blocks, others multiply meanwhile; with a tail, which is more code, they do so less well.
    """
    several = shape.resident > 1
    if settings["whole_copies"]:  # which take few instructions, fewest where a step is deep
        waiting = 0.57 if not several else 0.5 if shape.block.k == 16 else 0.55
        return waiting + (0.03 if several and settings["tail"] else 0), 0
    if several:
        return 2 / 3, 1 / 4
    return (3 / 4, 1) if settings["in_pairs"] else (7 / 8, 2 / 7)


def work(operands: Operands, settings: Settings) -> Work:
    shape, parts, c = shape_of(settings), int(settings["parts"]), operands.c
    columns = shape.block.n // 2 if settings["in_pairs"] else shape.block.n
    copies = shape.block.k * (
        shape.block.m // (int(settings["a_bytes"]) // 4) + columns // (int(settings["b_bytes"]) // 4)
    )
    # For each k, a thread reads its rows and columns from shared memory, 16 bytes at once: 4 turns of a warp each.
    own = shape.thread.m + shape.thread.n
    reads = shape.threads // 32 * shape.block.k * own
    narrow = copies - shape.block.k * (shape.block.m + columns) // 4
    share_of_reads, share_of_narrow = estimate_waiting(shape, settings)
    return Work(
        "simt",
        shape.block,
        shape.threads,
        resident=shape.resident,
        stages=shape.stages,
        parts=parts,
        parts_in_turn=parts_in_turn(operands, parts, tail_of(operands, settings)),
        tail=int(settings["tail"]),
        extra_bytes=2 * workspace_bytes(operands, settings),
        store_bytes=16 if alignment_of(c.alignment, c.row_stride * c.itemsize) == 16 else c.itemsize,
        shared_bytes=shape.shared_bytes(settings),
        shared_reads=int(reads * share_of_reads + narrow * share_of_narrow) + copies // 32,
    )


def defines(settings: Settings) -> dict[str, object]:
    shape = shape_of(settings)
    return {
        "BLOCK_M": shape.block.m,
        "BLOCK_N": shape.block.n,
        "BLOCK_K": shape.block.k,
        "WARP_M": shape.warp.m,
        "WARP_N": shape.warp.n,
        "STAGES": shape.stages,
        "RESIDENT": shape.resident,
        "THREADS": shape.threads,
        "SHARED_BYTES": shape.shared_bytes(settings),
        **({"TAIL": 1} if settings["tail"] else {}),
        **name_defines(
            settings,
            "result",
            "a_along_k",
            "b_along_n",
            "a_bytes",
            "b_bytes",
            "whole_copies",
            "in_pairs",
            "parts",
            "pointers",
        ),
    }


SPEC = KernelSpec(
    name="simt",
    title="float32 on the SIMT units: rows or columns, stacks",
    file=Path(__file__).with_suffix(".cu"),
    entries=("simt",),
    steps=steps,
    work=work,
    least=(8, 0),
    settings={
        "partition": tuple(SHAPES),
        "result": ("float32", "float64", "float16", "bfloat16", *EIGHT_BITS),
        "a_along_k": (1, 0),
        "b_along_n": (1, 0),
        "a_bytes": (4, 16),  # that are copied at once
        "b_bytes": (4, 16),
        "whole_copies": (0, 1),  # whether all copies bring 16 bytes, or none
        "in_pairs": (0, 1),  # complex numbers
        "parts": PARTS,  # of K
        "tail": range(MOST_TAIL),  # of tiles, the last ones, which alone are in parts; 0: all are
        "pointers": TABLE_SIZES,
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
    arithmetic={"float32": (None, "exact32")},
    defines=defines,
    tiles=lambda settings: {
        "block": shape_of(settings).block,
        "warp": shape_of(settings).warp,
        "thread": shape_of(settings).thread,
    },
    raster="grouped",
    readable=lambda operand: operand.has_rows or operand.transposed().has_rows,
    complex_as="pairs",
    reads_slowly=is_copied_narrowly,
    lies="have contiguous rows or columns, one after another,",
    stack_axes=STACK_AXES,
    epilogues=True,
)
