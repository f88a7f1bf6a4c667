"""Kernels compute as a GPU does, however the caller's thread has floats rounded."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator.running import workers

SOURCE = """
extern "C" __global__ void scale(const float *x, float *y, const unsigned short *h)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float half;
    asm("cvt.f32.f16 %0, %1;" : "=f"(half) : "h"(h[i]));
    y[i] = x[i] * 1.1f + half;
}
"""
TONEAREST = 0
UPWARD = {"x86_64": 0x800, "amd64": 0x800, "aarch64": 0x400000, "arm64": 0x400000}.get(
    platform.machine().lower()
)
RANDOM = np.random.default_rng()


@pytest.fixture
def upward() -> Iterator[ctypes.CDLL]:
    """What tells how this thread rounds, which is upward, and starts new workers, who do so too."""
    library = ctypes.CDLL(None)
    if UPWARD is None or not hasattr(library, "fesetround"):
        pytest.skip("no fesetround here")
    idle = list(workers._IDLE)
    workers._IDLE.clear()
    library.fesetround(UPWARD)
    try:
        yield library
    finally:
        library.fesetround(TONEAREST)
        workers._IDLE.clear()
        workers._IDLE.extend(idle)


@pytest.mark.parametrize("blocks", [1, 12])
def test_the_callers_rounding_is_not_the_kernels_and_stays(upward: ctypes.CDLL, blocks: int) -> None:
    """On the caller's thread, and on those that are started for many blocks."""
    x = RANDOM.standard_normal(blocks * 64).astype(np.float32)
    half = (RANDOM.standard_normal(x.size) * 2.0**-16).astype(np.float16)
    y = np.zeros_like(x)
    tw.Kernel(SOURCE, "scale", "sm_90")(blocks, 64, [x, y, half.view(np.uint16)], device="emulator")
    assert upward.fegetround() == UPWARD
    upward.fesetround(TONEAREST)
    wanted = (x.astype(np.float64) * np.float32(1.1) + half.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(y, wanted)


def test_tiny_numbers_are_not_flushed_where_the_caller_has_them_flushed() -> None:
    torch = pytest.importorskip("torch")
    x = np.full(12 * 64, 2.0**-140, np.float32)
    y, half = np.zeros_like(x), np.full(x.size, 2.0**-24, np.float16)
    kernel = tw.Kernel(SOURCE.replace("* 1.1f", "* 1.0f"), "scale", "sm_90")
    idle = list(workers._IDLE)
    workers._IDLE.clear()
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush")
    try:
        kernel(12, 64, [x, y, np.zeros(x.size, np.uint16)], device="emulator")
        alone = np.zeros_like(half, np.float32)
        kernel(12, 64, [np.zeros_like(x), alone, half.view(np.uint16)], device="emulator")
    finally:
        torch.set_flush_denormal(False)
        workers._IDLE.clear()
        workers._IDLE.extend(idle)
    assert (y == np.float32(2.0**-140)).all() and (alone == np.float32(2.0**-24)).all()
