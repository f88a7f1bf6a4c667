"""Training on a GPU: each launch beside float64, the same bits every time, and an emulator's bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewise as tw
from tests.training import begin, check_shared_update, check_step, same_network
from tilewise.nn import launch_shapes

pytestmark = pytest.mark.gpu

SMALL = tw.nn.TrainingOptions(hidden=64, epochs=2, limit=1000, seed=3)


@pytest.mark.parametrize(
    ("hidden", "batch", "momentum"),
    [(64, 32, 0.9), (96, 64, 0.0), (288, 16, 0.9), (512, 32, 0.9), (1024, 32, 0.0), (4096, 32, 0.9), (8192, 32, 0.0)],
)  # fmt: skip
def test_a_step_is_that_of_float64(hidden: int, batch: int, momentum: float) -> None:
    check_step(tw.nn.TrainingOptions(hidden=hidden, batch=batch, momentum=momentum, decay=0.01), "gpu")


@pytest.mark.parametrize(
    ("hidden", "batch", "batches"), [(4096, 32, 4), (4096, 32, 2), (4160, 64, 3), (8192, 16, 4)]
)
def test_batches_that_update_weights_at_once_are_those_of_float64(
    hidden: int, batch: int, batches: int
) -> None:
    options = tw.nn.TrainingOptions(hidden=hidden, batch=batch, momentum=0.0, decay=0.01)
    check_shared_update(options, "gpu", batches)


@pytest.mark.parametrize(("hidden", "momentum"), [(64, 0.9), (288, 0.9), (288, 0.0)])
def test_the_bits_are_those_of_an_emulator_that_adds_as_the_gpu_does(
    hidden: int, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOTE: how tensor cores add was measured on an H200; another GPU may add in another way."""
    if "H200" not in tw.device("gpu").title and "H100" not in tw.device("gpu").title:
        pytest.skip("how this GPU's tensor cores add was not measured")
    monkeypatch.setattr(launch_shapes, "_MANY_WEIGHTS", 1)  # without momentum batches share updates
    options = replace(SMALL, hidden=hidden, momentum=momentum, limit=320)
    digits = tw.nn.load_digits(limit=320)
    ours = tw.nn.train(options, digits, "gpu")
    same_network(ours.network, tw.nn.train(options, digits, tw.device("emulator", sums="hardware")).network)


def test_two_runs_have_the_same_bits() -> None:
    options, digits = replace(SMALL, hidden=512, limit=8000), tw.nn.load_digits(limit=8000)
    first, second = (tw.nn.train(options, digits, "gpu") for _ in range(2))
    same_network(first.network, second.network)
    assert [one.curve for one in first.epochs] == [one.curve for one in second.epochs]
    assert first.accuracy > 0.9


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_a_graph_does_what_launches_do(momentum: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_shapes, "_MANY_WEIGHTS", 1)
    options = replace(SMALL, hidden=256, momentum=momentum)
    trainer, samples, labels = begin(options, "gpu", count=30)
    other = tw.nn.Trainer(trainer.read_network(), options, samples, labels, "gpu")
    rows = np.arange(len(samples))
    trainer.train(rows)  # 24 batches as a graph, 6 without
    other.select(rows)
    other.start(batches=30)
    same_network(trainer.read_network(), other.read_network())
