"""Products drawn at random, the same everywhere: of all sizes, layouts, types, stacks, groups and epilogues."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.operands import Operand, Operands
from tilewise.planner import operands_of

__all__ = ["TYPES", "Draw", "draw_operands"]

_T = TypeVar("_T")
_SIZES = (
    1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 192, 200, 255, 256, 257, 300, 384, 500, 512,
    513, 640, 1000, 1024, 1025, 2048, 3000, 4096, 5000, 8192, 12_345, 70_000, 0,
)  # fmt: skip
TYPES = (
    "float32", "tf32", "exact32", "float64", "complex64", "complex128", "float16", "f16", "bfloat16", "float8_e4m3fn",
    "float8_e5m2", "int8", "int32", "int64", "bfloat16 by int8", "int8 by float16", "float8_e4m3fn by float8_e5m2",
    "float16 by float8_e5m2",
)  # fmt: skip
_ASKED = {"tf32": ("float32", "tf32"), "exact32": ("float32", "exact32"), "f16": ("float16", "f16")}
_RESULTS = ("float32", "float16", "bfloat16", "int8", "float64", "float8_e4m3fn", "int32")
_EPILOGUES = (
    "acc * 2", "relu(acc + row)", "acc + whole", "acc + column", "keep(half, acc + row) * whole", "column_sums(down, acc)",
    "row_sums(across, acc) + row", "keep(whole, acc)", "acc * s",
)  # fmt: skip
_SCALED = (
    "scaled(acc, of_a, of_b)",
    "scaled(acc, 1, of_b) + row",
    "scaled(acc, of_a, 1)",
    "scaled(acc, tiles_a, tiles_b)",
)


class Draw:
    """Draws from a seed, by the one method of Python's generator that gives the same in all of its versions."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def one(self, values: Sequence[_T]) -> _T:
        return values[int(self._random.random() * len(values))]

    def often(self, share: float) -> bool:
        return self._random.random() < share


def draw_operands(draw: Draw, kind: str, thin: bool = False) -> Operands | ArgumentError:
    """Operands of a kind of :data:`TYPES`, or why there are none such; ``thin``: of which one has one row or column."""
    (a, _, b), arithmetic = kind.partition(" by "), None
    if a in _ASKED:
        a, arithmetic = _ASKED[a]
    m, n, k = (draw.one(_SIZES) for _ in "mnk")
    if draw.often(0.9 if thin else 0.1):
        m, n = draw.one(((1, n), (m, 1)))
    given: dict[str, Any] = {
        "dtype": a,
        "b_dtype": b or None,
        "arithmetic": arithmetic,
        "layout": draw.one(("nn", "nt", "tn", "tt")),
    }
    given["batch"] = draw.one((1, 1, 1, 1, 2, 2, 3, 17, 130, 0))
    if draw.often(0.12):
        given |= {"batch": 1, "groups": draw.one((1, 3, 8))}
    elif given["batch"] > 1 and draw.often(0.3):
        given["pointers"] = True
    if draw.often(0.2):
        given["result"] = draw.one(_RESULTS)
    text = draw.one(_EPILOGUES) if draw.often(0.3) else ""
    text = "acc * s" if text and a.startswith("complex") else text
    if a.startswith(("float8", "int8")) and draw.often(0.3):
        text = draw.one(_SCALED)
    try:
        given["epilogue"] = _epilogue(text, (m, n, k), given["batch"]) if text else None
        return _displaced(draw, operands_of(m, n, k, **given))
    except ArgumentError as error:
        return error


def _epilogue(text: str, sizes: tuple[int, int, int], batch: int) -> Any:
    """The epilogue with arrays of no memory to speak of."""
    (m, n, k), stack = sizes, () if batch == 1 else (batch,)
    runs = -(-k // 128)
    shapes: dict[str, tuple[int, ...]] = {
        "row": (n,), "column": (m, 1), "whole": (*stack, m, n), "half": (*stack, m, n), "down": (*stack, n),
        "across": (*stack, m), "of_a": (m, runs), "of_b": (runs, n), "tiles_a": (-(-m // 128), runs),
        "tiles_b": (runs, -(-n // 128)),
    }  # fmt: skip
    arrays: dict[str, Any] = {
        name: np.zeros(shape, np.float16 if name == "half" else np.float32)
        for name, shape in shapes.items()
        if re.search(rf"\b{name}\b", text)
    }
    return tw.epilogue(text, **arrays, **({"s": 1.5} if text.endswith(" s") else {}))


def _displaced(draw: Draw, operands: Operands) -> Operands:
    """The operands with rows farther apart, less aligned, or the same for a whole stack, now and then."""
    found: dict[str, Any] = {name: _displace(draw, getattr(operands, name)) for name in "abc"}
    if not operands.by_pointers and operands.stack and draw.often(0.3):
        which = draw.one("ab")
        found[which] = replace(found[which], stack=(0,))
    return operands._replace(**found)


def _displace(draw: Draw, one: Operand) -> Operand:
    apart = draw.one((0, 0, 0, 0, 1, 2, 4, 8, 16, 100))
    if apart and one.column_stride == 1:
        one = replace(one, row_stride=one.row_stride + apart)
    elif apart:
        one = replace(one, column_stride=one.column_stride + apart)
    if apart and one.stack and not one.by_pointers:
        one = replace(one, stack=(one.stack[0] + apart * max(one.rows, one.columns),))
    if draw.often(0.15):
        item = one.itemsize
        one = replace(one, alignment=max(draw.one((1, 2, 4, 8)), item) if item < 16 else 16)
    if draw.often(0.06) and one.name != "c":
        one = replace(one, row_stride=2 * one.row_stride, column_stride=2 * one.column_stride)
    return one
