"""The doctor: which parts tilewise finds here, which are missing, and what to do about it.

It must work where nothing else does, so whatever it looks at is imported when it is looked at.
"""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from tilewise.bench.environment import PACKAGES, machine, versions

__all__ = ["VARIABLES", "Report", "Trouble", "examine"]

# What each environment variable that matters does.
VARIABLES = {
    "TILEWISE_DEVICE": "the device to run on",
    "TILEWISE_CACHE_DIR": "where compiled kernels are kept",
    "TILEWISE_CACHE_SIZE": "how much of them is kept",
    "TILEWISE_THREADS": "the emulator's CPU threads",
    "TILEWISE_SUMS": "how the emulator's tensor cores add: fast, or hardware for a GPU's bits",
    "TILEWISE_STUB": "0 turns the compiled warm call off",
    "TILEWISE_ASSEMBLER": "off: other people's PTX is profiled without machine code",
    "CUDA_VISIBLE_DEVICES": "the GPUs that the driver shows",
    "CUDA_HOME": "a CUDA toolkit, for headers that NVRTC lacks",
    "LD_LIBRARY_PATH": "where libraries are searched first",
}

# What each package is imported as, where that is more than its name.
_MODULES = {
    "cuda-core": "cuda.core",
    "cuda-bindings": "cuda.bindings.nvrtc",
    "llvmlite": "llvmlite.binding",
    "NVRTC": "",
    "nvdisasm": "",
}

_SMALL_KERNEL = 'extern "C" __global__ void nothing(float *x) { x[threadIdx.x] = 0; }\n'
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong. ``essential`` means that tilewise does not work with it."""

    what: str
    todo: str
    essential: bool

    def __str__(self) -> str:
        return f"{self.what}; {self.todo}" if self.todo else self.what


@dataclass(slots=True)
class Report:
    """The doctor's findings."""

    versions: dict[str, str | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    archs: list[str] = field(default_factory=list)
    compile_ms: float | None = None
    driver: str | None = None
    devices: list[dict[str, str]] = field(default_factory=list)
    default_device: str | None = None
    cache: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether tilewise works here."""
        return not any(trouble.essential for trouble in self.troubles)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def note(self, what: object, todo: str = "", *, essential: bool) -> None:
        """Record a trouble; an error of ours says in one line what is wrong and what to do."""
        self.troubles.append(Trouble(" ".join(str(what).split()), todo, essential))

    def attempt(self, look: Callable[[], T], *, essential: bool, todo: str = "") -> T | None:
        """The result of ``look``, or None and a recorded trouble."""
        try:
            return look()
        except Exception as error:  # whatever is broken here is what the doctor is to tell
            self.note(str(error).strip() or type(error).__name__, todo, essential=essential)
            return None


def examine(clear_cache: bool = False) -> Report:
    """Look at everything that tilewise builds on; ``clear_cache`` empties the cache first."""
    report = Report(versions=versions(), machine={**machine(), "python": platform.python_implementation()})
    report.environment = {name: os.environ.get(name) for name in VARIABLES}
    _look_at_packages(report)
    _look_at_cache(report, clear_cache)
    cubin = _look_at_compiler(report)
    if cubin:
        _look_at_disassembler(report, cubin)
    _look_at_devices(report)
    return report


def _look_at_packages(report: Report) -> None:
    for name, package in PACKAGES.items():
        if report.versions[name] is None:
            report.note(f"{name} is not installed", f"pip install {package}", essential=True)
            continue
        module = _MODULES.get(name, name)
        try:
            importlib.import_module(module or "tilewise")
        except Exception as error:
            reason = " ".join(str(error).split())
            advice = f"pip install --force-reinstall {package}"
            report.note(f"{name} cannot be imported ({reason})", advice, essential=True)


def _look_at_cache(report: Report, clear: bool) -> None:
    def look() -> None:
        from tilewise.toolchain import cache

        found = cache.default()
        if clear:
            found.clear()
        stats = found.stats()
        report.cache = {
            "directory": str(stats.directory) if stats.directory else None,
            "entries": stats.entries,
            "bytes": stats.bytes,
            "limit": stats.limit,
            "writable": stats.writable,
            "cleared": clear,
        }
        if stats.problem:
            report.note(stats.problem, essential=False)

    report.attempt(look, essential=True)


def _look_at_compiler(report: Report) -> bytes | None:
    def look() -> bytes | None:
        from tilewise.toolchain import nvrtc
        from tilewise.toolchain.compile import known_archs

        report.versions["NVRTC"] = ".".join(map(str, nvrtc.version()))
        report.archs = known_archs()
        options = [f"--gpu-architecture={report.archs[0]}"]
        nvrtc.compile_program(_SMALL_KERNEL, "nothing.cu", options, {})  # loads what the first one must
        start = time.perf_counter()
        output = nvrtc.compile_program(_SMALL_KERNEL, "nothing.cu", options, {})
        report.compile_ms = (time.perf_counter() - start) * 1e3
        if not (output.ok and output.cubin):
            advice = "pip install --force-reinstall nvidia-cuda-nvrtc"
            report.note(f"NVRTC does not compile a small kernel: {output.log}", advice, essential=True)
        return output.cubin

    return report.attempt(look, essential=True)


def _look_at_disassembler(report: Report, cubin: bytes) -> None:
    def look() -> None:
        from tilewise.toolchain.lines import disassemble

        disassemble(cubin)

    report.attempt(look, essential=False)


def _look_at_devices(report: Report) -> None:
    def look() -> None:
        from tilewise import devices
        from tilewise.devices.gpu import count, why_not

        if count():
            report.driver = _driver_version()
        else:
            report.note(f"no GPU: {why_not()}", essential=False)
        for device in devices.available():
            report.devices.append({"name": device.name, "title": device.title, "arch": device.arch})
            if report.archs and device.arch not in report.archs:
                report.note(
                    f"NVRTC {report.versions['NVRTC']} does not compile for {device.arch} of {device.name}",
                    "pip install --upgrade nvidia-cuda-nvrtc",
                    essential=False,
                )
        if report.environment["TILEWISE_DEVICE"]:
            report.default_device = devices.device().name
        elif report.devices:
            report.default_device = report.devices[0]["name"]

    report.attempt(look, essential=True)


def _driver_version() -> str:
    from tilewise.devices.gpu.driver import check, driver

    version = int(check(driver().cuDriverGetVersion(), "asking for the driver's version"))
    return f"for CUDA {version // 1000}.{version % 1000 // 10} and older"
