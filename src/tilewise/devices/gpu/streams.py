"""Streams order work, events mark points in it, graphs replay it."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tilewise.devices.exchange import LEGACY_STREAM
from tilewise.devices.gpu.driver import ContextScope, core
from tilewise.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from tilewise.devices.gpu.device import GpuDevice
    from tilewise.devices.gpu.pool_memory import Memory

__all__ = ["Event", "Graph", "Handle", "Stream", "streams_entered"]

_NAP_MOST = 0.005  # seconds between two looks at an event

# How many ``with stream:`` blocks and captures are in force, in all threads together. Compiled calls read the
# word at its address: 0 means that every device's current stream is the driver's default one.
streams_entered = ctypes.c_uint64(0)
_entering = threading.Lock()


def _unlock() -> None:
    """In a forked child: replace the lock that a thread of the parent may have held."""
    global _entering
    _entering = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def _enter(stream: Stream) -> None:
    """Make a stream the current one of its device in this thread."""
    with _entering:
        streams_entered.value += 1
    stream.device._current.append(stream)


def _leave(device: GpuDevice) -> None:
    """Make the stream current again that was before the last :func:`_enter` of this thread."""
    device._current.pop()
    with _entering:
        streams_entered.value -= 1


class Stream:
    """Work given to one stream runs in the order it was given; different streams run side by side.

    ``with stream:`` makes it the current one of its device in this thread: launches, copies and
    allocations inside the block go to it. Two streams know nothing of each other: order them with
    :meth:`record` and :meth:`wait`; the driver's default stream is no exception, for streams made here do
    not wait for it. Memory is looked after: what a stream uses for the first time was
    allocated before, and memory is reused only when every stream that used it is done with it.
    """

    __slots__ = ("_native", "device", "driver_handle", "handle", "raw")

    def __init__(self, device: GpuDevice, native: Any) -> None:
        self.device, self._native = device, native
        self.raw = native.handle
        # The driver's default stream is 0 to the driver and 1 to DLPack and the CUDA array interface.
        self.driver_handle = int(self.raw)
        self.handle = self.driver_handle or LEGACY_STREAM

    def __enter__(self) -> Stream:
        _enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _leave(self.device)

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} of {self.device.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other.device, other.handle) == (self.device, self.handle)

    def __hash__(self) -> int:
        return hash((self.device.ordinal, self.handle))

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which other libraries take a stream as theirs."""
        return 0, self.handle

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for everything that was given to this stream, for at most ``timeout`` seconds."""
        self.device._refuse_in_capture("synchronize()")
        with self.device._waiting():
            if timeout is None:
                self._native.sync()
            else:
                await_event(self._native.record(), timeout, self.device)
        self.device._ledger.forget_launches(self)

    def record(self) -> Event:
        """Mark this point of the stream; the mark can be waited for and timed."""
        with self.device._scope(f"recording an event on {self.device.name}"):
            return Event(self.device, self._native.record(options=core().EventOptions(timing_enabled=True)))

    def wait(self, other: Event | Stream) -> None:
        """Let what is given to this stream from now on wait for an event, or for a stream's work so far.

        The host does not wait.
        """
        if not isinstance(other, Event | Stream):
            raise ArgumentError("other", "must be an event or a stream", type(other).__name__)
        if isinstance(other, Stream):
            with other.device._scope(f"recording an event on {other.device.name}"):
                awaited = other._native.record()
        else:
            awaited = other._native
        with self.device._scope(f"making a stream of {self.device.name} wait"):
            self._native.wait(awaited)

    def mark(self) -> Any:
        """cuda.core's event at this point, untimed; for keeping things alive until it has passed."""
        return self._native.record()


class Handle:
    """A bare stream handle in the form that cuda.core takes; keeps the handle's owner alive."""

    __slots__ = ("_handle", "_owner")

    def __init__(self, handle: int, owner: Any) -> None:
        self._handle, self._owner = handle, owner

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


class Event:
    """A point in a stream's work."""

    __slots__ = ("_native", "device")

    def __init__(self, device: GpuDevice, native: Any) -> None:
        self.device, self._native = device, native

    def __repr__(self) -> str:
        return f"<tilewise.Event of {self.device.name}>"

    @property
    def done(self) -> bool:
        """Whether the work before this point is finished."""
        with self.device._waiting():
            return bool(self._native.is_done)

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait until the work before this point is finished, for at most ``timeout`` seconds."""
        self.device._refuse_in_capture("synchronize()")
        with self.device._waiting():
            if timeout is None:
                self._native.sync()
            else:
                await_event(self._native, timeout, self.device)

    def elapsed_ms(self, since: Event) -> float:
        """Milliseconds on the GPU's clock from ``since`` to here; waits for this point."""
        if not isinstance(since, Event) or since.device is not self.device:
            raise ArgumentError("since", f"must be an event of {self.device.name}", since)
        self.synchronize()
        with self.device._scope(f"timing on {self.device.name}"):
            return float(self._native - since._native)


def await_event(event: Any, timeout: float, device: GpuDevice) -> None:
    """Wait for cuda.core's ``event`` with a deadline.

    NOTE: a GPU cannot be interrupted. After the deadline the work goes on, and only the end of the
    process stops it.
    """
    deadline, nap = time.monotonic() + timeout, 0.00002
    while not event.is_done:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeviceError(
                f"{device.name} is still {device._ledger.running()} after {timeout:g} s; a GPU cannot be "
                "interrupted: wait longer with synchronize(), or end this process to stop it"
            )
        time.sleep(min(nap, left))
        nap = min(nap * 1.5, _NAP_MOST)


class Graph:
    """Work that was captured once and is replayed with one call.

    ``with device.capture() as graph:`` captures the launches inside the block on a stream of their own,
    without running them; ``graph.launch()`` then runs them on the current stream, as often as wanted.
    Every array that the launches use is kept alive by the graph. Arrays made with ``empty`` inside the
    block are allocated at once and belong to the graph's memory; host copies and waiting belong outside.
    """

    def __init__(self, device: GpuDevice) -> None:
        self.device = device
        self._kept: dict[int, Memory] = {}
        self._host: list[Any] = []
        self._native: Any = None
        self._builder: Any = None
        self._stream: Stream | None = None

    def __enter__(self) -> Graph:
        device = self.device
        if self._native is not None or self._builder is not None:
            raise ArgumentError("graph", "must be captured once", fix="make another with device.capture()")
        device._refuse_in_capture("capture()")
        self._stream = device.stream()
        with self._scope("starting a capture"):
            self._builder = self._stream._native.create_graph_builder()
            # Relaxed: loading code and allocating on other streams stay possible meanwhile.
            self._builder.begin_building("relaxed")
        _enter(self._stream)
        device._local.capture = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.device._local.capture = None
        _leave(self.device)
        try:
            with self._scope("ending a capture"):
                if error is None:
                    self._native = self._builder.end_building().complete()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        builder, self._builder, self._stream = self._builder, None, None
        try:
            with self._scope("closing a capture"):
                builder.close()
        except DeviceError:
            pass  # a capture that went wrong says so twice; the first time was enough

    def keep(self, memory: Memory) -> None:
        """Remember memory that the captured work uses."""
        self._kept[id(memory)] = memory
        memory.capture()

    def keep_host(self, array: Any) -> None:
        """Remember page-locked host memory that the captured work uses."""
        self._host.append(array)

    def launch(self) -> None:
        """Run what was captured, on the current stream; the host does not wait."""
        stream = self._ready("launch")
        for memory in self._kept.values():
            memory.use(stream)
        with self._scope("launching a graph"):
            self._native.launch(stream._native)
        self.device._ledger.record_launch(stream.handle, stream, "a captured graph")

    def upload(self) -> None:
        """Bring the graph to the GPU before its first launch, so that the first costs no more than others."""
        stream = self._ready("upload")
        with self._scope("uploading a graph"):
            self._native.upload(stream._native)

    def _ready(self, what: str) -> Stream:
        if self._native is None:
            raise ArgumentError(
                "graph", f"must be captured before {what}()", fix="leave its with block first"
            )
        self.device._refuse_in_capture(f"graph.{what}()")
        return self.device.current_stream

    def _scope(self, doing: str) -> ContextScope:
        return self.device._scope(f"{doing} on {self.device.name}")
