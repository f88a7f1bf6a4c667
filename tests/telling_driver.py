"""GPUs whose memory is the host's, and whose driver can do and refuse all that ours asks of one, and writes it down."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.pretended_gpu import Buffer, NativeEvent, NativeStream, PretendedDriver
from tilewise.devices.gpu import driver as words
from tilewise.launch import Parameter

REAL: Any = words.driver()
SUCCESS = REAL.CUresult.CUDA_SUCCESS
_WIDTHS = {"cuCtxGetCurrent": 2, "cuPointerGetAttribute": 2, "cuStreamIsCapturing": 3, "cuGetProcAddress": 3,
           "cuLibraryGetGlobal": 3, "cuLibraryGetManaged": 3, "cuModuleLoadDataEx": 2}  # fmt: skip
_FUNCTION = {"MAX_THREADS_PER_BLOCK": 640, "NUM_REGS": 96, "SHARED_SIZE_BYTES": 1024, "MAX_DYNAMIC_SHARED_SIZE_BYTES": 49_152}  # fmt: skip
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_ASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

X = Parameter("x", "u64", 8, 8, "float *x", "float32", True)
KERNELS = {
    "one": (X,), "two": (X, Parameter("n", "u32", 4, 4)), "none": (), "long": (Parameter("s", "b8", 70, 8), X),
    "map": (Parameter("m", "b8", 128, 64),),
}  # fmt: skip


class CoreError(Exception):
    """An error of cuda.core."""

    __module__ = "cuda.core._utils"


class Block(Buffer):
    """A numbered buffer that tells when it is given back; full of ones before."""

    def __init__(self, driver: Driver, nbytes: int, ordinal: int | None) -> None:
        self.nbytes, self.ordinal, self.told = nbytes, ordinal, driver
        self._memory = (ctypes.c_ubyte * (nbytes + 256))(*[1] * (nbytes + 256))
        self.handle = -(-ctypes.addressof(self._memory) // 256) * 256
        self.name = f"b{len(driver.made)}"
        driver.made.append(self)
        driver.buffers.append(self)

    def close(self) -> None:
        self.told.core("close")
        self.told.tell(f"{self.name} given back{self.told.mode}")
        self.told.buffers.remove(self)


class Work(NativeStream):
    """A stream whose events have numbers, and are done once they were looked at so often."""

    driver: Driver

    def record(self, options: Any = None) -> NativeEvent:
        self.driver.core("record")
        made = Mark(self.driver, self.handle, next(self.driver.clock))
        self.driver.tell(f"{made.name} in {self.handle}{' timed' * bool(options)}")
        return made

    def wait(self, event: Any) -> None:
        self.driver.core("wait")
        self.driver.tell(f"{self.handle} waits for {event.name}")

    def sync(self) -> None:
        self.driver.core("sync")
        self.driver.tell(f"host waits for {self.handle}")

    def create_graph_builder(self) -> Recorder:
        self.driver.core("create_graph_builder")
        return Recorder(self.driver, f"graph of {self.handle}")


class Mark(NativeEvent):
    def __init__(self, driver: Driver, handle: int, at: int) -> None:
        super().__init__(handle, at)
        self.driver, self.looks, self.name = driver, driver.slow.get(handle, 0), f"e{next(driver.events)}"

    @property
    def is_done(self) -> bool:  # type: ignore[override]
        self.driver.core("is_done")
        self.looks -= 1
        self.driver.tell(f"{self.name} looked at")
        return self.looks < 0

    def sync(self) -> None:
        self.driver.core("event sync")
        self.driver.tell(f"host waits for {self.name}")


class Recorder:
    """cuda.core's graph builder, and the graph that it completes."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver, self._name = driver, name

    def __getattr__(self, verb: str) -> Any:
        def done(*given: Any) -> Recorder:
            self._driver.core(verb)
            shown = [getattr(one, "handle", one) for one in given]
            self._driver.tell(" ".join(map(str, (self._name, verb, *shown))))
            return self

        return done


class Driver(PretendedDriver):
    """The pretended driver with what launches, graphs and modules need, which refuses a call where it is told to."""

    failing: dict[str, list[str]] = {}  # noqa: RUF012  # each has its own, as of these
    calls: dict[str, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.failing, self.below, self.made, self.slow = {}, list[int](), list[Block](), dict[int, int]()
        self.events, self.naps, self.now = iter(range(10**6)), list[float](), 100.0
        self.capability, self.mode, self.captured, self.log = (9, 0), "", set[int](), b""
        self.pools: dict[int, Any] = {}
        self.codes, self.functions = list[bytes](), list[str]()
        self.variables, self.managed, self.calls = dict[bytes, Any](), dict[bytes, Any](), _calls(self)
        self.properties.max_shared_memory_per_block_optin = 232_448
        self._callbacks = {"cuLaunchKernelEx": _LAUNCH(self._launch), "cuCtxGetCurrent": _ASK(self._current)}
        self.entries = {
            name: ctypes.cast(one, ctypes.c_void_p).value or 0 for name, one in self._callbacks.items()
        }
        self.entries |= {"cuTensorMapEncodeTiled": 0x51, "cuCtxPushCurrent": 0x52, "cuCtxPopCurrent": 0x53}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and object.__getattribute__(self, "failing").get(name):
            status = getattr(REAL.CUresult, f"CUDA_ERROR_{self.failing[name].pop(0)}")
            return lambda *_: (status, *[None] * (_WIDTHS.get(name, 1) - 1))
        return object.__getattribute__(self, "calls").get(name) or object.__getattribute__(self, name)

    def say(self, what: str, *answer: Any) -> tuple[Any, ...]:
        """Note a call that succeeds, and what it answers."""
        self.tell(what)
        return 0, *answer

    def tell(self, what: str) -> None:
        """Note a call, and the context that is current if it is not the first GPU's."""
        where = {10: "", 0: "nowhere: "}.get(self.current, f"{self.current}: ")
        self.told.append(where + what)

    def core(self, name: str) -> None:
        """Fail a call of cuda.core if it is told to."""
        if self.failing.get(name):
            text = self.failing[name].pop(0)
            raise CoreError(text if " " in text else f"CUDA_ERROR_{text}: it failed")

    def place(self, address: int | None) -> str:
        """Where an address lies."""
        for one in self.made:
            if one.handle <= (address or 0) <= one.handle + one.nbytes:
                return f"{one.name}+{(address or 0) - one.handle}"
        return "host" if address else "0"

    # ── cuda.core ──

    def Device(self, ordinal: int) -> Any:  # noqa: N802
        self.core("Device")

        def enter() -> None:
            self.core("set_current")
            self.current = 10 + ordinal

        def allocate(nbytes: int, stream: Any) -> Block:
            self.core("allocate")
            made = Block(self, nbytes, ordinal)
            self.tell(f"{made.name} of {nbytes} bytes for {stream.handle}{self.mode}")
            return made

        def create_stream(other: Any = None) -> Work:
            self.core("create_stream")
            handle = next(self.handles) if other is None else other.__cuda_stream__()[1]
            return Work(self, getattr(other, "ordinal", ordinal), handle)

        if ordinal not in self.pools:
            self.pools[ordinal] = SimpleNamespace(
                handle=77 + ordinal, attributes=self.pool.attributes, allocate=allocate
            )
        return SimpleNamespace(
            name=f"GPU number {ordinal}", properties=self.properties, compute_capability=self.capability,
            memory_resource=self.pools[ordinal], set_current=enter, create_stream=create_stream,
        )  # fmt: skip

    def LegacyPinnedMemoryResource(self) -> Any:  # noqa: N802
        def allocate(nbytes: int) -> Block:
            self.core("pin")
            made = Block(self, nbytes, None)
            self.tell(f"{made.name} of {nbytes} bytes pinned")
            return made

        return SimpleNamespace(allocate=allocate)

    @property
    def ObjectCode(self) -> Any:  # noqa: N802
        def load(kind: str) -> Callable[..., Any]:
            def made(code: bytes, name: str) -> Any:
                self.core("load")
                self.tell(f"{kind} {code[-12:]!r} as {name}")
                self.codes.append(code)
                return SimpleNamespace(handle=len(self.codes), get_kernel=self._kernel)

            return made

        return SimpleNamespace(from_cubin=load("machine code"), from_ptx=load("PTX"))

    def _kernel(self, entry: str) -> Any:
        self.core("get_kernel")
        return SimpleNamespace(handle=entry)

    # ── the driver ──

    def cuCtxPushCurrent(self, handle: int) -> tuple[int]:  # noqa: N802
        self.below.append(self.current)
        self.current = handle
        return (0,)

    def cuKernelGetFunction(self, handle: str) -> tuple[int, int]:  # noqa: N802
        self.functions.append(handle)
        return 0, 0xF00 + len(self.functions)

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[int, Any]:  # noqa: N802
        earlier, self.mode = self.mode, mode if isinstance(mode, str) else f" {mode.name[23:].lower()}"
        return 0, earlier

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[int, int, int]:  # noqa: N802
        self.tell(f"where is {name.decode()} of {version}, {flags}")
        return (0, self.entries[name.decode()], 0) if name.decode() in self.entries else (500, 77, 1)

    def cuMemcpy2DAsync(self, how: Any, raw: int) -> tuple[int]:  # noqa: N802
        here = REAL.CUmemorytype.CU_MEMORYTYPE_DEVICE
        to, from_ = how.dstMemoryType == here, how.srcMemoryType == here
        target = int(how.dstDevice) if to else how.dstHost
        source = int(how.srcDevice) if from_ else how.srcHost
        self.tell(f"{how.Height} rows by {how.dstPitch} and {how.srcPitch}:")
        for row in range(how.Height):
            places = (target + row * how.dstPitch, to), (source + row * how.srcPitch, from_)
            self._copy(raw, *places, how.WidthInBytes)
        return (0,)

    def _copy(self, raw: int, to: tuple[int, bool], from_: tuple[int, bool], size: int) -> tuple[int]:
        sides = []
        for address, is_own in (to, from_):
            inside = [
                one
                for one in self.buffers
                if one.handle <= address and address + size <= one.handle + one.nbytes
            ]
            if is_own and not inside:
                self.tell("a copy outside")
                return (700,)
            sides.append(f"{self.place(address)}{'' if is_own else ' host'}")
        ctypes.memmove(to[0], from_[0], size)
        self.tell(f"{size} bytes {sides[0]} from {sides[1]} on {raw}")
        return (0,)

    def cuModuleLoadDataEx(self, code: bytes, count: int, options: Any, values: Any) -> tuple[int, int]:  # noqa: N802
        self.tell(
            f"module {code[-9:]!r} {[one.name for one in options][:count]} {len(values[0])} {values[1]}"
        )
        values[0][: len(self.log)] = self.log
        return 0 if self.log.startswith(b"fine") else 218, 5

    def encode(self, how: str, type_: Any, rank: int, address: int, *given: Any) -> tuple[int, Any]:
        parts = [list(map(int, one)) if isinstance(one, list) else getattr(one, "name", one) for one in given]
        self.tell(f"{how} {type_.name} {rank} {self.place(address)} {parts}")
        return 0, SimpleNamespace(opaque=range(1, 17))

    def _current(self, place: int) -> int:
        ctypes.c_void_p.from_address(place).value = self.current
        return int(bool(self.failing.get("ask") and self.failing["ask"].pop(0)))

    def _launch(self, config: int, function: int, pointers: int, extra: int | None) -> int:
        *shape, stream, at, count = struct.unpack("<7I4xQQI", ctypes.string_at(config, 52))
        kinds = [struct.unpack("<II3I", ctypes.string_at(at + 72 * i, 20)) for i in range(count)]
        parameters = KERNELS[self.functions[function - 0xF01]]
        where = (ctypes.c_void_p * len(parameters)).from_address(pointers)
        parts = [ctypes.string_at(a or 0, one.size) for a, one in zip(where, parameters, strict=True)]
        shown = [self.place(int.from_bytes(one, "little")) if len(one) == 8 else one.hex() for one in parts]
        aligned = all((a or 0) % 64 == 0 for a in where)
        self.tell(
            f"start f{function - 0xF00} {shape} on {stream} {kinds} {shown}{'' if aligned else ' unaligned'}{extra or ''}"
        )
        found = self.failing.get("cuLaunchKernelEx")
        return int(getattr(REAL.CUresult, f"CUDA_ERROR_{found.pop(0)}")) if found else 0


def _calls(one: Driver) -> dict[str, Callable[..., Any]]:
    """The driver's calls that do little: what they tell, and what they answer."""
    say, states, missing = (
        one.say,
        REAL.CUstreamCaptureStatus,
        (REAL.CUresult.CUDA_ERROR_NOT_FOUND, None, None),
    )
    return {
        "cuCtxSetCurrent": lambda handle: setattr(one, "current", handle),
        "cuCtxPopCurrent": lambda: setattr(one, "current", one.below.pop()),
        "cuCtxSynchronize": lambda: say("host waits for all"),
        "cuCtxGetDevice": lambda: (0, one.current - 10),
        "cuDeviceGetAttribute": lambda which, number: say(f"{which.name} of {number}", 7),
        "cuMemPoolSetAttribute": lambda pool, name, value: say(f"pool {pool} {name.name} {int(value)}"),
        "cuGetErrorString": lambda status: (0, status.name[11:].lower().replace("_", " ").encode()),
        "cuStreamIsCapturing": lambda raw: say(f"is {raw} captured?", states(int(raw in one.captured)), 0),
        "cuFuncLoad": lambda raw: say(f"load f{raw - 0xF00}"),
        "cuFuncGetAttribute": lambda which, raw: (0, _FUNCTION[which.name[18:]]),
        "cuFuncSetAttribute": lambda raw, which, value: say(f"f{raw - 0xF00} {which.name} {value}"),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda raw, threads, shared: say(
            f"how many of f{raw - 0xF00} of {threads} threads, {shared} bytes", 3
        ),
        "cuLibraryGetGlobal": lambda code, name: (say(f"global {name.decode()} in {code}"), one.variables.get(name, missing))[1],
        "cuLibraryGetManaged": lambda code, name: (say(f"managed {name.decode()} in {code}"), one.managed.get(name, missing))[1],
        "cuModuleUnload": lambda module: say(f"module {module} unloaded"),
        "cuTensorMapEncodeTiled": lambda *given: one.encode("tiled", *given),
        "cuTensorMapEncodeIm2col": lambda *given: one.encode("im2col", *given),
    }  # fmt: skip
