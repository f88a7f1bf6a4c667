"""The same network in float64, by NumPy: what a trained one is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.errors import ArgumentError
from tilewise.nn.digits import Digits
from tilewise.nn.network import Network
from tilewise.nn.options import CLASSES, TrainingOptions
from tilewise.nn.trainer import Trainer, order_samples

__all__ = ["Float64Model", "LossCurves", "compare_curves"]

_Array = npt.NDArray[Any]
_DEVIATIONS = 8  # of the roundings, as if each were by chance


class Float64Model:
    """A network's weights in float64, trained without rounding to fewer bits."""

    def __init__(self, network: Network, options: TrainingOptions) -> None:
        self._options = options
        self.weights = [layer.master.astype(np.float64) for layer in network.layers]
        self.bias = [layer.bias.astype(np.float64) for layer in network.layers]
        self._velocities = [
            np.zeros_like(one) if layer.velocities is None else layer.velocities.astype(np.float64)
            for one, layer in zip(self.weights, network.layers, strict=True)
        ]
        self._bias_velocities = [layer.bias_velocities.astype(np.float64) for layer in network.layers]

    def losses(self, samples: _Array, labels: _Array) -> _Array:
        """The loss of each sample."""
        return self._lose(self.outputs(samples), labels)[0]

    def outputs(self, samples: _Array) -> list[_Array]:
        """The samples, padded, and what each layer makes of them."""
        first = np.zeros((len(samples), self.weights[0].shape[1]))
        first[:, : samples.shape[1]] = samples
        found = [first]
        for number, (weights, bias) in enumerate(zip(self.weights, self.bias, strict=True)):
            sums = found[-1] @ weights.T + bias
            found.append(np.maximum(sums, 0) if number + 1 < len(self.weights) else sums)
        return found

    def step(self, samples: _Array, labels: _Array) -> _Array:
        """Learn from a batch; return the loss of each of its samples before."""
        options, outputs = self._options, self.outputs(samples)
        losses, slope = self._lose(outputs, labels)
        for number in reversed(range(len(self.weights))):
            weights, bias = self.weights[number], self.bias[number]
            gradient = slope.T @ outputs[number] / len(samples) + options.decay * weights
            bias_gradient = slope.sum(0) / len(samples) + options.decay * bias
            slope = (slope @ weights) * (outputs[number] > 0)
            self._velocities[number] = options.momentum * self._velocities[number] + gradient
            self._bias_velocities[number] = options.momentum * self._bias_velocities[number] + bias_gradient
            weights -= options.rate * self._velocities[number]
            bias -= options.rate * self._bias_velocities[number]
        return losses

    def loss_bounds(self, samples: _Array, labels: _Array) -> _Array:
        """How far each sample's loss may be off where weights and outputs are rounded to float16.

        Roundings count as if each were by chance, even over its interval: so many deviations of what comes of them all.
        """
        outputs = self.outputs(samples)
        _, slope = self._lose(outputs, labels)
        spread = np.zeros_like(outputs[0])
        for number, weights in enumerate(self.weights):
            squares = _rounding_variance(weights)
            spread = spread @ (weights**2).T + outputs[number] ** 2 @ squares.T
            if number + 1 < len(self.weights):
                spread = spread + _rounding_variance(outputs[number + 1])
        bound: _Array = _DEVIATIONS * np.sqrt((slope**2 * spread).sum(1)) + 1e-6
        return bound

    @staticmethod
    def _lose(outputs: list[_Array], labels: _Array) -> tuple[_Array, _Array]:
        """Losses, and their gradients by the last layer's outputs."""
        logits = outputs[-1][:, :CLASSES]
        logits = logits - logits.max(1, keepdims=True)
        parts = np.exp(logits)
        sums = parts.sum(1, keepdims=True)
        each = np.arange(len(labels))
        slope = np.zeros_like(outputs[-1])
        slope[:, :CLASSES] = parts / sums
        slope[each, labels] -= 1
        return np.log(sums[:, 0]) - logits[each, labels], slope


def _rounding_variance(values: _Array) -> _Array:
    """Of rounding to float16: an interval of a step in the last place, even within."""
    found: _Array = np.maximum(np.abs(values), 2.0**-14) ** 2 * (2.0**-22 / 3)
    return found


@dataclass(frozen=True, slots=True)
class LossCurves:
    """The loss of each step, here and in float64, from the same beginning by the same batches.

    ``share``: how far a sample's loss was, at most, from that of float64 with the weights that the step began with, of
    how far rounding may put it.
    """

    here: list[float]
    float64: list[float]
    share: float

    @property
    def ok(self) -> bool:
        """Whether every loss was within its bound."""
        return self.share <= 1

    @property
    def farthest(self) -> float:
        """The greatest distance of the two curves, whose weights part more and more."""
        return float(np.abs(np.subtract(self.here, self.float64)).max())

    def to_dict(self) -> dict[str, Any]:
        return {"here": self.here, "float64": self.float64, "share": self.share, "farthest": self.farthest}


def compare_curves(
    options: TrainingOptions, digits: Digits, device: Device | str | None, steps: int
) -> LossCurves:
    """Train for the first steps of the first epoch, here and in float64."""
    rows = order_samples(options, len(digits.labels))[: steps * options.batch].reshape(-1, options.batch)
    if len(rows) < steps:
        raise ArgumentError("compare", f"must be at most the {len(rows)} steps of an epoch", steps)
    network = Network.begin(options)
    trainer = Trainer(network, options, digits.samples, digits.labels, device)
    model = Float64Model(network, options)
    here, there, shares = [], [], []
    for batch in rows:
        samples, labels = digits.samples[batch], digits.labels[batch]
        same = Float64Model(trainer.read_network(), options)
        losses = trainer.train(batch)[0]
        apart = np.abs(losses - same.losses(samples, labels)) / same.loss_bounds(samples, labels)
        shares.append(float(np.max(np.where(np.isnan(apart), np.inf, apart))))
        here.append(float(losses.mean()))
        there.append(float(model.step(samples, labels).mean()))
    return LossCurves(here, there, max(shares))
