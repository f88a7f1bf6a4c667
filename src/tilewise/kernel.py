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
from tilewise.module import Module, check_text
from tilewise.slots import Slot
from tilewise.toolchain.binary import Binary, Resources
from tilewise.toolchain.compile import with_kernel

if TYPE_CHECKING:
    from tilewise.gpus import Gpu
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.occupancy import Occupancy
    from tilewise.instruments.profile import Profile
    from tilewise.instruments.recording import Recording

__all__ = ["BoundCall", "Kernel"]


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
        check_text("source", source)
        where = {"headers": headers, "include_dirs": include_dirs, "options": options, "filename": filename}
        names = [check_text("name", name)]
        self._set(Module(source, arch, defines, names=names, **where), name)  # type: ignore[arg-type]  # differing types

    @classmethod
    def from_ptx(cls, text: str, name: str, *, filename: str = "kernel.ptx") -> Kernel:
        """A kernel from PTX that any compiler made: nvcc's, Triton's, one's own hand."""
        return cls.of(Module.from_ptx(text, filename=filename), name)

    @classmethod
    def of(cls, module: Module, name: str) -> Kernel:
        """A kernel of a module: see :meth:`tilewise.Module.kernel`."""
        kernel = cls.__new__(cls)
        kernel._set(module, check_text("name", name))
        return kernel

    def _set(self, module: Module, name: str) -> None:
        self._module, self._name = module, name
        self._binaries: dict[str, Binary] = {}
        self.build()

    @property
    def module(self) -> Module:
        """What it is compiled from: its ``__constant__`` and ``__device__`` variables, and the other kernels."""
        return self._module

    def build(self, arch: str | None = None) -> Binary:
        """Compile for ``arch`` (the kernel's own if None) and return PTX, machine code and report."""
        target = self.arch if arch is None or self._module.is_foreign else arch
        binary = self._binaries.get(target)
        if binary is None:
            binary = self._binaries[target] = with_kernel(self._module.build(target), self._name)
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
        *,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        """Launch on a device.

        An argument is a device array, an array of another library that lies there, a NumPy array (copied in, and
        back after the launch), a scalar (typed by the kernel's own parameter), None for a null pointer, or a NumPy
        structured scalar or bytes for a struct by value.
        On a GPU a launch with device arrays alone is asynchronous: ``device.synchronize()`` waits for it.
        ``cooperative`` has all blocks resident at once, as ``grid.sync()`` needs it; more blocks than fit are refused.
        ``programmatic`` lets it begin before the launch before has ended, if that one says so
        (``griddepcontrol.launch_dependents``); it waits for the other's results by ``griddepcontrol.wait``.
        """
        _check_timeout(timeout)
        bound, packed = self._bind(
            *(grid, block, args, shared, cluster, device), cooperative=cooperative, programmatic=programmatic
        )
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
        *,
        cooperative: bool = False,
        programmatic: bool = False,
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
        bound, packed = self._bind(
            *(grid, block, args, shared, cluster, device),
            copy=False,
            cooperative=cooperative,
            programmatic=programmatic,
        )
        return BoundCall(bound, packed)

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
        cooperative: bool = False,
        programmatic: bool = False,
        gpu: Gpu | None = None,
    ) -> tuple[Bound, Packed]:
        launch = Launch(
            dim3("grid", grid),
            dim3("block", block),
            shared=integer("shared", shared),
            cluster=None if cluster is None else dim3("cluster", cluster),
            cooperative=_flag("cooperative", cooperative),
            programmatic=_flag("programmatic", programmatic),
        )
        # NOTE: what no device could run is refused before a device is looked for, so that the error is
        # the same with a GPU and without.
        target = None
        try:
            target = resolve(device)
        except DeviceUnavailable:
            self._check(self.build(), launch, None)
            raise
        binary = self.build(None if self._module.given_arch is not None else arch or target.arch)
        self._check(binary, launch, target)
        if cooperative and not target.runs_on_gpu:
            self._check_cooperative(binary, launch, gpu)
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
        *,
        cooperative: bool = False,
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
        from tilewise.instruments.profile_launch import find_gpu, profile_bound

        _check_timeout(timeout)
        chosen, blocks = find_gpu(gpu, self._module.arch), _sample(sample)
        if cooperative and blocks is not None:
            raise ArgumentError(
                "sample", "must be None in a cooperative launch, whose blocks wait for one another", blocks
            )
        bound, packed = self._bind(
            grid, block, args, shared, cluster, "emulator", chosen.arch, cooperative=cooperative, gpu=chosen
        )
        profile = profile_bound(bound, {}, chosen, cache=cache, sample=blocks, timeout=timeout)
        packed.copy_back()
        return profile

    def record(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        gpu: str | Gpu | None = None,
        timeout: float | None = None,
        *,
        blocks: Sequence[int] = (0,),
        element: tuple[str, int, int] | None = None,
        cooperative: bool = False,
    ) -> Recording:
        """Everything that some blocks of a launch do, on the emulator, as a recording; arguments stay as they are.

        Arrays of two axes are what addresses are named by: ``"a"`` is A[row, column] of the argument that C++ calls a.
        ``element``, such as ``("c", 3, 2)``, records the blocks that write it in place of ``blocks``; to find them
        takes a run of the whole grid.

        >>> import numpy as np, tilewise as tw
        >>> k = tw.Kernel('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }', "twice", "sm_75")
        >>> recording = k.record(1, 32, [np.ones((4, 8), "float32")])
        >>> [what.name for what in recording.kinds], recording.matrices["x"].rows
        (['LOAD', 'STORE'], 4)
        """
        from tilewise.instruments.profile_launch import find_gpu
        from tilewise.instruments.record_launch import name_arguments, record_bound

        _check_timeout(timeout)
        chosen = find_gpu(gpu, self._module.arch)
        bound, packed = self._bind(
            grid, block, args, shared, cluster, "emulator", chosen.arch, cooperative=cooperative, gpu=chosen
        )
        launch = bound.launches[0]
        matrices = name_arguments(self._entry(launch.binary).parameters, args, packed.parts)
        return record_bound(
            bound, launch, packed.parts, chosen, matrices, blocks=blocks, element=element, timeout=timeout
        )

    def occupancy(
        self,
        block: int | Sequence[int],
        shared: int = 0,
        gpu: str | Gpu | None = None,
        grid: int | None = None,
    ) -> Occupancy:
        """How many blocks of this shape a multiprocessor of ``gpu`` holds, and what limits them."""
        from tilewise.instruments.occupancy import occupancy
        from tilewise.instruments.profile_launch import find_gpu

        chosen = find_gpu(gpu, self._module.arch)
        binary = self.build(None if self._module.given_arch is not None or gpu is None else chosen.arch)
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
        cooperative: bool = False,
        level: str = "warning",
        lenient: bool = False,
    ) -> list[Finding]:
        """Run a launch on the emulator and return what is wrong with it; an empty list is good news.

        Races in shared and global memory, reads of uninitialised memory, accesses out of bounds, barriers that
        part of a block never meets, copies that are not waited for. ``order`` is which warp goes next, which
        block starts next, and when asynchronous work completes: ``"eager"``, ``"late"``, or a seed.
        ``level="info"`` also gives the races that did no harm, as all of their writes were of equal values. With
        ``lenient=True`` faults that GPUs usually let pass are findings like others, and the launch goes on.

        >>> import numpy as np, tilewise as tw
        >>> source = '''extern "C" __global__ void k(float *x) {
        ...     __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; x[threadIdx.x] = s[63 - threadIdx.x]; }'''
        >>> [finding.tool for finding in tw.Kernel(source, "k", "sm_75").check(1, 64, [np.ones(64, "float32")])]
        ['racecheck']
        """
        from tilewise.instruments.checking import check_bound

        _check_timeout(timeout)
        bound, packed = self._bind(grid, block, args, shared, cluster, "emulator", cooperative=cooperative)
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

    def _check_cooperative(self, binary: Binary, launch: Launch, gpu: Gpu | None) -> None:
        """Refuse more blocks than are resident at once on ``gpu``, or else on the GPU that the arch is of."""
        from tilewise.instruments.profile_launch import find_gpu
        from tilewise.instruments.residency import check_cooperative

        shown = binary.shown(self.entry_in(binary))
        check_cooperative(gpu or find_gpu(None, binary.arch), shown, launch, self._entry(binary).resources)

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
        return self._module.arch

    @property
    def source(self) -> str:
        return self._module.source

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
        return f"<tilewise.Kernel {self._name} for {self._module.arch}>"


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
        raise ArgumentError("timeout", "must be a number of seconds above 0, or None", timeout)


def _flag(argument: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(argument, "must be True or False", value)
    return value


def _sample(blocks: int | None) -> int | None:
    return None if blocks is None else integer("sample", blocks, least=1)
