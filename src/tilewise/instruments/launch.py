"""One launch, counted: run the PTX on the emulator, join it with the machine code, name the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewise.devices.emulated import EmulatedDevice
from tilewise.emulator.profiling.counted import Counters, Counts
from tilewise.emulator.profiling.tracing import Tracer
from tilewise.gpus import GPUS, Gpu, arch_capability, find
from tilewise.launch import Launch
from tilewise.instruments.bulk import accesses_in_bulk, more_sectors
from tilewise.instruments.cache import Trace, traffic
from tilewise.instruments.figures import EXACT, Metric
from tilewise.instruments.instructions import strangers
from tilewise.instruments.machine import Machine, join
from tilewise.instruments.metrics import make_metrics
from tilewise.instruments.occupancy import Occupancy, occupancy
from tilewise.instruments.predict import predict
from tilewise.instruments.profile import Profile
from tilewise.instruments.sample import SAMPLED, clusters_of, sampled
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.lines import line_table

__all__ = ["USUAL", "ProfilingDevice", "gpu_for", "profile_launch", "trace_launch"]

USUAL = "h200"  # what the kernels are tuned on
_MOST_TRACED = 1 << 25  # sectors that a worker writes down


class ProfilingDevice(EmulatedDevice):
    """The emulator as if it were a GPU of the table, counting every launch: they gather in ``profiles``."""

    def __init__(
        self, gpu: Gpu, order: str | int = "eager", cache: bool = False, sample: int | None = None
    ) -> None:
        super().__init__(order)
        self.gpu, self.cache, self.sample = gpu, cache, sample
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
        self.profiles.append(
            profile_launch(binary, entry, launch, packed, self.gpu, self, timeout, self.cache, self.sample)
        )


def gpu_for(gpu: str | Gpu | None, arch: str) -> Gpu:
    """The GPU that is meant: the one named, or one that runs this arch: an H200, if it is of that kind."""
    if gpu is not None:
        return find(gpu)
    capability = arch_capability(arch)
    able = [item for item in GPUS.values() if item.capability == capability]
    able = able or [item for item in GPUS.values() if item.capability >= capability]
    usual = find(USUAL)
    return usual if usual in able else (able or list(GPUS.values()))[-1]


def profile_launch(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    gpu: Gpu,
    device: EmulatedDevice,
    timeout: float | None = None,
    cache: bool = False,
    sample: int | None = None,
) -> Profile:
    """Run a launch in the counted build, as on ``gpu``, and say what it did.

    ``sample`` runs at most so many blocks of each kind (``sample.py``); the results of the others are not made.
    """
    trace = None
    if cache:  # NOTE: a run of its own, before the one that counts: both begin with the same arrays
        with device.unchanged():
            trace = trace_launch(binary, entry, launch, packed, device, timeout=timeout)
    counts, static, ran = _counted(binary, entry, launch, packed, gpu, device, timeout, sample)
    machine = _machine(binary, entry, counts)
    filled = _occupancy(binary, entry, launch, gpu, static)
    notes = [*machine.notes, *strangers(machine.ran, machine.capability)]
    if binary.cubin is not None and arch_capability(binary.arch) != gpu.capability:
        notes.append(f"the machine code is that of {binary.arch}; {gpu.title} would run other code")
    metrics = make_metrics(machine, counts, filled, _figures(launch, gpu, static))
    if ran < launch.blocks:
        notes.append(
            f"sampled: {ran:,} of {launch.blocks:,} blocks were run, and stand for the others of their kind"
        )
        metrics = {name: _as_sampled(metric) for name, metric in metrics.items()}
    found = Profile(binary.shown(entry), launch, gpu, machine, counts, metrics, filled, binary, notes)
    if trace is not None:
        found.trace = trace
        held, config = (max(filled.blocks, 1), filled.shared_config) if filled else (1, 0)
        found.traffic = traffic(found.trace, gpu, held, shared_bytes=config)
        found.metrics |= {metric.name: metric for metric in found.traffic.metrics(more_sectors(counts))}
        if found.trace.lost:
            found.notes.append(
                f"the model of the caches lacks {found.trace.lost:,} sectors: the trace was full"
            )
    return found


def _counted(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    gpu: Gpu,
    device: EmulatedDevice,
    timeout: float | None,
    sample: int | None,
) -> tuple[Counts, int, int]:
    """The counts, the bytes of static shared memory of a block, and how many blocks were run."""
    made: list[Counters] = []

    def run(chosen: Sequence[int] | None) -> Counters:
        def watch(build: Any, _launch: Launch, _reachable: Any) -> Counters:
            made.append(Counters(build, gpu.sms if chosen is None else 1))
            return made[-1]

        device.watched(binary, entry, launch, packed, timeout, "counted", watch, chosen)
        return made[-1]

    if sample:
        whole = device.clustered(binary, entry, launch)
        counts, ran = sampled(whole.grid, sample, gpu.sms, run, whole.cluster or (1, 1, 1))
    else:
        counts, ran = run(None).counts(), launch.blocks
    return counts, int(made[0].build.shared_bytes), ran


def _figures(launch: Launch, gpu: Gpu, static: int) -> dict[str, float]:
    """Of the launch itself."""
    return {
        "grid_size": float(launch.blocks),
        "block_size": float(launch.threads_per_block),
        "thread_count": float(launch.blocks * launch.threads_per_block),
        "shared_mem_per_block_static": float(static),
        "shared_mem_per_block_dynamic": float(launch.shared),
        "shared_mem_per_block_driver": float(gpu.limits.shared_reserved_per_block),
        "shared_mem_per_block": float(static + launch.shared + gpu.limits.shared_reserved_per_block),
        "sm_count": float(gpu.sms),
        **{f"grid_dim_{axis}": float(size) for axis, size in zip("xyz", launch.grid, strict=True)},
        **{f"block_dim_{axis}": float(size) for axis, size in zip("xyz", launch.block, strict=True)},
    }


def _as_sampled(metric: Metric) -> Metric:
    exact = metric.label == EXACT and not metric.name.startswith("launch__")
    return replace(metric, label=SAMPLED) if exact else metric


def trace_launch(
    binary: Binary,
    entry: str,
    launch: Launch,
    packed: list[bytes],
    device: EmulatedDevice,
    most: int = _MOST_TRACED,
    timeout: float | None = None,
) -> Trace:
    """Run a launch in the traced build: what every block touched of global memory, in order."""
    made: list[Tracer] = []

    def watch(_build: Any, _launch: Launch, _reachable: Any) -> Tracer:
        made.append(Tracer(most))
        return made[0]

    device.watched(binary, entry, launch, packed, timeout, "traced", watch)
    whole = device.clustered(binary, entry, launch)
    clusters = clusters_of(whole.grid, whole.cluster) if whole.cluster else None
    return Trace(made[0].blocks(), made[0].lost, clusters)


def _machine(binary: Binary, entry: str, counts: Any) -> Machine:
    if binary.cubin is None:
        machine = predict(binary.ptx, entry, counts)
    else:
        machine = join(line_table(binary.cubin, entry), counts, arch_capability(binary.arch))
    code = [(float(item.runs.sum()), item.instruction) for item in machine.ran]
    machine.accesses += accesses_in_bulk(counts, code)
    return machine


def _occupancy(binary: Binary, entry: str, launch: Launch, gpu: Gpu, static: int) -> Occupancy | None:
    resources = binary.entries[entry].resources
    if resources is None:
        return None
    return occupancy(
        gpu,
        launch.threads_per_block,
        resources.registers,
        static + launch.shared,
        grid=launch.blocks,
        barriers=resources.barriers,
    )
