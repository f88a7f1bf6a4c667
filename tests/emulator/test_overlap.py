"""Programmatic launches: one begins before the launch before has ended, and waits for it, or should."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.instruments.checking import Checker

SOURCE = """
extern "C" __global__ void fill(int *x, int value)
{
    asm volatile("griddepcontrol.launch_dependents;");
    x[blockIdx.x * blockDim.x + threadIdx.x] = value + threadIdx.x;
}

extern "C" __global__ void quiet(int *x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value + threadIdx.x; }

// wait: 0 never, 1 every thread, 2 the even threads alone, 3 after a barrier that the second warp comes to late
extern "C" __global__ void twice(const int *x, int *y, int wait)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (wait == 3 && threadIdx.x < 32) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (wait == 3) __syncthreads();
    if (wait == 1 || wait == 3 || wait == 2 && threadIdx.x % 2 == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
    y[i] = 2 * x[i];
}
"""
SIZE = 5 * 64
THREAD = np.arange(SIZE, dtype=np.int32) % 64


def launch(
    order: str | int, wait: int, first: str = "fill", programmatic: bool = True, between: Any = None
) -> npt.NDArray[np.int32]:
    """What the second of two launches makes of what the first one writes over tens."""
    device = tw.device("emulator", order=order)
    x, y = device.array(np.full(SIZE, 10, np.int32)), device.array(np.zeros(SIZE, np.int32))
    tw.Kernel(SOURCE, first, "sm_90")(5, 64, [x, 100], device=device)
    if between is not None:
        between(x)
    tw.Kernel(SOURCE, "twice", "sm_90")(5, 64, [x, y, wait], device=device, programmatic=programmatic)
    assert np.array_equal(x.numpy(), 100 + THREAD if between is None else x.numpy())
    return y.numpy()


@pytest.mark.parametrize("order", ["eager", "late", 1, 2, 3])
@pytest.mark.parametrize("wait", [1, 3])
def test_who_waits_sees_what_the_launch_before_wrote(order: str | int, wait: int) -> None:
    assert np.array_equal(launch(order, wait), 2 * (100 + THREAD))


@pytest.mark.parametrize("order", ["late", 1, 3])
def test_who_does_not_wait_sees_what_was_there_before(order: str | int) -> None:
    assert np.array_equal(launch(order, 0), np.full(SIZE, 20))
    assert np.array_equal(launch(order, 2), np.where(THREAD % 2 == 0, 2 * (100 + THREAD), 20))


@pytest.mark.parametrize(
    ("order", "more"),
    [
        ("eager", {}),
        (2, {}),
        ("late", {"programmatic": False}),
        ("late", {"first": "quiet"}),
    ],
    ids=["eager", "an even seed", "not programmatic", "nobody lets it"],
)
def test_launches_that_do_not_overlap(order: str | int, more: dict[str, Any]) -> None:
    assert np.array_equal(launch(order, 0, **more), 2 * (100 + THREAD))


def test_what_the_host_wrote_between_stays() -> None:
    found = launch("late", 0, between=lambda x: x.fill(np.full(SIZE, 7, np.int32)))
    assert np.array_equal(found, np.full(SIZE, 14))


@pytest.mark.parametrize("order", ["late", 1])
@pytest.mark.parametrize("blocks", [1, 70])
def test_each_of_a_row_of_launches_waits_for_the_one_before(order: str | int, blocks: int) -> None:
    source = """
    extern "C" __global__ void step(int *x, int wait)
    {
        asm volatile("griddepcontrol.launch_dependents;");
        if (wait) asm volatile("griddepcontrol.wait;" ::: "memory");
        x[blockIdx.x * 32 + threadIdx.x] += 1;
    }
    """
    device, kernel = tw.device("emulator", order=order), tw.Kernel(source, "step", "sm_90")
    for wait in (0, 1):
        x = device.array(np.zeros(32 * blocks, np.int32))
        kernel(1, 32, [device.array(np.zeros(32, np.int32)), 1], device=device)
        for _ in range(6):
            kernel(blocks, 32, [x, wait], device=device, programmatic=True)
        assert np.array_equal(x.numpy(), np.full(32 * blocks, 6)) == bool(wait)


@pytest.mark.parametrize("order", ["late", 1, "eager"])
def test_the_checker_names_the_read_that_comes_too_early(order: str | int) -> None:
    device = tw.device("emulator")
    fill, twice = (tw.Kernel(SOURCE, name, "sm_90") for name in ("fill", "twice"))
    for wait in (0, 1, 2, 3):
        x, y = device.array(np.full(SIZE, 10, np.int32)), device.array(np.zeros(SIZE, np.int32))
        first = fill.bind(5, 64, [x, 100], device=device)
        second = twice.bind(5, 64, [x, y, wait], device=device, programmatic=True)
        checker = Checker(order)
        assert checker.check(first.bound) == []
        found = [finding.kind for finding in checker.check(second.bound)]
        assert found == (["early-read"] if wait in (0, 2) and order != "eager" else [])
        assert np.array_equal(x.numpy(), 100 + THREAD)
