"""A step of training by PyTorch, as fast as it can be had: what ``tilewise bench train`` measures ours beside."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.nn import Network, TrainingOptions
from tilewise.nn.options import CLASSES, FEATURES

__all__ = ["KINDS", "TorchTraining"]

_Array = npt.NDArray[Any]

# What the weights and their velocities are kept in; products are of float16 in both.
KINDS = {"torch": "float32", "torch, all in float16": "float16"}


class TorchTraining:
    """The same network: forward pass and loss, gradients, and the update of all arrays, each compiled if wanted.

    ``kept`` is the type of weights and velocities: float32, of which float16 copies are made in the update, or float16,
    which is lighter than what ours does.
    """

    def __init__(
        self, torch: Any, place: str, network: Network, options: TrainingOptions, kept: str, compiled: bool
    ) -> None:
        self._torch, self._options = torch, options
        self._is_copied = kept == "float32"
        self._weights = [
            torch.from_numpy(array).to(place).half().requires_grad_() for array in _plain_arrays(network)
        ]
        self._masters = [weight.detach() for weight in self._weights]
        if self._is_copied:
            self._masters = [torch.from_numpy(array).to(place) for array in _plain_arrays(network)]
        self._velocities = [torch.zeros_like(master) for master in self._masters]
        self._samples = torch.zeros(options.batch, FEATURES, dtype=torch.float16, device=place)
        self._labels = torch.zeros(options.batch, dtype=torch.int64, device=place)
        self._find_loss, self._update = self._loss_of, self._update_all
        if compiled:
            how = {"mode": "max-autotune-no-cudagraphs", "dynamic": False}
            self._find_loss = torch.compile(self._loss_of, **how)
            self._update = torch.compile(self._update_all, **how)

    def begin(self, network: Network) -> None:
        """Go back to the weights of a network, and velocities of 0."""
        for number, array in enumerate(_plain_arrays(network)):
            whole = self._torch.from_numpy(array)
            self._weights[number].detach().copy_(whole)
            self._masters[number].copy_(whole)
            self._velocities[number].zero_()

    def start(self, _which: int) -> Any:
        """A step, as graphs are captured of."""
        return self.step()

    def step(self) -> Any:
        """Learn from the batch that was set; its mean loss before."""
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return self._step()

    def _step(self) -> Any:
        loss = self._find_loss(self._weights, self._samples, self._labels)
        gradients = self._torch.autograd.grad(loss, self._weights)
        with self._torch.no_grad():
            halves = [weight.detach() for weight in self._weights]
            self._update(list(gradients), self._masters, self._velocities, halves)
        return loss.detach()

    def time_calls(self, steps: int) -> float:
        """Seconds of a step as Python calls it, with all that the host does: the mean of so many in a row."""
        float(self._step())
        begin = time.perf_counter()
        for _ in range(steps):
            loss = self._step()
        float(loss)  # waits
        return (time.perf_counter() - begin) / steps

    def train(self, samples: _Array, labels: _Array) -> float:
        """Learn from a batch; return its mean loss before."""
        self._samples.copy_(self._torch.from_numpy(samples))
        self._labels.copy_(self._torch.from_numpy(labels.astype(np.int64)))
        return float(self.step())

    def _loss_of(self, weights: list[Any], samples: Any, labels: Any) -> Any:
        functional = self._torch.nn.functional
        found, layers = samples, len(weights) // 2
        for number in range(layers):
            found = functional.linear(found, weights[2 * number], weights[2 * number + 1])
            found = functional.relu(found) if number + 1 < layers else found
        return functional.cross_entropy(found.float(), labels)

    def _update_all(
        self, gradients: list[Any], masters: list[Any], velocities: list[Any], halves: list[Any]
    ) -> None:
        options = self._options
        for gradient, master, velocity, half in zip(gradients, masters, velocities, halves, strict=True):
            slope = gradient.to(master.dtype) + options.decay * master
            if options.momentum:
                velocity.mul_(options.momentum).add_(slope)
                slope = velocity
            master.sub_(options.rate * slope)
            if self._is_copied:
                half.copy_(master)


def _plain_arrays(network: Network) -> list[_Array]:
    """Weights and biases of each layer in float32, without the padding."""
    found = []
    for number, layer in enumerate(network.layers):
        outputs = CLASSES if number + 1 == len(network.layers) else layer.outputs
        inputs = layer.inputs if number else FEATURES
        found += [layer.master[:outputs, :inputs].copy(), layer.bias[:outputs].copy()]
    return found
