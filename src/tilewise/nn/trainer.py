"""Trains a network on a device: its arrays there, the launches of a step, and the graph that replays them.

A step of three hidden layers is eight launches: three forward, the last layer with its loss, and four backward, each of
which updates the weights that it reads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.devices.gpu import GpuDevice, Graph
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernel import BoundCall, Kernel
from tilewise.nn.launch_shapes import THREADS, LayerShape, shape_backward, shape_classify, shape_forward
from tilewise.nn.network import FEATURES_PADDED, Layer, Network
from tilewise.nn.options import CLASSES, FEATURES, TrainingOptions
from tilewise.nn.tiles import tile_halves, tile_velocities, untile_gradients, untile_halves, untile_velocities

__all__ = ["GRADIENT_SCALE", "Trainer", "order_samples"]

GRADIENT_SCALE = 1024.0  # of gradients in float16, so that small ones do not get lost
_STEPS_IN_GRAPH = 25

_Host = npt.NDArray[Any]


@functools.lru_cache(maxsize=64)
def _kernel(name: str, arch: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    source = Path(__file__).with_name(f"{name}.cu")
    return Kernel(source.read_text(encoding="utf-8"), name, arch, dict(defines), filename=source.name)


def _copy(array: _Host) -> _Host:
    return np.ascontiguousarray(array)


_TILING = {"weights": tile_halves, "rests": tile_halves, "velocities": tile_velocities}
_UNTILING = {"weights": untile_halves, "rests": untile_halves, "velocities": untile_velocities}


class _DeviceLayer:
    """A layer's arrays on a device."""

    def __init__(self, layer: Layer, device: Device) -> None:
        self.inputs, self.outputs = layer.inputs, layer.outputs
        self.arrays: dict[str, Array | None] = {}
        for name in Layer.__slots__:
            value = getattr(layer, name)
            self.arrays[name] = None if value is None else device.array(_TILING.get(name, _copy)(value))

    def __getattr__(self, name: str) -> Any:
        return self.arrays[name]

    def read(self) -> Layer:
        """A copy on the host."""
        found = {name: None if one is None else one.numpy() for name, one in self.arrays.items()}
        for name, untile in _UNTILING.items():
            tiles = found[name]
            found[name] = None if tiles is None else untile(tiles)
        return Layer(**found)  # type: ignore[arg-type]


class Trainer:
    """A network on a device, with the samples that it is trained and tested with.

    ``samples`` are rows of features in float16, ``labels`` their classes.

    >>> import numpy as np, tilewise as tw
    >>> options = tw.nn.TrainingOptions(hidden=32, batch=16)
    >>> samples, labels = np.zeros((16, 784), "float16"), np.zeros(16, "uint8")
    >>> trainer = tw.nn.Trainer(tw.nn.Network.begin(options), options, samples, labels, device="emulator")
    >>> trainer.train(np.arange(16))[0].shape
    (16,)
    """

    def __init__(
        self,
        network: Network,
        options: TrainingOptions,
        samples: _Host,
        labels: _Host,
        device: Device | str | None = None,
    ) -> None:
        from tilewise.devices import device as resolve

        self.device, self.options = resolve(device), options
        self._arch = self.device.arch
        if arch_capability(self._arch) < (8, 0):
            raise ArgumentError("device", "must have compute capability 8.0 or newer to train", self._arch)
        self._clusters = arch_capability(self._arch) >= (9, 0)
        self._layers = [_DeviceLayer(layer, self.device) for layer in network.layers]
        self._place_samples(samples, labels)
        self._place_activations()
        self._forward = [self._bind_forward(number) for number in range(len(self._layers) - 1)]
        self._classify = {graded: self._bind_classify(graded) for graded in (False, True)}
        self._backward = [self._bind_backward(number) for number in reversed(range(len(self._layers)))]
        self._graphs: dict[tuple[bool, int], Graph] = {}

    # ── memory ──

    def _place_samples(self, samples: _Host, labels: _Host) -> None:
        if samples.ndim != 2 or samples.shape[1] != FEATURES or not len(samples):
            raise ArgumentError("samples", f"must be rows of {FEATURES} features", samples.shape)
        if labels.shape != samples.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
            rule = f"must be {len(samples)} whole numbers, one for each of the samples"
            raise ArgumentError("labels", rule, f"{labels.dtype} of shape {labels.shape}")
        if labels.min() < 0 or labels.max() >= CLASSES:
            raise ArgumentError(
                "labels", f"must be from 0 to {CLASSES - 1}", f"{labels.min()} to {labels.max()}"
            )
        padded = np.zeros((len(samples), FEATURES_PADDED), np.float16)
        padded[:, : samples.shape[1]] = samples
        self._samples = self.device.array(padded)
        self._labels = self.device.array(np.ascontiguousarray(labels, np.uint8))
        slots = -(-len(samples) // self.options.batch) * self.options.batch
        self._order = self.device.array(np.zeros(slots, np.int32))
        self._losses = self.device.array(np.zeros((slots, 2), np.float32))
        self._classes = self.device.array(np.zeros(slots, np.int32))
        self._step = self.device.array(np.zeros(1, np.uint32))

    def _place_activations(self) -> None:
        batch = self.options.batch
        # NOTE: set, as columns of padding are read and never written.
        self._outputs = [self._zeros(batch, layer.outputs) for layer in self._layers[:-1]]
        self._gradients = [self._zeros(layer.outputs // 16, batch, 16) for layer in self._layers]

    def _zeros(self, *shape: int) -> Array:
        return self.device.array(np.zeros(shape, np.float16))

    def read_network(self) -> Network:
        """A copy of the network on the host."""
        return Network([layer.read() for layer in self._layers])

    def read_outputs(self) -> list[_Host]:
        """What each hidden layer made of the last batch."""
        return [one.numpy() for one in self._outputs]

    def read_gradients(self) -> list[_Host]:
        """Of the last batch, the gradients of its loss by each layer's sums, times :data:`GRADIENT_SCALE`."""
        return [untile_gradients(one.numpy()) for one in self._gradients]

    # ── launches ──

    def _bind(
        self, name: str, shape: LayerShape, cluster: bool, args: Sequence[Any], **defines: int
    ) -> BoundCall:
        settings = {"TILE_BATCH": self.options.batch, **shape.defines, **defines}
        kernel = _kernel(name, self._arch, tuple(settings.items()))
        together = (1, shape.split, 1) if cluster and shape.split > 1 else None
        return kernel.bind(
            shape.grid, THREADS, args, shape.shared, together, self.device, programmatic=self._clusters
        )

    def _bind_forward(self, number: int) -> BoundCall:
        layer, first = self._layers[number], number == 0
        shape = shape_forward(self.options.batch, layer.inputs, layer.outputs, self._clusters)
        source = self._samples if first else self._outputs[number - 1]
        selection = [self._order, self._step, 0] if first else [None, None, 0]
        # The second layer counts the batch, when the first has read which one it is.
        count = self._step if number == 1 else None
        args = [source, layer.inputs, *selection, layer.weights, layer.bias, layer.inputs]
        # The backward pass begins with the layers that the forward pass ends with.
        stays = number + 2 >= len(self._layers)
        args += [int(first), int(stays), self._outputs[number], count]
        return self._bind("forward", shape, True, args)

    def _bind_classify(self, graded: bool) -> BoundCall:
        layer = self._layers[-1]
        shape = shape_classify(self.options.batch, layer.inputs, self._clusters)
        args = [self._outputs[-1], *self._counted(), layer.weights, layer.bias, layer.inputs, self._labels]
        args += [GRADIENT_SCALE, self._losses, self._classes, self._gradients[-1] if graded else None]
        return self._bind("classify", shape, True, args, CLASSES=CLASSES)

    def _counted(self) -> list[Any]:
        """The selection of the batch under way, once it is counted."""
        return [self._order, self._step, -self.options.batch]

    def _bind_backward(self, number: int) -> BoundCall:
        layer, options, first = self._layers[number], self.options, number == 0
        momentum = layer.velocities is not None
        shape = shape_backward(
            options.batch, layer.inputs, layer.outputs, momentum, not first, self._clusters
        )
        source = self._samples if first else self._outputs[number - 1]
        args = [self._gradients[number], source, layer.inputs]
        args += self._counted() if first else [None, None, 0]
        args += [layer.weights, layer.rests, layer.velocities, layer.bias, layer.bias_velocities]
        args += [layer.inputs, layer.outputs, options.rate, options.momentum, options.decay]
        # The next forward pass begins with the layers that the backward pass ends with.
        args += [1 / (GRADIENT_SCALE * options.batch), int(number < 2)]
        args.append(None if first else self._gradients[number - 1])
        defines = {"HAS_MOMENTUM": int(momentum), "HAS_INPUT_GRADIENTS": int(not first)}
        return self._bind("backward", shape, not first, args, **defines)

    def launches(self, graded: bool = True) -> list[tuple[str, BoundCall]]:
        """The launches of a batch, in order, each with a name; ``graded`` ones learn from it."""
        count = len(self._layers)
        named = [(f"forward {i + 1}", call) for i, call in enumerate(self._forward)]
        named.append((f"forward {count} and loss", self._classify[graded]))
        if graded:
            named += [(f"backward {count - i}", call) for i, call in enumerate(self._backward)]
        return named

    def start(self, graded: bool = True) -> None:
        """Start the launches of a batch."""
        for _, launch in self.launches(graded):
            launch()

    # ── batches ──

    def select(self, rows: _Host) -> None:
        """Say which samples the batches from here on have, one after another."""
        count = self._order.shape[0]
        if len(rows) > count:
            raise ArgumentError("rows", f"must be at most {count:,}, as many as samples", len(rows))
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._labels.shape[0]:
            rule = f"must be from 0 to {self._labels.shape[0] - 1}"
            raise ArgumentError("rows", rule, f"{rows.min()} to {rows.max()}")
        order = np.zeros(count, np.int32)
        order[: len(rows)] = rows
        self._order.fill(order)
        self._step.fill(np.zeros(1, np.uint32))

    def run(self, batches: int, graded: bool = True) -> None:
        """Start so many batches; a GPU replays them as a graph. Nothing waits for their end."""
        if isinstance(self.device, GpuDevice):
            while batches >= _STEPS_IN_GRAPH:
                self.graph(graded).launch()
                batches -= _STEPS_IN_GRAPH
        for _ in range(batches):
            self.start(graded)

    def prepare(self) -> None:
        """Capture what a GPU replays, so that the first batches take no longer than others."""
        if isinstance(self.device, GpuDevice):
            for graded in (True, False):
                self.graph(graded).upload()

    def graph(self, graded: bool = True, batches: int = _STEPS_IN_GRAPH) -> Graph:
        """The launches of so many batches, captured once. On a GPU alone."""
        found = self._graphs.get((graded, batches))
        if found is None:
            if not isinstance(self.device, GpuDevice):
                raise ArgumentError("device", "must be a GPU: the emulator has no graphs", self.device.name)
            with self.device.capture() as found:
                for _ in range(batches):
                    self.start(graded)
            self._graphs[graded, batches] = found
        return found

    def train(self, rows: _Host) -> tuple[_Host, _Host]:
        """Learn from these samples, batch after batch; return the loss of each, in float64, and its likeliest class.

        A batch that is not full is left out.
        """
        count = len(rows) // self.options.batch
        self.select(rows)
        self.run(count)
        return self.results(count * self.options.batch)

    def classify(self, rows: _Host) -> tuple[_Host, _Host]:
        """Each sample's loss and likeliest class; nothing is learnt."""
        self.select(rows)
        self.run(-(-len(rows) // self.options.batch), graded=False)
        return self.results(len(rows))

    def results(self, count: int) -> tuple[_Host, _Host]:
        """Losses and likeliest classes of the first samples of those that were selected; waits for them."""
        parts = self._losses.numpy()[:count].astype(np.float64)
        return np.log(parts[:, 0]) - parts[:, 1], self._classes.numpy()[:count]


def order_samples(options: TrainingOptions, count: int, epoch: int = 0) -> _Host:
    """The order in which an epoch takes so many samples; those that fill no batch are left out."""
    random = np.random.default_rng([options.seed, epoch, count])
    return random.permutation(count)[: count // options.batch * options.batch]
