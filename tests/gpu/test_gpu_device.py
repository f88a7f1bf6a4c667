"""A GPU as a device. Run these first on a new machine: ``pytest -m gpu tests/gpu/test_gpu_device.py -x``."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.devices import gpu
from tilewise.devices.gpu import GpuArray, GpuDevice
from tilewise.devices.gpu.driver import check, driver
from tilewise.devices.seam import Array, Device
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable, LaunchError, UnknownNameError
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source, read_ptx

pytestmark = pytest.mark.gpu

SOURCES = str(Path(gpu.__file__).parents[3])
KERNELS = ("fill", "add", "by_struct", "spin", "dynamic", "ranks", "fault")
SOURCE = r"""
struct Job { float *to; unsigned count; float value; double unused; };
extern "C" __global__ void fill(float *to, unsigned count, float value) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = value;
}
extern "C" __global__ void add(float *to, unsigned count, float value) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] += value;
}
extern "C" __global__ void by_struct(Job job) {
    for (unsigned i = threadIdx.x; i < job.count; i += blockDim.x) job.to[i] = job.value;
}
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
extern "C" __global__ void dynamic(unsigned *total, unsigned words) {
    extern __shared__ unsigned tile[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) tile[i] = 1;
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = 0; threadIdx.x == 0 && i < words; ++i) sum += tile[i];
    if (threadIdx.x == 0) *total = sum;
}
extern "C" __global__ void ranks(unsigned *rank) {
#if __CUDA_ARCH__ >= 900
    unsigned mine;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(mine));
    if (threadIdx.x == 0) rank[blockIdx.x] = mine;
#endif
}
extern "C" __global__ void fault(float *to) { to[threadIdx.x] = 1; }
"""
PTX = r"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry seven(.param .u64 to)
{
    .reg .b64 %at;
    .reg .f32 %value;
    ld.param.u64 %at, [to];
    cvta.to.global.u64 %at, %at;
    mov.f32 %value, 0f40E00000;
    st.global.f32 [%at], %value;
    ret;
}
"""
COUNT = 5000


@pytest.fixture(scope="module")
def device() -> GpuDevice:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


@functools.cache
def binary(arch: str) -> Binary:
    return compile_source(SOURCE, KERNELS, arch)


def launch(device: GpuDevice, entry: str, *values: Any, timeout: float | None = None, **how: Any) -> None:
    """Start a kernel of ``SOURCE``; integers and floats are 4 bytes, ``bytes`` are themselves."""
    packed = []
    for value in values:
        if isinstance(value, GpuArray):
            packed.append(struct.pack("<Q", value.ptr))
        else:
            packed.append(
                value
                if isinstance(value, bytes)
                else struct.pack("<f" if isinstance(value, float) else "<I", value)
            )
    arrays = tuple(value for value in values if isinstance(value, GpuArray))
    how.setdefault("grid", (8, 1, 1))
    how.setdefault("block", (128, 1, 1))
    device.run(binary(device.arch), entry, Launch(args=arrays, **how), packed, timeout)


def spin(device: GpuDevice, seconds: float, timeout: float | None = None) -> None:
    launch(
        device,
        "spin",
        struct.pack("<Q", int(seconds * 1e9)),
        timeout=timeout,
        grid=(1, 1, 1),
        block=(1, 1, 1),
    )


def filled(device: GpuDevice, value: float) -> GpuArray:
    made = device.empty((COUNT,), np.float32)
    launch(device, "fill", made, COUNT, value)
    return made


def holds(array: GpuArray, value: float) -> bool:
    return bool((array.numpy() == value).all())


# ── what it is ─────────────────────────────────────────────────────────────────────────────────────────


def test_it_says_what_it_is(device: GpuDevice) -> None:
    assert gpu.open(0) is device
    assert isinstance(device, Device)
    assert not gpu.why_not()
    assert 1 <= device.multiprocessors <= 1000
    assert device.limits.threads_per_block == 1024
    assert 48 * 1024 <= device.limits.shared_bytes_per_block <= 256 * 1024
    assert device.limits.clusters == (int(device.arch[3:].rstrip("af")) >= 90)
    free, total = device.memory()
    assert 0 < free <= total
    assert device.clocks.multiprocessor > 10**8 < device.clocks.memory
    with pytest.raises(DeviceUnavailable, match="does not exist"):
        gpu.open(gpu.count())


def test_the_callers_context_comes_back(device: GpuDevice) -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    before = int(driver.cuCtxGetCurrent()[1])
    driver.cuCtxSetCurrent(driver.CUcontext(0))
    try:
        assert holds(filled(device, 3.0), 3.0)
        assert int(driver.cuCtxGetCurrent()[1]) == 0
    finally:
        driver.cuCtxSetCurrent(driver.CUcontext(before))


# ── arrays ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        np.float16,
        np.int8,
        np.uint64,
        np.bool_,
        np.complex64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
    ],
)
def test_host_arrays_come_back(device: GpuDevice, dtype: Any) -> None:
    host = np.random.default_rng().integers(0, 2, (37, 53)).astype(dtype)
    for given_ in (host, host.T, host[::-2, 3::4], host[:0], host[3, 5:6].reshape(())):
        copied = device.array(given_)
        assert isinstance(copied, Array)
        back = copied.numpy()
        assert (back.dtype, back.shape) == (host.dtype, given_.shape)
        assert back.tobytes() == given_.tobytes()
        assert copied.nbytes == given_.nbytes


@settings(max_examples=25, deadline=None)
@given(st.data(), st.tuples(st.integers(1, 9), st.integers(1, 70), st.integers(1, 9)))
def test_views_are_numpys_views(data: st.DataObject, shape: tuple[int, int, int]) -> None:
    device = gpu.open(0)
    host = np.random.default_rng().integers(0, 1000, shape).astype(np.int16)
    whole = device.array(host)
    key = tuple(data.draw(st.slices(size)) for size in shape)
    assert np.array_equal(whole[key].numpy(), host[key])
    assert np.array_equal(whole[key].T.copy().numpy(), host[key].T)
    fresh = np.random.default_rng().integers(0, 1000, host[key].shape).astype(np.int16)
    whole[key].fill(fresh)
    host[key] = fresh
    assert np.array_equal(whole.numpy(), host)
    whole[1:].copy_from(whole[:-1])  # they overlap
    host[1:] = host[:-1].copy()
    assert np.array_equal(whole.numpy(), host)


def _free_for_others(device: GpuDevice) -> int:
    """Bytes that no process holds, as the driver says."""
    with device._scope("asking for free memory"):
        return int(check(driver().cuMemGetInfo(), "asking for free memory")[0])


def test_freed_arrays_are_refused_and_memory_comes_back(device: GpuDevice) -> None:
    array = filled(device, 1.0)
    view = array[5:]
    array.free()
    for dead in (array, view):
        with pytest.raises(ArgumentError, match="after free"):
            dead.numpy()
    device.synchronize()
    before = device.memory().free
    for _ in range(50):  # more in all than the GPU has
        device.empty((device.memory().total // 20,), np.uint8)
    device.synchronize()
    assert device.memory().free >= before - 2**28
    assert _free_for_others(device) >= 0.8 * before


def test_out_of_memory_says_how_much(device: GpuDevice) -> None:
    with pytest.raises(
        DeviceError, match=r"CUDA_ERROR_OUT_OF_MEMORY.*allocating [\d,]+ bytes.*bytes are free"
    ):
        device.empty((device.memory().total + 2**30,), np.uint8)
    assert holds(filled(device, 2.0), 2.0)


def test_pinned_copies_do_not_wait(device: GpuDevice) -> None:
    host = device.pinned((COUNT,), np.float32)
    target = filled(device, 0.0)
    device.synchronize()
    gc.collect()  # what earlier tests left: freeing page-locked memory waits
    spin(device, 0.2)
    host[:] = 5
    began = time.perf_counter()
    target.copy_from(host)
    back = device.pinned((COUNT,), np.float32)
    target.copy_to(back)
    mark = device.current_stream.record()
    del host  # kept until the copy is done
    gc.collect()
    assert time.perf_counter() - began < 0.1, "the host waited for the kernel before the copies"
    assert not mark.done
    mark.synchronize()
    assert (back == 5).all()


# ── launches ───────────────────────────────────────────────────────────────────────────────────────────


def test_kernels_get_their_arguments(device: GpuDevice) -> None:
    array = filled(device, 2.5)
    launch(device, "add", array, COUNT, 0.25)
    assert holds(array, 2.75)
    launch(device, "by_struct", struct.pack("<QIfd", array.ptr, COUNT, 9.0, 0.0), grid=(1, 1, 1))
    assert holds(array, 9.0)


def test_large_shared_memory_and_clusters(device: GpuDevice) -> None:
    total = device.empty((1,), np.uint32)
    for size in (1024, 48 * 1024 + 4, device.limits.shared_bytes_per_block, 1024):
        launch(device, "dynamic", total, size // 4, grid=(1, 1, 1), shared=size)
        assert total.numpy()[0] == size // 4
    with pytest.raises(LaunchError, match="shared must leave a block within"):
        launch(device, "dynamic", total, 1, shared=device.limits.shared_bytes_per_block + 4)
    rank = device.empty((16,), np.uint32)
    if device.limits.clusters:
        for blocks in (2, 8, 16):
            launch(device, "ranks", rank, grid=(16, 1, 1), block=(32, 1, 1), cluster=(blocks, 1, 1))
            assert rank.numpy().tolist() == [block % blocks for block in range(16)]
    else:
        with pytest.raises(LaunchError, match="cluster must be None"):
            launch(device, "ranks", rank, grid=(16, 1, 1), cluster=(2, 1, 1))


def test_foreign_ptx_is_compiled_by_the_driver(device: GpuDevice) -> None:
    array = filled(device, 0.0)
    once = Launch((1, 1, 1), (1, 1, 1), (array,))
    device.run(read_ptx(PTX), "seven", once, [struct.pack("<Q", array.ptr)])
    assert array[:1].numpy()[0] == 7
    broken = PTX.replace("st.global.f32", "st.gobal.f32")
    with pytest.raises(DeviceError, match=r"compiler refuses the PTX.*ptxas"):
        device.run(read_ptx(broken), "seven", once, [struct.pack("<Q", array.ptr)])
    newer = PTX.replace(".version 7.0", ".version 99.0")
    with pytest.raises(DeviceError, match=r"UNSUPPORTED_PTX_VERSION|[Uu]nsupported"):
        device.run(read_ptx(newer), "seven", once, [struct.pack("<Q", array.ptr)])


def test_kernels_of_a_module_share_its_variables(device: GpuDevice) -> None:
    source = """
    __constant__ float c[4] = {1, 2, 3, 4};
    __device__ int calls = 3;
    __managed__ double factor = 0.5;
    extern "C" __global__ void scale(float *x) {
        x[threadIdx.x] *= c[threadIdx.x] * (float)factor;
        if (threadIdx.x == 0) calls++;
    }
    extern "C" __global__ void look(int *out) { *out = calls; }
    """
    module = tw.Module(source, device.arch)
    there = module.on(device)
    x, out = device.array(np.full(4, 2, np.float32)), device.empty((1,), np.int32)
    assert there["c"].tolist() == [1, 2, 3, 4] and there["calls"] == 3 and there["factor"] == 0.5
    call = module.kernel("scale").bind(1, 4, [x], device=device)
    call()
    assert x.numpy().tolist() == [1, 2, 3, 4] and there["calls"] == 4
    module["c"] = np.array([4, 3, 2, 1], np.float32)
    module["factor"] = 1.0
    with device.stream():
        call()
        assert there["calls"] == 5
    assert x.numpy().tolist() == [4, 6, 6, 4]
    module.kernel("look")(1, 1, [there.array("calls").ptr], device=device)  # its own address: nothing changes
    module.kernel("look")(1, 1, [out], device=device)
    assert out.numpy()[0] == 5
    assert module.on("emulator")["c"].tolist() == [4, 3, 2, 1] and module.on("emulator")["calls"] == 3


def test_what_cannot_run_is_refused(device: GpuDevice) -> None:
    once = Launch((1, 1, 1), (32, 1, 1))
    other = "sm_75" if device.arch != "sm_75" else "sm_120a"
    with pytest.raises(DeviceError, match=rf"CUDA_ERROR_\w+.*machine code for {other}"):
        device.run(compile_source(SOURCE, KERNELS, other), "spin", once, [bytes(8)])
    with pytest.raises(UnknownNameError, match="'fil' is not known; did you mean 'fill'"):
        device.run(binary(device.arch), "fil", once, [])
    with pytest.raises(LaunchError, match="packed must hold"):
        device.run(binary(device.arch), "fill", once, [bytes(8)])
    assert holds(filled(device, 4.0), 4.0)


def test_a_launch_with_a_timeout_waits_that_long(device: GpuDevice) -> None:
    spin(device, 0.01, timeout=5)
    began = time.perf_counter()
    with pytest.raises(
        DeviceError, match=r"still running kernel 'spin'.* after 0.05 s; a GPU cannot be interrupted"
    ):
        spin(device, 0.5, timeout=0.05)
    assert time.perf_counter() - began < 0.3
    with pytest.raises(DeviceError, match="still running"):
        device.synchronize(timeout=0.01)
    device.synchronize(timeout=5)


def test_threads_share_a_gpu(device: GpuDevice) -> None:
    wrong = []

    def work(value: float) -> None:
        for _ in range(20):
            with device.stream():
                array = filled(device, value)
                launch(device, "add", array, COUNT, 1.0)
                if not holds(array, value + 1):
                    wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ── streams, events, graphs ────────────────────────────────────────────────────────────────────────────


def test_work_is_asynchronous_and_timed(device: GpuDevice) -> None:
    device.synchronize()
    began, start = time.perf_counter(), device.current_stream.record()
    spin(device, 0.1)
    end = device.current_stream.record()
    assert time.perf_counter() - began < 0.05, "the launch waited for the kernel"
    assert not end.done
    assert 95 < end.elapsed_ms(start) < 150
    assert end.done
    timed = device.time(lambda: spin(device, 0.01), repeat=3)
    assert len(timed) == 3
    assert all(0.009 < seconds < 0.02 for seconds in timed)


def test_streams_run_side_by_side_and_wait_when_told(device: GpuDevice) -> None:
    slow, fast = device.stream(), device.stream()
    array = filled(device, 1.0)
    device.synchronize()
    with slow:
        spin(device, 0.1)
        launch(device, "add", array, COUNT, 1.0)
        marked = slow.record()
    with fast:
        assert device.current_stream == fast
        quick = filled(device, 3.0)
        assert holds(quick, 3.0)
        assert not marked.done, "one stream waited for the other"
        fast.wait(marked)
        launch(device, "add", quick, COUNT, 1.0)
        fast.synchronize()
        assert marked.done
    assert holds(array, 2.0)


def test_memory_is_not_reused_while_another_stream_works_on_it(device: GpuDevice) -> None:
    other = device.stream()
    for _ in range(5):
        array = filled(device, 1.0)
        with other:
            spin(device, 0.02)
            launch(device, "add", array, COUNT, 100.0)
        del array
        fresh = filled(device, 7.0)  # of the same size: the pool gives the same memory when it may
        device.current_stream.synchronize()
        other.synchronize()
        assert holds(fresh, 7.0)


def test_another_librarys_stream_becomes_ours(device: GpuDevice) -> None:
    assert device.stream(1) == device.current_stream
    with device._scope("making a stream"):
        foreign = device._context.device().create_stream()
    with device.stream(foreign) as ours:
        array = filled(device, 6.0)
        assert device.stream(int(foreign.handle)) == ours
    assert holds(array, 6.0)
    with pytest.raises(ArgumentError, match="stream must be"):
        device.stream("legacy")


def test_a_graph_replays_what_was_captured(device: GpuDevice) -> None:
    total, staged = filled(device, 0.0), device.pinned((COUNT,), np.float32)
    staged[:] = 10
    launch(device, "add", total, 0, 0.0)  # the code is loaded before
    with device.capture() as graph:
        scratch, dropped = device.empty((COUNT,), np.float32), device.empty((COUNT,), np.float32)
        scratch.copy_from(staged)
        launch(device, "add", scratch, COUNT, 1.0)
        launch(device, "fill", dropped, COUNT, 99.0)
        launch(device, "add", total, COUNT, 2.0)
        for refused in (device.synchronize, total.numpy, lambda: device.array(np.ones(3)), graph.launch):
            with pytest.raises(ArgumentError):
                refused()
    assert holds(total, 0.0), "captured work ran"
    graph.upload()
    for _ in range(3):
        graph.launch()
    assert holds(total, 6.0)
    assert holds(scratch, 11.0)
    staged[:] = 20
    del staged, dropped  # the graph keeps them
    gc.collect()
    bystander = filled(device, 5.0)
    device.synchronize()
    with device.stream():
        graph.launch()
    assert holds(total, 8.0)
    assert holds(scratch, 21.0)
    assert holds(bystander, 5.0)


def test_a_capture_that_fails_leaves_nothing_behind(device: GpuDevice) -> None:
    array = filled(device, 1.0)
    before = device.current_stream
    graph = device.capture()
    with pytest.raises(ArgumentError, match="must hold"), graph:
        array.fill(np.ones(COUNT))  # of another type
    assert device.current_stream == before
    with pytest.raises(ArgumentError, match="must be captured before launch"):
        graph.launch()
    launch(device, "add", array, COUNT, 1.0)
    assert holds(array, 2.0)


# ── other libraries ────────────────────────────────────────────────────────────────────────────────────


class Foreign:
    """A library that speaks one protocol, over memory of ours."""

    def __init__(self, array: GpuArray, protocol: str) -> None:
        self.array, spoken = array, self.__dict__
        if protocol == "interface":
            spoken["__cuda_array_interface__"] = array.__cuda_array_interface__
        else:
            spoken["__dlpack_device__"] = array.__dlpack_device__
            spoken["__dlpack__"] = array.__dlpack__ if protocol == "versioned" else self.unversioned

    def unversioned(self, stream: int | None = None) -> Any:
        return self.array.__dlpack__(stream=stream)


@pytest.mark.parametrize("protocol", ["interface", "versioned", "unversioned"])
def test_foreign_arrays_are_viewed_without_a_copy(device: GpuDevice, protocol: str) -> None:
    with device.stream():  # its work is to be waited for
        spin(device, 0.05)
        array = filled(device, 3.0)
        foreign = Foreign(array[10:-10:2], protocol)
        before = array._address
        del array
    view = device.array(foreign)
    del foreign
    gc.collect()
    bystander = filled(device, 9.0)  # takes the memory if it was let go
    device.synchronize()
    assert bystander.ptr
    assert view._address == before + 40
    assert view.strides == (8,)
    assert holds(view, 3.0)


def test_cuda_core_reads_our_arrays(device: GpuDevice) -> None:
    utilities = importlib.import_module("cuda.core.utils")
    array = filled(device, 1.0)[::2]
    with device._scope("reading a view"):
        view = utilities.StridedMemoryView.from_dlpack(array, stream_ptr=1)
        told = utilities.StridedMemoryView.from_cuda_array_interface(array, stream_ptr=1)
    for seen in (view, told):
        assert (seen.ptr, seen.shape, seen.strides) == (array._address, (COUNT // 2,), (2,))
        assert seen.dtype == np.float32


@pytest.mark.filterwarnings("default")
def test_torch_and_ours_keep_their_order(device: GpuDevice) -> None:
    if importlib.util.find_spec("torch") is None:
        return  # not part of a plain installation
    torch = importlib.import_module("torch")
    tensor = torch.zeros(COUNT, device="cuda:0")
    for _ in range(20):
        torch.cuda._sleep(1_000_000)
        tensor += 1
        launch(device, "add", device.array(tensor), COUNT, 1.0)
        tensor *= 1
    assert bool((tensor == 40).all())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), device.stream(torch.cuda.current_stream()):
        other = torch.ones(COUNT, device="cuda:0")
        torch.cuda._sleep(10_000_000)
        launch(device, "add", device.array(other), COUNT, 1.0)
        other += 1
        assert bool((other == 3).all())
    for dtype in (np.float16, ml_dtypes.bfloat16):
        values = np.random.default_rng().random((7, 9)).astype(dtype)
        given_ = torch.from_dlpack(device.array(values)[::2, 1:])
        assert np.array_equal(given_.float().cpu().numpy(), values[::2, 1:].astype(np.float32))
        assert device.array(given_).numpy().tobytes() == values[::2, 1:].tobytes()


def test_other_gpus_are_refused(device: GpuDevice) -> None:
    if gpu.count() == 1:
        return  # nothing to mix it up with
    other = gpu.open(1)
    array = filled(other, 1.0)
    for mixed in (
        lambda: launch(device, "add", array, COUNT, 1.0),
        lambda: device.array(array),
        lambda: device.array(Foreign(array, "interface")),
        lambda: filled(device, 0.0).copy_from(array),
        lambda: device.stream(other.stream()),
        lambda: device.stream(other.stream().handle),
    ):
        with pytest.raises(ArgumentError, match=r"must (lie on gpu:0, but lies on gpu:1|belong to gpu:0)"):
            mixed()
    assert holds(array, 1.0)


# ── what ends a process ────────────────────────────────────────────────────────────────────────────────

IN_A_PROCESS = """
import gc, multiprocessing, os, struct, sys
from tests.gpu.test_gpu_device import *
device = gpu.open(0)
array = filled(device, 1.0)
device.synchronize()
"""
FAULTY = """
launch(device, "fault", bytes(8), grid=(1, 1, 1))
for again in (device.synchronize, array.numpy, lambda: device.empty((9,), "f4")):
    try:
        again()
    except DeviceError as error:
        print(error)
"""
FORKED = """
child = os.fork()
if not child:
    print(gpu.count(), gpu.why_not())
    for refused in (gpu.open, array.numpy, device.synchronize):
        try:
            refused()
        except DeviceUnavailable as error:
            print(error)
    del array
    gc.collect()
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print("parent", holds(array, 1.0))
"""


def run_in_a_process(script: str) -> list[str]:
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path[:0] = [{SOURCES!r}, {root!r}]\n{IN_A_PROCESS}{script}"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_fault_is_told_with_its_kernel() -> None:
    first, *later = run_in_a_process(FAULTY)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in first
    assert "while running kernel 'fault'" in first
    assert "the context is lost: start a new process" in first
    assert len(later) == 2
    assert all("the context is lost" in line for line in later)


def test_a_forked_process_is_told_so() -> None:
    if sys.platform == "win32":
        return  # it has no fork
    *child, parent = run_in_a_process(FORKED)
    assert child[0].startswith("0 CUDA was started before this process was forked")
    assert len(child) == 4
    assert all("spawn" in line for line in child)
    assert parent == "parent True"
