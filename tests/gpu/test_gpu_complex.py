"""Complex numbers on a GPU beside float64, as NumPy's arrays and as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise
from tilewise.devices import gpu
from tilewise.errors import ArgumentError
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

tw: Any = tilewise
RANDOM = np.random.default_rng()
SUMS = {"complex64": "float32", "complex128": "float64"}


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    assert gpu.count(), gpu.why_not()


def normal(*shape: int, dtype: str) -> npt.NDArray[Any]:
    return (RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "arithmetic"),
    [("complex64", None), ("complex64", "exact32"), ("complex64", "tf32"), ("complex128", None)],
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_what_is_chosen_is_right(dtype: str, arithmetic: str | None, layout: str) -> None:
    for stack in ((), (3,)):
        m, n, k = (int(size) for size in RANDOM.integers((1, 1, 1), (600, 600, 400)))
        a = (
            normal(*stack, m, k, dtype=dtype)
            if layout[0] == "n"
            else normal(*stack, k, m, dtype=dtype).swapaxes(-1, -2)
        )
        b = normal(k, n, dtype=dtype) if layout[1] == "n" else normal(n, k, dtype=dtype).T
        bias = normal(n, dtype=dtype)
        epilogue = tw.epilogue("acc - 2 * bias", bias=bias)
        result = tw.matmul(a, b, epilogue=epilogue, arithmetic=arithmetic, device="gpu")
        compared = compare(
            result, a, b, accumulate=SUMS[dtype], epilogue=epilogue, arithmetic=arithmetic, terms=64
        )
        assert compared, (m, n, k, stack, str(compared))


def test_tensors_and_their_gradients() -> None:
    """Twice, so that the second call is the compiled one; conjugated lazily they are refused with what to do."""
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randn(300, 300, dtype=torch.complex64, device="cuda", requires_grad=True) for _ in range(2))
    for _ in range(2):
        with torch.no_grad():
            assert (tw.matmul(a, b) - a.to(torch.complex128) @ b.to(torch.complex128)).abs().max() < 1e-3
    wanted = torch.autograd.grad((a @ b).abs().sum(), (a, b))
    found = torch.autograd.grad(tw.matmul(a, b).abs().sum(), (a, b))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-2)
    with pytest.raises(ArgumentError, match="resolve_conj"), torch.no_grad():
        tw.matmul(a, b.mH)
    lists = [a.detach()[: 20 + 0], b.detach()[20:40].contiguous()], [b.detach(), a.detach()]
    for one, left, right in zip(tw.batched_matmul(*lists), *lists, strict=True):
        assert (one - left @ right).abs().max() < 1e-2
