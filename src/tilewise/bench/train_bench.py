"""How long a step of training takes on a GPU beside PyTorch: device time of graphs, in turns, in one run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tilewise.bench.gemm_bench import find_torch, torch_versions
from tilewise.bench.gemm_figures import OURS, Spread
from tilewise.bench.gemm_timing import CudaStage, Stage
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.bench.torch_training import KINDS, TorchTraining
from tilewise.nn import Digits, Network, Trainer, TrainingOptions, load_digits
from tilewise.nn.trainer import STEPS_IN_GRAPH, order_samples

__all__ = ["SIZES", "TrainFigures", "TrainRow", "bench_train"]

SIZES = (128, 512, 1024, 4096, 8192)
_SAMPLES = 6400
_COMPARED = 50  # steps of which the losses are compared
CALLED = "torch, called step by step"


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One H. ``times``: seconds of a step by contender; ``farthest``: of each rival, from our losses, the greatest."""

    hidden: int
    momentum: float
    times: Mapping[str, Spread]
    losses: Mapping[str, float]  # mean of the last ten of those that are compared
    farthest: Mapping[str, float]
    notes: Sequence[str] = ()

    @property
    def ratios(self) -> dict[str, float]:
        """Each rival's median time over ours."""
        ours = self.times[OURS].median
        return {name: spread.median / ours for name, spread in self.times.items() if name != OURS}

    def to_dict(self) -> dict[str, Any]:
        return {
            "hidden": self.hidden,
            "momentum": self.momentum,
            "microseconds": {
                name: [round(value * 1e6, 3) for value in spread] for name, spread in self.times.items()
            },
            "ratios": {name: round(ratio, 4) for name, ratio in self.ratios.items()},
            "losses": dict(self.losses),
            "farthest": dict(self.farthest),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class TrainFigures:
    """A run; ``rows`` in the order in which they were measured."""

    date: str
    gpu: str
    versions: Mapping[str, str | None]
    rounds: int
    seconds: float
    rows: Sequence[TrainRow] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        protocol = (
            f"device time of a step by replay of CUDA graphs of {STEPS_IN_GRAPH} steps, in turns in random order; low "
            f"quartile, median, high quartile; {CALLED}: the lighter one without a graph, wall time beforehand"
        )
        plain = {name: getattr(self, name) for name in ("date", "gpu", "rounds", "seconds")}
        rows = [row.to_dict() for row in self.rows]
        return {**plain, "versions": dict(self.versions), "protocol": protocol, "rows": rows}


def bench_train(
    sizes: Sequence[int], momentum: float, rounds: int, progress: Progress = ignore_progress
) -> TrainFigures:
    """Measure steps on the first GPU beside PyTorch; an error says what is missing where that cannot be."""
    from tilewise.devices import gpu

    device = gpu.open(0)  # says why, where there is none
    torch, begin = find_torch(), time.monotonic()
    stage, digits = CudaStage(torch, device), load_digits(limit=_SAMPLES)
    rows = []
    for number, hidden in enumerate(sizes):
        progress(number, len(sizes), f"H = {hidden}")
        options = TrainingOptions(hidden=hidden, momentum=momentum)
        rows.append(measure_row(stage, options, digits, rounds))
        stage.release()
    date = datetime.now(UTC).date().isoformat()
    versions = torch_versions(torch, f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    return TrainFigures(date, device.title, versions, rounds, time.monotonic() - begin, rows)


class _Steps:
    """Our steps as a graph; goes back to the first batch before the samples come to an end."""

    def __init__(self, trainer: Trainer, count: int) -> None:
        self._trainer, self._rows = trainer, np.arange(count)
        self._most, self._done = count // trainer.options.batch // STEPS_IN_GRAPH, 0
        trainer.select(self._rows)
        self._graph = trainer.graph(True, STEPS_IN_GRAPH)

    def replay(self) -> None:
        if self._done == self._most:
            self._trainer.select(self._rows)
            self._done = 0
        self._graph.launch()
        self._done += 1


def measure_row(stage: Stage, options: TrainingOptions, digits: Digits, rounds: int) -> TrainRow:
    """Compare the losses of the first steps, then time."""
    network = Network.begin(options)
    trainer = Trainer(network, options, digits.samples, digits.labels, stage.device)
    rows = order_samples(options, len(digits.labels))[: _COMPARED * options.batch]
    batches = rows.reshape(-1, options.batch)
    ours = trainer.train(rows)[0].reshape(batches.shape).mean(1)
    losses, farthest, notes = {OURS: float(ours[-10:].mean())}, {}, []
    graphs: dict[str, Any] = {}
    for name, kept in KINDS.items():
        rival, note = _make_rival(stage, network, options, kept)
        notes += [f"{name}: {note}"] if note else []
        theirs = [rival.train(digits.samples[batch], digits.labels[batch]) for batch in batches]
        losses[name] = float(np.mean(theirs[-10:]))
        farthest[name] = float(np.abs(ours - theirs).max())
        graphs[name] = stage.capture(rival.start, STEPS_IN_GRAPH, 1)
    called = [rival.time_calls(STEPS_IN_GRAPH) for _ in range(rounds)]  # of the last, the lightest
    graphs[OURS] = stage_steps(trainer, len(digits.labels))
    timing = stage.measure(graphs, STEPS_IN_GRAPH, rounds)
    times = {name: Spread.of(timing.seconds[name]) for name in (OURS, *KINDS)}
    times[CALLED] = Spread.of(called)
    return TrainRow(options.hidden, options.momentum, times, losses, farthest, notes)


def stage_steps(trainer: Trainer, count: int) -> Any:
    """Our steps, ready to be replayed: tests have another, where there is no GPU."""
    return _Steps(trainer, count)


def _make_rival(
    stage: Stage, network: Network, options: TrainingOptions, kept: str
) -> tuple[TorchTraining, str]:
    """PyTorch's steps, compiled where that is possible; else why not."""
    arguments = stage.torch, stage.place, network, options, kept
    try:
        stage.torch.compiler.reset()
        rival = TorchTraining(*arguments, compiled=True)
        rival.step()  # compiles
        rival.begin(network)
        return rival, ""
    except Exception as error:  # it needs Triton and a C compiler, which are not everywhere
        text = str(error).strip().splitlines()
        note = f"no torch.compile: {text[0] if text else type(error).__name__}"
        return TorchTraining(*arguments, compiled=False), note
