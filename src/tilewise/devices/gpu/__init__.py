"""GPUs: how many there are, and each as a device.

Work is asynchronous. Unless a thread makes another stream current (``with device.stream():``), it goes to
the driver's default stream, where PyTorch, CuPy and Numba work too, so their work and ours is in order
without a word: a kernel may write into a tensor that PyTorch reads next. Who works on another stream of
such a library makes it current here: ``with device.stream(torch.cuda.current_stream()):``. Whatever the
streams, an array that changes hands brings its order along, as DLPack and the CUDA array interface say.

Importing this package imports no CUDA; the driver is started when a GPU is first counted or opened.
"""

from __future__ import annotations

import ctypes

from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.gpu.device import Clocks, GpuDevice, MemorySize, count, find_gpu, open, why_not
from tilewise.devices.gpu.streams import Event, Graph, Stream, streams_entered

__all__ = [
    "Clocks",
    "Event",
    "GpuArray",
    "GpuDevice",
    "Graph",
    "MemorySize",
    "Stream",
    "count",
    "find_gpu",
    "open",
    "streams_entered_address",
    "why_not",
]


def streams_entered_address() -> int:
    """The address of the word that counts ``with stream:`` blocks in force; compiled calls read it."""
    return ctypes.addressof(streams_entered)
