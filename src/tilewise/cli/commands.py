"""The commands: call, print, and say with the exit code whether all is well."""

from __future__ import annotations

import os
from argparse import Namespace

from tilewise.bench.demo import BrokenRung, CompiledRung, Demo, MatmulTrial, RungResult, TooNewRung, run_demo
from tilewise.bench.doctor import VARIABLES, Report, examine
from tilewise.bench.emulator import FULL, QUICK, EmulatorFigures, bench_emulator
from tilewise.bench.emulator import markdown as speed_markdown
from tilewise.bench.measurement import COLUMNS, cells
from tilewise.bench.product import fresh_seed
from tilewise.bench.rung_cards import RungCard, card, whole_source
from tilewise.bench.rung_cards import markdown as resources_markdown
from tilewise.bench.toolchain import ARCHS, BUDGETS, ToolchainTimes, bench_toolchain, budget_of
from tilewise.bench.toolchain import markdown as times_markdown
from tilewise.bench.trial import Trial, example_size, try_rung
from tilewise.cli import draw
from tilewise.cli.launch_options import is_file, refuse_file_options, settings
from tilewise.devices import device as resolve
from tilewise.errors import ArgumentError
from tilewise.kernels import RUNGS as rungs  # noqa: N811  # what they are called here

__all__ = ["bench", "check", "demo", "doctor", "explain", "ladder", "plan", "profile", "run", "train", "tune"]

GOOD, FAILED = 0, 1


def demo(args: Namespace) -> int:
    """``tilewise demo``"""
    with draw.progress("demo") as progress:
        found = run_demo(args.device, args.arch, args.seed, progress=progress)
    if args.json:
        draw.write_json("demo", found.to_dict())
    else:
        _print_demo(found)
    return GOOD if found.ok else FAILED


def _print_chosen(found: MatmulTrial) -> None:
    problem, plan = found.plan.problem, found.plan
    rate = problem.flops / found.seconds / 1e9
    draw.heading(f"tw.matmul(a, b), {problem}")
    predicted = f"predicted {draw.duration(plan.seconds or 0.0)}, bound by {plan.bound}"
    others = ", ".join(f"{one.kernel} {draw.duration(one.seconds or 0.0)}" for one in found.others)
    draw.facts(
        {
            "chose": f"{plan.kernel}, block tile {plan.tiles.get('block', '')}",
            "because": f"{predicted}; the best of others: {others or 'there are none'}",
            "took": f"{draw.duration(found.seconds)}, {rate:,.1f} GFLOP/s",
            "correct": f"{'yes' if found.comparison.ok else 'NO'}: {found.comparison}",
        }
    )
    draw.line("tilewise plan lists every plan that was considered.")
    draw.line()


def _print_demo(found: Demo) -> None:
    if found.chosen is not None:
        _print_chosen(found.chosen)
    if found.device:
        draw.heading(f"Every rung of the ladder on {found.device}: {found.title}")
        columns = ["rung", "m×n×k", "correct", "registers", "shared bytes", "time", "GFLOP/s"]
    else:
        draw.heading(f"Every rung of the ladder, compiled for {found.arch}")
        columns = ["rung", "arch", "correct", "registers", "shared bytes", "compiled or cached in"]
    rows = [_demo_row(rung, len(columns)) for rung in found.rungs]
    draw.table(columns, rows, right=[name for name in columns if name not in ("rung", "arch", "correct")])
    draw.line()
    for rung in found.rungs:
        if isinstance(rung, BrokenRung):
            draw.line(f"FAILED: {rung.rung}: {rung.error}", "bold red")
        elif isinstance(rung, Trial) and not rung.comparison.ok:
            draw.line(f"WRONG: {rung.rung} with seed {rung.seed}: {rung.comparison}", "bold red")
    if found.missing:
        draw.line(f"Not run: {found.missing}")
        draw.line("What is shown is the compiler's own report; no result was computed, so none was checked.")
    elif found.device == "emulator":
        draw.line(
            f"Registers, with spilled bytes in brackets if there are any, and shared bytes are the compiler's, for "
            f"{found.arch}; the time is the CPU's."
        )
    if found.device and found.ok:
        draw.line(f"Every result is within the rounding bound of the float64 reference (seed {found.seed}).")


def _demo_row(rung: RungResult, width: int) -> list[str]:
    if isinstance(rung, TooNewRung):
        return [rung.rung, rung.arch, f"needs {rung.needs}", *[""] * (width - 3)]
    if isinstance(rung, BrokenRung):
        return [rung.rung, "", "failed", *[""] * (width - 3)]
    spills = f" ({rung.resources.spills:,})" if rung.resources.spills else ""
    figures = [f"{rung.resources.registers}{spills}", f"{rung.shared_bytes:,}"]
    if isinstance(rung, CompiledRung):
        return [rung.rung, rung.arch, "not run", *figures, draw.duration(rung.seconds)]
    correct, size = "yes" if rung.comparison.ok else "NO", "×".join(map(str, rung.size))
    return [rung.rung, size, correct, *figures, draw.duration(rung.seconds), f"{rung.gflops:,.1f}"]


def ladder(args: Namespace) -> int:
    """``tilewise ladder``"""
    if args.markdown:
        print(resources_markdown(rungs), end="")
    elif args.rung is None:
        if args.source:
            raise ArgumentError("--source", "needs the name of a rung", fix="such as 04_tiled")
        _print_rungs([card(rung) for rung in rungs.values()], args.json)
    elif args.json:
        draw.write_json(
            "ladder",
            {
                "rungs": [
                    {**card(rungs[args.rung]).to_dict(), "source": whole_source(rungs[args.rung].source)}
                ]
            },
        )
    elif args.source:
        print(whole_source(rungs[args.rung].source), end="")
    else:
        _print_card(card(rungs[args.rung]))
    return GOOD


def _print_rungs(cards: list[RungCard], as_json: bool) -> None:
    if as_json:
        draw.write_json("ladder", {"rungs": [item.to_dict() for item in cards]})
        return
    rows = [[item.name, item.title, item.least, item.types] for item in cards]
    draw.table(["rung", "what it is", "from", "types"], rows)
    draw.line()
    draw.line("tilewise ladder NAME shows one, with its settings; tilewise run NAME runs it.")


def _print_card(item: RungCard) -> None:
    draw.heading(f"{item.name}: {item.title}")
    draw.line()
    draw.line(item.about)
    draw.line()
    draw.facts(
        {
            "runs on": item.least if item.only else f"{item.least} and newer",
            "types": item.types,
            "settings": item.settings_text or "none",
            "kernels": ", ".join(item.entries),
            "launch": f"{item.launch} for {'×'.join(map(str, item.example))}",
        }
    )
    draw.line()
    draw.line(f"tilewise ladder {item.name} --source prints its CUDA C++, with what it includes.")


def run(args: Namespace) -> int:
    """``tilewise run``"""
    if is_file(args.target):
        from tilewise.cli.run_command import run_kernel

        return run_kernel(args, resolve(args.device))
    refuse_file_options(args)
    rung, chosen = rungs[args.target], settings(args.set)
    rung.complete(chosen)
    device = resolve(args.device)
    m, n, k = args.m, args.n, args.k
    if m is None or n is None or k is None:
        example = example_size(rung, device.runs_on_gpu, chosen)
        m, n, k = (given or fitting for given, fitting in zip((m, n, k), example, strict=True))
    seed = fresh_seed() if args.seed is None else args.seed
    trial = try_rung(rung, device, (m, n, k), seed, chosen)
    if args.json:
        draw.write_json("run", trial.to_dict())
    else:
        _print_trial(trial)
    return GOOD if trial.comparison.ok else FAILED


def _print_trial(trial: Trial) -> None:
    draw.heading(f"{trial.rung}, {'×'.join(map(str, trial.size))}, on {trial.device} ({trial.arch})")
    launch, used = trial.geometry, trial.resources
    draw.facts(
        {
            "correct": f"{'yes' if trial.comparison.ok else 'NO'}: {trial.comparison}",
            "settings": ", ".join(f"{name}={value}" for name, value in trial.settings.items()) or "none",
            "launch": f"grid {launch.grid} × block {launch.block}"
            + (f", one of {launch.launches} launches" if launch.launches > 1 else ""),
            "registers": str(used.registers),
            "shared bytes": f"{trial.shared_bytes:,}",
            "spills": str(used.spills),
            "time": f"{draw.duration(trial.seconds)}, {trial.gflops:,.1f} GFLOP/s",
            "seed": str(trial.seed),
        }
    )


def explain(args: Namespace) -> int:
    """``tilewise explain``"""
    from tilewise.cli import explain_command

    return explain_command.explain(args)


def check(args: Namespace) -> int:
    """``tilewise check``"""
    from tilewise.cli import check_command

    return check_command.check(args)


def tune(args: Namespace) -> int:
    """``tilewise tune``"""
    from tilewise.cli import tune_command

    return tune_command.tune_products(args)


def plan(args: Namespace) -> int:
    """``tilewise plan``"""
    from tilewise.cli import plan_command

    return plan_command.plan(args)


def profile(args: Namespace) -> int:
    """``tilewise profile``"""
    from tilewise.cli import profile_command

    return profile_command.profile(args)


def train(args: Namespace) -> int:
    """``tilewise train``"""
    from tilewise.cli import train_command

    return train_command.train_mnist(args)


def doctor(args: Namespace) -> int:
    """``tilewise doctor``"""
    report = examine(args.clear_cache)
    if args.json:
        draw.write_json("doctor", report.to_dict())
    else:
        _print_report(report)
    return GOOD if report.ok else FAILED


def _print_report(report: Report) -> None:
    about = report.machine
    system = {"system": about["system"], "CPU": f"{about['cpu']}, {about['cores']} cores"}
    draw.heading("versions")
    draw.facts({name: version or "not installed" for name, version in report.versions.items()} | system)
    draw.heading("compiler")
    took = f"{report.compile_ms:.0f} ms" if report.compile_ms is not None else "does not work"
    draw.facts({"a small kernel": took, "archs": " ".join(report.archs) or "none"})
    draw.heading("devices")
    found = {item["name"]: f"{item['title']}, {item['arch']}" for item in report.devices}
    draw.facts(
        found | {"driver": report.driver or "none", "used by default": report.default_device or "none"}
    )
    draw.heading("cache")
    kept = report.cache
    if kept:
        limit = draw.amount(kept["limit"])
        draw.facts(
            {
                "directory": kept["directory"] or "none",
                "holds": f"{kept['entries']:,} entries, {draw.amount(kept['bytes'])} of at most {limit}",
                "writable": "yes" if kept["writable"] else "no",
            }
        )
    draw.heading("environment")
    draw.facts({name: value or f"not set ({VARIABLES[name]})" for name, value in report.environment.items()})
    draw.line()
    for trouble in report.troubles:
        draw.line(
            f"{'✗' if trouble.essential else '!'} {trouble}", "bold red" if trouble.essential else "yellow"
        )
    draw.line("✓ tilewise works here" if report.ok else "✗ tilewise does not work here", "bold")


def bench(args: Namespace) -> int:
    """``tilewise bench``: what is measured says its first argument"""
    if args.out and not os.path.isdir(os.path.dirname(os.path.abspath(args.out))):
        raise ArgumentError("--out", "must lie in a directory that exists", args.out)
    for option, given, owner in (
        ("--quick", args.quick, "emulator"),
        ("--arch", args.arch, "toolchain"),
        ("--suite", args.suite, "gemm"),
        ("--shape", args.shape, "gemm"),
        ("--dtype", args.dtype, "gemm"),
        ("--sustained", args.sustained, "gemm"),
        ("--hidden", args.hidden, "train"),
        ("--momentum", args.momentum is not None, "train"),
    ):
        if given and args.what != owner:
            raise ArgumentError(option, f"is for {owner}", fix=f"leave it out, or measure {owner}")
    if args.markdown and args.what not in ("toolchain", "emulator"):
        raise ArgumentError("--markdown", "is for toolchain and emulator", fix="leave it out")
    if args.what == "gemm":
        from tilewise.cli.gemm_command import gemm

        return gemm(args)
    if args.what in ("dispatch", "plans", "train"):
        from tilewise.cli import bench_commands

        code: int = getattr(bench_commands, args.what)(args)
        return code
    return _bench_emulator(args) if args.what == "emulator" else _bench_toolchain(args)


def _bench_toolchain(args: Namespace) -> int:
    with draw.progress("bench") as progress:
        times = bench_toolchain(args.arch or ARCHS, args.repeats, progress=progress)
    if not draw.write_result(args, times.to_dict(), times_markdown):
        _print_times(times)
    return GOOD


def _bench_emulator(args: Namespace) -> int:
    with draw.progress("bench") as progress:
        found = bench_emulator(args.repeats, QUICK if args.quick else FULL, progress=progress)
    if not draw.write_result(args, found.to_dict(), speed_markdown):
        _print_figures(found)
    return GOOD if found.ok else FAILED


def _print_times(times: ToolchainTimes) -> None:
    rows = [
        [
            row.rung,
            row.arch,
            _against(row.cold_ms, budget_of(row.rung, "cold_ms")),
            _against(row.cached_ms, "cached_ms"),
        ]
        for row in times.rungs
    ]
    budget = (
        f"cold (≤ {BUDGETS['cold_ms']:g} ms; 12, 13 ≤ {BUDGETS['cold_large_ms']:g})",
        f"cached (≤ {BUDGETS['cached_ms']:g} ms)",
    )
    draw.heading(f"compile times, medians of {times.repeats}")
    draw.table(["rung", "arch", *budget], rows, right=budget)
    draw.line()
    if times.plans:
        cold = f"cold (≤ {BUDGETS['cold_plan_ms']:g} ms)"
        plans = [
            [row.product, row.gpu, row.kernel, _against(row.cold_ms, "cold_plan_ms")] for row in times.plans
        ]
        draw.table(["a plan of", "GPU", "kernel", cold], plans, right=(cold,))
        draw.line()
    draw.line(f"import tilewise: {_against(times.import_ms, 'import_ms')} (≤ {BUDGETS['import_ms']:g} ms)")
    over = times.over_budget
    draw.line(
        f"{len(over)} over budget" if over else "everything within budget", "bold red" if over else "green"
    )


def _print_figures(found: EmulatorFigures) -> None:
    result = found.to_dict()
    load = f", at a load average of {found.load[0]:.2g}" if found.load else ""
    draw.heading(f"the emulator, medians of {found.repeats} (least–most){load}")
    draw.table(COLUMNS, [cells(row) for row in result["figures"]], right=("figure", "ratio"))
    draw.line()
    for figure in found.figures:
        if figure.wrong:
            draw.line(f"WRONG: {figure.note}", "bold red")
    if result["quick"]:
        draw.line("a quick run: the budgets are for larger sizes")
    missed = len(found.missed)
    text = f"{missed} not within budget" if missed else "all that is judged is within budget"
    draw.line(text, "bold red" if missed else "green")


def _against(value: float, budget: str) -> str:
    return f"{'over: ' if value > BUDGETS[budget] else ''}{value:.1f} ms"
