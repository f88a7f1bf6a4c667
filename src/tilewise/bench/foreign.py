"""A multiplication by a kernel that another compiler made: Triton, for float16 on sm_80.

``triton_matmul.ptx`` is what it made of the matrix product in ``tests/triton``, with tiles of 128 × 128 × 32, eight
warps and three stages: asynchronous copies, ``ldmatrix`` and ``mma``.
"""

from __future__ import annotations

import time
from importlib import resources

from tilewise.bench.product import WrongResult, random_operands
from tilewise.devices import Device
from tilewise.errors import ArgumentError
from tilewise.kernel import Kernel
from tilewise.reference import compare, poisoned

__all__ = ["TritonProduct"]

_TILE = 128  # rows and columns; sizes are multiples of it
_WARPS = 8
_SHARED = 32_768  # bytes


class TritonProduct:
    """A·B of random square matrices, float16 to float32."""

    def __init__(self, size: int, device: Device, seed: int) -> None:
        if size % _TILE:
            raise ArgumentError("size", f"must be a multiple of {_TILE}", size)
        text = resources.files("tilewise.bench").joinpath("triton_matmul.ptx").read_text(encoding="utf-8")
        self._kernel = Kernel.from_ptx(text, "matmul")
        self.size, self.device = size, device
        self._a, self._b = random_operands("float16", (size, size, size), seed)
        self._arrays = device.array(self._a), device.array(self._b)
        self._out = device.array(poisoned((size, size), "float32"))

    @property
    def flops(self) -> int:
        return 2 * self.size**3

    def launch(self) -> None:
        """Multiply, and wait for the end."""
        size = self.size
        args = [*self._arrays, self._out, *[size] * 6, None, None]
        grid, block = (size // _TILE) ** 2, 32 * _WARPS
        self._kernel(grid, block, args, _SHARED, device=self.device)
        self.device.synchronize()

    def check(self) -> None:
        """Multiply into an output that is poisoned before, and compare with float64."""
        self._out.fill(poisoned(self._out.shape, self._out.dtype))
        self.launch()
        found = compare(self._out.numpy(), self._a, self._b)
        if not found.ok:
            raise WrongResult(f"Triton's kernel is wrong at {self.size}³: {found}")

    def rate(self) -> float:
        """GFLOP/s of one launch, from the call to the end."""
        start = time.perf_counter()
        self.launch()
        return self.flops / (time.perf_counter() - start) / 1e9
