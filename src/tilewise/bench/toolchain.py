"""How long compiling takes, cold and from the cache, of plans, too, and how long ``import tilewise`` takes."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tilewise.bench import environment as here
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.errors import ArgumentError, ToolError
from tilewise.kernels import RUNGS
from tilewise.kernels.spec import KernelSpec
from tilewise.toolchain.compile import check_arch
from tilewise.toolchain.nvrtc import version

if TYPE_CHECKING:
    from tilewise.bench.plan_compiling import PlannedProduct, PlanTime

__all__ = ["ARCHS", "BUDGETS", "CompileTime", "ToolchainTimes", "bench_toolchain", "budget_of", "markdown"]

ARCHS = ("sm_75", "sm_80", "sm_90a")
# Kernels of production size, which the last rungs are, may take longer than those that teach one idea.
BUDGETS: Mapping[str, float] = {
    "cold_ms": 150, "cold_large_ms": 300, "cold_plan_ms": 300, "cached_ms": 5, "import_ms": 150,
}  # fmt: skip
LARGE = ("12_multistage", "13_warp_specialised")
_DIRECTORY = "TILEWISE_CACHE_DIR"
_IMPORT = "import time; t = time.perf_counter(); import tilewise; print((time.perf_counter() - t) * 1e3)"


@dataclass(frozen=True, slots=True)
class CompileTime:
    """Medians for one rung and one arch, in milliseconds."""

    rung: str
    arch: str
    cold_ms: float
    cached_ms: float
    ptx_lines: int
    cubin_bytes: int

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "cold_ms": round(self.cold_ms, 2), "cached_ms": round(self.cached_ms, 2)}


@dataclass(frozen=True, slots=True)
class ToolchainTimes:
    """One run of the measurement: what a result file holds."""

    date: str
    repeats: int
    import_ms: float
    rungs: tuple[CompileTime, ...]
    plans: tuple[PlanTime, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "benchmark": "toolchain",
            "date": self.date,
            "machine": here.machine(),
            "versions": {**here.versions(), "NVRTC": ".".join(map(str, version()))},
            "repeats": self.repeats,
            "budgets": dict(BUDGETS),
            "over_budget": self.over_budget,
            "import_ms": round(self.import_ms, 1),
            "rungs": [row.to_dict() for row in self.rungs],
            "plans": [row.to_dict() for row in self.plans],
        }

    @property
    def over_budget(self) -> list[str]:
        """Every figure above its budget, in words."""
        found = [
            f"{row.rung} for {row.arch}: {name.removesuffix('_ms')} {getattr(row, name):.1f} ms"
            for row in self.rungs
            for name in ("cold_ms", "cached_ms")
            if getattr(row, name) > BUDGETS[budget_of(row.rung, name)]
        ]
        found += [
            f"{row.product} on {row.gpu}: cold {row.cold_ms:.1f} ms"
            for row in self.plans
            if row.cold_ms > BUDGETS["cold_plan_ms"]
        ]
        if self.import_ms > BUDGETS["import_ms"]:
            found.append(f"import tilewise: {self.import_ms:.1f} ms")
        return found


def bench_toolchain(
    archs: Sequence[str] = ARCHS,
    repeats: int = 5,
    rungs: Mapping[str, KernelSpec] = RUNGS,
    progress: Progress = ignore_progress,
    products: Sequence[PlannedProduct] | None = None,
) -> ToolchainTimes:
    """Time the compilation of every rung for every arch that it runs on, and of plans of products on such GPUs.

    The cache in use is left alone.
    """
    from tilewise.bench.plan_compiling import PRODUCTS, time_plan

    if repeats < 1:
        raise ArgumentError("repeats", "must be at least 1", repeats)
    for arch in archs:
        check_arch(arch)
    work = [(rung, arch) for rung in rungs.values() for arch in archs if rung.runs_on(arch)]
    planned = [one for one in (PRODUCTS if products is None else products) if one.arch in archs]
    count = len(work) + len(planned) + 1
    progress(0, count, "import tilewise")
    imported = statistics.median(_import_ms() for _ in range(repeats))
    if work:
        with _empty_cache():
            work[0][0].kernel(work[0][1])  # the library is loaded, and not by what is timed
    times = []
    for i, (rung, arch) in enumerate(work):
        progress(i + 1, count, f"{rung.name} for {arch}")
        times.append(_compile_time(rung, arch, repeats))
    plans = []
    for i, product in enumerate(planned):
        progress(len(work) + i + 1, count, f"{product.name} on {product.gpu}")
        plans.append(time_plan(product, repeats, _empty_cache))
    date = datetime.now(UTC).date().isoformat()
    return ToolchainTimes(date, repeats, imported, tuple(times), tuple(plans))


def markdown(result: Mapping[str, Any]) -> str:
    """The table of ``docs/toolchain.md`` from a result file's content."""
    machine, budgets, compiler = result["machine"], result["budgets"], result["versions"]["NVRTC"]
    lines = [
        f"Measured on {result['date']} on {machine['cpu']}, {machine['cores']} cores, with NVRTC {compiler}: "
        f"medians of {result['repeats']}, in milliseconds; **bold** is over budget.",
        "",
        f"| rung | arch | cold (≤ {budgets['cold_ms']:g}; rungs 12 and 13 ≤ {budgets['cold_large_ms']:g}) "
        f"| from the cache (≤ {budgets['cached_ms']:g}) |",
        "| --- | --- | ---: | ---: |",
    ]
    for row in result["rungs"]:
        cells = [
            _marked(row[name], budgets[budget_of(row["rung"], name)]) for name in ("cold_ms", "cached_ms")
        ]
        lines.append(f"| {row['rung']} | {row['arch']} | {cells[0]} | {cells[1]} |")
    if result.get("plans"):
        lines += [
            "",
            f"| a plan of | GPU | kernel | cold (≤ {budgets['cold_plan_ms']:g}) |",
            "| --- | --- | --- | ---: |",
        ]
    for row in result.get("plans", ()):
        cold = _marked(row["cold_ms"], budgets["cold_plan_ms"])
        lines.append(f"| {row['product']} | {row['gpu']} | {row['kernel']} | {cold} |")
    lines += ["", f"`import tilewise` takes {_marked(result['import_ms'], budgets['import_ms'])} ms."]
    return "\n".join(lines) + "\n"


def budget_of(rung: str, name: str) -> str:
    """Which budget a figure of a rung has."""
    return "cold_large_ms" if name == "cold_ms" and rung in LARGE else name


def _marked(value: float, budget: float) -> str:
    return f"**{value:.1f}**" if value > budget else f"{value:.1f}"


def _compile_time(rung: KernelSpec, arch: str, repeats: int) -> CompileTime:
    cold = []
    for _ in range(repeats):
        with _empty_cache():
            cold.append(_milliseconds(lambda: rung.kernel(arch)))
    with _empty_cache():
        binary = rung.kernel(arch).build()
        cached = [_milliseconds(lambda: rung.kernel(arch)) for _ in range(repeats)]
    return CompileTime(
        rung.name,
        arch,
        statistics.median(cold),
        statistics.median(cached),
        binary.ptx.count("\n") + 1,
        len(binary.cubin or b""),
    )


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    """A cache of its own, empty at first and gone afterwards."""
    before = os.environ.get(_DIRECTORY)
    with tempfile.TemporaryDirectory(prefix="tilewise-bench-", ignore_cleanup_errors=True) as folder:
        os.environ[_DIRECTORY] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_DIRECTORY]
            else:
                os.environ[_DIRECTORY] = before


def _import_ms() -> float:
    """The time of ``import tilewise`` in a Python of its own."""
    # NOTE: -P keeps the working directory out of the search, as it is for the command.
    done = subprocess.run([sys.executable, "-P", "-c", _IMPORT], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["no message"]
        raise ToolError(f"import tilewise fails in a new Python: {last[-1]}; reinstall tilewise")
    return float(done.stdout)
