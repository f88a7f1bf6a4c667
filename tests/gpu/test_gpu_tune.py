"""tw.tune and tw.tuning on a GPU: plans agree, the fastest is taken, and graphs are captured undisturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.products.test_tune import CASES
from tilewise.devices import gpu

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gpu.count(), gpu.why_not()
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("case", CASES)
def test_plans_of_every_kind_agree(case: str) -> None:
    sizes, problem = CASES[case]
    larger = tuple(4 * size if size > 8 else size for size in sizes)
    tuned = tw.tune(*larger, most=6, **problem)
    assert tuned.tried and not tuned.wrong, tuned
    assert all(1e-6 < one.seconds < 1e-3 for one in tuned.tried)


def test_a_plan_that_was_measured_is_at_least_as_fast_as_predicted() -> None:
    tuned = tw.tune(100, 4096, 4096, dtype="bfloat16", layout="nt")
    assert tuned.gain >= 1 and 2e-6 < tuned.kept.seconds < 1e-3
    assert tuned.kept.seconds <= min(one.seconds for one in tuned.tried) * 1.02


def test_products_of_torch_are_measured_but_not_in_a_capture() -> None:
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    x = torch.randn(96, 160, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(224, 160, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(224, device="cuda", dtype=torch.bfloat16)
    expected = torch.nn.functional.gelu(x.double() @ w.double().T + bias.double())
    tw.linear(x[:80], w, bias)  # compiled before
    graph = torch.cuda.CUDAGraph()
    with tw.tuning(most=4) as tuned:
        for _ in range(3):
            y = tw.linear(x, w, bias, activation="gelu")
        with torch.cuda.graph(graph):
            z = tw.linear(x[:80], w, bias)
        assert len(tuned) == 1, "in a capture nothing can be measured"
        with torch.cuda.stream(torch.cuda.Stream()):
            tw.matmul(x[:64], w.mT)
        assert len(tuned) == 2
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(y.double(), expected, rtol=0.02, atol=0.05)
    assert torch.allclose(z.double(), x[:80].double() @ w.double().T + bias.double(), rtol=0.02, atol=0.1)
    assert not any(one.wrong for one in tuned)


def test_a_capture_of_our_own_is_left_alone() -> None:
    device: Any = tw.device("gpu")
    a, b = (device.array(np.ones((64, 64), "float16")) for _ in range(2))
    out = device.empty((64, 64), "float16")
    with tw.tuning(most=2) as tuned:
        with device.capture() as graph:
            tw.matmul(a, b, out=out)
        graph.launch()
    assert tuned == [] and out.numpy()[0, 0] == 64
