"""Launches on a GPU as the driver's own functions see them: a real cuLaunchKernelEx at an address, and no GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.devices import exchange, gpu
from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu import launches, pool_memory
from tilewise.devices.gpu.device import PreparedLaunch
from tilewise.devices.gpu.ledger import Ledger
from tilewise.devices.gpu.streams import Stream, streams_entered
from tilewise.errors import DeviceError, DeviceUnavailable, LaunchError
from tilewise.launch import Launch, LaunchLimits, Parameter
from tilewise.toolchain.binary import Binary, Entry


@given(st.lists(st.binary(max_size=200), max_size=12))
def test_arguments_lie_where_the_pointers_say(packed: list[bytes]) -> None:
    block = launches.ArgumentBlock([len(part) for part in packed])
    for _ in range(2):
        packed = [random.randbytes(len(part)) for part in packed]
        block.write(packed)
        pointers = (ctypes.c_void_p * len(packed)).from_address(block.pointers)
        read = [ctypes.string_at(at or 0, len(part)) for at, part in zip(pointers, packed, strict=True)]
        assert read == packed
        assert [(at or 0) - block.address for at in pointers] == list(block.offsets)
        assert all((at or 0) % 64 == 0 for at in pointers)


def unloaded(sizes: tuple[int, ...] = (8, 4), threads: int = 640) -> launches.Function:
    """A kernel as it is once loaded; the driver is asked nothing."""
    kernel = object.__new__(launches.Function)
    kernel.entry, kernel.sizes, kernel.threads, kernel.registers = "tiled", sizes, threads, 96
    kernel.address, kernel.raw, kernel.static, kernel._dynamic = 0xF00, None, 1024, 48 * 1024
    kernel.device_name, kernel.label, kernel.launching = "gpu:0", "kernel 'tiled'", "launching kernel 'tiled'"
    kernel._lock, kernel._configurations, kernel._blocks = threading.Lock(), {}, []
    kernel._clusters_raised = False
    return kernel


def test_a_kernel_refuses_arguments_that_do_not_fit() -> None:
    # NOTE: the driver would read past the end of what it is given.
    kernel = unloaded()
    kernel.check_sizes([b"12345678", b"1234"])
    for wrong in ([], [b"12345678"], [b"12345678", b"123"], [b"12345678", b"1234", b""]):
        with pytest.raises(LaunchError, match="packed must hold arguments of \\[8, 4\\] bytes"):
            kernel.take_block(wrong)
    kernel.check_threads(Launch((1, 1, 1), (640, 1, 1)))
    with pytest.raises(LaunchError, match="at most 640 threads for kernel 'tiled', which takes 96 registers"):
        kernel.configure(Launch((1, 1, 1), (672, 1, 1)), LaunchLimits(), 1)


def test_memory_for_arguments_is_used_again_but_never_by_two_launches() -> None:
    started = StartedLaunches((8, 4))
    kernel, launch = started.kernel, Launch((4, 1, 1), (128, 1, 1))
    first, second = (kernel.take_block([b"12345678", b"1234"]) for _ in range(2))
    assert first is not second
    kernel.give_back(first)
    started.device.run(None, "tiled", launch, [b"87654321", b"4321"])  # type: ignore[arg-type]
    assert ctypes.string_at(first.address, 8) == b"87654321", "a launch gives back what it took"
    assert kernel.take_block([b"abcdefgh", b"ijkl"]) is first
    assert ctypes.string_at(first.address, 8) == b"abcdefgh"
    assert ctypes.string_at(second.address, 8) == b"12345678"


@pytest.mark.parametrize(("cooperative", "programmatic"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("cluster", [None, (2, 3, 4)])
def test_a_configuration_is_laid_out_as_the_drivers_own(
    cluster: tuple[int, int, int] | None, cooperative: bool, programmatic: bool
) -> None:
    cuda = words.driver()
    theirs = cuda.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 4, 6, 8
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 32, 2, 3
    theirs.sharedMemBytes, theirs.hStream = 7, cuda.CUstream(0x1234)
    listed = []
    if cluster is not None:
        listed.append(cuda.CUlaunchAttribute())
        listed[-1].id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = listed[-1].value.clusterDim
        size.x, size.y, size.z = cluster
    if cooperative:
        listed.append(cuda.CUlaunchAttribute())
        listed[-1].id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        listed[-1].value.cooperative = 1
    if programmatic:
        listed.append(cuda.CUlaunchAttribute())
        listed[-1].id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        listed[-1].value.programmaticStreamSerializationAllowed = 1
    theirs.attrs, theirs.numAttrs = listed, len(listed)
    ours = launches.Configuration(((4, 6, 8), (32, 2, 3), 7, cluster, cooperative, programmatic), 0x1234)
    read, expected = (ctypes.string_at(at, 56) for at in (ours.address, theirs.getPtr()))
    assert (read[:28], read[32:40], read[48:52]) == (expected[:28], expected[32:40], expected[48:52])
    attributes = int.from_bytes(read[40:48], "little")
    assert bool(attributes) == bool(listed)
    for number, attribute in enumerate(listed):
        assert ctypes.string_at(attributes + 72 * number, 72) == ctypes.string_at(attribute.getPtr(), 72)


def test_the_driver_is_asked_once_for_more_than_it_gives_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, int]] = []
    attributes = words.driver().CUfunction_attribute

    def set_attribute(_: Any, which: Any, value: int) -> tuple[int]:
        asked.append((which, value))
        return (0,)

    pretended = SimpleNamespace(CUfunction_attribute=attributes, cuFuncSetAttribute=set_attribute)
    monkeypatch.setattr(launches, "driver", lambda: pretended)
    kernel = unloaded()
    for shared, cluster in ((1000, (8, 1, 1)), (100_000, (4, 4, 1)), (90_000, (16, 1, 1)), (100_001, None)):
        kernel.allow(shared, cluster)
    dynamic = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    large = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    assert asked == [(dynamic, 100_000), (large, 1), (dynamic, 100_001)]


def test_a_cooperative_launch_of_more_blocks_than_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = words.driver(), []

    def count_blocks(_: Any, threads: int, shared: int) -> tuple[int, int]:
        asked.append((threads, shared))
        return 0, 3

    pretended = SimpleNamespace(
        CUdevice_attribute=real.CUdevice_attribute,
        CUfunction_attribute=real.CUfunction_attribute,
        cuOccupancyMaxActiveBlocksPerMultiprocessor=count_blocks,
        cuCtxGetDevice=lambda: (0, 5),
        cuDeviceGetAttribute=lambda which, device: (
            0,
            7 if device == 5 and which.name.endswith("COUNT") else 0,
        ),
    )
    monkeypatch.setattr(launches, "driver", lambda: pretended)
    kernel = unloaded()
    for cooperative, blocks in ((True, 21), (False, 22)):
        launch = Launch((blocks, 1, 1), (64, 2, 1), shared=512, cooperative=cooperative)
        assert kernel.configure(launch, LaunchLimits(), 1).shape[-2] is cooperative
    assert asked == [(128, 512)]
    with pytest.raises(
        LaunchError, match=r"at most 21 blocks in a cooperative launch of kernel 'tiled' on gpu:0: .* 22"
    ):
        kernel.configure(Launch((22, 1, 1), (128, 1, 1), cooperative=True), LaunchLimits(), 1)


class StartedLaunches:
    """A GPU whose cuLaunchKernelEx writes down what it reads, at a real address, and answers ``status``."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.seen: list[tuple[int, int, list[bytes]]] = []  # stream, function, arguments
        self.status, self.sizes = 0, sizes
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        self._callback = kind(self._launched)
        device = self.device = object.__new__(gpu.GpuDevice)
        device.ordinal, device.name, device._local = 0, "gpu:0", threading.local()
        device._context = SimpleNamespace(  # type: ignore[assignment]
            scope=lambda doing: contextlib.nullcontext(), process=os.getpid(), address=0xC0
        )
        device._ledger = Ledger("gpu:0", device._scope)
        device._default_stream = self.stream(1)
        device.__dict__["limits"] = LaunchLimits()
        address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        device.__dict__["_native_entries"] = words.NativeEntries(address, 0, 0, 0, 0)
        self.kernel = unloaded(sizes)
        device._programs = SimpleNamespace(function=lambda binary, entry: self.kernel)  # type: ignore[assignment]

    def stream(self, handle: int) -> Stream:
        return Stream(self.device, SimpleNamespace(handle=handle))

    def _launched(self, config: int, function: int, pointers: int, extra: int | None) -> int:
        assert extra is None
        at = (ctypes.c_void_p * len(self.sizes)).from_address(pointers)
        stream = int.from_bytes(ctypes.string_at(config + 32, 8), "little")
        parts = [ctypes.string_at(a or 0, size) for a, size in zip(at, self.sizes, strict=True)]
        self.seen.append((stream, function, parts))
        return self.status


def test_a_launch_reaches_the_driver_with_its_arguments_and_stream() -> None:
    started = StartedLaunches((8, 4))
    device, kernel = started.device, started.kernel
    launch = Launch((4, 1, 1), (128, 1, 1), shared=64)
    packed = [b"12345678", b"1234"]
    device.run(None, "tiled", launch, packed)  # type: ignore[arg-type]
    with started.stream(0x70):
        device.run(None, "tiled", launch, packed)  # type: ignore[arg-type]
    block = kernel.take_block(packed)
    device.launch_block(kernel, launch, block.pointers)
    device.launch_block(kernel, launch, block.pointers, 0)
    device.launch_block(kernel, launch, block.pointers, 0x90)
    device.run(None, "tiled", launch, packed, None, 0xA0)  # type: ignore[arg-type]
    assert started.seen == [(stream, 0xF00, packed) for stream in (1, 0x70, 1, 0, 0x90, 0xA0)]
    assert [stream.handle for stream in device._ledger.streams] == [0x70, 1]
    said = device._ledger.running()
    assert "kernel 'tiled' (grid (4, 1, 1) × block (128, 1, 1), 64 dynamic shared bytes)" in said
    assert said.endswith("or one of 5 launches before it")
    device._ledger.forget_launches(device._default_stream)
    assert device._ledger.running().endswith("or one of 2 launches before it")
    assert device.context_address == 0xC0


@pytest.mark.parametrize("handle", [None, 0, 0x90])
def test_a_launch_with_a_timeout_is_waited_for_on_its_stream(
    handle: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current one, the driver's default one and another library's; without a timeout none is."""
    started, waited = StartedLaunches((8, 4)), list[tuple[int, float | None]]()
    device, launch, packed = started.device, Launch((4, 1, 1), (128, 1, 1)), [b"12345678", b"1234"]

    def wait(stream: Stream, timeout: float | None = None) -> None:
        assert len(started.seen) == 2, "it is waited for once it is started"
        waited.append((stream.handle, timeout))

    monkeypatch.setattr(Stream, "synchronize", wait)
    monkeypatch.setattr(device, "stream", started.stream, raising=False)
    device.run(None, "tiled", launch, packed, None, handle)  # type: ignore[arg-type]
    assert waited == []
    with started.stream(0x70):
        device.run(None, "tiled", launch, packed, 2.5, handle)  # type: ignore[arg-type]
    assert waited == [({None: 0x70, 0: exchange.LEGACY_STREAM}.get(handle, 0x90), 2.5)]


def test_a_prepared_launch_starts_once_whichever_way_it_goes() -> None:
    """The short way where all is as usual; else with its arrays noted as used by the stream that is current."""
    started = StartedLaunches((8, 4))
    device, packed = started.device, [b"12345678", b"1234"]
    used: list[Stream] = []
    array: Any = SimpleNamespace(_memory=SimpleNamespace(state=ctypes.c_int64(1), use=used.append))
    plain = ctypes.c_uint64(1)  # of other arrays, which nothing else has used
    direct: list[int] = []
    prepared = object.__new__(PreparedLaunch)
    prepared._device, prepared._function, prepared._arrays = device, started.kernel, [array]
    prepared._launch, prepared._block = Launch((4, 1, 1), (128, 1, 1)), started.kernel.take_block(packed)
    prepared._configuration = started.kernel.configure(prepared._launch, device.limits, 0)
    prepared._is_current, prepared._states = lambda: True, [plain, array._memory.state, plain]
    prepared._start = lambda: direct.append(1)  # type: ignore[assignment]  # what None stands for: it was started
    prepared()
    assert (direct, started.seen, used) == ([1], [], [])
    with started.stream(0x70) as stream:
        prepared()
    assert (started.seen, used) == ([(0x70, 0xF00, packed)], [stream])
    array._memory.state.value = 0  # it was used on another stream
    prepared()
    prepared._is_current = lambda: False
    prepared()
    assert direct == [1] and started.seen[1:] == [(1, 0xF00, packed)] * 2
    assert used[1:] == [device._default_stream] * 2
    prepared._is_current, prepared._states = lambda: True, [plain]
    prepared._start = lambda: 1  # type: ignore[assignment]  # it is refused
    started.status = int(words.driver().CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    with pytest.raises(DeviceError, match=r"OUT_OF_RESOURCES.* starting kernel 'tiled'"):
        prepared()


def test_a_launch_that_the_driver_refuses_says_which() -> None:
    started = StartedLaunches((8, 4))
    started.status = int(words.driver().CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    launch = Launch((4, 1, 1), (128, 1, 1), cluster=(2, 1, 1))
    with pytest.raises(DeviceError, match=r"starting kernel 'tiled' \(grid .*cluster \(2, 1, 1\)\) on gpu:0"):
        started.device.run(None, "tiled", launch, [b"12345678", b"1234"])  # type: ignore[arg-type]
    assert started.device._ledger.running() == "at work"


@pytest.mark.parametrize(
    ("message", "is_full"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY: the GPU has not enough free memory", True),
        ("RuntimeError: Failed to allocate memory from pool, while allocating 64 bytes on gpu:0", True),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: a kernel left its memory", False),
    ],
)
def test_a_full_gpu_has_no_memory_and_other_errors_go_on(
    message: str, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_device, "beside_captures", contextlib.nullcontext)

    def allocate(nbytes: int, stream: Any) -> Any:
        raise DeviceError(message)

    device: Any = StartedLaunches(()).device
    device._resource = SimpleNamespace(allocate=allocate)
    stream = SimpleNamespace(_native=None)
    if is_full:
        assert device._take(64, stream) is None
    else:
        with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
            device._take(64, stream)


def test_memory_is_taken_in_a_mode_that_ends_no_capture_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which this thread has no longer than that, also if it fails."""
    modes = ["as it was"]

    def exchange(mode: str) -> tuple[int, str]:
        modes.append(mode)
        return 0, modes[-2]

    names = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    fake = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange, CUstreamCaptureMode=names)
    monkeypatch.setattr(words, "driver", lambda: fake)
    with contextlib.suppress(DeviceError), words.beside_captures():
        assert modes[-1] == "relaxed"
        raise DeviceError("full")
    assert modes == ["as it was", "relaxed", "as it was"]


def test_the_drivers_functions_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    results, lacks = words.driver().CUresult, b""

    def find(name: bytes, version: int, flags: int) -> tuple[Any, ...]:
        assert version <= 13_000, "the driver refuses a version newer than itself"
        if name in (b"cuTensorMapEncodeTiled", lacks):
            return results.CUDA_ERROR_NOT_FOUND, 0, 1
        return results.CUDA_SUCCESS, 0x1000 + len(name), 0

    monkeypatch.setattr(words, "driver", lambda: SimpleNamespace(cuGetProcAddress=find))
    found = words.find_native_entries()
    assert found.launch_kernel_ex == 0x1000 + len("cuLaunchKernelEx")
    assert found.tensor_map_encode_tiled == 0, "an old driver lacks it"
    assert found.ctx_push_current == 0x1000 + len("cuCtxPushCurrent")
    assert (found.ctx_get_current, found.ctx_pop_current) == (0x1000 + 15, 0x1000 + 15)
    lacks = b"cuLaunchKernelEx"
    with pytest.raises(DeviceUnavailable, match="the NVIDIA driver has no cuLaunchKernelEx: it is too old"):
        words.find_native_entries()


class Pool:
    """Memory in a stream's order: it is found full so many times, and then gives the address 0x7000."""

    def __init__(self, full: int) -> None:
        self.full, self.asked = full, list[tuple[int, int]]()

    def allocate(self, nbytes: int, stream: Any) -> Any:
        self.asked.append((nbytes, stream.handle))
        self.full -= 1
        if self.full >= 0:
            raise DeviceError("Failed to allocate")
        return SimpleNamespace(handle=0x7000, close=lambda: None)


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("full", [0, 1, 2])
@pytest.mark.parametrize("nbytes", [0, 1, 4096])
def test_a_full_pool_is_asked_again_once_the_gpu_is_idle(
    nbytes: int, full: int, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while a graph is captured, which may wait for nothing, and which keeps what is made meanwhile."""
    started, pool, waited, kept = StartedLaunches(()), Pool(full), list[str](), list[Any]()
    device = started.device
    device._local.streams = [started.stream(7)]
    device._local.capture = SimpleNamespace(keep=kept.append) if captures else None
    device.__dict__["_resource"], device._handed_out = pool, deque()
    for module in (gpu_device, pool_memory):
        monkeypatch.setattr(module, "beside_captures", contextlib.nullcontext)
    monkeypatch.setattr(device, "synchronize", lambda: waited.append("idle"), raising=False)
    monkeypatch.setattr(device, "memory", lambda: (10, 20), raising=False)
    if nbytes and full > (0 if captures else 1):
        with pytest.raises(DeviceError, match=f"allocating {nbytes:,} bytes on gpu:0.*10 of its 20 bytes"):
            device._allocate(nbytes)
        assert not kept
    else:
        made = device._allocate(nbytes)
        assert made.ptr == (0x7000 if nbytes else 0)
        assert kept == [made] * (captures and nbytes > 0)
        made.free()  # NOTE: not by a finaliser, which would ask a driver that is not there
    times = 0 if not nbytes else 2 if full and not captures else 1
    assert pool.asked == [(nbytes, 1 if captures else 7)] * times
    assert waited == ["idle"] * (times == 2)


@pytest.mark.parametrize(
    ("status", "state", "captured"),
    [(0, 0, False), (0, 1, True), (0, 2, True), (900, 0, True), (906, 1, True)],
)
def test_a_stream_is_captured_if_the_driver_says_so_or_refuses_to_say(
    status: int, state: int, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, asked = words.driver().CUstreamCaptureStatus, list[int]()

    def answer(raw: Any) -> tuple[Any, ...]:
        asked.append(raw)
        return status, states(state), 0

    answers = SimpleNamespace(cuStreamIsCapturing=answer, CUstreamCaptureStatus=states)
    monkeypatch.setattr(gpu_device, "driver", lambda: answers)
    device = StartedLaunches(()).device
    monkeypatch.setattr(device, "_stream_of", lambda handle: SimpleNamespace(raw=handle), raising=False)
    assert device.is_capturing(5) is captured and asked == [5]


@pytest.mark.parametrize(("have", "there"), [(1, "only gpu:0"), (2, "gpu:0 to gpu:1")])
def test_a_gpu_is_opened_once_and_only_if_there_is_one_of_its_number(
    have: int, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_device, "probe", lambda: (have, ""))
    monkeypatch.setattr(gpu_device, "_opened", {})
    monkeypatch.setattr(gpu_device, "GpuDevice", lambda ordinal: SimpleNamespace(ordinal=ordinal))
    assert gpu.open(have - 1).ordinal == have - 1 and gpu.open(have - 1) is gpu.open(have - 1)
    for beyond in (have, have + 1):
        with pytest.raises(
            DeviceUnavailable, match=f"gpu:{beyond} does not exist: this machine has {there}$"
        ):
            gpu.open(beyond)


def test_the_callers_context_comes_back_if_it_was_another(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = [7]

    def push(handle: int) -> tuple[int]:
        stack.append(handle)
        return (0,)

    pretended = SimpleNamespace(
        cuCtxGetCurrent=lambda: (0, stack[-1]),
        cuCtxPushCurrent=push,
        cuCtxPopCurrent=lambda: (0, stack.pop()),
    )
    monkeypatch.setattr(words, "driver", lambda: pretended)
    context = object.__new__(words.Context)
    context.name, context.handle, context.address, context.process = "gpu:0", 9, 9, os.getpid()
    with context.scope("resting"):
        assert stack == [7, 9]
        with context.scope("resting"):
            assert stack == [7, 9], "it is current: nothing to push"
        assert stack == [7, 9]
    assert stack == [7]
    context.process += 1
    with pytest.raises(DeviceUnavailable, match="gpu:0 cannot be used: CUDA was started before"):
        context.enter("resting")
    assert stack == [7]


def test_streams_in_force_are_counted_over_all_threads() -> None:
    started = StartedLaunches(())
    assert streams_entered.value == 0
    inside, leave = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with contextlib.suppress(KeyError), started.stream(0x70):
            inside.set()
            leave.wait(10)
            raise KeyError

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert inside.wait(10)
    stream = started.stream(0x80)
    with stream, stream:
        assert streams_entered.value == 3
        assert started.device.current_stream is stream
        with started.stream(0x90) as innermost:
            assert started.device.current_stream is innermost
        assert started.device.current_stream is stream
    assert streams_entered.value == 1
    assert started.device.current_stream is started.device._default_stream
    leave.set()
    thread.join()
    assert streams_entered.value == 0


def test_a_stream_is_known_by_its_handle_whoever_holds_it() -> None:
    started = StartedLaunches(())
    one, same, other = (started.stream(handle) for handle in (0x70, 0x70, 0x80))
    assert one == same and one != other
    assert {one, same, other} == {one, other} and hash(one) == hash(same)


@pytest.mark.parametrize(
    ("capability", "arch"), [((7, 5), "sm_75"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")]
)
def test_the_arch_has_its_suffix_from_hopper_on(capability: tuple[int, int], arch: str) -> None:
    device = object.__new__(gpu.GpuDevice)
    device._capability = capability
    assert device.arch == arch


class LoadedLibraries:
    """The driver and cuda.core as far as they load libraries: one number each, and the variables in them."""

    def __init__(self, variables: dict[str, tuple[int, int]], managed: dict[str, tuple[int, int]]) -> None:
        self.variables, self.managed = variables, managed
        self.loaded: list[bytes] = []
        self.CUresult = words.driver().CUresult
        self.CUfunction_attribute = words.driver().CUfunction_attribute
        self.ObjectCode = SimpleNamespace(from_cubin=self._load)

    def _load(self, code: bytes, name: str) -> Any:
        self.loaded.append(code)
        return SimpleNamespace(handle=len(self.loaded), get_kernel=self.get_kernel)

    def get_kernel(self, entry: str) -> Any:
        return SimpleNamespace(handle=entry)

    def cuKernelGetFunction(self, handle: str) -> tuple[Any, ...]:  # noqa: N802  # the driver's name
        return self.CUresult.CUDA_SUCCESS, 0xF00

    def cuFuncLoad(self, raw: int) -> tuple[Any, ...]:  # noqa: N802
        return (self.CUresult.CUDA_SUCCESS,)

    def cuFuncGetAttribute(self, which: Any, raw: int) -> tuple[Any, ...]:  # noqa: N802
        return self.CUresult.CUDA_SUCCESS, 640 if which.name.endswith("THREADS_PER_BLOCK") else 0

    def _look_up(self, known: dict[str, tuple[int, int]], handle: int, name: bytes) -> tuple[Any, ...]:
        assert handle == 1
        if name.decode() not in known:
            return self.CUresult.CUDA_ERROR_NOT_FOUND, None, None
        return self.CUresult.CUDA_SUCCESS, *known[name.decode()]

    def cuLibraryGetGlobal(self, handle: int, name: bytes) -> tuple[Any, ...]:  # noqa: N802  # the driver's name
        return self._look_up(self.variables, handle, name)

    def cuLibraryGetManaged(self, handle: int, name: bytes) -> tuple[Any, ...]:  # noqa: N802
        return self._look_up(self.managed, handle, name)

    def cuGetErrorString(self, status: Any) -> tuple[int, bytes]:  # noqa: N802
        return 0, b"named symbol not found"


def test_a_variable_is_an_array_over_the_memory_that_the_driver_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libraries = LoadedLibraries({"c": (0x7000, 16)}, {"shared": (0x9000, 8)})
    monkeypatch.setattr(launches, "driver", lambda: libraries)
    monkeypatch.setattr(launches, "core", lambda: libraries)
    monkeypatch.setattr(words, "driver", lambda: libraries)
    device = StartedLaunches(()).device
    device._programs = launches.Programs("gpu:0", "sm_90a", device._scope)
    binary = Binary("sm_90a", "", b"machine code", {}, key="k")
    array = device.variable(binary, "c", (2, 2), "float32")
    assert (array.ptr, array.shape, array.strides, array.nbytes) == (0x7000, (2, 2), (8, 4), 16)
    assert device.variable(binary, "shared", (), "int64").ptr == 0x9000
    with pytest.raises(
        DeviceError, match=r"NOT_FOUND.*while looking for the variable 'd' of kernel.cu on gpu:0"
    ):
        device.variable(binary, "d", (4,), "float32")
    for count, said in ((5, "20"), (3, "12")):
        with pytest.raises(DeviceError, match=f"c has 16 bytes on gpu:0, and {said} in its PTX"):
            device.variable(binary, "c", (count,), "float32")
    assert libraries.loaded == [b"machine code"], "it is loaded once, for its variables and for its kernels"
    assert device._programs._codes["k"].handle == 1


def test_a_kernel_that_is_loaded_is_called_by_its_name_and_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = LoadedLibraries({}, {})
    monkeypatch.setattr(launches, "driver", lambda: libraries)
    monkeypatch.setattr(launches, "core", lambda: libraries)
    programs = launches.Programs("gpu:1", "sm_90a", StartedLaunches(()).device._scope)
    parameters = (Parameter("x", "u64", 8, 8), Parameter("n", "u32", 4, 4))
    binary = Binary("sm_90a", "", b"machine code", {"tiled": Entry("tiled", parameters)}, key="k")
    kernel = programs.function(binary, "tiled")
    assert (kernel.entry, kernel.device_name) == ("tiled", "gpu:1")
    assert (kernel.address, kernel.sizes) == (0xF00, (8, 4))
    assert kernel.launching == "launching kernel 'tiled' on gpu:1"
    assert programs.function(binary, "tiled") is kernel and libraries.loaded == [b"machine code"]
    with pytest.raises(LaunchError, match="at most 640 threads for kernel 'tiled'"):
        kernel.check_threads(Launch((1, 1, 1), (1024, 1, 1)))


def test_binaries_without_a_key_are_told_apart_by_what_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as other people's machine code: with kernels of one name, and loaded once each."""
    libraries = LoadedLibraries({}, {})
    for module in (launches, words):
        monkeypatch.setattr(module, "driver", lambda: libraries)
    monkeypatch.setattr(launches, "core", lambda: libraries)
    programs = launches.Programs("gpu:1", "sm_90a", StartedLaunches(()).device._scope)
    entries = {"k": Entry("k", ())}
    one, other, again = (Binary("sm_90a", "", code, entries) for code in (b"one", b"other", b"one"))
    kernels = [programs.function(binary, "k") for binary in (one, other, again)]
    assert kernels[2] is kernels[0] is not kernels[1]
    monkeypatch.setattr(libraries.ObjectCode, "from_ptx", libraries._load, raising=False)
    programs.function(Binary("sm_90a", "// größer\n\0", None, entries), "k")
    assert libraries.loaded == [b"one", b"other", "// größer\n\0".encode()]


@pytest.mark.parametrize(("cubin", "what"), [(b"machine code", "machine code for sm_80"), (None, "PTX")])
def test_what_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, cubin: bytes | None, what: str
) -> None:
    libraries: Any = LoadedLibraries({}, {})
    libraries.ObjectCode.from_ptx = libraries._load
    libraries.cuFuncLoad = lambda _raw: (libraries.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU,)
    for module in (launches, words):
        monkeypatch.setattr(module, "driver", lambda: libraries)
    monkeypatch.setattr(launches, "core", lambda: libraries)
    programs = launches.Programs("gpu:1", "sm_90a", StartedLaunches(()).device._scope)
    monkeypatch.setattr(programs, "_compiler_log", lambda _ptx: "")
    binary = Binary("sm_80", "some PTX", cubin, {"tiled": Entry("tiled", ())}, key="k")
    doing = rf"NO_BINARY_FOR_GPU.*while loading {what} with kernel 'tiled' on gpu:1 \(sm_90a\)"
    with pytest.raises(DeviceError, match=doing):
        programs.function(binary, "tiled")


class BindingsError(Exception):
    """One of cuda.core's, which is no RuntimeError."""

    __module__ = "cuda.core._utils"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BindingsError("it\ndid not\twork"), "it did not work, while loading"),
        (BindingsError(), "BindingsError, while loading"),
        (RuntimeError("no memory"), "no memory, while loading"),
        (DeviceError("as it is"), "as it is"),
        (ValueError("a mistake of ours"), None),
        (KeyError("cuda."), None),
    ],
    ids=repr,
)
def test_errors_of_the_drivers_bindings_become_ours_and_no_others(error: Exception, said: str | None) -> None:
    found = words.translate_error(error, "loading")
    assert (None if found is None else str(found)) == said
    assert found is None or isinstance(found, DeviceError)
