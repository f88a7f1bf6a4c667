"""GPU memory that goes back to its pool only when every stream that used it is done with it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import TYPE_CHECKING, Any

from tilewise.devices.exchange import LEGACY_STREAM, are_others_capturing
from tilewise.devices.gpu.driver import beside_captures, check, driver
from tilewise.errors import ArgumentError

if TYPE_CHECKING:
    from tilewise.devices.gpu.device import GpuDevice
    from tilewise.devices.gpu.streams import Stream

__all__ = ["Memory", "Pinned", "free_handed_out", "limit_unused"]

_MOST_UNUSED = 1 / 8  # of a GPU's memory, for allocations to come

_making = threading.RLock()
_left_behind: list[Any] = []  # what a fork found and must not touch


def limit_unused(resource: Any, total: int) -> None:
    """Have a pool give back to the driver, when a stream is waited for, what it holds unused beyond a share of all.

    NOTE: else it holds all that there ever was, and other processes find no memory.
    """
    if not hasattr(resource, "attributes"):
        return  # the GPU has no pools
    api = driver()
    name = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    most = api.cuuint64_t(int(total * _MOST_UNUSED))
    check(api.cuMemPoolSetAttribute(resource.handle, name, most), "limiting what a memory pool holds unused")


class Memory:
    """A block of a GPU's memory: our own from the pool, or a foreign one that is kept alive.

    ``streams`` are those that have used it, the one it was allocated on (or imported to) first.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_captured",
        "_lent",
        "_owner",
        "_state",
        "device",
        "freed",
        "ptr",
        "streams",
    )

    def __init__(
        self, device: GpuDevice, ptr: int, stream: Stream, buffer: Any = None, owner: Any = None
    ) -> None:
        self.device, self.ptr, self.streams = device, ptr, [stream]
        self._buffer, self._owner = buffer, owner
        self._lent = self._captured = self.freed = False
        self._state: ctypes.c_uint64 | None = None

    def check(self) -> None:
        """Refuse memory that was freed."""
        if self.freed:
            raise ArgumentError(
                "array", "must not be used after free()", fix="make another with device.empty()"
            )

    @property
    def state(self) -> ctypes.c_uint64:
        """An 8-byte word that short ways to a launch read.

        1 means that a launch on the driver's default stream needs no more care than its address: this memory
        was used on no other stream, is not freed, not handed out and in no graph. Else 0.
        """
        if self._state is None:
            with _making:  # NOTE: compiled calls keep its address: there must be one
                if self._state is None:
                    self._state = ctypes.c_uint64(0)
                    self._write_state()
        return self._state

    @property
    def state_address(self) -> int:
        """The address of :attr:`state`, for compiled calls; the word lives as long as this object."""
        return ctypes.addressof(self.state)

    def _write_state(self) -> None:
        if self._state is not None:
            unusual = self.freed or self._lent or self._captured
            streams = self.streams
            plain = not unusual and len(streams) == 1 and streams[0].handle == LEGACY_STREAM
            self._state.value = int(plain)

    def capture(self) -> None:
        """Note that a graph uses this memory whenever it is replayed."""
        self._captured = True
        self._write_state()

    def use(self, stream: Stream) -> None:
        """Note that ``stream`` is about to use this memory; the first time, it waits for the others."""
        self.check()
        capture = self.device._capturing
        if capture is not None:
            capture.keep(self)  # its launches do the waiting: captured work cannot wait for work outside
        elif stream not in self.streams:
            self.settle(stream)

    def settle(self, stream: Stream) -> None:
        """Let ``stream`` wait for everything that the other streams have done to this memory so far."""
        self.check()
        for other in self.streams:
            if other != stream:
                stream.wait(other)
        if stream not in self.streams:
            self.streams.append(stream)
            self._write_state()

    def lend_to(self, stream: Stream) -> None:
        """Let another library's stream wait for our work on this memory, which is then used there.

        NOTE: its owner may destroy the stream before we free the memory, so it must not be waited for then:
        the memory is freed after a wait for the whole GPU instead.
        """
        known = stream in self.streams
        self.settle(stream)
        if not known and stream.handle != LEGACY_STREAM:
            self.streams.remove(stream)
            self.lend()

    def lend(self) -> None:
        """Note that another library uses this memory on a stream that cannot be known."""
        self._lent = True
        self._write_state()

    def free(self) -> None:
        """Give the memory back, in the streams' order; the host waits only if it was lent out."""
        if self.freed:
            return
        self.freed = True
        self._write_state()
        device, streams, self.streams = self.device, self.streams, []
        buffer, self._buffer = self._buffer, None
        owner, self._owner = self._owner, None
        if device.forked:
            _left_behind.append((buffer, owner))
            return
        if owner is not None:
            # Its own stream knows nothing of our work: it gets the memory back when that is done.
            device._ledger.keep_until_done(owner, streams)
        if buffer is None:
            return
        with device._scope(f"freeing memory on {device.name}"), beside_captures():
            if self._lent:
                device._handed_out.append(buffer)
            else:
                for other in streams[1:]:
                    streams[0].wait(other)
                buffer.close()
            free_handed_out(device)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the process ends, and its memory with it
        try:
            self.free()
        except Exception:
            return  # no caller can catch it here; the next call reports what is wrong with the GPU


def free_handed_out(device: GpuDevice) -> None:
    """Free what others had, once the whole GPU is done with it.

    NOTE: while a graph is captured that wait would end the capture: it is kept until other memory is freed then. What
    another thread adds meanwhile may not be done with.
    """
    count = len(device._handed_out)
    if not count or device._capturing is not None or are_others_capturing():
        return
    check(driver().cuCtxSynchronize(), f"freeing memory on {device.name} that was handed out")
    with contextlib.suppress(IndexError):  # another thread was here
        for _ in range(count):
            device._handed_out.popleft().close()


class Pinned:
    """Page-locked host memory in the form that NumPy takes; NumPy keeps this, and this keeps the memory."""

    def __init__(self, device: GpuDevice, buffer: Any, nbytes: int) -> None:
        self._device, self._buffer = device, buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (int(buffer.handle), False),
        }

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        if self._device.forked:
            _left_behind.append(self._buffer)
            return
        try:
            with self._device._scope("freeing page-locked memory"):  # cuda.core waits for a stream first
                self._buffer.close()
        except Exception:
            return  # no caller can catch it here
