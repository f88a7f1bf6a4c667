"""Launches on the CPU, each compiled for it: in the plain build, or in one that counts, traces or checks.

The emulator's device runs its launches here, and here the instruments reach them: what a launch touches, how often,
and what is wrong with it.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.devices.host_memory import ALLOCATIONS, Allocation
from tilewise.devices.host_modules import HostModules
from tilewise.devices.overlap import Changes, Snapshot, overlaps
from tilewise.errors import ArgumentError, KernelFault, LaunchError, UnknownNameError, integer
from tilewise.gpus import launch_limits
from tilewise.launch import Launch, check_launch, check_registers
from tilewise.toolchain import cache
from tilewise.toolchain.binary import Binary, Resources
from tilewise.toolchain.signature import read_moved_registers

__all__ = ["HostLauncher", "Watch"]

_BUILDS = 256  # kept in memory
_BAR_AFTER = 2.0  # seconds
_BAR_WIDTH = 30
_ORDERS = ("eager", "late")
_SUMS = ("fast", "hardware")
_WORKSPACE_BYTES = 64  # of which grid.sync() uses the first eight


# Makes the memory of a watched launch, given the build, the launch and the allocations it may touch.
Watch = Callable[[Any, Launch, list[Any]], Any]

_BUILDING = threading.Lock()  # one compilation at a time: they hold Python's lock and LLVM's anyway
_BUILT: OrderedDict[tuple[str, str, tuple[int, int, int], str, str], Any] = OrderedDict()


def _unlock() -> None:
    """In a forked child: replace the lock that a thread of the parent may have held."""
    global _BUILDING
    _BUILDING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class HostLauncher:
    """Runs launches on the CPU, with the variables of the modules that they are of.

    All but ``multiprocessors`` and ``modules`` are those of :class:`tilewise.devices.emulated.EmulatedDevice`.
    ``multiprocessors`` is how many a kernel finds that asks, the CPU threads if not given. ``modules`` has the
    variables that kernels find, its own if not given.
    """

    def __init__(
        self,
        order: str | int = "eager",
        threads: int | None = None,
        sums: str | None = None,
        multiprocessors: int | None = None,
        modules: HostModules | None = None,
        lenient: bool = False,
    ) -> None:
        self.order = _read_order(order)
        self._threads = None if threads is None else integer("threads", threads, least=1)
        if sums is not None and sums not in _SUMS:
            raise UnknownNameError("sums", sums, _SUMS)
        self._sums, self._multiprocessors, self.lenient = sums, multiprocessors, bool(lenient)
        self.modules = HostModules() if modules is None else modules
        # By thread: what its last launch changed, if that lets the next one begin early.
        self._last = threading.local()

    @property
    def options(self) -> tuple[str | int, int | None, str | None, bool]:
        """Order, threads, sums and whether it is lenient, as they were given."""
        return self.order, self._threads, self._sums, self.lenient

    @property
    def threads(self) -> int:
        """The CPU threads that a launch uses at most."""
        if self._threads is not None:
            return self._threads
        given = os.environ.get("TILEWISE_THREADS", "").strip()
        if not given:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not given.isdecimal() or not 1 <= int(given) <= 4_096:
            raise ArgumentError("TILEWISE_THREADS", "must be a number from 1 to 4,096", given)
        return int(given)

    @property
    def sums(self) -> str:
        """How instructions of tensor cores add."""
        given = self._sums or os.environ.get("TILEWISE_SUMS", "").strip() or _SUMS[0]
        if given not in _SUMS:
            raise UnknownNameError("TILEWISE_SUMS", given, _SUMS)
        return given

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors a kernel finds that asks."""
        return self.threads if self._multiprocessors is None else self._multiprocessors

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        mode: str = "plain",
        watch: Watch | None = None,
        chosen: Sequence[int] | None = None,
    ) -> None:
        """Run a launch to its end.

        ``mode`` is the build that runs: ``"plain"``, ``"counted"``, ``"traced"``, ``"recorded"`` or ``"checked"``. Of
        all but the first, ``watch`` makes the memory that they write to. ``chosen`` are the numbers of the clusters to
        run (of the blocks, where there are no clusters), if not all of the grid.
        """
        from tilewise import emulator

        resources = binary.entries[entry].resources
        if resources is not None:
            _check_resources(binary, entry, launch, resources)
        build = self.build(binary, entry, launch.block, mode)
        launch = _clustered(launch, build)
        check_launch(launch, launch_limits(binary.arch), build.shared_bytes)
        variables = self.modules.find(binary, build.globals)
        constants = self.modules.find(binary, [name for name, _ in build.constants])
        workspace = Workspace() if launch.cooperative else None
        ranges, held = ALLOCATIONS.reachable()
        before = Snapshot(held) if build.launches_dependents and overlaps(self.order) else None
        unfinished = self._claim_changes(launch)
        memories = watch(build, launch, held) if watch else None
        runner = emulator.Runner(
            build,
            launch,
            packed,
            ranges,
            [item.address for item in variables],
            [item.bytes for item in constants],
            threads=1 if unfinished else self.threads,
            order=self.order,
            timeout=timeout,
            multiprocessors=self.multiprocessors,
            store=cache.default(),
            keep=held,
            watch=memories,
            chosen=chosen,
            workspace=workspace.address if workspace else 0,
            awaited=unfinished.put_back if unfinished else None,
            lenient=self.lenient,
            labels=[parameter.label(i) for i, parameter in enumerate(binary.entries[entry].parameters)],
        )
        try:
            unfinished.take_back(memories if mode == "checked" else None)
            with _progress_bar(entry) as runner.progress:
                runner()
        except KernelFault as error:
            raise _name_freed_array(error) from None
        finally:
            unfinished.put_back()
        if before:
            self._last.changes = before.changes()
        if mode != "checked":  # only a checked launch records what it has written
            for item in held:
                item.unset = False

    def _claim_changes(self, launch: Launch) -> Changes:
        """The changes of the launch before, if this one begins before its end; later launches do not overlap
        with it."""
        changes = getattr(self._last, "changes", Changes([]))
        self._last.changes = Changes([])
        return changes if launch.programmatic and overlaps(self.order) else Changes([])

    def resolve_clusters(self, binary: Binary, entry: str, launch: Launch) -> Launch:
        """The launch with the clusters that it asks for, or that its kernel does."""
        return _clustered(launch, self.build(binary, entry, launch.block, "counted"))

    def find_heap(self, binary: Binary) -> tuple[int, int] | None:
        """The address of the heap of a module, and how many bytes of it were ever taken; None without one."""
        heap, used = (self.modules.get(binary, name) for name in ("$heap", "$heap_used"))
        return (heap.address, int(used.bytes.view("uint64")[0])) if heap and used else None

    @contextlib.contextmanager
    def undo_changes(self) -> Iterator[None]:
        """Undo at the end what launches within do to arrays; what they print is dropped."""
        _, held = ALLOCATIONS.reachable()
        before = [(item, item.bytes.copy(), item.unset) for item in held]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            for item, content, unset in before:
                # NOTE: adopted memory may be write-protected; then nothing has changed it either.
                if not np.array_equal(item.bytes, content):
                    np.copyto(item.bytes, content)
                item.unset = unset

    def build(self, binary: Binary, entry: str, block: tuple[int, int, int], mode: str = "plain") -> Any:
        """A kernel compiled for this CPU and blocks of a shape; remembered."""
        from tilewise import emulator

        sums = self.sums
        key = (_module(binary), entry, block, mode, sums)
        with _BUILDING:
            build = _BUILT.get(key)
            if build is None:
                build = emulator.build_kernel(
                    binary.ptx, entry, block, emulator.host_cpu(), cache.default(), mode, sums
                )
                _BUILT[key] = build
            _BUILT.move_to_end(key)
            while len(_BUILT) > _BUILDS:
                _BUILT.popitem(last=False)
        return build


class Workspace(Allocation):
    """The memory by which the blocks of a cooperative launch meet, as drivers lay it out: its size, then zeros."""

    def __init__(self) -> None:
        super().__init__(_WORKSPACE_BYTES, "the workspace of the cooperative launch")
        self.bytes[:] = 0
        self.bytes[:4].view(np.uint32)[0] = _WORKSPACE_BYTES


def _read_order(order: str | int) -> str | int:
    """The order that is meant: "eager", "late", or a seed, which may be given as the text of a number."""
    if not isinstance(order, str):
        return integer("order", order)
    if order in _ORDERS:
        return order
    if re.fullmatch(r"[+-]?[0-9]{1,100}", order.strip()):
        return int(order)
    raise UnknownNameError("order", order, [*_ORDERS, "a seed such as 7"])


def _module(binary: Binary) -> str:
    return binary.key or binary.ptx


def _name_freed_array(error: KernelFault) -> KernelFault:
    """A fault at an address of no array: as a use after free, if an array lay there before."""
    details: Any = error.details
    if details is None or details.kind != "OUT_OF_BOUNDS" or details.array or details.space != "global":
        return error
    name = ALLOCATIONS.freed(details.address)
    if not name:
        return error
    first, *rest = str(error).splitlines()
    message = f"{first.partition(':')[0]}: use after free, in {name}, which was let go of"
    found = KernelFault("\n".join([message, *rest]))
    found.details = replace(details, kind="FREED", array=name)
    return found


def _check_resources(binary: Binary, entry: str, launch: Launch, resources: Resources) -> None:
    """Refuse what a GPU would, or would not finish, by what the assembler says of the kernel."""
    check_launch(launch, launch_limits(binary.arch), resources.shared_bytes)
    taken, left = read_moved_registers(binary.ptx, entry)
    if taken is not None:
        check_registers(launch, resources.registers, taken, left)


def _clustered(launch: Launch, build: Any) -> Launch:
    """The launch with the clusters that it asks for, or that its kernel does."""
    asked, own, most = launch.cluster, build.cluster, build.max_cluster
    if asked is None and own is None and not build.explicit_cluster:
        return launch
    if own is not None and asked not in (None, own):
        raise LaunchError("cluster", f"must be {own}, which kernel {build.entry} is made for", asked)
    cluster = asked or own
    if cluster is None and build.explicit_cluster:
        raise LaunchError(
            "cluster",
            f"must be given: kernel {build.entry} is made for clusters of a size that a launch says",
            None,
        )
    if most and cluster and math.prod(cluster) > most:
        raise LaunchError("cluster", f"must have at most {most} blocks for kernel {build.entry}", cluster)
    grid = launch.grid
    if build.blocks_are_clusters and cluster:
        grid = (grid[0] * cluster[0], grid[1] * cluster[1], grid[2] * cluster[2])
    return replace(launch, grid=grid, cluster=cluster)


@contextlib.contextmanager
def _progress_bar(entry: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal once a launch takes two seconds, and the end of its line after it; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown: list[int] = []

    def show(done: int, total: int) -> None:
        if time.monotonic() - started < _BAR_AFTER or done in shown:
            return
        full = _BAR_WIDTH * done // total
        bar = "█" * full + " " * (_BAR_WIDTH - full)
        sys.stderr.write(f"\r{entry}: [{bar}] {done:,} of {total:,} blocks")
        sys.stderr.flush()
        shown[:] = [done]

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\n")
