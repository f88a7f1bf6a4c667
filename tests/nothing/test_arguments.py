"""Arguments become the bytes that the kernel's parameters want, and host arrays come back changed."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_device import FakeArray, FakeDevice
from tilewise import Kernel
from tilewise.devices.arguments import Packed, pack
from tilewise.errors import ArgumentError
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


@pytest.mark.parametrize(
    ("types", "given", "scratch"),
    [
        (["u64", "u32", "u64", "u64"], 2, True),
        (["u64", "u32", "u64", "u64"], 1, False),
        (["u64", "u64", "u64", "u64"], 1, False),
        (["u64", "u32", "u64"], 1, False),
        (["u64", "u64", "u32"], 1, False),
        (["u64", "u64"], 3, False),
    ],
)
def test_the_number_of_arguments_is_the_kernels(types: list[str], given: int, scratch: bool) -> None:
    """Where but two pointers at the end are missing, they are likely Triton's."""
    parameters = [Parameter(f"p{i}", type_, int(type_[1:]) // 8, 8) for i, type_ in enumerate(types)]
    wanted = rf"args must have {len(types)} entries for kernel 'k' \({', '.join(types)}\), not {given}"
    with pytest.raises(ArgumentError, match=wanted) as caught:
        pack("k", parameters, [0] * given, FakeDevice())
    assert ("Triton's" in str(caught.value)) == scratch


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
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        stream: int | None = None,
    ) -> None:
        super().run(binary, entry, launch, packed, timeout, stream)
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
    assert replace(device.launches[0][1], args=()) == Launch((1, 1, 1), (32, 1, 1))


def test_one_array_given_twice_is_one_memory() -> None:
    device, host = Doubling(), np.ones(3, np.float32)
    packed = pack("k", [UNKNOWN, UNKNOWN], [host, host], device)
    assert packed.parts[0] == packed.parts[1]
    assert len(device.arrays) == 1


# ── what C++ says of a parameter ──


def pointer(declared: str = "", element: str | None = None, writable: bool | None = None) -> Parameter:
    return Parameter("p", "u64", 8, 8, declared, element, writable)


FLOATS, CONST_FLOATS = pointer("float *x", "float32", True), pointer("const float *x", "float32", False)
UNKNOWN, ADDRESS = pointer(), pointer("unsigned long long n")


def packed(parameter: Parameter, value: Any) -> Packed:
    return pack("k", [parameter], [value], FakeDevice())


def refused(parameter: Parameter, value: Any, *words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        packed(parameter, value)
    message = str(caught.value)
    assert message.startswith("args[0] ") and all(word in message for word in words), message


def read_only(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    host.flags.writeable = False
    return host


ALIKE = [
    ("float32", ["f4"]),
    ("float64", ["f8"]),
    ("int32", ["i4", "u4"]),
    ("uint64", ["u8", "i8", "q", "Q"]),
    ("uint16", ["u2", "i2", "f2", ml_dtypes.bfloat16]),
    ("int8", ["i1", "u1", "?", "S1", ml_dtypes.float8_e5m2]),
    ("bool", ["?", "u1", "i1"]),
    ("uint8", ["u1", "i1", "?", ml_dtypes.float8_e4m3fn]),
    ("float16", ["f2"]),
    ("bfloat16", [ml_dtypes.bfloat16, "u2"]),
    ("float8_e4m3fn", [ml_dtypes.float8_e4m3fn, "u1"]),
]
TYPES = [
    "f4",
    "f8",
    "c8",
    "i4",
    "u4",
    "i8",
    "u8",
    "i2",
    "u2",
    "i1",
    "u1",
    "?",
    "f2",
    "M8[s]",
    "S1",
    "S4",
    "U1",
]
OWN_TYPES = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, MATRIX]


@pytest.mark.parametrize(("element", "taken"), ALIKE)
def test_an_array_holds_what_the_pointer_points_to(element: str, taken: list[Any]) -> None:
    parameter = pointer("T *x", element, True)
    taken_types = {np.dtype(type_) for type_ in taken}
    for dtype in map(np.dtype, [*TYPES, *OWN_TYPES]):
        if dtype in taken_types or (dtype.itemsize == 1 and element in ("int8", "uint8", "bool")):
            packed(parameter, np.zeros(3, dtype))
        else:
            refused(parameter, np.zeros(3, dtype), f"must hold {element} for the kernel's parameter `T *x`")
        packed(UNKNOWN, np.zeros(3, dtype))  # nothing known, nothing refused
        packed(pointer("void *x", None, True), np.zeros(3, dtype))


def test_what_to_do_about_other_elements() -> None:
    refused(CONST_FLOATS, np.zeros(3), "`const float *x`", "not 'float64'; x.astype('float32')")
    refused(CONST_FLOATS, np.zeros(3, MATRIX), "x.view('float32')")
    refused(pointer("long *t", "int64", True), np.zeros(3, "M8[s]"), "x.view('int64')")
    refused(pointer("bf *t", "bfloat16", True), np.zeros(3), "x.astype(ml_dtypes.bfloat16)")
    device = FakeDevice()
    with pytest.raises(ArgumentError, match=r"float64'; device\.array\(x\.numpy\(\)\.astype\('float32'\)\)"):
        pack("k", [FLOATS], [device.array(np.zeros(3))], device)


def test_a_result_cannot_go_to_a_read_only_array(tmp_path: Path) -> None:
    np.ones(4, np.float32).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    for host in (read_only(np.ones(4, np.float32)), mapped, np.broadcast_to(np.float32(1), 4)):
        refused(FLOATS, host, "writable", "`float *x`", "read-only", "x.copy()", "const")
        assert not packed(CONST_FLOATS, host).back


def test_a_read_only_array_that_was_written_to_is_told(tmp_path: Path) -> None:
    """Where no C++ says whether the kernel writes, the copy tells."""
    host = read_only(np.array([1, np.nan], np.float32))
    found = packed(UNKNOWN, host)
    found.copy_back()
    found.keep[0].fill(host * 2)
    with pytest.raises(
        ArgumentError, match=r"args\[0\] must be writable: the kernel wrote to it.*x\.copy\(\)"
    ):
        found.copy_back()


def test_what_is_const_is_known_of_kernels() -> None:
    device, x, y = Doubling(), read_only(np.ones(3, np.float32)), np.ones(3, np.float32)
    c = 'extern "C" __global__ void add(const float *x, float *y) { *y += *x; }'
    add = Kernel(c, "add", "sm_75")
    template = "template <typename T> __global__ void add(const T *x, T *y) { *y += *x; }"
    for kernel in (add, Kernel(template, "add<float>", "sm_75"), Kernel(c.split(" ", 2)[2], "add", "sm_75")):
        kernel(1, 1, [x, y], device=device)
        with pytest.raises(ArgumentError, match=r"args\[1\] must be writable for .* `float \*"):
            kernel(1, 1, [y, x], device=device)
        with pytest.raises(
            ArgumentError, match=r"args\[0\] must hold float32 for .* `const float \*.*float64"
        ):
            kernel(1, 1, [np.ones(3), y], device=device)


def test_a_number_takes_no_array() -> None:
    refused(ADDRESS, np.zeros(3), "must be a number", "`unsigned long long n`", "ndarray")
    refused(Parameter("p", "f64", 8, 8), np.zeros(3), "must be a number", "f64")
    device = FakeDevice()
    with pytest.raises(ArgumentError, match=r"x\.ptr is its address"):
        pack("k", [ADDRESS], [device.array(np.zeros(3))], device)


# ── what is an array ──


class Lying:
    """What tensors of one element are: an array, and a number besides."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __index__(self) -> int:
        return int(self._array)

    __float__ = __int__ = __index__

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def item(self) -> int:
        return int(self._array)


def test_a_fraction_is_refused_where_no_type_of_it_has_so_many_bits() -> None:
    refused(Parameter("p", "b8", 1, 1), 1.5, "must be an integer for a parameter of 8 bits", "1.5")


def test_an_array_of_one_element_is_no_number() -> None:
    one = np.array([7.0], np.float32)
    told = SimpleNamespace(__array_interface__=one.__array_interface__)  # of the instance, not of its type
    for value in (one, one.reshape(()), Lying(one), Lying(one.reshape(())), told):
        found = packed(FLOATS, value)
        (address,) = struct.unpack("<Q", found.parts[0])
        ctypes.c_float.from_address(address).value = 9  # as a kernel would
        found.copy_back()
        assert one[0] == 9
        one[:] = 7
    refused(Parameter("n", "u32", 4, 4), Lying(one), "must be a number", "u32", "Lying", "x.item()")


def test_what_has_an_index_and_is_no_array_is_a_number() -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    assert packed(Parameter("n", "u32", 4, 4), Seven()).parts == [struct.pack("<I", 7)]
    assert packed(ADDRESS, np.array(7)).parts == [struct.pack("<Q", 7)]


class Converted:
    """Becomes a new NumPy array each time it is asked."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.ones(3, np.float32)


def test_what_only_becomes_an_array_takes_no_results() -> None:
    refused(FLOATS, Converted(), "must be writable", "a read-only Converted")
    assert not packed(CONST_FLOATS, Converted()).back


def test_kinds_of_arrays() -> None:
    masked = np.ma.MaskedArray(np.ones(3, np.float32), [True, False, True])
    refused(FLOATS, masked, "must have no mask", "MaskedArray", "x.filled(")
    refused(UNKNOWN, np.ones(3, ">f4"), "byte order", "'dtype >f4'", "x.astype(x.dtype.newbyteorder('='))")
    refused(UNKNOWN, np.ones(3, object), "fixed size")
    refused(FLOATS, [1.0, 2.0], "must be a device array", "list", "np.array(x, dtype)")
    matrix = np.ones((2, 2), np.float32).view(np.matrix)
    found = packed(FLOATS, matrix)
    found.keep[0].fill(np.full((2, 2), 5, np.float32))
    found.copy_back()
    assert (np.asarray(matrix) == 5).all()


def test_host_arrays_are_read_again_for_each_launch() -> None:
    host = np.ones(3, np.float32)
    found = pack("k", [FLOATS], [host], FakeDevice(), copy=False)
    for value in (2, 3):
        host[:] = value
        found.copy_in()
        np.testing.assert_array_equal(found.keep[0].numpy(), host)


def test_two_views_of_the_same_elements_are_one_memory() -> None:
    host = np.ones((3, 4), np.float32)
    found = pack("k", [FLOATS, FLOATS], [host[:2], host[:2]], FakeDevice())
    assert found.parts[0] == found.parts[1] and len(found.back) == 1
    with pytest.raises(ArgumentError, match="must not overlap"):
        pack("k", [FLOATS, FLOATS], [host[:2], host[1:]], FakeDevice())


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
            stream: int | None = None,
        ) -> None:
            seen.append(binary.arch)

    x = np.ones(3, np.float32)
    Kernel(TWICE, "twice")(1, 32, (x, 3), device=Noting("sm_86"))
    Kernel(TWICE, "twice", "sm_80")(1, 32, (x, 3), device=Noting("sm_86"))
    assert seen == ["sm_86", "sm_80"]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["u", "s", "b"])
def test_a_number_fits_signed_or_unsigned_to_its_last_value(kind: str, bits: int) -> None:
    for number, fits in (
        (2**bits - 1, True), (2**bits, False), (2**bits + 1, False), (-(2 ** (bits - 1)), True),
        (-(2 ** (bits - 1)) - 1, False), (-(2**bits), False), (0, True), (-1, True),
    ):  # fmt: skip
        if fits:
            assert bytes_of(f"{kind}{bits}", number) == (number % 2**bits).to_bytes(bits // 8, "little")
            continue
        with pytest.raises(ArgumentError, match=rf"args\[0\] must fit the kernel's {kind}{bits} parameter"):
            bytes_of(f"{kind}{bits}", number)


@pytest.mark.parametrize(
    ("type_", "taken"),
    [("u64", True), ("s64", True), ("b64", True), ("f64", False), ("u32", False), ("f32", False)],
)
def test_nothing_is_an_address_and_no_number(type_: str, taken: bool) -> None:
    if taken:
        assert bytes_of(type_, None) == bytes(8)
        return
    with pytest.raises(
        ArgumentError, match=rf"must be a number for the kernel's {type_} parameter, not None"
    ):
        bytes_of(type_, None)
