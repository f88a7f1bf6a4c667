"""Make what is kept in ``tests/golden/hardware`` from a record: ``python -m tests.hardware.keep FOLDER``.

Of results that have to be the same bit for bit hashes are enough, a piece of a job each. Of approximate
functions the bits themselves are kept, to measure distances. Counters and times are kept as they are.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.hardware.carry import load
from tests.hardware.compare import pieces
from tests.hardware.job import Array, Job, digest

__all__ = ["KEPT", "hashed", "kept", "near_texts"]

KEPT = Path(__file__).resolve().parents[1] / "golden" / "hardware"
# What the profiler knows by names that were not asked for.
_BY_LINE = (
    "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "memory_l2_theoretical_sectors_global",
    "smsp__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum",
)  # fmt: skip
_SHORT = 16  # characters of a hash
_PROGRAMS = 150  # that are kept
_PARTS = ("matrix", "wgmma", "scalar")


def near_texts() -> set[str]:
    """The instructions of part C of which the ISA gives a bound only."""
    from tests.hardware.scalar_table import cases

    return {case.text for case in cases() if case.kind == "near"}


def hashed(part: str, job: Job, results: dict[str, Array]) -> dict[str, str]:
    """The hash of each piece."""
    return {name: digest(array)[:_SHORT] for name, array in pieces(part, job, results).items()}


def kept(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Hashes by part, job and piece, and the bits of approximate functions."""
    from tests.hardware.carry import parts

    record, makers = json.loads((folder / "record.json").read_text()), dict(parts())
    found: dict[str, Any] = {"about": record["about"]}
    near: dict[str, Array] = {}
    inexact = near_texts()
    for part in (part for part in _PARTS if part in record["parts"]):
        noted = {entry["name"]: entry for entry in record["parts"][part]["jobs"] if "failed" not in entry}
        arrays, rows = np.load(folder / f"{part}.npz"), {}
        for job in load(part, makers[part]):
            if job.name not in noted or noted[job.name]["inputs"] != job.inputs:
                continue
            results = {name: arrays[f"{job.name}|{name}"] for name in job.results}
            hashes = hashed(part, job, results)
            if part == "scalar":
                texts = pieces(part, job, results)
                near |= {text: array for text, array in texts.items() if text in inexact}
                hashes = {text: value for text, value in hashes.items() if text not in inexact}
            rows[job.name] = {"inputs": job.inputs[:_SHORT], "hashes": hashes}
        found[part] = rows
    return found, near


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    KEPT.mkdir(parents=True, exist_ok=True)
    record = json.loads((folder / "record.json").read_text())
    if set(_PARTS) & set(record["parts"]):
        found, near = kept(folder)
        (KEPT / "hashes.json").write_text(json.dumps(found, indent=0) + "\n")
        np.savez_compressed(KEPT / "near.npz", **near)  # type: ignore[arg-type]
    if "ladder" in record["parts"]:
        _keep_ladder(folder, record["parts"]["ladder"]["jobs"])
    if "programs" in record["parts"]:
        _keep_programs(record["parts"]["programs"]["jobs"])
    timings = record["parts"].get("timings", {})
    if timings:
        (KEPT / "timings.json").write_text(json.dumps({"about": record["about"], **timings}, indent=1) + "\n")
    counters = folder / "counters.json.gz"
    if counters.exists():
        _keep_counters(json.loads(gzip.decompress(counters.read_bytes())), record["about"])


def _keep_ladder(folder: Path, noted: list[dict[str, Any]]) -> None:
    """Rungs with the PTX that the GPU ran, so that neither another compiler nor a changed rung matters."""
    from tests.hardware.ladder import jobs as rungs
    from tests.hardware.ladder import stored

    inputs = {entry["name"]: entry["inputs"] for entry in noted if "failed" not in entry}
    arrays, rows = np.load(folder / "ladder.npz"), []
    for job in load("ladder", rungs):
        if inputs.get(job.name) == job.inputs:
            results = {name: arrays[f"{job.name}|{name}"] for name in job.results}
            rows.append({**stored(job), "hashes": hashed("ladder", job, results)})
    texts = sorted({row["text"] for row in rows})
    for row in rows:
        row["text"] = texts.index(row["text"])
    packed = json.dumps({"texts": texts, "rows": rows}).encode()
    (KEPT / "ladder.json.gz").write_bytes(gzip.compress(packed, 9, mtime=0))


def _keep_programs(noted: list[dict[str, Any]]) -> None:
    """Some programs in full, with the hashes of what they wrote."""
    from tests.hardware.random_programs import jobs as programs
    from tests.hardware.random_programs import stored

    jobs = {job.name: job for job in load("programs", programs)}
    rows: list[dict[str, Any]] = []
    for entry in noted:
        made = jobs.get(entry["name"])
        if len(rows) < _PROGRAMS and made is not None and made.inputs == entry["inputs"]:
            rows.append({**stored(made), "hashes": [value[:_SHORT] for value in entry["digests"].values()]})
    (KEPT / "programs.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def _keep_counters(counted: dict[str, Any], about: dict[str, Any]) -> None:
    """A row for each launch; metrics that were counted and are not in a row are zero there.

    Groups that were not recorded this time stay as they are.
    """
    from tests.hardware import counters

    file = KEPT / "counters.json"
    before = json.loads(file.read_text()) if file.exists() else {"groups": {}}
    groups = before["groups"]
    for group, result in counted["groups"].items():
        if "rows" not in result:
            continue
        known = {name for row in result["rows"] for name, value in row.items() if isinstance(value, float)}
        names = sorted(known & {*counters.metrics(group), *_BY_LINE})
        rows = []
        for row in result["rows"]:
            numbers = {
                name: int(row[name]) if row[name] % 1 == 0 else row[name] for name in names if row.get(name)
            }
            rows.append({**{name: row[name] for name in ("launch", "entry", "about")}, "counts": numbers})
        of = {key: about[key] for key in ("date", "gpu")} | {"profiler": counted["version"]}
        groups[group] = {"complete": result["complete"], "about": of, "metrics": names, "rows": rows}
    if {*groups} > {*counted["groups"]}:  # what groups say that have nothing of their own to say
        about, counted["version"] = before["about"], before["profiler"]
    text = json.dumps({"about": about, "profiler": counted["version"], "groups": groups})
    file.write_text(text.replace('}, {"launch"', '},\n{"launch"') + "\n")


if __name__ == "__main__":
    main()
