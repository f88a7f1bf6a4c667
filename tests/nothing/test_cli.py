"""The command: what it prints, what it answers with, and what it does when things go wrong."""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewise
from tests.documented import documented_keys
from tests.fake_device import FakeDevice
from tests.terminal import in_terminal
from tilewise.bench.demo import run_demo
from tilewise.bench.doctor import VARIABLES
from tilewise.bench.environment import PACKAGES
from tilewise.bench.file_run import OutputSpec
from tilewise.bench.launch_spec import LaunchSpec
from tilewise.bench.plan_compiling import PlannedProduct
from tilewise.bench.product import random_operands
from tilewise.bench.rung_cards import whole_source
from tilewise.bench.toolchain import CompileTime, ToolchainTimes, bench_toolchain
from tilewise.cli import commands, draw
from tilewise.cli import parser as cli_parser
from tilewise.cli.launch_options import (
    is_file,
    launch_spec,
    output_spec,
    refuse_file_options,
    rung_size,
)
from tilewise.cli.launch_options import settings as settings_of
from tilewise.cli.main import main
from tilewise.cli.parser import COMMANDS
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable
from tilewise.kernel import Kernel
from tilewise.kernels import RUNGS as SPECS
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary

HELP = """\
usage: tilewise COMMAND [OPTION …]

Matrix multiplication on NVIDIA GPUs, tile by tile.

commands:
  demo       multiply: what tw.matmul chooses, then every rung of the ladder, each checked
  ladder     list the rungs, or show one
  run        multiply with one rung and check the result, or run a kernel out of a file
  plan       choose how to multiply on a GPU that need not be here, and say why
  profile    count what a launch does, in the terms of ncu
  explain    say what binds a launch, and draw what it does: tiles, lanes, banks, order
  check      find races, unset memory, bad accesses and unsafe copies in a launch
  tune       measure plans of a product on the device that is here, and keep the fastest
  train      train a network that recognises digits, by fused kernels
  doctor     what is here, what is missing, and what to do about it
  bench      measure: what a call costs, how long compiling takes, how fast the emulator is

options:
  --version  print the version
  --help     print this; after a command, print that command's options

Every command takes --json. Exit codes: 0 good, 1 a check failed, 2 wrong use.
"""

CARD_HEAD = "02_one_block: one block, one thread per element\n\n"
CARD_TAIL = """

  runs on   sm_75 and newer
  types     float32
  settings  none
  kernels   one_block
  launch    grid (1, 1, 1) × block (34, 30, 1) for 30×34×500

tilewise ladder 02_one_block --source prints its CUDA C++, with what it includes.
"""

PLAN = ["plan", "-m", "512", "-n", "512", "-k", "512"]
RUNGS = {name: SPECS[name] for name in ("02_one_block", "04_tiled", "09_warp_tiled")}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A device that works and is too old for rung 09."""
    found = FakeDevice(arch="sm_75")
    use(monkeypatch, found)
    return found


def use(monkeypatch: pytest.MonkeyPatch, device: FakeDevice | None) -> None:
    """Make ``device``, or none, the one that every command finds; and show it only a few rungs."""

    def resolve(_spec: object = None) -> FakeDevice:
        if device is None:
            raise DeviceUnavailable("there is no GPU to run on: no driver; install one")
        return device

    monkeypatch.setattr("tilewise.bench.demo.resolve", resolve)
    monkeypatch.setattr(commands, "resolve", resolve)
    monkeypatch.setattr(commands, "run_demo", functools.partial(run_demo, rungs=RUNGS))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


# ── what it prints ──


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr() == (HELP, "")
    assert run(capsys) == (2, HELP, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_json(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    out, err = capsys.readouterr()
    assert (stopped.value.code, err) == (0, "")
    assert f"usage: tilewise {command}" in out
    assert "--json" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert (stopped.value.code, capsys.readouterr().out) == (0, f"tilewise {tilewise.__version__}\n")


def test_ladder_lists_every_rung(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ladder")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == ["rung", "what", "it", "is", "from", "types"]
    assert [line.split()[0] for line in lines[1:-2]] == [*SPECS]
    assert "04_tiled               tiles in shared memory  " in out


def test_ladder_shows_a_rung(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ladder", "02_one_block")
    assert (code, err) == (0, "")
    assert out.startswith(CARD_HEAD)
    assert out.endswith(CARD_TAIL)
    about = out.removeprefix(CARD_HEAD).removesuffix(CARD_TAIL).splitlines()
    assert about
    assert "\n".join(f"// {line}" for line in about) in SPECS["02_one_block"].source


def test_of_many_values_of_a_setting_the_first_and_the_last_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "cluster=2|1, tiles=1…128\n" in run(capsys, "ladder", "13_warp_specialised")[1]


def test_ladder_prints_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it includes, so that it can be edited and compiled by itself."""
    code, out, _ = run(capsys, "ladder", "08_register_tiled", "--source")
    assert code == 0 and out.startswith(SPECS["08_register_tiled"].source[:200])
    assert "#include" not in out and "#pragma once" not in out
    for part in ("struct Matrix", "class BlockTile", "register_tiled(Matrix<const float> a"):
        assert out.count(part) == 1


@pytest.mark.parametrize("name", ["04_tiled", "08_register_tiled", "12_multistage"])
def test_a_printed_source_is_the_same_kernel(name: str) -> None:
    spec = SPECS[name]
    printed = Kernel(whole_source(spec.source), spec.entries[0], spec.needs)
    assert printed.resources == spec.kernel(spec.needs).resources


def test_demo_checks_every_rung(
    capsys: pytest.CaptureFixture[str], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(draw, "progress", lambda _title: contextlib.nullcontext(lambda *it: steps.append(it)))
    code, out, err = run(capsys, "demo", "--seed", "7")
    names = ["tw.matmul", *RUNGS]
    assert steps == [(done, 4, name) for done, name in enumerate(names)]
    lines = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert out.startswith("tw.matmul(a, b), 384×320×256 float32, sums in float32\n  chose ")
    assert lines[4][:2] == ["correct", "yes:"]
    assert re.search(r"because +predicted [1-9][\d.]* [µm]s, bound by", out)
    lines = lines[
        lines.index(["Every", "rung", "of", "the", "ladder", "on", "fake:", "NumPy,", "pretending"]) :
    ]
    assert lines[2][:3] == ["02_one_block", "30×34×500", "yes"]
    assert lines[3][:3] == ["04_tiled", "200×180×160", "yes"]
    assert lines[3][4] == "8,192"
    assert lines[4] == ["09_warp_tiled", "sm_75", "needs", "sm_80"]
    assert "(seed 7)" in out
    assert {"one_block", "tiled"} < {entry for entry, _, _ in device.launches}


def test_demo_without_a_device_compiles_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, None)
    code, out, err = run(capsys, "demo", "--arch", "sm_75")
    assert (code, err) == (0, "")
    assert "compiled for sm_75" in out
    assert "04_tiled" in out
    assert "not run" in out
    assert "needs sm_80" in out
    assert "Not run: there is no GPU to run on: no driver; install one" in out
    assert "within" not in out


def test_run_reports_one_trial(capsys: pytest.CaptureFixture[str], device: FakeDevice) -> None:
    code, out, _ = run(
        capsys, "run", "04_tiled", "-m", "33", "-n", "65", "-k", "7", "--set", "tile=16", "--seed", "3"
    )
    assert code == 0
    assert out.startswith("04_tiled, 33×65×7, on fake (sm_75)\n")
    assert "correct       yes: all 2,145 elements within the bound" in out
    assert "settings      tile=16" in out
    assert "launch        grid (5, 3, 1) × block (16, 16, 1)" in out
    assert device.launches[0][1].block == (16, 16, 1)


def test_a_seed_makes_a_run_again(capsys: pytest.CaptureFixture[str], device: FakeDevice) -> None:
    seed = run_json(capsys, "run", "04_tiled")["seed"]
    a, b = (random_operands("float32", (3, 4, 5), seed) for _ in range(2))
    assert (a[0] == b[0]).all()
    assert run_json(capsys, "run", "04_tiled")["seed"] != seed
    assert run_json(capsys, "run", "04_tiled", "--seed", "0")["seed"] == 0


# ── JSON ──


def test_ladder_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "ladder")["rungs"]
    assert [item["name"] for item in found] == [*SPECS]
    (rung,) = run_json(capsys, "ladder", "04_tiled")["rungs"]
    assert rung["source"] == run(capsys, "ladder", "04_tiled", "--source")[1]


def test_demo_as_json(capsys: pytest.CaptureFixture[str], device: FakeDevice) -> None:
    found = run_json(capsys, "demo", "--seed", "0")
    assert (found["ok"], found["device"], found["not_run_because"]) == (True, "fake", None)
    assert (found["seed"], [item["seed"] for item in found["rungs"][:2]]) == (0, [0, 1])
    assert [item["correct"] for item in found["rungs"]] == [True, True, None]
    plan = found["matmul"]["plan"]
    chosen = f"chose {plan['kernel']}, block tile {'×'.join(map(str, plan['tiles']['block']))}"
    assert chosen in " ".join(run(capsys, "demo")[1].split())


def test_demo_without_a_device_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, None)
    found = run_json(capsys, "demo")
    assert (found["ok"], found["device"], found["arch"]) == (True, None, "sm_90a")
    assert "no driver" in found["not_run_because"]
    assert found["rungs"][1]["shared_bytes"] == 8192
    assert found["rungs"][2]["shared_bytes"] == 49_664  # dynamic


def test_run_as_json(capsys: pytest.CaptureFixture[str], device: FakeDevice) -> None:
    found = run_json(capsys, "run", "04_tiled", "-m", "3", "-n", "4", "-k", "5")
    assert (found["m"], found["n"], found["k"], found["correct"], found["elements"]) == (3, 4, 5, True, 12)
    assert found["gflops"] == pytest.approx(2 * 3 * 4 * 5 / found["seconds"] / 1e9)
    assert found["settings"] == {"tile": 32, "element": "float32"}  # all of them, given or not
    whole, part = run_json(capsys, "run", "04_tiled"), run_json(capsys, "run", "04_tiled", "-n", "9")
    assert (part["m"], part["n"], part["k"]) == (whole["m"], 9, whole["k"])


@pytest.mark.parametrize(("rung", "shared_bytes"), [("04_tiled", 8192), ("09_warp_tiled", 49_664)])
def test_a_run_tells_static_and_dynamic_shared_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rung: str, shared_bytes: int
) -> None:
    use(monkeypatch, FakeDevice(arch="sm_80", lazy=True))
    _, out, _ = run(capsys, "run", rung, "--json")
    assert json.loads(out)["shared_bytes"] == shared_bytes


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "doctor")
    assert found["ok"]
    assert found["versions"]["tilewise"] == tilewise.__version__
    assert {"sm_75", "sm_90a"} <= {*found["archs"]}
    assert found["cache"]["writable"]


def test_bench_as_json_and_into_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    products = (
        PlannedProduct("t4", "float16", (64, 64, 64)),
        PlannedProduct("h200", "float16", (64, 64, 64)),
    )
    few = functools.partial(bench_toolchain, rungs=RUNGS, products=products)
    monkeypatch.setattr(commands, "bench_toolchain", few)
    steps: list[Any] = []
    monkeypatch.setattr(draw, "progress", lambda _title: contextlib.nullcontext(lambda *it: steps.append(it)))
    file, began = tmp_path / "times.json", time.perf_counter()
    found = run_json(capsys, "bench", "toolchain", "--arch", "sm_75", "--repeats", "1", "--out", str(file))
    assert found["measured"] == "toolchain"
    found = found["result"]
    assert json.loads(file.read_text()) == found
    names = ["import tilewise", "02_one_block for sm_75", "04_tiled for sm_75", "float16 nn 64³ on t4"]
    assert steps == [(done, 4, name) for done, name in enumerate(names)]
    assert datetime.date.fromisoformat(found["date"]) and found["repeats"] == 1
    assert [row["rung"] for row in found["rungs"]] == ["02_one_block", "04_tiled"]
    assert all(0 < row["cached_ms"] < row["cold_ms"] for row in found["rungs"])
    for row in found["rungs"]:
        made = SPECS[row["rung"]].kernel("sm_75").build()
        assert (row["ptx_lines"], row["cubin_bytes"]) == (made.ptx.count("\n") + 1, len(made.cubin or ""))
    (plan,) = found["plans"]  # of such an arch
    assert (plan["product"], plan["gpu"], plan["kernel"]) == ("float16 nn 64³", "t4", "mma")
    assert plan["cold_ms"] > 10, "nothing that was in memory, or on the disk, serves"
    assert found["import_ms"] > 0
    each = [row[name] for row in found["rungs"] for name in ("cold_ms", "cached_ms")] + [plan["cold_ms"]]
    assert found["import_ms"] + sum(each) < 1e3 * (time.perf_counter() - began)
    assert found["machine"]["cores"] > 0
    assert found["versions"]["NVRTC"]


def test_compile_times_over_their_budgets_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large kernel may take longer the first time."""
    rows = [CompileTime(rung, "sm_80", 200.0, 5.5, 9, 9) for rung in ("04_tiled", "12_multistage")]
    monkeypatch.setattr(commands, "bench_toolchain", lambda *_, **__: ToolchainTimes("", 1, 99.0, (*rows,)))
    lines = [" ".join(line.split()) for line in run(capsys, "bench", "toolchain")[1].splitlines()]
    assert "04_tiled sm_80 over: 200.0 ms over: 5.5 ms" in lines and "3 over budget" in lines
    assert not any("|" in line for line in lines)  # as in Markdown, which is asked for
    assert (
        "12_multistage sm_80 200.0 ms over: 5.5 ms" in lines
        and "import tilewise: 99.0 ms (≤ 150 ms)" in lines
    )


def test_a_wrong_result_fails_the_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that writes nothing leaves the poison in the output, and nothing may pass for correct."""
    use(monkeypatch, FakeDevice(lazy=True))
    code, out, _ = run(capsys, "demo")
    assert code == 1
    assert "WRONG: 04_tiled with seed" in out
    assert "36,000 of 36,000 elements outside the bound" in out
    assert "within" not in out
    code, out, _ = run(capsys, "demo", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    code, out, _ = run(capsys, "run", "04_tiled")
    assert code == 1
    assert "correct       NO: " in out


def test_a_rung_that_cannot_run_fails_the_demo_and_the_others_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tired(FakeDevice):
        def run(
            self,
            binary: Binary,
            entry: str,
            launch: Launch,
            packed: list[bytes],
            timeout: float | None = None,
            stream: int | None = None,
        ) -> None:
            if entry == "one_block":
                raise DeviceError("CUDA_ERROR_LAUNCH_FAILED while running one_block")
            super().run(binary, entry, launch, packed, timeout, stream)

    use(monkeypatch, Tired("sm_75"))
    code, out, _ = run(capsys, "demo")
    assert code == 1
    assert "FAILED: 02_one_block: CUDA_ERROR_LAUNCH_FAILED while running one_block" in out
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Every rung"))
    assert lines[first + 3].split()[2] == "yes"


WRONG_USE = {
    "unknown command": (["lader"], "command 'lader' is not known; did you mean 'ladder'?"),
    "unknown option": (["demo", "--jsn"], "unrecognized arguments: --jsn; see tilewise --help"),
    "unknown rung": (["ladder", "4_tiled"], "rung '4_tiled' is not known; did you mean '04_tiled'"),
    "rung missing": (["run"], "the following arguments are required: target; see tilewise run --help"),
    "source of no rung": (["ladder", "--source"], "--source needs the name of a rung; such as 04_tiled"),
    "size of no number": (["run", "04_tiled", "-m", "x"], "argument -m: invalid integer value: 'x'"),
    "size of nothing": (["run", "04_tiled", "-m", "0"], "argument -m: must be at least 1, not 0"),
    "setting without a value": (
        ["run", "04_tiled", "--set", "tile"],
        "--set must look like name=value, not 'tile'",
    ),
    "setting of nothing": (
        ["run", "04_tiled", "--set", "tile="],
        "--set must look like name=value, not 'tile='",
    ),
    "setting without a name": (
        ["run", "04_tiled", "--set", "=16"],
        "--set must look like name=value, not '=16'",
    ),
    "unknown setting": (["run", "04_tiled", "--set", "tlie=16"], "setting of 04_tiled 'tlie' is not known"),
    "setting of a wrong value": (
        ["run", "04_tiled", "--set", "tile=7"],
        "tile must be one of 32, 16, 8, not 7",
    ),
    "unknown device": (["run", "04_tiled", "--device", "cpu"], "device must be"),
    "unknown arch": (
        ["bench", "toolchain", "--arch", "sm_1"],
        "arch must be sm_75 or newer, not 'sm_1' (NVRTC ",
    ),
    "arch of the emulator": (
        ["bench", "emulator", "--arch", "sm_75"],
        "--arch is for toolchain; leave it out",
    ),
    "quick toolchain": (["bench", "toolchain", "--quick"], "--quick is for emulator; leave it out"),
    "nothing to measure": (["bench"], "the following arguments are required: what"),
    "file in no directory": (
        ["bench", "toolchain", "--out", "/no/x.json"],
        "--out must lie in a directory that exists",
    ),
}


@pytest.mark.parametrize("case", WRONG_USE.values(), ids=WRONG_USE)
def test_wrong_use_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], case: tuple[list[str], str]
) -> None:
    argv, said = case
    for extra in ([], ["--json"] if len(argv) > 1 else []):
        code, out, err = run(capsys, *argv, *extra)
        assert code == 2
        assert err.startswith(f"tilewise: error: {said}")
        assert err.count("\n") == 1
        if not extra:
            assert out == ""
            continue
        plain = json.loads(out)
        assert plain["schema"] == draw.SCHEMA and plain["exit_code"] == 2
        assert plain["error"]["message"] in err


ONLY = {
    "--quick": ("emulator", []), "--arch": ("toolchain", ["sm_75"]), "--suite": ("gemm", ["large"]), "--shape": ("gemm", ["1x1x1"]),
    "--dtype": ("gemm", ["float32"]), "--sustained": ("gemm", []), "--hidden": ("train", ["32"]), "--momentum": ("train", ["0"]),
}  # fmt: skip


@pytest.mark.parametrize("option", ONLY)
def test_an_option_of_one_measurement_is_none_of_the_others(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    owner, value = ONLY[option]
    for what in {"toolchain", "emulator", "dispatch", "gemm", "plans", "train"} - {owner}:
        code, _, err = run(capsys, "bench", what, option, *value)
        said = f"{option} is for {owner}; leave it out, or measure {owner}"
        assert (code, err) == (2, f"tilewise: error: {said}\n")


def test_the_rules_of_a_command_are_told_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = (
        "product must be given, such as 4096x4096x4096, or one of --list, --merge and --forget in its place"
    )
    markdown = "--markdown is for toolchain and emulator; leave it out"
    for line, said in (
        ("tune", tuned),
        ("tune 8x8x8 --list", f"{tuned}, not '8x8x8 and --list'"),
        ("tune --forget --merge a", f"{tuned}, not '--forget and --merge'"),
        ("bench plans --markdown", markdown),
        ("bench train --markdown", markdown),
        ("bench dispatch --markdown", markdown),
        ("bench gemm --markdown", markdown),
        ("bench toolchain --out /no/x.json", "--out must lie in a directory that exists, not '/no/x.json'"),
        ("ladder --source", "--source needs the name of a rung; such as 04_tiled"),
        ("explain ladder -o a.svg", "--output is where a picture goes, not 'a.svg'; say which by --figure, such as levels"),
        ("profile", "target must be a rung or a .cu or .ptx file; such as 05_tiled_conflicted"),
        ("profile a.cu --compare b c", "--compare takes the place of a target, not 'a.cu'"),
        ("profile a.cu --csv --json", "--json and --csv are two ways to print; choose one"),
        ("profile a.cu --csv --lines", "--csv and --lines are two ways to print; choose one"),
        ("profile a.cu --csv --occupancy", "--csv and --occupancy are two ways to print; choose one"),
        ("profile a.cu --metrics a,,b", "--metrics must name metrics, such as l1tex__*, not 'a,,b'"),
        ("profile --compare a b --lines", "--compare compares metrics; leave --lines and --occupancy away"),
        ("profile --compare a b --occupancy", "--compare compares metrics; leave --lines and --occupancy away"),
        ("profile 04_tiled --seed 0", "--seed is for files: a rung is profiled on zeros; leave it out"),
        ("profile a.cu --second", "--second is for --compare: it begins what the second launch has of its own"),
        ("run a.cu --rtol 0", "--rtol and --atol are tolerances of --expect; give one, such as --expect ref.npy"),
        ("run a.cu --atol 0", "--rtol and --atol are tolerances of --expect; give one, such as --expect ref.npy"),
    ):  # fmt: skip
        assert run(capsys, *line.split())[::2] == (2, f"tilewise: error: {said}\n"), line


def test_each_option_of_a_file_is_refused_for_a_rung_and_of_a_rung_for_a_file() -> None:
    file = {
        "--grid": "1", "--block": "1", "--cluster": "1", "--arg": ["1"], "--kernel": "k", "--define": ["A"], "--include": ["."],
        "--arch": "sm_75", "--shared": 1, "--timeout": 1.0, "--cooperative": True, "--output": ["y.npy"], "--expect": ["y.npy"],
        "--rtol": 0.5, "--atol": 0.5, "--print": [0],
    }  # fmt: skip
    for option, value in file.items():
        given = Namespace(**{{"--print": "show"}.get(option, option[2:]): value})
        with pytest.raises(ArgumentError) as error:
            refuse_file_options(given)
        assert str(error.value) == f"{option} is for files; a rung has its own; it takes -m, -n, -k and --set"
    refuse_file_options(Namespace(grid=None, arg=[], shared=0, cooperative=False))
    for option, value in {"-m": 1, "-n": 1, "-k": 1, "--set": ["a=1"]}.items():
        given = Namespace(compare=None, **{option.strip("-"): value})
        with pytest.raises(ArgumentError) as error:
            launch_spec(given, "a.cu")
        assert str(error.value) == f"{option} is for rungs; a file takes --grid, --block and --arg"


def test_the_options_of_a_launch_are_passed_on_each_as_what_it_is() -> None:
    line = (
        "run a.cu --grid 1 --block 2 --kernel k --cluster 3 --shared 4 --arch sm_75 --arg 5 --arg 6 -D A=7 -I there "
        "--seed 0 --cooperative -o y.npy --expect 1@2 --rtol 0.5 --atol 0.25 --print --print 2"
    )
    given = cli_parser.parse(line.split())
    assert launch_spec(given, "a.cu") == LaunchSpec(
        file="a.cu", grid="1", block="2", kernel="k", cluster="3", shared=4, arch="sm_75", args=["5", "6"], defines=["A=7"],
        include=["there"], seed=0, cooperative=True,
    )  # fmt: skip
    assert output_spec(given) == OutputSpec(["y.npy"], ["1@2"], [0, 2], relative=0.5, absolute=0.25)
    assert [is_file(name) for name in ("a.cu", "a/b", "04_tiled")] == [True, True, False]


def limited_options(parser: ArgumentParser) -> Iterator[tuple[str, str, bool]]:
    """The commands' options of numbers that are not below 0, and whether each takes 0."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from limited_options(inner)
        elif (read := action.type) and callable(read):
            refused = []
            for word in ("1", "0", "-1"):
                with contextlib.suppress(ValueError):
                    try:
                        read(word)
                    except ArgumentTypeError:
                        refused.append(word)
            if refused:
                yield parser.prog.split()[-1], action.option_strings[0], refused == ["-1"]


def test_counts_are_of_one_thing_or_more_where_nothing_would_be_no_use() -> None:
    found = list(limited_options(cli_parser._parser()))
    assert len(found) > 30 and ("profile", "--most", False) in found
    may_be_0 = {"--seed", "--shared", "--rtol", "--atol"}
    for command, option, takes_0 in found:
        sizes = command == "plan" and option in ("-m", "-n", "-k", "--batch")
        assert takes_0 == (option in may_be_0 or sizes), (command, option)


def test_settings_are_numbers_where_they_look_like_some() -> None:
    given = ["tile=16", "split=-3", "raster=hilbert", "element=float16", "odd=a=1"]
    found = {"tile": 16, "split": -3, "raster": "hilbert", "element": "float16", "odd": "a=1"}
    assert settings_of(given) == found


def test_a_size_that_the_rung_refuses(capsys: pytest.CaptureFixture[str], device: FakeDevice) -> None:
    code, _, err = run(capsys, "run", "02_one_block", "-m", "100", "-n", "100", "-k", "1")
    assert code == 2
    assert err.startswith("tilewise: error: m*n must be at most 1,024")


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(errno.EACCES, "not of writing")], ids=repr)
def test_what_nobody_expected_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_clear: bool) -> None:
        raise error

    monkeypatch.setattr(commands, "examine", fail)
    with pytest.raises(type(error)):
        main(["doctor"])


def test_ctrl_c_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_clear: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "examine", interrupted)
    assert run(capsys, "doctor") == (130, "", "")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_written_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    def failing(*_: object) -> None:
        raise OSError(code, "no room")

    monkeypatch.setattr(commands, "examine", failing)
    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "tilewise: error: the output cannot be written: no room\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no device that is always full")
def test_what_is_lost_at_the_end_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, device: FakeDevice
) -> None:
    """A few lines, which are not written before the last of them."""
    with open("/dev/full", "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["run", "04_tiled", "-m", "3", "-n", "4", "-k", "5", "--json"]) == 1
    assert "the output cannot be written: No space left on device" in capsys.readouterr().err


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_is_quiet(options: list[str]) -> None:
    command = [sys.executable, "-m", "tilewise", "ladder", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_the_doctor_tells_what_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.bench.doctor.PACKAGES", {**PACKAGES, "numpy": "no-such-package"})
    monkeypatch.setattr(
        "tilewise.bench.doctor.versions", lambda: {**dict.fromkeys(PACKAGES, "1"), "numpy": None}
    )
    monkeypatch.setenv("TILEWISE_DEVICE", "gpx")
    monkeypatch.setattr("tilewise.toolchain.lines.disassemble", lambda _: dict[str, str]()["nvdisasm"])
    code, out, _ = run(capsys, "doctor")
    assert code == 1 and "'nvdisasm'" in out
    assert "✗ numpy is not installed; pip install no-such-package" in out
    assert "✗ TILEWISE_DEVICE must be" in out
    assert out.endswith("✗ tilewise does not work here\n")


def test_the_doctor_empties_the_cache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    SPECS["03_simple"].kernel("sm_75")
    assert run_json(capsys, "doctor")["cache"]["entries"] == 1
    assert run_json(capsys, "doctor", "--clear-cache")["cache"]["entries"] == 0


# ── in a terminal ──


@pytest.mark.few(8)
@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "argv", [["ladder"], ["ladder", "13_warp_specialised"], ["demo"], ["doctor"], PLAN], ids=str
)
def test_commands_fit_a_terminal(
    monkeypatch: pytest.MonkeyPatch, device: FakeDevice, columns: int, argv: list[str]
) -> None:
    lines = in_terminal(monkeypatch, columns, lambda: main(argv))
    assert len(lines) > 3 and max(map(len, lines)) <= columns
    for name in SPECS if argv == ["ladder"] else []:
        assert any(line.split()[:1] == [name] for line in lines)


# ── the documentation of what it prints ──


@pytest.mark.parametrize(
    ("row", "argv", "among"),
    [
        ("`demo`", ["demo"], []),
        ("`ladder`", ["ladder", "04_tiled"], ["rungs"]),
        ("`run` of a rung", ["run", "04_tiled"], []),
        ("`plan`", PLAN, []),
        ("`doctor`", ["doctor"], []),
    ],
)
def test_json_has_the_keys_that_are_documented(
    capsys: pytest.CaptureFixture[str], device: FakeDevice, row: str, argv: list[str], among: list[str]
) -> None:
    found = run_json(capsys, *argv)
    assert (found.pop("schema"), found.pop("command")) == (draw.SCHEMA, argv[0])
    keys = {*found}.union(*(item for name in among for item in found[name]))
    assert keys == documented_keys(row)


def test_the_doctor_knows_every_variable_that_is_read() -> None:
    read = {
        name
        for file in (Path(__file__).parents[2] / "src").rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"(TILEWISE_\w+)\"", file.read_text(encoding="utf-8"))
    }
    assert {"TILEWISE_SUMS", "TILEWISE_THREADS"} <= read <= {*VARIABLES}


def test_each_size_of_a_rung_is_the_given_one_or_its_own_default() -> None:
    for given in itertools.product((None, 7), (None, 9), (None, 11)):
        sizes = dict(zip("mnk", given, strict=True))
        found = rung_size(Namespace(compare=True, **sizes), "04_tiled", (32, 48, 16))
        assert found == tuple(one or other for one, other in zip(given, (32, 48, 16), strict=True))
