"""Matrices on a device in the middle of larger ones of NaN: a stray read spoils a result, a stray write shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["Framed", "framed", "marked", "numbers"]

Array = npt.NDArray[Any]
# NaN whose digits no computation makes; of integers a number that is rare.
_MARKS = {"float32": 0x7FC0_BEEF, "float64": 0x7FF8_0000_0000_BEEF, "float16": 0x7EEF, "bfloat16": 0x7FEF,
          "float8_e4m3fn": 0xFF, "float8_e5m2": 0xFD, "int8": 0x81, "int32": 0x8000_BEEF}  # fmt: skip


_RANDOM = np.random.default_rng()


def numbers(shape: tuple[int, ...], dtype: str) -> Array:
    """Normal random numbers; of int8 all that there are, each as often."""
    if dtype == "int8":
        return _RANDOM.integers(-128, 128, shape).astype(np.int8)
    return _RANDOM.standard_normal(shape).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


def framed(shape: tuple[int, ...], dtype: str, in_rows: bool, skip: int, gap: int) -> Array:
    """Random matrices in rows or columns, with ``skip`` marks before each line and ``gap`` behind it; -1: to 16 elements."""
    *stack, rows, columns = shape
    if not in_rows:
        return framed((*stack, columns, rows), dtype, True, skip, gap).swapaxes(-1, -2)
    after = gap if gap >= 0 else -(skip + columns) % 16
    inside = marked((*stack, rows, skip + columns + after), dtype)[..., skip : skip + columns]
    inside[...] = numbers(inside.shape, dtype)
    return inside


def marked(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of marks."""
    kind: Any = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.full(shape, _MARKS[dtype], f"u{kind.itemsize}").view(kind)


class Framed:
    """A matrix on a device, with a row of marks above and below it, and columns of them to its sides."""

    def __init__(self, device: Any, values: Array, left: int = 0, right: int = 0) -> None:
        rows, columns = values.shape
        self.inside = slice(1, 1 + rows), slice(left, left + columns)
        self.around = marked((rows + 2, left + columns + right), str(values.dtype))
        self.around[self.inside] = values
        self.whole = device.array(self.around)
        self.part = self.whole[self.inside]

    def taken(self) -> Array:
        """The matrix as it is now, once nothing around it has changed."""
        now: Array = self.whole.numpy()
        values: Array = now[self.inside].copy()
        now[self.inside] = self.around[self.inside]
        assert now.tobytes() == self.around.tobytes()
        return values
