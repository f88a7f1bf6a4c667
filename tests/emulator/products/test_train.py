"""Training on the emulator: each launch beside float64, the same bits every time, and nothing for the checker to find."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewise as tw
from tests.training import begin, check_shared_update, check_step, same_network
from tilewise.cli.main import main
from tilewise.devices.emulated import EmulatedDevice
from tilewise.errors import ArgumentError, DeviceError
from tilewise.instruments.checking import Checker
from tilewise.launch import LaunchLimits
from tilewise.nn import launch_shapes
from tilewise.nn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tilewise.nn.float64_model import compare_curves
from tilewise.nn.network import Network
from tilewise.nn.tiles import tile_halves
from tilewise.nn.trainer import STEPS_IN_GRAPH

LATE = tw.device("emulator", order="late")
# NOTE: one size for most of the tests, as compiling takes longer than they do: its launches have clusters, each of them.
SMALL = tw.nn.TrainingOptions(hidden=288, batch=16, epochs=2, limit=80, seed=3, rate=0.01)


@pytest.mark.few("small blocks")
@pytest.mark.parametrize("launches", ["small blocks", "wide columns"])
def test_a_step_is_that_of_float64(launches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, all of which are shared out: clusters of every launch, and velocities. Or as many columns a block as
    large layers have."""
    if launches == "small blocks":
        check_step(replace(SMALL, decay=0.01), LATE)
    else:
        monkeypatch.setattr(launch_shapes, "_ENOUGH_BLOCKS", 1)
        check_step(tw.nn.TrainingOptions(hidden=128, batch=32, decay=0.01, momentum=0.0), LATE)


@pytest.fixture
def shared_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of any size are updated by several batches at once."""
    monkeypatch.setattr(launch_shapes, "_MANY_WEIGHTS", 1)


@pytest.mark.few("3-288-16-0.0", "2-288-16-0.9")
@pytest.mark.parametrize(
    ("batches", "hidden", "batch", "momentum"),
    [(3, 288, 16, 0.0), (2, 288, 16, 0.9), (2, 64, 64, 0.0), (4, 128, 32, 0.0), (2, 96, 64, 0.9), (2, 128, 32, 0.9)],
)  # fmt: skip
def test_batches_that_update_weights_at_once_are_those_of_float64(
    shared_updates: None, batches: int, hidden: int, batch: int, momentum: float
) -> None:
    options = tw.nn.TrainingOptions(hidden=hidden, batch=batch, momentum=momentum, decay=0.5, rate=0.05)
    check_shared_update(options, LATE, batches)


@pytest.mark.parametrize(
    ("inputs", "outputs", "momentum", "expected"),
    [(4096, 4096, False, 4), (4096, 4096, True, 2), (4096, 4064, False, 1), (16384, 1024, False, 4)],
)
def test_large_layers_are_updated_by_four_batches_or_with_momentum_two(
    inputs: int, outputs: int, momentum: bool, expected: int
) -> None:
    assert launch_shapes.updates_at_once(32, inputs, outputs, momentum) == expected


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("many", [64 * 64, 64 * 64 + 1])
def test_weights_for_a_second_batch_are_kept_of_layers_that_two_update_with_momentum(
    monkeypatch: pytest.MonkeyPatch, many: int, momentum: float
) -> None:
    """Others have no use for the memory."""
    monkeypatch.setattr(launch_shapes, "_MANY_WEIGHTS", many)
    trainer, _, _ = begin(replace(SMALL, hidden=64, momentum=momentum), "emulator")
    kept = momentum > 0 and many <= 64 * 64
    assert [one is not None for one in trainer.read_ahead()] == [False, kept, kept, False]


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["late", 1])
def test_nothing_is_wrong_with_a_step(order: str | int) -> None:
    trainer, samples, _ = begin(SMALL, "emulator", count=2)
    trainer.select(np.arange(len(samples)))
    _check_launches(trainer, order, 1)


@pytest.mark.thorough
def test_nothing_is_wrong_with_batches_that_update_weights_at_once(shared_updates: None) -> None:
    trainer, samples, _ = begin(replace(SMALL, momentum=0.0), "emulator", count=3)
    trainer.select(np.arange(len(samples)))
    _check_launches(trainer, "late", 3)


def _check_launches(trainer: tw.nn.Trainer, order: str | int, batches: int) -> None:
    checker = Checker(order)
    for name, launch in trainer.launches(batches=batches):
        found = checker.check(launch.bound, {})
        assert not found, f"{name}\n" + "\n".join(map(str, found))


@pytest.mark.few("shared")
@pytest.mark.parametrize("updates", ["own", "shared"])
def test_bits_are_the_same_in_every_order(updates: str, request: pytest.FixtureRequest) -> None:
    options = SMALL
    if updates == "shared":
        request.getfixturevalue("shared_updates")
        options = replace(SMALL, momentum=0.0, limit=48)  # three batches, as above
    digits = tw.nn.load_digits(limit=options.limit, seed=SMALL.seed)
    runs = [
        tw.nn.train(options, digits, tw.device("emulator", order=order, threads=threads))
        for order, threads in (("eager", 1), ("late", 2), (7, 1))
    ]
    for other in runs[1:]:
        same_network(runs[0].network, other.network)
        assert [one.curve for one in runs[0].epochs] == [one.curve for one in other.epochs]


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    digits = tw.nn.load_digits(limit=SMALL.limit, seed=SMALL.seed)
    device = tw.device("emulator")
    kept: list[tw.nn.TrainingFigures] = []  # one of each epoch, which later ones do not change
    whole = tw.nn.train(SMALL, digits, device, out=tmp_path / "whole", saved=kept.append)
    assert [one.epochs for one in kept] == [whole.epochs[: i + 1] for i in range(SMALL.epochs)]
    assert (whole.device, whole.title) == (device.name, device.title)
    assert (whole.source, whole.made) == (digits.source, digits.made)
    tw.nn.train(replace(SMALL, epochs=1), digits, "emulator", out=tmp_path)
    resumed = tw.nn.train(SMALL, digits, "emulator", resume=tmp_path / "checkpoint.npz", out=tmp_path)
    same_network(whole.network, resumed.network)
    assert [(one.loss, one.curve) for one in whole.epochs] == [
        (one.loss, one.curve) for one in resumed.epochs
    ]
    same_network(whole.network, load_checkpoint(tmp_path / "checkpoint.npz").network)
    for change, argument in (({"rate": 0.02}, "rate"), ({"epochs": 2}, "epochs"), ({"seed": 4}, "seed")):
        with pytest.raises(ArgumentError) as refused:
            tw.nn.train(replace(SMALL, **change), digits, "emulator", resume=tmp_path / "checkpoint.npz")
        assert refused.value.argument == argument
    other = tw.nn.load_digits(limit=SMALL.limit, seed=SMALL.seed + 1)
    with pytest.raises(ArgumentError, match="data must be the samples"):
        tw.nn.train(replace(SMALL, epochs=3), other, "emulator", resume=tmp_path / "checkpoint.npz")


def test_a_checkpoint_says_its_version_and_no_other_is_read(tmp_path: Path) -> None:
    """Files of version 1 lie on disks: another number for what is written takes a reader for both."""
    path, network = tmp_path / "checkpoint.npz", Network.begin(SMALL)
    save_checkpoint(path, Checkpoint(network, SMALL, "of the samples", []))
    read = load_checkpoint(path)
    same_network(read.network, network)
    assert (read.options, read.digest, read.epochs) == (SMALL, "of the samples", [])
    with np.load(path) as opened:
        arrays = dict(opened)
    about = json.loads(arrays["about"].tobytes())
    assert about["version"] == 1
    arrays["about"] = np.frombuffer(json.dumps({**about, "version": 2}).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(ArgumentError, match=r"^resume: .*/checkpoint.npz must be .* of version 1, not 2$"):
        load_checkpoint(path)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(*_: object, **arrays: object) -> None:
        raise OSError("no space left")

    path, network = tmp_path / "checkpoint.npz", Network.begin(SMALL)
    save_checkpoint(path, Checkpoint(network, SMALL, "first", []))
    monkeypatch.setattr(np, "savez", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(path, Checkpoint(network, SMALL, "second", []))
    assert [*tmp_path.iterdir()] == [path] and load_checkpoint(path).digest == "first"


def test_the_loss_falls_as_in_float64() -> None:
    options = replace(SMALL, limit=320, rate=0.005)
    curves = compare_curves(options, tw.nn.load_digits(limit=320), "emulator", 20)
    assert np.mean(curves.float64[-3:]) < 0.8 * np.mean(curves.float64[:3])
    assert curves.ok, curves.share
    assert curves.farthest <= 0.02  # of 2.5: rounding once a step, which later steps make larger


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "mnist", "--device", "emulator", "--hidden", "288", "--batch", "16", "--limit", "80"]
    assert main([*command, "--epochs", "1", "--compare", "2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "digits made by strokes" in printed.out
    assert "2 steps beside float64: with the same weights every loss is within its bound" in printed.out
    assert "with weights of their own the curves are at most" in printed.out
    for name in ("learning.svg", "comparison.svg"):
        picture = ElementTree.parse(tmp_path / name).getroot()
        lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
        assert lines and "nan" not in ElementTree.tostring(picture, "unicode")
        shown = "".join(picture.itertext())
        assert ("the first steps at H = 288" in shown) == (name == "comparison.svg")
    resumed = ["train", "mnist", "--device", "emulator", "--resume", str(tmp_path / "checkpoint.npz")]
    assert main([*resumed, "--epochs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["steps"] == 10 and 0 < found["loss"] < 10 and 0 <= found["accuracy"] <= 1
    assert found["seconds_per_step"] > 0 and found["options"]["hidden"] == 288
    assert main([*resumed, "--epochs", "2", "--rate", "0.5", "--json"]) == 2
    assert "rate must be 0.02, as in the run that is resumed, not 0.5" in capsys.readouterr().err


def test_wrong_samples_are_named() -> None:
    network, samples, labels = (
        tw.nn.Network.begin(SMALL),
        np.zeros((16, 784), np.float16),
        np.zeros(16, np.uint8),
    )
    for wrong, rule in (
        ((samples[:, 1:], labels), "samples must be rows of 784 features, not (16, 783)"),
        ((samples, labels[1:]), "labels must be 16 whole numbers"),
        ((samples, labels + 10), "labels must be from 0 to 9"),
        ((samples.astype(np.float32) + 1e5, labels), "samples must be finite in float16, which row 0 is not"),
        ((np.where(np.arange(16)[:, None] == 7, np.nan, samples), labels), "which row 7 is not"),
    ):
        with pytest.raises(ArgumentError) as refused:
            tw.nn.Trainer(network, SMALL, wrong[0], wrong[1], "emulator")
        assert rule in str(refused.value)
    trainer = tw.nn.Trainer(network, SMALL, samples, labels, "emulator")
    for rows, rule in (
        (np.arange(17), "a multiple of the batch, 16, not 17; leave out the last 1"),
        ([-1] * 16, "from 0 to 15"),
        (np.arange(16) + 1, "from 0 to 15"),
        (np.arange(32) % 16, "at most 16"),
        (np.ones(16, bool), "integers in one row, not .*; np.flatnonzero"),
        (np.arange(16.0), "integers in one row, not 'float64 of shape"),
        (np.arange(16).reshape(4, 4), "integers in one row"),
        ([[0], [1, 2]], "the numbers of samples"),
        (3, "integers in one row"),
    ):
        with pytest.raises(ArgumentError, match=f"^rows must be .*{rule}"):
            trainer.train(rows)
    assert trainer.train([*range(16)])[0].shape == (16,) and not len(trainer.train([])[0])
    for other in (replace(SMALL, hidden=256), replace(SMALL, momentum=0.0)):
        with pytest.raises(ArgumentError, match=r"^network must be one of the options: 0"):
            tw.nn.Trainer(network, other, samples, labels, "emulator")


def test_a_gpu_replays_graphs_of_as_many_batches_as_it_can_and_launches_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each graph is captured once: what learns from batches is another one than what does not."""
    told: list[str] = []

    class Captured:
        def __init__(self, number: int) -> None:
            self.number = number

        def __enter__(self) -> Captured:
            told.append(f"graph {self.number}:")
            return self

        def __exit__(self, *_: object) -> None:
            told.append("captured")

        def launch(self) -> None:
            told.append(f"replayed {self.number}")

        def upload(self) -> None:
            told.append(f"made ready {self.number}")

    class ReplayingDevice(EmulatedDevice):
        def capture(self) -> Captured:
            return Captured(next(numbers))

    def taken_back() -> list[str]:
        found, told[:] = list(told), []
        return found

    numbers = itertools.count(1)
    trainer, _, _ = begin(SMALL, ReplayingDevice(), count=STEPS_IN_GRAPH + 1)
    with pytest.raises(ArgumentError, match=r"^device must be a GPU: the emulator has no graphs"):
        trainer.graph()
    monkeypatch.setattr("tilewise.nn.trainer.GpuDevice", ReplayingDevice)
    monkeypatch.setattr(
        trainer, "start", lambda graded, batches: told.append(f"{batches} batches, graded {graded}")
    )
    trainer.run(2 * STEPS_IN_GRAPH + 3)
    learnt = ["graph 1:", f"{STEPS_IN_GRAPH} batches, graded True", "captured"]
    assert taken_back() == [*learnt, "replayed 1", "replayed 1", "3 batches, graded True"]
    trainer.prepare()
    tested = ["graph 2:", f"{STEPS_IN_GRAPH} batches, graded False", "captured"]
    assert taken_back() == ["made ready 1", *tested, "made ready 2"]
    trainer.run(STEPS_IN_GRAPH, graded=False)
    assert taken_back() == ["replayed 2", "0 batches, graded False"]
    trainer.run(STEPS_IN_GRAPH - 1)
    assert taken_back() == [f"{STEPS_IN_GRAPH - 1} batches, graded True"]


def test_gpus_without_clusters_train_as_well(shared_updates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of compute capability 8.9, with 99 KB for a block; whose launches do not overlap."""
    monkeypatch.setattr(EmulatedDevice, "arch", "sm_89")
    monkeypatch.setattr(EmulatedDevice, "limits", LaunchLimits("a GPU", shared_bytes_per_block=99 * 1024))
    options = tw.nn.TrainingOptions(hidden=96, batch=16, momentum=0.0, decay=0.5, rate=0.05)
    check_shared_update(options, LATE, 2)


def test_a_batch_that_blocks_have_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_shapes, "_BACKWARD_STAGES", 8)
    options = tw.nn.TrainingOptions(hidden=32, batch=64)
    with pytest.raises(
        ArgumentError, match=r"^batch must be smaller on .*, whose blocks have 232,448 bytes .*, not 64"
    ):
        begin(options, "emulator")


def test_weights_that_run_away_are_reported() -> None:
    options = replace(SMALL, rate=1e6, epochs=1)
    with pytest.raises(DeviceError, match="lower the rate"):
        tw.nn.train(options, tw.nn.load_digits(limit=80), "emulator")


def test_weights_that_are_no_numbers_are_found_where_the_loss_is_finite_and_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden layers make 0 of them, so that losses are those of a network that knows nothing."""
    digits = tw.nn.load_digits(limit=80, seed=SMALL.seed)
    tw.nn.train(replace(SMALL, epochs=1), digits, "emulator", out=tmp_path)
    saved = (tmp_path / "checkpoint.npz").read_bytes()
    trainer, samples, _ = begin(SMALL, "emulator")
    weights = trainer.read_network().layers[1].weights
    weights[3, 5] = np.nan
    stored = trainer._launches.layers[1].arrays["weights"]
    assert stored is not None
    stored.fill(tile_halves(weights))
    losses, _ = trainer.classify(np.arange(len(samples)))
    assert np.isfinite(losses).all() and not trainer.has_finite_weights()
    monkeypatch.setattr(tw.nn.Trainer, "has_finite_weights", lambda _: False)
    with pytest.raises(DeviceError, match="after epoch 2 not every"):
        tw.nn.train(SMALL, digits, "emulator", resume=tmp_path / "checkpoint.npz", out=tmp_path)
    assert (tmp_path / "checkpoint.npz").read_bytes() == saved
