"""The emulator as a device: its arrays, what it refuses, and launches from many threads and forks."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.clocks import least_seconds, seconds
from tilewise import devices
from tilewise.devices import exchange, host_memory
from tilewise.devices.emulated import EmulatedArray, EmulatedDevice, open_emulator
from tilewise.devices.host_memory import AdoptedMemory
from tilewise.errors import (
    ArgumentError,
    DeviceError,
    KernelFault,
    LaunchError,
    LaunchTimeout,
    UnknownNameError,
)
from tilewise.toolchain.cache import default

Array = npt.NDArray[Any]

EMULATOR = open_emulator()
RANDOM = np.random.default_rng()
TYPES: list[Any] = [
    "float32", "float64", "float16", "int8", "uint16", "int64", "bool", "complex64",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    np.dtype([("width", "u4"), ("first", "f8")], align=True),
]  # fmt: skip


def kernel(body: str, parameters: str = "float *x", before: str = "") -> tw.Kernel:
    return tw.Kernel(f'{before}extern "C" __global__ void k({parameters}) {{ {body} }}', "k", "sm_75")


# -- arrays -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_arrays_of_every_type_come_back_as_they_went(dtype: Any) -> None:
    kind = np.dtype(dtype)
    host = np.frombuffer(RANDOM.bytes(24 * kind.itemsize), kind).reshape(4, 6)
    if kind.name == "bool":
        host = host.view(np.uint8) % 2 == 1
    x = EMULATOR.array(host)
    assert (x.shape, x.strides, x.dtype, x.nbytes) == (host.shape, host.strides, kind, host.nbytes)
    assert (x.device, len(x), x.ptr % 256) == (EMULATOR, 4, 0)
    back = x.numpy()
    assert (back.dtype, back.tobytes()) == (kind, host.tobytes())
    back[...] = back[::-1, ::-1].copy()  # a copy: the device's own stays as it is
    assert x.numpy().tobytes() == host.tobytes()
    x.fill(back)
    assert x.numpy().tobytes() == back.tobytes()
    assert EMULATOR.array(x) is x


KEYS = st.one_of(
    st.integers(-4, 3),
    st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2, st.sampled_from((None, 1, 2, 3, -1, -2))),
    st.just(Ellipsis),
    st.none(),
    st.builds(np.int64, st.integers(0, 3)),
)


@settings(max_examples=100, deadline=None)
@given(keys=st.lists(KEYS, max_size=3).filter(lambda keys: sum(key is Ellipsis for key in keys) < 2))
def test_slices_are_numpys_and_share_memory(keys: list[Any]) -> None:
    host = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    x, key = EMULATOR.array(host), tuple(keys)
    wanted = host[(*key, ...)] if Ellipsis not in key else host[key]
    part = x[key]
    assert isinstance(part, EmulatedArray)
    assert (part.shape, part.strides if part.nbytes else ()) == (
        wanted.shape,
        wanted.strides if wanted.size else (),
    )
    assert np.array_equal(part.numpy(), wanted)
    if wanted.size:
        assert part.ptr - x.ptr == wanted.ctypes.data - host.ctypes.data
    part.fill(-wanted)
    wanted[...] = -wanted
    assert np.array_equal(x.numpy(), host)


@pytest.mark.parametrize(
    "key", [9, (0, 0, 0, 0), [0, 1], np.array([True, False]), "x", 1.0, True, (..., ...)]
)
def test_an_index_that_makes_no_view_is_refused(key: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^index must"):
        EMULATOR.array(np.zeros((2, 2, 2)))[key]


def test_an_array_is_no_sequence_of_elements() -> None:
    x = EMULATOR.array(np.zeros(3, np.float32))
    for use in (iter, np.asarray, lambda y: np.ones(3) + y, lambda y: len(y[0])):
        with pytest.raises(TypeError):
            use(x)
    assert repr(x[1:]) == "<array of shape (2,), float32, on the emulator>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMULATOR.empty((2, -1)), r"^shape\[1\] must be at least 0, not -1"),
        (lambda: EMULATOR.empty((2.0,)), r"^shape\[0\] must be an integer"),  # type: ignore[arg-type]
        (lambda: EMULATOR.empty("ab"), "^shape must be a tuple of integers"),  # type: ignore[arg-type]
        (lambda: EMULATOR.empty(3, "float33"), "^dtype must be a NumPy or ml_dtypes element type"),
        (lambda: EMULATOR.empty(3, object), "^dtype must have elements of a fixed size"),
        (lambda: EMULATOR.array(["a", None]), "^dtype must have elements of a fixed size"),
        (lambda: EMULATOR.array(np.zeros(3, ">f4")), "^dtype must be in the machine's byte order"),
        (lambda: EMULATOR.empty(3).fill(np.zeros(4, "f4")), r"^value must have shape \(3,\)"),
        (lambda: EMULATOR.empty(3).fill(np.zeros(3, "f8")), "^value must have .* type float32"),
    ],
)
def test_wrong_shapes_and_types(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_what_the_host_has_no_room_for() -> None:
    for size in (2**58, 2**80):
        with pytest.raises(DeviceError, match="no room for an array of"):
            EMULATOR.empty(size)


def test_empty_arrays_and_single_elements() -> None:
    twice = kernel("if (threadIdx.x == 0) *x *= 2;")
    one = EMULATOR.array(np.float32(3))
    assert (one.shape, one.nbytes) == ((), 4)
    twice(1, 32, [one])
    assert one.numpy() == 6
    none = EMULATOR.empty((0, 5), ml_dtypes.bfloat16)
    assert (none.shape, none.nbytes, none.numpy().shape) == ((0, 5), 0, (0, 5))
    assert none.ptr > 0
    assert EMULATOR.empty(np.int64(4)).shape == (4,)  # type: ignore[arg-type]


# -- how long memory lives ----------------------------------------------------------------------------
STORE = kernel("x[threadIdx.x] = threadIdx.x;")


def test_a_slice_keeps_the_memory_alive() -> None:
    part = EMULATOR.array(np.zeros(100, np.float32))[50:82]  # nobody holds the whole
    gc.collect()
    STORE(1, 32, [part])
    assert np.array_equal(part.numpy(), np.arange(32))


def test_memory_that_was_given_up_may_not_be_touched() -> None:
    array = EMULATOR.array(np.zeros(32, np.float32))
    address = array.ptr
    STORE(1, 32, [address])
    assert array.numpy()[31] == 31
    part = array[:1]
    del array
    STORE(1, 32, [address])  # a part of it is enough
    del part
    with pytest.raises(KernelFault, match=r"out-of-bounds write of 4 bytes.*\n.*block \(0, 0, 0\), thread"):
        STORE(1, 32, [address])


def test_a_fault_names_the_array() -> None:
    x = EMULATOR.array(np.zeros(31, np.float32))
    with pytest.raises(
        KernelFault,
        match=r"0 bytes past the end of args\[0\] \(float \*x\), the float32 array of shape \(31,\)",
    ):
        STORE(1, 32, [x])
    STORE(1, 31, [x])  # and the device goes on
    assert np.array_equal(x.numpy(), np.arange(31))


def test_what_was_freed_is_forgotten_once_its_memory_is_used_again() -> None:
    """And no sooner: memory beside it does not count."""
    freed = host_memory._Allocations()
    freed._freed.extend([(100, 50, "one"), (150, 20, "other")])
    for start, end, names in (
        (50, 100, ["one", "other"]),
        (170, 200, ["one", "other"]),
        (149, 150, ["", "other"]),
        (169, 400, ["", ""]),
    ):
        freed._forget(start, end)
        assert [freed.freed(120), freed.freed(150)] == names


def test_emulators_of_different_orders_share_their_memory() -> None:
    x = EMULATOR.array(np.zeros(32, np.float32))
    STORE(1, 32, [x], device=tw.device("emulator", order="late", threads=1))
    assert np.array_equal(x.numpy(), np.arange(32))


def test_a_variable_of_the_module_lasts_from_launch_to_launch() -> None:
    count = kernel("total += *x; *x = total; *first = table[1];", "float *x, int *first",
                   "__device__ float total = 0.5f; __device__ int table[3] = {1, 7, 9};")  # fmt: skip
    device = EmulatedDevice()  # one that has run nothing yet
    x, first = device.array(np.float32(2)), device.array(np.int32(0))
    for wanted in (2.5, 5, 10):  # x is what it was before, and the sum so far
        count(1, 1, [x, first], device=device)
        assert (float(x.numpy()), int(first.numpy())) == (wanted, 7)
    x = EmulatedDevice().array(np.float32(2))
    count(1, 1, [x, first], device=EmulatedDevice())
    assert x.numpy() == 2.5


# -- other libraries' memory --------------------------------------------------------------------------
def adopted(view: Array, name: str = "somebody's array") -> AdoptedMemory:
    return EMULATOR.adopt(view.ctypes.data, view.nbytes, name, view)


def test_adopted_memory_is_written_where_it_lies_and_only_while_its_handle_lives() -> None:
    host = np.zeros(40, np.float32)
    watched = host[:32]
    handle = adopted(watched)
    address = host.ctypes.data
    STORE(1, 32, [address])
    assert np.array_equal(host, [*range(32), *[0] * 8])
    with pytest.raises(KernelFault, match=r"0 bytes past the end of .*somebody's array"):
        STORE(1, 33, [address])
    assert host[32] == 0
    held = weakref.ref(watched)
    del watched
    assert held() is not None, "the handle keeps its owner"
    del handle
    assert held() is None
    with pytest.raises(KernelFault, match="out-of-bounds write"):
        STORE(1, 32, [address])


def test_adopted_memory_may_overlap() -> None:
    copy = kernel("y[threadIdx.x] = x[threadIdx.x] + 1;", "const float *x, float *y")
    host = np.arange(96, dtype=np.float32)
    at = host.ctypes.data
    first, again = adopted(host[:64], "the first"), adopted(host[:64], "the same")
    inside, across = adopted(host[16:32], "inside"), adopted(host[48:80], "across")
    copy(1, 80, [at, at])
    assert np.array_equal(host, [*range(1, 81), *range(80, 96)])
    with pytest.raises(KernelFault, match=r"0 bytes past the end of .*the first, across"):
        STORE(1, 96, [at])
    del across
    with pytest.raises(KernelFault, match=r"0 bytes past the end of .*the first"):
        STORE(1, 80, [at])
    del first
    STORE(1, 64, [at])
    del again
    STORE(1, 16, [inside.address])
    with pytest.raises(KernelFault, match="out-of-bounds"):
        STORE(1, 1, [at])


def test_adopted_memory_of_the_emulators_own_arrays_is_as_their_own() -> None:
    x = EMULATOR.empty(64)
    handle = EMULATOR.adopt(x.ptr + 64, 64, "a part", x)
    STORE(1, 64, [x])
    with pytest.raises(
        KernelFault, match=r"past the end of args\[0\] \(float \*x\), the float32 array of shape \(64,\)"
    ):
        STORE(1, 96, [handle.address])
    del handle
    STORE(1, 64, [x])


def test_adopted_memory_counts_as_initialised() -> None:
    read = kernel("y[threadIdx.x] = x[threadIdx.x];", "const float *x, float *y")
    host, unset = np.ones(32, np.float32), EMULATOR.empty(32)
    handle = adopted(host)
    assert not read.check(1, 32, [host.ctypes.data, unset])
    fresh = EMULATOR.empty(64)
    assert [found.kind for found in read.check(1, 32, [fresh, unset])] == ["unset"]
    inner = EMULATOR.adopt(fresh.ptr, 128, "half of it", None)
    assert not read.check(1, 32, [fresh, unset])
    assert read.check(1, 32, [fresh[32:], unset]), "the other half is as it was"
    del handle, inner


def test_nothing_at_all_can_be_adopted() -> None:
    handle = adopted(np.empty((0, 4), np.float32))
    assert (handle.size, handle.bytes.size) == (0, 0)
    STORE(1, 32, [EMULATOR.empty(32)])


class Part:
    """A range of addresses, as the table of ranges sees it."""

    unset = False

    def __init__(self, start: int, size: int) -> None:
        self.address, self.size, self.name = start, size, f"{start}"


@given(st.lists(st.builds(Part, st.integers(0, 60), st.integers(1, 30)), max_size=12))
def test_ranges_without_overlaps_are_the_same_memory(parts: list[Any]) -> None:
    found = host_memory._disjoint(parts)
    covered = [at for item in found for at in range(item.address, item.address + item.size)]
    assert covered == sorted({at for part in parts for at in range(part.address, part.address + part.size)})
    for part in parts:
        assert any(
            item.address <= part.address and part.address + part.size <= item.address + item.size
            for item in found
        )


def test_what_runs_on_trial_leaves_memory_as_it_was_and_unset_where_it_was() -> None:
    host = np.ones(32, np.float32)
    fixed = np.frombuffer(b"\1" * 128, np.float32)  # which nobody may write
    handles, unset = [adopted(host), adopted(fixed)], EMULATOR.empty(32, np.float32)
    with EMULATOR.launcher.undo_changes():
        STORE(1, 32, [host.ctypes.data])
        unset.fill(host)
        assert host[31] == 31 and not np.any(unset._allocation.unset)
    assert np.array_equal(host, np.ones(32)) and np.all(unset._allocation.unset)
    del handles


def test_numpy_and_others_view_an_array_without_a_copy() -> None:
    x = EMULATOR.array(np.arange(24, dtype=np.float32).reshape(4, 6))
    viewed = np.from_dlpack(x[1:].T)
    assert (viewed.shape, viewed.strides, viewed.ctypes.data) == ((6, 3), (4, 24), x.ptr + 24)
    assert np.array_equal(viewed, np.arange(6, 24).reshape(3, 6).T)
    STORE(1, 24, [x])
    assert viewed[0, 0] == 6
    del x
    gc.collect()
    assert viewed[5, 2] == 23, "the view keeps the memory"
    x = EMULATOR.array(np.zeros(3, ml_dtypes.bfloat16))
    assert exchange.from_capsule(x.__dlpack__(copy=True), x).ptr != x.ptr
    assert exchange.from_capsule(x.__dlpack__(max_version=(1, 0)), x)[:4] == (x.ptr, (3,), (2,), x.dtype)
    with pytest.raises(BufferError, match="handed over only there"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ArgumentError, match="stream must be None"):
        x.__dlpack__(stream=1)  # type: ignore[arg-type]


def test_what_was_handed_over_counts_as_initialised() -> None:
    read = kernel("y[threadIdx.x] = x[threadIdx.x];", "const float *x, float *y")
    x, y = EMULATOR.empty(32), EMULATOR.empty(32)
    np.asarray(np.from_dlpack(x))
    assert not read.check(1, 32, [x, y])


def test_shapes_and_axes() -> None:
    x = EMULATOR.empty((4, 6))
    assert (x.ndim, x.size, x.T.shape, x.T.strides, x.T.ptr) == (2, 24, (6, 4), (4, 24), x.ptr)
    assert (EMULATOR.empty(()).ndim, EMULATOR.empty((0, 3)).size) == (0, 0)


# -- what callers ask of a device ---------------------------------------------------------------------
def test_what_callers_ask_of_a_device() -> None:
    assert isinstance(EMULATOR, devices.Device)
    assert not EMULATOR.runs_on_gpu
    assert EMULATOR.shares_memory_with(EmulatedDevice(order="late"))
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        time.sleep(0.002)

    taken = EMULATOR.time(work, repeat=3)
    assert len(calls) == len(taken) == 3
    assert all(0.002 <= one < 10 for one in taken)
    with pytest.raises(ArgumentError, match="repeat must be at least 1"):
        EMULATOR.time(lambda: None, repeat=0)


# -- choosing a device --------------------------------------------------------------------------------
def test_one_device_for_each_order_and_number_of_threads() -> None:
    assert tw.device("emulator") is EMULATOR
    assert tw.device(EMULATOR) is EMULATOR
    late = tw.device("emulator", order="late", threads=2)
    assert tw.device(order="late", threads=np.int64(2)) is late  # type: ignore[arg-type]
    assert (late.name, late.title, late.multiprocessors) == ("emulator", "the emulator on 2 CPU threads", 2)
    assert EmulatedDevice(threads=1).title == "the emulator on 1 CPU thread"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"order": "eagre"}, "^order 'eagre' is not known; did you mean 'eager'"),
        ({"order": -1}, "^order must be at least 0"),
        ({"order": 1.0}, "^order must be an integer"),
        ({"order": True}, "^order must be an integer"),
        ({"order": [1]}, "^order must be an integer"),
        ({"threads": 0}, "^threads must be at least 1"),
        ({"threads": "2"}, "^threads must be an integer"),
        ({"spec": "gpu", "threads": 2}, "^order, threads, sums and lenient are for the emulator"),
        ({"spec": "gpu:0", "sums": "fast"}, "^order, threads, sums and lenient are for the emulator"),
        ({"sums": "exact"}, "^sums 'exact' is not known"),
    ],
)
def test_wrong_devices(how: dict[str, Any], message: str) -> None:
    tw.device("emulator", order=1)  # a seed that compares equal to some of them
    with pytest.raises(ArgumentError, match=message) as caught:
        tw.device(how.pop("spec", "emulator"), **how)
    assert isinstance(caught.value, UnknownNameError) == ("is not known" in message)


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    x = EMULATOR.array(np.zeros(32, np.float32))
    for threads in ("0", "two", "-1", "4097", "1.5"):
        monkeypatch.setenv("TILEWISE_THREADS", threads)
        with pytest.raises(ArgumentError, match=r"^TILEWISE_THREADS must be a number from 1 to 4,096"):
            STORE(1, 32, [x])
    for threads, count in (("1", 1), ("4096", 4096), (" 3 ", 3)):
        monkeypatch.setenv("TILEWISE_THREADS", threads)
        assert EMULATOR.threads == count
    assert EmulatedDevice(threads=2).threads == 2  # what was asked for comes first
    STORE(1, 32, [x])
    monkeypatch.setenv("TILEWISE_SUMS", "hardwire")
    with pytest.raises(
        UnknownNameError, match=r"^TILEWISE_SUMS 'hardwire' is not known; did you mean 'hardware'"
    ):
        STORE(1, 32, [x])
    monkeypatch.setenv("TILEWISE_SUMS", "hardware")
    assert EMULATOR.sums == "hardware"
    assert EmulatedDevice(sums="fast").sums == "fast"
    STORE(1, 32, [x])
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")
    assert tw.device() is EMULATOR
    monkeypatch.setenv("TILEWISE_DEVICE", "emulater")
    with pytest.raises(ArgumentError, match=r"^TILEWISE_DEVICE must be"):
        tw.device()


def test_falling_back_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(devices.gpu, "count", lambda: 0)
    monkeypatch.setattr(devices.gpu, "why_not", lambda: "no driver")
    monkeypatch.setattr(devices, "_noticed", False)
    monkeypatch.delenv("TILEWISE_DEVICE")
    with caplog.at_level(logging.INFO, "tilewise"):
        tw.device("emulator")
        assert not caplog.records  # it was asked for
        for _ in range(3):
            assert tw.device() is EMULATOR
            tw.matmul(np.ones((2, 2), "f4"), np.ones((2, 2), "f4"))
    assert [record.getMessage() for record in caplog.records] == [
        "tilewise: no GPU here (no driver); running on the emulator"
    ]


def test_limits_are_those_of_the_arch() -> None:
    x = EMULATOR.array(np.zeros(32, np.float32))
    for grid, block, shared, message in (
        (1, 1025, 0, "block.x must be at most 1,024"),
        (1, (32, 33), 0, "block must have at most 1,024 threads"),
        (1, (1, 1, 65), 0, "block.z must be at most 64"),
        ((1, 65536), 1, 0, "grid.y must be at most 65,535"),
        (1, 32, 65537, "shared must leave a block within 65,536 bytes"),  # of sm_75
    ):
        with pytest.raises(LaunchError, match=f"^{message}"):
            STORE(grid, block, [x], shared)


# -- launches that last -------------------------------------------------------------------------------
ENDLESS = {
    "a loop": "while (true) x[threadIdx.x] += 1;",
    "an empty loop": 'asm volatile("L: bra L;"); x[0] = 1;',
    "a lock that nobody opens": "while (atomicExch((int *)x, 1) == 1) {}",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_launch_that_takes_too_long_is_stopped(body: str) -> None:
    endless = kernel(body)
    x = EMULATOR.array(np.ones(64, np.int32))
    EMULATOR.launcher.build(endless.build(), "k", (64, 1, 1))  # compiling is no part of the time

    def stopped() -> None:
        with pytest.raises(LaunchTimeout, match=r"kernel k did not end within 1 s: 0 of 2 blocks were done"):
            endless(2, 64, [x.ptr], timeout=1)

    assert 1 <= least_seconds(lambda: seconds(stopped), 1.5) < 1.5
    y = x[32:].numpy()
    STORE(1, 32, [x.ptr])  # arrays and device are as good as before
    assert np.array_equal(x.numpy()[:32].view(np.float32), np.arange(32))
    assert np.array_equal(x[32:].numpy(), y)


def test_a_timeout_is_a_number_of_seconds() -> None:
    x = EMULATOR.array(np.zeros(32, np.float32))
    STORE(1, 32, [x], timeout=30)
    for timeout in (0, -1, "1", float("nan")):
        with pytest.raises(ArgumentError, match=r"^timeout must be a number of seconds above 0, or None"):
            STORE(1, 32, [x], timeout=timeout)  # type: ignore[arg-type]


# -- many threads, many processes ---------------------------------------------------------------------
# Where an index wraps around within a warp, the warp goes on in the general build, made when first needed.
SHIFTED = """
extern "C" __global__ void shifted(int *out, unsigned offset, unsigned n, int value)
{
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x + offset;
    if (at < n)
        out[at] = value;
}
"""


def test_many_threads_launch_at_once() -> None:
    """Kernels that none has compiled before, on operands of their own."""
    shifted, tiled = tw.Kernel(SHIFTED, "shifted", "sm_75"), tw.ladder["04_tiled"]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        random = np.random.default_rng()
        start.wait()
        for _ in range(6):
            back = int(random.integers(1, 128))
            out = np.zeros(99, np.int32)
            shifted(2, 64, [out, -back, 99, number], device="emulator")
            assert np.array_equal(out, np.where(np.arange(99) < 128 - back, number, 0))
            a, b = random.standard_normal((2, 20, 20)).astype(np.float32)
            np.testing.assert_allclose(tiled(a, b, device="emulator"), a @ b, rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(1, 9)]:
            done.result()
    assert EMULATOR.launcher.build(shifted.build(), "shifted", (64, 1, 1)).general is not None


CHILDREN = """
import multiprocessing
import os
import threading
import warnings

import numpy as np
import tilewise as tw

warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside other threads, which is the point
SOURCE = 'extern "C" __global__ void k(int *x) {{ x[blockIdx.x * 32 + threadIdx.x] = {}; }}'


def launch(value):
    kernel = tw.Kernel(SOURCE.format(value), "k", "sm_75")
    out = np.zeros(64, np.int32)
    kernel(2, 32, [out], device="emulator")
    assert (out == value).all(), out


def child(value):
    launch(1)  # what the parent has compiled
    launch(value)  # and something else


def busy(first, stop):
    for value in range(first, first + 10_000):
        if stop.is_set():
            return
        launch(value)


if __name__ == "__main__":
    launch(1)
    for method in multiprocessing.get_all_start_methods():
        stop, forks = threading.Event(), method == "fork"
        firsts = (10_000, 20_000) if forks else ()
        threads = [threading.Thread(target=busy, args=(first, stop)) for first in firsts]
        for thread in threads:
            thread.start()
        context, values = multiprocessing.get_context(method), range(2, 8 if forks else 3)
        children = [context.Process(target=child, args=(value,)) for value in values]
        for process in children:
            process.start()
        for process in children:
            process.join(30)
            if process.exitcode != 0:
                print(method, process.exitcode, flush=True)  # None: it hangs
                process.kill()
                os._exit(1)
        stop.set()
        for thread in threads:
            thread.join()
        launch(1)
"""


def test_children_launch_too(tmp_path: Path) -> None:
    """Forked while other threads compile and launch, and spawned afresh; what all kernels call lies on the disk then."""
    script = tmp_path / "children.py"
    script.write_text(CHILDREN, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "emulated-support" in default().stats().kinds
