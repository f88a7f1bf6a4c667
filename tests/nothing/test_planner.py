"""The planner: single choices, legal ones for every GPU of the table, and plain errors."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.gpus import GPUS
from tilewise.kernels import KERNELS, RUNGS
from tilewise.kernels.spec import access_bytes
from tilewise.operands import Operand, Operands
from tilewise.plan import Plan
from tilewise.planner import (
    choose,
    list_candidates,
    list_plans,
    operands_of,
    plan,
    plan_rows,
    target_of,
)
from tilewise.planner.constants import EMULATOR
from tilewise.planner.cost import estimate
from tilewise.planner.target import Target
from tilewise.problem import Epilogue, EpilogueArray, Problem, Tile
from tilewise.toolchain.compile import known_archs

H200, H100 = target_of("h200"), target_of("h100-sxm")
# Kernels as the emulator takes them, on a machine of so many threads.
EMULATED = Target("emulator", "sm_90a", 4, EMULATOR)
DTYPES = ("float16", "bfloat16", "float32", "float64")
SIZE = st.one_of(st.integers(0, 300), st.integers(1, 70_000))


# ── single choices ──


def chosen(m: int, n: int, k: int, dtype: str, gpu: str, kernel: str) -> dict[str, int | str]:
    operands = operands_of(m, n, k, dtype=dtype)
    return dict(choose(operands, target_of(gpu), specs=(KERNELS[kernel],)).settings)


def test_the_split_follows_the_shape_and_the_gpu() -> None:
    def split(m: int, n: int, k: int, gpu: str) -> int:
        return int(chosen(m, n, k, "float32", gpu, "11_parallel_k")["split"])

    assert split(4096, 4096, 4096, "rtx-2060-super") == 1  # enough tiles for every SM
    assert split(128, 128, 16, "h200") == 1  # too short to share out
    assert split(128, 128, 64, "h200") == 8  # as measured for 64×64×64: 4.2 µs, against 9.4 in one slice
    assert split(128, 128, 65536, "h200") == 64
    assert 1 < split(1024, 1024, 16384, "h200") < 16


@pytest.mark.parametrize(
    ("m", "n", "gpu", "kernel", "partition"),
    [
        # Taller tiles would be half padding; 16 large ones would leave SMs idle.
        (64, 8192, "rtx-2060-super", "10_turing_tensor_core", "64x64x32"),
        (512, 512, "rtx-2060-super", "10_turing_tensor_core", "64x64x32"),
        (64, 8192, "a100", "12_multistage", "64x64x32"),
        (512, 512, "a100", "12_multistage", "64x64x32"),
        (8192, 8192, "a100", "12_multistage", "128x256x32"),
        (8192, 8192, "h200", "13_warp_specialised", "128x256x64"),
        (1024, 1024, "h200", "13_warp_specialised", "128x128x64"),
    ],
)
def test_the_partition_follows_the_shape(m: int, n: int, gpu: str, kernel: str, partition: str) -> None:
    assert chosen(m, n, 1024, "float16", gpu, kernel)["partition"] == partition


@pytest.mark.parametrize("gpu", ["h100-sxm", "h100-nvl", "h100-pcie", "gh200", "h200"])
@pytest.mark.parametrize("layout", ["nn", "tn", "nt"])
def test_every_gpu_with_the_measured_chip_multiplies_by_its_kernel(gpu: str, layout: str) -> None:
    """A model without the power limit took a rung for faster, and operands in columns were copied for it."""
    for size in ((4096, 4096, 16384), (16384, 4096, 4096), (4096, 16384, 4096), (4096, 2048, 2048)):
        found = plan(*size, dtype="bfloat16", layout=layout, gpu=gpu)
        assert found.kernel == "wgmma" and not found.copies, size


def test_less_l2_makes_what_is_read_twice_dearer() -> None:
    """Tiles of 176 columns of rows of B: the H200 gained 3 to 4 % by them, an H100 lost 7."""
    chosen = {gpu: plan(4096, 2112, 7168, dtype="bfloat16", gpu=gpu) for gpu in ("h200", "h100")}
    assert {gpu: one.parameters["partition"] for gpu, one in chosen.items()} == {
        "h200": "128x176x64",
        "h100": "128x192x64",
    }


def test_small_matrices_from_memory_are_shared_by_clusters() -> None:
    assert plan(512, 512, 512, batch=64, dtype="bfloat16").parameters["cluster"] == "2x1"


def test_large_tiles_for_large_products() -> None:
    """Those of a Turing GPU hardly matter by the model; on an H200, 128×128 were measured to be 6 % faster."""
    for size in (4096, 8192):
        made = chosen(size, size, 1024, "float16", "rtx-2060-super", "10_turing_tensor_core")
        assert made["partition"] == "128x128x32"


def test_single_rows_and_columns_go_to_the_vector_kernel_where_it_is_fast() -> None:
    def kernel(m: int, n: int, k: int, dtype: str, layout: str) -> str:
        return choose(operands_of(m, n, k, dtype=dtype, layout=layout), H200).spec.name

    assert kernel(4096, 1, 4096, "float32", "nn") == "vector"
    assert kernel(1, 28672, 4096, "bfloat16", "nt") == "vector"  # 54 µs; the tensor cores read rows in 79
    assert kernel(1, 28672, 4096, "bfloat16", "nn") == "wgmma"


def test_the_copy_engine_takes_stacks_whose_matrices_begin_at_multiples_of_16_bytes() -> None:
    for stack, taken in (
        ((4096,), True),
        ((4104,), True),
        ((4100,), False),
        ((8192, 4100), False),
        ((8196, 4096), False),
        ((0,), True),  # the same matrix again
        ((4096, 0), True),
        ((-4096,), False),
    ):
        for rows in (64, 1):
            operand = Operand("a", rows, 64, 64, "bfloat16", stack=stack)
            assert KERNELS["wgmma"].readable(operand) is taken


def test_no_cluster_whose_second_block_has_no_row() -> None:
    for k in (1024, 8192):
        assert chosen(100, 8192, k, "bfloat16", "h200", "13_warp_specialised")["cluster"] == 1
    assert (
        chosen(4224, 2048, 8192, "bfloat16", "h200", "13_warp_specialised")["cluster"] == 1
    )  # 33 rows of tiles


@pytest.mark.parametrize(
    ("shape", "dtype", "bound"),
    [
        ((8192, 8192, 8192), "bfloat16", "power"),
        ((1, 28672, 4096), "bfloat16", "memory"),
        ((4096, 4096, 4096), "float32", "math"),
        ((256, 256, 16384), "bfloat16", "waves"),
    ],
)
def test_the_bound_is_what_it_is_known_to_be(shape: tuple[int, int, int], dtype: str, bound: str) -> None:
    kernel = "13_warp_specialised" if dtype == "bfloat16" else "09_warp_tiled"
    found = choose(operands_of(*shape, dtype=dtype), H200, specs=(KERNELS[kernel],))
    assert found.prediction.bound == bound
    assert found.prediction.terms[bound] == pytest.approx(found.prediction.seconds, rel=0.6)


@pytest.mark.parametrize("kernel", ["mma", "wgmma", "general"])
def test_candidates_have_what_is_given_and_none_is_there_twice(kernel: str) -> None:
    operands = operands_of(512, 512, 512, dtype="bfloat16")
    tile = choose(operands, H200, specs=(KERNELS[kernel],)).settings["partition"]
    found, _ = list_candidates(operands, H200, specs=(KERNELS[kernel],), given={"partition": tile})
    settings = [tuple(sorted(one.settings.items())) for one in found]
    assert len(settings) == len({*settings}) > 0 and all(one.settings["partition"] == tile for one in found)


@pytest.mark.parametrize(
    ("gpu", "given", "message"),
    [
        ("t4", {"stages": 3}, "stages must be 2 for kernel mma on sm_75"),
        ("rtx-4090", {"partition": "256x128x64"}, "stages must leave a block within 101,376 bytes"),
    ],
)
def test_what_is_given_is_refused_where_an_arch_has_no_plan_with_it(
    gpu: str, given: dict[str, object], message: str
) -> None:
    operands, target = operands_of(512, 512, 512, dtype="float16"), target_of(gpu)
    with pytest.raises(ArgumentError, match=message):
        choose(operands, target, specs=(KERNELS["mma"],), given=given)


def test_what_is_given_goes_with_usual_settings_where_nothing_that_is_proposed_does() -> None:
    """Of short rows K is proposed in parts alone, and along K there are none."""
    given = {"along": "k", "rows": 2}
    found = choose(operands_of(1, 2, 256, dtype="complex64"), H200, specs=(KERNELS["vector"],), given=given)
    assert (found.settings["along"], found.settings["rows"], found.settings["parts"]) == ("k", 2, 1)


@pytest.mark.parametrize(
    ("dtype", "layout", "n", "k", "kernel"),
    [
        ("bfloat16", "nn", 512, 64, "wgmma"), ("bfloat16", "nn", 512, 60, "mma"), ("float16", "nt", 512, 63, "mma"),
        ("int8", "nt", 512, 64, "wgmma"), ("int8", "nt", 512, 60, "mma"), ("float32", "nn", 512, 63, "simt"),
        ("bfloat16", "nn", 510, 64, "mma"),
    ],
)  # fmt: skip
def test_matrices_given_by_pointers_have_the_fastest_kernel_that_reads_them_as_they_lie(
    dtype: str, layout: str, n: int, k: int, kernel: str
) -> None:
    """Nothing is copied for the newest one, which wants lines that begin at multiples of 16 bytes."""
    operands = operands_of(512, n, k, dtype=dtype, layout=layout, batch=4, pointers=True)
    found = {one.spec.name for one in list_candidates(operands, H200)[0]}
    assert found == {kernel, "general"} and choose(operands, H200).spec.name == kernel


@pytest.mark.parametrize(
    ("given", "across", "k"),
    [
        ({"partition": "64x64x64", "element": "float16", "cluster": "2x1"}, (2, 1), 16),
        ({"partition": "64x64x64", "element": "bfloat16", "cluster": "1x2"}, (1, 2), 16),
        ({"partition": "64x64x128", "element": "int8"}, (1, 1), 32),
        ({"partition": "64x64x32", "element": "float32"}, (1, 1), 8),
        ({"partition": "64x64x128", "element": "float16", "widened": "int8"}, (1, 1), 16),
    ],
)
def test_hoppers_instructions_have_32_bytes_of_k_as_they_are_multiplied(
    given: dict[str, object], across: tuple[int, int], k: int
) -> None:
    """And a cluster has so many blocks down and across."""
    spec = KERNELS["wgmma"]
    tiles = spec.tiles(spec.complete(given))
    assert (tiles["cluster"].m, tiles["cluster"].n) == (64 * across[0], 64 * across[1])
    assert tiles["instruction"] == Tile(64, 64, k)


@pytest.mark.parametrize("partition", ["128x256x128", "64x256x128"])
def test_a_widened_operand_without_scales_has_the_widest_tiles(partition: str) -> None:
    """Its sums of a step need no registers of their own."""
    operands = operands_of(512, 512, 512, dtype="int8", b_dtype="float16")
    given: dict[str, object] = {"partition": partition, "widened": "int8"}
    assert choose(operands, H200, specs=(KERNELS["wgmma"],), given=given).settings["partition"] == partition


@pytest.mark.parametrize("scaled", ["a", "b"])
def test_a_kernel_without_scales_of_terms_refuses_them(scaled: Literal["a", "b"]) -> None:
    text = "scaled(acc, s, 1)" if scaled == "a" else "scaled(acc, 1, s)"
    epilogue = Epilogue(text, (EpilogueArray("s", "float32", scales=scaled),))
    operands = Operands.of(Problem(1, 64, 256, 1, "int8", "int8", "float32", epilogue=epilogue))
    spec = KERNELS["vector"]
    error = spec.why_not_operands(operands, spec.complete(spec.for_types(operands)))
    assert str(error) == f"scale_{scaled} must be the same along k for vector"
    assert "vector" not in {one.spec.name for one in list_candidates(operands, H200)[0]}


@pytest.mark.parametrize("lines", [0, 1, 128])
@pytest.mark.parametrize("kernel", [name for name, spec in KERNELS.items() if spec.scales_terms])
def test_lines_that_share_scales_are_as_many_as_the_kernel_is_built_for(kernel: str, lines: int) -> None:
    """Neither fewer nor more: it would read scales of other lines, or none."""
    spec, epilogue = KERNELS[kernel], None
    if lines:
        shapes = {"x": (256 // lines, 2), "y": (2, 256 // lines)}
        scales = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        epilogue = tw.epilogue("scaled(acc, x, y)", **scales)
    operands = operands_of(256, 256, 256, dtype="int8", layout="nt", epilogue=epilogue)
    fitting = spec.complete(spec.for_types(operands))
    for operand in "ab":
        for built in (0, 1, 128):
            error = spec.why_not_operands(operands, {**fitting, f"scales_{operand}": built})
            wrong = f"scales_{operand} must be {lines}, as the scales of {operand} are, not {built}"
            assert str(error) == (wrong if built != lines else "None")


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_scales_of_b_may_be_the_same_along_k_in_groups_even_in_a_single_one(groups: int) -> None:
    scales = {"x": np.ones((128, 2), np.float32), "y": np.ones((1, 1), np.float32)}
    given: dict[str, Any] = {"dtype": "int8", "epilogue": tw.epilogue("scaled(acc, x, y)", **scales)}
    if groups:
        assert operands_of(128, 64, 256, groups=groups, **given).epilogue.lines_of("b") > 1
    else:
        with pytest.raises(ArgumentError, match="y must"):
            operands_of(128, 64, 256, **given)


@pytest.mark.parametrize("gpu", ["a100", "h200", "b200", "rtx-5090"])
def test_a_kernel_of_one_arch_is_for_that_arch_alone(gpu: str) -> None:
    target, bound = target_of(gpu), [spec for spec in {**KERNELS, **RUNGS}.values() if spec.arch]
    for dtype, arithmetic in (("bfloat16", None), ("float32", "exact32")):
        operands = operands_of(512, 512, 512, dtype=dtype, arithmetic=arithmetic)
        found = list_candidates(operands, target, specs=bound)[0]
        assert bool(found) == all(spec.arch == target.arch for spec in bound)


@pytest.mark.parametrize("kernel", ["general", "simt", "04_tiled"])
def test_a_plan_has_the_order_of_blocks_that_its_kernel_has(kernel: str) -> None:
    operands, spec = operands_of(64, 64, 64), {**KERNELS, **RUNGS}[kernel]
    assert choose(operands, H200, specs=(spec,)).plan(operands, H200).raster == spec.raster


# ── every GPU, every type, any size ──


@given(
    m=SIZE,
    n=SIZE,
    k=SIZE,
    dtype=st.sampled_from(DTYPES),
    gpu=st.sampled_from(sorted(name for name, gpu in GPUS.items() if gpu.arch in known_archs())),
    layout=st.sampled_from(("nn", "nt", "tn", "tt")),
    batch=st.sampled_from((1, 1, 0, 7)),
)
@settings(max_examples=150, deadline=None)
def test_every_gpu_has_a_plan(m: int, n: int, k: int, dtype: str, gpu: str, layout: str, batch: int) -> None:
    operands = operands_of(m, n, k, dtype=dtype, layout=layout, batch=batch)
    for target in (target_of(gpu), EMULATED):
        found, _ = list_candidates(operands, target)
        assert 0 < len(found) < 150
        for candidate in found:
            prediction = candidate.prediction
            assert 0 < prediction.seconds < math.inf
            assert prediction.bound in prediction.terms
            assert min(prediction.terms.values()) >= 0
        made = found[0].plan(operands, target)
        spec = KERNELS[made.kernel]
        assert spec.settings_of(Plan.from_dict(made.to_dict()), operands) == found[0].settings
        assert not spec.why_not(found[0].operands, found[0].settings)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_that_a_plans_parameters_do_not_make_are_refused(dtype: str) -> None:
    made = plan(512, 512, 512, dtype=dtype)
    tile = made.tiles["block"]
    wrong = replace(made, tiles={**made.tiles, "block": Tile(tile.m, tile.n, tile.k + 1)})
    with pytest.raises(ArgumentError) as caught:
        KERNELS[made.kernel].settings_of(wrong, Operands.of(wrong.problem))
    rule = f"tiles['block'] must be {tile} with the plan's parameters for kernel {made.kernel}"
    assert str(caught.value).startswith(rule)


@pytest.mark.parametrize("kernel", ["general", "mma", "vector", "wgmma"])
@pytest.mark.parametrize("axes", range(4))
def test_sums_over_a_whole_stack_are_of_as_many_axes_as_a_launch_takes(kernel: str, axes: int) -> None:
    """Of more axes there are several launches, each of which would begin anew."""
    spec, sums = KERNELS[kernel], tw.epilogue("column_sums(s, acc)", s=np.empty(8, np.float32))
    found = operands_of(8, 8, 8, dtype="float16", epilogue=sums)
    a, b, c = (replace(one, stack=(4096, 512, 64)[3 - axes :]) for one in found[:3])
    whole = tuple(replace(one, stack=(0,) * axes) for one in found.extras)
    operands = found._replace(a=a, b=b, c=c, extras=whole, stack=(2,) * axes)
    settings = spec.complete(spec.for_types(operands))
    error = spec.why_not_operands(operands, settings)
    if axes <= spec.stack_axes:
        assert error is None
    else:
        assert str(error).startswith("s must have sums for each matrix of a stack with more than 2 axes")
        each = operands._replace(extras=tuple(replace(one, stack=c.stack) for one in whole))
        assert spec.why_not_operands(each, settings) is None


@pytest.mark.parametrize("gpu", sorted(name for name, gpu in GPUS.items() if gpu.arch not in known_archs()))
def test_a_gpu_without_a_compiler_has_no_plan(gpu: str) -> None:
    """One reason for all kernels."""
    with pytest.raises(
        ArgumentError, match=rf"^gpu must be sm_75 or newer to run kernels, .* not '{gpu} \(sm_70\)'"
    ):
        choose(operands_of(64, 64, 64), target_of(gpu))


@given(m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(1, 9000), dtype=st.sampled_from(DTYPES))
@settings(max_examples=100, deadline=None)
def test_more_work_is_not_predicted_faster(m: int, n: int, k: int, dtype: str) -> None:
    """Of the same kernel and settings: a larger size pads less, but never takes less time."""
    sizes = {"smaller": (m, n, k), "larger": (2 * m, 2 * n, 2 * k)}
    first, second = (operands_of(*size, dtype=dtype) for size in sizes.values())
    for candidate in list_candidates(first, H200)[0]:
        spec, fixed = candidate.spec, candidate.settings
        if spec.why_not(second, fixed):
            continue
        works = spec.work(first, fixed), spec.work(second, fixed)
        small, large = (estimate(*one, H200).seconds for one in zip(works, (first, second), strict=True))
        aligned = (
            access_bytes(*second[:3]) == access_bytes(*first[:3])
            and works[1].straddling >= works[0].straddling
        )
        assert large >= 0.999 * small or not aligned, spec.name


@given(count=st.integers(1, 64), size=st.sampled_from((16, 100, 512)), dtype=st.sampled_from(DTYPES))
@settings(max_examples=50, deadline=None)
def test_a_stack_takes_no_longer_than_its_matrices_one_by_one(count: int, size: int, dtype: str) -> None:
    def seconds(batch: int) -> float:
        return choose(operands_of(size, size, size, dtype=dtype, batch=batch), H200).prediction.seconds

    assert seconds(1) * 0.999 <= seconds(count) <= seconds(1) * count * 1.001


def test_a_choice_is_quick() -> None:
    """A few milliseconds: about a hundred candidates, each of some hundred lines of Python, none of them compiled."""
    operands, lines, before = operands_of(4093, 4096, 4096, dtype="float16"), 0, sys.gettrace()

    def count(_frame: object, event: str, _given: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    list_candidates(operands, H200)  # the first is a cold one
    sys.settrace(count)
    try:
        found, _ = list_candidates(operands, H200)
    finally:
        sys.settrace(before)
    assert len(found) > 50 and lines < 100_000


# ── plans ──


def test_a_plan_says_how_and_how_long(tmp_path: Path) -> None:
    made = plan(4096, 4096, 4096, dtype="bfloat16", gpu="h200")
    assert (made.kernel, made.gpu) == ("wgmma", "h200")
    assert made.seconds is not None
    assert 150e-6 < made.seconds < 250e-6
    assert "predicted" in str(made)
    made.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded == made
    spec = KERNELS[made.kernel]
    operands = Operands.of(made.problem)
    assert spec.plan(operands, "h200", spec.settings_of(loaded, operands)).parameters == made.parameters


def test_plans_are_listed_best_first_with_refusals() -> None:
    target = target_of("t4")
    plans, refused = list_plans(operands_of(1024, 1024, 1024, layout="nt"), target)
    seconds = [one.seconds or 0 for one in plans]
    assert seconds == sorted(seconds)
    assert plans[0].gpu == target.name
    reasons = {refusal.kernel: str(refusal.error) for refusal in refused}
    assert "sm_90a" in reasons["exact32"] and "sm_80" in reasons["simt"]
    assert "m or n must be 1" in reasons["vector"]
    assert any(one.copies == ("b",) for one in plans)
    kept, refused = list_plans(operands_of(64, 64, 64, layout="nt"), target, copy=False)
    assert not any(one.copies for one in kept)
    assert any("copy=False" in str(refusal.error) for refusal in refused)


def test_rows_of_a_table() -> None:
    plans, _ = list_plans(operands_of(2048, 2048, 2048, dtype="bfloat16"), H200)
    rows = plan_rows(plans)
    first = rows[0]
    assert first.kernel == "wgmma"
    assert first.block in ("128×256×64", "256×128×64", "128×128×64")
    assert "partition" in first.settings
    assert not any(
        name in first.settings for name in ("element", "result", "stacked")
    )  # the problem, and what is as usual
    assert first.tflops == pytest.approx(2 * 2048**3 / first.microseconds / 1e6)
    assert {row.copies for row in rows} == {""}


@pytest.mark.parametrize("kernel", ["general", "simt", "vector", "mma", "wgmma"])
def test_a_row_tells_of_each_setting_that_is_not_as_usual(kernel: str) -> None:
    """Of a switch too that is off where it is on as a rule, or on where it is off."""
    dtype, m = "float32" if kernel == "simt" else "bfloat16", 1 if kernel == "vector" else 512
    operands = operands_of(m, 512, 512, dtype=dtype)
    found = choose(operands, H200, specs=(KERNELS[kernel],)).plan(operands, H200)
    said_elsewhere = {"element", "result", "stages", "split", "raster"}
    for name, values in KERNELS[kernel].settings.items():
        for value in values if name not in said_elsewhere else ():
            (row,) = plan_rows([replace(found, parameters={**found.parameters, name: value})])
            told = f"{name} {value}" in row.settings.split(", ")
            assert told if value != values[0] else not told or value not in (0, 1), (name, value)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 5), (5, 0, 5), (5, 5, 0), (0, 0, 0)])
def test_a_product_with_nothing_to_do_has_a_plan(m: int, n: int, k: int) -> None:
    for dtype in DTYPES:
        assert "predicted" in str(plan(m, n, k, dtype=dtype))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "uint8"}, "dtype must be one that a kernel has"),
        ({"dtype": "int4"}, "dtype 'int4' is not known"),
        ({"result": "uint8"}, "result must be one that a kernel has"),
        ({"layout": "nx"}, "layout 'nx' is not known"),
        ({"gpu": "h2000"}, "gpu 'h2000' is not known"),
        ({"m": -1}, "m must be at least 0"),
        ({"k": 1.5}, "k must be an integer"),
        ({"batch": -2}, "batch must be at least 0"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, object], message: str) -> None:
    sizes = {name: arguments.pop(name, 8) for name in ("m", "n", "k")} if arguments else {}
    with pytest.raises(ArgumentError, match=message):
        plan(**sizes, **arguments)  # type: ignore[arg-type]


def test_an_unknown_gpu_suggests_one() -> None:
    with pytest.raises(UnknownNameError, match="h200"):
        plan(8, 8, 8, gpu="h20O")


@pytest.mark.parametrize(
    ("kernel", "element", "dtype"), [("simt", {}, "float16"), ("mma", {"element": "float16"}, "bfloat16")]
)
def test_an_operand_of_a_type_that_a_spec_does_not_take_is_named(
    kernel: str, element: dict[str, str], dtype: str
) -> None:
    spec = KERNELS[kernel]
    said = str(spec.why_not(operands_of(8, 8, 8, dtype=dtype), spec.complete(element)))
    wanted = element.get("element", "float32")
    assert said.startswith("a must have elements of type") and f"for {kernel}, not '{dtype}'" in said
    assert said.endswith(f"convert it: a.astype('{wanted}')")
