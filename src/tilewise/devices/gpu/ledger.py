"""Launches on a GPU that no wait has confirmed: to name them in errors, and to keep alive the memory that they use."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tilewise.errors import DeviceError
from tilewise.launch import Dim3, Launch

if TYPE_CHECKING:
    from tilewise.devices.gpu.streams import Stream

__all__ = ["Ledger", "Shape", "launch_of", "shape_of"]

# Grid, block, dynamic shared bytes, cluster, whether it is cooperative, whether it is programmatic.
Shape = tuple[Dim3, Dim3, int, Dim3 | None, bool, bool]
# By a stream's handle: the launches since it was waited for, the newest one's name and shape, and the stream,
# None for another library's that is known by its handle alone.
_Started = tuple[int, str, "Shape | None", "Stream | None"]


def shape_of(launch: Launch) -> Shape:
    """A launch without its arguments, which would live on where it is remembered."""
    how = launch.cooperative, launch.programmatic
    return launch.grid, launch.block, launch.shared, launch.cluster, *how


def launch_of(shape: Shape) -> Launch:
    """The launch of a shape, without its arguments."""
    grid, block, shared, cluster, cooperative, programmatic = shape
    return Launch(grid, block, (), shared, cluster, cooperative, programmatic)


class Ledger:
    """The launches since a stream was last waited for, and the things to keep until an event has passed."""

    def __init__(self, name: str, scope: Callable[[str], AbstractContextManager[None]]) -> None:
        """``scope(doing)`` makes the context of the GPU called ``name`` current."""
        self._name, self._scope = name, scope
        self._started: dict[int, _Started] = {}
        self._pending: deque[tuple[list[Any], Any]] = deque()
        self._lock = threading.RLock()

    @property
    def streams(self) -> list[Stream]:
        """The streams that were given a launch and not waited for since.

        NOTE: without other libraries' streams that were launched on by their bare handle: they may be gone.
        """
        return [stream for _, _, _, stream in list(self._started.values()) if stream is not None]

    def record_launch(
        self, handle: int, stream: Stream | None, what: str, shape: Shape | None = None
    ) -> None:
        """Record the newest launch on a stream: its failure is reported only later, by a wait."""
        earlier = self._started.pop(handle, None)
        if earlier is None:
            self._started[handle] = (1, what, shape, stream)
        else:
            self._started[handle] = (earlier[0] + 1, what, shape, stream or earlier[3])

    def has_launch(self, handle: int) -> bool:
        """Whether a launch on this stream is recorded."""
        return handle in self._started

    def forget_launches(self, stream: Stream | None = None) -> None:
        """Forget the launches of a stream, or with None of the whole GPU, which was waited for."""
        if stream is None:
            self._started.clear()
        else:
            self._started.pop(stream.handle, None)
        self.sweep()

    def running(self) -> str:
        """What the GPU may be running now, for a message."""
        started = list(self._started.values())
        if not started:
            return "at work"
        _, what, shape, _ = started[-1]
        if shape is not None:
            what += f" ({launch_of(shape)})"
        others = sum(item[0] for item in started) - 1
        more = f" or one of {others:,} launches before it" if others else ""
        return f"running {what}{more}"

    def keep_until_done(self, thing: Any, streams: list[Stream]) -> None:
        """Keep ``thing`` alive until these streams have done the work that they were given so far."""
        with self._scope(f"recording an event on {self._name}"):
            marks = [stream.mark() for stream in streams]
        with self._lock:
            self._pending.append((marks, thing))
        self.sweep()

    def sweep(self) -> None:
        """Drop what was kept alive for work that is done."""
        if not self._pending:
            return
        done = []
        doing = f"looking for work that is done on {self._name}"
        with contextlib.suppress(DeviceError), self._scope(doing), self._lock:
            while self._pending and all(mark.is_done for mark in self._pending[0][0]):
                done.append(self._pending.popleft())
        done.clear()  # NOTE: only here, without the lock: letting go may run other libraries' code
