"""In which order a launch starts its clusters, and how many of them take turns: CUDA promises neither.

A block that belongs to no cluster is one by itself here, as everywhere.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_PERMUTED", "count_interleaved", "order_clusters"]

MOST_PERMUTED = 1 << 22  # clusters; a grid of more starts them by their numbers
_INTERLEAVED = (2, 3, 4, 6, 8)  # clusters that take turns, of which a seed draws one


def order_clusters(order: str | int, clusters: int) -> npt.NDArray[np.uint32] | None:
    """The numbers of the clusters in the order in which to start them; None for 0, 1, 2, …

    "late" starts the last first. A seed draws a permutation; one in four (those that 4 divides) moves cluster 0 to the
    end: programs often treat the first block unlike the others, and there it finds all that those have done.
    """
    if order == "eager" or not 1 < clusters <= MOST_PERMUTED:
        return None
    if isinstance(order, str):
        return np.arange(clusters, dtype=np.uint32)[::-1].copy()
    numbers = np.random.default_rng(order % 2**64).permutation(clusters).astype(np.uint32)
    if order % 4 == 0:
        numbers = np.append(numbers[numbers != 0], np.uint32(0))
    return numbers


def count_interleaved(order: str | int, clusters: int) -> int:
    """How many clusters of one CPU thread take turns from the start: one, or several for an odd seed."""
    if isinstance(order, str) or order % 2 == 0:
        return 1
    return min(random.Random(order).choice(_INTERLEAVED), clusters)
