"""How long the kernels of a plan take to compile: representative products, as the planner multiplies them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewise.devices import device as resolve
from tilewise.epilogue import EpilogueCall, epilogue
from tilewise.interop import numpy_dtype
from tilewise.kernels.bind import bind, forget_kernels
from tilewise.planner import choose, operands_of, target_of

__all__ = ["PRODUCTS", "PlanTime", "PlannedProduct", "time_plan"]


@dataclass(frozen=True, slots=True)
class PlannedProduct:
    """A product on a GPU of the table; ``fused`` with a bias, gelu and a residual of its own type."""

    gpu: str
    dtype: str
    size: tuple[int, int, int]
    layout: str = "nn"
    arithmetic: str | None = None
    fused: bool = False

    @property
    def name(self) -> str:
        """What it multiplies, in words."""
        m, n, k = self.size
        size = f"{m}³" if m == n == k else f"{m}×{n}×{k}"
        how = f" in {self.arithmetic}" if self.arithmetic else ""
        return f"{self.dtype}{how} {self.layout} {size}{', fused' if self.fused else ''}"

    @property
    def arch(self) -> str:
        """What it is compiled for."""
        return target_of(self.gpu).arch

    def epilogue(self) -> EpilogueCall | None:
        """What happens to its sums."""
        if not self.fused:
            return None
        m, n, _ = self.size
        one = np.zeros(n, numpy_dtype(self.dtype))
        whole = np.lib.stride_tricks.as_strided(
            np.zeros(1, one.dtype), (m, n), (n * one.itemsize, one.itemsize)
        )
        return epilogue("gelu(acc + bias) + residual", bias=one, residual=whole)


_CUBE = (4096, 4096, 4096)
PRODUCTS = (
    PlannedProduct("h200", "bfloat16", _CUBE),
    PlannedProduct("h200", "bfloat16", _CUBE, fused=True),
    PlannedProduct("h200", "bfloat16", (8192, 8192, 8192), "nt"),
    PlannedProduct("h200", "bfloat16", (512, 512, 512)),
    PlannedProduct("h200", "bfloat16", (4093, 4093, 4093)),
    PlannedProduct("h200", "bfloat16", (256, 256, 16384)),
    PlannedProduct("h200", "float16", (4096, 2112, 7168), "tt"),
    PlannedProduct("h200", "float32", _CUBE, "nt", "tf32"),
    PlannedProduct("h200", "float64", (2048, 2048, 2048)),
    PlannedProduct("h200", "float8_e4m3fn", _CUBE, "nt"),
    PlannedProduct("h200", "int8", _CUBE, "nt"),
    PlannedProduct("h200", "float32", _CUBE),
    PlannedProduct("h200", "float32", _CUBE, arithmetic="exact32"),
    PlannedProduct("h200", "complex64", (2048, 2048, 2048)),
    PlannedProduct("a100", "bfloat16", _CUBE, "nt"),
    PlannedProduct("a100", "float16", (3000, 3000, 3000)),
    PlannedProduct("a100", "float32", _CUBE, "nn", "tf32"),
    PlannedProduct("a100", "float64", (2048, 2048, 2048)),
    PlannedProduct("t4", "float16", _CUBE),
)


@dataclass(frozen=True, slots=True)
class PlanTime:
    """The median for one product, in milliseconds: all kernels of its plan, compiled side by side."""

    product: str
    gpu: str
    kernel: str
    cold_ms: float

    def to_dict(self) -> dict[str, Any]:
        """As a result file holds it."""
        return {**asdict(self), "cold_ms": round(self.cold_ms, 1)}


def time_plan(
    product: PlannedProduct, repeats: int, empty_cache: Callable[[], AbstractContextManager[None]]
) -> PlanTime:
    """Plan it, and time how long it takes to bind the plan beside an empty cache."""
    target, device = target_of(product.gpu), resolve("emulator")
    operands = operands_of(
        *product.size,
        dtype=product.dtype,
        layout=product.layout,
        arithmetic=product.arithmetic,
        epilogue=product.epilogue(),
    )
    chosen = choose(operands, target)
    times = []
    for _ in range(repeats):
        forget_kernels()
        with empty_cache():
            start = time.perf_counter()
            bind(chosen.spec, chosen.settings, operands, chosen.operands, device, target.arch)
            times.append((time.perf_counter() - start) * 1e3)
    forget_kernels()  # as they are on no disk
    return PlanTime(product.name, product.gpu, chosen.spec.name, statistics.median(times))
