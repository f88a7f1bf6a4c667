"""Launch of the kernel for Hopper's tensor cores: tiles for every size, operands in rows or columns, whole stacks.

It multiplies float16 and bfloat16, 8-bit numbers, and float32 in tf32 if that is asked for. Sums are float32, float16
of float16, or int32 of int8.

The copy engine reads a matrix by its tensor map, which can only describe rows (or columns) that begin at multiples of
16 bytes; an operand that lies otherwise is copied first. A result is stored by the engine if its rows begin so. The
tensor cores read float32 and 8 bits along K alone: rows of A, columns of B. The engine rounds float32 to tf32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tilewise.devices.tensor_map import BYTES
from tilewise.errors import ArgumentError
from tilewise.kernels.epilogue import epilogue_slot, fits_registers
from tilewise.kernels.gemm.add_parts import add_step, parts_bytes, parts_of
from tilewise.kernels.gemm.limits import STACK_AXES, name_defines, refuse_blocks, refuse_sizes, refuse_types
from tilewise.kernels.gemm.wgmma_shapes import (
    BETWEEN,
    BETWEEN_SIZES,
    BOX,
    BYTE_PARTITIONS,
    INSTRUCTION_BYTES,
    NARROW,
    PARTITIONS,
    PARTITIONS_OF,
    ROW_BYTES,
    TILES,
    WARPGROUP,
    WIDE_PARTITIONS,
    WIDENING,
    Shape,
    depth_of,
    loaded_element,
    refuse_partition,
    shape_of,
    tile_of,
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
    straddling,
)
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.problem import EIGHT_BITS, FLOAT8, INTEGERS, Tile

__all__ = ["SPEC"]

ALIGNMENT = 16  # bytes: of a row's beginning, for the copy engine
MOST_TILES = 128


UNITS = {"float32": "wgmma_tf32", **dict.fromkeys(FLOAT8, "wgmma_fp8"), "int8": "wgmma_int8"}
"""Of the cost model; others are wgmma_gemm."""
CLUSTERS = {"1x1": (1, 1), "2x1": (2, 1), "1x2": (1, 2)}
SPLITS = tuple(range(1, 17))
PARTS = tuple(range(1, 65))
WORTH_STRADDLING = 0.95  # of the waves that other tiles take
MOST_PARTS = 16  # that are proposed: their sums are added up one after another
WORTH_SHARING = 32  # columns beside rows of 8 bits, from which on two blocks load them together
LEAST_STEPS = 4  # of K that a part has, if it is proposed
PROPOSED_SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)  # the largest of which so many clusters find room at once
ALONE = {"cluster": "1x1", "split": 1, "exchanged": 0}
"""What groups of rows need: every block walks over their tiles by itself."""
MOST_SUMS = 192  # of a thread's registers
LEAST_SUMS = 128  # of a warpgroup that has tiles of its own, for a product to be worth its bytes
MOST_SUMS_CHANGED = 128  # the same where something happens to them, which takes registers too
MOST_PRODUCTS = {1: 192, 2: 192, 3: 112}
"""By the warpgroups that multiply: the same of sums and of those of a step beside them."""


def exchange(operands: Operands, settings: Settings) -> tuple[Operand, Operand]:
    """The operands that the kernel sees as A and B: if they are exchanged, the transposes of B and A."""
    a, b = operands[:2]
    return (b.transposed(), a.transposed()) if settings["exchanged"] else (a, b)


def cluster_of(settings: Settings) -> tuple[int, int]:
    """Blocks of a cluster below one another and side by side, those that split K aside."""
    return CLUSTERS[str(settings["cluster"])]


def clusters(operands: Operands, settings: Settings) -> int:
    """How many clusters cover the stack with a tile for each block, or for all of them where they split K.

    Of groups of rows: the most tiles that they may have.
    """
    if operands.groups:
        return operands.most_tiles(shape_of(settings).m, shape_of(settings).n)
    (m, n, _), shape, (down, across) = operands.sizes, shape_of(settings), cluster_of(settings)
    if settings["exchanged"]:
        m, n = n, m
    return ceil_div(m, shape.m * down) * ceil_div(n, shape.n * across) * operands.batch


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    """Every tile that is not much too large, with clusters, splits of K, and several tiles a block."""
    m, n, _ = operands.sizes
    types = {name: settings[name] for name in ("element", "widened", "accumulate")}
    if settings["widened"] != AS_IT_IS:
        yield from _widening(operands, types, sms)
        return
    lies = types | _lie(operands, 0)
    if operands.groups:
        yield from _grouped(operands, lies, sms)
        return
    stacked = {"stacked": int(operands.batch > 1)}
    if settings["exchanged"]:  # asked for, with a tile that is not proposed below, perhaps
        yield {**settings, **types, **stacked, **_lie(operands, 1)}
    for tile in (*TILES, *_least_waste(operands, m, n, sms, bool(lies["b_in_rows"]))):
        if (tile.m > 64 and tile.m >= 2 * m) or (tile.n > 64 and tile.n >= 2 * n):
            continue
        found: dict[str, int | str] = {**lies, **stacked, "partition": _name(tile, lies)}
        yield from _schedules(operands, found, sms)
        if tile in TILES:
            yield from _splits(operands, found, sms)
            yield from _parts(operands, found, sms)
    lies = types | _lie(operands, 1)
    for tile in _exchanged_tiles(operands, sms, bool(lies["b_in_rows"])):
        found = {**lies, **stacked, "partition": _name(tile, lies)}
        yield from _schedules(operands, found, sms)
        if tile in NARROW:
            yield from _splits(operands, found, sms)


def _widening(operands: Operands, types: dict[str, int | str], sms: int) -> Iterator[Settings]:
    """Tiles for an operand of 8 bits, which is the kernel's A, by one of 16."""
    exchanged = int(operands.widened is operands.b)
    lies = types | _lie(operands, exchanged)
    rows, columns = (operands.sizes[i] for i in ((1, 0) if exchanged else (0, 1)))
    tiles = [one for one in WIDENING if one.n >= columns][:1] or [WIDENING[-1]]
    for tile in (replace(one, m=height) for one in tiles for height in (64, 128)):
        if tile.m > 64 and tile.m >= 2 * rows:
            continue
        found: dict[str, int | str] = {
            **lies,
            "stacked": int(operands.batch > 1),
            "partition": _name(tile, lies),
        }
        yield from _schedules(operands, found, sms)
        yield from _splits(operands, found, sms)


def _grouped(operands: Operands, lies: Settings, sms: int) -> Iterator[Settings]:
    """Every tile that is not much too large for even groups, each block with one of them or with its share of all.

    Shares are computed together or in turns.
    """
    m, n = ceil_div(operands.sizes[0], operands.groups), operands.sizes[1]
    for tile in TILES:
        if (tile.m > 64 and tile.m >= 2 * m) or (tile.n > 64 and tile.n >= 2 * n):
            continue
        made = {**lies, "grouped": 1, "partition": _name(tile, lies)}
        share = ceil_div(operands.most_tiles(tile.m, tile.n), sms)
        for tiles in sorted({1, min(max(share, 1), MOST_TILES)}):
            yield {**made, "pingpong": 0, "tiles": tiles}
        if share > 1 and Shape(tile, pingpong=True).sums == LEAST_SUMS:
            yield {**made, "pingpong": 1, "tiles": min(share, MOST_TILES)}


def _name(tile: Tile, types: Settings) -> str:
    """The partition of as many rows and columns, for elements of a type."""
    return f"{tile.m}x{tile.n}x{depth_of(loaded_element(types))}"


def _lie(operands: Operands, exchanged: int) -> dict[str, int | str]:
    """The settings that say how the operands lie."""
    a, b = exchange(operands, {"exchanged": exchanged})
    a_in_rows, b_in_rows = is_along_k_alone(a) or in_rows(a), not is_along_k_alone(b) and in_rows(b)
    return {"exchanged": exchanged, "a_in_rows": int(a_in_rows), "b_in_rows": int(b_in_rows)}


def _exchanged_tiles(operands: Operands, sms: int, b_in_rows: bool) -> Iterator[Tile]:
    """Tiles for operands that are exchanged: for few rows of C, and between the others, those with the least waste."""
    m, n, _ = operands.sizes
    if m > NARROW[-1].n:
        yield from _least_waste(operands, n, m, sms, b_in_rows)
        return
    for height in (64, 128):
        yield from [one for one in NARROW if one.m == height < 2 * n and one.n >= m][:1]


def _least_waste(operands: Operands, m: int, n: int, sms: int, b_in_rows: bool) -> list[Tile]:
    """Of the tiles between the others the three that take the fewest waves, counted in columns, for C of m×n.

    Rows of B begin inside of lines of L2 for them, which are read twice: there they have to be worth it.
    """

    def cost(tile: Tile) -> int:
        return ceil_div(ceil_div(m, tile.m) * ceil_div(n, tile.n) * operands.batch, sms) * tile.n

    height = BETWEEN[0].m
    fitting = [one for one in BETWEEN if one.m == height < 2 * m]
    if b_in_rows:
        most = WORTH_STRADDLING * min(cost(one) for one in TILES if one.m == height <= one.n)
        fitting = [one for one in fitting if cost(one) <= most]
    return sorted(fitting, key=cost)[:3]


def _schedules(operands: Operands, found: Settings, sms: int) -> Iterator[Settings]:
    """With a cluster or without, with one tile a block or more, in turns or together."""
    tile, in_pairs = tile_of(found), found["accumulate"] == "float16"
    together = found["element"] in FLOAT8 or found["widened"] != AS_IT_IS
    many = operands.sizes[1 if found["exchanged"] else 0] > tile.m
    worth = not found["exchanged"] or (found["widened"] != AS_IT_IS and tile.n >= WORTH_SHARING)
    for cluster in ("1x1", "2x1") if many and worth else ("1x1",):
        made = {**found, "cluster": cluster, "pingpong": 0}
        most = max(ceil_div(clusters(operands, made), max(sms // cluster_of(made)[0], 1)), 1)
        shares = {most} if (tile.m, tile.n) in BETWEEN_SIZES else {1, ceil_div(most, 2), most}
        for tiles in sorted({min(share, MOST_TILES) for share in shares}):
            yield {**made, "tiles": tiles}
        alone = Shape(tile, pingpong=True, in_pairs=in_pairs)
        if most > 1 and not together and alone.sums >= LEAST_SUMS and alone.sum_registers <= MOST_SUMS:
            yield {**made, "tiles": min(most, MOST_TILES), "pingpong": 1}


def _splits(operands: Operands, found: Settings, sms: int) -> Iterator[Settings]:
    """Every split of K for which there is room on the SMs at once."""
    made = {**found, "cluster": "1x1", "pingpong": 0}
    shape, alone = shape_of(made), clusters(operands, {**made})
    for split in PROPOSED_SPLITS:
        if (
            may_split(shape)
            and alone * split <= 2 * sms
            and ceil_div(operands.sizes[2], shape.tile.k) >= 2 * split
        ):
            yield {**made, "split": split}


def _parts(operands: Operands, found: Settings, sms: int) -> Iterator[Settings]:
    """As many parts of K over the clusters as there is room for at once, if a cluster splits K or not."""
    made = {**found, "cluster": "1x1", "pingpong": 0, "tiles": 1}
    shape, alone = shape_of(made), clusters(operands, made)
    if operands.batch != 1 or shape.m * shape.n > 128 * 128:
        return
    for split in (1, 8):
        steps = ceil_div(operands.sizes[2], shape.tile.k) // split
        parts = min(sms // max(alone * split, 1), steps // LEAST_STEPS, MOST_PARTS)
        if parts > 1 and (split == 1 or may_split(shape)):
            yield {**made, "split": split, "parts": parts}


def may_split(shape: Shape) -> bool:
    """Whether the sums of a tile need no registers of the warps that copy, and fit where its stages were."""
    rows, columns = (shape.n, shape.m) if shape.exchanged else (shape.m, shape.n)
    room = shape.stages * shape.operand_bytes
    return shape.m * shape.n <= 128 * 128 and not shape.pingpong and rows * (columns + 4) * 4 <= room


def in_rows(operand: Operand) -> bool:
    """Whether the kernel takes the operand as rows, not as columns. A single column may be either."""
    return is_aligned(operand) or not is_aligned(operand.transposed())


def is_along_k_alone(operand: Operand) -> bool:
    """Whether the tensor cores read elements of its type along K alone: all but those of 16 bits."""
    return operand.itemsize != 2


def is_readable(operand: Operand) -> bool:
    """Whether a tensor map can describe the operand: rows or columns, each beginning at a multiple of 16 bytes.

    Of what is read along K alone, rows of A or columns of B.
    """
    if is_along_k_alone(operand):
        return is_aligned(operand.transposed() if operand.name in ("b", "copy_b") else operand)
    return is_aligned(operand) or is_aligned(operand.transposed())


def _lines(operand: Operand, along_rows: int | str) -> Operand:
    """The operand as the rows that the settings take it for: of itself, or of its transpose.

    One row, one column and nothing at all may be either.
    """
    return operand if along_rows else operand.transposed()


def is_aligned(rows: Operand) -> bool:
    """Whether there are rows, each beginning at a multiple of 16 bytes. Where there is one, the pitch is nothing.

    And none of them before the first: a tensor map has no steps backwards.
    """
    if rows.alignment % ALIGNMENT or not rows.has_rows:
        return False
    item = rows.itemsize
    if rows.rows > 1 and (rows.pitch < 0 or rows.pitch * item % ALIGNMENT):
        return False
    return not rows.stack or all(step >= 0 and step * item % ALIGNMENT == 0 for step in rows.stack)


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse what the engine's coordinates do not reach, and settings that do not go together."""
    if error := refuse_sizes(operands, "wgmma"):
        return error
    if bool(settings["grouped"]) != (operands.groups > 0):
        return ArgumentError("grouped", "must be 1 for groups of rows, else 0", settings["grouped"])
    for name, value in ALONE.items():
        if settings["grouped"] and settings[name] != value:
            return ArgumentError(name, f"must be {value!r} for groups of rows", settings[name])
    for name, operand in zip(("a_in_rows", "b_in_rows"), exchange(operands, settings), strict=True):
        if not is_aligned(_lines(operand, settings[name])):
            return ArgumentError(name, "must be as the operand lies", settings[name])
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
    if operands.groups and shape.sum_registers > MOST_SUMS_CHANGED:
        return ArgumentError("partition", "must be a smaller tile for groups of rows", settings["partition"])
    halved = shape.consumers == 3 or operands.groups  # which have fewer registers, or keep more in them
    in_boxes = not operands.epilogue.is_plain or operands.c.itemsize == 1
    if in_boxes and shape.sum_registers > MOST_SUMS_CHANGED // (2 if halved else 1):
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
    if (shape.in_steps or shape.widens) and shape.pingpong:
        return ArgumentError("pingpong", f"must be 0 for {loaded_element(settings)}", 1)
    if shape.in_steps and shape.product_registers > MOST_PRODUCTS[shape.consumers]:
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
    maps = (
        _map(_lines(a, settings["a_in_rows"]), bool(settings["a_in_rows"]), shape.m, across, stack),
        _map(
            _lines(b, settings["b_in_rows"]),
            not settings["b_in_rows"],
            shape.loaded_columns,
            down,
            stack_of_b,
        ),
        _result_map(c, stack) if parts == 1 else Slot(bytes(BYTES)),
    )
    blocks = down * across * split
    launched = ceil_div(clusters(operands, settings), int(settings["tiles"])) * parts
    matrices = parts if parts > 1 else operands.groups or operands.batch
    which = stack_slot(operands, bool(settings["exchanged"]), parts if parts > 1 else None)
    ends = () if operands.offsets is None else (operands.offsets.pointer(),)
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

    NOTE: where it is empty, the engine does not touch it, and the map is as many zeros.
    """
    if not rows.rows * rows.columns:
        return Slot(bytes(BYTES))
    part, row = size // sharers, ROW_BYTES // rows.itemsize
    if rows.dtype == "float32":
        rows = replace(rows, dtype="tfloat32")  # NOTE: so the engine rounds; the tensor cores would cut off
    if along_k:
        box = (part, row)
    else:
        box = (row if part % row == 0 else row // sharers, row)
    return rows.map(box, ROW_BYTES, stack)


def _result_map(c: Operand, stack: tuple[int, ...]) -> MapSlot | Slot:
    """The tensor map of C; if the engine cannot store it, as many zeros."""
    if not is_aligned(c) or c.itemsize == 1:
        return Slot(bytes(BYTES))
    return c.map((64, ROW_BYTES // c.itemsize), ROW_BYTES, stack)


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The sums of every part of K, if there are several."""
    return parts_bytes(operands.inner(STACK_AXES), int(settings["parts"]))


def work(operands: Operands, settings: Settings) -> Work:
    parts = int(settings["parts"])
    shape, (down, _) = shape_of(settings), cluster_of(settings)
    (a, b), c = exchange(operands, settings), operands.c
    first, second = _lines(a, settings["a_in_rows"]), _lines(b, settings["b_in_rows"])
    return Work(
        "wgmma_widened" if shape.widens else UNITS.get(str(settings["element"]), "wgmma_gemm"),
        shape.tile,
        shape.threads,
        resident=shape.resident,
        stages=shape.stages,
        cluster=down,
        split=int(settings["split"]),
        split_in_cluster=True,
        parts=parts,
        extra_bytes=2 * workspace_bytes(operands, settings),
        tiles=int(settings["tiles"]),
        pingpong=shape.pingpong,
        exchanged=shape.exchanged,
        storers=2 if shape.pingpong else shape.consumers,
        store_bytes=16 if is_aligned(c) or _stores_runs(shape, operands, parts) else c.itemsize,
        straddling=straddling(first, second, shape.tile, down, shape.b_in_rows and shape.n % BOX > 0),
    )


def _stores_runs(shape: Shape, operands: Operands, parts: int) -> bool:
    """Whether 16 bytes are stored at once wherever C's rows begin: from boxes of results, not of sums."""
    bytewise, little = operands.c.itemsize == 1, finished_in_registers(operands)
    return (
        (operands.epilogue.is_plain or little)
        and shape.n % BOX == 0
        and not (shape.exchanged or bytewise)
        and parts == 1
    )


def finished_in_registers(operands: Operands) -> bool:
    """Whether each thread does to its own sums what is to happen to them."""
    return fits_registers(operands.epilogue) and operands.accumulate != "float16"


def defines(settings: Settings) -> dict[str, object]:
    """Compile-time values; how many tiles a block computes is decided by the grid alone."""
    shape, (down, across) = shape_of(settings), cluster_of(settings)
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
            settings, "split", "parts", "a_in_rows", "b_in_rows", "stacked", "grouped", "pointers"
        ),
        **name_defines(settings, "element", "accumulate", "result"),
        **({} if settings["widened"] == AS_IT_IS else {"A_ELEMENT": settings["widened"]}),
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
        "instruction": Tile(64, shape.n, _instruction_k(shape)),
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
        "stacked": (0, 1),
        "grouped": (0, 1),  # rows of A in groups with a B each
        "accumulate": ("float32", "float16", "int32"),  # what sums are kept in
        "pointers": TABLE_SIZES,  # matrices that lie anywhere
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
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
    lies="have rows or columns that begin at multiples of 16 bytes, of float32 and 8 bits those along k,",
)
