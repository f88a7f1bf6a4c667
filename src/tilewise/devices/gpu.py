"""GPUs: how many there are, and each as a device.

Work is asynchronous. Unless a thread makes another stream current (``with device.stream():``), it goes to
the driver's default stream, where PyTorch, CuPy and Numba work too, so their work and ours is in order
without a word: a kernel may write into a tensor that PyTorch reads next. Who works on another stream of
such a library makes it current here: ``with device.stream(torch.cuda.current_stream()):``. Whatever the
streams, an array that changes hands brings its order along, as DLPack and the CUDA array interface say.

Importing this module imports no CUDA; the driver is started when a GPU is first counted or opened.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.devices import _gpu_exchange as exchange
from tilewise.devices._gpu_arrays import GpuArray
from tilewise.devices._gpu_driver import Context, Scope, check, core, driver, explain, probe
from tilewise.devices._gpu_launch import Programs, start
from tilewise.devices._gpu_ledger import Ledger
from tilewise.devices._gpu_memory import Memory, Pinned
from tilewise.devices._gpu_streams import Event, Graph, Handle, Stream
from tilewise.devices._strides import as_dtype, as_shape, contiguous
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable, integer
from tilewise.launch import Launch, LaunchLimits, check_launch
from tilewise.toolchain.binary import Binary

__all__ = ["Clocks", "Event", "GpuArray", "GpuDevice", "Graph", "Space", "Stream", "count", "open", "why_not"]

_ARCH_SPECIFIC_FROM = (9, 0)  # sm_90a and later have instructions that only their own arch has

_opened: dict[
    tuple[int, int], GpuDevice
] = {}  # by process and ordinal: a forked child must not find its parent's
_lock = threading.RLock()


def count() -> int:
    """How many GPUs can be used; 0 when there is no driver, it is broken, or it finds none. Never raises."""
    return probe()[0]


def why_not() -> str:
    """One line: why no GPU can be used and what to do about it; empty if one can."""
    return probe()[1]


def open(ordinal: int = 0) -> GpuDevice:
    """The GPU with this number, counted from 0; the same object for every caller in this process."""
    ordinal = integer("ordinal", ordinal)
    with _lock:
        found = _opened.get((os.getpid(), ordinal))
        if found is not None:
            return found
        have, why = probe()
        if not have:
            raise DeviceUnavailable(f"there is no GPU to use: {why}")
        if ordinal >= have:
            there = "only gpu:0" if have == 1 else f"gpu:0 to gpu:{have - 1}"
            raise DeviceUnavailable(f"gpu:{ordinal} does not exist: this machine has {there}")
        return _opened.setdefault((os.getpid(), ordinal), GpuDevice(ordinal))


class Space(NamedTuple):
    """Bytes of a GPU's memory. ``free`` counts what our pool holds and would reuse."""

    free: int
    total: int


class Clocks(NamedTuple):
    """The highest clocks in hertz, and how many bits a tick of the memory moves."""

    multiprocessor: int
    memory: int
    memory_bits: int


class GpuDevice:
    """One GPU. Get it from :func:`open`."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal, self.name = ordinal, f"gpu:{ordinal}"
        self._ledger = Ledger(self)
        self._context = Context(ordinal, self._ledger.running)
        self._local = threading.local()
        self._programs = Programs(self)
        with self._scope(f"opening {self.name}"):
            native = self._context.device()
            self.title = str(native.name)
            self._properties = native.properties
            self._capability = tuple(native.compute_capability)
            self._resource = native.memory_resource
        self._default_stream = self.stream(exchange.LEGACY_STREAM)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.title}, {self.arch}>"

    # ── what it is ──

    @property
    def arch(self) -> str:
        """The arch that kernels are compiled for: with its own instructions (``a``) from 9.0 on."""
        major, minor = self._capability
        return f"sm_{major}{minor}{'a' if (major, minor) >= _ARCH_SPECIFIC_FROM else ''}"

    @functools.cached_property
    def limits(self) -> LaunchLimits:
        """What one block may have, as the driver says."""
        return LaunchLimits(
            name=self.title,
            threads_per_block=self._properties.max_threads_per_block,
            shared_bytes_per_block=self._properties.max_shared_memory_per_block_optin,
            clusters=bool(self._properties.cluster_launch),
        )

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors (SMs) it has."""
        return int(self._properties.multiprocessor_count)

    @property
    def clocks(self) -> Clocks:
        """Its highest clocks, as the driver says; what it runs at now is less or equal."""
        had = self._properties
        return Clocks(had.clock_rate * 1000, had.memory_clock_rate * 1000, had.global_memory_bus_width)

    def memory(self) -> Space:
        """How much memory is free and how much there is."""
        with self._scope(f"asking for the free memory of {self.name}"):
            free, total = check(driver().cuMemGetInfo(), f"asking for the free memory of {self.name}")
            pool = getattr(self._resource, "attributes", None)  # absent where the GPU has no pools
            spare = pool.reserved_mem_current - pool.used_mem_current if pool is not None else 0
        return Space(int(free) + max(0, int(spare)), int(total))

    # ── arrays ──

    def empty(self, shape: tuple[int, ...] | int, dtype: npt.DTypeLike) -> GpuArray:
        """An array whose elements are not set."""
        shape, dtype = as_shape(shape), as_dtype(dtype)
        strides = contiguous(shape, dtype.itemsize)
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        return GpuArray(self._allocate(nbytes), 0, shape, strides, dtype)

    def array(self, source: Any) -> GpuArray:
        """A copy of a host array, or a view of an array that lies on this GPU already.

        Another library's array is viewed without a copy, whichever of DLPack and the CUDA array interface
        it speaks: the current stream waits for the work that made it, and the view keeps it alive.
        """
        if isinstance(source, GpuArray):
            if source.device is not self:
                raise self._elsewhere("source", source.device.name)
            return source
        if not isinstance(source, np.ndarray):
            foreign = self._foreign(source)
            if foreign is not None:
                memory = Memory(self, foreign.ptr, self.current_stream, owner=foreign.owner)
                return GpuArray(memory, 0, foreign.shape, foreign.strides, foreign.dtype, foreign.read_only)
        host = np.asarray(source)
        made = self.empty(host.shape, host.dtype)
        made.copy_from(host)
        return made

    def pinned(self, shape: tuple[int, ...] | int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A NumPy array in page-locked host memory: copies to and from it are fast and asynchronous.

        Page-locked memory is taken from the whole machine: use it for staging, not for everything.
        """
        shape, dtype = as_shape(shape), as_dtype(dtype)
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not nbytes:
            return np.empty(shape, dtype)
        with self._scope(f"taking {nbytes:,} bytes of page-locked host memory"):
            buffer = core().LegacyPinnedMemoryResource().allocate(nbytes)
        return np.asarray(Pinned(self, buffer, nbytes)).view(dtype).reshape(shape)

    def _allocate(self, nbytes: int) -> Memory:
        # A captured stream would allocate inside the graph; arrays are made outside, on the default stream.
        stream = self.current_stream if self._capturing is None else self._default_stream
        if not nbytes:
            return Memory(self, 0, stream)
        buffer = self._take(nbytes, stream)
        if buffer is None and self._capturing is None:
            self.synchronize()  # what was freed in stream order is free for other streams then
            buffer = self._take(nbytes, stream)
        if buffer is None:
            full, (free, total) = driver().CUresult.CUDA_ERROR_OUT_OF_MEMORY, self.memory()
            figures = f"{free:,} of its {total:,} bytes are free"
            raise DeviceError(explain(full, f"allocating {nbytes:,} bytes on {self.name}", figures))
        made = Memory(self, int(buffer.handle), stream, buffer=buffer)
        if self._capturing is not None:
            self._capturing.keep(made)
        return made

    def _take(self, nbytes: int, stream: Stream) -> Any:
        """Memory from the pool; None if there is not enough."""
        try:
            with self._scope(f"allocating {nbytes:,} bytes on {self.name}"):
                return self._resource.allocate(nbytes, stream=stream._native)
        except DeviceError as error:
            # NOTE: cuda-core 1.0 does not pass on the driver's own name for it.
            if "CUDA_ERROR_OUT_OF_MEMORY" in str(error) or "Failed to allocate" in str(error):
                return None
            raise

    def _elsewhere(self, argument: str, where: str) -> ArgumentError:
        fix = f"copy it there: tw.device({self.name!r}).array(x.numpy())"
        return ArgumentError(argument, f"must lie on {self.name}, but lies on {where}", None, fix)

    # ── arrays of other libraries ──

    def _foreign(self, source: Any) -> exchange.Foreign | None:
        """The GPU array that ``source`` describes, its work ordered before ours; None if it is a host's."""
        stream = self.current_stream
        if hasattr(source, "__dlpack_device__") and hasattr(source, "__dlpack__"):
            kind, ordinal = source.__dlpack_device__()
            if int(kind) in (exchange.CUDA, exchange.CUDA_MANAGED):
                self._refuse_in_capture("taking an array over")
                if int(ordinal) != self.ordinal:
                    raise self._elsewhere("source", f"gpu:{int(ordinal)}")
                return exchange.from_capsule(exchange.request(source, stream.handle), source)
            return None
        described = getattr(source, "__cuda_array_interface__", None)
        if described is None:
            return None
        self._refuse_in_capture("taking an array over")
        foreign, producer = exchange.from_interface(described, source)
        if foreign.ptr and 0 not in foreign.shape:
            self._lies_here(foreign.ptr)
        if producer is not None and producer != stream.handle:
            stream.wait(self.stream(producer))
        return foreign

    def _lies_here(self, ptr: int) -> None:
        cuda, doing = driver(), "asking where an array lies"
        with self._scope(doing):
            which = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
            status, ordinal = cuda.cuPointerGetAttribute(which, ptr)
        if int(status):
            raise ArgumentError("source", "must lie in a GPU's memory", hex(ptr))
        if int(ordinal) != self.ordinal:
            raise self._elsewhere("source", f"gpu:{int(ordinal)}")

    # ── streams ──

    @property
    def current_stream(self) -> Stream:
        """Where this thread's work goes: the innermost ``with stream:``, else the driver's default stream."""
        entered = self._current
        return entered[-1] if entered else self._default_stream

    def stream(self, other: Any = None) -> Stream:
        """A new stream, or another library's as one of ours (with ``__cuda_stream__``, or a bare handle)."""
        if isinstance(other, Stream):
            if other.device is not self:
                raise ArgumentError("stream", f"must belong to {self.name}", other)
            return other
        if other is not None and not hasattr(other, "__cuda_stream__"):
            handle = getattr(other, "cuda_stream", other)  # torch had no protocol at first
            if isinstance(handle, bool) or not isinstance(handle, int):
                raise ArgumentError("stream", "must be another library's CUDA stream", type(other).__name__)
            other = Handle(handle, other)
        with self._scope(f"making a stream on {self.name}"):
            made = Stream(self, self._context.device().create_stream(other))
            # The driver's default streams belong to whichever GPU is current.
            foreign = other is not None and made.handle > exchange.THREAD_STREAM
            if foreign and made._native.device.device_id != self.ordinal:
                raise ArgumentError("stream", f"must belong to {self.name}", made._native.device)
            return made

    def capture(self) -> Graph:
        """``with device.capture() as graph:`` captures launches and runs none; see :class:`Graph`."""
        return Graph(self)

    @property
    def _current(self) -> list[Stream]:
        try:
            entered: list[Stream] = self._local.streams
        except AttributeError:
            entered = self._local.streams = []
        return entered

    @property
    def _capturing(self) -> Graph | None:
        return getattr(self._local, "capture", None)

    def _refuse_in_capture(self, what: str) -> None:
        if self._capturing is not None:
            raise ArgumentError(
                "capture", f"must not contain {what}", fix="do it before or after the with block"
            )

    # ── launches ──

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        """Start a launch on the current stream; with ``timeout``, wait that many seconds for it.

        The arrays that it uses are those in ``launch.args`` and those whose ``ptr`` was taken for it.
        NOTE: a GPU cannot be interrupted. When the time is over this raises, and the kernel runs on.
        """
        if timeout is not None:
            self._refuse_in_capture("a launch with a timeout")
        stream = self.current_stream
        for i, value in enumerate(launch.args):
            if isinstance(value, GpuArray):
                if value.device is not self:
                    raise self._elsewhere(f"args[{i}]", value.device.name)
                value._memory.use(stream)
        with self._scope(f"launching kernel {entry!r} on {self.name}"):
            function = self._programs.function(binary, entry)
            check_launch(launch, self.limits, function.static)
            function.check(launch, packed)
            start(function, launch, packed, stream)
        if self._capturing is None:
            self._ledger.note(stream, f"kernel {entry!r}", launch)
        if timeout is not None:
            stream.synchronize(timeout)

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for everything that was started on this GPU; raise what went wrong meanwhile.

        ``timeout`` is in seconds. NOTE: a GPU cannot be interrupted; when the time is over this raises, and
        the work goes on.
        """
        self._refuse_in_capture("synchronize()")
        if timeout is not None:
            deadline = time.monotonic() + timeout
            for stream in {self.current_stream, *self._ledger.streams}:
                stream.synchronize(max(0.0, deadline - time.monotonic()))
            return
        with self._waiting():
            check(driver().cuCtxSynchronize(), f"{self._ledger.running()} on {self.name}")
        self._ledger.settled()

    def time(self, function: Callable[[], Any], repeat: int = 10) -> list[float]:
        """Seconds that each of ``repeat`` calls of ``function`` took on the GPU's own clock.

        The calls go to the current stream one after the other. What a call starts counts from when the
        GPU is ready for it, so where launching takes longer than the kernel, the launching is what is timed.
        """
        repeat = integer("repeat", repeat, least=1)
        self._refuse_in_capture("time()")
        stream = self.current_stream
        marks = []
        for _ in range(repeat):
            begin = stream.record()
            function()
            marks.append((begin, stream.record()))
        stream.synchronize()
        return [end.elapsed_ms(begin) / 1000 for begin, end in marks]

    # ── what other parts of this device need ──

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that opened the GPU, and so cannot use it."""
        return self._context.process != os.getpid()

    def _scope(self, doing: str) -> Scope:
        return self._context.scope(doing)

    def _waiting(self) -> Scope:
        return self._context.scope(f"{self._ledger.running()} on {self.name}")
