"""tw.Kernel: a source of one's own, compiled, called, and open to be looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices import Device
from tilewise.devices import device as resolve
from tilewise.devices.arguments import Packed, pack
from tilewise.errors import ArgumentError, DeviceUnavailable, ToolError, integer
from tilewise.launch import Launch, Parameter, check_block, check_launch, dim3
from tilewise.slots import Slot
from tilewise.toolchain.binary import Binary, Resources
from tilewise.toolchain.compile import compile_source, read_ptx

if TYPE_CHECKING:
    from tilewise.gpus import Gpu
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.occupancy import Occupancy
    from tilewise.instruments.profile import Profile

__all__ = ["BoundCall", "Kernel"]

_DEFAULT_ARCH = "sm_90a"  # where there is no GPU to ask


class BoundCall:
    """A launch of a kernel with its arguments, made ready: called as often as wanted."""

    __slots__ = ("_on_device", "_packed", "_start", "bound")

    def __init__(self, bound: Bound, packed: Packed) -> None:
        self.bound, self._packed = bound, packed
        self._start = bound.prepare({}, packed.keep)
        self._on_device = not (packed.copies or packed.back or packed.read_only)

    def __call__(self, timeout: float | None = None) -> None:
        """Launch; with ``timeout``, wait for it so many seconds. NumPy arguments are copied in and back each time."""
        if timeout is None and self._on_device:
            self._start()
            return
        self._packed.copy_in()
        if timeout is None:
            self._start()
        else:
            self.bound({}, None, timeout)
        self._packed.copy_back()


class Kernel:
    """A CUDA C++ kernel.

    ``name`` is the ``__global__`` function: a plain name, or an expression such as ``"tiled<32>"``.
    ``arch`` is what to compile for (``"sm_75"``); None means the device's own. The source is compiled
    here and now, so that its errors come at once; what was compiled before comes from the disk cache.

    >>> import tilewise as tw
    >>> k = tw.Kernel('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }', "twice", "sm_75")
    >>> k.resources.spills
    0
    """

    def __init__(
        self,
        source: str,
        name: str,
        arch: str | None = None,
        defines: Mapping[str, object] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        include_dirs: Sequence[str | Path] = (),
        options: Sequence[str] = (),
        filename: str = "kernel.cu",
    ) -> None:
        self._source, self._name, self._filename = _text("source", source), _text("name", name), filename
        self._given_arch = arch
        self._how = {
            "defines": dict(_mapping("defines", defines)),
            "headers": dict(_mapping("headers", headers)),
            "include_dirs": _texts("include_dirs", include_dirs),
            "options": _texts("options", options),
        }
        self._binaries: dict[str, Binary] = {}
        self._foreign: Binary | None = None
        self._arch = arch if arch is not None else _default_arch()
        self.build(self._arch)

    @classmethod
    def from_ptx(cls, text: str, name: str, *, filename: str = "kernel.ptx") -> Kernel:
        """A kernel from PTX that any compiler made: nvcc's, Triton's, one's own hand."""
        kernel = cls.__new__(cls)
        kernel._source, kernel._name, kernel._filename = _text("text", text), _text("name", name), filename
        kernel._foreign = read_ptx(text, name, filename)
        kernel._arch = kernel._foreign.arch
        kernel._given_arch, kernel._how, kernel._binaries = kernel._arch, {}, {}
        return kernel

    def build(self, arch: str | None = None) -> Binary:
        """Compile for ``arch`` (the kernel's own if None) and return PTX, machine code and report."""
        if self._foreign:
            return self._foreign
        target = arch if arch is not None else self._arch
        binary = self._binaries.get(target)
        if binary is None:
            binary = compile_source(
                self._source,
                [self._name],
                target,
                filename=self._filename,
                **self._how,  # type: ignore[arg-type]  # a dict of differing types, as compile_source names them
            )
            self._binaries[target] = binary
        return binary

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        device: Device | str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Launch on a device.

        An argument is a device array, an array of another library that lies there, a NumPy array (copied in, and
        back after the launch), a scalar (typed by the kernel's own parameter), None for a null pointer, or a NumPy
        structured scalar or bytes for a struct by value.
        On a GPU a launch with device arrays alone is asynchronous: ``device.synchronize()`` waits for it.
        """
        _check_timeout(timeout)
        bound, packed = self._bind(grid, block, args, shared, cluster, device)
        bound({}, None, timeout)
        packed.copy_back()

    def bind(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        device: Device | str | None = None,
    ) -> BoundCall:
        """A launch made ready: compiled, loaded, checked, its arguments laid out. Call it as often as wanted.

        The arguments are those of a call, and stay the same: what an array holds is read anew each time.

        >>> import numpy as np, tilewise as tw
        >>> k = tw.Kernel('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }', "twice", "sm_75")
        >>> x = tw.device("emulator").array(np.ones(32, "float32"))
        >>> call = k.bind(1, 32, [x], device="emulator")
        >>> call(); call()
        >>> x.numpy()[0]
        np.float32(4.0)
        """
        return BoundCall(*self._bind(grid, block, args, shared, cluster, device, copy=False))

    def _bind(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int,
        cluster: int | Sequence[int] | None,
        device: Device | str | None,
        arch: str | None = None,
        *,
        copy: bool = True,
    ) -> tuple[Bound, Packed]:
        launch = Launch(
            dim3("grid", grid),
            dim3("block", block),
            shared=integer("shared", shared),
            cluster=None if cluster is None else dim3("cluster", cluster),
        )
        # NOTE: what no device could run is refused before a device is looked for, so that the error is
        # the same with a GPU and without.
        target = None
        try:
            target = resolve(device)
        except DeviceUnavailable:
            self._check(self.build(), launch, None)
            raise
        binary = self.build(None if self._given_arch is not None else arch or target.arch)
        self._check(binary, launch, target)
        packed = pack(self._name, self._entry(binary).parameters, args, target, copy=copy)
        slots = tuple(Slot(part) for part in packed.parts)
        bound_launch = BoundLaunch(binary, self.entry_in(binary), replace(launch, args=slots))
        return Bound(target, (), (bound_launch,)), packed

    def profile(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        gpu: str | Gpu | None = None,
        timeout: float | None = None,
        cache: bool = False,
        sample: int | None = None,
    ) -> Profile:
        """Run a launch on the emulator and count what it does, as the GPU named would count it.

        The profile maps ncu's names to figures, and has tables, source lines and occupancy. Arguments are
        as in a call, and results are written to them. ``cache`` adds what a model of the caches makes of it.
        ``sample`` runs so many blocks of each kind in place of all, and says so: results are not complete.

        >>> import numpy as np, tilewise as tw
        >>> source = '''extern "C" __global__ void k(float *x) {
        ...     __shared__ float s[1024]; s[threadIdx.x * 32] = x[threadIdx.x]; __syncthreads();
        ...     x[threadIdx.x] = s[threadIdx.x * 32]; }'''
        >>> profile = tw.Kernel(source, "k", "sm_75").profile(1, 32, [np.ones(32, "float32")])
        >>> profile["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"]
        62.0
        """
        from tilewise.instruments.launch import gpu_for, profile_bound

        _check_timeout(timeout)
        chosen, blocks = gpu_for(gpu, self._arch), _sample(sample)
        bound, packed = self._bind(grid, block, args, shared, cluster, "emulator", chosen.arch)
        profile = profile_bound(bound, {}, chosen, cache=cache, sample=blocks, timeout=timeout)
        packed.copy_back()
        return profile

    def occupancy(
        self,
        block: int | Sequence[int],
        shared: int = 0,
        gpu: str | Gpu | None = None,
        grid: int | None = None,
    ) -> Occupancy:
        """How many blocks of this shape a multiprocessor of ``gpu`` holds, and what limits them."""
        from tilewise.instruments.launch import gpu_for
        from tilewise.instruments.occupancy import occupancy

        chosen = gpu_for(gpu, self._arch)
        binary = self.build(None if self._given_arch is not None or gpu is None else chosen.arch)
        resources: Resources | None = self._entry(binary).resources
        if resources is None:
            raise ToolError(
                f"{self._name} is foreign PTX, which nothing here assembles: its registers are not known"
            )
        threads = math.prod(dim3("block", block))
        own = integer("shared", shared) + resources.shared_bytes
        return occupancy(chosen, threads, resources.registers, own, grid=grid, barriers=resources.barriers)

    def check(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        order: str | int = "late",
        timeout: float | None = None,
        *,
        level: str = "warning",
        lenient: bool = False,
    ) -> list[Finding]:
        """Run a launch on the emulator and return what is wrong with it; an empty list is good news.

        Races in shared and global memory, reads of what nobody wrote, accesses out of bounds, barriers that
        part of a block never meets, copies that are not waited for. ``order`` is which warp goes next, and
        when asynchronous work completes: ``"eager"``, ``"late"``, or a seed. ``level="info"`` also gives the races
        that did no harm, as all of their writes were of equal values. With ``lenient=True`` faults that GPUs usually
        let pass are findings like others, and the launch goes on.

        >>> import numpy as np, tilewise as tw
        >>> source = '''extern "C" __global__ void k(float *x) {
        ...     __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; x[threadIdx.x] = s[63 - threadIdx.x]; }'''
        >>> [finding.tool for finding in tw.Kernel(source, "k", "sm_75").check(1, 64, [np.ones(64, "float32")])]
        ['racecheck']
        """
        from tilewise.instruments.checking import check_bound

        _check_timeout(timeout)
        bound, packed = self._bind(grid, block, args, shared, cluster, "emulator")
        findings = check_bound(bound, {}, order, timeout=timeout, level=level, lenient=lenient)
        packed.copy_back()
        return findings

    def _check(self, binary: Binary, launch: Launch, target: Device | None) -> None:
        entry = self._entry(binary)
        check_block(launch.block, entry.most_threads, entry.block)
        resources = entry.resources
        static = resources.shared_bytes if resources else 0
        if target is not None:
            check_launch(launch, target.limits, static)
        else:
            from tilewise.gpus import launch_limits

            check_launch(launch, launch_limits(binary.arch), static)

    def entry_in(self, binary: Binary) -> str:
        """The name of this kernel in a binary, mangled as C++ does."""
        return binary.lowered[self._name]

    def _entry(self, binary: Binary) -> Any:
        return binary.entries[self.entry_in(binary)]

    @property
    def name(self) -> str:
        return self._name

    @property
    def arch(self) -> str:
        """The arch that :attr:`ptx`, :attr:`sass` and :attr:`resources` are for."""
        return self._arch

    @property
    def source(self) -> str:
        return self._source

    @property
    def ptx(self) -> str:
        """The PTX text."""
        return self.build().ptx

    @property
    def cubin(self) -> bytes:
        """The machine code, as a driver loads it."""
        binary = self.build()
        if binary.cubin is None:
            raise ToolError(
                f"{self._name} is foreign PTX, which only a GPU's driver assembles: no machine code here"
            )
        return binary.cubin

    @property
    def sass(self) -> str:
        """The machine code as a listing."""
        from tilewise.toolchain.lines import disassemble

        return disassemble(self.cubin)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a call's arguments must fit."""
        parameters: tuple[Parameter, ...] = self._entry(self.build()).parameters
        return parameters

    @property
    def resources(self) -> Resources:
        """Registers, shared and constant bytes, barriers and spills, as the assembler reports them."""
        resources: Resources | None = self._entry(self.build()).resources
        if resources is None:
            raise ToolError(
                f"{self._name} is foreign PTX, which nothing here assembles: its resources are not known"
            )
        return resources

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the compiler warned of, each with its line and caret."""
        return self.build().warnings

    def __repr__(self) -> str:
        return f"<tilewise.Kernel {self._name} for {self._arch}>"


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
        raise ArgumentError("timeout", "must be a number of seconds above 0, or None", timeout)


def _sample(blocks: int | None) -> int | None:
    return None if blocks is None else integer("sample", blocks, least=1)


def _default_arch() -> str:
    try:
        return resolve().arch
    except DeviceUnavailable:
        return _DEFAULT_ARCH


def _text(argument: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "an empty text" if isinstance(value, str) else type(value).__name__
        raise ArgumentError(argument, f"must be a text that is not empty, not {shown}")
    if "\0" in value:
        raise ArgumentError(argument, "must not hold a NUL character")
    return value


def _mapping(argument: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentError(argument, "must map names to values", type(value).__name__)
    return value


def _texts(argument: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ArgumentError(argument, "must be a list of texts", type(value).__name__)
    return tuple(str(item) for item in value)
