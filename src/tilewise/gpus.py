"""The GPU table: what each GPU has, how fast it can be, and what a launch on it may ask for.

Plain data. ``find("h200")`` looks a GPU up by any of its names; ``limits((9, 0))`` gives what all GPUs of a
compute capability share. Sizes are in bytes, rates in FLOP/s and bytes/s, clocks in MHz; a figure that is
not published is None. The figures themselves lie in ``_gpu_table.py``, names and sources in ``_gpu_names.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from tilewise._gpu_names import NAMES, OLDER, SHARED
from tilewise._gpu_table import (
    HARDWARE,
    KINDS,
    LIMITS_SOURCE,
    PER_CAPABILITY,
    PUBLISHED,
    RATES,
    TENSOR_MHZ,
    PerCapability,
)
from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.launch import LaunchLimits

__all__ = [
    "GPUS",
    "LATENCY_LABEL",
    "Capability",
    "Gpu",
    "Limits",
    "MemorySpace",
    "Peaks",
    "arch_capability",
    "find",
    "from_driver_name",
    "launch_limits",
    "limits",
    "memory_spaces",
    "names",
]

Capability = tuple[int, int]

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_ARCH = re.compile(r"(?:sm|compute)_([0-9]+)([0-9])[af]?")


@dataclass(frozen=True, slots=True)
class Limits:
    """What all GPUs of one compute capability share: the bounds of a launch and of a multiprocessor."""

    capability: Capability
    architecture: str
    arch: str
    threads_per_sm: int
    blocks_per_sm: int
    barriers_per_sm: int
    """Named barriers; a block takes as many as its kernel uses."""
    shared_per_sm: int
    shared_per_block_optin: int
    shared_reserved_per_block: int
    """Taken from a multiprocessor's shared memory by every block, on top of what its kernel asks for."""
    shared_unit: int
    """Shared memory is given out in multiples of this."""
    shared_carveouts: tuple[int, ...]
    """The sizes that a multiprocessor's shared memory can be set to; the rest of the memory is L1."""
    cluster_blocks: int
    cluster_blocks_optin: int
    """Blocks per cluster once the kernel allows a non-portable size."""
    shared_per_block: int = 48 * _KIB
    threads_per_block: int = 1_024
    threads_per_warp: int = 32
    block_most: tuple[int, int, int] = (1_024, 1_024, 64)
    grid_most: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)
    registers_per_sm: int = 65_536
    registers_per_block: int = 65_536
    max_registers_per_thread: int = 255
    min_registers_per_thread: int = 16
    """What a thread has at least, however few its kernel uses."""
    register_unit: int = 256
    """Registers are given to a warp in multiples of this: 8 for each of its threads."""
    partitions_per_sm: int = 4
    """A multiprocessor's registers and warps lie in this many equal parts."""
    barriers_per_block: int = 16
    constant_bytes: int = 64 * _KIB
    local_per_thread: int = 512 * _KIB
    parameter_bytes: int = 32_764
    source: str = LIMITS_SOURCE

    @property
    def warps_per_sm(self) -> int:
        return self.threads_per_sm // self.threads_per_warp

    @property
    def clusters(self) -> bool:
        """Whether there are thread-block clusters."""
        return self.cluster_blocks > 1


@dataclass(frozen=True, slots=True)
class Peaks:
    """One rate for each kind of arithmetic, dense, in FLOP/s (a multiply-add is two).

    ``fp16_fp32`` takes fp16 and accumulates in fp32, and so on. ``fp32`` and ``fp64`` are without tensor
    cores, ``fp64_tensor`` is with them. None: the hardware lacks it, or nothing is published. The GTX 16s
    have no tensor cores: their ``fp16_fp16`` is that of fp16 units.
    """

    fp32: float | None = None
    fp64: float | None = None
    fp64_tensor: float | None = None
    fp16_fp16: float | None = None
    fp16_fp32: float | None = None
    bf16: float | None = None
    tf32: float | None = None
    fp8_fp16: float | None = None
    fp8_fp32: float | None = None
    int8: float | None = None
    fp4: float | None = None


# Kinds by element type and accumulator; the first accumulator of a type is what "float32" falls back to.
_FP8 = {"float32": "fp8_fp32", "float16": "fp8_fp16"}
_KIND: Mapping[str, Mapping[str, str]] = {
    "float32": {"float32": "fp32"},
    "float64": {"float64": "fp64"},
    "float16": {"float32": "fp16_fp32", "float16": "fp16_fp16"},
    "bfloat16": {"float32": "bf16"},
    "tfloat32": {"float32": "tf32"},
    "float8_e4m3": _FP8,
    "float8_e4m3fn": _FP8,
    "float8_e5m2": _FP8,
    "int8": {"int32": "int8"},
    "uint8": {"int32": "int8"},
    "float4": {"float32": "fp4"},
    "int32": {},
    "int64": {},
}
_ACCUMULATORS = ("float16", "float32", "float64", "int32")


@dataclass(frozen=True, slots=True, repr=False)
class Gpu:
    """One GPU: what it has and how fast it can be."""

    name: str
    title: str
    capability: Capability
    limits: Limits
    sms: int
    memory_bytes: int
    """As marketed; a driver shows up to a few percent less."""
    memory_bandwidth: float
    memory_bus_bits: int
    memory_mhz: float | None
    """As a driver reports it; the data rate of one pin is twice that."""
    l2_bytes: int
    base_mhz: float | None
    boost_mhz: float
    tensor_mhz: float
    """The clock that the tensor peaks are quoted at; on most GPUs the boost clock."""
    peaks: Peaks
    """At the boost clock: SMs × multiply-adds per clock × 2 × clock, or as published."""
    published: Peaks
    """The vendor's own figures, as printed."""
    aliases: tuple[str, ...]
    """Other names, those that drivers report among them."""
    source: str

    @property
    def architecture(self) -> str:
        return self.limits.architecture

    @property
    def arch(self) -> str:
        """What to compile for, such as "sm_90a"."""
        return self.limits.arch

    @property
    def cores_per_sm(self) -> int:
        """fp32 multiply-adds per clock per multiprocessor, which the vendor calls CUDA cores."""
        return PER_CAPABILITY[self.capability].per_clock["fp32"]

    @property
    def fp32_peak(self) -> float:
        """FLOP/s of fp32 without tensor cores: cores × 2 × boost clock."""
        return self.cores_per_sm * self.sms * 2 * self.boost_mhz * 1e6

    @property
    def shared_bandwidth(self) -> float:
        """Bytes/s of all shared memories together: 32 banks of 4 bytes per clock per multiprocessor."""
        return 128.0 * self.sms * self.boost_mhz * 1e6

    @property
    def registers_per_sm(self) -> int:
        return self.limits.registers_per_sm

    @property
    def max_registers_per_thread(self) -> int:
        return self.limits.max_registers_per_thread

    @property
    def register_unit(self) -> int:
        return self.limits.register_unit

    @property
    def shared_per_block(self) -> int:
        return self.limits.shared_per_block

    @property
    def shared_per_block_optin(self) -> int:
        return self.limits.shared_per_block_optin

    @property
    def shared_per_sm(self) -> int:
        return self.limits.shared_per_sm

    @property
    def shared_reserved_per_block(self) -> int:
        return self.limits.shared_reserved_per_block

    @property
    def threads_per_sm(self) -> int:
        return self.limits.threads_per_sm

    @property
    def warps_per_sm(self) -> int:
        return self.limits.warps_per_sm

    @property
    def blocks_per_sm(self) -> int:
        return self.limits.blocks_per_sm

    @property
    def threads_per_block(self) -> int:
        return self.limits.threads_per_block

    def peak(self, dtype: str, accumulate: str = "float32") -> float | None:
        """The dense peak in FLOP/s for multiplying elements of ``dtype``, by the fastest unit that can.

        ``accumulate`` chooses between accumulators where the hardware has several (fp16 and fp8); its
        default stands for the type's own accumulator where there is no fp32 one (float64, int8).
        """
        if dtype not in _KIND:
            raise UnknownNameError("dtype", dtype, _KIND)
        if accumulate not in _ACCUMULATORS:
            raise UnknownNameError("accumulate", accumulate, _ACCUMULATORS)
        kinds = _KIND[dtype]
        default = next(iter(kinds.values()), None) if accumulate == "float32" else None
        kind = kinds.get(accumulate, default)
        if kind is None:
            return None
        if kind == "fp64" and self.peaks.fp64_tensor is not None:
            kind = "fp64_tensor"
        rate: float | None = getattr(self.peaks, kind)
        return rate

    def to_dict(self) -> dict[str, Any]:
        """Every figure, ready for JSON."""
        return {"architecture": self.architecture, "arch": self.arch, **asdict(self)}

    def __str__(self) -> str:
        rates = [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")]
        said = [f"{rate / 1e12:,.4g} TFLOP/s {word}" for key, word in rates if (rate := self.peak(key))][:2]
        return (
            f"{self.title} ({self.name}): {self.architecture} {self.arch}, {self.sms} SMs, "
            f"{_size(self.memory_bytes)} at {self.memory_bandwidth / 1e9:,.0f} GB/s, {', '.join(said)}"
        )

    def __repr__(self) -> str:
        return f"Gpu({self.name!r})"


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """One of the memories that a kernel can name, on one GPU."""

    name: str
    scope: str
    lifetime: str
    size_bytes: int
    """The most that one of its owners may have: a thread, a block, a module or the whole GPU."""
    size: str
    cycles: int
    """Typical latency in cycles, order of magnitude; of a miss in the caches, where there are caches."""
    bandwidth: float | None
    """Bytes/s over the whole GPU, where that is public."""
    cost: str

    def __str__(self) -> str:
        return f"{self.name}: {self.scope}; {self.lifetime}; {self.size}; {self.cost}"


LATENCY_LABEL = "typical latency in cycles, order of magnitude"
_SHARED_CYCLES = 25
_CONSTANT_CYCLES = 5


def names() -> list[str]:
    """The name of every GPU of the table, oldest architecture first."""
    return list(GPUS)


def find(name: str | Gpu) -> Gpu:
    """The GPU of this name, or of one that means it: "h200", "NVIDIA H200", "rtx2060super", "3080 Ti", "a100".

    Case, spaces, dashes and the words NVIDIA, GeForce, Tesla, RTX and GTX make no difference.
    """
    if isinstance(name, Gpu):
        return name
    if not isinstance(name, str):
        raise ArgumentError("gpu", "must be a name from the GPU table", name, "see tilewise.gpus.names()")
    folded = _fold(name)
    found = _INDEX.get(folded)
    if found is not None:
        return found
    if any(re.fullmatch(pattern, folded) for pattern in OLDER):
        major, minor = min(PER_CAPABILITY)
        fix = f"the table begins with {PER_CAPABILITY[major, minor].architecture}; see tilewise.gpus.names()"
        raise ArgumentError("gpu", f"must be of compute capability {major}.{minor} or later", name, fix)
    raise UnknownNameError("gpu", name, GPUS)


def from_driver_name(name: str, sms: int | None = None) -> Gpu | None:
    """The GPU that a driver calls ``name``, or None if the table has no such GPU.

    NOTE: a driver name is not unique: "Orin" is a whole family, and some GeForce names cover two boards.
    Give the multiprocessor count that the driver reports: it picks the board, and None is for one that the
    table lacks or that the count cannot tell from others.
    """
    found = _INDEX.get(_fold(name))
    if found is None or sms is None:
        return found
    boards = [found, *(GPUS[other] for other in SHARED.get(found.name, ()))]
    fitting = [board for board in boards if board.sms == sms]
    return fitting[0] if len(fitting) == 1 else None


def arch_capability(arch: str) -> Capability:
    """The compute capability of an arch: (9, 0) of "sm_90a", "sm_90" or "compute_90"."""
    if not isinstance(arch, str):
        raise ArgumentError("arch", "must be a text such as 'sm_90a'", arch)
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise UnknownNameError("arch", arch, [entry.arch for entry in PER_CAPABILITY.values()])
    return int(match[1]), int(match[2])


def limits(capability: Capability | str) -> Limits:
    """The limits of a compute capability, given as (9, 0) or as an arch such as "sm_90a"."""
    if isinstance(capability, str):
        key = arch_capability(capability)
    else:
        if not isinstance(capability, tuple) or len(capability) != 2:
            raise ArgumentError("capability", "must be a pair such as (9, 0)", capability)
        key = (integer("capability[0]", capability[0]), integer("capability[1]", capability[1]))
    if key not in _LIMITS:
        known = [f"{major}.{minor}" for major, minor in _LIMITS]
        raise UnknownNameError("capability", f"{key[0]}.{key[1]}", known)
    return _LIMITS[key]


def launch_limits(arch: str) -> LaunchLimits:
    """What a launch may ask for on GPUs of ``arch``.

    An arch that the table does not have is not refused here: it gets the widest limits of the table, and
    the device has the last word.
    """
    capability = arch_capability(arch)
    known = _LIMITS.get(capability)
    if known is None:
        widest = max(entry.shared_per_block_optin for entry in _LIMITS.values())
        return LaunchLimits(arch, shared_bytes_per_block=widest, clusters=capability >= (9, 0))
    return LaunchLimits(
        arch,
        threads_per_block=known.threads_per_block,
        shared_bytes_per_block=known.shared_per_block_optin,
        clusters=known.clusters,
        blocks_per_cluster=known.cluster_blocks_optin,
    )


def memory_spaces(gpu: str | Gpu) -> list[MemorySpace]:
    """The memories that a kernel can name on ``gpu``: scope, lifetime, size and cost of each.

    Sizes are the GPU's own. Latencies are rounded from published microbenchmarks of its architecture: good
    for comparing the spaces with each other, not for predicting a run.
    """
    gpu = find(gpu)
    return [_register(gpu), _local(gpu), _shared(gpu), _constant(gpu), _global(gpu)]


def _register(gpu: Gpu) -> MemorySpace:
    most, file = 4 * gpu.max_registers_per_thread, _size(4 * gpu.registers_per_sm)
    return MemorySpace(
        name="register",
        scope="one thread",
        lifetime="the thread's",
        size_bytes=most,
        size=f"{most:,} B a thread (4 B × {gpu.max_registers_per_thread}), {file} an SM",
        cycles=0,
        bandwidth=None,
        cost="0 beyond the instruction that reads it",
    )


def _local(gpu: Gpu) -> MemorySpace:
    return MemorySpace(
        name="local",
        scope="one thread",
        lifetime="the thread's",
        size_bytes=gpu.limits.local_per_thread,
        size=f"{_size(gpu.limits.local_per_thread)} a thread, kept in global memory",
        cycles=_cycles(gpu)[2],
        bandwidth=gpu.memory_bandwidth,
        cost=_cached_cost(gpu),
    )


def _shared(gpu: Gpu) -> MemorySpace:
    optin, default = _size(gpu.shared_per_block_optin), _size(gpu.shared_per_block)
    return MemorySpace(
        name="shared",
        scope="one block" + (", and the blocks of its cluster" if gpu.limits.clusters else ""),
        lifetime="the block's",
        size_bytes=gpu.shared_per_block_optin,
        size=f"{optin} a block ({default} without opting in), {_size(gpu.shared_per_sm)} an SM",
        cycles=_SHARED_CYCLES,
        bandwidth=gpu.shared_bandwidth,
        cost=f"{_SHARED_CYCLES}, more for each way of a bank conflict ({LATENCY_LABEL})",
    )


def _constant(gpu: Gpu) -> MemorySpace:
    return MemorySpace(
        name="constant",
        scope="every thread, read-only",
        lifetime="the module's",
        size_bytes=gpu.limits.constant_bytes,
        size=f"{_size(gpu.limits.constant_bytes)} a module, kept in global memory",
        cycles=_cycles(gpu)[2],
        bandwidth=None,
        cost=f"{_CONSTANT_CYCLES} from its own cache for each address that the lanes differ in, "
        f"{_cycles(gpu)[2]} from memory ({LATENCY_LABEL})",
    )


def _global(gpu: Gpu) -> MemorySpace:
    return MemorySpace(
        name="global",
        scope="every thread, and the host",
        lifetime="from its allocation to its release",
        size_bytes=gpu.memory_bytes,
        size=f"{_size(gpu.memory_bytes)}, behind {_size(gpu.l2_bytes)} of L2",
        cycles=_cycles(gpu)[2],
        bandwidth=gpu.memory_bandwidth,
        cost=_cached_cost(gpu),
    )


def _cycles(gpu: Gpu) -> tuple[int, int, int]:
    """Of an L1 hit, an L2 hit and a miss in both."""
    return PER_CAPABILITY[gpu.capability].cycles


def _cached_cost(gpu: Gpu) -> str:
    l1, l2, memory = _cycles(gpu)
    return f"{l1} from L1, {l2} from L2, {memory} from memory ({LATENCY_LABEL})"


def _size(count: int) -> str:
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:,.4g} {name}"
    return f"{count:,} B"


def _fold(name: str) -> str:
    """What is left of a name once spelling no longer counts."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    plain = re.sub(r"^(?:nvidia|geforce|tesla)*(?:[rg]tx)?", "", plain)
    return plain.removesuffix("gpu")


def _limits(capability: Capability, entry: PerCapability) -> Limits:
    shared = entry.carveouts[-1] * _KIB
    return Limits(
        capability,
        entry.architecture,
        entry.arch,
        entry.threads_per_sm,
        entry.blocks_per_sm,
        entry.barriers_per_sm,
        shared,
        shared - entry.shared_reserved,
        entry.shared_reserved,
        entry.shared_unit,
        tuple(size * _KIB for size in entry.carveouts),
        entry.cluster_blocks,
        entry.cluster_blocks_optin,
    )


def _derived(name: str) -> dict[str, float]:
    """Peak rates from clock and rate per clock, for the kinds whose rate per clock is public."""
    hardware, geforce = HARDWARE[name], "GeForce" in NAMES[name].title
    rates = {}
    for kind, per_clock in RATES.get(name, PER_CAPABILITY[hardware.capability].per_clock).items():
        tensor = kind not in ("fp32", "fp64", "fp64_tensor")
        mhz = TENSOR_MHZ.get(name, hardware.boost) if tensor else hardware.boost
        halved = geforce and kind in ("fp16_fp32", "bf16", "tf32", "fp8_fp32")
        rates[kind] = hardware.sms * per_clock * 2 * mhz * 1e6 / (2 if halved else 1)
    return rates


def _gpu(name: str) -> Gpu:
    hardware, named = HARDWARE[name], NAMES[name]
    row = PUBLISHED.get(name, (None,) * len(KINDS))
    published = {kind: rate * 1e12 for kind, rate in zip(KINDS, row, strict=True) if rate is not None}
    derived = _derived(name)
    printed = [kind for kind in published if kind not in derived]
    return Gpu(
        name=name,
        title=named.title,
        capability=hardware.capability,
        limits=_LIMITS[hardware.capability],
        sms=hardware.sms,
        memory_bytes=round(hardware.memory * _GIB),
        memory_bandwidth=hardware.bandwidth * 1e9,
        memory_bus_bits=hardware.bus,
        memory_mhz=hardware.memory_clock,
        l2_bytes=round(hardware.l2 * _MIB),
        base_mhz=hardware.base,
        boost_mhz=hardware.boost,
        tensor_mhz=TENSOR_MHZ.get(name, hardware.boost),
        peaks=Peaks(**{**published, **derived}),
        published=Peaks(**published),
        aliases=named.also,
        source=f"{named.source}. Peaks derived: {', '.join(derived)}"
        + (f"; as published: {', '.join(printed)}" if printed else ""),
    )


_LIMITS = {capability: _limits(capability, entry) for capability, entry in PER_CAPABILITY.items()}

GPUS: Mapping[str, Gpu] = MappingProxyType({name: _gpu(name) for name in HARDWARE})
"""Every GPU of the table by its name, oldest architecture first."""

_INDEX = {_fold(word): gpu for gpu in GPUS.values() for word in (gpu.name, gpu.title, *gpu.aliases)}
