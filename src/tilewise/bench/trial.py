"""A trial: one rung on one device, checked first and then timed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.bench.product import Product, Size
from tilewise.devices import Device
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.spec import KernelSpec, Settings
from tilewise.launch import Dim3
from tilewise.operands import Operands
from tilewise.planner import Target, choose, target_of, target_of_device
from tilewise.planner.listing import operands_of
from tilewise.reference import Comparison
from tilewise.toolchain.binary import Resources

__all__ = ["Geometry", "Trial", "example_size", "geometry", "try_rung"]

# Tried from the largest down: sizes that are no multiples of any tile, to show that edges are right, then
# whole multiples for the rungs that want them, and at the end what one block or one thread can do.
_ON_GPU: tuple[Size, ...] = ((1000, 900, 800), (1024, 896, 768))
_ON_EMULATOR: tuple[Size, ...] = ((200, 180, 160), (256, 256, 128))
_SMALL: tuple[Size, ...] = ((30, 34, 500), (32, 32, 32), (16, 16, 16))
_FLOPS_PER_THREAD = 2**20  # more of them one after the other would keep the reader waiting


@dataclass(frozen=True, slots=True)
class Geometry:
    """The main launch of a rung for a size: what the table of a trial shows of it."""

    entry: str
    grid: Dim3
    block: Dim3
    dynamic_shared: int
    launches: int

    @property
    def threads(self) -> int:
        return math.prod(self.grid) * math.prod(self.block)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one multiplication by one rung."""

    rung: str
    device: str
    arch: str
    size: Size
    settings: Settings
    seed: int
    geometry: Geometry
    resources: Resources
    comparison: Comparison
    seconds: float

    @property
    def shared_bytes(self) -> int:
        """Of one block, static and dynamic together."""
        return self.resources.shared_bytes + self.geometry.dynamic_shared

    @property
    def gflops(self) -> float:
        return 2 * math.prod(self.size) / self.seconds / 1e9

    def to_dict(self) -> dict[str, Any]:
        m, n, k = self.size
        return {
            "rung": self.rung,
            "device": self.device,
            "arch": self.arch,
            "m": m,
            "n": n,
            "k": k,
            "settings": dict(self.settings),
            "seed": self.seed,
            "grid": self.geometry.grid,
            "block": self.geometry.block,
            "correct": self.comparison.ok,
            "worst_share_of_bound": self.comparison.worst,
            "failures": self.comparison.failures,
            "elements": self.comparison.elements,
            "registers": self.resources.registers,
            "shared_bytes": self.shared_bytes,
            "spills": self.resources.spills,
            "seconds": self.seconds,
            "gflops": self.gflops,
        }


def geometry(
    spec: KernelSpec, size: Size, settings: Mapping[str, Any], target: Target | None = None
) -> Geometry:
    """How the kernel would launch for a size, with no device and no matrices."""
    operands, complete = _chosen(spec, size, settings, target or target_of("h200"))
    steps = spec.steps(operands, complete)
    first = next((step for step in steps if step.entry == spec.entries[0]), steps[0])
    return Geometry(first.entry, first.launch.grid, first.launch.block, first.launch.shared, len(steps))


def example_size(spec: KernelSpec, on_gpu: bool, settings: Mapping[str, Any] | None = None) -> Size:
    """A size that the kernel takes and that does not keep a reader waiting."""
    refusal: ArgumentError | None = None
    for size in (*(_ON_GPU if on_gpu else _ON_EMULATOR), *_SMALL):
        operands, complete = _operands(spec, size, settings or {})
        refused = spec.refuse(operands, complete)
        if refused is not None:
            refusal = refused
        elif 2 * math.prod(size) <= _FLOPS_PER_THREAD * geometry(spec, size, settings or {}).threads:
            return size
    raise refusal or LaunchError("rung", "must take one of the example sizes", spec.name)


def try_rung(
    spec: KernelSpec, device: Device, size: Size, seed: int, settings: Mapping[str, Any] | None = None
) -> Trial:
    """Multiply once with every output poisoned beforehand, compare with float64, and only then time."""
    given = dict(settings or {})
    product = Product(size, device, seed, spec, **given)
    comparison = product.compare()
    found = geometry(spec, size, given, target_of_device(device))
    return Trial(
        rung=spec.name,
        device=device.name,
        arch=device.arch,
        size=size,
        settings=product.settings,
        seed=seed,
        geometry=found,
        resources=spec.kernel(device.arch, entry=found.entry, **product.settings).resources,
        comparison=comparison,
        seconds=product.least_seconds(),
    )


def _operands(
    spec: KernelSpec, size: Size, given: Mapping[str, Any]
) -> tuple[Operands, dict[str, int | str]]:
    complete = spec.complete(given)
    m, n, k = size
    return operands_of(m, n, k, dtype=spec.element(complete), result=spec.result_type(complete)), complete


def _chosen(
    spec: KernelSpec, size: Size, given: Mapping[str, Any], target: Target
) -> tuple[Operands, Settings]:
    """The operands of a size, and the settings that the planner completes the given ones to."""
    operands, complete = _operands(spec, size, given)
    if not spec.runs_on(target.arch):
        return operands, complete
    return operands, choose(operands, target, specs=(spec,), given=given).settings
