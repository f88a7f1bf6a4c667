"""Which warp goes next, on how many threads: what is free of races gives the same bits whatever is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.nothing.test_rungs_simt import sums_in_order
from tests.rungs import Placed, place_steps
from tilewise.devices.emulated import open_emulator
from tilewise.kernels import RUNGS
from tilewise.reference import compare, poisoned

Array = npt.NDArray[Any]
Order = str | int

RANDOM = np.random.default_rng()
SEEDS = [int(seed) for seed in RANDOM.integers(0, 2**40, 4)]
ORDERS: list[Order] = ["eager", "late", *SEEDS]
SIZES = {  # some steps of K, some tiles of C with ragged edges, and no more
    "01_single_thread": (3, 4, 5),
    "02_one_block": (25, 37, 40),
    "03_simple": (33, 50, 40),
    "04_tiled": (70, 40, 80),
    "05_tiled_conflicted": (70, 40, 80),
    "06_tiled_branchless": (70, 40, 80),
    "07_tiled_exact": (32, 48, 64),
    "08_register_tiled": (140, 150, 37),
    "09_warp_tiled": (140, 270, 37),
    "11_parallel_k": (140, 30, 70),
}


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", SIZES)
def test_every_order_and_number_of_threads_gives_the_same_bits(name: str) -> None:
    m, n, k = SIZES[name]
    a, b = floats(m, k), floats(k, n)
    chosen = {"split": 4} if name == "11_parallel_k" else {}  # else threads would choose it
    results = [
        tw.ladder[name](a, b, device=tw.device("emulator", order=order, threads=threads), **chosen)
        for order in ORDERS
        for threads in (1, 2)
    ]
    assert compare(results[0], a, b, terms=4)
    assert len({result.tobytes() for result in results}) == 1


# -- what is not free of them -------------------------------------------------------------------------
BARRIER = "__syncthreads();"


def without_barrier(which: int | None) -> tw.Kernel:
    """Rung 04 with tiles of 16×16, that is 8 warps a block, and one of its two barriers missing."""
    start, middle, end = RUNGS["04_tiled"].source.split(BARRIER)
    first, second = ("" if which == 0 else BARRIER), ("" if which == 1 else BARRIER)
    return tw.Kernel(f"{start}{first}{middle}{second}{end}", "tiled", "sm_75", {"TILE": 16})


def tiled(kernel: tw.Kernel, a: Array, b: Array, order: Order) -> Array:
    device = open_emulator(order, 1)
    left, right = device.array(a), device.array(b)
    out = device.array(poisoned((a.shape[0], b.shape[1]), np.float32))
    placed = (
        Placed(one.ptr, one.shape[0], one.shape[1], one.shape[1], "float32") for one in (left, right, out)
    )
    spec, (place_a, place_b, place_c) = RUNGS["04_tiled"], placed
    (step,) = place_steps(spec, place_a, place_b, place_c, 0, spec.complete({"tile": 16}))
    kernel(step.launch.grid, step.launch.block, step.launch.args, device=device)
    return out.numpy()


@pytest.mark.parametrize("which", [0, 1], ids=["before the sums", "after the sums"])
def test_a_missing_barrier_shows_in_some_order(which: int) -> None:
    a, b = floats(20, 64), floats(64, 20)
    kernel = without_barrier(which)
    results = {order: tiled(kernel, a, b, order) for order in ORDERS}
    assert not all(compare(result, a, b) for result in results.values())
    for order, result in results.items():  # wrong, but the same each time
        assert tiled(kernel, a, b, order).tobytes() == result.tobytes()


def test_with_both_barriers_no_order_shows() -> None:
    a, b = floats(20, 64), floats(64, 20)
    kernel = without_barrier(None)
    for order in ORDERS:
        assert np.array_equal(tiled(kernel, a, b, order), sums_in_order(a, b))


WHO = """
extern "C" __global__ void who(int *first, int *count)
{
    if (threadIdx.x % 32 == 0)
        first[blockIdx.x * (blockDim.x / 32) + atomicAdd(&count[blockIdx.x], 1)] = threadIdx.x / 32;
}
"""


def test_orders_are_what_they_say() -> None:
    """The warps of a block of eight, as they come to an atomic counter."""
    kernel = tw.Kernel(WHO, "who", "sm_75")

    def came(order: Order) -> Array:
        first, count = np.full((3, 8), -1, np.int32), np.zeros(3, np.int32)
        kernel(3, 256, [first, count], device=open_emulator(order, 1))
        assert np.array_equal(np.sort(first), np.tile(np.arange(8), (3, 1)))
        return first

    assert np.array_equal(came("eager"), np.tile(np.arange(8), (3, 1)))
    assert np.array_equal(came("late"), np.tile(np.arange(8)[::-1], (3, 1)))
    seeded = {seed: came(seed) for seed in range(6)}
    assert len({found.tobytes() for found in seeded.values()}) > 1
    assert all(np.array_equal(came(seed), found) for seed, found in seeded.items())
