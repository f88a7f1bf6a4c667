"""A trial: one rung on one device, checked first and then timed."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.rung import Operand, Rung, Settings, Step, operand
from tilewise.launch import Dim3
from tilewise.reference import Comparison, compare, poisoned
from tilewise.toolchain.binary import Resources

__all__ = [
    "Geometry",
    "Size",
    "Trial",
    "dtype_named",
    "example_size",
    "fits",
    "fresh_seed",
    "geometry",
    "random_operands",
    "try_rung",
]

Size = tuple[int, int, int]  # m, n, k

# Tried from the largest down: sizes that are no multiples of any tile, to show that edges are right, then
# whole multiples for the rungs that want them, and at the end what one block or one thread can do.
_ON_GPU: tuple[Size, ...] = ((1000, 900, 800), (1024, 896, 768))
_ON_EMULATOR: tuple[Size, ...] = ((200, 180, 160), (256, 256, 128))
_SMALL: tuple[Size, ...] = ((30, 34, 500), (32, 32, 32), (16, 16, 16))
_FLOPS_PER_THREAD = 2**20  # more of them one after the other would keep the reader waiting
_REPEATS = 3
_LONG = 1.0  # seconds: a launch that takes longer is timed once


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


def fresh_seed() -> int:
    """A seed nobody chose, short enough to be typed again."""
    return secrets.randbelow(2**31)


def dtype_named(name: str) -> np.dtype[Any]:
    """The NumPy type of an element type's name, ml_dtypes' ones included."""
    try:
        found: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes

        found = np.dtype(getattr(ml_dtypes, name))
    return found


def random_operands(element: str, size: Size, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A and B of an element type, from the normal distribution."""
    m, n, k = size
    random = np.random.default_rng(seed)
    dtype = dtype_named(element)
    return random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)


def fits(rung: Rung, arch: str) -> bool:
    """Whether the rung can run on devices of this arch."""
    return rung.runs_on(arch)


def needs(rung: Rung) -> str:
    """The least arch that the rung runs on, or the only one."""
    return rung.needs


def geometry(rung: Rung, size: Size, settings: Mapping[str, Any], multiprocessors: int = 1) -> Geometry:
    """How the rung would launch for a size, with no device and no matrices."""
    m, n, k = size
    complete = _complete(rung, size, settings, multiprocessors)
    a = Operand(0, m, k, k, rung.element(complete))
    b = Operand(0, k, n, n, rung.element(complete))
    c = Operand(0, m, n, n, rung.result_type(complete))
    return _geometry(rung, rung.steps(a, b, c, 0, complete))


def example_size(rung: Rung, on_gpu: bool, settings: Mapping[str, Any] | None = None) -> Size:
    """A size that the rung takes and that does not keep a reader waiting."""
    refusal: ArgumentError | None = None
    for size in (*(_ON_GPU if on_gpu else _ON_EMULATOR), *_SMALL):
        try:
            rung.rule(*size, rung.complete(settings or {}))
        except ArgumentError as error:
            refusal = error
            continue
        if 2 * math.prod(size) <= _FLOPS_PER_THREAD * geometry(rung, size, settings or {}).threads:
            return size
    raise refusal or LaunchError("rung", "must take one of the example sizes", rung.name)


def try_rung(
    rung: Rung, device: Device, size: Size, seed: int, settings: Mapping[str, Any] | None = None
) -> Trial:
    """Multiply once with every output poisoned beforehand, compare with float64, and only then time."""
    given = dict(settings or {})
    complete = _complete(rung, size, given, device.multiprocessors)
    a, b = random_operands(rung.element(complete), size, seed)
    left, right = device.array(a), device.array(b)
    out = device.array(poisoned((size[0], size[1]), dtype_named(rung.result_type(complete))))
    rung(left, right, out=out, device=device, **given)
    partial_sums = complete.get("split", 0)
    comparison = compare(
        out.numpy(),
        a,
        b,
        accumulate=rung.accumulate(complete),
        terms=partial_sums if isinstance(partial_sums, int) else 0,
    )
    first, launch = _prepared(rung, device, left, right, out, complete)
    return Trial(
        rung=rung.name,
        device=device.name,
        arch=device.arch,
        size=size,
        settings=complete,
        seed=seed,
        geometry=first,
        resources=rung.kernel(device.arch, entry=first.entry, **complete).resources,
        comparison=comparison,
        seconds=_best(device, launch),
    )


def _complete(rung: Rung, size: Size, given: Mapping[str, Any], multiprocessors: int) -> dict[str, int | str]:
    chosen = rung.choose(*size, multiprocessors) if rung.choose else None
    return rung.complete(given, chosen)


def _geometry(rung: Rung, steps: list[Step]) -> Geometry:
    first = next((step for step in steps if step.entry == rung.entries[0]), steps[0])
    return Geometry(first.entry, first.launch.grid, first.launch.block, first.launch.shared, len(steps))


def _prepared(
    rung: Rung, device: Device, a: Array, b: Array, c: Array, settings: Settings
) -> tuple[Geometry, Callable[[], None]]:
    """The rung's launches with everything compiled and allocated, so that only they are timed."""
    left, right, result = operand("a", a), operand("b", b), operand("out", c)
    size = rung.room(left, right, result, settings)
    workspace = device.empty((size,), "uint8") if size else None
    steps = rung.steps(left, right, result, workspace.ptr if workspace else 0, settings)
    kernels = [rung.kernel(device.arch, entry=step.entry, **settings) for step in steps]

    def launch() -> None:
        for kernel, step in zip(kernels, steps, strict=True):
            how = step.launch
            kernel(how.grid, how.block, how.args, how.shared, how.cluster, device)
        _ = workspace  # kept until the launches that use it are over

    return _geometry(rung, steps), launch


def _best(device: Device, launch: Callable[[], None]) -> float:
    """The least of a few times: on the device's own clock if it has one, else from the call to the end."""
    device.synchronize()
    own_clock = getattr(device, "time", None)
    if own_clock is not None:
        return float(min(own_clock(launch, repeat=_REPEATS)))
    times: list[float] = []
    while len(times) < _REPEATS and sum(times) < _LONG:
        start = time.perf_counter()
        launch()
        device.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
