"""A GPU whose memory is the host's: its driver copies at once, and writes down what it is asked.

Everything above the driver and cuda.core is the real thing. Addresses are true ones, and each copy is refused whose two
sides are not what its name says: memory of the GPU that was allocated and not freed, or else the host's.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tilewise.devices.gpu import arrays, pool_memory, streams
from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu.device import GpuDevice

TOTAL, FREE = 8000, 3000  # bytes, as the driver says of each GPU


class Buffer:
    """Memory of a GPU, or page-locked memory of the host."""

    def __init__(self, driver: PretendedDriver, nbytes: int, ordinal: int | None) -> None:
        self.driver, self.nbytes, self.ordinal = driver, nbytes, ordinal
        self._bytes = (ctypes.c_ubyte * nbytes)()
        self.handle = ctypes.addressof(self._bytes)
        driver.buffers.append(self)

    def close(self) -> None:
        self.driver.buffers.remove(self)


class NativeStream:
    """cuda.core's stream of a GPU; its events are done at once, each a second after the one before."""

    def __init__(self, driver: PretendedDriver, ordinal: int, handle: int) -> None:
        self.driver, self.handle = driver, handle
        self.device = SimpleNamespace(device_id=ordinal)

    def record(self, options: Any = None) -> NativeEvent:
        return NativeEvent(self.handle, next(self.driver.clock))

    def wait(self, event: NativeEvent) -> None:
        self.driver.told.append(f"{self.handle} waits for {event.handle}")

    def sync(self) -> None:
        self.driver.told.append(f"host waits for {self.handle}")


class NativeEvent:
    """A point in a stream's work."""

    is_done = True

    def __init__(self, handle: int, at: int) -> None:
        self.handle, self.at = handle, at

    def sync(self) -> None: ...

    def __sub__(self, other: NativeEvent) -> float:
        return 1000.0 * (self.at - other.at)


class PretendedDriver:
    """``cuda.bindings.driver`` and ``cuda.core`` in one, for two GPUs; names that are no calls are the real ones."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.buffers: list[Buffer] = []
        self.clock, self.handles = itertools.count(), itertools.count(0x100)
        self.current = 0  # context
        self.properties = SimpleNamespace(
            max_threads_per_block=1024, max_shared_memory_per_block_optin=2048, cluster_launch=1,
            multiprocessor_count=12, clock_rate=1500, memory_clock_rate=2500, global_memory_bus_width=384,
        )  # fmt: skip
        self.pool: Any = SimpleNamespace(
            handle=77,
            attributes=SimpleNamespace(reserved_mem_current=500, used_mem_current=100),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(_REAL, name)

    def open(self, ordinal: int) -> GpuDevice:
        return GpuDevice(ordinal)

    def taken_back(self) -> list[str]:
        """What was told since this was asked last."""
        told, self.told[:] = list(self.told), []
        return told

    # ── cuda.core ──

    def Device(self, ordinal: int) -> Any:  # noqa: N802  # cuda.core's name
        def enter() -> None:
            self.current = 10 + ordinal

        def allocate(nbytes: int, stream: NativeStream) -> Buffer:
            return Buffer(self, nbytes, ordinal)

        def create_stream(other: Any = None) -> NativeStream:
            handle = next(self.handles) if other is None else other.__cuda_stream__()[1]
            return NativeStream(self, getattr(other, "ordinal", ordinal), handle)

        self.pool.allocate = allocate
        return SimpleNamespace(
            name="a GPU", properties=self.properties, compute_capability=(9, 0), memory_resource=self.pool,
            set_current=enter, create_stream=create_stream,
        )  # fmt: skip

    def LegacyPinnedMemoryResource(self) -> Any:  # noqa: N802
        return SimpleNamespace(allocate=lambda nbytes: Buffer(self, nbytes, None))

    def EventOptions(self, timing_enabled: bool) -> bool:  # noqa: N802
        return timing_enabled

    # ── the driver ──

    def cuCtxGetCurrent(self) -> tuple[int, int]:  # noqa: N802
        return 0, self.current

    def cuCtxSetCurrent(self, handle: int) -> None:  # noqa: N802
        self.current = handle

    def cuCtxPushCurrent(self, handle: int) -> tuple[int]:  # noqa: N802
        self.current = handle
        return (0,)

    def cuCtxPopCurrent(self) -> None:  # noqa: N802
        self.current = 0

    def cuCtxSynchronize(self) -> tuple[int]:  # noqa: N802
        self.told.append("host waits for all")
        return (0,)

    def cuMemGetInfo(self) -> tuple[int, int, int]:  # noqa: N802
        return 0, FREE, TOTAL

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[int, Any]:  # noqa: N802
        return 0, mode

    def cuMemPoolSetAttribute(self, pool: int, name: Any, value: Any) -> tuple[int]:  # noqa: N802
        self.told.append(f"pool {pool} {name.name} {int(value)}")
        return (0,)

    def cuPointerGetAttribute(self, which: Any, address: int) -> tuple[int, Any]:  # noqa: N802
        assert self.current, "a context must be current"
        for buffer in self.buffers:
            if buffer.handle <= address < buffer.handle + buffer.nbytes:
                if which == _REAL.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                    return 0, buffer.ordinal
                kind = _REAL.CUmemorytype
                return 0, kind.CU_MEMORYTYPE_HOST if buffer.ordinal is None else kind.CU_MEMORYTYPE_DEVICE
        return 1, None

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, raw: int) -> tuple[int]:  # noqa: N802
        return self._copy(raw, (target, True), (source, False), size)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, raw: int) -> tuple[int]:  # noqa: N802
        return self._copy(raw, (target, False), (source, True), size)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, raw: int) -> tuple[int]:  # noqa: N802
        return self._copy(raw, (target, True), (source, True), size)

    def cuMemcpy2DAsync(self, how: Any, raw: int) -> tuple[int]:  # noqa: N802
        here = _REAL.CUmemorytype.CU_MEMORYTYPE_DEVICE
        to, from_ = how.dstMemoryType == here, how.srcMemoryType == here
        target = int(how.dstDevice) if to else how.dstHost
        source = int(how.srcDevice) if from_ else how.srcHost
        assert min(how.dstPitch, how.srcPitch) >= how.WidthInBytes and how.Height > 1
        for row in range(how.Height):
            places = (target + row * how.dstPitch, to), (source + row * how.srcPitch, from_)
            self._copy(raw, *places, how.WidthInBytes)
        return (0,)

    def _copy(self, raw: int, to: tuple[int, bool], from_: tuple[int, bool], size: int) -> tuple[int]:
        assert self.current, "a context must be current"
        for address, is_own in (to, from_):
            inside = [one for one in self.buffers if one.ordinal is not None and
                      one.handle <= address and address + size <= one.handle + one.nbytes]  # fmt: skip
            assert bool(inside) is is_own
        ctypes.memmove(to[0], from_[0], size)
        self.told.append(f"{size} bytes on {raw}")
        return (0,)


_REAL = words.driver()


def pretend(monkeypatch: pytest.MonkeyPatch) -> PretendedDriver:
    """Put such a driver in the place of the real one."""
    made = PretendedDriver()
    for module in (words, gpu_device, arrays, pool_memory):
        monkeypatch.setattr(module, "driver", lambda: made)
    for module in (words, gpu_device, streams):
        monkeypatch.setattr(module, "core", lambda: made)
    monkeypatch.setattr(gpu_device, "_opened", {})
    monkeypatch.setattr(gpu_device, "probe", lambda: (2, ""))
    return made
