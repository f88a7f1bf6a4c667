"""The cost model on a GPU of round numbers: each term is what it is said to be."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.gpus import find
from tilewise.kernels import KERNELS
from tilewise.kernels.epilogue import epilogue_header
from tilewise.kernels.gemm.wgmma import finished_in_boxes
from tilewise.kernels.spec import Work
from tilewise.operands import Operands
from tilewise.planner import choose, operands_of, target_of
from tilewise.planner.constants import Constants, UnitCost, scaled
from tilewise.planner.cost import copy_seconds, count_resident, estimate, predict, predict_work
from tilewise.planner.target import Target
from tilewise.problem import Epilogue, EpilogueArray, Problem, Tile

INF = float("inf")
FREE = UnitCost(INF, 0, 0, INF)
# A clock takes a second, so that seconds are clocks; nothing costs anything unless a test says so.
FREE_GPU = Constants(1.0, INF, 0.0, 0.0, INF)
TILE = Tile(64, 64, 16)


def on(sms: int, unit: UnitCost, gpu: Constants = FREE_GPU) -> Target:
    return Target("round", "sm_90a", sms, replace(gpu, units={"unit": unit}))


def product(m: int, n: int, k: int) -> Operands:
    return operands_of(m, n, k, dtype="float32")


def test_waiting_for_memory_is_for_bytes_that_no_other_block_reads_first() -> None:
    """Two clusters of two blocks, two steps of 96 rows and columns: 49,152 bytes, of which 32,768 differ."""
    unit = replace(FREE, memory_latency_clocks=300)
    found = estimate(Work("unit", TILE, 256, cluster=2), product(128, 128, 32), on(4, unit))
    assert found.terms["latency"] == pytest.approx(2 * 300 * 32_768 / 49_152)
    assert found.seconds == found.terms["latency"] and found.bound == "latency"


@pytest.mark.parametrize(
    ("cluster", "split", "in_cluster", "sms", "each"),
    [(1, 1, False, 4, 4), (2, 1, False, 4, 4), (2, 1, False, 5, 4), (1, 4, True, 8, 8), (1, 4, True, 6, 16)],
)
def test_blocks_share_multiprocessors_cluster_by_cluster(
    cluster: int, split: int, in_cluster: bool, sms: int, each: int
) -> None:
    """16 tiles, each of them ``split`` blocks of one step: what the SM with most of them does one after another."""
    work = Work("unit", TILE, 256, cluster=cluster, split=split, split_in_cluster=in_cluster)
    unit = replace(FREE, macs_per_clock=float(64 * 64 * 16))
    found = estimate(work, product(256, 256, 16 * split), on(sms, unit))
    assert found.terms["math"] + found.terms["waves"] == pytest.approx(each)


def test_the_last_tile_of_each_group_of_rows_has_half_of_them() -> None:
    """Three groups of 100 rows: each takes 100 / 64 tiles and a half of one, 7 for all."""
    unit = replace(FREE, macs_per_clock=float(64 * 64 * 16))
    operands = operands_of(300, 64, 16, dtype="float32", groups=3)
    found = estimate(Work("unit", TILE, 256), operands, on(1, unit))
    assert found.terms["math"] + found.terms["waves"] == pytest.approx(7)


def test_operands_that_are_exchanged_have_the_rows_of_a_tile_along_columns() -> None:
    """One tile of 128×64 covers the transpose of 64×128, two the matrix itself."""
    target = on(1, replace(FREE, macs_per_clock=float(64 * 64 * 16)))
    for exchanged, clocks in ((True, 2), (False, 4)):
        work = Work("unit", Tile(128, 64, 16), 256, exchanged=exchanged)
        found = estimate(work, product(64, 128, 16), target)
        assert found.terms["math"] + found.terms["waves"] == pytest.approx(clocks)


@pytest.mark.parametrize(("alignment", "bytes_at_once"), [(1, 1), (2, 2), (4, 4), (8, 4)])
def test_elements_are_loaded_by_4_bytes_at_once_where_16_cannot_be(
    alignment: int, bytes_at_once: int
) -> None:
    """One step of a tile: 64 rows of A of 16 numbers of a byte, two accesses a clock; B lies aligned for 16."""
    operands = operands_of(64, 64, 16, dtype="int8")
    operands = operands._replace(a=replace(operands.a, alignment=alignment))
    work = Work("unit", TILE, 256, load_bytes=4)
    found = estimate(work, operands, on(1, replace(FREE, loads_per_clock=2.0)))
    assert found.terms["narrow loads"] == pytest.approx(64 * 16 / bytes_at_once / 2)


@pytest.mark.parametrize(
    ("kernel", "given", "beside"),
    [("simt", {}, 4), ("exact32", {}, 4), ("mma", {"partition": "128x128x16"}, 8)],
)
def test_c_is_stored_16_bytes_at_once_where_all_its_rows_begin_at_multiples_of_16(
    kernel: str, given: dict[str, str], beside: int
) -> None:
    """Rows of 130 numbers begin at multiples of 8 bytes: stored by elements, or by what they are aligned for."""
    spec = KERNELS[kernel]
    for stride, alignment, at_once in ((128, 16, 16), (132, 16, 16), (130, 16, beside), (128, 4, 4)):
        operands = product(128, 128, 128)
        operands = operands._replace(c=replace(operands.c, row_stride=stride, alignment=alignment))
        work = spec.work(operands, spec.complete({**spec.for_types(operands), **given}))
        assert work.store_bytes == at_once, (stride, alignment)


@pytest.mark.parametrize(("layout", "a_times", "b_times"), [("nn", 2, 3), ("nt", 2, 2), ("tn", 3, 3)])
def test_what_is_split_for_exact32_is_read_twice_where_its_lines_do_not_lie_along_k(
    layout: str, a_times: int, b_times: int
) -> None:
    """4 bytes of each element are read, once more for the largest of its line, and 4 are written."""
    spec, operands = KERNELS["exact32"], operands_of(128, 256, 512, dtype="float32", layout=layout)
    work = spec.work(operands, spec.complete(spec.for_types(operands)))
    assert work.extra_bytes == 4 * 512 * (a_times * 128 + b_times * 256)
    assert work.launches == 3


def test_the_copy_engine_stores_tiles_of_whole_boxes_and_those_narrower_than_half_of_one() -> None:
    """Sums of parts of K go by boxes of 64 columns; results of 16 bits alone by tiles of any width."""
    spec, operands = KERNELS["wgmma"], operands_of(512, 512, 4096, dtype="bfloat16")
    widths = set()
    for partition in spec.settings["partition"]:
        width, depth = map(int, str(partition).split("x")[1:])
        if depth != 64:  # of other types
            continue
        for parts in (1, 2):
            given = {"partition": partition, "parts": parts}
            work = spec.work(operands, spec.complete({**spec.for_types(operands), **given}))
            in_runs = parts == 1 and width % 16 == 0
            assert work.whole_boxes == (width % 64 == 0 or width <= 32 or in_runs), (partition, parts)
        widths.add(width)
    assert {16, 64, 96, 128, 256} <= widths


def test_passes_are_the_launches_after_the_first_and_what_they_move() -> None:
    work = Work("unit", TILE, 256, launches=3, extra_bytes=50)
    gpu = replace(FREE_GPU, pass_seconds=7.0, workspace_bandwidth=10.0, launch=2.0)
    found = estimate(work, product(64, 64, 16), on(1, FREE, gpu))
    assert (found.terms["passes"], found.terms["launch"], found.seconds) == (2 * 7 + 5, 2, 21)


def test_arrays_of_an_epilogue_are_bytes_that_memory_moves() -> None:
    """Each element once: a matrix of 64×64, and a row of 64 that serves all rows."""
    work, target = Work("unit", TILE, 256), on(1, FREE, replace(FREE_GPU, memory_bandwidth=8.0))
    plain = estimate(work, product(64, 64, 16), target).terms["memory"]
    extra = tw.epilogue("acc + c + row", c=np.zeros((64, 64), np.float16), row=np.zeros(64, np.float32))
    found = estimate(work, operands_of(64, 64, 16, epilogue=extra), target).terms["memory"]
    assert found - plain == pytest.approx((2 * 64 * 64 + 4 * 64) / 8 / FREE.memory_share)


@pytest.mark.parametrize(
    ("gpu", "kilobytes", "registers_allow", "held"),
    [("h200", 75, 8, 3), ("h200", 76, 8, 2), ("h200", 20, 2, 2), ("h200", 0, 5, 5), ("t4", 200, 8, 1)],
)
def test_an_sm_holds_as_many_blocks_as_its_shared_memory_has_room_for_beside_what_it_keeps_for_each(
    gpu: str, kilobytes: int, registers_allow: int, held: int
) -> None:
    """Of 228 KB on an H200, of which each block takes 1 KB more than it has; one block at least."""
    work = Work("unit", TILE, 256, resident=registers_allow, shared_bytes=kilobytes << 10)
    assert count_resident(work, target_of(gpu)) == held


def test_copies_and_partial_sums_together_may_be_the_bound() -> None:
    work, operands = Work("unit", TILE, 256, launches=2), product(64, 64, 16)
    target = on(1, replace(FREE, latency_clocks=100), replace(FREE_GPU, pass_seconds=60.0))
    a, b = (replace(one, row_stride=2 * one.row_stride) for one in operands[:2])
    across = replace(operands.a.transposed(), rows=operands.a.rows, columns=operands.a.columns)
    for sources, seconds, bound in (
        (operands, 160, "latency"),
        (operands._replace(a=a), 220, "passes"),
        (operands._replace(a=a, b=b), 220, "passes"),  # rows stay rows: one launch copies both
        (operands._replace(a=across, b=b), 280, "passes"),
    ):
        copying = copy_seconds(operands, sources, target)
        found = predict_work(work, operands, operands, copying, target)
        assert (found.seconds, found.bound) == (seconds, bound)


def test_partial_sums_are_written_and_read_and_added_up_by_a_launch_for_each() -> None:
    down, across = np.zeros(96, np.float32), np.zeros(192, np.float32)
    epilogue = tw.epilogue("column_sums(down, acc) + row_sums(across, acc)", down=down, across=across)
    spec, target = KERNELS["general"], target_of("h200")
    operands = operands_of(192, 96, 64, dtype="float32", epilogue=epilogue)
    settings = spec.complete({**spec.for_types(operands), "partition": "64x64x16"})
    alone = predict_work(spec.work(operands, settings), operands, operands, 0.0, target)
    found = predict(spec, operands, settings, 0.0, target)
    of_column, of_row = spec.sum_slots(operands, settings)
    moved = 4 * (of_column * 96 + of_row * 192)
    more = 2 * target.constants.pass_seconds + 2 * moved / target.constants.workspace_bandwidth
    assert found.terms["passes"] - alone.terms["passes"] == pytest.approx(more, rel=1e-9)
    assert found.seconds - alone.seconds == pytest.approx(more, rel=1e-6)
    one_by_one = replace(spec, stack_axes=0)
    each = tw.epilogue(
        "column_sums(down, acc) + row_sums(across, acc)",
        down=np.zeros((5, 96), np.float32),
        across=np.zeros((5, 192), np.float32),
    )
    stack = operands_of(192, 96, 64, batch=5, dtype="float32", epilogue=each)
    launched = predict(one_by_one, stack, settings, 0.0, target)
    assert launched.seconds == pytest.approx(5 * found.seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "sizes", "given"),
    [
        ("vector", (1, 96, 4096), {"parts": 4}),
        ("simt", (64, 96, 4096), {"parts": 4}),
        ("simt", (64, 96, 4096), {"parts": 4, "partition": "32x32x16", "tail": 6}),
        ("wgmma", (64, 96, 4096), {"parts": 4}),
        ("mma", (64, 96, 4096), {"split": 4}),
    ],
)
def test_sums_of_parts_of_k_are_written_and_read_once(
    kernel: str, sizes: tuple[int, int, int], given: dict[str, int]
) -> None:
    spec, operands = KERNELS[kernel], operands_of(*sizes, dtype="float32" if kernel == "simt" else "bfloat16")
    for parts in (given, {}):
        settings = spec.complete({**spec.for_types(operands), **parts})
        least = 4 * sizes[0] * sizes[1] * 4 if parts is given else 0
        assert spec.work(operands, settings).extra_bytes == 2 * spec.workspace(operands, settings)
        assert spec.workspace(operands, settings) == pytest.approx(least, rel=0.1)


def test_the_last_tiles_take_a_wave_that_is_as_short_as_their_parts() -> None:
    """Ten tiles on four SMs: three waves; in four parts, the last two, two waves and two of a quarter of the steps."""
    target = on(4, replace(FREE, macs_per_clock=64.0))
    one, two = Work("unit", TILE, 256), Work("unit", TILE, 256, parts=4, tail=2)
    operands = operands_of(TILE.m * 10, TILE.n, TILE.k * 64)
    whole, tail = (estimate(work, operands, target).terms for work in (one, two))
    assert tail["math"] + tail["waves"] == pytest.approx((whole["math"] + whole["waves"]) * 2.5 / 3)


def test_the_first_reason_against_a_kernel_is_told() -> None:
    reasons = {name: ArgumentError(name, "must be otherwise") for name in ("k", "rows")}
    spec = replace(KERNELS["vector"], refuse=lambda _operands, chosen: reasons[str(chosen["along"])])
    spec = replace(spec, candidates=lambda *_: iter(({"along": "k"}, {"along": "rows"})))
    with pytest.raises(ArgumentError, match=r"^k must"):
        choose(product(8, 1, 8), target_of("h200"), specs=(spec,))


@pytest.mark.parametrize("name", ["h200", "a100", "rtx-4090", "a10g", "rtx-2060-super"])
def test_rates_that_are_not_published_follow_from_those_that_are(name: str) -> None:
    """Of 8 bits twice that of 16, of TF32 half of it; of float64 on tensor cores that of the others."""
    gpu = find(name)
    whole = max(gpu.peaks.fp16_fp32 or 0.0, gpu.peaks.bf16 or 0.0)
    assert whole
    for field, stands in (
        ("fp8_fp32", 2 * whole), ("int8", 2 * whole), ("tf32", whole / 2), ("fp64_tensor", gpu.peaks.fp64),
        ("fp16_fp16", whole),
    ):  # fmt: skip
        without, told, more = (
            scaled(replace(gpu, peaks=replace(gpu.peaks, **{field: peak})))
            for peak in (None, stands, (stands or 1.0) / 64)
        )
        assert without == told, field
        assert more != told, field  # and it is of some account


def test_a_matrix_of_an_epilogue_takes_less_where_it_is_done_in_boxes_and_a_bias_takes_none() -> None:
    target = on(1, replace(FREE, epilogue_clocks=1.0))
    arrays = {"none": None, "bias": np.zeros(64, np.float32), "matrix": np.zeros((64, 64), np.float32)}
    stored = {}
    for (name, x), boxes in itertools.product(arrays.items(), (False, True)):
        epilogue = tw.epilogue("relu(acc)") if x is None else tw.epilogue("acc + x", x=x)
        operands = operands_of(64, 64, 16, epilogue=epilogue)
        work = Work("unit", TILE, 256, finishes_in_boxes=boxes)
        stored[name, boxes] = estimate(work, operands, target).terms["store"]
    plain = stored["none", False]
    assert plain == stored["none", True] == stored["bias", False] == stored["bias", True] > 0
    assert plain < stored["matrix", True] < stored["matrix", False] == 2 * plain


@pytest.mark.parametrize(
    ("result", "array", "inside"),
    [
        ("float32", EpilogueArray("x", "float32", by_row=False), True),
        ("float32", EpilogueArray("x", "bfloat16"), False),
        ("bfloat16", EpilogueArray("x", "bfloat16"), True),
        ("bfloat16", EpilogueArray("x", "float32"), False),
    ],
)
def test_an_epilogue_is_done_in_boxes_where_its_arrays_have_such(
    result: str, array: EpilogueArray, inside: bool
) -> None:
    """Boxes of results of 16 bits have arrays of 16 bits beside them, and those of float32 none; a bias needs none."""
    epilogue = Epilogue("acc + x", (array,))
    problem = Problem(64, 64, 64, 1, "bfloat16", "bfloat16", result, epilogue=epilogue)
    assert finished_in_boxes(Operands.of(problem), exchanged=False) == inside
    assert finished_in_boxes(Operands.of(problem), exchanged=True) == (not array.by_row)  # which lie across


def test_the_header_for_boxes_reads_each_line_of_an_epilogue_at_once_and_its_matrix_apart() -> None:
    """Lines are the same along rows or along columns."""
    by_row, by_column = (EpilogueArray(name, "float32", name == "x", name == "y") for name in "xy")
    form = Epilogue("(acc + x) * y + whole", (by_row, by_column, EpilogueArray("whole", "bfloat16")))
    header = epilogue_header(form, "float")
    for how in ("read_at_once", "read_within", "lies_at_once"):
        assert sorted(re.findall(rf"given_(\w+)\.template {how}<", header)) == ["x", "y"]
    assert "matrix() const { return given_whole; }" in header


@pytest.mark.parametrize("kernel", KERNELS)
def test_how_c_lies_changes_no_loads_and_how_a_lies_no_stores(kernel: str) -> None:
    spec = KERNELS[kernel]
    operands = operands_of(512, 512, 512, dtype=spec.element_types[0])
    item, usual = operands.c.itemsize, spec.complete(spec.for_types(operands))
    whole = spec.work(operands, usual)
    c_apart = spec.work(operands._replace(c=replace(operands.c, alignment=item)), usual)
    assert (whole.load_bytes, whole.threads) == (c_apart.load_bytes, c_apart.threads)
    a_apart = spec.work(operands._replace(a=replace(operands.a, alignment=operands.a.itemsize)), usual)
    assert whole.store_bytes == a_apart.store_bytes
