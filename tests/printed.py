"""What commands print of results that are made up, every figure another; their options; and what they measure.

``python -m tests.printed`` writes ``tests/golden/printed`` anew, which ``tests/nothing/test_printed.py`` compares: do so
after a change that is meant to change what is printed, and look at the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.printed_results import (
    DEMOS,
    DISPATCH,
    EMULATOR,
    GEMM,
    KEPT,
    PLANS,
    REFUSED,
    REPORTS,
    TIMES,
    TOOLCHAIN,
    TRAINED,
    TRAINING,
    TRIALS,
    TUNED,
    VERDICT,
)
from tilewise.bench.gemm_cases import SUITES
from tilewise.bench.plans import PROBLEMS
from tilewise.bench.train_bench import SIZES
from tilewise.cli.main import main
from tilewise.cli.parser import _ARGUMENTS, COMMANDS, parse
from tilewise.nn.float64_model import LossCurves

GOLDEN = Path(__file__).parent / "golden" / "printed"
COMMAND = "python -m tests.printed"

_MACHINE = {"cpu": "a CPU", "cores": 96, "system": "an OS 1.2"}
_VERSIONS = {"tilewise": "0.0", "Python": "3.0", "numpy": None}
# What every measurement says of the machine it ran on.
_EVERYWHERE: Mapping[str, Any] = {
    "tilewise.bench.environment.machine": lambda: dict(_MACHINE),
    "tilewise.bench.environment.versions": lambda: dict(_VERSIONS),
    "tilewise.bench.environment.package_version": lambda package: f"{package} 7.8",
    "tilewise.bench.toolchain.version": lambda: (13, 9),
    "tilewise.bench.emulator.blas_name": lambda: "a BLAS",
}


@dataclass(frozen=True)
class Case:
    """Command lines, and what takes the place of the functions that would measure something."""

    name: str
    lines: tuple[str, ...]
    instead: Mapping[str, Any] = field(default_factory=dict)


def _gives(result: object) -> Callable[..., Any]:
    """A function that answers every call with one result, and says that it goes on."""

    def give(*_: object, progress: Callable[..., None] | None = None, **__: object) -> object:
        if progress is not None:
            progress(0, 1, "")
        return result

    return give


def _in_turn(*results: object) -> Callable[..., Any]:
    """A function that answers each call with the next result, and begins again behind the last."""
    called = [0]

    def give(*_: object, **__: object) -> object:
        called[0] += 1
        return results[(called[0] - 1) % len(results)]

    return give


_DEVICE = SimpleNamespace(title="a device", name="gpu:3", runs_on_gpu=True)
_CURVES = (LossCurves([2.5, 1.25], [2.5, 1.375], 0.625), LossCurves([2.5], [2.0], 1.5))


def _cases() -> Iterator[Case]:
    lines: tuple[str, ...]
    for name, demo in DEMOS.items():
        yield Case(f"demo {name}", ("demo", "demo --json"), {"tilewise.cli.commands.run_demo": _gives(demo)})
    for name, trial in TRIALS.items():
        instead = {
            "tilewise.cli.commands.resolve": _gives(_DEVICE),
            "tilewise.cli.commands.try_rung": _gives(trial),
        }
        yield Case(f"run {name}", ("run 04_tiled", "run 04_tiled --json"), instead)
    for name, report in REPORTS.items():
        lines = ("doctor", "doctor --json")
        yield Case(f"doctor {name}", lines, {"tilewise.cli.commands.examine": _gives(report)})
    lines = ("bench toolchain", "bench toolchain --json", "bench toolchain --markdown")
    for name, times in TOOLCHAIN.items():
        yield Case(f"bench toolchain {name}", lines, {"tilewise.cli.commands.bench_toolchain": _gives(times)})
    lines = ("bench emulator", "bench emulator --json", "bench emulator --markdown")
    for name, speeds in EMULATOR.items():
        yield Case(f"bench emulator {name}", lines, {"tilewise.cli.commands.bench_emulator": _gives(speeds)})
    for name, calls in DISPATCH.items():
        instead = {"tilewise.cli.bench_commands.bench_dispatch": _gives(calls)}
        yield Case(f"bench dispatch {name}", ("bench dispatch", "bench dispatch --json"), instead)
    instead = {
        "tilewise.devices.gpu.open": _gives(_DEVICE),
        "tilewise.bench.plans.bench_plans": _gives(TIMES),
    }
    yield Case("bench plans", ("bench plans", "bench plans --json"), instead)
    instead = {"tilewise.bench.train_bench.bench_train": _gives(TRAINING)}
    yield Case("bench train", ("bench train", "bench train --momentum 0.5", "bench train --json"), instead)
    for name, figures in GEMM.items():
        instead = {"tilewise.cli.gemm_command.bench_gemm": _gives(figures)}
        yield Case(f"bench gemm {name}", ("bench gemm", "bench gemm --json"), instead)
    yield from _product_cases()
    instead = {
        "tilewise.cli.train_command.resolve": _gives(_DEVICE),
        "tilewise.cli.train_command.load_digits": _gives(None),
        "tilewise.cli.train_command.compare_curves": _in_turn(*_CURVES),
        "tilewise.cli.train_command.train": _gives(TRAINED),
        "tilewise.cli.train_command._write_pictures": _gives(["learning.svg", "comparison.svg"]),
    }
    lines = (
        "train mnist",
        "train mnist --compare 2 --out a",
        "train mnist --compare 1",
        "train mnist --json",
    )
    yield Case("train", (*lines, "train mnist --json --compare 2"), instead)


def _product_cases() -> Iterator[Case]:
    """Of plans: those that are listed, and those that are measured and kept."""
    lines: tuple[str, ...]
    instead: dict[str, Any] = {
        "tilewise.cli.plan_command.list_plans": _gives((PLANS, REFUSED)),
        "tilewise.cli.plan_command.judge_plan": _gives(VERDICT),
    }
    lines = ("plan -m 96 -n 80 -k 112", "plan -m 96 -n 80 -k 112 --most 1", "plan -m 96 -n 80 -k 112 --json")
    yield Case("plan", lines, instead)
    instead = {
        "tilewise.cli.tune_command.resolve": _gives(_DEVICE),
        "tilewise.cli.tune_command.target_of_device": _gives(None),
        "tilewise.cli.tune_command.file_of": _gives(Path("plans.json")),
        "tilewise.cli.tune_command.tune": _in_turn(*TUNED),
        "tilewise.cli.tune_command.read": _gives(KEPT),
        "tilewise.cli.tune_command.forget": _gives(2),
        "tilewise.planner.measured.versions": lambda: "tilewise 0.0, NVRTC 13.9",
    }
    two = " ".join(["96x80x112"] * len(TUNED))
    lines = (f"tune {two}", f"tune {two} --json", "tune --list", "tune --list --json")
    yield Case("tune", (*lines, "tune --forget", "tune --forget --json"), instead)
    instead = instead | {
        "tilewise.cli.tune_command.file_of": _gives(None),
        "tilewise.cli.tune_command.tune": _gives(TUNED[1]),
    }
    one = ("tune 96x80x112", "tune 96x80x112 --json")
    lines = ("tune 96x80x112 96x80x112", *one, "tune --list", "tune --list --json")
    yield Case("tune without a directory", lines, instead)


CASES = {case.name: case for case in _cases()}


def show(case: Case) -> str:
    """Each command line of a case, what it prints, and the code that it ends with."""
    shown = []
    with contextlib.ExitStack() as stack:
        for name, value in {**_EVERYWHERE, **case.instead}.items():
            stack.enter_context(mock.patch(name, value))
        for line in case.lines:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = main(line.split())
            shown.append(f"$ tilewise {line}\n{out.getvalue()}exit code {code}\n")
    return "\n".join(shown)


def file_of(case: Case) -> Path:
    """Where what a case prints is kept."""
    return GOLDEN / f"{case.name.replace(' ', '_')}.txt"


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────

OPTIONS = GOLDEN / "options.txt"
_LEAST: Mapping[str, str] = {
    "run": "a",
    "explain": "a",
    "plan": "-m 1 -n 2 -k 3",
    "check": "a",
    "train": "mnist",
    "bench": "gemm",
}
_WORDS = ("-1", "0", "0.5", "1", "2", "inf", "nan", "a")


def list_options() -> str:
    """Each option of each command: its names, what it takes, its default and its help; and what is set without any."""
    lines = []
    for command in COMMANDS:
        given = f"{command} {_LEAST.get(command, '')}".strip()
        lines.append(f"$ tilewise {given}")
        found = vars(parse(given.split()))
        lines += [f"  {name} = {value!r}" for name, value in sorted(found.items()) if name != "run"]
        parser = argparse.ArgumentParser()
        _ARGUMENTS[command](parser)
        for group in parser._action_groups:
            lines += [f"{group.title}:"] if group._group_actions else []
            own = [one for one in group._group_actions if not isinstance(one, argparse._HelpAction)]
            lines += [line for action in own for line in _describe_option(action)]
        lines.append("")
    return "\n".join(lines)


def _describe_option(action: argparse.Action) -> Iterator[str]:
    said = {
        "": action.metavar,
        "of": action.choices,
        "so many": action.nargs,
        "alone": action.const,
        "required": action.required or None,
        "default": action.default or None,
        "takes": _taken(action.type),
    }
    told = "; ".join(f"{name} {value}".strip() for name, value in said.items() if value is not None)
    yield f"  {', '.join(action.option_strings) or action.dest} ({type(action).__name__}): {told}"
    if action.help:
        yield f"    {action.help}"


def _taken(kind: Any) -> str | None:
    """What a type makes of some words, but for those that it refuses."""
    if kind is None:
        return None
    made = {}
    for word in _WORDS:
        with contextlib.suppress(ValueError, argparse.ArgumentTypeError):
            made[word] = kind(word)
    return ", ".join(f"{word} as {value!r}" for word, value in made.items())


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────

MEASURED = GOLDEN / "measured.txt"


def list_measured() -> str:
    """The products that ``bench gemm`` and ``bench plans`` measure, and the networks of ``bench train``."""
    lines = []
    for suite, cases in SUITES.items():
        lines.append(f"bench gemm, {suite}:")
        lines += [f"  {case} {case.layout}{' fused' * case.fused}" for case in cases]
        assert all(case.suite == suite for case in cases)
    lines += ["bench plans:", *(f"  {' '.join(map(str, problem))}" for problem in PROBLEMS)]
    lines.append(f"bench train: {' '.join(map(str, SIZES))}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    MEASURED.write_text(list_measured(), encoding="utf-8")
    OPTIONS.write_text(list_options(), encoding="utf-8")
    for one in CASES.values():
        file_of(one).write_text(show(one), encoding="utf-8")
