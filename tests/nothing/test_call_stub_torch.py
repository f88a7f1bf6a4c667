"""The compiled call over torch's tensors, with a driver that only counts."""

from __future__ import annotations

import ctypes
import gc
import resource
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.call_stub_cases import DOC, POINTERS, Slow, python_calls
from tilewise.bench.dispatch import BUDGETS, _count_bytes, _count_frames, counted_calls
from tilewise.call_stub import CallRecord, CallStub, TensorPattern, counting_entries
from tilewise.call_stub.builtin import _grad_getter
from tilewise.call_stub.machine_code import is_supported_python

torch = pytest.importorskip("torch")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this torch has no exchange table", allow_module_level=True)
pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

DTYPES = {
    torch.float16: (2, 16, 1),
    torch.bfloat16: (4, 16, 1),
    torch.float32: (2, 32, 1),
    torch.float64: (2, 64, 1),
    torch.float8_e4m3fn: (10, 8, 1),
    torch.float8_e5m2: (12, 8, 1),
    torch.int8: (0, 8, 1),
}


def pattern(tensor: Any, alignment: int = 16) -> TensorPattern:
    return TensorPattern((1, 0), DTYPES[tensor.dtype], tuple(tensor.shape), tensor.stride(), alignment)


class Bench:
    """A builtin that takes torch's tensors, and a counting driver."""

    def __init__(self) -> None:
        self.slow = Slow()
        self.stub = CallStub("matmul", DOC, self.slow)
        self.library = self.stub.register_library(
            [torch.Tensor, torch.nn.Parameter],
            torch.Tensor.__dlpack_c_exchange_api__,
            True,
            torch.is_grad_enabled,
        )
        self.driver = counting_entries()
        self.driver.describe_function(7, (8, 8, 8, 4))
        self.matmul = self.stub.function

    def add(self, a: Any, b: Any, c: Any, **changes: Any) -> bool:
        values = {"has_out": True, "library": self.library, "entries": self.driver.entries, "context": 0}
        patterns = (pattern(a), pattern(b), pattern(c))
        return self.stub.add(CallRecord(*patterns, **{**values, "launches": (POINTERS,), **changes}))

    def is_fast(self, *args: Any, **keywords: Any) -> bool:
        before = self.driver.launches()
        answer = self.matmul(*args, **keywords)
        fast = self.driver.launches() == before + 1
        assert fast != (isinstance(answer, str) and answer == "slow")
        return fast


@pytest.fixture
def operands() -> tuple[Any, Any, Any]:
    return torch.zeros(8, 16), torch.zeros(16, 24), torch.zeros(8, 24)


@pytest.fixture
def bench(operands: tuple[Any, Any, Any]) -> Bench:
    bench = Bench()
    assert bench.add(*operands)
    assert bench.add(*operands, has_out=False)
    return bench


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
def test_each_element_type_is_known_by_its_record(dtype: Any) -> None:
    bench = Bench()
    a, b, c = (
        torch.empty(8, 16, dtype=dtype),
        torch.empty(16, 24, dtype=dtype),
        torch.empty(8, 24, dtype=dtype),
    )
    assert not bench.is_fast(a, b, out=c)
    assert bench.add(a, b, c)
    assert bench.add(a, b, c, has_out=False)
    assert bench.matmul(a, b, out=c) is c
    pointers = [struct.unpack("<Q", one)[0] for one in bench.driver.last().params[:3]]
    assert pointers == [a.data_ptr(), b.data_ptr() + 32, c.data_ptr() - 16]
    result = bench.matmul(a, b)
    assert type(result) is torch.Tensor
    assert (result.dtype, result.shape, result.stride()) == (dtype, c.shape, c.stride())
    assert struct.unpack("<Q", bench.driver.last().params[2])[0] == result.data_ptr() - 16


def test_views_are_told_apart(bench: Bench, operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    assert bench.is_fast(a, b, out=c)
    for other in (
        torch.zeros(16, 8).t(),
        torch.zeros(8, 32)[:, :16],
        torch.zeros(8, 32)[:, ::2],
        torch.zeros(1, 16).expand(8, 16),
        torch.zeros(8, 16, dtype=torch.float16),
        torch.zeros(129)[1:].view(8, 16),  # of another alignment
        torch.zeros(1, 8, 16),
        torch.zeros(8, 16, device="meta"),
        torch.zeros(8, 16).to_sparse(),
        torch.zeros(()),
    ):
        assert not bench.is_fast(other, b, out=c)
    column = torch.zeros(16, 8).t()
    assert bench.add(column, b, c)
    assert bench.is_fast(column, b, out=c)


def test_a_gradient_that_is_wanted_is_slow(bench: Bench, operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    weight = torch.nn.Parameter(b)
    assert not bench.is_fast(a, weight, out=c)
    assert not bench.is_fast(a.clone().requires_grad_(), b, out=c)
    assert not bench.is_fast(a.clone().requires_grad_() * 2, b, out=c)
    assert bench.is_fast(a, torch.nn.Parameter(b, requires_grad=False), out=c)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert bench.is_fast(a, weight, out=c)
    assert not bench.is_fast(a, weight, out=c)


def test_tensors_that_are_more_than_their_memory_are_slow(
    bench: Bench, operands: tuple[Any, Any, Any]
) -> None:
    a, b, c = operands

    subclass = type("Mine", (torch.Tensor,), {})

    assert not bench.is_fast(a.as_subclass(subclass), b, out=c)
    negative = torch.zeros(8, 16, dtype=torch.complex64).conj().imag
    assert negative.is_neg() and not bench.add(negative, b, c)
    conjugate = torch.zeros(8, 16, dtype=torch.complex64).conj()
    DTYPES[torch.complex64] = (5, 64, 1)
    assert not bench.add(conjugate, b, c)

    def work(row: Any) -> Any:
        assert not bench.is_fast(row, b, out=c)
        return row

    torch.func.vmap(work)(a.expand(3, 8, 16))
    torch.func.grad(lambda x: work(x).sum())(a)


def test_references_and_memory_stay_level(bench: Bench, operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    bench.matmul(a, b, out=c)
    references = [sys.getrefcount(one) for one in operands]
    false = sys.getrefcount(False)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(100_000):
            bench.matmul(a, b, out=c)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(after, peak) - before < 1000
    assert bench.driver.launches() == 100_001
    assert [sys.getrefcount(one) for one in operands] == references
    assert abs(sys.getrefcount(False) - false) < 100


def test_results_and_workspaces_give_their_memory_back() -> None:
    bench = Bench()
    a, b, c = torch.zeros(1024, 16), torch.zeros(16, 2048), torch.zeros(1024, 2048)
    assert bench.add(a, b, c, has_out=False, workspace_bytes=2**23)
    launch = replace(POINTERS, pointers=((0, 3, 0), (8, 2, 0)))
    assert bench.add(a, b, c, has_out=False, workspace_bytes=2**23, launches=(launch,))

    def resident() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    bench.matmul(a, b).fill_(1)
    gc.collect()
    before = resident()
    for number in range(100):  # 8 MiB each, written to
        result = bench.matmul(a, b)
        assert result.fill_(number)[-1, -1] == number
    assert resident() - before < 64 * 2**20
    assert sys.getrefcount(result) == 2
    assert bench.driver.launches() == 101


def test_no_python_function_runs(bench: Bench, operands: tuple[Any, Any, Any]) -> None:
    a, b, c = operands
    assert python_calls(lambda: bench.matmul(a, b, out=c)) == []
    assert python_calls(lambda: bench.matmul(a, b)) == []
    with torch.no_grad():
        weight = torch.nn.Parameter(b)
        assert python_calls(lambda: bench.matmul(a, weight, out=c)) == []
    assert bench.slow.calls == []


def test_threads_share_a_builtin(bench: Bench) -> None:
    wrong: list[int] = []

    def call() -> None:
        a, b, c = torch.zeros(8, 16), torch.zeros(16, 24), torch.zeros(8, 24)
        for _ in range(10_000):
            good = bench.matmul(a, b, out=c) is c and bench.matmul(a, b).shape == c.shape
            wrong.extend([] if good else [1])

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert bench.driver.launches() == 80_000
    bench.stub.clear()
    assert bench.stub._records == {}


@pytest.mark.parametrize("budget", ["share_us", "fused_share_us"])
def test_a_warm_call_keeps_within_its_budget(budget: str) -> None:
    """On a machine too slow or too busy for microseconds, the budget grows as torch's own export does beside it."""
    a, b, c, residual = (torch.zeros(64, 64, dtype=torch.bfloat16) for _ in range(4))
    bias = torch.zeros(64, dtype=torch.bfloat16)
    usual = {"bias": bias, "activation": "gelu", "residual": residual} if budget == "fused_share_us" else {}
    warm, driver = counted_calls(a, b, c, **usual)
    function, export = warm.function, torch.utils.dlpack.to_dlpack

    def plain() -> Any:
        return function(a, b, out=c)

    def fused() -> Any:
        return function(a, b, bias=bias, activation="gelu", residual=residual, out=c)

    call = fused if usual else plain
    before, patience = driver.launches(), time.monotonic() + 20
    ours: list[float] = []
    exports: list[float] = []
    while len(ours) < 400 or (min(ours) > _allowed(budget, min(exports)) and time.monotonic() < patience):
        ours.append(_microseconds(call))
        exports.append(_microseconds(lambda: export(a)))
    assert driver.launches() - before == _BATCH * len(ours)
    assert min(ours) <= _allowed(budget, min(exports))
    assert _count_frames(call) == 0
    assert _count_bytes(call) == 0


_BATCH = 50  # calls a clock runs over: short enough to fit between two turns of other processes
_EXPORT_US = 0.36  # torch.utils.dlpack.to_dlpack where the budget was set


def _allowed(budget: str, export_us: float) -> float:
    return BUDGETS[budget] * max(1.0, export_us / _EXPORT_US)


def _microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    for _ in range(_BATCH):
        call()
    return (time.perf_counter_ns() - start) / _BATCH / 1000


def test_whether_a_tensor_requires_a_gradient_its_types_own_getter_says() -> None:
    """Other types are asked by the attribute's name, which is searched for."""

    class Named:
        requires_grad = property(lambda self: self.wanted)

        def __init__(self, wanted: bool) -> None:
            self.wanted = wanted

    get_attribute = ctypes.cast(ctypes.pythonapi.PyObject_GetAttr, ctypes.c_void_p).value
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    for type_, make, searches in (
        (torch.Tensor, lambda wanted: torch.ones(2, requires_grad=wanted), False),
        (torch.nn.Parameter, lambda wanted: torch.nn.Parameter(torch.ones(2), wanted), False),
        (Named, Named, True),
    ):
        function, closure = _grad_getter(type_)
        assert (function == get_attribute) is searches
        assert [kind(function)(make(wanted), closure) for wanted in (True, False)] == [True, False]
