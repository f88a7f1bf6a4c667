"""A multiplication with everything allocated, chosen and compiled: to be checked, and then timed."""

from __future__ import annotations

import math
import secrets
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bound import BoundLaunch
from tilewise.calls import Choice, ready
from tilewise.devices import Device
from tilewise.errors import TilewiseError
from tilewise.interop import numpy_dtype
from tilewise.kernels.spec import KernelSpec
from tilewise.reference import Comparison, compare, poisoned

__all__ = ["Product", "Size", "WrongResult", "fresh_seed", "random_operands"]

Size = tuple[int, int, int]  # m, n, k

_LONG = 1.0  # seconds: a launch that takes longer is timed once


class WrongResult(TilewiseError):
    """A result that is not within its bound: nothing is timed that gives one."""


def fresh_seed() -> int:
    """A random seed, short enough to be typed again."""
    return secrets.randbelow(2**31)


def random_operands(element: str, size: Size, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A and B of an element type, from the normal distribution."""
    m, n, k = size
    random = np.random.default_rng(seed)
    dtype = numpy_dtype(element)
    return random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)


class Product:
    """A·B of random matrices on a device: by one kernel under some settings, or by what the planner chooses."""

    def __init__(
        self,
        size: Size,
        device: Device,
        seed: int,
        spec: KernelSpec | None = None,
        element: str = "float32",
        **settings: Any,
    ) -> None:
        self.size, self.device = size, device
        result = element
        if spec is not None:
            complete = spec.complete(settings)
            element, result = spec.element(complete), spec.result_type(complete)
        self._a, self._b = random_operands(element, size, seed)
        self._out = device.array(poisoned(size[:2], numpy_dtype(result)))
        choice = Choice(specs=None if spec is None else (spec,), settings=tuple(settings.items()))
        arrays = device.array(self._a), device.array(self._b)
        self._call = ready(*arrays, self._out, device, choice)
        self.plan, self.spec = self._call.made.plan, self._call.made.candidate.spec
        self.settings = dict(self._call.made.candidate.settings)

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.size)

    @property
    def launches(self) -> tuple[BoundLaunch, ...]:
        """What is launched, in order."""
        bound = self._call.made.bound
        return (*bound.copies, *bound.launches)

    def start(self) -> None:
        """Multiply; do not wait for the end."""
        self._call()

    def launch(self) -> None:
        """Multiply, and wait for the end."""
        self.start()
        self.device.synchronize()

    def compare(self) -> Comparison:
        """Multiply into an output that is poisoned before, and compare with float64."""
        self._out.fill(poisoned(self._out.shape, self._out.dtype))
        self.launch()
        partial_sums = self.settings.get("split", 0)
        terms = partial_sums if isinstance(partial_sums, int) else 0
        accumulate = self.spec.accumulate(self.settings)
        return compare(self._out.numpy(), self._a, self._b, accumulate=accumulate, terms=terms)

    def check(self) -> None:
        """Raise if the result is wrong."""
        found = self.compare()
        if not found.ok:
            raise WrongResult(f"{self.spec.name} is wrong at {'×'.join(map(str, self.size))}: {found}")

    def rate(self) -> float:
        """GFLOP/s of one launch, from the call to the end."""
        start = time.perf_counter()
        self.launch()
        return self.flops / (time.perf_counter() - start) / 1e9

    def least_seconds(self, repeat: int = 3) -> float:
        """The least of a few times, by the device's own clock."""
        self.device.synchronize()
        first = self.device.time(self.start, 1)
        return min(first if first[0] > _LONG else [*first, *self.device.time(self.start, repeat - 1)])
