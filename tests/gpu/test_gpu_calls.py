"""What compiled calls and prepared launches use of a GPU: functions by address, argument blocks, state words."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from tests.gpu.test_gpu_device import COUNT, binary, filled, holds
from tilewise.devices import gpu
from tilewise.devices.gpu import GpuArray, GpuDevice
from tilewise.devices.gpu.driver import driver
from tilewise.devices.gpu.launches import ArgumentBlock
from tilewise.errors import DeviceError
from tilewise.launch import Launch

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> GpuDevice:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def add_block(array: GpuArray, value: float) -> ArgumentBlock:
    block = ArgumentBlock((8, 4, 4))
    block.write([struct.pack("<Q", array.ptr), struct.pack("<I", COUNT), struct.pack("<f", value)])
    return block


def state_of(array: GpuArray) -> int:
    return int(struct.unpack_from("<Q", array.native())[0])


def test_a_block_is_launched_as_often_as_wanted_on_any_stream(device: GpuDevice) -> None:
    array, function = filled(device, 1.0), device.load(binary(device.arch), "add")
    launch, block = Launch((8, 1, 1), (128, 1, 1)), add_block(array, 0.5)
    for handle in (None, 0, 1):
        device.launch_block(function, launch, block.pointers, handle)
    assert holds(array, 2.5)
    device.synchronize()
    other = device.stream()
    device.launch_block(function, launch, block.pointers, other.driver_handle)
    other.synchronize()
    assert holds(array, 3.0)
    device.run(
        binary(device.arch), "add", launch,
        [struct.pack("<Q", array.ptr), struct.pack("<I", COUNT), struct.pack("<f", 1.0)], 5.0, other.driver_handle,
    )  # fmt: skip
    assert holds(array, 4.0)


def test_a_block_is_launched_whatever_context_is_current(device: GpuDevice) -> None:
    array, function = filled(device, 1.0), device.load(binary(device.arch), "add")
    block, cuda = add_block(array, 1.0), driver()
    before = cuda.cuCtxGetCurrent()[1]
    cuda.cuCtxSetCurrent(cuda.CUcontext(0))
    try:
        device.launch_block(function, Launch((8, 1, 1), (128, 1, 1)), block.pointers)
        assert int(cuda.cuCtxGetCurrent()[1]) == 0
    finally:
        cuda.cuCtxSetCurrent(before)
    assert holds(array, 2.0)


def test_what_the_driver_refuses_is_told(device: GpuDevice) -> None:
    array, function = filled(device, 1.0), device.load(binary(device.arch), "add")
    block = add_block(array, 1.0)
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_\w+ .*starting kernel 'add'"):
        device.launch_block(function, Launch((0, 1, 1), (128, 1, 1)), block.pointers)
    assert holds(array, 1.0)


def test_the_drivers_functions_work_by_their_addresses(device: GpuDevice) -> None:
    entries = device.native_entries()
    assert entries.launch_kernel_ex
    get, push, pop = (
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(at)
        for at in (entries.ctx_get_current, entries.ctx_push_current, entries.ctx_pop_current)
    )
    found = ctypes.c_void_p()
    assert push(device.context_address) == 0
    assert get(ctypes.addressof(found)) == 0
    assert found.value == device.context_address
    assert pop(ctypes.addressof(found)) == 0
    assert found.value == device.context_address
    if device.arch.startswith("sm_9"):
        assert entries.tensor_map_encode_tiled
    function = device.load(binary(device.arch), "dynamic")
    function.allow(0, None)
    assert function.address == int(function.raw)


def test_memory_is_plain_until_another_stream_has_it(device: GpuDevice) -> None:
    array = device.empty((COUNT,), np.float32)
    state = ctypes.c_uint64.from_address(state_of(array))
    launches = filled(device, 1.0)
    assert (state.value, ctypes.c_uint64.from_address(state_of(launches)).value) == (1, 1)
    with device.capture():
        array.copy_from(launches)
    assert state.value == 0
    with device.stream():
        assert holds(launches, 1.0)
    assert ctypes.c_uint64.from_address(state_of(launches)).value == 0
