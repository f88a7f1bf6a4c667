"""What the kernel for Hopper's tensor cores is proposed with: tiles, schedules, clusters, parts of K."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewise.kernels.gemm.limits import scales_terms
from tilewise.kernels.gemm.wgmma_lies import cluster_of, clusters, lies_across, lies_of, reads_both
from tilewise.kernels.gemm.wgmma_shapes import (
    BETWEEN,
    BETWEEN_SIZES,
    BOX,
    FLAT,
    NARROW,
    TALL,
    TALL_SIZES,
    TILES,
    WIDENING,
    Shape,
    depth_of,
    loaded_element,
    shape_of,
    tile_of,
)
from tilewise.kernels.spec import AS_IT_IS, Operands, Settings, ceil_div
from tilewise.problem import FLOAT8, Tile

__all__ = ["MOST_SUMS", "MOST_TILES", "candidates", "may_split"]

MOST_TILES = 128  # of C that a block computes
WORTH_STRADDLING = 0.95  # of the waves that other tiles take
MOST_PARTS, LONG_PARTS = 32, 16  # that are proposed: the sums of each are written and read
WIDEST_SCALED = 128  # columns beside rows of 8 bits that have scales, which take registers
WORTH_HALVING = 128  # columns beside rows of 8 bits: of wider tiles there may be too few
WORTH_HEIGHT = 112  # columns from which on tiles of 128 rows are as fast as of 64 and twice the columns
WORTH_SHARING = 32  # columns beside rows of 8 bits, from which on two blocks load them together
MOST_EVEN = 3  # tiles for even shares of the columns, with or without a split of K, that are proposed
LONG_SPLITS = (1, 2, 3, 4)  # parts of K that tiles along the longer side of C are proposed with
LONG_WAVES = 4  # of such tiles, at most
LEAST_STEPS = 4  # of K that a part has, if it is proposed
LONG_STEPS = 16  # the same where there are more than LONG_PARTS
PROPOSED_SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)  # the largest of which so many clusters find room at once
MOST_SUMS = 192  # of a thread's registers
LEAST_SUMS = 128  # of a warpgroup that has tiles of its own, for a product to be worth its bytes


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    """Every tile that is not much too large, with clusters, splits of K, and several tiles a block."""
    m, n, _ = operands.sizes
    types = {name: settings[name] for name in ("element", "widened", "accumulate", "scales_a", "scales_b")}
    if settings["widened"] != AS_IT_IS:
        yield from _widening(operands, types, sms)
        return
    lies = types | lies_of(operands, 0)
    if lies_across(operands.a) or lies_across(operands.b):
        yield from _transposing(operands, types, sms)
        return
    if operands.groups:
        yield from _grouped(operands, lies, sms)
        return
    stacked = {"stacked": int(operands.batch > 1)}
    if settings["exchanged"]:  # asked for, with a tile that is not proposed below, perhaps
        yield {**settings, **types, **stacked, **lies_of(operands, 1)}
    # Tiles between the others begin and end inside of columns that share scales.
    tiled = operands.epilogue.lines_of("b") > 1
    between = [] if tiled else _least_waste(operands, m, n, sms, bool(lies["b_in_rows"]))
    for tile in (*TILES, *between):
        if (tile.m > 64 and tile.m >= 2 * m) or (tile.n > 64 and tile.n >= 2 * n):
            continue
        found: dict[str, int | str] = {**lies, **stacked, "partition": _name(tile, lies)}
        yield from _schedules(operands, found, sms)
        if tile in TILES:
            yield from _splits(operands, found, sms)
            yield from _parts(operands, found, sms)
    if not tiled:
        yield from _even_tiles(operands, {**lies, **stacked}, sms)
        yield from _long_tiles(operands, {**types, **stacked}, sms)
        yield from _tall_tiles(operands, {**lies, **stacked}, sms)
    lies = types | lies_of(operands, 1)
    for tile in _exchanged_tiles(operands, sms, bool(lies["b_in_rows"])):
        found = {**lies, **stacked, "partition": _name(tile, lies)}
        yield from _schedules(operands, found, sms)
        if (tile.m, tile.n) not in BETWEEN_SIZES:
            yield from _splits(operands, found, sms)


def _widening(operands: Operands, types: dict[str, int | str], sms: int) -> Iterator[Settings]:
    """Tiles for an operand of 8 bits, which is the kernel's A, by one of 16."""
    exchanged = int(operands.widened is operands.b)
    lies = types | lies_of(operands, exchanged)
    rows, columns = (operands.sizes[i] for i in ((1, 0) if exchanged else (0, 1)))
    # With scales a step's sums have registers of their own.
    fitting = [one for one in WIDENING if not scales_terms(types) or one.n <= WIDEST_SCALED]
    widest = next((i for i, one in enumerate(fitting) if one.n >= columns), len(fitting) - 1)
    tiles = fitting[
        widest - (fitting[widest].n > WORTH_HALVING) : widest + 1
    ]  # or half as wide, for more of them
    widths = {one.n for one in tiles}
    tall = (one for one in TALL if one.n in widths)
    for tile in (*(replace(one, m=height) for one in tiles for height in (64, 128)), *tall):
        if tile.m > 64 and tile.m >= 2 * rows:
            continue
        found: dict[str, int | str] = {
            **lies,
            "stacked": int(operands.batch > 1),
            "partition": _name(tile, lies),
        }
        yield from _schedules(operands, found, sms)
        yield from _splits(operands, found, sms)
        yield from _parts(operands, found, sms)


def _transposing(operands: Operands, types: dict[str, int | str], sms: int) -> Iterator[Settings]:
    """Tiles where an operand of float32 lies across K, which is the kernel's A."""
    if not reads_both(operands):
        return
    exchanged = int(not lies_across(operands.a))
    lies = types | lies_of(operands, exchanged) | {"stacked": int(operands.batch > 1)}
    rows, columns = (operands.sizes[i] for i in ((1, 0) if exchanged else (0, 1)))
    narrow = next((one.n for one in NARROW if one.n >= columns), None)
    tiles = [one for one in NARROW if one.n == narrow]
    if narrow is None:
        tiles = [*TILES, *_least_waste(operands, rows, columns, sms, False)]
    for tile in tiles:
        if (tile.m > 64 and tile.m >= 2 * rows) or (tile.n > 64 and tile.n >= 2 * columns):
            continue
        found: dict[str, int | str] = {**lies, "partition": _name(tile, lies)}
        yield from _schedules(operands, found, sms)
        if (tile.m, tile.n) not in BETWEEN_SIZES:
            yield from _splits(operands, found, sms)
            yield from _parts(operands, found, sms)


def _even_tiles(operands: Operands, lies: Settings, sms: int) -> Iterator[Settings]:
    """Tiles by whose widths SMs have the most even shares of the columns: for a few rows with K whole or split, for
    more with K split, as tiles of 128 rows that take it whole are proposed by their waste.
    """
    if operands.sizes[1] <= FLAT[0].n:
        return
    if operands.sizes[0] <= FLAT[0].m:
        yield from _fewest_sums(operands, lies, sms, FLAT, (1, *PROPOSED_SPLITS))
    else:
        tiles = [one for one in BETWEEN if one.m == BETWEEN[0].m]
        yield from _fewest_sums(operands, lies, sms, tiles, PROPOSED_SPLITS)


def _long_tiles(operands: Operands, types: Settings, sms: int) -> Iterator[Settings]:
    """Tiles of 64 rows along C's longer side, whose widths give SMs even shares: few blocks read what there is more of.

    Where rows of B come in whole boxes then, few widths can be had: there along the shorter side, too, unless it is so
    short that these widths do.
    """
    m, n, _ = operands.sizes
    if min(m, n) <= FLAT[0].m:
        return
    longer = int(n > m)
    for exchanged in (longer, 1 - longer):
        lies = {**types, **lies_of(operands, exchanged)}
        if exchanged and operands.epilogue.lines_of("a") > 1:
            continue
        tiles = (*(one for one in TILES if one.m == FLAT[0].m and exchanged), *FLAT)
        yield from _fewest_sums(operands, lies, sms, tiles, LONG_SPLITS, LONG_WAVES)
        if not lies["b_in_rows"] or min(m, n) <= 2 * FLAT[0].m:
            return


def _tall_tiles(operands: Operands, lies: Settings, sms: int) -> Iterator[Settings]:
    """For 8 bits the narrowest tile of 256 rows by which one wave covers C; of 16, warpgroups in turns are faster."""
    m, n, _ = operands.sizes
    if loaded_element(lies) not in (*FLOAT8, "int8") or m <= BETWEEN[0].m:
        return
    for tile in BETWEEN:
        able = tile.m == BETWEEN[-1].m and not (lies["b_in_rows"] and tile.n % BOX)
        if able and ceil_div(m, tile.m) * ceil_div(n, tile.n) * operands.batch <= sms:
            yield {**lies, "partition": _name(tile, lies), "cluster": "1x1", "pingpong": 0, "tiles": 1}
            return


def _fewest_sums(
    operands: Operands,
    lies: Settings,
    sms: int,
    tiles: Sequence[Tile],
    splits: Sequence[int],
    most_waves: float = math.inf,
) -> Iterator[Settings]:
    """Of these tiles and splits of K those by which an SM has the fewest sums; K is split where one wave has room.

    Rows of B come in whole boxes: there tiles as wide as some boxes.
    """
    rows, columns = (operands.sizes[i] for i in ((1, 0) if lies["exchanged"] else (0, 1)))
    steps = ceil_div(operands.sizes[2], depth_of(loaded_element(lies)))

    def settings_of(tile: Tile, split: int) -> Settings:
        return {**lies, "partition": _name(tile, lies), "cluster": "1x1", "pingpong": 0, "split": split}

    def waves_of(tile: Tile, split: int) -> int:
        blocks = ceil_div(rows, tile.m) * ceil_div(columns, tile.n) * operands.batch * split
        return max(ceil_div(blocks, sms), 1)

    def fits(tile: Tile, split: int) -> bool:
        if (lies["b_in_rows"] and tile.n % BOX) or tile.n >= 2 * columns:
            return False
        if split == 1:
            return waves_of(tile, split) <= most_waves
        return (
            steps >= 2 * split
            and waves_of(tile, split) == 1
            and may_split(shape_of(settings_of(tile, split)))
        )

    able = [(tile, split) for split in splits for tile in tiles if fits(tile, split)]
    for tile, split in sorted(able, key=lambda one: waves_of(*one) * one[0].n / one[1])[:MOST_EVEN]:
        made = settings_of(tile, split)
        yield {**made, "tiles": min(waves_of(tile, split), MOST_TILES)} if split == 1 else made


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


def _exchanged_tiles(operands: Operands, sms: int, b_in_rows: bool) -> Iterator[Tile]:
    """Tiles for operands that are exchanged: for few rows of C, and between the others, those with the least waste.

    Of those of which several cover C's rows, the narrow ones take longer than tiles of 64 rows and twice the columns.
    """
    m, n, _ = operands.sizes
    if m > NARROW[-1].n:
        if operands.epilogue.lines_of("a") < 2:
            tiles = _least_waste(operands, n, m, sms, b_in_rows)
            yield from (one for one in tiles if one.n >= m or one.n >= WORTH_HEIGHT)
        return
    width = next(one.n for one in NARROW if one.n >= m)
    yield from (one for one in (*NARROW, *TALL) if one.n == width and one.m < 2 * n)


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
    shape = shape_of({**found, "pingpong": 0})
    many = operands.sizes[1 if found["exchanged"] else 0] > tile.m
    registers = shape.widens or shape.transposes
    worth = not found["exchanged"] or (registers and tile.n >= WORTH_SHARING)
    worth = worth and (tile.m, tile.n) not in TALL_SIZES  # which gain nothing by it
    for cluster in ("1x1", "2x1") if many and worth else ("1x1",):
        made = {**found, "cluster": cluster, "pingpong": 0}
        most = max(ceil_div(clusters(operands, made), max(sms // cluster_of(made)[0], 1)), 1)
        shares = {most} if (tile.m, tile.n) in BETWEEN_SIZES else {1, ceil_div(most, 2), most}
        for tiles in sorted({min(share, MOST_TILES) for share in shares}):
            yield {**made, "tiles": tiles}
        alone = Shape(tile, pingpong=True, in_pairs=in_pairs)
        together = shape.in_steps or shape.widens or shape.transposes
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
        most = min(max(steps // LONG_STEPS, LONG_PARTS), MOST_PARTS)
        parts = min(sms // max(alone * split, 1), steps // LEAST_STEPS, most)
        if parts > 1 and (split == 1 or may_split(shape)):
            yield {**made, "split": split, "parts": parts}


def may_split(shape: Shape) -> bool:
    """Whether the sums of a tile need no registers of the warps that copy, and fit where its stages were."""
    rows, columns = (shape.n, shape.m) if shape.exchanged else (shape.m, shape.n)
    room = shape.stages * shape.operand_bytes
    return shape.m * shape.n <= 128 * 128 and not shape.pingpong and rows * (columns + 4) * 4 <= room
