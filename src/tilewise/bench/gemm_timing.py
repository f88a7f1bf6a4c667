"""Device time of products side by side: each captured in a CUDA graph, the graphs replayed in turns in random order.

In bursts the GPU runs at its highest clocks; under sustained load it is as hot as it gets, and its power limits it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tilewise.bench.gemm_figures import GpuLoad, Timing
from tilewise.bench.gpu_monitor import GpuMonitor, average
from tilewise.devices import Device
from tilewise.devices.gpu import GpuDevice

__all__ = ["CudaStage", "Replay", "Stage", "count_launches"]

_GRAPH_SECONDS = 2e-3
_LEAST_LAUNCHES, _MOST_LAUNCHES = 4, 40
_WARM_SECONDS = 0.03  # of load before a burst: clocks rise from idle
_SUSTAINED_WARM_SECONDS = 3.0
_SLICE_SECONDS = 0.2
_DELAY_CYCLES = 200_000  # 0.1 ms: longer than the host takes to start a graph


class Replay(Protocol):
    """So many products in a row, ready to be started as one."""

    def replay(self) -> None: ...


class Stage(Protocol):
    """Where products run and are timed. A GPU; tests have one without."""

    torch: Any
    place: str  # as torch calls it

    @property
    def device(self) -> Device: ...
    def cache_bytes(self) -> int: ...
    def free_bytes(self) -> int: ...
    def compile(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]: ...
    def estimate_seconds(self, start: Callable[[int], Any]) -> float: ...
    def capture(self, start: Callable[[int], Any], launches: int, sets: int) -> Replay: ...
    def measure(self, graphs: Mapping[str, Replay], launches: int, rounds: int) -> Timing: ...
    def release(self) -> None: ...


def count_launches(seconds: float, sets: int) -> int:
    """How many products of this time a graph holds: about 2 ms of them, and each set of operands at least once."""
    wanted = int(_GRAPH_SECONDS / seconds) if seconds > 0 else _MOST_LAUNCHES
    return max(min(max(wanted, _LEAST_LAUNCHES), _MOST_LAUNCHES), sets)


class CudaStage:
    """A GPU with PyTorch's tensors and graphs; ``monitor`` makes the load sustained, and is what tells of it."""

    def __init__(self, torch: Any, device: GpuDevice, monitor: GpuMonitor | None = None) -> None:
        self.torch, self.device, self._monitor = torch, device, monitor
        self.place = f"cuda:{device.ordinal}"
        self._stream = torch.cuda.Stream(self.place)

    def cache_bytes(self) -> int:
        """The size of L2."""
        return int(self.torch.cuda.get_device_properties(self.place).L2_cache_size)

    def free_bytes(self) -> int:
        """Memory that could be allocated now."""
        return int(self.torch.cuda.mem_get_info(self.place)[0])

    def compile(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
        """What torch.compile makes of a function for arguments like these alone, by its longest search."""
        self.torch.compiler.reset()
        compiled = self.torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
        with _silence():
            compiled(*arguments)
        return compiled  # type: ignore[no-any-return]

    def estimate_seconds(self, start: Callable[[int], Any]) -> float:
        """About how long a product takes."""
        with self._on_stream():
            for which in (0, 1):
                start(which)
            return self._time(lambda: [start(which) for which in (0, 1)]) / 2

    def capture(self, start: Callable[[int], Any], launches: int, sets: int) -> Any:
        """A graph of so many products, over the sets in turn."""
        with self._on_stream():
            for which in range(min(sets, 2)):
                start(which)
        graph = self.torch.cuda.CUDAGraph()
        # Results that a contender makes anew live as long as ours do, so that they take as much of L2.
        made: deque[Any] = deque(maxlen=sets)
        with self.torch.cuda.graph(graph, stream=self._stream):
            for which in range(launches):
                made.append(start(which % sets))
        return graph

    def measure(self, graphs: Mapping[str, Replay], launches: int, rounds: int) -> Timing:
        """Seconds of one product of each graph, by round."""
        if self._monitor is None:
            return self._measure_bursts(graphs, launches, rounds)
        with self._monitor as monitor:
            return self._measure_slices(graphs, launches, rounds, monitor)

    def release(self) -> None:
        """Give back what nothing holds any more."""
        gc.collect()
        self.torch.cuda.synchronize(self.place)
        self.torch.cuda.empty_cache()

    # ── clocks ──

    def _measure_bursts(self, graphs: Mapping[str, Replay], launches: int, rounds: int) -> Timing:
        self._load(graphs, _WARM_SECONDS)
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(rounds):
            for name in _shuffled(graphs):
                times[name].append(self._time(graphs[name].replay) / launches)
        return Timing(times)

    def _measure_slices(
        self, graphs: Mapping[str, Replay], launches: int, rounds: int, monitor: GpuMonitor
    ) -> Timing:
        """Slices of one contender each, one after another without a pause, after seconds of the same load."""
        self._load(graphs, _SUSTAINED_WARM_SECONDS)
        repeats = {
            name: max(round(_SLICE_SECONDS / self._time(graph.replay)), 1) for name, graph in graphs.items()
        }
        times: dict[str, list[float]] = {name: [] for name in graphs}
        spans: dict[str, list[tuple[float, float]]] = {name: [] for name in graphs}
        for _ in range(rounds):
            for name in _shuffled(graphs):
                begin, count = time.monotonic(), repeats[name]
                seconds = self._time(functools.partial(_repeat, graphs[name], count))
                times[name].append(seconds / count / launches)
                spans[name].append((begin, time.monotonic()))
        loads = {name: average(monitor.samples, spent) for name, spent in spans.items()}
        known: dict[str, GpuLoad] = {name: load for name, load in loads.items() if load is not None}
        return Timing(times, known)

    def _load(self, graphs: Mapping[str, Replay], seconds: float) -> None:
        """Keep the GPU as busy as it is to be while measuring, each graph in turn."""
        end = time.monotonic() + seconds
        while True:
            for graph in graphs.values():
                graph.replay()
            self.torch.cuda.synchronize(self.place)
            if time.monotonic() >= end:
                return

    def _time(self, start: Callable[[], Any]) -> float:
        """Seconds of device time from before to after what ``start`` starts.

        NOTE: the GPU is kept busy until all of it is in the queue; else the clock would run while the host starts it.
        """
        before, after = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(_DELAY_CYCLES)
        before.record()
        start()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1000

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """The stream of captures, on which everything has to have run once before; in order with the others."""
        cuda = self.torch.cuda
        self._stream.wait_stream(cuda.current_stream(self.place))
        with cuda.stream(self._stream):
            yield
        cuda.current_stream(self.place).wait_stream(self._stream)


def _repeat(graph: Replay, count: int) -> None:
    for _ in range(count):
        graph.replay()


def _shuffled(graphs: Mapping[str, Replay]) -> list[str]:
    return random.sample(list(graphs), len(graphs))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep what torch.compile prints of its search off the terminal."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
