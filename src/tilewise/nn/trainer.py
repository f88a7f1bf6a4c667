"""Trains a network on a device: its arrays there, the launches of a step, and the graph that replays them.

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
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.devices.gpu import GpuDevice, Graph
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernel import BoundCall, Kernel
from tilewise.nn.launch_shapes import (
    THREADS,
    LayerShape,
    shape_backward,
    shape_classify,
    shape_forward,
    shape_products,
    updates_at_once,
)
from tilewise.nn.network import FEATURES_PADDED, Layer, Network
from tilewise.nn.options import CLASSES, FEATURES, TrainingOptions
from tilewise.nn.tiles import tile_halves, tile_velocities, untile_gradients, untile_halves, untile_velocities

__all__ = ["GRADIENT_SCALE", "Trainer", "order_samples"]

GRADIENT_SCALE = 1024.0  # of gradients in float16, so that small ones do not get lost
_STEPS_IN_GRAPH = 24  # a multiple of how many update large layers at once

_Host = npt.NDArray[Any]


@functools.lru_cache(maxsize=64)
def _kernel(name: str, arch: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    source = Path(__file__).with_name(f"{name}.cu")
    return Kernel(source.read_text(encoding="utf-8"), name, arch, dict(defines), filename=source.name)


def _copy(array: _Host) -> _Host:
    return np.ascontiguousarray(array)


def _of_batch(array: Array, number: int) -> int | Array:
    """Where a batch begins in an array of several."""
    return array.ptr + number * (array.nbytes // array.shape[0]) if number else array


_TILING = {"weights": tile_halves, "rests": tile_halves, "velocities": tile_velocities}
_UNTILING = {"weights": untile_halves, "rests": untile_halves, "velocities": untile_velocities}


class _DeviceLayer:
    """A layer's arrays on a device."""

    def __init__(self, layer: Layer, device: Device) -> None:
        self.inputs, self.outputs = layer.inputs, layer.outputs
        self.at_once = 1  # by how many batches' gradients the weights are updated at once
        self.ahead: Array | None = None
        self.arrays: dict[str, Array | None] = {}
        for name in Layer.__slots__:
            value = getattr(layer, name)
            self.arrays[name] = None if value is None else device.array(_TILING.get(name, _copy)(value))

    def share_updates(self, layer: Layer, options: TrainingOptions, device: Device) -> None:
        """Update the weights by several batches at once, if they are many."""
        self.at_once = updates_at_once(self.inputs, self.outputs, layer.velocities is not None)
        if self.at_once > 1 and layer.velocities is not None:
            # What the next step makes of the weights without its gradients.
            moved = options.momentum * layer.velocities + options.decay * layer.master
            self.ahead = device.array(tile_halves((layer.master - options.rate * moved).astype(np.float16)))

    def __getattr__(self, name: str) -> Any:
        return self.arrays[name]

    def read(self) -> Layer:
        """A copy on the host."""
        found = {name: None if one is None else one.numpy() for name, one in self.arrays.items()}
        for name, untile in _UNTILING.items():
            tiles = found[name]
            found[name] = None if tiles is None else untile(tiles)
        return Layer(**found)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Turn:
    """Which of the batches that update large layers at once: ``earlier`` ones are before it; with the last they are."""

    earlier: int
    is_last: bool


_ALONE = _Turn(0, True)


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
        # NOTE: those between others, whose inputs and gradients are kept.
        for layer, host in zip(self._layers[1:-1], network.layers[1:-1], strict=True):
            layer.share_updates(host, options, self.device)
        self._at_once = max(layer.at_once for layer in self._layers)
        self._place_samples(samples, labels)
        self._place_activations()
        self._calls: dict[tuple[str, int, _Turn], BoundCall] = {}
        self._graphs: dict[tuple[bool, int], Graph] = {}
        for graded in (True, False):
            self.launches(graded)

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
        """Of as many batches as update a layer at once, one after another."""
        batch, count = self.options.batch, self._at_once
        # NOTE: set, as columns of padding are read and never written.
        self._outputs = [self._zeros(count, batch, layer.outputs) for layer in self._layers[:-1]]
        self._gradients = [self._zeros(count, layer.outputs // 16, batch, 16) for layer in self._layers]
        self._products = self.device.array(np.zeros((batch, max(count - 1, 1) * batch), np.float32))
        self._last = 0  # which of them the last batch was

    def _zeros(self, *shape: int) -> Array:
        return self.device.array(np.zeros(shape, np.float16))

    def read_network(self) -> Network:
        """A copy of the network on the host."""
        return Network([layer.read() for layer in self._layers])

    def read_ahead(self) -> list[_Host | None]:
        """Of layers that are updated by two batches at once with momentum, the weights that the second one begins with,
        without the first one's gradients.
        """
        return [None if layer.ahead is None else untile_halves(layer.ahead.numpy()) for layer in self._layers]

    def read_outputs(self, before: int = 0) -> list[_Host]:
        """What each hidden layer made of the last batch, or of one before it that updates large layers with it."""
        return [one.numpy()[self._last - before] for one in self._outputs]

    def read_gradients(self, before: int = 0) -> list[_Host]:
        """Of the same batch the gradients of its loss by each layer's sums, times :data:`GRADIENT_SCALE`."""
        return [untile_gradients(one.numpy()[self._last - before]) for one in self._gradients]

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

    def _bind_forward(self, number: int, turn: _Turn) -> BoundCall:
        layer, first = self._layers[number], number == 0
        shape = shape_forward(self.options.batch, layer.inputs, layer.outputs, self._clusters)
        source = self._samples if first else _of_batch(self._outputs[number - 1], turn.earlier)
        selection = [self._order, self._step, 0] if first else [None, None, 0]
        # The second layer counts the batch, when the first has read which one it is.
        count = self._step if number == 1 else None
        weights = layer.ahead if turn.earlier and layer.ahead is not None else layer.weights
        args: list[Any] = [source, layer.inputs, *selection, weights, layer.bias, layer.inputs]
        # The backward pass begins with the layers that the forward pass ends with.
        stays = number + 2 >= len(self._layers)
        args += [int(first), int(stays), _of_batch(self._outputs[number], turn.earlier), count]
        args += [*self._earlier(layer, turn), self._gradients[number]]
        return self._bind("forward", shape, True, args)

    def _bind_classify(self, turn: _Turn, graded: bool) -> BoundCall:
        layer = self._layers[-1]
        shape = shape_classify(self.options.batch, layer.inputs, self._clusters)
        args: list[Any] = [_of_batch(self._outputs[-1], turn.earlier), *self._counted()]
        args += [layer.weights, layer.bias, layer.inputs, self._labels, GRADIENT_SCALE]
        args += [self._losses, self._classes]
        args.append(_of_batch(self._gradients[-1], turn.earlier) if graded else None)
        return self._bind("classify", shape, True, args, CLASSES=CLASSES)

    def _counted(self) -> list[Any]:
        """The selection of the batch under way, once it is counted."""
        return [self._order, self._step, -self.options.batch]

    def _bind_backward(self, number: int, turn: _Turn) -> BoundCall:
        layer, options, first = self._layers[number], self.options, number == 0
        momentum, batches = layer.velocities is not None, 1
        if layer.at_once > 1:
            batches = turn.earlier + 1 if turn.is_last else 0
        shape = shape_backward(
            options.batch, layer.inputs, layer.outputs, momentum, not first, self._clusters, batches
        )
        begin = turn.earlier + 1 - max(batches, 1)  # the first batch that is read
        source = self._samples if first else _of_batch(self._outputs[number - 1], begin)
        args: list[Any] = [_of_batch(self._gradients[number], begin), source, layer.inputs]
        args += self._counted() if first else [None, None, 0]
        args += [layer.weights, layer.rests, layer.velocities, layer.bias, layer.bias_velocities, layer.ahead]
        args += [layer.inputs, layer.outputs, options.rate, options.momentum, options.decay]
        # The next forward pass begins with the layers that the backward pass ends with.
        args += [self._scale, int(number < 2)]
        args.append(None if first else _of_batch(self._gradients[number - 1], turn.earlier))
        args += [*self._earlier(layer, turn), None if first else self._outputs[number - 1]]
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
        return 1 / (GRADIENT_SCALE * self.options.batch)

    def _earlier(self, layer: _DeviceLayer, turn: _Turn) -> list[Any]:
        """What a launch has to know of the batches that are not in its weights yet."""
        earlier = turn.earlier if layer.at_once > 1 else 0
        kept = 1.0 if layer.ahead is not None else self._kept**earlier  # of the weights that are read
        return [self._products if earlier else None, earlier, kept]

    @property
    def _kept(self) -> float:
        """Of a weight, by a batch: the rest decays."""
        return 1 - self.options.rate * self.options.decay

    def _bind_products(self, number: int, turn: _Turn, of_gradients: bool) -> BoundCall:
        """Of a layer's inputs, or its outputs' gradients, of this batch with earlier ones'."""
        layer = self._layers[number]
        depth = layer.outputs if of_gradients else layer.inputs
        shape = shape_products(self.options.batch, depth, turn.earlier, self._clusters)
        batches = self._gradients[number] if of_gradients else self._outputs[number - 1]
        args = [batches, depth, -self.options.rate * self._scale, self._kept, self._products]
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

    def launches(self, graded: bool = True, batches: int = 1) -> list[tuple[str, BoundCall]]:
        """The launches of so many batches, in order, each with a name; ``graded`` ones learn from them.

        Batches share updates from the first on; the last one leaves none open.
        """
        named = []
        for i in range(batches):
            turn = _ALONE
            if graded:
                earlier = i % self._at_once
                turn = _Turn(earlier, earlier + 1 == self._at_once or i + 1 == batches)
            named += self._launches_of(turn, graded)
        return named

    def _launches_of(self, turn: _Turn, graded: bool) -> list[tuple[str, BoundCall]]:
        """The launches of a batch."""
        count, named = len(self._layers), []
        for number, layer in enumerate(self._layers[:-1]):
            if turn.earlier and layer.at_once > 1:
                named.append((f"inputs {number + 1} by earlier ones", self._call("inputs", number, turn)))
            named.append((f"forward {number + 1}", self._call("forward", number, turn)))
        named.append(
            (f"forward {count} and loss", self._call("classify" if graded else "test", count - 1, turn))
        )
        for number in reversed(range(count if graded else 0)):
            if turn.earlier and self._layers[number].at_once > 1:
                named.append(
                    (f"gradients {number + 1} by earlier ones", self._call("gradients", number, turn))
                )
            named.append((f"backward {number + 1}", self._call("backward", number, turn)))
        return named

    def start(self, graded: bool = True, batches: int = 1) -> None:
        """Start the launches of so many batches."""
        for _, launch in self.launches(graded, batches):
            launch()
        self._note_last(graded, batches)

    def _note_last(self, graded: bool, batches: int) -> None:
        if batches:
            self._last = (batches - 1) % self._at_once if graded else 0

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
        """Start so many batches; a GPU replays them as a graph. Nothing waits for their end.

        NOTE: how many are started at once decides which share updates of large layers, and so how weights round.
        """
        if isinstance(self.device, GpuDevice):
            while batches >= _STEPS_IN_GRAPH:
                self.graph(graded).launch()
                batches -= _STEPS_IN_GRAPH
                self._note_last(graded, _STEPS_IN_GRAPH)
        self.start(graded, batches)

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
                self.start(graded, batches)
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
