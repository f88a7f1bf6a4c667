"""The launches of a step of training, with the arrays that they leave to one another.

A step of three hidden layers is eight launches: three forward, the last layer with its loss, and four backward, each of
which updates the weights that it reads. Large layers are updated by several batches at once: the last of those writes
the weights, the others only read them, and what earlier ones will change is added to products (see layer_earlier.cuh).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.devices import Array, Device
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernel import BoundCall, Kernel
from tilewise.nn.device_layer import DeviceLayer
from tilewise.nn.launch_shapes import (
    THREADS,
    LayerShape,
    shape_backward,
    shape_classify,
    shape_forward,
    shape_products,
)
from tilewise.nn.network import Network
from tilewise.nn.options import CLASSES, TrainingOptions

__all__ = ["GRADIENT_SCALE", "DeviceSamples", "StepLaunches"]

GRADIENT_SCALE = 1024.0  # of gradients in float16, so that small ones do not get lost


@functools.lru_cache(maxsize=64)
def _kernel(name: str, arch: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    source = Path(__file__).with_name(f"{name}.cu")
    return Kernel(source.read_text(encoding="utf-8"), name, arch, dict(defines), filename=source.name)


def _of_batch(array: Array, number: int) -> int | Array:
    """Where a batch begins in an array of several."""
    return array.ptr + number * (array.nbytes // array.shape[0]) if number else array


@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """What is trained with, in a device's memory: the batch under way is number ``step`` in ``order``.

    ``losses`` and ``classes`` have what is found of each in that order.
    """

    features: Array
    labels: Array
    order: Array
    step: Array
    losses: Array
    classes: Array


@dataclass(frozen=True, slots=True)
class _Turn:
    """Which of the batches that update large layers at once: ``earlier`` ones are before it; with the last they are."""

    earlier: int
    is_last: bool


_ALONE = _Turn(0, True)


class StepLaunches:
    """A network on a device, and the launches that take batches through it.

    ``outputs`` of the hidden layers and ``gradients`` by each layer's sums are of ``at_once`` batches, as many as
    update a large layer at once, one after another.
    """

    def __init__(
        self, network: Network, options: TrainingOptions, samples: DeviceSamples, device: Device
    ) -> None:
        self._device, self._options, self._samples = device, options, samples
        self._clusters = arch_capability(device.arch) >= (9, 0)
        self._room = device.limits.shared_bytes_per_block
        self.layers = [DeviceLayer(layer, device) for layer in network.layers]
        # NOTE: those between others, whose inputs and gradients are kept.
        for layer, host in zip(self.layers[1:-1], network.layers[1:-1], strict=True):
            layer.share_updates(host, options, device)
        self.at_once = max(layer.at_once for layer in self.layers)
        batch, count = options.batch, self.at_once
        # NOTE: set, as columns of padding are read and never written.
        self.outputs = [self._zeros(count, batch, layer.outputs) for layer in self.layers[:-1]]
        self.gradients = [self._zeros(count, layer.outputs // 16, batch, 16) for layer in self.layers]
        self._products = device.array(np.zeros((batch, max(count - 1, 1) * batch), np.float32))
        self._calls: dict[tuple[str, int, _Turn], BoundCall] = {}

    def _zeros(self, *shape: int) -> Array:
        return self._device.array(np.zeros(shape, np.float16))

    def _bind(
        self, name: str, shape: LayerShape, cluster: bool, args: Sequence[Any], **defines: int
    ) -> BoundCall:
        if shape.shared > self._room:
            rule = f"must be smaller on {self._device.title}, whose blocks have {self._room:,} bytes of shared memory"
            raise ArgumentError("batch", rule, self._options.batch)
        settings = {"TILE_BATCH": self._options.batch, **shape.defines, **defines}
        kernel = _kernel(name, self._device.arch, tuple(settings.items()))
        together = (1, shape.split, 1) if cluster and shape.split > 1 else None
        return kernel.bind(
            shape.grid, THREADS, args, shape.shared, together, self._device, programmatic=self._clusters
        )

    def _bind_forward(self, number: int, turn: _Turn) -> BoundCall:
        layer, first = self.layers[number], number == 0
        shape = shape_forward(self._options.batch, layer.inputs, layer.outputs, self._clusters, self._room)
        source = self._samples.features if first else _of_batch(self.outputs[number - 1], turn.earlier)
        selection = [self._samples.order, self._samples.step, 0] if first else [None, None, 0]
        # The second layer counts the batch, when the first has read which one it is.
        count = self._samples.step if number == 1 else None
        weights = layer.ahead if turn.earlier and layer.ahead is not None else layer.weights
        args: list[Any] = [source, layer.inputs, *selection, weights, layer.bias, layer.inputs]
        # The backward pass begins with the layers that the forward pass ends with.
        stays = number + 2 >= len(self.layers)
        args += [int(first), int(stays), _of_batch(self.outputs[number], turn.earlier), count]
        args += [*self._earlier(layer, turn), self.gradients[number]]
        return self._bind("forward", shape, True, args)

    def _bind_classify(self, turn: _Turn, graded: bool) -> BoundCall:
        layer = self.layers[-1]
        shape = shape_classify(self._options.batch, layer.inputs, self._clusters, self._room)
        args: list[Any] = [_of_batch(self.outputs[-1], turn.earlier), *self._counted()]
        args += [layer.weights, layer.bias, layer.inputs, self._samples.labels, GRADIENT_SCALE]
        args += [self._samples.losses, self._samples.classes]
        args.append(_of_batch(self.gradients[-1], turn.earlier) if graded else None)
        return self._bind("classify", shape, True, args, CLASSES=CLASSES)

    def _counted(self) -> list[Any]:
        """The selection of the batch under way, once it is counted."""
        return [self._samples.order, self._samples.step, -self._options.batch]

    def _bind_backward(self, number: int, turn: _Turn) -> BoundCall:
        layer, options, first = self.layers[number], self._options, number == 0
        momentum, batches = layer.velocities is not None, 1
        if layer.at_once > 1:
            batches = turn.earlier + 1 if turn.is_last else 0
        shape = shape_backward(
            options.batch, layer.inputs, layer.outputs, momentum, not first, self._clusters, batches
        )
        begin = turn.earlier + 1 - max(batches, 1)  # the first batch that is read
        source = self._samples.features if first else _of_batch(self.outputs[number - 1], begin)
        args: list[Any] = [_of_batch(self.gradients[number], begin), source, layer.inputs]
        args += self._counted() if first else [None, None, 0]
        args += [layer.weights, layer.rests, layer.velocities, layer.bias, layer.bias_velocities, layer.ahead]
        args += [layer.inputs, layer.outputs, options.rate, options.momentum, options.decay]
        # The next forward pass begins with the layers that the backward pass ends with.
        args += [self._scale, int(number < 2)]
        args.append(None if first else _of_batch(self.gradients[number - 1], turn.earlier))
        args += [*self._earlier(layer, turn), None if first else self.outputs[number - 1]]
        defines = {
            "BLOCKS_AT_ONCE": shape.resident,
            "BATCHES_AT_ONCE": batches,
            "HAS_MOMENTUM": int(momentum),
            "HAS_INPUT_GRADIENTS": int(not first),
        }
        return self._bind("backward", shape, not first, args, **defines)

    @property
    def _scale(self) -> float:
        """Of the sum of a batch's gradients, as they are in memory: the mean."""
        return 1 / (GRADIENT_SCALE * self._options.batch)

    def _earlier(self, layer: DeviceLayer, turn: _Turn) -> list[Any]:
        """What a launch has to know of the batches that are not in its weights yet."""
        earlier = turn.earlier if layer.at_once > 1 else 0
        kept = 1.0 if layer.ahead is not None else self._kept**earlier  # of the weights that are read
        return [self._products if earlier else None, earlier, kept]

    @property
    def _kept(self) -> float:
        """Of a weight, by a batch: the rest decays."""
        return 1 - self._options.rate * self._options.decay

    def _bind_products(self, number: int, turn: _Turn, of_gradients: bool) -> BoundCall:
        """Of a layer's inputs, or its outputs' gradients, of this batch with earlier ones'."""
        layer = self.layers[number]
        depth = layer.outputs if of_gradients else layer.inputs
        shape = shape_products(self._options.batch, depth, turn.earlier, self._clusters)
        batches = self.gradients[number] if of_gradients else self.outputs[number - 1]
        args = [batches, depth, -self._options.rate * self._scale, self._kept, self._products]
        return self._bind("multiply_batches", shape, True, args, ARE_GRADIENTS=int(of_gradients))

    def _call(self, kind: str, number: int, turn: _Turn) -> BoundCall:
        """A launch, made once."""
        found = self._calls.get((kind, number, turn))
        if found is None:
            match kind:
                case "forward":
                    found = self._bind_forward(number, turn)
                case "classify" | "test":
                    found = self._bind_classify(turn, kind == "classify")
                case "backward":
                    found = self._bind_backward(number, turn)
                case _:
                    found = self._bind_products(number, turn, kind == "gradients")
            self._calls[kind, number, turn] = found
        return found

    def of_batches(self, graded: bool, batches: int) -> list[tuple[str, BoundCall]]:
        """The launches of so many batches, in order, each with a name; ``graded`` ones learn from them.

        Batches share updates from the first on; the last one leaves none open.
        """
        named = []
        for i in range(batches):
            turn = _ALONE
            if graded:
                earlier = i % self.at_once
                turn = _Turn(earlier, earlier + 1 == self.at_once or i + 1 == batches)
            named += self._of_batch_in(turn, graded)
        return named

    def _of_batch_in(self, turn: _Turn, graded: bool) -> list[tuple[str, BoundCall]]:
        """The launches of a batch."""
        count, named = len(self.layers), []
        for number, layer in enumerate(self.layers[:-1]):
            if turn.earlier and layer.at_once > 1:
                named.append((f"inputs {number + 1} by earlier ones", self._call("inputs", number, turn)))
            named.append((f"forward {number + 1}", self._call("forward", number, turn)))
        named.append(
            (f"forward {count} and loss", self._call("classify" if graded else "test", count - 1, turn))
        )
        for number in reversed(range(count if graded else 0)):
            if turn.earlier and self.layers[number].at_once > 1:
                named.append(
                    (f"gradients {number + 1} by earlier ones", self._call("gradients", number, turn))
                )
            named.append((f"backward {number + 1}", self._call("backward", number, turn)))
        return named
