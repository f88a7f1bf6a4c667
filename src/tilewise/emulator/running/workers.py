"""Threads that run blocks, kept from launch to launch: starting one takes longer than a small launch does."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["start"]

_MOST_IDLE = 64

Job = Callable[[], None]


class _Worker(threading.Thread):
    """A thread that does one job after another. A job must not raise."""

    def __init__(self) -> None:
        super().__init__(name="tilewise emulator", daemon=True)
        self.jobs: SimpleQueue[tuple[Job, Job]] = SimpleQueue()

    def run(self) -> None:
        while True:
            job, ended = self.jobs.get()
            job()
            # NOTE: first idle, then ended: a thread that waits for the end may start the next job at once.
            stays = len(_IDLE) < _MOST_IDLE
            if stays:
                _IDLE.append(self)
            ended()
            del job, ended  # what they refer to is not kept until the next job comes
            if not stays:
                return


_IDLE: deque[_Worker] = deque()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # the threads stay with the parent


def start(job: Job, ended: Job) -> None:
    """Do ``job`` on a thread of its own, then call ``ended`` there."""
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.jobs.put((job, ended))
