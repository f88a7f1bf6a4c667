"""Hold the emulator against a record: ``python -m tests.hardware.compare FOLDER``.

Prints a line for each job that differs: how much of it is equal, and the first difference.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.hardware.job import Array, Job
from tests.hardware.machine import Emulated

__all__ = ["Difference", "differences", "pieces"]


@dataclass(frozen=True)
class Difference:
    """What is not the same in a piece of a job's results."""

    job: str
    piece: str
    equal: float  # share of elements
    first: str

    def __str__(self) -> str:
        return f"{self.job} | {self.piece} | {100 * self.equal:.2f} % equal | {self.first}"


def pieces(part: str, job: Job, results: dict[str, Array]) -> dict[str, Array]:
    """A job's results in the pieces that are looked at one by one: designs, or instructions."""
    if part in ("matrix", "wgmma"):
        from tests.hardware.matrix import DESIGNS, TILES

        d = calmed(results["d"], _types(job.name)[0])
        if len(d) != TILES * len(DESIGNS):
            return {"": d}
        return {name: d[TILES * i : TILES * (i + 1)] for i, name in enumerate(DESIGNS)}
    if part == "scalar":
        return {
            text: calmed(results[f"o{i}"], result_type(text)) for i, text in enumerate(job.about["texts"])
        }
    return results


def _types(name: str) -> list[str]:
    """The types in the name of a matrix instruction, that of D first."""
    return [word for word in name.split(".") if word in _NAN or word in ("s32", "f8")]


_NAN = {"f16": (0x7FFF, 0x7C00), "bf16": (0x7FFF, 0x7F80), "f32": (0x7FFF_FFFF, 0x7F80_0000),
        "f64": ((1 << 63) - 1, 0x7FF << 52)}  # fmt: skip


def result_type(text: str) -> str:
    """What kind of number an instruction's ``%d`` is; empty for what is no floating-point number."""
    words = text.split(" ")[0].split(".")
    if "selp" in text or words[0] in ("shfl", "redux"):
        return ""
    kinds = [word for word in words[1:] if word[0] in "fbeustd" and any(letter.isdigit() for letter in word)]
    if not kinds:
        return ""
    return kinds[-2] if words[0] in ("cvt", "set") and len(kinds) > 1 else kinds[-1]


def calmed(array: Array, type_: str) -> Array:
    """Bits with every NaN the same: GPUs and CPUs differ in what else a NaN holds."""
    kind = type_.removesuffix("x2")
    if kind == "tf32":
        kind = "f32"
    if kind not in _NAN:
        return array
    size, infinity = _NAN[kind]
    width = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[kind]
    bits = np.ascontiguousarray(array).view(f"u{width}")
    calm: Array = np.where((bits & bits.dtype.type(size)) > infinity, bits.dtype.type(size), bits)
    return calm


def differences(
    part: str, job: Job, theirs: dict[str, Array], ours: dict[str, Array]
) -> Iterator[Difference]:
    """Where the emulator and the record do not agree."""
    found = pieces(part, job, ours)
    for name, wanted in pieces(part, job, theirs).items():
        got = found[name]
        same = wanted.view(f"u{wanted.itemsize}") == got.view(f"u{got.itemsize}")
        if not same.all():
            at = int(np.argmin(same.ravel()))
            first = f"[{at}] {_shown(got.flat[at])}, on the GPU {_shown(wanted.flat[at])}"
            if part == "scalar":
                given = ", ".join(_shown(job.buffers[one].flat[at]) for one in "abc")
                first += f", of {given}"
            yield Difference(job.name, name, float(same.mean()), first)


def _shown(value: Any) -> str:
    return f"{value:#x}" if value.dtype.kind == "u" else f"{value!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=["ladder", "matrix", "wgmma", "scalar"])
    parser.add_argument("--job", default="", help="only jobs with this in their name")
    given = parser.parse_args()
    from tests.hardware.carry import load, parts

    record = json.loads((given.folder / "record.json").read_text())
    makers, emulator = dict(parts()), Emulated(sums="hardware")
    for part in given.only:
        noted = {entry["name"]: entry for entry in record["parts"][part]["jobs"]}
        arrays = np.load(given.folder / f"{part}.npz")
        equal = others = 0
        for job in load(part, makers[part]):
            if given.job not in job.name:
                continue
            entry = noted.get(job.name, {"failed": "not recorded"})
            if "failed" in entry:
                print(f"{job.name} | {entry['failed']}")
                continue
            if entry["inputs"] != job.inputs:
                others += 1
                continue
            try:
                ours = emulator.run(job)
            except Exception as error:
                print(f"{job.name} | the emulator: {str(error)[:150]}")
                continue
            theirs = {name: arrays[f"{job.name}|{name}"] for name in job.results}
            found = list(differences(part, job, theirs, ours))
            equal += not found
            for one in found:
                print(one, flush=True)
        print(f"{part}: {equal} jobs equal, {others} left out: recorded with other inputs")


if __name__ == "__main__":
    main()
