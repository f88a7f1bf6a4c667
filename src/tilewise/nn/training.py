"""Training from beginning to end: epochs, tests after each, checkpoints, and what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.devices import Device
from tilewise.devices import device as resolve
from tilewise.errors import ArgumentError, DeviceError
from tilewise.nn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tilewise.nn.digits import Digits
from tilewise.nn.epoch_figures import EpochFigures
from tilewise.nn.network import Network
from tilewise.nn.options import TrainingOptions
from tilewise.nn.trainer import STEPS_IN_GRAPH, Trainer, order_samples

__all__ = ["CHECKPOINT", "EpochFigures", "TrainingFigures", "train"]

CHECKPOINT = "checkpoint.npz"
_LOOK_AFTER = 0.1  # seconds from one look at the loss to the next: each waits for the device
_CURVE_POINTS = 100  # of the training loss, an epoch: means of as many steps as that takes

Report = Callable[[int, int, str], None]
Saved = Callable[["TrainingFigures"], None]


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """A run: ``epochs`` that were trained, now or before it was resumed; ``network`` as it is at the end."""

    options: TrainingOptions
    device: str
    title: str
    source: str
    made: bool
    epochs: list[EpochFigures]
    network: Network

    @property
    def accuracy(self) -> float:
        """The share of the test's samples that were recognised at the end."""
        return self.epochs[-1].accuracy

    @property
    def loss(self) -> float:
        """The mean loss of the test's samples at the end."""
        return self.epochs[-1].loss

    @property
    def steps(self) -> int:
        return sum(epoch.steps for epoch in self.epochs)

    @property
    def seconds_per_step(self) -> float:
        """Of the last epoch, with everything that the host does meanwhile."""
        return self.epochs[-1].seconds / self.epochs[-1].steps

    def to_dict(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "loss": self.loss,
            "steps": self.steps,
            "seconds_per_step": self.seconds_per_step,
            "device": self.device,
            "title": self.title,
            "data": self.source,
            "made": self.made,
            "options": self.options.to_dict(),
            "epochs": [epoch.to_dict() for epoch in self.epochs],
        }


def _ignore(_done: int, _total: int, _what: str) -> None:
    """Report that goes nowhere."""


def _ignore_saved(_figures: TrainingFigures) -> None:
    """Saved that goes nowhere."""


def train(
    options: TrainingOptions,
    digits: Digits,
    device: Device | str | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    report: Report = _ignore,
    saved: Saved = _ignore_saved,
) -> TrainingFigures:
    """Train a network to recognise digits, and test it after each epoch.

    ``out``: a folder that gets a checkpoint after each epoch. ``resume``: a checkpoint to go on from, up to
    ``options.epochs`` in all; what comes out has the same bits as without the break. ``report`` is called with how many
    steps are done, how many there are, and how it goes; ``saved`` after each checkpoint with the run up to there.

    >>> import tilewise as tw
    >>> options = tw.nn.TrainingOptions(hidden=32, epochs=1, limit=64)
    >>> tw.nn.train(options, tw.nn.load_digits(limit=64), "emulator").steps
    2
    """
    where = resolve(device)
    if len(digits.labels) < options.batch:
        raise ArgumentError("data", f"must have a batch of {options.batch} samples", len(digits.labels))
    folder = None if out is None else _make_folder(out)
    epochs: list[EpochFigures] = []
    if resume is None:
        network = Network.begin(options)
    else:
        checkpoint = load_checkpoint(resume)
        _check_same(checkpoint, options, digits)
        network, epochs = checkpoint.network, checkpoint.epochs
    samples = np.concatenate([digits.samples, digits.test_samples])
    labels = np.concatenate([digits.labels, digits.test_labels])
    trainer = Trainer(network, options, samples, labels, where)
    trainer.prepare()

    def gather() -> TrainingFigures:
        network = trainer.read_network()
        return TrainingFigures(
            options, where.name, where.title, digits.source, digits.made, [*epochs], network
        )

    for epoch in range(len(epochs), options.epochs):
        epochs.append(_train_epoch(trainer, digits, epoch, report))
        if folder is not None:
            figures = gather()
            save_checkpoint(
                folder / CHECKPOINT, Checkpoint(figures.network, options, digits.digest, figures.epochs)
            )
            saved(figures)
    return gather()


def _train_epoch(trainer: Trainer, digits: Digits, epoch: int, report: Report) -> EpochFigures:
    options, count = trainer.options, len(digits.labels)
    rows = order_samples(options, count, epoch)
    steps = len(rows) // options.batch
    total, before = steps * options.epochs, steps * epoch
    started = looked = time.perf_counter()
    trainer.select(rows)
    for first in range(0, steps, STEPS_IN_GRAPH):
        trainer.run(min(STEPS_IN_GRAPH, steps - first))
        done = min(first + STEPS_IN_GRAPH, steps)
        if time.perf_counter() - looked > _LOOK_AFTER or done == steps:
            losses, classes = trainer.results(done * options.batch)
            looked = time.perf_counter()
            right = np.mean(classes == digits.labels[rows[: len(classes)]])
            recent = losses[-STEPS_IN_GRAPH * options.batch :].mean()
            report(before + done, total, f"epoch {epoch + 1}: loss {recent:.4f}, accuracy {right:.2%}")
    seconds = time.perf_counter() - started
    loss = losses.mean()
    _refuse_runaway(trainer, epoch + 1, float(loss))
    tested, found = trainer.classify(np.arange(len(digits.test_labels)) + count)
    points = -(-steps // _CURVE_POINTS)
    by_step = losses.reshape(steps, options.batch).mean(1)
    curve = [float(by_step[i : i + points].mean()) for i in range(0, steps, points)]
    accuracy = float(np.mean(found == digits.test_labels))
    return EpochFigures(epoch + 1, float(tested.mean()), accuracy, float(loss), steps, seconds, points, curve)


def _refuse_runaway(trainer: Trainer, epoch: int, loss: float) -> None:
    """End a run whose weights are numbers no more, before a checkpoint has them."""
    if not np.isfinite(loss):
        found = f"the loss of epoch {epoch} is {loss}"
    elif not trainer.has_finite_weights():
        found = f"after epoch {epoch} not every weight is finite"
    else:
        return
    raise DeviceError(
        f"{found}: weights grew beyond what float16 holds; lower the rate (now {trainer.options.rate:g})"
    )


def _make_folder(out: str | Path) -> Path:
    if not str(out):  # which Path would take for the current folder
        raise ArgumentError("out", "must be a folder", out, "leave it out to save nothing")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError("out", f"must be a folder that can be written: {error}", str(out)) from None
    return folder


def _check_same(checkpoint: Checkpoint, options: TrainingOptions, digits: Digits) -> None:
    """Refuse to go on with other options than a run began with; the number of epochs alone may differ."""
    begun = replace(checkpoint.options, epochs=options.epochs)
    for name, value in begun.to_dict().items():
        given = getattr(options, name)
        if given != value:
            raise ArgumentError(name, f"must be {value!r}, as in the run that is resumed", given)
    if checkpoint.digest != digits.digest:
        raise ArgumentError(
            "data",
            "must be the samples that the run began with",
            digits.source,
            "give the same data and seed",
        )
    if len(checkpoint.epochs) >= options.epochs:
        raise ArgumentError(
            "epochs", f"must be more than the {len(checkpoint.epochs)} that are done", options.epochs
        )
