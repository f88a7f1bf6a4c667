"""``tilewise bench gemm``: products on a GPU beside PyTorch's, as tables by class."""

from __future__ import annotations

import sys
from argparse import Namespace

from tilewise.bench.gemm_bench import LEAST_ROUNDS, bench_gemm
from tilewise.bench.gemm_cases import DTYPES, check_dtype, select_cases
from tilewise.bench.gemm_figures import GemmFigures, GemmRow, summarise
from tilewise.cli import draw
from tilewise.problem import resolve_arithmetic

__all__ = ["gemm"]

GOOD, FAILED = 0, 1

_COLUMNS = (
    *("m×n×k", "layout", "torch µs", "ours µs", "rate", "ratio", "quartiles"),
    *("kernel", "tile", "split", "cluster"),
)
_RIGHT = ("torch µs", "ours µs", "rate", "ratio", "split")


def gemm(args: Namespace) -> int:
    """``tilewise bench gemm``: needs a GPU, and PyTorch."""
    cases, dtype = select_cases(args.suite, args.shape), check_dtype(args.dtype or DTYPES[0])
    resolve_arithmetic(args.arithmetic, dtype)  # raises what cannot be asked for
    command = " ".join(["tilewise", *sys.argv[1:]])
    rounds = max(args.repeats, LEAST_ROUNDS)
    with draw.progress("bench") as progress:
        figures = bench_gemm(
            cases, dtype, rounds, args.sustained, command, progress=progress, arithmetic=args.arithmetic
        )
    if not draw.write_result(args, figures.to_dict()):
        _print_figures(figures)
    return GOOD if figures.ok else FAILED


def _print_figures(figures: GemmFigures) -> None:
    arithmetic = figures.protocol.get("arithmetic")
    types = f"{figures.dtype} in {arithmetic}" if arithmetic else figures.dtype
    draw.heading(f"tw.matmul beside PyTorch {figures.versions['torch']} on {figures.gpu}, {types}")
    draw.line(
        f"{figures.protocol['time']}; {figures.protocol['load']}; medians of {figures.protocol['rounds']}"
    )
    draw.line("ratio: PyTorch's time over ours, above 1 where ours is faster")
    for suite in dict.fromkeys(row.case.suite for row in figures.rows):
        draw.line()
        draw.heading(suite)
        rows = [row for row in figures.rows if row.case.suite == suite]
        columns = [*_COLUMNS, *(["MHz", "W"] if any(row.loads for row in rows) else [])]
        timed = [_cells(row)[: len(columns)] for row in rows if row.status == "timed"]
        draw.table(columns, timed, right=(*_RIGHT, "MHz", "W"))
        _print_notes(rows)
    draw.line()
    _print_summary(figures)


def _cells(row: GemmRow) -> list[str]:
    """A row of the table; times in microseconds."""
    assert row.ratio is not None and row.seconds is not None and row.rival_seconds is not None
    assert row.tflops is not None and row.gigabytes_per_second is not None
    plan = row.plan
    if row.case.is_memory_bound(row.dtype):
        rate = f"{row.gigabytes_per_second:,.0f} GB/s"
    else:
        rate = f"{row.tflops:,.0f} TFLOP/s" if row.tflops >= 100 else f"{row.tflops:.1f} TFLOP/s"
    kernel = plan["kernel"] + (f" after copying {' and '.join(plan['copies'])}" if plan["copies"] else "")
    load = next(iter(row.loads.values()), None)
    return [
        str(row.case), row.case.layout, f"{row.rival_seconds * 1e6:.2f}", f"{row.seconds * 1e6:.2f}", rate,
        f"{row.ratio.median:.3f}", f"{row.ratio.low:.3f}–{row.ratio.high:.3f}",
        kernel, plan["partition"], str(plan["split"]), plan["cluster"],
        f"{load.clock_mhz:.0f}" if load else "", f"{load.watts:.0f}" if load else "",
    ]  # fmt: skip


def _print_notes(rows: list[GemmRow]) -> None:
    """What has no time, and why; and what else is to be known of those that have."""
    for row in rows:
        said = {"timed": "", "wrong": "WRONG: ", "failed": "failed: ", "skipped": "skipped: "}[row.status]
        if row.note:
            style = "bold red" if row.status in ("wrong", "failed") else ""
            draw.line(f"  {row.case} {row.case.layout}: {said}{row.note}", style)
        if row.status == "timed" and not row.cold:
            draw.line(f"  {row.case} {row.case.layout}: the operands stay in L2, for both")
        if row.case.fused and row.status == "timed":
            others = ", ".join(f"{name} {one.median * 1e6:.2f} µs" for name, one in row.times.items())
            draw.line(f"  {row.case}: {others}")


def _print_summary(figures: GemmFigures) -> None:
    columns = ("class", "timed", "geomean", "worst", "at", "wrong", "failed", "skipped")
    rows = [
        [
            one.suite, str(one.timed), _ratio(one.geomean), _ratio(one.worst), one.worst_case,
            str(one.wrong or ""), str(one.failed or ""), str(one.skipped or ""),
        ]
        for one in summarise(figures.rows)
    ]  # fmt: skip
    draw.table(columns, rows, right=("timed", "geomean", "worst", "wrong", "failed", "skipped"))
    draw.line()
    draw.line(f"geometric mean of the classes: {_ratio(figures.geomean)}; {figures.seconds:.0f} s in all")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
