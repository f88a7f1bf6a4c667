"""Ask a GPU, and write down what it says.

    python -m tests.hardware.record --out FOLDER [--only PART ...] [--device emulator] [--seconds 520]

Every part runs in a process of its own and has a time limit of its own; what one cannot do is noted, and the
others go on. A table at the end says what came of each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tests.hardware import counters
from tests.hardware.carry import FOLDER, load
from tests.hardware.job import Array, Job, digest
from tests.hardware.machine import Failed, machine

__all__ = ["main"]

TOGETHER = ("ladder", "matrix", "wgmma", "scalar", "programs")
ALONE = ("timings", "counters")
_LIMITS = {
    "ladder": 120.0,
    "matrix": 120.0,
    "wgmma": 100.0,
    "scalar": 120.0,
    "programs": 150.0,
    "timings": 110.0,
}
_RESTARTS = 8
_A_SHARD = 25  # jobs whose results are written together
_DIGESTS = ("programs",)  # parts of which hashes say enough


def jobs_of(part: str) -> list[Job]:
    def make() -> Any:
        from tests.hardware import carry

        return dict(carry.parts())[part]()

    return load(part, make)


# -- a worker: one part in a process of its own -----------------------------------------------------
def work(part: str, device: str, out: Path, first: int) -> int:
    """Run a part's jobs from the number ``first`` on; returns 0 when it came to the end."""
    if part == "timings":
        from tests.hardware import timings

        (out / "timings.json").write_text(json.dumps(timings.record(jobs_of(part))))
        return 0
    target, jobs = machine(device), jobs_of(part)
    done: list[dict[str, Any]] = []
    number = first

    def save() -> None:
        if done:
            (out / f"{part}-{number:04}.pickle").write_bytes(pickle.dumps(done))
            done.clear()

    for number, job in enumerate(jobs[first:], first):
        entry: dict[str, Any] = {"number": number, "name": job.name, "inputs": job.inputs, "about": job.about}
        done.append(entry)
        try:
            entry["results"] = target.run(job, 20.0)
        except Exception as error:
            entry["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
            if isinstance(error, Failed) and "cuModuleLoad" not in str(error):
                save()  # the context may be lost with it
                return 3
        if len(done) >= _A_SHARD:
            save()
    save()
    return 0


def _shards(part: str, out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(out.glob(f"{part}-*.pickle")):
        found += pickle.loads(file.read_bytes())
        file.unlink()
    return found


# -- the parent -------------------------------------------------------------------------------------
class Running:
    """A part's process; started again behind a job that breaks it."""

    def __init__(self, part: str, device: str, out: Path, limit: float) -> None:
        self.part, self._device, self._out = part, device, out
        self._end, self._starts = time.monotonic() + limit, 0
        self._began = time.monotonic()
        self.said, self.state = "", "running"
        self._start(0)

    def _start(self, first: int) -> None:
        self._starts += 1
        self._log = (self._out / f"{self.part}.log").open("ab")
        command = [sys.executable, "-m", "tests.hardware.record", "--worker", self.part, "--first", str(first),
                   "--device", self._device, "--out", str(self._out)]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def poll(self) -> bool:
        """Whether it is over."""
        status = self._process.poll()
        if status is None:
            if time.monotonic() < self._end:
                return False
            self._process.kill()
            self._process.wait()
            self.state = "out of time"
        elif status == 0:
            self.state = "done"
        elif status == 3 and self._starts <= _RESTARTS:
            numbers = [entry["number"] for file in self._out.glob(f"{self.part}-*.pickle")
                       for entry in pickle.loads(file.read_bytes())]  # fmt: skip
            self._start(max(numbers, default=-1) + 1)
            return False
        else:
            self.state = f"broke with status {status}"
        self.seconds = time.monotonic() - self._began
        self._log.close()
        file = self._out / f"{self.part}.log"
        self.said = file.read_text(errors="replace")[-2000:]
        file.unlink()
        return True


def run_parts(parts: Sequence[str], device: str, out: Path) -> dict[str, Any]:
    """Run parts side by side until all are over; what to note of each."""
    running = [Running(part, device, out, _LIMITS[part]) for part in parts]
    waiting = list(running)
    while waiting:
        waiting = [one for one in waiting if not one.poll()]
        time.sleep(0.2)
    found = {}
    for one in running:
        try:
            found[one.part] = {
                "state": one.state,
                "seconds": round(one.seconds, 1),
                "said": one.said,
                **_collected(one.part, out),
            }
        except Exception as error:
            found[one.part] = {"state": f"{one.state}, not collected: {error!r}"}
    return found


def _collected(part: str, out: Path) -> dict[str, Any]:
    """A part's results: arrays to a file, the rest to be noted."""
    if part == "timings":
        file = out / "timings.json"
        made: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        file.unlink(missing_ok=True)
        return made
    arrays: dict[str, Array] = {}
    noted = []
    for entry in _shards(part, out):
        results = entry.pop("results", {})
        entry["digests"] = {name: digest(array) for name, array in results.items()}
        if part in _DIGESTS:
            entry.pop("about")
        else:
            arrays.update({f"{entry['name']}|{name}": array for name, array in results.items()})
        noted.append(entry)
    if arrays:
        np.savez_compressed(out / f"{part}.npz", **arrays)  # type: ignore[arg-type]
    return {"jobs": noted, "failed": sum("failed" in entry for entry in noted)}


def record_counters(out: Path, end: float, groups: Sequence[str]) -> dict[str, Any]:
    """Part E, group by group while there is time."""
    from tests.hardware import profile

    ncu = profile.find()
    known = profile.known_metrics(ncu)
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=30).stdout
    found: dict[str, Any] = {"version": version.strip().splitlines()[-1:], "groups": {}, "seconds": {},
                             "known": sorted(name for name in known if "sass" in name or "shared" in name)}  # fmt: skip
    for group in groups:
        left, began = end - time.monotonic(), time.monotonic()
        if left < 10:
            break
        try:
            found["groups"][group] = profile.record(group, ncu, known, min(left, 150.0))
        except Exception as error:
            output = getattr(error, "stdout", b"") or b""
            found["groups"][group] = {
                "failed": f"{type(error).__name__}: {str(error)[-900:]}",
                "said": str(output)[-900:],
            }
        found["seconds"][group] = round(time.monotonic() - began, 1)
        # What is there is kept, whatever comes after.
        (out / "counters.json.gz").write_bytes(gzip.compress(json.dumps(found).encode()))
    return {
        group: len(rows.get("rows", [])) or rows.get("failed", "?") for group, rows in found["groups"].items()
    }


def about(command: Sequence[str]) -> dict[str, Any]:
    """Of which machine this is the record."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "command": " ".join(["python -m tests.hardware.record", *_plain(command[1:])]),
        "gpu": _smi(), "python": platform.python_version(), "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "brought": {file.name: digest(file.read_bytes()) for file in sorted(FOLDER.glob("*"))},
    }  # fmt: skip


def _plain(words: Sequence[str]) -> list[str]:
    """Arguments without the folder that results go to, which is nobody's business."""
    return [word for i, word in enumerate(words) if word != "--out" and words[i - 1 if i else 0] != "--out"]


def _smi() -> str:
    fields = ("name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu,power.draw,"
              "power.limit,ecc.mode.current,compute_cap,vbios_version")  # fmt: skip
    try:
        asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"not told: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[*TOGETHER, *ALONE], choices=[*TOGETHER, *ALONE])
    parser.add_argument("--device", default="gpu", choices=("gpu", "emulator"))
    parser.add_argument("--groups", nargs="*", default=list(counters.GROUPS), choices=list(counters.GROUPS))
    parser.add_argument("--seconds", type=float, default=520.0, help="for everything")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        status = work(given.worker, given.device, given.out, given.first)
        sys.stdout.flush()
        os._exit(status)  # a kernel that does not end must not hold the process
    end = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"about": about(sys.argv), "parts": {}}

    def save() -> None:
        (given.out / "record.json").write_text(json.dumps(found, default=str))

    steps = [
        [part for part in TOGETHER if part in given.only],
        *([part] for part in ALONE if part in given.only),
    ]
    for parts in steps:
        began = time.monotonic()
        try:
            if parts == ["counters"]:
                found["parts"]["counters"] = {"groups": record_counters(given.out, end, given.groups)}
            elif parts:
                found["parts"].update(run_parts(parts, given.device, given.out))
        except Exception:
            found["parts"][" ".join(parts)] = {"state": traceback.format_exc()[-1500:]}
        print(f"{' '.join(parts)}: {time.monotonic() - began:.0f} s", flush=True)
        save()
    found["about"]["gpu at the end"] = _smi()
    save()
    _table(found)
    return 0


def _table(found: dict[str, Any]) -> None:
    print(found["about"]["gpu"])
    for part, result in found["parts"].items():
        jobs = result.get("jobs", [])
        print(
            f"{part}: {result.get('state', '')} {result.get('seconds', '')} s, {len(jobs)} jobs, {result.get('failed', '')} failed"
        )
        for entry in [entry for entry in jobs if "failed" in entry][:6]:
            print(f"    {entry['name'][:70]}: {entry['failed'][:160]}")
        if result.get("state", "done") != "done":
            print("   ", result.get("said", "")[-700:])
        for name, row in result.get("rows", {}).items():
            print(f"    {name[:72]}: {row.get('tflops', row.get('failed', ''))} {row.get('ratio', '')}")
        for name, row in result.get("groups", {}).items():
            print(f"    {name}: {str(row)[:300]}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
