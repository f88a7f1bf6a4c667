"""Part D: random programs, of which the emulator is known to come to an end."""

from __future__ import annotations

import base64
import random
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fuzz.programs import make
from tests.hardware.job import Array, Job, Start

__all__ = ["COUNT", "assembled", "job", "jobs", "restored", "stored"]

COUNT = 400
_ROWS, _COUNTERS = 4, 8
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.([xyz])|%(laneid)")


def assembled(text: str) -> str:
    """A program as an assembler takes it: special registers are read by mov alone."""
    head, body = text.split("ld.param", 1)
    found: dict[str, str] = {}

    def own(match: re.Match[str]) -> str:
        return found.setdefault(match[0], "%own_" + match[0][1:].replace(".", "_"))

    statements = body.split(";")
    for i, statement in enumerate(statements):
        if not re.search(r"\bmov\.u32\b", statement):
            statements[i] = _SPECIAL.sub(own, statement)
    moves = [f".reg .b32 {name}; mov.u32 {name}, {special};" for special, name in sorted(found.items())]
    return "\n".join([head, *moves, "  ld.param" + ";".join(statements)])


def job(seed: int) -> Job:
    case = make(random.Random(seed).randint)
    buffers: dict[str, Array] = {
        "source": case.source,
        "output": np.zeros(case.count * _ROWS, np.uint32),
        "counters": np.zeros(_COUNTERS, np.uint32),
    }
    start = Start("k", case.grid, case.block, ("source", "output", "counters", np.uint32(case.scalar)))
    return Job(f"{seed}", assembled(case.text), [start], buffers, ["output", "counters"])


def jobs(count: int = COUNT) -> Iterator[Job]:
    return (job(seed) for seed in range(count))


def stored(job: Job) -> dict[str, Any]:
    """A program and all that it reads as JSON: the generator may change, what was recorded does not."""
    (start,) = job.starts
    source = base64.b64encode(zlib.compress(job.buffers["source"].tobytes(), 9)).decode()
    count = job.buffers["output"].size
    return {"name": job.name, "text": job.ptx, "grid": start.grid, "block": start.block, "count": count,
            "scalar": int(start.args[-1]), "source": source}  # fmt: skip


def restored(row: dict[str, Any]) -> Job:
    """The job that was stored."""
    source = np.frombuffer(zlib.decompress(base64.b64decode(row["source"])), np.uint32).copy()
    buffers: dict[str, Array] = {
        "source": source,
        "output": np.zeros(row["count"], np.uint32),
        "counters": np.zeros(_COUNTERS, np.uint32),
    }
    args = ("source", "output", "counters", np.uint32(row["scalar"]))
    start = Start("k", tuple(row["grid"]), tuple(row["block"]), args)
    return Job(row["name"], row["text"], [start], buffers, ["output", "counters"])
