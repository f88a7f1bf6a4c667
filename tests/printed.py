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
from tilewise.bench.dispatch import BUDGETS as DISPATCH_BUDGETS
from tilewise.bench.emulator import Sizes as EmulatorSizes
from tilewise.bench.gemm_cases import SUITES, GemmCase
from tilewise.bench.plan_compiling import PRODUCTS
from tilewise.bench.plans import PROBLEMS
from tilewise.bench.toolchain import ARCHS
from tilewise.bench.toolchain import BUDGETS as TOOLCHAIN_BUDGETS
from tilewise.bench.torch_training import KINDS
from tilewise.bench.train_bench import SIZES
from tilewise.bench.trial import example_size
from tilewise.cli import draw
from tilewise.cli.main import main
from tilewise.cli.parser import _ARGUMENTS, COMMANDS, parse
from tilewise.kernels import RUNGS
from tilewise.nn import TrainingOptions
from tilewise.nn.float64_model import LossCurves
from tilewise.operands import Operands
from tilewise.planner.measured import describe_operands

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


# Asked for again and again, or given what only this machine has.
_NOT_NOTED = ("versions", "has_mnist")


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
        lines = ("demo", "demo --json --device gpu:3 --arch sm_75 --seed 0")
        yield Case(f"demo {name}", lines, {"tilewise.cli.commands.run_demo": _gives(demo)})
    yield Case(
        "ladder", ("ladder", *(f"ladder {rung}" for rung in ("03_simple", "04_tiled", "13_warp_specialised")))
    )
    for name, trial in TRIALS.items():
        instead = {
            "tilewise.cli.commands.resolve": _gives(_DEVICE),
            "tilewise.cli.commands.try_rung": _gives(trial),
        }
        lines = (
            "run 04_tiled --seed 0",
            "run 04_tiled --device gpu:3 -m 7 -n 9 --set tile=16 --seed 8 --json",
        )
        yield Case(f"run {name}", lines, instead)
    for name, report in REPORTS.items():
        lines = ("doctor", "doctor --json --clear-cache")
        yield Case(f"doctor {name}", lines, {"tilewise.cli.commands.examine": _gives(report)})
    lines = (
        "bench toolchain",
        "bench toolchain --json --repeats 3",
        "bench toolchain --markdown --arch sm_80 --arch sm_75",
    )
    for name, times in TOOLCHAIN.items():
        yield Case(f"bench toolchain {name}", lines, {"tilewise.cli.commands.bench_toolchain": _gives(times)})
    lines = ("bench emulator", "bench emulator --json --quick", "bench emulator --markdown --repeats 3")
    for name, speeds in EMULATOR.items():
        yield Case(f"bench emulator {name}", lines, {"tilewise.cli.commands.bench_emulator": _gives(speeds)})
    for name, calls in DISPATCH.items():
        instead = {"tilewise.cli.bench_commands.bench_dispatch": _gives(calls)}
        yield Case(
            f"bench dispatch {name}", ("bench dispatch", "bench dispatch --json --repeats 16"), instead
        )
    instead = {
        "tilewise.devices.gpu.open": _gives(_DEVICE),
        "tilewise.bench.plans.bench_plans": _gives(TIMES),
    }
    yield Case("bench plans", ("bench plans", "bench plans --json"), instead)
    instead = {"tilewise.bench.train_bench.bench_train": _gives(TRAINING)}
    lines = (
        "bench train",
        "bench train --momentum 0",
        "bench train --json --hidden 64 --hidden 32 --repeats 16",
    )
    yield Case("bench train", lines, instead)
    for name, figures in GEMM.items():
        instead = {"tilewise.cli.gemm_command.bench_gemm": _gives(figures)}
        lines = (
            "bench gemm --suite decode",
            "bench gemm --json --shape 2x3x4:nt --dtype float32 --repeats 16",
        )
        yield Case(f"bench gemm {name}", (lines[0], f"{lines[1]} --sustained --arithmetic tf32"), instead)
    yield from _product_cases()
    instead = {
        "tilewise.cli.train_command.resolve": _gives(_DEVICE),
        "tilewise.cli.train_command.has_mnist": _gives(False),
        "tilewise.cli.train_command.load_digits": _gives(None),
        "tilewise.cli.train_command.compare_curves": _in_turn(*_CURVES),
        "tilewise.cli.train_command.train": _gives(TRAINED),
        "tilewise.cli.train_command.load_checkpoint": _gives(TRAINED),
        "tilewise.cli.train_command._write_pictures": _gives(["learning.svg", "comparison.svg"]),
    }
    lines = (
        "train mnist",
        "train mnist --compare 2 --out a",
        "train mnist --compare 1",
        "train mnist --json",
        "train mnist --data folder --limit 96 --seed 0 --momentum 0 --decay 0 --resume a.npz --device gpu:3",
    )
    yield Case("train", (*lines, "train mnist --json --compare 2"), instead)


def _product_cases() -> Iterator[Case]:
    """Of plans: those that are listed, and those that are measured and kept."""
    lines: tuple[str, ...]
    instead: dict[str, Any] = {
        "tilewise.cli.plan_command.list_plans": _gives((PLANS, REFUSED)),
        "tilewise.cli.plan_command.judge_plan": _gives(VERDICT),
    }
    lines = (
        "plan -m 96 -n 80 -k 112",
        "plan -m 96 -n 80 -k 112 --most 1 --dtype float16 --b-dtype int8 --result float32 --gpu a100 --no-copy",
        "plan -m 96 -n 80 -k 112 --json --dtype float32 --arithmetic tf32 --batch 3 --layout nt",
    )
    yield Case("plan", lines, instead)
    instead = {
        "tilewise.cli.tune_command.resolve": _gives(_DEVICE),
        "tilewise.cli.tune_command.target_of_device": _gives(SimpleNamespace(name="a target")),
        "tilewise.cli.tune_command.file_of": _gives(Path("plans.json")),
        "tilewise.cli.tune_command.tune": _in_turn(*TUNED),
        "tilewise.cli.tune_command.read": _gives(KEPT),
        "tilewise.cli.tune_command.forget": _gives(2),
        "tilewise.cli.tune_command.merge": _gives(None),
        "tilewise.planner.measured.versions": lambda: "tilewise 0.0, NVRTC 13.9",
    }
    two = " ".join(["96x80x112"] * len(TUNED))
    how = "--dtype float16 --b-dtype int8 --result float32 --arithmetic f16 --most 3 --seconds 0.5 --again --device gpu:3"
    lines = (
        f"tune {two}",
        f"tune {two} --json",
        f"tune 7x96x80x112:tn {how}",
        *["tune 8x8x8"] * (len(TUNED) - 1),
    )
    lines = (*lines, "tune --list", "tune --list --json", "tune --merge a.json --device gpu:2")
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
    """Each command line of a case, what it prints, the code that it ends with, lines with a style, and what it calls."""
    shown = []
    styled: list[str] = []
    called: list[str] = []

    def print_line(text: str = "", style: str = "", hanging: int = 0) -> None:
        print_it(text, style, hanging)
        styled.extend([f"{style}: {text}\n"] if style else [])

    print_it = draw.line
    with contextlib.ExitStack() as stack:
        for name, value in _EVERYWHERE.items():
            stack.enter_context(mock.patch(name, value))
        for name, value in case.instead.items():
            stack.enter_context(mock.patch(name, _noted(name.rpartition(".")[2], value, called)))
        stack.enter_context(mock.patch("tilewise.cli.draw.line", print_line))
        for line in case.lines:
            styled.clear()
            called.clear()
            words = ["tilewise", *line.split()]
            with contextlib.redirect_stdout(io.StringIO()) as out, mock.patch("sys.argv", words):
                code = main(words[1:])
            shown.append(
                f"$ tilewise {line}\n{out.getvalue()}exit code {code}\n{''.join([*styled, *called])}"
            )
    return "\n".join(shown)


def _noted(name: str, function: Callable[..., Any], called: list[str]) -> Callable[..., Any]:
    """A function that notes what it is called with, but for functions that tell of progress."""
    if name in _NOT_NOTED:
        return function

    def call(*given: Any, **named: Any) -> Any:
        told = [_told(one) for one in given]
        told += [f"{key}={_told(one)}" for key, one in named.items() if not callable(one)]
        called.append(f"called {name}({', '.join(told)})\n")
        return function(*given, **named)

    return call


def _told(value: Any) -> str:
    """A value of a call in short: numbers and words whole, larger things by their name or their type."""
    if isinstance(value, Operands):
        return f"<{describe_operands(value)}>"
    if isinstance(value, GemmCase):
        return f"<{value} {value.layout}>"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_told, value))}]"
    if value is None or isinstance(value, str | int | float | dict | TrainingOptions | EmulatorSizes):
        return repr(value)
    return f"<{getattr(value, 'name', type(value).__name__)}>"


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
    """The products and networks that benchmarks measure, and the budgets of what takes time."""
    lines = []
    for suite, cases in SUITES.items():
        lines.append(f"bench gemm, {suite}:")
        lines += [f"  {case} {case.layout}{' fused' * case.fused}" for case in cases]
        assert all(case.suite == suite for case in cases)
    lines += ["bench plans:", *(f"  {' '.join(map(str, problem))}" for problem in PROBLEMS)]
    lines.append(f"bench train: {' '.join(map(str, SIZES))}")
    lines += [f"  beside {name}, weights of {kept}" for name, kept in KINDS.items()]
    for rung in RUNGS.values():
        on_gpu, emulated = ("×".join(map(str, example_size(rung, where))) for where in (True, False))
        lines.append(f"run {rung.name}: {on_gpu}, on the emulator {emulated}")
    lines.append(f"bench toolchain: {' '.join(ARCHS)}")
    lines += [f"  a plan on {one.gpu}: {one.name}" for one in PRODUCTS]
    lines += [f"{name}: at most {most:g}" for name, most in {**TOOLCHAIN_BUDGETS, **DISPATCH_BUDGETS}.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    MEASURED.write_text(list_measured(), encoding="utf-8")
    OPTIONS.write_text(list_options(), encoding="utf-8")
    for one in CASES.values():
        file_of(one).write_text(show(one), encoding="utf-8")
