"""One launch, counted: run the PTX on the emulator, join it with the machine code, name the figures."""

from __future__ import annotations

import math
from typing import Any

from tilewise.devices.emulated import EmulatedDevice
from tilewise.emulator.counted import Counters
from tilewise.gpus import GPUS, Gpu, arch_capability, find
from tilewise.launch import Launch
from tilewise.profiler.machine import Machine, join
from tilewise.profiler.metrics import make_metrics
from tilewise.profiler.occupancy import Occupancy, occupancy
from tilewise.profiler.predict import predict
from tilewise.profiler.profile import Profile
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.lines import line_table

__all__ = ["ProfilingDevice", "gpu_for", "profile_launch"]


class ProfilingDevice(EmulatedDevice):
    """The emulator as if it were a GPU of the table, counting every launch: they gather in ``profiles``."""

    def __init__(self, gpu: Gpu, order: str | int = "eager") -> None:
        super().__init__(order)
        self.gpu = gpu
        self.profiles: list[Profile] = []

    @property
    def arch(self) -> str:
        return self.gpu.arch

    @property
    def multiprocessors(self) -> int:
        return self.gpu.sms

    @property
    def profile(self) -> Profile:
        """Of the first launch, those that came after it behind it."""
        first, *rest = self.profiles
        first.following = rest
        return first

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        self.profiles.append(profile_launch(binary, entry, launch, packed, self.gpu, self, timeout))


def gpu_for(gpu: str | Gpu | None, arch: str) -> Gpu:
    """The GPU that is meant: the one named, or the last of the table that runs this arch."""
    if gpu is not None:
        return find(gpu)
    capability = arch_capability(arch)
    able = [item for item in GPUS.values() if item.capability == capability]
    able = able or [item for item in GPUS.values() if item.capability >= capability]
    return able[-1] if able else list(GPUS.values())[-1]


def profile_launch(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    gpu: Gpu,
    device: EmulatedDevice,
    timeout: float | None = None,
) -> Profile:
    """Run a launch in the counted build, as on ``gpu``, and say what it did."""
    made: list[Counters] = []

    def watch(build: Any, _launch: Launch, _reachable: Any) -> Counters:
        made.append(Counters(build, gpu.sms))
        return made[0]

    device.watched(binary, entry, launch, packed, timeout, "counted", watch)
    counts = made[0].counts()
    machine = _machine(binary, entry, counts)
    static = made[0].build.shared_bytes
    filled = _occupancy(binary, entry, launch, gpu, static)
    figures = {
        "grid_size": float(math.prod(launch.grid)),
        "block_size": float(launch.threads_per_block),
        "thread_count": float(math.prod(launch.grid) * launch.threads_per_block),
        "shared_mem_per_block_static": float(static),
        "shared_mem_per_block_dynamic": float(launch.shared),
        "shared_mem_per_block_driver": float(gpu.limits.shared_reserved_per_block),
        "sm_count": float(gpu.sms),
    }
    notes = list(machine.notes)
    if binary.cubin is not None and arch_capability(binary.arch) != gpu.capability:
        notes.append(f"the machine code is that of {binary.arch}; {gpu.title} would run other code")
    return Profile(
        entry,
        launch,
        gpu,
        machine,
        counts,
        make_metrics(machine, counts, filled, figures),
        filled,
        binary,
        notes,
    )


def _machine(binary: Binary, entry: str, counts: Any) -> Machine:
    if binary.cubin is None:
        return predict(binary.ptx, entry, counts)
    return join(line_table(binary.cubin, entry), counts)


def _occupancy(binary: Binary, entry: str, launch: Launch, gpu: Gpu, static: int) -> Occupancy | None:
    resources = binary.entries[entry].resources
    if resources is None:
        return None
    return occupancy(
        gpu,
        launch.threads_per_block,
        resources.registers,
        static + launch.shared,
        grid=math.prod(launch.grid),
        barriers=resources.barriers,
    )
