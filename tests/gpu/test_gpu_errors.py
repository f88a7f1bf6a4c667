"""Errors of every type of floating-point number on a GPU, by kinds of numbers, beside PyTorch's in the same run.

With -s it prints a row a test: of ours and of PyTorch's the error's norm over the result's, and of an element's error the
median and the largest, in units of the last place of one that is as large as its sum of |a|·|b|. float32, exact32 and
e4m3 have tables of their own: ``test_gpu_float32.py`` and ``test_gpu_eight_bits.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.devices import gpu

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
SIZE = (256, 256, 4096)
Matrix = npt.NDArray[Any]


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def _normal(shape: tuple[int, int]) -> Matrix:
    return RANDOM.standard_normal(shape)


def _spread(shape: tuple[int, int]) -> Matrix:
    """Normal numbers, each times a power of two at random."""
    return np.ldexp(_normal(shape), RANDOM.integers(-4, 4, shape))


KINDS: dict[str, Callable[[tuple[int, int]], Matrix]] = {
    "normal": _normal,
    "uniform, 0 to 1": RANDOM.random,
    "normal, half of them zeros, none negative": lambda shape: np.maximum(_normal(shape), 0),
    "normal, times 2⁻⁴ to 2³ at random": _spread,
}
PLACES = {"float16": 11, "bfloat16": 8, "float32": 24, "complex64": 24, "float64": 53, "complex128": 53}
"""Of a significand."""
CASES = [
    ("float64", "float64"), ("complex64", "complex64"), ("complex128", "complex128"), ("float16", "float16"),
    ("bfloat16", "bfloat16"), ("bfloat16", "int8"), ("float16", "float8_e4m3fn"),
]  # fmt: skip


def numbers(torch: Any, kind: str, shape: tuple[int, int], dtype: str) -> Any:
    """A tensor of a type; int8 of a deviation of 16."""
    drawn = KINDS[kind](shape)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * KINDS[kind](shape)
    if dtype == "int8":
        drawn = np.clip(np.rint(16 * drawn), -127, 127)
    return torch.from_numpy(drawn).to(getattr(torch, dtype))


def exact_product(a: Any, b: Any) -> tuple[Matrix, Matrix]:
    """The product of what two tensors hold, by sums of 64 bits' precision, and that of their sizes."""
    wide = np.clongdouble if a.is_complex() else np.longdouble
    left, right = ((one if one.is_complex() else one.double()).cpu().numpy().astype(wide) for one in (a, b))
    return left @ right, abs(left) @ abs(right)


def measure_errors(found: Any, exact: Matrix, sizes: Matrix, places: int) -> tuple[float, float, float]:
    """The norm of a result's error over its own, the median and the largest error of an element in last places."""
    held = (found if found.is_complex() else found.double()).cpu().numpy()
    errors = abs(held.astype(exact.dtype) - exact)
    shares = errors / np.maximum(sizes, np.finfo(np.float64).tiny) * 2.0**places
    norm = np.sqrt((errors**2).sum()) / np.sqrt((abs(exact) ** 2).sum())
    return float(norm), float(np.median(shares)), float(shares.max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "weights"), CASES)
@pytest.mark.parametrize("rows", [SIZE[0], 1])
def test_errors_are_those_of_pytorch(device: Any, dtype: str, weights: str, rows: int, kind: str) -> None:
    """Of a matrix, and of one row, which other kernels multiply. Weights of 8 bits PyTorch has as wide ones, exactly."""
    torch: Any = pytest.importorskip("torch")
    _, n, k = SIZE
    a, b = numbers(torch, kind, (rows, k), dtype).cuda(), numbers(torch, kind, (n, k), weights).cuda().T
    exact, sizes = exact_product(a, b)
    results = {"ours": tw.matmul(a, b), "PyTorch": torch.matmul(a, b.to(a.dtype))}
    found = {name: measure_errors(one, exact, sizes, PLACES[dtype]) for name, one in results.items()}
    row = (f"{norm:.1e} | {median:.2g} | {most:.2g}" for norm, median, most in found.values())
    print(f"\n| {rows}×{n}×{k} {dtype}, {weights} | {kind} | {' | '.join(row)} |")
    # In order where PyTorch may have sums of sums, which err less.
    assert found["ours"][0] <= 4 * found["PyTorch"][0] and found["ours"][2] <= k
