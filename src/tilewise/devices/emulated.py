"""The emulator's side of the seam: arrays in the host's memory, launches compiled for the CPU."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tilewise.devices._strides import as_dtype, as_shape, sliced
from tilewise.devices.seam import Array
from tilewise.errors import ArgumentError, DeviceError, KernelFault, LaunchError, UnknownNameError, integer
from tilewise.gpus import launch_limits
from tilewise.launch import Launch, LaunchLimits, check_launch
from tilewise.toolchain import cache
from tilewise.toolchain.binary import Binary

__all__ = ["EmulatedArray", "EmulatedDevice", "open_emulator"]

_ALIGNMENT = 256  # of an allocation's start, as on a GPU
_BUILDS = 256  # kept in memory
_REMEMBERED = 64  # arrays that were let go of
_BAR_AFTER = 2.0  # seconds
_ORDERS = ("eager", "late")
_SUMS = ("fast", "hardware")


class _Allocation:
    """Host memory that launches may touch, from the moment it is made until nothing refers to it."""

    def __init__(self, size: int, name: str, unset: bool = False) -> None:
        """``unset``: nobody has said what is in it. Later it may be an array that tells by bytes."""
        try:
            raw = np.empty(size + 3 * _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):  # more than there is, or than an index reaches
            raise DeviceError(f"the host has no room for an array of {size:,} bytes") from None
        # Nobody's bytes before and behind it: an index that is one off meets no other array there.
        start = _ALIGNMENT + -raw.ctypes.data % _ALIGNMENT
        self.bytes = raw[start : start + size]
        self.address, self.size, self.name = int(self.bytes.ctypes.data), size, name
        self.unset: bool | npt.NDArray[np.bool_] = unset
        _ALLOCATIONS.add(self)

    def fill(self, view: npt.NDArray[Any]) -> None:
        """Somebody has said what is in a part of it."""
        if self.unset is False or not view.size:
            return
        if view.nbytes == self.size:
            self.unset = False
            return
        missing = np.ones(self.size, np.bool_) if self.unset is True else np.asarray(self.unset)
        offset = int(view.ctypes.data) - self.address
        sizes, strides = (*view.shape, view.itemsize), (*view.strides, 1)
        np.ndarray(sizes, np.bool_, missing.data, offset, strides)[...] = False
        self.unset = missing


class _Allocations:
    """All allocations that there are, and the table of them that launches search."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._all: dict[int, weakref.ref[_Allocation]] = {}
        self._table: Any = None  # an emulator.RangeTable of those that it held when it was made
        self._gone: deque[tuple[int, int, str]] = deque(maxlen=_REMEMBERED)  # address, size and name

    def add(self, item: _Allocation) -> None:
        number, grave = id(item), (item.address, item.size, item.name)

        def bury(_: object) -> None:
            # NOTE: it dies whenever it likes, in this thread too, and this takes no lock.
            self._all.pop(number, None)
            self._gone.append(grave)

        with self.lock:
            self._all[number] = weakref.ref(item, bury)
            self._table = None
            start, end = item.address - _ALIGNMENT, item.address + item.size + _ALIGNMENT
            for old in list(self._gone):  # what lay here is forgotten: this memory is in use again
                if old[0] < end and start < old[0] + old[1]:
                    with contextlib.suppress(ValueError):  # somebody else was faster
                        self._gone.remove(old)

    def gone(self, address: int) -> str:
        """What lay at an address until nothing referred to it any more, if anything did not long ago."""
        for start, size, name in reversed(list(self._gone)):
            if start <= address < start + size:
                return name
        return ""

    def reachable(self) -> tuple[Any, list[_Allocation]]:
        """The table, and what is in it: held until the launch is over, whatever others let go of."""
        from tilewise import emulator

        with self.lock:
            held = [item for known in list(self._all.values()) if (item := known()) is not None and item.size]
            if self._table is None or len(self._table.ranges) != len(held):  # one was added, or some are gone
                self._table = emulator.RangeTable(
                    [emulator.Range(item.address, item.size, item.name) for item in held]
                )
            return self._table, held


# Makes the memory of a watched launch, given the build, the launch and the allocations it may touch.
Watch = Callable[[Any, Launch, list["_Allocation"]], Any]

_LOCK = threading.RLock()
_ALLOCATIONS = _Allocations()
_BUILDING = threading.Lock()  # one compilation at a time: they hold Python's lock and LLVM's anyway
_BUILT: OrderedDict[tuple[str, str, tuple[int, int, int], str, str], Any] = OrderedDict()


def _unlock() -> None:
    """In a fork, nobody is left to release what another thread had locked."""
    global _LOCK, _BUILDING
    _LOCK, _BUILDING = threading.RLock(), threading.Lock()
    _ALLOCATIONS.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class EmulatedArray:
    """An array of the emulator. Slicing gives a view of the same memory."""

    __array_ufunc__ = None  # NumPy's functions refuse it, as they do a GPU's

    def __init__(self, device: EmulatedDevice, allocation: _Allocation, view: npt.NDArray[Any]) -> None:
        self._device, self._allocation, self._view = device, allocation, view

    @property
    def ptr(self) -> int:
        return int(self._view.ctypes.data) if self._view.size else self._allocation.address

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._view.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._view.dtype

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    @property
    def device(self) -> EmulatedDevice:
        return self._device

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host."""
        return self._view.copy()

    def fill(self, value: npt.NDArray[Any]) -> None:
        """Overwrite the elements with those of a host array of the same shape and type."""
        source = np.asarray(value)
        if source.shape != self.shape or source.dtype != self.dtype:
            raise ArgumentError(
                "value",
                f"must have shape {self.shape} and type {self.dtype}",
                f"{source.shape} of {source.dtype}",
            )
        np.copyto(self._view, source)
        self._allocation.fill(self._view)

    def __getitem__(self, key: Any) -> EmulatedArray:
        """A view of the same memory; integers, slices, ``...`` and None."""
        offset, shape, strides = sliced(self.shape, self.strides, key)
        memory = self._allocation.bytes
        view: npt.NDArray[Any] = np.empty(shape, self.dtype)
        if view.size:
            offset += self.ptr - self._allocation.address
            view = np.ndarray(shape, self.dtype, memory, offset, strides)
        return EmulatedArray(self._device, self._allocation, view)

    def __iter__(self) -> NoReturn:
        raise TypeError("an array on a device is not walked element by element; use .numpy()")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError("an array on a device becomes a NumPy array only by .numpy(), which copies it")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<array of shape {self.shape}, {self.dtype}, on the emulator>"


class EmulatedDevice:
    """Runs launches on the CPU.

    ``order`` decides which warp goes next: "eager" the first that can, "late" the last, a number a
    random one from that seed. ``threads`` bounds the CPU threads; None asks ``TILEWISE_THREADS``, then
    takes every core. ``sums`` decides how instructions of tensor cores add: "fast" as suits a CPU,
    "hardware" bit for bit as an H200 does; None asks ``TILEWISE_SUMS``, then is fast.
    """

    name = "emulator"

    def __init__(
        self, order: str | int = "eager", threads: int | None = None, sums: str | None = None
    ) -> None:
        if isinstance(order, str) and order not in _ORDERS:
            raise UnknownNameError("order", order, [*_ORDERS, "a seed such as 7"])
        self.order = order if isinstance(order, str) else integer("order", order)
        self._threads = None if threads is None else integer("threads", threads, least=1)
        if sums is not None and sums not in _SUMS:
            raise UnknownNameError("sums", sums, _SUMS)
        self._sums = sums
        self._globals: dict[str, dict[str, _Allocation]] = {}

    @property
    def title(self) -> str:
        return f"the emulator on {self.threads} CPU thread{'s' if self.threads > 1 else ''}"

    @property
    def arch(self) -> str:
        return "sm_90a"

    @property
    def limits(self) -> LaunchLimits:
        return LaunchLimits("the emulator")

    @property
    def threads(self) -> int:
        """The CPU threads that a launch uses at most."""
        if self._threads is not None:
            return self._threads
        asked = os.environ.get("TILEWISE_THREADS", "").strip()
        if not asked:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not asked.isdecimal() or not 1 <= int(asked) <= 4_096:
            raise ArgumentError("TILEWISE_THREADS", "must be a number from 1 to 4,096", asked)
        return int(asked)

    @property
    def sums(self) -> str:
        """How instructions of tensor cores add."""
        asked = self._sums or os.environ.get("TILEWISE_SUMS", "").strip() or _SUMS[0]
        if asked not in _SUMS:
            raise UnknownNameError("TILEWISE_SUMS", asked, _SUMS)
        return asked

    @property
    def multiprocessors(self) -> int:
        return self.threads

    def array(self, source: Any) -> EmulatedArray:
        """A copy of a host array (or of anything NumPy takes); an array of the emulator as it is."""
        if isinstance(source, EmulatedArray):
            return source
        host = source.numpy() if isinstance(source, Array) else np.asarray(source)
        made = self.empty(host.shape, host.dtype)
        np.copyto(made._view, host)
        made._allocation.unset = False
        return made

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = "float32") -> EmulatedArray:
        """An array whose elements are not set."""
        sizes, kind = as_shape(shape), as_dtype(dtype)
        size = math.prod(sizes) * kind.itemsize
        allocation = _Allocation(size, f"the {kind} array of shape {sizes}", unset=True)
        view = allocation.bytes.view(kind).reshape(sizes) if size else np.empty(sizes, kind)
        return EmulatedArray(self, allocation, view)

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        """Run a launch to its end."""
        try:
            self._run(binary, entry, launch, packed, timeout)
        except MemoryError:
            raise DeviceError(
                f"the host has not enough memory for kernel {entry} and its variables"
            ) from None

    def watched(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None,
        mode: str,
        watch: Watch,
        chosen: Sequence[int] | None = None,
    ) -> None:
        """Run a launch in a build that counts or checks; ``watch`` makes the memory that it writes down in.

        ``chosen`` names the clusters to run (the blocks, where there are none), if not all of the grid.
        """
        self._run(binary, entry, launch, packed, timeout, mode, watch, chosen)

    def clustered(self, binary: Binary, entry: str, launch: Launch) -> Launch:
        """The launch with the clusters that it asks for, or that its kernel does."""
        return _clustered(launch, self._build(binary, entry, launch.block, "counted"))

    def _run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None,
        mode: str = "plain",
        watch: Watch | None = None,
        chosen: Sequence[int] | None = None,
    ) -> None:
        from tilewise import emulator

        resources = binary.entries[entry].resources
        if resources is not None:
            check_launch(launch, launch_limits(binary.arch), resources.shared_bytes)
        build = self._build(binary, entry, launch.block, mode)
        launch = _clustered(launch, build)
        check_launch(launch, launch_limits(binary.arch), build.shared_bytes)
        tables = self._variables(binary, build)
        ranges, held = _ALLOCATIONS.reachable()
        runner = emulator.Runner(
            build,
            launch,
            packed,
            ranges,
            [item.address for item in tables],
            threads=self.threads,
            order=self.order,
            timeout=timeout,
            multiprocessors=self.multiprocessors,
            store=cache.default(),
            progress=_progress_bar(entry),
            keep=held,
            watch=watch(build, launch, held) if watch else None,
            chosen=chosen,
        )
        try:
            runner()
        except KernelFault as error:
            raise _named_if_gone(error) from None
        if mode != "checked":  # what this launch has written, nobody knows
            for item in held:
                item.unset = False

    def _build(self, binary: Binary, entry: str, block: tuple[int, int, int], mode: str = "plain") -> Any:
        from tilewise import emulator

        sums = self.sums
        key = (binary.key or binary.ptx, entry, block, mode, sums)
        with _BUILDING:
            build = _BUILT.get(key)
            if build is None:
                build = emulator.build_kernel(
                    binary.ptx, entry, block, emulator.host(), cache.default(), mode, sums
                )
                _BUILT[key] = build
            _BUILT.move_to_end(key)
            while len(_BUILT) > _BUILDS:
                _BUILT.popitem(last=False)
        return build

    def _variables(self, binary: Binary, build: Any) -> list[_Allocation]:
        """The module's own variables: made and initialised once, kept from launch to launch."""
        with _LOCK:
            places = self._globals.setdefault(binary.key or binary.ptx, {})
            fresh = {
                item.name: _Allocation(max(item.size, 1), f"the variable {item.name}")
                for item in build.globals
                if item.name not in places
            }
            _initialise(build, fresh, {**places, **fresh})
            places.update(fresh)
            return [places[item.name] for item in build.globals]

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """What launches within do to arrays and variables is undone at the end, and what they print is dropped."""
        _, held = _ALLOCATIONS.reachable()
        before = [(item, item.bytes.copy(), item.unset) for item in held]
        variables = {key: dict(places) for key, places in self._globals.items()}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            for item, content, unset in before:
                np.copyto(item.bytes, content)
                item.unset = unset
            self._globals = variables

    def synchronize(self) -> None:
        """Nothing to wait for: a launch here ends before its call does."""

    def __repr__(self) -> str:
        return f"<tilewise device: {self.title}>"


def _named_if_gone(error: KernelFault) -> KernelFault:
    """Of a fault at an address of nobody's: name the array that was there until it was let go of."""
    details: Any = error.details
    if details is None or details.kind != "OUT_OF_BOUNDS" or details.array or details.space != "global":
        return error
    name = _ALLOCATIONS.gone(details.address)
    if not name:
        return error
    first, *rest = str(error).splitlines()
    told = f"{first.partition(':')[0]}: use after free, in {name}, which was let go of"
    found = KernelFault("\n".join([told, *rest]))
    found.details = replace(details, kind="FREED", array=name)
    return found


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


def _initialise(build: Any, fresh: dict[str, _Allocation], places: dict[str, _Allocation]) -> None:
    for item in build.globals:
        if item.name not in fresh:
            continue
        memory = fresh[item.name].bytes[: item.size]
        first = bytes.fromhex(item.data or "")
        memory[: len(first)] = np.frombuffer(first, np.uint8)
        memory[len(first) :] = 0
        for offset, name, addend in item.links:
            if name not in places:
                raise DeviceError(
                    f"the variable {item.name} holds the address of {name}, which has none here"
                )
            address = (places[name].address + addend).to_bytes(8, "little")
            memory[offset : offset + 8] = np.frombuffer(address, np.uint8)


def _progress_bar(entry: str) -> Callable[[int, int], None] | None:
    """A bar on a terminal once a launch takes more than two seconds; nothing in a pipe."""
    if not sys.stderr.isatty():
        return None
    started = time.monotonic()
    shown = [0]

    def show(done: int, total: int) -> None:
        if time.monotonic() - started < _BAR_AFTER:
            return
        width = 30
        full = width * done // max(total, 1)
        end = "\n" if done >= total and shown[0] else ""
        text = f"\r{entry}: [{'█' * full}{' ' * (width - full)}] {done:,} of {total:,} blocks{end}"
        if done != shown[0] or not shown[0]:
            sys.stderr.write(text)
            sys.stderr.flush()
            shown[0] = max(done, 1)

    return show


_EMULATORS: dict[tuple[str | int, int | None, str | None], EmulatedDevice] = {}


def open_emulator(
    order: str | int = "eager", threads: int | None = None, sums: str | None = None
) -> EmulatedDevice:
    """The emulator with an order, a bound of threads and a way to add; one device for each three of them."""
    made = EmulatedDevice(order, threads, sums)
    with _LOCK:
        return _EMULATORS.setdefault((made.order, made._threads, made._sums), made)
