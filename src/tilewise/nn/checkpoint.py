"""A run on the disk: the network, how it is trained, and what was measured, to go on from there."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.errors import ArgumentError
from tilewise.nn.epoch_figures import EpochFigures, read_epochs
from tilewise.nn.network import Network, find_fault
from tilewise.nn.options import TrainingOptions
from tilewise.whole_file import replace_when_whole

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``epochs``: what was measured in each that is done; ``digest``: of the samples."""

    network: Network
    options: TrainingOptions
    digest: str
    epochs: list[EpochFigures]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; a file that is there is replaced only when the new one is whole."""
    about = {
        "version": _VERSION,
        "options": checkpoint.options.to_dict(),
        "digest": checkpoint.digest,
        "epochs": [epoch.to_dict() for epoch in checkpoint.epochs],
    }
    # NOTE: numpy cannot save its arrays of numbers without pickling more than it must: text goes as bytes.
    arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **checkpoint.network.to_arrays()}
    with replace_when_whole(path) as opened:
        np.savez(opened, **arrays)  # type: ignore[arg-type]  # the names are those of the arrays


def load_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in a file, whose arrays are those of its options."""
    named = _read_arrays(path)
    about = _read_about(path, named.pop("about", None))
    try:
        options = TrainingOptions(**about["options"])
        epochs = read_epochs(about["epochs"])
    except (TypeError, ValueError) as error:  # an ArgumentError is one
        raise _refuse(path, str(error)) from None
    if fault := find_fault(named, options):
        raise _refuse(path, fault)
    return Checkpoint(Network.from_arrays(named), options, about["digest"], epochs)


def _read_arrays(path: str | Path) -> dict[str, Any]:
    try:
        # NOTE: NumPy leaves open what it opened itself, where that is no archive.
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise _refuse(path, "it is no whole .npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as opened:
                return dict(opened)
    except FileNotFoundError:
        raise ArgumentError("resume", "must be a checkpoint, which is not there", str(path)) from None
    except ArgumentError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise _refuse(path, f"it cannot be read: {error}") from None


def _read_about(path: str | Path, content: object) -> dict[str, Any]:
    """What a checkpoint says of itself, with everything that it has to say."""
    if not isinstance(content, np.ndarray):
        raise _refuse(path, 'it has no array "about"')
    try:
        about = json.loads(content.tobytes())
    except ValueError:
        about = None
    if not isinstance(about, dict) or "version" not in about:
        raise _refuse(path, '"about" is not the text of one')
    if about["version"] != _VERSION:
        raise ArgumentError(
            f"resume: {path}", f"must be a checkpoint of version {_VERSION}", about["version"]
        )
    for name, kind in (("options", dict), ("epochs", list), ("digest", str)):
        if not isinstance(about.get(name), kind):
            raise _refuse(path, f'"about" has no {name}, or of another type')
    return about


def _refuse(path: str | Path, fault: str) -> ArgumentError:
    # NOTE: as a value a long path would be cut short.
    return ArgumentError(f"resume: {path}", f"must be a whole checkpoint: {fault}")
