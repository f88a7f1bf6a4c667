"""PTX that others compiled → machine code, by nvJitLink, a library from a wheel of its own that need not be there.

Instruments alone want it: a GPU's driver assembles PTX itself. What the driver, or the compiler that made the PTX,
assembles may differ from this in its version.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tilewise.errors import ToolError
from tilewise.toolchain import cache
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.report import read_report

__all__ = ["VARIABLE", "assemble", "assembler_version", "has_assembler"]

VARIABLE = "TILEWISE_ASSEMBLER"  # "off": do without
_KIND, _FORMAT = "assembled", "1"
_TIMEOUT = 120  # seconds; a kernel of a thousand lines takes a tenth of one
_MISSING = 3  # the exit status of the process where there is no library
_REGISTERS = re.compile(r"\.reg\b[^;]*")  # declarations of them
_COUNT = re.compile(r"<\s*(0[xX][0-9a-fA-F]+|[1-9][0-9]*)\s*>")
_REGISTERS_MOST = 1 << 24  # of a name; of 2³¹ the assembler makes so much that it takes 45 s


@functools.cache
def assembler_version() -> str:
    """The version of the wheel; empty where it is not installed. The library may be there otherwise, too."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("nvidia-nvjitlink", "nvidia-nvjitlink-cu13", "nvidia-nvjitlink-cu12"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def has_assembler() -> bool:
    """Whether there is an assembler, and it is not turned off."""
    if os.environ.get(VARIABLE, "").lower() in ("off", "0", "no"):
        return False
    return bool(assembler_version() and sys.executable and importlib.util.find_spec("cuda.bindings"))


def assemble(binary: Binary, arch: str) -> Binary:
    """A binary of PTX with machine code for ``arch``, and what its entries take; remembered in the disk cache.

    An error says what the assembler says, in one line.
    """
    key = cache.digest(_FORMAT, assembler_version(), arch, binary.ptx)
    parts = cache.default().get(_KIND, key)
    if parts is None:
        _refuse_registers(binary.ptx)
        parts = _run(binary.ptx, arch)
        cache.default().put(_KIND, key, parts)
    report = read_report(parts["log"].decode("utf-8", "replace"), parts["cubin"])
    entries = {name: replace(entry, resources=report.get(name)) for name, entry in binary.entries.items()}
    return replace(binary, arch=arch, cubin=parts["cubin"], entries=entries)


def _refuse_registers(ptx: str) -> None:
    """Refuse more registers of a name than the assembler makes in good time."""
    counts = [int(count, 0) for found in _REGISTERS.findall(ptx) for count in _COUNT.findall(found)]
    if max(counts, default=0) > _REGISTERS_MOST:
        raise ToolError(
            f"the assembler is not given {max(counts):,} registers of a name, more than {_REGISTERS_MOST:,}"
        )


def _run(ptx: str, arch: str) -> dict[str, bytes]:
    program = Path(__file__).with_name("assembler_process.py")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(program), arch], input=ptx.encode(), capture_output=True, timeout=_TIMEOUT,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"the assembler cannot be run ({error}); {VARIABLE}=off does without") from None
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode:
        line = next((line for line in said.splitlines() if "error" in line or "fatal" in line), said[:200])
        line = line or f"it ended with {done.returncode}"
        if done.returncode == _MISSING:
            line = f"nvJitLink cannot be loaded: {line}; pip install nvidia-nvjitlink"
        raise ToolError(f"the assembler does not take the PTX for {arch}: {' '.join(line.split())}")
    return {"log": said.encode(), "cubin": done.stdout}
