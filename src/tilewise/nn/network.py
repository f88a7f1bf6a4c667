"""The weights of a network on the host, and how they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.nn.options import CLASSES, FEATURES, TrainingOptions

__all__ = [
    "CLASSES_PADDED", "FEATURES_PADDED", "Layer", "Network", "find_fault", "join_halves", "split_weights"
]  # fmt: skip

FEATURES_PADDED = 800  # the next multiple of 32: what is added is 0, and stays so
CLASSES_PADDED = 16
_REST_MOST = 2**15 - 1

Array = npt.NDArray[Any]


def split_weights(whole: Array) -> tuple[Array, Array]:
    """float32 weights as the nearest float16 and the 16 bits that say which float32 it was (see split_weight.cuh)."""
    halves = whole.astype(np.float16)
    apart = whole.view(np.int32) - halves.astype(np.float32).view(np.int32)
    return halves, np.clip(apart, -_REST_MOST - 1, _REST_MOST).astype(np.int16)


def join_halves(halves: Array, rests: Array) -> Array:
    """The float32 weights of both halves."""
    whole: Array = (halves.astype(np.float32).view(np.int32) + rests).view(np.float32)
    return whole


@dataclass(slots=True)
class Layer:
    """A dense layer: ``weights`` (outputs, inputs) in float16, ``rests`` with the other bits of its float32 weights.

    ``velocities`` are those of momentum, None without.
    """

    weights: Array
    rests: Array
    velocities: Array | None
    bias: Array
    bias_velocities: Array

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.weights.shape[1])

    @property
    def master(self) -> Array:
        """The weights in float32."""
        return join_halves(self.weights, self.rests)


@dataclass(slots=True)
class Network:
    """Dense layers, with max(0, x) between them; features and classes are padded with zeros."""

    layers: list[Layer]

    @classmethod
    def begin(cls, options: TrainingOptions) -> Network:
        """Weights even in ±√(6 / inputs), biases 0: a seed decides, by arithmetic that is exact everywhere."""
        real = [FEATURES, options.hidden, options.hidden, options.hidden, CLASSES]
        padded = _padded_widths(options)
        layers = []
        for number in range(len(real) - 1):
            random = np.random.default_rng([options.seed, number])
            inputs, outputs = real[number], real[number + 1]
            whole = np.zeros((padded[number + 1], padded[number]), np.float32)
            even = random.random((outputs, inputs), np.float32)
            whole[:outputs, :inputs] = (even * 2 - 1) * np.float32((6 / inputs) ** 0.5)
            halves, rests = split_weights(whole)
            bias = np.zeros(whole.shape[0], np.float32)
            velocities = np.zeros_like(whole) if options.momentum else None
            layers.append(Layer(halves, rests, velocities, bias, bias.copy()))
        return cls(layers)

    def to_arrays(self) -> dict[str, Array]:
        """Every array by a name, as a checkpoint has them."""
        named = {}
        for number, layer in enumerate(self.layers):
            for name in Layer.__slots__:
                value = getattr(layer, name)
                if value is not None:
                    named[f"{number}.{name}"] = value
        return named

    @classmethod
    def from_arrays(cls, named: dict[str, Array]) -> Network:
        """The network whose arrays :meth:`to_arrays` gave."""
        count = 1 + max(int(name.partition(".")[0]) for name in named)
        return cls([Layer(*(named.get(f"{i}.{name}") for name in Layer.__slots__)) for i in range(count)])  # type: ignore[arg-type]


def _padded_widths(options: TrainingOptions) -> list[int]:
    """Of the samples, and of what each layer makes of them."""
    return [FEATURES_PADDED, options.hidden, options.hidden, options.hidden, CLASSES_PADDED]


def find_fault(named: Mapping[str, object], options: TrainingOptions) -> str:
    """What is wrong with arrays by the names of :meth:`Network.to_arrays`, for a network of these options; or nothing.

    NOTE: kernels take sizes from the options alone: a shorter array would be read beyond its end.
    """
    expected = _describe_arrays(options)
    if missing := sorted(expected.keys() - named.keys()):
        return f"{missing[0]} is missing"
    if others := sorted(named.keys() - expected.keys()):
        return f"{others[0]} is none of its arrays"
    for name, (shape, dtype) in expected.items():
        array = named[name]
        if not isinstance(array, np.ndarray):
            return f"{name} is no array"
        if (array.shape, array.dtype) != (shape, dtype):
            return f"{name} must be {dtype} of shape {shape}, not {array.dtype} of shape {array.shape}"
        if not np.isfinite(array).all():
            return f"{name} must be finite"
    return ""


def _describe_arrays(options: TrainingOptions) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every array of a network of these options, by name."""
    found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for number, (inputs, outputs) in enumerate(pairwise(_padded_widths(options))):
        kinds: dict[str, tuple[tuple[int, ...], type[Any]]] = {
            "weights": ((outputs, inputs), np.float16),
            "rests": ((outputs, inputs), np.int16),
            "velocities": ((outputs, inputs), np.float32),
            "bias": ((outputs,), np.float32),
            "bias_velocities": ((outputs,), np.float32),
        }
        if not options.momentum:
            del kinds["velocities"]
        found |= {f"{number}.{name}": (shape, np.dtype(kind)) for name, (shape, kind) in kinds.items()}
    return found
