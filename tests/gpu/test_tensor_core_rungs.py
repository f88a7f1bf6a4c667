"""The rungs with tensor cores on a GPU: any size, any lie, both element types, and how fast they are.

``python tests/gpu/test_tensor_core_rungs.py [RUNG …]`` prints the speeds, each result checked first.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # from a checkout, with nothing installed
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.framed import Framed
from tilewise.calls import Choice, ready
from tilewise.devices import gpu
from tilewise.devices.gpu import GpuDevice
from tilewise.interop import numpy_dtype
from tilewise.kernels.ladder import rung_13_warp_specialised as rung_13
from tilewise.operands import Operands, ceil_div
from tilewise.problem import Problem
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

RUNGS = ("10_turing_tensor_core", "12_multistage", "13_warp_specialised")
RANDOM = np.random.default_rng()
Array = npt.NDArray[Any]

SHAPES = [
    (1, 1, 1),
    (128, 256, 64),
    (256, 512, 128),
    (127, 255, 63),
    (129, 257, 65),
    (1, 4096, 512),
    (4096, 1, 512),
    (17, 33, 5000),
    (300, 500, 0),
    (512, 512, 1024),
    (1021, 1019, 1023),
    (384, 640, 136),
    (2000, 1304, 96),
]


@pytest.fixture(scope="module")
def device() -> GpuDevice:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def variants(name: str) -> list[dict[str, Any]]:
    """One of every setting that changes what the rung does."""
    settings = tw.ladder[name].settings
    names = [key for key in settings if key not in ("element", "result")]
    return [{}] + [{key: value} for key in names for value in settings[key][:3]]


def elements(name: str) -> tuple[str, ...]:
    return tuple(map(str, tw.ladder[name].settings.get("element", ("float16",))))


def operands(m: int, n: int, k: int, element: str) -> tuple[Array, Array]:
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(element)) for shape in ((m, k), (k, n)))
    return a, b


def checked(
    device: GpuDevice, name: str, a: Array, b: Array, gaps: tuple[int, ...] = (0,) * 6, **chosen: Any
) -> None:
    """Multiply among NaN into a poisoned output, and compare with float64."""
    rung, spec = tw.ladder[name], tw.ladder[name].spec
    complete = spec.complete({"element": a.dtype.name} if "element" in spec.settings else {})
    complete.update(chosen)
    left, right = Framed(device, a, *gaps[:2]), Framed(device, b, *gaps[2:4])
    result = numpy_dtype(spec.result_type(complete))
    out = Framed(device, np.full((a.shape[0], b.shape[1]), np.nan, result), *gaps[4:])
    rung(left.part, right.part, out=out.part, device=device, **chosen)
    found = compare(out.taken(), a, b, accumulate=spec.accumulate(complete))
    assert found, (name, a.shape, b.shape, a.dtype, gaps, chosen, str(found))


@pytest.mark.parametrize("name", RUNGS)
def test_any_size(device: GpuDevice, name: str) -> None:
    for element in elements(name):
        for shape in SHAPES:
            checked(device, name, *operands(*shape, element))


@pytest.mark.parametrize("name", RUNGS)
def test_any_lie(device: GpuDevice, name: str) -> None:
    for element in elements(name):
        for _ in range(10):
            gaps = tuple(int(gap) for gap in RANDOM.choice((0, 1, 2, 3, 4, 8), 6))
            m, n, k = (int(size) for size in RANDOM.integers(1, 700, 3))
            checked(device, name, *operands(m, n, k, element), gaps)


@pytest.mark.parametrize("name", RUNGS)
def test_nothing_is_written_beyond_rows_that_end_within_16_bytes(device: GpuDevice, name: str) -> None:
    """Their beginnings are aligned, so that stores of 16 bytes and of boxes come into question."""
    for m, n, result in itertools.product((1, 2, 200), (61, 63, 250, 513), ("float16", "float32")):
        checked(device, name, *operands(m, n, 100, "float16"), (0, 0, 0, 0, 0, -n % 8), result=result)


@pytest.mark.parametrize("name", RUNGS)
def test_every_setting(device: GpuDevice, name: str) -> None:
    for chosen in variants(name):
        for element in elements(name):
            for result in tw.ladder[name].settings["result"]:
                for shape in ((300, 520, 200), (511, 513, 700)):
                    checked(device, name, *operands(*shape, element), result=result, **chosen)


@pytest.mark.parametrize("name", RUNGS)
def test_many_at_once_give_the_same_bits(device: GpuDevice, name: str) -> None:
    """More blocks than the GPU runs at a time, again and again: a race would show as a difference."""
    a, b = operands(3000, 3000, 1500, "float16")
    left, right = device.array(a), device.array(b)
    results = [tw.ladder[name](left, right, device=device).numpy() for _ in range(10)]
    assert compare(results[0], a, b)
    assert len({result.tobytes() for result in results}) == 1


SPEEDS = [(1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096), (4093, 4093, 4093)]


def best(device: GpuDevice, name: str, a: Any, b: Any, out: Any, complete: Any) -> float:
    """Seconds of the quickest of ten, everything compiled before."""
    call = ready(a, b, out, device, Choice(specs=(tw.ladder[name].spec,), settings=tuple(complete.items())))
    for _ in range(3):
        call()
    return min(device.time(call, repeat=10))


def timed_settings(name: str, m: int, n: int, multiprocessors: int) -> Iterator[dict[str, Any]]:
    """Every partition and element type; of rung 13 with one tile a block, and with one wave of blocks."""
    for partition, element in itertools.product(tw.ladder[name].settings["partition"], elements(name)):
        given = {"partition": partition, "element": element}
        if "element" not in tw.ladder[name].settings:
            del given["element"]
        yield given
        if "tiles" in tw.ladder[name].settings:
            pairs = rung_13.clusters(Operands.of(Problem(m, n, 1)), {"partition": partition, "cluster": 2})
            tiles = ceil_div(pairs, multiprocessors // 2)
            yield {**given, "tiles": min(tiles, rung_13.MOST_TILES)}


def print_speeds(names: Sequence[str]) -> None:
    """TFLOP/s on random data, each result checked."""
    device = gpu.open(0)
    for name, (m, n, k) in itertools.product(names, SPEEDS):
        spec = tw.ladder[name].spec
        for given in timed_settings(name, m, n, device.multiprocessors):
            complete = spec.complete(given)
            a, b = (device.array(x) for x in operands(m, n, k, spec.element(complete)))
            out = device.empty((m, n), numpy_dtype(spec.result_type(complete)))
            seconds = best(device, name, a, b, out, complete)
            rows = slice(m // 2 - 32, m // 2 + 32)
            right = compare(
                out[rows].numpy(), a[rows].numpy(), b.numpy(), accumulate=spec.accumulate(complete)
            )
            speed = 2 * m * n * k / seconds / 1e12
            print(f"{name} {m}×{n}×{k} {given}: {speed:.0f} TFLOP/s; {right}", flush=True)


if __name__ == "__main__":
    print_speeds(sys.argv[1:] or RUNGS)
