"""The clock of ``tilewise bench gemm``, over a CUDA that counts its own time, and an nvidia-smi that is a script."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewise.bench import dispatch, gemm_timing, gpu_monitor
from tilewise.bench.gemm_figures import OURS
from tilewise.bench.gemm_timing import CudaStage
from tilewise.bench.gpu_monitor import GpuMonitor, query
from tilewise.cli import bench_commands

SLEEP = 1e-4
SECONDS = {OURS: 1e-5, "torch.matmul": 3e-5}


class CountingCuda:
    """torch.cuda, whose clock moves by what is started on it; a capture records instead."""

    def __init__(self) -> None:
        self.now, self.capturing = 0.0, None
        self.started: list[tuple[str, int]] = []  # products, by contender and set
        self.replayed: list[str] = []

    def product(self, name: str) -> Any:
        def start(which: int) -> None:
            if self.capturing is not None:
                self.capturing.append((name, which))
                return
            self.started.append((name, which))
            self.now += SECONDS[name]

        return start

    def Stream(self, _place: str) -> Any:  # noqa: N802  # torch's name
        return type("Stream", (), {"wait_stream": lambda *_: None})()

    def current_stream(self, _place: str) -> Any:
        return self.Stream("")

    def stream(self, _stream: Any) -> Any:
        return contextlib.nullcontext()

    def synchronize(self, _place: str) -> None: ...

    def _sleep(self, _cycles: int) -> None:
        self.now += SLEEP

    def CUDAGraph(self) -> Any:  # noqa: N802
        return Recorded(self)

    @contextlib.contextmanager
    def graph(self, recorded: Any, stream: Any) -> Iterator[None]:
        assert stream is not None
        self.capturing = recorded.products
        yield
        self.capturing = None

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        assert enable_timing
        return Marked(self)


class Recorded:
    def __init__(self, cuda: CountingCuda) -> None:
        self._cuda = cuda
        self.products: list[tuple[str, int]] = []

    def replay(self) -> None:
        self._cuda.now += sum(SECONDS[name] for name, _ in self.products)
        self._cuda.replayed.append(self.products[0][0])


class Marked:
    def __init__(self, cuda: CountingCuda) -> None:
        self._cuda, self.at = cuda, 0.0

    def record(self) -> None:
        self.at = self._cuda.now

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Marked) -> float:
        return (other.at - self.at) * 1000


def stage_on(cuda: CountingCuda, monitor: GpuMonitor | None = None) -> CudaStage:
    device: Any = type("Gpu", (), {"ordinal": 0})()
    return CudaStage(type("Torch", (), {"cuda": cuda})(), device, monitor)


def test_a_stage_asks_its_own_gpu_and_compiles_by_the_longest_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the search prints is lost; it is of arguments like those alone, not of any sizes."""
    told: list[Any] = []

    def compile_(function: Any, **how: Any) -> Any:
        def compiled(*given: int) -> Any:
            print("searching")
            told.append(given)
            return function(*given)

        told.append(("compile", how))
        return compiled

    cuda = SimpleNamespace(
        Stream=lambda place: None,
        get_device_properties=lambda place: SimpleNamespace(L2_cache_size={"cuda:3": 50}[place]),
        mem_get_info=lambda place: {"cuda:3": (7, 9)}[place],
        synchronize=lambda place: told.append(f"wait for {place}"),
        empty_cache=lambda: told.append("give back"),
    )
    torch = SimpleNamespace(
        cuda=cuda, compile=compile_, compiler=SimpleNamespace(reset=lambda: told.append("reset"))
    )
    stage = CudaStage(torch, cast("Any", SimpleNamespace(ordinal=3)))
    assert (stage.cache_bytes(), stage.free_bytes()) == (50, 7)
    made = stage.compile(lambda a, b: a + b, (1, 2))
    how = {"mode": "max-autotune-no-cudagraphs", "dynamic": False}
    assert told == ["reset", ("compile", how), (1, 2)] and capsys.readouterr().out == ""
    assert made(3, 4) == 7
    told.clear()
    stage.release()
    assert told == ["wait for cuda:3", "give back"]


def test_bursts_take_turns_and_count_each_product_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_timing, "_WARM_SECONDS", 0.0)
    cuda = CountingCuda()
    stage = stage_on(cuda)
    assert stage.estimate_seconds(cuda.product(OURS)) == pytest.approx(SECONDS[OURS])
    graphs = {name: stage.capture(cuda.product(name), 7, 3) for name in SECONDS}
    assert [which for _, which in graphs[OURS].products] == [0, 1, 2, 0, 1, 2, 0]
    cuda.replayed.clear()
    timing = stage.measure(graphs, 7, 12)
    for name, samples in timing.seconds.items():
        assert samples == pytest.approx([SECONDS[name]] * 12)
    rounds = [tuple(cuda.replayed[at : at + 2]) for at in range(2, 26, 2)]  # after one of warming up
    assert all(set(both) == set(SECONDS) for both in rounds)
    assert timing.loads == {}


def test_nvidia_smi_is_asked_ten_times_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "asked"
    smi(
        monkeypatch,
        tmp_path,
        f"open({str(said)!r}, 'w').write(' '.join(sys.argv[1:])); print('1, 2, 3', flush=True); break",
    )
    with GpuMonitor("GPU-none") as monitor:
        while not monitor.samples:
            time.sleep(0.002)
    which, fields, *how = said.read_text().split()
    assert (which, how) == ("--id=GPU-none", ["--format=csv,noheader,nounits", "--loop-ms=100"])
    assert fields.startswith("--query-gpu=clocks") and fields.count(",") == 2
    assert tuple(monitor.samples[0])[1:] == (1, 2, 3)


def test_slices_are_long_and_have_their_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi(monkeypatch, tmp_path, "print('1500, 600.5, 60', flush=True); time.sleep(0.005)")
    monkeypatch.setattr(gemm_timing, "_SUSTAINED_WARM_SECONDS", 0.0)
    cuda = CountingCuda()
    monitor = GpuMonitor("GPU-none")

    def wait(*_: Any) -> None:
        enough = len(monitor.samples) + 2
        while len(monitor.samples) < enough:
            time.sleep(0.002)

    monkeypatch.setattr(CountingCuda, "synchronize", wait)
    monkeypatch.setattr(Marked, "synchronize", wait)
    stage = stage_on(cuda, monitor)
    graphs = {name: stage.capture(cuda.product(name), 4, 2) for name in SECONDS}
    timing = stage.measure(graphs, 4, 3)
    for name, samples in timing.seconds.items():
        assert samples == pytest.approx([SECONDS[name]] * 3)
        assert timing.loads[name].clock_mhz == 1500 and timing.loads[name].watts == 600.5
    per_slice = cuda.replayed.count(OURS) / 3 * 4 * SECONDS[OURS]
    assert per_slice == pytest.approx(0.2, rel=0.05)
    monkeypatch.setitem(SECONDS, OURS, 1.0)  # longer than a slice: once is enough
    cuda.replayed.clear()
    (seconds,) = stage.measure({OURS: graphs[OURS]}, 4, 1).seconds[OURS]
    assert seconds == pytest.approx(1.0) and cuda.replayed == [OURS] * 3  # to load it, to count, and timed


def test_a_gpu_is_loaded_for_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph in turn, and once at least."""
    now = [0.0]
    cuda = CountingCuda()
    monkeypatch.setattr(gemm_timing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(CountingCuda, "synchronize", lambda *_: now.__setitem__(0, now[0] + 1))
    stage = stage_on(cuda)
    graphs = {name: stage.capture(cuda.product(name), 1, 1) for name in SECONDS}
    for seconds, turns in ((0.0, 1), (2.5, 3), (3.0, 3)):
        cuda.replayed.clear()
        stage._load(graphs, seconds)
        assert cuda.replayed == [*SECONDS] * turns


def test_a_capture_comes_after_what_runs_and_before_what_follows() -> None:
    told: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Stream) -> None:
            told.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def switch(stream: Stream) -> Iterator[None]:
        told.append(f"on {stream.name}")
        yield
        told.append("back")

    cuda = SimpleNamespace(
        Stream=lambda _place: Stream("ours"), current_stream=lambda _place: Stream("usual"), stream=switch
    )
    stage = CudaStage(SimpleNamespace(cuda=cuda), cast("Any", SimpleNamespace(ordinal=0)))
    with stage._on_stream():
        told.append("start")
    assert told == ["ours waits for usual", "on ours", "start", "back", "usual waits for ours"]


def test_a_figure_within_its_budget_is_not_over_it() -> None:
    """To the digit; and what is not measured is neither."""
    names = ("share_us", "fused_share_us", "own_us", "prepared_us")
    given: dict[str, Any] = dict.fromkeys(("date", "rounds", "compiled", "tensors", "share_alloc_us"))
    given |= dict.fromkeys(("python_frames", "allocations", "share_us", "fused_share_us"))
    for name in names:
        for more, over in ((0.0, []), (1e-9, [name])):
            times = dispatch.DispatchTimes(**given | {name: dispatch.BUDGETS[name] + more})
            assert times.over_budget == over and times.ratios == {}
    for name, (ours, theirs) in {
        "with_out": ("call_us", "torch_us"),
        "without_out": ("call_alloc_us", "torch_alloc_us"),
        "linear": ("linear_us", "torch_linear_us"),
    }.items():
        for more, over in ((0.0, []), (1e-9, [name])):
            ratio = dispatch.BUDGETS[name] + more
            times = dispatch.DispatchTimes(**given | {ours: 8 * ratio, theirs: 8.0})
            assert times.ratios == {name: ratio} and times.over_budget == over


def test_calls_in_turns_are_timed_without_the_loop_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves 2 µs for each turn of the loop, and by what a call says."""
    now, settled = [0], []

    class Turns(Iterator[None]):
        def __init__(self, _: None, count: int) -> None:
            self.left = count

        def __next__(self) -> None:
            if not self.left:
                raise StopIteration
            self.left -= 1
            now[0] += 2_000

    def call(ns: int) -> Any:
        return lambda: now.__setitem__(0, now[0] + ns)

    monkeypatch.setattr(dispatch, "itertools", SimpleNamespace(repeat=Turns))
    monkeypatch.setattr(dispatch, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    calls = {"fast": call(500), "slow": call(40_000), "nothing": call(0)}
    found = dispatch._time_in_turns(calls, 3, 10, lambda: settled.append(now[0]))
    assert found == pytest.approx({"fast": 0.5, "slow": 40, "nothing": 0}) and len(settled) == 9


def test_what_comes_with_the_first_two_calls_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, late = [0], [9_000_000, 8_000_000]

    def call() -> None:
        now[0] += late.pop() if late else 500

    monkeypatch.setattr(dispatch, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    assert dispatch._time_in_turns({"call": call}, 1, 10, lambda: None) == {"call": 0.5}


def test_a_ratio_says_itself_whether_it_is_over_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """Also without a GPU: the times are given."""
    times = dispatch.DispatchTimes(
        "2026-01-01", 25, True, "torch", 0.5, 0.6, 9.0, 0, 0, gpu="H200",
        call_us=1.0, torch_us=4.0, linear_us=3.0, torch_linear_us=4.0, own_us=4.5,
    )  # fmt: skip
    assert times.over_budget == ["fused_share_us", "own_us", "linear"]
    bench_commands._print_times(times)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(")")[-1].strip() for line in lines if "× (≤" in line] == ["ok", "over"]


@pytest.mark.parametrize("gpu", ["H200", None])
def test_times_without_a_gpu_say_that_there_was_none(
    capsys: pytest.CaptureFixture[str], gpu: str | None
) -> None:
    bench_commands._print_times(dispatch.DispatchTimes("", 25, True, "torch", 0.5, 0.6, 0.7, 0, 0, gpu=gpu))
    lines = capsys.readouterr().out.splitlines()
    assert "operands of our share: torch" in lines
    assert any("No GPU here" in line for line in lines) is (gpu is None)


def smi(monkeypatch: pytest.MonkeyPatch, folder: Path, what: str) -> None:
    """An nvidia-smi that does ``what`` for ever."""
    script = folder / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\nimport sys, time\nwhile True:\n    {what}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_what_nvidia_smi_answers_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi(monkeypatch, tmp_path, "print('580.1, 1980'); break")
    assert query("GPU-none", ("driver_version", "clocks.sm")) == {
        "driver_version": "580.1",
        "clocks.sm": "1980",
    }
    assert query("GPU-none", ("driver_version",)) is None
    smi(monkeypatch, tmp_path, "sys.exit('No devices were found')")
    assert query("GPU-none", ("driver_version",)) is None


def test_without_nvidia_smi_there_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert query("GPU-none", ("driver_version",)) is None
    with GpuMonitor("GPU-none") as monitor:
        assert monitor.samples == []
    assert gpu_monitor.average(monitor.samples, [(0.0, 1e9)]) is None
