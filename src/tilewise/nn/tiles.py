"""How weights lie on a device, in tiles of 16 outputs × 32 inputs: there and back (see layer_tiles.cuh)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["tile_halves", "tile_velocities", "untile_gradients", "untile_halves", "untile_velocities"]

_Array = npt.NDArray[Any]

_ROW, _PART = np.ogrid[0:8, 0:4]
_MIXED = _PART ^ (_ROW // 2)  # the part of a row that lies at each place; mixed twice, it is as before


def tile_halves(matrix: _Array) -> _Array:
    """A matrix (outputs, inputs) of 16-bit elements in tiles: (outputs / 16, inputs / 32, 2, 8, 4, 8)."""
    outputs, inputs = matrix.shape
    tiles = matrix.reshape(outputs // 16, 2, 8, inputs // 32, 4, 8).transpose(0, 3, 1, 2, 4, 5)
    return np.ascontiguousarray(tiles[:, :, :, _ROW, _MIXED])


def untile_halves(tiles: _Array) -> _Array:
    """The matrix that :func:`tile_halves` was given."""
    plain = tiles[:, :, :, _ROW, _MIXED].transpose(0, 2, 3, 1, 4, 5)
    return np.ascontiguousarray(plain).reshape(tiles.shape[0] * 16, tiles.shape[1] * 32)


def tile_velocities(matrix: _Array) -> _Array:
    """A matrix (outputs, inputs) of float32 in tiles: (outputs / 16, inputs / 32, 2, 2, 8, 4, 4)."""
    outputs, inputs = matrix.shape
    tiles = matrix.reshape(outputs // 16, 2, 8, inputs // 32, 4, 2, 4).transpose(0, 3, 1, 5, 2, 4, 6)
    return np.ascontiguousarray(tiles)


def untile_velocities(tiles: _Array) -> _Array:
    """The matrix that :func:`tile_velocities` was given."""
    plain = tiles.transpose(0, 2, 4, 1, 5, 3, 6)
    return np.ascontiguousarray(plain).reshape(tiles.shape[0] * 16, tiles.shape[1] * 32)


def untile_gradients(tiles: _Array) -> _Array:
    """The matrix (samples, outputs) of gradients in tiles: (outputs / 16, samples, 16), of every eight rows' lower four
    the two halves swapped.
    """
    outputs, batch, _ = tiles.shape
    parts = tiles.reshape(outputs, batch // 8, 2, 4, 2, 8).copy()
    parts[:, :, 1] = parts[:, :, 1, :, ::-1]
    return np.ascontiguousarray(parts.reshape(outputs, batch, 16).transpose(1, 0, 2)).reshape(
        batch, outputs * 16
    )
