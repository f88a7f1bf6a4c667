"""The GPU side of the seam, as far as it goes without a GPU: the real cuda.core, and no driver behind it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import struct
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilewise.devices import exchange, gpu
from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu import pool_memory
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.gpu.pool_memory import Memory
from tilewise.errors import ArgumentError, DeviceError

SOURCES = str(Path(gpu.__file__).parents[3])


# ── without a GPU ──────────────────────────────────────────────────────────────────────────────────────

ASK = """
import json, sys
from tilewise.devices import gpu
light = not any(name.split(".")[0] == "cuda" for name in sys.modules)
import cuda.core
answer = {"light": light, "count": gpu.count(), "why": gpu.why_not()}
for name in ("open", "open again"):
    try:
        gpu.open(0)
    except Exception as error:
        answer[name] = [type(error).__name__, str(error)]
print(json.dumps(answer))
"""


def test_without_a_gpu_it_says_why_and_imports_nothing() -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": SOURCES}  # where there is one
    ran = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, env=hidden, check=False)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["light"], "importing tilewise.devices.gpu imported cuda"
    assert answer["count"] == 0
    assert "driver" in answer["why"] or "CUDA_VISIBLE_DEVICES" in answer["why"]
    assert ";" in answer["why"], "the reason lacks what to do about it"
    for name in ("open", "open again"):
        assert answer[name] == ["DeviceUnavailable", f"there is no GPU to use: {answer['why']}"]


def driver_that(**calls: Any) -> Callable[[], Any]:
    """A driver of which only these calls exist, with the arguments that they may have."""
    results = words.driver().CUresult

    def call(name: str, answer: Any) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            assert given == {"cuInit": (0,)}.get(name, ())  # which wants no flags
            return (getattr(results, answer),) if isinstance(answer, str) else answer

        return made

    named = {name: call(name, answer) for name, answer in calls.items()}
    return lambda: SimpleNamespace(**named, CUresult=results)


@pytest.mark.parametrize(
    ("visible", "calls", "expected"),
    [
        ("", {"cuInit": "CUDA_ERROR_NO_DEVICE"}, "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("7", {"cuInit": "CUDA_ERROR_NO_DEVICE"}, "CUDA_VISIBLE_DEVICES='7'"),
        (None, {"cuInit": "CUDA_ERROR_NO_DEVICE"}, "finds no NVIDIA GPU"),
        (None, {"cuInit": "CUDA_ERROR_STUB_LIBRARY"}, "take the toolkit's stubs folder off it"),
        (None, {"cuInit": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, "restart after the update"),
        (
            None,
            {"cuInit": (0,), "cuDriverGetVersion": (0, 12_040)},
            "it supports CUDA 12.4 and cuda-bindings",
        ),
        (
            None,
            {"cuInit": (0,), "cuDriverGetVersion": (0, 13_000), "cuDeviceGetCount": (0, 0)},
            "finds no NVIDIA",
        ),
        (None, {"cuInit": (0,)}, "cannot be used"),  # a driver that lacks a call
    ],
)
def test_the_reason_names_the_cause(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, calls: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(words, "driver", driver_that(**calls))
    monkeypatch.setattr(words, "_started_in", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.count() == 0
    assert expected in gpu.why_not()
    assert "\n" not in gpu.why_not()


@pytest.mark.parametrize("count", [1, 8])
def test_a_driver_that_answers_has_its_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Once they are counted, this process is known to have started CUDA."""
    calls: dict[str, Any] = {
        "cuInit": (0,),
        "cuDriverGetVersion": (0, 13_000),
        "cuDeviceGetCount": (0, count),
    }
    monkeypatch.setattr(words, "driver", driver_that(**calls))
    monkeypatch.setattr(words, "_started_in", None)
    assert (gpu.count(), gpu.why_not()) == (count, "")
    assert words._started_in == os.getpid()


def test_a_forked_process_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_started_in", os.getpid() + 1)
    assert gpu.count() == 0
    assert "spawn" in gpu.why_not()


def test_every_word_of_the_tables_is_the_drivers() -> None:
    names = {result.name for result in words.driver().CUresult}
    assert not set(words.ADVICE) - names
    assert not words.LOST - names
    assert len(words.ADVICE) >= 12


def test_errors_say_what_happened_when_and_what_to_do() -> None:
    results = words.driver().CUresult
    assert words.check((results.CUDA_SUCCESS,), "resting") is None
    assert words.check((results.CUDA_SUCCESS, 5), "resting") == 5
    assert words.check((results.CUDA_SUCCESS, 5, 6), "resting") == (5, 6)
    with pytest.raises(DeviceError) as caught:
        words.check((results.CUDA_ERROR_ILLEGAL_ADDRESS,), "running kernel 'tiled'")
    said = str(caught.value)
    assert said.startswith("CUDA_ERROR_ILLEGAL_ADDRESS")
    assert "while running kernel 'tiled'; find it on the emulator" in said
    assert said.endswith("the context is lost: start a new process")
    assert "lost" not in words.explain(results.CUDA_ERROR_OUT_OF_MEMORY, "allocating")
    raised_by_cuda_core = words.translate_error(
        Exception("CUDA_ERROR_OUT_OF_MEMORY: The API call failed"), "allocating"
    )
    assert "while allocating; free arrays" in str(raised_by_cuda_core)
    assert words.translate_error(KeyError("x"), "allocating") is None


# ── DLPack and the CUDA array interface ────────────────────────────────────────────────────────────────


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


class Exported:
    """A host array handed over by our capsules: NumPy reads them only from the CPU."""

    def __init__(self, array: npt.NDArray[Any], **how: Any) -> None:
        self.array, self.how = array, how

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CPU, 0

    def __dlpack__(self, **_: Any) -> Any:
        x = self.array
        return exchange.capsule(address(x), x.shape, x.strides, x.dtype, (exchange.CPU, 0), self, **self.how)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64]
)
def test_numpy_reads_our_capsules_and_lets_go(versioned: bool, dtype: Any) -> None:
    if versioned and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        return  # that NumPy knows only the first generation, which the other case covers
    values = np.random.default_rng().integers(0, 100, (5, 7)).astype(dtype)[::-2, 1::2]
    exported = Exported(values, versioned=versioned)
    taken = np.from_dlpack(exported)
    assert taken.dtype == values.dtype
    assert taken.strides == values.strides
    assert np.array_equal(taken, values)
    watched = weakref.ref(exported)
    del exported
    gc.collect()
    assert watched() is not None, "the memory was let go while NumPy looked at it"
    del taken
    gc.collect()
    assert watched() is None, "the memory is held after NumPy let go of it"


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, *exchange._CODES])
def test_we_read_our_capsules_of_every_type(versioned: bool, dtype: Any) -> None:
    values = np.zeros((3, 4), getattr(ml_dtypes, dtype) if isinstance(dtype, str) else dtype)[:, ::2]
    read = exchange.from_capsule(Exported(values, versioned=versioned).__dlpack__(), None)
    assert read[:5] == (address(values), values.shape, values.strides, values.dtype, False)
    assert (read.device_type, read.ordinal) == (exchange.CPU, 0)


def test_we_read_numpys_capsules_and_let_go() -> None:
    values = np.arange(24.0).reshape(4, 6)[1:, ::-2]
    watched = weakref.ref(values)
    read = exchange.from_capsule(values.__dlpack__(), None)
    assert read[:4] == (address(values), (3, 3), (48, -16), np.dtype(float))
    del values
    assert watched() is not None
    del read
    assert watched() is None


def test_a_capsule_that_nobody_takes_lets_go() -> None:
    before = len(exchange._lent)
    for versioned in (False, True):
        exported = Exported(np.zeros(3), versioned=versioned)
        watched = weakref.ref(exported)
        given_away = exported.__dlpack__()
        del exported
        assert watched() is not None
        del given_away
        assert watched() is None
    assert len(exchange._lent) == before


def test_what_dlpack_cannot_tell_is_refused() -> None:
    read_only = Exported(np.zeros(3), read_only=True)
    assert exchange.from_capsule(read_only.__dlpack__(), None).read_only
    for refused in (
        Exported(np.zeros(3), read_only=True, versioned=False),
        Exported(np.zeros(3, [("a", "i1"), ("b", "f4")])["b"]),  # strides of 5 bytes
        Exported(np.zeros(3, "S4")),
        Exported(np.zeros(3, ">f4")),
        Exported(np.zeros(3, ">i8")),
    ):
        with pytest.raises(BufferError):
            refused.__dlpack__()
    used = Exported(np.zeros(3)).__dlpack__()
    exchange.from_capsule(used, None)
    for refused_source in (used, object()):
        with pytest.raises(ArgumentError, match="unused DLPack capsule"):
            exchange.from_capsule(refused_source, None)


def test_the_cuda_array_interface_is_read() -> None:
    described = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (4096, True), "stream": 7}
    array, stream = exchange.from_interface(described, None)
    assert array[:5] == (4096, (2, 3), (12, 4), np.dtype(np.float32), True)
    assert stream == 7
    array, stream = exchange.from_interface({**described, "strides": (4, 8), "stream": None}, None)
    assert (array.strides, stream) == ((4, 8), None)
    for wrong in ({"mask": object()}, {"stream": 0}, {"typestr": "|V2"}, {"typestr": ">f4"}):
        with pytest.raises(ArgumentError, match="source must"):
            exchange.from_interface({**described, **wrong}, None)


# ── which stream waits for which ───────────────────────────────────────────────────────────────────────


class PretendStream:
    """Writes down what it is told to wait for."""

    def __init__(self, device: PretendDevice, handle: int) -> None:
        self.device, self.handle = device, handle

    def wait(self, other: PretendStream) -> None:
        self.device.told.append((self.handle, "waits for", other.handle))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PretendStream) and other.handle == self.handle

    def __hash__(self) -> int:
        return self.handle


class PretendDevice:
    """What an array asks of its device; no GPU behind it."""

    name, ordinal, forked = "gpu:0", 0, False
    _capturing: Any = None

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._handed_out: deque[Any] = deque()
        self.current_stream = self.stream(1)
        self._ledger = SimpleNamespace(
            keep_until_done=lambda thing, streams: self.told.append(("kept for", [s.handle for s in streams]))
        )

    def stream(self, handle: int) -> PretendStream:
        return PretendStream(self, handle)

    def _scope(self, doing: str) -> PretendDevice:
        return self

    def _refuse_in_capture(self, what: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def allocate(self, **how: Any) -> Memory:
        buffer = SimpleNamespace(close=lambda: self.told.append(("freed",)))
        return Memory(self, 4096, self.current_stream, **(how or {"buffer": buffer}))  # type: ignore[arg-type]


def array_on(device: PretendDevice, **how: Any) -> GpuArray:
    return GpuArray(device.allocate(**how), 0, (4, 6), (24, 4), np.dtype(np.float32))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> PretendDevice:
    pretended = PretendDevice()

    def wait() -> tuple[int]:
        pretended.told.append(("host waits",))
        return (0,)

    monkeypatch.setattr(pool_memory, "driver", lambda: SimpleNamespace(cuCtxSynchronize=wait))
    monkeypatch.setattr(pool_memory, "beside_captures", contextlib.nullcontext)
    return pretended


def test_memory_is_freed_after_every_stream_that_used_it(device: PretendDevice) -> None:
    x = array_on(device)
    assert x.ptr == 4096
    assert not device.told, "one stream alone waits for nothing"
    device.current_stream = device.stream(7)
    view = x[1:, ::2]
    assert view.ptr == 4096 + 24
    assert x.ptr == 4096
    assert device.told == [(7, "waits for", 1)], (
        "the first use on a stream waits for the others, and only that"
    )
    device.told.clear()
    del x
    assert not device.told, "a view keeps the memory"
    del view
    assert device.told == [(1, "waits for", 7), ("freed",)]


@pytest.mark.parametrize("ours", [False, True])
def test_what_others_had_is_freed_when_no_graph_is_captured(
    device: PretendDevice, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait for the whole GPU would end the capture; later there is one for all that was kept."""
    arrays = [array_on(device) for _ in range(3)]
    for array in arrays[:2]:
        array._memory.lend()
    others = [not ours]
    monkeypatch.setattr(pool_memory, "are_others_capturing", lambda: others[0])
    device._capturing = SimpleNamespace() if ours else None
    for array in arrays[:2]:
        array.free()
    assert not device.told and len(device._handed_out) == 2
    device._capturing, others[0] = None, False
    arrays[2].free()
    assert device.told == [("freed",), ("host waits",), ("freed",), ("freed",)] and not device._handed_out


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_other_libraries_say_whether_they_capture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, other, SimpleNamespace())  # loaded in part
    assert not exchange.are_others_capturing()
    says = [True, True]
    torch = SimpleNamespace(is_initialized=lambda: says[0], is_current_stream_capturing=lambda: says[1])
    cupy = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(is_capturing=lambda: says[1]))
    none = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=torch if name == "torch" else none))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cupy) if name == "cupy" else None)
    assert exchange.are_others_capturing()
    says[1] = False
    assert not exchange.are_others_capturing()


def test_a_captured_copy_keeps_both_memories(device: PretendDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as the graph; captured work cannot wait for work outside."""
    monkeypatch.setattr(GpuArray, "_transfer", lambda *_, **__: None)
    source, target, held = array_on(device), array_on(device), list[Any]()
    device._capturing = SimpleNamespace(keep=held.append)
    device.current_stream = device.stream(7)
    target.copy_from(source)
    assert held == [source._memory, target._memory]
    assert not device.told


@pytest.mark.parametrize("stream", [None, 1, 7])
def test_what_another_library_has_in_flight_is_waited_for(device: PretendDevice, stream: int | None) -> None:
    described = {"version": 3, "shape": (), "typestr": "<f4", "data": (4096, False), "stream": stream}
    source = SimpleNamespace(__cuda_array_interface__=described)
    asked: list[int] = []
    device._lies_here = asked.append  # type: ignore[attr-defined]
    foreign = gpu_device.GpuDevice._foreign(device, source)  # type: ignore[arg-type]
    assert foreign is not None
    assert (foreign.ptr, foreign.shape, foreign.owner) == (4096, (), source)
    assert asked == [4096]
    assert device.told == ([(1, "waits for", 7)] if stream == 7 else [])


def test_free_ends_every_view(device: PretendDevice) -> None:
    x = array_on(device)
    view = x[2:]
    x.free()
    x.free()
    assert device.told == [("freed",)]
    for dead in (x, view):
        with pytest.raises(ArgumentError, match="must not be used after free"):
            _ = dead.ptr
        with pytest.raises(ArgumentError, match="must not be used after free"):
            _ = dead[0]
    assert "freed" in repr(view)


def test_foreign_memory_is_kept_until_our_work_is_done(device: PretendDevice) -> None:
    x = array_on(device, owner=object())
    device.current_stream = device.stream(7)
    _ = x.ptr
    del x
    assert device.told == [(7, "waits for", 1), ("kept for", [1, 7])]


@pytest.mark.parametrize(
    ("stream", "waits", "at_the_end"),
    [
        (None, [], [("freed",)]),  # the default stream, which is ours too
        (1, [], [("freed",)]),
        (-1, [], [("host waits",), ("freed",)]),  # the receiver orders its work itself, we know not how
        (2, [(2, "waits for", 1)], [("host waits",), ("freed",)]),
        (4096, [(4096, "waits for", 1)], [("host waits",), ("freed",)]),
    ],
)
def test_dlpack_waits_as_its_stream_says(
    device: PretendDevice, stream: int | None, waits: list[Any], at_the_end: list[Any]
) -> None:
    x = array_on(device)
    handed = x[1:, ::2].__dlpack__(stream=stream, max_version=(1, 0))
    assert device.told == waits
    device.told.clear()
    read = exchange.from_capsule(handed, x)
    assert read[:5] == (4096 + 24, (3, 3), (24, 8), np.dtype(np.float32), False)
    assert (read.device_type, read.ordinal) == x.__dlpack_device__() == (exchange.CUDA, 0)
    del x, handed
    gc.collect()
    assert not device.told, "the receiver still has the memory"
    del read
    gc.collect()
    assert device.told == at_the_end


@pytest.mark.parametrize("stream", [0, True, "1", 1.0])
def test_dlpack_refuses_what_is_no_stream(device: PretendDevice, stream: Any) -> None:
    with pytest.raises(ArgumentError, match="stream must be"):
        array_on(device).__dlpack__(stream=stream)


def test_dlpack_goes_nowhere_but_to_its_gpu(device: PretendDevice) -> None:
    x = array_on(device)
    with pytest.raises(BufferError, match="gpu:0"):
        x.__dlpack__(dl_device=(exchange.CPU, 0))
    del x
    gc.collect()
    assert device.told == [("freed",)]


def test_the_cuda_array_interface_is_told(device: PretendDevice) -> None:
    x = array_on(device)
    told = x.__cuda_array_interface__
    assert told == {
        "version": 3,
        "shape": (4, 6),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": None,
        "stream": 1,
    }
    assert x[:, ::2].__cuda_array_interface__["strides"] == (24, 8)
    narrow = GpuArray(x._memory, 0, (4,), (2,), np.dtype(ml_dtypes.bfloat16))
    assert not hasattr(narrow, "__cuda_array_interface__"), (
        "NumPy's text for bfloat16 means nothing to others"
    )
    del x, narrow
    assert device.told == [("host waits",), ("freed",)], "nobody knows on which stream it is used"


def test_numpy_does_not_copy_it_by_accident(device: PretendDevice) -> None:
    x = array_on(device)
    careless: list[Callable[[Any], Any]] = [np.asarray, list, np.sum, lambda array: np.ones(3) + array]
    for function in careless:
        with pytest.raises(TypeError):
            function(x)
    assert len(x) == 4
    assert x.T.strides == (4, 24)
    with pytest.raises(TypeError, match="an array without axes has no length"):
        len(x[0, 0])


# ── what compiled calls read ───────────────────────────────────────────────────────────────────────────


def state_of(x: GpuArray) -> int:
    return ctypes.c_uint64.from_address(x._memory.state_address).value


def test_an_array_describes_itself_to_compiled_calls(device: PretendDevice) -> None:
    x = array_on(device)
    view = x[1:, ::2]
    state, data, *rest = struct.unpack("<QQiiiBBHQ4q", view.native())
    assert (state, data) == (x._memory.state_address, 4096 + 24)
    assert rest == [exchange.CUDA, 0, 2, 2, 32, 1, 0, 3, 3, 6, 2]
    assert view.native() is view.native()
    assert not device.told, "to describe an array is not to use it"
    narrow = GpuArray(x._memory, 0, (4,), (2,), np.dtype(ml_dtypes.bfloat16), read_only=True)
    assert struct.unpack("<QQiiiBBHQ2q", narrow.native())[4:9] == (1, 4, 16, 1, 1)
    record = np.dtype([("a", "i1"), ("b", "f4")])
    for unsayable in (
        GpuArray(x._memory, 0, (3,), (5,), record["b"]),
        GpuArray(x._memory, 0, (3,), (5,), record),
    ):
        assert unsayable.native() == b""


def on_another_stream(x: GpuArray) -> None:
    device: Any = x.device
    device.current_stream = device.stream(7)
    _ = x.ptr


def in_a_graph(x: GpuArray) -> None:
    device: Any = x.device
    device._capturing = gpu.Graph(device)
    _ = x.ptr


UNUSUAL: list[Callable[[GpuArray], Any]] = [
    on_another_stream,
    in_a_graph,
    lambda x: x.free(),
    lambda x: x.__dlpack__(stream=-1),
    lambda x: x.__dlpack__(stream=7),
    lambda x: x.__cuda_array_interface__,
]


@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("asked_before", [False, True])
def test_memory_used_in_any_other_way_is_no_longer_plain(
    device: PretendDevice, unusual: Callable[[GpuArray], Any], asked_before: bool
) -> None:
    x = array_on(device)
    if asked_before:
        assert state_of(x) == 1
    _ = x.ptr
    _ = x.__dlpack__(stream=1), x.T, x[1:]
    assert not asked_before or state_of(x) == 1
    unusual(x)
    assert state_of(x) == 0
    device._capturing = None


def test_memory_made_on_another_stream_is_not_plain(device: PretendDevice) -> None:
    device.current_stream = device.stream(7)
    assert state_of(array_on(device)) == 0
