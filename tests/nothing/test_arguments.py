"""Arguments become the bytes that the kernel's parameters want, and host arrays come back changed."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_device import FakeArray, FakeDevice
from tilewise import Kernel
from tilewise.devices.arguments import pack
from tilewise.launch import Launch, Parameter
from tilewise.toolchain.binary import Binary

MATRIX = np.dtype([("width", "u4"), ("height", "u4"), ("pitch", "u4"), ("elements", "u8")], align=True)
TWICE = 'extern "C" __global__ void twice(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }'


def bytes_of(type_: str, value: Any, size: int = 0) -> bytes:
    width = size or int(type_.strip("abcdefghijklmnopqrstuvwxyz")) // 8
    (part,) = pack("k", [Parameter("p", type_, width, width)], [value], FakeDevice()).parts
    return part


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("u32", 7, "07000000"),
        ("u32", -1, "ffffffff"),
        ("u32", True, "01000000"),
        ("s32", np.int8(-2), "feffffff"),
        ("u64", 2**64 - 1, "ff" * 8),
        ("u64", np.uint64(5), "0500000000000000"),
        ("u16", np.array(513), "0102"),
        ("u8", 255, "ff"),
        ("f32", 1, "0000803f"),
        ("f32", 1.5, "0000c03f"),
        ("f32", np.float64(-2), "000000c0"),
        ("f32", float("inf"), "0000807f"),
        ("f64", np.float32(1.5), "000000000000f83f"),
        ("b16", 1.5, "003e"),
        ("b16", np.float16(1.5), "003e"),
        ("b16", ml_dtypes.bfloat16(1.5), "c03f"),
        ("b32", 1.5, "0000c03f"),
        ("b32", 7, "07000000"),
    ],
)
def test_scalars(type_: str, value: Any, expected: str) -> None:
    assert bytes_of(type_, value).hex() == expected


@given(st.integers(-(2**31), 2**32 - 1))
def test_an_integer_keeps_its_bits(number: int) -> None:
    assert int.from_bytes(bytes_of("u32", number), "little") == number % 2**32


@given(st.floats(width=32))
def test_a_float_keeps_its_bits(number: float) -> None:
    assert bytes_of("f32", number) == struct.pack("<f", number)


def test_structs() -> None:
    expected = struct.pack("<IIIxxxxQ", 3, 4, 5, 6)
    scalar = np.zeros((), MATRIX)  # zeros: NumPy leaves the padding of a new one as it finds it
    scalar["width"], scalar["height"], scalar["pitch"], scalar["elements"] = 3, 4, 5, 6
    for value in (expected, bytearray(expected), memoryview(expected), scalar, scalar[()]):
        assert bytes_of("b8", value, 24) == expected


def test_an_address_is_a_number() -> None:
    assert bytes_of("u64", 0xDEADBEEF) == struct.pack("<Q", 0xDEADBEEF)


def test_none_is_a_null_pointer() -> None:
    assert bytes_of("u64", None) == bytes_of("b64", None) == bytes(8)


def test_a_device_array_is_its_address() -> None:
    device = FakeDevice()
    array = device.array(np.ones(4, np.float32))
    packed = pack("k", [Parameter("p", "u64", 8, 8)], [array], device)
    assert packed.parts == [struct.pack("<Q", array.ptr)]
    assert packed.keep == [array]
    assert not packed.back


class Doubling(FakeDevice):
    """Doubles whatever it is given, as the kernel ``twice`` would."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[FakeArray] = []

    def array(self, source: Any) -> FakeArray:
        self.arrays.append(super().array(source))
        return self.arrays[-1]

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        super().run(binary, entry, launch, packed, timeout)
        for array in self.arrays:
            array.fill(array.numpy() * 2)


@pytest.mark.parametrize(
    "host",
    [
        np.arange(6.0, dtype="f4"),
        np.arange(12.0, dtype="f4")[::2],
        np.arange(6.0, dtype="f4").reshape(2, 3).T,
    ],
    ids=["contiguous", "strided", "transposed"],
)
def test_a_host_array_is_copied_in_and_back(host: np.ndarray[Any, Any]) -> None:
    device, host = Doubling(), host.copy("K") if host.flags.f_contiguous else host
    before = host.copy()
    Kernel(TWICE, "twice", "sm_75")(1, 32, (host, 6), device=device)
    np.testing.assert_array_equal(host, before * 2)
    assert device.launches[0][1] == Launch((1, 1, 1), (32, 1, 1))


def test_one_array_given_twice_is_one_memory() -> None:
    device, host = Doubling(), np.ones(3, np.float32)
    pointer = Parameter("p", "u64", 8, 8)
    packed = pack("k", [pointer, pointer], [host, host], device)
    assert packed.parts[0] == packed.parts[1]
    assert len(device.arrays) == 1


def test_a_read_only_array_is_not_written_back() -> None:
    device, host = Doubling(), np.ones(3, np.float32)
    host.flags.writeable = False
    Kernel(TWICE, "twice", "sm_75")(1, 32, (host, 3), device=device)
    assert (host == 1).all()


def test_the_arch_is_the_devices_unless_one_was_given() -> None:
    seen: list[str] = []

    class Noting(FakeDevice):
        def run(
            self,
            binary: Binary,
            entry: str,
            launch: Launch,
            packed: list[bytes],
            timeout: float | None = None,
        ) -> None:
            seen.append(binary.arch)

    x = np.ones(3, np.float32)
    Kernel(TWICE, "twice")(1, 32, (x, 3), device=Noting("sm_86"))
    Kernel(TWICE, "twice", "sm_80")(1, 32, (x, 3), device=Noting("sm_86"))
    assert seen == ["sm_86", "sm_80"]
