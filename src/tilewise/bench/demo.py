"""The demo: multiply with every rung on the device and check each result; without a device, compile every rung."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.bench.product import Product, fresh_seed
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.bench.trial import Trial, example_size, geometry, try_rung
from tilewise.devices import Device
from tilewise.devices import device as resolve
from tilewise.errors import DeviceUnavailable, TilewiseError
from tilewise.kernels import RUNGS
from tilewise.kernels.spec import KernelSpec
from tilewise.plan import Plan
from tilewise.planner import list_plans, operands_of, target_of_device
from tilewise.reference import Comparison
from tilewise.toolchain.binary import Resources

__all__ = ["BrokenRung", "CompiledRung", "Demo", "RungResult", "TooNewRung", "run_demo"]


@dataclass(frozen=True, slots=True)
class CompiledRung:
    """A rung that was compiled but not run."""

    rung: str
    arch: str
    resources: Resources
    dynamic_shared: int
    seconds: float

    @property
    def shared_bytes(self) -> int:
        return self.resources.shared_bytes + self.dynamic_shared

    def to_dict(self) -> dict[str, Any]:
        return {
            "rung": self.rung,
            "arch": self.arch,
            "correct": None,
            "registers": self.resources.registers,
            "shared_bytes": self.shared_bytes,
            "spills": self.resources.spills,
            "compile_seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class TooNewRung:
    """A rung that neither runs on the arch nor compiles for it."""

    rung: str
    arch: str
    needs: str

    def to_dict(self) -> dict[str, Any]:
        return {"rung": self.rung, "arch": self.arch, "correct": None, "needs": self.needs}


@dataclass(frozen=True, slots=True)
class BrokenRung:
    """A rung that failed on the device; ``error`` says why."""

    rung: str
    device: str
    arch: str
    error: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "rung": self.rung,
            "device": self.device,
            "arch": self.arch,
            "correct": False,
            "error": self.error,
        }


RungResult = Trial | CompiledRung | TooNewRung | BrokenRung

_EXAMPLES = {True: ((4096, 4096, 4096), "bfloat16"), False: ((384, 320, 256), "float32")}  # by runs_on_gpu
_OTHERS = 3  # of the plans that were not chosen, to be shown


@dataclass(frozen=True, slots=True)
class MatmulTrial:
    """One call of tw.matmul: the chosen plan, other plans, the time, and whether the result is right."""

    plan: Plan
    others: tuple[Plan, ...]
    seconds: float
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.plan.to_dict(),
            "others": [
                {"kernel": one.kernel, "seconds": one.seconds, "bound": one.bound} for one in self.others
            ],
            "seconds": self.seconds,
            "gflops": self.plan.problem.flops / self.seconds / 1e9,
            "correct": self.comparison.ok,
        }


@dataclass(frozen=True, slots=True)
class Demo:
    """The outcome of every rung. ``device`` is None where nothing could run, and ``missing`` says why."""

    device: str | None
    title: str | None
    arch: str
    missing: str | None
    seed: int
    chosen: MatmulTrial | None
    rungs: tuple[RungResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no result is wrong and no rung failed."""
        if self.chosen is not None and not self.chosen.comparison.ok:
            return False
        return not any(
            isinstance(rung, BrokenRung) or (isinstance(rung, Trial) and not rung.comparison.ok)
            for rung in self.rungs
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "title": self.title,
            "arch": self.arch,
            "not_run_because": self.missing,
            "seed": self.seed,
            "ok": self.ok,
            "matmul": self.chosen.to_dict() if self.chosen else None,
            "rungs": [rung.to_dict() for rung in self.rungs],
        }


def run_demo(
    device: Device | str | None = None,
    arch: str = "sm_90a",
    seed: int | None = None,
    rungs: Mapping[str, KernelSpec] = RUNGS,
    progress: Progress = ignore_progress,
) -> Demo:
    """Multiply as tw.matmul does, then with every rung, and check each result; with no device compile every rung."""
    target, missing = _find_device(device)
    chosen = fresh_seed() if seed is None else seed
    at = target.arch if target else arch
    progress(0, len(rungs) + 1, "tw.matmul")
    multiplied = _try_matmul(target, chosen) if target else None
    results: list[RungResult] = []
    for i, rung in enumerate(rungs.values()):
        progress(i + 1, len(rungs) + 1, rung.name)
        if not rung.runs_on(at):
            results.append(TooNewRung(rung.name, at, rung.needs))
        elif target:
            results.append(_run_rung(rung, target, chosen + i))
        else:
            results.append(_compile_rung(rung, at))
    name, title = (target.name, target.title) if target else (None, None)
    return Demo(name, title, at, missing, chosen, multiplied, tuple(results))


def _find_device(device: Device | str | None) -> tuple[Device | None, str | None]:
    """Return the device to run on, or None and why there is none. A device that was named must exist."""
    try:
        return resolve(device), None
    except DeviceUnavailable as error:
        if device is not None:
            raise
        return None, str(error)


def _try_matmul(device: Device, seed: int) -> MatmulTrial:
    """Multiply an example by tw.matmul, check the result, then time it."""
    size, element = _EXAMPLES[device.runs_on_gpu]
    product = Product(size, device, seed, element=element)
    comparison = product.compare()
    plans, _ = list_plans(operands_of(*size, dtype=element), target_of_device(device))
    others = tuple(one for one in plans if one.kernel != product.plan.kernel)
    best_of_each = {one.kernel: one for one in reversed(others)}
    shown = sorted(best_of_each.values(), key=lambda one: one.seconds or 0.0)[:_OTHERS]
    return MatmulTrial(product.plan, tuple(shown), product.least_seconds(), comparison)


def _run_rung(rung: KernelSpec, device: Device, seed: int) -> Trial | BrokenRung:
    """Check and time a rung; an error becomes a :class:`BrokenRung`."""
    try:
        return try_rung(rung, device, example_size(rung, device.runs_on_gpu), seed)
    except TilewiseError as error:  # one rung that fails does not keep the others from being shown
        return BrokenRung(rung.name, device.name, device.arch, str(error))


def _compile_rung(rung: KernelSpec, arch: str) -> CompiledRung:
    """Compile a rung and time that."""
    launch = geometry(rung, example_size(rung, on_gpu=True), {})
    start = time.perf_counter()
    resources = rung.kernel(arch, entry=launch.entry).resources
    return CompiledRung(rung.name, arch, resources, launch.dynamic_shared, time.perf_counter() - start)
