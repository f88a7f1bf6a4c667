"""Arrays and devices on the host: how arrays are made, sliced, filled and handed over; copies between layouts; memory."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import tilewise as tw
from tilewise.devices import exchange, gpu
from tilewise.devices.emulated import EmulatedDevice, observe_arrays
from tilewise.devices.host_launches import HostLauncher
from tilewise.devices.host_memory import ALLOCATIONS, AdoptedMemory, Allocation, _disjoint
from tilewise.devices.overlap import Changes, Snapshot, overlaps
from tilewise.devices.strides import (
    as_dtype,
    as_shape,
    contiguous,
    extent,
    is_contiguous,
    rectangles,
    slice_layout,
)

LINES = """
as_shape(«3|0|-1|True|1.5|'3'|b'3'|None|()|(2, 3)|[2, 0]|(2, -1)|(2, 1.5)|np.int64(4)|range(3)|iter([1])|{5: 1}»)
as_dtype(«'float32'|'f2'|np.int8|ml_dtypes.bfloat16|'>f4'|'O'|'S3'|'S0'|'U'|'V0'|[('a', 'f4')]|'flat'|None|float|'=i4'|'M8[s]'»)
contiguous(«()|(3,)|(2, 3)|(4, 0, 3)|(0,)|(2, 1, 5)», «1|4|8»)
is_contiguous(«(2, 3)|(2, 1)|(1, 3)|(0, 3)|()», «(12, 4)|(4, 8)|(99, 4)|(12, 99)|()»[:«0|2»], 4)
extent(«(2, 3)|(0, 3)|()|(4,)», «(12, 4)|(-12, 4)|(0, -4)|(8,)|()»[:«0|1|2»], 4)
sliced((4, 6), «(24, 4)|(4, 16)|(-24, 8)», «0|-1|4|-5|slice(None)|slice(1, 3)|slice(3, 1)|slice(None, None, -1)|slice(None, None, 2)|...|None|(1, 2)|(1, 2, 3)|(slice(1, 4), None, slice(0, 6, 4))|(..., 0)|(..., ...)|True|1.5|'a'|[0, 1]|np.int8(2)|np.array([1])|(None, 5, -6)|slice(0, 4, 0)|(0, 6)»)
list(rectangles(«(4, 6)|(6,)|(2, 3, 4)|(1, 6)|(0, 6)|()», 4, «(24, 4)|(4, 16)|(-24, 4)|(32, 4)|(4,)|(-4,)|(48, 16, 4)|(12, 4, 24)|()», «(24, 4)|(4, 16)|(48, 8)|(32, 4)|(4,)|(8,)|(48, 16, 4)|(4, 8, 24)|()»))
list(rectangles((2, 3), «1|4|8», («2**31 - 1|2**31|24|8», 8), («24|2**31 - 1|2**31», 8)))
list(rectangles((3, 5, 2), 4, (40, 8, 4), («40|80|44», «8|16|12», «4|8»)))
DEVICE.«empty|zeros»(«3|(2, 3)|(0, 3)|()|-1|(2, -1)|'a'», «'float32'|'int8'|'O'|ml_dtypes.bfloat16|'x'»).nbytes
DEVICE.zeros(«(2, 3)|(0,)|()», «'float32'|'int8'»).unset, DEVICE.empty(«(2, 3)|(0,)|()», 'float32').unset
DEVICE.array(«[1, 2]|5|np.arange(6.0).reshape(2, 3).T|np.zeros((0, 2))|ARRAY|'ab'|[['a']]|[object()]|np.zeros(2, '>f4')|np.arange(3)»)
DEVICE.array(ARRAY) is ARRAY, DEVICE.array(ARRAY[1:]) is ARRAY
[getattr(ARRAY«|[1]|[1:, ::2]|.T|[None]|[::-1]|[0, 0]», each) for each in ('shape', 'strides', 'dtype', 'ndim', 'size', 'nbytes')]
ARRAY[«1|1:, ::2|...|::-1|None, 2|0, 0»].ptr - ARRAY.ptr
ARRAY[«5|True|[1]|1.5|'a'|0, 0, 0»]
ARRAY[«0|2»].numpy(), len(ARRAY), repr(ARRAY)
len(ARRAY[0, 0])
iter(ARRAY)
np.asarray(ARRAY)
np.add(ARRAY, 1)
filled(«np.ones((3, 4), 'f4')|np.ones((4, 3), 'f4')|np.ones((3, 4), 'f8')|1.0|[[1.0] * 4] * 3|np.ones((3, 4), 'i4')», «slice(None)|slice(0, 2)|slice(1, 1)»)
unset_after(«[]|[0]|[(0, 1)]|[slice(0, 3)]|[(slice(None), 0)]|[0, 1, 2]|[(slice(None), slice(0, 4, 2)), (slice(None), slice(1, 4, 2))]»)
capsule_of(ARRAY«|[1:]|.T|[:, ::2]|[::-1]|[0, 0]», max_version=«None|(1, 0)|(0, 8)|(2, 0)», copy=«None|True|False»)
capsule_of(ARRAY, stream=«None|1|-1»)
capsule_of(ARRAY, dl_device=«(1, 0)|(2, 0)|(1, 1)»)
exchange.type_code(np.dtype(«'f2'|'f4'|'f8'|'i1'|'u2'|'c8'|'c16'|'?'|'S2'|'O'|'V2'|ml_dtypes.bfloat16|ml_dtypes.float8_e4m3fn|ml_dtypes.float8_e5m2|ml_dtypes.float8_e3m4|ml_dtypes.float8_e8m0fnu|ml_dtypes.int4|'M8[s]'|'>f4'»))
given(np.zeros((2, 3), «'f2'|'f4'|'f8'|'i1'|'u2'|'c8'|'c16'|'?'|'i8'|ml_dtypes.bfloat16|ml_dtypes.float8_e4m3fn|ml_dtypes.float8_e4m3b11fnuz|ml_dtypes.float8_e5m2fnuz»), versioned=«True|False», read_only=«True|False»)
given(np.zeros((2, 3), 'f4'), strides=«(12, 4)|(4, 8)|(-12, 4)|(6, 4)|(0, 0)»)
requested(«Silent()|OldProtocol()|Raising(BufferError('no\\n way'))|Raising(RuntimeError('x'))|Raising(TypeError('y'))|Raising(ValueError('z'))», «None|1»)
exchange.from_capsule(«object()|ARRAY.__dlpack__|5», None)
exchange.from_interface({'typestr': «'<f4'|'>f4'|'|O'|'|V4'|'|i1'», 'shape': «(2, 3)|()|(0, 3)», 'data': («4096|0|None», «True|False»), 'strides': «None|(24, 8)», 'stream': «None|1|2|7»}, 'source')[:2]
exchange.from_interface({'typestr': '<f4', 'shape': (2,), 'data': (1, False), «'stream': 0|'stream': -1|'mask': 5|'mask': None|'version': 3»}, SimpleNamespace())
tw.device(«'emulator'|'Emulator'|'cpu'|''|'gpu:x'|'gpu:'|'gpus'|'gpu:-1'|5|1.5|[]», order=«None|'late'|'x'|-1|3|'7'|' 8 '|1.5|True», threads=«None|0|1|2.5»).order
tw.device(«None|'emulator'|'gpu'|DEVICE», order='eager', threads=1, sums=«None|'fast'|'hardware'|'slow'|5», lenient=«None|True|False»).launcher.options
tw.device(DEVICE) is DEVICE, tw.device('emulator') is tw.device('emulator'), tw.device('emulator', threads=3) is tw.device('emulator', threads=3), tw.device('emulator', lenient=True) is tw.device('emulator')
gpus(«0|1|3», «'gpu'|'gpu:0'|'gpu:1'|'gpu:2'|'gpu:3'|'gpu:10'|'emulator'»)
environment(TILEWISE_DEVICE=«'emulator'|' emulator '|'gpu:7'|'x'|''»)
environment(TILEWISE_THREADS=«'1'|'4096'|'4097'|'0'|'-1'|'x'|' 3 '|'1.5'|'²'», TILEWISE_SUMS=«''|'fast'|'hardware'|'exact'|' fast '»)
HostLauncher(«'eager'|'late'|'x'|5|'+5'|'-5'|'1' * 100|'1' * 101|None|2.0|'5.0'», threads=1).order
[HostLauncher(threads=«1|4», multiprocessors=«None|7»).multiprocessors, repr(EmulatedDevice(threads=«1|2»)), EmulatedDevice(threads=1).limits, DEVICE.arch, DEVICE.name]
DEVICE.time(lambda: None, «0|-1|1.5|'a'»)
len(DEVICE.time(lambda: None, «1|3»)), DEVICE.shares_memory_with(tw.device('emulator', order='late')), DEVICE.shares_memory_with(None)
memory(«[(0, 8)]|[(0, 8), (8, 8)]|[(0, 8), (4, 8)]|[(0, 16), (4, 8)]|[(4, 8), (0, 16)]|[(0, 8), (0, 8)]|[(0, 8), (7, 8), (15, 8)]|[(0, 8), (9, 8)]|[(0, 4), (2, 4), (20, 4)]», «()|(0,)|(1,)|(0, 1)»)
freed(«-1|0|7|8|20»), overlaps(«'eager'|'late'|0|1|7|8»)
changes(«[]|[0]|[0, 1]», «[]|[1]|[2]», «True|False»)
listened(«0|1|3»)
"""

DEVICE: Any = tw.device("emulator", threads=2)
ARRAY = DEVICE.array(np.arange(12, dtype=np.float32).reshape(3, 4))


def sliced(shape: tuple[int, ...], strides: tuple[int, ...], key: Any) -> Any:
    return slice_layout(shape, strides, key)


def filled(value: Any, part: slice) -> Any:
    """An array once a part of it is filled."""
    array = DEVICE.zeros((3, 4))
    if part.stop is not None and np.ndim(value):
        value = np.asarray(value)[part]
    array[part].fill(value)
    return array


def unset_after(parts: list[Any]) -> Any:
    """What is uninitialised once parts of an array are filled."""
    array = DEVICE.empty((3, 4))
    for part in parts:
        array[part].fill(np.zeros(array[part].shape, np.float32))
    return array.unset.astype(int).tolist(), array[1:, ::2].unset.astype(int).tolist()


def capsule_of(array: Any, **how: Any) -> Any:
    """What an array hands over, as it is read again, and whether it is the same memory."""
    found = exchange.from_capsule(array.__dlpack__(**how), None)
    return (
        found.ptr == array.ptr,
        found.shape,
        found.strides,
        found.dtype,
        found.read_only,
        found.device_type,
        found.ordinal,
    )


def given(array: Any, strides: tuple[int, ...] | None = None, **how: Any) -> Any:
    made = exchange.capsule(
        array.ctypes.data, array.shape, strides or array.strides, array.dtype, (1, 0), array, **how
    )
    found = exchange.from_capsule(made, None)
    return found.shape, found.strides, found.dtype, found.read_only


class Silent:
    """What hands over that for which it is asked."""

    def __dlpack__(self, **how: Any) -> Any:
        return how


class OldProtocol:
    """The same from before versions."""

    def __dlpack__(self, stream: Any) -> Any:
        return stream


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error


def requested(source: Any, stream: Any) -> Any:
    return exchange.request(source, stream)


def gpus(count: int, spec: str) -> Any:
    """What a name stands for where there are so many GPUs."""
    instead: dict[str, Any] = {
        "count": lambda: count,
        "open": lambda ordinal: SimpleNamespace(name=f"GPU {ordinal}"),
        "why_not": lambda: "none",
    }
    with mock.patch.multiple(gpu, **instead):
        return tw.device(spec).name


def environment(**variables: str) -> Any:
    """The default device, and how many threads it has, in an environment."""
    with (
        mock.patch.dict(os.environ, {"TILEWISE_DEVICE": "emulator"} | variables),
        mock.patch.multiple(gpu, count=lambda: 0, why_not=lambda: "none"),
    ):
        found: Any = tw.device()
        return found.name, found.sums, found.threads if "TILEWISE_THREADS" in variables else None


def memory(places: list[tuple[int, int]], own: tuple[int, ...]) -> Any:
    """Memory that overlaps, as launches see it: places and sizes in one array, some of them our own."""
    whole = Allocation(64, "whole", unset=True)
    items: list[Any] = []
    for i, (at, size) in enumerate(places):
        if i in own:
            one: Any = object.__new__(Allocation)
            one.bytes, one.address, one.size, one.name, one.unset = (
                whole.bytes[at : at + size],
                whole.address + at,
                size,
                f"own {i}",
                True,
            )
        else:
            one = AdoptedMemory(whole.address + at, size, f"lent {i}", None)
        items.append(one)
    found = _disjoint(items)
    return [
        (one.address - whole.address, one.size, one.name, type(one).__name__, np.sum(one.unset))
        for one in found
    ]


def freed(offset: int) -> str:
    """What lay at a place that was let go of."""
    one = Allocation(8, "it")
    address = one.address
    del one
    return ALLOCATIONS.freed(address + offset)


def changes(written: list[int], later: list[int], again: bool) -> Any:
    """What memory holds once changes are taken back, and put there again."""
    held = Allocation(4, "it")
    held.bytes[:] = 5
    before = Snapshot([held])
    held.bytes[written] = 7
    found: Changes = before.changes()
    held.bytes[later] = 9
    found.take_back()
    taken = held.bytes.tolist()
    if again:
        found.put_back()
    return bool(found), taken, held.bytes.tolist()


def listened(count: int) -> Any:
    """The arrays that are noticed while somebody listens."""
    told: list[str] = []
    with observe_arrays(lambda one: told.append(one.name)):
        for size in range(count):
            DEVICE.zeros(size, "int8")
    DEVICE.zeros(99, "int8")
    return told
