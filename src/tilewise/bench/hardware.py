"""A rung under NVIDIA's profiler, for figures measured beside those that are counted here."""

from __future__ import annotations

import csv
import glob
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewise.errors import DeviceUnavailable, ToolError
from tilewise.profiler.profile import Profile, shown

__all__ = ["beside", "find_ncu", "measure", "read_raw"]

_OWN = ("tilewise__", "memory_l")  # names that ncu does not take on its command line
_TIMEOUT = 600  # seconds


def find_ncu() -> str:
    """Where the profiler is."""
    found = shutil.which("ncu")
    others = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu") + glob.glob("/usr/local/cuda*/bin/ncu"))
    if not found and not others:
        raise ToolError(
            "ncu, NVIDIA's profiler, is not installed; install Nsight Compute, or leave --on gpu away"
        )
    return found or others[-1]


def measure(
    rung: str, size: tuple[int, int, int], settings: Mapping[str, Any], names: Sequence[str]
) -> list[dict[str, float]]:
    """Metrics of each launch of a rung, run on a GPU under ncu."""
    from tilewise.devices import device

    ncu = find_ncu()
    try:
        device("gpu")
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"--on gpu needs a GPU: {error}") from None
    wanted = [name for name in names if not name.startswith(_OWN)]
    command = [
        *(ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join(wanted)),
        *(sys.executable, "-m", "tilewise.bench.hardware", rung, *map(str, size), json.dumps(dict(settings))),
    ]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{ncu} cannot be run ({error})") from None
    rows = read_raw(ran.stdout)
    if not rows:
        said = (ran.stdout + ran.stderr).strip().splitlines()
        raise ToolError(f"ncu counted nothing: {said[-1] if said else f'exit status {ran.returncode}'}")
    return rows


def read_raw(text: str) -> list[dict[str, float]]:
    """The numbers of each launch on ncu's raw page."""
    start = text.find('"ID"')
    if start < 0:
        return []
    found = []
    for row in csv.DictReader(io.StringIO(text[start:])):
        if row["ID"]:  # the first row tells the units
            numbers = {name: _number(value) for name, value in row.items() if name and "__" in name}
            found.append({name: value for name, value in numbers.items() if value is not None})
    return found


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def beside(
    profile: Profile, measured: Sequence[Mapping[str, float]], names: Sequence[str]
) -> list[dict[str, str]]:
    """What was measured beside what was counted, launch by launch."""
    rows = []
    for item, row in zip(profile.all, measured, strict=False):
        for name in names:
            if name in row and name in item:
                difference = item[name] - row[name]
                part = f" ({difference / row[name]:+.2%})" if row[name] else ""
                rows.append(
                    {
                        "metric": name,
                        "measured": shown(row[name]),
                        "emulated": shown(item[name]),
                        "difference": "none" if not difference else f"{shown(difference)}{part}",
                    }
                )
    return rows


def main(argv: Sequence[str]) -> None:
    """Launch a rung once on a GPU."""
    import tilewise as tw

    name, *sizes, chosen = argv
    m, n, k = map(int, sizes)
    rung, gpu = tw.ladder[name], tw.device("gpu")
    settings = json.loads(chosen)
    kind = rung.element(rung.complete(settings))
    a, b = (gpu.empty(shape, kind) for shape in ((m, k), (k, n)))
    for array in (a, b):
        array.fill(np.zeros(array.shape, array.dtype))
    rung(a, b, device=gpu, **settings)
    gpu.synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
