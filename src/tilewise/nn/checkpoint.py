"""A run on the disk: the network, how it is trained, and what was measured, to go on from there."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.errors import ArgumentError
from tilewise.nn.network import Network
from tilewise.nn.options import TrainingOptions

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``epochs``: what was measured in each that is done; ``digest``: of the samples."""

    network: Network
    options: TrainingOptions
    digest: str
    epochs: list[dict[str, Any]]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; a file that is there is replaced only when the new one is whole."""
    about = {
        "version": _VERSION,
        "options": checkpoint.options.to_dict(),
        "digest": checkpoint.digest,
        "epochs": checkpoint.epochs,
    }
    # NOTE: numpy cannot save its arrays of numbers without pickling more than it must: text goes as bytes.
    arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **checkpoint.network.to_arrays()}
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as opened:
            np.savez(opened, **arrays)  # type: ignore[arg-type]  # the names are those of the arrays
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in a file."""
    try:
        # NOTE: NumPy leaves open what it opened itself, where that is no archive.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as opened:
            named = dict(opened)
        about = json.loads(named.pop("about").tobytes())
        if about["version"] != _VERSION:
            raise ArgumentError("resume", f"must be a checkpoint of version {_VERSION}", about["version"])
        options = TrainingOptions(**about["options"])
        return Checkpoint(Network.from_arrays(named), options, about["digest"], about["epochs"])
    except ArgumentError:
        raise
    except FileNotFoundError:
        raise ArgumentError("resume", "must be a checkpoint, which is not there", str(path)) from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            "resume", f"must be a checkpoint; this cannot be read: {error}", str(path)
        ) from None
