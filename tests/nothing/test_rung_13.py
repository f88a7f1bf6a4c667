"""Rung 13 without a device: what the compiler makes of it, and what is launched for which operands."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rungs import Placed, build, changed, operands_of, place_steps
from tilewise.errors import ArchError, ArgumentError, LaunchError
from tilewise.gpus import limits
from tilewise.kernels.ladder.rung_13_warp_specialised import BLOCK_N, SPEC, candidates, is_aligned
from tilewise.kernels.spec import MapSlot, Operands, Step, ceil_div
from tilewise.problem import Problem

ARCH = "sm_90a"
VARIANTS = list(itertools.product(BLOCK_N, ("float16", "bfloat16"), ("float16", "bfloat16", "float32")))
SIZE = st.integers(1, 1000)


@pytest.mark.few(3)
@pytest.mark.parametrize(("partition", "element", "result"), VARIANTS)
def test_no_spills_and_nothing_serialised(partition: str, element: str, result: str) -> None:
    """The compiler warns where it has to wait for a warpgroup instruction before the next."""
    for cluster in (1, 2):
        binary = build(SPEC, ARCH, partition=partition, element=element, result=result, cluster=cluster)
        assert binary.warnings == ()
        for entry in binary.entries.values():
            resources = entry.resources
            assert resources is not None
            assert (resources.spills, resources.stack_bytes) == (0, 0)
        assert binary.entries["warp_specialised"].resources.registers == 168  # type: ignore[union-attr]


def test_serialised_instructions_would_be_told(tmp_path: Path) -> None:
    slow = changed(SPEC, tmp_path, "wgmma::commit();", "wgmma::commit(), sums.at[0] += 1;")
    (warning,) = build(slow, ARCH).warnings
    assert "wgmma.mma_async instructions are serialized" in warning


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", BLOCK_N)
def test_instructions(partition: str) -> None:
    """Four steps of 16 k, boxes of B shared with the other block, results in boxes of 64 columns."""
    columns = BLOCK_N[partition]
    sass = SPEC.kernel(ARCH, partition=partition).sass
    assert sass.count(f"HGMMA.64x{columns}x16.F32 ") == sass.count("HGMMA.") == 4
    assert sass.count("UTMALDG.2D.MULTICAST ") == columns // 64 // 2
    assert sass.count("UTMALDG.2D ") == 1
    assert sass.count("UTMASTG.2D ") == 1  # in a loop
    assert sass.count("USETMAXREG.") == 2
    assert "MEMBAR.ALL.GPU" not in sass
    alone = SPEC.kernel(ARCH, partition=partition, cluster=1).sass
    assert "MULTICAST" not in alone
    assert alone.count("UTMALDG.2D ") == 1 + columns // 64


def test_it_runs_on_one_arch_alone() -> None:
    assert not SPEC.runs_on("sm_80")
    assert not SPEC.runs_on("sm_120")
    with pytest.raises(ArchError, match="needs sm_90a, not sm_100; compile it for sm_90a"):
        SPEC.kernel("sm_100")


def stepped(a: Placed, b: Placed, c: Placed, **chosen: int | str) -> list[Step]:
    return place_steps(SPEC, a, b, c, 1 << 30, SPEC.complete({"result": c.dtype, **chosen}))


@given(m=SIZE, n=SIZE, k=SIZE, gap=st.sampled_from((0, 1, 4, 8)), offset=st.sampled_from((0, 2, 8, 16)))
def test_the_engine_gets_rows_that_it_can_read(m: int, n: int, k: int, gap: int, offset: int) -> None:
    a = Placed(4096 + offset, m, k, k + gap, "float16")
    b = Placed(8192, k, n, n, "float16")
    c = Placed(1 << 20, m, n, n + gap, "float16")
    operands = operands_of(a, b, c)
    *copies, main = stepped(a, b, c)
    copied = [x for x in operands[:2] if not is_aligned(x)]
    assert [step.entry for step in copies] == ["align_rows"] * len(copied)
    assert main.entry == "warp_specialised"
    map_a, map_b, map_c, _, depth, aligned = main.launch.args
    assert [one.operand for one in (map_a, map_b)] == [
        x.name if is_aligned(x) else "workspace" for x in operands[:2]
    ]
    assert isinstance(map_c, MapSlot) == is_aligned(operands.c) == int.from_bytes(aligned, "little")
    assert int.from_bytes(depth, "little") == k
    assert SPEC.workspace(operands, {}) == 16 * sum(x.rows * ceil_div(x.columns, 8) for x in copied)
    assert main.launch.grid[0] % 2 == 0
    assert main.launch.grid[0] == 2 * ceil_div(m, 256) * ceil_div(n, 256)


@pytest.mark.parametrize("partition", BLOCK_N)
def test_a_block_fits_on_an_sm(partition: str) -> None:
    matrix = Placed(0, 512, 512, 512, "float16")
    (step,) = stepped(matrix, matrix, matrix, partition=partition)
    most = limits((9, 0)).shared_per_block_optin
    assert 0.8 * most < step.launch.shared <= most
    assert step.launch.cluster == (2, 1, 1)
    (alone,) = stepped(matrix, matrix, matrix, partition=partition, cluster=1)
    assert alone.launch.cluster is None


def test_an_empty_sum_needs_no_operands() -> None:
    a, b = Placed(12, 300, 0, 0, "float16"), Placed(13, 0, 500, 500, "float16")
    c = Placed(4096, 300, 500, 500, "float32")
    (step,) = stepped(a, b, c)
    assert step.launch.args[:2] == (bytes(128), bytes(128))
    assert SPEC.workspace(operands_of(a, b, c), {}) == 0


def test_blocks_that_compute_several_tiles_are_fewer_and_no_other_binary() -> None:
    matrix = Placed(0, 2048, 2048, 2048, "float16")
    grids = [stepped(matrix, matrix, matrix, tiles=tiles)[-1].launch.grid[0] for tiles in (1, 3, 128)]
    assert grids == [128, 44, 2]
    assert SPEC.defines(SPEC.complete({"tiles": 3})) == SPEC.defines(SPEC.complete({}))
    with pytest.raises(ArgumentError, match=r"^tiles must be one of 1, 2, …, 128, not 0"):
        SPEC.complete({"tiles": 0})


def test_refusals() -> None:
    matrix = Placed(0, 8, 8, 8, "float16")
    operands = operands_of(matrix, matrix, matrix)
    SPEC.check(operands, SPEC.complete({"result": "float16"}))
    with pytest.raises(ArgumentError, match="result must be 'float16'"):
        SPEC.check(operands, SPEC.complete({"result": "float32"}))
    wide = Operands.of(Problem(1, 2**31, 1, a="float16", b="float16", c="float16"))
    with pytest.raises(LaunchError, match=r"n must be less than 2\^31"):
        SPEC.check(wide, SPEC.complete({}))


@pytest.mark.parametrize(("m", "sizes"), [(1, {1}), (128, {1}), (129, {1, 2}), (4096, {1, 2})])
def test_a_cluster_is_proposed_where_both_its_blocks_have_rows(m: int, sizes: set[int]) -> None:
    operands = Operands.of(Problem(m, 256, 64, 1, "float16", "float16", "float16"))
    assert {settings["cluster"] for settings in candidates(operands, {}, 132)} == sizes
