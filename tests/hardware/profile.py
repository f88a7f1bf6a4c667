"""Runs the profiler over the groups of part E and reads what it printed."""

from __future__ import annotations

import csv
import glob
import io
import re
import shutil
import subprocess
import sys
import time
from typing import Any

from tests.hardware import counters, slow_paths
from tests.hardware.carry import load

__all__ = ["find", "known_metrics", "read", "record"]

_ATTEMPTS = 20
# What the profiler's own pages are made of, for when it does not know a name that was asked for.
_SECTIONS = (
    "SourceCounters",
    "MemoryWorkloadAnalysis_Tables",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
)
_BY_LINE = (
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
    "memory_l1_tag_requests_global",
)


def find() -> str:
    """Where the profiler is."""
    found = shutil.which("ncu")
    others = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu") + glob.glob("/usr/local/cuda*/bin/ncu"))
    if found or others:
        return found or others[-1]
    raise FileNotFoundError("there is no ncu")


def known_metrics(ncu: str) -> set[str]:
    """Names of all metrics of this GPU's chip, without the words after the dot; empty if it does not tell."""
    asked = subprocess.run(
        [ncu, "--query-metrics", "--chip", "gh100"], capture_output=True, text=True, timeout=120
    )
    names = re.findall(r"^(\w+__\w+)\s", asked.stdout, re.M)
    return set(names)


def wanted(group: str, known: set[str]) -> list[str]:
    """A group's metrics, and what the profiler itself counts of machine instructions there."""
    listed = counters.metrics(group, known or None)
    if group in slow_paths.GROUPS:
        return listed
    if "global" in group:
        more = r"smsp__sass_(l1tex_t|inst_executed_op).*global"
    elif group == "ladder":
        more = r"smsp__sass_(l1tex|inst_executed_op)|sm__sass_inst_executed_op"
    else:
        more = r"smsp__sass_(l1tex|inst_executed_op).*(shared|lds|ldgsts)"
    listed += [f"{name}.sum" for name in sorted(known) if re.match(more, name)]
    return [*dict.fromkeys(listed), *_BY_LINE]


def read(text: str) -> list[dict[str, str]]:
    """The rows of a raw page: one for each launch, without those of units."""
    start = text.find('"ID"')
    if start < 0:
        raise ValueError(f"nothing was counted: {text[-600:]}")
    rows = list(csv.DictReader(io.StringIO(text[start:])))
    return [row for row in rows if row["ID"]]


def trimmed(row: dict[str, str]) -> dict[str, float]:
    """The numbers of a row that are metrics."""
    found = {}
    for name, value in row.items():
        if name and ("__" in name or name.startswith("memory_")) and value:
            try:
                found[name] = float(value.replace(",", ""))
            except ValueError:
                continue
    return found


def _count(ncu: str, group: str, what: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", *what,
               sys.executable, "-m", "tests.hardware.counters", group]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1))


def record(group: str, ncu: str, known: set[str], seconds: float) -> dict[str, Any]:
    """A group's counts by launch."""
    jobs = load(f"counters {group}", lambda: counters.jobs(group))
    names, end = wanted(group, known), time.monotonic() + seconds
    for _ in range(_ATTEMPTS):
        ran = _count(ncu, group, ["--metrics", ",".join(names)], end - time.monotonic())
        missing = set(re.findall(r"[Ff]ailed to find metric[^\w]*([\w.]+)", ran.stdout + ran.stderr))
        fewer = [name for name in names if name not in missing and name.split(".")[0] not in missing]
        if '"ID"' in ran.stdout or len(fewer) == len(names):
            break
        names = fewer
    if '"ID"' not in ran.stdout:
        said = (ran.stdout + ran.stderr)[-800:]
        ran = _count(
            ncu, group, [word for name in _SECTIONS for word in ("--section", name)], end - time.monotonic()
        )
    else:
        said = ""
    rows, labels = read(ran.stdout), [(job, start.entry) for job in jobs for start in job.starts]
    found: dict[str, Any] = {"complete": len(rows) == len(labels), "said": said, "rows": []}
    for (job, entry), row in zip(labels, rows, strict=False):
        counted = {
            "launch": job.name,
            "entry": entry,
            "kernel": row.get("Kernel Name", ""),
            "about": job.about,
        }
        found["rows"].append({**counted, **trimmed(row)})
    return found
