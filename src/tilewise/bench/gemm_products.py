"""Operands of a product as PyTorch tensors, the contenders that multiply them, and the check of our result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.bench.gemm_cases import GemmCase
from tilewise.bench.gemm_figures import OURS
from tilewise.calls import Arrays, BoundProduct, Choice, prepare
from tilewise.describe import result_shapes
from tilewise.devices import Device
from tilewise.epilogue import EpilogueCall, express, fit, view_arrays
from tilewise.matmul import matmul
from tilewise.problem import FLOAT8, result_of
from tilewise.reference import Comparison, compare

__all__ = ["Contender", "Products", "buffer_bytes", "count_sets", "torch_chain"]

# Starts the product of one set of operands, and gives what it made anew, if anything.
Contender = Callable[[int], Any]

MOST_SETS = 40
_LEAST_SETS = 2
_CACHES = 2.5  # times L2 that the buffers fill, where so many sets do
_ROWS, _COLUMNS = 64, 512  # of a result that are compared with float64
_MATRICES = 3  # of a stack
_ACTIVATION = "gelu"
_UNLIKELY = -(2**31)  # as a sum of products of bytes
_AGREEMENT = 0.02  # of two results' norm: far above any rounding, far below any mistake


def count_sets(case: GemmCase, dtype: str, cache_bytes: int) -> int:
    """How many sets of operands it takes so that L2 does not hold the next one, within bounds."""
    wanted = -(-int(_CACHES * cache_bytes) // max(case.bytes(dtype), 1))
    return min(max(wanted, _LEAST_SETS), MOST_SETS)


def buffer_bytes(case: GemmCase, dtype: str, sets: int) -> int:
    """Memory that the sets take; fused rivals make results of their own, and one more on the way, others copies."""
    itemsize = int(interop.numpy_dtype(dtype).itemsize)
    made = 2 * case.m * case.n * case.batch * itemsize if case.fused else 0
    if dtype in FLOAT8:
        made += case.bytes(dtype)
    return sets * (case.bytes(dtype) + made)


def torch_chain(torch: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """PyTorch's way of what is fused in ours: gelu(A·B + bias) + residual."""

    def chain(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return torch.nn.functional.gelu(torch.addmm(bias, a, b)) + residual

    return chain


class Products:
    """Sets of fresh normal operands of one case, and what multiplies them."""

    def __init__(
        self,
        torch: Any,
        place: str,
        case: GemmCase,
        dtype: str,
        sets: int,
        seed: int,
        arithmetic: str | None = None,
    ) -> None:
        self.case, self.sets, self.arithmetic, self._torch = case, sets, arithmetic, torch
        self._random = np.random.default_rng(seed)
        generator = torch.Generator(device=place).manual_seed(seed)
        element, result = getattr(torch, dtype), getattr(torch, result_of(dtype))
        stack = (case.batch,) if case.batch != 1 else ()
        self._one = torch.ones((), device=place)  # what results are scaled by

        def normal(*shape: int) -> Any:
            if dtype == "int8":
                return torch.randint(-128, 128, shape, generator=generator, dtype=element, device=place)
            wide = torch.float32 if dtype in FLOAT8 else element
            return torch.randn(*shape, generator=generator, dtype=wide, device=place).to(element)

        def operand(rows: int, columns: int, letter: str) -> Any:
            return normal(*stack, rows, columns) if letter == "n" else normal(*stack, columns, rows).mT

        self.a = [operand(case.m, case.k, case.layout[0]) for _ in range(sets)]
        self.b = [operand(case.k, case.n, case.layout[1]) for _ in range(sets)]
        self.out = [torch.empty(*stack, case.m, case.n, dtype=result, device=place) for _ in range(sets)]
        self.bias = [normal(case.n) for _ in range(sets)] if case.fused else []
        self.residual = [normal(case.m, case.n) for _ in range(sets)] if case.fused else []
        self._dtype = dtype
        if dtype in FLOAT8:  # PyTorch has products of rows of A and columns of B alone
            self._rows_of_a = [a.contiguous() for a in self.a]
            self._columns_of_b = [b.mT.contiguous().mT for b in self.b]

    # ── who multiplies ──

    def contenders(self) -> dict[str, Contender]:
        """Return our function and PyTorch's, by name; torch.compile's is not among them."""
        if self.case.fused:
            return {OURS: self._fused_ours, "torch eager": self.chain(torch_chain(self._torch))}
        if self._dtype in FLOAT8:
            return {OURS: self._ours, "torch._scaled_mm": self._scaled}
        if self._dtype == "int8":
            return {OURS: self._ours, "torch._int_mm": self._torch_into(self._torch._int_mm)}
        if self.case.batch != 1:
            return {OURS: self._ours, "torch.bmm": self._torch_into(self._torch.bmm)}
        return {OURS: self._ours, "torch.matmul": self._torch_into(self._torch.matmul)}

    def _ours(self, which: int) -> None:
        matmul(self.a[which], self.b[which], out=self.out[which], arithmetic=self.arithmetic)

    def _fused_ours(self, which: int) -> None:
        extras: dict[str, Any] = {
            "bias": self.bias[which],
            "activation": _ACTIVATION,
            "residual": self.residual[which],
        }
        matmul(self.a[which], self.b[which], out=self.out[which], arithmetic=self.arithmetic, **extras)

    def _torch_into(self, function: Any) -> Contender:
        def start(which: int) -> None:
            function(self.a[which], self.b[which], out=self.out[which])

        return start

    def _scaled(self, which: int) -> Any:
        """Multiply by torch._scaled_mm, accumulating exactly, with operands laid out as it requires."""
        a, b = self._rows_of_a[which], self._columns_of_b[which]
        return self._torch._scaled_mm(
            a, b, scale_a=self._one, scale_b=self._one, out_dtype=self.out[which].dtype
        )

    def chain(self, function: Callable[[Any, Any, Any, Any], Any]) -> Contender:
        """Return a contender that calls a function of A, B, bias and residual."""
        return lambda which: function(self.a[which], self.b[which], self.bias[which], self.residual[which])

    def bind_product(self, device: Device) -> BoundProduct:
        """Return the product that tw.matmul binds for the first set."""
        fused = view_arrays(self._epilogue(0))
        views = (interop.view(name, of[0]) for name, of in (("a", self.a), ("b", self.b), ("out", self.out)))
        left, right, result = views
        shapes = result_shapes(left.shape, right.shape)
        if not fused.is_plain:
            fused = fit(fused, shapes.result, left.dtype, (left.dtype, right.dtype))
        return prepare(Arrays(left, right, result, fused), shapes, device, Choice(arithmetic=self.arithmetic))

    def _epilogue(self, which: int) -> EpilogueCall | None:
        if not self.case.fused:
            return None
        return express(self.bias[which], _ACTIVATION, self.residual[which], 1.0, None, None)

    # ── whether it is right ──

    def compare(self, start: Callable[[], Any], which: int, made: BoundProduct) -> Comparison:
        """Poison a set's result, have ``start`` compute it, compare it with float64; return the worst comparison.

        Every element must be a number; those of some rows and columns, at random, are compared.
        """
        out = self.out[which]
        whole = not (out.dtype.is_floating_point or out.dtype.is_complex)
        out.fill_(_UNLIKELY if whole else float("nan"))
        start()
        unset = int(((out == _UNLIKELY) if whole else self._torch.isnan(out)).sum())
        if unset:
            return Comparison(False, float("inf"), None, float("nan"), None, unset, out.numel())
        settings, spec = made.candidate.settings, made.candidate.spec
        split = settings.get("split", 0)
        terms = split if isinstance(split, int) else 0
        found = [
            self._compare_matrix(which, at, spec.accumulate(settings), terms)
            for at in self._spread_matrices()
        ]
        return max(found, key=lambda one: (not one.ok, one.worst))

    def find_disagreeing(self, rivals: Mapping[str, Contender], which: int) -> list[str]:
        """Return the rivals whose result of a set is not ours, which is in place: they compute something else."""
        rows = self._spread_indices(self.case.m, _ROWS)
        wide = self._torch.complex128 if self.out[which].dtype.is_complex else self._torch.float64
        ours = self.out[which][..., rows, :].to(wide)
        found = []
        for name, start in rivals.items():
            made = start(which)
            theirs = (self.out[which] if made is None else made)[..., rows, :].to(wide)
            if not bool((theirs - ours).norm() < _AGREEMENT * ours.norm()):
                found.append(name)
        return found

    def _compare_matrix(self, which: int, at: tuple[int, ...], accumulate: str, terms: int) -> Comparison:
        case = self.case
        rows, columns = self._spread_indices(case.m, _ROWS), self._spread_indices(case.n, _COLUMNS)
        left, right, found = (of[which][at] for of in (self.a, self.b, self.out))
        epilogue = None
        if case.fused:
            bias, residual = self.bias[which][columns], self.residual[which][rows][:, columns]
            epilogue = express(_host(bias), _ACTIVATION, _host(residual), 1.0, None, None)
        return compare(
            _host(found[rows][:, columns]),
            _host(left[rows]),
            _host(right[:, columns]),
            accumulate=accumulate,
            terms=terms,
            epilogue=epilogue,
            arithmetic=self.arithmetic,
        )

    def _spread_matrices(self) -> list[tuple[int, ...]]:
        """Return the indices of the matrices of a stack to compare: the first, the last and one between."""
        if self.case.batch == 1:
            return [()]
        return [(which,) for which in self._spread_indices(self.case.batch, _MATRICES)]

    def _spread_indices(self, size: int, most: int) -> list[int]:
        """Return indices spread over 0 … size - 1: the first, the last, and one at random of each part between."""
        if size <= most:
            return list(range(size))
        edges = np.linspace(1, size - 1, most - 1).astype(int)
        between = self._random.integers(edges[:-1], edges[1:])
        return [0, *map(int, between), size - 1]


def _host(tensor: Any) -> npt.NDArray[Any]:
    """Copy a tensor to host memory, as a NumPy array of the same type."""
    return interop.numpy_of(interop.view("tensor", tensor.cpu()))
