"""What a warm call costs the host: our share of it, and on a GPU beside torch's, in turns.

Our share is measured with the driver's functions replaced by ones that count, so that it needs no GPU. On a GPU, calls
are timed in batches that do not fill the launch queue; nothing waits for the GPU while the clock runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tilewise import interop
from tilewise.bench import environment as here
from tilewise.bench.product import WrongResult, random_operands
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.bound import BoundLaunch
from tilewise.call_stub import CountingDriver, available, counting_entries
from tilewise.calls import Arrays, Choice, prepare
from tilewise.describe import result_shapes
from tilewise.devices import Device, gpu
from tilewise.devices.emulated import open_emulator
from tilewise.epilogue import express, fit, view_arrays
from tilewise.kernel import Kernel
from tilewise.linear import linear
from tilewise.matmul import matmul, matmul_in_python
from tilewise.warm_calls import NativeTarget, WarmCalls, describe_extras

__all__ = ["BUDGETS", "DispatchTimes", "bench_dispatch", "counted_calls"]

SIZE, ELEMENT = 64, "bfloat16"
BUDGETS = {
    "share_us": 0.7,  # with out=
    "fused_share_us": 1.2,  # with bias, gelu and residual as well
    "with_out": 0.45,  # of torch.matmul's time
    "without_out": 0.60,
    "linear": 0.60,  # of the time of torch's linear and gelu, which are two launches
    "own_us": 4.0,
    "prepared_us": 5.0,
}
_BATCH = 200  # calls a clock runs over; fewer than the launch queue holds
_ROUNDS = 25
_SHARE_BATCH = 2_000
_CONTEXT, _FUNCTION = 0xC0FFEE, 0x10000  # handles that only the counting driver knows


@dataclass(frozen=True, slots=True)
class DispatchTimes:
    """Microseconds of host time a call: of our share the least of the rounds, of whole calls their median.

    None is not measured.
    """

    date: str
    rounds: int
    compiled: bool  # whether the compiled call is there; else the plain Python path was measured
    tensors: str  # what the operands were
    share_us: float | None
    share_alloc_us: float | None
    fused_share_us: float | None  # tw.matmul with bias, gelu, residual and out=
    python_frames: int | None  # in a warm call with out=, plain and fused
    allocations: int | None  # bytes of Python memory taken by them
    gpu: str | None = None
    call_us: float | None = None
    call_alloc_us: float | None = None
    torch_us: float | None = None
    torch_alloc_us: float | None = None
    own_us: float | None = None
    own_alloc_us: float | None = None
    prepared_us: float | None = None
    python_us: float | None = None
    linear_us: float | None = None  # tw.linear(x, weight, bias, activation="gelu")
    torch_linear_us: float | None = None  # gelu(linear(x, weight, bias)) of torch.nn.functional
    fused_us: float | None = None  # the call of fused_share_us
    fused_python_us: float | None = None  # the same without its compiled call

    @property
    def ratios(self) -> dict[str, float]:
        """Our calls beside torch's, of one run."""
        pairs = {
            "with_out": (self.call_us, self.torch_us),
            "without_out": (self.call_alloc_us, self.torch_alloc_us),
            "linear": (self.linear_us, self.torch_linear_us),
        }
        return {name: ours / theirs for name, (ours, theirs) in pairs.items() if ours and theirs}

    @property
    def over_budget(self) -> list[str]:
        """What is beyond its budget."""
        found = {
            "share_us": self.share_us,
            "fused_share_us": self.fused_share_us,
            "own_us": self.own_us,
            "prepared_us": self.prepared_us,
            **self.ratios,
        }
        return [name for name, value in found.items() if value is not None and value > BUDGETS[name]]

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {
            "benchmark": "dispatch",
            **fields,
            "ratios": self.ratios,
            "over_budget": self.over_budget,
            "size": SIZE,
            "element": ELEMENT,
            "machine": here.machine(),
            "versions": {**here.versions(), "torch": here.package_version("torch")},
        }


def bench_dispatch(rounds: int = _ROUNDS, progress: Progress = ignore_progress) -> DispatchTimes:
    """Measure the parts of a warm call, and the whole of it where there is a GPU."""
    progress(0, 2, "our share")
    share = _measure_share(rounds)
    progress(1, 2, "on the GPU")
    whole = _measure_on_gpu(rounds) if gpu.count() else {}
    today = datetime.now(UTC).date().isoformat()
    return DispatchTimes(today, rounds, available(), **share, **whole)


# ── our share, without a GPU ─────────────────────────────────────────────────────────────────────────────


def counted_calls(
    a: Any, b: Any, out: Any, device: Device | None = None, **usual: Any
) -> tuple[WarmCalls, CountingDriver]:
    """A compiled call like tw.matmul's that knows these operands, and the counting driver that it launches on.

    ``usual`` are bias, activation and residual. What it launches is what the planner chooses for the device; calls
    that do not fit go the way of tw.matmul.
    """
    counting = counting_entries()
    counting.set_context(_CONTEXT)
    warm = WarmCalls("matmul", matmul.__doc__ or "", matmul)
    views = interop.view("a", a), interop.view("b", b), interop.view("out", out)
    shapes = result_shapes(views[0].shape, views[1].shape)
    activation = usual.get("activation")
    call = express(usual.get("bias"), activation, usual.get("residual"), 1.0, None, None)
    fused = fit(view_arrays(call), shapes.result, views[0].dtype, (views[0].dtype, views[1].dtype))
    made = prepare(Arrays(*views, fused), shapes, device or open_emulator(), Choice())
    target = NativeTarget(counting.entries, _CONTEXT, lambda launch: _describe(counting, launch))
    for has_out in (True, False):
        warm.add(made, views, has_out, target, describe_extras(fused, activation))
    return warm, counting


def _describe(counting: CountingDriver, launch: BoundLaunch) -> int:
    """A number for a kernel, whose parameters the counting driver then records."""
    function = _FUNCTION + (hash(launch.entry) & 0xFFFF)
    parameters = launch.binary.entries[launch.entry].parameters
    counting.describe_function(function, [parameter.size for parameter in parameters])
    return function


def _measure_share(rounds: int) -> dict[str, Any]:
    if not available() or importlib.util.find_spec("torch") is None:
        missing = "PyTorch is not installed" if available() else "no compiled call on this Python"
        return {"tensors": f"none: {missing}", **dict.fromkeys(_SHARE_KEYS)}
    import_torch()
    a, b, out = _torch_operands("cpu")
    warm, _ = counted_calls(a, b, out)  # NOTE: without its records the builtin goes slow
    call = warm.function
    with_out, without = lambda: call(a, b, out=out), lambda: call(a, b)
    bias, residual = _torch_extras("cpu")
    warm_fused, _ = counted_calls(a, b, out, bias=bias, activation="gelu", residual=residual)
    fused = warm_fused.function
    # The least, not the median: nothing but other work on this machine can add to it.
    calls = {
        "share_us": with_out,
        "share_alloc_us": without,
        "fused_share_us": lambda: fused(a, b, bias=bias, activation="gelu", residual=residual, out=out),
    }
    times = _time_in_turns(calls, rounds, _SHARE_BATCH, lambda: None, min)
    free = calls["share_us"], calls["fused_share_us"]
    return {
        "tensors": f"torch {here.package_version('torch')}, {SIZE}×{SIZE} {ELEMENT}, the driver replaced",
        **times,
        "python_frames": sum(map(_count_frames, free)),
        "allocations": sum(map(_count_bytes, free)),
    }


_SHARE_KEYS = ("share_us", "share_alloc_us", "fused_share_us", "python_frames", "allocations")


def _count_frames(call: Callable[[], Any]) -> int:
    """Python functions entered by one call, apart from itself."""
    entered = [0]

    def note(_frame: object, event: str, _argument: object) -> None:
        entered[0] += event == "call"

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered[0] - 1


def _count_bytes(call: Callable[[], Any]) -> int:
    """Bytes that Python's allocator hands out during one call, at most at one time."""
    tracemalloc.start()
    try:
        call()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


# ── the whole, on a GPU ──────────────────────────────────────────────────────────────────────────────────


def _measure_on_gpu(rounds: int) -> dict[str, Any]:
    device = gpu.open(0)
    found: dict[str, Any] = {"gpu": device.title}
    calls: dict[str, Callable[[], Any]] = {}
    own = [device.array(x) for x in random_operands(ELEMENT, (SIZE, SIZE, SIZE), 1)]
    target = device.empty((SIZE, SIZE), own[0].dtype)
    calls["own_us"] = lambda: matmul(own[0], own[1], out=target)
    calls["own_alloc_us"] = lambda: matmul(own[0], own[1])
    calls["prepared_us"] = _prepared_call(device)
    if importlib.util.find_spec("torch") is not None:
        torch = import_torch()
        a, b, out = _torch_operands("cuda:0")
        with torch.inference_mode(False), torch.no_grad():
            calls["call_us"] = lambda: matmul(a, b, out=out)
            calls["torch_us"] = lambda: torch.matmul(a, b, out=out)
            calls["call_alloc_us"] = lambda: matmul(a, b)
            calls["torch_alloc_us"] = lambda: torch.matmul(a, b)
            calls["python_us"] = lambda: matmul_in_python(a, b, out=out)
            _check_result(matmul(a, b), a, b)
            _check_result(matmul(a, b, out=out), a, b)
            calls |= _fused_calls(torch, a, b, out)
    found.update(_time_in_turns(calls, rounds, _BATCH, device.synchronize))
    return found


def _fused_calls(torch: Any, a: Any, b: Any, out: Any) -> dict[str, Callable[[], Any]]:
    """Calls with an epilogue, beside what torch has for the same; their results have been compared."""
    functional = torch.nn.functional
    bias, residual = _torch_extras("cuda:0")

    def in_torch() -> Any:
        return functional.gelu(functional.linear(a, b, bias))

    def fused(call: Any) -> Any:
        return call(a, b, bias=bias, activation="gelu", residual=residual, out=out)

    x, y, few, more = (one.float().cpu() for one in (a, b, bias, residual))
    for _ in range(2):  # the second time without Python
        pairs = (
            (linear(a, b, bias, activation="gelu"), functional.gelu(x @ y.t() + few)),
            (fused(matmul), functional.gelu(x @ y + few) + more),
        )
        for ours, expected in pairs:
            difference = (ours.float().cpu() - expected).abs().max().item()
            if not difference < 0.25:  # rounded to bfloat16 once
                raise WrongResult(f"an epilogue is wrong on the GPU: off by {difference}")
    return {
        "linear_us": lambda: linear(a, b, bias, activation="gelu"),
        "torch_linear_us": in_torch,
        "fused_us": lambda: matmul(a, b, bias=bias, activation="gelu", residual=residual, out=out),
        "fused_python_us": lambda: fused(matmul_in_python),
    }


def _prepared_call(device: Any) -> Callable[[], Any]:
    """A kernel of the user's own with three pointers and a number, prepared once."""
    source = """extern "C" __global__ void axpy(int n, float f, const float *x, float *y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += f * x[i]; }"""
    kernel = Kernel(source, "axpy", device.arch)
    x, y = device.empty((SIZE * SIZE,), "float32"), device.empty((SIZE * SIZE,), "float32")
    call: Callable[[], Any] = kernel.bind(16, 256, (SIZE * SIZE, 2.0, x, y), device=device)
    return call


def _check_result(result: Any, a: Any, b: Any) -> None:
    values = [x.float().cpu().numpy() for x in (result, a, b)]
    difference = abs(values[0] - values[1] @ values[2]).max()
    if not difference < 0.25:  # sums of 64 products of normal numbers, rounded to bfloat16
        raise WrongResult(f"tw.matmul is wrong on the GPU: off by {difference}")


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────


def _time_in_turns(
    calls: dict[str, Callable[[], Any]],
    rounds: int,
    batch: int,
    settle: Callable[[], Any],
    pick: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Microseconds of each call, picked from rounds in which all take turns; without the loop's own time."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():  # what comes with a first call
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            settle()
            turns = itertools.repeat(None, batch)
            start = time.perf_counter_ns()
            for _ in turns:
                call()
            times[name].append((time.perf_counter_ns() - start) / batch / 1000)
    empty = _empty_turn(batch)
    return {name: max(pick(values) - empty, 0.0) for name, values in times.items()}


def _empty_turn(batch: int) -> float:
    """Microseconds of a turn that calls a lambda which does nothing: the loop's own."""

    def nothing() -> None: ...

    values = []
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in itertools.repeat(None, batch):
            nothing()
        values.append((time.perf_counter_ns() - start) / batch / 1000)
    return min(values)


def import_torch() -> Any:
    """PyTorch, whose tensors are measured; only here and only where it is installed."""
    return importlib.import_module("torch")


def _torch_operands(place: str) -> tuple[Any, Any, Any]:
    torch = import_torch()
    dtype = getattr(torch, ELEMENT)
    a, b = (torch.randn(SIZE, SIZE).to(dtype).to(place) for _ in range(2))
    return a, b, torch.empty(SIZE, SIZE, dtype=dtype, device=place)


def _torch_extras(place: str) -> tuple[Any, Any]:
    """A bias and a residual for the product of :func:`_torch_operands`."""
    torch = import_torch()
    dtype = getattr(torch, ELEMENT)
    return torch.randn(SIZE).to(dtype).to(place), torch.randn(SIZE, SIZE).to(dtype).to(place)
