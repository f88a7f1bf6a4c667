"""One GPU as a device, and finding those that there are."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.devices import exchange
from tilewise.devices.gpu import driver_tensor_map
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.gpu.driver import (
    Context,
    ContextScope,
    NativeEntries,
    beside_captures,
    check,
    core,
    driver,
    explain,
    find_native_entries,
    probe,
)
from tilewise.devices.gpu.launches import ArgumentBlock, Function, Launcher, Programs, launcher, start
from tilewise.devices.gpu.ledger import Ledger
from tilewise.devices.gpu.pool_memory import Memory, Pinned, free_handed_out, limit_unused
from tilewise.devices.gpu.streams import Graph, Handle, Stream, streams_entered
from tilewise.devices.seam import Device
from tilewise.devices.strides import as_dtype, as_shape, contiguous
from tilewise.devices.tensor_map import Description
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable, integer
from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary

__all__ = ["Clocks", "GpuDevice", "MemorySize", "count", "find_gpu", "open", "why_not"]

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


def find_gpu(address: int) -> GpuDevice:
    """The GPU that has an address in its memory."""
    first = open(0)
    return first if count() == 1 else open(first.find_ordinal(address))


class MemorySize(NamedTuple):
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

    runs_on_gpu = True

    def __init__(self, ordinal: int) -> None:
        self.ordinal, self.name = ordinal, f"gpu:{ordinal}"
        self._ledger = Ledger(self.name, self._scope)
        self._context = Context(ordinal, self._ledger.running)
        self._local = threading.local()
        self._handed_out: deque[Any] = deque()  # buffers that others had: see free_handed_out
        with self._scope(f"opening {self.name}"):
            native = self._context.device()
            self.title = str(native.name)
            self._properties = native.properties
            self._capability = tuple(native.compute_capability)
            self._resource = native.memory_resource
            limit_unused(self._resource, int(check(driver().cuMemGetInfo(), f"opening {self.name}")[1]))
        self._programs = Programs(self.name, self.arch, self._scope)
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

    def memory(self) -> MemorySize:
        """How much memory is free and how much there is."""
        with self._scope(f"asking for the free memory of {self.name}"):
            free, total = check(driver().cuMemGetInfo(), f"asking for the free memory of {self.name}")
            pool = getattr(self._resource, "attributes", None)  # absent where the GPU has no pools
            spare = pool.reserved_mem_current - pool.used_mem_current if pool is not None else 0
        return MemorySize(int(free) + max(0, int(spare)), int(total))

    def shares_memory_with(self, other: Device) -> bool:
        """Whether an array of ``other`` is one of this device as it is: each GPU has its own memory."""
        return other is self

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
            with self._scope(f"allocating {nbytes:,} bytes on {self.name}"), beside_captures():
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
        ordinal = self.find_ordinal(ptr)
        if ordinal != self.ordinal:
            raise self._elsewhere("source", f"gpu:{ordinal}")

    def find_ordinal(self, address: int) -> int:
        """The number of the GPU, this one or another, that has an address in its memory."""
        cuda, doing = driver(), "asking where an array lies"
        with self._scope(doing):
            which = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
            status, ordinal = cuda.cuPointerGetAttribute(which, address)
        if int(status):
            raise ArgumentError("source", "must lie in a GPU's memory", hex(address))
        return int(ordinal)

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

    def load(self, binary: Binary, entry: str) -> Function:
        """The kernel ``entry`` of a binary, loaded on first use."""
        return self._programs.function(binary, entry)

    def load_for(self, binary: Binary, entry: str, launch: Launch) -> int:
        """The CUfunction of a kernel that was checked and made ready for a launch, for compiled code to start."""
        function = self.load(binary, entry)
        with self._scope(function.launching):
            function.configure(launch, self.limits, 0)
        return function.address

    def variable(self, binary: Binary, symbol: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> GpuArray:
        """A module's variable, ``symbol`` in its PTX, as an array over its memory."""
        kind = as_dtype(dtype)
        address, nbytes = self._programs.variable(binary, symbol)
        wanted = int(np.prod(shape, dtype=object)) * kind.itemsize
        if nbytes != wanted:
            raise DeviceError(
                f"the variable {symbol} has {nbytes:,} bytes on {self.name}, and {wanted:,} in its PTX"
            )
        memory = Memory(self, address, self.current_stream, owner=binary)
        return GpuArray(memory, 0, tuple(shape), contiguous(shape, kind.itemsize), kind)

    def encode_map(self, described: Description, address: int) -> bytes:
        """The 128 bytes by which kernels here know an array at ``address``, made by the driver."""
        return driver_tensor_map.encode(self.name, self.arch, self._scope, described, address)

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        stream: int | None = None,
    ) -> None:
        """Start a launch on the current stream; with ``timeout``, wait that many seconds for it.

        The arrays that it uses are those in ``launch.args`` and those whose ``ptr`` was taken for it.
        ``stream`` is another library's CUstream to launch on instead.
        NOTE: a GPU cannot be interrupted. When the time is over this raises, and the kernel runs on.
        """
        if timeout is not None:
            self._refuse_in_capture("a launch with a timeout")
        for i, value in enumerate(launch.args):
            if isinstance(value, GpuArray):
                if value.device is not self:
                    raise self._elsewhere(f"args[{i}]", value.device.name)
                if stream is None:
                    value._memory.use(self.current_stream)
                else:
                    value._memory.lend_to(self._stream_of(stream))
        function = self.load(binary, entry)
        block = function.take_block(packed)
        self.launch_block(function, launch, block.pointers, stream)
        function.give_back(block)
        if timeout is not None:
            self._stream_of(stream).synchronize(timeout)

    def prepare(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], arrays: Sequence[Any] = ()
    ) -> Callable[[], None]:
        """The launch with its arguments laid out, to be started as often as wanted; see :class:`PreparedLaunch`."""
        function = self.load(binary, entry)
        block = function.take_block(packed)  # NOTE: never given back: it is the prepared launch's own
        return PreparedLaunch(self, function, launch, block, [x for x in arrays if isinstance(x, GpuArray)])

    def order_streams(self, handles: Sequence[int | None]) -> Callable[[], None]:
        """Let the first of some streams wait for the others; calling the result lets these wait for the first."""
        first, *others = [self._stream_of(handle) for handle in handles]
        for other in others:
            first.wait(other)

        def let_others_wait() -> None:
            for other in others:
                other.wait(first)

        return let_others_wait

    def is_capturing(self, handle: int | None) -> bool:
        """Whether what is given to another library's stream, or to the current one for None, becomes part of a graph.

        The driver refuses to say so of its default stream while another stream is captured that it would wait for.
        """
        status, found, *_ = driver().cuStreamIsCapturing(self._stream_of(handle).raw)
        nothing = driver().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return bool(int(status) != 0 or found != nothing)

    def _stream_of(self, handle: int | None) -> Stream:
        """Another library's stream by its handle as one of ours; the current one for None."""
        return self.current_stream if handle is None else self.stream(handle or exchange.LEGACY_STREAM)

    def launch_block(
        self, function: Function, launch: Launch, pointers_address: int, stream_handle: int | None = None
    ) -> None:
        """Start a launch whose arguments lie ready: ``pointers_address`` is where the pointers to them are.

        ``stream_handle`` is another library's CUstream; None is our current stream. The caller sees to it
        that the arguments have the kernel's sizes and that the memory behind them may be used there:
        ``launch.args`` is not looked at. NOTE: work on a stream known by its handle alone is waited for by
        ``synchronize()``, but not by ``synchronize(timeout)``.
        """
        stream = None
        if stream_handle is None:
            stream = self.current_stream
            stream_handle = stream.driver_handle
        with self._scope(function.launching):
            configuration = function.configure(launch, self.limits, stream_handle)
            start(self._launch_kernel, function, configuration, pointers_address)
        if self._capturing is None:
            handle = stream_handle or exchange.LEGACY_STREAM
            self._ledger.record_launch(handle, stream, function.label, configuration.shape)

    @functools.cached_property
    def _launch_kernel(self) -> Launcher:
        return launcher(self.native_entries().launch_kernel_ex)

    def native_entries(self) -> NativeEntries:
        """Addresses of the driver's functions, for compiled code that calls them by itself."""
        return self._native_entries

    @functools.cached_property
    def _native_entries(self) -> NativeEntries:
        with self._scope(f"looking for the driver's functions on {self.name}"):
            return find_native_entries()

    @property
    def context_address(self) -> int:
        """The CUcontext handle that must be current when compiled code launches kernels here."""
        return self._context.address

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
            free_handed_out(self)
        self._ledger.forget_launches()

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

    def _scope(self, doing: str) -> ContextScope:
        return self._context.scope(doing)

    def _waiting(self) -> ContextScope:
        return self._context.scope(f"{self._ledger.running()} on {self.name}")


class PreparedLaunch:
    """A launch whose arguments lie ready, started by calling it: on the stream that is current then.

    ``arrays`` are those that it uses: they are kept alive, and their memory records its use on the stream.
    """

    __slots__ = (
        "_arrays",
        "_block",
        "_configuration",
        "_device",
        "_function",
        "_is_current",
        "_launch",
        "_start",
        "_states",
    )

    def __init__(
        self,
        device: GpuDevice,
        function: Function,
        launch: Launch,
        block: ArgumentBlock,
        arrays: list[GpuArray],
    ) -> None:
        self._device, self._function, self._launch = device, function, launch
        self._block, self._arrays = block, arrays
        with device._scope(function.launching):
            self._configuration = function.configure(launch, device.limits, 0)
        self._is_current = device._context.quick_check(device.native_entries().ctx_get_current)
        self._states = [array._memory.state for array in arrays]
        self._start = functools.partial(
            device._launch_kernel, self._configuration.address, function.address, block.pointers, None
        )

    def __call__(self) -> None:
        # The short way: the default stream is current, as is the GPU's context, and no memory was used elsewhere.
        if streams_entered.value or not self._is_current():
            return self._start_with_care()
        for state in self._states:
            if not state.value:
                return self._start_with_care()
        if self._start():
            return self._start_with_care()  # says what is wrong
        ledger = self._device._ledger
        if not ledger.has_launch(exchange.LEGACY_STREAM):
            ledger.record_launch(
                exchange.LEGACY_STREAM, None, self._function.label, self._configuration.shape
            )
        return None

    def _start_with_care(self) -> None:
        for array in self._arrays:
            array._memory.use(self._device.current_stream)
        self._device.launch_block(self._function, self._launch, self._block.pointers)
