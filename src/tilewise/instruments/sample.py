"""Counting a part of a grid: some blocks of each kind, for all of them.

Blocks differ where the grid has its edges: the first, the last and those in between along each axis are kinds
of their own. Of each, some are run, evenly spaced; each multiprocessor is then given as many of each kind as it
would have of all blocks. That is exact where blocks of a kind do the same, and an estimate elsewhere: where a
one-dimensional grid takes tiles in an order of its own, edges are not recognised.

Blocks of a cluster need each other: of clusters, whole ones are run, of each kind in the grid of clusters, and
the blocks of one have equal parts of what it did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tilewise.emulator.profiling.counted import Counters, Counts
from tilewise.launch import Dim3

__all__ = ["SAMPLED", "block_kinds", "clusters_of", "sampled"]

SAMPLED = "sampled"

Run = Callable[[Sequence[int]], Counters]


def block_kinds(grid: Dim3) -> npt.NDArray[np.int8]:
    """The kind of every block, by its number: 0 first, 1 between, 2 last, along each axis."""
    along = []
    for size in grid:
        kind = np.ones(size, np.int8)
        kind[-1] = 2
        kind[0] = 0
        along.append(kind)
    x, y, z = along
    return (x[None, None, :] + 3 * y[None, :, None] + 9 * z[:, None, None]).reshape(-1).astype(np.int8)


def clusters_of(grid: Dim3, cluster: Dim3) -> npt.NDArray[np.int64]:
    """By the number of a block: the number of its cluster."""
    x, y, z = (np.arange(size) // edge for size, edge in zip(grid, cluster, strict=True))
    wide, high = grid[0] // cluster[0], grid[1] // cluster[1]
    found: npt.NDArray[np.int64] = x[None, None, :] + wide * (y[None, :, None] + high * z[:, None, None])
    return found.reshape(-1)


def sampled(
    grid: Dim3, most: int, multiprocessors: int, run: Run, cluster: Dim3 = (1, 1, 1)
) -> tuple[Counts, int]:
    """The counts of a grid from at most ``most`` clusters of each kind, and how many blocks were run."""
    x, y, z = (size // edge for size, edge in zip(grid, cluster, strict=True))
    of, owners, together = block_kinds((x, y, z)), clusters_of(grid, cluster), math.prod(cluster)
    numbers = np.arange(of.size)
    rows, about, ran = None, None, 0
    ways: list[npt.NDArray[np.uint8]] = []
    for kind in np.unique(of):
        members = numbers[of == kind]
        chosen = members[
            np.unique(np.linspace(0, members.size - 1, min(most, members.size)).astype(np.int64))
        ]
        counts = run([int(number) for number in chosen]).counts()
        ran += len(chosen) * together
        each = counts.rows.sum(axis=0) / (len(chosen) * together)
        blocks = np.flatnonzero(of[owners] == kind)
        share = np.bincount(blocks % multiprocessors, minlength=multiprocessors)
        part = share[:, None] * each[None, :]
        rows = part if rows is None else rows + part
        about, ways = counts.about, [*ways, *counts.ways]
    assert rows is not None and about is not None
    return Counts(about, rows, ways), ran
