"""What a GPU was given and not waited for since: to name it when it fails, to keep alive what it uses."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from tilewise.errors import DeviceError
from tilewise.launch import Launch

if TYPE_CHECKING:
    from tilewise.devices._gpu_streams import Stream
    from tilewise.devices.gpu import GpuDevice

__all__ = ["Ledger"]


class Ledger:
    """The launches since a stream was last waited for, and the things to keep until an event has passed."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        self._started: dict[Stream, tuple[int, str, tuple[Any, ...] | None]] = {}
        self._pending: deque[tuple[list[Any], Any]] = deque()
        self._lock = threading.RLock()

    @property
    def streams(self) -> list[Stream]:
        """The streams that were given a launch and not waited for since."""
        return list(self._started)

    def note(self, stream: Stream, what: str, launch: Launch | None = None) -> None:
        """Remember the newest launch on a stream: failures are told only later, when waiting."""
        earlier = self._started.pop(stream, (0,))[0]
        # NOTE: not the launch itself, whose arguments would live on.
        shape = None if launch is None else (launch.grid, launch.block, launch.shared, launch.cluster)
        self._started[stream] = (earlier + 1, what, shape)

    def settled(self, stream: Stream | None = None) -> None:
        """Note that a stream, or with None the whole GPU, was waited for."""
        if stream is None:
            self._started.clear()
        else:
            self._started.pop(stream, None)
        self.sweep()

    def running(self) -> str:
        """What the GPU may be doing now, in the words of a message."""
        started = list(self._started.values())
        if not started:
            return "at work"
        _, what, shape = started[-1]
        if shape is not None:
            grid, block, shared, cluster = shape
            what += f" ({Launch(grid, block, shared=shared, cluster=cluster)})"
        others = sum(launches for launches, _, _ in started) - 1
        more = f" or one of {others:,} launches before it" if others else ""
        return f"running {what}{more}"

    def keep_until_done(self, thing: Any, streams: list[Stream]) -> None:
        """Keep ``thing`` alive until these streams have done the work that they were given so far."""
        with self._device._scope(f"recording an event on {self._device.name}"):
            marks = [stream.mark() for stream in streams]
        with self._lock:
            self._pending.append((marks, thing))
        self.sweep()

    def sweep(self) -> None:
        """Let go of what was kept for work that is done."""
        if not self._pending:
            return
        done = []
        doing = f"looking for work that is done on {self._device.name}"
        with contextlib.suppress(DeviceError), self._device._scope(doing), self._lock:
            while self._pending and all(mark.is_done for mark in self._pending[0][0]):
                done.append(self._pending.popleft())
        done.clear()  # NOTE: only here, without the lock: letting go may run other libraries' code
