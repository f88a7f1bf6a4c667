"""``tilewise bench dispatch`` without a GPU: which calls are timed there, and that what is wrong is not."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.bench import dispatch
from tilewise.bench.product import WrongResult
from tilewise.call_stub import available
from tilewise.devices import gpu

torch: Any = pytest.importorskip("torch")

Calls = dict[str, Callable[[], Any]]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Calls]:
    """The calls that would be timed on a GPU, with the emulator and PyTorch's CPU in its place, and no clock."""
    found: list[Calls] = []

    def time(calls: Calls, rounds: int, batch: int, settle: Callable[[], Any]) -> dict[str, float]:
        assert (rounds, batch) == (7, 200)
        settle()
        found.append(calls)
        return {name: float(number) for number, name in enumerate(calls)}

    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")
    monkeypatch.setattr(gpu, "open", lambda ordinal: {0: tilewise.device("emulator")}[ordinal])
    for name in ("_torch_operands", "_torch_extras"):
        made = getattr(dispatch, name)("cpu")
        monkeypatch.setattr(dispatch, name, lambda place, made=made: made if place == "cuda:0" else None)
    monkeypatch.setattr(dispatch, "_time_in_turns", time)
    return found


def test_whole_calls_are_timed_beside_torchs(timed: list[Calls]) -> None:
    """All of them multiply, and give what they say that they give."""
    found = dispatch._measure_on_gpu(7)
    (calls,) = timed
    assert found == {"gpu": tilewise.device("emulator").title} | {name: i for i, name in enumerate(calls)}
    assert {*found} <= {*dispatch.DispatchTimes.__slots__}
    a, b, out = dispatch._torch_operands("cuda:0")
    wanted = (a.float() @ b.float()).numpy()
    for name in ("call_us", "torch_us", "call_alloc_us", "torch_alloc_us", "python_us"):
        out.zero_()
        made = calls[name]()
        assert abs(made.float().numpy() - wanted).max() < 0.25
        assert (made is out or made.data_ptr() == out.data_ptr()) == ("alloc" not in name)
    given = np.asarray(calls["own_alloc_us"]().numpy(), np.float32)
    assert np.array_equal(np.asarray(calls["own_us"]().numpy(), np.float32), given) and given.any()
    assert calls["prepared_us"]() is None


def test_without_pytorch_calls_on_arrays_of_our_own_are_timed(
    timed: list[Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    dispatch._measure_on_gpu(7)
    assert [*timed[0]] == ["own_us", "own_alloc_us", "prepared_us"]


@pytest.mark.parametrize("wrong_with", ["out", "a new result"])
def test_a_wrong_call_is_not_timed(
    timed: list[Calls], monkeypatch: pytest.MonkeyPatch, wrong_with: str
) -> None:
    def wrong(a: Any, b: Any, out: Any = None) -> Any:
        of = (b, a) if (out is not None) == (wrong_with == "out") else (a, b)
        return tilewise.matmul(*of, out=out)

    monkeypatch.setattr(dispatch, "matmul", wrong)
    with pytest.raises(WrongResult, match=r"^tw\.matmul is wrong on the GPU: off by"):
        dispatch._measure_on_gpu(7)
    assert not timed


@pytest.mark.skipif(not available(), reason="no compiled call on this Python")
def test_our_share_is_of_calls_without_python_and_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a result given or made, and with what is fused to it: each launches once on the driver that counts."""
    counted: list[Any] = []

    def count_calls(*given: Any, **usual: Any) -> Any:
        warm, counting = counted_calls(*given, **usual)
        counted.append(counting)
        return warm, counting

    def time(
        calls: Calls, rounds: int, batch: int, settle: Callable[[], Any], pick: Callable[..., float]
    ) -> dict[str, float]:
        assert (rounds, batch, pick([3.0, 2.0])) == (7, 2000, 2.0) and settle() is None
        for name, call in calls.items():
            counting = counted[name.startswith("fused")]
            before = counting.launches()
            assert call().shape == (dispatch.SIZE, dispatch.SIZE)
            assert counting.launches() == before + 1, name
        return {name: float(number) for number, name in enumerate(calls)}

    counted_calls = dispatch.counted_calls
    monkeypatch.setattr(dispatch, "counted_calls", count_calls)
    monkeypatch.setattr(dispatch, "_time_in_turns", time)
    found = dispatch._measure_share(7)
    assert {*found} == {"tensors", *dispatch._SHARE_KEYS}
    assert (found["share_us"], found["share_alloc_us"], found["fused_share_us"]) == (0.0, 1.0, 2.0)
    assert found["tensors"].startswith("torch ") and "64×64 bfloat16, the driver replaced" in found["tensors"]
    assert (found["python_frames"], found["allocations"]) == (0, 0)


def test_functions_and_bytes_are_those_of_a_warm_call() -> None:
    """What the first call alone takes, for a moment or for good, does not count; nor does the call itself."""
    kept: list[bytearray] = []

    def work(size: int) -> int:
        return len(bytearray(size))

    def call() -> int:
        if not kept:
            kept.append(bytearray(100_000))
            work(1_000_000)
        return work(5_000) + work(4_000)

    assert 5_000 <= dispatch._count_bytes(call) < 6_000
    assert dispatch._count_frames(call) == 2


def test_without_pytorch_there_is_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    found = dispatch._measure_share(7)
    assert found == {"tensors": "none: PyTorch is not installed", **dict.fromkeys(dispatch._SHARE_KEYS)}
    monkeypatch.setattr(dispatch, "available", lambda: False)
    assert dispatch._measure_share(7)["tensors"] == "none: no compiled call on this Python"


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_run_is_of_our_share_and_of_the_whole_where_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    share: dict[str, Any] = {"tensors": "some", **dict.fromkeys(dispatch._SHARE_KEYS, 1)}
    monkeypatch.setattr(dispatch, "_measure_share", lambda rounds: share if rounds == 7 else {})
    monkeypatch.setattr(dispatch, "_measure_on_gpu", lambda rounds: {"gpu": "a GPU", "own_us": float(rounds)})
    monkeypatch.setattr(gpu, "count", lambda: gpus)
    seen: list[tuple[int, int, str]] = []
    found = dispatch.bench_dispatch(7, lambda *done: seen.append(done))
    assert seen == [(0, 2, "our share"), (1, 2, "on the GPU")]
    assert (found.rounds, found.tensors, found.share_us) == (7, "some", 1)
    assert (found.gpu, found.own_us) == (("a GPU", 7.0) if gpus else (None, None))


def test_the_time_of_a_call_is_without_the_loops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns, after two calls that do not count; never below 0."""
    now, done = [0], list[str]()

    def call(name: str, nanoseconds: int) -> Callable[[], Any]:
        def called() -> None:
            done.append(name)
            now[0] += nanoseconds

        return called

    monkeypatch.setattr("tilewise.bench.dispatch.time.perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(dispatch, "_empty_turn", lambda batch: 0.5 if batch == 3 else 0.0)
    calls = {"slow": call("slow", 2_500), "quick": call("quick", 400)}
    settled: list[int] = []
    found = dispatch._time_in_turns(calls, 2, 3, lambda: settled.append(len(done)))
    assert found == {"slow": 2.0, "quick": 0.0}
    assert done == [*["slow"] * 2, *["quick"] * 2, *([*["slow"] * 3, *["quick"] * 3] * 2)]
    assert settled == [4, 7, 10, 13]


def test_the_loops_own_time_is_of_as_many_calls_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of five times: nothing but other work can add to it."""
    entered: list[str] = []
    clock = iter([0, 9_000, 0, 6_000, 0, 3_000, 0, 12_000, 0, 30_000])
    monkeypatch.setattr("tilewise.bench.dispatch.time.perf_counter_ns", lambda: next(clock))
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        found = dispatch._empty_turn(3)
    finally:
        sys.setprofile(None)
    assert found == 1.0 and entered.count("nothing") == 15


def test_the_call_that_is_prepared_adds_a_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    """To every element, and to none behind them."""
    made: list[Any] = []
    device: Any = tilewise.device("emulator")

    def empty(shape: Any, dtype: Any) -> Any:
        made.append(device.array(np.arange(shape[0], dtype=dtype)))
        return made[-1]

    bind = tilewise.Kernel.bind

    def bind_there(kernel: Any, grid: Any, block: Any, args: Any, device: Any, there: Any = device) -> Any:
        assert device is pretended
        return bind(kernel, grid, block, args, device=there)

    pretended = SimpleNamespace(arch=device.arch, empty=empty)
    monkeypatch.setattr(tilewise.Kernel, "bind", bind_there)
    dispatch._prepared_call(pretended)()
    x, y = (array.numpy() for array in made)
    assert x.size == dispatch.SIZE**2 and np.array_equal(x, np.arange(x.size)) and np.array_equal(y, 3 * x)
