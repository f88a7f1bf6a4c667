"""Rung 12 on the yardstick: any shape and alignment, under every order of threads and copies."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rungs import Array, Lie, Placed, build, changed, multiply, place_steps, shared_conflicts
from tests.thorough import examples
from tilewise.errors import ArgumentError
from tilewise.interop import numpy_dtype
from tilewise.kernels.ladder.rung_12_multistage import PARTITIONS, SPEC
from tilewise.reference import compare

ARCH = "sm_80"
RANDOM = np.random.default_rng()
LIES = st.builds(Lie, st.integers(0, 9), st.integers(0, 9))
VARIANTS = list(itertools.product(PARTITIONS, ("float16", "bfloat16"), ("float32", "float16", "bfloat16")))


def operands(m: int, n: int, k: int, element: str = "float16") -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    return a, b


def product(a: Array, b: Array, spec: Any = SPEC, result: str = "float32", **how: Any) -> Any:
    """A·B by the kernel; ``how`` mixes its settings and the options of :func:`tests.rungs.multiply`."""
    chosen: dict[str, Any] = {name: how.pop(name) for name in ("partition", "stages") if name in how}
    partition = PARTITIONS[chosen.get("partition", "128x128x32")]
    stages = int(chosen.get("stages", 4))
    return multiply(
        spec,
        a,
        b,
        arch=ARCH,
        result=numpy_dtype(result),  # type: ignore[arg-type]  # NumPy knows bfloat16 by its type alone
        settings={"element": a.dtype.name, "result": result, **chosen},
        shared=stages * (partition.block_m + partition.block_n) * 64,
        **how,
    )


@given(
    m=st.integers(1, 140),
    n=st.integers(1, 270),
    k=st.integers(0, 170),
    lies=st.tuples(LIES, LIES, LIES),
    variant=st.sampled_from(VARIANTS),
    stages=st.sampled_from((3, 4)),
)
@examples(4, 12)
def test_any_shape_and_alignment(
    m: int, n: int, k: int, lies: tuple[Lie, Lie, Lie], variant: tuple[str, str, str], stages: int
) -> None:
    partition, element, result = variant
    a, b = operands(m, n, k, element)
    got = product(a, b, partition=partition, result=result, stages=stages, lies=lies)
    assert compare(got.c, a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize("shape", [(1, 1, 1), (128, 128, 32), (127, 129, 31), (2, 3, 900), (150, 300, 0)])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_shapes_at_the_edges_of_tiles(shape: tuple[int, int, int], partition: str) -> None:
    a, b = operands(*shape)
    assert compare(product(a, b, partition=partition).c, a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize(("lie", "stages"), [(Lie(), 3), (Lie(), 4), (Lie(2, 2), 4), (Lie(1, 1), 3)])
def test_every_order_of_threads_and_copies_gives_the_same_bits(lie: Lie, stages: int) -> None:
    a, b = operands(
        67, 100, 168
    )  # one block with ragged edges; more steps than stages, so that each is used again
    results = [
        product(a, b, lies=(lie,) * 3, stages=stages, schedule=schedule, asynchronous=asynchronous).c
        for schedule, asynchronous in itertools.product(("lowest", "random"), ("late", "eager"))
    ]
    assert compare(results[0], a, b)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.few(1)
@pytest.mark.parametrize("missing", ["async_copy::wait<AHEAD - 1>();", "__syncthreads(); "])
def test_no_wait_can_be_left_out(missing: str, tmp_path: Path) -> None:
    a, b = operands(128, 128, 300)
    broken = changed(SPEC, tmp_path, missing, "")
    assert not compare(product(a, b, broken, schedule="random").c, a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize(("partition", "result"), list(itertools.product(PARTITIONS, ("float32", "float16"))))
def test_no_bank_conflicts(partition: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(128, 256, 64)
    with shared_conflicts(monkeypatch) as counts:
        product(a, b, partition=partition, result=result)
    assert 16 in counts
    assert [conflicts for _, conflicts in counts.values()] == [0] * len(counts)


@pytest.mark.parametrize("swizzle", ["row / 2 % 4", "row % 8"])
def test_a_plain_layout_would_conflict(swizzle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(128, 128, 32)
    with shared_conflicts(monkeypatch) as counts:
        product(a, b, changed(SPEC, tmp_path, swizzle, "0", "warp_tile.cuh"))
    assert sum(conflicts for _, conflicts in counts.values()) > 0


def test_the_widest_accesses_that_the_alignment_allows() -> None:
    a, b = operands(128, 128, 32)
    elements = a.size + b.size + 128 * 128
    for gap, widths in (
        (0, {16: elements // 8}),
        (2, {4: (a.size + b.size) // 2, 2: 128 * 128}),
        (1, {2: elements}),
    ):
        assert product(a, b, result="float16", lies=(Lie(gap=gap),) * 3).accesses == widths


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_instructions(element: str) -> None:
    ptx = build(SPEC, ARCH, element=element).ptx
    kind = {"float16": "f16", "bfloat16": "bf16"}[element]
    assert ptx.count(f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 ") == 64
    assert ptx.count("mma.sync") == 64
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4") == 16
    assert ptx.count("cp.async.cg.shared.global") == 8


@pytest.mark.few(4)
@pytest.mark.parametrize(("partition", "element", "result"), VARIANTS)
def test_fits_the_register_file_of_ampere(partition: str, element: str, result: str) -> None:
    binary = build(SPEC, ARCH, partition=partition, element=element, result=result)
    resources = binary.entries["multistage"].resources
    assert resources is not None
    assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ())
    tile = PARTITIONS[partition]
    assert resources.registers * tile.warps * 32 * tile.resident <= 65_536
    dynamic = 4 * (tile.block_m + tile.block_n) * 64
    assert (dynamic + 1024) * tile.resident <= 164 * 1024
    assert dynamic <= 99 * 1024, "what a block may have on every GPU since Ampere"


@pytest.mark.few(2)
@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_compiles_for_later_gpus(arch: str) -> None:
    for partition in PARTITIONS:
        binary = build(SPEC, arch, partition=partition)
        resources = binary.entries["multistage"].resources
        assert resources is not None
        assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ())


def test_settings_and_launch() -> None:
    assert SPEC.complete({"element": "bfloat16"})["result"] == "bfloat16"
    assert SPEC.complete({"element": "bfloat16", "result": "float16"})["result"] == "float16"
    a = Placed(256, 300, 70, 71, "float16")
    b = Placed(512, 70, 500, 501, "float16")
    c = Placed(768, 300, 500, 502, "float16")
    (step,) = place_steps(SPEC, a, b, c, 0, SPEC.complete({"stages": 3}))
    assert step.launch.args == (a.matrix(), b.matrix(), c.matrix())
    assert (step.launch.grid, step.launch.block, step.launch.shared) == ((12, 1, 1), (128, 1, 1), 49_152)
    with pytest.raises(ArgumentError, match="result must be 'float16'"):
        place_steps(SPEC, a, b, c, 0, SPEC.complete({"result": "float32"}))
