"""What kernels propose for a product: the tiles, splits and parts that their rules leave, each of them and no other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewise
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm import general, mma, mma_shapes, simt, vector
from tilewise.kernels.gemm.wgmma_shapes import BETWEEN, FLAT, NARROW, TALL, TILES, shape_of
from tilewise.operands import Operand, Operands
from tilewise.planner import operands_of

SIZE = st.one_of(st.integers(1, 300), st.sampled_from([512, 1024, 4096, 8192]))
SMS = st.sampled_from([4, 46, 132])
Found = Mapping[str, int | str]
examples = settings(max_examples=40)


def proposed(kernel: str, operands: Operands, sms: int, **given: object) -> list[dict[str, int | str]]:
    spec = KERNELS[kernel]
    complete = spec.complete({**spec.for_types(operands), **given})
    assert spec.candidates is not None
    return [spec.complete(dict(one), complete) for one in spec.candidates(operands, complete, sms)]


def rows_of(found: Iterable[Found], *names: str) -> list[tuple[int | str, ...]]:
    rows = sorted(tuple(one[name] for name in names) for one in found)
    assert len(set(rows)) == len(rows)  # none twice
    return rows


def up(a: int, b: int) -> int:
    return math.ceil(a / b)


# ── simt: multiply-adds of float32, K in parts where there are few tiles ──

SIMT = {  # block, and how many an SM holds
    (128, 256, 8): 1, (128, 256, 16): 1, (128, 128, 8): 2, (128, 64, 16): 3, (64, 64, 16): 4, (64, 32, 16): 5,
    (32, 32, 16): 8,
}  # fmt: skip


def even_parts(tiles: int, most: int, sms: int, resident: int) -> list[int]:
    """In how many parts K may be: as many as give each SM as many blocks, more than it holds at once only if more even."""
    each = {parts: up(tiles * parts, sms) for parts in range(1, most + 1)}
    share = {parts: tiles * parts / (sms * count) for parts, count in each.items()}
    last = [parts for parts in each if parts == most or each[parts + 1] > each[parts]]
    return [1] + [
        parts for parts in last if parts > 1
        and (each[parts] <= resident
             or share[parts] > max(share[fewer] for fewer in (1, *last)
                                   if fewer == 1 or (fewer < parts and each[fewer] >= resident)))
    ]  # fmt: skip


def tail_parts(tail: int, most: int, at_once: int) -> list[int]:
    """In how many parts K of the last tiles may be: the two most that end before fewer do, and before whole tiles."""
    ends = {parts: up(tail * parts, at_once) / parts for parts in range(1, min(most, 16) + 1)}
    sooner = [
        parts for parts in ends if parts > 1 and ends[parts] < min(ends[fewer] for fewer in range(1, parts))
    ]
    return sooner[-2:]


@given(m=SIZE, n=SIZE, k=SIZE, batch=st.sampled_from([1, 3]), sms=SMS)
@example(m=256, n=256, k=16384, batch=1, sms=132)
@example(m=1536, n=1536, k=1536, batch=1, sms=132)
@example(m=4096, n=4096, k=4096, batch=1, sms=132)
@example(m=2304, n=2304, k=700, batch=1, sms=132)
@examples
def test_simt_has_tiles_that_the_result_half_fills_and_parts_of_k_that_fill_the_sms_evenly(
    m: int, n: int, k: int, batch: int, sms: int
) -> None:
    expected = []
    for (rows, columns, depth), resident in SIMT.items():
        if (columns, depth) == (256, 16):
            continue  # for complex numbers
        if (rows > 32 and m <= rows / 2) or (columns > 32 and n <= columns / 2):
            continue
        tiles = up(m, rows) * up(n, columns)
        most = max(min(k // 64, 64, 5 * sms * resident // tiles), 1) if batch == 1 else 1
        counts = even_parts(tiles, most, sms, resident)
        expected += [(f"{rows}x{columns}x{depth}", count, 0) for count in counts]
        if batch == 1 and tiles > sms * resident and (tail := tiles % (sms * resident)):
            counts = tail_parts(tail, k // 64, sms * resident)
            expected += [(f"{rows}x{columns}x{depth}", count, tail) for count in counts]
    operands = operands_of(m, n, k, batch=batch)
    assert rows_of(proposed("simt", operands, sms), "partition", "parts", "tail") == sorted(expected)


@pytest.mark.parametrize(
    ("a_bytes", "b_bytes", "kind"),
    [(16, 16, "whole"), (16, 16, "real"), (4, 16, "real"), (16, 4, "real"), (4, 4, "real"), (4, 16, "pairs")],
)
@pytest.mark.parametrize("name", simt.SHAPES)
def test_simt_counts_copies_and_turns_of_shared_memory(
    name: str, a_bytes: int, b_bytes: int, kind: str
) -> None:
    """A warp reads the rows and columns of its threads 16 bytes at once, each of which takes it four turns.

    Of complex numbers too, whose rows of B two k share.
    """
    spec, shape = KERNELS["simt"], simt.SHAPES[name]
    given = {"in_pairs": int(kind == "pairs"), "whole_copies": int(kind == "whole")}
    chosen = spec.complete({"partition": name, "a_bytes": a_bytes, "b_bytes": b_bytes, **given})
    work, (m, n, k) = (
        spec.work(operands_of(512, 512, 512), chosen),
        (shape.block.m, shape.block.n, shape.block.k),
    )
    columns = n // (2 if kind == "pairs" else 1)
    warps, reads = shape.threads // 32, shape.thread.m + shape.thread.n
    copies = m * k * 4 // a_bytes + columns * k * 4 // b_bytes
    beyond = copies - (m + columns) * k // 4  # those that wider ones had spared
    share, share_beyond = {
        ("whole", True): (0.5 if k == 16 else 0.55, 0),
        ("whole", False): (0.57, 0),
        ("pairs", True): (2 / 3, 1 / 4),
        ("pairs", False): (3 / 4, 1),
        ("real", True): (2 / 3, 1 / 4),
        ("real", False): (7 / 8, 2 / 7),
    }[kind, shape.resident > 1]
    expected = warps * k * reads * share + beyond * share_beyond + copies / 32
    assert work.shared_reads == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("name", "of"), simt.SHAPES.items())
def test_simt_shares_a_block_among_warps_and_its_memory_among_stages(name: str, of: simt.Shape) -> None:
    block, warp = of.block, of.warp
    warps = (block.m / warp.m) * (block.n / warp.n)
    assert of.threads == 32 * warps and of.thread.m * of.thread.n * 32 == warp.m * warp.n
    assert (of.thread.m, of.thread.n, of.thread.k) == (warp.m / 8, warp.n / 4, 1)
    assert SIMT[block.m, block.n, block.k] == of.resident and name == f"{block.m}x{block.n}x{block.k}"
    for a_along_k, b_along_n, pairs in itertools.product((0, 1), repeat=3):
        given = {"a_along_k": a_along_k, "b_along_n": b_along_n, "in_pairs": pairs}
        numbers = 4 * (a_along_k + (1 - b_along_n)) + block.m + block.n / (1 + pairs)
        assert of.shared_bytes(given) == of.stages * block.k * numbers * 4
    # A thread copies four numbers of a row of B at once; of pairs there are half as many rows.
    assert of.takes_pairs == (block.k / 2 * block.n / 4 >= of.threads)


# ── mma: tensor cores since Turing ──


def is_mma_proposed(tile: Any, m: int, n: int, count: int, sms: int, large: int) -> bool:
    too_large = tile.m > 2 * max(m, 32) or tile.n > 2 * max(n, 32)
    too_narrow = (tile.m < 32 and m > 64) or (tile.n < 32 and n > 64)
    too_many = m > 64 and n > 64 and tile.m * tile.n < large and count > 16 * sms
    return not (too_large or too_narrow or too_many)


@given(
    m=SIZE,
    n=SIZE,
    k=SIZE,
    batch=st.sampled_from([1, 3]),
    sms=SMS,
    dtype=st.sampled_from(["float16", "float64"]),
)
@example(
    m=64, n=300, k=64, batch=1, sms=4, dtype="float16"
)  # the most rows, and columns, that the smallest tiles have
@example(m=65, n=300, k=64, batch=1, sms=4, dtype="float16")
@example(m=300, n=64, k=64, batch=1, sms=4, dtype="float16")
@example(m=300, n=65, k=64, batch=1, sms=4, dtype="float16")
@example(m=64, n=64, k=64, batch=100, sms=4, dtype="float64")  # more tiles than fill the SMs, of any size
@example(m=65, n=65, k=64, batch=100, sms=4, dtype="float64")
@example(m=512, n=1, k=2, batch=1, sms=4, dtype="float64")  # B's column is a line
@examples
def test_mma_has_tiles_that_are_not_much_too_large_and_the_two_largest_splits_with_room(
    m: int, n: int, k: int, batch: int, sms: int, dtype: str
) -> None:
    shapes, large = (
        (mma_shapes.SHAPES, 64 * 64) if dtype == "float16" else (mma_shapes.DOUBLE_SHAPES, 64 * 32)
    )
    operands = operands_of(m, n, k, dtype=dtype, batch=batch)
    lies = mma.lies(operands)
    narrow = min(lies["a_bytes"], lies["b_bytes"]) == 2
    # Of one row, or column, lines may as well lie the other way.
    whole = (lies["a_in_rows"] or m % 8 == 0) and (not lies["b_in_rows"] or n % 8 == 0)
    boxes_can_be = lies["a_bytes"] == lies["b_bytes"] == 16 and whole and m * n * k > 0
    expected = []
    for name, shape in shapes.items():
        tile, threads = shape.tile, shape.warps[0] * shape.warps[1] * 32
        count = up(m, tile.m) * up(n, tile.n) * batch
        registers = (tile.m * tile.n + tile.m * tile.k + tile.n * tile.k) / threads
        if not is_mma_proposed(tile, m, n, count, sms, large) or (narrow and registers > 180):
            continue
        stages = [2] if narrow else [*shape.stages, 2]
        in_boxes = list(shape.box_stages) if boxes_can_be else []
        expected += [(name, one, 0, 1) for one in stages] + [(name, one, 1, 1) for one in in_boxes]
        splits = [
            split for split in (2, 4, 8, 16, 32)
            if split * count <= 2 * sms and up(k, tile.k) >= 4 * split and tile.m * tile.n <= 128 * 128
            and split >= shape.least_parts
        ]  # fmt: skip
        deep = stages[0] if narrow else shape.part_stages or stages[0]
        expected += [(name, one, 0, split) for one in {deep, 2} for split in splits[-2:]]
        expected += [(name, one, 1, split) for one in in_boxes for split in splits[-2:]]
    found = [one for one in proposed("mma", operands, sms) if not one["tail"]]
    assert rows_of(found, "partition", "stages", "boxes", "split") == sorted(expected)


@given(m=SIZE, n=SIZE, k=SIZE, batch=st.sampled_from([1, 3]), sms=SMS)
@example(m=3000, n=3000, k=3000, batch=1, sms=132)
@example(m=2304, n=2304, k=256, batch=1, sms=108)
@examples
def test_mma_has_the_last_tiles_in_parts_where_sms_would_have_none(
    m: int, n: int, k: int, batch: int, sms: int
) -> None:
    """Of each tile in two schedules, in the two best numbers of parts; where SMs have as many blocks as they hold, or one."""
    operands = operands_of(m, n, k, dtype="float16", batch=batch)
    all_ = proposed("mma", operands, sms)
    expected = set()
    for one in all_:
        tile, stages = mma_shapes.SHAPES[str(one["partition"])].tile, int(one["stages"])
        count = up(m, tile.m) * up(n, tile.n)
        first = next(int(two["stages"]) for two in all_ if two["partition"] == one["partition"])
        for at_once in (sms, sms * mma.resident(one)):
            tail = count % at_once if count > at_once else 0
            if batch == 1 and tail and stages in (first, 2):
                parts = tail_parts(tail, up(k, tile.k) // 4, at_once)
                expected |= {(one["partition"], stages, split, tail) for split in parts}
    found = [one for one in all_ if one["tail"]]
    assert rows_of(found, "partition", "stages", "split", "tail") == sorted(expected)


@pytest.mark.parametrize("element", mma_shapes.SHAPES_OF)
def test_mma_s_tiles_take_what_their_stages_and_lines_take(element: str) -> None:
    item = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}.get(element, 1)
    spec, wide = KERNELS["mma"], element == "float32"
    for name, shape in mma_shapes.SHAPES_OF[element].items():
        tile = shape.tile
        assert name == f"{tile.m}x{tile.n}x{tile.k}" and shape.threads == 32 * shape.warps[0] * shape.warps[1]
        assert (shape.warp.m * shape.warps[0], shape.warp.n * shape.warps[1], shape.warp.k) == (
            tile.m,
            tile.n,
            tile.k,
        )
        for stages, a_in_rows, b_in_rows in itertools.product((2, 4), (0, 1), (0, 1)):
            given = {"element": element, "partition": name, "stages": stages, "a_in_rows": a_in_rows}
            chosen = spec.complete({**given, "b_in_rows": b_in_rows})
            across = [size for size, is_across in ((tile.m, not a_in_rows), (tile.n, b_in_rows)) if is_across]
            padding = sum(tile.k * mma.LINE_PADDING for size in across if wide and size >= mma.PADDED_LEAST)
            bytes_ = stages * ((tile.m + tile.n) * tile.k * item + padding)
            assert mma.shared_bytes(chosen) == bytes_
            fits = max(mma.TWO_STAGES_MOST // bytes_, 1)
            assert mma.resident(chosen) == (shape.resident if stages > 2 else min(shape.resident, fits))


@given(
    m=st.integers(1, 200), n=st.integers(1, 200), split=st.sampled_from([1, 2, 8]), batch=st.integers(1, 3)
)
@examples
def test_mma_s_partial_sums_lie_in_rows_of_whole_fours(m: int, n: int, split: int, batch: int) -> None:
    operands = operands_of(m, n, 512, dtype="float16", batch=batch)
    spec = KERNELS["mma"]
    chosen = spec.complete({**spec.for_types(operands), "split": split})
    columns = next(size for size in range(n, n + 4) if size % 4 == 0)
    assert spec.workspace(operands, chosen) == (0 if split == 1 else 4 * split * batch * m * columns)
    launches = [(one.entry, one.launch.grid, one.launch.block) for one in spec.steps(operands, chosen)]
    first = ("mma_gemm", (up(m, 128) * up(n, 128) * batch, split, 1), (128, 1, 1))
    sharers = 2 if split == 8 else 1
    second = ("add_parts", (up(m * columns // 4, 256 // sharers) * batch, 1, 1), (256, 1, 1))
    assert launches == ([first] if split == 1 else [first, second])
    assert spec.sum_slots(operands, chosen) == ((up(m, 64), up(n, 64)) if split == 1 else (m, n))


# ── general and vector: any strides ──


def test_general_has_every_tile_whose_two_stages_fit_without_asking() -> None:
    for dtype, item in (("float32", 4), ("float64", 8), ("float16", 4)):
        found = proposed("general", operands_of(100, 50, 30, dtype=dtype), 132)
        fitting = [
            name for name, one in general.SHAPES.items()
            if 2 * (one.block.m + one.block.n + 8) * one.block.k * item <= 48 * 1024
        ]  # fmt: skip
        assert sorted(str(one["partition"]) for one in found) == sorted(fitting)
    for name, shape in general.SHAPES.items():
        block, thread = shape.block, shape.thread
        assert (
            shape.threads * thread.m * thread.n == block.m * block.n
            and name == f"{block.m}x{block.n}x{block.k}"
        )


@given(rows=st.integers(1, 3), column=st.integers(-9, 9), row=st.integers(-9, 9))
def test_general_goes_along_what_lies_closer_together(rows: int, column: int, row: int) -> None:
    operand = Operand("a", rows, 5, row, "float32", column)
    assert general.runs_along_columns(operand) == (rows == 1 or abs(column) <= abs(row))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", general.SHAPES)
def test_general_counts_turns_of_shared_memory_and_partial_sums_by_its_warps(name: str, dtype: str) -> None:
    operands = operands_of(700, 300, 64, dtype=dtype)
    spec, shape = KERNELS["general"], general.SHAPES[name]
    chosen = spec.complete({**spec.for_types(operands), "partition": name})
    item, thread = (8 if dtype == "float64" else 4), shape.thread
    turns = up(thread.m * item, 16) + thread.n * item // 4  # of rows 16 bytes at once, of columns 4
    work = spec.work(operands, chosen)
    assert work.shared_reads == shape.threads / 32 * shape.block.k * turns
    assert (work.unit, work.stages) == ("general64" if item == 8 else "general", 2)
    side_by_side = shape.block.n // thread.n  # threads in a row of the block, and of a warp
    warp_rows = 32 // side_by_side * thread.m
    assert spec.sum_slots(operands, chosen) == (up(700, warp_rows), up(300, shape.block.n))


@given(
    size=st.integers(1, 5000)
    | st.integers(16_000, 160_000),  # the long ones fill a GPU in narrow blocks as well
    k=st.integers(1, 5000),
    is_row=st.booleans(),
    layout=st.sampled_from(["nn", "tt"]),
    dtype=st.sampled_from(["float16", "float64", "int8"]),
    sms=SMS,
)
@example(33_792, 300, True, "nn", "float16", 132)  # as many blocks as are enough, of half the width
@example(67_584, 300, True, "nn", "float16", 132)  # and of the whole, which K is in two parts for as well
@settings(max_examples=100)
def test_vector_goes_along_the_lines_of_its_matrix(
    size: int, k: int, is_row: bool, layout: str, dtype: str, sms: int
) -> None:
    operands = operands_of(1 if is_row else size, size if is_row else 1, k, dtype=dtype, layout=layout)
    rows = size, k  # of the matrix, as the kernel has it: B transposed where A is a row
    in_rows = (layout == "nn") != is_row  # whether its neighbours lie along K
    found = proposed("vector", operands, sms)
    strides = (rows[1], 1) if in_rows else (1, rows[0])
    if k <= 1 or strides[1] <= strides[0]:
        assert [(one["along"], one["rows"]) for one in found] == [("k", count) for count in (8, 4, 2, 1)]
    else:
        expected, widths = [], (8, 4) if dtype == "int8" else (4, 2, 1)
        most = 1 if dtype == "int8" else min(k // 128, 32)  # integers are not added up in parts
        for per_lane in widths:
            blocks = up(size, 32 * per_lane)  # of which an SM has 2, 4 or 8 in so many parts
            if per_lane != widths[0] and blocks >= 4 * sms:
                break
            parts = {min(each * sms // blocks, most) for each in (2, 4, 8)} - {0, 1}
            whole = [1] if blocks >= 4 * sms or not parts else []
            expected += [("rows", per_lane, count) for count in whole + sorted(parts)]
        assert [(one["along"], one["per_lane"], one["parts"]) for one in found] == expected
    if size > 1:
        for one in found:
            of_block = int(one["rows"]) if one["along"] == "k" else 32 * int(one["per_lane"])
            multiply, *add = KERNELS["vector"].steps(operands, one)
            assert multiply.launch.grid == (up(size, of_block) * int(one["parts"]), 1, 1)
            assert multiply.launch.block == (256, 1, 1) and len(add) == (int(one["parts"]) > 1)
            assert vector.rows_of_block(one) == of_block
            work = KERNELS["vector"].work(operands, one)
            assert (work.block.n, work.block.m) == ((of_block, 1) if is_row else (1, of_block))


# ── wgmma: tensor cores of Hopper ──

SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)


def kept(found: Iterable[Found], **how: int | str) -> list[Found]:
    return [one for one in found if all(one[name] == value for name, value in how.items())]


@given(m=SIZE, n=SIZE, k=SIZE, sms=st.sampled_from([16, 114, 132]), layout=st.sampled_from(["nn", "nt"]))
@examples
def test_wgmma_splits_k_as_far_as_the_gpu_has_room_for_its_clusters(
    m: int, n: int, k: int, sms: int, layout: str
) -> None:
    operands = operands_of(m, n, k, dtype="bfloat16", layout=layout)
    found = kept(proposed("wgmma", operands, sms), exchanged=0)
    expected, shares, sizes = [], [], {(one.m, one.n) for one in TILES}
    for tile in TILES:
        if (tile.m > 64 and m <= tile.m / 2) or (tile.n > 64 and n <= tile.n / 2):
            continue
        name, small = f"{tile.m}x{tile.n}x64", tile.m * tile.n <= 128 * 128
        count = up(m, tile.m) * up(n, tile.n)
        room = shape_of(dict(found[0]) | {"partition": name, "pingpong": 0}) if found else None
        assert room is not None
        fits = small and tile.m * (tile.n + 4) * 4 <= room.stages * room.operand_bytes
        steps = up(k, 64)
        splits = [one for one in SPLITS if count * one <= 2 * sms and steps >= 2 * one]
        expected += [(name, split, 1) for split in splits if fits]
        for split in (1, 8):
            own = steps // split
            parts = min(sms // (count * split), own // 4, 32 if own >= 32 * 16 else max(16, own // 16))
            if small and parts > 1 and (split == 1 or fits):
                expected.append((name, split, parts))
        for cluster, blocks in (("1x1", 1), ("2x1", 2)):
            if blocks == 2 and m <= tile.m:
                continue  # whose second block had no row
            most = max(up(up(up(m, tile.m), blocks) * up(n, tile.n), sms // blocks), 1)
            shares += [(name, cluster, 0, min(share, 128)) for share in {1, up(most, 2), most}]
            sums = tile.m * tile.n // 128  # of a thread of the one warpgroup that has a tile
            if most > 1 and 128 <= sums <= 192:
                shares.append((name, cluster, 1, min(most, 128)))
    tiled = [one for one in found if tuple(map(int, str(one["partition"]).split("x")[:2])) in sizes]
    several = [one for one in tiled if int(one["split"]) > 1 or int(one["parts"]) > 1]
    alone = [one for one in tiled if one["split"] == one["parts"] == 1]
    assert rows_of(several, "partition", "split", "parts") == sorted(expected)
    assert rows_of(alone, "partition", "cluster", "pingpong", "tiles") == sorted(set(shares))


@given(m=SIZE, n=SIZE, sms=st.sampled_from([16, 132]), batch=st.sampled_from([1, 3]))
@examples
def test_wgmma_has_the_three_tiles_between_the_others_that_waste_least(
    m: int, n: int, sms: int, batch: int
) -> None:
    """Where rows of B begin inside of lines of L2, only those that take fewer waves than the others."""

    def cost(tile: Any) -> int:
        return up(up(m, tile.m) * up(n, tile.n) * batch, sms) * int(tile.n)

    able = [one for one in BETWEEN if one.m == 128 and m > 64]
    for layout in ("nt", "nn"):
        operands = operands_of(m, n, 4096, dtype="float16", layout=layout, batch=batch)
        fitting = able
        if layout == "nn":
            least = min(cost(one) for one in TILES if one.m == 128 and one.n >= 128)
            fitting = [one for one in able if cost(one) <= 0.95 * least]
        names = {f"{one.m}x{one.n}x64" for one in BETWEEN}
        whole = kept(proposed("wgmma", operands, sms), exchanged=0, split=1)
        found = {str(one["partition"]) for one in whole}
        best = sorted(fitting, key=cost)[:3]
        wide = [one for one in best if not (n <= one.n / 2)]
        assert found & names == {f"{one.m}x{one.n}x64" for one in wide}


@given(
    m=st.integers(1, 300), n=st.integers(2, 8000).map(lambda i: 8 * i), k=st.integers(2, 900).map(lambda i: 8 * i),
    sms=SMS, batch=st.sampled_from([1, 3]), layout=st.sampled_from(["nt", "nn"]),
)  # fmt: skip
@example(64, 18432, 7168, 132, 1, "nt")
@example(64, 5120, 5120, 132, 1, "nt")
@example(64, 50304, 2048, 132, 1, "nn")
@example(64, 80, 4096, 132, 1, "nt")
@example(128, 5120, 5120, 132, 1, "nt")
@example(65, 2112, 7168, 132, 1, "nt")
@examples
def test_wgmma_has_widths_by_which_sms_share_the_columns_evenly(
    m: int, n: int, k: int, sms: int, batch: int, layout: str
) -> None:
    """The three with the fewest columns for the SM that has the most: of all widths, with K whole, or split at once. For more
    than 64 rows those of 128 alone, with K split.
    """
    operands = operands_of(m, n, k, dtype="float16", layout=layout, batch=batch)
    height, splits = (64, (1, *SPLITS)) if m <= 64 else (128, SPLITS)
    names = {f"{height}x{one.n}x64": one.n for one in (*FLAT, *BETWEEN) if one.m == height}
    some = kept(proposed("wgmma", operands, sms), exchanged=0)
    found = {
        (names[str(one["partition"])], int(one["split"])): one
        for one in some
        if one["partition"] in names and int(one["split"]) in splits
    }
    able = {}
    for (name, width), split in itertools.product(names.items(), splits):
        tiles = up(m, height) * up(n, width) * batch
        if (split > 1 and (tiles * split > sms or up(k, 64) < 2 * split)) or (layout == "nn" and width % 64):
            continue
        room = shape_of(dict(some[0]) | {"partition": name, "pingpong": 0})
        fits = height * width <= 128 * 128 and height * (width + 4) * 4 <= room.stages * room.operand_bytes
        if split == 1 or fits:
            able[width, split] = up(tiles * split, sms) * width / split
    if n <= 80:
        assert not found
        return
    assert len(found) == min(3, len(able)) and found.keys() <= able.keys()
    assert sorted(able[one] for one in found) == sorted(able.values())[:3]
    for (width, split), one in found.items():
        assert (one["cluster"], one["parts"], one["pingpong"]) == ("1x1", 1, 0)
        assert one["tiles"] == (1 if split > 1 else min(up(up(n, width) * batch, sms), 128))


@given(
    m=st.integers(1, 1300), n=st.integers(2, 2000).map(lambda i: 8 * i), k=st.integers(2, 900).map(lambda i: 8 * i),
    sms=SMS, batch=st.sampled_from([1, 3]), layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
)  # fmt: skip
@example(320, 4096, 14336, 132, 1, "nt")
@example(65, 64, 4096, 132, 1, "nt")
@example(65, 72, 4096, 132, 1, "nt")
@example(128, 11008, 4096, 132, 1, "tt")
@example(136, 11008, 4096, 132, 1, "tt")
@example(2000, 768, 3072, 132, 1, "tt")
@example(512, 512, 4096, 132, 1, "nn")
@example(1000, 16000, 128, 46, 1, "nt")
@examples
def test_wgmma_has_tiles_of_64_rows_along_the_longer_side(
    m: int, n: int, k: int, sms: int, batch: int, layout: str
) -> None:
    """The three with the fewest sums for the SM that has the most; along the shorter side where boxes allow few widths."""
    operands = operands_of(m, n, k, dtype="float16", layout=layout, batch=batch)
    in_boxes = {1: layout[0] == "t", 0: layout[1] == "n"}  # of B, which is A^T where operands are exchanged
    longer = int(n > m)
    sides = {longer, 1 - longer} if in_boxes[longer] and min(m, n) > 128 else {longer}
    for exchanged in (0, 1):
        rows, columns = (n, m) if exchanged else (m, n)
        wide = (64, 128, 256) if exchanged else ()  # which others propose otherwise
        widths = {f"64x{width}x64": width for width in (*(one.n for one in FLAT), *wide)}
        some = kept(proposed("wgmma", operands, sms), exchanged=exchanged)
        found = [one for one in some if one["partition"] in widths]
        if min(m, n) <= 64:
            continue
        if exchanged not in sides:
            assert not found
            continue
        able: dict[tuple[int, int], float] = {}
        for (name, width), split in itertools.product(widths.items(), (1, 2, 3, 4)):
            waves = up(up(rows, 64) * up(columns, width) * batch * split, sms)
            if width >= 2 * columns or (in_boxes[exchanged] and width % 64) or waves > 4:
                continue
            if split > 1:
                room = shape_of(dict(some[0]) | {"partition": name, "pingpong": 0})
                sums = width * (64 + 4) if exchanged else 64 * (width + 4)
                fits = sums * 4 <= room.stages * room.operand_bytes
                if waves > 1 or up(k, 64) < 2 * split or not fits:
                    continue
            able[width, split] = waves * width / split
        assert len(found) == min(3, len(able))
        picked = [(widths[str(one["partition"])], int(one["split"])) for one in found]
        assert sorted(able[one] for one in picked) == sorted(able.values())[:3]
        for (width, split), one in zip(picked, found, strict=True):
            waves = up(up(rows, 64) * up(columns, width) * batch, sms)
            assert one["tiles"] == (1 if split > 1 else waves)
            assert (one["cluster"], one["parts"], one["pingpong"]) == ("1x1", 1, 0)


@pytest.mark.parametrize(("rows", "exchanged"), [(512, {0, 1}), (4, {0})])
def test_wgmma_has_tiles_along_the_longer_side_where_their_columns_do_not_cut_scales(
    rows: int, exchanged: set[int]
) -> None:
    """Four rows of scales for 512 of A, each the same for 128 of them, which tiles of other widths would cut."""
    scales = {"x": np.ones((rows, 32), np.float32), "y": np.ones((32, 2048), np.float32)}
    operands = operands_of(
        512, 2048, 4096, dtype="int8", epilogue=tilewise.epilogue("scaled(acc, x, y)", **scales)
    )
    found = proposed("wgmma", operands, 132, scales_a=512 // rows, scales_b=1)
    assert {one["exchanged"] for one in found} == exchanged


@pytest.mark.parametrize(
    ("m", "expected"),
    [(80, {80, 96, 112}), (96, {96, 112, 144}), (97, {112, 144}), (224, {112, 224}), (320, {160})],
)
def test_wgmma_has_no_narrow_tiles_of_128_rows_of_which_several_cover_the_columns(
    m: int, expected: set[int]
) -> None:
    found = proposed("wgmma", operands_of(m, 12288, 4096, dtype="float16", layout="nt"), 132)
    shapes = [shape_of(one) for one in kept(found, exchanged=1)]
    assert {one.n for one in shapes if one.m == 128} == expected


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (512, 7168, "256x112x128"),
        (512, 7392, "256x112x128"),  # 132 of them
        (512, 7393, "256x144x128"),
        (129, 5280, "256x80x128"),
        (128, 5280, None),
        (512, 12000, None),
    ],
)
def test_wgmma_has_the_narrowest_tile_of_256_rows_that_covers_c_in_one_wave_for_8_bits(
    m: int, n: int, expected: str | None
) -> None:
    names = {f"256x{one.n}x128" for one in BETWEEN if one.m == 256}
    for dtype in ("float8_e4m3fn", "int8"):
        found = proposed("wgmma", operands_of(m, n, 4096, dtype=dtype, layout="nt"), 132)
        assert [one["partition"] for one in found if one["partition"] in names] == [expected] * bool(expected)
    other = proposed("wgmma", operands_of(m, n, 4096, dtype="bfloat16", layout="nt"), 132)
    assert not {f"256x{one.n}x64" for one in BETWEEN if one.m == 256} & {
        str(one["partition"]) for one in other
    }


def test_wgmma_s_narrow_tiles_leave_an_sm_no_room_for_a_third_block() -> None:
    """The blocks of a cluster would take it, on fewer SMs than there are: 8×2560×9728 took 19 µs in place of 15."""
    some = kept(proposed("wgmma", operands_of(8, 4096, 4096, dtype="float16", layout="nt"), 132), exchanged=1)
    shapes = {shape_of(one) for one in some}
    assert {(one.tile.m, one.tile.n, one.resident) for one in shapes} == {(64, 8, 2), (128, 8, 2)}
    for rows in (8, 16, 32, 48, 64):
        for name, in_rows in itertools.product((f"64x{rows}x64", f"128x{rows}x64"), (0, 1)):
            shape = shape_of({**some[0], "partition": name, "b_in_rows": in_rows})
            held = 228 * 1024 // (shape.shared_bytes + 1024)
            assert held == shape.resident == (1 if rows > 16 and name.startswith("128") else 2)


@given(m=st.integers(1, 64), n=SIZE, k=SIZE)
@examples
def test_wgmma_exchanges_operands_for_few_rows_and_takes_the_narrowest_tile_for_them(
    m: int, n: int, k: int
) -> None:
    found = kept(proposed("wgmma", operands_of(m, n, k, dtype="float16"), 132), exchanged=1)
    columns = next(size for size in (8, 16, 32, 48, 64) if size >= m)
    heights = [height for height in ((64, 128, 192) if columns >= 48 else (64, 128)) if n > height / 2]
    assert {str(one["partition"]) for one in found} == {f"{height}x{columns}x64" for height in heights}
    assert {one["cluster"] for one in found} <= {"1x1"}
    assert {(one.m, one.n) for one in (*NARROW, *TALL)} >= {(height, columns) for height in heights}


@given(m=SIZE, n=SIZE, groups=st.integers(1, 9), sms=st.sampled_from([16, 132]))
@examples
def test_wgmma_gives_each_block_one_tile_of_groups_or_its_share_of_all(
    m: int, n: int, groups: int, sms: int
) -> None:
    operands = operands_of(m, n, 512, dtype="float16", groups=groups)
    expected, rows = [], up(m, groups)
    for tile in TILES:
        if (tile.m > 64 and rows <= tile.m / 2) or (tile.n > 64 and n <= tile.n / 2):
            continue
        name, most = f"{tile.m}x{tile.n}x64", (m // tile.m + min(groups, m)) * up(n, tile.n)
        share = up(most, sms)
        expected += [(name, 0, tiles) for tiles in {1, min(share, 128)}]
        if share > 1 and tile.m * tile.n == 128 * 128:
            expected.append((name, 1, min(share, 128)))
    found = proposed("wgmma", operands, sms, grouped=1)
    assert rows_of(found, "partition", "pingpong", "tiles") == sorted(expected)
    assert {(one["cluster"], one["grouped"]) for one in found} <= {("1x1", 1)}


def test_lines_are_as_wide_as_all_of_them_are_aligned_for() -> None:
    """By the addresses of every line: of the matrices of a stack, too, and where there is one line its own alone."""
    cases = itertools.product((1, 3), (1, 4, 6, 8, 24), (2, 4), (2, 4, 16), ((), (4,), (6,), (16, 2)))
    for rows, stride, item, alignment, stack in cases:
        if alignment < item:
            continue
        dtype = {2: "float16", 4: "float32"}[item]
        operand = Operand("a", rows, 5, stride, dtype, stack=stack, alignment=alignment)
        begins = [alignment]
        for step, count in ((stride, rows), *((one, 3) for one in stack)):
            begins = [begin + i * step * item for begin in begins for i in range(count)]
        widest = max(width for width in (1, 2, 4, 8, 16) if not any(begin % width for begin in begins))
        assert mma.line_bytes(operand) == widest
        assert mma.line_bytes(replace(operand, column_stride=2)) == 0
        assert mma.line_bytes(replace(operand, column_stride=2, columns=1)) == widest
        assert mma.line_bytes(operand.transposed()) == (
            0 if rows > 1 and stride != 1 else mma.line_bytes(operand.transposed())
        )
        if stride >= 5 or rows == 1:
            for along_k in (False, True):
                assert simt.copied_bytes(operand, along_k) == (16 if widest == 16 and not along_k else 4)


@pytest.mark.parametrize(
    ("columns", "widths"), [(8, {8}), (9, {16}), (100, {128}), (129, {128, 256}), (4096, {128, 256})]
)
def test_beside_a_widened_operand_tiles_cover_the_columns_or_are_half_of_the_widest(
    columns: int, widths: set[int]
) -> None:
    for operands in (
        operands_of(4096, columns, 4096, dtype="int8", b_dtype="float16"),
        operands_of(columns, 4096, 4096, dtype="float16", b_dtype="int8"),
    ):
        found = [one for one in proposed("wgmma", operands, 132) if one["widened"] == "int8"]
        assert {int(str(one["partition"]).split("x")[1]) for one in found} == widths


@pytest.mark.parametrize(
    ("rows", "columns", "heights"),
    [
        (1, 512, {64}),
        (64, 512, {64}),
        (65, 512, {64, 128}),
        (96, 128, {64, 128}),
        (97, 128, {64, 128, 192}),
        (4096, 512, {64, 128, 192}),
        (4096, 64, {64, 128, 192}),
        (4096, 32, {64, 128}),  # whose time is that of memory
    ],
)
def test_a_widened_operand_has_high_tiles_where_more_than_half_of_one_has_rows(
    rows: int, columns: int, heights: set[int]
) -> None:
    for operands in (
        operands_of(rows, columns, 512, dtype="int8", b_dtype="float16"),
        operands_of(columns, rows, 512, dtype="float16", b_dtype="int8"),
    ):
        found = [one for one in proposed("wgmma", operands, 132) if one["widened"] == "int8"]
        assert {int(str(one["partition"]).split("x")[0]) for one in found} == heights
        tall = [one for one in found if str(one["partition"]).startswith("192x")]
        assert {one["cluster"] for one in tall} <= {"1x1"}


@pytest.mark.parametrize(
    ("element", "sums"), [("float16", "float32"), ("float16", "float16"), ("int8", "int32")]
)
def test_sums_share_registers_in_float16_alone(element: str, sums: str) -> None:
    depth = 128 if element == "int8" else 64
    spec = KERNELS["wgmma"]
    found = spec.complete({"element": element, "accumulate": sums, "partition": f"128x256x{depth}"})
    assert shape_of(found).product_registers == (64 if sums == "float16" else 128)


def test_scaling_sums_takes_a_tall_tile_less_than_two_low_ones() -> None:
    """As measured: 256 rows, whose two warpgroups multiply while they scale, beside 128."""
    operands, spec = operands_of(4096, 4096, 4096, dtype="float8_e4m3fn"), KERNELS["wgmma"]
    for columns, share in itertools.product((128, 144), (1, 128)):
        given = {"element": "float8_e4m3fn", "scales_a": 1, "scales_b": share}
        assert spec.work is not None
        low, tall = (
            spec.work(operands, spec.complete({**given, "partition": f"{rows}x{columns}x128"})).step_clocks
            for rows in (128, 256)
        )
        assert low > 0 and 0 < tall < 2 * low


@pytest.mark.parametrize("kernel", ["general", "simt", "mma", "vector"])
def test_a_grid_has_two_to_the_31_blocks_less_one(kernel: str) -> None:
    """A stack of single numbers has a block for each."""
    spec, dtype = KERNELS[kernel], "float16" if kernel == "mma" else "float32"
    for batch in (2**31 - 1, 2**31):
        operands = operands_of(1, 1, 1, dtype=dtype, batch=batch)
        chosen = spec.complete({**spec.for_types(operands), **proposed(kernel, operands, 4)[0]})
        found = spec.refuse(operands, chosen)
        told = None if found is None else str(found)
        over = "batch must make at most 2,147,483,647 blocks, not '2,147,483,648'"
        assert told == (over if batch == 2**31 else None)


@pytest.mark.parametrize(("count", "listed"), [(16, ", ".join(map(str, range(16)))), (17, "0, 1, …, 16")])
def test_of_many_values_a_message_lists_the_first_and_the_last(count: int, listed: str) -> None:
    spec = replace(KERNELS["general"], settings={"choice": range(count)})
    with pytest.raises(ArgumentError, match=f"^choice must be one of {listed}, not -1"):
        spec.complete({"choice": -1})
