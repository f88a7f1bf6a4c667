"""``tilewise train``: what it refuses, and what it says when it ends early. Nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewise.cli.main import main
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
