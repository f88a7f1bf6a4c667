"""How fast the emulator is: beside OpenBLAS, beside numba's simulator, and in what it costs to start.

Every result is compared with float64 before it is timed. What a figure stands against is timed in turn with
it, in the same run: a ratio of two figures of one noisy minute says something, the figures alone little.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.bench import environment as here
from tilewise.bench.foreign import TritonProduct
from tilewise.bench.measurement import COLUMNS, Measurement, cells
from tilewise.bench.product import Product, WrongResult, fresh_seed
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.bench.rivals import ONE_THREAD, Rival, blas_name
from tilewise.bench.trial import example_size
from tilewise.devices import device
from tilewise.errors import ArgumentError, TilewiseError
from tilewise.kernel import Kernel
from tilewise.kernels import RUNGS
from tilewise.kernels.spec import KernelSpec
from tilewise.toolchain.cache import Cache

__all__ = ["FULL", "QUICK", "EmulatorFigures", "Sizes", "bench_emulator", "markdown"]

# What the published figures of this room are held against.
_SHARE_OF_BLAS = {
    "08_register_tiled": (20.0, 40.0),
    "09_warp_tiled": (20.0, 40.0),
    "04_tiled": (4.0, None),
    "10_turing_tensor_core": (15.0, None),
    "12_multistage": (15.0, None),
    "13_warp_specialised": (20.0, None),
}
_TRITON_OF_BLAS = (15.0, None)
_TWO_THREADS = 1.8
_OVER_SIMULATOR = 20_000.0
_LINES = 3_000
_SECONDS_PER_LINES = 2.0
_FROM_DISK_MS = 50.0
_LAUNCH_US = 150.0
_MEMORY_MIB = 64.0

_LAUNCHES = 300  # a sample is the median of so many: the system's own interruptions are not ours
_SHORT = 20  # and of so many products where one takes less than a millisecond
_NOTHING = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n"


@dataclass(frozen=True, slots=True)
class Sizes:
    """m = n = k of each part, and whether the budgets are for these."""

    register_tiled: int
    tiled: int
    simulated: int
    budgeted: bool = False


FULL = Sizes(1024, 512, 64, budgeted=True)
QUICK = Sizes(256, 128, 32)


@dataclass(frozen=True, slots=True)
class EmulatorFigures:
    """One run of the measurement: what a result file holds."""

    date: str
    sizes: Sizes
    repeats: int
    load: tuple[float, ...]
    load_afterwards: tuple[float, ...]
    figures: tuple[Measurement, ...]

    @property
    def ok(self) -> bool:
        """Whether no result was wrong; a figure beyond its budget is not."""
        return not any(figure.wrong for figure in self.figures)

    @property
    def missed(self) -> list[str]:
        """Every figure beyond its budget, in words."""
        return [figure.what for figure in self.figures if figure.missed]

    def to_dict(self) -> dict[str, Any]:
        return {
            "benchmark": "emulator",
            "date": self.date,
            "quick": not self.sizes.budgeted,
            "machine": here.machine(),
            "versions": {**here.versions(), "numba": here.package_version("numba")},
            "blas": blas_name(),
            "repeats": self.repeats,
            "load": list(self.load),
            "load_afterwards": list(self.load_afterwards),
            "missed": self.missed,
            "figures": [figure.to_dict() for figure in self.figures],
        }


def bench_emulator(
    repeats: int = 7,
    sizes: Sizes = FULL,
    rungs: Mapping[str, KernelSpec] = RUNGS,
    progress: Progress = ignore_progress,
) -> EmulatorFigures:
    """Measure everything; ``rungs`` are those whose compilation is timed."""
    if repeats < 1:
        raise ArgumentError("repeats", "must be at least 1", repeats)
    bench = _Bench(repeats, sizes, fresh_seed())
    load = _load()
    parts = [*bench.parts(), *bench.compilations(rungs)]
    figures: list[Measurement] = []
    for i, (name, what, measure) in enumerate(parts):
        progress(i, len(parts), what)
        try:
            figures += measure()
        except WrongResult as error:
            figures.append(Measurement(name, what, wrong=True, note=str(error)))
        except TilewiseError as error:  # what cannot be measured here does not keep the rest from it
            figures.append(Measurement(name, what, note=" ".join(str(error).split())))
    today = datetime.now(UTC).date().isoformat()
    return EmulatorFigures(today, sizes, repeats, load, _load(), tuple(figures))


def markdown(result: Mapping[str, Any]) -> str:
    """The table of ``docs/emulator-speed.md`` from a result file's content."""
    machine, load = result["machine"], result["load"]
    lines = [
        f"Measured on {result['date']} on {machine['cpu']}, {machine['cores']} cores"
        + (f", at a load average of {load[0]:.2g}" if load else "")
        + f": medians of {result['repeats']} (least–most). numpy multiplies with {result['blas']}."
        + (" A quick run: smaller sizes than the budgets are for." if result["quick"] else ""),
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "| --- | ---: | --- | ---: | --- | --- |",
    ]
    for row in result["figures"]:
        *shown, verdict = cells(row)
        lines.append(
            "| " + " | ".join([*shown, f"**{verdict}**" if verdict in ("over", "under") else verdict]) + " |"
        )
    return "\n".join(lines) + "\n"


Part = tuple[str, str, Callable[[], list[Measurement]]]


class _Bench:
    """The parts, with what they share."""

    def __init__(self, repeats: int, sizes: Sizes, seed: int) -> None:
        self.repeats, self.sizes, self.seed = repeats, sizes, seed
        self.one = device("emulator", threads=1)

    def parts(self) -> Iterator[Part]:
        """Everything but compilation."""
        sizes = self.sizes
        for name in _SHARE_OF_BLAS:
            size = sizes.tiled if name == "04_tiled" else sizes.register_tiled
            what = f"{name}, {size}³, one thread"
            yield name, what, functools.partial(self._rung_beside_blas, name, size, what)
        what = f"Triton's float16 matmul for sm_80, {sizes.register_tiled}³, one thread"
        yield "triton", what, functools.partial(self._triton_beside_blas, what)
        what = f"08_register_tiled, {sizes.register_tiled}³, two threads"
        yield "threads", what, functools.partial(self._two_threads, what)
        what = f"04_tiled with tiles of 16, {sizes.simulated}³, one thread"
        yield "simulator", what, functools.partial(self._beside_simulator, what)
        what = "launch of an empty kernel, one block"
        yield "launch", what, functools.partial(self._launch, what)
        what = f"memory of a launch beyond its arrays, {sizes.register_tiled}³"
        yield "memory", what, functools.partial(self._memory, what)

    def compilations(self, rungs: Mapping[str, KernelSpec]) -> Iterator[Part]:
        """PTX to machine code, for every rung."""
        for rung in rungs.values():
            yield rung.name, f"compile {rung.name}", functools.partial(self._compile, rung)

    def _rung_beside_blas(self, name: str, size: int, what: str) -> list[Measurement]:
        product = Product((size, size, size), self.one, self.seed, RUNGS[name])
        return self._beside_blas(name, size, what, product, *_SHARE_OF_BLAS[name])

    def _triton_beside_blas(self, what: str) -> list[Measurement]:
        size = self.sizes.register_tiled
        product = TritonProduct(size, self.one, self.seed)
        return self._beside_blas("triton", size, what, product, *_TRITON_OF_BLAS)

    def _beside_blas(
        self,
        name: str,
        size: int,
        what: str,
        product: Product | TritonProduct,
        least: float,
        aim: float | None,
    ) -> list[Measurement]:
        product.check()
        mine, theirs = [], []
        with Rival("blas", size, ONE_THREAD) as rival:
            for _ in range(self.repeats):
                mine.append(product.rate())
                theirs.append(product.flops / rival.seconds() / 1e9)
        return [
            Measurement(
                name,
                what,
                "GFLOP/s",
                tuple(mine),
                f"{blas_name()}, one thread",
                tuple(theirs),
                "%",
                least=least,
                aim=aim,
                judged=self.sizes.budgeted,
            )
        ]

    def _two_threads(self, what: str) -> list[Measurement]:
        cores = here.machine()["cores"]
        if cores < 2:
            return [Measurement("threads", what, note="this machine has one core")]
        size = (self.sizes.register_tiled,) * 3
        both = [
            Product(size, where, self.seed, RUNGS["08_register_tiled"])
            for where in (device("emulator", threads=2), self.one)
        ]
        for product in both:
            product.check()
        rates = [[product.rate() for product in both] for _ in range(self.repeats)]
        two, one = zip(*rates, strict=True)
        return [
            Measurement(
                "threads",
                what,
                "GFLOP/s",
                two,
                "one thread",
                one,
                "×",
                least=_TWO_THREADS,
                judged=self.sizes.budgeted,
            )
        ]

    def _beside_simulator(self, what: str) -> list[Measurement]:
        size = self.sizes.simulated
        product = Product((size, size, size), self.one, self.seed, RUNGS["04_tiled"], tile=16)
        product.check()
        if importlib.util.find_spec("numba") is None:
            return [
                Measurement("simulator", what, note="numba is not installed; pip install 'tilewise[bench]'")
            ]
        mine, theirs = [], []
        with Rival("simulator", size, {"NUMBA_ENABLE_CUDASIM": "1"}) as rival:
            against = f"the CUDA simulator of numba {rival.about['numba']}"
            for _ in range(min(self.repeats, 3)):  # one takes it seconds
                mine.append(statistics.median(product.rate() for _ in range(_SHORT)))
                theirs.append(product.flops / rival.seconds() / 1e9)
        return [
            Measurement(
                "simulator",
                what,
                "GFLOP/s",
                tuple(mine),
                against,
                tuple(theirs),
                "×",
                least=_OVER_SIMULATOR,
                judged=self.sizes.budgeted,
            )
        ]

    def _launch(self, what: str) -> list[Measurement]:
        kernel = Kernel.from_ptx(_NOTHING, "nothing")
        kernel(1, 1, device=self.one)

        def once() -> float:
            start = time.perf_counter()
            kernel(1, 1, device=self.one)
            return (time.perf_counter() - start) * 1e6

        times = [statistics.median(once() for _ in range(_LAUNCHES)) for _ in range(self.repeats)]
        return [Measurement("launch", what, "µs", tuple(times), most=_LAUNCH_US)]

    def _memory(self, what: str) -> list[Measurement]:
        if sys.platform != "linux":
            return [Measurement("memory", what, note="only Linux tells how much memory a process has had")]
        growth = []
        for _ in range(min(self.repeats, 3)):
            with Rival("memory", self.sizes.register_tiled) as child:
                growth.append(child.about["growth"] / 2**20)
        return [
            Measurement("memory", what, "MiB", tuple(growth), most=_MEMORY_MIB, judged=self.sizes.budgeted)
        ]

    def _compile(self, rung: KernelSpec) -> list[Measurement]:
        """Cold, and from the disk; all kernels of the rung together."""
        from tilewise import emulator

        product = Product(example_size(rung, on_gpu=False), self.one, self.seed, rung)
        product.check()
        host = emulator.host_cpu()
        work = [(item.binary.ptx, item.entry, item.launch.block, host) for item in product.launches]
        lines = sum(item[0].count("\n") + 1 for item in work)
        with tempfile.TemporaryDirectory(prefix="tilewise-bench-", ignore_cleanup_errors=True) as folder:
            disk = Cache(Path(folder))

            def build(store: Cache | None) -> tuple[float, float]:
                start, busy = time.perf_counter(), time.thread_time()
                for item in work:
                    emulator.build_kernel(*item, store)
                return time.perf_counter() - start, time.thread_time() - busy

            cold, busy = zip(*(build(None) for _ in range(min(self.repeats, 3))), strict=True)
            build(disk)
            kept = tuple(build(disk)[0] * 1e3 for _ in range(self.repeats))
        long = lines >= _LINES / 4  # else it is not the lines that take the time
        return [
            Measurement(
                f"compile {rung.name}",
                f"compile {rung.name}, cold",
                "s",
                cold,
                f"{lines:,} lines of PTX; {statistics.median(busy):.3g} s of CPU time",
                (lines / _LINES,) * len(cold) if long else (),
                f"s per {_LINES:,} lines",
                most=_SECONDS_PER_LINES if long else None,
            ),
            Measurement(
                f"compiled {rung.name}", f"compile {rung.name}, from the disk", "ms", kept, most=_FROM_DISK_MS
            ),
        ]


def _load() -> tuple[float, ...]:
    """The load averages of 1, 5 and 15 minutes, where the system has such."""
    return tuple(round(value, 2) for value in os.getloadavg()) if hasattr(os, "getloadavg") else ()
