"""Rung 12 on the emulator: every partition, element and result type, ragged shapes, every order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import Framed, marked
from tests.harness.checked import check_product
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArchError, ArgumentError
from tilewise.interop import numpy_dtype
from tilewise.kernels.ladder.rung_12_multistage import PARTITIONS
from tilewise.reference import compare

RANDOM = np.random.default_rng()
SEED = int(RANDOM.integers(2**40))
DEVICE = open_emulator()
ORDERS = ("eager", "late", SEED)
SMALL = "64x64x32"
RUNG = tw.ladder["12_multistage"]
Array = npt.NDArray[Any]


def operands(m: int, n: int, k: int, element: str) -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    return a, b


def multiply(a: Array, b: Array, order: str | int = "eager", **chosen: str | int) -> Array:
    product: Array = RUNG(a, b, device=tw.device("emulator", order=order), **chosen)
    return product


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("partition", "element", "result", "stages"),
    [
        ("64x64x32", "float16", "float16", 4),
        ("64x64x32", "bfloat16", "float32", 3),
        ("64x64x32", "bfloat16", "bfloat16", 4),
        ("128x128x32", "bfloat16", "bfloat16", 3),
        ("128x256x32", "float16", "float32", 4),
    ],
)
def test_every_partition_in_every_order(partition: str, element: str, result: str, stages: int) -> None:
    """More than one block each way, edges within a tile, and the bits of one order in all of them."""
    tile = PARTITIONS[partition]
    m, n = (int(RANDOM.integers(size + 1, size + 60)) for size in (tile.block_m, tile.block_n))
    k = int(RANDOM.integers(32 * stages, 32 * (stages + 3)))  # so that every slot of the ring is used again
    a, b = operands(m, n, k, element)
    how: dict[str, Any] = {"partition": partition, "result": result, "stages": stages}
    results = [multiply(a, b, order, **how) for order in ORDERS]
    assert results[0].dtype == numpy_dtype(result)
    assert compare(results[0], a, b), (m, n, k)
    assert len({item.tobytes() for item in results}) == 1, SEED


EDGES = st.sampled_from((1, 2, 7, 8, 31, 32, 33, 63, 64, 65))
GAPS = st.tuples(*[st.sampled_from((0, 0, 1, 2, 4, 8))] * 6)


@settings(max_examples=30, deadline=None)
@given(
    m=EDGES | st.integers(1, 70),
    n=EDGES | st.integers(1, 140),
    k=EDGES | st.integers(0, 200),
    gaps=GAPS,
    element=st.sampled_from(("float16", "bfloat16")),
)
def test_any_size_and_any_lie(m: int, n: int, k: int, gaps: tuple[int, ...], element: str) -> None:
    """Rows aligned for 16 bytes, for 4 and for 2; one stray read spoils a sum, one stray write shows."""
    a, b = operands(m, n, k, element)
    left, right = Framed(DEVICE, a, *gaps[:2]), Framed(DEVICE, b, *gaps[2:4])
    out = Framed(DEVICE, marked((m, n), str(a.dtype)), *gaps[4:])
    RUNG(left.part, right.part, out=out.part, partition=SMALL)
    assert compare(out.taken(), a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["late", pytest.param(SEED, id="seed")])
def test_checks_find_nothing(order: str | int) -> None:
    """No race, no read of what is still on its way, nothing read that nobody wrote."""
    for gap in (0, 1):
        a, b = operands(100, 90 + gap, 300 + gap, "float16")
        product, findings = check_product(RUNG.name, a, b, order, partition=SMALL, stages=3)
        assert compare(product, a, b)
        assert findings == []


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_small_integers_are_exact(element: str) -> None:
    m, n, k = (int(size) for size in RANDOM.integers(1, 100, 3))
    a, b = (RANDOM.integers(-3, 4, shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (multiply(a, b, partition=SMALL, result="float32", stages=3) == exact).all(), (m, n, k)


def test_a_value_that_is_not_finite_spoils_its_own_sums_alone() -> None:
    a, b = np.ones((5, 33), np.float16), np.ones((33, 7), np.float16)
    a[2, 0] = np.inf
    b[32, 3] = np.nan
    wanted = np.full((5, 7), 33, np.float16)
    wanted[2] = np.inf
    wanted[:, 3] = np.nan
    np.testing.assert_array_equal(multiply(a, b, partition=SMALL), wanted)


def test_the_result_has_the_operands_type_unless_asked_for_otherwise() -> None:
    a, b = operands(3, 4, 5, "bfloat16")
    assert multiply(a, b, partition=SMALL).dtype == np.dtype(ml_dtypes.bfloat16)
    assert multiply(a, b, partition=SMALL, result="float32").dtype == np.float32
    with pytest.raises(ArgumentError, match=r"^a must have elements of type float16 or bfloat16 for"):
        multiply(a.astype(np.float32), b.astype(np.float32))
    with pytest.raises(ArgumentError, match=r"^result must be one of"):
        multiply(a, b, result="float64")
    with pytest.raises(ArchError, match="needs sm_80 or newer, not sm_75"):
        RUNG.kernel("sm_75")
