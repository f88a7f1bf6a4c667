"""Which block starts next, which warp goes next, on how many threads: what is free of races gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.nothing.test_rungs_simt import sums_in_order
from tests.rungs import Placed, place_steps
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.running.block_order import MOST_PERMUTED, count_interleaved, order_clusters
from tilewise.kernels import RUNGS
from tilewise.reference import compare, poisoned

Array = npt.NDArray[Any]
Order = str | int

RANDOM = np.random.default_rng()
SEEDS = [
    int(seed) for seed in RANDOM.integers(0, 2**40, 4)
]  # NOTE: fresh in each run, so no name of a test may have one
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


@pytest.mark.few("05_tiled_conflicted", "03_simple", "08_register_tiled")
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


# -- blocks -------------------------------------------------------------------------------------------
TICKETS = """
extern "C" __global__ void tickets(int *owner, int *count, int barriers)
{
    for (int i = 0; i < barriers; i++) __syncthreads();
    if (threadIdx.x == 0) owner[atomicAdd(count, 1)] = blockIdx.x + gridDim.x * blockIdx.y;
}
"""


def take_tickets(
    order: Order, grid: tuple[int, int], cluster: int | None = None, barriers: int = 0
) -> list[int]:
    """The number of the block that drew each ticket."""
    kernel = tw.Kernel(TICKETS, "tickets", "sm_90")
    owner, count = np.full(grid[0] * grid[1], -1, np.int32), np.zeros(1, np.int32)
    kernel(grid, 64, [owner, count, barriers], cluster=cluster, device=open_emulator(order, 1))
    return [int(block) for block in owner]


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (7, 1), (5, 8), (3, 50)])
def test_every_order_runs_every_block_once(grid: tuple[int, int]) -> None:
    blocks = list(range(grid[0] * grid[1]))
    assert take_tickets("eager", grid) == blocks
    assert take_tickets("late", grid) == blocks[::-1]
    for seed in SEEDS:
        for barriers in (0, 3):
            drawn = take_tickets(seed, grid, barriers=barriers)
            assert sorted(drawn) == blocks
            assert drawn == take_tickets(seed, grid, barriers=barriers)
    if len(blocks) > 6:  # 7! to one against equal ones
        assert len({tuple(take_tickets(seed, grid)) for seed in range(8)}) == 8


@pytest.mark.parametrize("order", ["late", *range(6)])
def test_the_blocks_of_a_cluster_stay_together(order: Order) -> None:
    drawn = take_tickets(order, (8, 3), cluster=4)
    assert sorted(drawn) == list(range(24))
    assert all(len({block // 4 for block in drawn[at : at + 4]}) == 1 for at in range(0, 24, 4))


MEET = """
extern "C" __global__ void meet(volatile int *came, int *passed, int *order)
{
    atomicAdd((int *)came, 1);
    while (*came < gridDim.x) {}
    order[atomicAdd(passed, 1)] = blockIdx.x;
}
"""


@pytest.mark.parametrize(("order", "passed"), [("eager", [5, 0, 1, 2, 3, 4]), ("late", [0, 5, 4, 3, 2, 1])])
def test_blocks_that_wait_for_the_last_one_go_on_in_their_order(order: Order, passed: list[int]) -> None:
    """The last one that starts meets all; of the others that goes next which started first."""
    one, two, found = (np.zeros(size, np.int32) for size in (1, 1, 6))
    tw.Kernel(MEET, "meet", "sm_90")(6, 1, [one, two, found], device=open_emulator(order, 1))
    assert found.tolist() == passed


LAST = """
extern "C" __global__ void last(int *parts, int *count, int *out, int careless)
{
    if (threadIdx.x) return;
    parts[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    if (atomicAdd(count, 1) != gridDim.x - 1) return;
    if (blockIdx.x != careless) __threadfence();
    int sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += parts[i];
    *out = sum;
}
"""


def findings_of_last(blocks: int, careless: int, order: Order) -> list[str]:
    arrays = [np.zeros(blocks, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    found = tw.Kernel(LAST, "last", "sm_80").check(blocks, 32, [*arrays, careless], order=order)
    assert arrays[2] == blocks * (blocks + 1) // 2
    return [finding.kind for finding in found]


@pytest.mark.parametrize("blocks", [2, 5, 40])
def test_a_fence_that_only_the_first_block_lacks_shows_in_some_of_six_seeds(blocks: int) -> None:
    first = int(RANDOM.integers(0, 1000))
    found = {seed: findings_of_last(blocks, 0, seed) for seed in range(first, first + 6)}
    assert ["read-write"] in found.values(), found
    assert findings_of_last(blocks, 0, "late") == ["read-write"]
    assert findings_of_last(blocks, -1, first) == []


UPDATE = """
extern "C" __global__ void update(int *count)
{
    int before = *(volatile int *)count;
    __syncthreads();
    if (threadIdx.x == 0) *(volatile int *)count = before + 1;
}
"""


def test_blocks_take_turns_in_odd_seeds() -> None:
    """An update that other blocks can come between."""
    kernel = tw.Kernel(UPDATE, "update", "sm_80")
    lost = {}
    for seed in range(8):
        count = np.zeros(1, np.int32)
        kernel(16, 64, [count], device=open_emulator(seed, 1))
        lost[seed] = int(count[0]) < 16
    assert lost == {seed: seed % 2 == 1 for seed in range(8)}


CHAIN = """
extern "C" __global__ void chain(volatile int *flag, int *sum, int step)
{
    if (threadIdx.x) return;
    int block = blockIdx.x, before = block - step;
    bool waits = before >= 0 && before < gridDim.x;
    if (waits) { while (!flag[before]); __threadfence(); }
    sum[block] = (waits ? sum[before] : 0) + block;
    __threadfence();
    flag[block] = 1;
}
"""


@pytest.mark.few("700-3-eager", "700-3-late", "700-3-seed 0", "6000-1-seed 1")
@pytest.mark.parametrize("order", ORDERS, ids=["eager", "late", *(f"seed {i}" for i in range(len(SEEDS)))])
@pytest.mark.parametrize(("blocks", "step"), [(6000, 1), (200, -1), (700, 3)])
def test_blocks_that_wait_for_one_another_get_on_in_every_order(order: Order, blocks: int, step: int) -> None:
    """For the one before, which no order may keep from starting; in a grid that is resident, for the one behind."""
    flag, total = np.zeros(blocks, np.int32), np.zeros(blocks, np.int32)
    kernel = tw.Kernel(CHAIN, "chain", "sm_80")
    kernel(blocks, 32, [flag, total, step], device=open_emulator(order, 1), timeout=60)
    expected = np.zeros(blocks, np.int64)
    for block in range(blocks)[:: 1 if step > 0 else -1]:
        before = block - step
        expected[block] = block + (expected[before] if 0 <= before < blocks else 0)
    assert np.array_equal(total, expected.astype(np.int32))


@pytest.mark.parametrize("text", ["3", " 3", "+3"])
def test_a_seed_may_be_a_text(text: str) -> None:
    assert tw.device(order=text) is tw.device(order=3)
    assert open_emulator(order=text).order == 3 and open_emulator(order="-12").order == -12


@pytest.mark.parametrize("text", ["early", "", "3.5", "٣", "9" * 5000])
def test_other_texts_are_no_seeds(text: str) -> None:
    with pytest.raises(tw.TilewiseError, match=r"order '.* is not known"):
        tw.device(order=text)


def test_the_order_of_clusters_is_as_it_says() -> None:
    """Each once; the last first, or drawn, with cluster 0 last for a seed that 4 divides; odd seeds take turns."""
    assert (
        order_clusters("eager", 9)
        is order_clusters("late", 1)
        is order_clusters(4, MOST_PERMUTED + 1)
        is None
    )
    late = order_clusters("late", 9)
    assert late is not None and late.tolist() == [*range(8, -1, -1)]
    firsts: dict[int, set[int]] = {}
    for seed in range(80):
        drawn = order_clusters(seed, 9)
        assert drawn is not None and sorted(drawn.tolist()) == [*range(9)]
        firsts.setdefault(seed % 4, set()).add(int(drawn[-1]))
    assert firsts[0] == {0} and all(len(firsts[rest]) > 3 for rest in (1, 2, 3))
    most = order_clusters(1, MOST_PERMUTED)
    assert most is not None and len(most) == MOST_PERMUTED
    assert [count_interleaved(order, 20) for order in ("eager", "late", 0, 6)] == [1] * 4
    assert {count_interleaved(seed, 20) for seed in range(1, 99, 2)} == {2, 3, 4, 6, 8}
    assert {count_interleaved(seed, 3) for seed in range(1, 99, 2)} == {2, 3}
