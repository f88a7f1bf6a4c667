"""Launches that overlap: what one wrote, taken back while the next one runs as if it had begun before those writes.

A launch may let the next one begin early (``griddepcontrol.launch_dependents``), if that one consents by being
programmatic. What the first writes, the second may count on only once it has waited (``griddepcontrol.wait``).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.host_memory import Region

if TYPE_CHECKING:
    from tilewise.emulator.running.checked_launch import Checks

__all__ = ["Changes", "Snapshot", "overlaps"]


def overlaps(order: str | int) -> bool:
    """Whether programmatic launches overlap in an order: in the late one, and for odd seeds."""
    return order == "late" if isinstance(order, str) else order % 2 == 1


@dataclass(frozen=True, slots=True)
class _Changed:
    """Bytes of one allocation that a launch changed."""

    allocation: weakref.ref[Any]
    places: npt.NDArray[np.intp]
    before: npt.NDArray[np.uint8]
    after: npt.NDArray[np.uint8]


class Snapshot:
    """What memory holds before a launch; regions that several handles share are left out."""

    def __init__(self, held: Sequence[Any]) -> None:
        self._held = [(item, item.bytes.copy()) for item in held if not isinstance(item, Region)]

    def changes(self) -> Changes:
        """What was changed since."""
        found = []
        for item, before in self._held:
            places = np.flatnonzero(item.bytes != before)
            if places.size:
                after = item.bytes[places].copy()
                found.append(_Changed(weakref.ref(item), places, before[places], after))
        return Changes(found)


class Changes:
    """What a launch wrote, to be taken back and put there again."""

    def __init__(self, changed: Sequence[_Changed]) -> None:
        self._changed = changed
        self._taken: list[tuple[Any, npt.NDArray[np.intp], npt.NDArray[np.uint8]]] = []
        self._checks: Checks | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to take back."""
        return bool(self._changed)

    def take_back(self, checks: Checks | None = None) -> None:
        """Put back what was there before the launch, but for what something else has written since.

        ``checks``, of a checked launch, is told of the bytes, here and when they are put there again.
        """
        self._checks = checks
        for item in self._changed:
            allocation = item.allocation()
            if allocation is None:
                continue
            same = allocation.bytes[item.places] == item.after
            places = item.places[same]
            allocation.bytes[places] = item.before[same]
            self._taken.append((allocation, places, item.after[same]))
            if checks is not None:
                checks.expect_writes(allocation.address, places)

    def put_back(self) -> None:
        """Let the launch end: what it wrote is there, whatever was written to its places meanwhile."""
        for allocation, places, after in self._taken:
            allocation.bytes[places] = after
        self._taken.clear()
        if self._checks is not None:
            self._checks.end_launch_before()
