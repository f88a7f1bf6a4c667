"""``tilewise bench train`` without a GPU: everything but the clock, on the emulator and PyTorch for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.bench import torch_training, train_bench
from tilewise.bench.gemm_figures import OURS, Timing
from tilewise.bench.torch_training import KINDS, TorchTraining
from tilewise.bench.train_bench import TrainFigures, measure_row
from tilewise.cli.main import main
from tilewise.devices import gpu

torch: Any = pytest.importorskip("torch")

OPTIONS = tw.nn.TrainingOptions(hidden=288, batch=16, rate=0.005)


class PretendStage:
    """A stage on the CPU, whose clock says that each contender takes a microsecond more than the one before."""

    torch, place = torch, "cpu"

    @property
    def device(self) -> Any:
        return tw.device("emulator")

    def capture(self, start: Callable[[int], Any], launches: int, sets: int) -> Any:
        assert np.isfinite(float(start(0)))
        return start

    def measure(self, graphs: Mapping[str, Any], launches: int, rounds: int) -> Timing:
        return Timing({name: [1e-6 * (i + 1)] * rounds for i, name in enumerate(graphs)})


def test_losses_fall_alike_and_ratios_are_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("there is no Triton\nhere")

    monkeypatch.setattr(torch, "compile", fail)
    monkeypatch.setattr(train_bench, "stage_steps", lambda trainer, count: trainer)
    monkeypatch.setattr(train_bench, "_COMPARED", 10)
    stage: Any = PretendStage()
    row = measure_row(stage, OPTIONS, tw.nn.load_digits(limit=160), 3)
    assert set(row.losses) == {OURS, *KINDS} and all(0.5 < loss < 4 for loss in row.losses.values())
    assert all(distance < 0.05 for distance in row.farthest.values())
    assert [row.ratios[name] for name in KINDS] == pytest.approx([1 / 3, 2 / 3])
    assert list(row.times) == [OURS, *KINDS, train_bench.CALLED]
    assert row.ratios[train_bench.CALLED] * 3e-6 == pytest.approx(row.times[train_bench.CALLED].median)
    assert row.notes == [f"{name}: no torch.compile: there is no Triton" for name in KINDS]
    figures = TrainFigures("2000-01-01", "a GPU", {}, 3, 1.0, [row]).to_dict()
    assert figures["rows"][0]["microseconds"][OURS] == [3.0, 3.0, 3.0]


def test_our_steps_go_back_to_the_first_batch_before_samples_come_to_an_end() -> None:
    """A graph has 24 steps of 16 samples: 800 samples are enough for two of them."""
    done: list[Any] = []

    def graph(graded: bool, batches: int) -> Any:
        assert (graded, batches) == (True, 24)
        return SimpleNamespace(launch=lambda: done.append("steps"))

    def select(rows: Any) -> None:
        done.append(len(rows))

    trainer: Any = SimpleNamespace(options=OPTIONS, select=select, graph=graph)
    steps = train_bench.stage_steps(trainer, 800)
    for _ in range(5):
        steps.replay()
    assert done == [800, "steps", "steps", 800, "steps", "steps", 800, "steps"]


@pytest.mark.parametrize("kept", KINDS.values())
def test_the_rival_goes_back_to_where_it_began(kept: str) -> None:
    network, digits = tw.nn.Network.begin(OPTIONS), tw.nn.load_digits(limit=16)
    rival = TorchTraining(torch, "cpu", network, OPTIONS, kept, compiled=False)
    first = [rival.train(digits.samples, digits.labels) for _ in range(3)]
    rival.begin(network)
    assert [rival.train(digits.samples, digits.labels) for _ in range(3)] == first
    assert first[2] < first[0]


def test_options_of_another_measurement_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gemm", "--hidden", "128"]) == 2
    assert "--hidden is for train" in capsys.readouterr().err


def test_the_command_measures_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(uuid="none")
    monkeypatch.setattr(gpu, "open", lambda ordinal: {0: tw.device("emulator")}[ordinal])
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(get_device_properties=lambda _: properties))
    monkeypatch.setattr(train_bench, "find_torch", lambda: torch)
    told: Any = []
    stage = SimpleNamespace(release=lambda: told.append("release"))
    monkeypatch.setattr(train_bench, "CudaStage", lambda *given: told.append(given) or stage)
    monkeypatch.setattr(train_bench, "load_digits", lambda limit: f"{limit} digits")
    monkeypatch.setattr(
        train_bench, "measure_row", lambda on, options, *more: told.append((on is stage, *more)) or options
    )
    seen: list[tuple[int, int, str]] = []
    found = train_bench.bench_train([32, 64], 0.5, 3, lambda *done: seen.append(done))
    assert [(row.hidden, row.momentum) for row in found.rows] == [(32, 0.5), (64, 0.5)]
    assert seen == [(0, 2, "H = 32"), (1, 2, "H = 64")]
    assert found.versions["torch"] == str(torch.__version__) and found.rounds == 3
    assert found.gpu == tw.device("emulator").title and 0 <= found.seconds < 60
    assert told == [(torch, tw.device("emulator")), *[(True, "6400 digits", 3), "release"] * 2]


def test_steps_of_another_library_are_timed_from_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of so many; the one before them is not counted."""
    now = [0.0]

    def step() -> float:
        now[0] += 100.0 if not now[0] else 2.0
        return 0.5

    rival = object.__new__(TorchTraining)
    rival._step = step  # type: ignore[method-assign]
    monkeypatch.setattr(torch_training, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert rival.time_calls(4) == 2.0 and now == [108.0]
