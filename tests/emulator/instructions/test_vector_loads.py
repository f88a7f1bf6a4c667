"""Loads and stores of one to four elements a lane: at places that only the run knows, and side by side."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tilewise as tw

LANES = 32
BLOCKS = 8  # that all do the same: the first one of each thread goes the careful way
PLACES = {
    "side by side": np.arange(LANES),
    "further on": np.arange(LANES) + 5,
    "one elsewhere": np.where(np.arange(LANES) == 17, 3, np.arange(LANES)),
    "the last one elsewhere": np.where(np.arange(LANES) == 31, 30, np.arange(LANES)),
    "backwards": np.arange(LANES)[::-1],
    "every second one": 2 * np.arange(LANES),
    "all at one": np.full(LANES, 7),
}
RUNNING = {
    "true": np.full(LANES, True),
    "threadIdx.x != 9": np.arange(LANES) != 9,
    "threadIdx.x < 31": np.arange(LANES) < 31,
}


@functools.cache
def kernel(element: str, threads: str) -> tw.Kernel:
    source = f"""
    extern "C" __global__ void move({element} *to, {element} *beside, const {element} *from, const int *reads,
                                   const int *writes)
    {{
        const {element} *place = from + reads[threadIdx.x];
        asm volatile("mov.u64 %0, %0;" : "+l"(place)); // of every lane, whether it runs or not
        if ({threads}) to[writes[threadIdx.x]] = beside[threadIdx.x] = *place;
    }}"""
    return tw.Kernel(source, "move", "sm_90")


@pytest.mark.few(4)
@pytest.mark.parametrize("threads", RUNNING)
@pytest.mark.parametrize(
    ("element", "dtype", "each"),
    [
        ("int", "int32", 1),
        ("float2", "float32", 2),
        ("float4", "float32", 4),
        ("uint4", "uint32", 4),
        ("ushort4", "uint16", 4),
        ("double2", "float64", 2),
        ("uchar4", "uint8", 4),
    ],
)
def test_each_lane_has_its_own(element: str, dtype: str, each: int, threads: str) -> None:
    """The arrays end where the highest lane's elements do: nothing beyond is touched, nor what no lane writes."""
    random = np.random.default_rng(1)
    running = RUNNING[threads]
    for reads in PLACES.values():
        for writes in PLACES.values():
            source = random.integers(0, 200, (reads.max() + 1, each)).astype(dtype)
            target = random.integers(0, 200, (writes.max() + 1, each)).astype(dtype)
            wanted = target.copy()
            wanted[writes[running]] = source[reads[running]]
            lists = [np.ascontiguousarray(places, np.int32) for places in (reads, writes)]
            beside = np.zeros((LANES, each), dtype)
            arrays = [target, beside, source, *lists]
            kernel(element, threads)(BLOCKS, LANES, arrays, device="emulator")
            np.testing.assert_array_equal(target, wanted)
            np.testing.assert_array_equal(beside, np.where(running[:, None], source[reads], 0))
