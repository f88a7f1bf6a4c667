"""``tilewise train``: what it refuses, and what it says when it ends early. Nothing is trained."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewise.cli import train_command
from tilewise.cli.main import main
from tilewise.errors import ArgumentError
from tilewise.nn import Network, TrainingOptions, training
from tilewise.nn.training import EpochFigures

TRAIN = ["train", "mnist", "--device", "emulator", "--limit", "32", "--hidden", "32"]


@pytest.fixture
def stopped_in_epoch_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that does nothing, and Ctrl-C in the second epoch."""

    class Idle:
        def __init__(self, network: Network, options: TrainingOptions, *_: object) -> None:
            self.network, self.options = network, options

        def prepare(self) -> None: ...

        def read_network(self) -> Network:
            return self.network

    def train_epoch(_trainer: object, _digits: object, epoch: int, _report: object) -> EpochFigures:
        if epoch:
            raise KeyboardInterrupt
        return EpochFigures(1, 0.5, 0.75, 0.6, 1, 1.0, 1, [0.6])

    monkeypatch.setattr(training, "Trainer", Idle)
    monkeypatch.setattr(training, "_train_epoch", train_epoch)


def test_a_run_that_is_interrupted_says_how_to_go_on(
    stopped_in_epoch_2: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a run"
    assert main([*TRAIN, "--epochs", "3", "--out", str(folder)]) == 130
    path = f"{folder}/checkpoint.npz"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"tilewise: stopped; {path} has 1 of 3 epochs; go on with: tilewise train mnist "
        f"--resume '{path}' --epochs 3 --out '{folder}' --device emulator"
    )
    assert sorted(one.name for one in folder.iterdir()) == ["checkpoint.npz", "learning.svg"]
    assert main(["train", "mnist", "--resume", path, "--epochs", "3", "--out", str(folder)]) == 130
    assert "stopped; no epoch was done, and nothing saved\n" in capsys.readouterr().err
    assert main([*TRAIN, "--epochs", "3"]) == 130
    assert "stopped; nothing was saved, for want of --out\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--hidden", "33"], "hidden must be a multiple of 32, not 33; take 32"),
        (["--out", ""], "--out must be a folder, not ''; leave it out to save nothing"),
        (["--resume", "a", "--compare", "1"], "--compare is of a run's first steps, which --resume has not; leave one of them out"),
        (["--limit", "-3"], "limit must be at least the batch, 32, not -3"),
    ],
)  # fmt: skip
def test_an_error_is_json_on_the_last_line(
    given: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, *given, "--json"]) == 2
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["error"]["message"] == expected
    assert (found["command"], found["exit_code"]) == ("train", 2)


# ── data and options ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "download", "has_cache", "there", "loaded", "fetched"),
    [
        (None, False, True, False, None, None), (None, False, True, True, "cache/mnist", None), (None, False, False, True, None, None),
        ("mine", False, True, True, "mine", None), (None, True, True, True, "got", "cache/mnist"),
        ("mine", True, True, False, "got", "mine"), ("mine", True, False, False, "got", "mine"),
    ],
)  # fmt: skip
def test_digits_are_those_given_or_fetched_or_fetched_before(
    data: str | None, download: bool, has_cache: bool, there: bool, loaded: str | None, fetched: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: Any = []
    directory = Path("cache") if has_cache else None
    monkeypatch.setattr("tilewise.toolchain.cache.default", lambda: SimpleNamespace(directory=directory))
    monkeypatch.setattr(train_command, "has_mnist", lambda folder: there and str(folder) == "cache/mnist")
    monkeypatch.setattr(
        train_command, "download_mnist", lambda folder: told.append(str(folder)) or Path("got")
    )
    monkeypatch.setattr(train_command, "load_digits", lambda *given: given)
    options = TrainingOptions(limit=64, seed=7)
    folder, *rest = cast(Any, train_command._load(Namespace(data=data, download=download), options))
    assert (None if folder is None else str(folder), rest) == (loaded, [64, 7])
    assert told == ([] if fetched is None else [fetched])


def test_without_a_cache_what_is_fetched_needs_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.toolchain.cache.default", lambda: SimpleNamespace(directory=None))
    with pytest.raises(ArgumentError, match=r"^--download needs a folder; give one with --data$"):
        train_command._load(Namespace(data=None, download=True), TrainingOptions())


def test_a_cpu_has_less_to_do_unless_it_is_told() -> None:
    given = Namespace(**dict.fromkeys([one.name for one in fields(TrainingOptions)]), resume=None)
    assert train_command._read_options(given, True) == TrainingOptions()
    assert train_command._read_options(given, False) == TrainingOptions(hidden=64, epochs=2, limit=2000)
    given.hidden, given.seed, given.rate = 96, 0, 0.5
    assert train_command._read_options(given, False) == TrainingOptions(
        hidden=96, epochs=2, limit=2000, rate=0.5
    )


def test_pictures_are_of_what_was_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(train_command, "draw_learning", lambda _figures: "learnéd")
    monkeypatch.setattr(train_command, "draw_comparison", lambda _curves, title: title)
    figures = cast(Any, SimpleNamespace(options=TrainingOptions(hidden=96)))
    assert train_command._write_pictures(tmp_path, figures, None) == ["learning.svg"]
    both = ["learning.svg", "comparison.svg"]
    assert train_command._write_pictures(tmp_path, figures, cast(Any, object())) == both
    texts = [(tmp_path / name).read_text("utf-8") for name in both]
    assert texts == ["learnéd", "the first steps at H = 96"]


def test_what_goes_on_is_the_command_with_what_was_given() -> None:
    options = TrainingOptions(epochs=4)
    for out, data, device, done, said in (
        (None, None, None, 0, "nothing was saved, for want of --out"),
        ("a", None, None, 0, "no epoch was done, and nothing saved"),
        ("a", None, None, 1, "a/checkpoint.npz has 1 of 4 epochs; go on with: "
         "tilewise train mnist --resume a/checkpoint.npz --epochs 4 --out a"),
        ("a", "b c", "gpu:1", 2, "a/checkpoint.npz has 2 of 4 epochs; go on with: "
         "tilewise train mnist --resume a/checkpoint.npz --epochs 4 --out a --data 'b c' --device gpu:1"),
    ):  # fmt: skip
        given = Namespace(out=out, data=data, device=device)
        assert train_command._say_how_to_go_on(given, options, done) == said
