"""The devices that there are, and the choice between them."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from tilewise.devices import gpu
from tilewise.devices.emulated import EmulatedDevice, open_emulator
from tilewise.devices.seam import Array, Device
from tilewise.errors import ArgumentError, DeviceUnavailable

__all__ = ["Array", "Device", "available", "device"]

_LOG = logging.getLogger("tilewise")
_noticed = False


def device(
    spec: Any = None,
    *,
    order: str | int | None = None,
    threads: int | None = None,
    sums: str | None = None,
    lenient: bool | None = None,
) -> Device:
    """The device to run on: ``"gpu"``, ``"gpu:1"``, ``"emulator"``, or None for a GPU if there is one.

    ``None`` asks the environment first (``TILEWISE_DEVICE``), then looks for a GPU, then takes the
    emulator and says so once. A device is given back as it is. ``order`` ("eager", "late" or a seed),
    ``threads`` and ``sums`` are the emulator's alone: which warp and which block go next, how many CPU threads
    run blocks, and whether instructions of tensor cores add as suits a CPU ("fast") or bit for bit as an
    H200's do ("hardware"). ``lenient`` as well: to let pass what GPUs usually do, rather than end the launch.
    """
    if any(option is not None for option in (order, threads, sums, lenient)):
        if spec not in (None, "emulator"):
            raise ArgumentError(
                "order, threads, sums and lenient", "are for the emulator", f"device {spec!r}"
            )
        return open_emulator("eager" if order is None else order, threads, sums, bool(lenient))
    if spec is None:
        return _default()
    if isinstance(spec, str):
        return _named("device", spec)
    # The protocol's own check reads every property: what is known needs none.
    if isinstance(spec, EmulatedDevice | gpu.GpuDevice | Device):
        return spec
    raise ArgumentError("device", "must be 'gpu', 'gpu:N', 'emulator', a device or None", type(spec).__name__)


def available() -> list[Device]:
    """Every device that can be used here: GPUs first, then the emulator."""
    return [*(gpu.open(i) for i in range(gpu.count())), open_emulator()]


def _named(argument: str, spec: str) -> Device:
    if spec == "emulator":
        return open_emulator()
    match = re.fullmatch(r"gpu(?::(\d+))?", spec)
    if not match:
        raise ArgumentError(argument, "must be 'gpu', 'gpu:N' or 'emulator'", spec)
    ordinal = int(match[1] or 0)
    found = gpu.count()
    if ordinal < found:
        return gpu.open(ordinal)
    if found:
        raise ArgumentError(argument, f"must name one of the {found} GPUs, counted from 0", spec)
    raise DeviceUnavailable(f"{argument} {spec!r} cannot be used: {gpu.why_not()}")


def _default() -> Device:
    global _noticed
    asked = os.environ.get("TILEWISE_DEVICE", "").strip()
    if asked:
        return _named("TILEWISE_DEVICE", asked)
    if gpu.count():
        return gpu.open(0)
    if not _noticed:
        _noticed = True
        _LOG.warning("tilewise: no GPU here (%s); running on the emulator", gpu.why_not())
    return open_emulator()
