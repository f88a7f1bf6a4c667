"""A dense layer in a device's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.nn.launch_shapes import updates_at_once
from tilewise.nn.network import Layer
from tilewise.nn.options import TrainingOptions
from tilewise.nn.tiles import tile_halves, tile_velocities, untile_halves, untile_velocities

__all__ = ["DeviceLayer"]

_Host = npt.NDArray[Any]


def _copy(array: _Host) -> _Host:
    return np.ascontiguousarray(array)


_TILING = {"weights": tile_halves, "rests": tile_halves, "velocities": tile_velocities}
_UNTILING = {"weights": untile_halves, "rests": untile_halves, "velocities": untile_velocities}


class DeviceLayer:
    """A layer's arrays on a device.

    ``at_once``: by how many batches' gradients its weights are updated at once. ``ahead``: where that is by two with
    momentum, the weights that the second one begins with, without the first one's gradients.
    """

    def __init__(self, layer: Layer, device: Device) -> None:
        self.inputs, self.outputs = layer.inputs, layer.outputs
        self.at_once = 1
        self.ahead: Array | None = None
        self.arrays: dict[str, Array | None] = {}
        for name in Layer.__slots__:
            value = getattr(layer, name)
            self.arrays[name] = None if value is None else device.array(_TILING.get(name, _copy)(value))

    def share_updates(self, layer: Layer, options: TrainingOptions, device: Device) -> None:
        """Update the weights by several batches at once, if they are many."""
        momentum, room = layer.velocities is not None, device.limits.shared_bytes_per_block
        self.at_once = updates_at_once(options.batch, self.inputs, self.outputs, momentum, room)
        if self.at_once > 1 and layer.velocities is not None:
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
