"""How fast tw.matmul is on a GPU beside PyTorch, which calls cuBLAS: device time, product by product, in one run.

Each result of ours is compared with float64 before anything is timed, and again as the replayed graph leaves it: a
wrong one is reported as wrong, without a time. What goes wrong with one product ends its row, not the run.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tilewise.bench import environment as here
from tilewise.bench.dispatch import import_torch
from tilewise.bench.gemm_cases import GemmCase, has_rival
from tilewise.bench.gemm_figures import OURS, GemmFigures, GemmRow, describe_plan, timed_row
from tilewise.bench.gemm_products import Contender, Products, buffer_bytes, count_sets, torch_chain
from tilewise.bench.gemm_timing import CudaStage, Stage, count_launches
from tilewise.bench.gpu_monitor import GpuMonitor, query
from tilewise.bench.product import fresh_seed
from tilewise.bench.progress import Progress, ignore_progress
from tilewise.errors import TilewiseError, ToolError
from tilewise.reference import Comparison

__all__ = ["LEAST_ROUNDS", "bench_gemm", "find_torch", "measure_cases", "torch_versions"]

LEAST_ROUNDS = 15
_SHARE_OF_MEMORY = 0.85  # of what is free, for buffers: copies, workspaces and compiled code need some, too
_CLOCK_FIELDS = ("clocks.sm", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu")


def bench_gemm(
    cases: Sequence[GemmCase],
    dtype: str = "bfloat16",
    rounds: int = LEAST_ROUNDS,
    sustained: bool = False,
    command: str = "",
    progress: Progress = ignore_progress,
    arithmetic: str | None = None,
) -> GemmFigures:
    """Measure products on the first GPU beside PyTorch; an error says what is missing where that cannot be.

    ``arithmetic`` is what ours multiplies in; PyTorch has tf32 if that is asked for, else the operands' own.
    """
    from tilewise.devices import gpu

    device = gpu.open(0)  # says why, where there is none
    torch = find_torch()
    properties = torch.cuda.get_device_properties(device.ordinal)
    uuid = f"GPU-{properties.uuid}"
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    stage = CudaStage(torch, device, GpuMonitor(uuid) if sustained else None)
    seed, begin = fresh_seed(), time.monotonic()
    before = query(uuid, _CLOCK_FIELDS)
    with torch.no_grad():
        rows = measure_cases(stage, cases, dtype, rounds, seed, progress, arithmetic)
    return GemmFigures(
        date=datetime.now(UTC).date().isoformat(),
        command=command,
        gpu=device.title,
        dtype=dtype,
        seed=seed,
        versions=torch_versions(torch, uuid),
        machine=here.machine(),
        clocks={"before": before, "after": query(uuid, _CLOCK_FIELDS)},
        protocol={"arithmetic": arithmetic, **_protocol(torch, stage, rounds, sustained)},
        seconds=time.monotonic() - begin,
        rows=tuple(rows),
    )


def find_torch() -> Any:
    """PyTorch that reaches the GPU, or an error that says what to install."""
    if importlib.util.find_spec("torch") is None:
        raise ToolError(
            "PyTorch, which products are measured beside, is not installed: pip install 'tilewise[torch]'"
        )
    torch = import_torch()
    if not torch.cuda.is_available():
        version = here.package_version("torch")
        raise ToolError(f"PyTorch {version} finds no GPU: install a build for CUDA (see pytorch.org)")
    return torch


def torch_versions(torch: Any, uuid: str) -> dict[str, str | None]:
    """What is installed, and the driver of a GPU."""
    driver = query(uuid, ("driver_version",)) or {}
    return {
        **here.versions(),
        "torch": str(torch.__version__),
        "torch's CUDA": torch.version.cuda,
        "triton": here.package_version("triton"),
        "driver": driver.get("driver_version"),
    }


def _protocol(torch: Any, stage: Stage, rounds: int, sustained: bool) -> dict[str, Any]:
    """How it was measured, for whoever reads the file; and what PyTorch was free to do."""
    matmul = torch.backends.cuda.matmul
    return {
        "time": "device time by replay of CUDA graphs, in turns in random order",
        "load": "sustained: 3 s of the same load, then slices of 0.2 s"
        if sustained
        else "bursts of about 2 ms",
        "rounds": rounds,
        "data": "normal random numbers, a fresh seed each run",
        "buffers": "sets in rotation, 2.5 times L2 in all where at most 40 do; cold says whether",
        "checked": "before timing and as the graph left it, against float64 by tilewise.reference.compare",
        "ratio": "PyTorch's time over ours, by round; its median and quartiles",
        "l2_bytes": stage.cache_bytes(),
        "torch": {
            "allow_tf32": bool(matmul.allow_tf32),
            "allow_bf16_reduced_precision_reduction": bool(matmul.allow_bf16_reduced_precision_reduction),
            "allow_fp16_reduced_precision_reduction": bool(matmul.allow_fp16_reduced_precision_reduction),
            "compile": "max-autotune-no-cudagraphs, dynamic=False",
        },
    }


def measure_cases(
    stage: Stage,
    cases: Sequence[GemmCase],
    dtype: str,
    rounds: int,
    seed: int,
    progress: Progress = ignore_progress,
    arithmetic: str | None = None,
) -> list[GemmRow]:
    """A row for each case, whatever becomes of it; the memory of one is given back before the next."""
    rows = []
    for number, case in enumerate(cases):
        progress(number, len(cases), f"{case.suite} {case} {case.layout}")
        begin = time.monotonic()
        try:
            row = _measure(stage, case, dtype, rounds, seed + number, arithmetic)
        except Exception as error:  # a run of minutes is not lost to one product
            row = GemmRow(case, dtype, "failed", _one_line(error))
        rows.append(replace(row, spent=time.monotonic() - begin))
        _release(stage)
    return rows


def _release(stage: Stage) -> None:
    try:
        stage.release()
    except Exception as error:
        # NOTE: a fault on the GPU stays: every product after it fails with it, and its row says so.
        del error


def _measure(
    stage: Stage, case: GemmCase, dtype: str, rounds: int, seed: int, arithmetic: str | None
) -> GemmRow:
    """One product: check, then time, then check again."""
    if not has_rival(case, dtype):
        return GemmRow(case, dtype, "skipped", f"PyTorch has no such product of {dtype}")
    sets = count_sets(case, dtype, stage.cache_bytes())
    needs, free = buffer_bytes(case, dtype, sets), stage.free_bytes()
    if needs > _SHARE_OF_MEMORY * free:
        note = f"needs {needs / 2**30:.1f} GiB of buffers, and {free / 2**30:.1f} GiB are free"
        return GemmRow(case, dtype, "skipped", note)
    products = Products(stage.torch, stage.place, case, dtype, sets, seed, arithmetic)
    contenders = products.contenders()
    contenders[OURS](0)
    made = products.bind_product(stage.device)
    plan = describe_plan(made.plan)
    found = products.compare(lambda: contenders[OURS](0), 0, made)
    if not found.ok:
        return _wrong(case, dtype, found, plan, "")
    rivals, notes = _find_rivals(stage, products, contenders)
    seconds = min(stage.estimate_seconds(start) for start in contenders.values())
    launches = count_launches(seconds, sets)
    contenders = {OURS: contenders[OURS], **rivals}
    graphs = {name: stage.capture(start, launches, sets) for name, start in contenders.items()}
    timing = stage.measure(graphs, launches, rounds)
    found = max(
        found, products.compare(graphs[OURS].replay, sets - 1, made), key=lambda one: (not one.ok, one.worst)
    )
    if not found.ok:
        return _wrong(case, dtype, found, plan, "in a graph, ")
    total = sets * case.bytes(dtype)
    return timed_row(
        case, dtype, timing, note="; ".join(notes), plan=plan, worst_share_of_bound=found.worst,
        launches=launches, sets=sets, buffer_bytes=total, cold=total >= 2 * stage.cache_bytes(),
    )  # fmt: skip


def _wrong(case: GemmCase, dtype: str, found: Comparison, plan: Mapping[str, Any], where: str) -> GemmRow:
    return GemmRow(case, dtype, "wrong", f"{where}{found}", plan, found.worst)


def _find_rivals(
    stage: Stage, products: Products, contenders: Mapping[str, Contender]
) -> tuple[dict[str, Contender], list[str]]:
    """The rivals that compute the same as we do, and why others are none."""
    rivals = {name: start for name, start in contenders.items() if name != OURS}
    notes = []
    if products.case.fused:
        arguments = products.a[0], products.b[0], products.bias[0], products.residual[0]
        try:
            rivals["torch.compile"] = products.chain(stage.compile(torch_chain(stage.torch), arguments))
        except Exception as error:  # it needs Triton and a C compiler, which are not everywhere
            notes.append(f"no torch.compile: {_one_line(error)}")
    for name in products.find_disagreeing(rivals, 0):
        del rivals[name]
        notes.append(f"{name} gives another result")
    if not rivals:
        raise TilewiseError(f"there is nothing to compare with: {'; '.join(notes)}")
    return rivals, notes


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
