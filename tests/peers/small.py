"""What the small kernels are run on, and what NumPy says to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.triton.cases import Case, Setting

__all__ = ["SMALL", "Small"]

Array = npt.NDArray[Any]
Rng = np.random.Generator
Args = dict[str, Any]
Model = Callable[[Args], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Small:
    """A kernel, its grid, its arguments, and what must be in those that it writes. ``slack`` is the largest
    error, as a share of what is expected and beside it; 0 asks for equality."""

    case: Case
    grid: tuple[int, ...]
    args: Callable[[Rng], Args]
    model: Model
    slack: float = 0.0


def _small(
    name: str,
    signature: str,
    constants: Mapping[str, Setting],
    grid: int | tuple[int, ...],
    args: Callable[[Rng], Args],
    model: Model,
    slack: float = 0.0,
    archs: tuple[int, ...] = (75, 80, 90),
    function: str = "",
) -> Small:
    kinds = dict(item.split(":") for item in signature.split())
    case = Case(name, "extras", function or name, kinds, constants, (), archs)
    return Small(case, (grid,) if isinstance(grid, int) else grid, args, model, slack)


def _floats(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _whole(rng: Rng, low: int, high: int, *shape: int) -> Array:
    return rng.integers(low, high, shape).astype(np.int32)


def _nan(*shape: int) -> Array:
    return np.full(shape, np.nan, np.float32)


def _scans(args: Args) -> dict[str, Any]:
    x = args["x"].astype(np.float64)
    return {
        "sums": np.cumsum(x[:, ::-1], 1)[:, ::-1],
        "products": np.cumprod(x, 0),
        "maxima": np.maximum.accumulate(x, 1),
    }


def _reductions(args: Args) -> dict[str, Any]:
    x = args["x"]
    return {
        "by_row": x.sum(1),
        "by_column": x.sum(0),
        "most": [x.max()],
        "where_least": x.argmin(1),
        "parity": np.bitwise_xor.reduce(x, 0),
    }


def _counts(args: Args) -> dict[str, Any]:
    found = np.bincount(args["x"], minlength=32)
    return {"inside": found, "atomically": found}


def _atomics(args: Args) -> dict[str, Any]:
    x = args["x"]
    bits = [np.bitwise_or.reduce(x), np.bitwise_and.reduce(x), np.bitwise_xor.reduce(x)]
    return {"whole": [x.max(), x.min(), *bits], "real": [x.sum(), x.max(), x.min()]}


def _integers(args: Args) -> dict[str, Any]:
    x, y = args["x"].astype(np.int64), args["y"].astype(np.int64)
    quotient = np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)
    high = [(int(a) % 2**32) * (int(b) % 2**32) >> 32 for a, b in zip(x, y, strict=True)]
    rows = [quotient, x - quotient * y, high, (x >> (y & 7)) ^ (x << 3)]
    rows += [np.minimum(x, y) + np.maximum(x, y) - np.abs(x), np.clip(x, -5, 9)]
    return {"out": np.stack(rows).astype(np.int32)}


def _long_integers(args: Args) -> dict[str, Any]:
    rows = []
    for a, b in zip(map(int, args["x"]), map(int, args["y"]), strict=True):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        rows.append([quotient, a - quotient * b, a * b, (a % 2**64) * (b % 2**64) >> 64])
    columns = [[(value + 2**63) % 2**64 - 2**63 for value in column] for column in zip(*rows, strict=True)]
    total = np.cumsum((args["x"] ^ args["y"]).view(np.uint64), dtype=np.uint64).view(np.int64)
    return {"out": np.array([*columns, total], np.int64)}


def _functions(args: Args) -> dict[str, Any]:
    v = args["x"].astype(np.float64)
    size = np.abs(v)
    rows = [np.exp(v), np.log(size), np.sin(v), np.cos(v), np.sqrt(size), 1 / np.sqrt(size)]
    rows += [1 / (1 + np.exp(-v)), np.array([math.erf(t) for t in v]), np.floor(v) + np.ceil(v), np.exp2(v)]
    return {"out": np.stack([*rows, v / np.float64(np.float32(1.7)), v * v + v, np.log2(size)])}


def _library(args: Args) -> dict[str, Any]:
    v, w = args["x"].astype(np.float64), args["y"].astype(np.float64)
    rows = [np.tanh(v), np.abs(v) ** w, np.arctan2(v, w), np.fmod(v, w), np.expm1(v)]
    rows += [np.array([math.lgamma(t) for t in np.abs(args["x"]) + np.float32(0.5)])]
    far = (args["x"] * np.float32(1e5)).astype(np.float64)
    return {"out": np.stack([*rows, np.sin(far), np.rint(v), np.cbrt(v)])}


def _casts(args: Args) -> dict[str, Any]:
    x = args["x"]
    words = x.view(np.int32) ^ x.astype(np.int32).astype(np.uint16).astype(np.int32)
    return {
        "halves": x.astype(np.float16),
        "brains": x.astype(ml_dtypes.bfloat16),
        "bytes_": x.astype(np.int32).astype(np.int8),
        "doubles": x.astype(np.float64) * 3,
        "words": words,
    }


def _small_floats(kind: Any) -> Model:
    def model(args: Args) -> dict[str, Any]:
        small = args["x"].astype(kind)
        return {"out": small, "back": small.astype(np.float32)}

    return model


def _calls(args: Args) -> dict[str, Any]:
    x, y = args["x"], args["y"]
    return {"out": np.stack([x * y + 1, (x * y + x[0] + 1) ^ y])}


def _randoms(args: Args) -> dict[str, Any]:
    """Uniform in [0, 1), and normal: what is always so of 1,024 of each."""
    uniform, normal = args["out"].astype(np.float64)
    assert 0 <= uniform.min() < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.06
    assert abs(normal.mean()) < 0.2
    assert abs(normal.std() - 1) < 0.15
    return {}


def _products(args: Args) -> dict[str, Any]:
    return {"c": args["a"].astype(np.float64) @ args["b"].astype(np.float64)}


def _reshaped(args: Args) -> dict[str, Any]:
    x = args["x"]
    return {"pairs": x[::2] - x[1::2], "out": x.reshape(-1, 2)[:, ::-1].reshape(-1), "flipped": x[::-1]}


def _welford(args: Args) -> dict[str, Any]:
    x = args["x"].astype(np.float64)
    return {"mean": x.mean(1), "spread": x.var(1)}


def _modifiers(args: Args) -> dict[str, Any]:
    value = args["x"] * 5
    return {"out": value + 2, "total": [value.sum()] * 4, "flags": np.repeat([7, 8, 9], 128)}


def _long_atomics(args: Args) -> dict[str, Any]:
    x = args["x"]
    return {
        "most": [x.max(), x.min()],
        "total": [float(x.sum())],
        "swapped": np.where(np.arange(384) % 2, x, -1),
    }


def _double_functions(args: Args) -> dict[str, Any]:
    v = args["x"]
    rows = [np.exp(v), np.log(np.abs(v)), np.sin(v), np.cos(v * 1000), np.sqrt(np.abs(v)), 1 / v]
    return {"out": np.stack([*rows, np.array([math.erf(t) for t in v]), np.tanh(v)])}


def _brains(args: Args) -> dict[str, Any]:
    a, b = args["x"].astype(np.float32), args["y"].astype(np.float32)
    rows = [a * b, a + b, np.maximum(a, b), -np.abs(a), np.where(a < b, a, b)]
    return {"out": np.stack(rows).astype(args["x"].dtype)}


def _scaled_dots(args: Args) -> dict[str, Any]:
    def scaled(matrix: Array, scale: Array) -> Array:
        widened: Array = matrix.astype(np.float64) * np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, 1)
        return widened

    return {"c": scaled(args["a"], args["a_scale"]) @ scaled(args["b"].T, args["b_scale"]).T}


_TABLE = {"ROWS": 16, "COLUMNS": 64}
_OLD = {"BLOCK": 128}
SMALL = (
    _small(
        "scans", "x:*fp32 sums:*fp32 products:*fp32 maxima:*fp32", _TABLE, 1,
        lambda rng: {"x": _floats(rng, 16, 64)} | {name: _nan(16, 64) for name in ("sums", "products", "maxima")},
        _scans, 1e-5,
    ),
    _small(
        "reductions", "x:*i32 by_row:*i32 by_column:*i32 most:*i32 where_least:*i32 parity:*i32", _TABLE, 1,
        lambda rng: {
            "x": _whole(rng, -1000, 1000, 16, 64), "by_row": np.zeros(16, np.int32), "by_column": np.zeros(64, np.int32),
            "most": np.zeros(1, np.int32), "where_least": np.zeros(16, np.int32), "parity": np.zeros(64, np.int32),
        },
        _reductions,
    ),
    _small(
        "sorted_rows", "x:*fp32 up:*fp32 down:*fp32", {"ROWS": 4, "COLUMNS": 128}, 1,
        lambda rng: {"x": _floats(rng, 4, 128), "up": _nan(4, 128), "down": _nan(4, 128)},
        lambda args: {"up": np.sort(args["x"], 1), "down": np.sort(args["x"], 1)[:, ::-1]},
    ),
    _small(
        "counts", "x:*i32 inside:*i32 atomically:*i32 n:i32", {"BLOCK": 1024, "BINS": 32}, 1,
        lambda rng: {
            "x": _whole(rng, 0, 32, 900), "inside": np.zeros(32, np.int32), "atomically": np.zeros(32, np.int32), "n": 900,
        },
        _counts,
    ),
    _small(
        "atomics", "x:*i32 whole:*i32 real:*fp32 old:*i32", _OLD, 3,
        lambda rng: {
            "x": _whole(rng, -1000, 1000, 384), "whole": np.array([-5000, 5000, 0, -1, 0], np.int32),
            "real": np.array([0, -5000, 5000], np.float32), "old": np.zeros(384, np.int32),
        },
        _atomics,
    ),
    _small(
        "half_atomics", "x:*fp16 sums:*fp16", _OLD, 3,
        lambda rng: {"x": _whole(rng, -50, 50, 3, 128).astype(np.float16), "sums": np.zeros(128, np.float16)},
        lambda args: {"sums": args["x"].sum(0)},
    ),
    _small(
        "locked", "lock:*i32 count:*i32", {"BLOCK": 32}, 16,
        lambda rng: {"lock": np.zeros(1, np.int32), "count": np.zeros(1, np.int32)},
        lambda args: {"lock": [0], "count": [16]},
    ),
    _small(
        "gathers", "x:*fp32 index:*i32 out:*fp32 inside:*fp32", {"ROWS": 4, "COLUMNS": 64}, 1,
        lambda rng: {
            "x": _floats(rng, 4, 64), "index": _whole(rng, 0, 256, 4, 64), "out": _nan(4, 64), "inside": _nan(4, 64),
        },
        lambda args: {
            "out": args["x"].reshape(-1)[args["index"]],
            "inside": np.take_along_axis(args["x"], args["index"] % 64, 1),
        },
    ),
    _small(
        "transposed", "x:*fp32 out:*fp32 rows:i32 columns:i32", {"BLOCK": 32}, (2, 3),
        lambda rng: {"x": _floats(rng, 50, 70), "out": _nan(70, 50), "rows": 50, "columns": 70},
        lambda args: {"out": args["x"].T},
    ),
    _small(
        "reshaped", "x:*fp32 out:*fp32 pairs:*fp32 flipped:*fp32", {"BLOCK": 256}, 1,
        lambda rng: {"x": _floats(rng, 256), "out": _nan(256), "pairs": _nan(128), "flipped": _nan(256)},
        _reshaped,
    ),
    _small(
        "integers", "x:*i32 y:*i32 out:*i32", _OLD, 1,
        lambda rng: {
            "x": _whole(rng, -(2**31), 2**31, 128),
            "y": _whole(rng, 1, 500, 128) * rng.choice(np.array([-1, 1], np.int32), 128),
            "out": np.zeros((6, 128), np.int32),
        },
        _integers,
    ),
    _small(
        "long_integers", "x:*i64 y:*i64 out:*i64", _OLD, 1,
        lambda rng: {
            "x": rng.integers(-(2**63), 2**63, 128), "y": rng.integers(1, 2**40, 128) * rng.choice([-1, 1], 128),
            "out": np.zeros((5, 128), np.int64),
        },
        _long_integers,
    ),
    _small(
        "functions", "x:*fp32 out:*fp32", _OLD, 1,
        lambda rng: {"x": _floats(rng, 128), "out": _nan(13, 128)}, _functions, 2e-6,
    ),
    _small(
        "library", "x:*fp32 y:*fp32 out:*fp32", _OLD, 1,
        lambda rng: {"x": _floats(rng, 128), "y": _floats(rng, 128) + np.float32(0.1), "out": _nan(9, 128)},
        _library, 4e-6,
    ),
    _small(
        "casts", "x:*fp32 halves:*fp16 brains:*bf16 bytes_:*i8 doubles:*fp64 words:*i32", _OLD, 1,
        lambda rng: {
            "x": np.abs(_floats(rng, 128) * 40), "halves": np.zeros(128, np.float16),
            "brains": np.zeros(128, ml_dtypes.bfloat16), "bytes_": np.zeros(128, np.int8),
            "doubles": np.zeros(128), "words": np.zeros(128, np.int32),
        },
        _casts,
    ),
    _small(
        "small_floats_e5", "x:*fp32 out:*fp8e5 back:*fp32", {"BLOCK": 128, "KIND": "float8e5"}, 1,
        lambda rng: {"x": _floats(rng, 128) * 4, "out": np.zeros(128, ml_dtypes.float8_e5m2), "back": _nan(128)},
        _small_floats(ml_dtypes.float8_e5m2), archs=(80, 90), function="small_floats",
    ),
    _small(
        "small_floats_e4", "x:*fp32 out:*fp8e4nv back:*fp32", {"BLOCK": 128, "KIND": "float8e4nv"}, 1,
        lambda rng: {"x": _floats(rng, 128) * 4, "out": np.zeros(128, ml_dtypes.float8_e4m3fn), "back": _nan(128)},
        _small_floats(ml_dtypes.float8_e4m3fn), archs=(89, 90), function="small_floats",
    ),
    _small(
        "randoms", "out:*fp32 seed:i32", {"BLOCK": 1024}, 1,
        lambda rng: {"out": _nan(2, 1024), "seed": int(rng.integers(2**31))}, _randoms,
    ),
    _small(
        "calls", "x:*i32 y:*i32 out:*i32", _OLD, 2,
        lambda rng: {
            "x": _whole(rng, -9999, 9999, 128), "y": _whole(rng, -9999, 9999, 128), "out": np.zeros((2, 128), np.int32),
        },
        _calls,
    ),
    _small(
        "small_dots", "a:*fp32 b:*fp32 c:*fp32", {"BATCH": 4, "M": 16, "N": 16, "K": 32}, 1,
        lambda rng: {"a": _floats(rng, 4, 16, 32), "b": _floats(rng, 4, 32, 16), "c": _nan(4, 16, 16)},
        _products, 1e-5,
    ),
    _small(
        "double_dot", "a:*fp64 b:*fp64 c:*fp64", {"M": 32, "N": 32, "K": 32}, 1,
        lambda rng: {"a": rng.standard_normal((32, 32)), "b": rng.standard_normal((32, 32)), "c": np.full((32, 32), np.nan)},
        _products, 1e-13,
    ),
    _small(
        "welford", "x:*fp32 mean:*fp32 spread:*fp32", _TABLE, 1,
        lambda rng: {"x": _floats(rng, 16, 64) + 5, "mean": _nan(16), "spread": _nan(16)}, _welford, 1e-5,
    ),
    _small(
        "modifiers", "x:*i32 out:*i32 total:*i32 flags:*i32", _OLD, 3,
        lambda rng: {
            "x": _whole(rng, -999, 999, 384), "out": np.zeros(384, np.int32),
            "total": np.zeros(4, np.int32), "flags": np.zeros(384, np.int32),
        },
        _modifiers,
    ),
    _small(
        "long_atomics", "x:*i64 most:*i64 total:*fp64 swapped:*i64", _OLD, 3,
        lambda rng: {
            "x": rng.integers(-(2**40), 2**40, 384), "most": np.array([-(2**60), 2**60]), "total": np.zeros(1),
            "swapped": np.where(np.arange(384) % 2, np.arange(384), -1),
        },
        _long_atomics,
    ),
    _small(
        "double_functions", "x:*fp64 out:*fp64", _OLD, 1,
        lambda rng: {"x": rng.standard_normal(128), "out": np.full((8, 128), np.nan)}, _double_functions, 1e-14,
    ),
    _small(
        "brains", "x:*bf16 y:*bf16 out:*bf16", _OLD, 1,
        lambda rng: {
            "x": _floats(rng, 128).astype(ml_dtypes.bfloat16), "y": _floats(rng, 128).astype(ml_dtypes.bfloat16),
            "out": np.zeros((5, 128), ml_dtypes.bfloat16),
        },
        _brains,
    ),
    _small(
        "halves", "x:*fp16 y:*fp16 out:*fp16", _OLD, 1,
        lambda rng: {
            "x": _floats(rng, 128).astype(np.float16), "y": _floats(rng, 128).astype(np.float16),
            "out": np.zeros((5, 128), np.float16),
        },
        _brains, function="brains",
    ),
    _small(
        "scaled_dots", "a:*fp8e5 a_scale:*u8 b:*fp8e5 b_scale:*u8 c:*fp32", {"M": 64, "N": 32, "K": 64}, 1,
        lambda rng: {
            "a": _floats(rng, 64, 64).astype(ml_dtypes.float8_e5m2), "b": _floats(rng, 64, 32).astype(ml_dtypes.float8_e5m2),
            "a_scale": rng.integers(120, 132, (64, 2)).astype(np.uint8),
            "b_scale": rng.integers(120, 132, (32, 2)).astype(np.uint8), "c": _nan(64, 32),
        },
        _scaled_dots, 2e-2, archs=(80, 90),
    ),
    _small(
        "largest", "x:*fp32 out:*fp32", {"ROWS": 4, "COLUMNS": 64, "COUNT": 8}, 1,
        lambda rng: {"x": _floats(rng, 4, 64), "out": _nan(4, 8)},
        lambda args: {"out": -np.sort(-args["x"], 1)[:, :8]},
    ),
)  # fmt: skip
