"""Operands of 8 bits beside 16 on a GPU: beside float64, and bit for bit beside the emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewise as tw
from tests.framed import numbers
from tilewise.calls import Choice
from tilewise.devices import gpu
from tilewise.matmul import multiply
from tilewise.planner import list_candidates, operands_of, target_of_device
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
NARROW: dict[str, Any] = {
    "int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2
}  # fmt: skip
WIDE: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_plans_are_right(device: Any, wide: str, narrow: str, layout: str) -> None:
    """Four at random of all that the planner has, for a few rows and for many, with lines that tensor maps describe or not."""
    # NOTE: one column lies in rows as well, so that plans for it are others.
    m, n, k = (int(size) for size in RANDOM.integers((1, 2, 1), (300, 900, 1500)))
    m, k = RANDOM.choice((1, 7, m)), RANDOM.choice((k, k // 16 * 16 + 16))
    found, _ = list_candidates(
        operands_of(m, n, k, dtype=wide, b_dtype=narrow, layout=layout), target_of_device(device)
    )
    x, weights = numbers((m, k), wide), numbers((n, k) if layout == "nt" else (k, n), narrow)
    left, right = device.array(x), device.array(weights)
    b, right = (weights.T, right.T) if layout == "nt" else (weights, right)
    for which in RANDOM.integers(len(found), size=4):
        spec, given = found[which].spec, tuple(found[which].settings.items())
        out = device.empty((m, n), WIDE[wide])
        multiply(left, right, out, None, Choice(specs=(spec,), settings=given))
        compared = compare(out.numpy(), x, b, terms=16)
        assert compared.ok, (m, n, k, spec.name, given, str(compared))


@pytest.mark.parametrize("narrow", NARROW)
def test_the_bits_are_those_of_the_emulator(device: Any, narrow: str) -> None:
    x, weights = numbers((19, 640), "bfloat16"), numbers((200, 640), narrow)
    plan = tw.plan(19, 200, 640, dtype="bfloat16", b_dtype=narrow, layout="nt")
    there = tw.matmul(device.array(x), device.array(weights).T, plan=plan).numpy()
    here = tw.matmul(x, weights.T, plan=plan, device=tw.device("emulator", sums="hardware"))
    assert there.tobytes() == here.tobytes()


def test_calls_that_come_again(device: Any) -> None:
    """From the second on by compiled code: the right tensors, whatever their alignment, and sums in place of others."""
    torch = pytest.importorskip("torch")
    weights = torch.randint(-128, 128, (512, 768), dtype=torch.int8, device="cuda")
    quantised = tw.quantize(torch.randn(512, 768, device="cuda"), "float8_e4m3fn", axis=-1)
    for turn in range(6):
        x = torch.randn(9, 768 + turn % 2, device="cuda", dtype=torch.bfloat16)[:, -768:]
        out = tw.matmul(x, weights.T)
        assert _is_near(out, x.double() @ weights.T.double())
        assert _is_near(tw.linear(x, quantised), x.double() @ quantised.dequantize().double().T)


def _is_near(got: Any, expected: Any) -> bool:
    """Within one rounding to bfloat16, and what sums of 768 lose."""
    error = (got.double() - expected).abs()
    return bool((error <= expected.abs() * 2**-8 + expected.abs().max() * 2**-16).all())
