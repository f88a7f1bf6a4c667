"""The figures of every GPU, as a program reads them, and the names that find it.

``python -m tests.gpu_figures`` writes ``tests/golden/gpus.txt`` anew, which ``tests/nothing/test_gpus.py`` compares: do so
after a change that is meant to change figures, and look at the difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from tilewise import gpus
from tilewise._gpu_names import SHARED
from tilewise._gpu_table import PER_CAPABILITY
from tilewise.gpus import Gpu, Peaks

GOLDEN = Path(__file__).parent / "golden" / "gpus.txt"
COMMAND = "python -m tests.gpu_figures"
_BESIDES = ("name", "title", "limits", "peaks", "published", "aliases", "source")


def list_figures() -> str:
    """Each compute capability, and each GPU."""
    parts = [_of_capability(gpus.limits(capability)) for capability in PER_CAPABILITY]
    parts += [_of_gpu(gpu) for gpu in gpus.GPUS.values()]
    parts.append(
        "\n".join([f"also called so: {name}: {', '.join(others)}" for name, others in SHARED.items()])
    )
    return "\n\n".join(parts) + "\n"


def _of_capability(limits: gpus.Limits) -> str:
    named = [f"{name} {value}" for name, value in dataclasses.asdict(limits).items()]
    derived = [
        f"{name} {getattr(limits, name)}"
        for name in sorted(vars(type(limits)))
        if isinstance(vars(type(limits))[name], property)
    ]
    entry = PER_CAPABILITY[limits.capability]
    return f"{', '.join(named)}\n  {', '.join(derived)}\n  {dict(entry.per_clock)}, cycles {entry.cycles}"


def _of_gpu(gpu: Gpu) -> str:
    figures = [
        f"{one.name} {getattr(gpu, one.name)}" for one in dataclasses.fields(gpu) if one.name not in _BESIDES
    ]
    lines = [f"{gpu}", f"  {', '.join(figures)}"]
    lines += [
        f"  {name}: {_tera(peaks)}" for name, peaks in (("peaks", gpu.peaks), ("published", gpu.published))
    ]
    lines += [f"  also {', '.join(gpu.aliases)}" for _ in gpu.aliases[:1]]
    if gpu is next(one for one in gpus.GPUS.values() if one.capability == gpu.capability):
        lines += [f"  {space}" for space in gpus.memory_spaces(gpu)]
    return "\n".join(lines)


def _tera(peaks: Peaks) -> str:
    known: Iterator[tuple[str, float]] = (
        (k, v) for k, v in dataclasses.asdict(peaks).items() if v is not None
    )
    return ", ".join(f"{kind} {rate / 1e12:.6g}" for kind, rate in known)


if __name__ == "__main__":
    GOLDEN.write_text(list_figures(), encoding="utf-8")
