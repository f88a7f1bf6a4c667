"""GPU memory that goes back to its pool only when every stream that used it is done with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tilewise.devices._gpu_driver import check, driver
from tilewise.errors import ArgumentError

if TYPE_CHECKING:
    from tilewise.devices._gpu_streams import Stream
    from tilewise.devices.gpu import GpuDevice

__all__ = ["Memory", "Pinned"]

_left_behind: list[Any] = []  # what a fork found and must not touch


class Memory:
    """A block of a GPU's memory: our own from the pool, or a foreign one that is kept alive.

    ``streams`` are those that have used it, the one it was allocated on (or imported to) first.
    """

    __slots__ = ("__weakref__", "_buffer", "_lent", "_owner", "device", "freed", "ptr", "streams")

    def __init__(
        self, device: GpuDevice, ptr: int, stream: Stream, buffer: Any = None, owner: Any = None
    ) -> None:
        self.device, self.ptr, self.streams = device, ptr, [stream]
        self._buffer, self._owner = buffer, owner
        self._lent = self.freed = False

    def check(self) -> None:
        """Refuse memory that was freed."""
        if self.freed:
            raise ArgumentError(
                "array", "must not be used after free()", fix="make another with device.empty()"
            )

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

    def lend(self) -> None:
        """Note that another library uses this memory on a stream that cannot be known."""
        self._lent = True

    def free(self) -> None:
        """Give the memory back, in the streams' order; the host waits only if it was lent out."""
        if self.freed:
            return
        self.freed = True
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
        with device._scope(f"freeing memory on {device.name}"):
            if self._lent:
                check(driver().cuCtxSynchronize(), f"freeing memory on {device.name} that was handed out")
            else:
                for other in streams[1:]:
                    streams[0].wait(other)
            buffer.close()

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the process ends, and its memory with it
        try:
            self.free()
        except Exception:
            return  # nobody can catch it here; what is wrong with the GPU is told by the next call


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
            return  # nobody can catch it here
