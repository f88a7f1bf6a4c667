"""Measured plans: what was found fastest on a GPU, kept in a file for each kind of GPU, which the planner prefers.

`tilewise tune` and :func:`tilewise.tune` measure. A file is JSON, beside the cache of compiled kernels; those of
several machines with GPUs of one kind can be merged. What another version of tilewise or of its compiler measured is
kept there, and not used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewise.errors import ArgumentError
from tilewise.kernels.spec import Settings, access_bytes
from tilewise.operands import Operand, Operands
from tilewise.planner.target import Target
from tilewise.toolchain import cache, nvrtc
from tilewise.whole_file import replace_when_whole

__all__ = [
    "FOLDER",
    "KeptPlan",
    "describe_operands",
    "file_of",
    "forget",
    "keep",
    "merge",
    "read",
    "recall",
    "versions",
]

FOLDER = "measured-plans"  # in the cache's directory
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The fastest of the plans that were measured for operands that lie in one way."""

    kernel: str
    settings: Settings
    copies: tuple[str, ...]
    seconds: float
    predicted_best: float
    """Seconds that the plan takes which the cost model has as the fastest, measured as well."""
    plans: int
    """How many were measured."""
    date: str
    versions: str
    """Of tilewise and its compiler."""

    @property
    def is_current(self) -> bool:
        """Whether this tilewise with this compiler measured it."""
        return self.versions == versions()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KeptPlan:
        """The inverse of ``dataclasses.asdict``; ValueError for what is none."""
        kinds = {"kernel": str, "settings": dict, "copies": list, "seconds": float, "predicted_best": float,
                 "plans": int, "date": str, "versions": str}  # fmt: skip
        if not isinstance(data, dict) or data.keys() != kinds.keys():
            raise ValueError("a plan has other fields")
        for name, kind in kinds.items():
            if not isinstance(data[name], kind):
                raise ValueError(f"{name} is no {kind.__name__}")
        return cls(**{**data, "copies": tuple(data["copies"])})


def versions() -> str:
    """Of tilewise and of the compiler, of which the code depends that was measured."""
    from tilewise import __version__

    return f"tilewise {__version__}, NVRTC {'.'.join(map(str, nvrtc.version()))}"


def describe_operands(operands: Operands) -> str:
    """What decides how long plans take: the problem, and for each array how it lies, stacks, and how wide its accesses
    may be.
    """
    arrays = [_describe(one) for one in (*operands[:3], *operands.extras)]
    stack = "" if len(operands.stack) < 2 else f"stack {'×'.join(map(str, operands.stack))}"
    split = f"{' and '.join(operands.split)} split before" if operands.split else ""
    return "; ".join(filter(None, (str(operands.problem()), stack, split, *arrays)))


def _describe(one: Operand) -> str:
    """NOTE: of the strides alone whether they are 0; padded lines take as long as dense ones."""
    lines = one if one.layout != "column" else one.transposed()
    repeated = [name for name, step in (("rows", one.row_stride), ("columns", one.column_stride)) if not step]
    how = one.layout if not repeated else f"repeated {' and '.join(repeated)}"
    stack = "".join("s" if step else "-" for step in one.stack)
    return " ".join(filter(None, (one.name, one.dtype, how, str(access_bytes(lines)), stack)))


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────


def file_of(target: Target) -> Path | None:
    """Where the measured plans of a kind of GPU are kept; None where there is no directory for them."""
    directory = cache.default().directory
    name = re.sub(r"[^a-z0-9]+", "-", target.name.lower()).strip("-")
    return None if directory is None else Path(directory) / FOLDER / f"{name}-{target.sms}.json"


def read(path: str | os.PathLike[str]) -> dict[str, KeptPlan]:
    """The plans in a file, by what they are for; nothing if there is no file."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f"it is not of format {_FORMAT}")
        return {str(name): KeptPlan.from_dict(plan) for name, plan in dict(data["plans"]).items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ArgumentError("file", f"cannot be read: {error.strerror}", str(path)) from None
    except (ValueError, KeyError, TypeError) as error:
        rule = f"must hold measured plans: {error}"
        raise ArgumentError("file", rule, str(path), "move it away, and measure again") from None


def keep(target: Target, found: Mapping[str, KeptPlan]) -> Path:
    """Add plans to those that are kept for a kind of GPU; returns where. Of two for the same the newer one stays."""
    path = file_of(target)
    if path is None:
        rule = "must be a directory that can be written, for measured plans to be kept"
        raise ArgumentError("TILEWISE_CACHE_DIR", rule, cache.default().problem)
    with _locked(path):
        before = read(path)
        for name, plan in found.items():
            if name not in before or not _is_better(before[name], plan):
                before[name] = plan
        _write(path, before)
    return path


def merge(target: Target, path: str | os.PathLike[str]) -> int:
    """Add the plans of a file to those that are kept for a kind of GPU; returns how many it has."""
    if not Path(path).exists():
        raise ArgumentError("file", "must be there", str(path))
    found = read(path)
    keep(target, found)
    return len(found)


def forget(target: Target) -> int:
    """Drop what is kept for a kind of GPU; returns how many plans that were."""
    path = file_of(target)
    if path is None or not path.exists():
        return 0
    with _locked(path):
        count = len(read(path))
        path.unlink()
    return count


def _is_better(one: KeptPlan, other: KeptPlan) -> bool:
    return (one.is_current, one.date) > (other.is_current, other.date)


def _write(path: Path, plans: Mapping[str, KeptPlan]) -> None:
    """Whole or not at all, so that a reader never sees half of it."""
    data = {"format": _FORMAT, "plans": {name: asdict(plans[name]) for name in sorted(plans)}}
    with replace_when_whole(path) as file:
        file.write((json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with a file, among processes where the system can do that; what goes wrong is said."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path.with_suffix(".lock"), "w") as lock:
            with contextlib.suppress(ImportError):  # on Windows
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise ArgumentError("file", f"cannot be written: {error.strerror}", str(path)) from None


# ── what is known ────────────────────────────────────────────────────────────────────────────────────────

_known: dict[Path, tuple[tuple[int, int], dict[str, KeptPlan]]] = {}
_lock = threading.Lock()


def recall(operands: Operands, target: Target) -> KeptPlan | None:
    """What is kept for such operands on a kind of GPU, if this version measured it; None too if the file is damaged."""
    path = file_of(target)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    stamp = (status.st_mtime_ns, status.st_size)
    with _lock:
        if _known.get(path, (None,))[0] != stamp:
            try:
                _known[path] = (stamp, read(path))
            except ArgumentError:  # which `tilewise tune` says
                _known[path] = (stamp, {})
        plans = _known[path][1]
    found = plans.get(describe_operands(operands)) if plans else None
    return found if found is not None and found.is_current else None
