"""One run of a kernel from a file: its time, the arrays that it changed, and whether they are as expected."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.launch_spec import FileLaunch
from tilewise.bench.outputs import (
    OutputVerdict,
    check_folder,
    find_output,
    read_expectation,
    save_output,
    split_spec,
)
from tilewise.bench.unwritten import Unwritten, fill_with_patterns, find_unwritten, list_unwritten
from tilewise.devices import Device
from tilewise.devices.emulated import EmulatedDevice
from tilewise.errors import ToolError
from tilewise.kernel import BoundCall
from tilewise.launch import dim3
from tilewise.toolchain.binary import Resources

__all__ = ["FileRun", "OutputSpec", "Result", "run_file"]

_FIRST = 8  # elements of a result that JSON has


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Which outputs of a launch to save, compare and print, as the command line gives it."""

    save: Sequence[str] = ()
    expect: Sequence[str] = ()
    show: Sequence[int] = ()
    relative: float | None = None
    absolute: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """An array that the launch changed, or that is to be printed, as it was afterwards."""

    argument: int
    word: str
    values: npt.NDArray[Any]
    unwritten: npt.NDArray[np.bool_] | None  # which elements were not written, where that is known
    whole: bool  # print every element

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all elements or the first few in a row, None for those that were not written."""
        numbers = self.values if self.values.dtype.kind in "iu" else self.values.astype(np.float64)
        count = numbers.size if self.whole else _FIRST
        values = numbers.reshape(-1)[:count].tolist()
        if self.unwritten is not None:
            missing = self.unwritten.reshape(-1)[:count]
            values = [None if unwritten else value for value, unwritten in zip(values, missing, strict=True)]
        return {
            "argument": self.argument,
            "word": self.word,
            "type": str(self.values.dtype),
            "shape": list(self.values.shape),
            "values": values,
        }


@dataclass(frozen=True)
class FileRun:
    """The results of one launch."""

    launch: FileLaunch
    device: Device
    seconds: float
    resources: Resources | None  # None of foreign PTX
    results: list[Result]
    unwritten: list[Unwritten]
    verdicts: list[OutputVerdict]
    saved: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        launch, used = self.launch, self.resources
        return {
            "kernel": launch.kernel.name,
            "device": self.device.name,
            "arch": launch.kernel.arch,
            "grid": list(dim3("grid", launch.grid)),
            "block": list(dim3("block", launch.block)),
            "seed": launch.seed,
            "seconds": self.seconds,
            "registers": used.registers if used else None,
            "shared_bytes": used.shared_bytes + launch.shared if used else None,
            "spills": used.spills if used else None,
            "results": [result.to_dict() for result in self.results],
            "unwritten": [item.to_dict() for item in self.unwritten],
            "expected": [verdict.to_dict() for verdict in self.verdicts],
            "saved": list(self.saved),
            "correct": self.ok if self.verdicts else None,
        }


def run_file(launch: FileLaunch, device: Device, wanted: OutputSpec, timeout: float | None = None) -> FileRun:
    """Launch once on a device; save, compare and print outputs as ``wanted`` gives."""
    made = launch.make_arguments(device)
    # All options are parsed before the launch: a mistake in the last one must not cost a run.
    saves = [
        (find_output("-o", number, made), file) for number, file in (split_spec("-o", w) for w in wanted.save)
    ]
    for _, file in saves:
        check_folder(file)
    shown = {find_output("--print", number or None, made).number for number in wanted.show}
    expected = [read_expectation(word, made, wanted.relative, wanted.absolute) for word in wanted.expect]
    patterns = fill_with_patterns(made, launch.seed)
    call = launch.bind(made, device)
    with launch.rename_errors():
        seconds = _launch(call, device, timeout)
    after = {item.number: item.array.numpy() for item in made if item.array is not None}
    missing = find_unwritten(made, patterns)
    results = [
        Result(item.number, item.word, after[item.number], missing.get(item.number), item.number in shown)
        for item in made
        if item.number in shown or (item.number in after and _is_changed(item.before, after[item.number]))
    ]
    for item, file in saves:
        save_output(item, file, after[item.number])
    return FileRun(
        launch=launch,
        device=device,
        seconds=seconds,
        resources=_resources(call),
        results=results,
        unwritten=list_unwritten(made, missing),
        verdicts=[one.judge(after[one.argument], missing.get(one.argument)) for one in expected],
        saved=[file for _, file in saves],
    )


def _launch(call: BoundCall, device: Device, timeout: float | None) -> float:
    """Seconds that the launch took; compiling for the CPU is not among them."""
    if isinstance(device, EmulatedDevice):
        for launch in call.bound.launches:
            device.launcher.build(launch.binary, launch.entry, launch.launch.block)
    if timeout is None:
        (seconds,) = device.time(call, 1)
        device.synchronize()
        return seconds
    started = time.perf_counter()
    call(timeout)
    device.synchronize()
    return time.perf_counter() - started


def _resources(call: BoundCall) -> Resources | None:
    try:
        return call.bound.launches[0].resources
    except ToolError:
        return None


def _is_changed(before: npt.NDArray[Any] | None, after: npt.NDArray[Any]) -> bool:
    return before is None or before.tobytes() != after.tobytes()
