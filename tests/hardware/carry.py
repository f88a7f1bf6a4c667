"""Jobs made on one machine for another: ``python -m tests.hardware.carry`` writes them to ``.carry``.

The machine with the GPU may have another compiler, or none; what it runs is made here.
"""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.hardware.job import Job

__all__ = ["FOLDER", "load", "main", "parts"]

FOLDER = Path(__file__).resolve().parents[2] / ".carry" / "hardware"


def load(part: str, make: Callable[[], Iterable[Job]]) -> list[Job]:
    """The jobs of a part: those that were brought along, else made here."""
    file = _file(part)
    if file.exists():
        with gzip.open(file, "rb") as stream:
            found: list[Job] = pickle.load(stream)
            return found
    return list(make())


def _file(part: str) -> Path:
    return FOLDER / f"{part.replace(' ', '-')}.pickle.gz"


def parts() -> Iterator[tuple[str, Callable[[], Iterable[Job]]]]:
    """Every part that has jobs, and who makes them."""
    from tests.hardware import counters, instructions, ladder, matrix, random_programs, scalar, wgmma

    yield "ladder", ladder.jobs
    yield "matrix", matrix.jobs
    yield "wgmma", wgmma.jobs
    yield "scalar", scalar.jobs
    yield "programs", random_programs.jobs
    for group in counters.GROUPS:
        yield f"counters {group}", lambda group=group: counters.jobs(group)  # type: ignore[misc]
    for group in instructions.GROUPS:
        yield f"instructions {group}", lambda group=group: instructions.jobs(group)  # type: ignore[misc]
    yield "timings", timings_jobs


def timings_jobs() -> Iterator[Job]:
    """The rungs that are worth timing; their operands are made on the GPU."""
    from tests.hardware.timings import jobs

    return jobs()


def _assembled(job: Job) -> Job:
    """A job with its machine code, where drivers that do not know its version of PTX yet are to run it."""
    if job.cubin is not None or job.ptx.startswith(".version 9.0"):
        return job
    from tilewise.toolchain.assemble import assemble
    from tilewise.toolchain.compile import read_ptx

    return replace(job, cubin=assemble(read_ptx(job.ptx), "sm_90a").cubin)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part, make in parts():
        jobs = [_assembled(job) for job in make()]
        with gzip.open(_file(part), "wb", compresslevel=4) as stream:
            pickle.dump(jobs, stream, protocol=5)
        print(f"{part}: {len(jobs)} jobs, {_file(part).stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
