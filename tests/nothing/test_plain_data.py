"""Plain data: it survives the trip through JSON, and its sums are the ones on paper."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewise import Epilogue, Launch, Plan, Problem, Tile
from tilewise.errors import ArgumentError, LaunchError
from tilewise.launch import LaunchLimits, check_launch, dim3, readable
from tilewise.plan import LEVELS, RASTERS
from tilewise.problem import ELEMENT_BYTES, EpilogueArray, result_of, sum_type

floats = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**40)
positive = st.integers(1, 2**20)
element_types = st.sampled_from(sorted(ELEMENT_BYTES))
layouts = st.sampled_from(["row", "column"])
tiles = st.builds(Tile, positive, positive, positive)
epilogue_arrays = st.builds(EpilogueArray, st.just("bias"), element_types, st.booleans(), st.booleans())
epilogues = st.sampled_from(
    [Epilogue(), Epilogue("relu(acc) * 2.5"), Epilogue("alpha * acc", (), ("alpha",))]
) | (st.builds(Epilogue, st.just("acc * s + bias"), st.tuples(epilogue_arrays), st.just(("s",))))
problems = st.builds(
    Problem,
    counts,
    counts,
    counts,
    batch=counts,
    a=element_types,
    b=element_types,
    c=element_types,
    accumulate=element_types,
    a_layout=layouts,
    b_layout=layouts,
    c_layout=layouts,
    epilogue=epilogues,
)
plans = st.builds(
    Plan,
    problems,
    st.text(min_size=1),
    st.text(min_size=1),
    tiles=st.dictionaries(st.sampled_from(LEVELS), tiles),
    stages=positive,
    raster=st.sampled_from(RASTERS),
    split=positive,
    parameters=st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.booleans()),
)


def through_json(data: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(data))
    return back


@given(problems)
def test_a_problem_comes_back_from_json(problem: Problem) -> None:
    assert Problem.from_dict(through_json(problem.to_dict())) == problem


@given(plans)
def test_a_plan_comes_back_from_json(plan: Plan) -> None:
    again = Plan.from_dict(through_json(plan.to_dict()))
    assert again == plan
    assert list(again.tiles) == [level for level in LEVELS if level in plan.tiles]


def test_a_plan_comes_back_from_a_file(tmp_path: Path) -> None:
    plan = Plan(Problem(4096, 4096, 512), "h200", "09_warp_tiled", {"block": Tile(256, 128, 8)}, stages=4)
    for _ in range(2):  # a second save replaces the first
        plan.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json") == plan
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("plan.json", 0o644)  # for others to read
    assert json.loads((tmp_path / "plan.json").read_text())["tiles"] == {"block": [256, 128, 8]}


def test_a_plan_prints_itself_from_the_grid_down() -> None:
    tiles = {"thread": Tile(8, 16, 1), "block": Tile(256, 128, 8), "warp": Tile(64, 64, 8)}
    text = str(Plan(Problem(1024, 1024, 512), "h200", "09_warp_tiled", tiles, stages=4, raster="hilbert"))
    assert text.splitlines() == [
        "1024×1024×512 float32, sums in float32",
        "  on h200 by 09_warp_tiled",
        "  block       256×128×8",
        "  warp        64×64×8",
        "  thread      8×16×1",
        "  stages 4, raster hilbert, split 1",
    ]


@given(tiles, tiles)
def test_tiles_cover_and_never_by_one_too_many(tile: Tile, whole: Tile) -> None:
    count = tile.count(whole)
    for part, size, number in zip(
        (tile.m, tile.n, tile.k), (whole.m, whole.n, whole.k), (count.m, count.n, count.k), strict=True
    ):
        assert part * (number - 1) < size <= part * number
    exact = Tile(tile.m * count.m, tile.n * count.n, tile.k * count.k)
    assert tile.divides(exact)
    assert tile.divides(whole) == (exact == whole)


@pytest.mark.parametrize(("batch", "shown"), [(0, "0 × "), (1, ""), (2, "2 × ")])
def test_a_problem_prints_how_often_it_is_multiplied(batch: int, shown: str) -> None:
    assert str(Problem(3, 5, 7, batch)) == f"{shown}3×5×7 float32, sums in float32"


def test_flops_bytes_and_intensity() -> None:
    problem = Problem(1024, 512, 256, batch=2, a="float16", b="float16", c="float32")
    assert problem.flops == 2 * 2 * 1024 * 512 * 256
    assert problem.bytes == 2 * (2 * 1024 * 256 + 2 * 256 * 512 + 4 * 1024 * 512)
    assert problem.intensity == problem.flops / problem.bytes
    assert Problem(0, 0, 0).intensity == math.inf


@pytest.mark.parametrize(
    ("element", "sums", "result", "changed"),
    [
        ("float8_e4m3fn", "float32", "bfloat16", "bfloat16"),
        ("float8_e5m2", "float32", "bfloat16", "bfloat16"),
        ("int8", "int32", "int32", "float32"),
        ("int32", "int32", "int32", "int32"),
        ("int64", "int64", "int64", "int64"),
        ("bfloat16", "float32", "bfloat16", "bfloat16"),
        ("float64", "float64", "float64", "float64"),
        ("complex64", "float32", "complex64", "complex64"),
        ("complex128", "float64", "complex128", "complex128"),
    ],
)
def test_a_type_says_what_sums_and_results_are_kept_in(
    element: str, sums: str, result: str, changed: str
) -> None:
    assert (sum_type(element), result_of(element), result_of(element, changed=True)) == (
        sums,
        result,
        changed,
    )


_SUMS = Epilogue("column_sums(s, acc)", (EpilogueArray("s", "float32", by_row=False),))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"groups": 2, "batch": 2}, "batch must be 1 with groups"),
        ({"groups": 2, "batch": 0}, "batch must be 1 with groups"),
        ({"groups": 2, "epilogue": _SUMS}, "epilogue must add up no columns or rows of groups"),
        ({"pointers": True, "batch": 1}, "batch must be 2 at least with pointers"),
    ],
)
def test_a_problem_that_no_product_has_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Problem(4, 4, 4, **given)


def test_an_epilogue_has_each_name_once() -> None:
    array = EpilogueArray("s", "float32")
    for arrays, numbers in (((array,), ("s",)), ((array, array), ()), ((), ("s", "s"))):
        with pytest.raises(ArgumentError, match="must use s in 'acc \\* s', once given"):
            Epilogue("acc * s", arrays, numbers)


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=3))
def test_a_dim3_is_filled_up_with_ones(sizes: list[int]) -> None:
    assert dim3("grid", sizes) == dim3("grid", tuple(sizes)) == tuple([*sizes, 1, 1][:3])
    assert dim3("grid", sizes[0]) == (sizes[0], 1, 1)


@given(st.tuples(*[st.integers(1, 1100)] * 3), st.integers(0, 300_000))
@example((32, 1, 1), 227 * 1024 - 1000)
@example((32, 1, 1), 227 * 1024 - 999)
@example((16, 1, 64), 0)
@example((2, 1, 65), 0)
@example((1024, 1, 1), 0)
@example((1, 1024, 1), 0)
@example((1, 1025, 1), 0)
@example((25, 41, 1), 0)
def test_a_launch_is_refused_exactly_when_it_breaks_a_limit(block: tuple[int, int, int], shared: int) -> None:
    limits = LaunchLimits("any GPU", 1024, 227 * 1024)
    fits = max(block) <= 1024 and block[2] <= 64 and math.prod(block) <= 1024 and 1000 + shared <= 227 * 1024
    launch = Launch((1, 1, 1), block, shared=shared)
    if fits:
        check_launch(launch, limits, static_shared=1000)
    else:
        with pytest.raises(ValueError, match="any GPU"):
            check_launch(launch, limits, static_shared=1000)


@pytest.mark.parametrize(
    ("grid", "cluster", "refused"),
    [
        ((2**31 - 1, 1, 1), None, ""),
        ((2**31, 1, 1), None, "grid.x must be at most"),
        ((1, 65_535, 65_535), None, ""),
        ((1, 65_536, 1), None, "grid.y must be at most"),
        ((1, 1, 65_536), None, "grid.z must be at most"),
        ((16, 3, 1), (8, 1, 1), ""),
        ((4, 6, 2), (2, 2, 2), ""),
        ((9, 3, 1), (9, 1, 1), "cluster must have at most 8 blocks"),
        ((4, 6, 3), (2, 3, 3), "cluster must have at most 8 blocks"),
        ((4, 7, 2), (2, 2, 2), "grid.y must be a multiple of cluster.y = 2"),
        ((4, 6, 3), (2, 2, 2), "grid.z must be a multiple of cluster.z = 2"),
    ],
)
def test_grids_and_clusters_are_allowed_up_to_the_limits(
    grid: tuple[int, int, int], cluster: tuple[int, int, int] | None, refused: str
) -> None:
    launch, limits = Launch(grid, (1, 1, 1), cluster=cluster), LaunchLimits(blocks_per_cluster=8)
    if refused:
        with pytest.raises(LaunchError, match=f"^{re.escape(refused)}"):
            check_launch(launch, limits)
    else:
        check_launch(launch, limits)


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("copy", "copy"),
        ("_Z1fPfi", "f"),
        ("_ZN1a1b5innerEPf", "a::b::inner"),
        ("_Z5tiledILi32EfEvPT0_", "tiled<32, float>"),
        ("_ZN2ns5tiledILin2ELb1E6__halfEEvPT1_", "ns::tiled<-2, true, __half>"),
        ("_Z1kIfdbchstEvv", "k<float, double, bool, char, unsigned char, short, unsigned short>"),
        ("_Z1kIijlmxyEvv", "k<int, unsigned, long, unsigned long, long long, unsigned long long>"),
        ("_Z1kISt4pairIiiEEvT_", "k<…>"),
        ("_Zwhatever", "_Zwhatever"),
    ],
)
def test_a_mangled_name_is_shown_as_it_was_written(entry: str, shown: str) -> None:
    assert readable(entry) == shown


def test_a_launch_prints_itself() -> None:
    assert str(Launch((2, 3, 1), (32, 1, 1))) == "grid (2, 3, 1) × block (32, 1, 1)"
    text = str(Launch((2, 2, 1), (64, 1, 1), shared=49_664, cluster=(2, 1, 1)))
    assert text == "grid (2, 2, 1) × block (64, 1, 1), cluster (2, 1, 1), 49,664 dynamic shared bytes"
