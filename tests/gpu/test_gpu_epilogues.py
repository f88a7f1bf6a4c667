"""Epilogues on a GPU: the same expressions as on the emulator, in every kernel that takes one."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tilewise.interop import numpy_dtype

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
