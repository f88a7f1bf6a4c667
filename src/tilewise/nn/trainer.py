"""Trains a network on a device: batch after batch, by launches or by the graph that replays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.devices.gpu import GpuDevice, Graph
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernel import BoundCall
from tilewise.nn.network import FEATURES_PADDED, Network, find_fault
from tilewise.nn.options import CLASSES, FEATURES, TrainingOptions
from tilewise.nn.step_launches import DeviceSamples, StepLaunches
from tilewise.nn.tiles import untile_gradients, untile_halves

__all__ = ["STEPS_IN_GRAPH", "Trainer", "order_samples"]

STEPS_IN_GRAPH = 24  # a multiple of how many update large layers at once

_Host = npt.NDArray[Any]


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
        if arch_capability(self.device.arch) < (8, 0):
            raise ArgumentError(
                "device", "must have compute capability 8.0 or newer to train", self.device.arch
            )
        if fault := find_fault(network.to_arrays(), options):
            raise ArgumentError("network", f"must be one of the options: {fault}")
        self._samples = self._place(samples, labels)
        self._launches = StepLaunches(network, options, self._samples, self.device)
        self._last = 0  # of those that update large layers at once, which the last batch was
        self._graphs: dict[tuple[bool, int], Graph] = {}
        for graded in (True, False):
            self.launches(graded)

    # ── memory ──

    def _place(self, samples: _Host, labels: _Host) -> DeviceSamples:
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
        with np.errstate(over="ignore"):
            padded[:, : samples.shape[1]] = samples
        if not (fine := np.isfinite(padded).all(1)).all():
            row = int(np.argmin(fine))
            raise ArgumentError("samples", f"must be finite in float16, which row {row:,} is not")
        slots = -(-len(samples) // self.options.batch) * self.options.batch
        zeros = np.zeros(slots, np.int32), np.zeros(1, np.uint32), np.zeros((slots, 2), np.float32)
        order, step, losses, classes = map(self.device.array, (*zeros, zeros[0]))
        return DeviceSamples(
            self.device.array(padded),
            self.device.array(np.ascontiguousarray(labels, np.uint8)),
            order,
            step,
            losses,
            classes,
        )

    def read_network(self) -> Network:
        """A copy of the network on the host."""
        return Network([layer.read() for layer in self._launches.layers])

    def has_finite_weights(self) -> bool:
        """Whether every weight and bias is a number that float16 and float32 hold; waits for the batches before.

        NOTE: losses do not say so: a hidden layer makes max(0, NaN) = 0 of weights that are none.
        """
        arrays = (layer.arrays[name] for layer in self._launches.layers for name in ("weights", "bias"))
        return all(np.isfinite(one.numpy()).all() for one in arrays if one is not None)

    def read_ahead(self) -> list[_Host | None]:
        """Of layers that are updated by two batches at once with momentum, the weights that the second one begins with,
        without the first one's gradients.
        """
        return [
            None if layer.ahead is None else untile_halves(layer.ahead.numpy())
            for layer in self._launches.layers
        ]

    def read_outputs(self, before: int = 0) -> list[_Host]:
        """What each hidden layer made of the last batch, or of one before it that updates large layers with it."""
        return [one.numpy()[self._last - before] for one in self._launches.outputs]

    def read_gradients(self, before: int = 0) -> list[_Host]:
        """Of the same batch the gradients of its loss by each layer's sums, times :data:`GRADIENT_SCALE`."""
        return [untile_gradients(one.numpy()[self._last - before]) for one in self._launches.gradients]

    # ── batches ──

    def launches(self, graded: bool = True, batches: int = 1) -> list[tuple[str, BoundCall]]:
        """The launches of so many batches, in order, each with a name; ``graded`` ones learn from them.

        Batches share updates from the first on; the last one leaves none open.
        """
        return self._launches.of_batches(graded, batches)

    def start(self, graded: bool = True, batches: int = 1) -> None:
        """Start the launches of so many batches."""
        for _, launch in self.launches(graded, batches):
            launch()
        self._note_last(graded, batches)

    def _note_last(self, graded: bool, batches: int) -> None:
        if batches:
            self._last = (batches - 1) % self._launches.at_once if graded else 0

    def select(self, rows: npt.ArrayLike) -> None:
        """Say which samples the batches from here on have, one after another."""
        rows = _read_rows(rows)
        count = self._samples.order.shape[0]
        if len(rows) > count:
            raise ArgumentError("rows", f"must be at most {count:,}, as many as samples", len(rows))
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._samples.labels.shape[0]:
            rule = f"must be from 0 to {self._samples.labels.shape[0] - 1}"
            raise ArgumentError("rows", rule, f"{rows.min()} to {rows.max()}")
        order = np.zeros(count, np.int32)
        order[: len(rows)] = rows
        self._samples.order.fill(order)
        self._samples.step.fill(np.zeros(1, np.uint32))

    def run(self, batches: int, graded: bool = True) -> None:
        """Start so many batches; a GPU replays them as a graph. Nothing waits for their end.

        NOTE: how many are started at once decides which share updates of large layers, and so how weights round.
        """
        if isinstance(self.device, GpuDevice):
            while batches >= STEPS_IN_GRAPH:
                self.graph(graded).launch()
                batches -= STEPS_IN_GRAPH
                self._note_last(graded, STEPS_IN_GRAPH)
        self.start(graded, batches)

    def prepare(self) -> None:
        """Capture what a GPU replays, so that the first batches take no longer than others."""
        if isinstance(self.device, GpuDevice):
            for graded in (True, False):
                self.graph(graded).upload()

    def graph(self, graded: bool = True, batches: int = STEPS_IN_GRAPH) -> Graph:
        """The launches of so many batches, captured once. On a GPU alone."""
        found = self._graphs.get((graded, batches))
        if found is None:
            if not isinstance(self.device, GpuDevice):
                raise ArgumentError("device", "must be a GPU: the emulator has no graphs", self.device.name)
            with self.device.capture() as found:
                self.start(graded, batches)
            self._graphs[graded, batches] = found
        return found

    def train(self, rows: npt.ArrayLike) -> tuple[_Host, _Host]:
        """Learn from these samples, batch after batch; return the loss of each, in float64, and its likeliest class.

        The samples are whole batches: what one fewer would make of the mean gradient is another rate.
        """
        rows, batch = _read_rows(rows), self.options.batch
        if left := len(rows) % batch:
            fix = f"leave out the last {left}"
            raise ArgumentError("rows", f"must be a multiple of the batch, {batch}", len(rows), fix)
        count = len(rows) // batch
        self.select(rows)
        self.run(count)
        return self.results(len(rows))

    def classify(self, rows: npt.ArrayLike) -> tuple[_Host, _Host]:
        """Each sample's loss and likeliest class; nothing is learnt."""
        rows = _read_rows(rows)
        self.select(rows)
        self.run(-(-len(rows) // self.options.batch), graded=False)
        return self.results(len(rows))

    def results(self, count: int) -> tuple[_Host, _Host]:
        """Losses and likeliest classes of the first samples of those that were selected; waits for them."""
        parts = self._samples.losses.numpy()[:count].astype(np.float64)
        return np.log(parts[:, 0]) - parts[:, 1], self._samples.classes.numpy()[:count]


def _read_rows(rows: npt.ArrayLike) -> _Host:
    """Numbers of samples, from 0 on; a mask is none, though NumPy would take it for zeros and ones."""
    try:
        found = np.asarray(rows)
    except ValueError:  # lists of several lengths
        raise ArgumentError("rows", "must be the numbers of samples", rows) from None
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        fix = "np.flatnonzero(mask) gives those of a mask" if found.dtype == bool else ""
        given = f"{found.dtype} of shape {found.shape}"
        raise ArgumentError("rows", "must be the numbers of samples, integers in one row", given, fix)
    return found


def order_samples(options: TrainingOptions, count: int, epoch: int = 0) -> _Host:
    """The order in which an epoch takes so many samples; those that fill no batch are left out."""
    random = np.random.default_rng([options.seed, epoch, count])
    return random.permutation(count)[: count // options.batch * options.batch]
