"""Rung 09 on the yardstick: any shape and alignment, under every order of threads and copies."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rungs import Array, Lie, Placed, build, changed, multiply, place_steps, shared_conflicts
from tests.thorough import examples
from tilewise.kernels.ladder.rung_09_warp_tiled import SPEC
from tilewise.reference import compare

ARCH = "sm_80"
RANDOM = np.random.default_rng()
BARRIER = 'asm volatile("bar.sync %%0, %%1;" ::%s : "memory");'
LIES = st.builds(Lie, st.integers(0, 5), st.integers(0, 5))


def operands(m: int, n: int, k: int) -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return a, b


@given(
    m=st.integers(1, 140),
    n=st.integers(1, 270),
    k=st.integers(0, 43),
    lies=st.tuples(LIES, LIES, LIES),
    raster=st.sampled_from(SPEC.settings["raster"]),
)
@examples(5, 10)
def test_any_shape_and_alignment(m: int, n: int, k: int, lies: tuple[Lie, Lie, Lie], raster: str) -> None:
    a, b = operands(m, n, k)
    product = multiply(SPEC, a, b, arch=ARCH, lies=lies, settings={"raster": raster})
    assert compare(product.c, a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (128, 256, 8), (127, 255, 7), (129, 257, 9), (400, 600, 0), (2, 3, 600)]
)
def test_shapes_at_the_edges_of_tiles(shape: tuple[int, int, int]) -> None:
    a, b = operands(*shape)
    assert compare(multiply(SPEC, a, b, arch=ARCH).c, a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize("lie", [Lie(), Lie(1, 2)])
def test_every_order_of_threads_and_copies_gives_the_same_bits(lie: Lie) -> None:
    a, b = operands(67, 130, 51)
    orders = itertools.product(("lowest", "random"), ("late", "eager"))
    results = [
        multiply(SPEC, a, b, arch=ARCH, lies=(lie, lie, lie), schedule=schedule, asynchronous=asynchronous).c
        for schedule, asynchronous in orders
    ]
    assert compare(results[0], a, b)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "missing",
    [
        "async_copy::wait<AHEAD - 1>();",
        BARRIER % '"r"(1 + place.warp_m), "n"(SLICE_A_THREADS)',
        BARRIER % '"r"(1 + WARPS_M + place.warp_n), "n"(SLICE_B_THREADS)',
    ],
    ids=["copies", "quarter", "half"],
)
def test_no_wait_can_be_left_out(missing: str, tmp_path: Path) -> None:
    a, b = operands(128, 256, 64)
    broken = changed(SPEC, tmp_path, missing, "")
    assert not compare(multiply(broken, a, b, arch=ARCH, schedule="random").c, a, b)


def test_no_barrier_of_the_whole_block() -> None:
    barriers = [line.split() for line in build(SPEC, ARCH).ptx.splitlines() if "bar." in line]
    assert [line[0] for line in barriers] == ["bar.sync", "bar.sync"]
    assert [line[-1] for line in barriers] == ["64;", "128;"]


@pytest.mark.parametrize("lie", [Lie(), Lie(1)])
def test_no_bank_conflicts(lie: Lie, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(128, 256, 24)
    with shared_conflicts(monkeypatch) as counts:
        multiply(SPEC, a, b, arch=ARCH, lies=(lie, lie, lie))
    warps, steps = 8, 3
    reads = 8 * 6  # for each k two pieces of A and four of B
    wide_copies, narrow_copies = (0, 8 + 4) if lie.offset else (2, 4)
    assert counts == {
        16: [warps * steps * (reads + wide_copies), 0],
        4: [warps * steps * narrow_copies, 0],
    }


def test_unpadded_rows_of_b_would_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(128, 256, 8)
    source = SPEC.source
    broken = changed(SPEC, tmp_path, "B_ROW = BLOCK_N + 4;", "B_ROW = BLOCK_N + 8;")
    text = broken.source
    for start in ("static_assert(B_ROW % WARP == 4", "static_assert(sizeof(Tiles)"):
        line = next(line for line in source.splitlines() if line.startswith(start))
        text = text.replace(line, "")
    broken.file.write_text(text, encoding="utf-8")
    with shared_conflicts(monkeypatch) as counts:
        multiply(broken, a, b, arch=ARCH, shared=8 * 4 * 4 * (256 + 136))
    assert counts[4][1] > 0


def test_128_bit_copies_wherever_memory_is_aligned() -> None:
    a, b = operands(128, 256, 8)
    wide = (256 * 8 + 128 * 256) // 4  # the caller's B, and C
    assert multiply(SPEC, a, b, arch=ARCH).accesses == {16: wide, 4: 128 * 8}
    lie = Lie(0, 1)
    assert set(multiply(SPEC, a, b, arch=ARCH, lies=(lie, lie, lie)).accesses) == {4}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_fits_the_register_file(arch: str) -> None:
    binary = build(SPEC, arch)
    resources = binary.entries["warp_tiled"].resources
    assert resources is not None
    assert 128 < resources.registers <= 255
    assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ())


def test_the_launch_transposes_without_a_copy() -> None:
    a = Placed(1 << 8, 300, 70, 71, "float32")
    b = Placed(2 << 8, 70, 500, 501, "float32")
    c = Placed(3 << 8, 300, 500, 502, "float32")
    (step,) = place_steps(SPEC, a, b, c, 0, {})
    assert step.launch.args == (b.matrix(), a.matrix(), c.matrix())
    assert (step.launch.grid, step.launch.block, step.launch.shared) == ((6, 1, 1), (256, 1, 1), 49_664)
