"""Triton as it is installed: what it compiles runs right on the emulator, and much faster than it interprets.

Not part of ``make test``: ``make test-peers`` installs Triton beside the project and runs this.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.running.test_triton import written
from tests.peers.small import SMALL, Small
from tests.triton.cases import CASES, Case, Setting, matmul_case
from tests.triton.compiler import Compiled, compile_case, golden
from tests.triton.runs import launch, prepare
from tilewise.errors import KernelFault

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).parents[2]
KERNELS = golden()
TIMES_OVER_INTERPRETER = 50
OTHERS = (80, 86, 89, 90)


@pytest.fixture
def seed() -> int:
    return int(np.random.default_rng().integers(2**32))


@pytest.mark.parametrize(("case", "arch"), [(case, arch) for case in CASES for arch in case.archs])
def test_fresh_kernels(case: Case, arch: int, seed: int) -> None:
    """What is compiled now is right, and does what the golden file's does."""
    made = compile_case(case, arch)
    kept = KERNELS[made.key]
    if made.triton == kept.triton:
        assert made.ptx == kept.ptx, "stale: python -m tests.triton.compiler"
    results = []
    for kernel in (made, kept):
        run = prepare(kernel, np.random.default_rng(seed))
        launch(kernel, run)
        run.check()
        results.append(written(run))
    assert made.ptx != kept.ptx or results[0] == results[1]


@pytest.mark.parametrize(
    ("case", "arch"),
    [(case, arch) for case in CASES for arch in OTHERS if arch not in case.archs and arch >= min(case.archs)],
)
def test_other_targets(case: Case, arch: int, seed: int) -> None:
    made = compile_case(case, arch)
    run = prepare(made, np.random.default_rng(seed))
    launch(made, run, tw.device("emulator", order="late"))
    run.check()


@pytest.mark.parametrize("number", range(30))
def test_random_settings(number: int, seed: int) -> None:
    """Tiles, warps, stages, types, layouts and sizes as they come."""
    pick = random.Random(seed)
    arch, type_ = (
        pick.choice([75, 80, 86, 89, 90, 90, 90]),
        pick.choice(["fp16", "fp16", "bf16", "fp32", "i8", "fp8e5"]),
    )
    if arch == 75 and type_ != "fp32":
        type_ = "fp16"
    least = 32 if type_ in ("i8", "fp8e5") else 16
    tile = pick.choice([16, 32, 64, 128]), pick.choice([16, 32, 64, 128]), pick.choice([least, 32, 64])
    if tile[0] * tile[1] > 64 * 64 and (arch == 75 or type_ == "fp32"):
        tile = 64, 32, tile[2]  # no tensor cores, it may be: long texts, all of multiply-adds
    even = pick.random() < 0.5
    size = tuple(step * pick.randint(1, 2) if even else pick.randint(1, 2 * step + 9) for step in tile)
    out = "i32" if type_ == "i8" else pick.choice(["fp32", "fp16", "bf16"] if arch > 75 else ["fp32", "fp16"])
    turned = pick.choice(["", "a", "b", "ab"])
    case = matmul_case(
        f"random{number}", type_, tile, pick.choice([1, 2, 4, 8]), pick.randint(1, 4), size, turned=turned, out=out,
        precision=pick.choice(["tf32", "ieee"]) if type_ == "fp32" else "tf32",
    )  # fmt: skip
    made = compile_case(case, arch)
    run = prepare(made, np.random.default_rng(seed), case)
    orders: list[str | int] = ["eager", "late", seed]
    launch(made, run, tw.device("emulator", order=orders[number % 3]))
    try:
        run.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, sm_{arch}, {case}: {error}") from None


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("small", "arch"),
    [(small, arch) for small in SMALL for arch in small.case.archs],
    ids=lambda value: value.case.name if isinstance(value, Small) else None,
)
def test_small_kernels(small: Small, arch: int, warps: int, seed: int) -> None:
    made = compile_case(small.case, arch, {"num_warps": warps})
    args = small.args(np.random.default_rng(seed))
    run_small(made, small, args, "eager" if seed % 2 else "late")
    for name, expected in small.model(args).items():
        got, wanted = np.asarray(args[name]), np.asarray(expected)
        if small.slack:
            error = np.abs(got.astype(np.float64) - wanted)
            limit = small.slack * (1 + np.abs(wanted))
            assert (error < limit).all(), f"seed {seed}, {name}: {np.argwhere(~(error < limit))[:3]}"
        else:
            np.testing.assert_array_equal(got, wanted.astype(got.dtype), f"seed {seed}, {name}")


def run_small(made: Compiled, small: Small, args: dict[str, Any], order: str) -> None:
    kernel = tw.Kernel.from_ptx(made.ptx, made.entry)
    given = [*(args[name] for name in made.signature), None, None]
    device = tw.device("emulator", order=order)
    kernel(small.grid, 32 * made.warps, given, shared=made.shared, device=device, timeout=60)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("arch", [75, 80, 86, 90])
def test_stages_and_warps(arch: int, warps: int, stages: int, seed: int) -> None:
    case = next(case for case in CASES if case.name == "matmul_f16_masked")
    made = compile_case(case, arch, {"num_warps": warps, "num_stages": stages})
    run = prepare(made, np.random.default_rng(seed))
    launch(made, run, tw.device("emulator", order=seed))
    run.check()


@pytest.mark.parametrize(
    ("name", "arch", "more"),
    [
        ("matmul_f16", 80, {"maxnreg": 64}),
        ("matmul_f16", 90, {"launch_pdl": True}),
        ("specialised", 90, {}),
        ("persistent", 80, {"debug": True}),
        ("layer_norm", 75, {"enable_fp_fusion": False}),
    ],
)
def test_as_triton_gives_it_out(name: str, arch: int, more: dict[str, Setting], seed: int) -> None:
    """With tables of lines, and with options that change what is around the kernel."""
    case = next(case for case in CASES if case.name == name)
    made = compile_case(case, arch, more, lines=True)
    run = prepare(made, np.random.default_rng(seed))
    launch(made, run)
    run.check()


def test_an_error_names_the_line_of_the_source() -> None:
    made = compile_case(next(case for case in CASES if case.name == "softmax"), 80, lines=True)
    run = prepare(made, np.random.default_rng())
    run.args["out"] = np.zeros(64, np.float32)
    with pytest.raises(KernelFault, match=r"(?s)out-of-bounds write.*rows\.py:(\d+)") as caught:
        launch(made, run)
    line = int(str(caught.value).rpartition(":")[2])
    source = (ROOT / "tests" / "triton" / "rows.py").read_text(encoding="utf-8").splitlines()
    assert "tl.store(out" in source[line - 1]


def test_prints_and_assertions(capfd: pytest.CaptureFixture[str]) -> None:
    told = Case("told", "extras", "told", {"x": "*fp32"}, {"BLOCK": 32}, ())
    made = compile_case(told, 80, {"num_warps": 1})
    kernel = tw.Kernel.from_ptx(made.ptx, made.entry)
    x = np.arange(1, 33, dtype=np.float32)
    kernel(1, 32, [x, None, None], shared=made.shared, device="emulator")
    out = capfd.readouterr().out
    assert len(re.findall(r"value: +\d+\.0", out)) == 32
    asserted = Case("asserted", "extras", "asserted", {"x": "*fp32"}, {"BLOCK": 32}, ())
    made = compile_case(asserted, 80, {"num_warps": 1, "debug": True})
    kernel = tw.Kernel.from_ptx(made.ptx, made.entry)
    kernel(1, 32, [x, None, None], shared=made.shared, device="emulator")
    x[7] = -1
    with pytest.raises(KernelFault, match="not above zero"):
        kernel(1, 32, [x, None, None], shared=made.shared, device="emulator")


def test_the_page_for_tritons_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/triton.md compiles is what the rest of it runs."""
    text = (ROOT / "docs" / "triton.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text(block, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("page", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "page", module)
    spec.loader.exec_module(module)
    assert_same_instructions(module.ptx, KERNELS["softmax-sm_80"].ptx)


def assert_same_instructions(a: str, b: str) -> None:
    def words(text: str) -> list[str]:
        return [line.split()[0] for line in text.splitlines() if line.startswith("\t") and line.endswith(";")]

    assert sorted(words(re.sub(r"(?m)^\s*(//|\.loc|\.file).*$", "", a))) == sorted(words(b))


def test_the_emulator_is_faster_than_tritons_interpreter() -> None:
    script = ROOT / "tests" / "peers" / "interpreted.py"
    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert found.returncode == 0, found.stderr
    times = float(re.findall(r"([\d.]+) times", found.stdout)[0])
    print(found.stdout)
    assert times >= TIMES_OVER_INTERPRETER, found.stdout
