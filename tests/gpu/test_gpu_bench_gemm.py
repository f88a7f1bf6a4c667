"""``tilewise bench gemm`` on a GPU: graphs of both, timed, right after timing as before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tilewise.bench.gemm_bench import LEAST_ROUNDS, bench_gemm
from tilewise.bench.gemm_cases import select_cases
from tilewise.bench.gemm_figures import OURS
from tilewise.cli.main import main
from tilewise.devices import gpu

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _gpu() -> None:
    assert gpu.count(), gpu.why_not()
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")


SHAPES = ["512x512x512", "300x200x100:tn", "1021x1021x1021", "1x4096x4096:nt", "8x256x256x256"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_products_are_right_and_timed(dtype: str) -> None:
    free = torch.cuda.mem_get_info()[0]
    figures = bench_gemm(select_cases([], SHAPES), dtype)
    assert figures.ok, [row.note for row in figures.rows]
    for row in figures.rows:
        assert row.status == "timed" and row.ratio is not None, row
        assert row.seconds is not None and 1e-7 < row.seconds < 1e-2
        assert 0.02 < row.ratio.low <= row.ratio.median <= row.ratio.high < 50
        assert row.tflops is not None and row.tflops < 2000
    if "PYTEST_XDIST_WORKER" not in os.environ:  # others take memory of the same GPU meanwhile
        assert torch.cuda.mem_get_info()[0] > free - (512 << 20)
    assert json.dumps(figures.to_dict())


def test_what_is_fused_stands_beside_both_of_torchs_ways() -> None:
    (row,) = bench_gemm(select_cases(["fused"])[:1]).rows
    assert row.status == "timed", row.note
    assert {OURS, "torch eager"} <= set(row.times)
    assert "torch.compile" in row.times or "no torch.compile" in row.note


def test_under_load_that_lasts() -> None:
    (row,) = bench_gemm(select_cases([], ["2048x2048x2048"]), sustained=True).rows
    assert row.status == "timed", row.note
    for load in row.loads.values():
        assert 100 < load.clock_mhz < 5000 and 10 < load.watts < 2000


def test_the_command_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.json"
    assert main(["bench", "gemm", "--shape", "256x256x256", "--out", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["rows"][0]["right"] and found["protocol"]["rounds"] == LEAST_ROUNDS
    assert "256×256×256" in capsys.readouterr().out
