"""The kernel for Hopper's tensor cores on the emulator, beside float64: tiles, schedules, layouts, stacks, clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.wgmma_candidates import MOST_SUMS
from tilewise.kernels.gemm.wgmma_shapes import FLAT, PARTITIONS, TILES, Shape
from tilewise.operands import Operands
from tilewise.planner import choose, operands_of, target_of
from tilewise.problem import Epilogue, EpilogueArray, Layout, Problem
from tilewise.reference import compare

SPEC = KERNELS["wgmma"]
RANDOM = np.random.default_rng()
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
Size = tuple[int, int, int]


def plan_for(size: Size, batch: int, layout: str, given: dict[str, Any]) -> tw.Plan:
    """The kernel's plan of these settings, for dense operands in rows ("n") or columns ("t")."""
    element = given.get("element", "bfloat16")
    lies: dict[str, Layout] = {"n": "row", "t": "column"}
    problem = Problem(
        *size, batch, element, element, given.get("result", element),
        a_layout=lies[layout[0]], b_layout=lies[layout[1]],
    )  # fmt: skip
    in_rows = [int(one == "n") for one in layout]
    if given.get("exchanged"):  # the kernel sees the transposes
        in_rows = [1 - in_rows[1], 1 - in_rows[0]]
    rows = {"a_in_rows": in_rows[0], "b_in_rows": in_rows[1], "stacked": int(batch > 1)}
    return SPEC.plan(Operands.of(problem), "h200", SPEC.complete({**rows, **given}))


def name(tile: tw.Tile) -> str:
    return f"{tile.m}x{tile.n}x{tile.k}"


def operand(shape: tuple[int, ...], dtype: Any, in_rows: bool) -> npt.NDArray[Any]:
    """Random elements, each matrix in rows or in columns that begin at multiples of 16 bytes."""
    *stack, rows, columns = shape
    if not in_rows:
        return operand((*stack, columns, rows), dtype, True).swapaxes(-1, -2)
    whole = RANDOM.standard_normal((*stack, rows, -(-columns // 8) * 8)).astype(dtype)
    return whole[..., :columns]


def check(
    size: Size, stack: tuple[int, ...] = (), layout: str = "nn", order: Any = "eager", **given: Any
) -> None:
    """Multiply random matrices and compare with float64; what lies beside the result must stay as it was."""
    (m, n, k), element = size, given.get("element", "bfloat16")
    a = operand((*stack, m, k), DTYPES[element], layout[0] == "n")
    b = operand((*stack, k, n), DTYPES[element], layout[1] == "n")
    result = DTYPES[given.get("result", element)]
    whole = np.full((*stack, m, n + 8), 7, result)
    out = whole[..., :n]
    plan = plan_for(size, int(np.prod(stack)) if stack else 1, layout, given)
    tw.matmul(a, b, out=out, plan=plan, device=tw.device("emulator", order=order), copy=False)
    for index in np.ndindex(*stack):
        assert compare(out[index], a[index], b[index]).ok
    assert (whole[..., n:] == 7).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_tile_is_right(tile: tw.Tile) -> None:
    """Sizes that end inside of a tile, and more tiles than blocks."""
    check((tile.m + 8, tile.n + 24, 136), partition=name(tile), tiles=2)


@pytest.mark.few("64x144x64-given0")
@pytest.mark.parametrize(
    ("partition", "given"), [("64x144x64", {}), ("64x80x64", {"split": 2}), ("64x240x64", {"tiles": 2})]
)
def test_widths_for_few_rows_are_right(partition: str, given: dict[str, Any]) -> None:
    """Whose last tile ends with the columns, or between them."""
    for layout, m, n in (("nt", 1, 430), ("nt", 40, 480), ("nn", 64, 408)):
        check((m, n, 264), layout=layout, partition=partition, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", ["128x192x64", "64x256x64"])
@pytest.mark.parametrize("order", ["eager", "late", 3])
def test_warpgroups_with_tiles_of_their_own(partition: str, order: Any) -> None:
    """Three tiles for two warpgroups, so that one has another turn; and blocks that have none left."""
    check((300, 500, 200), order=order, partition=partition, pingpong=1, tiles=3, cluster="2x1")


EXCHANGED = [
    ("64x8x64", 5, {}),
    ("128x16x64", 21, {}),
    ("64x48x64", 40, {"split": 3}),
    ("192x48x64", 40, {}),
    ("192x64x64", 60, {"split": 2}),
    ("128x144x64", 150, {"tiles": 3}),
]


@pytest.mark.few("64x8x64-5-given0")
@pytest.mark.parametrize(("partition", "m", "given"), EXCHANGED)
def test_operands_may_be_exchanged(partition: str, m: int, given: dict[str, Any]) -> None:
    """Tiles of C's transpose, whose columns need be no multiples of 64."""
    for layout, n in (("nn", 203), ("nt", 200)):
        check((m, n, 200), layout=layout, exchanged=1, partition=partition, **given)


@examples(4, 60)
@given(
    m=st.integers(1, 300), n=st.integers(1, 300) | st.integers(1, 37).map(lambda i: 8 * i),
    stack=st.sampled_from([(), (2,)]), columns=st.sampled_from((16, 48, 80, 96, 144, 192)),
    exchanged=st.integers(0, 1), schedule=st.sampled_from([{}, {"tiles": 3}, {"tiles": 3, "pingpong": 1}]),
    order=st.sampled_from(["eager", "late", 3]),
)  # fmt: skip
def test_tiles_of_any_width_are_stored(
    m: int, n: int, stack: tuple[int, ...], columns: int, exchanged: int, schedule: dict[str, int], order: Any
) -> None:
    """By the copy engine, but for what is no whole box, or where rows of C begin anywhere; as C lies, or across."""
    partition = f"{64 if columns < 64 and 'pingpong' not in schedule else 128}x{columns}x64"
    given = {"exchanged": int(exchanged or columns < 64), "partition": partition, **schedule}
    check((m, n, 72), stack, "nt", order, **given)


@pytest.mark.few("a cluster")
@pytest.mark.parametrize("schedule", ["a cluster", "turns"])
def test_exchanged_operands_may_have_any_schedule(schedule: str) -> None:
    """Turns, a stack, and A in columns, which takes tiles of whole boxes."""
    if schedule == "turns":
        check(
            (150, 304, 200), (2,), exchanged=1, partition="128x128x64", pingpong=1, tiles=3, result="float32"
        )
    else:
        check((61, 136, 72), layout="tt", exchanged=1, partition="64x64x64", cluster="2x1", element="float16")


CLUSTERED, SPLIT = {"partition": "128x64x64", "cluster": "2x1"}, {"partition": "64x64x64", "split": 2}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("layout", "given"), [("tt", CLUSTERED), ("tt", SPLIT), ("nt", CLUSTERED), ("tn", SPLIT)]
)
def test_operands_in_columns_are_read_as_they_lie(layout: str, given: dict[str, Any]) -> None:
    check((200, 72, 200), layout=layout, element="float16", **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("cluster", ["2x1", "1x2"])
@pytest.mark.parametrize("order", ["late", 5])
def test_clusters_share_what_they_load(cluster: str, order: Any) -> None:
    """More rows and columns of tiles than whole clusters have."""
    check((136, 200, 328), order=order, partition="64x64x64", cluster=cluster, tiles=3, result="float32")


@pytest.mark.few(1)
@pytest.mark.parametrize(("split", "k"), [(2, 64), (4, 1000), (16, 640)])
@pytest.mark.parametrize("order", ["eager", 7])
def test_blocks_that_split_k_add_up_in_the_order_of_their_ranks(split: int, k: int, order: Any) -> None:
    """With fewer steps than blocks some have none."""
    check((72, 61, k), order=order, partition="64x64x64", split=split)


PARTED: list[dict[str, Any]] = [
    {"partition": "128x128x64", "parts": 3},
    {"partition": "64x64x64", "parts": 7, "split": 2},  # more than there are steps of K
    {"partition": "64x64x64", "parts": 2, "cluster": "2x1"},
    {"partition": "128x16x64", "parts": 2, "split": 2, "exchanged": 1},
]


@pytest.mark.few(1)
@pytest.mark.parametrize("given", PARTED)
@pytest.mark.parametrize("order", ["late", 3])
def test_parts_of_k_are_added_up_in_their_order(given: dict[str, Any], order: Any) -> None:
    """Over the clusters, each of which may split its part once more; rows of the sums are padded."""
    check((136, 61, 328), order=order, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("given", [{"parts": 2, "split": 2}, {"parts": 5}, {"split": 4}, {}])
def test_nothing_is_multiplied_twice_by_those_who_share_out_k(given: dict[str, Any]) -> None:
    """What lies beyond K is zeros, which no result tells of."""
    roofline = tw.profile(plan_for((64, 64, 512), 1, "nn", {"partition": "64x64x64", **given})).roofline
    assert roofline is not None
    amounts = {bound.name: bound.amount for bound in roofline.bounds}
    assert amounts["bf16 arithmetic"] == 2 * 64 * 64 * 512


@pytest.mark.few(1)
@pytest.mark.parametrize("given", [{"split": 4}, {"parts": 4}, {"parts": 2, "split": 2}])
def test_the_order_does_not_change_the_bits(given: dict[str, Any]) -> None:
    a, b = operand((64, 500), DTYPES["bfloat16"], True), operand((500, 64), DTYPES["bfloat16"], True)
    plan = plan_for((64, 64, 500), 1, "nn", {"partition": "64x64x64", "result": "float32", **given})
    results = [
        tw.matmul(a, b, plan=plan, device=tw.device("emulator", order=order)).tobytes()
        for order in ("eager", "late", 1, 2)
    ]
    assert len(set(results)) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("given", [{"cluster": "2x1"}, {"split": 2}, {"tiles": 2}])
def test_a_stack_is_one_launch(given: dict[str, Any]) -> None:
    check((72, 40, 72), (2, 3), partition="64x64x64", **given)


def test_a_stack_may_be_the_same_matrix_again() -> None:
    a, b = operand((3, 1, 72, 72), np.float16, True), operand((2, 72, 40), np.float16, False)
    plan = plan_for((72, 40, 72), 6, "nt", {"partition": "64x64x64", "element": "float16"})
    result = tw.matmul(a, b, plan=plan, device="emulator", copy=False)
    for i, j in np.ndindex(3, 2):
        assert compare(result[i, j], a[i, 0], b[j]).ok


@examples(6, 12)
@given(st.integers(1, 150), st.integers(1, 150), st.integers(0, 150), st.sampled_from(["nn", "tt"]))
@example(1, 1, 2, "tt")  # a single column may be rows, but rows that begin at odd elements
def test_any_size_is_right(m: int, n: int, k: int, layout: str) -> None:
    check((m, n, k), layout=layout, partition="64x64x64")


def test_special_values_come_through() -> None:
    a, b = operand((64, 64), DTYPES["bfloat16"], True), operand((64, 64), DTYPES["bfloat16"], True)
    a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, -np.inf
    plan = plan_for((64, 64, 64), 1, "nn", {"partition": "64x64x64"})
    assert compare(tw.matmul(a, b, plan=plan, device="emulator"), a, b).ok


def test_what_lies_otherwise_is_copied_first_or_refused() -> None:
    """Rows that begin at odd elements are nothing that a tensor map describes."""
    a, b = RANDOM.standard_normal((2, 65, 67)).astype(np.float16)[..., 1:66]
    plan = plan_for((65, 65, 65), 1, "nn", {"partition": "64x64x64", "element": "float16"})
    result = tw.matmul(a, b, plan=plan, device="emulator")
    assert compare(result, a, b).ok
    with pytest.raises(ArgumentError, match="multiples of 16 bytes"):
        tw.matmul(a, b, plan=plan, device="emulator", copy=False)


COLUMNS: dict[str, Any] = {"partition": "128x256x64", "a_in_rows": 0, "b_in_rows": 0}
SHIPPED = [{"partition": name(tile)} for tile in TILES] + [COLUMNS]
SHIPPED += [
    {"partition": name(one), "exchanged": int(one not in FLAT), "b_in_rows": 0}
    for one in PARTITIONS.values()
    if one not in TILES
]
SHIPPED += [
    {"partition": name(one), "pingpong": 1}
    for one in TILES
    if one.n >= 128 and Shape(one, pingpong=True).sums <= MOST_SUMS
]


@pytest.mark.few(3)
@pytest.mark.parametrize("given", SHIPPED, ids=lambda given: "-".join(map(str, given.values())))
def test_the_machine_code_of_every_tile_keeps_its_sums_in_registers(given: dict[str, Any]) -> None:
    """No spills, and no warning that products wait for one another."""
    built = SPEC.kernel("sm_90a", **given).build()
    resources = built.entries["wgmma_gemm"].resources
    assert resources is not None
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert not built.warnings


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"split": 2, "cluster": "2x1"}, "split"),
        ({"parts": 2, "tiles": 2}, "parts"),
        ({"split": 2, "partition": "128x256x64"}, "split"),
        ({"pingpong": 1, "partition": "128x256x64"}, "pingpong"),
        ({"a_in_rows": 0}, "a_in_rows"),
        ({"stacked": 1}, "stacked"),
        ({"partition": "128x64x64", "whole": 1}, "whole"),  # C has half of one
        ({"partition": "64x64x64", "cluster": "2x1", "whole": 1}, "whole"),  # half of a cluster's
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], wrong: str) -> None:
    operands = Operands.of(Problem(64, 64, 64, 1, "bfloat16", "bfloat16", "bfloat16"))
    error = SPEC.why_not(operands, SPEC.complete(given))
    assert error is not None
    assert error.argument == wrong


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "given",
    [
        {"split": 2},
        {"parts": 2},
        {"cluster": "2x1", "tiles": 2},
        {"partition": "64x128x64", "tiles": 3, "pingpong": 1},
    ],
)
@pytest.mark.parametrize("exchanged", [0, 1])
def test_the_checker_finds_nothing_wrong(given: dict[str, Any], exchanged: int) -> None:
    plan = plan_for((136, 72, 264), 1, "nt", {"partition": "64x64x64", "exchanged": exchanged, **given})
    assert tw.check(plan, "late") == []


def test_a_cluster_that_splits_k_writes_no_stage_that_another_warpgroup_reads() -> None:
    plan = plan_for((70, 24, 264), 1, "nt", {"partition": "128x64x64", "split": 2})
    assert tw.check(plan, "late") == []


@pytest.mark.few("64x80x64-0")
@pytest.mark.parametrize("exchanged", [0, 1])
@pytest.mark.parametrize("partition", ["64x80x64", "128x112x64", "64x240x64"])
def test_of_a_narrow_last_box_nothing_is_read_that_nobody_wrote(partition: str, exchanged: int) -> None:
    """Rows of C begin anywhere, so that chunks of 16 bytes lie across those of the box."""
    assert tw.check(plan_for((70, 300, 72), 1, "nt", {"partition": partition, "exchanged": exchanged})) == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("size", "layout", "given"),
    [
        ((200, 72, 712), "nt", {"partition": "128x64x64", "tiles": 3}),  # more steps than stages
        ((65, 190, 136), "nt", {"partition": "128x128x64"}),  # fewer
        ((300, 260, 72), "nt", {"partition": "64x128x64", "pingpong": 1, "tiles": 15}),
        ((130, 70, 264), "tn", {"partition": "128x128x64", "tiles": 2}),
        ((70, 264, 136), "nn", {"partition": "128x256x64", "cluster": "2x1", "tiles": 2}),
        ((9, 200, 136), "nt", {"partition": "128x16x64", "exchanged": 1, "cluster": "2x1"}),
        ((70, 40, 264), "nt", {"partition": "128x64x64", "split": 2}),
    ],
)
def test_where_operands_end_within_tiles_nothing_is_multiplied_that_nobody_wrote(
    size: Size, layout: str, given: dict[str, Any]
) -> None:
    """Neither where a block has one such tile, nor where stages have had others, or none yet."""
    plan = plan_for(size, 1, layout, given)
    assert tw.check(plan, "late") == []
    m, n, k = size
    a, b = (
        operand(shape, DTYPES["bfloat16"], one == "n")
        for shape, one in zip(((m, k), (k, n)), layout, strict=True)
    )
    assert compare(tw.matmul(a, b, plan=plan, device="emulator"), a, b).ok


WHOLE: list[tuple[Size, str, dict[str, Any]]] = [
    ((256, 160, 136), "nn", {"partition": "128x80x64", "tiles": 3}),
    ((128, 128, 264), "nt", {"partition": "64x64x64", "split": 2}),
    ((64, 128, 264), "tn", {"partition": "64x64x64", "parts": 2}),
    ((32, 256, 200), "nt", {"partition": "128x16x64", "exchanged": 1}),
    ((256, 128, 72), "tt", {"partition": "64x64x64", "cluster": "2x1", "result": "float32"}),
    ((256, 256, 136), "nn", {"partition": "128x128x64", "tiles": 4, "pingpong": 1}),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("size", "layout", "given"), WHOLE)
def test_whole_tiles_are_multiplied_as_others(size: Size, layout: str, given: dict[str, Any]) -> None:
    """By the kernel for any size, and by the one that asks nowhere whether C has ended."""
    for whole in (0, 1):
        check(size, layout=layout, whole=whole, **given)
    check(size, (2,), layout, whole=1, **{name: value for name, value in given.items() if name != "parts"})
    assert tw.check(plan_for(size, 1, layout, {**given, "whole": 1}), "late") == []


@pytest.mark.parametrize(
    ("size", "pitch", "whole", "whole_rows"),
    [
        ((256, 256, 40), 256, 1, 1),
        ((256, 256, 40), 264, 1, 1),  # rows begin at multiples of 16 bytes
        ((256, 256, 40), 257, 0, 0),  # anywhere
        ((255, 256, 40), 256, 0, 1),
        ((256, 248, 40), 248, 0, 1),
        ((256, 252, 40), 256, 0, 0),  # and end within 16
        ((320, 256, 40), 256, 0, 1),  # two and a half
    ],
)
def test_the_planner_knows_whole_tiles_and_rows(size: Size, pitch: int, whole: int, whole_rows: int) -> None:
    operands = Operands.of(Problem(*size, 1, "bfloat16", "bfloat16", "bfloat16"))
    operands = operands._replace(c=replace(operands.c, row_stride=pitch))
    chosen = choose(operands, target_of("h200"), specs=(SPEC,), given={"partition": "128x128x64"})
    assert (chosen.settings["whole"], chosen.settings["whole_rows"]) == (whole, whole_rows)


@pytest.mark.parametrize(
    ("alignment", "row_stride", "column_stride", "whole"),
    [(16, 128, 1, 1), (16, 136, 1, 1), (16, 0, 1, 1), (8, 128, 1, 0), (16, 132, 1, 0), (16, 1, 128, 0), (16, 1, 0, 1)],
)  # fmt: skip
def test_arrays_of_the_epilogue_are_whole_where_boxes_of_them_can_be_copied(
    alignment: int, row_stride: int, column_stride: int, whole: int
) -> None:
    """Their columns are neighbours, and rows begin at multiples of 16 bytes; or all columns have the same."""
    array = EpilogueArray("x", "bfloat16", by_row=bool(row_stride), by_column=bool(column_stride))
    form = Epilogue("acc + x", (array,))
    operands = Operands.of(Problem(128, 128, 40, 1, "bfloat16", "bfloat16", "bfloat16", epilogue=form))
    lies = replace(
        operands.extras[0], alignment=alignment, row_stride=row_stride, column_stride=column_stride
    )
    operands = operands._replace(extras=(lies,))
    chosen = choose(operands, target_of("h200"), specs=(SPEC,), given={"partition": "64x64x64"})
    assert chosen.settings["whole"] == whole


def test_a_plan_for_whole_tiles_serves_rows_that_begin_anywhere() -> None:
    plan = plan_for((128, 64, 40), 1, "nn", {"partition": "64x64x64", "whole": 1})
    a, b = operand((128, 40), DTYPES["bfloat16"], True), operand((40, 64), DTYPES["bfloat16"], True)
    whole = np.full((128, 67), 7, DTYPES["bfloat16"])
    tw.matmul(a, b, out=whole[:, 1:65], plan=plan, device="emulator")
    assert compare(whole[:, 1:65], a, b).ok and (whole[:, [0, 65, 66]] == 7).all()


def test_a_plan_for_whole_tiles_serves_arrays_that_begin_anywhere() -> None:
    """One call after another: neither has what was compiled for the other."""
    a, b = operand((128, 40), DTYPES["bfloat16"], True), operand((40, 64), DTYPES["bfloat16"], True)
    wide = operand((128, 80), DTYPES["bfloat16"], True)
    epilogue = tw.epilogue("relu(acc) + row + full", row=wide[0, :64], full=wide[:, :64])
    operands, target = operands_of(128, 64, 40, dtype="bfloat16", epilogue=epilogue), target_of("h200")
    plan = choose(operands, target, specs=(SPEC,), given={"partition": "64x64x64"}).plan(operands, target)
    assert plan.parameters["whole"] == 1
    for shift in (0, 1, 8, 3, 0):
        lines = wide[:, shift : shift + 64]
        given = tw.epilogue("relu(acc) + row + full", row=lines[0], full=lines)
        c = tw.matmul(a, b, epilogue=given, plan=plan, device="emulator")
        assert compare(c, a, b, epilogue=given).ok


@pytest.mark.few(1)
@pytest.mark.parametrize("exchanged", [1, 0])
def test_sums_of_parts_of_k_are_stored_to_the_end_of_their_rows(exchanged: int) -> None:
    """Where C's columns are no whole runs of those that add them up."""
    plan = plan_for((70, 50, 136), 1, "nt", {"partition": "64x64x64", "exchanged": exchanged, "parts": 2})
    assert tw.check(plan, "late") == []


@pytest.mark.parametrize("order", ["late", 1, 3])
def test_a_launch_that_begins_early_waits_for_what_it_reads(order: Any) -> None:
    """Three products in a row, each of the one before: launches may overlap in these orders."""
    device = tw.device("emulator", order=order)
    plan = plan_for((64, 64, 64), 1, "nn", {"partition": "64x64x64", "result": "bfloat16"})
    x, w = (operand((64, 64), DTYPES["bfloat16"], True) for _ in range(2))
    held, weights, expected = device.array(x), device.array(w), x
    for _ in range(3):
        held = tw.matmul(held, weights, plan=plan)
        expected = (expected.astype(np.float32) @ w.astype(np.float32)).astype(x.dtype)
    size = np.abs(expected.astype(np.float32)).max()
    assert np.abs(held.numpy().astype(np.float32) - expected.astype(np.float32)).max() < 0.02 * size
