"""Checkpoints: what is none, or has not the arrays of its options, is told in a line that names the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.nn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tilewise.nn.network import Network
from tilewise.nn.training import EpochFigures

Arrays = dict[str, npt.NDArray[Any]]
OPTIONS = tw.nn.TrainingOptions(hidden=32)
EPOCH = EpochFigures(1, 0.5, 0.75, 0.6, 8, 1.0, 4, [2.5, 1.5])


def save(folder: Path) -> Path:
    path = folder / "checkpoint.npz"
    save_checkpoint(path, Checkpoint(Network.begin(OPTIONS), OPTIONS, "of the samples", [EPOCH]))
    return path


def refusal(path: Path) -> str:
    """What is said to be wrong with a file, in a line that begins with its name."""
    with pytest.raises(ArgumentError) as refused:
        load_checkpoint(path)
    begins, text = f"resume: {path} must be a whole checkpoint: ", str(refused.value)
    assert text.startswith(begins) and "\n" not in text
    return text.removeprefix(begins)


@pytest.mark.parametrize("content", [b"", b"<svg></svg>", b"PK\x03\x04 cut off"])
def test_what_is_no_archive_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.npz").write_bytes(content)
    assert refusal(tmp_path / "other.npz") == "it is no whole .npz file"
    # NOTE: how much of a name errors show depends on its length.
    with pytest.raises(ArgumentError, match=r"^resume must be a checkpoint, which is not there, not '/"):
        load_checkpoint(tmp_path / "none.npz")


def test_an_archive_of_something_else_is_no_checkpoint(tmp_path: Path) -> None:
    for about, expected in (
        ({}, 'it has no array "about"'),
        ({"about": np.zeros(4, np.uint8)}, '"about" is not the text of one'),
        ({"about": np.frombuffer(b"[1]", np.uint8)}, '"about" is not the text of one'),
    ):
        np.savez(tmp_path / "other.npz", x=np.zeros(3), **about)
        assert refusal(tmp_path / "other.npz") == expected
    np.savez(tmp_path / "other.npz", about=np.array([{}], object))
    assert refusal(tmp_path / "other.npz").startswith("it cannot be read: ")


def test_a_damaged_byte_is_found(tmp_path: Path) -> None:
    path = save(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert refusal(path).startswith("it cannot be read: Bad CRC-32")


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("3.weights", lambda _: None, "3.weights is missing"),
        ("4.weights", lambda _: np.zeros(3), "4.weights is none of its arrays"),
        ("0.weights", lambda one: one[:, :700], "0.weights must be float16 of shape (32, 800), not float16 of shape (32, 700)"),
        ("1.weights", lambda one: one[:16], "1.weights must be float16 of shape (32, 32), not float16 of shape (16, 32)"),
        ("2.bias", lambda one: one[:-1], "2.bias must be float32 of shape (32,), not float32 of shape (31,)"),
        ("1.weights", lambda one: one.astype(float), "1.weights must be float16 of shape (32, 32), not float64 of shape (32, 32)"),
        ("1.velocities", lambda one: one * np.nan, "1.velocities must be finite"),
        ("3.rests", lambda _: None, "3.rests is missing"),
    ],
)  # fmt: skip
def test_arrays_are_those_of_the_options(
    tmp_path: Path, name: str, change: Callable[[Any], Any], expected: str
) -> None:
    path = save(tmp_path)
    with np.load(path) as opened:
        arrays: Arrays = dict(opened)
    changed = change(arrays.pop(name, None))
    np.savez(path, **arrays, **({} if changed is None else {name: changed}))  # type: ignore[arg-type]
    assert refusal(path) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epochs", 3, '"about" has no epochs, or of another type'),
        ("epochs", [7], "epoch 1 must have epoch, loss, accuracy, "),
        ("epochs", [{**EPOCH.to_dict(), "more": 1}], "epoch 1 must have epoch, loss, accuracy, "),
        ("epochs", [EPOCH.to_dict()] * 2, "epoch 2 must have that number, and steps"),
        ("epochs", [{**EPOCH.to_dict(), "loss": "low"}], "epoch 1 has a loss of another type"),
        ("epochs", [{**EPOCH.to_dict(), "curve": [None]}], "epoch 1 has a curve of another type"),
        ("digest", None, '"about" has no digest, or of another type'),
        ("options", {"hidden": 33}, "hidden must be a multiple of 32, not 33; take 32"),
        ("options", {"width": 32}, "TrainingOptions.__init__() got an unexpected keyword argument 'width'"),
        ("options", {"hidden": 64}, "0.weights must be float16 of shape (64, 800), not float16 of shape (32, 800)"),
    ],
)  # fmt: skip
def test_what_a_checkpoint_says_of_itself_is_checked(
    tmp_path: Path, name: str, value: object, expected: str
) -> None:
    path = save(tmp_path)
    assert load_checkpoint(path).epochs == [EPOCH]
    with np.load(path) as opened:
        arrays: Arrays = dict(opened)
    about = {**json.loads(arrays.pop("about").tobytes()), name: value}
    np.savez(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    assert re.match(re.escape(expected), refusal(path))


def test_the_umask_says_who_may_read_a_checkpoint(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    assert save(tmp_path).stat().st_mode == other.stat().st_mode
