"""A GPU's clock, power and temperature as nvidia-smi tells them: once, or all the time beside a measurement."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from tilewise.bench.gemm_figures import GpuLoad

__all__ = ["GpuMonitor", "Sample", "average", "parse_sample", "query"]

_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")
_EVERY_MS = 100
_PATIENCE = 20.0  # seconds for one answer


class Sample(NamedTuple):
    """What the GPU ran at, and when by time.monotonic()."""

    at: float
    clock_mhz: float
    watts: float
    celsius: float


def query(uuid: str, fields: Sequence[str]) -> dict[str, str] | None:
    """Fields of ``nvidia-smi --query-gpu`` of one GPU; None where there is no nvidia-smi, or it refuses."""
    command = [
        "nvidia-smi",
        f"--id={uuid}",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else None


def parse_sample(line: str, at: float) -> Sample | None:
    """A line that nvidia-smi prints; None if it holds anything but numbers, such as [N/A]."""
    try:
        clock, watts, celsius = (float(value) for value in line.split(","))
    except ValueError:
        return None
    return Sample(at, clock, watts, celsius)


def average(samples: Sequence[Sample], spans: Sequence[tuple[float, float]]) -> GpuLoad | None:
    """The mean of the samples that were taken within one of the spans of time; None if none was."""
    within = [one for one in samples if any(begin <= one.at <= end for begin, end in spans)]
    if not within:
        return None
    means = (statistics.fmean(values) for values in zip(*(one[1:] for one in within), strict=True))
    return GpuLoad(*means)


class GpuMonitor:
    """Reads a GPU's clock and power ten times a second while it is entered; nothing without nvidia-smi."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.samples: list[Sample] = []

    def __enter__(self) -> GpuMonitor:
        self.samples = []
        command = [
            *("nvidia-smi", f"--id={self._uuid}", f"--query-gpu={','.join(_FIELDS)}"),
            *("--format=csv,noheader,nounits", f"--loop-ms={_EVERY_MS}"),
        ]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert self._process.stdout
            self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
            self._reader.start()
        return self

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            sample = parse_sample(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
