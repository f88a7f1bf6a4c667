"""What the tests of the compiled call share."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.call_stub import (
    CallRecord,
    CallStub,
    CountedLaunch,
    CountingDriver,
    DriverEntries,
    EncodedMap,
    NativeLaunch,
    TensorPattern,
    compact_strides,
    counting_entries,
)
from tilewise.devices.exchange import LEGACY_STREAM
from tilewise.devices.gpu import GpuArray
from tilewise.devices.gpu.driver import NativeEntries
from tilewise.devices.gpu.driver_tensor_map import driver_values
from tilewise.devices.gpu.pool_memory import Memory
from tilewise.devices.strides import contiguous
from tilewise.devices.tensor_map import Description
from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary

GPU = (2, 0)
HALF = (2, 16, 1)
EXCHANGE_NAME = b"dlpack_exchange_api"  # NOTE: a capsule keeps the address alone
DOC = "matmul($module, a, b, *, out=None)\n--\n\nMultiply."


class Slow:
    """The Python path: remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **keywords: Any) -> str:
        self.calls.append((args, keywords))
        return "slow"


A, B, C = 0x10000, 0x20000, 0x30000
POINTERS = NativeLaunch(
    function=7,
    grid=(3, 2, 1),
    block=(128, 1, 1),
    shared=49152,
    cluster=None,
    template=bytes(24) + struct.pack("<i", -5),
    offsets=(0, 8, 16, 24),
    pointers=((0, 0, 0), (8, 1, 32), (16, 2, -16)),
)


def pattern(
    shape: tuple[int, ...], strides: tuple[int, ...] | None = None, alignment: int = 16, **changes: Any
) -> TensorPattern:
    values: dict[str, Any] = {"device": GPU, "dtype": HALF, **changes}
    strides = compact_strides(shape) if strides is None else strides
    return TensorPattern(shape=shape, strides=strides, alignment=alignment, **values)


def encode_counted(encoded: EncodedMap) -> bytes:
    """The 128 bytes that the counting driver makes of a tensor map's arguments."""

    def pad(values: tuple[int, ...], count: int) -> tuple[int, ...]:
        return (*values, *[0] * (count - len(values)))

    address, data_type, sizes, strides, box, steps, *modes = encoded
    return struct.pack(
        "<Q5Q4Q5I5I6B2x", address, *pad(sizes, 5), *pad(strides, 4), *pad(box, 5), *pad(steps, 5),
        data_type, len(sizes), *modes,
    )  # fmt: skip


def exchange_capsule(table: ctypes.Structure) -> Any:
    """The capsule in which a library gives its exchange table away; it lives as long as the table."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return new(ctypes.addressof(table), EXCHANGE_NAME, None)


def python_calls(work: Callable[[], Any]) -> list[str]:
    """The names of the Python functions that run in ``work``, apart from itself."""
    names = []

    def watch(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    collects = gc.isenabled()
    gc.disable()  # which runs callbacks of other libraries, now and then
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return names[1:]


def callback_entries(driver: CountingDriver, launch: Callable[[], int]) -> tuple[DriverEntries, Any]:
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(lambda *_: launch())
    return replace(driver.entries, launch=ctypes.cast(function, ctypes.c_void_p).value or 0), function


class Array:
    """Stands in for a GPU array of our own."""

    __slots__ = ("__weakref__", "before", "description", "live")

    def __init__(
        self,
        data: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = GPU,
        dtype: tuple[int, int, int] = HALF,
        flags: int = 0,
    ) -> None:
        self.live = ctypes.c_uint64(1)
        axes = (*shape, *(compact_strides(shape) if strides is None else strides))
        head = (ctypes.addressof(self.live), data, *device, len(shape), *dtype, flags)
        self.description: bytes | None = struct.pack(f"<QQiiiBBHQ{len(axes)}q", *head, *axes)


class OwnBench:
    """A builtin over arrays of our own, and a counting driver."""

    def __init__(self, slow: Callable[..., Any] | None = None, **arguments: Any) -> None:
        self.slow = Slow()
        self.stub = CallStub("matmul", DOC, slow or self.slow, **arguments)
        self.entered = ctypes.c_uint64(0)
        self.library = self.stub.register_arrays(Array, "description", ctypes.addressof(self.entered))
        self.driver = counting_entries()
        self.matmul = self.stub.function

    def is_fast(self, *args: Any, **keywords: Any) -> bool:
        before = self.driver.launches()
        answer = self.matmul(*args, **keywords)
        fast = self.driver.launches() == before + 1
        assert (answer == "slow") == (not fast)
        return fast


def a_record(bench: OwnBench, **changes: Any) -> CallRecord:
    values: dict[str, Any] = {
        "a": pattern((8, 16)),
        "b": pattern((16, 24)),
        "c": pattern((8, 24)),
        "has_out": True,
        "library": bench.library,
        "entries": bench.driver.entries,
        "context": 0,
        "launches": (POINTERS,),
        "workspace_bytes": 0,
        **changes,
    }
    return CallRecord(**values)


def operands() -> tuple[Array, Array, Array]:
    return Array(A, (8, 16)), Array(B, (16, 24)), Array(C, (8, 24))


class PretendGpu:
    """A GPU without a GPU: what Python starts is remembered, what compiled code starts is counted.

    ``launched`` has Python's launches in the form in which ``driver`` remembers those of compiled code.
    """

    runs_on_gpu, ordinal, name, title, arch, multiprocessors = True, 0, "gpu:0", "NVIDIA H200", "sm_90a", 132
    limits, context_address, forked, _capturing = LaunchLimits(), 0xC0FFEE, False, None

    def __init__(self) -> None:
        self.driver = counting_entries()
        self.functions: dict[Any, int] = {}
        self.launched: list[CountedLaunch] = []
        self.driver.set_context(self.context_address)
        self.current_stream: Any = types.SimpleNamespace(handle=LEGACY_STREAM)
        self.made: list[weakref.ref[GpuArray]] = []
        self.next_address = 0x7F0000000000

    def native_entries(self) -> NativeEntries:
        entries = self.driver.entries
        return NativeEntries(
            entries.launch,
            entries.encode_tiled,
            entries.get_context,
            entries.push_context,
            entries.pop_context,
        )

    def load_for(self, binary: Binary, entry: str, launch: Launch) -> int:
        number = self.functions.setdefault((binary.key, entry), 0x1000 + len(self.functions))
        self.driver.describe_function(number, [one.size for one in binary.entries[entry].parameters])
        return number

    def encode_map(self, described: Description, address: int) -> bytes:
        return encode_counted(EncodedMap(address, *driver_values(described)))

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: Any,
        stream: int | None,
    ) -> None:
        number, shape = self.load_for(binary, entry, launch), (launch.grid, launch.block, launch.shared)
        default = stream in (None, LEGACY_STREAM)  # which the driver knows by 0 as well
        handle = 0 if default else int(stream or 0)
        self.launched.append(
            CountedLaunch(number, *shape, handle, launch.cluster, launch.programmatic, tuple(packed))
        )

    def empty(self, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None) -> GpuArray:
        """An array of ours; its memory is nowhere."""
        dtype = np.dtype(dtype)
        memory: Any = Memory(self, self.next_address, self.current_stream)  # type: ignore[arg-type]
        self.next_address += 0x100000
        made = GpuArray(memory, 0, shape, strides or contiguous(shape, dtype.itemsize), dtype)
        self.made.append(weakref.ref(made))
        return made
