"""Tensor maps on a GPU: the driver takes what we take, and copies do what the model says; reductions and
conversions give the emulator's bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tilewise as tw
from tests.tensor_cases import Case, boxes, images, run_load, run_store
from tests.tensor_kernels import REDUCTIONS, reduced
from tilewise.devices import gpu
from tilewise.devices.tensor_map import ELEMENTS
from tilewise.errors import ArgumentError, DeviceError

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


def test_reductions_give_the_emulator_s_bits(device: Any) -> None:
    rng = np.random.default_rng()
    emulator = tw.device("emulator")
    for operation, dtypes in REDUCTIONS.items():
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
            found, wanted = (reduced(d, dtype, operation, *pairs) for d in (device, emulator))
            assert found.tobytes() == wanted.tobytes(), (operation, dtype)


def test_a_wrong_device_is_refused(device: Any) -> None:
    with pytest.raises((ArgumentError, DeviceError)):
        tw.TensorMap(8, (1, 4), shape=(4, 4), dtype="float32", strides=(16,)).encode(device)


def test_a_tensor_is_described_where_it_lies(device: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(256, 64, dtype=torch.float16, device="cuda")[::2]
    made = tw.TensorMap(tensor, (16, 32))
    by_address = tw.TensorMap(tensor.data_ptr(), (16, 32), dtype="float16", shape=(128, 64), strides=(256,))
    assert made.encode(device) == by_address.encode(device)
