"""A product as benchmarks time it: on a device that pretends, and by a clock that stands still but for launches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fake_device import FakeDevice
from tilewise.bench import product as module
from tilewise.bench.product import Product, WrongResult, fresh_seed, random_operands
from tilewise.kernels import RUNGS


@pytest.mark.parametrize("element", ["float32", "bfloat16", "float64"])
def test_operands_are_normal_numbers_of_their_seed(element: str) -> None:
    a, b = random_operands(element, (40, 50, 60), 7)
    assert (a.shape, b.shape, a.dtype.name, b.dtype.name) == ((40, 60), (60, 50), element, element)
    again, other = random_operands(element, (40, 50, 60), 7), random_operands(element, (40, 50, 60), 8)
    assert np.array_equal(a, again[0]) and np.array_equal(b, again[1]) and not np.array_equal(a, other[0])
    for values in (a, b):
        wide = values.astype(np.float64)
        assert abs(wide.mean()) < 0.1 and abs(wide.std() - 1) < 0.1
    seeds = {fresh_seed() for _ in range(50)}
    assert len(seeds) == 50 and min(seeds) >= 0 and 2**26 < max(seeds) < 2**31


@pytest.mark.parametrize("lazy", [False, True])
def test_a_result_is_compared_that_was_not_there_before(lazy: bool) -> None:
    product = Product((30, 20, 10), FakeDevice(), 3, RUNGS["04_tiled"])
    assert (
        product.flops == 2 * 30 * 20 * 10 and product.spec is RUNGS["04_tiled"] and len(product.launches) == 1
    )
    product.launch()
    product.device.lazy = lazy  # type: ignore[attr-defined]
    assert product.compare().ok is not lazy
    if lazy:
        with pytest.raises(WrongResult, match=r"^04_tiled is wrong at 30×20×10: "):
            product.check()
    else:
        product.check()
    assert len(product.device.launches) == 3  # type: ignore[attr-defined]


def test_a_rate_is_of_one_launch_and_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    product = object.__new__(Product)
    product.size = (100, 200, 300)

    def launch() -> None:
        now[0] += 0.003

    product.launch = launch  # type: ignore[method-assign]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert product.rate() == pytest.approx(12e6 / 0.003 / 1e9)


@pytest.mark.parametrize(
    ("first", "times", "least"),
    [(0.5, [0.4, 0.6], 0.4), (0.3, [0.4, 0.6], 0.3), (1.0, [0.9, 1.1], 0.9), (1.5, None, 1.5)],
)
def test_a_launch_that_takes_longer_than_a_second_is_timed_once(
    first: float, times: list[float] | None, least: float
) -> None:
    told: list[Any] = []

    def time(start: Any, repeat: int) -> list[float]:
        told.append(repeat)
        return [first] if repeat == 1 else times or []

    product = object.__new__(Product)
    device: Any = SimpleNamespace(synchronize=lambda: told.append("idle"), time=time)
    product.device = device
    assert product.least_seconds() == least
    assert told == ["idle", 1] + [2] * (times is not None)
    assert product.least_seconds(6) == least and (times is None or told[-1] == 5)
