"""Rung 10 on the emulator: every partition, both types of sums and results, ragged shapes, every order."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.kernels.ladder.rung_10_turing_tensor_core import PARTITIONS
from tilewise.reference import compare

NAME = "10_turing_tensor_core"
RANDOM = np.random.default_rng()
SEED = int(RANDOM.integers(2**40))
Array = npt.NDArray[np.float16]


def multiply(
    a: Array, b: Array, partition: str, accumulate: str, result: str, order: str | int = "eager"
) -> npt.NDArray[np.generic]:
    product: npt.NDArray[np.generic] = tw.ladder[NAME](
        a,
        b,
        device=tw.device("emulator", order=order),
        partition=partition,
        accumulate=accumulate,
        result=result,
    )
    return product


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_partition_in_every_order(partition: str) -> None:
    """More than one block each way, edges within a tile, and the bits of one order in all of them."""
    block_m, block_n = PARTITIONS[partition].block_m, PARTITIONS[partition].block_n
    types = list(itertools.product(("float32", "float16"), ("float32", "float16")))
    # The largest partitions take longest to compile: one pair of types is enough for each.
    chosen = {"128x256x32": types[:1], "128x128x32": types[-1:]}.get(partition, types)
    for accumulate, result in chosen:
        m, n, k = (int(RANDOM.integers(size + 1, size + 60)) for size in (block_m, block_n, 32))
        a = (RANDOM.standard_normal((m, k)) / 4).astype(np.float16)
        b = (RANDOM.standard_normal((k, n)) / 4).astype(np.float16)
        results = [multiply(a, b, partition, accumulate, result, order) for order in ("eager", "late", SEED)]
        assert results[0].dtype == np.dtype(result)
        assert compare(results[0], a, b, accumulate=accumulate), (m, n, k, accumulate, result)
        assert len({item.tobytes() for item in results}) == 1, SEED


@pytest.mark.parametrize("accumulate", ["float32", "float16"])
def test_small_integers_are_exact(accumulate: str) -> None:
    """Sums in float16 too: whatever the order, no partial sum needs more digits than it has."""
    m, n, k = (int(size) for size in RANDOM.integers(1, 100, 3))
    a, b = (RANDOM.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (multiply(a, b, "64x64x32", accumulate, "float32") == exact).all(), (m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (64, 64, 32), (65, 1, 33), (3, 129, 8), (17, 40, 0)])
def test_shapes_at_the_edges_of_tiles(m: int, n: int, k: int) -> None:
    a = RANDOM.standard_normal((m, k)).astype(np.float16)
    b = RANDOM.standard_normal((k, n)).astype(np.float16)
    assert compare(multiply(a, b, "64x64x32", "float32", "float32"), a, b)
