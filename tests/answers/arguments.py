"""The arguments of a kernel of one's own: what each parameter takes, the bytes that it becomes, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import tilewise as tw
from tests.fake_device import FakeDevice
from tilewise.devices.arguments import fits, pack
from tilewise.devices.host_views import gpu_of, is_array, view_on_host
from tilewise.launch import Parameter
from tilewise.module import ModuleVariable, _content

LINES = """
given(p('«u8|u16|u32|u64|s8|s16|s32|s64»'), «0|1|-1|127|128|255|256|-128|-129|2**31|2**32 - 1|2**32|2**63|2**64 - 1|2**64|-2**63|-2**63 - 1»)
given(p('«b8|b16|b32|b64|u32|f32|f64|f16»'), «1|1.5|True|1j|np.float32(2)|np.float16(2)|np.int8(-3)|np.uint64(7)|np.bool_(True)|np.float64(1e300)|bf(2)|f8(2)|None|'1'|[1]|zero(3)|np.complex64(1)»)
given(p('«f16|f32|f64»'), «65504.0|65520.0|1e39|1e308|float('inf')|float('nan')|-0.0|10**400»)
given(p('«b8|b128»', 12), «b'x' * 12|b'x' * 11|bytearray(12)|memoryview(bytes(12))|struct(12)|struct(8)|np.zeros(12, 'u1')|5|None|np.zeros((), 'V12')»)
given(p('u32'), «b'abcd'|b'abc'|np.zeros((), 'u4')|np.zeros((), 'f4')|np.zeros(1, 'u4')|struct(4)|Indexed()|Shaped()»)
given(p('«u64|f64|u32|b64»', declared='«float *x|»', element=«None|'float32'», writable=«None|True|False»), «None|zero(4)|emulated(4)|5|1.5|[1.0]|object()|emulated(4)[1:]|read_only(4)|zero()»)
given(p('u64', declared='float *x', element='«float32|int32|uint32|float16|bfloat16|int16|uint16|int8|bool|float8_e4m3fn|float64|int64»', writable=True), zero(4, dtype=«'float32'|'int32'|'uint32'|'float16'|'bfloat16'|'uint16'|'int16'|'int8'|'uint8'|'bool'|'float8_e5m2'|'float64'|'complex64'»))
given(p('u64', declared='float *x', element='«float32|bfloat16|float8_e4m3fn»', writable=True), emulated(4, dtype=«'float32'|'int32'|'float16'|'uint8'»))
given(p('u64', declared='long long n', writable=None), «zero(4)|emulated(4)|7|zero()|np.int64(9)|None»)
given(p('u64', declared='«float *x|const float *x»', element='float32', writable=«True|False|None»), «zero(4)[::2]|zero(4).astype('>f4')|zero(4).astype(object)|np.ma.masked_array([1.0])|zero(0)|zero(2, 3).T|fake_array(3)|interface(3)|OnGpu(2)|OnGpu(9)|Grad()|Refusing()»)
given(p('b8', 128), «tensor_map()|tensor_map(emulated(64, 64, dtype='float16'))|tensor_map(0)»)
given(p('«b8|u64|b32»', «64|128»), tensor_map())
several(«(p('u64'), p('u32'))|()|(p('b8', 12),)|(p('f32'),)», «[1, 2]|[1]|[]|(1, 2)|5|'ab'|np.zeros(2)|None|range(2)|{1: 2}»)
several((p('u64', declared='x'), p('u64'), p('u64')), «[None]|[None, None]|[]|[1, 2, 3, 4]», 'a_kernel')
shared(lambda x: [«x, x|x, x[1:]|x[:2], x[2:]|x[:3], x[2:]|x, x.copy()|x, x.reshape(2, 2)|x[::2], x[1::2]|x, x[::-1]»], «True|False»)
shared(lambda x: [«x, Held(x[1:])|Held(x[1:]), x|Held(x), Held(x[1:])|x[:2], Held(x[2:])|x[:2], x[3:], Held(x[1:3])|x[:1], x[3:], Held(x[:2])|Held(x[:1]), Held(x[3:]), x[2:]|x, Held(x)|Held(x), Held(x)|Held(x), x|x[3:], Held(x[:2]), x[1:3]»], «True|False»)
back(«True|False», «True|False», «True|False»)
fits('«float32|int32|uint32|float16|bfloat16|int16|uint16|int8|uint8|bool|float8_e4m3fn|int64»', np.dtype(«'float32'|'int32'|'uint32'|'float16'|'int16'|'uint16'|'int8'|'uint8'|'bool'|ml_dtypes.bfloat16|ml_dtypes.float8_e5m2|'int64'|'uint64'|'V1'|'S1'|'f8'»))
[is_array(«zero(2)|1|1.0|None|'a'|[1]|fake_array(2)|interface(2)|np.float32(1)|OnGpu(2)|zero»)]
gpu_of('x', «zero(2)|fake_array(2)|OnGpu(1)|OnGpu(2)|OnGpu(3)|OnGpu(11)|OnGpu(13)|OnGpu(10)|Grad()|Refusing()|SimpleNamespace(__cuda_array_interface__=None)|SimpleNamespace(__cuda_array_interface__={})»)
view_on_host('x', «zero(2)|fake_array(2)|np.ma.masked_array([1.0])|np.asmatrix(zero(2, 2))|Held(zero(2))|Fresh()|interface(2)»)
written('«float32|int8|uint8|int32»', «(2,)|()|(2, 3)|(0,)», «1|1.5|True|[1, 2]|(1, 2)|[[1, 2, 3], [4, 5, 6]]|[1.5, 2]|'ab'|None|np.float32(2)|1j|[]|b'12345678'|b'1234'|b''|bytearray(2)|zero(2)|zero(2, 3)|zero(3, 2).T|zero(2, dtype='float64')|zero(2, dtype='uint32')|emulated(2)|np.ma.masked_array([1.0, 2.0])|struct(8)|zero(2).astype('>f4')|OnGpu(2)|object()»)
written(None, «(8,)|(2,)», «1|[1, 2]|b'12345678'|b'12'|zero(2)|zero(8, dtype='uint8')|np.float32(1)»)
str(ModuleVariable('v', «'global'|'constant'», 1234567, «None|np.dtype('f4')», (2,), 'v', «''|'float v[2]'»))
"""

EMULATOR: Any = tw.device("emulator")
bf, f8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def p(
    kind: str,
    size: int | None = None,
    declared: str = "",
    element: str | None = None,
    writable: bool | None = None,
) -> Parameter:
    """A parameter of a PTX type."""
    bits = int("".join(letter for letter in kind if letter.isdigit()))
    return Parameter("p", kind, size or bits // 8, 8, declared, element, writable)


def given(parameter: Parameter, value: Any) -> Any:
    """What an argument becomes: its bytes, unless these are an address, and what is copied, and back."""
    found = pack("k", (parameter,), [value], EMULATOR)
    is_address = bool(found.keep)
    shown = (
        "an address"
        if is_address and parameter.size == 8
        else f"{len(found.parts[0])} bytes"
        if is_address
        else None
    )
    lists = (found.keep, found.copies, found.back, found.adopted, found.read_only)
    return shown or found.parts[0].hex(), [len(one) for one in lists]


def several(parameters: tuple[Parameter, ...], args: Any, kernel: str = "k") -> Any:
    return [part.hex() for part in pack(kernel, parameters, args, EMULATOR).parts]


def shared(make: Any, writable: bool) -> Any:
    """Arguments that are parts of one array: which have an address in common, and what is copied back."""
    args = make(np.arange(4, dtype=np.float32))
    found = pack(
        "k",
        (p("u64", declared="float *x", element="float32", writable=writable),) * len(args),
        args,
        EMULATOR,
    )
    return len(set(found.parts)), len(found.copies), len(found.back)


def back(writes: bool, writable: bool, copies: bool) -> Any:
    """What host arrays hold after a launch that writes, or does not."""
    host = np.arange(3, dtype=np.float32)
    host.flags.writeable = writable
    found = pack("k", (p("u64"),), [host], EMULATOR, copy=copies)
    found.copy_in()
    if writes:
        found.keep[0].fill(np.full(3, 7, np.float32))
    found.copy_back()
    return host


def zero(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, getattr(ml_dtypes, dtype, dtype))


def emulated(*shape: int, dtype: str = "float32") -> Any:
    return EMULATOR.zeros(shape, dtype)


def read_only(*shape: int) -> Any:
    made = zero(*shape)
    made.flags.writeable = False
    return made


def struct(size: int) -> Any:
    return np.zeros((), [("a", f"V{size}")])[()]


def tensor_map(array: Any = None) -> tw.TensorMap:
    if isinstance(array, int):
        return tw.TensorMap(array, (8, 8), shape=(64, 64), dtype="float16")
    return tw.TensorMap(np.zeros((64, 64), np.float16) if array is None else array, (8, 8))


def fake_array(size: int) -> Any:
    """An array of a device that is another one."""
    return FakeDevice().zeros((size,), "float32")


def interface(size: int) -> Any:
    """Host memory that is described alone."""
    held = np.zeros(size, np.float32)
    return SimpleNamespace(__array_interface__=held.__array_interface__, held=held)


def written(dtype: str | None, shape: tuple[int, ...], value: Any) -> Any:
    """What is written to a module's variable."""
    kind = None if dtype is None else np.dtype(dtype)
    size = int(np.prod(shape)) * (1 if kind is None else kind.itemsize)
    return _content(
        ModuleVariable("v", "global", size, kind, shape, "v", f"{dtype} v" if dtype else ""), value
    )


class Indexed:
    """An integer of another library."""

    def __index__(self) -> int:
        return 9


class Shaped:
    """Something with a shape that is no array."""

    shape = (1,)


class OnGpu:
    """An array that says on which kind of device it lies."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 3

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("it is not\n handed over")


class Grad(OnGpu):
    """An array that records gradients."""

    requires_grad = True

    def __init__(self) -> None:
        super().__init__(1)


class Refusing(OnGpu):
    """An array that does not say where it lies."""

    def __init__(self) -> None:
        super().__init__(1)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("nowhere\n at all")


class Held:
    """An array by way of ``__array__``: the same memory each time."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.held


class Fresh:
    """The same with another copy each time."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(2, np.float32)
