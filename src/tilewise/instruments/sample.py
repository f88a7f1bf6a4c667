"""Count some blocks of a grid, of each kind, in place of all.

Blocks differ where the grid has its edges: the first, the last and those in between along each axis are kinds
of their own. Of each, some are run, evenly spaced; each multiprocessor is then given as many of each kind as it
would have of all blocks. That is exact where blocks of a kind do the same, and an estimate elsewhere: where a
one-dimensional grid takes tiles in an order of its own, edges are not recognised.

Blocks of a cluster need each other: of clusters, whole ones are run, of each kind in the grid of clusters, and
the blocks of one have equal parts of what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.profiling.counted import Counters, Counts
from tilewise.launch import Dim3

__all__ = ["SAMPLED", "block_kinds", "clusters_of", "count_sample"]

SAMPLED = "sampled"

Run = Callable[[Sequence[int], int], Counters]
"""Runs some clusters, and counts in so many rows: a block in that of its number, modulo these."""
_MOST_ROWS = 1 << 10


def block_kinds(grid: Dim3) -> npt.NDArray[np.int8]:
    """Return the kind of every block: along each axis 0 first, 1 between, 2 last."""
    along = []
    for size in grid:
        kind = np.ones(size, np.int8)
        kind[-1] = 2
        kind[0] = 0
        along.append(kind)
    x, y, z = along
    return (x[None, None, :] + 3 * y[None, :, None] + 9 * z[:, None, None]).reshape(-1).astype(np.int8)


def clusters_of(grid: Dim3, cluster: Dim3) -> npt.NDArray[np.int64]:
    """Return the number of every block's cluster."""
    x, y, z = (np.arange(size) // edge for size, edge in zip(grid, cluster, strict=True))
    wide, high = grid[0] // cluster[0], grid[1] // cluster[1]
    found: npt.NDArray[np.int64] = x[None, None, :] + wide * (y[None, :, None] + high * z[:, None, None])
    return found.reshape(-1)


def count_sample(
    grid: Dim3, most: int, multiprocessors: int, run: Run, cluster: Dim3 = (1, 1, 1)
) -> tuple[Counts, int]:
    """Count at most ``most`` clusters of each kind for the whole grid; return counts and how many blocks ran."""
    x, y, z = (size // edge for size, edge in zip(grid, cluster, strict=True))
    of, owners = block_kinds((x, y, z)), clusters_of(grid, cluster)
    numbers = np.arange(of.size)
    chosen: dict[int, npt.NDArray[np.int64]] = {}  # clusters, by kind
    for kind in np.unique(of).tolist():
        members = numbers[of == kind]
        spaced = np.linspace(0, members.size - 1, min(most, members.size)).astype(np.int64)
        chosen[kind] = members[np.unique(spaced)]
    blocks = {kind: np.flatnonzero(np.isin(owners, found)) for kind, found in chosen.items()}
    apart = _tell_apart(blocks)
    rows: npt.NDArray[Any] = np.zeros((multiprocessors, 0))
    about: dict[str, Any] | None = None
    ways: list[npt.NDArray[np.uint8]] = []
    for kinds, modulus in [(list(chosen), apart)] if apart else [([kind], 1) for kind in chosen]:
        counts = run([int(one) for kind in kinds for one in chosen[kind]], modulus).counts()
        about, ways = counts.about, [*ways, *counts.ways]
        for kind in kinds:
            each = counts.rows[np.unique(blocks[kind] % modulus)].sum(axis=0) / len(blocks[kind])
            share = np.bincount(
                np.flatnonzero(of[owners] == kind) % multiprocessors, minlength=multiprocessors
            )
            part = share[:, None] * each[None, :]
            rows = rows + part if rows.size else part
    assert about is not None
    return Counts(about, rows, ways), sum(len(found) for found in blocks.values())


def _tell_apart(blocks: Mapping[int, npt.NDArray[np.int64]]) -> int:
    """Return the least modulus under which blocks of different kinds differ, for one run to count all; 0 if large."""
    for modulus in range(len(blocks), _MOST_ROWS + 1):
        taken = [set((numbers % modulus).tolist()) for numbers in blocks.values()]
        if sum(map(len, taken)) == len(set().union(*taken)):
            return modulus
    return 0
