"""A multiplication by one rung, with everything allocated and compiled: to be checked, and then timed."""

from __future__ import annotations

import math
import time
from typing import Any

from tilewise.bench.trial import Size, dtype_named, random_operands
from tilewise.devices import Device
from tilewise.errors import TilewiseError
from tilewise.kernels.rung import Rung, operand
from tilewise.launch import Launch
from tilewise.reference import compare, poisoned

__all__ = ["Product", "WrongResult"]


class WrongResult(TilewiseError):
    """A result that is not within its bound: nothing is timed that gives one."""


class Product:
    """A·B of random matrices on a device."""

    def __init__(self, rung: Rung, size: Size, device: Device, seed: int, **settings: Any) -> None:
        chosen = rung.choose(*size, device.multiprocessors) if rung.choose else None
        complete = rung.complete(settings, chosen)
        rung.rule(*size, complete)
        self.rung, self.size, self.device, self.settings = rung, size, device, complete
        self._a, self._b = random_operands(rung.element(complete), size, seed)
        self._out = device.array(poisoned(size[:2], dtype_named(rung.result_type(complete))))
        self._arrays = device.array(self._a), device.array(self._b)
        left, right, result = (
            operand("a", self._arrays[0]),
            operand("b", self._arrays[1]),
            operand("out", self._out),
        )
        room = rung.room(left, right, result, complete)
        self._workspace = device.empty((room,), "uint8") if room else None
        at = self._workspace.ptr if self._workspace else 0
        self.steps = [
            (rung.kernel(device.arch, entry=step.entry, **complete), step.launch)
            for step in rung.steps(left, right, result, at, complete)
        ]

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.size)

    @property
    def launches(self) -> list[Launch]:
        return [launch for _, launch in self.steps]

    def launch(self) -> None:
        """Multiply, and wait for the end."""
        for kernel, how in self.steps:
            kernel(how.grid, how.block, how.args, how.shared, how.cluster, self.device)
        self.device.synchronize()

    def check(self) -> None:
        """Multiply into an output that is poisoned before, and compare with float64."""
        self._out.fill(poisoned(self._out.shape, self._out.dtype))
        self.launch()
        partial_sums = self.settings.get("split", 0)
        terms = partial_sums if isinstance(partial_sums, int) else 0
        accumulate = self.rung.accumulate(self.settings)
        found = compare(self._out.numpy(), self._a, self._b, accumulate=accumulate, terms=terms)
        if not found.ok:
            raise WrongResult(f"{self.rung.name} is wrong at {'×'.join(map(str, self.size))}: {found}")

    def rate(self) -> float:
        """GFLOP/s of one launch, from the call to the end."""
        start = time.perf_counter()
        self.launch()
        return self.flops / (time.perf_counter() - start) / 1e9
