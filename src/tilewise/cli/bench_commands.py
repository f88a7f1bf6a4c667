"""``tilewise bench dispatch``, ``plans`` and ``train``: what a call costs, how good choices are, training steps."""

from __future__ import annotations

from argparse import Namespace

from tilewise.bench.dispatch import BUDGETS, DispatchTimes, bench_dispatch
from tilewise.bench.gemm_figures import OURS
from tilewise.cli import draw

__all__ = ["dispatch", "plans", "train"]

GOOD, FAILED = 0, 1
_ROUNDS_LEAST = 15

_ROWS = {
    "share_us": "our share, with out=",
    "share_alloc_us": "our share, the result allocated",
    "fused_share_us": "our share, with bias, gelu, residual and out=",
    "call_us": "tw.matmul(a, b, out=o)",
    "torch_us": "torch.matmul(a, b, out=o)",
    "call_alloc_us": "tw.matmul(a, b)",
    "torch_alloc_us": "torch.matmul(a, b)",
    "own_us": "tw.matmul on device arrays, with out=",
    "own_alloc_us": "tw.matmul on device arrays",
    "prepared_us": "a kernel's launch made ready by bind()",
    "python_us": "tw.matmul without its compiled call, with out=",
    "linear_us": "tw.linear(x, weight, bias, activation='gelu')",
    "torch_linear_us": "gelu(linear(x, weight, bias)) of torch.nn.functional",
    "fused_us": "tw.matmul(a, b, bias=, activation=, residual=, out=)",
    "fused_python_us": "the same without its compiled call",
}
_RATIOS = {
    "with_out": "beside torch.matmul, with out=",
    "without_out": "beside torch.matmul, the result allocated",
    "linear": "tw.linear with gelu beside torch's linear and gelu",
}


def dispatch(args: Namespace) -> int:
    """``tilewise bench dispatch``"""
    with draw.progress("bench") as progress:
        times = bench_dispatch(max(args.repeats, _ROUNDS_LEAST), progress=progress)
    if not draw.write_result(args, times.to_dict()):
        _print_times(times)
    return GOOD


def plans(args: Namespace) -> int:
    """``tilewise bench plans``: needs a GPU."""
    from tilewise.bench.plans import bench_plans, summary_rows
    from tilewise.devices import gpu

    device = gpu.open(0)  # says why, where there is none
    with draw.progress("bench") as progress:
        times = bench_plans(device, progress=progress)
    if not draw.write_result(args, times.to_dict()):
        columns = ["problem", "chosen", "predicted µs", "measured µs", "best", "its µs", "ratio"]
        draw.heading(f"every plan that is proposed, on {times.gpu}")
        draw.table(columns, summary_rows(times), right=["predicted µs", "measured µs", "its µs", "ratio"])
        draw.line()
        count, worst = len(times.problems), times.worst
        draw.line(
            f"the first choice is within 5 % of the best for {times.near:.1%} of {count}, at worst {worst:.2f}×"
        )
        if times.wrong:
            draw.line(f"WRONG: {times.wrong} plan{'s' * (times.wrong != 1)}", "bold red")
    return FAILED if times.wrong else GOOD


def train(args: Namespace) -> int:
    """``tilewise bench train``: needs a GPU, and PyTorch."""
    from tilewise.bench.train_bench import SIZES, bench_train

    momentum = 0.9 if args.momentum is None else args.momentum
    with draw.progress("bench") as progress:
        figures = bench_train(
            args.hidden or SIZES, momentum, max(args.repeats, _ROUNDS_LEAST), progress=progress
        )
    if draw.write_result(args, figures.to_dict()):
        return GOOD
    names = [name for name in figures.rows[0].times if name != OURS]
    draw.heading(
        f"a step of 784-H-H-H-10, momentum {momentum:g}, on {figures.gpu}, beside {', '.join(names)}"
    )
    columns = ["H", "ours µs", *(column for name in names for column in (f"{name} µs", "ratio"))]
    rows = []
    for row in figures.rows:
        cells = [str(row.hidden), f"{row.times[OURS].median * 1e6:.2f}"]
        for name in names:
            cells += [f"{row.times[name].median * 1e6:.2f}", f"{row.ratios[name]:.2f}"]
        rows.append(cells)
    draw.table(columns, rows, right=columns)
    for row in figures.rows:
        apart = ", ".join(f"{name} {distance:.2g}" for name, distance in row.farthest.items())
        draw.line(f"H = {row.hidden}: first losses at most so far from ours: {apart}")
        for note in row.notes:
            draw.line(f"  {note}")
    return GOOD


def _print_times(times: DispatchTimes) -> None:
    """The parts of a warm call, as a table."""
    draw.heading(f"host time of a warm call, medians of {times.rounds} rounds in turns")
    draw.line(f"operands of our share: {times.tensors}")
    rows = []
    for name, what in _ROWS.items():
        value = getattr(times, name)
        budget = f"≤ {BUDGETS[name]:g}" if name in BUDGETS else ""
        shown = "not measured" if value is None else f"{value:.2f}"
        over = "over" if name in times.over_budget else ""
        rows.append([what, shown, budget, over])
    draw.table(["call", "µs", "budget", ""], rows, right=["µs", "budget"])
    draw.line()
    for name, ratio in times.ratios.items():
        verdict = "over" if name in times.over_budget else "ok"
        draw.line(f"{_RATIOS[name]}: {ratio:.2f}× (≤ {BUDGETS[name]}×) {verdict}")
    if times.python_frames is not None:
        draw.line(
            f"in a warm call with out=: {times.python_frames} Python frames, {times.allocations} bytes allocated"
        )
    if times.gpu is None:
        draw.line(
            "No GPU here: the driver's functions were replaced by ones that count; whole calls were not measured."
        )
