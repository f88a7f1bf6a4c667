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


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "sizes", [(200, 136, 264), (2048, 1024, 512), (64, 64, 4096), (1, 300, 200), (100, 300, 501)]
)
def test_columns_and_rows_are_added_up(sizes: tuple[int, int, int], dtype: str) -> None:
    """Right, and of the same bits every time."""
    m, n, k = sizes
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((m, k), (k, n)))
    wide = "float64" if dtype == "float64" else "float32"
    found = []
    for _ in range(3):
        down, across = np.full(n, np.nan, wide), np.full(m, np.nan, wide)
        epilogue = tw.epilogue(
            "column_sums(down, acc * 2) + row_sums(across, relu(acc))", down=down, across=across
        )
        tw.matmul(a, b, epilogue=epilogue, device="gpu")
        for name, sums in (("down", down), ("across", across)):
            compared = tw.reference.compare(
                sums, a, b, accumulate=wide, epilogue=epilogue, kept=name, terms=64
            )
            assert compared.ok, (name, str(compared))
        found.append(down.tobytes() + across.tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("sizes", [(200, 136, 264), (1024, 1024, 512), (64, 64, 4096), (100, 300, 501)])
def test_a_weight_is_updated_in_place(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype("bfloat16")) for shape in ((m, k), (k, n)))
    master, momentum = RANDOM.standard_normal((2, m, n)).astype("float32")
    before = tw.sgd(master.copy(), momentum=momentum.copy(), rate=0.01, decay=0.1)
    weight = np.full((m, n), np.nan, a.dtype)
    step = tw.sgd(master, momentum=momentum, rate=0.01, decay=0.1)
    tw.matmul(a, b, weight, epilogue=step, device="gpu")
    for found, name in ((weight, None), (master, "master"), (momentum, "momentum")):
        compared = tw.reference.compare(found, a, b, epilogue=before, kept=name, terms=64)
        assert compared.ok, (name, str(compared))


@pytest.mark.parametrize("result", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("sizes", [(200, 136, 264), (1024, 1024, 512), (100, 301, 501), (1, 300, 200)])
def test_results_of_eight_bits_saturate(sizes: tuple[int, int, int], result: str) -> None:
    m, n, k = sizes
    a, b = (RANDOM.standard_normal(shape).astype(numpy_dtype("bfloat16")) for shape in ((m, k), (k, n)))
    out, epilogue = np.zeros((m, n), numpy_dtype(result)), tw.epilogue("acc * s", s=10.0)
    tw.matmul(a, b, out, epilogue=epilogue, device="gpu")
    compared = tw.reference.compare(out, a, b, epilogue=epilogue, terms=64)
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
