"""From a launch to figures: what it did, in the terms of the hardware, and how well it fills a GPU."""

from __future__ import annotations

from tilewise.instruments.occupancy import Occupancy, occupancy

__all__ = ["Occupancy", "occupancy"]
