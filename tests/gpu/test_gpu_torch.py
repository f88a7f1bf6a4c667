"""Gradients, the layer and patched models on a GPU: beside torch's in float64, on a stream of torch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
interop_torch: Any = pytest.importorskip("tilewise.interop.torch")

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_trains_as_torchs(dtype: Any, compiled: bool) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 384), nn.ReLU(), nn.Linear(384, 128))
    model = model.to("cuda", dtype)
    reference = copy.deepcopy(model).double()
    assert len(interop_torch.patch(model).swapped) == 3
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    with torch.cuda.stream(torch.cuda.Stream()):
        for rows in (64, 64, 200):
            x = torch.randn(2, rows, 256, device="cuda", dtype=dtype, requires_grad=True)
            wide = x.detach().double().requires_grad_()
            model.zero_grad()
            reference.zero_grad()
            y, wanted = run(x), reference(wide)
            direction = torch.randn_like(y)
            y.backward(direction)
            wanted.backward(direction.double())
            pairs = [(y, wanted), (x.grad, wide.grad)]
            pairs += [
                (a.grad, b.grad) for a, b in zip(model.parameters(), reference.parameters(), strict=True)
            ]
            for found, want in pairs:
                assert found.dtype == dtype
                error = (found.double() - want).norm() / want.norm()
                assert error < 8 * torch.finfo(dtype).eps, error


def test_autocast() -> None:
    layer = interop_torch.Linear(128, 64, activation="silu", device="cuda")
    x = torch.randn(32, 128, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    wanted = torch.nn.functional.silu(torch.nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(y.float(), wanted, rtol=0.03, atol=0.05)
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
