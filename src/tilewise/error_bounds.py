"""Arithmetic on float64 values that carry a bound of their error: what an epilogue does to the errors of sums.

Each operation bounds what it makes of its operands' errors and adds its own rounding, of the type that the kernel
computes in. Where a condition hangs on less than the errors, either side may be the kernel's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Bounded", "BoundedArithmetic"]

Array = npt.NDArray[np.float64]
_erf: Any = np.frompyfunc(math.erf, 1, 1)
_ROUNDINGS = 8.0  # units in the last place by which a function may be off, its inner steps included


class Bounded(NamedTuple):
    """Values, and by how much the kernel's may differ from them."""

    value: Array
    error: Array


class _Condition(NamedTuple):
    """What comparisons come to, and where errors cannot change that."""

    value: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _below(x: Array) -> Array:
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2)).astype(np.float64)))


def _bend(x: Array) -> Array:
    return np.asarray(np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_tanh_grad(x: Array) -> Array:
    y, slope = _bend(x), math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + y) + 0.5 * x * (1 - y * y) * slope


def _silu_grad(x: Array) -> Array:
    y = _sigmoid(x)
    return y * (1 + x * (1 - y))


# Functions of bounded slope: the function, and its steepest slope.
_SMOOTH: dict[str, tuple[Callable[[Array], Any], float]] = {
    "erf": (lambda x: _erf(x).astype(np.float64), 1.13),
    "tanh": (np.tanh, 1.0),
    "tanh_grad": (lambda x: 1 - np.tanh(x) ** 2, 0.78),
    "sigmoid": (_sigmoid, 0.25),
    "sigmoid_grad": (lambda x: _sigmoid(x) * (1 - _sigmoid(x)), 0.1),
    "silu": (lambda x: x / (1 + np.exp(-x)), 1.1),
    "silu_grad": (_silu_grad, 0.51),
    "gelu": (lambda x: x * _below(x), 1.13),
    "gelu_grad": (lambda x: _below(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), 0.8),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + _bend(x)), 1.14),
    "gelu_tanh_grad": (_gelu_tanh_grad, 0.81),
}


class BoundedArithmetic:
    """The operations of an epilogue's expression, in a type of unit roundoff ``unit`` and least positive ``least``."""

    def __init__(self, unit: float, least: float) -> None:
        self.unit, self.least = unit, least
        self.kept: dict[str, Bounded] = {}  # what is stored or added up, by the name of the array

    def number(self, value: float) -> Bounded:
        """A number, as the kernel's type holds it."""
        exact = np.asarray(value, np.float64)
        return Bounded(exact, np.abs(exact) * self.unit + self.least)

    def array(self, values: npt.ArrayLike) -> Bounded:
        """An array's elements, which are exact."""
        exact = np.asarray(values).astype(np.float64)
        return Bounded(exact, np.zeros_like(exact))

    def _rounded(self, value: Any, error: Any, roundings: float = 1.0, scale: Any = 0.0) -> Bounded:
        """A result with its own rounding: so many units of itself, or of ``scale`` where that is larger."""
        size = np.maximum(np.abs(value), scale)
        whole = error + roundings * self.unit * (size + error) + self.least
        return Bounded(np.asarray(value), np.where(np.isnan(whole), np.inf, whole))

    def add(self, a: Bounded, b: Bounded) -> Bounded:
        return self._rounded(a.value + b.value, a.error + b.error)

    def subtract(self, a: Bounded, b: Bounded) -> Bounded:
        return self._rounded(a.value - b.value, a.error + b.error)

    def multiply(self, a: Bounded, b: Bounded) -> Bounded:
        error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
        return self._rounded(a.value * b.value, error)

    def divide(self, a: Bounded, b: Bounded) -> Bounded:
        value, room = a.value / b.value, np.abs(b.value) - b.error
        error = (a.error + np.abs(value) * b.error) / np.where(room > 0, room, 0.0)
        return self._rounded(value, error)

    def negate(self, a: Bounded) -> Bounded:
        return Bounded(-a.value, a.error)

    def identity(self, a: Bounded) -> Bounded:
        return a

    def power(self, a: Bounded, power: int) -> Bounded:
        """A whole power, by squaring."""
        if not power:
            return self.array(np.ones_like(a.value))
        half = self.power(a, power // 2) if power > 1 else None
        if half is None:
            return a
        square = self.multiply(half, half)
        return self.multiply(square, a) if power % 2 else square

    def compare(self, sign: str, a: Bounded, b: Bounded) -> _Condition:
        apart = np.abs(a.value - b.value)
        exact = (a.error + b.error) == 0
        unordered = np.isnan(a.value) | np.isnan(b.value)
        infinite = np.isinf(a.value) | np.isinf(b.value)
        sure = exact | unordered | infinite | (apart > a.error + b.error)
        return _Condition(np.asarray(_COMPARISONS[sign](a.value, b.value)), np.asarray(sure))

    def both(self, a: _Condition, b: _Condition) -> _Condition:
        sure = (a.sure & b.sure) | (a.sure & ~a.value) | (b.sure & ~b.value)
        return _Condition(a.value & b.value, sure)

    def either(self, a: _Condition, b: _Condition) -> _Condition:
        return self.invert(self.both(self.invert(a), self.invert(b)))

    def invert(self, a: _Condition) -> _Condition:
        return _Condition(~a.value, a.sure)

    def where(self, condition: _Condition, a: Bounded, b: Bounded) -> Bounded:
        value = np.where(condition.value, a.value, b.value)
        error = np.where(condition.value, a.error, b.error)
        either = np.maximum(np.abs(a.value - value) + a.error, np.abs(b.value - value) + b.error)
        return Bounded(value, np.where(condition.sure, error, either))

    def keep(self, name: str, a: Bounded) -> Bounded:
        self.kept[name] = a
        return a

    def call(self, function: str, *given: Any) -> Bounded:
        """A function of the expression."""
        if function in _SMOOTH:
            x: Bounded = given[0]
            evaluate, slope = _SMOOTH[function]
            size = np.maximum(np.abs(x.value), 1.0)  # of what cancels inside
            return self._rounded(np.asarray(evaluate(x.value)), slope * x.error, _ROUNDINGS, size)
        found: Bounded = getattr(self, f"_{function}")(*given)
        return found

    def _where(self, condition: _Condition, a: Bounded, b: Bounded) -> Bounded:
        return self.where(condition, a, b)

    def _min(self, a: Bounded, b: Bounded) -> Bounded:
        return Bounded(np.minimum(a.value, b.value), np.maximum(a.error, b.error))

    def _max(self, a: Bounded, b: Bounded) -> Bounded:
        return Bounded(np.maximum(a.value, b.value), np.maximum(a.error, b.error))

    def _clamp(self, x: Bounded, least: Bounded, most: Bounded) -> Bounded:
        return self._min(self._max(x, least), most)

    def _abs(self, x: Bounded) -> Bounded:
        return Bounded(np.abs(x.value), x.error)

    def _relu(self, x: Bounded) -> Bounded:
        return self._max(x, self.array(0.0))

    def _relu_grad(self, x: Bounded) -> Bounded:
        positive = self.compare(">", x, self.array(0.0))
        slope = self.where(positive, self.array(1.0), self.array(0.0))
        return Bounded(np.where(np.isnan(x.value), np.nan, slope.value), slope.error)

    def _exp(self, x: Bounded) -> Bounded:
        value = np.exp(x.value)
        return self._rounded(value, value * np.expm1(x.error), _ROUNDINGS)

    def _log(self, x: Bounded) -> Bounded:
        share = np.minimum(x.error / np.abs(x.value), 1.0)
        return self._rounded(np.log(x.value), -np.log1p(-share), _ROUNDINGS)

    def _sqrt(self, x: Bounded) -> Bounded:
        value, low = np.sqrt(x.value), x.value - x.error
        error = np.where(low >= 0, value - np.sqrt(np.maximum(low, 0.0)), np.inf)
        return self._rounded(value, error, _ROUNDINGS)

    def _rsqrt(self, x: Bounded) -> Bounded:
        value, low = 1 / np.sqrt(x.value), x.value - x.error
        error = np.where(low > 0, 1 / np.sqrt(np.where(low > 0, low, 1.0)) - value, np.inf)
        return self._rounded(value, error, _ROUNDINGS)
