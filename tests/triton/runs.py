"""What to launch the kernels with, and what must come out: against float64, within what rounding explains.

An element passes only if its error is *below* its bound, so that NaN fails; outputs are NaN before the launch, and
so is what lies between the rows of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tilewise as tw
from tests.triton.cases import CASES, Case
from tests.triton.compiler import Compiled

__all__ = ["Run", "check", "launch", "prepare"]

Array = npt.NDArray[Any]

_TYPES: dict[str, Any] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8e5": ml_dtypes.float8_e5m2,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "i32": np.int32,
}
_BY_NAME = {case.name: case for case in CASES}


@dataclass(frozen=True, slots=True)
class Run:
    """Arguments by the names of the kernel's parameters, which of them are written, and a look at these."""

    grid: tuple[int, ...]
    args: dict[str, Any]
    outputs: tuple[str, ...]
    check: Callable[[], None]


def prepare(made: Compiled, rng: np.random.Generator, case: Case | None = None) -> Run:
    """Fresh random operands for a kernel; ``case`` is its own, if it is none of those in the list."""
    case = case or _BY_NAME[made.case]
    for prefix, maker in _MAKERS.items():
        if case.function.startswith(prefix):
            return maker(case, rng)
    raise LookupError(case.function)


def launch(made: Compiled, run: Run, device: Any = "emulator", timeout: float = 120) -> None:
    """Launch a kernel, with the scratch memory that it wants."""
    kernel, grid, block, args = _call(made, run)
    kernel(grid, block, args, shared=made.shared, device=device, timeout=timeout)


def profiled(made: Compiled, run: Run, gpu: str, timeout: float = 120) -> Any:
    """The same launch, counted as on a GPU."""
    kernel, grid, block, args = _call(made, run)
    return kernel.profile(grid, block, args, shared=made.shared, gpu=gpu, timeout=timeout)


def explained(made: Compiled, run: Run, gpu: str | None = None) -> Any:
    """The same launch, explained."""
    kernel, grid, block, args = _call(made, run)
    return tw.explain(kernel, grid, block, args, made.shared, gpu=gpu)


def check(made: Compiled, run: Run, timeout: float = 120) -> list[Any]:
    """What is wrong with a launch."""
    kernel, grid, block, args = _call(made, run)
    return list(kernel.check(grid, block, args, shared=made.shared, timeout=timeout))


def _call(made: Compiled, run: Run) -> tuple[tw.Kernel, tuple[int, ...], int, list[Any]]:
    grid = (run.grid[0] * made.blocks, *run.grid[1:])
    scratch = np.zeros(made.scratch * int(np.prod(grid)), np.uint8) if made.scratch else None
    kernel = tw.Kernel.from_ptx(made.ptx, made.entry)
    return kernel, grid, 32 * made.warps, [*_expanded(made, run), scratch, None]


def _expanded(made: Compiled, run: Run) -> Iterator[Any]:
    """The arguments; what the kernel wants a descriptor of is a map, then its shape and its strides."""
    maps = iter(made.maps)
    for name, kind in made.signature.items():
        value = run.args[name]
        if kind.startswith("tensordesc"):
            yield tw.TensorMap(value, **next(maps))
            yield from value.shape
            yield from (step // value.itemsize for step in value.strides)
        else:
            yield value


def within(name: str, got: Array, expected: Array, bound: Array | float) -> None:
    """Whether every element is nearer to what it should be than its bound."""
    error = np.abs(got.astype(np.float64) - expected)
    wrong = ~(error < bound)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{name}: {np.count_nonzero(wrong)} of {got.size} elements wrong; {at} is {got[at]!r}, not {expected[at]!r}"
        )


# -- matrix products --------------------------------------------------------------------------------
def _matmul(case: Case, rng: np.random.Generator) -> Run:
    m, n, k = case.size
    a = _pitched(_operand(case.signature["a"], (m, k), rng), bool(case.constants.get("AT")))
    b = _pitched(_operand(case.signature["b"], (k, n), rng), bool(case.constants.get("BT")))
    c = _pitched(tw.reference.poisoned((m, n), _TYPES[case.signature["c"][1:]]))
    tiles = -(-m // int(case.constants["BM"])) * -(-n // int(case.constants["BN"]))
    grid = min(tiles, 3) if case.function.startswith("matmul_persistent") else tiles
    if case.function == "matmul_persistent_described":
        c.view[...] = 0  # what it multiplies is added to that
    args = {"a": a.base, "b": b.base, "c": c.base, "M": m, "N": n, "K": k}
    args |= {"lda": a.base.shape[1], "ldb": b.base.shape[1], "ldc": c.base.shape[1]}

    def check() -> None:
        if c.base.dtype.kind == "i":
            expected = a.view.astype(np.int64) @ b.view.astype(np.int64)
            np.testing.assert_array_equal(c.view, expected)
        else:
            found = tw.reference.compare(c.view, a.view, b.view)
            assert found, str(found)
        beside = c.base[:, n:]
        assert beside.tobytes() == tw.reference.poisoned(beside.shape, beside.dtype).tobytes()

    return Run((grid,), args, ("c",), check)


def _matmul_by_host_descriptors(case: Case, rng: np.random.Generator) -> Run:
    m, n, k = case.size
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = tw.reference.poisoned((m, n), np.float32)
    grid = (-(-m // int(case.constants["BM"])), -(-n // int(case.constants["BN"])))

    def check() -> None:
        found = tw.reference.compare(c, a, b)
        assert found, str(found)

    return Run(grid, {"a": a, "b": b, "c": c, "K": k}, ("c",), check)


@dataclass(frozen=True, slots=True)
class _Pitched:
    """A matrix whose rows, or columns, are apart, and the memory that it lies in."""

    base: Array
    view: Array


def _pitched(matrix: Array, turned: bool = False) -> _Pitched:
    lines = matrix.T if turned else matrix
    rows, columns = lines.shape
    base = tw.reference.poisoned((rows, -(-columns // 16) * 16 + 16), matrix.dtype)
    base[:, :columns] = lines
    view = base[:, :columns]
    return _Pitched(base, view.T if turned else view)


def _operand(type_: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    kind = _TYPES[type_[1:]]
    if type_ == "*i8":
        return rng.integers(-128, 128, shape).astype(kind)
    drawn = rng.standard_normal(shape).astype(np.float32)
    if type_ == "*fp32":  # numbers that TF32 has, so that it loses nothing
        return (drawn.view(np.uint32) & 0xFFFF_E000).view(np.float32)
    return drawn.astype(kind)


# -- rows -------------------------------------------------------------------------------------------
def _softmax(case: Case, rng: np.random.Generator) -> Run:
    rows, columns = case.size
    kind = _TYPES[case.signature["x"][1:]]
    x = _pitched((rng.standard_normal((rows, columns)) * 3).astype(kind))
    out = _pitched(tw.reference.poisoned((rows, columns), kind))
    args = {"x": x.base, "out": out.base, "columns": columns, "stride": x.base.shape[1]}

    def check() -> None:
        value = x.view.astype(np.float64)
        power = np.exp(value - value.max(1, keepdims=True))
        expected = power / power.sum(1, keepdims=True)
        step = float(np.finfo(kind).eps)
        within("out", out.view, expected, expected * (step + 2.0**-18) + 2.0**-24)

    return Run((rows,), args, ("out",), check)


def _layer_norm(case: Case, rng: np.random.Generator) -> Run:
    rows, columns = case.size
    x = (rng.standard_normal((rows, columns)) + rng.standard_normal((rows, 1))).astype(np.float32)
    weight, bias = rng.standard_normal((2, columns)).astype(np.float32)
    out = tw.reference.poisoned((rows, columns), np.float32)
    means, rates = tw.reference.poisoned((2, rows), np.float32)
    args = {"x": x, "weight": weight, "bias": bias, "out": out, "means": means.copy(), "rates": rates.copy()}

    def check() -> None:
        mean, rate, normal = _normal(x)
        expected = normal * weight + bias
        within("out", out, expected, 2.0**-17 * (np.abs(normal * weight) + np.abs(bias) + 1))
        within("means", args["means"], mean[:, 0], 2.0**-18)
        within("rates", args["rates"], rate[:, 0], 2.0**-18 * rate[:, 0])

    return Run((rows,), {**args, "columns": columns, "eps": 1e-5}, ("out", "means", "rates"), check)


def _normal(x: Array) -> tuple[Array, Array, Array]:
    value = x.astype(np.float64)
    mean = value.mean(1, keepdims=True)
    rate = 1 / np.sqrt(value.var(1, keepdims=True) + 1e-5)
    return mean, rate, (value - mean) * rate


def _layer_norm_back(case: Case, rng: np.random.Generator) -> Run:
    rows, columns = case.size
    x, grad = rng.standard_normal((2, rows, columns)).astype(np.float32)
    weight = rng.standard_normal(columns).astype(np.float32)
    mean, rate, normal = _normal(x)
    to_x = tw.reference.poisoned((rows, columns), np.float32)
    to_weight, to_bias = np.zeros(columns, np.float32), np.zeros(columns, np.float32)
    args = {"x": x.copy(), "grad": grad.copy(), "weight": weight, "to_x": to_x}
    args |= {"means": mean[:, 0].astype(np.float32), "rates": rate[:, 0].astype(np.float32)}
    args |= {"to_weight": to_weight, "to_bias": to_bias}

    def check() -> None:
        scaled = grad * weight.astype(np.float64)
        along = (normal * scaled).mean(1, keepdims=True)
        expected = (scaled - normal * along - scaled.mean(1, keepdims=True)) * rate
        size = (np.abs(scaled) + np.abs(normal) * np.abs(normal * scaled).mean(1, keepdims=True) + 1) * rate
        within("to_x", to_x, expected, 2.0**-17 * size)
        within("to_weight", to_weight, (grad * normal).sum(0), 2.0**-18 * (np.abs(grad * normal).sum(0) + 1))
        within("to_bias", to_bias, grad.astype(np.float64).sum(0), 2.0**-18 * (np.abs(grad).sum(0) + 1))

    # NOTE: sums by atomic additions differ from order to order; their bits are not compared.
    return Run((rows,), {**args, "columns": columns}, ("to_x",), check)


# -- attention --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Attention:
    """A whole attention in float64, forth and back, and what rounding in between may change."""

    q: Array
    k: Array
    v: Array
    grad: Array
    scale: float
    causal: bool
    unit: float  # of the type that powers and slopes are rounded to before they are multiplied

    @property
    def levels(self) -> Array:
        scores = self._scores()
        most = scores.max(-1, keepdims=True)
        levels: Array = (most + np.log(np.exp(scores - most).sum(-1, keepdims=True)))[..., 0]
        return levels

    def _scores(self) -> Array:
        scores: Array = _wide(self.q) @ _turned(_wide(self.k)) * self.scale
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
        return scores

    @property
    def weights(self) -> Array:
        weights: Array = np.exp(self._scores() - self.levels[..., None])
        return weights

    def forth(self) -> tuple[Array, Array]:
        sizes = self.weights @ np.abs(_wide(self.v))
        return self.weights @ _wide(self.v), self.unit * (sizes + 1)

    def slopes(self) -> tuple[Array, Array]:
        """How the result changes with each score, and how wrong that may be."""
        weights, grad = self.weights, _wide(self.grad)
        out = weights @ _wide(self.v)
        along = grad @ _turned(_wide(self.v))
        slopes = weights * (along - (grad * out).sum(-1, keepdims=True)) * self.scale
        sizes = np.abs(grad) @ _turned(np.abs(_wide(self.v))) + (np.abs(grad * out)).sum(-1, keepdims=True)
        return slopes, self.unit * weights * sizes * self.scale

    def back(self) -> dict[str, tuple[Array, Array]]:
        slopes, doubt = self.slopes()
        weights, grad = self.weights, _wide(self.grad)
        return {
            "to_q": (slopes @ _wide(self.k), doubt @ np.abs(_wide(self.k)) + self.unit),
            "to_k": (_turned(slopes) @ _wide(self.q), _turned(doubt) @ np.abs(_wide(self.q)) + self.unit),
            "to_v": (_turned(weights) @ grad, self.unit * (_turned(weights) @ np.abs(grad) + 1)),
        }


def _wide(x: Array) -> Array:
    return x.astype(np.float64)


def _turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _attention(case: Case, rng: np.random.Generator) -> Run:
    heads, length, _ = case.size
    kind = _TYPES[case.signature["q"][1:]]
    drawn = (rng.standard_normal((4, *case.size)) * 0.8).astype(kind)
    unit = 2.0**-9 if kind is np.float16 else 2.0**-16
    whole = _Attention(drawn[0], drawn[1], drawn[2], drawn[3], 0.25, bool(case.constants["CAUSAL"]), unit)
    args: dict[str, Any] = {"q": drawn[0].copy(), "k": drawn[1].copy(), "v": drawn[2].copy()}
    args |= {"length": length, "scale": whole.scale}
    if case.function == "attention":
        wanted: dict[str, tuple[Array, Array]] = {"out": whole.forth()}
        wanted["levels"] = (whole.levels, np.asarray(whole.unit))
        args |= {"out": tw.reference.poisoned(case.size, kind)}
        args |= {"levels": tw.reference.poisoned((heads, length), np.float32)}
    else:
        outputs = [name for name in ("to_q", "to_k", "to_v") if name in case.signature]
        args |= {"grad": drawn[3].copy(), "out": whole.forth()[0].astype(kind)}
        args |= {"levels": whole.levels.astype(np.float32)}
        args |= {name: tw.reference.poisoned(case.size, np.float32) for name in outputs}
        wanted = {name: whole.back()[name] for name in outputs}

    def check() -> None:
        for name, (expected, bound) in wanted.items():
            within(name, args[name], expected, bound)

    step = int(case.constants["BK" if case.function == "attention_back_keys" else "BQ"])
    return Run((-(-length // step), heads), args, tuple(wanted), check)


_MAKERS: dict[str, Callable[[Case, np.random.Generator], Run]] = {
    "matmul_by_host_descriptors": _matmul_by_host_descriptors,
    "matmul": _matmul,
    "softmax": _softmax,
    "layer_norm_back": _layer_norm_back,
    "layer_norm": _layer_norm,
    "attention": _attention,
}
