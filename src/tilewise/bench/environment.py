"""The machine and the versions that a result was measured with: a figure without them cannot be judged."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

__all__ = ["PACKAGES", "cpu_name", "machine", "package_version", "versions"]

# By the name to show; in the order of docs/dependencies.md.
PACKAGES = {
    "numpy": "numpy",
    "ml_dtypes": "ml-dtypes",
    "llvmlite": "llvmlite",
    "cuda-core": "cuda-core",
    "cuda-bindings": "cuda-bindings",
    "NVRTC": "nvidia-cuda-nvrtc",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "rich": "rich",
}


def package_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return installed(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """tilewise, Python and every package that tilewise builds on."""
    from tilewise import __version__

    packages = {name: package_version(package) for name, package in PACKAGES.items()}
    return {"tilewise": __version__, "Python": platform.python_version(), **packages}


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """The computer, without its name."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_name(),
        "cores": usable,
        "system": f"{platform.system()} {platform.release()}" if sys.platform != "linux" else _linux(),
    }


def _linux() -> str:
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return f"Linux {platform.release()}"
    return about.get("PRETTY_NAME", "Linux")
