"""The compiled call and a library's DLPack exchange table: every function of it, and each of them failing."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.call_stub_cases import (
    DOC,
    GPU,
    HALF,
    POINTERS,
    A,
    B,
    C,
    Slow,
    exchange_capsule,
    pattern,
    python_calls,
)
from tilewise.call_stub import (
    CallRecord,
    CallStub,
    compact_strides,
    counting_entries,
)
from tilewise.call_stub.machine_code import is_supported_python, link
from tilewise.call_stub.shared_memory import structure
from tilewise.errors import ArgumentError

pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

STREAM = 0x5EA


class Tensor:
    """A tensor of a library made up here."""

    def __init__(
        self, data: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = (), byte_offset: int = 0
    ):
        self.data, self.shape, self.byte_offset = data, shape, byte_offset
        self.strides = compact_strides(shape) if strides == () else strides
        self.requires_grad: Any = False
        self.held: Any = None

    def fill(self, tensor: Any, *, device: tuple[int, int] = GPU) -> None:
        ndim = len(self.shape)
        shape = (ctypes.c_int64 * ndim)(*self.shape)
        strides = (ctypes.c_int64 * ndim)(*self.strides) if self.strides is not None else None
        self.held = shape, strides
        tensor.data, tensor.byte_offset = self.data, self.byte_offset
        tensor.device = device[0] | device[1] << 32
        tensor.layout = ndim | HALF[0] << 32 | HALF[1] << 40 | HALF[2] << 48
        tensor.shape = ctypes.addressof(shape)
        tensor.strides = ctypes.addressof(strides) if strides is not None else 0


class Parameter(Tensor):
    pass


@functools.cache
def failing_function() -> int:
    """The address of a function that sets RuntimeError and returns -1.

    NOTE: no ctypes callback can do that: ctypes takes the error away on the way back.
    """
    set_none = ctypes.cast(ctypes.pythonapi.PyErr_SetNone, ctypes.c_void_p).value
    text = f"""define i32 @tw_fail() {{
        call void inttoptr (i64 {set_none} to ptr)(ptr inttoptr (i64 {id(RuntimeError)} to ptr))
        ret i32 -1
    }}"""
    return link(text, ["tw_fail"])["tw_fail"]


class Library:
    """An exchange table whose functions are Python, which count and can be made to fail."""

    def __init__(self, version: int = 1) -> None:
        self.live: dict[int, Any] = {}
        self.made: list[tuple[int, tuple[int, ...], int]] = []  # device, shape, layout of what was allocated
        self.next_data = 0x100000
        self.fail_allocation = 0  # of how many
        self.calls: list[str] = []
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        self.delete = ctypes.PYFUNCTYPE(None, pointer)(lambda managed: self.live.pop(managed) and None)
        functions = {
            "allocate": ctypes.PYFUNCTYPE(integer, pointer, pointer, pointer, pointer)(self._allocate),
            "to_object": ctypes.PYFUNCTYPE(integer, pointer, pointer)(self._to_object),
            "to_tensor": ctypes.PYFUNCTYPE(integer, ctypes.py_object, pointer)(self._to_tensor),
            "current_stream": ctypes.PYFUNCTYPE(integer, integer, integer, pointer)(self._current_stream),
        }
        self.functions = functions
        self.table = structure("Exchange")(version=version)
        for name, function in functions.items():
            setattr(self.table, name, ctypes.cast(function, pointer).value)
        self.capsule = exchange_capsule(self.table)

    def fail(self, name: str) -> None:
        """Have one function fail as a C function does, with a Python error set; with "" none."""
        for each, function in self.functions.items():
            address = ctypes.cast(function, ctypes.c_void_p).value
            setattr(self.table, each, failing_function() if each == name else address)

    def _to_tensor(self, object_: Tensor, address: int) -> int:
        self.calls.append("to_tensor")
        object_.fill(structure("Tensor").from_address(address))
        return 0

    def _current_stream(self, kind: int, number: int, to: int) -> int:
        self.calls.append("current_stream")
        assert (kind, number) == GPU
        ctypes.c_uint64.from_address(to).value = STREAM
        return 0

    def _allocate(self, prototype: int, to: int, context: int | None, set_error: int) -> int:
        if len(self.made) + 1 == self.fail_allocation:
            message = b"no memory left"
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)(set_error)(
                context, b"MemoryError", message
            )
            return -1
        like = structure("Tensor").from_address(prototype)
        ndim = like.layout & 0xFFFFFFFF
        shape = tuple((ctypes.c_int64 * ndim).from_address(like.shape))
        assert tuple((ctypes.c_int64 * ndim).from_address(like.strides)) == compact_strides(shape)
        self.made.append((like.device, shape, like.layout >> 32))
        managed = structure("Managed")(deleter=ctypes.cast(self.delete, ctypes.c_void_p).value)
        managed.tensor.data, managed.tensor.byte_offset = self.next_data, 256
        self.next_data += 0x1000
        self.live[ctypes.addressof(managed)] = managed
        ctypes.c_uint64.from_address(to).value = ctypes.addressof(managed)
        return 0

    def _to_object(self, managed: int, to: int) -> int:
        _, shape, _ = self.made[0]
        tensor = Tensor(self.live.pop(managed).tensor.data + 256, shape)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
        ctypes.c_uint64.from_address(to).value = id(tensor)
        return 0


class Bench:
    """A builtin over the tensors of a made-up library, and a counting driver."""

    def __init__(
        self,
        check_grad: bool = True,
        grad_enabled: Callable[[], bool] | None = None,
        ordinary: tuple[dict[str, Any], str, object] | None = None,
    ) -> None:
        self.slow = Slow()
        self.stub = CallStub("matmul", DOC, self.slow)
        self.tensors = Library()
        self.library = self.stub.register_library(
            [Tensor, Parameter], self.tensors.capsule, check_grad, grad_enabled, ordinary
        )
        self.driver = counting_entries()
        self.driver.describe_function(7, (8, 8, 8, 4))
        self.matmul = self.stub.function
        self.stub.add(self.record())
        self.stub.add(self.record(has_out=False))

    def record(self, **changes: Any) -> CallRecord:
        values: dict[str, Any] = {
            "a": pattern((8, 16)),
            "b": pattern((16, 24)),
            "c": pattern((8, 24)),
            "has_out": True,
            "library": self.library,
            "entries": self.driver.entries,
            "context": 0,
            "launches": (POINTERS,),
            **changes,
        }
        return CallRecord(**values)

    def is_fast(self, *args: Any, **keywords: Any) -> bool:
        before = self.driver.launches()
        answer = self.matmul(*args, **keywords)
        assert (answer == "slow") == (self.driver.launches() == before)
        assert answer == "slow" or answer is keywords["out"]
        return self.driver.launches() > before


@pytest.fixture
def bench() -> Bench:
    return Bench()


def operands() -> tuple[Tensor, Tensor, Tensor]:
    return Tensor(A, (8, 16)), Tensor(B, (16, 24)), Tensor(C, (8, 24))


def addresses(params: tuple[bytes, ...]) -> list[int]:
    return [struct.unpack("<Q", one)[0] for one in params[:3]]


def test_operands_and_stream_come_through_the_table(bench: Bench) -> None:
    a, b, c = operands()
    assert bench.is_fast(a, b, out=c)
    assert bench.driver.last().stream == STREAM
    assert addresses(bench.driver.last().params) == [A, B + 32, C - 16]
    assert bench.tensors.calls == ["to_tensor"] * 3 + ["current_stream"]


def test_an_offset_in_bytes_counts(bench: Bench) -> None:
    _, b, c = operands()
    assert bench.is_fast(Tensor(A - 0x1000, (8, 16), byte_offset=0x1000), b, out=c)
    assert addresses(bench.driver.last().params)[0] == A
    assert not bench.is_fast(Tensor(A, (8, 16), byte_offset=8), b, out=c)


@pytest.mark.parametrize("shape", [(8, 16), (1, 16), (5,), (2, 3, 8, 16), (0, 4), (3, 0, 4)])
def test_no_strides_are_compact_strides(bench: Bench, shape: tuple[int, ...]) -> None:
    bench.stub.add(bench.record(a=pattern(shape)))
    _, b, c = operands()
    assert bench.is_fast(Tensor(A, shape, None), b, out=c)
    assert bench.is_fast(Tensor(A, shape), b, out=c)


def test_without_an_out_the_library_allocates_it(bench: Bench) -> None:
    a, b, _ = operands()
    for out in ({}, {"out": None}):
        bench.tensors.made.clear()
        result = bench.matmul(a, b, **out)
        assert type(result) is Tensor and result.shape == (8, 24)
        assert bench.tensors.made == [(2, (8, 24), 2 | 16 << 8 | 1 << 16)]
        assert addresses(bench.driver.last().params)[2] == result.data - 16
        assert sys.getrefcount(result) == 2
    assert bench.tensors.live == {}
    assert bench.slow.calls == []


def test_a_workspace_is_allocated_and_released_around_the_launches(bench: Bench) -> None:
    launch = replace(POINTERS, pointers=((0, 3, 64), (8, 1, 0), (16, 2, 0)))
    a, b, c = operands()
    bench.stub.add(bench.record(launches=(launch,), workspace_bytes=1000))
    assert bench.is_fast(a, b, out=c)
    assert bench.tensors.made == [(2, (1000,), 1 | 8 << 8 | 1 << 16)]
    assert addresses(bench.driver.last().params) == [0x100000 + 256 + 64, B, C]
    assert bench.tensors.live == {}
    bench.driver.fail_next(1)
    assert not bench.is_fast(a, b, out=c)
    assert bench.tensors.live == {}


def test_result_and_workspace_are_two(bench: Bench) -> None:
    launch = replace(POINTERS, pointers=((0, 3, 0), (8, 1, 0), (16, 2, 0)))
    bench.stub.add(bench.record(has_out=False, launches=(launch,), workspace_bytes=1000))
    a, b, _ = operands()
    result = bench.matmul(a, b)
    assert [shape for _, shape, _ in bench.tensors.made] == [(8, 24), (1000,)]
    assert addresses(bench.driver.last().params) == [0x101100, B, result.data]
    assert bench.tensors.live == {}


def test_every_failure_is_slow_and_leaves_neither_error_nor_memory(bench: Bench) -> None:
    launch = replace(POINTERS, pointers=((0, 3, 0), (8, 1, 0), (16, 2, 0)))
    bench.stub.add(bench.record(has_out=False, launches=(launch,), workspace_bytes=1000))
    a, b, _ = operands()
    for name in ("to_tensor", "current_stream", "allocate"):
        bench.tensors.fail(name)
        assert bench.matmul(a, b) == "slow"
        assert bench.tensors.live == {}
    bench.tensors.fail("")
    bench.tensors.fail_allocation = 2  # the workspace, when the result is there already
    assert bench.matmul(a, b) == "slow"
    assert bench.tensors.live == {}
    bench.tensors.fail_allocation = 0
    bench.driver.fail_next(2)
    assert bench.matmul(a, b) == "slow"
    assert bench.tensors.live == {}
    assert bench.driver.launches() == 0
    bench.tensors.fail("to_object")
    assert bench.matmul(a, b) == "slow"
    assert bench.slow.calls == [((a, b), {})] * 6
    bench.tensors.fail("")
    assert type(bench.matmul(a, b)) is Tensor
    bench.stub.clear()
    assert bench.stub._records == {}  # no failure left a record in use


def test_a_result_that_is_not_aligned_is_given_back(bench: Bench) -> None:
    bench.stub.add(bench.record(has_out=False, c=pattern((8, 24), alignment=512)))
    a, b, _ = operands()
    assert bench.matmul(a, b) == "slow"
    assert bench.tensors.live == {}
    assert bench.driver.launches() == 0


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_operand_that_needs_a_gradient_is_slow(bench: Bench, which: int) -> None:
    arrays = operands()
    for wanted in (True, None, 0):
        arrays[which].requires_grad = wanted
        assert not bench.is_fast(*arrays[:2], out=arrays[2])
    del arrays[which].requires_grad
    assert not bench.is_fast(*arrays[:2], out=arrays[2])
    arrays[which].requires_grad = False
    assert bench.is_fast(*arrays[:2], out=arrays[2])
    indifferent = Bench(check_grad=False)
    arrays[which].requires_grad = True
    assert indifferent.is_fast(*arrays[:2], out=arrays[2])


def test_a_gradient_that_is_switched_off_is_not_needed() -> None:
    modes: list[Any] = [False, True, 0]

    def grad_enabled() -> bool:
        mode = modes.pop(0)
        if mode == 0 and mode is not False:
            raise RuntimeError("no mode")
        return bool(mode)

    bench = Bench(grad_enabled=grad_enabled)
    a, b, c = operands()
    assert bench.is_fast(a, b, out=c)
    assert len(modes) == 3  # nobody needs a gradient, so nobody asks
    a.requires_grad = True
    assert bench.is_fast(a, b, out=c)
    assert not bench.is_fast(a, b, out=c)
    assert not bench.is_fast(a, b, out=c)
    assert modes == []


def test_types_of_one_library_mix_and_two_libraries_do_not(bench: Bench) -> None:
    class Other(Tensor):
        pass

    a, _, c = operands()
    assert bench.is_fast(a, Parameter(B, (16, 24)), out=c)
    assert not bench.is_fast(a, Other(B, (16, 24)), out=c)
    other = Library()
    second = bench.stub.register_library([Other], other.capsule, False)
    assert second != bench.library
    assert not bench.is_fast(a, Other(B, (16, 24)), out=c)
    assert bench.stub.register_library([Other], bench.tensors.capsule, False) == bench.library
    assert bench.is_fast(a, Other(B, (16, 24)), out=c)


def test_what_may_hide_a_conjugate_stays_slow(bench: Bench) -> None:
    assert not bench.stub.add(bench.record(a=pattern((8, 16), dtype=(5, 64, 1))))
    assert not bench.stub.add(bench.record(b=pattern((16, 24), (48, 2))))
    assert bench.stub.add(bench.record(b=pattern((16, 24), (2, 33))))


def test_an_exchange_table_of_another_version_is_searched_for_this_one() -> None:
    new, old, stub = Library(version=2), Library(version=1 | 7 << 32), CallStub("f", DOC, Slow())
    with pytest.raises(ArgumentError, match="version 1"):
        stub.register_library([Tensor], new.capsule, False)
    new.table.previous = ctypes.addressof(old.table)
    library = stub.register_library([Tensor], new.capsule, False)
    assert library == stub.register_library([Tensor], old.capsule, False)
    old.table.to_tensor = 0
    with pytest.raises(ArgumentError, match="in place"):
        stub.register_library([Tensor], old.capsule, False)


def test_only_the_library_runs_python(bench: Bench) -> None:
    a, b, c = operands()
    assert set(python_calls(lambda: bench.matmul(a, b, out=c))) <= {
        *("_to_tensor", "_current_stream", "fill", "structure"),
    }


def test_a_variable_that_is_not_as_usual_makes_calls_slow() -> None:
    variables: dict[str, Any] = {"_level": -1}
    bench = Bench(ordinary=(variables, "_level", -1))
    a, b, c = operands()
    assert bench.is_fast(a, b, out=c)
    variables["_level"] = 0
    assert not bench.is_fast(a, b, out=c)
    del variables["_level"]
    assert not bench.is_fast(a, b, out=c)
    variables["_level"] = int("-1")  # CPython has one object of each small number
    assert bench.is_fast(a, b, out=c)


def test_a_result_that_python_makes_is_for_arrays_of_our_own(bench: Bench) -> None:
    with pytest.raises(ArgumentError, match="our own"):
        bench.stub.add(bench.record(has_out=False, make_result=list))
