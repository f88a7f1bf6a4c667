"""Streams, events and graphs: which calls reach cuda.core, in which order. No GPU."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu import streams
from tilewise.devices.gpu.device import GpuDevice
from tilewise.devices.gpu.streams import Event, Graph, Handle, Stream, streams_entered
from tilewise.errors import ArgumentError, DeviceError


class Native:
    """A stream, event, builder or graph of cuda.core: writes down what is asked of it."""

    def __init__(self, log: list[str], name: str, handle: int = 0, looks: int = 0, at: float = 0.0) -> None:
        self.log, self.name, self.handle, self.looks, self.at = log, name, handle, looks, at

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)

        def done(*given: Any, **named: Any) -> Native:
            told = [item.name if isinstance(item, Native) else item for item in given]
            told += [f"timed={item.timing_enabled}" for item in named.values()]
            self.log.append(" ".join(map(str, (self.name, verb, *told))))
            return Native(self.log, f"{self.name}.{verb}", looks=self.looks, at=len(self.log))

        return done

    def __sub__(self, other: Native) -> float:
        return self.at - other.at

    @property
    def is_done(self) -> bool:
        self.looks -= 1
        self.log.append(f"{self.name} looked at")
        return self.looks < 0


class Device:
    """What streams know of a device."""

    ordinal, name = 0, "gpu:0"

    def __init__(self) -> None:
        self.log: list[str] = []
        self._handed_out: deque[Any] = deque()
        self._local = SimpleNamespace(capture=None)
        self._default_stream = Stream(cast(Any, self), Native(self.log, "default"))
        self._current: list[Stream] = []
        self._ledger = SimpleNamespace(
            forget_launches=lambda *streams: self.log.append(
                f"forget {[stream._native.name for stream in streams]}"
            ),
            streams=[],
            record_launch=lambda handle, stream, what: self.log.append(
                f"ran {what} on {stream._native.name}"
            ),
            running=lambda: "running kernel 'slow'",
        )

    @property
    def current_stream(self) -> Stream:
        return self._current[-1] if self._current else self._default_stream

    def stream(self, handle: int = 7) -> Stream:
        return Stream(cast(Any, self), Native(self.log, f"s{handle}", handle))

    @contextlib.contextmanager
    def _scope(self, doing: str) -> Iterator[None]:
        self.log.append(f"[{doing}")
        try:
            yield
        finally:
            self.log.append("]")

    def _waiting(self) -> Any:
        return self._scope("waiting")

    def _refuse_in_capture(self, what: str) -> None:
        if self._local.capture is not None:
            raise ArgumentError(what, "must stand outside of a capture")

    def said(self) -> list[str]:
        """What was asked since this was asked last."""
        log, self.log[:] = list(self.log), []
        return log


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(streams, "core", lambda: SimpleNamespace(EventOptions=SimpleNamespace))
    return Device()


def event_of(device: Any, **how: Any) -> Event:
    return Event(device, Native(device.log, "e", **how))


def test_waiting_for_a_stream_waits_and_then_forgets_what_ran_there(device: Device) -> None:
    stream = device.stream()
    stream.synchronize()
    assert device.said() == ["[waiting", "s7 sync", "]", "forget ['s7']"]
    stream.synchronize(timeout=10)
    assert device.said() == ["[waiting", "s7 record", "s7.record looked at", "]", "forget ['s7']"]
    stream._native.looks = 1 << 30
    with pytest.raises(DeviceError, match=r"gpu:0 is still running kernel 'slow' after 0\.002 s"):
        stream.synchronize(timeout=0.002)
    assert "forget ['s7']" not in device.said()


def test_an_event_is_waited_for_until_it_is_done(device: Device) -> None:
    event_of(device).synchronize()
    assert device.said() == ["[waiting", "e sync", "]"]
    event_of(device, looks=3).synchronize(timeout=10)
    assert device.said() == ["[waiting", *["e looked at"] * 4, "]"]
    with pytest.raises(DeviceError, match="after 0 s"):
        event_of(device, looks=1).synchronize(timeout=0)
    assert [event_of(device, looks=looks).done for looks in (0, 1)] == [True, False]


def test_an_event_is_looked_at_ever_more_rarely(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 20 µs first, then half as long again each time, up to 5 ms; never beyond the deadline."""
    now, naps = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    event_of(device, looks=20).synchronize(timeout=10)
    assert naps == pytest.approx([min(20e-6 * 1.5**i, 0.005) for i in range(20)])
    naps.clear()
    with pytest.raises(DeviceError, match=r"after 0\.0001 s"):
        event_of(device, looks=20).synchronize(timeout=0.0001)
    assert naps == pytest.approx([20e-6, 30e-6, 45e-6, 5e-6])


def test_what_is_between_two_events_is_told_once_the_later_is_done(device: Device) -> None:
    first, last = event_of(device, at=1.0), event_of(device, at=3.5)
    assert last.elapsed_ms(since=first) == 2.5
    assert device.said() == ["[waiting", "e sync", "]", "[timing on gpu:0", "]"]
    for since in (event_of(Device()), device.stream()):
        with pytest.raises(ArgumentError, match="since must be an event of gpu:0"):
            last.elapsed_ms(cast(Any, since))


def test_events_for_users_are_timed_and_marks_are_not(device: Device) -> None:
    stream = device.stream()
    assert stream.record().device is cast(Any, device)
    assert device.said() == ["[recording an event on gpu:0", "s7 record timed=True", "]"]
    stream.mark()
    assert device.said() == ["s7 record"]


def test_a_stream_waits_for_an_event_or_for_another_streams_work_so_far(device: Device) -> None:
    stream, other = device.stream(), Device()
    stream.wait(event_of(device))
    assert device.said() == ["[making a stream of gpu:0 wait", "s7 wait e", "]"]
    stream.wait(other.stream(8))
    assert other.said() == ["[recording an event on gpu:0", "s8 record", "]"]
    assert device.said() == ["[making a stream of gpu:0 wait", "s7 wait s8.record", "]"]
    with pytest.raises(ArgumentError, match="other must be an event or a stream"):
        stream.wait(cast(Any, 8))


def test_the_drivers_default_stream_is_one_to_other_libraries(device: Device) -> None:
    found = [(one.driver_handle, one.handle, one.__cuda_stream__()) for one in map(device.stream, (0, 1, 9))]
    assert found == [(0, 1, (0, 1)), (1, 1, (0, 1)), (9, 9, (0, 9))]
    assert Handle(9, None).__cuda_stream__() == (0, 9)


def test_a_graph_is_captured_once_and_launched_with_its_memory(device: Device) -> None:
    used: list[Any] = []
    memory = SimpleNamespace(capture=lambda: used.append("captured"), use=used.append)
    graph = GpuDevice.capture(cast(Any, device))
    for early in (graph.launch, graph.upload):
        with pytest.raises(ArgumentError, match="graph must be captured before"):
            early()
    with graph:
        capturing = device.current_stream
        assert capturing.handle == 7 and device._local.capture is graph and streams_entered.value == 1
        graph.keep(cast(Any, memory))
        graph.keep(cast(Any, memory))
        for refused in (capturing.synchronize, event_of(device).synchronize, graph.__enter__):
            with pytest.raises(ArgumentError):
                refused()
        with pytest.raises(ArgumentError, match=r"^capture\(\) must stand"):
            Graph(cast(Any, device)).__enter__()
    assert device.current_stream is device._default_stream and streams_entered.value == 0
    assert device._local.capture is None
    builder = "s7.create_graph_builder"
    assert device.said() == [
        "[starting a capture on gpu:0", "s7 create_graph_builder", f"{builder} begin_building relaxed", "]",
        "[ending a capture on gpu:0", f"{builder} end_building", f"{builder}.end_building complete", "]",
        "[closing a capture on gpu:0", f"{builder} close", "]",
    ]  # fmt: skip
    made, stream = f"{builder}.end_building.complete", device.stream(9)
    with stream:
        graph.upload()
        assert device.said() == ["[uploading a graph on gpu:0", f"{made} upload s9", "]"]
        assert used == ["captured", "captured"]
        graph.launch()
    assert device.said() == [
        "[launching a graph on gpu:0", f"{made} launch s9", "]", "ran a captured graph on s9",
    ]  # fmt: skip
    assert used[2:] == [stream]
    device._local.capture = object()  # another graph's
    for what in ("launch", "upload"):
        with pytest.raises(ArgumentError, match=rf"graph\.{what}\(\) must stand outside"):
            getattr(graph, what)()
    device._local.capture = None
    with pytest.raises(ArgumentError, match="graph must be captured once"):
        graph.__enter__()


def test_host_memory_that_a_graph_copies_lives_as_long_as_the_graph(device: Device) -> None:
    class Pinned: ...

    graph, array = Graph(cast(Any, device)), Pinned()
    alive = weakref.ref(array)
    graph.keep_host(array)
    del array
    assert alive() is not None
    del graph
    assert alive() is None


def test_a_capture_that_goes_wrong_leaves_nothing_behind(device: Device) -> None:
    graph = Graph(cast(Any, device))
    with pytest.raises(KeyError), graph:
        raise KeyError
    assert device.current_stream is device._default_stream and device._local.capture is None
    assert "s7.create_graph_builder close" in device.log
    assert not any("end_building" in line for line in device.log)
    with pytest.raises(ArgumentError, match="graph must be captured before launch"):
        graph.launch()
    with graph:  # again, rightly
        pass
    graph.launch()


def test_calls_are_timed_on_the_current_stream_one_after_another(device: Device) -> None:
    """In seconds by the GPU's clock, which goes on by a millisecond with each line of the log here."""
    works = iter((1, 5, 0))

    def work() -> None:
        device.log.extend(["work"] * next(works))

    with device.stream(9):
        taken = GpuDevice.time(cast(Any, device), work, repeat=3)
    assert taken == [each / 1000 for each in (3 + 1, 3 + 5, 3 + 0)]
    log = device.said()
    assert log.count("s9 record timed=True") == 6 and log.count("s9 sync") == 1
    assert log.index("s9 sync") > max(i for i, line in enumerate(log) if line.startswith("s9 record"))
    assert len(GpuDevice.time(cast(Any, device), lambda: None)) == 10
    with pytest.raises(ArgumentError, match="repeat must be at least 1"):
        GpuDevice.time(cast(Any, device), work, repeat=0)
    device._local.capture = object()
    for call in (
        lambda: GpuDevice.time(cast(Any, device), work),
        lambda: GpuDevice.synchronize(cast(Any, device)),
    ):
        with pytest.raises(ArgumentError, match="outside of a capture"):
            call()


def test_waiting_for_a_gpu_waits_for_all_its_streams(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(100)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    given: list[tuple[str, float]] = []
    monkeypatch.setattr(
        Stream, "synchronize", lambda self, timeout=None: given.append((self._native.name, timeout))
    )
    device._ledger.streams[:] = [device.stream(8), device.stream(9), device.stream(8)]
    with device.stream(7):
        GpuDevice.synchronize(cast(Any, device), timeout=2.5)
    assert sorted(name for name, _ in given) == ["s7", "s8", "s9"]
    assert [left for _, left in given] == [1.5, 0.5, 0.0]  # of one deadline for all, never less than nothing


def test_waiting_for_a_gpu_without_a_deadline_is_the_drivers(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = words.driver().CUresult
    answers = [results.CUDA_SUCCESS, results.CUDA_ERROR_LAUNCH_FAILED]

    def wait() -> tuple[Any]:
        device.log.append("waited")
        return (answers.pop(0),)

    monkeypatch.setattr(gpu_device, "driver", lambda: SimpleNamespace(cuCtxSynchronize=wait))
    GpuDevice.synchronize(cast(Any, device))
    assert device.said() == ["[waiting", "waited", "]", "forget []"]
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_LAUNCH_FAILED.* running kernel 'slow' on gpu:0"):
        GpuDevice.synchronize(cast(Any, device))
    assert device.said() == ["[waiting", "waited", "]"]
