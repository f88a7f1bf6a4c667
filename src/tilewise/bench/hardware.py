"""Run a launch under NVIDIA's profiler, and compare its figures with those that the emulator counts.

The profiler wants a process of its own to look at: this module run as one, with the launch in JSON.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewise.bench.launch_spec import LaunchSpec, open_launch
from tilewise.bench.product import fresh_seed, random_operands
from tilewise.errors import DeviceUnavailable, ToolError
from tilewise.instruments.profile import Profile, format_number

__all__ = ["DURATION", "RungLaunch", "compare_with_measured", "find_ncu", "measure", "read_raw"]

DURATION = "gpu__time_duration.sum"  # nanoseconds
_OWN = ("tilewise__", "memory_l", "derived__")  # names that ncu does not take on its command line
_MISSING = re.compile(r"[Ff]ailed to find metric (?:regex:\^)?([\w.]+?)(?:\\|$|\s)", re.MULTILINE)
_ATTEMPTS = 40  # ncu names one metric at a time
_PRINTED = 0.0051  # what may be lost of a number that is not whole
_TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class RungLaunch:
    """A multiplication by a rung, to be profiled."""

    rung: str
    size: tuple[int, int, int]
    settings: Mapping[str, Any]


def find_ncu() -> str:
    """Return the path of the profiler."""
    found = shutil.which("ncu")
    others = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu") + glob.glob("/usr/local/cuda*/bin/ncu"))
    if not found and not others:
        raise ToolError(
            "ncu, NVIDIA's profiler, is not installed; install Nsight Compute, or leave --on gpu away"
        )
    return found or others[-1]


def measure(what: LaunchSpec | RungLaunch, names: Sequence[str]) -> list[dict[str, float]]:
    """Run launches on a GPU under ncu; return the metrics of each, and its time."""
    from tilewise.devices import device

    ncu = find_ncu()
    try:
        device("gpu")
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"--on gpu needs a GPU: {error}") from None
    wanted = [name for name in names if not name.startswith(_OWN)] + [DURATION]
    said = ""
    for _ in range(_ATTEMPTS):
        ran = _count(ncu, what, wanted)
        if rows := read_raw(ran.stdout):
            return rows
        said = ran.stdout + ran.stderr
        missing = set(_MISSING.findall(said))
        if not missing:
            break
        # What this ncu does not know of this GPU, it refuses all for.
        wanted = [name for name in wanted if name not in missing and name.rpartition(".")[0] not in missing]
    last = next(
        (line for line in reversed(said.splitlines()) if line.strip()), f"exit status {ran.returncode}"
    )
    raise ToolError(f"ncu counted nothing: {last.strip()}")


def _count(ncu: str, what: LaunchSpec | RungLaunch, names: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [
        *(ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join(names)),
        *(sys.executable, "-m", "tilewise.bench.hardware", type(what).__name__, json.dumps(asdict(what))),
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{ncu} cannot be run ({error})") from None


def read_raw(text: str) -> list[dict[str, float]]:
    """Parse ncu's raw page; return the numbers of each launch."""
    start = text.find('"ID"')
    if start < 0:
        return []
    found = []
    for row in csv.DictReader(io.StringIO(text[start:])):
        if row["ID"]:  # the first row has the units
            numbers = {name: _number(value) for name, value in row.items() if name and "__" in name}
            found.append({name: value for name, value in numbers.items() if value is not None})
    return found


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def compare_with_measured(
    profile: Profile, measured: Sequence[Mapping[str, float]], names: Sequence[str]
) -> list[dict[str, str]]:
    """Return rows of measured and counted figures, launch by launch."""
    rows = []
    for item, row in zip(profile.all, measured, strict=False):
        for name in names:
            if name in row and name in item:
                difference = item[name] - row[name]
                if row[name] % 1 and abs(difference) < _PRINTED:
                    difference = 0.0  # ncu prints two digits
                part = f" ({difference / row[name]:+.2%})" if row[name] else ""
                rows.append(
                    {
                        "metric": name,
                        "measured": format_number(row[name]),
                        "emulated": format_number(item[name]),
                        "difference": "none" if not difference else f"{format_number(difference)}{part}",
                    }
                )
    return rows


def main(argv: Sequence[str]) -> None:
    """Run the launch that :func:`measure` describes once on a GPU."""
    import tilewise as tw

    kind, described = argv
    gpu = tw.device("gpu")
    if kind == LaunchSpec.__name__:
        open_launch(LaunchSpec(**json.loads(described))).start(gpu)
    else:
        found = RungLaunch(**json.loads(described))
        m, n, k = found.size
        rung = tw.ladder[found.rung]
        element = rung.spec.element(rung.spec.complete(found.settings))
        a, b = (gpu.array(array) for array in random_operands(element, (m, n, k), fresh_seed()))
        rung(a, b, device=gpu, **found.settings)
    gpu.synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
