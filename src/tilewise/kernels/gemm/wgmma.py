"""Launch of the kernel for Hopper's tensor cores: tiles for every size, operands in rows or columns, whole stacks.

It multiplies float16 and bfloat16, 8-bit numbers, and float32 in tf32 if that is asked for. Sums are float32, float16
of float16, or int32 of int8.

The copy engine reads a matrix by its tensor map, which can only describe rows (or columns) that begin at multiples of
16 bytes; an operand that lies otherwise is copied first. A result is stored by the engine if its rows begin so. The
tensor cores read float32 and 8 bits along K alone: rows of A, columns of B. Of float32 one of the operands may lie
across K: it is the kernel's A, perhaps after an exchange, and goes by way of registers. The engine rounds float32 to
tf32.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tilewise.devices.tensor_map import BYTES
from tilewise.errors import ArgumentError
from tilewise.kernels.epilogue import boxed_arrays, epilogue_slot, fits_boxes, scales_slot
from tilewise.kernels.gemm.add_parts import add_step, parts_bytes, parts_in_turn, parts_of
from tilewise.kernels.gemm.arrange import with_zeros
from tilewise.kernels.gemm.limits import (
    BYTE_SETTINGS,
    STACK_AXES,
    name_defines,
    refuse_blocks,
    refuse_sizes,
    refuse_types,
)
from tilewise.kernels.gemm.wgmma_candidates import MOST_SUMS, MOST_TILES, candidates, may_split
from tilewise.kernels.gemm.wgmma_lies import (
    CLUSTERS,
    cluster_of,
    clusters,
    exchange,
    has_whole_rows,
    is_aligned,
    is_readable,
    is_whole,
    lies_across,
    lines_of,
    reads_both,
)
from tilewise.kernels.gemm.wgmma_shapes import (
    BOX,
    BYTE_PARTITIONS,
    INSTRUCTION_BYTES,
    INSTRUCTION_ROWS,
    NARROW_SCALED,
    PARTITIONS,
    PARTITIONS_OF,
    ROW_BYTES,
    WARPGROUP,
    WIDE_PARTITIONS,
    Shape,
    loaded_element,
    refuse_partition,
    scaled_lines,
    shape_of,
)
from tilewise.kernels.spec import (
    AS_IT_IS,
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
    cut,
    straddling,
)
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.problem import EIGHT_BITS, FLOAT8, INTEGERS, Tile

__all__ = ["SPEC"]


UNITS = {"float32": "wgmma_tf32", **dict.fromkeys(FLOAT8, "wgmma_fp8"), "int8": "wgmma_int8"}
"""Of the cost model; others are wgmma_gemm."""
SPLITS = tuple(range(1, 17))
PARTS = tuple(range(1, 65))
ALONE = {"cluster": "1x1", "split": 1, "exchanged": 0}
"""What groups of rows need: every block walks over their tiles by itself."""
MOST_SUMS_CHANGED = 128  # the same where something happens to them, which takes registers too
MOST_TRANSPOSED_CHANGED = 144  # with the rows of A that are in registers
MOST_TRANSPOSED_LIGHT = 160  # the same where it takes fewest: of 32 bits, in boxes, or exchanged
MOST_PRODUCTS = {1: 192, 2: 192, 3: 112}
"""By the warpgroups that multiply: the same of sums and of those of a step beside them."""
MOST_PRODUCTS_SCALED = 128  # the same with scales, where they have no registers of the warpgroup that copies
NARROW_PART_CLOCKS = 20
"""What a step takes longer where K is in parts and several warpgroups have 64 columns each: a tenth, as measured in 27
pairs of tiles of 128×64 and 64×128."""
TRANSPOSING_ALONE_CLOCKS = 120
WORD_LINES = 32  # of an instruction's columns that a box of results of 32 bits has where they lie across
MOST_COLUMNS_SCALED = 160  # of a tile where each has scales of its own: with more, registers are spilled


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse what the engine's coordinates do not reach, and settings that do not go together."""
    if error := refuse_sizes(operands, "wgmma"):
        return error
    if bool(settings["grouped"]) != (operands.groups > 0):
        return ArgumentError("grouped", "must be 1 for groups of rows, else 0", settings["grouped"])
    for name, value in ALONE.items():
        if settings["grouped"] and settings[name] != value:
            return ArgumentError(name, f"must be {value!r} for groups of rows", settings[name])
    if unfit := _refuse_lies(operands, settings):
        return unfit
    if settings["whole"] and not is_whole(operands, settings):
        rule = "must be 0 where C ends within tiles, or rows of it or of the epilogue's arrays begin anywhere"
        return ArgumentError("whole", rule, 1)
    if settings["whole_rows"] and not has_whole_rows(operands.c):
        return ArgumentError("whole_rows", "must be 0 where C's rows begin or end anywhere", 1)
    inner = operands.inner(STACK_AXES)
    if bool(settings["stacked"]) != (inner.batch > 1):
        return ArgumentError("stacked", "must be 1 for a stack, else 0", settings["stacked"])
    if unfit := _refuse_widened(operands, settings):
        return unfit
    if str(settings["partition"]) not in PARTITIONS_OF[loaded_element(settings)]:
        return refuse_partition(loaded_element(settings), str(settings["partition"]))
    if settings["accumulate"] != operands.accumulate:
        rule = f"must be {operands.accumulate} with arithmetic {operands.arithmetic!r}"
        return ArgumentError("accumulate", rule, settings["accumulate"])
    if unfit := refuse_types(operands, settings):
        return unfit
    shape, split = shape_of(settings), int(settings["split"])
    if unfit := _refuse_shape(shape, settings):
        return unfit
    together = shape.consumers > 1 and shape.n <= NARROW_SCALED and shape.scaled[1] == 1
    if operands.groups and (shape.sum_registers > MOST_SUMS_CHANGED or together):
        return ArgumentError("partition", "must be a smaller tile for groups of rows", settings["partition"])
    halved = shape.consumers == 3 or operands.groups  # which have fewer registers, or keep more in them
    in_boxes = not operands.epilogue.is_plain or operands.c.itemsize == 1
    most = MOST_SUMS_CHANGED // (2 if halved else 1)
    light = operands.c.itemsize == 4 and (shape.exchanged or finished_in_boxes(operands, False))
    changed = MOST_TRANSPOSED_LIGHT if light else MOST_TRANSPOSED_CHANGED
    scarce = shape.transposes and shape.product_registers > changed
    if in_boxes and (shape.sum_registers > most or scarce):
        return ArgumentError(
            "partition",
            "must be a smaller tile with an epilogue, or results of 8 bits",
            settings["partition"],
        )
    if split > 1 and (cluster_of(settings) != (1, 1) or int(settings["tiles"]) != 1):
        return ArgumentError("split", "must be 1 with a cluster or several tiles a block", split)
    if split > 1 and not may_split(shape):
        return ArgumentError("split", f"must be 1 for a tile of {shape.m}×{shape.n}", split)
    parts = int(settings["parts"])
    if parts > 1 and (operands.groups or inner.batch != 1 or shape.pingpong or int(settings["tiles"]) != 1):
        return ArgumentError("parts", "must be 1 for stacks, groups and several tiles a block", parts)
    if parts > 1:
        try:
            parts_of(operands).check_index("c")
        except ArgumentError as error:
            return error
    return refuse_blocks(clusters(inner, settings) * split * parts * 2)


def _refuse_lies(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse to take operands for lines that they are not, or that are not read across K."""
    element = loaded_element(settings)
    if not settings["a_in_rows"] and element in EIGHT_BITS:
        return ArgumentError("a_in_rows", f"must be 1 for {element}", 0)
    if settings["b_in_rows"] and (settings["element"] == "float32" or settings["element"] in EIGHT_BITS):
        return ArgumentError("b_in_rows", f"must be 0 for {settings['element']}", 1)
    if settings["grouped"] and not settings["a_in_rows"]:
        return ArgumentError("a_in_rows", "must be 1 for groups of rows, which begin anywhere", 0)
    for name, operand in zip(("a_in_rows", "b_in_rows"), exchange(operands, settings), strict=True):
        if not is_aligned(lines_of(operand, settings[name])):
            return ArgumentError(name, "must be as the operand lies", settings[name])
    return None


def _refuse_shape(shape: Shape, settings: Settings) -> ArgumentError | None:
    """Refuse a tile that its elements, its schedule or its cluster do not allow."""
    (down, across), element = cluster_of(settings), str(settings["element"])
    parts_of_a, parts_of_b = (
        8 * across,
        8 * down,
    )  # blocks of a cluster load whole groups of eight lines along K each
    if (settings["a_in_rows"] and shape.m % parts_of_a) or (
        not settings["b_in_rows"] and shape.n % parts_of_b
    ):
        rule = f"must be '1x1' for a tile of {shape.m}×{shape.n}"
        return ArgumentError("cluster", rule, settings["cluster"])
    if (shape.in_steps or shape.widens or shape.transposes) and shape.pingpong:
        lies = " across k" if shape.transposes else ""
        return ArgumentError("pingpong", f"must be 0 for {loaded_element(settings)}{lies}", 1)
    if shape.transposes and shape.consumers == 3:
        rule = "must be a tile of one or two warpgroups where rows lie across k"
        return ArgumentError("partition", rule, settings["partition"])
    if shape.widens and shape.m != INSTRUCTION_ROWS * shape.consumers:
        rule = "must have 64 rows for each warpgroup where they are widened"
        return ArgumentError("partition", rule, settings["partition"])
    if any(shape.scaled) and not (shape.in_steps or shape.widens):
        return ArgumentError("element", "must have 8 bits with scales that differ along k", element)
    most = MOST_PRODUCTS[shape.consumers]
    if any(shape.scaled) and shape.consumers > 1 and settings["split"] != 1:
        most = MOST_PRODUCTS_SCALED
    if shape.widens and any(shape.scaled):
        most = min(most, MOST_PRODUCTS_SCALED)
    if shape.product_registers > max(most, shape.sum_registers):
        return ArgumentError("partition", f"must be a smaller tile for {element}", settings["partition"])
    widest = MOST_COLUMNS_SCALED if settings["split"] == 1 else MOST_PRODUCTS_SCALED // shape.consumers
    if shape.scaled[1] == 1 and shape.n > widest:
        return ArgumentError("partition", f"must be a smaller tile for {element}", settings["partition"])
    if element in INTEGERS and settings["parts"] != 1:
        return ArgumentError("parts", f"must be 1 for {element}", settings["parts"])
    if shape.sum_registers > MOST_SUMS:
        return ArgumentError("pingpong", f"must be 0 for a tile of {shape.m}×{shape.n}", 1)
    return None


def _refuse_widened(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse to widen another operand than the one whose rows come through registers, or so for groups."""
    if settings["widened"] == AS_IT_IS:
        return None
    if operands.groups:
        return ArgumentError("widened", f"must be {AS_IT_IS!r} for groups of rows", settings["widened"])
    exchanged = int(operands.widened is operands.b)
    if settings["exchanged"] != exchanged:
        return ArgumentError("exchanged", f"must be {exchanged}", settings["exchanged"])
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    (a, b), parts = exchange(operands, settings), int(settings["parts"])
    c = parts_of(operands) if parts > 1 else operands.c
    shape, (down, across), split = shape_of(settings), cluster_of(settings), int(settings["split"])
    stack = operands.stack if settings["stacked"] else ()
    stack_of_b = operands.stack_of(b) if operands.groups else stack
    lines_a = lines_of(a, settings["a_in_rows"]), bool(settings["a_in_rows"]), shape.m, across, stack
    lines_b = (
        lines_of(b, settings["b_in_rows"]),
        not settings["b_in_rows"],
        shape.loaded_columns,
        down,
        stack_of_b,
    )
    maps = (
        _map(*lines_a),
        _map(*lines_b),
        _result_map(c, shape, stack) if parts == 1 else Slot(bytes(BYTES)),
        Slot(bytes(BYTES)) if operands.groups else _end_map(*lines_a),
        _end_map(*lines_b),
    )
    blocks = down * across * split
    launched = ceil_div(clusters(operands, settings), int(settings["tiles"])) * parts
    matrices = parts if parts > 1 else operands.groups or operands.batch
    which = stack_slot(operands, bool(settings["exchanged"]), parts if parts > 1 else None)
    ends = () if operands.offsets is None else (operands.offsets.pointer(),)
    scales = (scales_slot(operands, bool(settings["exchanged"])),) if any(scaled_lines(settings)) else ()
    launch = Launch(
        (launched * blocks, 1, 1),
        (shape.threads, 1, 1),
        (
            *maps,
            c.strided(),
            constant("I", operands.sizes[2]),
            constant("I", max(matrices, 1)),
            which,
            constant("I", is_aligned(c)),
            *ends,
            *scales,
            epilogue_slot(operands, sum_slots(operands, settings)),
        ),
        shared=shape.shared_bytes,
        cluster=(blocks, 1, 1) if blocks > 1 else None,
        programmatic=True,
    )
    multiply = Step("wgmma_gemm", launch)
    return [multiply] if parts == 1 else [multiply, add_step(operands, parts)]


def sum_slots(operands: Operands, settings: Settings) -> tuple[int, int]:
    """How many partial sums there are of a column, and of a row: each warp's of every box; of split K, every element.

    Boxes of 64 rows and columns lie in a tile; the last ones below one another, or side by side, may be smaller.
    """
    (m, n, _), shape = operands.sizes, shape_of(settings)
    if int(settings["split"]) > 1 or int(settings["parts"]) > 1:
        return m, n
    tile_m, tile_n = (shape.n, BOX) if shape.exchanged else (BOX, shape.n)
    down, across = (
        size // tile * ceil_div(tile, BOX) + ceil_div(size % tile, BOX)
        for size, tile in ((m, tile_m), (n, tile_n))
    )
    return down * WARPGROUP // 32, across


def _map(rows: Operand, along_k: bool, size: int, sharers: int, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map of A or B, whose tile is ``size`` along M or N; ``sharers`` blocks load a part of it each.

    NOTE: where it is empty, the engine does not touch it, and the map is as many zeros. Of a copy it has the zeros
    behind the rows, too: what lies outside of a map takes the engine longer to fill.
    """
    if not rows.rows * rows.columns:
        return Slot(bytes(BYTES))
    rows = with_zeros(rows)
    part, row = size // sharers, ROW_BYTES // rows.itemsize
    if rows.dtype == "float32":
        rows = replace(rows, dtype="tfloat32")  # NOTE: so the engine rounds; the tensor cores would cut off
    if along_k:
        box = (part, row)
    else:
        box = (row if part % row == 0 else row // sharers, row)
    return rows.map(box, ROW_BYTES, stack)


def _end_map(rows: Operand, along_k: bool, size: int, sharers: int, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map for the last tile of A or B, of a box for its rows alone; as many zeros where there is no need."""
    height = ceil_div(rows.rows % size, 8) * 8
    if not along_k or sharers > 1 or height in (0, size):
        return Slot(bytes(BYTES))
    return _map(rows, along_k, height, sharers, stack)


def _result_map(c: Operand, shape: Shape, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map of C; if the engine cannot store it, as many zeros."""
    if not has_whole_rows(c) or c.itemsize == 1:
        return Slot(bytes(BYTES))
    rows = min(shape.box_rows, WORD_LINES) if shape.exchanged and c.itemsize == 4 else shape.box_rows
    return c.map((rows, ROW_BYTES // c.itemsize), ROW_BYTES, stack)


def promises(operands: Operands, settings: Settings) -> dict[str, int]:
    """What is compiled for C alone: where it ends."""
    return {"whole": int(is_whole(operands, settings)), "whole_rows": int(has_whole_rows(operands.c))}


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The sums of every part of K, if there are several."""
    return parts_bytes(operands.inner(STACK_AXES), int(settings["parts"]))


def work(operands: Operands, settings: Settings) -> Work:
    parts = int(settings["parts"])
    shape, (down, _) = shape_of(settings), cluster_of(settings)
    (a, b), c = exchange(operands, settings), operands.c
    first, second = lines_of(a, settings["a_in_rows"]), lines_of(b, settings["b_in_rows"])
    boxed = _stores_runs(shape, operands, parts)
    narrow = shape.consumers > 1 and shape.n <= BOX
    return Work(
        _unit(settings),
        shape.tile,
        shape.threads,
        resident=shape.resident,
        stages=shape.stages,
        cluster=down,
        split=int(settings["split"]),
        split_in_cluster=True,
        parts=parts,
        parts_in_turn=parts_in_turn(operands, parts),
        extra_bytes=2 * workspace_bytes(operands, settings),
        tiles=int(settings["tiles"]),
        pingpong=shape.pingpong,
        exchanged=shape.exchanged,
        storers=2 if shape.pingpong else shape.consumers,
        store_bytes=16 if is_aligned(c) or boxed else c.itemsize,
        stored_in_runs=boxed and not has_whole_rows(c),
        finishes_in_boxes=not operands.epilogue.is_plain and boxed,
        whole_boxes=shape.n % BOX == 0 or shape.n <= BOX // 2 or boxed,
        straddling=straddling(first, second, shape.tile, down),
        cut=cut(second, shape.tile, down) if shape.b_in_rows and shape.n % BOX else 0.0,
        step_clocks=_scale_clocks(shape)
        + _transposing_clocks(shape)
        + (NARROW_PART_CLOCKS if parts > 1 and narrow else 0),
    )


def _unit(settings: Settings) -> str:
    """The unit of the cost model."""
    if settings["widened"] != AS_IT_IS:
        return "wgmma_widened_int8" if settings["widened"] == "int8" else "wgmma_widened"
    return UNITS.get(str(settings["element"]), "wgmma_gemm")


def _scale_clocks(shape: Shape) -> float:
    """What a step takes longer where its sums are scaled, as measured on an H100 on 2026-11-25: by each of them."""
    if not any(shape.scaled):
        return 0.0
    if shape.n <= NARROW_SCALED:
        each = 0.045 if shape.scaled[1] == 1 else 0.03
    elif shape.m == 256:
        each = 0.021 if shape.scaled[1] == 1 else 0.0055
    else:
        each = 0.03 if shape.scaled[1] == 1 else 0.0143 if shape.n % 128 else 0.01
    return shape.m * shape.n * each


def _transposing_clocks(shape: Shape) -> float:
    """What a step takes longer where rows across K go by way of registers, as measured in plans of 25 products: two
    for each of them if they are multiplied by few columns, and more if no other warpgroup multiplies meanwhile."""
    if not shape.transposes:
        return 0.0
    alone = TRANSPOSING_ALONE_CLOCKS if shape.consumers == 1 else 0
    share = min(NARROW_SCALED / shape.n, 1.0)
    return 2 * shape.m * share * math.sqrt(share) + alone


def _stores_runs(shape: Shape, operands: Operands, parts: int) -> bool:
    """Whether 16 bytes are stored at once wherever C's rows begin: from boxes of results, not of sums."""
    plain, size = operands.epilogue.is_plain, operands.c.itemsize
    if parts > 1 or not (plain or finished_in_boxes(operands, shape.exchanged)):
        return False
    if size == 2:
        return shape.n % 16 == 0
    if shape.exchanged:
        return size == 4 and shape.n % 16 == 0 and shape.n >= BOX
    return size == 4 and shape.n % BOX == 0


def finished_in_boxes(operands: Operands, exchanged: bool) -> bool:
    """Whether the epilogue is done to sums in registers, on their way to boxes of results."""
    form = operands.epilogue
    return fits_boxes(form) and (not boxed_arrays(form) or (operands.c.itemsize == 2 and not exchanged))


def _types_of(settings: Settings) -> dict[str, object]:
    """The types of the operands as the kernel sees them: that of B, and that of A if it is another."""
    of_a, of_b = settings["element"], settings["element"]
    if settings["b_element"] != AS_IT_IS:
        of_b = settings["b_element"]
    if settings["exchanged"]:
        of_a, of_b = of_b, of_a
    if settings["widened"] != AS_IT_IS:
        of_a = settings["widened"]
    return {"ELEMENT": of_b, **({} if of_a == of_b else {"A_ELEMENT": of_a})}


def defines(settings: Settings) -> dict[str, object]:
    """Compile-time values; how many tiles a block computes is decided by the grid alone."""
    shape, (down, across) = shape_of(settings), cluster_of(settings)
    of_a, of_b = scaled_lines(settings)
    return {
        "BLOCK_M": shape.m,
        "BLOCK_N": shape.n,
        "CONSUMERS": shape.consumers,
        **name_defines(settings, "pingpong", "exchanged"),
        "RESIDENT": shape.resident,
        "STAGES": shape.stages,
        "CLUSTER_M": down,
        "CLUSTER_N": across,
        **name_defines(
            settings,
            "split",
            "parts",
            "a_in_rows",
            "b_in_rows",
            "stacked",
            "grouped",
            "pointers",
            "whole",
            "whole_rows",
        ),
        **name_defines(settings, "accumulate", "result"),
        **_types_of(settings),
        **({"SCALES_A": of_a, "SCALES_B": of_b} if of_a or of_b else {}),
        "THREADS": shape.threads,
        "SHARED_BYTES": shape.shared_bytes,
    }


def _instruction_k(shape: Shape) -> int:
    """How deep a matrix instruction is: what is widened has twice its bytes by then."""
    return INSTRUCTION_BYTES * shape.tile.k // ROW_BYTES // (2 if shape.widens else 1)


def tiles(settings: Settings) -> dict[str, Tile]:
    """The tiles at every level."""
    shape, (down, across) = shape_of(settings), cluster_of(settings)
    return {
        "cluster": Tile(shape.m * down, shape.n * across, shape.tile.k * int(settings["split"])),
        "block": shape.tile,
        "instruction": Tile(INSTRUCTION_ROWS, shape.n, _instruction_k(shape)),
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
        "partition": (*PARTITIONS, *WIDE_PARTITIONS, *BYTE_PARTITIONS),
        "element": tuple(PARTITIONS_OF),
        "result": ("bfloat16", "float16", "float32", *EIGHT_BITS, "int32"),
        "cluster": tuple(CLUSTERS),
        "split": SPLITS,
        "parts": PARTS,  # of K, over the clusters
        "tiles": tuple(range(1, MOST_TILES + 1)),  # of C that a block computes, one after another
        "pingpong": (0, 1),  # each warpgroup tiles of its own
        "exchanged": (0, 1),  # Cᵀ = Bᵀ·Aᵀ
        "a_in_rows": (1, 0),
        "b_in_rows": (1, 0),
        "widened": (AS_IT_IS, *EIGHT_BITS),  # 8 bits that are multiplied by 16
        **BYTE_SETTINGS,
        "stacked": (0, 1),
        "grouped": (0, 1),  # rows of A in groups with a B each
        "accumulate": ("float32", "float16", "int32"),  # what sums are kept in
        "pointers": TABLE_SIZES,  # matrices that lie anywhere
        "whole": (0, 1),  # C has whole tiles alone, whole rows, and the epilogue's arrays rows that begin so
        "whole_rows": (1, 0),  # C's rows begin and end at multiples of 16 bytes
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
    promises=promises,
    element_types=tuple(PARTITIONS_OF),
    arithmetic={"float32": ("tf32",), "float16": (None, "f16")},
    defines=defines,
    tiles=tiles,
    raster="grouped",
    stack_axes=STACK_AXES,
    epilogues=True,
    sum_slots=sum_slots,
    grouped=True,
    readable=is_readable,
    reads_both=reads_both,
    reads_slowly=lies_across,
    lies="have rows or columns that begin at multiples of 16 bytes, of 8 bits those along k,",
)
