"""A GPU as its users have it, of host memory: what it is, arrays and their copies, arrays and streams of others."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import weakref
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.pretended_gpu import FREE, TOTAL, PretendedDriver, pretend
from tilewise import interop
from tilewise.calls import start_on_gpu
from tilewise.devices import gpu
from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu import pool_memory
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.gpu.device import GpuDevice, find_gpu
from tilewise.devices.gpu.streams import Stream
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable
from tilewise.launch import Launch, LaunchLimits


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> PretendedDriver:
    return pretend(monkeypatch)


@pytest.fixture
def device(driver: PretendedDriver) -> GpuDevice:
    found = gpu.open(0)
    driver.taken_back()
    return found


def counting(*shape: int, dtype: Any = np.float32) -> npt.NDArray[Any]:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


# ── what it is ──


def test_a_gpu_is_what_its_driver_says(driver: PretendedDriver) -> None:
    device = gpu.open(1)
    assert (device.ordinal, device.name, device.title, device.arch) == (1, "gpu:1", "a GPU", "sm_90a")
    assert repr(device) == "<gpu:1: a GPU, sm_90a>"
    assert device.limits == LaunchLimits(
        name="a GPU", threads_per_block=1024, shared_bytes_per_block=2048, clusters=True
    )
    assert device.multiprocessors == 12
    assert tuple(device.clocks) == (1_500_000, 2_500_000, 384)
    assert device.context_address == 11 and not device.forked and device.runs_on_gpu
    assert device.shares_memory_with(device) and not device.shares_memory_with(gpu.open(0))
    assert driver.current == 0, "the caller's context is current again"


def test_a_pool_holds_an_eighth_of_all_memory_at_most(driver: PretendedDriver) -> None:
    gpu.open(0)
    assert driver.told == [f"pool 77 CU_MEMPOOL_ATTR_RELEASE_THRESHOLD {TOTAL // 8}"]


def test_free_memory_counts_what_the_pool_would_use_again(driver: PretendedDriver, device: GpuDevice) -> None:
    assert tuple(device.memory()) == (FREE + 400, TOTAL)
    driver.pool.attributes.used_mem_current = 700  # as it was asked a moment later
    assert tuple(device.memory()) == (FREE, TOTAL)
    del driver.pool.attributes
    assert tuple(device.memory()) == (FREE, TOTAL)


def test_a_gpu_without_pools_is_opened_without_a_limit(driver: PretendedDriver) -> None:
    del driver.pool.attributes
    assert gpu.open(0).name == "gpu:0" and not driver.told


def test_the_gpu_of_an_address_is_the_one_whose_memory_it_lies_in(
    driver: PretendedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [gpu.open(number).array(counting(4)) for number in (0, 1)]
    for number, x in enumerate(arrays):
        assert find_gpu(x.ptr + 15) is gpu.open(number)
        assert gpu.open(0).find_ordinal(x.ptr) == number
    with pytest.raises(ArgumentError, match=r"^source must lie in a GPU's memory, not '?0x10"):
        find_gpu(16)
    monkeypatch.setattr(gpu_device, "probe", lambda: (1, ""))
    assert find_gpu(16) is gpu.open(0), "there is no other: nobody asks"


# ── choosing one ──


def test_a_gpu_is_chosen_by_its_number_or_as_the_first(
    driver: PretendedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gpu.open(0), gpu.open(1)
    assert tw.device("gpu") is tw.device("gpu:0") is first and tw.device("gpu:1") is second
    assert tw.device(second) is second and tw.devices.available() == [first, second, tw.device("emulator")]
    assert tw.device() is first
    for name, chosen in (
        ("gpu:1", second),
        (" gpu ", first),
        ("emulator", tw.device("emulator")),
        (" ", first),
    ):
        monkeypatch.setenv("TILEWISE_DEVICE", name)
        assert tw.device() is chosen
    for name in ("gpu:2", "gpu:10"):
        with pytest.raises(
            ArgumentError, match=rf"^device must name one of the 2 GPUs, counted from 0, not '{name}'"
        ):
            tw.device(name)
    for name in ("gpu:", "gpu:x", "gpu1", "GPU", "cpu"):
        with pytest.raises(
            ArgumentError, match=rf"^device must be 'gpu', 'gpu:N' or 'emulator', not '{name}'"
        ):
            tw.device(name)
    monkeypatch.setenv("TILEWISE_DEVICE", "gpu:2")
    with pytest.raises(ArgumentError, match=r"^TILEWISE_DEVICE must name one of the 2 GPUs"):
        tw.device()
    monkeypatch.setattr(gpu_device, "probe", lambda: (0, "it is gone"))
    with pytest.raises(DeviceUnavailable, match=r"^TILEWISE_DEVICE 'gpu:2' cannot be used: it is gone$"):
        tw.device()
    assert tw.devices.available() == [tw.device("emulator")]


def test_an_old_cuda_core_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"cuda.core": SimpleNamespace()}
    monkeypatch.setattr(words, "importlib", SimpleNamespace(import_module=modules.__getitem__))
    with pytest.raises(
        DeviceUnavailable, match=r"^this cuda-core is too old; pip install --upgrade 'cuda-core>=1'$"
    ):
        words.core.__wrapped__()
    modules["cuda.core"].Device = None
    assert words.core.__wrapped__() is modules["cuda.core"]


def test_a_context_is_current_if_the_driver_says_so_in_the_process_that_opened_it(
    device: GpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [0, 10]  # a status, and which context it is

    def ask(place: int) -> int:
        ctypes.c_void_p.from_address(place).value = said[1]
        return said[0]

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(ask)
    is_current = device._context.quick_check(ctypes.cast(callback, ctypes.c_void_p).value or 0)
    assert device.context_address == 10 and is_current() is True
    for said[:] in ([0, 11], [1, 10], [1, 11]):
        assert is_current() is False
    said[:] = [0, 10]
    assert is_current() is True
    monkeypatch.setattr(os, "getpid", lambda: -1)
    forked = device._context.quick_check(ctypes.cast(callback, ctypes.c_void_p).value or 0)
    assert forked() is False and device.forked


# ── arrays ──


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize("dtype", ["float16", "int8", "complex64"])
def test_an_array_is_made_of_a_hosts_and_back(
    device: GpuDevice, driver: PretendedDriver, shape: tuple[int, ...], dtype: str
) -> None:
    host = counting(*shape, dtype=dtype)
    x = device.array(host)
    assert (x.shape, x.dtype, x.strides, x.read_only) == (shape, host.dtype, host.strides, False)
    assert (x.ndim, x.size, x.nbytes, x.contiguous) == (host.ndim, host.size, host.nbytes, True)
    assert sum(buffer.nbytes for buffer in driver.buffers) == host.nbytes
    back = x.numpy()
    assert back.dtype == host.dtype and np.array_equal(back, host) and back.shape == shape
    x.free()
    assert x.freed and not driver.buffers


def test_an_array_says_what_it_is(device: GpuDevice) -> None:
    x = device.array(counting(2, 3, dtype="int16"))
    assert repr(x) == "<2 × 3 int16 on gpu:0>" and repr(x[1, 1]) == "<one int16 on gpu:0>" and len(x) == 2
    assert len(x.T) == 3 and x.T.strides == (2, 6) and not x.T.contiguous and x[:1].T.contiguous
    with pytest.raises(TypeError, match="an array without axes has no length"):
        len(x[0, 0])
    with pytest.raises(TypeError, match=r"not walked element by element; use \.numpy\(\)"):
        iter(x)
    with pytest.raises(TypeError, match=r"only by \.numpy\(\), which copies it"):
        np.asarray(x)
    x.free()
    assert repr(x) == "<2 × 3 int16 on gpu:0, freed>"
    with pytest.raises(ArgumentError, match="must not be used after free"):
        x[0]


def test_an_array_of_more_bytes_than_64_bits_count_is_not_made(
    device: GpuDevice, driver: PretendedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(nbytes: int, stream: object) -> None:
        asked.append(nbytes)
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(driver.pool, "allocate", refuse)
    with pytest.raises(DeviceError, match=f"{2**66:,} bytes"):
        device.empty((2**32, 2**32), "float32")
    assert asked == [2**66] * 2  # once more when what was freed is free


def test_views_are_numpys(device: GpuDevice) -> None:
    host = counting(5, 6)
    x = device.array(host)
    for view, expected in (
        (x[1:4, ::2], host[1:4, ::2]), (x[::-1], host[::-1]), (x.T[2], host.T[2]), (x[3][None], host[3][None]),
        (x.T[1:, ::-2].T, host.T[1:, ::-2].T),
    ):  # fmt: skip
        assert view.strides == expected.strides and np.array_equal(view.numpy(), expected)
        assert np.array_equal(view.copy().numpy(), expected) and view.copy().contiguous
    x[1:3, 2:4].fill(np.full((2, 2), -1, np.float32))
    x.T[0].copy_from(x.T[5])
    x[4].copy_from(x[4, ::-1])  # which overlap
    host[1:3, 2:4] = -1
    host.T[0] = host.T[5]
    host[4] = host[4, ::-1].copy()
    assert np.array_equal(x.numpy(), host)


def test_a_copy_to_the_host_fills_what_is_there_however_it_lies(device: GpuDevice) -> None:
    host, x = np.zeros((4, 6), np.float32), device.array(counting(2, 3))
    x.copy_to(host[::2, ::2])
    assert np.array_equal(host[::2, ::2], counting(2, 3)) and host.sum() == 15


def test_a_copy_that_does_not_fit_is_refused(device: GpuDevice) -> None:
    x = device.array(counting(2, 3))
    with pytest.raises(ArgumentError, match=r"^source must have the shape \(2, 3\), not \(3, 2\)$"):
        x.copy_from(counting(3, 2))
    with pytest.raises(ArgumentError, match=r"^source must hold float32, not .*int32.*use \.astype first"):
        x.copy_from(counting(2, 3, dtype="int32"))
    with pytest.raises(ArgumentError, match=r"^target must have the shape \(2, 3\)"):
        x.copy_to(counting(3, 2))
    locked = counting(2, 3)
    locked.flags.writeable = False
    for target in (locked, [1, 2], None):
        with pytest.raises(ArgumentError, match=r"^target must be a writable NumPy array"):
            x.copy_to(target)  # type: ignore[arg-type]
    fixed = GpuArray(x._memory, 0, x.shape, x.strides, x.dtype, read_only=True)
    for view in (fixed, fixed[0], fixed.T):
        with pytest.raises(ArgumentError, match=r"^array must be writable.*copy it first"):
            view.copy_from(view.numpy())


def test_each_gpu_has_its_own_memory(device: GpuDevice) -> None:
    x, other = device.array(counting(3)), gpu.open(1).array(counting(3))
    assert device.array(x) is x
    said = (
        r"must lie on gpu:0, but lies on gpu:1.*copy it there: tw\.device\('gpu:0'\)\.array\(x\.numpy\(\)\)"
    )
    with pytest.raises(ArgumentError, match=f"^source {said}"):
        device.array(other)
    with pytest.raises(ArgumentError, match=f"^source {said}"):
        x.copy_from(other)
    with pytest.raises(ArgumentError, match=rf"^args\[1\] {said}"):
        device.run(None, "f", Launch((1, 1, 1), (1, 1, 1), args=(x, other)), [])  # type: ignore[arg-type]


def test_the_host_waits_for_copies_but_for_those_of_pinned_memory(
    device: GpuDevice, driver: PretendedDriver
) -> None:
    x, pinned = device.empty((4, 4), "float32"), device.pinned((4, 4), "float32")
    assert pinned.shape == (4, 4) and pinned.dtype == np.float32 and pinned.flags.writeable
    pinned[:] = counting(4, 4)
    with device.stream() as stream:
        driver.taken_back()
        x.copy_from(pinned)
        assert driver.taken_back() == [f"{stream.handle} waits for 1", f"64 bytes on {stream.handle}"]
        pinned[:] = 0
        x.copy_to(pinned)
        assert driver.taken_back() == [f"{stream.handle} waits for 1", f"64 bytes on {stream.handle}"]
        assert np.array_equal(pinned, counting(4, 4))
        for waits in (x.numpy, lambda: x.copy_from(counting(4, 4)), functools.partial(x.copy_from, pinned.T)):
            waits()
            assert driver.taken_back()[-1] == f"host waits for {stream.handle}"
    del pinned, waits
    assert len(driver.buffers) == 1
    assert device.pinned((0, 5), "int8").shape == (0, 5) and len(driver.buffers) == 1


def test_a_fork_keeps_what_it_may_not_give_back(
    device: GpuDevice, driver: PretendedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither closed nor collected: both would call the driver."""
    monkeypatch.setattr(pool_memory, "_left_behind", [])
    x, pinned, lent = device.empty(4, "float32"), device.pinned(4, "float32"), device.array(counting(4))
    y = device.array(Handed(lent))
    buffers = [weakref.ref(buffer) for buffer in driver.buffers]
    driver.taken_back()
    device._context.process = -1
    assert device.forked
    x.free()
    assert x.freed
    del x, y, lent, pinned
    driver.buffers.clear()
    gc.collect()
    assert all(buffer() is not None for buffer in buffers) and not driver.told


def test_a_copy_while_a_graph_is_captured_must_be_of_pinned_memory_which_the_graph_keeps(
    device: GpuDevice,
) -> None:
    kept: list[Any] = []
    x, pinned = device.array(counting(4)), device.pinned(4, "float32")
    device._local.capture = SimpleNamespace(keep=lambda memory: None, keep_host=kept.append)
    x.copy_from(pinned)
    x.copy_to(pinned)
    assert [one is pinned for one in kept] == [True, True]
    for copies, said in (
        (lambda: x.copy_from(counting(4)), "a copy from host memory that is not pinned"),
        (x.numpy, "a copy to host memory that is not pinned"),
        (lambda: device.synchronize(), r"synchronize\(\)"),
        (lambda: device.time(lambda: None), r"time\(\)"),
        (lambda: x.__dlpack__(), "handing an array over"),
        (lambda: x.__cuda_array_interface__, "handing an array over"),
        (lambda: device.array(Handed(x)), "taking an array over"),
        (lambda: device.array(Described(x)), "taking an array over"),
        (lambda: device.run(None, "f", Launch((1, 1, 1), (1, 1, 1)), [], 1.0), "a launch with a timeout"),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            ArgumentError, match=f"^capture must not contain {said}.*before or after the with"
        ):
            copies()
    device._local.capture = None


# ── arrays of other libraries ──


class Handed:
    """Another library's array, by DLPack."""

    def __init__(self, x: GpuArray, kind: int = 2, ordinal: int | None = None) -> None:
        self.x, self.place = x, (kind, x.device.ordinal if ordinal is None else ordinal)
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append(stream)
        return self.x.__dlpack__(stream=stream, max_version=max_version)


class Described:
    """Another library's array, by the CUDA array interface."""

    def __init__(self, x: GpuArray, **other: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": x.shape, "typestr": x.dtype.str, "strides": x.strides, "data": (x._address, False), **other,
        }  # fmt: skip


@pytest.mark.parametrize("kind", [2, 13])
def test_an_array_of_another_library_is_a_view_of_its_memory(device: GpuDevice, kind: int) -> None:
    x = device.array(counting(4, 6))[::2, 1:]
    with device.stream() as stream:
        source = Handed(x, kind)
        y = device.array(source)
        assert source.asked == [stream.handle]
        z = device.array(Described(x, data=(x._address, True)))
    assert y.ptr == z.ptr == x.ptr and (y.read_only, z.read_only) == (False, True)
    for one in (y, z):
        assert (one.shape, one.strides, one.dtype) == (x.shape, x.strides, x.dtype)
        assert np.array_equal(one.numpy(), counting(4, 6)[::2, 1:])


def test_an_array_of_another_gpu_is_not_viewed(device: GpuDevice) -> None:
    x = gpu.open(1).array(counting(4))
    for source in (Handed(x), Described(x)):
        with pytest.raises(ArgumentError, match=r"^source must lie on gpu:0, but lies on gpu:1"):
            device.array(source)
    empty = Described(x, shape=(0,), strides=None, data=(0, False))
    assert device.array(empty).shape == (0,), "which lies nowhere"


def test_an_array_of_the_host_is_copied_whatever_else_it_speaks(device: GpuDevice) -> None:
    class OfTheHost:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("it is not asked")

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return counting(3)

    assert np.array_equal(device.array(OfTheHost()).numpy(), counting(3))
    assert np.array_equal(device.array([1, 2]).numpy(), [1, 2])


@pytest.mark.parametrize(("stream", "waits"), [(None, []), (0x70, ["112 waits for 1"] * 2)])
def test_a_product_on_another_librarys_stream_waits_for_our_work_on_its_arrays(
    device: GpuDevice, driver: PretendedDriver, stream: int | None, waits: list[str]
) -> None:
    used = tuple(interop.view(name, device.array(counting(4))) for name in "ab")
    theirs = interop.view("c", counting(4))
    driver.taken_back()

    def bound(addresses: dict[str, int], on: int | None) -> None:
        driver.told.append(f"{addresses} on {on}")

    start_on_gpu(cast(Any, bound), {"a": 5}, (*used, theirs), device, (stream,))
    assert driver.taken_back() == [*waits, f"{{'a': 5}} on {stream}"]


@pytest.mark.parametrize(
    ("producer", "waits"), [(None, []), (1, []), (0x70, ["1 waits for 112"]), (2, ["1 waits for 2"])]
)
def test_the_stream_waits_for_the_one_that_made_an_array(
    device: GpuDevice, driver: PretendedDriver, producer: int | None, waits: list[str]
) -> None:
    x = device.array(counting(4))
    driver.taken_back()
    device.array(Described(x, stream=producer))
    assert driver.taken_back() == waits


# ── streams ──


def test_a_stream_is_a_new_one_or_another_librarys(device: GpuDevice, driver: PretendedDriver) -> None:
    new, newer = device.stream(), device.stream()
    assert new != newer and device.stream(new) is new
    for foreign in (0x70, SimpleNamespace(cuda_stream=0x70), Streaming(0x70)):
        assert device.stream(foreign).handle == 0x70
    assert device.stream(1) == device._default_stream == device.current_stream
    for wrong in (True, "7", 7.0, SimpleNamespace(cuda_stream=None)):
        with pytest.raises(ArgumentError, match=r"^stream must be another library's CUDA stream, not"):
            device.stream(wrong)
    with pytest.raises(ArgumentError, match=r"^stream must belong to gpu:1"):
        gpu.open(1).stream(new)
    for handle, is_refused in ((0x70, True), (3, True), (2, False), (1, False)):
        other = Streaming(handle, ordinal=1)
        if is_refused:
            with pytest.raises(ArgumentError, match=r"^stream must belong to gpu:0"):
                device.stream(other)
        else:
            assert device.stream(other).handle == handle


class Streaming:
    """Another library's stream, of a GPU."""

    def __init__(self, handle: int, ordinal: int = 0) -> None:
        self.handle, self.ordinal = handle, ordinal

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_streams_are_ordered_both_ways_around_work_on_the_first(
    device: GpuDevice, driver: PretendedDriver
) -> None:
    with device.stream() as stream:
        let_go = device.order_streams([0x70, None, 0])
        assert driver.taken_back() == [f"112 waits for {stream.handle}", "112 waits for 1"]
        let_go()
        assert driver.taken_back() == [f"{stream.handle} waits for 112", "1 waits for 112"]


def test_what_calls_take_is_told_for_each_in_seconds(device: GpuDevice, driver: PretendedDriver) -> None:
    called: list[int] = []

    def call() -> None:
        called.append(1)
        for _ in called:  # each takes a second more than the one before
            next(driver.clock)

    assert device.time(call, 3) == [2, 3, 4] and driver.taken_back() == ["host waits for 1"]
    assert len(device.time(lambda: None)) == 10
    with pytest.raises(ArgumentError, match=r"^repeat must be"):
        device.time(call, 0)


def test_a_wait_with_a_timeout_is_for_each_stream_that_was_launched_on(
    device: GpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[int, float]] = []
    monkeypatch.setattr(
        Stream, "synchronize", lambda stream, timeout: waited.append((stream.handle, timeout))
    )
    for stream in (device.stream(0x70), device.stream(0x80)):
        device._ledger.record_launch(stream.handle, stream, "a kernel")
    device.synchronize(5.0)
    assert sorted(handle for handle, _ in waited) == [1, 0x70, 0x80]
    assert all(4 < left <= 5 for _, left in waited)
    waited.clear()
    device.synchronize(-1.0)
    assert [left for _, left in waited] == [0, 0, 0]


def test_a_variable_must_have_the_bytes_that_its_ptx_gives_it(device: GpuDevice) -> None:
    x = device.array(counting(2, 3))
    device._programs.variable = lambda binary, symbol: (x.ptr, 24)  # type: ignore[method-assign]
    found = device.variable("binary", "v", (2, 3), "float32")  # type: ignore[arg-type]
    assert found.ptr == x.ptr and np.array_equal(found.numpy(), counting(2, 3))
    for shape, dtype, wanted in (((2, 4), "float32", "32"), ((5, 5, 50), "float64", "10,000")):
        with pytest.raises(DeviceError, match=rf"^the variable v has 24 bytes on gpu:0, and {wanted} in its"):
            device.variable("binary", "v", shape, dtype)  # type: ignore[arg-type]
