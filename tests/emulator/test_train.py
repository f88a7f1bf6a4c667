"""Training on the emulator: each launch beside float64, the same bits every time, and nothing for the checker to find."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.cli.main import main
from tilewise.errors import ArgumentError, DeviceError
from tilewise.instruments.checking import Checker
from tilewise.nn import launch_shapes
from tilewise.nn.checkpoint import load_checkpoint
from tilewise.nn.float64_model import Float64Model, compare_curves
from tilewise.nn.trainer import GRADIENT_SCALE, Trainer

Array = npt.NDArray[Any]

SMALL = tw.nn.TrainingOptions(hidden=64, epochs=2, limit=160, seed=3, rate=0.01)


def begin(options: tw.nn.TrainingOptions, count: int = 3, **device: Any) -> tuple[Trainer, Array, Array]:
    """A trainer of samples that are mostly 0, as images are, with biases and velocities that are not."""
    random = np.random.default_rng()
    samples = random.standard_normal((count * options.batch, 784)).astype(np.float16)
    samples[random.random(samples.shape) < 0.7] = 0
    labels = random.integers(0, 10, len(samples)).astype(np.uint8)
    network = tw.nn.Network.begin(options)
    for layer in network.layers[:-1]:
        layer.bias[:] = random.standard_normal(layer.bias.shape) * 0.1
        layer.bias_velocities[:] = random.standard_normal(layer.bias.shape) * 0.01
        if layer.velocities is not None:
            layer.velocities[:] = random.standard_normal(layer.velocities.shape) * 0.01
    where = tw.device("emulator", **({"order": "late"} | device))
    return Trainer(network, options, samples, labels, where), samples, labels


def test_a_step_is_that_of_float64() -> None:
    """Small blocks, all of which are shared out: clusters of every launch, and velocities."""
    check_step(tw.nn.TrainingOptions(hidden=288, batch=16, decay=0.01, momentum=0.9))


def test_a_step_in_wide_columns_is_that_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many columns a block as large layers have."""
    monkeypatch.setattr(launch_shapes, "_ENOUGH_BLOCKS", 1)
    check_step(tw.nn.TrainingOptions(hidden=128, batch=32, decay=0.01, momentum=0.0))


def check_step(options: tw.nn.TrainingOptions) -> None:
    """Hold what each launch of a step writes against float64, made of what the launch read."""
    trainer, samples, labels = begin(options)
    before = trainer.read_network()
    model = Float64Model(before, options)
    rows = np.random.default_rng().permutation(len(samples))[: options.batch]
    losses, classes = trainer.train(rows)
    x, y = samples[rows].astype(np.float64), labels[rows]
    assert (np.abs(losses - model.losses(x, y)) <= model.loss_bounds(x, y)).all()

    outputs = [np.pad(x, ((0, 0), (0, 16))), *(one.astype(np.float64) for one in trainer.read_outputs())]
    gradients = [one.astype(np.float64) for one in trainer.read_gradients()]
    halves = [layer.weights.astype(np.float64) for layer in before.layers]
    for number, (weights, layer) in enumerate(zip(halves, before.layers, strict=True)):
        sums = outputs[number] @ weights.T + layer.bias
        room = 2.0**-20 * (np.abs(outputs[number]) @ np.abs(weights.T) + 1)
        if number < 3:
            made = np.maximum(sums, 0)
            assert (np.abs(outputs[number + 1] - made) <= room + 2.0**-11 * made + 2.0**-24).all()
        else:
            shares = np.exp(sums[:, :10] - sums[:, :10].max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            slope = np.zeros_like(sums)
            slope[:, :10] = shares
            slope[np.arange(len(y)), y] -= 1
            assert (np.abs(gradients[3] / GRADIENT_SCALE - slope) <= 2.0**-11 * np.abs(slope) + 1e-5).all()
            top = np.sort(sums[:, :10])
            clear = top[:, -1] - top[:, -2] > 1e-3
            assert (classes == sums[:, :10].argmax(1))[clear].all()
    for number in (1, 2, 3):
        made = (gradients[number] @ halves[number]) * (outputs[number] > 0)
        room = 2.0**-20 * (np.abs(gradients[number]) @ np.abs(halves[number])) + 2.0**-24
        assert (np.abs(gradients[number - 1] - made) <= room + 2.0**-11 * np.abs(made)).all()
    check_update(options, before, trainer.read_network(), outputs, gradients)


def check_update(
    options: tw.nn.TrainingOptions,
    before: tw.nn.Network,
    after: tw.nn.Network,
    outputs: list[Array],
    gradients: list[Array],
) -> None:
    scale = 1 / (GRADIENT_SCALE * options.batch)
    for number, (old, new) in enumerate(zip(before.layers, after.layers, strict=True)):
        assert np.array_equal(new.weights, new.master.astype(np.float16))
        weights, slope = old.master.astype(np.float64), gradients[number] * scale
        gradient = slope.T @ outputs[number] + options.decay * weights
        size = np.abs(slope.T) @ np.abs(outputs[number]) + options.decay * np.abs(weights)
        velocities = 0.0 if old.velocities is None else old.velocities.astype(np.float64)
        made = options.momentum * velocities + gradient
        size = 2.0**-20 * (size + np.abs(velocities))
        if new.velocities is not None:
            assert (np.abs(new.velocities - made) <= size + 1e-12).all()
        # NOTE: a weight near 0 is kept in steps of 2^-25 (see split_weight.cuh).
        stepped = weights - options.rate * made
        kept = np.where(
            np.abs(stepped) < 2.0**-16, 2.0**-24, 2.0**-23 * np.maximum(abs(weights), abs(stepped))
        )
        assert (np.abs(new.master - stepped) <= options.rate * size + kept + 1e-12).all()
        bias = slope.sum(0) + options.decay * old.bias + options.momentum * old.bias_velocities
        room = 2.0**-19 * (np.abs(slope).sum(0) + np.abs(old.bias) + np.abs(old.bias_velocities)) + 1e-12
        assert (np.abs(new.bias - (old.bias - options.rate * bias)) <= room).all()


@pytest.mark.parametrize("order", ["late", 1])
def test_nothing_is_wrong_with_a_step(order: str | int) -> None:
    trainer, samples, _ = begin(replace(SMALL, batch=32), count=2)
    trainer.select(np.arange(len(samples)))
    checker = Checker(order)
    for name, launch in trainer.launches():
        found = checker.check(launch.bound, {})
        assert not found, f"{name}\n" + "\n".join(map(str, found))


def test_bits_are_the_same_in_every_order() -> None:
    options, digits = SMALL, tw.nn.load_digits(limit=SMALL.limit, seed=SMALL.seed)
    runs = [
        tw.nn.train(options, digits, tw.device("emulator", order=order, threads=threads))
        for order, threads in (("eager", 1), ("late", 2), (7, 1))
    ]
    for other in runs[1:]:
        same_network(runs[0].network, other.network)
        assert [one.curve for one in runs[0].epochs] == [one.curve for one in other.epochs]


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    digits = tw.nn.load_digits(limit=SMALL.limit, seed=SMALL.seed)
    whole = tw.nn.train(SMALL, digits, "emulator")
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


def same_network(one: tw.nn.Network, other: tw.nn.Network) -> None:
    arrays, others = one.to_arrays(), other.to_arrays()
    assert arrays.keys() == others.keys()
    assert all(array.tobytes() == others[name].tobytes() for name, array in arrays.items())


def test_the_loss_falls_as_in_float64() -> None:
    options = replace(SMALL, limit=640, rate=0.005)
    curves = compare_curves(options, tw.nn.load_digits(limit=640), "emulator", 20)
    assert np.mean(curves.float64[-3:]) < 0.8 * np.mean(curves.float64[:3])
    assert curves.farthest <= 0.02  # of 2.5: rounding once a step, which later steps make larger


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "mnist", "--device", "emulator", "--hidden", "64", "--limit", "160", "--seed", "3"]
    assert main([*command, "--epochs", "1", "--compare", "2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "digits made by strokes" in printed.out
    for name in ("learning.svg", "comparison.svg"):
        picture = ElementTree.parse(tmp_path / name).getroot()
        lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
        assert lines and "nan" not in ElementTree.tostring(picture, "unicode")
    resumed = ["train", "mnist", "--device", "emulator", "--resume", str(tmp_path / "checkpoint.npz")]
    assert main([*resumed, "--epochs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["steps"] == 10 and 0 < found["loss"] < 10 and 0 <= found["accuracy"] <= 1
    assert found["seconds_per_step"] > 0 and found["options"]["hidden"] == 64
    assert main([*resumed, "--epochs", "2", "--rate", "0.5", "--json"]) == 2
    assert "rate must be 0.02, as in the run that is resumed, not 0.5" in capsys.readouterr().err


def test_weights_that_run_away_are_reported() -> None:
    options = replace(SMALL, rate=1e6, epochs=1)
    with pytest.raises(DeviceError, match="lower the rate"):
        tw.nn.train(options, tw.nn.load_digits(limit=160), "emulator")
