"""Limits of time that hold on slow machines, and on those that are busy with other things."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["least_seconds", "seconds", "times_as_long"]

_ROUNDS = 7  # that a comparison takes; ten times as many while it is not met
Work = Callable[[], object]


def seconds(work: Work) -> float:
    """What one call takes on the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def least_seconds(measure: Callable[[], float], limit: float, tries: int = 3) -> float:
    """The least of a few measurements, of which no more are made once one is below the limit."""
    least = measure()
    for _ in range(tries - 1):
        if least < limit:
            break
        least = min(least, measure())
    return least


def times_as_long(work: Work, yardstick: Work, limit: float) -> float:
    """How many times as long ``work`` takes as ``yardstick`` does beside it, each at its best.

    Whoever disturbs the one may leave the other alone: above the limit, both have more turns.
    """
    ours, theirs = [seconds(work)], [seconds(yardstick)]  # the first call of each is a cold one
    while len(ours) < _ROUNDS or (min(ours) > limit * min(theirs) and len(ours) < 10 * _ROUNDS):
        ours.append(seconds(work))
        theirs.append(seconds(yardstick))
    return min(ours) / min(theirs)
