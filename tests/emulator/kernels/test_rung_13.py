"""Rung 13 on the emulator: every partition, with clusters and without, ragged shapes, every order."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import Framed, marked
from tests.harness.checked import check_product
from tests.rungs import changed
from tests.thorough import examples
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError, Deadlock, KernelFault
from tilewise.interop import numpy_dtype
from tilewise.kernels.ladder.rung_13_warp_specialised import BLOCK_N, SPEC
from tilewise.ladder import Rung
from tilewise.reference import compare

RANDOM = np.random.default_rng()
SEED = int(RANDOM.integers(2**40))
DEVICE = open_emulator()
ORDERS = ("eager", "late", SEED)
SMALL = "128x128x64"
RUNG = tw.ladder["13_warp_specialised"]
Array = npt.NDArray[Any]


def operands(m: int, n: int, k: int, element: str) -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    return a, b


def multiply(a: Array, b: Array, order: str | int = "eager", **chosen: str | int) -> Array:
    product: Array = RUNG(a, b, device=tw.device("emulator", order=order), **chosen)
    return product


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("partition", "cluster", "element", "result"),
    [
        ("128x128x64", 1, "float16", "float16"),
        ("128x128x64", 2, "bfloat16", "float32"),
        ("128x256x64", 1, "bfloat16", "bfloat16"),
        ("128x256x64", 2, "float16", "float32"),
    ],
)
def test_every_partition_in_every_order(partition: str, cluster: int, element: str, result: str) -> None:
    """More than one block each way, edges within a tile, and the bits of one order in all of them."""
    m, n = (int(RANDOM.integers(size + 1, size + 60)) for size in (128, BLOCK_N[partition]))
    k = int(RANDOM.integers(64 * 6, 64 * 8))  # so that slots of the ring are used again
    a, b = operands(m, n, k, element)
    how: dict[str, Any] = {"partition": partition, "cluster": cluster, "result": result, "tiles": 2}
    results = [multiply(a, b, order, **how) for order in ORDERS]
    assert results[0].dtype == numpy_dtype(result)
    assert compare(results[0], a, b), (m, n, k)
    assert len({item.tobytes() for item in results}) == 1, SEED


def broken_rung(folder: Path, old: str, new: str) -> Rung:
    return Rung(changed(SPEC, folder, old, new))


EDGES = st.sampled_from((1, 2, 8, 63, 64, 65, 127, 128, 129))
GAPS = st.tuples(*[st.sampled_from((0, 0, 1, 4, 8))] * 6)


@examples(7, 15)
@given(
    m=EDGES | st.integers(1, 300),
    n=EDGES | st.integers(1, 200),
    k=EDGES | st.integers(0, 200),
    gaps=GAPS,
    element=st.sampled_from(("float16", "bfloat16")),
    cluster=st.sampled_from((1, 2)),
    tiles=st.integers(1, 4),
)
def test_any_size_and_any_lie(
    m: int, n: int, k: int, gaps: tuple[int, ...], element: str, cluster: int, tiles: int
) -> None:
    """Rows that the copy engine reads as they lie, and rows that are copied first; NaN all around."""
    a, b = operands(m, n, k, element)
    left, right = Framed(DEVICE, a, *gaps[:2]), Framed(DEVICE, b, *gaps[2:4])
    out = Framed(DEVICE, marked((m, n), str(a.dtype)), *gaps[4:])
    RUNG(left.part, right.part, out=out.part, partition=SMALL, cluster=cluster, tiles=tiles)
    assert compare(out.taken(), a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "missing",
    [
        "shared.ring.wait_until_full(turn);",
        "shared.ring.wait_until_empty(turn);",
        "        wgmma::wait<1>();",
        "    wgmma::wait<0>();\n",
        "        wait_for_warpgroup(group);\n        if (storing && whole)",
    ],
)
def test_no_wait_can_be_left_out(missing: str, tmp_path: Path) -> None:
    """What is awaited has not happened yet where the order is late, or a barrier counts too many."""
    a, b = operands(256, 128, 704, "float16")
    broken = broken_rung(tmp_path, missing, "if (storing && whole)" if "storing" in missing else "")
    with contextlib.suppress(KernelFault):
        assert not compare(broken(a, b, device=tw.device("emulator", order="late"), partition=SMALL), a, b)


def test_a_barrier_that_waits_for_too_many_stops_the_kernel(tmp_path: Path) -> None:
    a, b = operands(256, 128, 704, "float16")
    broken = broken_rung(tmp_path, "(WARPGROUP / WARP) * CLUSTER);", "(WARPGROUP / WARP) * CLUSTER + 1);")
    with pytest.raises(Deadlock, match="no block gets on"):
        broken(a, b, device="emulator", partition=SMALL)


@pytest.mark.parametrize("order", ["late", pytest.param(SEED, id="seed")])
def test_checks_find_nothing(order: str | int) -> None:
    """No race, no copy to a stage still in use, nothing for the engine that was not fenced."""
    for result in ("float16", "float32"):
        a, b = operands(300, 136, 520, "float16")
        product, findings = check_product(RUNG.name, a, b, order, partition=SMALL, result=result, tiles=3)
        assert compare(product, a, b)
        assert findings == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "missing", ["if (whole) tensor_copy::fence_stores();", "if (storing) tensor_copy::wait_until_read<1>();"]
)
def test_checks_find_what_results_need_not_show(missing: str, tmp_path: Path) -> None:
    a, b = operands(512, 128, 100, "float16")
    broken = broken_rung(tmp_path, missing, "").spec
    _, findings = check_product(broken, a, b, partition=SMALL, tiles=2)
    assert {finding.tool for finding in findings} == {"asyncheck"}


@pytest.mark.few(3)
@pytest.mark.parametrize("result", ["float16", "float32"])
@pytest.mark.parametrize("m", [1, 2])
def test_nothing_is_written_beyond_rows_that_end_within_16_bytes(m: int, result: str) -> None:
    """The rows begin as the copy engine wants them, but it would write their last 16 bytes whole."""
    for n in (63, 61, 125):
        a, b = operands(m, n, 20, "float16")
        out = Framed(DEVICE, marked((m, n), result), 0, -n % 8)
        left, right = DEVICE.array(a), DEVICE.array(b)
        RUNG(left, right, out=out.part, partition=SMALL, result=result)
        assert compare(out.taken(), a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_small_integers_are_exact(element: str) -> None:
    m, n, k = (int(size) for size in RANDOM.integers(1, 200, 3))
    a, b = (RANDOM.integers(-3, 4, shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (multiply(a, b, partition=SMALL, result="float32") == exact).all(), (m, n, k)


def test_a_value_that_is_not_finite_spoils_its_own_sums_alone() -> None:
    a, b = np.ones((5, 65), np.float16), np.ones((65, 7), np.float16)
    a[2, 0] = np.inf
    b[64, 3] = np.nan
    wanted = np.full((5, 7), 65, np.float16)
    wanted[2] = np.inf
    wanted[:, 3] = np.nan
    np.testing.assert_array_equal(multiply(a, b, partition=SMALL), wanted)


def test_nothing_to_add_or_nothing_to_write() -> None:
    for m, n, k in ((16, 32, 0), (0, 32, 16), (16, 0, 16), (0, 0, 0)):
        for result in ("float16", "float32"):
            c = multiply(np.ones((m, k), np.float16), np.ones((k, n), np.float16), result=result)
            assert (c.shape, bool(c.any())) == ((m, n), False)


def test_wrong_arguments() -> None:
    a, b = operands(3, 4, 5, "float16")
    with pytest.raises(ArgumentError, match=r"^a must have elements of type float16 or bfloat16 for"):
        multiply(a.astype(np.float32), b.astype(np.float32))
    with pytest.raises(ArgumentError, match=r"^cluster must be one of 2, 1"):
        multiply(a, b, cluster=4)
