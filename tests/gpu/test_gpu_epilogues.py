"""Epilogues on a GPU: the same expressions as on the emulator, in every kernel that takes one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.call_stub_cases import python_calls
from tilewise.call_stub import available
from tilewise.interop import numpy_dtype
from tilewise.linear import linear_in_python
from tilewise.matmul import matmul_in_python

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "sizes", [(200, 136, 264), (1024, 1024, 512), (64, 64, 4096), (1, 300, 200), (100, 300, 501)]
)
def test_an_epilogue_is_right(sizes: tuple[int, int, int], dtype: str) -> None:
    m, n, k = sizes
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((m, k), (k, n)))
    r = RANDOM.standard_normal((n, m)).astype(a.dtype).T
    bias, kept = RANDOM.standard_normal(n).astype(a.dtype), np.full((m, n), np.nan, a.dtype)
    epilogue = tw.epilogue("gelu(keep(kept, acc * s + bias)) + r", s=0.25, bias=bias, r=r, kept=kept)
    result = tw.matmul(a, b, epilogue=epilogue, device="gpu")
    sums = "float64" if dtype == "float64" else "float32"
    compared = tw.reference.compare(result, a, b, accumulate=sums, epilogue=epilogue, terms=64)
    assert compared.ok, compared
    before = tw.epilogue("acc * s + bias", s=0.25, bias=bias)
    compared = tw.reference.compare(kept, a, b, accumulate=sums, epilogue=before, terms=64)
    assert compared.ok, compared


@pytest.mark.skipif(not available(), reason="this Python has no compiled call")
def test_a_warm_call_is_the_call_in_python_to_the_bit() -> None:
    """With other arrays and other numbers than those of the first call, and without any Python function."""
    device = tw.device("gpu")

    def array(*shape: int) -> Any:
        return device.array(RANDOM.standard_normal(shape).astype(numpy_dtype("bfloat16")))

    x, weight, b = array(64, 64), array(64, 64), array(64, 64)
    for _ in range(4):
        bias, residual, number = array(64), array(64, 64), float(RANDOM.standard_normal())
        ours, theirs, kept, their_kept = (array(64, 64) for _ in range(4))
        text = "silu(keep(kept, acc * s + bias)) * r"
        given = {"s": number, "bias": bias, "r": residual}
        usual: dict[str, Any] = {"bias": bias, "activation": "gelu", "residual": residual}
        pairs = (
            (
                partial(tw.matmul, x, b, alpha=number, **usual),
                partial(matmul_in_python, x, b, alpha=number, **usual),
            ),
            (partial(tw.linear, x, weight, **usual), partial(linear_in_python, x, weight, **usual)),
            (
                partial(tw.matmul, x, b, epilogue=tw.epilogue(text, kept=kept, **given)),
                partial(matmul_in_python, x, b, epilogue=tw.epilogue(text, kept=their_kept, **given)),
            ),
        )
        for compiled, in_python in pairs:
            compiled(out=ours)  # an array of ours is slow once
            ours.fill(np.full((64, 64), np.nan, ours.dtype))
            assert python_calls(partial(compiled, out=ours)) == []
            in_python(out=theirs)
            assert ours.numpy().tobytes() == theirs.numpy().tobytes()
        assert kept.numpy().tobytes() == their_kept.numpy().tobytes()
