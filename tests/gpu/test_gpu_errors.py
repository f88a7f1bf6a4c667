"""Errors of every type of floating-point number on a GPU, by kinds of numbers, beside PyTorch's in the same run.

With -s it prints a row a test, of ours and of PyTorch's: the error's norm over the result's, and the median and the largest
error of an element, in last places of the element and in last places of its sum of |a|·|b|. exact32 has a table of its own:
``test_gpu_float32.py``. That integers are exact is shown there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.devices import gpu

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
N, K = 256, 4096
Matrix = npt.NDArray[Any]
TINY = np.finfo(np.float64).tiny


class Product(NamedTuple):
    """What is multiplied: types of A and of B, and by which arithmetic."""

    dtype: str
    weights: str
    arithmetic: str | None = None

    def __str__(self) -> str:
        types = self.dtype if self.dtype == self.weights else f"{self.dtype} × {self.weights}"
        return f"{types} as {self.arithmetic}" if self.arithmetic else types


PRODUCTS = [
    Product("float64", "float64"), Product("complex64", "complex64"), Product("complex128", "complex128"),
    Product("float32", "float32"), Product("float32", "float32", "tf32"), Product("float16", "float16"),
    Product("bfloat16", "bfloat16"), Product("bfloat16", "int8"), Product("float16", "float8_e4m3fn"),
    Product("float8_e4m3fn", "float8_e4m3fn"), Product("float8_e4m3fn", "float8_e5m2"),
]  # fmt: skip
PLACES = {"float16": 11, "bfloat16": 8, "float32": 24, "complex64": 24, "float64": 53, "complex128": 53}
"""Of a significand, by the result's type."""


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def _spread(shape: tuple[int, int]) -> Matrix:
    """Normal numbers, each times a power of two at random."""
    return np.ldexp(RANDOM.standard_normal(shape), RANDOM.integers(-4, 4, shape))


def _halves(shape: tuple[int, int]) -> Matrix:
    """Rows whose second half is all but the first."""
    half = RANDOM.standard_normal((shape[0], shape[1] // 2))
    return np.concatenate([half, half + 0.1 * RANDOM.standard_normal(half.shape)], axis=1)


def _cancelling(rows: int) -> tuple[Matrix, Matrix]:
    """The second half of K takes away almost all that the first adds up."""
    a = _halves((rows, K))
    a[:, K // 2 :] *= -1
    return a, _halves((N, K))


def _one_large(rows: int) -> tuple[Matrix, Matrix]:
    """The first product is 2¹⁷ times the others, all of which are positive: sums in order lose bits of every one."""
    a, b = RANDOM.uniform(0.5, 1, (rows, K)), RANDOM.uniform(0.5, 1, (N, K))
    a[:, 1:] *= 2.0**-9
    a[:, 0] *= 2.0**8
    return a, b


def _by_shape(draw: Callable[[tuple[int, int]], Matrix]) -> Callable[[int], tuple[Matrix, Matrix]]:
    return lambda rows: (draw((rows, K)), draw((N, K)))


KINDS: dict[str, Callable[[int], tuple[Matrix, Matrix]]] = {
    "normal": _by_shape(RANDOM.standard_normal),
    "uniform, 0 to 1": _by_shape(RANDOM.random),
    "normal, half of them zeros, none negative": _by_shape(lambda shape: np.maximum(RANDOM.standard_normal(shape), 0)),
    "normal, times 2⁻⁴ to 2³ at random": _by_shape(_spread),
    "the second half takes the first away": _cancelling,
    "one large before small ones": _one_large,
}  # fmt: skip


def draw_operands(torch: Any, kind: str, rows: int, product: Product) -> tuple[Any, Any]:
    """Return tensors of A and of Bᵀ on the GPU; int8 of a deviation of 16."""
    drawn = list(KINDS[kind](rows))
    if product.dtype.startswith("complex"):
        drawn = [one + 1j * other for one, other in zip(drawn, KINDS[kind](rows), strict=True)]
    if product.weights == "int8":
        drawn[1] = np.clip(np.rint(16 * drawn[1]), -127, 127)
    names = (product.dtype, product.weights)
    a, b = (torch.from_numpy(one).to(getattr(torch, name)) for one, name in zip(drawn, names, strict=True))
    return a.cuda(), b.cuda()


def multiply_by_torch(torch: Any, a: Any, b: Any, product: Product) -> Any:
    """PyTorch's product of A and the transpose of B; weights of 8 bits beside wide activations it has as wide ones."""
    if product.dtype.startswith("float8"):
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = product.arithmetic == "tf32"
    return torch.matmul(a, b.to(a.dtype).T)


def to_host(tensor: Any, places: int) -> Matrix:
    """The numbers of a tensor in more precision than what is to be measured: float64 or, for 53 places, 64 bits."""
    held: Matrix = (tensor if tensor.is_complex() else tensor.double()).cpu().numpy()
    wide = (np.clongdouble, np.longdouble) if places == 53 else (np.complex128, np.float64)
    return held.astype(wide[0] if tensor.is_complex() else wide[1])


class Errors(NamedTuple):
    norm: float
    """Of the error, over the result's."""
    median: float
    most: float
    """Of the errors of elements, each over its sum of |a|·|b|, in last places."""
    median_ulps: float
    most_ulps: float

    def __str__(self) -> str:
        shares = f"{self.median:.2g} | {self.most:.2g}"
        return f"{self.norm:.1e} | {shares} | {self.median_ulps:.2g} | {self.most_ulps:.2g}"


def measure_errors(found: Any, exact: Matrix, sizes: Matrix, places: int) -> Errors:
    errors, true = abs(to_host(found, places) - exact), abs(exact)
    shares = errors / np.maximum(sizes, TINY) * 2.0**places
    ulps = errors / np.exp2(np.floor(np.log2(np.maximum(true, TINY))) + 1 - places)
    norm = np.sqrt((errors**2).sum() / (true**2).sum())
    return Errors(*(float(x) for x in (norm, np.median(shares), shares.max(), np.median(ulps), ulps.max())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
@pytest.mark.parametrize("rows", [256, 1])
def test_errors_are_those_of_pytorch(device: Any, product: Product, rows: int, kind: str) -> None:
    """Of a matrix, and of one row, which other kernels multiply."""
    torch: Any = pytest.importorskip("torch")
    a, b = draw_operands(torch, kind, rows, product)
    out = torch.empty(rows, N, device="cuda") if product.dtype.startswith("float8") else None
    results = {
        "ours": tw.matmul(a, b.T, out, arithmetic=product.arithmetic),
        "PyTorch": multiply_by_torch(torch, a, b, product),
    }
    places = PLACES[str(results["ours"].dtype).removeprefix("torch.")]
    left, right = (to_host(one, places) for one in (a, b))
    exact, sizes = left @ right.T, abs(left) @ abs(right).T
    found = {name: measure_errors(one, exact, sizes, places) for name, one in results.items()}
    print(f"\n| {rows}×{N}×{K} {product} | {kind} | {found['ours']} | {found['PyTorch']} |")
    if product.arithmetic == "tf32" and rows == 1:  # PyTorch multiplies vectors in float32
        assert found["ours"].most <= 2**14  # two operands rounded by 2⁻¹¹
    else:
        assert found["ours"].norm <= 2 * found["PyTorch"].norm
        assert found["ours"].most <= 3 * found["PyTorch"].most + 1
