"""Digits made by strokes: a set of the size and shape of MNIST's, where its files are not there.

NOTE: random numbers are even ones and arithmetic is + - × ÷ √, which every CPU rounds alike: a seed gives the same
bytes everywhere.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SIDE", "make_digits"]

SIDE = 28
_AT_ONCE = 1000  # samples that come of one stream of random numbers: the first ones are the same, however many are made
_GRID = 128  # points along each side of a shape's map of distances
_SHAPES = 24  # of each digit
_TRAINING, _TEST = 0, 1

_Array = npt.NDArray[Any]

# Each digit's strokes as points in a square of side 1, y downwards.
_STROKES: tuple[tuple[tuple[tuple[float, float], ...], ...], ...] = (
    (((0.5, 0.1), (0.3, 0.2), (0.22, 0.5), (0.3, 0.8), (0.5, 0.9), (0.7, 0.8), (0.78, 0.5), (0.7, 0.2), (0.5, 0.1)),),
    (((0.38, 0.25), (0.54, 0.1), (0.52, 0.5), (0.5, 0.9)),),
    (((0.26, 0.28), (0.4, 0.12), (0.62, 0.12), (0.72, 0.3), (0.6, 0.52), (0.26, 0.88), (0.5, 0.86), (0.78, 0.88)),),
    (
        ((0.28, 0.16), (0.5, 0.1), (0.7, 0.22), (0.66, 0.4), (0.46, 0.48)),
        ((0.46, 0.48), (0.7, 0.58), (0.72, 0.78), (0.5, 0.9), (0.26, 0.82)),
    ),
    (((0.6, 0.1), (0.42, 0.36), (0.22, 0.62), (0.8, 0.6)), ((0.62, 0.36), (0.6, 0.62), (0.58, 0.9))),
    (
        ((0.74, 0.12), (0.34, 0.12), (0.3, 0.44)),
        ((0.3, 0.44), (0.52, 0.4), (0.72, 0.54), (0.7, 0.78), (0.48, 0.9), (0.26, 0.82)),
    ),
    (
        ((0.66, 0.1), (0.42, 0.3), (0.28, 0.6), (0.34, 0.82), (0.52, 0.9)),
        ((0.52, 0.9), (0.72, 0.78), (0.68, 0.58), (0.48, 0.52), (0.3, 0.64)),
    ),
    (((0.24, 0.14), (0.5, 0.13), (0.76, 0.14), (0.58, 0.48), (0.44, 0.9)),),
    (
        ((0.5, 0.48), (0.32, 0.36), (0.32, 0.2), (0.5, 0.1), (0.68, 0.2), (0.68, 0.36), (0.5, 0.48)),
        ((0.5, 0.48), (0.28, 0.64), (0.3, 0.82), (0.5, 0.9), (0.7, 0.82), (0.72, 0.64), (0.5, 0.48)),
    ),
    (
        ((0.7, 0.36), (0.52, 0.48), (0.32, 0.4), (0.32, 0.2), (0.5, 0.1), (0.68, 0.18), (0.7, 0.36)),
        ((0.7, 0.36), (0.66, 0.64), (0.54, 0.9)),
    ),
)  # fmt: skip


def make_digits(count: int, seed: int, test: bool) -> tuple[_Array, _Array]:
    """Images (count, 28, 28) and labels, in bytes; those of a test are others than those to train with."""
    images, labels = np.empty((count, SIDE, SIDE), np.uint8), np.empty(count, np.uint8)
    maps = _distance_maps()
    for first in range(0, count, _AT_ONCE):
        random = np.random.default_rng([seed, _TEST if test else _TRAINING, first])
        made, of = _draw(random, maps)
        last = min(first + _AT_ONCE, count)
        images[first:last], labels[first:last] = made[: last - first], of[: last - first]
    return images, labels


def _draw(random: np.random.Generator, maps: _Array) -> tuple[_Array, _Array]:
    """So many samples: a shape of a digit, put askew, drawn by a pen of some width, with some noise."""
    count = _AT_ONCE
    labels = random.integers(0, 10, count)
    shapes = random.integers(0, _SHAPES, count)
    spread = (random.random((count, 6), np.float32) - np.float32(0.5)) * 2
    pens = 0.028 + 0.034 * random.random((count, 1, 1), np.float32)
    # Where each pixel lies in the shape's square: a digit has some 20 pixels of 28.
    line = (np.arange(SIDE, dtype=np.float32) - np.float32(13.5)) / np.float32(20)
    x, y = line[None, None, :], line[None, :, None]
    a, b, c, d, right, down = (part[:, None, None] for part in spread.T)
    across = (1 + a * np.float32(0.2)) * x + (b * np.float32(0.4)) * y + right * np.float32(0.1)
    along = (c * np.float32(0.2)) * x + (1 + d * np.float32(0.2)) * y + down * np.float32(0.1)
    apart = _look_up(maps[labels, shapes], across, along)
    ink = np.clip((pens + np.float32(0.03) - apart) / np.float32(0.04), 0, 1)
    noise = (random.random(ink.shape, np.float32) - np.float32(0.5)) * np.float32(0.3) * (ink > 0)
    grey = np.clip((ink + noise) * 255, 0, 255)
    return np.rint(grey).astype(np.uint8), labels.astype(np.uint8)


def _look_up(maps: _Array, across: _Array, along: _Array) -> _Array:
    """Distances at points (given from the square's middle): those of the map's nearest ones."""
    size = np.float32(_GRID - 1)
    column = np.rint(np.clip((across + np.float32(0.5)) * size, 0, size)).astype(np.int32)
    row = np.rint(np.clip((along + np.float32(0.5)) * size, 0, size)).astype(np.int32)
    first = np.arange(len(maps), dtype=np.int32)[:, None, None] * (_GRID * _GRID)
    found: _Array = maps.reshape(-1)[first + row * _GRID + column]
    return found


@functools.cache
def _distance_maps() -> _Array:
    """For each digit, and each of its shapes, how far each point of the square is from the strokes."""
    random = np.random.default_rng(20_000)
    line = np.arange(_GRID) / (_GRID - 1)
    x, y = np.meshgrid(line, line)
    maps = np.empty((len(_STROKES), _SHAPES, _GRID, _GRID), np.float32)
    for digit, strokes in enumerate(_STROKES):
        for shape in range(_SHAPES):
            # The same point moves alike in every stroke that has it, so that strokes stay joined.
            points = sorted({point for stroke in strokes for point in stroke})
            moves = {point: (random.random(2) - 0.5) * 0.14 for point in points}
            least = np.full(x.shape, np.inf)
            for stroke in strokes:
                moved = [np.array(point) + moves[point] for point in stroke]
                for start, end in itertools.pairwise(moved):
                    least = np.minimum(least, _from_segment(x, y, start, end))
            maps[digit, shape] = np.sqrt(least)
    return maps


def _from_segment(x: _Array, y: _Array, start: _Array, end: _Array) -> _Array:
    """Squares of the distances of points from a segment."""
    way = end - start
    share = ((x - start[0]) * way[0] + (y - start[1]) * way[1]) / max(way[0] * way[0] + way[1] * way[1], 1e-9)
    share = np.clip(share, 0, 1)
    across, along = x - start[0] - share * way[0], y - start[1] - share * way[1]
    found: _Array = across * across + along * along
    return found
