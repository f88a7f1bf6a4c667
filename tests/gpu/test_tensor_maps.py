"""Tensor maps on a GPU: the driver takes what we take, and copies do what the model says; reductions and
conversions give the emulator's bits."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tilewise as tw
from tests.tensor_cases import Case, boxes, images, run_load, run_store
from tests.tensor_kernels import OPERATIONS, kernel
from tilewise.devices import gpu
from tilewise.devices.tensor_map import ELEMENTS
from tilewise.errors import ArgumentError, DeviceError, KernelFault

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Any:
    return gpu.open(0)


def test_the_driver_takes_what_we_take(device: Any) -> None:
    """Of maps with one thing wrong or nothing, we refuse those that the driver refuses."""
    base = device.array(np.zeros(1 << 16, np.uint8)).ptr
    draw = random.Random()
    taken = 0
    for _ in range(3_000):
        rank = draw.randint(1, 5)
        dtype = draw.choice(list(ELEMENTS))
        how: dict[str, Any] = {
            "dtype": dtype,
            "shape": tuple(draw.choice([1, 5, 64, 2**32]) for _ in range(rank)),
            "strides": tuple(draw.choice([0, 16, 48, 4096, 2**40 - 16]) for _ in range(rank - 1)),
            "swizzle": draw.choice([None, 32, 64, 128]),
            "fill": draw.choice(["zero", "nan"] if ELEMENTS[dtype].floating else ["zero"]),
            "l2_promotion": draw.choice([None, 64, 128, 256]),
        }
        if rank >= 3 and draw.random() < 0.5:
            how |= {
                "lower": tuple(draw.randint(-3, 3) for _ in range(rank - 2)),
                "upper": tuple(draw.randint(-3, 3) for _ in range(rank - 2)),
                "channels": draw.choice([4, 8, 16, 32]),
                "pixels": draw.choice([1, 64, 1024]),
            }
        else:
            how["box"] = (
                *(draw.choice([1, 2, 3, 7, 8]) for _ in range(rank - 1)),
                draw.choice([8, 16, 32, 64]),
            )
        made = tw.TensorMap.im2col if "lower" in how else tw.TensorMap
        try:
            map_ = made(base, **how)
        except ArgumentError:
            continue
        map_.encode(device)
        taken += 1
    assert taken > 300


@given(case=boxes())
@settings(max_examples=150, deadline=None)
def test_a_box_is_loaded(device: Any, case: Case) -> None:
    run_load(case, device)


@given(case=boxes(stores=True))
@settings(max_examples=100, deadline=None)
def test_a_box_is_stored(device: Any, case: Case) -> None:
    run_store(case, device)


@given(case=images())
@settings(max_examples=100, deadline=None)
def test_pixels_are_gathered(device: Any, case: Case) -> None:
    run_load(case, device)


@given(case=images(stores=True))
@settings(max_examples=30, deadline=None)
def test_pixels_are_put_back(device: Any, case: Case) -> None:
    run_store(case, device)


def _reduced(device: Any, dtype: str, operation: str, old: Any, new: Any) -> Any:
    """Two rows of a tensor after a reduction of a box that reaches over its end."""
    size = ELEMENTS[dtype].size
    x = device.array(old)
    made = tw.TensorMap(x.ptr, (2, 256 // size), dtype=dtype, shape=(2, 256 // size), strides=(256,))
    numbers = np.array([2 + 20 + 10 * OPERATIONS.index(operation), 0, 0, 512, *[0] * 8], np.int32)
    kernel("store")(
        1, 32, [made, device.array(numbers), device.array(new)], shared=512, device=device, timeout=20
    )
    return x.numpy()


WORKS = {
    "add": "uint32 int32 uint64 float16 bfloat16 float32 float32_ftz tfloat32 float64",
    "min": "uint32 int32 uint64 int64 float16 bfloat16",
    "max": "uint32 int32 uint64 int64 float16 bfloat16",
    "inc": "uint32",
    "dec": "uint32",
    "and": "uint32 int32 uint64",
    "or": "uint32 int32 uint64",
    "xor": "uint32 int32 uint64",
}


def test_reductions_give_the_emulator_s_bits(device: Any) -> None:
    rng = np.random.default_rng()
    emulator = tw.device("emulator")
    for operation, dtypes in WORKS.items():
        for dtype in dtypes.split():
            pairs = [rng.integers(0, 256, 512, np.uint8) for _ in range(2)]
            for array in pairs:  # some that are equal, and some NaN, infinite and subnormal
                array[: 8 * 8].view(np.uint64)[:] = [
                    0,
                    2**64 - 1,
                    0x7FF0_7FF0_7F80_7C00,
                    0x8000_8000_8000_8001,
                    1,
                    2,
                    3,
                    4,
                ]
            found, wanted = (_reduced(d, dtype, operation, *pairs) for d in (device, emulator))
            assert found.tobytes() == wanted.tobytes(), (operation, dtype)


def test_what_there_is_not_is_a_fault_on_the_emulator() -> None:
    emulator = tw.device("emulator")
    for operation, dtype in itertools.product(OPERATIONS, ELEMENTS):
        if dtype not in WORKS[operation].split() and dtype not in ("tfloat32_ftz", "int64"):
            with pytest.raises(KernelFault, match="none that its element type has"):
                _reduced(emulator, dtype, operation, np.zeros(512, np.uint8), np.zeros(512, np.uint8))


def test_a_wrong_device_is_refused(device: Any) -> None:
    with pytest.raises((ArgumentError, DeviceError)):
        tw.TensorMap(8, (1, 4), shape=(4, 4), dtype="float32", strides=(16,)).encode(device)
