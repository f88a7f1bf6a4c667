"""What a plan is made for: a GPU of the table, a GPU that is here, or the emulator."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.devices.seam import Device
from tilewise.gpus import Gpu, find, from_driver_name
from tilewise.planner.constants import EMULATOR, FITTED, Constants, scaled

__all__ = ["Target", "target_of", "target_of_device"]


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU, or the emulator, as the cost model sees it."""

    name: str
    arch: str
    sms: int
    constants: Constants


def target_of(gpu: str | Gpu) -> Target:
    """The target that a GPU of the table is; "emulator" is one as well."""
    if isinstance(gpu, str) and gpu == "emulator":
        from tilewise.devices.emulated import open_emulator

        return target_of_device(open_emulator())
    row = find(gpu)
    return Target(row.name, row.arch, row.sms, FITTED.get(row.name) or scaled(row))


def target_of_device(device: Device) -> Target:
    """The target that a device is; a GPU that is in no table counts as the nearest one that is."""
    if not device.runs_on_gpu:
        return Target("emulator", device.arch, device.multiprocessors, EMULATOR)
    row = from_driver_name(device.title, device.multiprocessors)
    if row is not None:
        return Target(row.name, device.arch, device.multiprocessors, FITTED.get(row.name) or scaled(row))
    return Target(device.title, device.arch, device.multiprocessors, scaled(None))
