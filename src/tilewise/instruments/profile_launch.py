"""Profile a bound: count its PTX on the emulator, join the machine code, and name the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices.emulated import EmulatedDevice
from tilewise.devices.host_launches import HostLauncher, Watch
from tilewise.devices.host_modules import HostModules
from tilewise.emulator.profiling.counted import Counters, Counts
from tilewise.emulator.profiling.tracing import Tracer
from tilewise.errors import ArgumentError, ToolError
from tilewise.gpus import GPUS, Gpu, arch_capability, find
from tilewise.instruments.bulk_accesses import count_extra_sectors, list_bulk_accesses
from tilewise.instruments.cache_model import Trace, model_traffic
from tilewise.instruments.instruction_metrics import unclassified_opcode_notes
from tilewise.instruments.machine import Machine, join_machine_code
from tilewise.instruments.metric import EXACT, Metric
from tilewise.instruments.metrics import make_metrics
from tilewise.instruments.occupancy import Occupancy, occupancy
from tilewise.instruments.predict import predict
from tilewise.instruments.profile import Profile
from tilewise.instruments.sample import SAMPLED, clusters_of, count_sample
from tilewise.launch import Launch
from tilewise.toolchain.assemble import assemble, assembler_version, has_assembler
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.lines import line_table

__all__ = ["DEFAULT_GPU", "check_on_host", "find_gpu", "launch_figures", "modules_of", "profile_bound"]

DEFAULT_GPU = "h200"  # what the kernels are tuned on
# Sectors that are written down: by all workers together, and by each of many.
_MOST_TRACED, _LEAST_TRACED = 1 << 28, 1 << 25


def profile_bound(
    bound: Bound,
    addresses: Mapping[str, int],
    gpu: Gpu,
    *,
    cache: bool = False,
    sample: int | None = None,
    order: str | int = "eager",
    timeout: float | None = None,
) -> Profile:
    """Count, as on ``gpu``, what the launches of a bound do to operands at these addresses.

    The profile is that of the launch that multiplies, with the others' in ``following``. The machine code is the
    bound's: of the arch that it was compiled for. ``cache`` adds what a model of the caches makes of it; ``sample``
    runs at most so many blocks of each kind (``sample.py``), and the results of the others are not made. Variables of
    modules begin with what they hold, and hold it again at the end.
    """
    check_on_host(bound)
    modules = modules_of(bound)
    launcher = HostLauncher(order, multiprocessors=gpu.sms, modules=modules)
    profiles = []
    with modules.apart(bound.binaries, {}):
        for launch, packed in bound.packed(addresses):
            counted = _CountedLaunch(launch, packed, gpu, launcher, timeout)
            profiles.append(counted.profile(cache, sample))
    if not profiles:
        raise ArgumentError(
            "a profile", "must be of at least one launch, and a product without elements has none"
        )
    main = profiles.pop(bound.main_packed)
    main.following = profiles
    return main


def check_on_host(bound: Bound) -> None:
    """Refuse a bound whose operands lie on a GPU, where the emulator does not reach them."""
    if bound.device.runs_on_gpu:
        rule = "must be bound on the emulator to be profiled or checked"
        raise ArgumentError("bound", rule, bound.device.name, 'bind it with device="emulator"')


def modules_of(bound: Bound) -> HostModules:
    """Return the module variables that the launches of a bound use."""
    return bound.device.launcher.modules if isinstance(bound.device, EmulatedDevice) else HostModules()


def find_gpu(gpu: str | Gpu | None, arch: str) -> Gpu:
    """Return the GPU of this name; without a name one that runs the arch, an H200 if it can."""
    if gpu is not None:
        return find(gpu)
    capability = arch_capability(arch)
    able = [item for item in GPUS.values() if item.capability == capability]
    able = able or [item for item in GPUS.values() if item.capability >= capability]
    usual = find(DEFAULT_GPU)
    return usual if usual in able else (able or list(GPUS.values()))[-1]


class _CountedLaunch:
    """One launch to be counted, as on a GPU."""

    def __init__(
        self, bound: BoundLaunch, packed: list[bytes], gpu: Gpu, launcher: HostLauncher, timeout: float | None
    ) -> None:
        self.binary, self.entry, self.launch, self.packed = bound.binary, bound.entry, bound.launch, packed
        self.name, self.resources = bound.name, bound.resources
        self.gpu, self.launcher, self.timeout = gpu, launcher, timeout
        self.code, self.notes = _with_machine_code(bound.binary, gpu)
        if self.code is not bound.binary:
            self.resources = self.code.entries[bound.entry].resources

    def profile(self, cache: bool, sample: int | None) -> Profile:
        """Run the launch in the counted build and return its profile."""
        gpu, launch, binary = self.gpu, self.launch, self.code
        trace = None
        if cache:  # NOTE: a run of its own, before the one that counts: both begin with the same arrays
            with self.launcher.undo_changes(), self.launcher.modules.apart([self.binary], {}):
                trace = self._trace()
        counts, static, ran = self._count(sample)
        machine = self._machine(counts)
        filled = self._occupancy(static)
        notes = [*self.notes, *machine.notes, *unclassified_opcode_notes(machine.ran, machine.capability)]
        if binary.cubin is not None and arch_capability(binary.arch) != gpu.capability:
            notes.append(f"the machine code is that of {binary.arch}; {gpu.title} would run other code")
        if counts.has_library_calls:
            notes.append("malloc and free are CUDA's own code: what they do inside is in none of the figures")
        metrics = make_metrics(machine, counts, filled, launch_figures(launch, gpu, static))
        if ran < launch.blocks:
            notes.append(
                f"sampled: {ran:,} of {launch.blocks:,} blocks were run, and stand for the others of their kind"
            )
            metrics = {name: _as_sampled(metric) for name, metric in metrics.items()}
        found = Profile(self.name, launch, gpu, machine, counts, metrics, filled, binary, notes)
        found.resources = self.resources
        if trace is not None:
            _add_traffic(found, trace)
        return found

    def _count(self, sample: int | None) -> tuple[Counts, int, int]:
        """Return the counts, a block's bytes of static shared memory, and how many blocks ran."""
        made: list[Counters] = []

        def run(chosen: Sequence[int] | None, rows: int) -> Counters:
            def watch(build: Any, _launch: Launch, _reachable: Any) -> Counters:
                made.append(Counters(build, rows))
                return made[-1]

            self._run("counted", watch, chosen)
            return made[-1]

        if sample:
            whole = self._with_clusters()
            counts, ran = count_sample(whole.grid, sample, self.gpu.sms, run, whole.cluster or (1, 1, 1))
        else:
            counts, ran = run(None, self.gpu.sms).counts(), self.launch.blocks
        return counts, int(made[0].build.shared_bytes), ran

    def _trace(self) -> Trace:
        """Run the launch in the traced build; return the sectors that every block touched."""
        tracer = Tracer(max(_MOST_TRACED // self.launcher.threads, _LEAST_TRACED))
        self._run("traced", lambda _build, _launch, _reachable: tracer)
        whole = self._with_clusters()
        clusters = clusters_of(whole.grid, whole.cluster) if whole.cluster else None
        return Trace(tracer.blocks(), tracer.lost, clusters)

    def _run(self, mode: str, watch: Watch, chosen: Sequence[int] | None = None) -> None:
        self.launcher.run(
            self.binary, self.entry, self.launch, self.packed, self.timeout, mode, watch, chosen
        )

    def _with_clusters(self) -> Launch:
        return self.launcher.resolve_clusters(self.binary, self.entry, self.launch)

    def _machine(self, counts: Counts) -> Machine:
        if self.code.cubin is None:
            machine = predict(self.code.ptx, self.entry, counts)
        else:
            lines = line_table(self.code.cubin, self.entry)
            machine = join_machine_code(lines, counts, arch_capability(self.code.arch))
        code = [(float(item.runs.sum()), item.instruction) for item in machine.ran]
        machine.accesses += list_bulk_accesses(counts, code)
        return machine

    def _occupancy(self, static: int) -> Occupancy | None:
        if self.resources is None:
            return None
        return occupancy(
            self.gpu,
            self.launch.threads_per_block,
            self.resources.registers,
            static + self.launch.shared,
            grid=self.launch.blocks,
            barriers=self.resources.barriers,
        )


def _with_machine_code(binary: Binary, gpu: Gpu) -> tuple[Binary, list[str]]:
    """Return the binary, foreign PTX assembled for the GPU if there is an assembler, and notes."""
    if binary.cubin is not None or not has_assembler():
        return binary, []
    own = arch_capability(binary.arch)
    fits = gpu.capability >= own if binary.arch[-1].isdigit() else gpu.arch == binary.arch
    try:
        found = assemble(binary, gpu.arch if fits else binary.arch)
    except ToolError as error:
        return binary, [str(error)]
    return found, [
        f"machine code by nvJitLink {assembler_version()}; a driver may assemble the PTX otherwise"
    ]


def _add_traffic(found: Profile, trace: Trace) -> None:
    """Add the cache model's result for a trace to a profile."""
    filled = found.occupancy
    resident, shared = (max(filled.blocks, 1), filled.shared_config) if filled else (1, 0)
    found.trace = trace
    found.traffic = model_traffic(trace, found.gpu, resident, shared_bytes=shared)
    found.metrics |= {
        metric.name: metric for metric in found.traffic.metrics(count_extra_sectors(found.counts))
    }
    if trace.lost:
        found.notes.append(
            f"the model of the caches lacks {trace.lost:,} sectors, as its trace was full: its figures are too low; "
            "profile a smaller grid"
        )


def launch_figures(launch: Launch, gpu: Gpu, static: int) -> dict[str, float]:
    """Return the metrics of the launch's shape and shared memory."""
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
