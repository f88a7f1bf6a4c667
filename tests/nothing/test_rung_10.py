"""Rung 10 on the yardstick: every partition, both types of sums and results, any shape and alignment."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rungs import Array, Lie, Placed, build, changed, multiply, operands_of, shared_conflicts
from tests.thorough import examples
from tilewise.errors import ArgumentError
from tilewise.kernels.ladder.rung_10_turing_tensor_core import PARTITIONS, SPEC
from tilewise.reference import compare

ARCH = "sm_75"
RANDOM = np.random.default_rng()
LIES = st.builds(Lie, st.integers(0, 9), st.integers(0, 9))
PARTITION = st.sampled_from(tuple(PARTITIONS))
RESULT = st.sampled_from(SPEC.settings["result"])
VARIANTS = list(itertools.product(PARTITIONS, SPEC.settings["accumulate"], SPEC.settings["result"]))


def operands(m: int, n: int, k: int) -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b


def small_integers(m: int, n: int, k: int) -> tuple[Array, Array]:
    """Operands whose every partial sum float16 holds exactly, whatever the order."""
    a, b = (RANDOM.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b


def chosen(
    partition: str = "128x256x32", accumulate: str = "float32", result: str = "float32"
) -> dict[str, str]:
    return {"partition": partition, "accumulate": accumulate, "result": result}


@given(
    m=st.integers(1, 140),
    n=st.integers(1, 270),
    k=st.integers(0, 100),
    lies=st.tuples(LIES, LIES, LIES),
    partition=PARTITION,
    result=RESULT,
)
@examples(6, 12)
def test_any_shape_and_alignment(
    m: int, n: int, k: int, lies: tuple[Lie, Lie, Lie], partition: str, result: str
) -> None:
    a, b = operands(m, n, k)
    product = multiply(
        SPEC, a, b, arch=ARCH, result=result, lies=lies, settings=chosen(partition, result=result)
    )
    assert compare(product.c, a, b)


@given(
    m=st.integers(1, 140), n=st.integers(1, 270), k=st.integers(0, 100), partition=PARTITION, result=RESULT
)
@examples(6, 12)
def test_float16_sums_of_small_integers_are_exact(
    m: int, n: int, k: int, partition: str, result: str
) -> None:
    a, b = small_integers(m, n, k)
    how = chosen(partition, "float16", result)
    np.testing.assert_array_equal(
        multiply(SPEC, a, b, arch=ARCH, result=result, settings=how).c,
        a.astype(np.float64) @ b.astype(np.float64),
    )


def test_float16_sums_round_at_every_instruction() -> None:
    """1 + 2^-12 + 2^-12 … stays 1 in float16 if each instruction (8 terms) rounds; not in float32."""
    a = np.full((1, 8 * 9), 0, np.float16)
    a[0, ::8] = 1
    b = np.full((8 * 9, 1), 2.0**-12, np.float16)
    b[0] = 1
    result = {
        accumulate: multiply(SPEC, a, b, arch=ARCH, settings=chosen(accumulate=accumulate)).c[0, 0]
        for accumulate in ("float32", "float16")
    }
    assert result == {"float32": 1 + 2.0**-9, "float16": 1}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (128, 256, 32), (127, 255, 31), (129, 257, 33), (300, 600, 0), (2, 3, 900)]
)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_shapes_at_the_edges_of_tiles(shape: tuple[int, int, int], partition: str) -> None:
    a, b = operands(*shape)
    assert compare(multiply(SPEC, a, b, arch=ARCH, settings=chosen(partition)).c, a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_order_of_threads_gives_the_same_bits(partition: str) -> None:
    a, b = operands(40, 100, 70)
    results = [
        multiply(
            SPEC, a, b, arch=ARCH, lies=(lie,) * 3, settings=chosen(partition), schedule=schedule, seed=seed
        ).c
        for lie in (Lie(), Lie(1, 1))
        for schedule, seed in (("lowest", 0), ("random", 1))
    ]
    assert compare(results[0], a, b)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_the_barrier_cannot_be_left_out(tmp_path: Path) -> None:
    a, b = operands(64, 64, 200)
    broken = changed(SPEC, tmp_path, "        __syncthreads(); ", "        //")
    how = chosen("64x64x32")
    assert compare(multiply(SPEC, a, b, arch=ARCH, settings=how, schedule="random").c, a, b)
    assert not compare(multiply(broken, a, b, arch=ARCH, settings=how, schedule="random").c, a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize(("partition", "accumulate", "result"), VARIANTS)
def test_no_bank_conflicts(
    partition: str, accumulate: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands(128, 256, 64)
    how = chosen(partition, accumulate, result)
    with shared_conflicts(monkeypatch) as counts:
        multiply(SPEC, a, b, arch=ARCH, result=result, settings=how)
    assert 16 in counts
    assert [conflicts for _, conflicts in counts.values()] == [0] * len(counts)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("header", "old", "new"),
    [
        ("warp_tile.cuh", "row / 2 % 4", "0"),
        ("warp_tile.cuh", "row % 8", "0"),
        ("row_stage.cuh", "? 16 : 8", "? 16 : 0"),
    ],
)
def test_a_plain_layout_would_conflict(
    header: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands(128, 256, 32)
    with shared_conflicts(monkeypatch) as counts:
        multiply(changed(SPEC, tmp_path, old, new, header), a, b, arch=ARCH, result="float16")
    assert sum(conflicts for _, conflicts in counts.values()) > 0


def test_the_widest_accesses_that_the_alignment_allows() -> None:
    a, b = operands(128, 256, 32)
    elements = a.size + b.size + 128 * 256
    for gap, widths in (
        (0, {16: elements // 8}),
        (2, {4: (a.size + b.size) // 2, 2: 128 * 256}),
        (1, {2: elements}),
    ):
        product = multiply(SPEC, a, b, arch=ARCH, result="float16", lies=(Lie(gap=gap),) * 3)
        assert product.accesses == widths


@pytest.mark.parametrize(
    ("accumulate", "kinds"), [("float32", "f32.f16.f16.f32"), ("float16", "f16.f16.f16.f16")]
)
def test_instructions(accumulate: str, kinds: str) -> None:
    ptx = build(SPEC, ARCH, accumulate=accumulate).ptx
    assert ptx.count(f"mma.sync.aligned.m16n8k8.row.col.{kinds} ") == ptx.count("mma.sync") == 64
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4") == 8
    assert "cp.async" not in ptx


@pytest.mark.parametrize(("partition", "accumulate", "result"), VARIANTS)
def test_fits_the_register_file_of_turing(partition: str, accumulate: str, result: str) -> None:
    binary = build(SPEC, ARCH, partition=partition, accumulate=accumulate, result=result)
    resources = binary.entries["turing_tensor_core"].resources
    assert resources is not None
    assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ())
    tile = PARTITIONS[partition]
    assert resources.registers * tile.warps * 32 * tile.resident <= 65_536
    assert resources.shared_bytes * tile.resident <= 64 * 1024


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_compiles_for_later_gpus(arch: str) -> None:
    resources = build(SPEC, arch).entries["turing_tensor_core"].resources
    assert resources is not None
    assert (resources.spills, resources.stack_bytes) == (0, 0)


def test_result_must_be_the_type_of_c() -> None:
    matrix = Placed(256, 8, 8, 8, "float16")
    operands = operands_of(matrix, matrix, matrix)
    SPEC.check(operands, SPEC.complete({"result": "float16"}))
    with pytest.raises(ArgumentError, match="result must be 'float16'"):
        SPEC.check(operands, SPEC.complete({"result": "float32"}))
