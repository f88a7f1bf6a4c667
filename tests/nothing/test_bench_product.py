"""A product as benchmarks time it: on a device that pretends, and by a clock that stands still but for launches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fake_device import FakeDevice
from tilewise.bench import demo, trial
from tilewise.bench import product as module
from tilewise.bench.product import Product, WrongResult, fresh_seed, random_operands
from tilewise.bench.trial import example_size
from tilewise.errors import ArgumentError, LaunchError
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


@pytest.mark.parametrize(("settings", "terms"), [({"split": 4}, 4), ({"split": "auto"}, 0), ({}, 0)])
def test_a_result_is_awaited_and_compared_by_the_sums_of_its_parts(
    settings: dict[str, Any], terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    product: Any = object.__new__(Product)
    product.settings, product._a, product._b = settings, "a", "b"
    product._call = lambda: told.append("call")
    product.device = SimpleNamespace(synchronize=lambda: told.append("wait"))
    product.spec = SimpleNamespace(accumulate=lambda given: ("sums of", given))
    product._out = SimpleNamespace(
        shape=(2, 3),
        dtype=np.dtype("float32"),
        fill=lambda host: told.append(host.shape),
        numpy=lambda: "out",
    )
    monkeypatch.setattr(module, "compare", lambda *given, **how: (given, how))
    found = product.compare()
    assert found == (("out", "a", "b"), {"accumulate": ("sums of", settings), "terms": terms})
    assert told == [(2, 3), "call", "wait"]


def test_an_example_is_the_largest_that_is_taken_and_takes_no_long_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2²⁰ operations of a thread are the most; without any the reason is told."""
    refusal = ArgumentError("m", "must be even", 3)
    takes: list[Any] = []
    threads = [1.0]
    spec: Any = SimpleNamespace(name="r", refuse=lambda size, _complete: None if size in takes else refusal)
    monkeypatch.setattr(trial, "_operands", lambda _spec, size, _given: (size, {}))
    monkeypatch.setattr(trial, "geometry", lambda *_: SimpleNamespace(threads=threads[0]))
    with pytest.raises(ArgumentError, match="m must be even"):
        example_size(spec, on_gpu=True)
    takes += [(1024, 896, 768), (256, 256, 128), (32, 32, 32), (16, 16, 16)]
    for on_gpu, size in ((True, (1024, 896, 768)), (False, (256, 256, 128))):
        threads[0] = 2 * size[0] * size[1] * size[2] / 2**20
        assert example_size(spec, on_gpu) == size
        threads[0] -= 1e-3
        assert example_size(spec, on_gpu) == (32, 32, 32)
    takes[:] = [(1024, 896, 768)]
    monkeypatch.setattr(spec, "refuse", lambda *_: None)
    threads[0] = 0
    with pytest.raises(LaunchError, match="rung must take one of the example sizes, not 'r'"):
        example_size(spec, on_gpu=True)


@pytest.mark.parametrize(
    ("on_gpu", "size", "element"), [(True, (4096,) * 3, "bfloat16"), (False, (384, 320, 256), "float32")]
)
def test_a_demo_shows_the_best_plans_of_three_other_kernels(
    on_gpu: bool, size: tuple[int, int, int], element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    plans = [
        SimpleNamespace(kernel=kernel, seconds=seconds)
        for kernel, seconds in (("a", 1.0), ("b", 2.0), ("b", 3.0), ("c", 5.0), ("d", 4.0), ("e", 6.0))
    ]

    def multiply(*given: Any, **named: Any) -> Any:
        assert (given, named) == ((size, device, 0), {"element": element})
        return SimpleNamespace(
            plan=plans[0],
            compare=lambda: order.append("compared"),
            least_seconds=lambda: order.append("timed"),
        )

    device: Any = SimpleNamespace(runs_on_gpu=on_gpu)
    monkeypatch.setattr(demo, "Product", multiply)
    monkeypatch.setattr(demo, "target_of_device", lambda given: given)
    monkeypatch.setattr(demo, "list_plans", lambda operands, _target: (plans, operands))
    found: Any = demo._try_matmul(device, 0)
    assert found.plan is plans[0] and order == ["compared", "timed"]
    assert [(one.kernel, one.seconds) for one in found.others] == [("b", 2.0), ("d", 4.0), ("c", 5.0)]
