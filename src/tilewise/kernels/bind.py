"""Bind: a kernel with its settings, operands as they lie, and a device → a Bound that waits for addresses."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices.seam import Device
from tilewise.gpus import arch_capability, limits
from tilewise.kernel import Kernel
from tilewise.kernels.epilogue import PARTIALS, partial_bytes
from tilewise.kernels.gemm.add_sums import add_steps
from tilewise.kernels.gemm.arrange import arrange_steps, copy_bytes, readable
from tilewise.kernels.spec import KernelSource, KernelSpec, Settings, Step
from tilewise.launch import check_launch
from tilewise.operands import Operands, ceil_div

__all__ = ["bind", "bind_steps", "forget_kernels", "readable"]

_KERNELS = 256  # kept in memory: finding one on the disk takes longer than a launch
_OVERLAP_FROM = (9, 0)  # compute capability: where a launch may begin before the one before it has ended
_REGION = 256  # bytes of which a region of the workspace begins at a multiple


def bind(
    spec: KernelSpec,
    settings: Settings,
    operands: Operands,
    read: Operands,
    device: Device,
    arch: str | None = None,
) -> Bound:
    """Compile and lay out what multiplies ``operands`` by ``spec``.

    ``read`` are the operands as the kernel reads them: where one of them is a copy, the copy is made first. ``arch``
    is what to compile for, the device's own if None.
    """
    target = arch or device.arch
    spec.check(read, settings)
    error = spec.refuse_arch(settings, target)
    if error is not None:
        raise error
    regions, size = _regions(spec, settings, read)
    m, n, _ = read.sizes
    inner = read.inner(spec.stack_axes)
    if not m * n * read.batch:
        nothing = add_steps(inner, (m, n))  # sums of no elements
        return Bound(device, (), _bound_all(nothing, None, target, device), 0)
    code = spec.code(settings, spec.orient(read).epilogue)
    prepare = arrange_steps(operands, read)
    steps = spec.steps(inner, settings) + add_steps(inner, spec.sum_slots(inner, settings))
    _build_at_once([*prepare, *steps], code, target)
    return Bound(
        device,
        _bound_all(prepare, code, target, device),
        _bound_all(steps, code, target, device, after_copies=bool(prepare)),
        size,
        regions,
        tuple(_shifts(spec, read)),
        next((i for i, step in enumerate(steps) if step.code is None), 0),
    )


def bind_steps(steps: list[Step], device: Device) -> Bound:
    """Launches, each with a source of its own, that are no product."""
    return Bound(device, (), _bound_all(steps, None, device.arch, device), 0)


def _build_at_once(steps: list[Step], code: KernelSource, arch: str) -> None:
    """Compile what the launches need side by side, so that a plan takes as long as the slowest of its kernels.

    Where there are no threads to be had, as while Python ends, they are left to be compiled one by one.
    """
    sources = dict.fromkeys((step.code or code, step.entry) for step in steps)
    if len(sources) < 2:
        return
    with contextlib.suppress(RuntimeError):
        from concurrent.futures import ThreadPoolExecutor  # not for all who import the package

        with ThreadPoolExecutor(len(sources)) as pool:
            list(pool.map(lambda one: _compiled(one[0], one[1], arch), sources))


def _bound_all(
    steps: list[Step], code: KernelSource | None, arch: str, device: Device, after_copies: bool = False
) -> tuple[BoundLaunch, ...]:
    """``after_copies``: the first of them comes behind launches that copy what it reads."""
    return tuple(
        _bound(step, found, arch, device, after_copies and i == 0)
        for i, step in enumerate(steps)
        if (found := step.code or code)
    )


def _bound(step: Step, code: KernelSource, arch: str, device: Device, after_copies: bool) -> BoundLaunch:
    kernel = _compiled(code, step.entry, arch)
    binary = kernel.build()
    entry = kernel.entry_in(binary)
    resources = binary.entries[entry].resources
    launch = step.launch
    static = resources.shared_bytes if resources else 0
    spread_evenly = step.may_begin_early(device.multiprocessors, after_copies)
    early = arch_capability(arch) >= _OVERLAP_FROM and spread_evenly
    if launch.programmatic and not early:
        launch = replace(launch, programmatic=False)
    spread = launch.programmatic and step.spread
    most = ceil_div(math.prod(launch.grid), device.multiprocessors) if spread else step.resident
    if spread or most > 1:
        launch = replace(
            launch, shared=max(_shared_bytes_for_at_most(most, arch, device) - static, launch.shared)
        )
    check_launch(launch, device.limits, static)
    return BoundLaunch(binary, entry, launch)


def _shared_bytes_for_at_most(blocks: int, arch: str, device: Device) -> int:
    """The least shared memory, in bytes, that a block has to ask for so that an SM holds no more than so many.

    NOTE: the emulator runs code for GPUs that have less than it.
    """
    known = limits(arch)
    unit, most = known.shared_unit, min(known.shared_per_block_optin, device.limits.shared_bytes_per_block)
    least = known.shared_per_sm // (blocks + 1) // unit * unit + unit - known.shared_reserved_per_block
    return min(max(least, 0), most // unit * unit)


def _compiled(code: KernelSource, entry: str, arch: str) -> Kernel:
    """A kernel of a source as it is now, from memory if it is there."""
    return _kernel(code, code.file.stat().st_mtime_ns, entry, arch)


def forget_kernels() -> None:
    """Compile kernels again that are in memory, or find them on the disk, when they are next bound."""
    _kernel.cache_clear()


@functools.lru_cache(_KERNELS)
def _kernel(code: KernelSource, _written: int, entry: str, arch: str) -> Kernel:
    return code.kernel(entry, arch)


def _regions(spec: KernelSpec, settings: Settings, read: Operands) -> tuple[dict[str, int], int]:
    """Where in the workspace each part of it begins, and the bytes of all."""
    found, end = {}, 0
    sizes = {"workspace": spec.workspace(read, settings)}
    inner = read.inner(spec.stack_axes)
    sizes[PARTIALS] = partial_bytes(inner, spec.sum_slots(inner, settings))
    for one in read[:2]:
        if one.name.startswith("copy_"):
            sizes[one.name] = copy_bytes(one, read.stack_of(one))
    for name, size in sizes.items():
        if size or name.startswith("copy_"):  # one of nothing has an address as well
            found[name] = end
            end += ceil_div(size, _REGION) * _REGION
    return found, end


def _shifts(spec: KernelSpec, read: Operands) -> Iterator[Mapping[str, int]]:
    """By how many bytes the operands move from one launch to the next, for what one launch cannot take."""
    outer = max(len(read.stack) - spec.stack_axes, 0)
    for index in itertools.product(*(range(size) for size in read.stack[:outer])):
        yield {
            one.name: sum(i * step for i, step in zip(index, one.stack, strict=False)) * one.itemsize
            for one in (*read[:3], *read.extras)
        }
